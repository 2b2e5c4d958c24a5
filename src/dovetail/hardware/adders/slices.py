"""Adders of slices of constant matrices, of many layers at once, from the weights themselves.

`subexpressions.minimize` builds one matrix exactly, in seconds; a partitioner asks for thousands of slices. What the
search finds is governed by the signed digits it starts from (`sharing`). Digits add up over filters and channels, so every
slice is a difference of two prefix sums, and a larger slice never has fewer digits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

import numpy as np
from numpy.typing import NDArray

from dovetail.hardware.adders.digits import Digits, Enough
from dovetail.hardware.adders.sharing import Matrices, carry_bits_of_one, summed
from dovetail.hardware.shares import Flags, Floats, Ints, Segments, shares_in
from dovetail.ir import Axis
from dovetail.values import dataclass

LATE = 0.4
"""Levels by which shared sums, which come late, deepen a tree on average: right for two of three matrices, else one off."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices of a convolution's weights, read by `bits`-bit inputs; `used` are the taps of each channel with a weight.

    One number holds for all channels. A channel that nothing weighs is no column: no adder reads it.
    A slice whose adders are wider than `most_bits` in all is counted no farther than to know that, and estimated from the
    sample of its layer: the same whatever was counted before.
    """

    digits: Digits
    groups: int
    segments: Segments
    bits: int
    most_bits: float = inf
    used: Floats | None = None

    @property
    def width(self) -> float:
        """Mean taps of a channel that have a weight."""
        return float(self.digits.weights.shape[2] if self.used is None else self.used.mean())

    def columns(self, starts: Ints, stops: Ints) -> Floats:
        """Taps with a weight of slices of channels."""
        if self.used is None or len(self.used) == 1:
            return (stops - starts).astype(np.float64) * self.width
        return between(self.used, starts, stops)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Adders of several slices with the bits of their carry chains and registers, and the levels of the deepest tree.

    `lag`: the levels that shallow filters wait for the deepest, over all filters. `rows` are the first and last filter of each
    slice, `estimated` marks slices of which not every filter was counted.
    """

    adders: Floats
    bits: Floats
    registers: Floats
    levels: Floats
    lag: Floats
    rows: tuple[Ints, Ints]
    estimated: Flags


@dataclass(frozen=True, slots=True)
class _Matrices:
    """The matrices of some slices: of each its digits, filters and columns, and whether it is more than anyone can use.

    `groups` are the first and last matrix of each slice, where it has several; None where slices and matrices are the same,
    or all slices are the one matrix.
    """

    digits: Floats
    filters: Floats
    columns: Floats
    over: Flags
    groups: tuple[Ints, Ints] | None = None


def adders_of(asked: Sequence[Slices]) -> list[Arithmetic]:
    """Adders of all slices of all layers, as if asked one by one."""
    found = [_all_matrices(own) for own in asked]
    counts = [sum(len(m.digits) for m in own) for own in found]
    every = [m for own in found for m in own]
    digits, filters, columns = (np.concatenate([getattr(m, name) for m in every]) for name in ("digits", "filters", "columns"))
    bits, length, growth = (np.repeat(np.array(values, dtype=np.float64), counts) for values in zip(
        *((own.bits, own.digits.length, own.digits.growth) for own in asked), strict=True))
    sums = summed(Matrices(digits, filters, columns, bits, length, growth))
    edges = np.cumsum([0, *counts]).tolist()
    return [_arithmetic(own, matrices, [s[a:b] for s in sums])
            for own, matrices, a, b in zip(asked, found, edges[:-1], edges[1:], strict=True)]


def _arithmetic(own: Slices, found: Sequence[_Matrices], sums: Sequence[Floats]) -> Arithmetic:
    """What the matrices of a layer's slices come to, slice by slice."""
    digits, count = own.digits, shares_in(own.segments)
    adders, bits, registers, deepest = np.empty((4, count))
    over, by_channel = np.zeros((2, count), dtype=np.bool_)
    first, last = np.empty((2, count), dtype=np.int64)
    deepest[:] = max(1, digits.deepest)
    at = matrix = 0
    for (axis, starts, stops), own_found in zip(own.segments, found, strict=True):
        here, those = slice(at, at + len(starts)), slice(matrix, matrix + len(own_found.digits))
        for target, values in zip((adders, bits, registers), sums, strict=True):
            target[here] = values[those] if own_found.groups is None else between(values[those], *own_found.groups)
        over[here] = own_found.over
        first[here], last[here] = filters_of(axis, own.groups, len(digits.weights), starts, stops)
        if axis is Axis.INPUT_CHANNELS:
            by_channel[here] = True
            shallower = deepest[here] * (stops - starts) / digits.weights.shape[1]
            deepest[here] = np.where(own_found.digits > 0, shallower, 1.0)
        at, matrix = here.stop, those.stop
    levels = _levels(deepest)
    late = np.where(digits.known_sizes > 0, _levels(np.array([float(max(1, digits.deepest))])) - _levels(
        np.maximum(digits.known_digits, 1.0)), 0.0)
    lag = np.where(by_channel, 0.0, np.maximum(_over_filters(late, digits, over, first, last), 0.0))
    return Arithmetic(adders, bits, registers, levels, lag, (first, last), over)


def _over_filters(values: Floats, digits: Digits, estimated: Flags, first: Ints, last: Ints) -> Floats:
    """Sums over the filters of slices; of those that were not counted, as many times the sample's mean."""
    found = between(values, first, last)
    if np.count_nonzero(estimated):
        found = np.where(estimated, (last - first) * (float(values[digits.sample].sum()) / len(digits.sample)), found)
    return found


def over_filters(values: Floats, digits: Digits, sums: Arithmetic) -> Floats:
    """Sums of what each filter has over the filters of all slices."""
    return _over_filters(values, digits, sums.estimated, *sums.rows)


Large = list[tuple[int, int, int]]
"""Slices known to have too many digits: how many at least, where they start and stop."""


def _all_matrices(own: Slices) -> list[_Matrices]:
    """The matrices of a layer's slices, axis by axis; of slices that are the whole matrix, it is looked at once.

    Slices of filters come first: where one has too many digits, so has the whole matrix.
    """
    found: dict[int, _Matrices] = {}
    once: _Matrices | None = None
    large: Large = []
    for i in sorted(range(len(own.segments)), key=lambda i: own.segments[i][0] is not Axis.OUTPUT_CHANNELS):
        axis, starts, stops = own.segments[i]
        whole = own.groups == 1 and axis not in (Axis.INPUT_CHANNELS, Axis.GROUPS, Axis.OUTPUT_CHANNELS)
        if whole and once is not None:
            found[i] = _Matrices(once.digits, once.filters, once.columns, once.over[:1].repeat(len(starts)), once.groups)
            continue
        found[i] = _matrices(own, axis, starts, stops, large)
        once = found[i] if whole else once
    return [found[i] for i in range(len(found))]


def _matrices(own: Slices, axis: Axis | None, starts: Ints, stops: Ints, large: Large) -> _Matrices:
    filters, channels, _ = own.digits.weights.shape
    count = len(starts)
    if axis is Axis.INPUT_CHANNELS:
        found, over = _by_channels(own, starts, stops)
        return _Matrices(found, np.full(count, float(filters)), own.columns(starts, stops), over)
    columns = channels * own.width
    if axis is Axis.GROUPS or (axis is not Axis.OUTPUT_CHANNELS and own.groups > 1):
        each = own.digits.per_filter.reshape(own.groups, -1)
        first, last = (starts, stops) if axis is Axis.GROUPS else (np.zeros_like(starts), np.full_like(stops, own.groups))
        return _Matrices(each.sum(axis=1, dtype=np.float64), (each > 0).sum(axis=1, dtype=np.float64),
                         np.full(own.groups, columns), np.zeros(count, dtype=np.bool_), (first, last))
    if axis is not Axis.OUTPUT_CHANNELS:  # every slice is the whole matrix
        starts, stops = np.zeros(1, dtype=np.int64), np.full(1, filters)
    found, alive, over = _by_filters(own, starts, stops, large)
    return _Matrices(found, alive, np.full(len(starts), columns), over if len(over) == count else np.repeat(over, count))


def _by_channels(own: Slices, starts: Ints, stops: Ints) -> tuple[Floats, Flags]:
    """Digits of slices of channels over all filters, and which of them are too many."""
    digits, (filters, channels, _) = own.digits, own.digits.weights.shape
    if digits.few:
        return between(digits.per_channel, starts, stops), np.zeros(len(starts), dtype=np.bool_)
    carried, most, width = _carried(own), own.most_bits, own.width
    found, over = _counted(digits.of_channels, starts, stops, lambda d, size: carried(d, filters, size * width) > most, [])
    if np.count_nonzero(over):
        mean, sizes = digits.typical * filters / channels, stops - starts
        likely = mean * sizes
        for i in (over & (likely < found)).nonzero()[0].tolist():
            likely[i] = _estimate(own, float(likely[i]), found[i], filters, int(sizes[i]) * width)
        found = np.where(over, likely, found)
    return found, over


def _by_filters(own: Slices, starts: Ints, stops: Ints, large: Large) -> tuple[Floats, Floats, Flags]:
    """Digits of slices of filters, how many of these are not zero, and which slices have too many, which are added to `large`."""
    digits, columns = own.digits, own.digits.weights.shape[1] * own.width
    if digits.few:
        return between(digits.per_filter, starts, stops), between(digits.known_digits != 0, starts, stops), np.zeros(
            len(starts), dtype=np.bool_)
    carried, most = _carried(own), own.most_bits
    found, over = _counted(digits.of_filters, starts, stops, lambda d, size: carried(d, size, columns) > most, large)
    used = np.count_nonzero(digits.known_digits)
    alive = (stops - starts).astype(np.float64) if used == len(digits.known_digits) else _over_filters(
        (digits.known_digits != 0) * 1.0, digits, over, starts, stops)
    if np.count_nonzero(over):
        sizes = stops - starts
        likely, enough = digits.typical * sizes, np.where(alive == sizes, found, inf)
        for i in (over & (likely < enough)).nonzero()[0].tolist():
            likely[i] = _estimate(own, float(likely[i]), float(enough[i]), float(alive[i]), columns)
        found = np.where(over, likely, found)
    return found, alive, over


def _carried(own: Slices) -> Callable[[float, float, float], float]:
    """Adder bits of slices of a layer, given their digits, filters and columns."""
    return carry_bits_of_one(own.bits, own.digits.length, own.digits.growth)


def _estimate(own: Slices, digits: float, enough: float, rows: float, columns: float) -> float:
    """Digits of a slice that has too many: as many as the sample says, but too many; `enough` are known to be."""
    carried = _carried(own)
    while digits < enough and carried(digits, rows, columns) <= own.most_bits:
        digits = 2 * digits + rows + 1
    return digits


def _counted(count: Callable[[int, int, Enough], int], starts: Ints, stops: Ints,
             over: Callable[[int, int], bool], large: Large) -> tuple[Floats, Flags]:
    """Digits of slices, smallest first, and where those of a part are too many already, so that they are not all of them.

    `large` are the smallest known to have too many, to which those found are added.
    """
    found, many = np.empty(len(starts)), np.zeros(len(starts), dtype=np.bool_)
    first, last, above = starts.tolist(), stops.tolist(), dict[int, int]()
    for i in np.argsort(stops - starts, kind="stable").tolist():
        start, stop = first[i], last[i]
        size = stop - start
        digits = max([d for d, a, b in large if start <= a and b <= stop], default=0)
        if digits and (above.get(size, digits + 1) <= digits or over(digits, size)):
            many[i], found[i], above[size] = True, digits, min(digits, above.get(size, digits))
            continue
        enough = _Enough(over, size)
        digits = count(start, stop, enough)
        many[i] = enough.of(digits)
        if many[i]:
            large.append((digits, start, stop))
        found[i] = digits
    return found, many


class _Enough:
    """Whether so many digits are too many for a slice of some size; keeps the last answer."""

    __slots__ = ("_digits", "_found", "_over", "_size")

    def __init__(self, over: Callable[[int, int], bool], size: int) -> None:
        self._over, self._size, self._digits, self._found = over, size, -1, False

    def __call__(self, digits: int) -> bool:
        self._digits, self._found = digits, self._over(digits, self._size)
        return self._found

    def of(self, digits: int) -> bool:
        """The same of all that were counted, where counting may have ended with too many."""
        return self._found or (digits != self._digits and self(digits))


def filters_of(axis: Axis | None, groups: int, filters: int, starts: Ints, stops: Ints) -> tuple[Ints, Ints]:
    """First and last filter, exclusive, of every slice."""
    if axis is Axis.OUTPUT_CHANNELS:
        return starts, stops
    if axis is Axis.GROUPS:
        return starts * (filters // groups), stops * (filters // groups)
    return np.zeros_like(starts), np.full_like(stops, filters)


def _levels(digits: Floats) -> Floats:
    """Depth of a balanced tree of so many terms, some of which are shared sums."""
    return np.asarray(np.ceil(np.log2(np.maximum(digits, 1.0)) + LATE * (digits > 2)), dtype=np.float64)


def between(values: NDArray[np.generic], starts: Ints, stops: Ints) -> Floats:
    """Sums of values[start:stop]."""
    total = np.zeros(len(values) + 1)
    values.cumsum(dtype=np.float64, out=total[1:])
    found: Floats = total[stops] - total[starts]
    return found
