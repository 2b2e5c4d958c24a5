"""The search for prices on limits under which a relaxation bounds all plans best, by cutting planes (Kelley 1960)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.partition.effort import worked
from dovetail.partition.linear_programs import DEAREST, Corner, largest_minimum
from dovetail.partition.tolerances import SETTLED, TOLERANCE
from dovetail.values import dataclass

ROUNDS = 80
"""Rounds of a search for prices or weights at most. Chosen: they converge long before, or not at all."""
LEAST_ROUNDS = 24
"""Rounds of the price search that are made whatever the time:

they are cheap, and without prices a bound says little. Chosen, not measured.
"""
NEAR = 0.05
"""Fraction of a good price within which a better one is sought first. Chosen, not measured."""
WIDER = 8.0
"""By how much more where it lies outside. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the cheapest plan under some prices proves, costs and uses (as fractions of the limits)."""

    bound: float
    spent: float
    used: Floats


def maximise_bound(answer: Callable[[Floats], Reply], count: int, ceiling: float, deadline: float,
                   start: Floats | None = None, settled: float = SETTLED) -> tuple[Floats, float]:
    """Prices with the largest bound, by cutting planes (Kelley 1960): each plan met bounds the dual from above.

    With a `start`, a single price is first sought near it. The search ends where `settled` is all there is left to gain.
    """
    prices = np.zeros(count) if start is None else start
    best_prices, best, value, cap = prices, -np.inf, ceiling, 4 * float(prices.max(initial=0.0))
    reach = NEAR if cap > 0 else np.inf
    cuts: list[tuple[float, Floats]] = []
    corners: dict[tuple[int, ...], Corner] = {}
    for number in range(ROUNDS):
        reply = answer(prices)
        if reply.bound > best:
            best, best_prices = reply.bound, prices
        if max(reply.used.tolist(), default=0.0) <= 1:
            value = min(value, reply.spent)
        cuts.append((reply.spent, reply.used - 1))
        cap = cap or 4 * abs(reply.spent) + 1e-300
        if not count or value - best <= settled * abs(best) or (number >= LEAST_ROUNDS and worked() > deadline):
            break
        upper, prices, inner = _next_prices(cuts, cap, best_prices, reach, corners)
        if not inner:
            reach *= WIDER
            continue
        bounded = bool(prices.max() < cap * (1 - TOLERANCE)) or cap > DEAREST * abs(cuts[0][0])
        cap = cap if bounded else 8 * cap
        if bounded and upper - best <= settled * abs(upper):
            break
    return best_prices, best


def _next_prices(cuts: list[tuple[float, Floats]], cap: float, around: Floats, reach: float,
                 corners: dict[tuple[int, ...], Corner]) -> tuple[float, Floats, bool]:
    """Prices up to `cap` at which the plans met so far allow the largest bound, that bound, and whether it is the largest.

    A single price is sought within the fraction `reach` of the best one known: larger bounds may be farther away. Several are
    sought from where those of the same limits were found with fewer plans, which `corners` remembers.
    """
    values, slopes = np.array([c for c, _ in cuts]), np.array([slack for _, slack in cuts])
    # A limit that no plan met has exceeded is worth nothing yet.
    active = ((slopes > 0).any(axis=0) | (around > 0)).nonzero()[0]
    prices = np.zeros(slopes.shape[1])
    if len(active) > 1:
        corner = corners.setdefault(tuple(active.tolist()), Corner())
        upper, prices[active] = largest_minimum(values, slopes[:, active], cap, corner)
        return upper, prices, True
    if not len(active):
        return float(values.min()), prices, True
    middle = float(around[active[0]])
    low, high = (middle / (1 + reach), min(cap, middle * (1 + reach))) if middle > 0 and reach < np.inf else (0.0, cap)
    prices[active], upper = _highest(values, slopes[:, active[0]], low, high)
    return upper, prices, bool(low < prices[active[0]] < high) or (low == 0 and high == cap)


def _highest(values: Floats, slopes: Floats, low: float, high: float) -> tuple[float, float]:
    """Where in [low, high] the lowest of several lines is highest, and how high."""
    rising, falling = slopes > 0, slopes <= 0
    found = [low, high]
    if rising.any() and falling.any():
        crossing = (values[falling] - values[rising][:, None]) / (slopes[rising][:, None] - slopes[falling])
        found += crossing[(crossing > low) & (crossing < high)].tolist()
    at = np.array(found)
    lowest = (values[:, None] + slopes[:, None] * at).min(axis=0)
    best = int(lowest.argmax())
    return float(at[best]), float(lowest[best])
