"""What a pipeline computes: from its taps to its outputs, as integers.

Behind its taps an engine has no decisions, only registers that run freely. So an output is a function of the taps some clocks
before, whatever the state: registers are walked through, clock by clock. Sums become `forms`, in which no width matters that is
wide enough, and each width is checked to be so. The rest, rounding and saturation of one sum, is left to bit vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.errors import ToolError
from dovetail.fpga.proofs.forms import Bounds, LinearForm
from dovetail.fpga.proofs.netlist import Bit, Cell, Netlist
from dovetail.fpga.proofs.solver import Term, Vectors

Key = tuple[Any, ...]
"""A source (name, clock), or a combinational cell's output (number, clock), or bits side by side."""
Piece = tuple[Key, int] | str
"""A bit of a key, or a constant."""
MOST_CLOCKS = 200
"""Registers in a row at the most."""


class Dataflow:
    """The values of a netlist's wires over the clocks; `sources` are wires where walking ends, with the integers they hold."""

    def __init__(self, netlist: Netlist, sources: Mapping[str, Bounds], vectors: Vectors,
                 fixed: Mapping[str, int] | None = None) -> None:
        self.netlist, self.vectors = netlist, vectors
        self.limits = dict(sources)
        self.ends: dict[Bit, tuple[str, int]] = {}
        for name in sources:
            self.ends.update((bit, (name, place)) for place, bit in enumerate(netlist.bits(name)) if not isinstance(bit, str))
        self.constants: dict[Bit, str] = {}
        for name, number in {"rst": 0, **(fixed or {})}.items():
            self.constants.update((bit, str(number >> i & 1)) for i, bit in enumerate(netlist.bits(name)))
        self.numbers = {id(cell): number for number, cell in enumerate(netlist.cells)}
        self.traced: dict[tuple[Bit, int], Piece] = {}
        self.forms: dict[Key, LinearForm] = {}
        self.bounds: dict[Any, Bounds] = {}
        self.terms: dict[Key, Term] = {}
        self.assumptions: dict[Key, Term] = {}
        self.base: tuple[LinearForm, Term] | None = None

    def piece(self, bit: Bit, clock: int) -> Piece:
        """What a wire is at a clock, registers and decided choices walked through."""
        path = []
        while (bit, clock) not in self.traced:
            if isinstance(bit, str) or bit in self.constants:
                self.traced[bit, clock] = self.constants.get(bit, str(bit))
                break
            if bit in self.ends:
                name, place = self.ends[bit]
                self.traced[bit, clock] = (("source", name, clock), place)
                break
            if bit not in self.netlist.drivers:
                raise ToolError(f"proof of {self.netlist.top}: an output depends on an input that is no tap")
            path.append((bit, clock))
            if clock < -MOST_CLOCKS:
                raise ToolError(f"proof of {self.netlist.top}: an output depends on a state, not on taps alone")
            cell, place = self.netlist.drivers[bit]
            if cell.kind == "$dff":
                bit, clock = cell.ports["D"][place], clock - 1
                continue
            if cell.kind == "$mux" and (select := self.piece(cell.ports["S"][0], clock)) in ("0", "1"):
                bit = cell.ports["B" if select == "1" else "A"][place]
                continue
            self.traced[path.pop()] = (("cell", self.numbers[id(cell)], clock), place)
            break
        found = self.traced[bit, clock] if not path or (bit, clock) in self.traced else self.traced[path[-1]]
        for step in path:
            self.traced[step] = found
        return found

    def pieces(self, bits: Sequence[Bit], clock: int) -> tuple[Piece, ...]:
        return tuple(self.piece(bit, clock) for bit in bits)

    def cell(self, key: Key) -> Cell:
        return self.netlist.cells[key[1]]

    def width(self, key: Key) -> int:
        return len(self.netlist.bits(key[1]) if key[0] == "source" else self.cell(key).output)

    def inputs_of(self, key: Key) -> dict[str, tuple[Piece, ...]]:
        return {name: self.pieces(bits, key[2]) for name, bits in self.cell(key).ports.items() if name != "Y"}

    def sources(self, pieces: Sequence[Piece]) -> set[tuple[str, int]]:
        """Names and clocks of the sources that some bits depend on."""
        found, seen, waiting = set[tuple[str, int]](), set[Key](), [p[0] for p in pieces if not isinstance(p, str)]
        while waiting:
            key = waiting.pop()
            if key in seen:
                continue
            seen.add(key)
            if key[0] == "source":
                found.add((key[1], key[2]))
            else:
                waiting += [p[0] for port in self.inputs_of(key).values() for p in port if not isinstance(p, str)]
        return found

    # Integers.

    def form(self, key: Key) -> LinearForm:
        """An integer equal to a key's bits modulo 2**width; a variable of its own where it is no sum."""
        stack = [key]
        while stack:
            at = stack[-1]
            if at in self.forms:
                stack.pop()
            elif at[0] == "source":
                self.bounds[at] = self.limits[at[1]]
                self.forms[stack.pop()] = LinearForm({at: 1})
            elif self.cell(at).kind not in ("$add", "$sub", "$mul"):
                self.forms[stack.pop()] = self._own(at, (0, (1 << self.width(at)) - 1))
            else:
                inputs = self.inputs_of(at)
                waiting = [p[0] for port in inputs.values() for p in port if not isinstance(p, str) and p[0] not in self.forms]
                if waiting:
                    stack.append(waiting[0])
                    continue
                self.forms[stack.pop()] = self._sum(at, inputs)
        return self.forms[key]

    def _own(self, key: Any, bounds: Bounds) -> LinearForm:
        self.bounds[key] = bounds
        return LinearForm({key: 1})

    def _sum(self, key: Key, inputs: Mapping[str, tuple[Piece, ...]]) -> LinearForm:
        cell, width = self.cell(key), self.width(key)
        signed = bool(cell.parameters["A_SIGNED"] and cell.parameters["B_SIGNED"])
        left, right = (self.form_of(_extended(inputs[port], width, signed)) for port in ("A", "B"))
        if cell.kind == "$mul":
            for one, other in ((left, right), (right, left)):
                if not one.weights:
                    return other.times(one.constant)
            return self._own(key, (0, (1 << width) - 1))
        return left.plus(right, 1 if cell.kind == "$add" else -1)

    def form_of(self, pieces: tuple[Piece, ...]) -> LinearForm:
        """An integer equal to bits side by side modulo 2**their number."""
        zeros = next((i for i, p in enumerate(pieces) if p != "0"), len(pieces))
        if all(isinstance(p, str) for p in pieces):
            top = len(pieces) - 1  # of two integers with these bits, the one nearer to zero
            return LinearForm({}, sum((-1 if i == top else 1) << i for i, p in enumerate(pieces) if p == "1"))
        if zeros:
            return self.form_of(pieces[zeros:]).times(1 << zeros)
        run = _run(pieces)
        if run:
            key, rest = pieces[0][0], pieces[run:]
            assert not isinstance(key, str)
            found = self.form(key)
            if not rest:
                return found
            least = 0 if set(rest) == {"0"} else -(1 << run - 1) if set(rest) == {pieces[run - 1]} else None
            if least is not None:  # extended: the integer itself has to be known, not modulo 2**run alone
                lo, _ = found.bounds(self.bounds)
                moved = LinearForm(found.weights, found.constant - (lo - least >> run << run))
                if moved.bounds(self.bounds)[1] < least + (1 << run):
                    return moved
        return self._own(("bits", pieces), (0, (1 << len(pieces)) - 1))

    # Bit vectors.

    def take_as_base(self, form: LinearForm, name: str) -> Term:
        """Let one integer be a variable: every sum that is a multiple of it is written with it."""
        lo, hi = form.bounds(self.bounds)
        width = max(hi.bit_length(), (-lo - 1).bit_length() if lo < 0 else 0) + 1
        term = self.vectors.constant(name, width)
        self.base = form, term
        self.terms, self.assumptions = {}, {("base",): self.vectors.between(term, lo, hi)}
        return term

    def term_of(self, pieces: tuple[Piece, ...]) -> Term:
        """Bits side by side as one vector."""
        found, at = [], 0
        while at < len(pieces):
            piece = pieces[at]
            if isinstance(piece, str):
                found.append(self.vectors.value(1 if piece == "1" else 0, 1))
                at += 1
                continue
            count = _run(pieces[at:], piece[1])
            found.append(self.vectors.extract(self.term(piece[0]), piece[1], count))
            at += count
        return self.vectors.side_by_side(found)

    def term(self, key: Key) -> Term:
        """A key's bits as a vector."""
        stack = [key]
        while stack:
            at = stack[-1]
            if at in self.terms:
                stack.pop()
                continue
            made = self._of_base(at)
            if made is None and at[0] == "source":
                made = self._source(at)
            if made is None:
                inputs = self.inputs_of(at)
                waiting = [p[0] for port in inputs.values() for p in port if not isinstance(p, str) and p[0] not in self.terms]
                if waiting:
                    stack += waiting
                    continue
                made = cell_term(self.vectors, self.cell(at), {name: self.term_of(p) for name, p in inputs.items()})
            self.terms[stack.pop()] = made
        return self.terms[key]

    def _of_base(self, key: Key) -> Term | None:
        if self.base is None or (key[0] == "cell" and self.cell(key).kind not in ("$add", "$sub", "$mul")):
            return None
        part = self.form(key).multiple_of(self.base[0])
        if part is None:
            return None
        width, vectors = self.width(key), self.vectors
        whole = vectors.fitted(self.base[1], width, True)
        scaled = vectors.make("BV_MUL", [whole, vectors.value(part[0], width)])
        return vectors.make("BV_ADD", [scaled, vectors.value(part[1], width)])

    def _source(self, key: Key) -> Term:
        name, (lo, hi), vectors = f"{key[1]}@{key[2]}", self.limits[key[1]], self.vectors
        term = vectors.constant(name, self.width(key))
        self.assumptions[key] = vectors.between(vectors.fitted(term, self.width(key) + 1, lo < 0), lo, hi)
        return term


def _run(pieces: Sequence[Piece], start: int = 0) -> int:
    """How many of the first bits are consecutive bits of one key, from `start`."""
    first = pieces[0]
    count = 0
    if isinstance(first, str):
        return 0
    while count < len(pieces) and pieces[count] == (first[0], start + count):
        count += 1
    return count


def _extended(pieces: tuple[Piece, ...], width: int, signed: bool) -> tuple[Piece, ...]:
    return pieces[:width] + ((pieces[-1] if signed else "0"),) * (width - len(pieces))


COMPARISONS = {"$lt": "LT", "$le": "LE", "$gt": "GT", "$ge": "GE"}
BINARY = {"$add": "BV_ADD", "$sub": "BV_SUB", "$mul": "BV_MUL", "$and": "BV_AND", "$or": "BV_OR", "$xor": "BV_XOR"}
EQUALITY = {"$eq": "EQUAL", "$ne": "DISTINCT"}
REDUCTIONS: dict[str, str] = {"$reduce_or": "BV_REDOR", "$reduce_bool": "BV_REDOR", "$reduce_and": "BV_REDAND",
                              "$reduce_xor": "BV_REDXOR"}


def cell_term(vectors: Vectors, cell: Cell, ports: Mapping[str, Term]) -> Term:
    """The output of a combinational cell of Yosys."""
    width, kind = len(cell.output), cell.kind
    if kind in ("$mux", "$pmux"):
        found = ports["A"]
        for place in range(vectors.width(ports["S"])):
            other = vectors.extract(ports["B"], place * width, width)
            found = vectors.choose(vectors.extract(ports["S"], place, 1), other, found)
        return found
    if kind in REDUCTIONS:
        return vectors.fitted(vectors.make(REDUCTIONS[kind], [ports["A"]]), width, False)
    if kind == "$logic_not":
        return vectors.fitted(vectors.make("BV_NOT", [vectors.make("BV_REDOR", [ports["A"]])]), width, False)
    signed = bool(cell.parameters.get("A_SIGNED")) and bool(cell.parameters.get("B_SIGNED", 1))
    if kind in ("$not", "$pos"):
        whole = vectors.fitted(ports["A"], width, signed)
        return vectors.make("BV_NOT", [whole]) if kind == "$not" else whole
    if kind in BINARY:
        return vectors.make(BINARY[kind], [vectors.fitted(ports[p], width, signed) for p in ("A", "B")])
    widest = max(vectors.width(ports["A"]), vectors.width(ports["B"]))
    if kind in EQUALITY or kind in COMPARISONS:
        name = EQUALITY.get(kind) or f"BV_{'S' if signed else 'U'}{COMPARISONS[kind]}"
        sides = (vectors.fitted(ports[p], widest, signed) for p in ("A", "B"))
        return vectors.fitted(vectors.compare(name, *sides), width, False)
    if kind in ("$logic_and", "$logic_or"):
        both = [vectors.make("BV_REDOR", [ports[p]]) for p in ("A", "B")]
        return vectors.fitted(vectors.make("BV_AND" if kind == "$logic_and" else "BV_OR", both), width, False)
    raise ToolError(f"proof: cell {kind} is not known to it; report this with the Verilog")


Specified = Callable[[Vectors], Term]
"""What an output has to be, as a vector of the output's width."""
