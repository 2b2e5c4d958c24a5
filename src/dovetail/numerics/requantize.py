"""From a node's exact integer sum to its stored output: one multiplication, one rounding, one zero point, one clamp.

Between power-of-two scales the multiplication is a shift and everything is exact. Between arbitrary scales the ratio becomes
a 31-bit integer over a power of two, the same on every device; docs/method/numerics.md states how far it is from the real ratio.
Where TensorFlow Lite's kernels define the rounding, `ir.tflite.rounding` has the integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, ldexp

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import ModelError
from dovetail.ir import Graph, Node, Real, Rounding, Scheme
from dovetail.ir.tensor import scheme_of_scales
from dovetail.ir.tflite.rounding import divided, lite_integers, rounded_down
from dovetail.ir.units import accumulator_scales
from dovetail.numerics.fixed import divide_half_even, rescale

MULTIPLIER_BITS = 31
MOST_SHIFT = 46
"""Larger shifts would multiply by less than one part in 2**46: below 2**-16 of a step for any int32 sum."""
DENOMINATOR_BITS = 62
LARGEST_SUM = 1 << 31


@dataclass(frozen=True, slots=True)
class Requantizer:
    """The integers between a node's inputs and its output.

    sum = operator(factors[i] * (q[i] - zeros[i]), bias); output = clamp(round(sum * multiplier / (divisor * 2**shift)) + zero).
    `factors` holds per input one integer, or one per channel; `multipliers` and `shifts` likewise for the output. With `nudges`,
    one is added to the product and the quotient is rounded down: the first where the sum is at least zero, the second below.
    """

    zeros: tuple[int, ...]
    factors: tuple[tuple[int, ...], ...]
    multipliers: tuple[int, ...]
    shifts: tuple[int, ...]
    zero: int = 0
    nudges: tuple[tuple[int, int], ...] = ()
    """None where halves go to the even neighbour."""

    def per_channel(self, channels: int) -> tuple[tuple[int, int], ...]:
        """(multiplier, shift) of every output channel."""
        pairs = tuple(zip(self.multipliers, self.shifts, strict=True))
        return pairs if len(pairs) > 1 else pairs * channels

    def nudges_of(self, channels: int) -> tuple[tuple[int, int], ...]:
        """The nudges of every output channel; none where halves go to even."""
        return self.nudges if len(self.nudges) > 1 else self.nudges * channels


def accumulator_scheme(graph: Graph, node: Node) -> Scheme:
    """How a share of an input-channel split hands over its int32 partial sums."""
    return scheme_of_scales(32, True, accumulator_scales(graph, node), 1)


def requantizer(graph: Graph, node: Node) -> Requantizer:
    """The integers of a quantized node; a node that writes partial sums rounds nothing."""
    inputs = [graph.scheme(t) for t in node.inputs]
    target = graph.scheme(node.output)
    zeros = tuple(s.zero for s in inputs)
    if target.bits == 32:
        return Requantizer(zeros, ((1,),) * len(inputs), (1,), (0,))
    divisor = int(np.max(node.op.divisor(graph.input_shapes(node))))
    if target.rounding is not Rounding.EVEN:
        known = lite_integers(graph, node)
        multipliers, shifts, nudges = zip(*((d.multiplier, d.shift, d.nudges) for d in known.divisions), strict=True)
        return Requantizer(known.zeros, known.factors, multipliers, shifts, known.zero, nudges)
    if node.op.multiplies or len({s.scales for s in inputs}) == 1:
        pairs = [_ratio(node, unit / target.scale, divisor) for unit in accumulator_scales(graph, node)]
        return Requantizer(zeros, ((1,),) * len(inputs), tuple(m for m, _ in pairs), tuple(s for _, s in pairs), target.zero)
    ratios = [[unit / target.scale for unit in s.scales] for s in inputs]
    factors, shift = _aligned(node, ratios)
    return Requantizer(zeros, factors, (1,), (shift,), target.zero)


def _ratio(node: Node, ratio: float, divisor: int) -> tuple[int, int]:
    """A ratio of scales as (multiplier, shift): 1 for powers of two, else 31 bits (fewer where the ratio is tiny)."""
    mantissa, exponent = frexp(ratio)
    if mantissa == 0.5:
        return 1, 1 - exponent
    if exponent > MULTIPLIER_BITS:
        raise ModelError(f"node {node.name}: its sums are {ratio:g} steps of its output {node.output}; "
                         f"at most 2**{MULTIPLIER_BITS} are possible, check the scales")
    shift = min(MULTIPLIER_BITS - exponent, MOST_SHIFT, DENOMINATOR_BITS - divisor.bit_length())
    multiplier = round(ldexp(ratio, shift))  # exact: Python rounds halves to even
    return (multiplier, shift) if multiplier < 1 << MULTIPLIER_BITS else (multiplier >> 1, shift - 1)


def _aligned(node: Node, ratios: list[list[float]]) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Integers in the proportion of several inputs' scales, over one power of two."""
    every = [r for each in ratios for r in each]
    parts = [frexp(r) for r in every]
    if all(m == 0.5 for m, _ in parts):
        shift = max(1 - e for _, e in parts)
        return tuple(tuple(int(ldexp(r, shift)) for r in each) for each in ratios), shift
    largest = max(e for _, e in parts)
    if largest > MULTIPLIER_BITS:
        raise ModelError(f"node {node.name}: an input's step is {max(every):g} steps of its output {node.output}; "
                         f"at most 2**{MULTIPLIER_BITS} are possible, check the scales")
    shift = min(MULTIPLIER_BITS - largest, MOST_SHIFT)
    return tuple(tuple(round(ldexp(r, shift)) for r in each) for each in ratios), shift


def along_channels(values: tuple[int, ...], rank: int) -> NDArray[np.int64]:
    """One value, or one per channel, shaped to broadcast against a tensor of `rank` dimensions."""
    return np.asarray(values, dtype=np.int64).reshape((1,) * rank if len(values) == 1 else (1, -1) + (1,) * (rank - 2))


def rounded(total: Real, divisor: Real | int, how: Requantizer, node: Node) -> Real:
    """round(total * multiplier / (divisor * 2**shift)) + zero, ties as `how` says; exact, before any clamp."""
    shifts = along_channels(how.shifts, total.ndim)
    if how.nudges:
        _check_range(total, node, set(how.multipliers) != {1})
        above, below = (along_channels(tuple(n[side] for n in how.nudges), total.ndim) for side in (0, 1))
        if node.op.averages and set(how.shifts) == {0}:  # by counts that differ along a border
            above, below = divided(np.asarray(divisor, dtype=np.int64))
        return rounded_down(total, (along_channels(how.multipliers, total.ndim), shifts, above, below), divisor) + how.zero
    if set(how.multipliers) == {1}:
        return rescale(total, divisor, shifts) + how.zero
    _check_range(total, node, True)
    product = total.astype(np.int64) * along_channels(how.multipliers, total.ndim) << np.maximum(-shifts, 0)
    quotient = divide_half_even(product, np.asarray(divisor, dtype=np.int64) << np.maximum(shifts, 0))
    return quotient.astype(np.float64) + how.zero


def _check_range(total: Real, node: Node, multiplied: bool) -> None:
    if multiplied and np.abs(total).max(initial=0.0) >= LARGEST_SUM:
        raise ModelError(f"node {node.name}: the accumulator exceeds int32; narrow the weights or the input range")
