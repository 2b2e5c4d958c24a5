"""Adder graphs, maximum trees, rounding, division and saturation as pipeline registers.

Every function takes values with the stage at which they are valid and returns such a value; whoever joins values
of different stages delays the early ones (`Pipeline.at`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import numpy as np

from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.rtl.expressions import ONE, Bits, Const, Expr, Signal, all_of, any_bit, bit_width, compare, const, pack, select
from dovetail.fpga.rtl.modules import Module
from dovetail.hardware.adders.digits import reciprocal
from dovetail.hardware.adders.graph import AdderGraph, ShiftedTerm
from dovetail.hardware.adders.subexpressions import minimize


def print_graph(pipeline: Pipeline, graph: AdderGraph, columns: Sequence[Staged], name: str) -> list[Staged]:
    """One register per adder; returns every node of the graph. All columns are at one stage."""
    nodes, start = list(columns), max((c.stage for c in columns), default=0)
    multiples: set[tuple[int, int]] = set()
    for index, adder in enumerate(graph.adders):
        stage = start + adder.stage - 1
        left = pipeline.at(nodes[adder.left], stage) << adder.left_shift
        right = pipeline.at(nodes[adder.right], stage) << adder.right_shift
        label = f"{name}_sum_{index}"
        if adder.column is not None and (adder.column, adder.multiple) not in multiples:
            multiples.add((adder.column, adder.multiple))
            label = f"{columns[adder.column].signal.name}_times_{'minus_' * (adder.multiple < 0)}{abs(adder.multiple)}"
        value = left - right if adder.minus else left + right
        nodes.append(pipeline.register(label, value, stage, (adder.lo, adder.hi)))
    return nodes


def biased(pipeline: Pipeline, name: str, term: ShiftedTerm | None, nodes: Sequence[Staged], bias: int,
           half: int = 0) -> tuple[Staged, int]:
    """±(node << shift) + bias + half as (value, remaining shift): factors of two that all of them share are kept aside."""
    if term is None:
        return Staged(const(bias + half), 0), 0
    node, common = nodes[term.node], bias | half
    aside = min(term.shift, (common & -common).bit_length() - 1) if common else term.shift
    if not common and not term.negative:
        return node, aside
    shifted, offset = node.value << term.shift - aside, const(bias + half >> aside)
    value = offset - shifted if term.negative else shifted + offset
    return pipeline.register(name, value, node.stage), aside


def half_even(value: int, divisor: int) -> int:
    """value / divisor rounded to the nearest integer, ties to even."""
    quotient, rest = divmod(value, divisor)
    return quotient + (2 * rest > divisor or (2 * rest == divisor and quotient % 2 == 1))


Ratio = tuple[int, int, int]
"""(multiplier, divisor, shift): multiplier / (divisor * 2**shift)."""


def lowest_terms(ratio: Ratio) -> Ratio:
    """The same ratio with powers of two in the shift alone."""
    multiplier, odd, shift = ratio
    while odd % 2 == 0:
        odd, shift = odd // 2, shift + 1
    while multiplier % 2 == 0:
        multiplier, shift = multiplier // 2, shift - 1
    return multiplier, odd, shift


def half_of(ratio: Ratio) -> int:
    """What turns rounding down into rounding half up when it is added to the value; 0 where the ratio is no shift down."""
    multiplier, odd, shift = lowest_terms(ratio)
    return 1 << shift - 1 if multiplier == odd == 1 and shift > 0 else 0


def rescaled(pipeline: Pipeline, name: str, staged: Staged, ratio: Ratio, zero: int, bounds: tuple[int, int],
             raised: bool = False) -> Staged:
    """clamp(round_half_even(value * multiplier / (divisor * 2**shift)) + zero) as in `numerics.requantize`.

    `ratio` is (multiplier, divisor, shift). A `raised` value has `half_of(ratio)` in it already.
    """
    multiplier, odd, shift = lowest_terms(ratio)
    value, half = staged.value, half_of(ratio) if raised else 0
    if isinstance(value, Const) or value.lo == value.hi:
        exact = half_even((value.lo - half) * multiplier << max(0, -shift), odd << max(0, shift)) + zero
        return Staged(const(min(max(exact, bounds[0]), bounds[1])), 0)
    if multiplier > 1:
        staged = linear(pipeline, f"{name}_scaled", [multiplier], [staged])
    if shift < 0:
        staged = Staged(pipeline.module.wire(f"{name}_up", staged.value << -shift), staged.stage)
        shift = 0
    if odd > 1:
        rounded = divided(pipeline, name, staged, odd, shift)
    elif shift:
        return shifted_down(pipeline, name, staged, shift, raised, zero, bounds)
    else:
        rounded = staged
    if zero:
        rounded = pipeline.register(f"{name}_placed", rounded.value + zero, rounded.stage)
    return clamped(pipeline, name, rounded, bounds)


Nudges = tuple[int, int]
"""What is added before a quotient is rounded down: to values of at least zero, and to those below."""


def nudged_down(pipeline: Pipeline, name: str, staged: Staged, left: int, ratio: Ratio, nudges: Nudges, zero: int,
                bounds: tuple[int, int]) -> Staged:
    """clamp(floor(((value << left) * multiplier + nudge) / (divisor * 2**shift)) + zero), as in `ir.tflite.rounding`.

    Powers of two that the product has are left out of nudges and shift; the zero point comes with the nudge.
    """
    (multiplier, divisor, shift), value = ratio, staged.value
    if isinstance(value, Const) or value.lo == value.hi:
        exact = ((value.lo << left) * multiplier + nudges[value.lo < 0]) // (divisor << shift) + zero
        return Staged(const(min(max(exact, bounds[0]), bounds[1])), 0)
    odd, twos = lowest_odd(multiplier)
    over, more = lowest_odd(divisor)
    power, shift = left + twos, shift + more
    if odd > 1:
        staged = linear(pipeline, f"{name}_scaled", [odd], [staged])
    if over == 1 and shift <= power:
        assert all(0 <= n < 1 << shift for n in nudges)
        whole = staged.value << power - shift
        return clamped(pipeline, name, pipeline.register(f"{name}_placed", whole + zero, staged.stage), bounds)
    shift -= power
    assert shift >= 0
    above, below = ((n >> power) + zero * (over << shift) for n in nudges)
    if over == 1:
        aside = lowest_odd(above | below)[1] if above | below else 0
        aside = min(aside, shift)
        raised = nudged(pipeline, name, staged, aside, (above >> aside, below >> aside), 0)
        quotient = pipeline.module.wire(f"{name}_quotient", raised.signal >> shift - aside)
        return clamped(pipeline, name, Staged(quotient, raised.stage), bounds)
    unit = over << shift
    offset = max(0, -(nudged_range(staged.value, (above, below))[0] // unit)) * unit
    raised = nudged(pipeline, name, staged, 0, (above, below), offset)
    upper = Staged(pipeline.module.wire(f"{name}_upper", raised.signal >> shift), raised.stage)
    factor, drop = reciprocal(over, upper.value.hi)
    product = linear(pipeline, f"{name}_product", [factor], [upper])
    ends = raised.value.lo // unit, raised.value.hi // unit
    quotient = pipeline.module.wire(f"{name}_quotient", product.signal >> drop, ends)
    return clamped(pipeline, name, pipeline.register(f"{name}_rounded", quotient - offset // unit, product.stage), bounds)


def lowest_odd(value: int) -> tuple[int, int]:
    """A number without its powers of two, and how many those are."""
    twos = (value & -value).bit_length() - 1
    return value >> twos, twos


def nudged_range(value: Signal | Const, nudges: Nudges) -> tuple[int, int]:
    """Range of a value and its nudge."""
    ends = [end + nudges[end < 0] for end in {value.lo, value.hi, *({-1, 0} if value.lo < 0 <= value.hi else ())}]
    return min(ends), max(ends)


def nudged(pipeline: Pipeline, name: str, staged: Staged, aside: int, nudges: Nudges, offset: int) -> Staged:
    """A value without its lowest bits, its nudge by its sign, and an offset."""
    value = staged.signal
    upper = value >> aside
    more: Expr | int = nudges[0] + offset
    if value.lo < 0 and nudges[0] != nudges[1]:
        more = nudges[1] + offset if value.hi < 0 else select(value.bit(value.width - 1), nudges[1] + offset, nudges[0] + offset)
    lo, hi = nudged_range(Signal(upper.lo, upper.hi, value.name), nudges)
    return pipeline.register(f"{name}_nudged", upper + more, staged.stage, (lo + offset, hi + offset))


def shifted_down(pipeline: Pipeline, name: str, staged: Staged, shift: int, raised: bool, zero: int,
                 bounds: tuple[int, int]) -> Staged:
    """clamp(round_half_even(value / 2**shift) + zero)."""
    half = 1 << shift - 1 if raised else 0
    lo, hi = (half_even(end - half, 1 << shift) for end in (staged.value.lo, staged.value.hi))
    ends = [min(max(end + zero, bounds[0]), bounds[1]) for end in (lo, hi)]
    if ends[0] == ends[1]:
        return Staged(const(ends[0]), 0)
    return settled(pipeline, name, rounded_up(pipeline, name, staged, shift, raised, (lo, hi)), zero, bounds)


@dataclass(frozen=True, slots=True)
class RoundedUp:
    """A value rounded half up. In a tie its lowest bit is to be cleared: that is rounding half to even, without an adder."""

    quotient: Signal
    tie: Expr
    stage: int
    lo: int
    hi: int
    """Range of the value rounded half to even."""


def rounded_up(pipeline: Pipeline, name: str, staged: Staged, shift: int, raised: bool,
               ends: tuple[int, int]) -> RoundedUp:
    """value / 2**shift, which ends up between `ends`; half is added here, to the bits it reaches, if no bias brought it."""
    module, value, stage = pipeline.module, staged.signal, staged.stage
    if raised:
        tie = ~any_bit(reaching(module, f"{name}_low", value, shift).bits(0, shift))
    else:
        exact: Expr = ONE
        if shift > 1:
            below_half = reaching(module, f"{name}_low", value, shift - 1).bits(0, shift - 1)
            exact = module.register(f"{name}_exact", ~any_bit(below_half))
        value = module.register(f"{name}_raised", (value >> shift - 1) + 1)
        stage, tie = stage + 1, all_of(exact, ~value.bit(0))
        shift = 1
    upper = value >> shift
    quotient = module.wire(f"{name}_quotient", upper, (min(ends[0], upper.lo), max(ends[1], upper.hi)))
    return RoundedUp(quotient, tie, stage, *ends)


def reaching(module: Module, name: str, value: Signal, least: int) -> Signal:
    """A value that has at least so many bits."""
    wide = (-(1 << least - 1), (1 << least - 1) - 1) if value.signed else (0, (1 << least) - 1)
    return value if value.width >= least else module.wire(name, value, wide)


def settled(pipeline: Pipeline, name: str, rounded: RoundedUp, zero: int, bounds: tuple[int, int]) -> Staged:
    """Ties decided, zero added and saturated; in one step where neither an odd lower bound nor a zero stands between."""
    lo, hi = rounded.lo, rounded.hi
    if zero:
        settled_bits = pipeline.module.wire(f"{name}_rounded", evened(rounded, lo, hi), (lo, hi))
        placed = pipeline.register(f"{name}_placed", settled_bits + zero, rounded.stage)
        return clamped(pipeline, name, placed, bounds)
    if lo < bounds[0] and bounds[0] % 2:  # a tie would leave the bounds downwards
        even = pipeline.register(f"{name}_rounded", evened(rounded, lo, hi), rounded.stage, (lo, hi))
        return clamped(pipeline, name, even, bounds)
    low, high = max(bounds[0], lo), min(bounds[1], hi)
    result = saturated(rounded.quotient, bounds, (low, high), evened(rounded, low, high))
    label = "rounded" if (low, high) == (lo, hi) else "clamped"
    return pipeline.register(f"{name}_{label}", result, rounded.stage, (low, high))


def evened(rounded: RoundedUp, lo: int, hi: int) -> Expr:
    """The bits of a value of [lo, hi], its lowest cleared in a tie."""
    quotient, width = rounded.quotient, bit_width(lo, hi)
    lowest = all_of(quotient.bit(0), ~rounded.tie)
    return pack([(lowest, 1), *([(quotient.bits(1, width - 1), width - 1)] if width > 1 else [])])


def clamped(pipeline: Pipeline, name: str, staged: Staged, bounds: tuple[int, int]) -> Staged:
    """Saturation to [lo, hi]; bit tests instead of subtractions where the bounds are powers of two."""
    value, (lo, hi) = staged.value, bounds
    if isinstance(value, Const):
        return Staged(const(min(max(value.lo, lo), hi)), 0)
    if lo <= value.lo and value.hi <= hi:
        return staged
    if value.hi <= lo or value.lo >= hi:
        return Staged(const(lo if value.hi <= lo else hi), 0)
    low = max(lo, value.lo)
    high = min(hi, value.hi)
    result = saturated(value, bounds, (low, high), Bits(low, high, value, 0, bit_width(low, high)))
    return pipeline.register(f"{name}_clamped", result, staged.stage, (low, high))


def saturated(value: Signal, bounds: tuple[int, int], ends: tuple[int, int], inside: Expr) -> Expr:
    """`inside` where the value lies within its bounds, else the end it lies beyond."""
    return select(below(value, bounds[0]), ends[0], select(above(value, bounds[1]), ends[1], inside))


def below(value: Signal, lo: int) -> Expr:
    """value < lo."""
    negative = value.bit(value.width - 1)
    if value.lo >= lo:
        return const(0)
    if lo == 0:
        return negative
    if lo < 0 and lo & (-lo) == -lo:
        top = value.bits(bit_width(lo, -1) - 1, value.width - bit_width(lo, -1))
        return all_of(negative, compare("!=", top, top.hi))
    return compare("<", value, lo)


def above(value: Signal, hi: int) -> Expr:
    """value > hi."""
    if value.hi <= hi:
        return const(0)
    if hi >= 0 and hi & (hi + 1) == 0:
        start = hi.bit_length()
        top = any_bit(value.bits(start, value.width - start - value.signed))
        return all_of(~value.bit(value.width - 1), top) if value.signed else top
    return compare(">", value, hi)


def linear(pipeline: Pipeline, name: str, weights: Sequence[int], columns: Sequence[Staged]) -> Staged:
    """One weighted sum as a named value, whatever sign and shift its graph ends with."""
    stage = max(c.stage for c in columns)
    aligned = [Staged(pipeline.at(c, stage), stage) for c in columns]
    graph = minimize(np.array([weights], dtype=np.int64), [(c.value.lo, c.value.hi) for c in aligned])
    nodes = print_graph(pipeline, graph, aligned, name)
    value, shift = biased(pipeline, f"{name}_signed", graph.outputs[0], nodes, 0)
    return value if not shift else Staged(pipeline.module.wire(f"{name}_shifted", value.value << shift), value.stage)


def divided(pipeline: Pipeline, name: str, staged: Staged, odd: int, shift: int) -> Staged:
    """value / (odd * 2**shift), half to even, by multiplication with a reciprocal that is exact over the value's range.

    With d = odd * 2**shift and v = value + d//2 + offset >= 0 (offset a multiple of 2*d, which keeps parity):
    q = v // d rounds half up; a tie (v a multiple of d, d even) with odd q is one too many.
    """
    value, divisor = staged.value, odd << shift
    offset = 0 if value.lo >= 0 else -(value.lo // (2 * divisor)) * 2 * divisor
    raised = pipeline.register(f"{name}_raised", value + (offset + divisor // 2), staged.stage)
    v = raised.signal
    upper = Staged(pipeline.module.wire(f"{name}_upper", v >> shift), raised.stage)  # v//d == (v>>shift)//odd
    multiplier, drop = reciprocal(odd, upper.value.hi)
    product = linear(pipeline, f"{name}_product", [multiplier], [upper])
    quotient = Staged(pipeline.module.wire(f"{name}_quotient", product.signal >> drop,
                                           (v.lo // divisor, v.hi // divisor)), product.stage)
    lo, hi = half_even(value.lo, divisor), half_even(value.hi, divisor)
    back = offset // divisor
    q = quotient.value
    if shift == 0:  # an odd divisor has no ties
        return pipeline.register(f"{name}_rounded", q - back, quotient.stage, (lo, hi))
    rest = linear(pipeline, f"{name}_rest", [1, -divisor], [raised, quotient])
    late = pipeline.signal_at(quotient, rest.stage)
    low_bits = pipeline.module.wire(f"{name}_rest_low", rest.value, (0, divisor - 1))
    tie = all_of(compare("==", low_bits, 0), late.bit(0))
    return pipeline.register(f"{name}_rounded", late - back - tie, rest.stage, (lo, hi))


def offset(value: Signal | Const) -> Expr:
    """A signed value raised by half its range, which keeps the order: unsigned comparisons are a carry, signed ones much more."""
    if isinstance(value, Const) or not value.signed:
        return value
    top = value.width - 1
    return pack([*([(value.bits(0, top), top)] if top else []), (~value.bit(top), 1)])


def maximum(pipeline: Pipeline, name: str, values: Sequence[Staged]) -> Staged:
    """The largest of values of one stage, by a registered tree."""
    numbers = count()

    def larger(first: Staged, second: Staged) -> Staged:
        a, b = first.value, second.value
        smaller = compare("<", offset(a), offset(b))
        return pipeline.register(f"{name}_max_{next(numbers)}", select(smaller, b, a), first.stage)

    return pipeline.paired(values, larger)
