"""Place and route a design with nextpnr, which tells its clock: for Lattice ECP5 and Gowin GW2A, whose routers are open.

A stream is wider than any package has pins, so the design sits between a shift register that feeds its inputs and a
registered parity tree that observes its outputs; neither is ever the slowest path.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dovetail.errors import ToolError
from dovetail.fpga.design import Design, is_verilog
from dovetail.fpga.toolchain.ecp5 import ECP5
from dovetail.fpga.toolchain.flow import NETLIST, OpenFlow
from dovetail.fpga.toolchain.gowin import GW2A
from dovetail.fpga.toolchain.synthesize import SYNTHESIS_MEMORY_BYTES, find_synthesizer
from dovetail.fpga.toolchain.tools import Command, Tool, cached, content_key, run_tool

FLOWS: Mapping[str, OpenFlow] = {flow.family: flow for flow in (ECP5, GW2A)}
"""Families whose router is open."""
PLACE_TIMEOUT_S = 3600.0
ASKED_MHZ = 200.0
"""What the router aims for where the fastest clock is asked: no whole design of ours has reached it."""
TOP = "dovetail_pins"
TOP_PINS = ("clk", "rst", "serial", "parity")
MAPPED_KEPT = 16
"""Netlists that are kept for further seeds; those of large designs have tens of megabytes."""
INSTANCE = "design_under_test."
"""Where the design lies in the wrapper."""
NAMED_CELLS = "TRELLIS_FF|DP16KD|DPR16X4|MULT18X18D|CCU2C|DFF[A-Z]*|ALU|LUT[1-4]|RAM16SDP4|SDPX?9?B|DPX?9?B|pROMX?9?|MULT[0-9X]+"
"""Primitives after which Yosys names a cell, behind the register that the Verilog names."""
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


@dataclass(frozen=True)
class RoutedNetlist:
    """Verilog that Yosys maps to a family, made faster; kept by content, as it is the same from wherever nextpnr begins."""

    files: Mapping[str, str]
    top: str
    yosys: Tool
    flow: OpenFlow

    @cached_property
    def key(self) -> str:
        return content_key([self.yosys.version, self.flow.rewriting, self.top,
                            *(text for item in sorted(self.files.items()) for text in item)])

    def copy_to(self, folder: Path) -> None:
        """Leave it in a folder as `NETLIST`, synthesized if it was not before."""
        made, _ = cached("mapped", self.key, self._make, MAPPED_KEPT)
        shutil.copyfile(made / NETLIST, folder / NETLIST)

    def _make(self, folder: Path) -> None:
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")
        sources = " ".join(name for name in self.files if is_verilog(name))
        (folder / "map.ys").write_text(f"read_verilog {sources}\n{self.flow.synthesis(self.top)}\n", encoding="utf-8")
        synthesis = (*self.yosys.command, "map.ys")
        run_tool(Command("yosys", synthesis, folder, folder / "yosys.log", PLACE_TIMEOUT_S, SYNTHESIS_MEMORY_BYTES))
        self.flow.rewrite(folder / NETLIST, self.top)
        for name in [*self.files, "map.ys", "yosys.log"]:
            os.unlink(folder / name)


def netlist_of(design: Design, pins: Sequence[Pin], flow: OpenFlow = ECP5) -> RoutedNetlist:
    """A design between its test registers, mapped to a family."""
    return RoutedNetlist({**design.files, f"{TOP}.v": pin_wrapper(design.top, pins)}, TOP, find_synthesizer(flow.family), flow)


def place_design(design: Design, flow: OpenFlow, device: str, seed: int = 1, freq_mhz: float = 100.0,
                 pins: Sequence[Pin] | None = None) -> Placement:
    """Synthesize, place and route a design; `freq_mhz` is what the router aims for, and missing it is no failure.

    `pins` are those of its top module but clock and reset; a core's streams where they are not given.
    """
    flow.check_device(device, f"placement of {design.top}")
    nextpnr, netlist = flow.find_nextpnr(), netlist_of(design, core_pins(design) if pins is None else pins, flow)
    options = (*flow.trial_options(device), "--json", NETLIST, "--report", "report.json", "--freq", f"{freq_mhz:g}",
               "--seed", str(seed), "--timing-allow-fail")
    constraints = flow.trial_files(TOP_PINS[0], TOP_PINS[1:])

    def make(folder: Path) -> None:
        netlist.copy_to(folder)
        for name, text in constraints.items():
            (folder / name).write_text(text, encoding="utf-8")
        # The WebAssembly run-time reserves address space far beyond what it uses, so only time is limited here.
        routing = (*nextpnr.command, *options)
        run_tool(Command(nextpnr.name, routing, folder, folder / "nextpnr.log", PLACE_TIMEOUT_S, None))
        os.unlink(folder / NETLIST)

    key = content_key([netlist.key, nextpnr.version, *options, *constraints.values()])
    folder, found = cached("place", key, make)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    clocks = [clock["achieved"] for clock in report["fmax"].values()]
    if not clocks:
        raise ToolError(f"{nextpnr.name}: no clock in the report of {design.top}; the design has no path between registers")
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
    return re.sub(rf"_({NAMED_CELLS})(_.*|$)|\$.*", "", str(step["to"]["cell"])).removeprefix(INSTANCE)


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
