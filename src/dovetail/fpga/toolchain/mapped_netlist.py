"""A netlist mapped to an ECP5, made faster between synthesis and routing, which projects do by themselves.

    python3 mapped_netlist.py IN.json TOP OUT.json

Registers behind block memories move into them; what drives very many inputs gets local copies. Nothing behaves differently,
clock for clock.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from typing import Any

MEMORY_PORT_BITS = 18
"""Data bits of a port of a block memory."""
MOST_LOADS = 128
"""Inputs that a cell drives by itself: about those of 16 tiles of 8 registers, whose wires are still short."""
DRIVERS = {"TRELLIS_FF": "Q", "LUT4": "Z"}
"""Cells that may have copies, with their output."""
Cell = dict[str, Any]


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


def copy_drivers(netlist: dict[str, Any], top: str, most: int = MOST_LOADS) -> int:
    """Give cells that drive more than `most` inputs copies of themselves, one for every so many; returns how many.

    Enables and resets reach hundreds of registers all over the chip. A copy has the same inputs, so it is the same at every
    clock; inputs of one instance get one copy, since they follow each other by name. Clocks have wires of their own.
    """
    module = netlist["modules"][top]
    cells: dict[str, Cell] = module["cells"]
    loads = defaultdict[int | str, list[tuple[str, str, int]]](list)
    for name in sorted(cells):
        for port, bits in cells[name]["connections"].items():
            if cells[name]["port_directions"][port] == "input":
                for place, bit in enumerate(bits):
                    loads[bit].append((name, port, place))
    known = [*(bits for cell in cells.values() for bits in cell["connections"].values()),
             *(wire["bits"] for kind in ("ports", "netnames") for wire in module.get(kind, {}).values())]
    free = 1 + max((bit for bits in known for bit in bits if isinstance(bit, int)), default=0)
    copies = 0
    for name, cell in list(cells.items()):
        output = DRIVERS.get(cell["type"])
        driven = [] if output is None else loads[cell["connections"][output][0]]
        if output is None or len(driven) <= most or any(port.startswith("CLK") for _, port, _ in driven):
            continue
        for start in range(most, len(driven), most):
            own = {port: list(bits) for port, bits in cell["connections"].items()} | {output: [free]}
            cells[f"{name}_copy{start // most}"] = {**cell, "connections": own}
            for load, port, place in driven[start:start + most]:
                cells[load]["connections"][port][place] = free
            free, copies = free + 1, copies + 1
    return copies


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


def rewrite_netlist(source: str, top: str, target: str) -> None:
    """A netlist of Yosys from one file, made faster into another, or into the same."""
    with open(source, encoding="utf-8") as file:
        netlist = json.load(file)
    absorb_output_registers(netlist, top)
    copy_drivers(netlist, top)
    with open(target, "w", encoding="utf-8") as file:
        json.dump(netlist, file)


if __name__ == "__main__":
    rewrite_netlist(*sys.argv[1:])
