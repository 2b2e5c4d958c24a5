"""A limit on the interval between frames: what every processor and direction of a link may be busy with per frame.

Each of these times adds up over the nodes of a plan, whether branches run at once or not, so each is one more limit of a
network (`cuts`). Engines of an FPGA count by themselves: columns with a slower one are left out from the start (`columns`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.effort import halfway
from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.exact.cuts import Limit, Network
from dovetail.partition.exact.solver import Answer
from dovetail.partition.geometric.rounding import Polish
from dovetail.partition.interval.tables import busy_table, shared_names
from dovetail.partition.parallel.block_steps import Jump, whole_columns
from dovetail.partition.plan import Assignment, Goal
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import Held
from dovetail.partition.tolerances import CLOSE

PER_FRAME = " per frame"
"""Ends the names of these limits."""

Solver = Callable[[Problem, list[tuple[Assignment, Evaluation]], float, float], tuple[Answer, tuple[str, ...]]]


def paced(net: Network, known: Mapping[str, Held]) -> Network:
    """The network with the limits of its problem's interval that can bind; `known` says where tensors can be.

    No column may have been dropped for another that keeps something busy for longer.
    """
    limit = net.problem.max_interval_s
    if limit is None:
        return net
    busy = [busy_table(net.problem, table.options, known) for table in net.tables]
    found: list[Limit] = []
    for name in shared_names(net.problem):
        tables = [own.shared[name] / limit if name in own.shared else np.zeros(table.latency_s.shape)
                  for own, table in zip(busy, net.tables, strict=True)]
        if sum(float(own.max(initial=0.0)) for own in tables) > 1:
            given = (*tables, *(_over(net, jump, tables) for jump in net.jumps))
            found.append(Limit(f"{name}{PER_FRAME}", None, limit, given=given))
    return replace(net, limits=(*net.limits, *found))


def plans_in_time(problem: Problem, deadline: float, solve: Solver) -> list[tuple[Assignment, Evaluation]]:
    """Plans that keep the limit: the best without it, and those of the shortest interval, changed node by node until they do."""
    found: list[Assignment] = []
    for goal in (problem.goal, Goal.THROUGHPUT):
        freed = replace(problem, goal=goal, max_interval_s=None)
        answer, _ = solve(freed, [], _part(deadline), CLOSE)
        judged = [(evaluate(freed, a), a) for a in (*answer.assignments, *answer.off_grid)]
        found += [a for _, a in sorted(judged, key=lambda pair: pair[0].interval_s)[:1]]
        found += [a for _, a in sorted(judged, key=lambda pair: pair[0].objective)[:1]]
    kept: list[tuple[Assignment, Evaluation]] = []
    for start in found:
        changed = Polish(problem, (), start, _part(deadline))
        changed.run()
        kept += [(changed.best, changed.judged)] if changed.judged.feasible else []
    return kept


def _part(deadline: float) -> float:
    """An eighth of the time left, for each of two searches and up to four changes: more than half is left after them."""
    return halfway(halfway(halfway(deadline)))


def _over(net: Network, jump: Jump, tables: Sequence[Floats]) -> Floats:
    """What the nodes of a jump keep busy, for every place of what the block reads and every column: as much as one by one."""
    found = np.zeros(jump.latency_s.shape)
    inside: dict[str, Ints] = {}
    for group, members in enumerate(jump.groups):
        for node in members:
            k = net.problem.order[node.name]
            table = net.tables[k]
            wholes = whole_columns(table.options)
            columns = np.array([wholes[d] for d in jump.devices[:, group].tolist()], dtype=np.int64)
            entry = [inside[t] if t in inside else _axis(jump, t, found.shape) for t in table.inputs]
            found += tables[k][(*entry, columns)]
            inside[node.output] = table.place_of[columns]
    return found


def _axis(jump: Jump, tensor: str, shape: tuple[int, ...]) -> Ints:
    """All places of a tensor that a block reads, along its axis of the jump."""
    at = jump.inputs.index(tensor)
    return np.arange(shape[at]).reshape(*(-1 if i == at else 1 for i in range(len(shape))))
