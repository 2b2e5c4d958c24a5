"""Boards of several equal FPGAs: a bound from the relaxation, and plans of the relaxation placed on real boards.

In the relaxation (see `relaxation`) the budgets of all FPGAs are one, so its best plan bounds every plan. Searches over it
(`bound_search`) make that bound closer and hand out guides: plans that say which nodes run on FPGAs. `placement` puts each guide
on boards with budgets of their own, `local_search` improves what comes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from dovetail.partition.boards.bound_search import FINE, LITTLE, SearchReport, fronts_below, search_bounds
from dovetail.partition.boards.incumbents import Incumbents
from dovetail.partition.boards.relaxation import STAND_INS, Share, pool_of
from dovetail.partition.boards.symmetry import Names
from dovetail.partition.effort import worked
from dovetail.partition.exact.cuts import Network, Priced, follow, price_limits, priced_costs
from dovetail.partition.exact.elimination import CORE, CORE_LIMIT, Ranking, rank, thin
from dovetail.partition.exact.energy_delay import AXES, Point
from dovetail.partition.exact.separate_bound import strike_dear
from dovetail.partition.exact.solver import Answer, solve_network
from dovetail.partition.exact.tree import Tree, relaxed_tree
from dovetail.partition.memo import Cache, Memo
from dovetail.partition.plan import Assignment, Goal
from dovetail.partition.problem import QUOTES, Problem
from dovetail.partition.tables.columns import PricedSplits, compacted, options
from dovetail.partition.tables.quotes import LENT, priced_alike
from dovetail.platform.device import Kind

MET = 1e-4
"""Relative distance of plan and bound at which both are good enough: chosen."""
LABELS = 20_000
"""Labels kept per node where the relaxation is solved by label setting alone: chosen, some seconds of work."""
LEAST_S = 1.5
"""Seconds of computing below which it is not worth looking at boards one by one: chosen."""
SEARCHING = 0.8
"""Part of the time in which bounds of many boards are searched; the rest is for placing: chosen."""
LATE = 0.8
"""Part of the time beyond it in which the first fronts may end: a bound that is late is better than none. Chosen."""
BEST = 1e-3
"""Relative distance of plan and bound at which a search for bounds ends in the first half of its time: chosen."""
ENOUGH = 3e-3
"""The same in the second half, and for corners of a product: chosen, below the 0.5 % that plans are asked to be within."""
CLOSE = 3e-3
"""Relative distance of plan and bound beyond which every board is looked at by itself, where they are few. Chosen, not
measured."""

Build = Callable[[Problem, Tree, list[PricedSplits]], Network]
POOLED = Cache[tuple[str, ...], Problem]()


def pooled_problem(problem: Problem) -> Problem | None:
    """The problem over the pool of its platform's FPGAs, if it has one and they cost the same."""
    if problem.goal is Goal.THROUGHPUT or problem.fixed or problem.pool is not None or problem.max_interval_s is not None:
        return None
    known = problem.memo.of(POOLED)
    if problem.devices not in known:
        found = pool_of(problem.platform)
        if found is None or not priced_alike(problem, found[1].boards):
            return None
        memo = Memo()
        memo.of(LENT).update(problem.memo.of(QUOTES))
        known[problem.devices] = replace(problem, pool=found[1]) if not found[1].many else Problem(
            problem.graph, found[0], problem.costs, problem.goal, problem.mode, pool=found[1], forks=problem.forks, memo=memo)
    return replace(known[problem.devices], goal=problem.goal, shared_budget=problem.shared_budget,
                   max_latency_s=problem.max_latency_s, max_energy_j=problem.max_energy_j)


@dataclass(frozen=True, slots=True)
class BoardsAnswer:
    """What the pool told: plans and a bound, over which columns it holds of those that were left, and whether that will do."""

    answer: Answer
    left: list[PricedSplits]
    kept: list[PricedSplits]
    close: bool


def crowded(problem: Problem) -> bool:
    """Whether a platform has more equal FPGAs than are looked at one by one."""
    found = pool_of(problem.platform)
    return found is not None and found[1].many


def of_boards(problem: Problem) -> tuple[str, ...]:
    """Over which plans the bound holds where FPGAs are many."""
    return (f"boards: of the {len(problem.platform.of_kind(Kind.FPGA))} equal FPGAs no more than {STAND_INS} neighbours run or "
            "hold tensors at once",) if crowded(problem) else ()


def over_boards(problem: Problem, relaxed: Problem, known: list[tuple[float, float]], deadline: float, tolerance: float,
                build: Build) -> BoardsAnswer | None:
    """Plans for the boards and a bound on all of them; None where the relaxation does not help."""
    pool, begun = relaxed.pool, worked()
    assert pool is not None, "made by pooled_problem"
    choices = [options(relaxed, n) for n in relaxed.graph.nodes]
    if not all(len(c) for c in choices):
        return None
    state = Incumbents(problem, relaxed, pool, list(known), LATE * max(0.0, deadline - begun))
    best = state.best
    if best is not None:
        choices = strike_dear(relaxed, choices, best, deadline)
        if not all(len(c) for c in choices):
            return BoardsAnswer(Answer((), state.goal), choices, choices, True)
        choices = compacted(choices)
    tree = relaxed_tree(relaxed, choices)
    ranking = rank(relaxed, tree, best, deadline)
    state.bound = min(ranking.bound, state.goal)  # what `strike_dear` left out is no better than the best plan
    core = thin(relaxed, ranking.core(choices, CORE), CORE_LIMIT)
    if core is not None:
        net = build(relaxed, tree, core)
        priced = price_limits(net, state.weights, state.value(state.weights), deadline, ranking.prices)
        state.follow(_cheapest(net, state.weights, priced), priced.bound)
    now = worked()
    ending = now + (SEARCHING if pool.many else 1.0) * max(0.0, deadline - now)
    searched = _searched(state, tree, ranking, choices, ending, max(tolerance, MET), build)
    if not searched and state.net is not None:
        answer = solve_network(state.net, state.plans, ending, LABELS, tolerance=max(tolerance, MET), start=ranking.prices)
        # Candidates were struck that lead to no plan so far below the best one.
        state.bound = max(state.bound, min(answer.lower_bound, state.goal * (1 - max(tolerance, MET))))
        for guide in answer.assignments[-1:]:
            state.follow(guide)
    state.follow_again(deadline + state.late_s / 4)
    now = worked()  # boards one by one take as long as the relaxation at least, before they tell anything
    close = pool.many or searched or state.close(CLOSE) or deadline - now < max(LEAST_S, now - begun)
    # A plan with cuts between the candidates, or with more boards at once than stand for all, may be below the bound; any other
    # plan below it is a mistake, which `hold_over` finds.
    beyond = pool.many or bool(state.loose)
    answer = Answer(tuple(state.found), min(state.bound, state.goal) if beyond else state.bound, prices=ranking.prices,
                    off_grid=tuple(state.loose))
    return BoardsAnswer(answer, state.left, state.kept, close)


def _cheapest(net: Network, weights: tuple[float, float], priced: Priced) -> Assignment:
    """The plan met with prices, or else the cheapest under them."""
    if priced.path is not None:
        return net.assignment(priced.path)
    amounts = [net.amounts(x) for x in net.limits]
    return net.assignment(follow(net, priced_costs(net.costs(weights), amounts, priced.prices), priced.to_go))


def _searched(state: Incumbents, tree: Tree, ranking: Ranking, choices: list[PricedSplits], deadline: float, tolerance: float,
              build: Build) -> bool:
    """Plans and a bound from labels that know how full boards are; whether there are any."""
    if not _built(state, tree, ranking, choices, tolerance, build):
        return False
    share = state.largest(state.net) if state.net is not None else None
    if state.net is None or share is None:
        return state.net is None
    product = state.problem.goal is Goal.EDP
    if product and not _faced(state, state.net, deadline):
        return False
    found = _looked(state, state.net, share, deadline, tolerance)
    if product:
        _look_aside(state, state.net, share, deadline + state.late_s / 2)
    return found


def _faced(state: Incumbents, net: Network, deadline: float) -> bool:
    """Look along a product's slope at the best plan; whether there is one, and prices tell anything."""
    if state.best is None:
        return False
    idle = (-state.problem.idle_power_w, 1.0)
    *least, spent = (price_limits(net, weights, state.value(weights), deadline).bound for weights in (*AXES, idle))
    if min(least) > 0:
        state.face((least[0], least[1]), {idle: spent})
    return min(least) > 0


def _looked(state: Incumbents, net: Network, share: Share, deadline: float, tolerance: float) -> bool:
    """Look for plans of the least sum, and for a bound on it; whether there was anything to say."""
    def tell(report: SearchReport) -> float:
        state.rise(report.bound)
        if report.plan is not None:
            state.name(report.plan, report.names.orders)
        for cost, guide in report.guides:
            state.follow(guide, cost)
        enough = state.enough(BEST if deadline - worked() > whole_s / 2 else ENOUGH)
        return -inf if enough else state.value(state.weights) * (1 - tolerance)

    whole_s = deadline - worked()
    shares, found = [share], False
    while True:
        # A product's best plan need not have the least sum along its slope.
        goal = state.value(state.weights) * (1 - tolerance if state.region is None else 1 + LITTLE / 2)
        state.too_large = None
        found |= search_bounds(net, state.pool, state.weights, shares, goal, deadline, tell, state.late_s)
        more = state.exceeded(shares) if worked() < deadline else []
        if not more:
            return found
        shares += more


def _look_aside(state: Incumbents, net: Network, share: Share, deadline: float) -> None:
    """Bounds from fronts of other sums where a product's corner is far from the best plan: of one alone, then across it."""
    asked = list[Point]()
    many = state.pool.many
    names = Names(net, state.pool.among(net.problem.devices), many)
    while not state.close(ENOUGH) and worked() < deadline:
        aside = state.aside(AXES, asked)
        if aside is None:
            break
        weights, cutoff = aside
        asked.append(weights)
        priced = price_limits(net, weights, cutoff, deadline)
        fronts = fronts_below(net, weights, priced, cutoff, deadline, names, share, many,
                              FINE if many and (priced.prices > 0).any() else None)
        if fronts is not None:
            state.rise(min(fronts.best, cutoff), weights)


def _built(state: Incumbents, tree: Tree, ranking: Ranking, choices: list[PricedSplits], tolerance: float, build: Build) -> bool:
    """Make the network of the columns that a better plan may use; whether it can be made, with nothing left of it if none may."""
    left = ranking.strike(choices, state.goal * (1 - tolerance))
    if not all(len(c) for c in left):
        state.bound = max(state.bound, state.goal * (1 - tolerance))
        return True
    kept = thin(state.relaxed, left)
    if kept is None:
        return False
    state.left, state.kept, state.net = left, kept, build(state.relaxed, tree, kept)
    return True
