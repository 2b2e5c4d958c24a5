"""A netlist mapped to an ECP5, made faster between synthesis and routing, which projects do by themselves.

    python3 mapped_netlist.py IN.json TOP OUT.json

Registers behind block memories and around multipliers move into them; what drives very many inputs gets local copies. Nothing
behaves differently, clock for clock.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

MEMORY_PORT_BITS = 18
"""Data bits of a port of a block memory."""
MOST_LOADS = 64
"""Inputs that a cell drives by itself: about those of 8 tiles of 8 registers, whose wires are still short."""
FEW = 16
"""Registers that an enable or a reset drives beside logic, without a copy for them."""
ENABLES = ("CE", "LSR")
"""Inputs of a register that hold it or reset it."""
LOGIC = ("LUT4", "CCU2C", "PFUMX", "L6MUX21")
"""Cells without a clock."""
REGISTER = "TRELLIS_FF"
DRIVERS = {REGISTER: "Q", "LUT4": "Z", "PFUMX": "Z", "L6MUX21": "Z"}
"""Cells that may have copies, with their output."""
SLICE_INPUTS = {"PFUMX": ("ALUT", "BLUT"), "L6MUX21": ("D0", "D1")}
"""Inputs that are wires inside a slice."""
Cell = dict[str, Any]
Load = tuple[str, str, int]
"""An input: its cell, its port, and which bit of that."""


def absorb_output_registers(netlist: dict[str, Any], top: str) -> int:
    """Move registers behind block memories into them, on a netlist that Yosys has mapped; returns how many.

    A DP16KD gives its word 5.8 ns after the clock (speed grade 6), with its own output register after less than half of that.
    Yosys leaves that register unused even where every bit read goes straight into a register, as our line buffers do.
    A port absorbs the registers behind it if every bit that is used goes to one register and nowhere else, and these
    registers share the port's clock, are always enabled and have no reset. Words of 36 bits are read through both ports by the
    clock of the second; where the first has none, as in a memory of constants, it gets the same. The result behaves alike,
    clock for clock.
    """
    cells: dict[str, Cell] = netlist["modules"][top]["cells"]
    reads = _reads(netlist["modules"][top])
    plain = {cell["connections"]["DI"][0]: name for name, cell in cells.items() if _is_plain(cell)}
    absorbed = 0
    for cell in [c for c in cells.values() if c["type"] == "DP16KD"]:
        for sides in ("AB",) if _reads_wide(cell) else "AB":
            absorbed += _absorb(cells, cell, sides, reads, plain)
    return absorbed


def absorb_product_registers(netlist: dict[str, Any], top: str) -> int:
    """Move registers around multipliers into them, on a netlist that Yosys has mapped; returns how many multipliers have some.

    A MULT18X18D takes 4.5 ns from factors to product (speed grade 6), and wires before and behind it as much again; Yosys uses
    none of its registers. Registers of the product move as those of memories do. Those of the factors move where all bits of
    both factors come from registers: nextpnr times a block with one registered factor as if it had none. A register with a
    reset or an enable leaves a look-up table of what it takes next, since a group of blocks has few wires for either. One that
    is read elsewhere stays there as well.
    """
    module = netlist["modules"][top]
    cells: dict[str, Cell] = module["cells"]
    blocks = [cell for cell in cells.values() if cell["type"] == "MULT18X18D"]
    reads = _reads(module)
    plain = {cell["connections"]["DI"][0]: name for name, cell in cells.items() if _is_plain(cell)}
    changed = {id(block) for block in blocks if _absorb_product(cells, block, reads, plain)}
    factors = _Factors(cells, reads, {cell["connections"]["Q"][0]: name for name, cell in cells.items() if _is_timed(cell)},
                       _free_bit(module))
    changed |= {id(block) for block in blocks if factors.absorb(block)}
    factors.remove_unread()
    return len(changed)


def copy_drivers(netlist: dict[str, Any], top: str, most: int = MOST_LOADS) -> int:
    """Give cells that drive much, or that drive distant inputs, copies of themselves; returns how many.

    A copy has the same inputs, so it is the same at every clock. What enables or resets more than `FEW` registers has copies for
    them, apart from logic, which may lie elsewhere; a register that drives several instances has a copy for each. None drives
    more than `most` inputs, of which those of one instance follow each other by name. Clocks have wires of their own.
    """
    module = netlist["modules"][top]
    cells: dict[str, Cell] = module["cells"]
    before, free = len(cells), _free_bit(module)
    for registers in (False, True):  # what is copied first may be driven by copies of its own
        loads = _loads(cells)
        made = {cell["connections"][DRIVERS[cell["type"]]][0]: name for name, cell in cells.items() if cell["type"] in DRIVERS}
        for name, cell in list(cells.items()):
            driven = loads[cell["connections"][DRIVERS[cell["type"]]][0]] if cell["type"] in DRIVERS else []
            if (cell["type"] == REGISTER) != registers or any(port.startswith("CLK") for _, port, _ in driven):
                continue
            for number, group in enumerate(_groups(cells, cell, driven, most)[1:], 1):
                for load, port, place in group:
                    cells[load]["connections"][port][place] = free
                free = _copy(cells, made, name, f"{name}_copy{number}", free)
    return len(cells) - before


def _loads(cells: dict[str, Cell]) -> defaultdict[int | str, list[Load]]:
    """The inputs that every bit drives, by name."""
    loads = defaultdict[int | str, list[Load]](list)
    for name in sorted(cells):
        for port, bits in cells[name]["connections"].items():
            if cells[name]["port_directions"][port] == "input":
                for place, bit in enumerate(bits):
                    loads[bit].append((name, port, place))
    return loads


def _copy(cells: dict[str, Cell], made: dict[int | str, str], name: str, own: str, free: int) -> int:
    """Add a copy of a cell, and of what reaches it inside its slice alone; it gives the bit `free`. Returns the next free one."""
    cell, output, free = cells[name], free, free + 1
    wires = {port: list(bits) for port, bits in cell["connections"].items()} | {DRIVERS[cell["type"]]: [output]}
    for port in SLICE_INPUTS.get(cell["type"], ()):
        inner, wires[port] = made[wires[port][0]], [free]
        free = _copy(cells, made, inner, f"{own}_{port}", free)
    cells[own] = {**cell, "connections": wires}
    return free


def _groups(cells: dict[str, Cell], driver: Cell, driven: list[Load], most: int) -> list[list[Load]]:
    """What each copy of a cell drives, the cell itself first."""
    kinds = defaultdict[tuple[str, bool], list[Load]](list)
    enables = sum(port in ENABLES for _, port, _ in driven) > FEW
    apart = driver["type"] == REGISTER and all(port in ENABLES or cells[name]["type"] in LOGIC for name, port, _ in driven)
    for load in driven:
        kinds[load[0].rpartition(".")[0] if apart else "", enables and load[1] in ENABLES].append(load)
    found = []
    for group in kinds.values():
        size = -(-len(group) // -(-len(group) // most))
        found += [group[start:start + size] for start in range(0, len(group), size)]
    return found


def _is_plain(cell: Cell) -> bool:
    """A register without enable, set or reset."""
    if cell["type"] != REGISTER:
        return False
    wires, choices = cell["connections"], cell["parameters"]
    enabled = choices.get("CEMUX", "1").strip() == "1" or wires.get("CE") == ["1"]
    return enabled and wires.get("LSR", ["0"]) == ["0"] and "DI" in wires


def _reads_wide(memory: Cell) -> bool:
    """Whether words take both ports of a memory."""
    return int(memory["parameters"].get("DATA_WIDTH_B", "10010"), 2) > MEMORY_PORT_BITS


def _absorb(cells: dict[str, Cell], memory: Cell, sides: str, reads: Counter[int | str], plain: dict[int | str, str]) -> int:
    wires, choices = memory["connections"], memory["parameters"]
    used = {port: bit for side in sides for i in range(MEMORY_PORT_BITS)
            if (port := f"DO{side}{i}") in wires and reads[bit := wires[port][0]]}
    if not used or any(choices.get(f"REGMODE_{side}", "NOREG").strip() != "NOREG" for side in sides):
        return 0
    takers = {port: plain.get(bit) for port, bit in used.items()}
    names = [name for name in takers.values() if name is not None]
    if len(names) < len(used) or any(reads[bit] > 1 for bit in used.values()):
        return 0
    clock = wires[f"CLK{sides[-1]}"]
    if any(cells[name]["connections"]["CLK"] != clock for name in names) or wires[f"CLK{sides[0]}"] not in (clock, ["0"]):
        return 0
    for port, name in takers.items():
        assert name is not None
        wires[port] = cells.pop(name)["connections"]["Q"]
    for side in sides:
        choices[f"REGMODE_{side}"] = "OUTREG"
        wires |= {f"OCE{side}": ["1"], f"CLK{side}": clock}
        memory["port_directions"] |= {f"OCE{side}": "input", f"CLK{side}": "input"}
    return len(names)


def _absorb_product(cells: dict[str, Cell], block: Cell, reads: Counter[int | str], taking: dict[int | str, str]) -> bool:
    wires = block["connections"]
    used = {port: bits[0] for port, bits in wires.items() if port.startswith("P") and reads[bits[0]]}
    names = {port: taking.get(bit) for port, bit in used.items()}
    if not used or None in names.values() or any(reads[bit] > 1 for bit in used.values()):
        return False
    takers = {port: cells[name] for port, name in names.items() if name is not None}
    if not _clocked(block, takers.values()):
        return False
    for port, name in names.items():
        assert name is not None
        wires[port] = cells.pop(name)["connections"]["Q"]
    block["parameters"]["REG_OUTPUT_CLK"] = "CLK0"
    return True


def _is_timed(cell: Cell) -> bool:
    """A register whose next value is one of its data, of itself and of a constant that a reset chooses."""
    wires, choices = cell["connections"], cell["parameters"]
    known = choices.get("CLKMUX", "CLK").strip(), choices.get("SRMODE", "LSR_OVER_CE").strip()
    return bool(cell["type"] == REGISTER and wires.keys() >= {"DI", "LSR"} and known == ("CLK", "LSR_OVER_CE"))


@dataclass
class _Factors:
    """Registers, by the bit they give, that move into the multipliers they feed."""

    cells: dict[str, Cell]
    reads: Counter[int | str]
    giving: dict[int | str, str]
    free: int
    nexts: dict[str, list[int | str]] = field(default_factory=dict)

    def absorb(self, block: Cell) -> bool:
        wires = block["connections"]
        bits = {port: wires[port][0] for port in wires if port[0] in "AB" and isinstance(wires[port][0], int)}
        if not bits or not self.giving.keys() >= set(bits.values()):
            return False
        names = {port: self.giving[bit] for port, bit in bits.items()}
        if not _clocked(block, (self.cells[name] for name in names.values())):
            return False
        for port, name in names.items():
            self.reads[bits[port]] -= 1
            wires[port] = self._next(name)
            self.reads[wires[port][0]] += 1
        block["parameters"] |= {"REG_INPUTA_CLK": "CLK0", "REG_INPUTB_CLK": "CLK0"}
        return True

    def _next(self, name: str) -> list[int | str]:
        """The bit that a register takes next."""
        register = self.cells[name]
        if name not in self.nexts:
            self.nexts[name] = register["connections"]["DI"] if _is_plain(register) else self._table(name)
        return self.nexts[name]

    def _table(self, name: str) -> list[int | str]:
        """A look-up table of data, the register itself where it may keep its value, enable and reset."""
        wires, choices = self.cells[name]["connections"], self.cells[name]["parameters"]
        clears, enable = choices.get("LSRMUX", "LSR").strip() != "INV", choices.get("CEMUX", "1").strip()
        known = choices.get("REGSET", "RESET").strip() == "SET"
        rows = [known if bool(at & 8) == clears
                else bool(at & 1 if enable == "1" or bool(at & 4) != (enable == "INV") else at & 2) for at in range(16)]
        inputs = {"A": wires["DI"], "B": ["0"] if enable == "1" else wires["Q"], "C": wires.get("CE", ["1"]), "D": wires["LSR"]}
        self.reads.update(bits[0] for bits in inputs.values())
        self.cells[f"{name}_next"] = {
            "type": "LUT4", "parameters": {"INIT": "".join("01"[row] for row in reversed(rows))},
            "port_directions": {**dict.fromkeys("ABCD", "input"), "Z": "output"}, "connections": {**inputs, "Z": [self.free]}}
        self.free += 1
        return [self.free - 1]

    def remove_unread(self) -> None:
        """Take out the registers that only multipliers read."""
        for name in self.nexts:
            if not self.reads[self.cells[name]["connections"]["Q"][0]]:
                del self.cells[name]


def _clocked(block: Cell, registers: Iterable[Cell]) -> bool:
    """Whether a multiplier can have these registers: they share one clock, its own where it has one already, which it gets."""
    wires = block["connections"]
    clocks = {register["connections"]["CLK"][0] for register in registers} | set(wires.get("CLK0", []))
    if len(clocks) > 1:
        return False
    wires |= {"CLK0": [*clocks], "CE0": ["1"], "RST0": ["0"]}
    block["port_directions"] |= dict.fromkeys(("CLK0", "CE0", "RST0"), "input")
    block["parameters"]["GSR"] = "DISABLED"
    return True


def _reads(module: dict[str, Any]) -> Counter[int | str]:
    """How often every bit is read, by cells and outputs."""
    reads = Counter(bit for cell in module["cells"].values() for port, bits in cell["connections"].items()
                    if cell["port_directions"][port] == "input" for bit in bits)
    for port in module["ports"].values():
        reads.update(port["bits"] if port["direction"] == "output" else [])
    return reads


def _free_bit(module: dict[str, Any]) -> int:
    """The first bit that nothing is called."""
    known = [*(bits for cell in module["cells"].values() for bits in cell["connections"].values()),
             *(wire["bits"] for kind in ("ports", "netnames") for wire in module.get(kind, {}).values())]
    return 1 + max((bit for bits in known for bit in bits if isinstance(bit, int)), default=0)


def rewrite_netlist(source: str, top: str, target: str) -> None:
    """A netlist of Yosys from one file, made faster into another, or into the same."""
    with open(source, encoding="utf-8") as file:
        netlist = json.load(file)
    absorb_output_registers(netlist, top)
    absorb_product_registers(netlist, top)
    copy_drivers(netlist, top)
    with open(target, "w", encoding="utf-8") as file:
        json.dump(netlist, file)


if __name__ == "__main__":
    rewrite_netlist(*sys.argv[1:])
