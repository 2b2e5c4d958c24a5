"""Boards filled to the brim: a plan of the pool whose parts fit on no board as they are is poured over them, cut anywhere.

Candidates divide nodes in quarters. Where large nodes fill a few boards almost wholly, parts of other sizes fit: node by node, a
node goes whole on a board with room, or fills what is left of one board, or of two, and the rest of it goes on another. A few
beginnings are kept, judged as the evaluator does; what is found is a plan, and no candidate.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from dovetail.cost.estimate import Floats
from dovetail.errors import UnsupportedError
from dovetail.ir import Axis, Node
from dovetail.partition.cuts import Network
from dovetail.partition.evaluate import cost_node, evaluate
from dovetail.partition.exact import solve_network
from dovetail.partition.plan import Assignment, Piece, Split, whole_on
from dovetail.partition.pool import Pool
from dovetail.partition.problem import TOLERANCE, Problem, axes_of, price_pieces
from dovetail.partition.work import Place, input_places, output_place, work_of

WIDTH, ALIKE = 24, 3
"""Beginnings kept, and how many of them may have left their last tensor in the same place."""
LARGE = 0.05
"""Part of a board beyond which a node is divided."""
LABELS, NEAR = 20_000, 1e-4
"""Labels kept per node for the plan of the pool, and how near its best it may be."""
JUDGED = 4
"""Whole plans judged at the end."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """The first nodes of a plan, and what is left of every board (boards x resources, as fractions)."""

    splits: Mapping[str, Split]
    places: Mapping[str, Place]
    left: Floats
    seconds: float
    joules: float


def poured(net: Network, problem: Problem, pool: Pool, plans: list[tuple[float, float]], prices: Mapping[str, float],
           seconds: float) -> list[Assignment]:
    """Plans of the pool better than some `plans`, poured over the boards; none where none was found in about so many seconds."""
    ending = time.thread_time() + seconds
    answer = solve_network(net, plans, ending, LABELS, tolerance=NEAR, start=prices)
    found = [pour(problem, pool, a, ending + seconds) for a in answer.assignments[-1:]]
    return [plan for plan in found if plan is not None]


def pour(problem: Problem, pool: Pool, assignment: Assignment, deadline: float) -> Assignment | None:
    """A plan that keeps on boards what the pool's plan has on FPGAs alone, as good as was found; None where that fails."""
    sizes = _Sizes(problem, pool)
    plans = [_Begun({}, input_places(problem), np.ones((len(pool.boards), len(sizes.limits))), 0.0, 0.0)]
    for node in problem.graph.nodes:
        if time.thread_time() > deadline:
            return None
        split = assignment[node.name]
        free = node.name not in problem.fixed and all(d in pool.stand_ins for d in split.devices)
        grown = [new for plan in plans for way in (sizes.ways(node, plan) if free else [split])
                 if (new := _extended(problem, sizes, plan, node, way)) is not None]
        grown.sort(key=lambda p: problem.score(p.seconds, p.joules))
        plans = _kept(grown, node)
    judged = [(evaluate(problem, p.splits), p.splits) for p in plans[:JUDGED]]
    legal = [(e, a) for e, a in judged if e.feasible]
    if not legal:
        return None
    return min(legal, key=lambda pair: pair[0].objective)[1]


def _kept(grown: Sequence[_Begun], node: Node) -> list[_Begun]:
    """The best beginnings, not too many of which go on from the same place."""
    found, alike = list[_Begun](), dict[tuple[str, ...], int]()
    for plan in grown:
        where = tuple(sorted(d for d, _ in plan.places[node.output].parts))
        if len(found) < WIDTH and alike.get(where, 0) < ALIKE:
            found.append(plan)
            alike[where] = alike.get(where, 0) + 1
    return found


def _extended(problem: Problem, sizes: _Sizes, plan: _Begun, node: Node, split: Split) -> _Begun | None:
    left = sizes.after(node, split, plan.left)
    if left is None:
        return None
    try:
        cost = cost_node(problem, node, split, work_of(problem, node, split, plan.places))
    except UnsupportedError:
        return None
    return _Begun({**plan.splits, node.name: split}, {**plan.places, node.output: output_place(problem, node, split)}, left,
                  plan.seconds + cost.latency_s, plan.joules + cost.energy_j)


class _Sizes:
    """What shares of nodes take of a board, and the ways to put a node on boards with some room."""

    def __init__(self, problem: Problem, pool: Pool) -> None:
        self.problem, self.boards = problem, pool.boards
        self.limits = {r: limit for r, limit in problem.platform.device(pool.boards[0]).resources.items() if limit > 0}
        self.filled: dict[str, tuple[Floats, Floats] | None] = {}

    def size(self, node: Node, axis: Axis | None, start: int, stop: int) -> Floats | None:
        """Fractions of a board's limits that a share takes; None where it cannot run there."""
        found = price_pieces(self.problem, node, axis, self.boards[0], [(start, stop)])
        if found is None or (start, stop) not in found:
            return None
        taken = dict(found[start, stop].resources)
        return np.array([taken.get(r, 0.0) / limit for r, limit in self.limits.items()])

    def after(self, node: Node, split: Split, left: Floats) -> Floats | None:
        """What is left of the boards with one more node; None where it does not fit. No sums are made on boards."""
        if split.reducer in self.boards:
            return None
        found = left.copy()
        for p in split.pieces:
            if p.device in self.boards:
                size = self.size(node, split.axis, p.start, p.stop)
                if size is None:
                    return None
                found[self.boards.index(p.device)] -= size
        return found if (found >= -TOLERANCE).all() else None

    def ways(self, node: Node, plan: _Begun) -> Iterator[Split]:
        """A node whole on one board, or divided by filters among those that it fills and one more."""
        whole, holding = self.size(node, None, 0, 1), {d for place in plan.places.values() for d, _ in place.parts}
        offered = list[int]()
        for b, name in enumerate(self.boards):  # of boards that nothing is on yet, another is no better
            if name in holding or plan.left[b].min() < 1 or not any(plan.left[o].min() >= 1 for o in offered):
                offered.append(b)
        if whole is not None:
            yield from (whole_on(self.boards[b]) for b in offered if (plan.left[b] >= whole - TOLERANCE).all())
        edges = self.edges(node) if whole is None or whole.max() > LARGE else None
        if edges is None:
            return
        extent = len(edges[0]) + 1
        fill = {b: self.most(edges[0], plan.left[b]) for b in offered}
        for a, b in permutations(offered, 2):
            if 0 < fill[a] < extent:
                yield self.divided([a, b], [fill[a]], extent)
        for a, b, c in permutations(offered, 3):
            last = self.most(edges[1][::-1], plan.left[c])
            if a < b and 0 < fill[a] < extent - last and last > 0:
                yield self.divided([a, b, c], [fill[a], extent - last], extent)

    def edges(self, node: Node) -> tuple[Floats, Floats] | None:
        """What the first and the last filters of a node take, for every number of them; None where it is not divided."""
        if node.name not in self.filled:
            extent = axes_of(self.problem, node).get(Axis.OUTPUT_CHANNELS, 1)
            self.filled[node.name] = self._edges(node, extent) if extent > 1 else None
        return self.filled[node.name]

    def _edges(self, node: Node, extent: int) -> tuple[Floats, Floats] | None:
        asked = [*((0, k) for k in range(1, extent)), *((k, extent) for k in range(1, extent))]
        if price_pieces(self.problem, node, Axis.OUTPUT_CHANNELS, self.boards[0], asked) is None:
            return None
        found = [self.size(node, Axis.OUTPUT_CHANNELS, a, b) for a, b in asked]
        every = np.array([np.full(len(self.limits), np.inf) if size is None else size for size in found])
        return every[:extent - 1], every[extent - 1:]

    def most(self, growing: Floats, room: Floats) -> int:
        """How many filters fit into some room."""
        return int((growing <= room + TOLERANCE).all(axis=1).sum())

    def divided(self, boards: Sequence[int], cuts: Sequence[int], extent: int) -> Split:
        ends = zip((0, *cuts), (*cuts, extent), strict=True)
        return Split(Axis.OUTPUT_CHANNELS, tuple(Piece(self.boards[b], a, z) for b, (a, z) in zip(boards, ends, strict=True)))
