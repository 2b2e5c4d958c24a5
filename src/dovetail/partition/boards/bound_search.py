"""Bounds on plans for equal FPGAs, and guides for placing them: fronts first, then labels that know how full every board is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.partition.boards.label_search import Filling
from dovetail.partition.boards.relaxation import Pool, Share
from dovetail.partition.boards.symmetry import Names
from dovetail.partition.effort import worked
from dovetail.partition.exact.cuts import Network, Priced, price_limits, total
from dovetail.partition.exact.fronts import EPSILON, SLACK, Fronts, Grain, fronts_of
from dovetail.partition.exact.solver import mixture_of
from dovetail.partition.plan import Assignment

REACHED = 120_000
"""Labels of one cut beyond which fronts are given up: chosen, for memory of some hundred megabytes."""
KEPT = ((3e-3, 300), (1.5e-2, 300), (np.inf, 300), (np.inf, 1_500), (np.inf, 6_000))
"""How far above the least of the fronts plans are looked for, and labels kept per cut, in one search after another: chosen."""


@dataclass(frozen=True, slots=True)
class SearchReport:
    """What a search found: a bound on every plan, plans of the relaxation with their costs, and perhaps a plan of few boards."""

    bound: float
    names: Names
    guides: tuple[tuple[float, Assignment], ...] = ()
    plan: Assignment | None = None
    """Of few boards, up to their names."""


def search_bounds(net: Network, pool: Pool, weights: tuple[float, float], shares: Sequence[Share], goal: float, deadline: float,
                  tell: Callable[[SearchReport], float], late_s: float = 0.0) -> bool:
    """Search for a bound, and for plans better than `goal`; whether there was anything to say. Boards are filled with `shares`.

    `tell` hears of every search and answers with the value above which plans are not worth looking for, which falls. Fronts may
    end up to `late_s` after the deadline: a bound that is late is better than none.
    """
    boards, many = pool.among(net.problem.devices), pool.many
    loads = _loads(net, shares, boards)
    # A few boards are near each other whatever they are called; on a long ring, neighbours are what is sought.
    names = Names(net, boards, many)
    priced = price_limits(net, weights, goal, deadline)
    if tell(SearchReport(priced.bound, names)) == -np.inf:
        return True
    cutoff, grain = goal, FINE if many else None
    if many:
        rough = fronts_below(net, weights, priced, goal, deadline + late_s, names, shares[0], many, ROUGH)
        if rough is not None and rough.path() is not None:
            goal = tell(SearchReport(priced.bound, names, _guides(rough)))
            cutoff = min(goal, rough.best * (1 + ABOVE))
    fronts = fronts_below(net, weights, priced, cutoff, deadline + LATE * late_s, names, shares[0], many, grain)
    if fronts is None:
        return False
    goal = tell(SearchReport(min(fronts.best, cutoff), names, _guides(fronts)))
    _searched(Filling(fronts, names, loads, many), names, fronts.best, cutoff, goal, deadline, tell)
    return True


def _searched(filling: Filling, names: Names, least: float, cutoff: float, goal: float, deadline: float,
              tell: Callable[[SearchReport], float]) -> None:
    """Look for plans below a cut-off with more and more labels; no plan is below `least`."""
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
        plans = () if found.assignment is None else ((found.value, found.assignment),)
        goal = tell(SearchReport(found.bound, names, plans, None if filling.many else found.assignment))
        value = min(value, found.value)
        if found.complete and (found.assignment is not None or at >= min(cutoff, goal)):
            break


def _guides(fronts: Fronts) -> tuple[tuple[float, Assignment], ...]:
    """Plans of the relaxation with their costs, the cheapest first: that one, and dearer ones that take less of the boards.

    Where labels stand for several, some take more than there is.
    """
    last = fronts.reached[-1]
    every = [(float(last.cost[i]), fronts.path_to(i)) for i in fronts.thriftier(DEARER)]
    return tuple((cost, fronts.net.assignment(path)) for cost, path in sorted(every)
                 if not fronts.merged or total(fronts.net, path, fronts.amounts) <= 1 + EPSILON)


DEARER = (0.0, *(1e-3 * 2.0 ** k for k in range(9)))
"""How much more than the least of the fronts plans that take less of the pool may cost to be offered: chosen, each twice the
last, as boards with budgets of their own have less room than the pool of them."""
LATE = 0.75
"""Part of the time by which searches may end late that fronts for a bound have: chosen, the rest is for labels."""
LEAST_S = 0.5
"""Seconds of computing that must be left for a search over all of a few boards to begin: chosen."""
LITTLE = 2.5e-3
"""Twice the fraction above the best plan's sum up to which a product's search looks: chosen."""
ENDING = 0.25
"""Part of the time left before which a search over all of a few boards hurries: it goes on to its end, with fewer labels.
Chosen."""
GROWTH = 0.6
"""Power with which time grows with labels where they are few, as most of it goes to states: an estimate, chosen."""
FULL_GROWTH = 1.1
"""The same where they are as many as allowed: chosen."""
FOUND_GROWTH = 0.3
"""The same where a plan was found, below which all others are then looked for: chosen."""
ROUGH = Grain(32, below=False, most=200)
"""How labels are told apart in a first search for a plan of the relaxation, where boards are many: chosen, coarsely."""
FINE = Grain(256, below=True)
"""How labels are told apart in the second search, for a bound: chosen, finely."""
ABOVE = 0.015
"""Fraction above the plan of the first search at which the second one ends: chosen."""


def fronts_below(net: Network, weights: tuple[float, float], priced: Priced, cutoff: float, deadline: float,
                 names: Names, share: Share, free: bool, grain: Grain | None = None) -> Fronts | None:
    """Fronts under what binds, all mixed into one limit.

    Where nothing does, under a limit that plans of few boards may need; if `free`, under none: states then have one label each.
    """
    active = frozenset(x.name for x, p in zip(net.limits, priced.prices, strict=True) if p > 0)
    if any(x.budget is None for x in net.limits if x.name in active):
        return None
    amounts, price = [share.taken(own.resources) * (not free) for own in net.owners], 0.0
    if active:
        mixture, alone = mixture_of(net, priced, active)
        amounts, price = net.amounts(mixture), float(alone.prices[0])
    return fronts_of(net, net.costs(weights), amounts, price, cutoff, REACHED, deadline, names, grain)


def _loads(net: Network, shares: Sequence[Share], boards: tuple[int, ...]) -> list[Floats]:
    """What every column takes of each board, of one resource after another."""
    chosen, limits = list[int](), list[float]()
    for share in shares:
        own = {net.problem.budgets[i][0]: i for i in share.budgets}
        chosen += [own[net.problem.devices[b]] for b in boards]
        limits += [share.limit] * len(boards)
    return [owner.resources[:, chosen] / np.array(limits) for owner in net.owners]
