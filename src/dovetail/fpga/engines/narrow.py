"""Shorter factors that give every sum the same integer: results are few, so few bits of a factor can be told apart.

A result between two bounds steps up at 255 sums at most, fewer where sums do not reach all of them. Any factor, shift and nudges
whose steps are at the same sums give the same results, so factors are cut as long as some nudges keep all steps where they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.fpga.engines.arithmetic import Nudges
from dovetail.fpga.engines.layers import Rescale
from dovetail.hardware.adders.graph import IntMatrix

Whole = NDArray[Any]
"""Integers of 64 bits, or of any size where they need it."""
Interval = tuple[int, int]
UNBOUNDED = 1 << 100
SPREAD = 4
"""Bits by which shifts of a layer may differ; outputs of smaller ratios have factors of fewer bits instead. Chosen: their
products are shifted by what is left, and ratios of living channels are rarely further apart."""
SHORT = 26
"""Bits of a factor that one multiplier block takes beside a sum of 18: further cuts would save little."""
MOST_KINDS = 8
"""Shifts with their nudges that outputs of a layer share, at the most: each lane chooses among them. Chosen."""
WIDEST = 48
"""Shifts up to which steps fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Where an output's result steps up, between sums of -`most` and `most`: its results and the least sums that reach them.

    `above` are at least zero, `below` at most zero: beyond the ends, and at zero, the other side reaches the result first.
    """

    wanted: Whole
    above: Whole
    below: Whole
    most: int

    def nudges(self, factor: int, shift: int) -> tuple[Interval, Interval]:
        """Between what nudges keep every step where it is with another factor and shift, on both sides of zero."""
        units, most = self.wanted << shift, self.most
        reached, first = self.above <= most, self.above > 0
        inside, last = self.below < 0, self.below > -most
        return (_between((units - self.above * factor)[reached], (units - 1 - (self.above - 1) * factor)[first]),
                _between((units - self.below * factor)[inside], (units - 1 - (self.below - 1) * factor)[last]))


def _between(least: Whole, most: Whole) -> Interval:
    return int(least.max()) if least.size else -UNBOUNDED, int(most.min()) if most.size else UNBOUNDED


def settled(matrix: IntMatrix, bias: Sequence[int], x: Interval, rescale: Rescale) -> tuple[IntMatrix, list[int], Rescale]:
    """The same results where those of some filters never change: without their weights, and rescaled as another filter is.

    Converters write such filters with biases and scales far from all others. `x` are inputs, which hold zero.
    """
    scales, nudges = rescale.scales, rescale.nudges
    if not nudges or scales is None or rescale.divisor != 1:
        return matrix, [*bias], rescale
    apart = np.maximum(matrix, 0).sum(axis=1), np.minimum(matrix, 0).sum(axis=1)
    lows, highs = ([b + int(p) * x[one] + int(n) * x[1 - one] for b, p, n in zip(bias, *apart, strict=True)] for one in (0, 1))
    ends = [(result(rescale, i, low), result(rescale, i, high)) for i, (low, high) in enumerate(zip(lows, highs, strict=True))]
    living = next((i for i, (low, high) in enumerate(ends) if low != high), None)
    if living is None:
        return matrix, [*bias], rescale
    bounds = rescale.bounds[0] - rescale.zero, rescale.bounds[1] - rescale.zero
    known = steps_of(*scales[living], nudges[living], bounds, 1 << 40)
    weights, moved, rescaled = matrix.copy(), [*bias], [*zip(scales, nudges, strict=True)]
    for i, (low, high) in enumerate(ends):
        at = low - rescale.bounds[0] - 1
        found = [int(side[max(at, 0)]) - (at < 0) for side in (known.above, known.below)]
        choice = next((b for b in found if result(rescale, living, b) == low), None)
        if low == high and choice is not None:
            weights[i], moved[i], rescaled[i] = 0, choice, rescaled[living]
    of_scales, of_nudges = zip(*rescaled, strict=True)
    return weights, moved, replace(rescale, scales=of_scales, nudges=of_nudges)


def result(rescale: Rescale, output: int, total: int) -> int:
    """What becomes of an output's sum."""
    assert rescale.scales is not None
    factor, shift = rescale.scales[output]
    quotient = (total * factor + rescale.nudges[output][total < 0] >> shift) + rescale.zero
    return min(max(quotient, rescale.bounds[0]), rescale.bounds[1])


def steps_of(factor: int, shift: int, nudges: Nudges, ends: Interval, most: int) -> Steps:
    """Of results from `ends`, zero point aside."""
    wanted = np.arange(ends[0] + 1, ends[1] + 1, dtype=np.int64 if shift <= WIDEST else object)
    above, below = (-((nudge - (wanted << shift)) // factor) for nudge in nudges)
    return Steps(wanted, np.minimum(np.maximum(above, 0), most + 1), np.maximum(np.minimum(below, 0), -most), most)


def narrowed(rescale: Rescale, most: Sequence[int]) -> Rescale:
    """The same integers of every sum between -most and most, of each output, by factors that are cut alike.

    Outputs share shifts with their nudges, as far as those leave each its own steps.
    """
    scales = rescale.scales
    if not rescale.nudges or scales is None or rescale.divisor != 1:
        return rescale
    ends = rescale.bounds[0] - rescale.zero, rescale.bounds[1] - rescale.zero
    steps = [steps_of(factor, shift, nudges, ends, far)
             for (factor, shift), nudges, far in zip(scales, rescale.nudges, most, strict=True)]
    least = min(shift for _, shift in scales)
    short: Rescale = rescale
    for cut in range(min(least, max(factor for factor, _ in scales).bit_length())):
        if short is not rescale and max(factor for factor, _ in short.scales or ()) < 1 << SHORT:
            break
        shifts = [min(shift, least + SPREAD) - cut for _, shift in scales]
        found = _cut(scales, steps, shifts)
        if found is not None:
            factors, nudges = found
            short = replace(rescale, scales=tuple(zip(factors, shifts, strict=True)), nudges=nudges)
        elif short is not rescale:
            break
    return short


def _cut(scales: Sequence[tuple[int, int]], steps: Sequence[Steps],
         shifts: Sequence[int]) -> tuple[tuple[int, ...], tuple[Nudges, ...]] | None:
    """Factors and nudges for other shifts; None where there are none, or too many nudges."""
    kinds = list[tuple[int, Interval, Interval]]()
    found = list[tuple[int, int]]()
    for (factor, before), own, shift in zip(scales, steps, shifts, strict=True):
        less = before - shift
        choices = [c for c in dict.fromkeys((factor + (1 << less >> 1) >> less, factor >> less, (factor >> less) + 1)) if c]
        every = [(c, *own.nudges(c, shift)) for c in choices]
        able = [choice for choice in every if all(low <= high for low, high in choice[1:])]
        shared = next(((number, c, both) for number, (of, *known) in enumerate(kinds) if of == shift for c, *ends in able
                       if (both := _common(known, ends)) is not None), None)
        if shared is None and (not able or len(kinds) == MOST_KINDS):
            return None
        if shared is None:
            found.append((able[0][0], len(kinds)))
            kinds.append((shift, *able[0][1:]))
        else:
            number, choice, both = shared
            found.append((choice, number))
            kinds[number] = (shift, *both)
    nudges = [tuple(min(max(1 << shift >> 1, low), high) for low, high in both) for shift, *both in kinds]
    return tuple(factor for factor, _ in found), tuple((nudges[kind][0], nudges[kind][1]) for _, kind in found)


def _common(known: Sequence[Interval], ends: Sequence[Interval]) -> tuple[Interval, Interval] | None:
    """What lies in both intervals of both sides of zero."""
    (a, b), (c, d) = ((max(k[0], e[0]), min(k[1], e[1])) for k, e in zip(known, ends, strict=True))
    return ((a, b), (c, d)) if a <= b and c <= d else None


def reach(rescale: Rescale) -> Interval:
    """Sums beyond which every output is saturated: a power of two's opposite, and one less than it."""
    assert rescale.scales is not None
    furthest = max(abs(bound - rescale.zero) for bound in rescale.bounds) + 2
    bits = max((furthest << shift) // factor + 1 for factor, shift in rescale.scales).bit_length()
    return -(1 << bits), (1 << bits) - 1
