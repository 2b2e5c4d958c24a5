"""A whole chip as a bitstream: Yosys, nextpnr and what packs it for its family, and openFPGALoader that puts it on a board."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import InfeasibleError, MissingToolError, ToolError, UnsupportedError
from dovetail.fpga.boards.top import ChipTop
from dovetail.fpga.toolchain.flow import NETLIST, OpenFlow, PinSite
from dovetail.fpga.toolchain.place import FLOWS, PLACE_TIMEOUT_S, RoutedNetlist, critical_path
from dovetail.fpga.toolchain.synthesize import find_synthesizer
from dovetail.fpga.toolchain.tools import Command, cached, content_key, override, run_tool

PULLS: Mapping[str, str] = {"clock": "NONE", "reset_n": "UP", "from_host": "UP"}
INSTALL_LOADER = ("install it with apt-get install openfpgaloader (Debian, Ubuntu) or brew install openfpgaloader, or name yours "
                  "in DOVETAIL_OPENFPGALOADER")
LOAD_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Bitstream:
    """A chip that was placed and routed at its own pins."""

    file: Path
    fmax_hz: float
    critical_path: str
    used: Mapping[str, int]


def constraints(chip: ChipTop, flow: OpenFlow) -> Mapping[str, str]:
    """Sites, levels and the clock of a chip's pins, as the family's router reads them."""
    sites = [PinSite(name, site, PULLS.get(name)) for name, site, _ in chip.pins]
    return flow.chip_files(sites, chip.board.io_standard, chip.board.oscillator_hz)


def make_bitstream(chip: ChipTop, family: str, part: str, seed: int = 1) -> Bitstream:
    """The bitstream of a chip; refuses one that is too slow (`routed`). Kept by content."""
    if family not in FLOWS:
        raise UnsupportedError(f"bitstream of {chip.name}: no open router is known for family {family}; possible are "
                               f"{', '.join(FLOWS)}")
    flow = FLOWS[family]
    choices = flow.chip_options(part, chip.generator.hz)
    nextpnr, packer, pins = flow.find_nextpnr(), flow.packer.find(), constraints(chip, flow)
    netlist = RoutedNetlist(chip.files, chip.name, find_synthesizer(family), flow)
    options = (*choices, "--json", NETLIST, "--report", "report.json", "--seed", str(seed), "--timing-allow-fail")
    key = content_key([netlist.key, nextpnr.version, *packer, *options, *flow.pack_options(), *pins.values()])

    def make(folder: Path) -> None:
        netlist.copy_to(folder)
        for name, text in pins.items():
            (folder / name).write_text(text, encoding="utf-8")
        run_tool(Command(nextpnr.name, (*nextpnr.command, *options), folder, folder / "nextpnr.log", PLACE_TIMEOUT_S, None))
        run_tool(Command(flow.packer.name, (*packer, *flow.pack_options()), folder, folder / "packer.log", PLACE_TIMEOUT_S, None))
        for path in folder.iterdir():
            if path.name not in (flow.bitstream, "report.json", *pins):
                path.unlink()

    return routed(chip, flow, cached("bitstream", key, make, keep=16)[0])


def routed(chip: ChipTop, flow: OpenFlow, folder: Path) -> Bitstream:
    """What lies in a folder of nextpnr's; InfeasibleError where its slowest path is too slow for the chip's clock."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    fmax_hz = min(clock["achieved"] for clock in report["fmax"].values()) * 1e6
    slowest = critical_path(report)
    if fmax_hz < chip.generator.hz:
        raise InfeasibleError(f"{chip.name}: routed at {fmax_hz / 1e6:.1f} MHz, and its clock is {chip.generator.hz / 1e6:g} MHz "
                              f"(slowest: {slowest}); give --mhz {fmax_hz / 1e6 // 1:.0f} or another --seed")
    used = {name: entry["used"] for name, entry in report["utilization"].items() if entry["used"]}
    return Bitstream(folder / flow.bitstream, fmax_hz, slowest, used)


def load_bitstream(file: Path, programmer: str, keep: bool = False) -> None:
    """Put a bitstream on a board: until it loses power, or into its flash memory (`keep`)."""
    loader = override("DOVETAIL_OPENFPGALOADER", "openFPGALoader") or shutil.which("openFPGALoader")
    if loader is None:
        raise MissingToolError(f"openFPGALoader: not found; {INSTALL_LOADER}")
    command = [loader, "-b", programmer, *(["-f"] if keep else []), str(file)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LOAD_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"openFPGALoader: {error}; is the board connected and switched on?") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-3:]
        raise ToolError(f"openFPGALoader: failed with exit code {done.returncode}: {'; '.join(said) or 'without a word'}; is the "
                        "board connected, and may this user open its USB device?")
