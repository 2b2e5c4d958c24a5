"""Adders of a constant matrix and of all its slices at once, from the weights themselves.

`subexpressions.minimize` builds one matrix exactly, in seconds; a partitioner asks for thousands of slices. What the
search finds is governed by the signed digits it starts from: with D digits, SCALE * D**POWER adders remain. Digits
add up over filters and channels, so every slice is a difference of two prefix sums, and a larger slice never has
fewer adders. The constants were fitted to 164 random normal matrices (1 to 64 filters, 4 to 144 inputs, deviations 8
to 60) and err on those same matrices by 6 % in adders (35 % at worst) and 3 % in width (12 % at worst).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from dovetail.cost.adder_graph import signed_digits
from dovetail.cost.estimate import Floats, Ints
from dovetail.ir import Axis, Constant, Graph, Node

LARGEST = 128
"""Largest magnitude of an int8 weight."""
SCALE, POWER = 0.867, 0.930
"""Adders that remain of D signed digits."""
WIDTH_GROWTH, WIDTH_PER_BIT = 2.38, 0.351
"""Mean adder width beyond that of the inputs: a constant, and a part of the mean bit length of the weights."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Adders of several slices, the sum of their widths, and the levels of the deepest tree."""

    adders: Floats
    bits: Floats
    levels: Floats


@cache
def _tables() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Signed digits and bit length of every magnitude."""
    return (np.array([len(signed_digits(m)) for m in range(LARGEST + 1)], dtype=np.uint8),
            np.array([m.bit_length() for m in range(LARGEST + 1)], dtype=np.uint8))


def int8_weights(constant: Constant) -> Ints:
    """Stored integers of a quantized constant; a float one is rounded to int8 with a power of two per filter."""
    if constant.scheme is not None:
        return constant.array.astype(np.int64)
    array = constant.array.astype(np.float64)
    peak = np.abs(array).reshape(len(array), -1).max(axis=1, initial=0.0)
    exponent = np.ceil(np.log2(np.where(peak > 0, peak, 1.0) / (LARGEST - 1)))
    scale = np.exp2(exponent).reshape(-1, *([1] * (array.ndim - 1)))
    return np.clip(np.rint(array / scale), 1 - LARGEST, LARGEST - 1).astype(np.int64)


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

    counts: Ints
    """Signed digits, filters x channels."""
    magnitudes: Ints
    """Sum of magnitudes of each filter."""
    length: float
    """Mean bit length of the weights that are not zero."""


def count_digits(weights: NDArray[np.integer]) -> Digits:
    """Digits of integer weights; bytes, which most are, are looked up."""
    flat = np.abs(weights.astype(np.int64)).reshape(len(weights), weights.shape[1], -1)
    used = max(1, int(np.count_nonzero(flat)))
    if flat.max(initial=0) <= LARGEST:
        magnitude = flat.astype(np.uint8)
        digits, lengths = (table[magnitude] for table in _tables())
    else:
        values, places = np.unique(flat, return_inverse=True)
        digits, lengths = (np.array([measure(int(v)) for v in values])[places].reshape(flat.shape)
                           for measure in (lambda v: len(signed_digits(v)), int.bit_length))
    return Digits(digits.sum(axis=2, dtype=np.int64), flat.sum(axis=(1, 2)), float(lengths.sum(dtype=np.int64)) / used)


def multiplier_adders(multipliers: Sequence[int]) -> tuple[float, float]:
    """Mean adders and depth of multiplications by constants: one adder per signed digit after the first."""
    digits = np.array([max(1, len(signed_digits(m))) for m in multipliers], dtype=np.float64)
    return float((digits - 1).mean()), float(np.ceil(np.log2(digits)).max())


class _Once:
    """A constant compared by identity: a layer is priced once per axis, device and solver, but its weights stay the same."""

    __slots__ = ("constant",)

    def __init__(self, constant: Constant) -> None:
        self.constant = constant

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Once) and self.constant is other.constant

    def __hash__(self) -> int:
        return id(self.constant)


def digits_of(constant: Constant) -> Digits:
    """Digits of a layer's weights; remembered, because counting them is most of the work of pricing a layer."""
    return _digits_once(_Once(constant))


@lru_cache(maxsize=128)
def _digits_once(key: _Once) -> Digits:
    constant = key.constant
    return count_digits(constant.array if constant.scheme is not None else int8_weights(constant))


def adders_of(digits: Digits, groups: int, axis: Axis | None, starts: Ints, stops: Ints, bits: int) -> Arithmetic:
    """Adders of slices of a convolution's weights, read by `bits`-bit inputs."""
    filters, per_filter = len(digits.counts), digits.counts.sum(axis=1)
    width = bits + WIDTH_GROWTH + WIDTH_PER_BIT * digits.length
    deepest = np.full(len(starts), float(per_filter.max(initial=1)))
    if axis is Axis.INPUT_CHANNELS:
        found = _between(digits.counts.sum(axis=0), starts, stops)
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
    """Depth of a balanced tree of so many terms."""
    return np.ceil(np.log2(np.maximum(digits, 1.0)))


def _between(values: NDArray[np.generic], starts: Ints, stops: Ints) -> Floats:
    """Sums of values[start:stop]."""
    total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return np.asarray(total[stops] - total[starts], dtype=np.float64)
