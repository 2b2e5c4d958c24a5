"""Planning from graph and platform to a judged, bounded, explained plan."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib import import_module
from math import inf

from dovetail import plugins
from dovetail.errors import InfeasibleError, UsageError
from dovetail.ir import Graph
from dovetail.partition.boards.solver import crowded
from dovetail.partition.cost_model import CostModel
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.effort import counted, worked
from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.exact.by_device import Known, best_of, choices_of, judge, over_every_way, points_of
from dovetail.partition.exact.elimination import Ranking, rank
from dovetail.partition.exact.refine import SHOWN, refined_note
from dovetail.partition.exact.solver import Answer
from dovetail.partition.exact.tree import TREES, Tree, relaxed_tree, tree_of
from dovetail.partition.explain.baselines import BASELINES, balanced, best_single, chance, greedy, objectives
from dovetail.partition.explain.bound_notes import ONE_INPUT, many_ways_note
from dovetail.partition.explain.infeasibility import INTERVAL, missed
from dovetail.partition.explain.reasons_per_node import at_once_note, explain, kernels_note
from dovetail.partition.explain.runners_up import RunnerUp, rivals_of, runners_up
from dovetail.partition.explain.sensitivity import intervals, limited_by
from dovetail.partition.explain.thrift import spare
from dovetail.partition.interval.busy import busiest
from dovetail.partition.interval.weights import rank_interval
from dovetail.partition.memo import Cache, Memo
from dovetail.partition.options import PROOF, Options
from dovetail.partition.peers.dynamic import dp
from dovetail.partition.peers.linear import ilp, lp
from dovetail.partition.peers.min_cut import min_cut
from dovetail.partition.peers.work_stealing import work_stealing
from dovetail.partition.plan import Assignment, Goal, Mode, Plan, Status
from dovetail.partition.problem import Problem
from dovetail.partition.proof import hold_over
from dovetail.partition.strategy import eased, exact, move_cuts
from dovetail.partition.tables.columns import CHOICES, options
from dovetail.partition.tolerances import ROUNDING, TOLERANCE
from dovetail.partition.work import check_split
from dovetail.platform.device import Platform

TIMELY = 0.6
"""Part of the time within which comparisons with plans in which nodes are elsewhere are begun. Chosen, not measured."""
MOVED = 0.03
"""By what fraction cuts between the candidates' positions make plans better at the most. Chosen: 1.4 % was seen (search.md)."""
GOOD = 0.0025
"""Gap of an earlier answer from which on it is not sought again. Chosen: half of what plans with any switch may be better."""
FIRST: Cache[tuple[object, ...], dict[str, tuple[Assignment, Evaluation]]] = Cache()
"""Plans that anyone would try first, by goal and limits."""

Solver = Callable[[Problem, Known, float, float], tuple[Answer, tuple[str, ...]]]
"""From a question, legal plans, a deadline and the gap that will do to an answer, and notes on what its bound covers."""


def _ranked(problem: Problem, known: Known, deadline: float, tree: Tree) -> Ranking:
    """Bounds of a tree's columns for any goal."""
    if problem.goal is not Goal.THROUGHPUT:
        return rank(problem, tree, best_of(problem, points_of(known)), deadline)
    if problem.mode is Mode.SEQUENTIAL:
        return rank(replace(problem, goal=Goal.LATENCY), tree, best_of(problem, points_of(known)), deadline)
    return rank_interval(eased(problem), tree, min((e.interval_s for _, e in known), default=inf), deadline)


def _heuristic(choose: Callable[[Problem], Assignment | None]) -> Solver:
    def run(problem: Problem, known: Known, deadline: float, gap: float) -> tuple[Answer, tuple[str, ...]]:
        choices_of(problem)
        ranking = _ranked(problem, known, deadline, tree_of(problem))
        found = choose(problem)
        answer = Answer((found,) if found is not None else (), ranking.bound)
        return (answer, (ONE_INPUT,)) if problem.goal is Goal.THROUGHPUT else over_every_way(
            problem, answer, (ONE_INPUT,), known, deadline)
    return run


def _geometric(module: str, name: str) -> Solver:
    """A geometric programming solver, which has no bound of its own; imported when asked for, as its packages are large."""
    def run(problem: Problem, known: Known, deadline: float, gap: float) -> tuple[Answer, tuple[str, ...]]:
        choose: Callable[[Problem, float], tuple[tuple[Assignment, ...], tuple[str, ...]]] = getattr(
            import_module(f"dovetail.partition.geometric.{module}"), name)
        bounded, notes = _heuristic(lambda _: None)(problem, known, deadline, gap)
        found, own = choose(problem, deadline)
        return replace(bounded, assignments=found), (*notes, *own)
    return run


def _or_baseline(solver: Solver) -> Solver:
    """A solver whose plan gives way to a better baseline, which is said."""
    def run(problem: Problem, known: Known, deadline: float, gap: float) -> tuple[Answer, tuple[str, ...]]:
        answer, notes = solver(problem, known, deadline, gap)
        own = min((e.objective for a in answer.assignments if (e := evaluate(problem, a)).feasible), default=inf)
        plain, judged = min(known, key=lambda pair: pair[1].objective, default=(None, None))
        if plain is None or judged is None or judged.objective >= own:
            return answer, notes
        behind = f"its own plan is {100 * own / judged.objective - 100:.2f} % worse"
        worse = "found no plan within the limits" if own == inf else behind
        return replace(answer, assignments=(plain,)), (*notes, f"gp: {worse}; this is the best baseline")
    return run


SOLVERS: dict[str, Solver] = {
    "exact": exact,
    "greedy": _heuristic(greedy),
    "balanced": _heuristic(balanced),
    "random": _heuristic(chance),
    "single": _heuristic(best_single),
    "ilp": _heuristic(ilp),
    "lp": _heuristic(lp),
    "dp": _heuristic(dp),
    "min-cut": _heuristic(min_cut),
    "work-stealing": _heuristic(work_stealing),
    "gp": _or_baseline(_geometric("solver", "gp")),
    "gp-paper": _geometric("paper", "gp_paper"),
    "gp-paper-one-by-one": _geometric("paper", "gp_paper_one_by_one"),
    "gp-paper-constant-power": _geometric("paper", "gp_paper_constant_power"),
    "gp-paper-input-channels": _geometric("paper", "gp_paper_input_channels"),
    "gp-paper-tiles": _geometric("paper", "gp_paper_tiles"),
}


def _solver(name: str) -> Solver:
    """A solver of ours, or of a plug-in.

    Raises:
        UsageError: there is none of this name.
    """
    if name in SOLVERS:
        return SOLVERS[name]
    if name not in plugins.names("solvers"):
        raise UsageError(f"solver {name}: unknown; possible: {', '.join((*SOLVERS, *plugins.names('solvers')))}")
    found: Solver = plugins.load("solvers", name)
    return found


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without searches for cyclic garbage, of which planning makes none worth the twentieth of its time they take."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@_uncollected()
def plan(graph: Graph, platform: Platform, options: Options = PROOF, fixed: Assignment | None = None,
         costs: CostModel | None = None, ceiling: float = inf, begun: Plan | None = None, memo: Memo | None = None) -> Plan:
    """The best plan a solver finds, judged by `evaluate`, with a bound no candidate plan can beat.

    `exact` is never worse than the best baseline; `fixed` pins nodes to given splits. `makespan_s` is left to the schedule.
    In sequential mode, where frames do not overlap, a limit on their interval is one on latency. Thrift never gives up so much
    that a baseline would be better. Neither another machine nor other load changes plans, as work is counted and not time, and
    explanations take none of a search's time. Where computing takes several times as long, the search is cut short, and notes
    say so.

    With a `ceiling` for `exact`, which is reached elsewhere, the plan may be worse than that, and its bound as low. `begun` is
    an answer of `exact` to the same question: the plan is never worse, and not sought again where that is nearly proven. `memo`
    is what was found out for the same graph, platform, costs and fixed nodes.

    Raises:
        InfeasibleError: no plan keeps the limits; it names one and by how much it is missed.
        UsageError: an unknown solver.
    """
    _solver(options.solver)
    problem = question(graph, platform, options, fixed or {}, DeviceCosts() if costs is None else costs, memo)
    with counted(options.time_limit_s) as meter:
        found = _planned(problem, graph, options, inf if limited(options) or options.solver != "exact" else ceiling, begun)
        return replace(found, notes=(*found.notes, meter.note())) if meter.hurried else found


def question(graph: Graph, platform: Platform, options: Options, fixed: Assignment, costs: CostModel,
             memo: Memo | None = None) -> Problem:
    """The problem that options pose.

    Raises:
        UsageError: there is nothing to plan, or a fixed split is not legal.
    """
    latency_s, interval_s = options.max_latency_s, options.max_interval_s
    if options.mode is Mode.SEQUENTIAL and interval_s is not None:
        latency_s, interval_s = min(interval_s, inf if latency_s is None else latency_s), None
    problem = Problem(graph, platform, costs, options.goal, options.mode, options.budget == "shared", latency_s,
                      options.max_energy_j, interval_s, dict(fixed), off_grid=options.off_grid, memo=memo or Memo())
    if not graph.nodes:
        raise UsageError(f"model {graph.name}: it has no nodes; there is nothing to plan")
    for name, split in problem.fixed.items():
        check_split(problem, graph.node(name), split)
    return problem


def reasons(graph: Graph, platform: Platform, options: Options, fixed: Assignment, assignment: Assignment) -> dict[str, str]:
    """Why every node of a plan is where it is, beside the best whole plan in which it is elsewhere; `fixed` ones are not asked.

    The platform is that of the plan, with what FPGAs may be filled to.
    """
    problem = Problem(graph, platform, DeviceCosts(), options.goal, options.mode, options.budget == "shared",
                      options.max_latency_s, options.max_energy_j, options.max_interval_s, dict(fixed))
    best = evaluate(problem, assignment)
    with counted(options.time_limit_s):
        elsewhere = None if crowded(problem) else _others(problem, assignment, best)
        return explain(problem, assignment, best, "not reached before the search ended", elsewhere)


def limited(options: Options) -> bool:
    """Whether not every plan is legal that fits."""
    return any(limit is not None for limit in (options.max_latency_s, options.max_energy_j, options.max_interval_s))


def _planned(problem: Problem, graph: Graph, asked: Options, ceiling: float, begun: Plan | None) -> Plan:
    """The plan, with work counted from here on."""
    solver, time_limit_s, thrift, explained = asked.solver, asked.time_limit_s, asked.thrift, asked.explained
    judged = _baselines(problem)
    known = [(a, e) for a, e in judged.values() if e.feasible]
    answer, notes = _answered(problem, asked, known, ceiling, begun)
    found = [(a, judge(problem, a)) for a in answer.assignments]
    legal = [(a, e) for a, e in found if e.feasible] + (known if solver == "exact" else [])
    if not legal:
        raise (_by_how_much(problem, time_limit_s) if solver == "exact" else None) or _nothing_found(problem, solver, found)
    assignment, best = min(legal, key=lambda pair: pair[1].objective)
    values = objectives(problem, {name: e for name, (_, e) in judged.items()})
    grid, on_grid = assignment, best.objective
    if begun is not None and begun.objective < on_grid:
        assignment, best = begun.assignment, judge(problem, begun.assignment)
    if solver == "exact" and best.objective * (1 - MOVED) < ceiling:
        (assignment, best), *_ = move_cuts(problem, [(assignment, best)], answer.off_grid, time_limit_s if explained else 0.0)
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
        elsewhere = _others(problem, assignment, best) if asked.rivals and timely and not crowded(problem) else None
        sentences = explain(problem, assignment, best, left_out, elsewhere)
    notes = (*notes, *at_once_note(problem, assignment, best), *kernels_note(problem, assignment))
    found_plan = _finished(problem, graph, solver, assignment, best, answer.lower_bound, values, notes, sentences)
    if explained:
        found_plan = replace(found_plan, intervals=intervals(problem, assignment, best),
                             limited_by=limited_by(problem, assignment, best))
    beyond = max(0.0, answer.lower_bound / before - 1) if problem.off_grid and before > 0 else 0.0
    found_plan = replace(found_plan, beyond=beyond if beyond >= SHOWN else 0.0)
    return found_plan if best.objective == before else replace(found_plan, best_objective=before)


@_uncollected()
def best_baseline(graph: Graph, platform: Platform, options: Options, fixed: Assignment, costs: CostModel, memo: Memo) -> float:
    """The objective of the best plan that anyone would try first; infinite where none keeps the limits."""
    problem = question(graph, platform, options, fixed, costs, memo)
    with counted(options.time_limit_s):
        return min((e.objective for _, e in _baselines(problem).values() if e.feasible), default=inf)


def _baselines(problem: Problem) -> dict[str, tuple[Assignment, Evaluation]]:
    """Plans that anyone would try first, by name."""
    key, known = (problem.goal, problem.max_latency_s, problem.max_energy_j, problem.max_interval_s), problem.memo.of(FIRST)
    if key not in known:
        known[key] = {name: (a, evaluate(problem, a)) for name, choose in BASELINES.items() if (a := choose(problem)) is not None}
    return known[key]


def _answered(problem: Problem, asked: Options, known: Known, ceiling: float,
              begun: Plan | None) -> tuple[Answer, tuple[str, ...]]:
    """What the solver answers, and what its bound covers; no search where an earlier answer is nearly proven."""
    if begun is not None and begun.lower_bound >= begun.objective * (1 - GOOD) and begun.beyond == 0:
        return Answer((begun.assignment,), begun.lower_bound), begun.notes
    search = _solver(asked.solver) if ceiling == inf and begun is None else partial(
        exact, ceiling=ceiling, met=() if begun is None else (begun.assignment,))
    try:
        answer, notes = search(problem, known, worked() + asked.time_limit_s, asked.gap)
    except InfeasibleError as error:
        raise _by_how_much(problem, asked.time_limit_s) or error from None
    if begun is None or begun.lower_bound <= answer.lower_bound:
        return answer, notes
    return replace(answer, lower_bound=begun.lower_bound), begun.notes


def _finished(problem: Problem, graph: Graph, solver: str, assignment: Assignment, best: Evaluation, bound: float,
              baselines: dict[str, float | None], notes: tuple[str, ...], sentences: dict[str, str]) -> Plan:
    """The plan. Its bound was held against plans over the candidates before (`proof`), and covers no others.

    What is left to cut off a bound is rounding, and of plans with cuts between the candidates what they are better by.
    """
    lower, costs = min(bound * (1 - ROUNDING), best.objective), {c.node: c for c in best.nodes}
    proven = best.objective - lower <= TOLERANCE * abs(best.objective)
    resources = {d.name: {r: (best.resources[d.name][r], float(limit)) for r, limit in d.resources.items()}
                 for d in problem.platform.devices if d.resources}
    return Plan(
        model=problem.graph.name, platform=problem.platform.name, goal=problem.goal, mode=problem.mode, solver=solver,
        status=Status.OPTIMAL if proven else Status.FEASIBLE, assignment=dict(assignment),
        nodes=tuple(replace(costs[n.name], why=sentences[n.name]) if n.name in sentences else costs[n.name] for n in graph.nodes),
        objective=best.objective,
        lower_bound=lower, latency_s=best.latency_s, energy_j=best.energy_j, interval_s=best.interval_s,
        busy_s=busiest(problem, best.busy_s), resources=resources, baselines=baselines,
        pinned=len(problem.fixed), notes=notes)


def _others(problem: Problem, assignment: Assignment, best: Evaluation) -> dict[str, RunnerUp]:
    """Of every node the best plan in which it is elsewhere."""
    choices = rivals_of(problem, assignment)
    whole = all(len(own) == len(options(problem, own.node)) for own in choices)
    tree = tree_of(problem) if whole else relaxed_tree(problem, choices)
    return runners_up(problem, assignment, best, choices, _ranked(problem, [(assignment, best)], inf, tree))


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
