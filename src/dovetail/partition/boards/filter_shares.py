"""How many filters of nodes that boards share go on each, so that all fit.

A board that shares only one node whose filters are not yet divided takes as many of them as it holds: no other use is left for
its room. What is left goes on the others, until all nodes are divided. Where that leaves a part of a filter too much somewhere,
cuts of two nodes at a time are weighed against each other: of one node a board takes a filter more or less, of two nearly any
amount, as filters differ in size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations
from math import inf

import numpy as np

from dovetail.hardware.shares import Floats, Ints
from dovetail.ir import Axis, Node
from dovetail.partition.boards.assignment import size_of
from dovetail.partition.boards.relaxation import Pool
from dovetail.partition.candidates import divide, even_cuts
from dovetail.partition.effort import spend
from dovetail.partition.plan import Assignment, Split
from dovetail.partition.problem import TOLERANCE, Problem, axes_of, price_pieces

COARSE = 12
"""Parts between which filters that three boards share are cut where cuts are weighed against each other."""
PROGRESS = 0.1
"""By how much boards must have less too much for cuts to be weighed again."""


class Sizes:
    """What shares of nodes take of a board, as fractions of its limits."""

    def __init__(self, problem: Problem, pool: Pool) -> None:
        self.problem, self.pool, self.boards = problem, pool, pool.boards
        resources = problem.platform.device(pool.boards[0]).resources
        self.limits = {r: limit for r, limit in resources.items() if limit > 0}
        self.limited: Ints = np.flatnonzero([limit > 0 for limit in resources.values()])
        self.edges: dict[str, tuple[Floats, Floats] | None] = {}
        self.known: dict[tuple[str, Axis | None, int, int], Floats | None] = {}
        self.plain: dict[tuple[str, Axis | None, int, int], tuple[float, ...] | None] = {}
        self.asked: set[tuple[str, Axis | None, tuple[int, int], tuple[int, int]]] = set()

    def of(self, node: Node, axis: Axis | None, start: int, stop: int) -> Floats | None:
        """Fractions that a share takes; None where it cannot run there."""
        key = (node.name, axis, start, stop)
        if key not in self.known:
            found = price_pieces(self.problem, node, axis, self.boards[0], [(start, stop)])
            taken = dict(found[start, stop].resources) if found is not None and (start, stop) in found else None
            self.known[key] = None if taken is None else np.array([taken.get(r, 0.0) / x for r, x in self.limits.items()])
        return self.known[key]

    def plainly(self, node: Node, axis: Axis | None, start: int, stop: int) -> tuple[float, ...] | None:
        """The same in plain numbers, which are compared with what is left of one board far sooner than arrays."""
        key = (node.name, axis, start, stop)
        if key not in self.plain:
            found = self.of(node, axis, start, stop)
            self.plain[key] = None if found is None else tuple(found.tolist())
        return self.plain[key]

    def ask(self, node: Node, axis: Axis, shares: Sequence[tuple[int, int]]) -> None:
        """Learn what shares take that grow from the first to the last of them: one question takes as long for all as for one."""
        key = (node.name, axis, shares[0], shares[-1])
        if key not in self.asked:
            self.asked.add(key)
            price_pieces(self.problem, node, axis, self.boards[0], shares)

    def extent(self, node: Node) -> int:
        return axes_of(self.problem, node).get(Axis.OUTPUT_CHANNELS, 1)

    def even(self, node: Node, boards: Sequence[int]) -> tuple[Split, Floats] | None:
        """A node's filters divided evenly among boards, and what all of them take; None where it is not divided so."""
        extent = self.extent(node)
        if extent < len(boards):
            return None
        edges = (0, *even_cuts(extent, len(boards)), extent)
        sizes = [self.of(node, Axis.OUTPUT_CHANNELS, a, b) for a, b in pairwise(edges)]
        if any(s is None for s in sizes):
            return None
        split = divide(Axis.OUTPUT_CHANNELS, edges[1:-1], extent, [self.boards[b] for b in boards])
        return split, np.sum([s for s in sizes if s is not None], axis=0)

    def growing(self, node: Node, last: bool) -> Floats:
        """What the first, or the last, filters of a node take, for every number of them below all."""
        extent = self.extent(node)
        known = self.edges.get(node.name)
        if known is None:
            asked = [*((0, k) for k in range(1, extent)), *((k, extent) for k in range(extent - 1, 0, -1))]
            price_pieces(self.problem, node, Axis.OUTPUT_CHANNELS, self.boards[0], asked)
            found = [self.of(node, Axis.OUTPUT_CHANNELS, a, b) for a, b in asked]
            every = np.array([np.full(len(self.limits), np.inf) if size is None else size for size in found])
            known = self.edges[node.name] = every[:extent - 1], every[extent - 1:]
        return known[last]


def brimmed(problem: Problem, sizes: Sizes, splits: Mapping[str, Split], weighed: bool = True) -> Assignment | None:
    """The plan with the filters of all nodes that boards alone share cut so that no board has too many; None where that fails.

    If not `weighed`, only one node after another is cut, which fails more often and takes no time.
    """
    boards, left = {b: i for i, b in enumerate(sizes.boards)}, np.ones((len(sizes.boards), len(sizes.limits)))
    shared: dict[str, list[int]] = {}
    for node in problem.graph.nodes:
        split = splits[node.name]
        if len(split.pieces) > 1 and split.axis is Axis.OUTPUT_CHANNELS and all(d in boards for d in split.devices):
            shared[node.name] = [boards[d] for d in split.devices]
            continue
        for p in split.pieces:
            if p.device in boards:
                left[boards[p.device]] -= size_of(problem, sizes.pool, node, split, p)[sizes.limited]
    if (left < -TOLERANCE).any():
        return None
    nodes = {name: problem.graph.node(name) for name in shared}
    cuts = _one_by_one(sizes, nodes, shared, left.copy())
    if cuts is None and weighed:
        cuts = _weighed(sizes, nodes, shared, left)
    return None if cuts is None else {**splits, **cuts}


def _one_by_one(sizes: Sizes, nodes: Mapping[str, Node], shared: Mapping[str, list[int]], left: Floats) -> Assignment | None:
    """Cuts of one node after another, which leave no board with too many filters; None where that fails."""
    found, to_cut = dict[str, Split](), dict(shared)
    while to_cut:
        name = min(to_cut, key=lambda n: (_others(to_cut, n), -len(to_cut[n])))
        cut = _divided(sizes, nodes[name], to_cut.pop(name), to_cut, left)
        if cut is None:
            return None
        found[name] = cut
    return found


def _weighed(sizes: Sizes, nodes: Mapping[str, Node], shared: Mapping[str, Sequence[int]], left: Floats) -> Assignment | None:
    """Cuts of all nodes, two changed at a time as long as boards have less too much; None where some still has."""
    ways = [_Cuts.of(sizes, nodes[name], boards) for name, boards in shared.items()]
    slack = left.sum(axis=0) - sum(w.least for w in ways)
    if (slack < -TOLERANCE).any():
        return None
    ways = [w.within(slack + TOLERANCE) for w in ways]
    scarce = (sum(w.loads.max(axis=0) for w in ways) > left).any(axis=0)
    chance = np.random.default_rng(0)
    chosen = _exchanged([w.loads[..., scarce] for w in ways], left[:, scarce], [int(chance.integers(len(w))) for w in ways])
    if chosen is None:
        return None
    return {name: way.split(sizes, nodes[name], c) for name, way, c in zip(shared, ways, chosen, strict=True)}


def _exchanged(loads: Sequence[Floats], left: Floats, chosen: list[int]) -> list[int] | None:
    """A way for each node (loads: ways x boards x resources), two changed at a time, so that all fit; None where this ends."""
    over = sum((own[c] for own, c in zip(loads, chosen, strict=True)), -left)
    least = inf
    while (now := float(np.maximum(over, 0.0).max(axis=-1).sum())) < least * (1 - PROGRESS) and (over > TOLERANCE).any():
        least = now
        for i, j in combinations(range(len(loads)), 2):
            rest = over - loads[i][chosen[i]] - loads[j][chosen[j]]
            both = np.maximum((rest + loads[i])[:, None] + loads[j][None], 0.0)
            excess = (both.max(axis=-1) if both.shape[-1] > 1 else both[..., 0]).sum(axis=-1)
            chosen[i], chosen[j] = (int(x) for x in np.unravel_index(excess.argmin(), excess.shape))
            over = rest + loads[i][chosen[i]] + loads[j][chosen[j]]
            spend("cuts", 1, both.size)
    return None if (over > TOLERANCE).any() else chosen


@dataclass(frozen=True, slots=True)
class _Cuts:
    """Ways to divide a node's filters among boards: cuts, boards in order, and what that takes (ways x boards x resources)."""

    cuts: tuple[tuple[int, ...], ...]
    orders: tuple[tuple[int, ...], ...]
    loads: Floats

    @staticmethod
    def of(sizes: Sizes, node: Node, boards: Sequence[int]) -> _Cuts:
        """Every cut between two boards, a few between more, in whatever order."""
        extent, orders = sizes.extent(node), list(permutations(boards))
        if len(boards) == 2:
            cuts: list[tuple[int, ...]] = [(k,) for k in range(1, extent)]
            pieces = np.stack([sizes.growing(node, last=False), sizes.growing(node, last=True)[::-1]], axis=1)
        else:
            cuts = list(combinations(even_cuts(extent, min(extent, COARSE)), len(boards) - 1))
            asked = sorted({piece for c in cuts for piece in pairwise((0, *c, extent))})
            price_pieces(sizes.problem, node, Axis.OUTPUT_CHANNELS, sizes.boards[0], asked)
            known = {p: np.full(len(sizes.limits), inf) if (size := sizes.of(node, Axis.OUTPUT_CHANNELS, *p)) is None else size
                     for p in asked}
            pieces = np.array([[known[p] for p in pairwise((0, *c, extent))] for c in cuts])
        loads = np.zeros((len(orders), len(cuts), len(sizes.boards), len(sizes.limits)))
        for own, order in zip(loads, orders, strict=True):
            own[:, list(order)] = pieces
        return _Cuts(tuple(cuts) * len(orders), tuple(o for o in orders for _ in cuts), loads.reshape(-1, *loads.shape[2:]))

    def __len__(self) -> int:
        return len(self.cuts)

    @property
    def least(self) -> Floats:
        """The least that a way takes of all boards together."""
        found: Floats = self.loads.sum(axis=1).min(axis=0)
        return found

    def within(self, slack: Floats) -> _Cuts:
        """The ways that take no more than so much above the least."""
        kept = np.flatnonzero((self.loads.sum(axis=1) <= self.least + slack).all(axis=1)).tolist()
        return _Cuts(tuple(self.cuts[i] for i in kept), tuple(self.orders[i] for i in kept), self.loads[kept])

    def split(self, sizes: Sizes, node: Node, chosen: int) -> Split:
        return divide(Axis.OUTPUT_CHANNELS, self.cuts[chosen], sizes.extent(node), [sizes.boards[b] for b in self.orders[chosen]])


def _others(shared: Mapping[str, Sequence[int]], name: str) -> int:
    """How many boards of a node share another one as well, beyond the one that what is left may go on."""
    return max(0, sum(any(b in other for n, other in shared.items() if n != name) for b in shared[name]) - 1)


def _divided(sizes: Sizes, node: Node, boards: Sequence[int], shared: Mapping[str, Sequence[int]],
             left: Floats) -> Split | None:
    """A node's filters on boards, which have less left afterwards: as many as fit on those that share no other node."""
    wanted = {b: sum(b in other for other in shared.values()) for b in boards}
    # Those at both ends are filled; the middle, or the last of two, takes what is left and may still be shared with others.
    first, *rest = sorted(boards, key=lambda b: (wanted[b], left[b].min()))
    extent = sizes.extent(node)
    begin = int((sizes.growing(node, last=False) <= left[first] + TOLERANCE).all(axis=1).sum())
    end = int((sizes.growing(node, last=True) <= left[rest[0]] + TOLERANCE).all(axis=1).sum()) if len(rest) > 1 else 0
    begin = min(begin, extent - len(rest))
    order, cuts = [first, *rest], [begin]
    if len(rest) > 1:
        end = min(end, extent - begin - 1)
        order, cuts = [first, rest[1], rest[0]], [begin, extent - end]
    if begin < 1 or (len(rest) > 1 and end < 1):
        return None
    edges = (0, *cuts, extent)
    for b, (start, stop) in zip(order, pairwise(edges), strict=True):
        size = sizes.of(node, Axis.OUTPUT_CHANNELS, start, stop)
        if size is None or (left[b] < size - TOLERANCE).any():
            return None
        left[b] -= size
    return divide(Axis.OUTPUT_CHANNELS, cuts, extent, [sizes.boards[b] for b in order])
