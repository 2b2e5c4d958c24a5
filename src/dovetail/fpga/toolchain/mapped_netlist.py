"""Registers behind an ECP5's block memories, moved into them: a step between synthesis and routing that projects run by itself.

    python3 output_registers.py IN.json TOP OUT.json
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

MEMORY_PORT_BITS = 18
"""Data bits of a port of a block memory."""
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


def main(source: str, top: str, target: str) -> None:
    """A netlist of Yosys, rewritten."""
    with open(source, encoding="utf-8") as file:
        netlist = json.load(file)
    absorb_output_registers(netlist, top)
    with open(target, "w", encoding="utf-8") as file:
        json.dump(netlist, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
