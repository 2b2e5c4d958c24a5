"""What running one split of one node involves, given where its inputs lie: transfers, computations, a sum.

The evaluator adds these up, the list schedule places them in time: both read the same description.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dovetail.errors import UsageError
from dovetail.ir import Axis, Graph, Node, Region, intersect, region_size, whole
from dovetail.partition.effort import spend
from dovetail.partition.memo import Cache
from dovetail.partition.plan import Mode, Split
from dovetail.partition.problem import (
    PARTIAL_BYTES,
    TWINS,
    PieceCost,
    Problem,
    axes_of,
    piece_regions,
    price,
    price_pieces,
    price_reduce,
)
from dovetail.values import dataclass
from dovetail.words import counted

Layout = tuple[tuple[str, Region], ...]
"""Where a tensor lies: regions without overlap, each on the device that computed it."""


class Place(NamedTuple):
    """Where a tensor lies. `stream_s`: how long before its node ends a streaming device begins to put it out.

    Only a whole node on a streaming device lets its output go while it is made; all else is there when its node ends.
    """

    parts: Layout
    stream_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Move:
    """One transfer: to a piece (its index) before it computes, or from a piece to the reducer after it.

    `seconds` is what it takes once its node starts; it may have begun `before_s` earlier, while its tensor was being
    made. The first packet is there `lead_s` after it starts.
    """

    source: str
    target: str
    piece: int
    size_bytes: int
    seconds: float
    joules: float
    lanes: tuple[str, ...]
    before_s: float = 0.0
    lead_s: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A node's transfers in, its pieces, partial sums and final sum.

    `fused` says which pieces stream behind their producers on the same device, `flowing` which start with the first
    packet of what they fetch.
    """

    arrivals: tuple[Move, ...]
    pieces: tuple[PieceCost, ...]
    fused: tuple[bool, ...]
    flowing: tuple[bool, ...]
    partials: tuple[Move, ...]
    reduce: PieceCost | None

    def compute_s(self, piece: int) -> float:
        return self.pieces[piece].fused_s if self.fused[piece] else self.pieces[piece].alone_s

    def done_s(self, piece: int, first_s: float, arrived_s: float) -> float:
        """When a piece is done whose input's first packet and whole are there at given times."""
        if not self.flowing[piece]:
            return arrived_s + self.compute_s(piece)
        cost = self.pieces[piece]
        return max(first_s + cost.alone_s, arrived_s + min(cost.fused_s, cost.alone_s))


CHECKED = Cache[tuple[str, Split], bool](lasting=True)
WORKS = Cache[tuple[object, ...], Work](lasting=True)


def check_split(problem: Problem, node: Node, split: Split) -> None:
    """Raise UsageError unless the pieces cover the axis exactly, once, on devices the platform has."""
    if split.axis is None and split.reducer is None and len(split.pieces) == 1:
        piece = split.pieces[0]
        if piece.start == 0 and piece.stop == 1 and piece.device in problem.devices:
            return
    known = problem.memo.of(CHECKED)
    if (node.name, split) not in known:
        _check(problem, node, split)
        known[node.name, split] = True


def _check(problem: Problem, node: Node, split: Split) -> None:
    where, pieces = f"node {node.name}", split.pieces
    for p in pieces:
        if p.device not in problem.devices:
            problem.platform.device(p.device)
    if len({p.device for p in pieces}) != len(pieces):
        raise UsageError(f"{where}: devices {', '.join(split.devices)} repeat; a device holds at most one piece of a node")
    if split.axis is None:
        if len(pieces) != 1 or (pieces[0].start, pieces[0].stop) != (0, 1):
            raise UsageError(f"{where}: {len(pieces)} pieces without an axis; a whole node is one piece [0, 1)")
    else:
        legal = axes_of(problem, node)
        if split.axis not in legal:
            raise UsageError(f"{where}: {node.op.kind} cannot be divided along {split.axis}; "
                             f"possible: {', '.join(legal) or 'none, keep it whole'}")
        _check_cover(where, split, legal[split.axis])
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
        raise UsageError(f"{where}: pieces end at {at}; {split.axis} has {counted(extent, 'unit')} and all must be covered")


def input_places(problem: Problem) -> dict[str, Place]:
    """Frames arrive on the host."""
    return {t: Place(((problem.platform.host, whole(problem.graph.shape(t))),)) for t in problem.graph.inputs}


def output_layout(problem: Problem, node: Node, split: Split) -> Layout:
    """Where a node leaves its output: with its pieces, or with the reducer."""
    if split.reducer is not None:
        return ((split.reducer, whole(problem.graph.shape(node.output))),)
    return tuple([(p.device, piece_regions(problem, node, split.axis, p.start, p.stop)[1]) for p in split.pieces])


def streamed(problem: Problem, split: Split) -> bool:
    """Whether a split's output can leave while it is made."""
    return problem.mode is Mode.CONCURRENT and split.axis is None and problem.streams(split.devices[0])


def output_place(problem: Problem, node: Node, split: Split) -> Place:
    """The layout a node leaves, and how long it is in the making."""
    layout = output_layout(problem, node, split)
    if not streamed(problem, split):
        return Place(layout)
    cost = price(problem, node, None, split.pieces[0])
    return Place(layout, max(0.0, cost.alone_s - cost.fused_s))


def follows(problem: Problem, node: Node) -> bool:
    """Whether a node reads one tensor alone, made by the node that runs just before it: their transfers may overlap."""
    if len(set(node.inputs)) != 1:
        return False
    at = problem.order[node.name]
    return at > 0 and problem.graph.nodes[at - 1].output == node.inputs[0]


def move(problem: Problem, source: str, target: str, piece: int, size_bytes: int, stream_s: float = 0.0) -> Move:
    """A transfer of what its source holds, or began to put out `stream_s` before the transfer's node starts."""
    seconds, joules = problem.transfer_one(source, target, size_bytes)
    lead, _ = problem.transfer_one(source, target, min(size_bytes, problem.packet_bytes))
    lanes = problem.lanes(source, target)
    before = min(stream_s, seconds - lead) if stream_s > 0 and source != target and problem.duplex(source, target) else 0.0
    return Move(source, target, piece, size_bytes, seconds - before, joules, lanes, before, lead)


def packet_s(problem: Problem, source: str, target: str) -> float:
    """How long the first packet of a transfer takes, if it is no shorter than a packet."""
    return problem.transfer_one(source, target, problem.packet_bytes)[0]


def work_of(problem: Problem, node: Node, split: Split, places: Mapping[str, Place]) -> Work:
    """Transfers, computations and sum of one node; places are those of its inputs. The split must be legal.

    Remembered: the same node in the same surroundings is met in many plans.
    """
    key = (node.name, split, *[places[t] for t in node.inputs])
    known = problem.memo.of(WORKS)
    found = known.get(key)
    if found is None:
        found = known[key] = _work(problem, node, split, places)
        spend("works", len(split.pieces))
    return found


def _work(problem: Problem, node: Node, split: Split, places: Mapping[str, Place]) -> Work:
    graph = problem.graph
    produced = None not in [graph.producer(t) for t in node.inputs]
    if split.axis is None and _all_on(problem, split.pieces[0].device, [places[t] for t in node.inputs]):
        return Work((), (price(problem, node, None, split.pieces[0]),), (produced,), (False,), (), None)
    alone = len(set(node.inputs)) == 1
    stream = places[node.inputs[0]].stream_s if follows(problem, node) else 0.0
    arrivals: list[Move] = []
    fused, flowing = [False] * len(split.pieces), [False] * len(split.pieces)
    ordered = list(enumerate(split.pieces))
    if len(ordered) > 1:
        ordered.sort(key=lambda piece: problem.devices.index(piece[1].device))
    for i, p in ordered:
        reads, _ = piece_regions(problem, node, split.axis, p.start, p.stop)
        wanted = dict.fromkeys(zip(node.inputs, reads, strict=True))
        streams = p.device in problem.streaming
        flows = streams and produced and all([(p.device, region) in places[tensor].parts for tensor, region in wanted])
        sizes = _foreign_bytes(graph, wanted, places, p.device, streams and not flows)
        # A streamed tensor has one source, and only the first transfer on its way out can go along with it.
        found = [move(problem, source, p.device, i, sizes[source], 0.0 if arrivals else stream)
                 for source in problem.devices if source in sizes] if sizes else []
        arrivals += found
        fused[i] = produced and not found
        flowing[i] = problem.mode is Mode.CONCURRENT and streams and alone and bool(found) and p.device not in sizes
    if len(split.pieces) > 2:  # equal devices are asked for all of their shares at once
        _ask(problem, node, split)
    pieces = tuple([price(problem, node, split.axis, p) for p in split.pieces])
    if split.reducer is None:
        return Work(tuple(arrivals), pieces, tuple(fused), tuple(flowing), (), None)
    size = graph.tensors[node.output].size * PARTIAL_BYTES
    partials = tuple(move(problem, p.device, split.reducer, i, size)
                     for i, p in ordered if p.device != split.reducer)
    reduce = price_reduce(problem, node, len(pieces), split.reducer)
    if reduce is None:
        raise UsageError(f"node {node.name}: {split.reducer} cannot add partial sums; name another reducer")
    return Work(tuple(arrivals), pieces, tuple(fused), tuple(flowing), partials, reduce)


def _ask(problem: Problem, node: Node, split: Split) -> None:
    shares: dict[str, list[tuple[int, int]]] = {}
    twins = problem.memo.of(TWINS)
    for p in split.pieces:
        shares.setdefault(twins.get(p.device, p.device), []).append((p.start, p.stop))
    for device, intervals in shares.items():
        if len(intervals) > 1:
            price_pieces(problem, node, split.axis, device, intervals)


def _all_on(problem: Problem, device: str, places: Sequence[Place]) -> bool:
    """Whether tensors lie whole on a device that keeps what it made: a whole node there fetches nothing."""
    return device not in problem.streaming and all([len(p.parts) == 1 and p.parts[0][0] == device for p in places])


def _foreign_bytes(graph: Graph, reads: Mapping[tuple[str, Region], None], places: Mapping[str, Place],
                   device: str, own_too: bool = False) -> dict[str, int]:
    """Bytes a piece must fetch from each other device; a tensor read twice in the same place is fetched once.

    `own_too`: the device streams and kept nothing of its own, so that comes back over the host as well.
    """
    sizes: dict[str, int] = {}
    for tensor, region in reads:
        for source, held in places[tensor].parts:
            if source == device and not own_too:
                continue
            both = region if region == held else intersect(region, held)
            if both is not None:
                sizes[source] = sizes.get(source, 0) + region_size(both) * graph.tensors[tensor].element_bytes
    return sizes


def deliveries(problem: Problem, tensor: str, place: Place) -> tuple[Move, ...]:
    """Transfers that bring a graph output home to the host; the last node's output may leave while it is made."""
    host = problem.platform.host
    sizes = _foreign_bytes(problem.graph, {(tensor, whole(problem.graph.shape(tensor))): None}, {tensor: place}, host)
    stream = place.stream_s if problem.graph.nodes[-1].output == tensor else 0.0
    return tuple([move(problem, s, host, 0, sizes[s], stream) for s in problem.devices if s in sizes])


def occupy(free: dict[str, float], step: Move, ready_s: float) -> float:
    """Run a transfer as soon as it is ready and all its lanes are free; they stay busy until the time returned."""
    start = ready_s
    for lane in step.lanes:
        start = max(start, free.get(lane, 0.0))
    stop = start + step.seconds
    for lane in step.lanes:
        free[lane] = stop
    return stop
