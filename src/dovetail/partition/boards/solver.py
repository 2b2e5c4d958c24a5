"""Boards of many equal FPGAs: a bound and a plan from the pool (see `pool`), and what must be cut off for the two to meet.

The best plan of the pool bounds every plan. If its parts fit on the boards (`lifting`), it is nearly a plan itself. If they
do not, a curve shows why (`pool.curves`): some function of sizes under which the parts of any one board add up to at most
one, and these parts to more than there are boards. That is one more limit of the pool, and the next best plan is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from dovetail.partition.boards.closing import FINE, LITTLE, Told, fill, fronts_below
from dovetail.partition.boards.entry_limits import entry_limit, stretch_limit
from dovetail.partition.boards.incumbents import Hunt, cheapest
from dovetail.partition.boards.relaxation import STAND_INS, Share, pool_of
from dovetail.partition.boards.symmetry import Names
from dovetail.partition.columns import Options, compacted, options
from dovetail.partition.cuts import Limit, Network, price_limits
from dovetail.partition.effort import worked
from dovetail.partition.exact.elimination import CORE, CORE_LIMIT, Ranking, rank, thin
from dovetail.partition.exact.energy_delay import AXES, Point
from dovetail.partition.exact.labels import Search
from dovetail.partition.exact.separate_bound import strike_dear
from dovetail.partition.exact.solver import Answer, mixture_of, solve_network
from dovetail.partition.exact.tree import Tree, relaxed_tree
from dovetail.partition.memo import Cache, Memo
from dovetail.partition.plan import Goal
from dovetail.partition.problem import QUOTES, Problem
from dovetail.partition.tables.quotes import LENT, priced_alike
from dovetail.platform.device import Kind

ROUNDS = 24
"""Plans of the pool that are asked for."""
MET = 1e-4
"""Relative distance of plan and bound at which both are good enough."""
LABELS = 20_000
"""Labels kept per node."""
GRAIN = 6
"""Steps in which labels tell apart what they take of each board when a first plan is looked for."""
FEW_LABELS, ALL_LABELS = 200, 32_000
"""Labels kept per node then, at least, and in all."""
WIDENINGS = (2e-3, 1e-2, 0.1, inf)
"""Cut-offs above the bound then."""
LEAST_S = 1.5
"""Seconds of computing below which it is not worth looking at boards one by one."""
FIRST, LIFTING, LATE, MANY_LATE = 0.4, 0.2, 0.8, 1.0
"""Parts of the time: for a first plan, left to lifting, and beyond it for the first fronts (half of it for lifting),
of few boards and of many."""
LABELS_COUNTING = 4_000
"""Labels kept per node where they count boards."""
BEST, ENOUGH = 1e-3, ((3e-3, 0.1), (4.5e-3, 0.5))
"""Distance of plan and bound at which a search over boards ends, and others at which it does once part of its time is used."""
POURED = 0.3
"""Part of the time left in which plans of the pool may be poured over the boards."""
ASTRAY, ROUNDED = (0.006, 0.015), 0.3
"""Distances of plan and bound beyond which plans of the pool of many boards whose limits bind are asked for one after another
after all, in time and late, and the part of the time by which that may end late then."""
LATE_ASIDE = 0.5
"""Part of the time by which fronts may end late that those of a product's corners have."""
CLOSE = 3e-3
"""Relative distance of plan and bound beyond which every board is looked at by itself, where they are few."""

Build = Callable[[Problem, Tree, list[Options]], Network]
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
class Found:
    """What the pool told: plans and a bound, over which columns it holds of those that were left, and whether that will do."""

    answer: Answer
    left: list[Options]
    kept: list[Options]
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
                build: Build) -> Found | None:
    """Plans for the boards and a bound on all of them; None where the pool does not help."""
    pool, begun = relaxed.pool, worked()
    assert pool is not None, "made by pooled_problem"
    choices = [options(relaxed, n) for n in relaxed.graph.nodes]
    if not all(len(c) for c in choices):
        return None
    many = pool.many
    hunt = Hunt(problem, relaxed, pool, list(known), late_s=(MANY_LATE if many else LATE) * max(0.0, deadline - begun))
    best = hunt.best
    if best is not None:
        choices = strike_dear(relaxed, choices, best, deadline)
        if not all(len(c) for c in choices):
            return Found(Answer((), hunt.goal), choices, choices, True)
        choices = compacted(choices)
    tree = relaxed_tree(relaxed, choices)
    ranking = rank(relaxed, tree, best, deadline)
    hunt.bound = min(ranking.bound, hunt.goal)
    whole_s = max(0.0, deadline - worked())
    core = None if many and hunt.plans else thin(relaxed, ranking.core(choices, CORE), CORE_LIMIT)
    if core is not None:
        _first_plan(hunt, build(relaxed, tree, core), ranking, deadline - (1 - FIRST) * whole_s)
    # Where they are many, plans must still be lifted when the search ends.
    ending = deadline - (LIFTING if many else 0.0) * whole_s
    filled = _filled(hunt, tree, ranking, choices, ending, max(tolerance, MET), build)
    late = many and bool(hunt.found or hunt.loose) and worked() > ending
    if hunt.merged and not hunt.close(ASTRAY[late]):  # plans of the pool found no room on the boards: curves tell why
        filled, ending = False, ending + (ROUNDED * hunt.late_s if late else 0.0)
        late = False
    for _ in range(0 if filled or late else ROUNDS):
        done = _round(hunt, tree, ranking, choices, ending, max(tolerance, MET), build)
        if done or hunt.close(max(tolerance, MET)) or worked() > ending:
            break
    if hunt.net is not None and not many and not hunt.poured and problem.goal is not Goal.EDP and not hunt.close(ENOUGH[-1][0]):
        seconds = POURED / 2 * whole_s
        found = solve_network(hunt.net, hunt.plans, worked() + seconds, LABELS, tolerance=MET, start=ranking.prices)
        hunt.pour([(0.0, a) for a in found.assignments[-1:]], worked() + seconds)
    now = worked()  # boards one by one take as long as the pool at least, before they tell anything
    close = many or filled or hunt.close(CLOSE) or deadline - now < max(LEAST_S, now - begun)
    answer = Answer(tuple(hunt.found), hunt.bound, prices=ranking.prices, off_grid=tuple(hunt.loose))
    return Found(answer, hunt.left, hunt.kept, close)


def _filled(hunt: Hunt, tree: Tree, ranking: Ranking, choices: list[Options], deadline: float, tolerance: float,
            build: Build) -> bool:
    """Plans and a bound from labels that know how full boards are; whether there are any."""
    if not _built(hunt, tree, ranking, choices, tolerance, build):
        return False
    share = hunt.largest(hunt.net) if hunt.net is not None else None
    if hunt.net is None or share is None:
        return hunt.net is None
    product = hunt.problem.goal is Goal.EDP
    if product and not _faced(hunt, hunt.net, deadline):
        return False
    found = _looked(hunt, hunt.net, share, deadline, tolerance)
    if product:
        _look_aside(hunt, hunt.net, share, deadline + LATE_ASIDE * hunt.late_s)
    hunt.lift_again(hunt.net, deadline + hunt.late_s / 2)
    hunt.come_nearer(deadline, deadline + hunt.late_s / 2)
    return found


def _faced(hunt: Hunt, net: Network, deadline: float) -> bool:
    """Look along a product's slope at the best plan; whether there is one, and prices tell anything."""
    if hunt.best is None:
        return False
    idle = (-hunt.problem.idle_power_w, 1.0)
    *least, spent = (price_limits(net, weights, hunt.value(weights), deadline).bound for weights in (*AXES, idle))
    if min(least) > 0:
        hunt.face((least[0], least[1]), {idle: spent})
    return min(least) > 0


def _looked(hunt: Hunt, net: Network, share: Share, deadline: float, tolerance: float) -> bool:
    """Look for plans of the least sum, and for a bound on it; whether there was anything to say."""
    def tell(told: Told) -> float:
        hunt.told(told)
        now = worked()
        if not hunt.close(ENOUGH[0][0]):
            hunt.pour(told.offers, now + POURED * max(deadline - now, hunt.late_s))
        used = 1 - (deadline - worked()) / max(whole_s, 1e-9)
        enough = hunt.enough(BEST) or any(used > part and hunt.enough(gap) for gap, part in ENOUGH)
        return -inf if enough else hunt.value(hunt.weights) * (1 - tolerance)

    whole_s = deadline - worked()
    shares, found = [share], False
    while True:
        # Below a plan near the best, sums are looked at first that are less by so much; of a product that would be twice as much.
        goal, hunt.unseated = hunt.value(hunt.weights) * (1 - tolerance if hunt.region is None else 1 + LITTLE / 2), None
        found |= fill(net, hunt.pool, hunt.weights, shares, goal, deadline, tell, bool(hunt.found), hunt.late_s)
        more = hunt.exceeded(shares) if worked() < deadline else []
        if not more:
            return found
        shares += more


def _look_aside(hunt: Hunt, net: Network, share: Share, deadline: float) -> None:
    """Bounds from fronts of other sums where a product's corner is far from the best plan: of one alone, then across it."""
    asked = list[Point]()
    many = hunt.pool.many
    names = Names(net, hunt.pool.among(net.problem.devices), many)
    while not hunt.close(ENOUGH[0][0]) and worked() < deadline:
        aside = hunt.aside(AXES, asked)
        if aside is None:
            break
        weights, cutoff = aside
        asked.append(weights)
        priced = price_limits(net, weights, cutoff, deadline)
        fronts = fronts_below(net, weights, priced, cutoff, deadline, names, share, many,
                              FINE if many and (priced.prices > 0).any() else None)
        if fronts is not None:
            hunt.rise(min(fronts.best, cutoff), weights)


def _built(hunt: Hunt, tree: Tree, ranking: Ranking, choices: list[Options], tolerance: float, build: Build) -> bool:
    """Make the network of the columns that a better plan may use; whether it can be made, with nothing left of it if none may."""
    left = ranking.strike(choices, hunt.goal * (1 - tolerance)) if hunt.goal != hunt.struck or hunt.net is None else hunt.left
    if not all(len(c) for c in left):
        hunt.bound = max(hunt.bound, hunt.goal * (1 - tolerance))
        hunt.net = None
        return True
    if left is not hunt.left:
        kept = thin(hunt.relaxed, left)
        if kept is None:
            hunt.net = None
            return False
        hunt.left, hunt.kept, hunt.struck, hunt.net = left, kept, hunt.goal, build(hunt.relaxed, tree, kept)
    return True


def _first_plan(hunt: Hunt, net: Network, ranking: Ranking, deadline: float) -> None:
    """A plan from labels that keep the budgets of every board, where the stand-ins are the boards; else by lifting."""
    weights = hunt.weights
    priced = price_limits(net, weights, hunt.value(weights), deadline, ranking.prices)
    pooled = [x for x, p in zip(net.limits, priced.prices, strict=True) if p > 0]
    if not pooled or hunt.pool.boards != hunt.pool.stand_ins:
        hunt.lift(net.assignment(cheapest(net, weights, priced)))
        return
    mixture, alone = mixture_of(net, priced, frozenset(x.name for x in pooled))
    single = [Limit(f"{d} {r}", Share(f"{d} {r}", (i,), limit), limit) for i, (d, r, limit) in enumerate(hunt.problem.budgets)
              if limit > 0 and any(x.budget is not None and i in x.budget.budgets for x in pooled)]
    others = [x for x in net.limits if x.budget is None]
    loose = replace(alone, prices=np.r_[alone.prices, np.zeros(len(single) + len(others))])
    search = Search(replace(net, limits=(mixture, *single, *others)), weights, loose, by_first=True, grain=GRAIN)
    for widening in WIDENINGS:
        cutoff = min(hunt.value(weights), priced.bound + widening * abs(priced.bound))
        found = search.run(cutoff, max(FEW_LABELS, ALL_LABELS // len(net.tables)), deadline)
        if found.path is not None:
            hunt.judge(net.assignment(found.path))
            break
        if worked() > deadline:
            break


def _round(hunt: Hunt, tree: Tree, ranking: Ranking, choices: list[Options], deadline: float, tolerance: float,
           build: Build) -> bool:
    """Ask for one plan of the pool; whether there is nothing more to gain this way."""
    if not _built(hunt, tree, ranking, choices, tolerance, build) or hunt.net is None:
        return True
    net = hunt.over(hunt.net)
    answer = solve_network(net, hunt.plans, deadline, LABELS, tolerance=tolerance, start=ranking.prices)
    if hunt.fraction == 1:
        hunt.bound = max(hunt.bound, min(answer.lower_bound, hunt.goal * (1 - tolerance)))
    if not answer.assignments:
        return True
    if not hunt.lift(answer.assignments[-1]):
        return False
    if not hunt.close(CLOSE):
        _count_boards(hunt, net, ranking, deadline)
    return True


def _count_boards(hunt: Hunt, net: Network, ranking: Ranking, deadline: float) -> None:
    """A closer bound from labels that count how many boards are entered, and what each stretch fills of its board."""
    share = hunt.largest(net)
    if hunt.problem.goal is Goal.EDP or share is None or hunt.fraction < 1:
        return
    bent = [x.budget for x in hunt.limits if x.budget is not None]
    net = replace(net, limits=(*net.limits, *(entry_limit(net, s) for s in (share, *bent))))
    priced = price_limits(net, hunt.weights, hunt.goal, deadline, ranking.prices)
    chosen = [i for i, p in enumerate(priced.prices) if p > 0]
    limits = (*(net.limits[i] for i in chosen), stretch_limit(net, share))
    search = Search(replace(net, limits=limits), hunt.weights, replace(priced, prices=np.r_[priced.prices[chosen], 0.0]))
    search.fan_out()
    hunt.bound = max(hunt.bound, min(priced.bound, hunt.goal))
    for widening in WIDENINGS:
        cutoff = min(hunt.goal, priced.bound + widening * abs(priced.bound))
        found = search.run(cutoff, LABELS_COUNTING, deadline)
        hunt.bound = max(hunt.bound, min(found.bound, hunt.goal))
        if found.path is not None or not found.complete or cutoff >= hunt.goal or worked() > deadline:
            break
