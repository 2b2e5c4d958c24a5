"""The pool's bound made closer, and its plans made real: fronts first, then labels that know how full every board is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dovetail.cost.estimate import Floats
from dovetail.partition.boards import Filling
from dovetail.partition.cuts import Network, Priced, price_limits
from dovetail.partition.exact import mixture_of
from dovetail.partition.fronts import Fronts, fronts_of
from dovetail.partition.plan import Assignment
from dovetail.partition.pool import Pool, Share
from dovetail.partition.renaming import Names

REACHED = 120_000
"""Labels of one cut beyond which fronts are given up."""
KEPT = (300, 1_500, 6_000)
"""Labels kept per cut in one search after another."""
PART = 0.6
"""Part of the time left that fronts may take."""


@dataclass(frozen=True, slots=True)
class Told:
    """What a search told: a plan whose boards have no place yet, also in names of the pool, and a bound on every plan."""

    assignment: Assignment | None
    pooled: Assignment | None
    bound: float
    names: Names


def fill(net: Network, pool: Pool, weights: tuple[float, float], share: Share, goal: float, deadline: float,
         tell: Callable[[Told], float]) -> bool:
    """Search for plans better than `goal`, and for a bound; whether there was anything to say.

    `tell` hears of every search and answers with the value above which plans are not worth looking for, which falls.
    """
    boards = tuple(i for i, d in enumerate(net.problem.devices) if d in pool.stand_ins)
    names, many, loads = Names(net, boards), len(pool.boards) > len(pool.stand_ins), _loads(net, share, boards)
    priced = price_limits(net, weights, goal, deadline)
    for widening in WIDENINGS:
        if goal <= priced.bound * (1 + SOON * widening) and widening < np.inf:
            continue
        cutoff, now = min(goal, priced.bound + widening * abs(priced.bound)), time.thread_time()
        fronts = _fronts(net, weights, priced, cutoff, now + PART * max(0.0, deadline - now), names)
        if fronts is None:
            return False
        goal = tell(Told(None, None, min(fronts.best, cutoff), names))
        filling, spent, before = Filling(fronts, names, loads, many), 0.0, 0
        for most in KEPT:
            now = time.thread_time()
            # Time grows as labels do: what cannot be done in time is not begun.
            if fronts.best >= min(goal, cutoff) or now + spent * most / max(1, before) > deadline:
                break
            found = filling.run(min(cutoff, goal), most, deadline)
            spent, before = time.thread_time() - now, most
            goal = tell(Told(found.assignment, found.pooled, found.bound, names))
            if found.complete:
                break
        if cutoff >= goal or time.thread_time() > deadline:
            break
    return True


SOON = 1.5
"""How much farther than a widening a plan may be for that to be left out: what is found below it must be found again."""
WIDENINGS = (0.02, 0.06, 0.18, np.inf)
"""How far above the prices' bound plans are looked for."""


def _fronts(net: Network, weights: tuple[float, float], priced: Priced, cutoff: float, deadline: float,
            names: Names) -> Fronts | None:
    """Fronts under what binds, all mixed into one limit; where nothing does, of the cheapest beginnings alone."""
    active = frozenset(x.name for x, p in zip(net.limits, priced.prices, strict=True) if p > 0)
    if any(x.budget is None for x in net.limits if x.name in active):
        return None
    amounts, price = [np.zeros(len(own)) for own in net.owners], 0.0
    if active:
        mixture, alone = mixture_of(net, priced, active)
        amounts, price = net.amounts(mixture), float(alone.prices[0])
    return fronts_of(net, weights, amounts, price, cutoff, REACHED, deadline, names)


def _loads(net: Network, share: Share, boards: tuple[int, ...]) -> list[Floats]:
    """What every column takes of each board."""
    own = {net.problem.budgets[i][0]: i for i in share.budgets}
    chosen = [own[net.problem.devices[b]] for b in boards]
    return [owner.resources[:, chosen] / share.limit for owner in net.owners]
