"""Boards filled to the brim: a plan of the pool whose parts fit on no board as they are is poured over them, cut anywhere.

Candidates divide nodes in quarters. Where boards are filled almost wholly, parts of other sizes fit: a node that two boards share
joins what is left of them, as its filters go where there is room. Which boards share which nodes is looked for first, a few
beginnings at a time, judged as the evaluator does; that filters can be found for all of them is Hall's condition: what any set of
boards must hold alone is no more than they do. How many filters go where is decided at the end (`brimming`). What is found is a
plan, and no candidate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, permutations
from operator import or_

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.hardware.shares import Floats
from dovetail.ir import Axis, Node
from dovetail.partition.boards.assignment import size_of
from dovetail.partition.boards.filter_shares import Sizes, brimmed
from dovetail.partition.boards.node_moves import renamed
from dovetail.partition.boards.relaxation import Pool
from dovetail.partition.effort import spend, worked
from dovetail.partition.evaluate import Evaluation, cost_node, evaluate
from dovetail.partition.parallel.overlap import arm_devices
from dovetail.partition.plan import Assignment, Split, whole_on
from dovetail.partition.problem import TOLERANCE, Problem
from dovetail.partition.work import Place, input_places, output_place, work_of

WIDTH, ALIKE = 80, 4
"""Beginnings kept, and how many of them may have left their last tensor in the same place."""
LARGE, LARGER = 0.05, 0.4
"""Parts of a board beyond which a node is divided among two, and among three."""
RESERVE, MOST_RESERVE = 0.5, 5e-3
"""Part of what is left of all boards at the most that is kept for the cuts at the end first, and no more of it, in boards."""
MOST_BOARDS = 4
"""Boards of which every set is looked at."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """The first nodes of a plan, and what every set of boards must hold of them alone (sets x resources, in boards)."""

    splits: Mapping[str, Split]
    places: Mapping[str, Place]
    held: Floats
    used: int
    """Boards that something is on, as a sum of powers of two."""
    seconds: float
    joules: float
    shared: int
    """How many nodes boards share: they join what is left of these."""


@dataclass(frozen=True, slots=True)
class _Way:
    """A split, what sets of boards hold of it together, and all boards it is on."""

    split: Split
    taken: tuple[tuple[int, Floats], ...]
    boards: int
    where: tuple[str, ...]
    """Devices that its output is on."""


@dataclass(frozen=True, slots=True)
class _Grown:
    """A beginning and a way for its next node."""

    plan: _Begun
    way: _Way
    held: Floats
    seconds: float
    joules: float
    shared: int


def pour(problem: Problem, pool: Pool, assignment: Assignment, deadline: float, enough: float = 0.0) -> Assignment | None:
    """A plan that keeps on boards what the pool's plan has on FPGAs alone, as good as was found; None where that fails.

    The boards of a plan of at most `enough` are not put in another order.
    """
    if len(pool.boards) > MOST_BOARDS:
        return None
    ways, judged = _Ways(problem, pool, assignment), list[tuple[Evaluation, Assignment]]()
    for reserve in (RESERVE, 0.0):
        # The cheapest first: once one has found room, others are not worth much time.
        for begun in _begun(problem, ways, ways.in_all(reserve), deadline):
            plan = brimmed(problem, ways.sizes, begun.splits, not judged and worked() < deadline)
            if plan is not None and (e := evaluate(problem, plan)).feasible:
                judged.append((e, plan))
        if judged:
            best, chosen = min(judged, key=lambda pair: pair[0].objective)
            return chosen if best.objective <= enough else _turned(problem, pool, chosen, best)
    return None


def _begun(problem: Problem, ways: _Ways, most: Floats, deadline: float) -> list[_Begun]:
    """The best ways for all nodes that take no more than so much of all boards together; none where time ends before."""
    plans = [_Begun({}, input_places(problem), np.zeros((len(ways.room), len(most))), 0, 0.0, 0.0, 0)]
    for node, later in zip(problem.graph.nodes, ways.later, strict=True):
        if worked() > deadline:
            return []
        grown = [new for plan in plans for way, held in ways.of(node, plan, most - later)
                 if (new := ways.grown(plan, node, way, held)) is not None]
        grown.sort(key=lambda new: problem.score(new.seconds, new.joules))
        plans = [ways.extended(new, node) for new in _kept(grown)]
    return plans


def _turned(problem: Problem, pool: Pool, assignment: Assignment, judged: Evaluation) -> Assignment:
    """The plan with its boards in whatever order around the ring is best."""
    every = ({n: renamed(s, dict(zip(pool.boards, order, strict=True))) for n, s in assignment.items()}
             for order in permutations(pool.boards))
    return min([(judged.objective, 0, assignment), *((e.objective, i, a) for i, a in enumerate(every, 1)
                                                     if (e := evaluate(problem, a)).feasible)])[2]


def _kept(grown: Sequence[_Grown]) -> list[_Grown]:
    """The best, not too many of which go on from the same place and with as many nodes shared."""
    found, alike = list[_Grown](), Counter[tuple[int, tuple[str, ...]]]()
    for new in grown:
        where = (new.shared, new.way.where)
        if len(found) < WIDTH and alike[where] < ALIKE:
            found.append(new)
            alike[where] += 1
    return found


class _Ways:
    """The ways to put nodes on boards with some room."""

    def __init__(self, problem: Problem, pool: Pool, assignment: Assignment) -> None:
        self.problem, self.pool, self.sizes, self.assignment = problem, pool, Sizes(problem, pool), assignment
        self.arms = {n.name: arm[0].name for block in problem.blocks if arm_devices(block, assignment) is not None
                     for arm in block.arms for n in arm}
        """Nodes of arms that run at once, each whole where the first of its arm is."""
        sets = np.arange(1 << len(pool.boards))
        self.within: Floats = ((sets[:, None] & ~sets[None]) == 0).astype(np.float64)
        """Whether a set (row) is part of another."""
        self.room = np.array([s.bit_count() for s in sets.tolist()])[:, None] * (1 + TOLERANCE)
        self.known: dict[str, tuple[list[_Way], Floats]] = {}
        least = np.array([self._known(node)[1][:, -1].min(axis=0) for node in problem.graph.nodes])
        self.later: Floats = np.cumsum(least[::-1], axis=0)[::-1] - least
        """The least that the nodes behind each take of all boards together: divided nodes often take less than whole ones."""
        self.slack: Floats = self.room[-1] - least.sum(axis=0)
        """What is left of all boards together at the most."""

    def in_all(self, reserve: float) -> Floats:
        """What all boards together may hold if a part of the slack is left: cuts find room for filters where there is some."""
        found: Floats = self.room[-1] - np.clip(reserve * self.slack, 0.0, MOST_RESERVE)
        return found

    def _known(self, node: Node) -> tuple[list[_Way], Floats]:
        """All ways of a node, and what every set of boards must hold of each alone (ways x sets x resources)."""
        if node.name not in self.known:
            every = [_Way(split, taken, reduce(or_, (s for s, _ in taken), 0),
                          split.devices if split.reducer is None else (split.reducer,)) for split, taken in self._every(node)]
            held = np.zeros((max(1, len(every)), *self.within.shape[:1], len(self.sizes.limits)))
            for own, way in zip(held, every, strict=False):
                for boards, size in way.taken:
                    own += self.within[boards][:, None] * size
            self.known[node.name] = every, held
        return self.known[node.name]

    def of(self, node: Node, plan: _Begun, most: Floats) -> Iterator[tuple[_Way, Floats]]:
        """The ways with which boards have room, and all hold no more than `most`, with what sets of boards then hold alone.

        Of boards that nothing is on yet, another is no better than the first.
        """
        arm = plan.splits.get(self.arms.get(node.name, ""))
        every, own = self._known(node)
        held = plan.held + own
        fits = np.logical_and((held <= self.room).all(axis=(1, 2)), (held[:, -1] <= most).all(axis=1))
        for way, after, roomy in zip(every, held, fits.tolist(), strict=False):
            fresh = way.boards & ~plan.used
            if (roomy or not way.taken) and (arm is None or way.split == arm) and (
                    not fresh or _first(fresh, plan.used, len(self.pool.boards))):
                yield way, after

    def _every(self, node: Node) -> Iterator[tuple[Split, tuple[tuple[int, Floats], ...]]]:
        """A node as the pool has it, where that is not on FPGAs alone, but on any boards; else whole on one, or shared."""
        boards, split = self.pool.boards, self.assignment[node.name]
        own = [d for d in dict.fromkeys((*split.devices, split.reducer)) if d in boards]
        if not all(d in boards for d in split.devices):
            for order in permutations(boards, len(own)):
                other = renamed(split, dict(zip(own, order, strict=True)))
                taken = ((p, size_of(self.problem, self.pool, node, other, p)) for p in other.pieces if p.device in boards)
                yield other, tuple((1 << boards.index(p.device), size[self.sizes.limited]) for p, size in taken)
            return
        whole = self.sizes.of(node, None, 0, 1)
        if whole is not None:
            yield from ((whole_on(name), ((1 << b, whole),)) for b, name in enumerate(boards))
        if node.name in self.arms:
            return
        most = 0.0 if whole is None else float(whole.max())
        for count, least in ((2, LARGE), (3, LARGER)):
            for chosen in combinations(range(len(boards)), count) if whole is None or most > least else ():
                even, single = self.sizes.even(node, chosen), self.sizes.of(node, Axis.OUTPUT_CHANNELS, 0, 1)
                if even is not None and single is not None:  # a board that shares a node has at least a filter of it
                    rest = sum(1 << b for b in chosen), even[1] - count * single
                    yield even[0], (*((1 << b, single) for b in chosen), rest)

    def grown(self, plan: _Begun, node: Node, way: _Way, held: Floats) -> _Grown | None:
        """The beginning with one more node, after which sets of boards hold so much alone; None where boards cannot run it."""
        try:
            cost = cost_node(self.problem, node, way.split, work_of(self.problem, node, way.split, plan.places))
        except UnsupportedError:
            return None
        spend("pourings", 1)
        return _Grown(plan, way, held, plan.seconds + cost.latency_s, plan.joules + cost.energy_j,
                      plan.shared + (way.split.axis is Axis.OUTPUT_CHANNELS))

    def extended(self, new: _Grown, node: Node) -> _Begun:
        plan, split = new.plan, new.way.split
        return _Begun({**plan.splits, node.name: split},
                      {**plan.places, node.output: output_place(self.problem, node, split)}, new.held,
                      plan.used | new.way.boards, new.seconds, new.joules, new.shared)


def _first(fresh: int, used: int, count: int) -> bool:
    """Whether boards that are new are the first of those that nothing is on."""
    free = [b for b in range(count) if not used >> b & 1]
    return fresh == sum(1 << b for b in free[:fresh.bit_count()])
