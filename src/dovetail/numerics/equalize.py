"""Cross-layer equalisation: channels of one tensor scaled towards each other before they share one scale.

A tensor has one exponent for all its channels, and a weight one per output channel. Dividing channel c of a
tensor by s[c] (in the filters that make it) and multiplying what reads it by s[c] changes nothing in real
numbers (Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction"), but
quiet channels then use more of the integers. Half of the spread goes, in decibels: the other half would only
move the problem into the weights of the next layer.

An activation's upper bound is one number for all channels. Where the calibration samples reach it, all
channels are scaled alike, so that the bound becomes the largest integer: ReLU6 at 6.0 uses 192 of 256
integers, at 255/32 all of them. Where they stay below it, it moves out of the quantizer's reach.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf, prod

import numpy as np

from dovetail.ir import Add, Array, AvgPool, Clamp, Clip, Constant, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Node, Real, Reshape

EXPONENT = 0.5
"""Share of the spread between channels that is taken out."""
LARGEST_SPREAD = 64.0
"""Channels quieter than the loudest by more than this are scaled as if they were not."""
REACHED = 0.999
"""Fraction of an upper bound from which on it counts as reached."""

COMMUTING = (Add, MaxPool, AvgPool, GlobalAvgPool, Clip)
"""Operators that give s[c] times their output for s[c] times their inputs."""


class Equalise(StrEnum):
    """Whether channels are equalised before quantization."""

    AUTO = "auto"
    """Where that raises the output's signal-to-noise ratio on the calibration samples."""
    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class Equalised:
    """The same function with channels scaled; `factors` holds s per tensor that was divided by it."""

    graph: Graph
    factors: Mapping[str, Real]


def equalise(graph: Graph, maxima: Mapping[str, Real], signed: Mapping[str, bool], bits: int) -> Equalised | None:
    """The graph with equalised channels, or None where no tensor allows it.

    `maxima` are the largest magnitudes per channel on the calibration samples; on these the function is the same
    but for float rounding. Elsewhere it differs only beyond what the samples reached of an upper bound.
    """
    factors: dict[str, Real] = {}
    for family in _families(graph):
        scale = _family_scale(graph, family, maxima, any(signed[t] for t in family), bits)
        if scale is not None:
            factors |= dict.fromkeys(family, scale)
    return Equalised(_scaled(graph, factors), factors) if factors else None


def _families(graph: Graph) -> list[frozenset[str]]:
    """Tensors scaled together: joined by commuting operators, made and read by weighted sums alone, not visible from outside."""
    joined = {t: frozenset((t,)) for t in graph.tensors}
    for node in graph.nodes:
        if _commutes(graph, node):
            together = joined[node.output].union(*(joined[t] for t in node.inputs))
            joined |= dict.fromkeys(together, together)
    owners = Counter(c for n in graph.nodes for c in n.params)

    def is_own_sum(node: Node) -> bool:
        """A weighted sum with weights that no other node shares."""
        return (op := node.op.product) is not None and not op.partial and all(owners[c] == 1 for c in node.params)

    found = []
    for tensors in dict.fromkeys(joined.values()):
        makers, readers = [graph.producer(t) for t in tensors], [n for t in tensors for n in graph.consumers(t)]
        inside = None not in makers and tensors.isdisjoint(graph.outputs)
        around = [n for n in (*makers, *readers) if n is not None and not _commutes(graph, n)]
        if inside and readers and all(is_own_sum(n) for n in around):
            found.append(tensors)
    return found


def _commutes(graph: Graph, node: Node) -> bool:
    if isinstance(node.op, Reshape):  # flattening single pixels keeps channels channels
        source, target = graph.shape(node.inputs[0]), node.op.shape
        return len(source) >= 2 and source[:2] == target[:2] and prod(source[2:]) == prod(target[2:]) == 1
    return isinstance(node.op, COMMUTING)


def _family_scale(graph: Graph, family: frozenset[str], maxima: Mapping[str, Real], signed: bool, bits: int) -> Real | None:
    """s per channel: a power of the channel's range, such that the loudest channel reaches the largest integer."""
    peaks: Real = np.max([maxima[t] for t in family], axis=0)
    loudest = float(peaks.max())
    if not loudest > 0.0:
        return None
    bounds = [n.op.bounds for t in family if (n := graph.producer(t)) is not None and n.op.bounds is not None]
    if any(b.lo not in (0.0, -inf) for b in bounds):
        return None
    lowest = min((b.hi for b in bounds), default=inf)
    levels = (1 << (bits - 1 if signed else bits)) - 1
    if loudest >= REACHED * lowest:
        if lowest < loudest or any(b.hi not in (lowest, inf) for b in bounds):
            return None  # two bounds, one of them active: a single scale cannot put both on the largest integer
        return np.full(len(peaks), lowest / _grid_top(lowest, levels))
    spread = np.maximum(peaks, loudest / LARGEST_SPREAD) / loudest
    spread = np.where(peaks > 0.0, spread, 1.0)  # nothing is known of a silent channel
    return np.asarray(spread**EXPONENT * (loudest / _grid_top(loudest, levels)))


def _grid_top(magnitude: float, levels: int) -> float:
    """The largest value of the power-of-two grid that just covers `magnitude`."""
    return float(levels * 2.0 ** np.ceil(np.log2(magnitude / levels)))


def _scaled(graph: Graph, factors: Mapping[str, Real]) -> Graph:
    """Filters divided by the factors of what they make, multiplied by those of what they read; bounds follow."""
    nodes, constants = [], []
    for node in graph.nodes:
        made = factors.get(node.output)
        if node.op.product:
            constants += _scaled_params(graph, node, factors.get(node.inputs[0]), made)
        if made is not None and node.op.bounds is not None and node.op.bounds.hi < inf:
            assert isinstance(node.op, Conv | Gemm | Add | Clip)
            # The bound of the loudest channel for all, a float32 like any in a file; a common factor puts it on the grid exactly.
            bound = float(np.float32(node.op.bounds.hi / float(made.max())))
            node = replace(node, op=replace(node.op, clamp=Clamp(node.op.bounds.lo, bound)))
        nodes.append(node)
    return graph.with_nodes(nodes, constants=constants)


def _scaled_params(graph: Graph, node: Node, read: Real | None, made: Real | None) -> list[Constant]:
    if read is None and made is None:
        return []
    weight, bias = (c.array.astype(np.float64) for c in graph.params(node))
    if read is not None:
        weight = weight * _per_weight(node, read, weight)
    if made is not None:
        weight, bias = weight / made.reshape(-1, *[1] * (weight.ndim - 1)), bias / made
    return [Constant(name, x.astype(np.float32)) for name, x in zip(node.params, (weight, bias), strict=True)]


def _per_weight(node: Node, read: Real, weight: Array) -> Real:
    """Factors of the input channels, shaped like the weights that read them."""
    assert node.op.product is not None
    groups = node.op.product.groups
    by_group = np.repeat(read.reshape(groups, 1, -1), node.op.product.filters // groups, axis=1)
    return by_group.reshape(weight.shape[0], weight.shape[1], *[1] * (weight.ndim - 2))
