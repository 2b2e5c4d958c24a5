"""From sums to stored outputs: how wide a filter's sum is, what of it is rounded and clamped, and which filters live at all."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dovetail.hardware.adders.digits import Digits, Once, reciprocal
from dovetail.hardware.adders.sharing import graph_bits
from dovetail.hardware.adders.subexpressions import minimize
from dovetail.hardware.shares import Floats
from dovetail.ir import Constant, Graph, Node, Scheme
from dovetail.numerics.fixed import integer_bounds

HEADROOM_BITS = 2
"""Bits of a rounded sum beyond those of the output, where scales are not known yet."""
FEW_INPUTS = 32
"""Weights of a filter up to which its sum may be so narrow that its bias alone decides the output."""


def input_bits(graph: Graph, node: Node) -> int:
    """Width of the activations a node reads; float graphs are planned as int8."""
    scheme = graph.tensors[node.inputs[0]].scheme
    return 8 if scheme is None else scheme.bits


def output_bits(graph: Graph, node: Node) -> int:
    """Width of the values a node writes; float graphs are planned as int8."""
    scheme = graph.tensors[node.output].scheme
    return 8 if scheme is None else scheme.bits


def fixed_schemes(graph: Graph, node: Node) -> tuple[tuple[Scheme, ...], Scheme] | None:
    """Schemes of inputs and output, where all are powers of two."""
    inputs = tuple(s for t in node.inputs if (s := graph.tensors[t].scheme) is not None)
    target = graph.tensors[node.output].scheme
    known = target is not None and len(inputs) == len(node.inputs) and all(s.fixed_point for s in (*inputs, target))
    return (inputs, target) if known and target is not None else None


def filter_widths(graph: Graph, node: Node, digits: Digits) -> tuple[Floats, Floats]:
    """Bits of every filter's sum with bias and half a unit, and of its result; 0 where all its weights are."""
    alive = digits.magnitudes > 0
    sums = np.where(alive, input_bits(graph, node) + np.ceil(np.log2(1.0 + digits.magnitudes)), 0.0)
    return sums, np.where(alive, float(output_bits(graph, node)), 0.0)


def value_widths(graph: Graph, node: Node) -> tuple[int, int]:
    """Bits of what half a unit is added to, and of the clamped result, of an operator without weights; 0 where neither is."""
    bits, written = input_bits(graph, node), output_bits(graph, node)
    if (schemes := fixed_schemes(graph, node)) is None:
        if node.op.largest:
            return 0, 0
        return (bits + 1, written) if node.op.averages else (written + HEADROOM_BITS, written)
    steps = [s.exponents[0] for s in schemes[0]]
    lower, target = min(steps), schemes[1].exponents[0]
    grown = bits + (len(steps) > 1) + max(steps) - target
    bounds = integer_bounds(node.op.bounds, schemes[1])
    same = grown <= written and bounds == (schemes[1].lo, schemes[1].hi)
    if node.op.averages:
        count = int(np.max(node.op.divisor(graph.input_shapes(node))))
        if count & (count - 1):  # what a reciprocal gave is rounded as it is, and clamped where it must be
            return max(1, grown), 0 if same else written
        return max(1, grown) + 1, written
    return (max(1, grown) + 1, written) if target > lower else (0, 0 if same else written)


def live_weights(graph: Graph, node: Node) -> Constant:
    """A node's weights without the filters whose output never changes, because bias and clamp decide it: tools remove those."""
    weights = graph.params(node)[0]
    schemes = fixed_schemes(graph, node)
    if schemes is None or weights.array.ndim < 2 or weights.scheme is None or weights.scheme.mantissas \
            or weights.array[0].size > FEW_INPUTS or len(node.params) < 2:
        return weights
    bounds = integer_bounds(node.op.bounds, schemes[1])
    shifts = schemes[1].exponents[0] - schemes[0][0].exponents[0] - np.asarray(weights.scheme.exponents)
    return _live_once(Once(weights), Once(graph.params(node)[1]), (schemes[0][0].lo, schemes[0][0].hi), bounds,
                      tuple(np.broadcast_to(shifts, len(weights.array)).tolist()))


@lru_cache(maxsize=1024)
def _live_once(weights: Once[Constant], bias: Once[Constant], ends: tuple[int, int], bounds: tuple[int, int],
               shifts: tuple[int, ...]) -> Constant:
    array: NDArray[np.int64] = weights.value.array.reshape(len(weights.value.array), -1).astype(np.int64)
    above, below, start = np.maximum(array, 0).sum(axis=1), np.minimum(array, 0).sum(axis=1), bias.value.array.astype(np.int64)
    scale = np.exp2(-np.asarray(shifts, dtype=np.float64))
    lowest = np.rint((above * ends[0] + below * ends[1] + start) * scale)
    highest = np.rint((above * ends[1] + below * ends[0] + start) * scale)
    dead = (highest <= bounds[0]) | (lowest >= bounds[1]) | (lowest == highest)
    if not dead.any():
        return weights.value
    kept = np.where(dead.reshape(-1, *([1] * (weights.value.array.ndim - 1))), 0, weights.value.array)
    return Constant(weights.value.name, kept.astype(weights.value.array.dtype), weights.value.scheme)


@lru_cache(maxsize=256)
def division_bits(divisor: int, bits: int) -> tuple[int, int]:
    """Carry and register bits of dividing a sum of `bits` bits exactly: by shifting, or by an exact reciprocal."""
    shift = (divisor & -divisor).bit_length() - 1
    odd = divisor >> shift
    if odd == 1:
        return 0, 0
    highest = (1 << (bits - shift)) - 1
    multiplier, drop = reciprocal(odd, highest)
    graph = minimize(np.array([[multiplier]], dtype=np.int64), [(0, highest)])
    carry, registers = graph_bits(graph, bits - shift)
    registers -= drop  # of the last sum only the quotient is kept
    if not shift:
        return bits + carry, bits + registers
    # The remainder, which tells ties apart, is computed back from the quotient while that waits.
    back = minimize(np.array([[1, -divisor]], dtype=np.int64), [(0, (1 << bits) - 1), (0, highest // odd)])
    more, kept = graph_bits(back, bits)
    return bits + carry + more, 2 * bits + registers + kept


def tree_bits(terms: int, bits: int, growth: int) -> tuple[int, int]:
    """Widths of all results of a balanced tree whose levels are `growth` bits wider each, and of the values that wait in it."""
    merged = waiting = 0
    while terms > 1:
        merged += terms // 2 * (bits + growth)
        waiting += terms % 2 * bits
        terms, bits = terms - terms // 2, bits + growth
    return merged, waiting
