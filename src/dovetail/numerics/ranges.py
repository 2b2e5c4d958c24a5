"""Static range analysis: how large an accumulator can become, whatever the input.

Decides where float32 arithmetic (ONNX Runtime, GPU) is provably exact and how wide hardware must be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from dovetail.ir import Add, Coded, Graph, Node, Rounding
from dovetail.numerics.fixed import integer_bounds
from dovetail.numerics.requantize import accumulator_scheme, requantizer

FLOAT32_EXACT = 1 << 24
FLOAT32_MEANS = 1 << 22
"""Sums up to which a mean times its count, both rounded to float32, is nearest to the sum."""
FLOAT32_EXPONENTS = (-126, 127 - 24)
"""Exponents an accumulator may have so that neither its unit nor 2**24 of them leave the normal numbers of float32."""


@dataclass(frozen=True, slots=True)
class Range:
    """Smallest and largest integer a value can take."""

    lo: int
    hi: int


def stored_ranges(graph: Graph, known: Mapping[str, Range] | None = None) -> dict[str, Range]:
    """The integer range of every tensor: its scheme's, narrowed by activations and, for partial sums, by the weights.

    `known` states ranges of inputs that another part produces.
    """
    found = {name: Range(t.scheme.lo, t.scheme.hi) for name, t in graph.tensors.items() if t.scheme is not None}
    found |= known or {}
    for node in graph.nodes:
        scheme = graph.tensors[node.output].scheme
        if scheme is None or node.op.in_floats:
            continue
        if node.op.table:
            entries = graph.params(node)[0].array
            found[node.output] = Range(int(entries.min()), int(entries.max()))
        elif scheme.bits < 32:
            found[node.output] = Range(*integer_bounds(node.op.bounds, scheme))
        else:
            bound = partial_sum_bound(graph, node, found)
            found[node.output] = Range(-bound, bound)
    return found


def partial_sum_bound(graph: Graph, node: Node, ranges: dict[str, Range]) -> int:
    """A bound on |every partial sum| of a node's accumulator, in its integer units: sum |x||w| + |b|."""
    if isinstance(node.op, Coded):
        codes, products, steps = (c.array for c in graph.params(node)[:3])
        known = ranges[node.inputs[0]]
        bound = node.op.bound(codes, products, max(abs(known.lo), abs(known.hi)))
        return bound if node.op.output_bits else bound + int(np.abs(steps.astype(np.int64)).max(initial=0))
    how = requantizer(graph, node)
    reach = [max(abs(ranges[t].lo - zero), abs(ranges[t].hi - zero)) for t, zero in zip(node.inputs, how.zeros, strict=True)]
    if node.op.product:
        weight, *bias = (c.array.astype(np.float64) for c in graph.params(node))
        sums = np.abs(weight).reshape(weight.shape[0], -1).sum(axis=1) * reach[0]
        return int((sums + (np.abs(bias[0]) if bias else 0.0)).max())
    if node.op.multiplies:
        return prod(reach)
    bound = sum(r * max(factor) for r, factor in zip(reach, how.factors, strict=True))
    if node.op.averages:
        bound *= prod(node.op.window.kernel if node.op.window else graph.shape(node.inputs[0])[2:])
    for constant in graph.params(node):
        bound += int(np.abs(constant.array.astype(np.int64)).max(initial=0))
    return bound


def float32_exact(graph: Graph, node: Node, ranges: dict[str, Range]) -> bool:
    """Whether any order of float32 additions computes the node exactly: every partial sum below 2**24, no underflow.

    Foreign and float nodes count as exact: ONNX Runtime itself defines what they compute. Values that only move, within one
    scheme, survive any scale: their rounding errors are far below half a step. Tables are read, not computed.
    """
    scheme = graph.tensors[node.output].scheme
    if node.op.in_floats or node.op.table or scheme is None:
        return True
    schemes = [graph.scheme(t) for t in node.inputs]
    if node.op.picks and set(schemes) == {scheme} and scheme.bits <= 16:
        return True
    if scheme.rounding is not Rounding.EVEN:  # sums of integers; those of additions are float64
        limit = FLOAT32_MEANS if node.op.averages else FLOAT32_EXACT
        return isinstance(node.op, Add) or partial_sum_bound(graph, node, ranges) < limit
    if not all(s.fixed_point for s in (*schemes, scheme)):
        return False
    if node.op.learned and not node.op.layer:
        return schemes[0].bits <= 16
    weighted = node.op.layer or node.op.multiplies
    units = accumulator_scheme(graph, node).exponents if weighted else [e for s in schemes for e in s.exponents]
    if min(units) < FLOAT32_EXPONENTS[0] or max(units) > FLOAT32_EXPONENTS[1]:
        return False
    return partial_sum_bound(graph, node, ranges) < FLOAT32_EXACT
