"""TensorFlow Lite's rounding of int8 results, as one multiplication, one addition and one division that rounds down.

Its reference kernels define the numbers. They multiply a sum with a 31-bit integer, round to 32 bits, and shift down with halves
away from zero (`TWICE`). Both roundings together are floor((sum * multiplier + nudge) / 2**shift), where the nudge is one of two
integers, by the sign of the sum: docs/method/tflite.md has the proof. Fully connected layers round the real ratio once, and
averages divide stored integers, both with halves away from zero (`AWAY`).

An addition rounds each operand on its way to a common scale. It has 65,536 pairs of operands at most: integers are chosen that
give every one of them its result in the form above.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import copysign, frexp, inf, ldexp
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import ModelError
from dovetail.ir.graph import Graph, Node
from dovetail.ir.operators.base import Clamp
from dovetail.ir.operators.elementwise import Add
from dovetail.ir.tensor import Real, Rounding, Scheme
from dovetail.ir.units import accumulator_scales

MULTIPLIER_BITS = 31
MOST_SHIFT = 62
ADD_SHIFT = 20
"""Bits by which an addition's operands are shifted up before they are rescaled."""
UNBOUNDED = 1 << 62
STEPS = 33
"""How many neighbours of each factor of an addition are tried."""
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ScaledDivision:
    """floor((value * multiplier + nudge) / 2**shift), with one nudge for values of at least zero and one for those below."""

    multiplier: int
    shift: int
    nudges: tuple[int, int]

    def of(self, values: Ints) -> Ints:
        product = values * self.multiplier
        result: Ints = product + np.where(values < 0, self.nudges[1], self.nudges[0]) >> self.shift
        return result


NOTHING = ScaledDivision(1, 33, (1 << 32, 1 << 32))
"""Zero of any 32-bit sum, as ratios below 2**-31 make it."""


def single(*factors: float) -> float:
    """A product of the first numbers over the last one, each step a float32, as some kernels divide scales."""
    *over, under = (np.float32(f) for f in factors)
    product = over[0]
    for factor in over[1:]:
        product = np.float32(product * factor)
    return float(np.float32(product / under))


@lru_cache(maxsize=65536)
def twice(ratio: float) -> ScaledDivision:
    """Rounded to 32 bits, then shifted: `MultiplyByQuantizedMultiplier` with two roundings."""
    mantissa, exponent = frexp(ratio)
    multiplier = int(ldexp(mantissa, MULTIPLIER_BITS + 1)) + 1 >> 1
    if multiplier == 1 << MULTIPLIER_BITS:
        multiplier, exponent = multiplier >> 1, exponent + 1
    if exponent < -MULTIPLIER_BITS:
        return NOTHING
    return rounded_twice(multiplier, MULTIPLIER_BITS - exponent)


def rounded_twice(multiplier: int, shift: int) -> ScaledDivision:
    """The same, of a multiplier over 2**shift: the first rounding takes up to 31 bits of the shift, the second the others."""
    if not 1 <= shift <= MOST_SHIFT:
        raise ModelError(f"a sum is multiplied by {multiplier} / 2**{shift}; TensorFlow Lite's kernels shift by 1 to "
                         f"{MOST_SHIFT}, check the scales")
    half = 1 << shift - 1
    first = 1 << MULTIPLIER_BITS - 1 if shift > MULTIPLIER_BITS else 0
    return ScaledDivision(multiplier, shift, (half + first, half - first))


@lru_cache(maxsize=65536)
def away(ratio: float, lo: int, hi: int) -> ScaledDivision:
    """round(value * ratio), halves away from zero, where that lies between `lo` and `hi`, beyond which results saturate."""
    mantissa, exponent = frexp(ratio)
    shift = MULTIPLIER_BITS - exponent
    if not 1 <= shift <= MOST_SHIFT:
        raise ModelError(f"a sum is multiplied by {ratio:g}; 2**-31 to 2**30 is possible, check the scales")
    multiplier = round(ldexp(mantissa, MULTIPLIER_BITS))
    least = np.ceil((np.arange(lo + 1, hi + 1) - 0.5) / ratio).astype(np.int64)
    around = np.unique(np.concatenate([least + i for i in (-2, -1, 0, 1, 2)]))
    real = around.astype(np.float64) * ratio
    wanted = np.trunc(real + np.copysign(0.5, real)).astype(np.int64)
    return _fitted(multiplier, shift, around, wanted, lo, hi)


Count = TypeVar("Count", int, Ints)


def divided(divisor: Count) -> tuple[Count, Count]:
    """Nudges that divide by a count with halves away from zero."""
    return divisor // 2, -(-divisor // 2) - 1


@lru_cache(maxsize=4096)
def mean(ratio: float, count: int, apart: int, lo: int, hi: int) -> ScaledDivision:
    """The mean of so many values `apart` from zero at most: the count goes into the multiplier, which is rounded down.

    To be divided by 2**shift and the count.
    """
    exact = twice(ratio)
    most = exact.shift - MULTIPLIER_BITS
    more = min(count.bit_length() - 1, 32, MULTIPLIER_BITS - most)
    inexact = rounded_twice((exact.multiplier << more) // count, exact.shift + more)
    sums = np.arange(-apart * count, apart * count + 1, dtype=np.int64)
    return _fitted(exact.multiplier, exact.shift, sums, inexact.of(sums), lo, hi, count)


def _fitted(multiplier: int, shift: int, values: Ints, wanted: Ints, lo: int, hi: int, divisor: int = 1) -> ScaledDivision:
    """Nudges that give every value its result, the nearest to half a unit."""
    least, most = _intervals(values * multiplier, wanted, divisor << shift, lo, hi)
    nudges = []
    for part in (values >= 0, values < 0):
        low, high = int(least[part].max(initial=-UNBOUNDED)), int(most[part].min(initial=UNBOUNDED))
        if low > high:
            raise ModelError(f"a sum multiplied by {multiplier / 2 ** shift:g} is rounded as no single division does; export the "
                             "network with other scales")
        nudges.append(min(max((divisor << shift) // 2, low), high))
    return ScaledDivision(multiplier, shift, (nudges[0], nudges[1]))


def _intervals(products: Ints, wanted: Ints, unit: int, lo: int, hi: int) -> tuple[Ints, Ints]:
    """Of each product, between what nudges its quotient is the wanted one; results beyond the ends may lie anywhere there."""
    clipped = np.clip(wanted, lo, hi)
    least = np.where(clipped == lo, -UNBOUNDED, clipped * unit - products)
    most = np.where(clipped == hi, UNBOUNDED, (clipped + 1) * unit - 1 - products)
    return least, most


@dataclass(frozen=True, slots=True)
class ScaledAddition:
    """floor((first * factors[0] + second * factors[1] + nudge) / 2**shift) of integers less their zero points."""

    factors: tuple[int, int]
    shift: int
    nudges: tuple[int, int]


@lru_cache(maxsize=256)
def addition(first: Scheme, second: Scheme, target: Scheme) -> ScaledAddition:
    """The sum of two tensors: both on a common scale, twice the larger one, with 20 more bits; then added, and rescaled.

    Raises:
        ModelError: no factors give every pair of integers its sum.
    """
    lo, hi = target.lo - target.zero, target.hi - target.zero
    sides = [np.arange(s.lo, s.hi + 1, dtype=np.int64) - s.zero for s in (first, second)]
    wanted = added(first, second, target, sides[0][:, None], sides[1][None, :])
    ratios = [s.scale / target.scale for s in (first, second)]
    shift = MULTIPLIER_BITS - max(frexp(r)[1] for r in ratios)
    exact = [round(ldexp(r, shift)) for r in ratios]
    total = sides[0][:, None] * exact[0] + sides[1][None, :] * exact[1]
    least, most = _intervals(total, wanted, 1 << shift, lo, hi)
    gap = max(int(least.max()) - int(most.min()), 0)
    half = 1 << shift - 1
    near = np.nonzero((least > half - 4 * gap - half // 1024) | (most < half + 4 * gap + half // 1024))
    a, b, least, most = sides[0][near[0]], sides[1][near[1]], least[near], most[near]
    below = total[near] < 0
    for one, other in _neighbours(max(gap // 64, 1)):
        if first == second and one != other:  # a tensor may be added to itself
            continue
        moved = a * one + b * other
        found = [(int((least - moved)[part].max(initial=-UNBOUNDED)), int((most - moved)[part].min(initial=UNBOUNDED)))
                 for part in (~below, below)]
        if all(low <= high for low, high in found):
            nudges = [min(max(half, low), high) for low, high in found]
            chosen = ScaledAddition((exact[0] + one, exact[1] + other), shift, (nudges[0], nudges[1]))
            if np.array_equal(_sum_of(chosen, sides).clip(lo, hi), wanted.clip(lo, hi)):
                return chosen
    raise ModelError(f"a sum of {first} and {second} as {target}: no two factors round as TensorFlow Lite does; export the "
                     "network with other scales")


def _neighbours(step: int) -> Iterator[tuple[int, int]]:
    """What is added to the factors, nothing first."""
    yield 0, 0
    for i in range(1, STEPS):
        for one in range(-i, i + 1):
            for other in {-i, i} if abs(one) != i else range(-i, i + 1):
                yield one * step, other * step


def _sum_of(made: ScaledAddition, sides: list[Ints]) -> Ints:
    total = sides[0][:, None] * made.factors[0] + sides[1][None, :] * made.factors[1]
    result: Ints = total + np.where(total < 0, made.nudges[1], made.nudges[0]) >> made.shift
    return result


def added(first: Scheme, second: Scheme, target: Scheme, a: Ints, b: Ints) -> Ints:
    """The sum as the kernels compute it, of integers less their zero points; the result is without its own."""
    most = 2 * max(first.scale, second.scale)
    total = twice(first.scale / most).of(a << ADD_SHIFT) + twice(second.scale / most).of(b << ADD_SHIFT)
    return twice(most / (target.scale * (1 << ADD_SHIFT))).of(total)


def rounded_down(total: Real, how: tuple[Ints, Ints, Ints, Ints], divisor: Real | int) -> Real:
    """floor((total * multiplier + nudge) / (divisor * 2**shift)), exactly; `how` is multipliers, shifts and both nudges."""
    multiplier, shift, above, below = how
    product = total.astype(np.int64) * multiplier
    nudged = product + np.where(product < 0, below, above)
    quotient: Real = np.floor_divide(nudged, np.asarray(divisor, dtype=np.int64) << shift).astype(np.float64)
    return quotient


@dataclass(frozen=True, slots=True)
class LiteIntegers:
    """The integers of a node: floor((sum of factor * (input - zero) * multiplier + nudge) / (divisor * 2**shift)) + zero.

    Multipliers, shifts and nudges are of every output channel, or of all.
    """

    zeros: tuple[int, ...]
    factors: tuple[tuple[int, ...], ...]
    divisions: tuple[ScaledDivision, ...]
    zero: int


def lite_integers(graph: Graph, node: Node) -> LiteIntegers:
    """How TensorFlow Lite's kernels make stored integers of a node's sums."""
    inputs, target = [graph.scheme(t) for t in node.inputs], graph.scheme(node.output)
    divisor = int(np.max(node.op.divisor(graph.input_shapes(node))))
    lo, hi = target.lo - target.zero, target.hi - target.zero
    zeros, ones = tuple(s.zero for s in inputs), ((1,),) * len(inputs)
    if node.op.averages and target.rounding is Rounding.AWAY:  # stored integers are divided, zero points and all
        return LiteIntegers((0,), ones, (ScaledDivision(1, 0, divided(divisor)),), 0)
    if node.op.picks and all((s.scales, s.zero) == (target.scales, target.zero) for s in inputs):
        return LiteIntegers(zeros, ones, (ScaledDivision(1, 0, (0, 0)),), target.zero)
    if isinstance(node.op, Add):
        if len(inputs) != 2:
            raise ModelError(f"node {node.name}: adds {len(inputs)} tensors; TensorFlow Lite adds two")
        found = addition(inputs[0], inputs[1], target)
        rounded = ScaledDivision(1, found.shift, found.nudges)
        return LiteIntegers(zeros, tuple((f,) for f in found.factors), (rounded,), target.zero)
    units = accumulator_scales(graph, node)
    if node.op.averages:
        apart = max(inputs[0].hi - inputs[0].zero, inputs[0].zero - inputs[0].lo)
        made = [mean(units[0] / target.scale, divisor, apart, lo, hi)]
    elif target.rounding is Rounding.AWAY:
        made = [away(unit / target.scale, lo, hi) for unit in units]
    elif node.op.multiplies:
        made = [twice(single(inputs[0].scale, inputs[1].scale, target.scale))]
    else:
        clipped = node.op.picks and node.op.bounds is not None
        made = [twice(single(unit, target.scale) if clipped else unit / target.scale) for unit in units]
    return LiteIntegers(zeros, ones, tuple(made), target.zero)


def lite_bounds(clamp: Clamp | None, scheme: Scheme) -> tuple[int, int]:
    """Between what a result is saturated: the scheme's ends, cut by an activation's bounds, halves away from zero."""
    ends = [scheme.lo, scheme.hi]
    for side, bound in enumerate(() if clamp is None else (clamp.lo, clamp.hi)):
        if abs(bound) < inf:
            steps = float(np.float32(bound) / np.float32(scheme.scale))
            ends[side] = min(max(int(steps + copysign(0.5, steps)) + scheme.zero, scheme.lo), scheme.hi)
    return ends[0], ends[1]
