"""Bounds held against plans: a bound above a plan that it covers is our own mistake, and is never hidden."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.errors import InternalError
from dovetail.partition.evaluate import Evaluation
from dovetail.partition.exact.every_way import bound_every_way
from dovetail.partition.parallel.block_steps import offered
from dovetail.partition.plan import Assignment, Goal, Split
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import PricedSplits, options
from dovetail.partition.tolerances import TOLERANCE

SLACK = 10 * TOLERANCE
"""Relative excess of a bound over a plan that is rounding:

sums are taken in another order than the evaluator's, and a plan may exceed limits by `TOLERANCE`, of which prices on several
limits make a few times as much. Chosen: ten times as much.
"""


def check_bound(source: str, bound: float, objective: float, slack: float = SLACK) -> None:
    """InternalError if a bound, which `source` names, is above the objective of a plan that it covers."""
    if _above(bound, objective, slack):
        raise InternalError(f"{source}: its lower bound {bound:.9g} is above a plan that it covers, of {objective:.9g}; "
                            "the bound is wrong, and no plan is given with it")


def _above(bound: float, objective: float, slack: float = SLACK) -> bool:
    return bound > objective + slack * abs(objective)


def check_bound_over(problem: Problem, source: str, bound: float, plans: Iterable[tuple[Assignment, Evaluation]]) -> None:
    """The same for every legal plan that a search looks at; those with cuts between the candidates, and those whose branches run
    at once in ways that no jump has, are passed over.
    """
    for assignment, objective in _below(problem, bound, plans):
        if looked_at(problem, assignment):
            check_bound(source, bound, objective)


def looked_at(problem: Problem, assignment: Assignment) -> bool:
    """Whether branches at once are where jumps put them; how often a frame can follow another does not depend on them."""
    return problem.goal is Goal.THROUGHPUT or all(offered(problem, b, assignment) for b in problem.blocks)


def _below(problem: Problem, bound: float, plans: Iterable[tuple[Assignment, Evaluation]]) -> list[tuple[Assignment, float]]:
    """Legal plans over the candidates below a bound by more than rounding, with their objectives."""
    every = [(a, e, problem.score(e.latency_s, e.energy_j, e.interval_s)) for a, e in plans]
    return [(a, objective) for a, e, objective in every if e.feasible and _above(bound, objective) and on_grid(problem, a)]


def hold_over(problem: Problem, source: str, bound: float, plans: Sequence[tuple[Assignment, Evaluation]],
              deadline: float) -> float:
    """A bound that holds over all given plans over the candidates: where one runs branches at once in a way that was not looked
    at, and is better than a bound over what was, the relaxation of all ways gives the bound.
    """
    check_bound_over(problem, source, bound, plans)
    below = [objective for a, objective in _below(problem, bound, plans) if not looked_at(problem, a)]
    if not below:
        return bound
    best = min((e for a, e in plans if e.feasible), key=lambda e: problem.score(e.latency_s, e.energy_j, e.interval_s))
    bound = min(bound, bound_every_way(problem, (best.latency_s, best.energy_j), deadline))
    for objective in below:
        check_bound(f"{source}, over all ways to run branches at once", bound, objective)
    return bound


def on_grid(problem: Problem, assignment: Assignment) -> bool:
    """Whether every node is divided as one of its candidates is: bounds hold over such plans."""
    return all(_offered(options(problem, n), assignment[n.name]) for n in problem.graph.nodes)


def _offered(own: PricedSplits, split: Split) -> bool:
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
