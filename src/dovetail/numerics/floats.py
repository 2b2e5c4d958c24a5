"""Convolutions in single precision, in one stated order of operations: what folded engines of floats compute to the bit.

Sums of floats depend on their order, so the order is part of the numbers:

1. The taps of a window are numbered by kernel row, kernel column, channel, and cut into beats of `at_once` channels.
2. Every product of a tap and its weight is rounded once (or looked up, rounded before). The products of a beat are added
   neighbours first; one left over waits for the next round.
3. Of B beats, beat b belongs to partial sum (b - B) mod 8. A partial sum starts as its first beat and takes the others in
   order: eight of them, because an adder's sum may be used again eight clocks later.
4. The eight partial sums are added neighbours first.
5. Either the bias is added and what is negative becomes zero, or the thresholds that the sum reaches are counted.

Taps in the padding are +0 and take part. Rounding is to nearest, ties to even; nothing is fused. No number may be infinite, NaN
or subnormal, which `convolve` proves from the ranges of its operands before it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import UnsupportedError, UsageError
from dovetail.ir import Array, Window
from dovetail.numerics.lq import LEAST_PRODUCT, MOST_SUM, Floats

PARTIAL_SUMS = 8
"""Beats of a window are at least as many."""
WORD_BITS = 32


@dataclass(frozen=True, slots=True)
class FloatFilters:
    """A convolution's filters (filters, channels, kernel rows, kernel columns) without groups, and how its sums end.

    With `tables` (filters, weight codes, input codes) weights and inputs are codes; input code 0 is zero. Sums end in `steps`
    (filters, thresholds), ascending, or in `bias` (filters): exactly one is given.
    """

    window: Window
    weights: Floats | NDArray[np.uint8]
    tables: Floats | None = None
    steps: Floats | None = None
    bias: Floats | None = None

    def __post_init__(self) -> None:
        if self.window.dilation != (1, 1):
            raise UnsupportedError(f"float filters: dilation {self.window.dilation}; folded engines of floats have none")
        if (self.steps is None) == (self.bias is None):
            raise UsageError("float filters: steps and bias; a layer ends in exactly one of them")
        if (self.weights.dtype == np.float32) != (self.tables is None):
            raise UsageError(f"float filters: weights are {self.weights.dtype}; float32, or codes with tables, are needed")
        if self.tables is not None and np.any(self.tables[:, :, 0]):
            raise UsageError("float filters: a product of input code 0 is not zero; padding reads that code")

    @property
    def count(self) -> int:
        """How many filters."""
        return len(self.weights)

    @property
    def input_bits(self) -> int:
        """Of a tap."""
        return WORD_BITS if self.tables is None else int(self.tables.shape[2] - 1).bit_length()

    @property
    def weight_bits(self) -> int:
        return WORD_BITS if self.tables is None else int(self.tables.shape[1] - 1).bit_length()

    @property
    def output_bits(self) -> int:
        return WORD_BITS if self.steps is None else int(self.steps.shape[1]).bit_length()

    @property
    def products(self) -> Floats:
        """(filters, ...): numbers whose sizes bound those of products with inputs of size 1, or products themselves."""
        return self.weights.astype(np.float32) if self.tables is None else self.tables

    def beats(self, at_once: int) -> int:
        """Beats of a window; UsageError where they are too few, or channels do not divide."""
        channels, (rows, columns) = self.weights.shape[1], self.window.kernel
        if not 1 <= at_once <= channels or channels % at_once:
            raise UsageError(f"float filters: {at_once} of {channels} channels at once; it must divide them")
        found = int(rows * columns * channels // at_once)
        if found < PARTIAL_SUMS:
            raise UsageError(f"float filters: {found} beats of a window; at least {PARTIAL_SUMS} are needed, so take fewer "
                             "channels at once")
        return found


def words_of(values: Floats) -> NDArray[np.int64]:
    """The 32 bits of floats as integers."""
    return np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.int64)


def floats_of(words: Array) -> Floats:
    """Floats from their 32 bits."""
    return words.astype(np.uint32).view(np.float32)


def check_ranges(filters: FloatFilters, x: Array) -> None:
    """Raise UnsupportedError where a product or a sum could leave what engines of floats take."""
    sizes = np.abs(filters.products.astype(np.float64))
    inputs = np.abs(x[x != 0].astype(np.float64)) if filters.tables is None else np.ones(1)
    least = sizes[sizes > 0].min(initial=1.0) * inputs.min(initial=1.0)
    taps = filters.weights[0].size
    most = sizes.max(initial=0.0) * inputs.max(initial=0.0) * taps
    ends = np.abs(filters.bias[filters.bias != 0]).astype(np.float64) if filters.bias is not None else np.ones(1)
    if not (least >= LEAST_PRODUCT and ends.min(initial=1.0) >= LEAST_PRODUCT and most + ends.max(initial=0.0) <= MOST_SUM):
        raise UnsupportedError(f"float convolution: products from {least:.3g}, sums up to {most:.3g}; single precision without "
                               f"subnormal numbers needs {LEAST_PRODUCT:.3g} to {MOST_SUM:.3g}")


def convolve(filters: FloatFilters, x: Array, at_once: int) -> Array:
    """Results (frames, filters, rows, columns) of inputs (frames, channels, rows, columns), in the order stated above.

    `x` and results are float32, or codes where tables and thresholds say so.
    """
    return _ended(filters, sums_of(filters, x, at_once))


def sums_of(filters: FloatFilters, x: Array, at_once: int) -> Floats:
    """The sums before they end."""
    beats = filters.beats(at_once)
    check_ranges(filters, x)
    (top, left, bottom, right), (down, along) = filters.window.pads, filters.window.stride
    rows, columns = filters.window.output_size(*x.shape[2:])
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    sums: list[Floats | None] = [None] * PARTIAL_SUMS
    beat = 0
    for i in range(filters.window.kernel[0]):
        for j in range(filters.window.kernel[1]):
            seen = padded[:, :, i:i + (rows - 1) * down + 1:down, j:j + (columns - 1) * along + 1:along]
            for first in range(0, x.shape[1], at_once):
                part = neighbours_first([_product(filters, seen, c, i, j) for c in range(first, first + at_once)], np.add)
                place = (beat - beats) % PARTIAL_SUMS
                earlier = sums[place]
                sums[place] = part if earlier is None else earlier + part
                beat += 1
    return neighbours_first([s for s in sums if s is not None], np.add)


def neighbours_first(values: Sequence[Floats], add: Callable[[Floats, Floats], Floats]) -> Floats:
    """The sum of values two by two; one left over waits for the next round."""
    level = list(values)
    while len(level) > 1:
        left = level[-1:] if len(level) % 2 else []
        level = [add(a, b) for a, b in zip(level[::2], level[1::2], strict=False)] + left
    return level[0]


def _product(filters: FloatFilters, seen: Array, channel: int, i: int, j: int) -> Floats:
    """Of one tap of every window with its weight of every filter: (frames, filters, rows, columns)."""
    weights, tap = filters.weights[:, channel, i, j], seen[:, None, channel]
    if filters.tables is None:
        return np.multiply(weights[None, :, None, None], tap, dtype=np.float32)
    rows = filters.tables[np.arange(filters.count), weights]
    return np.moveaxis(rows[:, tap[:, 0]], 0, 1)


def _ended(filters: FloatFilters, sums: Floats) -> Array:
    if filters.bias is not None:
        total = sums + filters.bias[None, :, None, None]
        return np.where(total > 0, total, np.float32(0))
    assert filters.steps is not None
    codes = np.zeros(sums.shape, dtype=np.uint8)
    for step in filters.steps.T:
        codes += sums >= step[None, :, None, None]
    return codes
