"""Cuts around a plan, all weighed against each other: what moving one cut after another (`refine`) cannot find.

Candidates are a grid; a plan found over it has its cuts moved one by one. But a unit more here may be worth a unit less there, or
a neighbour on another device. So nodes get further columns around where the plan cuts them, and as their neighbours are cut, and
shares of a few units for devices of limited area; the exact solver then chooses among all of them once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from dovetail.ir import Axis, Node
from dovetail.partition.candidates import FEW_DEVICES, divide
from dovetail.partition.plan import Assignment, Goal, Split
from dovetail.partition.problem import Problem, axes_of
from dovetail.partition.tables.quotes import capable

STEPS = (1, 2, 4, 8, 16, 32, 64)
"""Units by which the cuts of a plan are offered to move, up to a sixteenth of their axis.

Chosen: powers of two; half or double of each gives the same plans (bench/constants.py).
"""
FEW = (1, 2, 3, 4, 6, 8, 12)
"""Units that a device of limited area is offered of an axis.

Chosen: half or double of each gives the same plans (bench/constants.py).
"""
FILTERS = (Axis.OUTPUT_CHANNELS, Axis.GROUPS)


def worth_finer(problem: Problem) -> bool:
    """Whether a network can be planned again with other cuts: over few devices, for a goal that adds up over its nodes."""
    return (len(problem.devices) <= FEW_DEVICES and not problem.more
            and problem.goal is not Goal.THROUGHPUT)


def finer_splits(problem: Problem, plan: Assignment) -> dict[str, tuple[Split, ...]]:
    """Per node the splits worth a look once a plan is known; nodes without any are missing."""
    found: dict[str, tuple[Split, ...]] = {}
    for node in problem.graph.nodes:
        able = [d for d in problem.devices if capable(problem, node, d)]
        if node.name in problem.fixed or len(able) < 2:
            continue
        splits = dict.fromkeys([*_around(plan[node.name]), *_small(problem, node, able), *_alongside(problem, node, plan, able)])
        if splits:
            found[node.name] = tuple(splits)
    return found


def _around(split: Split) -> Iterator[Split]:
    """The split itself, and with one cut a little elsewhere."""
    if split.axis is None:
        return
    yield split
    extent, cuts = split.pieces[-1].stop, [p.stop for p in split.pieces[:-1]]
    for i, cut in enumerate(cuts):
        for step in (s for s in STEPS if s <= max(1, extent // 16)):
            for moved in (cut - step, cut + step):
                yield from _legal(split, [*cuts[:i], moved, *cuts[i + 1:]], extent)


def _small(problem: Problem, node: Node, able: Sequence[str]) -> Iterator[Split]:
    """A few filters for a device of limited area, beside one without."""
    for axis in (a for a in FILTERS if a in axes_of(problem, node) and node.params):
        extent = axes_of(problem, node)[axis]
        for a, b in combinations(able, 2):
            limited = [bool(problem.platform.device(d).resources) for d in (a, b)]
            if limited[0] != limited[1]:
                for units in (u for u in FEW if u < extent):
                    yield divide(axis, (units if limited[0] else extent - units,), extent, (a, b))


def _alongside(problem: Problem, node: Node, plan: Assignment, able: Sequence[str]) -> Iterator[Split]:
    """As the plan divides what the node reads, or what reads it."""
    makers = [p for t in node.inputs if (p := problem.graph.producer(t)) is not None]
    for other in (*makers, *problem.graph.consumers(node.output)):
        leader = plan[other.name]
        if leader.axis is None or leader.reducer is not None or not set(leader.devices) <= set(able):
            continue
        wanted = (Axis.ROWS,) if leader.axis is Axis.ROWS else FILTERS
        for axis in (a for a in wanted if a in axes_of(problem, node)):
            extent, whole = axes_of(problem, node)[axis], leader.pieces[-1].stop
            cuts = [round(p.stop * extent / whole) for p in leader.pieces[:-1]]
            if all(a < b for a, b in pairwise((0, *cuts, extent))):
                yield divide(axis, cuts, extent, leader.devices)


def _legal(split: Split, cuts: list[int], extent: int) -> Iterator[Split]:
    if split.axis is not None and all(a < b for a, b in pairwise((0, *cuts, extent))):
        yield divide(split.axis, cuts, extent, split.devices, split.reducer)
