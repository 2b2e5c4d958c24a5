"""Planning from graph and platform to a judged, bounded, explained plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from math import inf

from dovetail.errors import InfeasibleError, UsageError
from dovetail.ir import Graph
from dovetail.partition.boards.solver import crowded, of_boards, over_boards, pooled_problem
from dovetail.partition.columns import CHOICES, options
from dovetail.partition.cost_model import CostModel
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.effort import counted, worked
from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.exact.by_device import (
    Known,
    best_of,
    by_device,
    choices_of,
    judge,
    network_over,
    over_every_way,
    points_of,
    whole_beam,
)
from dovetail.partition.exact.elimination import Ranking, rank
from dovetail.partition.exact.finer import finer_splits, worth_finer
from dovetail.partition.exact.refine import SHOWN, refine, refined_note
from dovetail.partition.exact.solver import Answer
from dovetail.partition.exact.tree import TREES, Tree, relaxed_tree, tree_of
from dovetail.partition.explain.baselines import BASELINES, balanced, best_single, chance, greedy, objectives
from dovetail.partition.explain.bound_notes import ONE_INPUT, TOO_WIDE, binding_note, bound_note, many_ways_note
from dovetail.partition.explain.infeasibility import INTERVAL, missed
from dovetail.partition.explain.reasons_per_node import at_once_note, explain
from dovetail.partition.explain.runners_up import RunnerUp, rivals_of, runners_up
from dovetail.partition.explain.thrift import spare
from dovetail.partition.gc_pause import uncollected
from dovetail.partition.interval.limits import plans_in_time
from dovetail.partition.interval.ranking import rank_interval
from dovetail.partition.interval.solver import shortest_interval
from dovetail.partition.judged import ROUNDING, finished
from dovetail.partition.plan import Assignment, Goal, Mode, Plan
from dovetail.partition.problem import Problem
from dovetail.partition.proof import hold_over
from dovetail.partition.shared_kernels import kernels_note
from dovetail.partition.tables.timing import TIMED
from dovetail.partition.work import check_split
from dovetail.platform.device import Platform

EXPLAINED_S, FEW_NODES = 3e-3, 100
"""What explanations and moved cuts take per node, of the nodes beyond so many: time that the search leaves them."""
TIMELY = 0.6
"""Part of the time within which comparisons with plans in which nodes are elsewhere are begun."""
FAST_SHARE, FAST_GAP, FAST_NODES = 0.5, 1e-3, 300
"""Part of the time for the fastest plan of equal boards, with which the search for the shortest interval begins, how near the
best that need be, and nodes beyond which it takes too long."""
FINER, FINER_SHARE, FINER_GAIN = 3, 0.1, 1e-5
"""Times cuts are weighed against each other at most, the part of the time that each may take, and what it must bring."""


def exact(problem: Problem, known: Known, deadline: float, tolerance: float = 0.0) -> tuple[Answer, tuple[str, ...]]:
    """A tree relaxation ranks columns; the best few give a good plan; what cannot beat it is struck; cuts solve the rest.

    With a `tolerance`, plans better by less than this fraction are not searched for.
    """
    if problem.goal is Goal.THROUGHPUT:
        return _interval(problem, known, deadline, tolerance)
    if problem.max_interval_s is not None and not known and (in_time := plans_in_time(problem, deadline, exact)):
        answer, notes = exact(problem, in_time, deadline, tolerance)
        return replace(answer, assignments=(*(a for a, _ in in_time), *answer.assignments)), notes
    pooled = pooled_problem(problem)
    if pooled is None:
        return by_device(problem, known, deadline, tolerance)
    found = over_boards(problem, pooled, points_of(known), deadline, tolerance, network_over)
    if found is None:
        return by_device(problem, known, deadline, tolerance)
    notes = (bound_note(pooled, found.left, found.kept), *of_boards(problem), *binding_note(problem, found.answer))
    if found.close:
        return found.answer, notes
    plans = [(a, e) for a in found.answer.assignments if (e := evaluate(problem, a)).feasible]
    closer, others = by_device(problem, [*known, *plans], deadline, tolerance)
    lower, notes = max((found.answer.lower_bound, notes), (closer.lower_bound, others), key=lambda pair: pair[0])
    return replace(closer, assignments=(*found.answer.assignments, *closer.assignments), lower_bound=lower,
                   off_grid=found.answer.off_grid), notes


def _interval(problem: Problem, known: Known, deadline: float, tolerance: float) -> tuple[Answer, tuple[str, ...]]:
    """The shortest interval between frames; where nothing overlaps, that is the shortest latency."""
    if problem.mode is Mode.SEQUENTIAL:
        return exact(replace(problem, goal=Goal.LATENCY), known, deadline, tolerance)
    first: tuple[Assignment, ...] = ()
    loose: tuple[Assignment, ...] = ()
    fast, now = replace(problem, goal=Goal.LATENCY), worked()
    if not known:  # any plan within the limits, or the reason why there is none
        begin, _ = exact(fast, known, deadline, tolerance)
        first, loose = begin.assignments, begin.off_grid
    elif len(problem.graph.nodes) <= FAST_NODES and pooled_problem(fast) is not None:
        # Of boards that are alike, which nodes are on which is best known of fast plans.
        begin, _ = exact(fast, known, now + FAST_SHARE * (deadline - now), FAST_GAP)
        first, loose = begin.assignments, begin.off_grid
    judged = [(e.interval_s, i) for i, a in enumerate(first) if (e := evaluate(problem, a)).feasible]
    others = [e.interval_s for e in [*(e for _, e in known), *(evaluate(problem, a) for a in loose)] if e.feasible]
    ceiling = min([*others, *(interval for interval, _ in judged)], default=inf)
    choices = choices_of(problem)
    begun = first[min(judged)[1]] if judged else None
    answer, left, kept = shortest_interval(problem, choices, tree_of(problem), ceiling, deadline, begun)
    if problem.blocks and (problem.max_latency_s is not None or problem.max_energy_j is not None):
        # Arms that run at once take less time than the tables say: the bound must not count on limits that add it up.
        free = replace(problem, max_latency_s=None, max_energy_j=None)
        answer = replace(answer, lower_bound=min(answer.lower_bound, rank_interval(free, tree_of(free), ceiling, deadline).bound))
    if _eased(problem) != problem:  # plans kept their limits even without branches at once; the bound must not rely on that
        eased, *_ = shortest_interval(_eased(problem), choices, tree_of(problem), ceiling, deadline)
        answer = replace(answer, lower_bound=min(answer.lower_bound, eased.lower_bound))
    wide = () if kept is not None else whole_beam(problem)
    note = f"{ONE_INPUT}; {TOO_WIDE}" if kept is None else bound_note(problem, left, kept)
    return replace(answer, assignments=(*first, *answer.assignments, *wide), off_grid=loose), (note,)


def _eased(problem: Problem) -> Problem:
    """Without limits on what branches at once take less of than the sum of their nodes."""
    return replace(problem, max_latency_s=None, max_energy_j=None) if problem.blocks else problem


def _ranked(problem: Problem, known: Known, deadline: float, tree: Tree) -> Ranking:
    """Bounds of a tree's columns for any goal."""
    if problem.goal is not Goal.THROUGHPUT:
        return rank(problem, tree, best_of(problem, points_of(known)), deadline)
    if problem.mode is Mode.SEQUENTIAL:
        return rank(replace(problem, goal=Goal.LATENCY), tree, best_of(problem, points_of(known)), deadline)
    return rank_interval(_eased(problem), tree, min((e.interval_s for _, e in known), default=inf), deadline)


def _heuristic(choose: Callable[[Problem], Assignment | None]) -> Callable[..., tuple[Answer, tuple[str, ...]]]:
    def run(problem: Problem, known: Known, deadline: float) -> tuple[Answer, tuple[str, ...]]:
        choices_of(problem)
        ranking = _ranked(problem, known, deadline, tree_of(problem))
        found = choose(problem)
        answer = Answer((found,) if found is not None else (), ranking.bound)
        return (answer, (ONE_INPUT,)) if problem.goal is Goal.THROUGHPUT else over_every_way(
            problem, answer, (ONE_INPUT,), known, deadline)
    return run


def _geometric(module: str, name: str) -> Callable[..., tuple[Answer, tuple[str, ...]]]:
    """A geometric programming solver, which has no bound of its own; imported when asked for, as its packages are large."""
    def run(problem: Problem, known: Known, deadline: float) -> tuple[Answer, tuple[str, ...]]:
        choose: Callable[[Problem, float], tuple[tuple[Assignment, ...], tuple[str, ...]]] = getattr(
            import_module(f"dovetail.partition.geometric.{module}"), name)
        bounded, notes = _heuristic(lambda _: None)(problem, known, deadline)
        found, own = choose(problem, deadline)
        return replace(bounded, assignments=found), (*notes, *own)
    return run


def _or_baseline(solver: Callable[[Problem, Known, float], tuple[Answer, tuple[str, ...]]]) -> Callable[
        ..., tuple[Answer, tuple[str, ...]]]:
    """A solver whose plan gives way to a better baseline, which is said."""
    def run(problem: Problem, known: Known, deadline: float) -> tuple[Answer, tuple[str, ...]]:
        answer, notes = solver(problem, known, deadline)
        own = min((e.objective for a in answer.assignments if (e := evaluate(problem, a)).feasible), default=inf)
        plain, judged = min(known, key=lambda pair: pair[1].objective, default=(None, None))
        if plain is None or judged is None or judged.objective >= own:
            return answer, notes
        worse = "found no plan within the limits" if own == inf else f"its own plan is {own / judged.objective - 1:.2%} worse"
        return replace(answer, assignments=(plain,)), (*notes, f"gp: {worse}; this is the best baseline")
    return run


SOLVERS: dict[str, Callable[[Problem, Known, float], tuple[Answer, tuple[str, ...]]]] = {
    "exact": exact,
    "greedy": _heuristic(greedy),
    "balanced": _heuristic(balanced),
    "random": _heuristic(chance),
    "single": _heuristic(best_single),
    "gp": _or_baseline(_geometric("solver", "gp")),
    "gp-paper": _geometric("paper_plan", "gp_paper"),
    "gp-paper-one-by-one": _geometric("paper_plan", "gp_paper_one_by_one"),
    "gp-paper-constant-power": _geometric("paper_plan", "gp_paper_constant_power"),
}


@uncollected()
def plan(graph: Graph, platform: Platform, goal: Goal = Goal.LATENCY, mode: Mode = Mode.CONCURRENT, solver: str = "exact",
         budget: str = "shared", max_latency_s: float | None = None, max_energy_j: float | None = None,
         time_limit_s: float = 4.0, fixed: Assignment | None = None, costs: CostModel | None = None,
         thrift: float = 0.0, rivals: bool = False, off_grid: bool = False, explained: bool = True,
         max_interval_s: float | None = None) -> Plan:
    """The best plan a solver finds, judged by `evaluate`, with a bound no candidate plan can beat.

    `exact` is never worse than the best baseline; `budget` is `shared` or `per_layer`; `fixed` pins nodes to given splits.
    `max_interval_s` is how far apart pipelined frames may be; in sequential mode, where they are not, it limits latency.
    Raises InfeasibleError naming the limit and by how much it is missed, UsageError for unknown options. `makespan_s` is
    left to the schedule. `thrift` is the fraction of the objective that `exact` may give up to save limited resources, though
    never so much that a baseline would be better.
    `off_grid` lets `exact` move the cuts of its plan between the positions it proves its bound over, and, if `explained`, weigh
    them against each other.
    `rivals` compares each node with the best plan in which it is elsewhere, which takes about half as long as the plan itself and
    is not begun once most of the time is used up; if not `explained`, nodes carry no sentences, for those who ask for the plan
    and its proof alone.
    `time_limit_s` counts the search's work, in seconds that it takes on one machine (see `effort`): neither another machine nor
    other load changes plans. In large networks `exact` counts what baselines took and explanations will take as well, as long as
    half of the time is left to search in. Where computing takes several times as long, the search is cut short, and notes say so.
    """
    if not 0 <= thrift < 1:
        raise UsageError(f"thrift {thrift:g}: a fraction of the objective from 0 to below 1 is possible, such as 0.01")
    if solver not in SOLVERS:
        raise UsageError(f"solver {solver}: unknown; possible: {', '.join(SOLVERS)}")
    if budget not in ("shared", "per_layer"):
        raise UsageError(f"budget {budget}: unknown; possible: shared, per_layer")
    if mode is Mode.SEQUENTIAL and max_interval_s is not None:
        max_latency_s, max_interval_s = min(max_interval_s, inf if max_latency_s is None else max_latency_s), None
    problem = Problem(graph, platform, costs if costs is not None else DeviceCosts(), goal, mode, budget == "shared",
                      max_latency_s, max_energy_j, max_interval_s, dict(fixed or {}), off_grid=off_grid)
    if not graph.nodes:
        raise UsageError(f"model {graph.name}: it has no nodes; there is nothing to plan")
    for name, split in problem.fixed.items():
        check_split(problem, graph.node(name), split)
    with counted(time_limit_s) as meter:
        found = _planned(problem, graph, solver, time_limit_s, thrift, rivals, explained)
        return replace(found, notes=(*found.notes, meter.note())) if meter.hurried else found


def _planned(problem: Problem, graph: Graph, solver: str, time_limit_s: float, thrift: float, rivals: bool,
             explained: bool) -> Plan:
    """The plan, with work counted from here on."""
    first = {name: choose(problem) for name, choose in BASELINES.items()}
    judged = {name: (a, evaluate(problem, a)) for name, a in first.items() if a is not None}
    known = [(a, e) for a, e in judged.values() if e.feasible]
    try:
        answer, notes = SOLVERS[solver](problem, known, _deadline(time_limit_s, len(graph.nodes), solver, explained))
    except InfeasibleError as error:
        raise _by_how_much(problem, time_limit_s) or error from None
    found = [(a, judge(problem, a)) for a in answer.assignments]
    legal = [(a, e) for a, e in found if e.feasible] + (known if solver == "exact" else [])
    if not legal:
        raise (_by_how_much(problem, time_limit_s) if solver == "exact" else None) or _nothing_found(problem, solver, found)
    assignment, best = min(legal, key=lambda pair: pair[1].objective)
    values = objectives(problem, {name: e for name, (_, e) in judged.items()})
    grid, on_grid = assignment, best.objective
    if problem.off_grid and solver == "exact":
        assignment, best = _off_grid(problem, assignment, best, answer.off_grid, time_limit_s if explained else 0.0)
    lower = hold_over(problem, f"solver {solver}", answer.lower_bound, [*legal, (assignment, best)], worked() + time_limit_s)
    if lower < answer.lower_bound:
        answer, notes = replace(answer, lower_bound=lower), (*notes, many_ways_note(problem))
    moved, before = assignment, best.objective
    spared = ""
    left_out = f"not found by solver {solver}" if solver != "exact" else "not reached before the search ended"
    if thrift > 0 and solver == "exact":
        others = [*(v for v in values.values() if v is not None), *(e.objective for _, e in known)]
        ceiling = min([best.objective * (1 + thrift), *(v for v in others if v >= best.objective)])
        saved = spare(problem, assignment, best, ceiling)
        assignment, best, spared = saved.assignment, saved.evaluation, saved.note
        left_out = "given up by thrift to save area" if saved.note else left_out
    notes = (*notes, *refined_note(grid, moved, assignment, on_grid, before), *filter(None, [spared]))
    sentences: dict[str, str] = {}
    if explained:
        timely = worked() < TIMELY * time_limit_s
        elsewhere = _others(problem, assignment, best) if rivals and timely and not crowded(problem) else None
        sentences = explain(problem, assignment, best, left_out, elsewhere)
    notes = (*notes, *at_once_note(problem, assignment, best), *kernels_note(problem, assignment))
    problem.memo.of(TIMED).clear()  # it leads back to the problem, which would be left for the collector
    found_plan = finished(problem, graph, solver, assignment, best, answer.lower_bound, values, notes, sentences)
    beyond = max(0.0, answer.lower_bound / before - 1) if problem.off_grid and before > 0 else 0.0
    found_plan = replace(found_plan, beyond=beyond if beyond >= SHOWN else 0.0)
    return found_plan if best.objective == before else replace(found_plan, best_objective=before)


def _off_grid(problem: Problem, assignment: Assignment, best: Evaluation, met: Sequence[Assignment],
              limit_s: float) -> tuple[Assignment, Evaluation]:
    """The plan with its cuts moved anywhere: one after another, then, in small networks and time, weighed against each other."""
    for loose, judged in ((a, evaluate(problem, a)) for a in met):
        if judged.feasible and judged.objective < best.objective:
            assignment, best = loose, judged
    assignment, best = refine(problem, assignment, best)
    for _ in range(FINER if limit_s > 0 and worth_finer(problem) else 0):
        wider = problem.offering(finer_splits(problem, assignment))
        answer, _ = exact(wider, [(assignment, best)], worked() + FINER_SHARE * limit_s, FINER_GAIN)
        found = [(a, e) for a in answer.assignments if (e := evaluate(problem, a)).feasible]
        again, judged = min(found, key=lambda pair: pair[1].objective, default=(assignment, best))
        if judged.objective >= best.objective * (1 - FINER_GAIN):
            break
        assignment, best = refine(problem, again, judged)
    return assignment, best


def _others(problem: Problem, assignment: Assignment, best: Evaluation) -> dict[str, RunnerUp]:
    """Of every node the best plan in which it is elsewhere."""
    choices = rivals_of(problem, assignment)
    whole = all(len(own) == len(options(problem, own.node)) for own in choices)
    tree = tree_of(problem) if whole else relaxed_tree(problem, choices)
    return runners_up(problem, assignment, best, choices, _ranked(problem, [(assignment, best)], inf, tree))


def _deadline(limit_s: float, nodes: int, solver: str, explained: bool) -> float:
    """When the search is to end, in work counted since the plan was asked for."""
    now = worked()
    if solver != "exact" or not explained:
        return now + limit_s
    return max(now + limit_s / 2, min(now + limit_s, limit_s - EXPLAINED_S * max(0, nodes - FEW_NODES)))


def _by_how_much(problem: Problem, time_limit_s: float) -> InfeasibleError | None:
    """Which limit on latency or energy is missed, and by how much: the best without it, within all others."""
    # Without the limit on the interval, slow engines may be used.
    apart = replace(problem, goal=Goal.THROUGHPUT, max_interval_s=None, memo=problem.memo.without(CHOICES, TREES))
    for name, limit, freed in (("latency", problem.max_latency_s, replace(problem, goal=Goal.LATENCY, max_latency_s=None)),
                               ("energy", problem.max_energy_j, replace(problem, goal=Goal.ENERGY, max_energy_j=None)),
                               (INTERVAL, problem.max_interval_s, apart)):
        if limit is None:
            continue
        try:
            answer, _ = exact(freed, [], worked() + time_limit_s)
        except InfeasibleError:
            continue
        legal = [e.objective for a in answer.assignments if (e := evaluate(freed, a)).feasible]
        bound = answer.lower_bound * (1 - ROUNDING)
        if bound > limit:
            return missed(name, "every plan within the other limits", bound, limit)
        if legal:
            return missed(name, "the best plan found within the other limits", min(legal), limit)
    return None


def _nothing_found(problem: Problem, solver: str, found: Known) -> InfeasibleError:
    missed = "; ".join(v for _, e in found for v in e.violations) or "no device order fits"
    return InfeasibleError(f"solver {solver}: no plan within the limits found ({missed}); raise the limit or the time limit, "
                           "or use solver exact")
