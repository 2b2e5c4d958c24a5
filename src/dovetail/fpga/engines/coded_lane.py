"""One lane of a folded layer of codes: sums per pair of planes, accumulated over slices, then products, then thresholds.

Between codes a sum is 2·popcount(w ∧ a) − popcount(a): bits are counted three pairs to a look-up table, and the ones of the
activations once for all lanes. Plain integers on either side become gated, signed or real products. What a filter multiplies its
sums with, and its thresholds or rounding, come in beside its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from dovetail.errors import UsageError
from dovetail.fpga.engines import lane
from dovetail.fpga.engines.layers import Rescale
from dovetail.fpga.engines.lq import BitCounters
from dovetail.fpga.engines.stream import Format, Pipeline, Staged
from dovetail.fpga.rtl.expressions import ZERO, Expr, Signal, all_of, bit_width, compare, pack, select, signal
from dovetail.fpga.rtl.modules import Module
from dovetail.hardware.adders.graph import IntMatrix
from dovetail.ir import Coded, Constant, Window
from dovetail.numerics.lq import PRODUCT_BITS

LARGEST_PRODUCT = 1 << PRODUCT_BITS
"""Of a basis's products as they are rounded on export, where a later set of weights may bring any."""
LOADED_SHIFT = 16
"""Places by which rounding layers with loaded weights may shift their sums down: 1 to as many, filter by filter."""
LOADED_BIASES = (-(1 << 31), (1 << 31) - 1 + (1 << LOADED_SHIFT - 1))
"""What comes with a filter: any bias, and half a unit of what is rounded."""
PAIRS = 3
"""Products of one bit with one bit that a look-up table of six inputs counts."""


@dataclass(frozen=True, slots=True)
class CodedFilters:
    """Codes (filters, input channels of a group, kernel rows, kernel columns), products and steps as `Coded` has them.

    `rescale` None: thresholds. Of `loaded` filters only shapes and bits are fixed: ranges hold for all that may be loaded.
    """

    op: Coded
    codes: IntMatrix
    products: IntMatrix
    steps: IntMatrix
    rescale: Rescale | None
    reach: lane.Range
    """Of the inputs, where those are plain integers."""
    loaded: bool = False

    @property
    def weight_range(self) -> lane.Range:
        """Of plain weights."""
        return (-128, 127) if self.loaded else (min(0, int(self.codes.min())), max(0, int(self.codes.max())))

    @property
    def weight_width(self) -> int:
        """Bits of one weight in memory."""
        return self.op.weight_bits or bit_width(*self.weight_range)

    @property
    def input_width(self) -> int:
        """Bits of one tap."""
        return self.op.input_bits or bit_width(*self.reach)

    def bounds(self) -> tuple[IntMatrix, IntMatrix]:
        """The smallest and largest sum of every filter, bias aside."""
        if self.loaded:
            largest = [max(map(abs, bounds)) for bounds, bits in ((self.weight_range, self.op.weight_bits),
                                                                  (self.reach, self.op.input_bits)) if not bits]
            most = self.codes[0].size * self.op.weight_planes * self.op.input_planes * LARGEST_PRODUCT * prod(largest)
            return np.full(len(self.codes), -most), np.full(len(self.codes), most)
        planes = [self.op.weights(self.codes, self.products, j).astype(np.int64).reshape(len(self.codes), -1)
                  for j in range(self.op.input_planes)]
        return lane.ranges_of(planes, (0, 1) if self.op.input_bits else self.reach).whole

    def limits(self) -> IntMatrix:
        """Thresholds no further out than sums reach."""
        low, high = self.bounds()
        return np.clip(self.steps, low.min(), high.max() + 1)

    def product_range(self, i: int, j: int) -> lane.Range:
        """Of the products of a pair of planes over all filters."""
        own = self.products[:, i, j]
        return (0, LARGEST_PRODUCT) if self.loaded else (int(own.min()), int(own.max()))

    def step_range(self, k: int) -> lane.Range:
        """Of threshold `k` over all filters."""
        low, high = self.bounds()
        own = self.limits()[:, k]
        return (int(low.min()), int(high.max()) + 1) if self.loaded else (int(own.min()), int(own.max()))

    def field_ranges(self) -> list[lane.Range]:
        """Of the fields of layers whose weights are loaded."""
        pairs = [self.product_range(i, j) for i in range(self.op.weight_planes) for j in range(self.op.input_planes)]
        if self.rescale is not None:
            return [*pairs, LOADED_BIASES, (0, LOADED_SHIFT - 1)]
        return pairs + [self.step_range(k) for k in range(self.steps.shape[1])]

    def constants(self) -> lane.FilterConstants | None:
        """Bias and rounding of every filter; None where there are thresholds."""
        if self.rescale is None:
            return None
        return (loaded_constants if self.loaded else lane.constants_of)([int(b) for b in self.steps], self.rescale)

    def fields(self) -> list[tuple[str, tuple[int, ...]]]:
        """Name and value per filter of everything that comes in beside the weights."""
        named = [(f"product_{i}_{j}", tuple(int(p) for p in self.products[:, i, j]))
                 for i in range(self.op.weight_planes) for j in range(self.op.input_planes)]
        constants = self.constants()
        if constants is not None:
            return named + list(constants.fields())
        return named + [(f"step_{k}", tuple(int(t) for t in column)) for k, column in enumerate(self.limits().T)]


def shifts_alone(bias: Sequence[int], rescale: Rescale) -> bool:
    """Whether engines that load weights can round so."""
    own = lane.constants_of(bias, rescale)
    return max(own.multipliers) == 1 and min(own.shifts) >= 1 and max(own.shifts) <= LOADED_SHIFT


def loaded_constants(bias: Sequence[int], rescale: Rescale) -> lane.FilterConstants:
    """Constants with the one shift and all the lifts that engines of loaded weights have; UsageError where none is a filter's."""
    own = lane.constants_of(bias, rescale)
    if not shifts_alone(bias, rescale):
        how = "are multiplied" if max(own.multipliers) > 1 else f"are shifted by {min(own.shifts)} to {max(own.shifts)}"
        raise UsageError(f"sums {how}; where weights are loaded they are shifted down by 1 to {LOADED_SHIFT} places alone, leave "
                         "this layer's constant")
    return lane.FilterConstants(own.biases, own.multipliers, tuple(range(LOADED_SHIFT)),
                           tuple(LOADED_SHIFT - s for s in own.shifts), LOADED_SHIFT, True)


def coded_filters(op: Coded, params: Sequence[Constant], window: Window, rescale: Rescale | None, form: Format,
                  loaded: bool = False) -> CodedFilters:
    """The filters of a layer from its constants, what it sees at once, and the stream it reads."""
    codes, products, steps = (c.array.astype(np.int64) for c in params[:3])
    placed = codes.reshape(len(codes), -1, *window.kernel)
    return CodedFilters(op, placed, products, steps, rescale, (min(0, form.lo), max(0, form.hi)), loaded)


def ones_module(name: str, taps: int, op: Coded, slices: int) -> tuple[Module, int]:
    """Counts of the set bits of every plane, over slices; `total_J` leave at the stage returned."""
    m = Module(name, (f"The ones of {taps} codes, plane by plane.",), shared=True)
    pipeline = Pipeline(m)
    planes = BitCounters(pipeline, "ones")
    x = m.input("x", taps * op.input_bits)
    flow = (m.input("starts"), m.input("works")) if slices > 1 else None
    counts = []
    for j in range(op.input_bits):
        chosen = [Staged(m.wire(f"x{t}_{j}", x.bit(j * taps + t)), 0) for t in range(taps)]
        counts.append(planes.count(f"ones_{j}", chosen))
    stage = max(c.stage for c in counts)
    for j, count in enumerate(counts):
        total = summed(m, f"ones_{j}", Staged(pipeline.at(count, stage), stage), (0, taps * slices), flow)
        m.output(f"total_{j}", pipeline.at(total, stage + (slices > 1)))
    return m, stage


def summed(m: Module, name: str, total: Staged, whole: lane.Range, flow: tuple[Signal, Signal] | None) -> Staged:
    """The sum over slices, where there are several."""
    if flow is None:
        return total
    return lane.accumulated(m, total, (min(whole[0], total.value.lo), max(whole[1], total.value.hi)), *flow, prefix=f"{name}_")


def coded_lane(name: str, taps: int, filters: CodedFilters, slices: int) -> tuple[lane.Lane, int]:
    """x: planes of all taps, plane after plane, or plain taps side by side; w alike.

    Between codes, the ones of all taps enter with the sums: a module counts them, by the stage that is returned.
    """
    op = filters.op
    both = bool(op.weight_bits and op.input_bits)
    ones, ones_stage = ones_module(f"{name}_ones", taps, op, slices) if both else (None, 0)
    m = Module(f"{name}_lane", (f"A lane of {taps} products, {op.weight_planes} x {op.input_planes} planes.",), shared=True)
    pipeline = Pipeline(m)
    x, w = m.input("x", taps * filters.input_width), m.input("w", taps * filters.weight_width)
    flow = (m.input("starts"), m.input("works")) if slices > 1 else None
    parts = _plane_sums(pipeline, filters, taps, x, w)
    stage = max(*(p.stage for p in parts.values()), ones_stage)
    sums, entering = {}, stage + (slices > 1)
    for (i, j), part in parts.items():
        whole = (part.value.lo * slices, part.value.hi * slices)
        sums[i, j] = summed(m, f"sum_{i}_{j}", Staged(pipeline.at(part, stage), stage), whole, flow)
    if both:
        for j in range(op.input_bits):
            set_bits = signal(f"total_{j}", 0, taps * slices)
            m.inputs.append(signal(set_bits.name, 0, (1 << set_bits.width) - 1))
            for i in range(op.weight_bits):
                twice = sums[i, j].value << 1
                sums[i, j] = pipeline.register(f"signed_{i}_{j}", twice - set_bits, entering, (-set_bits.hi, set_bits.hi))
    total = _multiplied(pipeline, filters, sums, entering)
    result = _settled(pipeline, filters, total, entering, m)
    m.output("y", result.value)
    return lane.Lane(m, stage, entering, max(result.stage, entering), result, () if ones is None else (ones,)), ones_stage


def _plane_sums(pipeline: Pipeline, filters: CodedFilters, taps: int, x: Signal, w: Signal) -> dict[tuple[int, int], Staged]:
    """Of a slice, per pair of planes: counted pairs of bits, or the sum of what bits gate, sign or multiply."""
    op, planes, found = filters.op, BitCounters(pipeline, "lane"), {}
    for i in range(op.weight_planes):
        for j in range(op.input_planes):
            if op.weight_bits and op.input_bits:
                found[i, j] = counted_pairs(planes, f"count_{i}_{j}", [(x.bit(j * taps + t), w.bit(i * taps + t))
                                                                  for t in range(taps)])
                continue
            values = [pipeline.register(f"product_{i}_{j}_{t}", _product(pipeline.module, filters, taps, x, w, i, j, t), 0)
                      for t in range(taps)]
            found[i, j] = lane.tree(pipeline, values, None, f"sum_{i}_{j}_")
    return found


def _product(m: Module, filters: CodedFilters, taps: int, x: Signal, w: Signal, i: int, j: int, t: int) -> Expr:
    """Of tap `t` and its weight: bits of planes, or whole integers."""
    op, wide, narrow, name = filters.op, filters.input_width, filters.weight_width, f"{i}_{j}_{t}"
    a = x.bit(j * taps + t) if op.input_bits else x.field(t * wide, *filters.reach)
    b = w.bit(i * taps + t) if op.weight_bits else w.field(t * narrow, *filters.weight_range)
    if op.input_bits:
        return select(a, m.wire(f"weight_{name}", b), 0)
    tap = m.wire(f"tap_{name}", a)
    if op.weight_bits:
        return select(b, tap, m.wire(f"minus_{name}", ZERO - tap))
    return tap * m.wire(f"weight_{name}", b)


def counted_pairs(planes: BitCounters, name: str, pairs: Sequence[tuple[Expr, Expr]]) -> Staged:
    """How many pairs have both bits set."""
    pipeline, m, columns = planes.pipeline, planes.pipeline.module, dict[int, list[Staged]]()
    whole = len(pairs) - len(pairs) % PAIRS
    ands = [sum((k >> 2 * n & 3) == 3 for n in range(PAIRS)) for k in range(1 << 2 * PAIRS)]
    for at in range(0, whole, PAIRS):
        index = m.wire(f"{name}_in_{at}", pack([(bit, 1) for pair in pairs[at:at + PAIRS] for bit in pair]))
        made = pipeline.register(f"{name}_both_{at}", planes.entry("pairs_set", index, ands), 0)
        for k in range(2):
            columns.setdefault(k, []).append(Staged(m.wire(f"{name}_both_{at}_{k}", made.signal.bit(k)), 1))
    for at in range(whole, len(pairs)):
        columns.setdefault(0, []).append(pipeline.register(f"{name}_both_{at}", all_of(*pairs[at]), 0))
    return planes.joined(name, columns, len(pairs))


def _multiplied(pipeline: Pipeline, filters: CodedFilters, sums: dict[tuple[int, int], Staged], entering: int) -> Staged:
    """The filter's sum: every pair of planes times its product."""
    low, high = filters.bounds()
    terms = []
    for (i, j), part in sums.items():
        bounds = filters.product_range(i, j)
        given = pipeline.module.input(f"product_{i}_{j}", bit_width(*bounds))
        factor = pipeline.at(Staged(Signal(*bounds, given.name), entering), part.stage)
        made = pipeline.register(f"weighted_{i}_{j}", part.value * factor, part.stage)
        terms.append(pipeline.register(f"weighted_{i}_{j}_held", made.value, made.stage))  # retimed into the multiplier
    return lane.tree(pipeline, terms, (int(low.min()), int(high.max())), "filter_")


def _settled(pipeline: Pipeline, filters: CodedFilters, total: Staged, entering: int, m: Module) -> Staged:
    """The sum's code by thresholds, or with bias rounded."""
    constants, (low, high) = filters.constants(), filters.bounds()
    if constants is not None:
        assert filters.rescale is not None
        if filters.loaded:  # filters at the ends of what may be loaded, so that ranges over them hold for all
            lifts, places = tuple(range(LOADED_SHIFT)), (0, 0, LOADED_SHIFT - 1, LOADED_SHIFT - 1)
            constants = lane.FilterConstants(LOADED_BIASES * 2, (1,) * 4, lifts, places, LOADED_SHIFT, True)
            low, high = np.resize(low, 4), np.resize(high, 4)
        whole = (int(low.min()), int(high.max()))
        given = {field: Staged(pipeline.at(value, total.stage), total.stage)
                 for field, value in lane.given_fields(m, constants, entering).items()}
        return lane.finished(pipeline, total, given, lane.Ranges(whole, whole, (low, high)), constants, filters.rescale)
    code: Expr = ZERO
    for k in range(filters.steps.shape[1]):
        least, most = filters.step_range(k)
        given_step = m.input(f"step_{k}", bit_width(least, most))
        limit = pipeline.at(Staged(Signal(least, most, given_step.name), entering), total.stage)
        holds = compare(">=", total.value, limit)
        code = select(m.register(f"reaches_{k}", holds, bounds=(0, 1)), k + 1, code)
    return pipeline.register("code", code, total.stage + 1, (0, filters.steps.shape[1]))
