"""The pool's bound made closer, and its plans made real: fronts first, then labels that know how full every board is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.partition.boards.label_search import Filling, Line
from dovetail.partition.boards.relaxation import Pool, Share
from dovetail.partition.boards.symmetry import Names
from dovetail.partition.cuts import Network, Priced, price_limits, total
from dovetail.partition.effort import worked
from dovetail.partition.exact.fronts import EPSILON, SLACK, Fronts, Grain, fronts_of
from dovetail.partition.exact.solver import mixture_of
from dovetail.partition.plan import Assignment

REACHED = 120_000
"""Labels of one cut beyond which fronts are given up."""
KEPT = ((3e-3, 300), (1.5e-2, 300), (np.inf, 300), (np.inf, 1_500), (np.inf, 6_000))
"""How far above the least of the fronts plans are looked for, and labels kept per cut, in one search after another."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a search told: a plan whose boards have no place yet, also in names of the pool, and a bound on every plan."""

    assignment: Assignment | None
    pooled: Assignment | None
    bound: float
    names: Names
    line: Line | None = None
    offers: tuple[tuple[float, Assignment], ...] = ()
    """Plans of the pool with their costs, cheap ones and ones that take less of it."""
    filling: Filling | None = None
    """The search itself, where another may go on from what it knows."""


def fill(net: Network, pool: Pool, weights: tuple[float, float], shares: Sequence[Share], goal: float, deadline: float,
         tell: Callable[[Told], float], near: bool, late_s: float = 0.0) -> bool:
    """Search for plans better than `goal`, and for a bound; whether there was anything to say. Boards are filled with `shares`.

    `tell` hears of every search and answers with the value above which plans are not worth looking for, which falls. If `near`,
    the goal is that of a plan for the boards; else plans are looked for nearer to the bound first. Of many boards, the first
    fronts may end `late_s` after the deadline, of few all somewhat later: they also have plans to lift or to pour.
    """
    boards, many = pool.among(net.problem.devices), pool.many
    loads = _loads(net, shares, boards)
    # A few boards are near each other whatever they are called; on a long ring, neighbours are what is sought.
    names = Names(net, boards, many)
    priced, begun = price_limits(net, weights, goal, deadline), worked()
    near &= goal <= priced.bound * (1 + NEAR)
    spent, met, wanted = 0.0, False, tell(Told(None, None, priced.bound, names)) > -np.inf
    large = len(net.tables) > MANY_NODES
    cutoffs, grain = _cutoffs(priced.bound, goal, near, not many and large) if wanted else [], None
    binding = many and bool(cutoffs) and bool((priced.prices > 0).any())
    likely = _likely(net, weights, priced, goal, deadline + late_s, names, shares[0]) if binding else None
    if likely is not None and large:  # there is no time for labels before a plan is known
        path = likely.path()
        tell(Told(None, net.assignment(path) if path is not None else None, likely.best, names,
                  filling=Filling(likely, names, loads, many)))
        return True
    if likely is not None:
        cutoffs, grain = [likely.cutoff], FINE
    elif binding:
        rough = fronts_below(net, weights, priced, goal, deadline + late_s, names, shares[0], many, ROUGH[large])
        path = rough.path() if rough is not None else None
        if rough is not None and path is not None:
            tell(Told(None, net.assignment(path), priced.bound, names))
            cutoffs, grain = [rough.best * (1 + ABOVE)], FINE
    for part in cutoffs:
        cutoff, now = min(part, goal), worked()
        if many and spent > 0 and now + GROWN * spent > deadline:
            break
        late = late_s * ((spent == 0) * (1.0 if grain is None else GRAINED_LATE) if many else FEW_LATE)
        fronts = likely or fronts_below(net, weights, priced, cutoff, deadline + late, names, shares[0], many, grain)
        if fronts is None:
            return many and spent > 0
        spent = worked() - now
        path = _path(fronts) if many else None
        offers = () if many else _offers(fronts)
        goal = tell(Told(None, net.assignment(path) if path is not None else None, min(fronts.best, cutoff), names,
                         offers=offers))
        goal, found, _ = _searched(Filling(fronts, names, loads, many), names, fronts.best, cutoff, goal, deadline, tell)
        met |= found
        now = worked()
        if met or cutoff >= goal or now > deadline or (near and now - begun > AGAIN * (deadline - now)):
            break
    return True


def _searched(filling: Filling, names: Names, least: float, cutoff: float, goal: float, deadline: float,
              tell: Callable[[Told], float]) -> tuple[float, bool, float]:
    """Look for plans below a cut-off with more and more labels; the goal then, whether there was any plan, and a bound on all.

    No plan is below `least`.
    """
    best, value, spent, before, growth = least, np.inf, 0.0, 0, GROWTH
    first_s = 0.0 if filling.many else LEAST_S
    for nearer, most in KEPT:
        now, at = worked(), min(cutoff, goal, best * (1 + nearer), value * (1 + SLACK))
        if value < np.inf and most <= before:
            continue
        # Time grows as labels do: what cannot be done in time is not begun.
        if best >= min(goal, cutoff) or now + max(first_s, spent * (most / max(1, before)) ** growth) > deadline:
            break
        found = filling.run(at, most, deadline if filling.many else deadline - ENDING * max(0.0, deadline - now))
        growth = FOUND_GROWTH if found.assignment is not None else GROWTH if found.most < most else FULL_GROWTH
        spent, before = worked() - now, most
        goal = tell(Told(found.assignment, found.pooled, found.bound, names, found.line,
                         filling=filling if filling.many else None))
        value = min(value, found.value)
        least = max(least, found.bound)
        if found.complete and (found.assignment is not None or at >= min(cutoff, goal)):
            break
    return goal, value < np.inf, least


def _path(fronts: Fronts) -> tuple[int, ...] | None:
    """The cheapest plan of fronts; None where what stands for several labels made it take more than there is."""
    path = fronts.path()
    return path if path is None or total(fronts.net, path, fronts.amounts) <= 1 + EPSILON else None


def _offers(fronts: Fronts) -> tuple[tuple[float, Assignment], ...]:
    """Plans to be poured with their costs, the cheapest first; those that fill the pool to the brim find boards last.

    Unless no others are near: then it is worth trying.
    """
    last, found = fronts.reached[-1], fronts.thriftier(DEARER)
    roomy = any(last.used[i] <= BRIM and last.cost[i] <= fronts.best * (1 + ROOMY) for i in found)
    found.sort(key=lambda i: (roomy and last.used[i] > BRIM, last.cost[i]))
    return tuple((float(last.cost[i]), fronts.net.assignment(fronts.path_to(i))) for i in found)


def _cutoffs(bound: float, goal: float, near: bool, large: bool) -> list[float]:
    """Values below which plans are looked for, one after another, up to the goal; of a large network, without the first."""
    if near:
        return [goal * (1 - LITTLE), goal]
    return [c for w in WIDENINGS[large:] if (c := bound * (1 + w)) * SOON - bound * (SOON - 1) < goal] + [goal]


DEARER = (0.0, 1e-3, 2.5e-3, 4e-3, 8e-3, 1.6e-2)
"""How much more than the least of the fronts plans that take less of the pool may cost to be offered."""
BRIM, ROOMY = 0.9985, 4e-3
"""Part of the pool beyond which boards can hardly be filled, and how much more than the least plans below it may cost to be tried
first."""
FEW_LATE, GRAINED_LATE = 0.75, 0.75
"""Part of the time by which fronts may end late that those of a few boards have, and those that follow a rough search."""
LEAST_S = 0.5
"""Seconds of computing that must be left for a search over all of a few boards to begin."""
LITTLE, AGAIN = 2.5e-3, 0.25
"""By how much plans must be better than one that is near the best to be looked for first, and the part of the time left in which
that must be done for all to be looked for."""
ENDING = 0.25
"""Part of the time left before which a search over all of a few boards hurries: it goes on to its end, with fewer labels."""
GROWN = 3.0
"""Times as long as the last fronts that wider ones take at least, where boards are many: what cannot be done is not begun."""
NEAR = 0.12
"""How far above the prices' bound a plan for the boards may be to be taken for one near the best."""
GROWTH, FULL_GROWTH, FOUND_GROWTH = 0.6, 1.1, 0.3
"""Powers with which time grows with labels where they are few, as most of it goes to states, where they are as many as allowed,
and where a plan was found, below which all others are then looked for."""
SOON = 1.2
"""How much farther than a widening a plan may be for that to be left out: what is found below it must be found again."""
ROUGH, FINE, ABOVE = (Grain(32, below=False, most=200), Grain(32, below=False, most=100)), Grain(256, below=True), 0.015
"""Where boards are many and limits bind, prices are far below the best plan: how labels are told apart in a first search for a
plan of the pool, of a network and of a large one, and in a second one for a bound, and how far above that plan the second one
ends."""
LIKELY, MET, SOME_NODES = 0.03, 0.2, 100
"""How far above the prices' bound the second search looks before any other, where a plan met with prices is no farther than that
and nodes are more: most often a plan is there, and a first search would have taken longest."""
WIDENINGS, MANY_NODES = (0.02, 0.06, 0.11, 0.13, 0.18), 200
"""How far above the prices' bound plans are looked for, and nodes beyond which the first takes too long for what it tells."""


def _likely(net: Network, weights: tuple[float, float], priced: Priced, goal: float, deadline: float, names: Names,
            share: Share) -> Fronts | None:
    """Fronts near the prices' bound, where boards are many; None where no plan is there, or where one hardly is."""
    if len(net.tables) <= SOME_NODES or priced.value >= priced.bound * (1 + MET):
        return None
    found = fronts_below(net, weights, priced, min(goal, priced.bound * (1 + LIKELY)), deadline, names, share, True, FINE)
    return found if found is not None and _path(found) is not None else None


def fronts_below(net: Network, weights: tuple[float, float], priced: Priced, cutoff: float, deadline: float,
                 names: Names, share: Share, free: bool, grain: Grain | None = None) -> Fronts | None:
    """Fronts under what binds, all mixed into one limit.

    Where nothing does, under a limit that plans to be seated may need; if `free`, under none: states then have one label each.
    """
    active = frozenset(x.name for x, p in zip(net.limits, priced.prices, strict=True) if p > 0)
    if any(x.budget is None for x in net.limits if x.name in active):
        return None
    amounts, price = [share.taken(own.resources) * (not free) for own in net.owners], 0.0
    if active:
        mixture, alone = mixture_of(net, priced, active)
        amounts, price = net.amounts(mixture), float(alone.prices[0])
    return fronts_of(net, weights, amounts, price, cutoff, REACHED, deadline, names, grain)


def _loads(net: Network, shares: Sequence[Share], boards: tuple[int, ...]) -> list[Floats]:
    """What every column takes of each board, of one resource after another."""
    chosen, limits = list[int](), list[float]()
    for share in shares:
        own = {net.problem.budgets[i][0]: i for i in share.budgets}
        chosen += [own[net.problem.devices[b]] for b in boards]
        limits += [share.limit] * len(boards)
    return [owner.resources[:, chosen] / np.array(limits) for owner in net.owners]
