"""Sums of coded products with constant weights, and the thresholds behind them.

Three datapaths compute the same integers: `popcount` counts bits per weight code and multiplies the counts, `table` looks every
product up, `mux` adds what the bits of every code select. What has plain integers on one side is an adder graph over planes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from dovetail.fpga.engines.arithmetic import biased, print_graph
from dovetail.fpga.engines.layers import Computed, MappedLayer, Rescale, rescaled_sums
from dovetail.fpga.engines.stream import Format, Pipeline, Staged
from dovetail.fpga.engines.window import Taps
from dovetail.fpga.rtl.expressions import ZERO, Const, Expr, Signal, compare, const, pack, select
from dovetail.fpga.rtl.modules import ConstantTable
from dovetail.hardware.adders.graph import IntMatrix, build
from dovetail.hardware.adders.subexpressions import minimize
from dovetail.ir import Array, Coded, Window


class Datapath(StrEnum):
    """How products of codes are summed."""

    POPCOUNT = "popcount"
    FULL_ADDERS = "popcount by full adders"
    """For look-up tables of four inputs, which make dear counters of six."""
    TABLE = "table"
    MUX = "mux"
    FLOAT_TABLE = "float table"
    FP32 = "fp32"


FLOATS = (Datapath.FLOAT_TABLE, Datapath.FP32)
"""Baselines in single precision (`floats.py`); all others compute the same integers."""

FOUR_INPUTS = ("ecp5", "gw2a")
"""Families whose look-up tables have four inputs."""


def datapath_of(family: str | None) -> Datapath:
    """How a build of a family sums products of codes."""
    return Datapath.FULL_ADDERS if family in FOUR_INPUTS else Datapath.POPCOUNT


LUT_INPUTS = 6
"""Bits one counter takes: each bit of its result is a function of six, one look-up table of most families."""
FULL_ADDER = 3


def coded_window(op: Coded, form: Format) -> Window:
    """What a layer sees of its stream at once."""
    return op.body.window or Window((form.height, form.width))


def coded(layer: MappedLayer, op: Coded, constants: Sequence[Array], rescale: Rescale | None, datapath: Datapath,
          pipeline: Pipeline, taps: Taps) -> Computed:
    """The outputs of a layer of codes: constants as `Coded` has them; thresholds where `rescale` is None."""
    codes, products, steps = (np.asarray(c, dtype=np.int64) for c in constants[:3])
    weights, reads = spread(op, codes, len(taps))
    size = FULL_ADDER if datapath is Datapath.FULL_ADDERS else LUT_INPUTS
    planes = Planes(pipeline, layer.label, size, op=op, taps=[taps[key] for key in sorted(taps)])
    if op.weight_bits and op.input_bits:
        sums = {Datapath.TABLE: _tables, Datapath.MUX: _muxes}.get(datapath, _popcounts)
        columns, matrix = sums(planes, weights, reads, products)
    else:
        columns, matrix = _weighted_planes(planes, weights, reads, products)
    stage = max(c.stage for c in columns)
    level = [Staged(pipeline.at(c, stage), stage) for c in columns]
    # products that are looked up or selected belong to one filter each: there is nothing to share among them
    shares = datapath in (Datapath.POPCOUNT, Datapath.FULL_ADDERS) or not (op.weight_bits and op.input_bits)
    graph = (minimize if shares else build)(matrix, [(c.value.lo, c.value.hi) for c in level])
    nodes = print_graph(pipeline, graph, level, layer.label)
    adders = graph.count + planes.counters
    if rescale is not None:
        return rescaled_sums(pipeline, layer.label, graph, nodes, steps, rescale), adders
    values = []
    for index, term in enumerate(graph.outputs):
        name = f"{layer.label}_acc_{index}"
        value, left = biased(pipeline, name, term, nodes, 0)
        values.append(reached(pipeline, name, value, left, steps[index]))
    return values, adders


def reached(pipeline: Pipeline, name: str, staged: Staged, left: int, steps: IntMatrix) -> Staged:
    """How many of the ascending thresholds value << left reaches: one comparison each, then the largest that holds."""
    value = staged.value
    limits = [-(-int(t) >> left) for t in steps]  # the least value whose multiple of 2**left reaches t
    if isinstance(value, Const):
        return Staged(const(sum(value.lo >= t for t in limits)), 0)
    return last_that_holds(pipeline, name, [compare(">=", value, limit) for limit in limits], staged.stage)


def last_that_holds(pipeline: Pipeline, name: str, thresholds: Sequence[Expr], stage: int) -> Staged:
    """How many ascending thresholds hold, each a bit of `stage`: the number of the last one."""
    code: Expr = ZERO
    for k, holds in enumerate(thresholds):
        kept = holds if isinstance(holds, Const) else pipeline.module.register(f"{name}_reaches_{k}", holds)
        code = select(kept, k + 1, code)
    return Staged(code, 0) if isinstance(code, Const) else pipeline.register(f"{name}_code", code, stage + 1)


def stepped(layer: MappedLayer, steps: IntMatrix, pipeline: Pipeline, taps: Taps) -> Computed:
    """Codes of a stream's numbers; thresholds (channels, steps)."""
    return [reached(pipeline, f"{layer.label}_{c}", taps[key], 0, steps[c]) for c, key in enumerate(sorted(taps))], 0


def spread(op: Coded, codes: IntMatrix, taps: int) -> tuple[IntMatrix, Array]:
    """Codes as (filters, taps), and which taps each filter reads: those of its own group."""
    groups = op.body.groups
    flat = codes.reshape(len(codes), -1)
    wide, reads = np.zeros((len(flat), taps), dtype=np.int64), np.zeros((len(flat), taps), dtype=np.bool_)
    for f, row in enumerate(flat):
        start = f // (len(flat) // groups) * len(row)
        wide[f, start:start + len(row)], reads[f, start:start + len(row)] = row, True
    return wide, reads


@dataclass(slots=True)
class BitCounters:
    """Counters of bits, made of tables that all of a module share."""

    pipeline: Pipeline
    label: str
    size: int = LUT_INPUTS
    """Bits that a counter takes where there are as many."""
    counters: int = 0
    tables: dict[str, ConstantTable] = field(default_factory=dict)

    def entry(self, name: str, index: Signal, values: Sequence[int]) -> Expr:
        """values[index], from a table that all who ask by this name share."""
        if len(values) <= 2:  # one bit is no index
            return select(index, values[-1], values[0])
        if name not in self.tables:
            self.tables[name] = ConstantTable(name, index.width, tuple(enumerate(values)))
            self.pipeline.module.tables.append(self.tables[name])
        return self.tables[name].entry(index)

    def count(self, name: str, chosen: Sequence[Staged]) -> Staged:
        """How many of some bits are set."""
        return self.joined(name, {0: list(chosen)}, len(chosen))

    def joined(self, name: str, columns: dict[int, list[Staged]], most: int) -> Staged:
        """The number, at most `most`, whose binary digits stand in columns by their weight, several in each."""
        number = 0
        while any(len(column) > 2 for column in columns.values()):
            size = self.size if any(len(c) >= self.size for c in columns.values()) else FULL_ADDER
            following: dict[int, list[Staged]] = {}
            for weight, column in sorted(columns.items()):
                stage = max(b.stage for b in column)
                taken = len(column) - len(column) % size
                for at in range(0, taken, size):
                    made = self._counter(f"{name}_{number}", column[at:at + size], stage)
                    number += 1
                    for k, bit in enumerate(made):
                        following.setdefault(weight + k, []).append(bit)
                following.setdefault(weight, []).extend(column[taken:])
            columns = {w: c for w, c in following.items() if c}
        return self._added(name, columns, most)

    def _counter(self, name: str, group: Sequence[Staged], stage: int) -> list[Staged]:
        """Up to six bits of one stage as a number of three, registered."""
        module, size = self.pipeline.module, len(group)
        index = module.wire(f"{name}_in", pack([(self.pipeline.at(b, stage), 1) for b in group]))
        ones = self.entry(f"{self.label}_ones_of_{size}", index, [p.bit_count() for p in range(1 << size)])
        value = self.pipeline.register(name, ones, stage)
        self.counters += 1
        return [Staged(module.wire(f"{name}_bit_{k}", value.signal.bit(k)), value.stage) for k in range(size.bit_length())]

    def _added(self, name: str, columns: dict[int, list[Staged]], most: int) -> Staged:
        """Columns of at most two bits as one number."""
        stage, module = max(b.stage for c in columns.values() for b in c), self.pipeline.module
        rows = []
        for row in range(2):
            fields: list[tuple[Expr, int]] = []
            for weight in range(max(columns) + 1):
                column = columns.get(weight, [])
                fields.append((self.pipeline.at(column[row], stage) if row < len(column) else ZERO, 1))
            rows.append(pack(fields) if any(len(c) > row for c in columns.values()) else None)
        assert rows[0] is not None
        if rows[1] is None:
            return Staged(module.wire(f"{name}_count", rows[0], (0, most)), stage)
        self.counters += 1
        return self.pipeline.register(f"{name}_count", rows[0] + rows[1], stage, (0, most))


@dataclass(slots=True)
class Planes(BitCounters):
    """The bits of a window's codes, named once each, and the counters made of them."""

    op: Coded = field(kw_only=True)
    taps: list[Staged] = field(default_factory=list, kw_only=True)
    known: dict[tuple[int, int], Staged | None] = field(default_factory=dict, kw_only=True)

    def bit(self, tap: int, j: int) -> Staged | None:
        """Bit `j` of the pattern that a tap's code stands for; None where it is never set."""
        if (tap, j) not in self.known:
            self.known[tap, j] = self._bit(tap, j)
        return self.known[tap, j]

    def _bit(self, tap: int, j: int) -> Staged | None:
        staged, module = self.taps[tap], self.pipeline.module
        value = staged.signal
        if not self.op.patterns:
            return Staged(module.wire(f"{value.name}_bit_{j}", value.bit(j)), staged.stage) if j < value.width else None
        is_set = [self.op.patterns[code] >> j & 1 for code in range(value.hi + 1)]
        found = self.entry(f"{self.label}_plane_{j}_of_{value.hi}", value, is_set)
        return None if found == ZERO else Staged(module.wire(f"{value.name}_bit_{j}", found, (0, 1)), staged.stage)


Columns = tuple[list[Staged], IntMatrix]
"""Values and the integer matrix that makes every filter's sum of them."""


def _level_weights(op: Coded, products: IntMatrix, f: int, j: int) -> IntMatrix:
    """What a set bit of plane `j` adds to filter `f`, for every weight code."""
    signs = np.stack([op.signs(np.arange(1 << op.weight_bits), i) for i in range(op.weight_bits)], axis=1)
    found: IntMatrix = signs @ products[f, :, j]
    return found


def _popcounts(planes: Planes, weights: IntMatrix, reads: Array, products: IntMatrix) -> Columns:
    """Per plane of the input and filter, for every plane of the weights, the set bits of taps whose weight bit is not as usual.

    The codes divide the taps, so that every bit is counted once; the most frequent code is what all others leave of the whole,
    which all filters share. A code that differs from it in bit i adds twice the product of plane i, so counts of codes are first
    added per bit: as many multiples as bits, not as codes. For ±1 planes this is 2·popcount(w ∧ a) - popcount(a).
    """
    op, columns = planes.op, list[Staged]()
    rows: list[dict[int, int]] = [{} for _ in weights]
    totals: dict[tuple[int, bytes], int] = {}

    def counted(name: str, taps: Array, j: int) -> Staged | None:
        chosen = [b for t in taps if (b := planes.bit(int(t), j)) is not None]
        return planes.count(name, chosen) if chosen else None

    for j in range(op.input_bits):
        for f, row in enumerate(weights):
            key, values = (j, reads[f].tobytes()), _level_weights(op, products, f, j)
            present = np.bincount(row[reads[f]], minlength=len(values))
            usual, taps = int(present.argmax()), np.flatnonzero(reads[f])
            # The first filter's counts make the whole, where adding them takes less than counting all bits again.
            adds = key not in totals and (np.count_nonzero(present) - 1) * len(taps).bit_length() < len(taps) - present[usual]
            found = {code: count for code in map(int, np.flatnonzero(present)) if (adds or code != usual) and (count := counted(
                f"{planes.label}_ones_{f}_{j}_{code}", np.flatnonzero(reads[f] & (row == code)), j)) is not None}
            if key not in totals:
                name = f"{planes.label}_all_{j}_{len(totals)}"
                whole = _summed(planes, name, list(found.values())) if adds and found else counted(name, taps, j)
                if whole is None:
                    continue
                columns.append(whole)
                totals[key] = len(columns) - 1
            found.pop(usual, None)
            rows[f][totals[key]] = rows[f].get(totals[key], 0) + int(values[usual])
            for i in range(op.weight_bits):
                others = [count for code, count in found.items() if (code ^ usual) >> i & 1]
                step = -2 * int(products[f, i, j]) * (1 if usual >> i & 1 else -1)
                if others and step:
                    columns.append(_summed(planes, f"{planes.label}_differ_{f}_{j}_{i}", others))
                    rows[f][len(columns) - 1] = step
    return columns, _matrix(rows, len(columns))


def _summed(planes: Planes, name: str, counts: Sequence[Staged]) -> Staged:
    """Counts added two by two, early ones first."""
    pipeline, level, number = planes.pipeline, sorted(counts, key=lambda c: c.stage), 0
    while len(level) > 1:
        merged = []
        for a, b in zip(level[::2], level[1::2], strict=False):
            stage = max(a.stage, b.stage)
            merged.append(pipeline.register(f"{name}_{number}", pipeline.at(a, stage) + pipeline.at(b, stage), stage))
            number += 1
        level = sorted([*merged, *level[len(level) - len(level) % 2:]], key=lambda c: c.stage)
    planes.counters += number
    return level[0]


def _matrix(rows: Sequence[dict[int, int]], columns: int) -> IntMatrix:
    found = np.zeros((len(rows), columns), dtype=np.int64)
    for f, row in enumerate(rows):
        for place, value in row.items():
            found[f, place] = value
    return found


def _each(weights: IntMatrix, reads: Array, make: Callable[[int, int], Staged | None]) -> Columns:
    """One value per filter and tap, all added up."""
    columns, rows = list[Staged](), list[dict[int, int]]()
    for f in range(len(weights)):
        rows.append({})
        for tap in np.flatnonzero(reads[f]):
            if (value := make(f, int(tap))) is not None:
                columns.append(value)
                rows[f][len(columns) - 1] = 1
    return columns, _matrix(rows, len(columns))


def _tables(planes: Planes, weights: IntMatrix, reads: Array, products: IntMatrix) -> Columns:
    """The paper's first form with constant weights: the product of every weight with every tap from a table of its code."""
    op = planes.op
    bit_of = np.stack([op.plane(np.arange(1 << op.input_bits), j) for j in range(op.input_bits)], axis=1)

    def entry(f: int, tap: int) -> Staged | None:
        staged, code = planes.taps[tap], int(weights[f, tap])
        value = staged.signal
        level = np.asarray([_level_weights(op, products, f, j)[code] for j in range(op.input_bits)])
        found = planes.entry(f"{planes.label}_products_{f}_{code}_{value.hi}", value,
                             [int(bit_of[c] @ level) for c in range(value.hi + 1)])
        if found.lo == found.hi:
            return None
        return planes.pipeline.register(f"{planes.label}_product_{f}_{tap}", found, staged.stage)

    return _each(weights, reads, entry)


def _muxes(planes: Planes, weights: IntMatrix, reads: Array, products: IntMatrix) -> Columns:
    """The paper's conditionals: every set bit selects its product, and the selected are added."""
    op = planes.op

    def chosen(f: int, tap: int) -> Staged | None:
        level = [int(_level_weights(op, products, f, j)[weights[f, tap]]) for j in range(op.input_bits)]
        terms = [(select(b.value, v, 0), b.stage) for j, v in enumerate(level)
                 if v and (b := planes.bit(tap, j)) is not None]
        if not terms:
            return None
        total, stage = terms[0]
        for term, _ in terms[1:]:
            total += term
        return planes.pipeline.register(f"{planes.label}_product_{f}_{tap}", total, stage)

    return _each(weights, reads, chosen)


def _weighted_planes(planes: Planes, weights: IntMatrix, reads: Array, products: IntMatrix) -> Columns:
    """Plain integers on one side or both: weights as integers, over taps or over the bits of codes."""
    op, columns, blocks = planes.op, list[Staged](), list[IntMatrix]()
    for j in range(op.input_planes):
        block = np.zeros_like(weights)
        for f, row in enumerate(weights):
            signs = np.stack([op.signs(row, i) for i in range(op.weight_planes)], axis=1)
            block[f] = np.where(reads[f], signs @ products[f, :, j], 0)
        given = [planes.taps[t] if not op.input_bits else planes.bit(t, j) for t in range(weights.shape[1])]
        kept = [t for t, value in enumerate(given) if value is not None]
        columns += [value for value in given if value is not None]
        blocks.append(block[:, kept])
    return columns, np.concatenate(blocks, axis=1)
