"""Netlists evaluated with tokens in the place of data, for many states at once.

Every bit is 0, 1, unknown, or a token: bit b of the beat that came in `age` beats ago on some input. What only moves data
treats all data alike, so one exploration with tokens stands for every data. What is computed from a token is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import ToolError
from dovetail.fpga.proofs.netlist import Bit, Cell, Netlist

Codes = NDArray[np.int32]
"""Bits of every state."""
Integers = NDArray[np.int64]

UNKNOWN = 2
FIRST_TOKEN = 4
BITS = 1 << 12
"""Bits of a beat at the most."""
STREAMS = 8
"""Inputs at the most."""
AGE = BITS * STREAMS
OLDEST = 30_000
"""Ages from which on a token is only old."""
OFFERED = OLDEST + 1
"""The age of a beat that is offered and not yet taken."""


def token(stream: int, age: Integers | int, bit: Integers | int) -> Integers:
    """The code of bit `bit` of the beat that came `age` beats before the newest one of an input."""
    return np.asarray(FIRST_TOKEN + np.asarray(age) * AGE + stream * BITS + bit)


def aged(codes: Codes, stream: int, took: NDArray[np.bool_]) -> Codes:
    """Bits (states x bits) behind a clock: where a beat of `stream` was taken it is the newest; else nobody knows it."""
    place = codes.astype(np.int64) - FIRST_TOKEN
    age = np.where((place >= 0) & (place % AGE // BITS == stream), place // AGE, -1)
    older = np.where(took[:, None] & (age >= 0) & (age < OLDEST), codes + AGE, codes)
    newest = np.where(took[:, None], codes - OFFERED * AGE, UNKNOWN)
    return np.where(age == OFFERED, newest, older).astype(np.int32)


def joined(bits: Codes) -> tuple[Integers, NDArray[np.bool_]]:
    """Bits (bits x states) as unsigned integers, and where they are unknown, as all that data decide is."""
    weights = np.left_shift(np.int64(1), np.arange(len(bits), dtype=np.int64))
    return np.asarray((bits == 1).T @ weights, dtype=np.int64), np.asarray((bits >= UNKNOWN).any(axis=0))


def split(value: Integers, unknown: NDArray[np.bool_], width: int) -> Codes:
    """Integers as bits, unknown where they are."""
    return np.where(unknown, UNKNOWN, value >> np.arange(width)[:, None] & 1).astype(np.int32)


def _signed(value: Integers, width: int) -> Integers:
    return value - ((value >> width - 1 & 1) << width)


def _both(a: Codes, b: Codes) -> Codes:
    """Logical and, bit by bit; a token and a 1 is the token."""
    found = np.where((a == 0) | (b == 0), 0, np.where(a == 1, b, np.where(b == 1, a, np.where(a == b, a, UNKNOWN))))
    return found.astype(np.int32)


def _inverted(a: Codes) -> Codes:
    return np.where(a >= UNKNOWN, UNKNOWN, 1 - a).astype(np.int32)


def _either(a: Codes, b: Codes) -> Codes:
    """Logical or; a token or a 0 is the token."""
    found = np.where((a == 1) | (b == 1), 1, np.where(a == 0, b, np.where(b == 0, a, np.where(a == b, a, UNKNOWN))))
    return found.astype(np.int32)


def _chosen(select: Codes, zero: Codes, one: Codes) -> Codes:
    """The bit that `select` chooses; unknown where it is and the two differ."""
    found = np.where(select == 1, one, np.where(select == 0, zero, np.where(zero == one, zero, UNKNOWN)))
    return found.astype(np.int32)


ARITHMETIC: dict[str, Callable[[Integers, Integers], Integers]] = {
    "$add": np.add, "$sub": np.subtract, "$mul": np.multiply, "$lt": np.less, "$le": np.less_equal, "$gt": np.greater,
    "$ge": np.greater_equal, "$eq": np.equal, "$ne": np.not_equal,
}
BITWISE: dict[str, Callable[[Codes, Codes], Codes]] = {
    "$and": _both, "$or": _either, "$logic_and": _both, "$logic_or": _either,
    "$xor": lambda a, b: _either(_both(a, _inverted(b)), _both(_inverted(a), b)),
}


def cell_value(cell: Cell, port: Callable[[str], Codes]) -> Codes:
    """The output (bits x states) of a combinational cell."""
    width, kind = len(cell.output), cell.kind
    if kind in ("$mux", "$pmux"):
        found, choices = port("A"), port("B")
        for place, select in enumerate(port("S")):
            found = _chosen(select, found, choices[place * width:(place + 1) * width])
        return found
    if kind in ("$not", "$logic_not"):
        a = port("A")
        return _wide(_inverted(a) if kind == "$not" else _inverted(_any(a)), width)
    if kind in ("$reduce_or", "$reduce_bool"):
        return _wide(_any(port("A")), width)
    if kind == "$reduce_and":
        return _wide(_inverted(_any(_inverted(port("A")))), width)
    if kind == "$pos":
        return _wide(port("A"), width)
    a, b = port("A"), port("B")
    if kind in BITWISE:
        if kind.startswith("$logic"):
            return _wide(BITWISE[kind](_any(a), _any(b)), width)
        return BITWISE[kind](_wide(a, width), _wide(b, width))
    if kind not in ARITHMETIC:
        raise ToolError(f"proof: cell {kind} is not known to it; report this with the Verilog")
    (x, no_x), (y, no_y) = joined(a), joined(b)
    if cell.parameters.get("A_SIGNED") and cell.parameters.get("B_SIGNED"):
        x, y = _signed(x, len(a)), _signed(y, len(b))
    return split(ARITHMETIC[kind](x, y).astype(np.int64), no_x | no_y, width)


def _any(bits: Codes) -> Codes:
    """Whether any bit is set, as one bit."""
    found = bits[0]
    for bit in bits[1:]:
        found = _either(found, bit)
    one: Codes = np.where(found >= FIRST_TOKEN, UNKNOWN, found)[None]
    return one


def _wide(bits: Codes, width: int) -> Codes:
    """Unsigned extension, or the lowest bits."""
    return np.concatenate([bits[:width], np.zeros((max(0, width - len(bits)), bits.shape[1]), dtype=np.int32)])


class TokenMachine:
    """A netlist as a function from states and inputs to wires and next states; a row of codes is a state.

    Wires of `free` are cut and given as inputs.
    """

    def __init__(self, netlist: Netlist, free: Sequence[str] = ()) -> None:
        self.netlist = netlist
        self.columns: dict[Bit, int] = {}
        for register in netlist.registers:
            for bit in register.ports["Q"]:
                self.columns[bit] = len(self.columns)
        self.starts, width = {}, len(self.columns)
        for memory in netlist.memories:
            self.starts[id(memory)] = width
            width += memory.parameters["SIZE"] * memory.parameters["WIDTH"] * (not memory.words)
        self.width = width
        self.given = dict(netlist.inputs) | {name: netlist.bits(name) for name in free}
        self.cut = {bit for name in free for bit in netlist.bits(name)}
        self.order = netlist.order([*self.columns, *(b for bits in self.given.values() for b in bits)])

    def unknown(self, count: int) -> Codes:
        """States of which nothing is known."""
        return np.full((count, self.width), UNKNOWN, dtype=np.int32)

    def wires(self, states: Codes, inputs: Mapping[str, Sequence[Codes]]) -> dict[Bit, Codes]:
        """Every bit of the netlist in these states under these inputs."""
        count = len(states)
        found: dict[Bit, Codes] = {"0": np.zeros(count, dtype=np.int32), "1": np.ones(count, dtype=np.int32),
                                   "x": np.full(count, UNKNOWN, dtype=np.int32)}
        found.update((bit, states[:, column]) for bit, column in self.columns.items())
        for name, bits in self.given.items():
            found.update((bit, code) for bit, code in zip(bits, inputs[name], strict=True) if not isinstance(bit, str))

        for cell in self.order:
            values = (self._read(cell, states, found) if cell.kind == "$mem_v2"
                      else cell_value(cell, lambda name, cell=cell: np.array([found[b] for b in cell.ports[name]])))  # type: ignore[misc]
            port = "RD_DATA" if cell.kind == "$mem_v2" else "Y"
            found.update((bit, code) for bit, code in zip(cell.ports[port], values, strict=True) if bit not in self.cut)
        return found

    def _stored(self, memory: Cell, states: Codes) -> Codes:
        """A memory as (states, words, bits)."""
        size, width = memory.parameters["SIZE"], memory.parameters["WIDTH"]
        if memory.words:
            table = np.array([[int(bit) for bit in reversed(word)] for word in memory.words], dtype=np.int32)
            return np.broadcast_to(table, (len(states), size, width))
        start = self.starts[id(memory)]
        return states[:, start:start + size * width].reshape(len(states), size, width)

    def _read(self, memory: Cell, states: Codes, wires: Mapping[Bit, Codes]) -> Codes:
        """What the read ports see; a word that is being written is unknown."""
        stored, width, found = self._stored(memory, states), memory.parameters["WIDTH"], []
        for port in range(memory.parameters["RD_PORTS"]):
            address, unknown = self._address(memory, "RD_ADDR", port, wires)
            unknown |= address >= stored.shape[1]
            for writer in range(memory.parameters["WR_PORTS"]):
                place, nowhere = self._address(memory, "WR_ADDR", writer, wires)
                unknown |= (wires[memory.ports["WR_EN"][writer * width]] != 0) & ((place == address) | nowhere)
            words = stored[np.arange(len(states)), np.where(unknown, 0, address)]
            found.append(np.where(unknown, UNKNOWN, words.T).astype(np.int32))
        return np.concatenate(found)

    def _address(self, memory: Cell, name: str, port: int,
                 wires: Mapping[Bit, Codes]) -> tuple[Integers, NDArray[np.bool_]]:
        bits = memory.parameters["ABITS"]
        return joined(np.array([wires[b] for b in memory.ports[name][port * bits:(port + 1) * bits]]))

    def after(self, states: Codes, wires: Mapping[Bit, Codes]) -> Codes:
        """The states after the clock edge."""
        changed = states.copy()
        for register in self.netlist.registers:
            first = self.columns[register.ports["Q"][0]]
            changed[:, first:first + len(register.ports["Q"])] = np.array([wires[d] for d in register.ports["D"]]).T
        for memory in self.netlist.memories:
            if not memory.words:
                self._write(memory, wires, changed)
        return changed

    def _write(self, memory: Cell, wires: Mapping[Bit, Codes], changed: Codes) -> None:
        """Write a memory's words; where it is not known whether or where, nothing of it is known any more."""
        start, width, size = self.starts[id(memory)], memory.parameters["WIDTH"], memory.parameters["SIZE"]
        whole = slice(start, start + size * width)
        for port in range(memory.parameters["WR_PORTS"]):
            enables = memory.ports["WR_EN"][port * width:(port + 1) * width]
            enable = wires[enables[0]]
            if any((wires[other] != enable).any() for other in enables[1:]):
                raise ToolError(f"proof: memory {memory.memory} writes parts of words; report this with the Verilog")
            address, nowhere = self._address(memory, "WR_ADDR", port, wires)
            rows = np.flatnonzero((enable == 1) & ~nowhere & (address < size))
            view = changed[:, whole].reshape(len(changed), size, width)
            value = np.stack([wires[b] for b in memory.ports["WR_DATA"][port * width:(port + 1) * width]], axis=1)
            view[rows, address[rows]] = value[rows]
            changed[:, whole] = view.reshape(len(changed), size * width)
            changed[(enable == UNKNOWN) | ((enable == 1) & nowhere), whole] = UNKNOWN
