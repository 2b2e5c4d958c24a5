"""What running one split of one node involves, given where its inputs lie: transfers, computations, a sum.

The evaluator adds these up, the list schedule places them in time: both read the same description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dovetail.errors import UsageError
from dovetail.ir import Axis, Graph, Node, Region, intersect, region_size, whole
from dovetail.partition.plan import Split
from dovetail.partition.problem import PARTIAL_BYTES, PieceCost, Problem, piece_regions, price, price_reduce

Layout = tuple[tuple[str, Region], ...]
"""Where a tensor lies: regions without overlap, each on the device that computed it."""


@dataclass(frozen=True, slots=True)
class Move:
    """One transfer: to a piece (its index) before it computes, or from a piece to the reducer after it."""

    source: str
    target: str
    piece: int
    size_bytes: int
    seconds: float
    joules: float
    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Work:
    """A node's transfers in, pieces (with whether each streams behind its producers), partial sums and final sum."""

    arrivals: tuple[Move, ...]
    pieces: tuple[PieceCost, ...]
    fused: tuple[bool, ...]
    partials: tuple[Move, ...]
    reduce: PieceCost | None

    def compute_s(self, piece: int) -> float:
        return self.pieces[piece].fused_s if self.fused[piece] else self.pieces[piece].alone_s


def check_split(problem: Problem, node: Node, split: Split) -> None:
    """Raise UsageError unless the pieces cover the axis exactly, once, on devices the platform has."""
    where, pieces = f"node {node.name}", split.pieces
    for p in pieces:
        problem.platform.device(p.device)
    if len(set(split.devices)) != len(pieces):
        raise UsageError(f"{where}: devices {', '.join(split.devices)} repeat; a device holds at most one piece of a node")
    if split.axis is None:
        if len(pieces) != 1 or (pieces[0].start, pieces[0].stop) != (0, 1):
            raise UsageError(f"{where}: {len(pieces)} pieces without an axis; a whole node is one piece [0, 1)")
    else:
        shapes = problem.graph.input_shapes(node)
        legal = node.op.axes(shapes)
        if split.axis not in legal:
            raise UsageError(f"{where}: {node.op.kind} cannot be divided along {split.axis}; "
                             f"possible: {', '.join(legal) or 'none, keep it whole'}")
        _check_cover(where, split, node.op.extent(split.axis, shapes))
    if (split.axis is Axis.INPUT_CHANNELS) != (split.reducer is not None):
        raise UsageError(f"{where}: reducer {split.reducer} with axis {split.axis}; "
                         "an input-channel split names one, no other split does")
    if split.reducer is not None:
        problem.platform.device(split.reducer)


def _check_cover(where: str, split: Split, extent: int) -> None:
    at = 0
    for p in split.pieces:
        if p.start != at or p.stop <= p.start:
            raise UsageError(f"{where}: piece [{p.start}, {p.stop}) on {p.device} does not continue at {at}; "
                             f"pieces must cover {split.axis} [0, {extent}) in order, without gaps or overlaps")
        at = p.stop
    if at != extent:
        raise UsageError(f"{where}: pieces end at {at}; {split.axis} has {extent} units and all must be covered")


def input_layouts(problem: Problem) -> dict[str, Layout]:
    """Frames arrive on the host."""
    return {t: ((problem.platform.host, whole(problem.graph.shape(t))),) for t in problem.graph.inputs}


def output_layout(problem: Problem, node: Node, split: Split) -> Layout:
    """Where a node leaves its output: with its pieces, or with the reducer."""
    if split.reducer is not None:
        return ((split.reducer, whole(problem.graph.shape(node.output))),)
    return tuple((p.device, piece_regions(problem, node, split.axis, p.start, p.stop)[1]) for p in split.pieces)


def move(problem: Problem, source: str, target: str, piece: int, size_bytes: int) -> Move:
    key = (source, target, size_bytes)
    if key not in problem.moved:
        seconds, joules = problem.transfer(source, target, np.array([float(size_bytes)]))
        problem.moved[key] = float(seconds[0]), float(joules[0])
    return Move(source, target, piece, size_bytes, *problem.moved[key], problem.lanes(source, target))


def work_of(problem: Problem, node: Node, split: Split, layouts: Mapping[str, Layout]) -> Work:
    """Transfers, computations and sum of one node; layouts are those of its inputs. The split must be legal."""
    graph = problem.graph
    produced = all(graph.producer(t) is not None for t in node.inputs)
    arrivals: list[Move] = []
    fused = [False] * len(split.pieces)
    ordered = sorted(enumerate(split.pieces), key=lambda piece: problem.devices.index(piece[1].device))
    for i, p in ordered:
        reads, _ = piece_regions(problem, node, split.axis, p.start, p.stop)
        wanted = dict.fromkeys(zip(node.inputs, reads, strict=True))
        flows = produced and all((p.device, region) in layouts[tensor] for tensor, region in wanted)
        sizes = _foreign_bytes(graph, wanted, layouts, p.device, problem.streams(p.device) and not flows)
        found = [move(problem, source, p.device, i, sizes[source]) for source in problem.devices if source in sizes]
        arrivals += found
        fused[i] = produced and not found
    pieces = tuple(price(problem, node, split.axis, p) for p in split.pieces)
    if split.reducer is None:
        return Work(tuple(arrivals), pieces, tuple(fused), (), None)
    size = graph.tensors[node.output].size * PARTIAL_BYTES
    partials = tuple(move(problem, p.device, split.reducer, i, size)
                     for i, p in ordered if p.device != split.reducer)
    reduce = price_reduce(problem, node, len(pieces), split.reducer)
    if reduce is None:
        raise UsageError(f"node {node.name}: {split.reducer} cannot add partial sums; name another reducer")
    return Work(tuple(arrivals), pieces, tuple(fused), partials, reduce)


def _foreign_bytes(graph: Graph, reads: Mapping[tuple[str, Region], None], layouts: Mapping[str, Layout],
                   device: str, own_too: bool = False) -> dict[str, int]:
    """Bytes a piece must fetch from each other device; a tensor read twice in the same place is fetched once.

    `own_too`: the device streams and kept nothing of its own, so that comes back over the host as well.
    """
    sizes: dict[str, int] = {}
    for tensor, region in reads:
        for source, held in layouts[tensor]:
            both = intersect(region, held) if source != device or own_too else None
            if both is not None:
                sizes[source] = sizes.get(source, 0) + region_size(both) * graph.tensors[tensor].element_bytes
    return sizes


def deliveries(problem: Problem, tensor: str, layout: Layout) -> tuple[Move, ...]:
    """Transfers that bring a graph output home to the host."""
    sizes = _foreign_bytes(problem.graph, {(tensor, whole(problem.graph.shape(tensor))): None}, {tensor: layout},
                           problem.platform.host)
    return tuple(move(problem, s, problem.platform.host, 0, sizes[s]) for s in problem.devices if s in sizes)


def occupy(free: dict[str, float], step: Move, ready_s: float) -> float:
    """Run a transfer as soon as it is ready and all its lanes are free; they stay busy until the time returned."""
    stop = max([ready_s, *(free.get(lane, 0.0) for lane in step.lanes)]) + step.seconds
    for lane in step.lanes:
        free[lane] = stop
    return stop
