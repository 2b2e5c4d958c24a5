"""Signed digits of a layer's weights, which govern how many adders it takes (`sharing`), counted where they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.hardware.adders.graph import digit_counts, digit_sums, signed_digits
from dovetail.hardware.shares import Floats, Ints
from dovetail.ir import Constant
from dovetail.ir.tensor import largest
from dovetail.values import dataclass

Value = TypeVar("Value")
Enough = Callable[[int], bool]
"""Whether so many digits are more than anyone wants to know of."""

BLOCK = 1 << 17
"""Weights counted at once."""
PART = 1 << 13
"""Weights of the sample of a large tensor."""
STRETCH = 1 << 14
"""Weights counted before asking whether they are too many already."""
FIRST = 8
"""Filters of a group that mostly have a weight at every tap between them."""
FEW = 1 << 16
"""Weights of a tensor that is counted as a whole."""
LARGEST = 128
"""Largest magnitude of an int8 weight."""
LARGEST_FLOAT = float(np.finfo(np.float32).max)
SMALL = 170
"""Largest magnitude whose one and a half fits a byte."""


def _scales(peaks: NDArray[np.floating]) -> Floats:
    """The power of two of each filter at which its largest weight fits."""
    peaks = peaks.astype(np.float64)
    return np.asarray(np.exp2(np.ceil(np.log2(np.where(peaks > 0, peaks, 1.0) / (LARGEST - 1)))), dtype=np.float64)


class Digits:
    """What pricing needs to know of a weight tensor (filters, channels / groups, ...), counted only where it is asked for.

    `length` (mean bit length of the weights that are not zero), `growth` (mean bit length of a filter's sum of magnitudes),
    `deepest` (digits of the largest filter) and `typical` (of a filter in the mean) are those of the whole tensor if it has FEW
    weights, else of evenly spaced filters with some PART of them: the `sample`. `peaks` are the largest magnitudes of filters of
    floats, where they are known.
    """

    __slots__ = ("_channels", "_factors", "_filters", "_peaks", "_sizes", "deepest", "few", "growth", "length", "sample",
                 "typical", "weights")

    def __init__(self, weights: NDArray[np.generic], peaks: NDArray[np.floating] | None = None) -> None:
        self.weights = weights.reshape(len(weights), weights.shape[1] if weights.ndim > 1 else 1, -1)
        count = len(weights)
        self._filters, self._sizes = np.full(count, -1, dtype=np.int64), np.zeros(count, dtype=np.int64)
        self._channels = np.full(self.weights.shape[1], -1, dtype=np.int64)
        self._peaks, self._factors = peaks, None if peaks is None or np.count_nonzero(peaks < 0) else _factors(peaks)
        self.few = self.weights.size <= FEW
        self.sample = np.arange(0, count, 1 if self.few else -(-self.weights.size // PART))
        found = self._count(self.sample, lengths=True)
        self.deepest, self.length = int(found.per_filter.max(initial=0)), found.length
        self.typical = float(found.per_filter.mean()) if count else 0.0
        sums = found.magnitudes[found.magnitudes > 0]
        self.growth = float(np.log2(1.0 + sums).mean()) if len(sums) else 0.0
        if self.few:
            self._channels[:] = found.per_channel

    @property
    def per_filter(self) -> Ints:
        """Signed digits of each filter."""
        if not self.few:
            self._know_filters(0, len(self._filters))
        return self._filters

    @property
    def magnitudes(self) -> Ints:
        """Sum of magnitudes of each filter."""
        self._know_filters(0, len(self._filters))
        return self._sizes

    @property
    def per_channel(self) -> Ints:
        """Signed digits of each input channel (of a group), over all filters."""
        if not self.few:
            self._know_channels(0, len(self._channels), lambda digits: False)
        return self._channels

    def of_filters(self, start: int, stop: int, enough: Enough) -> int:
        """Digits of filters [start, stop), or of as many of them as are `enough`."""
        step = max(1, STRETCH // max(1, self.weights[0].size))
        total = 0
        for first in range(start, stop, step):
            last = min(first + step, stop)
            self._know_filters(first, last)
            total += int(self._filters[first:last].sum())
            if enough(total):
                break
        return total

    @property
    def known_sizes(self) -> Ints:
        """Sum of magnitudes of every filter, 0 where it was not counted."""
        return self._sizes

    @property
    def known_digits(self) -> Ints:
        """Digits of every filter, -1 where they were not counted."""
        return self._filters

    def of_channels(self, start: int, stop: int, enough: Enough) -> int:
        """Digits of channels [start, stop) over all filters, or over as many of them as are `enough`."""
        counted = self._know_channels(start, stop, enough)
        return int(self._channels[start:stop].sum()) if counted is None else counted

    def _know_filters(self, start: int, stop: int) -> None:
        missing = (self._filters[start:stop] < 0).nonzero()[0]
        if len(missing):
            self._count(start + missing)

    def _count(self, rows: Ints, lengths: bool = False) -> DigitCounts:
        whole = len(rows) == len(self.weights)
        factors = None if self._factors is None else self._factors[rows]
        found = _counted(self.weights if whole else self.weights[rows], factors, lengths, whole)
        self._filters[rows], self._sizes[rows] = found.per_filter, found.magnitudes
        return found

    def _know_channels(self, start: int, stop: int, enough: Enough) -> int | None:
        """Count digits of some channels; how many there were where it ended early."""
        missing = (self._channels[start:stop] < 0).nonzero()[0] + start
        if not len(missing):
            return None
        first, last = int(missing[0]), int(missing[-1]) + 1
        row = max(1, (last - first) * self.weights.shape[2])
        step, total = max(1, STRETCH // row), np.zeros(last - first, dtype=np.int64)
        for i in range(0, len(self.weights), step):
            block = self.weights[i:i + step, first:last]
            sizes = _sizes(block, self._factor(i, min(i + step, len(self.weights))))
            total += digit_counts(sizes).sum(axis=(0, 2), dtype=np.int64)
            if i + step < len(self.weights) and enough(int(total.sum())):
                return int(total.sum())
        self._channels[first:last] = total
        return None

    def _factor(self, start: int, stop: int) -> NDArray[np.float32] | None:
        """What filters are multiplied by, which their largest magnitudes decide; integers are taken as they are."""
        if self.weights.dtype.kind != "f":
            return None
        if self._factors is not None:
            return self._factors[start:stop]
        if self._peaks is None:
            self._peaks = np.full(len(self.weights), -1.0, dtype=self.weights.dtype)
        if np.count_nonzero(self._peaks[start:stop] < 0):
            step = max(1, BLOCK // max(1, self.weights[0].size))
            for i in range(start, stop, step):  # in blocks that stay in the cache between both passes
                self._peaks[i:min(i + step, stop)] = largest(self.weights[i:min(i + step, stop)])
        return _factors(self._peaks[start:stop])


@dataclass(frozen=True, slots=True)
class DigitCounts:
    """Digits of some filters and of their channels, magnitudes, and the mean bit length of weights that are not zero.

    There are no channels, and lengths are 0, where nobody asked for them.
    """

    per_filter: Ints
    per_channel: Ints
    magnitudes: Ints
    length: float


def multiplier_adders(multipliers: Sequence[int]) -> tuple[float, float]:
    """Mean adders and depth of multiplications by constants: one adder per signed digit after the first."""
    digits = np.array([max(1, len(signed_digits(m))) for m in multipliers], dtype=np.float64)
    return float((digits - 1).mean()), float(np.ceil(np.log2(digits)).max())


def reciprocal(divisor: int, limit: int) -> tuple[int, int]:
    """(multiplier, shift) with (v * multiplier) >> shift == v // divisor for every v of [0, limit].

    Granlund and Montgomery, "Division by Invariant Integers using Multiplication", PLDI 1994: with
    m = ceil(2**k / d) the result is exact while limit * (m*d - 2**k) < 2**k.
    """
    shift = divisor.bit_length()
    while True:
        multiplier = -(-(1 << shift) // divisor)
        excess = multiplier * divisor - (1 << shift)
        if limit * excess < 1 << shift:
            return multiplier, shift
        shift += 1


def _counted(weights: NDArray[np.generic], factors: NDArray[np.float32] | None = None, lengths: bool = True,
             by_channel: bool = True) -> DigitCounts:
    """Digits of filters, block by block, each small enough to stay in the cache; `factors` where they are known."""
    count, channels, taps = weights.shape
    per_filter, magnitudes = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    per_weight = np.zeros(channels * taps if lengths and by_channel else 0, dtype=np.int64)
    used = length = 0
    step = max(1, BLOCK // max(1, channels * taps))
    floats = weights.dtype.kind == "f"
    for i in range(0, count, step):
        block = weights[i:i + step].reshape(-1, channels * taps)
        m = _sizes(block, (_factors(largest(block)) if factors is None else factors[i:i + step]) if floats else None)
        per_filter[i:i + step] = digit_sums(m)
        magnitudes[i:i + step] = m.sum(axis=1, dtype=np.uint32)
        if lengths:
            if by_channel:
                per_weight += digit_counts(m).sum(axis=0, dtype=np.uint32)
            filled = m | (m >> 1)
            for shift in (2, 4, 8, 16)[:2 if m.itemsize == 1 else 4]:
                filled |= filled >> shift
            length += int(np.bitwise_count(filled).sum(dtype=np.int64))
            used += int(np.count_nonzero(m))
    return DigitCounts(per_filter, per_weight.reshape(-1, taps).sum(axis=1), magnitudes, length / max(1, used))


def _sizes(block: NDArray[np.generic], factors: NDArray[np.float32] | None) -> NDArray[np.unsignedinteger]:
    """Magnitudes of integer weights, or of floats as `int8_weights` rounds them; `factors` are exact powers of two."""
    if factors is None:
        size = np.abs(block.astype(np.int64))
        return size.astype(np.uint8 if int(size.max(initial=0)) <= SMALL else np.uint32)
    scaled = np.abs(block.astype(np.float32, copy=False))
    scaled *= factors.reshape(-1, *([1] * (block.ndim - 1)))
    return np.rint(scaled, out=scaled).astype(np.uint8)


def _factors(peaks: NDArray[np.floating]) -> NDArray[np.float32]:
    """What weights of filters with such largest magnitudes are multiplied by to be rounded."""
    return np.minimum(1.0 / _scales(peaks), LARGEST_FLOAT).astype(np.float32)  # dead filters have tiny weights


class Once(Generic[Value]):
    """A value compared by identity, to remember what was found about it."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Once) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def digits_of(constant: Constant) -> Digits:
    """Digits of a layer's weights; remembered, because counting them is most of the work of pricing a layer."""
    return _digits_once(Once(constant))


@lru_cache(maxsize=1024)
def _digits_once(key: Once[Constant]) -> Digits:
    return Digits(key.value.array, key.value.known_peaks if key.value.array.dtype.kind == "f" else None)


def forget_digits() -> None:
    """Count digits anew from here on, so that a measurement of planning includes it."""
    _digits_once.cache_clear()
    _taps_once.cache_clear()


def used_taps(constant: Constant, groups: int) -> NDArray[np.bool_]:
    """Which taps any filter weighs, (channels, kernel rows, kernel columns); of large tensors all, which is not looked at."""
    return _taps_once(Once(constant), groups)


@lru_cache(maxsize=1024)
def _taps_once(key: Once[Constant], groups: int) -> NDArray[np.bool_]:
    weights = key.value.array
    kernel = (*weights.shape[2:], 1, 1)[:2]
    if weights.size > FEW:
        return np.ones((1, *kernel), dtype=np.bool_)
    filters = weights.reshape(groups, len(weights) // groups, -1)
    used = _weighing(filters[:, :FIRST])
    if np.count_nonzero(used) < used.size:
        used = _weighing(filters)
    return np.asarray(used.reshape(-1, *kernel), dtype=np.bool_)


def _weighing(filters: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Which weights any filter of a group (groups, filters, weights) has."""
    flat = filters.reshape(-1, filters.shape[2])
    # Floats below half a step of their filter round to zero, as `int8_weights` says.
    integers = _sizes(flat, _factors(largest(flat))) if flat.dtype.kind == "f" else flat
    return np.asarray((integers != 0).reshape(filters.shape).any(axis=1))
