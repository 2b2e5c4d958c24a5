"""Multiplication by a constant integer matrix as a graph of adders: the arithmetic of Direct Hardware Mapping.

Every column (input) is multiplied once by each odd constant its filters need (multiple constant
multiplication, two adder levels for every 8-bit constant); every row (filter) is then a balanced tree of
shifted, signed terms. Shifts and signs are free in hardware, so only additions count. The graph is a pure
value: `dovetail.fpga` prints it, the cost model counts it.

MCM as in Voronenko and Püschel, "Multiplierless Multiple Constant Multiplication", ACM TALG 3(2), 2007, limited
to depth two so that the pipeline stays short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

IntMatrix = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Adder:
    """`(left << left_shift) + (right << right_shift)`, or minus; operands are node numbers.

    Nodes 0..inputs-1 are the inputs; node inputs+i is adder i. The value is known to lie in [lo, hi];
    it is registered, and `stage` is the number of clock edges from the inputs.
    """

    left: int
    left_shift: int
    right: int
    right_shift: int
    minus: bool
    lo: int
    hi: int
    stage: int
    column: int | None = None
    """The input this adder multiplies, if it is part of a shared multiple."""
    multiple: int = 0
    """The constant it multiplies that input by."""


@dataclass(frozen=True, slots=True)
class ShiftedTerm:
    """`±(node << shift)`."""

    node: int
    shift: int
    negative: bool


@dataclass(frozen=True, slots=True)
class AdderGraph:
    """Adders in topological order and one output term per matrix row; None where a row is all zero."""

    inputs: int
    adders: tuple[Adder, ...]
    outputs: tuple[ShiftedTerm | None, ...]

    @property
    def count(self) -> int:
        """Two-operand adders."""
        return len(self.adders)

    @property
    def stages(self) -> int:
        """Clock edges from the inputs to the last output."""
        return max((self.stage(t.node) for t in self.outputs if t is not None), default=0)

    def stage(self, node: int) -> int:
        return 0 if node < self.inputs else self.adders[node - self.inputs].stage

    def evaluate(self, columns: Sequence[int]) -> list[int]:
        """What the graph computes on integers; checks every stated range."""
        values = list(columns)
        for adder in self.adders:
            left, right = values[adder.left] << adder.left_shift, values[adder.right] << adder.right_shift
            values.append(left - right if adder.minus else left + right)
            assert adder.lo <= values[-1] <= adder.hi
        return [0 if t is None else (-1 if t.negative else 1) * (values[t.node] << t.shift) for t in self.outputs]


def trailing_zeros(value: int) -> int:
    return (value & -value).bit_length() - 1


def signed_digits(value: int) -> tuple[tuple[int, int], ...]:
    """Canonical signed digits of an integer: (±1, exponent), no two adjacent, the fewest possible."""
    digits: list[tuple[int, int]] = []
    exponent = 0
    while value:
        if value & 1:
            digit = 2 - (value & 3)
            digits.append((digit, exponent))
            value -= digit
        value >>= 1
        exponent += 1
    return tuple(digits)


def digit_counts(magnitudes: NDArray[np.integer]) -> NDArray[np.uint8]:
    """How many canonical signed digits each magnitude m has: they stand where 3m and m differ. Its type must hold 3m / 2."""
    half = magnitudes >> 1
    return np.asarray(np.bitwise_count((magnitudes + half) ^ half), dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class AdderStep:
    """One multiple from two others: constant = (left << left_shift) ± (right << right_shift)."""

    constant: int
    left: int
    left_shift: int
    right: int
    right_shift: int
    minus: bool


SHARED = 128
"""Odd constants below this are built as shared multiples; larger ones (never an int8 weight) as signed digits."""

REACH = 9
"""Shifts searched for constants below `SHARED`."""

FIRST_LEVEL = {c: AdderStep(c, 1, shift, 1, 0, minus)
               for shift in range(REACH, 0, -1) for c, minus in (((1 << shift) - 1, True), ((1 << shift) + 1, False))
               if 1 < c < 2 * SHARED}


@cache
def combine(constant: int, left: int, right: int) -> AdderStep | None:
    """The constant as one addition of shifted `left` and `right`, odd operands, if there is one."""
    for shift in range(REACH):
        for a, sa, b, sb in ((left, shift, right, 0), (left, 0, right, shift)):
            if (a << sa) + (b << sb) == constant:
                return AdderStep(constant, a, sa, b, sb, False)
            if (a << sa) - (b << sb) == constant:
                return AdderStep(constant, a, sa, b, sb, True)
            if (b << sb) - (a << sa) == constant:
                return AdderStep(constant, b, sb, a, sa, True)
    return None


def second_level(constant: int, base: Iterable[int]) -> AdderStep | None:
    """The constant from two members of `base`."""
    members = sorted(base)
    for index, left in enumerate(members):
        for right in members[index:]:
            if step := combine(constant, left, right):
                return step
    return None


@cache
def multiples(constants: frozenset[int]) -> tuple[AdderStep, ...]:
    """Steps that build all odd positive constants below `SHARED` in at most two levels, sharing what they can."""
    wanted = sorted(c for c in constants if c != 1)
    base = {1, *(c for c in wanted if c in FIRST_LEVEL)}
    last: list[AdderStep] = []
    # Constants reachable from what exists come first, so helpers are added only for the rest.
    hard = [c for c in wanted if c not in base and second_level(c, base) is None]
    for constant in hard:
        if second_level(constant, base) is not None:
            continue
        helpers = [{h} for h in FIRST_LEVEL] + [{g, h} for g in FIRST_LEVEL for h in FIRST_LEVEL if g < h]
        base |= next(h for h in helpers if second_level(constant, base | h) is not None)
    for constant in wanted:
        if constant not in base:
            step = second_level(constant, base)
            assert step is not None
            last.append(step)
    return (*(FIRST_LEVEL[c] for c in sorted(base - {1})), *last)


class Builder:
    """Adders under construction; equal adders are made once, and every range is exact for independent inputs."""

    def __init__(self, ranges: Sequence[tuple[int, int]]) -> None:
        self.inputs = len(ranges)
        self.ranges = list(ranges)
        self.stages = [0] * len(ranges)
        self.coefficients: list[dict[int, int]] = [{c: 1} for c in range(len(ranges))]
        self.adders: list[Adder] = []
        self.known: dict[tuple[int, int, int, int, bool], int] = {}

    def add(self, a: ShiftedTerm, b: ShiftedTerm) -> ShiftedTerm:
        """The sum of two terms, with the common shift and a common sign drawn out of the adder."""
        shift = min(a.shift, b.shift)
        if (a.negative and not b.negative) or (a.negative == b.negative and (b.node, b.shift) < (a.node, a.shift)):
            a, b = b, a
        key = (a.node, a.shift - shift, b.node, b.shift - shift, a.negative != b.negative)
        if key not in self.known:
            self.known[key] = self.inputs + len(self.adders)
            self.append(*key)
        return ShiftedTerm(self.known[key], shift, a.negative and b.negative)

    def append(self, left: int, left_shift: int, right: int, right_shift: int, minus: bool) -> None:
        total = {c: v << left_shift for c, v in self.coefficients[left].items()}
        for c, v in self.coefficients[right].items():
            total[c] = total.get(c, 0) + (-v if minus else v) * (1 << right_shift)
        lo = hi = 0
        for c, v in total.items():
            low, high = self.ranges[c]
            lo, hi = (lo + v * low, hi + v * high) if v >= 0 else (lo + v * high, hi + v * low)
        stage = max(self.stages[left], self.stages[right]) + 1
        column, multiple = next(iter(total.items())) if len(total) == 1 else (None, 0)
        self.adders.append(Adder(left, left_shift, right, right_shift, minus, lo, hi, stage, column, multiple))
        self.ranges.append((lo, hi))
        self.stages.append(stage)
        self.coefficients.append(total)

    def width(self, term: ShiftedTerm) -> int:
        lo, hi = self.ranges[term.node]
        return (max(hi, -lo - 1) << term.shift).bit_length()

    def tree(self, terms: list[ShiftedTerm]) -> ShiftedTerm | None:
        """Sum of terms, level by level; what is ready is paired, narrow operands first."""
        if not terms:
            return None
        stage = min(self.stages[t.node] for t in terms)
        while len(terms) > 1:
            ready = sorted((t for t in terms if self.stages[t.node] <= stage), key=lambda t: (self.width(t), t.shift, t.node))
            waiting = [t for t in terms if self.stages[t.node] > stage]
            pairs = [self.add(ready[i], ready[i + 1]) for i in range(0, len(ready) - 1, 2)]
            terms = pairs + (ready[-1:] if len(ready) % 2 else []) + waiting
            stage += 1
        return terms[0]

    def multiply(self, column: int, constants: Iterable[int]) -> dict[int, list[ShiftedTerm]]:
        """Terms whose sum is column * constant, for every odd positive constant."""
        small = frozenset(c for c in constants if c < SHARED)
        made = {1: ShiftedTerm(column, 0, False)}
        for step in multiples(small):
            left, right = made[step.left], made[step.right]
            made[step.constant] = self.add(ShiftedTerm(left.node, step.left_shift, False),
                                           ShiftedTerm(right.node, step.right_shift, step.minus))
        terms = {c: [made[c]] for c in small}
        for c in constants:
            if c not in small:
                terms[c] = [ShiftedTerm(column, shift, digit < 0) for digit, shift in signed_digits(c)]
        return terms


def build(matrix: IntMatrix, ranges: Sequence[tuple[int, int]]) -> AdderGraph:
    """The adder graph of `matrix @ inputs`; `ranges` bound each input (column)."""
    rows, columns = matrix.shape
    assert len(ranges) == columns
    builder = Builder(ranges)
    terms: list[list[ShiftedTerm]] = [[] for _ in range(rows)]
    for column in range(columns):
        used = [(row, int(matrix[row, column])) for row in np.flatnonzero(matrix[:, column])]
        odd = {abs(w) >> trailing_zeros(abs(w)) for _, w in used}
        products = builder.multiply(column, sorted(odd))
        for row, weight in used:
            zeros = trailing_zeros(abs(weight))
            terms[row] += [ShiftedTerm(t.node, t.shift + zeros,
                                       t.negative != (weight < 0)) for t in products[abs(weight) >> zeros]]
    same: dict[tuple[ShiftedTerm, ...], ShiftedTerm | None] = {}
    outputs = []
    for row_terms in terms:
        key = tuple(row_terms)
        if key not in same:
            same[key] = builder.tree(row_terms)
        outputs.append(same[key])
    return AdderGraph(columns, tuple(builder.adders), tuple(outputs))
