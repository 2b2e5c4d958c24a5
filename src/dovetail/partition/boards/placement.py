"""Beam search that places a plan of the relaxation on real boards, node by node in topological order.

The relaxation says which nodes run on FPGAs and how they are divided, not on which board. Every partial plan is extended by each
way to place the next node: whole on a board near its inputs, divided between one that it fills and another, or on the host. Costs
are those of the evaluator. Boards have budgets of their own, so a node may be cut at any filter to fill one. The best partial
plans go on, with few of them that end on the same boards and, as long as there are any, only those that leave room for the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations

from dovetail.errors import UnsupportedError
from dovetail.ir import Axis, Node
from dovetail.partition.boards.board_shares import BoardShares, Room, holds, less
from dovetail.partition.boards.relaxation import Pool
from dovetail.partition.candidates import divide
from dovetail.partition.effort import spend, worked
from dovetail.partition.evaluate import Evaluation, cost_node, evaluate
from dovetail.partition.plan import Assignment, Piece, Split, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.work import Place, input_places, output_place, work_of

NARROW = 8
"""Partial plans kept per node where a plan is wanted soon, and once the time is up: chosen."""
ALIKE = 8
"""Part of them, as a divisor, that may have their last node on the same boards: chosen."""
REACH = 2
"""Links from the boards that hold a node's inputs within which it is placed, and between two boards that share it: chosen."""
UNUSED = 2
"""Nearest boards that nothing is on that are tried besides: chosen."""
ROOMY = 6
"""Boards with most room that share a node for which there is none near its inputs: chosen."""


def renamed(split: Split, names: Mapping[str, str]) -> Split:
    """A split with other devices in place of some."""
    pieces = tuple(Piece(names.get(p.device, p.device), p.start, p.stop) for p in split.pieces)
    return Split(split.axis, pieces, names.get(split.reducer, split.reducer) if split.reducer is not None else None)


def place(problem: Problem, pool: Pool, guide: Assignment, deadline: float, waste: float,
          width: int) -> tuple[Assignment, Evaluation] | None:
    """The best plan found that follows a plan of the relaxation, on real boards; None where there is none within the limits.

    Partial plans are compared by cost, with `waste` times what moving their last tensor to another board costs added per board
    left unused on those in use: what is unused there, later nodes must find elsewhere.
    """
    search = _Search(problem, pool, guide)
    plans = [search.start()]
    for node, needed in zip(problem.graph.nodes, search.needed, strict=True):
        grown = [new for plan in plans for split in search.ways(node, plan) if (new := search.extended(plan, node, split))]
        if not grown:
            grown = [new for plan in plans for split in search.elsewhere(node, plan)
                     if (new := search.extended(plan, node, split))]
        hop_s = waste * problem.transfer_one(pool.boards[0], pool.boards[1], problem.graph.tensors[node.output].transfer_bytes)[0]
        grown.sort(key=lambda new: problem.score(new.seconds + (hop_s * new.budget.unused if hop_s else 0.0), new.joules))
        roomy = [new for new in grown if holds(new.budget.total, needed)]
        kept = _kept(roomy or grown, width if worked() < deadline else NARROW)
        plans = [search.partial(new, node) for new in kept]
    judged = [(e, plan.splits) for plan in plans if (e := evaluate(problem, plan.splits)).feasible]
    if not judged:
        return None
    best, chosen = min(judged, key=lambda pair: pair[0].objective)
    return chosen, best


@dataclass(frozen=True, slots=True)
class _Budget:
    """What is left of every board and of all together, and which are in use."""

    left: tuple[Room, ...]
    total: Room
    used: frozenset[int]

    @property
    def unused(self) -> float:
        """Boards' worth of room left on those in use, of the resource of which least is."""
        return min([sum(room) for room in zip(*(self.left[b] for b in self.used), strict=True)], default=0.0)


@dataclass(frozen=True, slots=True)
class _Partial:
    """The first nodes of a plan."""

    splits: Mapping[str, Split]
    places: Mapping[str, Place]
    budget: _Budget
    seconds: float
    joules: float


@dataclass(frozen=True, slots=True)
class _Extension:
    """A partial plan with a split for its next node, and what is spent and left then."""

    plan: _Partial
    split: Split
    budget: _Budget
    seconds: float
    joules: float


def _kept(grown: Sequence[_Extension], width: int) -> list[_Extension]:
    """The first of those given, not too many of which go on from the same devices."""
    found, alike = list[_Extension](), Counter[tuple[str, ...]]()
    for new in grown:
        if len(found) < width and alike[new.split.devices] < max(2, width // ALIKE):
            alike[new.split.devices] += 1
            found.append(new)
    return found


class _Search:
    """The boards, the ways to place nodes on them, and what that costs."""

    def __init__(self, problem: Problem, pool: Pool, guide: Assignment) -> None:
        self.problem, self.boards, self.guide = problem, pool.boards, guide
        self.shares = BoardShares(problem, pool.boards[0])
        self.number = {b: i for i, b in enumerate(pool.boards)}
        route, host = problem.platform.route, problem.platform.host
        self.hops = [[len(route(a, b)) for b in pool.boards] for a in pool.boards]
        self.home = [len(route(host, b)) for b in pool.boards]
        self.known: dict[tuple[object, ...], tuple[float, float] | None] = {}
        self.needed = self._needed()

    def start(self) -> _Partial:
        """The plan of no node."""
        empty = (1.0,) * len(self.shares.limits)
        budget = _Budget((empty,) * len(self.boards), tuple(len(self.boards) * r for r in empty), frozenset())
        return _Partial({}, input_places(self.problem), budget, 0.0, 0.0)

    def _needed(self) -> list[Room]:
        """Behind every node, what the guide's later nodes take of all boards together."""
        found = [(0.0,) * len(self.shares.limits)]
        for node in reversed(self.problem.graph.nodes[1:]):
            split = self.guide[node.name]
            sizes = [size for p in split.pieces if p.device in self.number
                     and (size := self.shares.of_piece(node, split, p)) is not None]
            found.append(tuple([sum(x) for x in zip(found[-1], *sizes, strict=True)]))
        return found[::-1]

    def ways(self, node: Node, plan: _Partial) -> Iterator[Split]:
        """The splits tried for a node: the guide's on boards near its inputs, whole, or cut to fill a board."""
        split = self.guide[node.name]
        holding = self._holding(node, plan)
        own = [d for d in dict.fromkeys((*split.devices, split.reducer)) if d in self.number]
        near = [b for b in range(len(self.boards)) if any(self.hops[b][h] <= REACH for h in holding)]
        near.sort(key=lambda b: min(self.hops[b][h] for h in holding))
        unused = sorted((b for b in range(len(self.boards)) if b not in plan.budget.used and b not in near),
                        key=lambda b: min(self.hops[b][h] for h in holding))[:UNUSED]
        if not own:
            yield split
        elif len(own) < len(split.devices):
            yield from self._with_host(node, split, own, near, plan)
        else:
            yield from self._on_boards(node, split, own, [*near, *unused], plan)

    def _holding(self, node: Node, plan: _Partial) -> list[int]:
        """Boards that hold inputs of a node; where none does, those nearest to the host."""
        found = sorted({self.number[d] for t in node.inputs for d, _ in plan.places[t].parts if d in self.number})
        return found or [self.home.index(min(self.home))]

    def _renamed(self, split: Split, own: Sequence[str], chosen: Sequence[int]) -> Split:
        return renamed(split, dict(zip(own, (self.boards[b] for b in chosen), strict=True)))

    def _near_each_other(self, boards: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
        return (c for c in permutations(boards, count) if all(self.hops[a][b] <= REACH for a, b in pairwise(c)))

    def _with_host(self, node: Node, split: Split, own: Sequence[str], near: Sequence[int], plan: _Partial) -> Iterator[Split]:
        """A node that the host shares: as it is on boards near its inputs or the host, or with as much as a roomy board holds."""
        roomy = self._emptiest(plan)[:ROOMY]
        for chosen in self._near_each_other(list(dict.fromkeys([*near, *roomy])), len(own)):
            yield self._renamed(split, own, chosen)
        pieces = split.pieces
        if len(pieces) != 2 or split.axis is None or split.reducer is not None or not self.problem.off_grid:
            return
        last = pieces[1].device == own[0]
        piece, extent, host = pieces[last], pieces[1].stop, pieces[not last].device
        for b in roomy[:UNUSED]:
            count = self.shares.most(node, split.axis, piece.start, piece.stop, plan.budget.left[b], last)
            if 0 < count < piece.stop - piece.start:
                devices = [host, self.boards[b]] if last else [self.boards[b], host]
                yield divide(split.axis, [extent - count if last else count], extent, devices)

    def _on_boards(self, node: Node, split: Split, own: Sequence[str], near: Sequence[int], plan: _Partial) -> Iterator[Split]:
        """A node on boards alone: whole, as the guide divides it, cut to fill a board, or by channels where they were made."""
        whole = self.shares.of(node, None, 0, 1)
        fitting = [b for b in near if whole is not None and holds(plan.budget.left[b], whole)]
        yield from (whole_on(self.boards[b]) for b in fitting)
        if len(own) > 1:
            yield from (self._renamed(split, own, chosen) for chosen in self._near_each_other(near, len(own)))
        if self.problem.off_grid:
            yield from self._filling(node, plan, [b for b in near if b not in fitting], near)
            yield from self._summed(node, plan)
            if split.axis is Axis.INPUT_CHANNELS:
                yield from self._by_channels(node, plan)

    def _filling(self, node: Node, plan: _Partial, some: Sequence[int], near: Sequence[int]) -> Iterator[Split]:
        """A node whose first filters fill one of some boards and whose others go on another near it."""
        for axis, extent in self.shares.filters(node).items():
            for a in some:
                first = self.shares.most(node, axis, 0, extent - 1, plan.budget.left[a])
                for b in near if first else ():
                    if a != b and self.hops[a][b] <= REACH:
                        yield divide(axis, [first], extent, [self.boards[a], self.boards[b]])

    def _summed(self, node: Node, plan: _Partial) -> Iterator[Split]:
        """A node on the two boards that made the channels it reads: each part flows on.

        Sums go where a later node has its other inputs, or to one of the two.
        """
        extent, parts = self.shares.extent(node, Axis.INPUT_CHANNELS), plan.places[node.inputs[0]].parts
        if extent == 0 or len(parts) != 2 or len(set(node.inputs)) > 1 or not all(d in self.number for d, _ in parts):
            return
        (first, upper), (second, lower) = parts
        if upper[1][0] != 0 or upper[1][1] != lower[1][0] or lower[1][1] != extent:
            return
        later = [t for other in self.problem.graph.consumers(node.output) for t in other.inputs if t in plan.places]
        homes = dict.fromkeys([*(d for t in later for d, _ in plan.places[t].parts if d in self.number), first, second])
        yield from (divide(Axis.INPUT_CHANNELS, [upper[1][1]], extent, [first, second], home) for home in homes)

    def _by_channels(self, node: Node, plan: _Partial) -> Iterator[Split]:
        """A node whose input channels go on the boards with most room; sums go to any of them."""
        roomy = self._emptiest(plan)
        for some in (roomy, sorted(roomy, key=lambda b: self.home[b])):
            if (spread := self._spread(node, plan, some, Axis.INPUT_CHANNELS)) is not None:
                yield from (Split(spread.axis, spread.pieces, home) for home in reversed(spread.devices))

    def elsewhere(self, node: Node, plan: _Partial) -> Iterator[Split]:
        """Where a node may go that finds no room near its inputs: on the boards with most room, wherever they are, or the host.

        A board with a part of what the node reads would get that back by way of the host: it is also tried without these.
        """
        roomy, whole = self._emptiest(plan), self.shares.of(node, None, 0, 1)
        holding = self._holding(node, plan)
        if whole is not None:
            yield from (whole_on(self.boards[b]) for b in roomy[:ROOMY] if holds(plan.budget.left[b], whole))
        if self.problem.off_grid:
            for axis in self.shares.filters(node):
                for boards in (roomy, [b for b in roomy if b not in holding]):
                    if (spread := self._spread(node, plan, boards, axis)) is not None:
                        yield spread
            yield from self._by_channels(node, plan)
        yield whole_on(self.problem.platform.host)

    def _emptiest(self, plan: _Partial) -> list[int]:
        return sorted(range(len(self.boards)), key=lambda b: -min(plan.budget.left[b]))

    def _spread(self, node: Node, plan: _Partial, boards: Sequence[int], axis: Axis) -> Split | None:
        """A node's filters on one board after another, as many as each has room for; None where that is not all of them."""
        extent, cuts, taken, start = self.shares.extent(node, axis), list[int](), list[str](), 0
        for b in boards if extent > 1 else ():
            if count := self.shares.most(node, axis, start, extent, plan.budget.left[b]):
                start += count
                cuts.append(start)
                taken.append(self.boards[b])
            if start == extent:
                return divide(axis, cuts[:-1], extent, taken) if len(taken) > 1 else None
        return None

    def extended(self, plan: _Partial, node: Node, split: Split) -> _Extension | None:
        """A partial plan with one more node; None where boards have no room for it or cannot run it."""
        sizes = [(p.device, self.shares.of_piece(node, split, p)) for p in split.pieces if p.device in self.number]
        if split.reducer in self.number and split.reducer not in split.devices:
            sizes.append((split.reducer, self.shares.of_sums(node, split)))
        budget = plan.budget
        if sizes:
            left, total = list(budget.left), budget.total
            for device, size in sizes:
                b = self.number[device]
                if size is None or not holds(left[b], size):
                    return None
                left[b], total = less(left[b], size), less(total, size)
            budget = _Budget(tuple(left), total, budget.used | {self.number[d] for d, _ in sizes})
        spend("placements", 1)
        spent = self._spent(plan, node, split)
        return None if spent is None else _Extension(plan, split, budget, plan.seconds + spent[0], plan.joules + spent[1])

    def partial(self, new: _Extension, node: Node) -> _Partial:
        """The partial plan that an extension makes."""
        return _Partial({**new.plan.splits, node.name: new.split},
                        {**new.plan.places, node.output: output_place(self.problem, node, new.split)}, new.budget, new.seconds,
                        new.joules)

    def _spent(self, plan: _Partial, node: Node, split: Split) -> tuple[float, float] | None:
        """Seconds and joules of a node; the same, to a heuristic, on any boards as far from each other."""
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

    def _alike(self, plan: _Partial, node: Node, split: Split) -> tuple[object, ...] | None:
        """What splits and places on other boards, as far from each other, have in common; None where the host has a part."""
        if split.reducer is not None:
            return None
        shares: list[tuple[str, object]] = [(p.device, (p.start, p.stop)) for p in split.pieces]
        shares += [part for t in node.inputs for part in plan.places[t].parts]
        found: list[object] = [node.name, split.axis, *(share for _, share in shares)]
        boards = [self.number.get(device, -1) for device, _ in shares]
        if -1 in boards:
            return None
        return (*found, *(plan.places[t].stream_s for t in node.inputs), *(self.hops[a][b] for a, b in combinations(boards, 2)))
