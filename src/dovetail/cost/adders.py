"""Adders of a constant matrix and of all its slices at once, from the weights themselves.

`subexpressions.minimize` builds one matrix exactly, in seconds; a partitioner asks for thousands of slices. What the
search finds is governed by the signed digits it starts from: with D digits, SCALE * D**POWER adders remain. Digits
add up over filters and channels, so every slice is a difference of two prefix sums, and a larger slice never has
fewer adders. The constants were fitted to 164 random normal matrices (1 to 64 filters, 4 to 144 inputs, deviations 8
to 60) and err on those same matrices by 6 % in adders (35 % at worst) and 3 % in width (12 % at worst).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

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
def _tables() -> tuple[Ints, Ints]:
    """Signed digits and bit length of every magnitude."""
    return (np.array([len(signed_digits(m)) for m in range(LARGEST + 1)], dtype=np.int64),
            np.array([m.bit_length() for m in range(LARGEST + 1)], dtype=np.int64))


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


def arithmetic(weights: Ints, groups: int, axis: Axis | None, starts: Ints, stops: Ints, bits: int) -> Arithmetic:
    """Adders of slices of a convolution's weight (filters, channels / groups, ...) read by `bits`-bit inputs."""
    filters = len(weights)
    digit_table, length_table = _tables()
    magnitude = np.abs(weights).reshape(filters, weights.shape[1], -1)
    digits = digit_table[magnitude].sum(axis=2)
    used = max(1, int(np.count_nonzero(magnitude)))
    width = bits + WIDTH_GROWTH + WIDTH_PER_BIT * float(length_table[magnitude].sum()) / used
    deepest = np.full(len(starts), float(digits.sum(axis=1).max(initial=1)))
    bias_bits = bits + np.ceil(np.log2(1.0 + magnitude.sum(axis=(1, 2))))
    if axis is Axis.INPUT_CHANNELS:
        found = _between(digits.sum(axis=0), starts, stops)
        adders = remaining(found, np.full(len(starts), float(filters)))
        deepest = deepest * found / max(1, int(digits.sum()))
        return Arithmetic(adders, adders * width, _levels(deepest))
    if axis is Axis.OUTPUT_CHANNELS:
        rows = (starts, stops)
        adders = remaining(_between(digits.sum(axis=1), *rows), (stops - starts).astype(np.float64))
    else:
        per_group = remaining(digits.reshape(groups, -1).sum(axis=1, dtype=np.float64), np.full(groups, float(filters // groups)))
        first, last = (starts, stops) if axis is Axis.GROUPS else (np.zeros_like(starts), np.full_like(stops, groups))
        rows = (first * (filters // groups), last * (filters // groups))
        adders = _between(per_group, first, last)
    return Arithmetic(adders + (rows[1] - rows[0]), adders * width + _between(bias_bits, *rows), _levels(deepest))


def _levels(digits: Floats) -> Floats:
    """Depth of a balanced tree of so many terms."""
    return np.ceil(np.log2(np.maximum(digits, 1.0)))


def _between(values: NDArray[np.generic], starts: Ints, stops: Ints) -> Floats:
    """Sums of values[start:stop]."""
    total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return np.asarray(total[stops] - total[starts], dtype=np.float64)
