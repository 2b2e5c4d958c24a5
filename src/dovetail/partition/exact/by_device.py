"""The exact search with every device by itself: a tree ranks columns, what beats no known plan is struck, cuts solve the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf

from dovetail.partition.effort import halfway
from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.exact.cuts import Network, network
from dovetail.partition.exact.elimination import CORE, CORE_LIMIT, Ranking, rank, thin
from dovetail.partition.exact.energy_delay import Point
from dovetail.partition.exact.every_way import bound_every_way
from dovetail.partition.exact.labels import FEW_LABELS, MOST_LABELS
from dovetail.partition.exact.separate_bound import strike_dear
from dovetail.partition.exact.solver import Answer, solve_network
from dovetail.partition.exact.tree import TREES, Tree, relaxed_tree, tree_of
from dovetail.partition.explain.baselines import beam
from dovetail.partition.explain.bound_notes import ONE_INPUT, TOO_WIDE, binding_note, bound_note, many_ways_note
from dovetail.partition.explain.infeasibility import no_column, no_plan
from dovetail.partition.interval.limits import paced
from dovetail.partition.memo import Cache
from dovetail.partition.parallel.block_steps import jumps, left_out
from dovetail.partition.plan import Assignment, Goal
from dovetail.partition.problem import Problem
from dovetail.partition.proof import check_bound_over
from dovetail.partition.tables.columns import PricedSplits, compacted, inputs_held, options
from dovetail.partition.tables.costs import narrowed, prune, tabulate_all, variable_inputs
from dovetail.partition.tables.transfers import wide

FEW_MORE = 2
"""Times as many columns as the first search looks at:

where no more are left, the full search begins at once. Chosen: any value from 1 to 4 gives the same plans (bench/constants.py).
"""
NEAR = 0.02
"""How far above the tree's bound, as a fraction, the best plan is looked for first:

few columns are left so near to it. Chosen: any value from 0.01 to 0.04 gives the same plans (bench/constants.py).
"""
BEAM = 16
"""Beginnings kept where too many tensors are alive at once to solve over cuts.

Chosen: any value from 8 to 32 gives the same plans (bench/constants.py).
"""

Known = list[tuple[Assignment, Evaluation]]
"""Legal plans met before, with their judgement."""
JUDGED = Cache[tuple[object, ...], Evaluation]()


@dataclass(frozen=True, slots=True)
class _Ranked:
    """All columns, the tree made of them and what it says of each; `prices` on limits to begin with."""

    choices: list[PricedSplits]
    tree: Tree
    ranking: Ranking


def by_device(problem: Problem, known: Known, deadline: float, tolerance: float,
              ceiling: float = inf) -> tuple[Answer, tuple[str, ...]]:
    """The best plan over all candidates, the search's bound on them, and notes on what it covers.

    Plans above a `ceiling`, an objective that is reached elsewhere, are not searched for, and the bound is not above it.
    """
    answer, notes = _searched(problem, known, deadline, tolerance, ceiling)
    legal = [(a, e) for a in answer.assignments if (e := judge(problem, a)).feasible]
    return over_every_way(problem, answer, notes, [*known, *legal], deadline)


def over_every_way(problem: Problem, answer: Answer, notes: tuple[str, ...], known: Known,
                   deadline: float) -> tuple[Answer, tuple[str, ...]]:
    """An answer whose bound holds over all ways to run branches at once on the devices that jumps look at."""
    if not left_out(problem, near=True):
        return answer, notes
    every = bound_every_way(problem, best_of(problem, points_of(known)), deadline)
    if every >= answer.lower_bound:
        return answer, notes
    return replace(answer, lower_bound=every), (*notes, many_ways_note(problem))


def _searched(problem: Problem, known: Known, deadline: float, tolerance: float,
              ceiling: float) -> tuple[Answer, tuple[str, ...]]:
    """The same for plans whose branches run at once in the ways that jumps have."""
    choices = choices_of(problem)
    plans = points_of(known) + reached_elsewhere(problem, ceiling)
    best = best_of(problem, plans)
    if problem.memo.of(TREES) or best is None:
        tree = tree_of(problem)
    else:
        # One plan, one tree: what is too dear even without transfers need not be in it.
        choices = strike_dear(problem, choices, best, deadline)
        if not all(len(c) for c in choices):
            return Answer((), problem.score(*best)), (bound_note(problem, choices, choices),)
        choices = choices if wide(problem) else compacted(choices)  # arrays of few devices span the columns asked for
        tree = relaxed_tree(problem, choices)
    ranking = rank(problem, tree, best, deadline)
    if problem.max_latency_s is None and problem.max_energy_j is None:  # limits that add up what may run at once
        check_bound_over(problem, "the relaxation that ranks candidates", min(ranking.bound, ceiling), known)  # cut off later
    if best is not None and problem.goal is not Goal.EDP and ranking.few(choices, problem.score(*best), CORE, FEW_MORE):
        near = min(problem.score(*best), ranking.bound * (1 + NEAR))
        ranked = _Ranked(choices, tree, ranking)
        found = _below(problem, ranked, plans, near, deadline, tolerance) if near < problem.score(*best) else None
        return found or _closed(problem, ranked, plans, ranking.prices, deadline, tolerance)
    first = _over(problem, tree, ranking, ranking.core(choices, CORE), plans, halfway(deadline),
                  tolerance)
    met, prices = (first.assignments, first.prices or ranking.prices) if first is not None else ((), ranking.prices)
    plans += [(e.latency_s, e.energy_j) for a in met if (e := judge(problem, a)).feasible]
    if problem.goal is Goal.EDP and met:
        ranking = rank(problem, tree, best_of(problem, plans), deadline)
    answer, notes = _closed(problem, _Ranked(choices, tree, ranking), plans, prices, deadline, tolerance)
    return replace(answer, assignments=(*met, *answer.assignments)), notes


def _below(problem: Problem, ranked: _Ranked, plans: list[Point], near: float, deadline: float,
           tolerance: float) -> tuple[Answer, tuple[str, ...]] | None:
    """The best plan if it costs no more than `near`, over the few columns that such a plan may use; None if none was found."""
    point = (near, 0.0) if problem.goal is Goal.LATENCY else (0.0, near)
    answer, notes = _closed(problem, ranked, [*plans, point], ranked.ranking.prices, deadline, tolerance)
    met = [problem.score(e.latency_s, e.energy_j) for a in answer.assignments if (e := judge(problem, a)).feasible]
    return (answer, notes) if min(met, default=inf) <= near else None


def _closed(problem: Problem, ranked: _Ranked, plans: list[Point], prices: Mapping[str, float], deadline: float,
            tolerance: float) -> tuple[Answer, tuple[str, ...]]:
    """The best plan over the columns that one better than all of `plans` may use."""
    best = best_of(problem, plans)
    goal = inf if best is None else problem.score(*best)
    left = ranked.ranking.strike(ranked.choices, goal * (1 - tolerance))
    if not all(len(c) for c in left):
        return Answer((), goal * (1 - tolerance)), (bound_note(problem, ranked.choices, ranked.choices),)
    kept = thin(problem, left, bounds=ranked.ranking.of(ranked.choices, left))
    if kept is None:
        return Answer(whole_beam(problem), ranked.ranking.bound), (f"{ONE_INPUT}; {TOO_WIDE}",)
    net = network_over(problem, ranked.tree, kept)
    answer = solve_network(net, plans, deadline, MOST_LABELS, tolerance=tolerance, start=prices)
    if answer.proven_infeasible and all(len(a) == len(b) for a, b in zip(left, kept, strict=True)):
        raise no_plan(net, lambda rest: not solve_network(rest, [], deadline, MOST_LABELS).proven_infeasible)
    over_kept = min(answer.lower_bound, goal * (1 - tolerance)) if tolerance else answer.lower_bound
    over_left = min(over_kept, ranked.ranking.without(ranked.choices, left, kept))
    bound = max(over_left, min(goal, ranked.ranking.bound))
    return Answer(answer.assignments, bound), (bound_note(problem, left, kept), *binding_note(problem, answer))


def whole_beam(problem: Problem) -> tuple[Assignment, ...]:
    """A plan of whole placements, for networks too wide for cuts."""
    found = beam(problem, lambda n: [s for s in options(problem, n).splits if s.axis is None], BEAM)
    return (found,) if found is not None else ()


def choices_of(problem: Problem) -> list[PricedSplits]:
    """Candidate columns of all nodes; InfeasibleError if a node has none."""
    choices = [options(problem, n) for n in problem.graph.nodes]
    missing = no_column(problem, choices)
    if missing is not None:
        raise missing
    return choices


def judge(problem: Problem, found: Assignment) -> Evaluation:
    """`evaluate` of what a search found, which nobody changes; remembered, as it is asked for again when the plan is chosen."""
    # Searches for other goals remember in the same place.
    key, known = (problem.goal, problem.max_interval_s, *[found[n.name] for n in problem.graph.nodes]), problem.memo.of(JUDGED)
    if key not in known:
        known[key] = evaluate(problem, found)
    return known[key]


def points_of(known: Known) -> list[Point]:
    return [(e.latency_s, e.energy_j) for _, e in known]


def reached_elsewhere(problem: Problem, ceiling: float) -> list[Point]:
    """A ceiling as a plan would reach it."""
    if ceiling == inf or problem.goal is Goal.EDP:
        return []
    return [(0.0, ceiling) if problem.goal is Goal.ENERGY else (ceiling, 0.0)]


def best_of(problem: Problem, plans: list[Point]) -> Point | None:
    return min(plans, key=lambda p: problem.score(*p), default=None)


def _over(problem: Problem, tree: Tree, ranking: Ranking, core: list[PricedSplits], plans: list[Point],
          deadline: float, tolerance: float) -> Answer | None:
    """The best over the most promising columns; None where even whole placements are too many."""
    kept = thin(problem, core, CORE_LIMIT)
    if kept is None:
        return None
    return solve_network(network_over(problem, tree, kept), plans, deadline, FEW_LABELS, tolerance, ranking.prices)


def network_over(problem: Problem, tree: Tree, choices: list[PricedSplits]) -> Network:
    """Tables over the given columns; those of nodes that read one tensor are in the tree already."""
    known = inputs_held(problem) | {c.node.output: c.held for c in choices}
    before = {t.node.output: t.options.held for t in tree.tables}
    whole = [full.inputs == variable_inputs(problem, own.node) for full, own in zip(tree.tables, choices, strict=True)]
    others = iter(tabulate_all(problem, [own for own, known_whole in zip(choices, whole, strict=True) if not known_whole], known))
    tables = (narrowed(full, own, [(before[t], known[t]) for t in full.inputs]) if known_whole else next(others)
              for full, own, known_whole in zip(tree.tables, choices, whole, strict=True))
    return paced(network(problem, tuple(prune(problem, t) for t in tables), jumps(problem, choices, known)), known)
