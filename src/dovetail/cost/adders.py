"""Adders of a constant matrix and of all its slices at once, from the weights themselves.

`subexpressions.minimize` builds one matrix exactly, in seconds; a partitioner asks for thousands of slices. What the
search finds is governed by the signed digits it starts from: with D digits, SCALE * D**POWER adders remain. Digits
add up over filters and channels, so every slice is a difference of two prefix sums, and a larger slice never has
fewer adders. The constants were fitted to 170 random normal matrices (1 to 64 filters, 4 to 144 inputs, deviations 8
to 60) and err on those same matrices by 5 % in adders (27 % at worst) and 3 % in width (12 % at worst).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.cost.adder_graph import signed_digits
from dovetail.cost.estimate import Floats, Ints
from dovetail.ir import Axis, Constant, Graph, Node

Value = TypeVar("Value")

BLOCK = 1 << 17
"""Weights counted at once."""
LARGEST = 128
"""Largest magnitude of an int8 weight."""
SMALL = 170
"""Largest magnitude whose one and a half fits a byte."""
SCALE, POWER = 0.896, 0.920
"""Adders that remain of D signed digits."""
WIDTH_GROWTH, WIDTH_PER_BIT = 2.90, 0.344
"""Mean adder width beyond that of the inputs: a constant, and a part of the mean bit length of the weights."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Adders of several slices, the sum of their widths, and the levels of the deepest tree."""

    adders: Floats
    bits: Floats
    levels: Floats


def int8_weights(constant: Constant) -> Ints:
    """Stored integers of a quantized constant; a float one is rounded to int8 with a power of two per filter."""
    if constant.scheme is not None:
        return constant.array.astype(np.int64)
    array = constant.array.astype(np.float64)
    peak = np.abs(array).reshape(len(array), -1).max(axis=1, initial=0.0)
    scale = _scales(peak).reshape(-1, *([1] * (array.ndim - 1)))
    return np.clip(np.rint(array / scale), 1 - LARGEST, LARGEST - 1).astype(np.int64)


def _scales(peaks: NDArray[np.floating]) -> Floats:
    """The power of two of each filter at which its largest weight fits."""
    peaks = peaks.astype(np.float64)
    return np.asarray(np.exp2(np.ceil(np.log2(np.where(peaks > 0, peaks, 1.0) / (LARGEST - 1)))), dtype=np.float64)


def input_bits(graph: Graph, node: Node) -> int:
    """Width of the activations a node reads; float graphs are planned as int8."""
    scheme = graph.tensors[node.inputs[0]].scheme
    return 8 if scheme is None else scheme.bits


def remaining(digits: Floats, filters: Floats) -> Floats:
    """Adders of matrices with so many signed digits: shared where sharing pays, never more than plain trees."""
    return np.minimum(SCALE * digits**POWER, np.maximum(digits - filters, 0.0))


@dataclass(frozen=True, slots=True)
class Digits:
    """What pricing needs to know of a weight tensor (filters, channels / groups, ...)."""

    per_filter: Ints
    """Signed digits of each filter."""
    per_channel: Ints
    """Signed digits of each input channel (of a group), over all filters."""
    magnitudes: Ints
    """Sum of magnitudes of each filter."""
    length: float
    """Mean bit length of the weights that are not zero."""


def count_digits(weights: NDArray[np.integer]) -> Digits:
    """Digits of integer weights."""
    small = int(np.abs(weights.astype(np.int64, copy=False)).max(initial=0)) <= SMALL
    return _counted(weights, lambda block: np.abs(block.astype(np.int64)).astype(np.uint8 if small else np.uint32))


def multiplier_adders(multipliers: Sequence[int]) -> tuple[float, float]:
    """Mean adders and depth of multiplications by constants: one adder per signed digit after the first."""
    digits = np.array([max(1, len(signed_digits(m))) for m in multipliers], dtype=np.float64)
    return float((digits - 1).mean()), float(np.ceil(np.log2(digits)).max())


def _counted(weights: NDArray[np.generic],
             magnitude: Callable[[NDArray[np.generic]], NDArray[np.unsignedinteger]]) -> Digits:
    """Digits of weights whose magnitudes a function gives block by block, each small enough to stay in the cache."""
    flat = weights.reshape(len(weights), -1)
    step = max(1, BLOCK // max(1, flat.shape[1]))
    per_filter, magnitudes = np.zeros(len(flat), dtype=np.int64), np.zeros(len(flat), dtype=np.int64)
    per_weight = np.zeros(flat.shape[1], dtype=np.int64)
    used = length = 0
    for i in range(0, len(flat), step):
        m = magnitude(flat[i:i + step])
        half = m >> 1
        digits = np.bitwise_count((m + half) ^ half)  # the non-adjacent form of m has its digits where 3m and m differ
        per_filter[i:i + step] = digits.sum(axis=1, dtype=np.uint32)
        per_weight += digits.sum(axis=0, dtype=np.uint32)
        magnitudes[i:i + step] = m.sum(axis=1, dtype=np.uint32)
        filled = m | half
        for shift in (2, 4, 8, 16)[:2 if m.itemsize == 1 else 4]:
            filled |= filled >> shift
        length += int(np.bitwise_count(filled).sum(dtype=np.int64))
        used += int(np.count_nonzero(m))
    return Digits(per_filter, per_weight.reshape(weights.shape[1], -1).sum(axis=1), magnitudes, length / max(1, used))


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
    constant = key.value
    return count_digits(constant.array) if constant.scheme is not None else _counted(constant.array, _rounded)


def _rounded(block: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Magnitudes of float weights as `int8_weights` rounds them, a filter per row; scales are exact powers of two."""
    size = np.abs(block.astype(np.float32, copy=False))
    inverse = np.minimum(1.0 / _scales(size.max(axis=1, initial=0.0)), np.finfo(np.float32).max)  # dead filters have tiny weights
    size *= inverse.astype(np.float32)[:, None]
    return np.rint(size, out=size).astype(np.uint8)


def adders_of(digits: Digits, groups: int, axis: Axis | None, starts: Ints, stops: Ints, bits: int) -> Arithmetic:
    """Adders of slices of a convolution's weights, read by `bits`-bit inputs."""
    filters, per_filter = len(digits.per_filter), digits.per_filter
    width = bits + WIDTH_GROWTH + WIDTH_PER_BIT * digits.length
    deepest = np.full(len(starts), float(per_filter.max(initial=1)))
    if axis is Axis.INPUT_CHANNELS:
        found = _between(digits.per_channel, starts, stops)
        adders = remaining(found, np.full(len(starts), float(filters)))
        deepest = deepest * found / max(1, int(per_filter.sum()))
        return Arithmetic(adders, adders * width, _levels(deepest))
    if axis is Axis.OUTPUT_CHANNELS:
        rows = (starts, stops)
        adders = remaining(_between(per_filter, *rows), (stops - starts).astype(np.float64))
    else:
        in_group = per_filter.reshape(groups, -1).sum(axis=1, dtype=np.float64)
        per_group = remaining(in_group, np.full(groups, float(filters // groups)))
        first, last = (starts, stops) if axis is Axis.GROUPS else (np.zeros_like(starts), np.full_like(stops, groups))
        rows = (first * (filters // groups), last * (filters // groups))
        adders = _between(per_group, first, last)
    bias_bits = bits + np.ceil(np.log2(1.0 + digits.magnitudes))
    return Arithmetic(adders + (rows[1] - rows[0]), adders * width + _between(bias_bits, *rows), _levels(deepest))


def _levels(digits: Floats) -> Floats:
    """Depth of a balanced tree of so many terms, and the stage by which shared sums usually come late."""
    return np.asarray(np.ceil(np.log2(np.maximum(digits, 1.0))) + (digits > 2), dtype=np.float64)


def _between(values: NDArray[np.generic], starts: Ints, stops: Ints) -> Floats:
    """Sums of values[start:stop]."""
    total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return np.asarray(total[stops] - total[starts], dtype=np.float64)
