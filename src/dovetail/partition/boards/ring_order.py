"""Plans wound around a long ring of boards: a plan of the pool whose windows of neighbours come back to boards that are full.

Node by node, a few beginnings at a time, judged as the evaluator does: what the pool has on FPGAs alone goes whole on a board
near its inputs, or on the nearest that nothing is on, or fills what is left of one and goes on another near it, cut at any
filter. What is found is a plan, and no candidate.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.ir import Axis, Node
from dovetail.partition.boards.assignment import reseated, size_of
from dovetail.partition.boards.filter_shares import Sizes
from dovetail.partition.boards.node_moves import renamed, settle
from dovetail.partition.boards.relaxation import Pool
from dovetail.partition.boards.ring_places import turned
from dovetail.partition.candidates import divide
from dovetail.partition.effort import spend, worked
from dovetail.partition.evaluate import Evaluation, cost_node, evaluate
from dovetail.partition.plan import Assignment, Split, whole_on
from dovetail.partition.problem import TOLERANCE, Problem, axes_of, price_reduce
from dovetail.partition.work import Place, input_places, output_place, transfer_of, work_of

WIDTH, ALIKE, WASTE = 16, 2, 0.0
WIDE, SPARING, THRIFTY = (64, 8, 0.25), (64, 8, 1.0), (32, 4, 1.0)
"""Beginnings kept, how many of them may have left their last tensor in the same place, and what a board's unused room counts
where they are compared, as a part of what their last tensor takes to the next board; and the same where there is time, where
nodes found no room, and where there is some time."""
HURRIED = 8
"""Beginnings kept once time is up."""
REACH = 2
"""How far along the ring from its inputs a node goes, and how far apart two boards are that share it."""
FRESH = 2
"""Boards that nothing is on, the nearest, on which it may go besides."""
HOSTED = 3
"""Boards with room, the nearest, on which a share of a node may go that the host has the rest of."""
ROOMY = 6
"""Boards with most room that share a node for which there is none near its inputs."""
LARGE, SOME = 0.05, 0.1
"""Part of a board beyond which a node is divided, and what of it a board must have room for to take some."""


Room = tuple[float, ...]
"""What is left of a board, or what a share takes of one, of every limited resource as a fraction."""


def _holds(left: Room, size: Room) -> bool:
    """Whether a share fits on what is left of a board."""
    return all([room >= own - TOLERANCE for room, own in zip(left, size, strict=True)])


@dataclass(frozen=True, slots=True)
class _Begun:
    """The first nodes of a plan, what is left of every board (boards x resources, as fractions), and which are in use."""

    splits: Mapping[str, Split]
    places: Mapping[str, Place]
    left: tuple[Room, ...]
    used: frozenset[int]
    seconds: float
    joules: float


def wind(problem: Problem, pool: Pool, assignment: Assignment, deadline: float,
         kept: tuple[int, int, float] = (WIDTH, ALIKE, WASTE)) -> tuple[Assignment, Evaluation] | None:
    """A plan that keeps on boards what the pool's plan has on FPGAs alone, as good as was found; None where that fails."""
    ring, (width, alike, waste) = _Ring(problem, pool), kept
    empty = ((1.0,) * len(ring.sizes.limits),) * len(pool.boards)
    plans = [_Begun({}, input_places(problem), empty, frozenset(), 0.0, 0.0)]
    for node in problem.graph.nodes:
        grown = [new for plan in plans for split in ring.ways(node, assignment[node.name], plan)
                 if (new := ring.extended(plan, node, split)) is not None]
        if not grown:
            grown = [new for plan in plans for split in ring.elsewhere(node, plan)
                     if (new := ring.extended(plan, node, split)) is not None]
        size = problem.graph.tensors[node.output].transfer_bytes
        hop_s = waste * transfer_of(problem, pool.boards[0], pool.boards[1], size)[0] if waste else 0.0
        grown.sort(key=lambda new: problem.score(new[1].latency_s + hop_s * ring.unused(new) if hop_s else new[1].latency_s,
                                                 new[1].energy_j))
        plans = ring.kept(grown, node, width if worked() < deadline else HURRIED, alike)
    judged = [(e, p.splits) for p in plans if (e := evaluate(problem, p.splits)).feasible]
    if not judged:
        return None
    best, chosen = min(judged, key=lambda pair: pair[0].objective)
    return reseated(problem, pool, *turned(problem, pool, *settle(problem, pool, chosen, best)))


@dataclass(frozen=True, slots=True)
class _Spent:
    """What a plan costs so far."""

    latency_s: float
    energy_j: float


_Grown = tuple[_Begun, _Spent, Split, list[tuple[int, Room]]]
"""A beginning, what it costs with one more node, its split and what that takes of boards."""


class _Ring:
    """The boards, and what shares of nodes take of them."""

    def __init__(self, problem: Problem, pool: Pool) -> None:
        self.problem, self.pool, self.sizes = problem, pool, Sizes(problem, pool)
        self.at = {b: i for i, b in enumerate(pool.boards)}
        self.known: dict[tuple[object, ...], tuple[float, float] | None] = {}

    def apart(self, a: int, b: int) -> int:
        """How far two boards are from each other along the ring."""
        return min((a - b) % len(self.at), (b - a) % len(self.at))

    def ways(self, node: Node, split: Split, plan: _Begun) -> Iterator[Split]:
        """Where a node may go; one that the host shares stays as it is, on boards near its inputs."""
        boards, count = self.pool.boards, len(self.at)
        holding = {self.at[d] for t in node.inputs for d, _ in plan.places[t].parts if d in self.at} or {0}
        near = list(dict.fromkeys((b + step) % count for b in sorted(holding) for step in range(-REACH, REACH + 1)))
        own = [d for d in dict.fromkeys((*split.devices, split.reducer)) if d in self.at]
        if not all(d in self.at for d in split.devices):
            # What the host shares comes and goes by way of it: boards near its inputs may be full, others have room.
            if len(own) == 1:
                near += [b for b in self._roomy(node, split, own[0], plan, holding) if b not in near]
            for b in near if own else near[:1]:
                yield renamed(split, {d: boards[(b + i) % count] for i, d in enumerate(own)})
            if len(own) == 1:
                yield from self._lessened(node, split, own[0], plan)
            return
        fresh = sorted((b for b in range(count) if b not in plan.used), key=lambda b: min(self.apart(b, h) for h in holding))
        near = list(dict.fromkeys([*near, *fresh[:FRESH]]))
        whole = self.sizes.plainly(node, None, 0, 1)
        fitting = [b for b in near if whole is not None and _holds(plan.left[b], whole)]
        yield from (whole_on(boards[b]) for b in fitting)
        if whole is None or max(whole) > LARGE:
            most = SOME * (1.0 if whole is None else max(whole))
            some = [b for b in near if b not in fitting and min(plan.left[b]) > most]
            yield from self._shared(node, plan, some, near)
        if split.axis is Axis.OUTPUT_CHANNELS and len(own) == 2:
            yield from (renamed(split, dict(zip(own, (boards[a], boards[b]), strict=True)))
                        for a, b in permutations(near, 2) if self.apart(a, b) <= REACH)
        if split.axis is Axis.INPUT_CHANNELS:
            yield from self._by_inputs(node, plan)
        yield from self._summed(node, plan)

    def _roomy(self, node: Node, split: Split, own: str, plan: _Begun, holding: set[int]) -> list[int]:
        """The boards nearest to some others, and to the host, that have room for a device's share of a node."""
        shares = [self.sizes.plainly(node, split.axis, p.start, p.stop) for p in split.pieces if p.device == own]
        size = shares[0] if shares else None
        if size is None:
            return []
        fitting = [b for b in range(len(self.at)) if _holds(plan.left[b], size)]
        return sorted(fitting, key=lambda b: (self.apart(b, 0) + min(self.apart(b, h) for h in holding), b))[:HOSTED]

    def _lessened(self, node: Node, split: Split, own: str, plan: _Begun) -> Iterator[Split]:
        """A node that the host shares with a board, of which that takes what there is room for where that is not all of it."""
        pieces = split.pieces
        if len(pieces) != 2 or split.axis is None or split.reducer is not None:
            return
        last = pieces[1].device == own
        piece, extent = pieces[last], pieces[1].stop
        for b in self._emptiest(plan)[:HOSTED]:
            count = self._most(node, split.axis, piece.start, piece.stop, plan.left[b], last)
            if 0 < count < piece.stop - piece.start:
                board, host = self.pool.boards[b], pieces[not last].device
                yield divide(split.axis, [extent - count if last else count], extent, [host, board] if last else [board, host])

    def _by_inputs(self, node: Node, plan: _Begun) -> Iterator[Split]:
        """A node whose input channels go on the emptiest boards: what comes from the host comes to one of them alone."""
        boards = self._emptiest(plan)[:ROOMY]
        for some in (boards, sorted(boards, key=lambda b: self.apart(b, 0))):
            spread = self._spread(node, plan, some, Axis.INPUT_CHANNELS)
            if spread is not None:
                yield from (Split(spread.axis, spread.pieces, home) for home in reversed(spread.devices))

    def _emptiest(self, plan: _Begun) -> list[int]:
        return sorted(range(len(self.at)), key=lambda b: -min(plan.left[b]))

    def _summed(self, node: Node, plan: _Begun) -> Iterator[Split]:
        """A node on two boards that made the channels it reads: each part flows on.

        Sums go where a later node has its other inputs, or to one of the two.
        """
        extent = axes_of(self.problem, node).get(Axis.INPUT_CHANNELS, 0)
        parts = plan.places[node.inputs[0]].parts
        if extent == 0 or len(parts) != 2 or len(set(node.inputs)) > 1 or not all(d in self.at for d, _ in parts):
            return
        (first, upper), (second, lower) = parts
        if upper[1][0] != 0 or upper[1][1] != lower[1][0] or lower[1][1] != extent:
            return
        later = [t for other in self.problem.graph.consumers(node.output) for t in other.inputs if t in plan.places]
        homes = dict.fromkeys([*(d for t in later for d, _ in plan.places[t].parts if d in self.at), first, second])
        yield from (divide(Axis.INPUT_CHANNELS, [upper[1][1]], extent, [first, second], home) for home in homes)

    def elsewhere(self, node: Node, plan: _Begun) -> Iterator[Split]:
        """Where a node may go that finds no room near its inputs: over the emptiest boards, wherever they are, or on the host.

        A board with a part of what the node reads would get that back by way of the host: it is also tried without these.
        """
        roomy = self._emptiest(plan)
        holding = {self.at[d] for t in node.inputs for d, _ in plan.places[t].parts if d in self.at}
        others = [b for b in roomy if b not in holding]
        whole = self.sizes.plainly(node, None, 0, 1)
        if whole is not None:
            yield from (whole_on(self.pool.boards[b]) for b in roomy[:ROOMY] if _holds(plan.left[b], whole))
        for boards in (roomy, others):
            if (spread := self._spread(node, plan, boards[:ROOMY])) is not None:
                yield spread
        yield from self._by_inputs(node, plan)
        yield whole_on(self.problem.platform.host)

    def _spread(self, node: Node, plan: _Begun, boards: Sequence[int], axis: Axis = Axis.OUTPUT_CHANNELS) -> Split | None:
        """A node's filters on one board after another, as many as each has room for; None where that is not all of them."""
        extent, cuts, taken, start = axes_of(self.problem, node).get(axis, 1), list[int](), list[str](), 0
        for b in boards if extent > 1 else ():
            stop = self._most(node, axis, start, extent, plan.left[b])
            if stop:
                start += stop
                cuts.append(start)
                taken.append(self.pool.boards[b])
            if start == extent:
                return divide(axis, cuts[:-1], extent, taken) if len(taken) > 1 else None
        return None

    def _most(self, node: Node, axis: Axis, start: int, stop: int, left: Room, last: bool = False) -> int:
        """How many of some filters or channels of a node, the first or the last of them, fit on what is left of a board.

        More of them never do where fewer do not.
        """
        counts = range(1, stop - start + 1)
        shares = [(stop - count, stop) if last else (start, start + count) for count in counts]
        self.sizes.ask(node, axis, shares)

        def too_many(count: int) -> bool:
            size = self.sizes.plainly(node, axis, *shares[count - 1])
            return size is None or not _holds(left, size)

        return bisect_right(counts, 0, key=too_many)

    def _shared(self, node: Node, plan: _Begun, some: Sequence[int], near: Sequence[int]) -> Iterator[Split]:
        """A node that fills one of some boards and goes on another."""
        extent = self.sizes.extent(node)
        for a in some if extent > 1 else ():
            first = self._most(node, Axis.OUTPUT_CHANNELS, 0, extent - 1, plan.left[a])
            for b in near if first else ():
                if a != b and self.apart(a, b) <= REACH:
                    yield divide(Axis.OUTPUT_CHANNELS, [first], extent, [self.pool.boards[a], self.pool.boards[b]])

    def extended(self, plan: _Begun, node: Node, split: Split) -> _Grown | None:
        """What becomes of a beginning with one more node; None where boards have no room for it or cannot run it."""
        taken: list[tuple[int, Room]] = []
        for p in split.pieces:
            if p.device not in self.at:
                continue
            size = self.sizes.plainly(node, split.axis, p.start, p.stop)
            if size is None:
                return None
            if split.reducer == p.device:
                size = tuple(size_of(self.problem, self.pool, node, split, p)[self.sizes.limited].tolist())
            if not _holds(plan.left[self.at[p.device]], size):
                return None
            taken.append((self.at[p.device], size))
        if split.reducer in self.at and split.reducer not in split.devices:
            sums = price_reduce(self.problem, node, len(split.pieces), split.reducer)
            if sums is None:
                return None
            own = dict(sums.resources)
            size = tuple([own.get(r, 0.0) / limit for r, limit in self.sizes.limits.items()])
            if not _holds(plan.left[self.at[split.reducer]], size):
                return None
            taken.append((self.at[split.reducer], size))
        spent = self._spent(plan, node, split)
        spend("windings", 1)
        return None if spent is None else (plan, _Spent(plan.seconds + spent[0], plan.joules + spent[1]), split, taken)

    def _spent(self, plan: _Begun, node: Node, split: Split) -> tuple[float, float] | None:
        """Seconds and joules of a node; the same, to a heuristic, wherever along the ring boards are as far from each other."""
        key = self._alike(plan, node, split)
        if key is not None and key in self.known:
            return self.known[key]
        found: tuple[float, float] | None = None
        try:
            cost = cost_node(self.problem, node, split, work_of(self.problem, node, split, plan.places))
            found = cost.latency_s, cost.energy_j
        except UnsupportedError:
            pass
        if key is not None:
            self.known[key] = found
        return found

    def _alike(self, plan: _Begun, node: Node, split: Split) -> tuple[object, ...] | None:
        """What splits and places of inputs that differ by a shift along the ring share; None where the host has a part."""
        if split.reducer is not None or any(p.device not in self.at for p in split.pieces):
            return None
        first, count = self.at[split.pieces[0].device], len(self.at)
        found: list[object] = [node.name, split.axis]
        found += [((self.at[p.device] - first) % count, p.start, p.stop) for p in split.pieces]
        for tensor in node.inputs:
            place = plan.places[tensor]
            for device, region in place.parts:
                if device not in self.at:
                    return None
                found += ((self.at[device] - first) % count, region)
            found.append(place.stream_s)
        return tuple(found)

    def unused(self, new: _Grown) -> float:
        """Room left on boards in use, of the resource of which least is."""
        plan, _, split, taken = new
        used = plan.used | {self.at[d] for d in split.devices if d in self.at}
        room = np.array([plan.left[b] for b in used]).sum(axis=0) - np.array([size for _, size in taken]).sum(axis=0)
        return float(room.min()) if used else 0.0

    def kept(self, grown: Sequence[_Grown], node: Node, width: int, most: int) -> list[_Begun]:
        """The best beginnings, not too many of which go on from the same place."""
        found, alike = list[_Begun](), Counter[tuple[str, ...]]()
        for plan, spent, split, taken in grown:
            if len(found) < width and alike[split.devices] < most:
                alike[split.devices] += 1
                left = list(plan.left)
                for board, size in taken:
                    left[board] = tuple([room - own for room, own in zip(left[board], size, strict=True)])
                used = plan.used | {self.at[d] for d in split.devices if d in self.at}
                found.append(_Begun({**plan.splits, node.name: split}, {
                    **plan.places, node.output: output_place(self.problem, node, split)}, tuple(left), used, spent.latency_s,
                    spent.energy_j))
        return found
