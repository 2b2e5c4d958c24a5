"""What nodes cost on a GPU that computes several of them in one kernel: prices that add up to those of the best kernels.

Nodes that follow each other on one GPU, undivided, are computed by the kernels that together are estimated fastest; D(i..j) is
what those take for nodes i to j of a run. A plan is charged node by node, though, and a node knows only whether its producer
is on the same GPU. So every node has two prices: `behind_s`, what it adds behind its producer, is what D grows by from the
beginning of its run, D(1..k) - D(1..k-1) (an addition that joins a convolution adds next to nothing); `alone_s`, of a node that
begins on this GPU, is the least with which no stretch of its run costs less than its kernels do. Hence every stretch from the
beginning of a run costs exactly what its kernels cost, and no stretch less.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.ir import Concat, GlobalAvgPool, Graph, Node, Reshape
from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import judged
from dovetail.kernels.items import ELEMENT, LONGEST, Item
from dovetail.kernels.lower import Lowering
from dovetail.kernels.moves import MovedShape
from dovetail.kernels.ranking import best_seconds
from dovetail.kernels.shape import KernelShape
from dovetail.kernels.table import kernel_of, part_shapes
from dovetail.platform.gpu_specification import Gpu

ROUNDOFF = 1e-9
"""Relative difference of times that is none (chosen: float64 sums of a network are closer)."""
Span = tuple[int, int, KernelShape]
"""First and last node of a run that one kernel computes."""


@dataclass(frozen=True, slots=True)
class NodePrice:
    """Seconds of a whole node: where it begins on a GPU, and behind its producers there."""

    alone_s: float
    behind_s: float


@dataclass(frozen=True, slots=True)
class PricedRun:
    """Nodes that follow each other, and the seconds of every kernel that computes some of them."""

    nodes: tuple[str, ...]
    kernels: Mapping[tuple[int, int], float]

    def cheapest(self, first: int, last: int) -> list[tuple[float, int]]:
        """Of every stretch from `first` on (nothing, one node, ...): its seconds, and where its last kernel begins."""
        best = [(0.0, first)]
        for stop in range(first, last + 1):
            best.append(min(((best[p - first][0] + s, p) for (p, q), s in self.kernels.items() if q == stop and p >= first),
                            default=(inf, stop)))
        return best

    def divided(self, first: int, last: int) -> tuple[tuple[str, ...], ...]:
        """The nodes of each kernel of a stretch."""
        best, found, stop = self.cheapest(first, last), list[tuple[str, ...]](), last + 1
        while stop > first:
            begin = best[stop - first][1]
            found.append(self.nodes[begin:stop])
            stop = begin
        return tuple(reversed(found))

    def prices(self) -> list[NodePrice]:
        """Prices that add up as the module says."""
        count = len(self.nodes)
        whole = np.maximum.accumulate([s for s, _ in self.cheapest(0, count - 1)])
        single = np.array([self.kernels.get((i, i), inf) for i in range(count)])
        behind = np.diff(whole)
        behind = np.where(np.abs(behind - single) <= ROUNDOFF * single, single, behind)
        found = []
        for i in range(count):
            stretches = np.array([s for s, _ in self.cheapest(i, count - 1)][1:])
            later = np.cumsum(np.r_[0.0, behind[i + 1:]])
            found.append(NodePrice(float((stretches - later).max()), float(behind[i])))
        return found


@dataclass(frozen=True, slots=True)
class GraphPrices:
    """A graph on a GPU: the price of every whole node that has kernels, and its runs."""

    prices: Mapping[str, NodePrice]
    runs: tuple[PricedRun, ...]

    def together(self, nodes: Collection[str]) -> tuple[tuple[str, ...], ...]:
        """Which of the given nodes share a kernel, where all of them are whole on the GPU."""
        found: list[tuple[str, ...]] = []
        for run in self.runs:
            inside = [name in nodes for name in run.nodes]
            first = 0
            while first < len(inside):
                last = first
                while last + 1 < len(inside) and inside[first] and inside[last + 1]:
                    last += 1
                if inside[first]:
                    found += [names for names in run.divided(first, last) if len(names) > 1]
                first = last + 1
        return tuple(found)


def priced(graph: Graph, gpu: Gpu, kind: str) -> GraphPrices:
    """Prices of whole nodes for one image; a float graph may be priced as the integers it will become."""
    try:
        lowering = Lowering(graph, kind, gpu, 1)
    except UnsupportedError:  # even its inputs have no place on a GPU
        return GraphPrices({}, ())
    able = [node for node in graph.nodes if lowering.try_to_add(node)]
    groups = lowering.runs()
    found = dict[str, NodePrice]()
    for call in (group for group in groups if isinstance(group, Call)):
        more = call.estimates_s[0] + (found[call.nodes[0]].alone_s if call.nodes[0] in found else 0.0)
        found[call.nodes[0]] = NodePrice(more, more)
    items = [group for group in groups if isinstance(group, tuple)]
    layers = {name for run in items for item in run for name in item.names}
    for node in (n for n in able if n.name not in found and n.name not in layers):
        found[node.name] = _folded(graph, node, gpu, kind)
    runs = _runs(graph, gpu, kind, items)
    for run, (first, *_) in zip(runs, items, strict=True):
        found |= dict(zip(run.nodes, run.prices(), strict=True))
        own, source = found[first.node.name], graph.producer(first.node.inputs[0])
        # A layer that reads chosen channels where they are saves their copy, which the node that chooses is charged for.
        saved = found[source.name].alone_s if source is not None and source.output in lowering.chosen \
            and len(graph.consumers(source.output)) == 1 else 0.0
        found[first.node.name] = NodePrice(own.alone_s, max(0.0, own.alone_s - saved))
    return GraphPrices({n: p for n, p in found.items() if p.alone_s < inf}, runs)


def _folded(graph: Graph, node: Node, gpu: Gpu, kind: str) -> NodePrice:
    """A node without a kernel of its own: another form of the same values, or what its neighbours read or make in place."""
    if type(node.op) is Reshape:
        return NodePrice(0.0, 0.0)
    copied = float(best_seconds(gpu, kind, [moved_shape(graph, node, kind)])[0])
    # What is concatenated was made where it belongs; a choice is charged for, and its reader gets it back.
    return NodePrice(copied, 0.0 if type(node.op) is Concat else copied)


def _runs(graph: Graph, gpu: Gpu, kind: str, items: Sequence[Sequence[Item]]) -> tuple[PricedRun, ...]:
    """Runs of layers with their kernels, all estimated at once."""
    every = [_kernels(graph, kind, run) for run in items]
    seconds = iter(best_seconds(gpu, kind, [shape for _, kernels in every for *_, shape in kernels]).tolist())
    found = []
    for names, kernels in every:
        best: dict[tuple[int, int], float] = {}
        for first, last, _ in kernels:
            best[first, last] = min(best.get((first, last), inf), next(seconds))
        found.append(PricedRun(names, best))
    return tuple(found)


def _kernels(graph: Graph, kind: str, run: Sequence[Item]) -> tuple[tuple[str, ...], list[Span]]:
    """The nodes of a run, and the kernels that compute some of them: layers, with or without what joins the last one.

    Kernels that were never timed are not planned for; where a GPU finds them faster, it uses them.
    """
    names = [name for item in run for name in item.names]
    starts = np.cumsum([0, *(len(item.names) for item in run)]).tolist()
    found: list[Span] = []
    for first in range(len(run)):
        for last in range(first, min(first + LONGEST, len(run))):
            found += [(starts[first], starts[last + 1] - 1, shape) for shape in part_shapes(kind, run[first:last + 1])]
            for count in range(1, len(run[last].names)):
                part = [*run[first:last], run[last].shortened(count)]
                found += [(starts[first], starts[last] + count - 1, shape) for shape in part_shapes(kind, part)]
    found = [kernel for kernel in found if kernel_of(kernel[2]).name in judged().fitted]
    joined = [starts[i] + k for i, item in enumerate(run) for k in range(1, len(item.names))]
    return tuple(names), found + [(i, i, moved_shape(graph, graph.node(names[i]), kind)) for i in joined]


def moved_shape(graph: Graph, node: Node, kind: str) -> MovedShape:
    """The kernel of a node that computes next to nothing."""
    shape, element = graph.shape(node.output), ELEMENT[kind]
    values = prod(shape[1:]) + sum(prod(s[1:]) for s in graph.input_shapes(node))
    by_image = type(node.op) is GlobalAvgPool
    return MovedShape(element, values * element, 1 if by_image else prod(shape[2:]), shape[1], by_image)
