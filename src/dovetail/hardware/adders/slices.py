"""Adders of slices of constant matrices, of many layers at once, from the weights themselves.

`subexpressions.minimize` builds one matrix exactly, in seconds; a partitioner asks for thousands of slices. What the
search finds is governed by the signed digits it starts from (`sharing`). Digits add up over filters and channels, so every
slice is a difference of two prefix sums.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.hardware.adders.digits import Digits
from dovetail.hardware.adders.sharing import Matrices, summed
from dovetail.hardware.shares import Floats, Ints, Segments, shares_in
from dovetail.ir import Axis
from dovetail.values import dataclass

LATE = 0.4
"""Levels by which shared sums, which come late, deepen a tree on average: right for two of three matrices, else one off."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices of a convolution's weights, read by `bits`-bit inputs; `used` are the taps of each channel with a weight.

    One number holds for all channels. A channel that nothing weighs is no column: no adder reads it.
    """

    digits: Digits
    groups: int
    segments: Segments
    bits: int
    used: Floats | None = None

    @property
    def width(self) -> float:
        """Mean taps of a channel that have a weight."""
        return float(self.digits.shape[2] if self.used is None else self.used.mean())

    def columns(self, starts: Ints, stops: Ints) -> Floats:
        """Taps with a weight of slices of channels."""
        if self.used is None or len(self.used) == 1:
            return (stops - starts).astype(np.float64) * self.width
        return between(self.used, starts, stops)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Adders of several slices with the bits of their carry chains and registers, and the levels of the deepest tree.

    `lag`: the levels that shallow filters wait for the deepest, over all filters. `rows` are the first and last filter of each
    slice.
    """

    adders: Floats
    bits: Floats
    registers: Floats
    levels: Floats
    lag: Floats
    rows: tuple[Ints, Ints]


@dataclass(frozen=True, slots=True)
class _Matrices:
    """The matrices of some slices: of each its digits, filters and columns.

    `groups` are the first and last matrix of each slice; None where slices and matrices are the same, or all are one matrix.
    """

    digits: Floats
    filters: Floats
    columns: Floats
    groups: tuple[Ints, Ints] | None = None


def adders_of(asked: Sequence[Slices]) -> list[Arithmetic]:
    """Adders of all slices of all layers, as if asked one by one."""
    found = [[_matrices(own, *segment) for segment in own.segments] for own in asked]
    counts = [sum(len(m.digits) for m in own) for own in found]
    every = [m for own in found for m in own]
    digits, filters, columns = (np.concatenate([getattr(m, name) for m in every]) for name in ("digits", "filters", "columns"))
    bits, length, growth = (np.repeat(np.array(values, dtype=np.float64), counts) for values in zip(
        *((own.bits, own.digits.length, own.digits.growth) for own in asked), strict=True))
    sums = summed(Matrices(digits, filters, columns, bits, length, growth))
    edges = np.cumsum([0, *counts]).tolist()
    return [_arithmetic(own, matrices, [s[a:b] for s in sums])
            for own, matrices, a, b in zip(asked, found, edges[:-1], edges[1:], strict=True)]


def _matrices(own: Slices, axis: Axis | None, starts: Ints, stops: Ints) -> _Matrices:
    """Slices of channels or filters are matrices; others are some groups, or all, with a matrix each."""
    digits, (filters, channels, _) = own.digits, own.digits.shape
    if axis is Axis.INPUT_CHANNELS:
        return _Matrices(between(digits.per_channel, starts, stops), np.full(len(starts), float(filters)),
                         own.columns(starts, stops))
    columns = channels * own.width
    if axis is Axis.OUTPUT_CHANNELS:
        return _Matrices(between(digits.per_filter, starts, stops), between(digits.per_filter > 0, starts, stops),
                         np.full(len(starts), columns))
    each = digits.per_filter.reshape(own.groups, -1)
    first, last = (starts, stops) if axis is Axis.GROUPS else (np.zeros_like(starts), np.full_like(stops, own.groups))
    return _Matrices(each.sum(axis=1, dtype=np.float64), (each > 0).sum(axis=1, dtype=np.float64), np.full(own.groups, columns),
                     (first, last) if own.groups > 1 else None)


def _arithmetic(own: Slices, found: Sequence[_Matrices], sums: Sequence[Floats]) -> Arithmetic:
    """What the matrices of a layer's slices come to, slice by slice."""
    digits, count = own.digits, shares_in(own.segments)
    adders, bits, registers, deepest = np.empty((4, count))
    by_channel = np.zeros(count, dtype=np.bool_)
    first, last = np.empty((2, count), dtype=np.int64)
    deepest[:] = max(1, digits.deepest)
    at = matrix = 0
    for (axis, starts, stops), own_found in zip(own.segments, found, strict=True):
        here, those = slice(at, at + len(starts)), slice(matrix, matrix + len(own_found.digits))
        for target, values in zip((adders, bits, registers), sums, strict=True):
            target[here] = values[those] if own_found.groups is None else between(values[those], *own_found.groups)
        first[here], last[here] = filters_of(axis, own.groups, digits.shape[0], starts, stops)
        if axis is Axis.INPUT_CHANNELS:
            by_channel[here] = True
            shallower = deepest[here] * (stops - starts) / digits.shape[1]
            deepest[here] = np.where(own_found.digits > 0, shallower, 1.0)
        at, matrix = here.stop, those.stop
    late = np.where(digits.magnitudes > 0, _levels(np.array([float(max(1, digits.deepest))])) - _levels(
        np.maximum(digits.per_filter, 1.0)), 0.0)
    lag = np.where(by_channel, 0.0, np.maximum(between(late, first, last), 0.0))
    return Arithmetic(adders, bits, registers, _levels(deepest), lag, (first, last))


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
