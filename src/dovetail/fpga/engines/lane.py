"""One lane of a folded engine: products, a registered tree, a sum over slices, and the filter's rounding from tables.

All lanes of an engine are one module: widths follow from the widest filter, constants of a filter come in beside its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from dovetail.fpga.engines.arithmetic import Nudges, clamped, nudged_range, rescaled
from dovetail.fpga.engines.layers import Rescale
from dovetail.fpga.engines.narrow import reach
from dovetail.fpga.engines.soft import soft_multiplier, soft_product, soft_stages
from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.rtl.expressions import Expr, Signal, bit_width, choose, const, select, signal
from dovetail.fpga.rtl.modules import Module
from dovetail.hardware.adders.graph import IntMatrix

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class FilterConstants:
    """What every filter adds and how it is scaled: bias, multiplier, and the place of its left shift in `lifts`.

    A filter's integer, shifted left by its lift, is rounded by the one `shift` all filters share: round(r * 2**a / 2**(s + a))
    is round(r / 2**s), so filters of different scales need no rounding of their own. Where all of them are shifted down, half
    a unit comes with the bias (`raised`), and rounding needs no adder. With `nudges`, one pair per lift, products are nudged
    before they are lifted, and what is left is rounded down; the zero point comes with the nudge.
    """

    biases: tuple[int, ...]
    multipliers: tuple[int, ...]
    lifts: tuple[int, ...]
    places: tuple[int, ...]
    shift: int
    raised: bool
    nudges: tuple[Nudges, ...] = ()

    @property
    def shifts(self) -> list[int]:
        """Places by which every filter's sum is shifted down."""
        return [self.shift - self.lifts[place] for place in self.places]

    def fields(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Name and value per filter of everything that differs between filters or is not neutral."""
        multiplied = max(self.multipliers) > 1
        named = (("bias", self.biases, any(self.biases)), ("multiplier", self.multipliers, multiplied),
                 ("place", self.places, len(self.lifts) > 1))
        return tuple((name, values) for name, values, wanted in named if wanted)


def constants_of(bias: Sequence[int], rescale: Rescale) -> FilterConstants:
    """Constants of all filters; factors of two move from the multipliers into the shifts."""
    scales = rescale.scales or ((1, 0),) * len(bias)
    if rescale.nudges and rescale.scales is not None:
        return nudged_constants(bias, scales, rescale)
    odd: list[tuple[int, int]] = []
    for multiplier, shift in scales:
        twos = (multiplier & -multiplier).bit_length() - 1
        odd.append((multiplier >> twos, shift - twos))
    most = max(shift for _, shift in odd)
    lifts = tuple(sorted({most - shift for _, shift in odd}))
    raised = all(multiplier == 1 and shift > 0 for multiplier, shift in odd)
    halves = [1 << shift - 1 if raised else 0 for _, shift in odd]
    return FilterConstants(tuple(int(b) + half for b, half in zip(bias, halves, strict=True)), tuple(m for m, _ in odd), lifts,
                           tuple(lifts.index(most - shift) for _, shift in odd), most, raised)


def nudged_constants(bias: Sequence[int], scales: Sequence[tuple[int, int]], rescale: Rescale) -> FilterConstants:
    """Constants of filters whose products are nudged: each shift with its nudges is a place."""
    most = max(shift for _, shift in scales)
    kinds = [(most - shift, *(n + (rescale.zero << shift) for n in pair))
             for (_, shift), pair in zip(scales, rescale.nudges, strict=True)]
    distinct = sorted(set(kinds))
    return FilterConstants(tuple(int(b) for b in bias), tuple(m for m, _ in scales), tuple(lift for lift, _, _ in distinct),
                           tuple(distinct.index(kind) for kind in kinds), most, False, tuple((a, b) for _, a, b in distinct))


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges over all filters, proven from the weights: of a slice's sum, of all sums so far, of the whole sum of each."""

    part: Range
    running: Range
    whole: tuple[IntMatrix, IntMatrix]
    """Smallest and largest sum of every filter, without bias."""

    @property
    def so_far(self) -> Range:
        """Of what is accumulated, which starts with a slice's sum."""
        return min(self.running[0], self.part[0]), max(self.running[1], self.part[1])


def ranges_of(slices: Sequence[IntMatrix], x: Range) -> Ranges:
    """From the weights of every slice (filters x taps) and the range of a tap, which holds zero."""
    low, high = [], []
    for weights in slices:
        positive, negative = np.maximum(weights, 0).sum(axis=1), np.minimum(weights, 0).sum(axis=1)
        low.append(positive * x[0] + negative * x[1])
        high.append(positive * x[1] + negative * x[0])
    lows, highs = np.array(low), np.array(high)
    sums = np.cumsum(lows, axis=0), np.cumsum(highs, axis=0)
    return Ranges((int(lows.min()), int(highs.max())), (int(sums[0].min()), int(sums[1].max())), (sums[0][-1], sums[1][-1]))


@dataclass(frozen=True, slots=True)
class Lane:
    """A finished lane: stages at which its sum and its constants enter, and at which its result leaves."""

    module: Module
    sum_stage: int
    constant_stage: int
    stages: int
    result: Staged
    parts: tuple[Module, ...] = ()
    """What it instantiates."""


def lane_module(name: str, taps: int, x: Range, w: Range, ranges: Ranges, sums: int, constants: FilterConstants,
                rescale: Rescale, in_logic: bool = False) -> Lane:
    """x and w: `taps` values side by side; `starts` and `works` belong to the sum, one field per `constants.fields`.

    `sums` over slices are worked on in turn, none where there is one slice. Products may be `in_logic`, as narrow as weights are.
    """
    soft = soft_multiplier(f"{name}_product", x, w) if in_logic else None
    m = Module(name, (f"A lane of {taps} products.",), shared=True)
    pipeline = Pipeline(m)
    words = [_fields(m, port, taps, bounds) for port, bounds in (("x", x), ("w", w))]
    pairs = enumerate(zip(*words, strict=True))
    if soft is None:
        level = [pipeline.register(f"product_{i}", a * b, 0) for i, (a, b) in pairs]
    else:
        level = [Staged(m.wire(f"product_{i}", soft_product(m, soft, f"soft_{i}", a, b)), soft_stages(w)) for i, (a, b) in pairs]
    total = tree(pipeline, level, ranges.part)
    sum_stage = total.stage
    if sums:
        total = accumulated(m, total, ranges.so_far, m.input("starts"), m.input("works"), sums=sums)
    entering = total.stage
    result = finished(pipeline, total, given_fields(m, constants, entering), ranges, constants, rescale)
    m.output("y", result.value)
    return Lane(m, sum_stage, entering, max(result.stage, entering), result, () if soft is None else (soft,))


def accumulated(m: Module, total: Staged, bounds: Range, starts: Signal, works: Signal, prefix: str = "",
                sums: int = 1) -> Staged:
    """The sum over slices; of several `sums` that are worked on in turn, the one whose turn it is."""
    running = signal(f"{prefix}running", *bounds)
    oldest = running
    for place in range(1, sums):
        oldest = m.register(f"{prefix}running_{place}", oldest, works, bounds=bounds)
    m.drive(running, select(starts, total.value, oldest + total.value), works)
    return Staged(running, total.stage + 1)


def given_fields(m: Module, constants: FilterConstants, stage: int, prefix: str = "") -> dict[str, Staged]:
    """Ports of a filter's constants."""
    return {field: Staged(m.input(f"{prefix}{field}", bit_width(min(values), max(values))), stage)
            for field, values in constants.fields()}


def _fields(m: Module, port: str, taps: int, bounds: Range) -> list[Signal]:
    """An input of values side by side, each under its own name and range."""
    width = bit_width(*bounds)
    data = m.input(port, taps * width)
    return [m.wire(f"{port}_{i}", data.field(i * width, *bounds)) for i in range(taps)]


def tree(pipeline: Pipeline, level: Sequence[Staged], bounds: Range | None, prefix: str = "") -> Staged:
    """The sum of values of one stage by a registered tree: as one expression it costs tools up to five times as much."""
    numbers = count()

    def both(first: Staged, second: Staged) -> Staged:
        number = next(numbers)
        known = bounds if number == len(level) - 2 else None
        return pipeline.register(f"{prefix}tree_{number}", first.value + second.value, first.stage, known)

    return pipeline.paired(level, both)


def finished(pipeline: Pipeline, total: Staged, given: dict[str, Staged], ranges: Ranges, constants: FilterConstants,
             rescale: Rescale, prefix: str = "") -> Staged:
    """Bias, multiplier, shift, rounding, zero point and clamp, with ranges proven filter by filter."""
    low, high = (np.array([int(v) for v in side], dtype=object) for side in ranges.whole)
    if "bias" in given:
        low, high = low + np.array(constants.biases, dtype=object), high + np.array(constants.biases, dtype=object)
        total = pipeline.register(f"{prefix}biased", total.value + _signed(given["bias"], constants.biases), total.stage,
                                  (int(low.min()), int(high.max())))
    if rescale.scales is None:
        return total
    if "multiplier" in given and constants.nudges:  # sums so far out that all filters saturate are as good as nearer ones
        ends = reach(rescale)
        low, high = np.clip(low, *ends), np.clip(high, *ends)
        total = clamped(pipeline, f"{prefix}reached", total, ends)
    if "multiplier" in given:
        factors = np.array(constants.multipliers, dtype=object)
        low, high = low * factors, high * factors
        known = (int(low.min()), int(high.max()))
        product = total.value * pipeline.at(given["multiplier"], total.stage)
        total = pipeline.register(f"{prefix}scaled", product, total.stage, known)
        total = pipeline.register(f"{prefix}scaled_held", total.value, total.stage)  # retimed into the multiplier
    if constants.nudges:
        return nudged_result(pipeline, total, given, (low, high), constants, rescale, prefix)
    if "place" in given:
        lifts = np.array([1 << constants.lifts[p] for p in constants.places], dtype=object)
        low, high = low * lifts, high * lifts
        options = [total.value << lift for lift in constants.lifts]
        lifted = choose(pipeline.at(given["place"], total.stage), options)
        total = pipeline.register(f"{prefix}lifted", lifted, total.stage, (int(low.min()), int(high.max())))
    return rescaled(pipeline, f"{prefix}result", total, (1, 1, constants.shift), rescale.zero, rescale.bounds,
                    constants.raised)


def nudged_result(pipeline: Pipeline, total: Staged, given: dict[str, Staged], ends: tuple[IntMatrix, IntMatrix],
                  constants: FilterConstants, rescale: Rescale, prefix: str) -> Staged:
    """Products with their nudges, lifted to one shift, rounded down and clamped; `ends` are of every filter's product."""
    reached = [nudged_range(Signal(int(a), int(b), ""), constants.nudges[p]) for a, b, p in
               zip(*ends, constants.places, strict=True)]
    negative = total.signal.bit(total.signal.width - 1) if total.value.lo < 0 else const(0)
    options: list[Expr] = [const(above) if above == below else select(negative, below, above)
                           for above, below in constants.nudges]
    chosen = options[0] if len(options) == 1 else choose(pipeline.at(given["place"], total.stage), options)
    total = pipeline.register(f"{prefix}nudged", total.value + chosen, total.stage,
                              (min(lo for lo, _ in reached), max(hi for _, hi in reached)))
    if len(set(constants.lifts)) > 1:
        lifted = choose(pipeline.at(given["place"], total.stage), [total.value << lift for lift in constants.lifts])
        places = [constants.lifts[p] for p in constants.places]
        total = pipeline.register(f"{prefix}lifted", lifted, total.stage, (
            min(lo << by for (lo, _), by in zip(reached, places, strict=True)),
            max(hi << by for (_, hi), by in zip(reached, places, strict=True))))
    quotient = pipeline.module.wire(f"{prefix}quotient", total.signal >> constants.shift)
    return clamped(pipeline, f"{prefix}result", Staged(quotient, total.stage), rescale.bounds)


def _signed(staged: Staged, values: Sequence[int]) -> Signal:
    """A table's field, read with the range of its entries."""
    return Signal(min(values), max(values), staged.signal.name)
