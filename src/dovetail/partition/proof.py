"""Bounds held against plans: a bound above a plan that it covers is our own mistake, and is never hidden."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dovetail.errors import InternalError
from dovetail.partition.columns import Options, options
from dovetail.partition.evaluate import Evaluation
from dovetail.partition.plan import Assignment, Split
from dovetail.partition.problem import TOLERANCE, Problem

SLACK = 10 * TOLERANCE
"""Relative excess of a bound over a plan that is rounding: sums are taken in another order than the evaluator's, and a plan may
exceed limits by `TOLERANCE`, of which prices on several limits make a few times as much."""


def check_bound(source: str, bound: float, objective: float, slack: float = SLACK) -> None:
    """InternalError if a bound, which `source` names, is above the objective of a plan that it covers."""
    if bound > objective + slack * abs(objective):
        raise InternalError(f"{source}: its lower bound {bound:.9g} is above a plan that it covers, of {objective:.9g}; "
                            "the bound is wrong, and no plan is given with it")


def check_bound_over(problem: Problem, source: str, bound: float, plans: Iterable[tuple[Assignment, Evaluation]]) -> None:
    """The same for every legal plan over the candidates; plans with cuts between them, which no bound covers, are passed over."""
    for assignment, judged in plans:
        objective = problem.score(judged.latency_s, judged.energy_j, judged.interval_s)
        if judged.feasible and bound > objective and on_grid(problem, assignment):
            check_bound(source, bound, objective)


def on_grid(problem: Problem, assignment: Assignment) -> bool:
    """Whether every node is divided as one of its candidates is: bounds hold over such plans."""
    return all(_offered(options(problem, n), assignment[n.name]) for n in problem.graph.nodes)


def _offered(own: Options, split: Split) -> bool:
    """Whether a split is one of the columns."""
    if any(own.pattern.made.get(i) == split for i in own.columns.tolist()):  # a given split may name devices in any order
        return True
    at, every = {d: i for i, d in enumerate(own.pattern.devices)}, own.pattern.columns
    if split.axis not in every.axes:
        return False
    start, stop = np.zeros((2, len(at)), dtype=np.int64)
    for p in split.pieces:
        start[at[p.device]], stop[at[p.device]] = p.start, p.stop
    alike = every.axis[own.columns] == every.axes.index(split.axis)
    alike &= own.reducer == (-1 if split.reducer is None else at[split.reducer])
    alike &= ((every.start[own.columns] == start) & (every.stop[own.columns] == stop)).all(axis=1)
    return bool(alike.any())
