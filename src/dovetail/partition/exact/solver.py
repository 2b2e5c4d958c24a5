"""The exact solver: prices for a bound, labels for the rest, supported points for energy-delay.

Bounds hold over the candidate columns (`problem.columns`); the answer is judged again by `evaluate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.partition.effort import halfway, worked
from dovetail.partition.exact.arcs import solve_steps, used_by
from dovetail.partition.exact.cuts import Limit, Network, Priced, price_limits, total
from dovetail.partition.exact.energy_delay import AXES, Point, Region, product
from dovetail.partition.exact.labels import FEW_LABELS, FoundPath, Search
from dovetail.partition.plan import Assignment, Goal
from dovetail.partition.proof import check_bound
from dovetail.partition.tolerances import CLOSE, ROUGH, ROUNDING, SETTLED

WIDER = 2.0
"""How much wider the next cut-off is. Chosen: the usual factor of a search by doubling."""
FIRST_WIDENING = 1.6e-3
"""The cut-off tried first: in most networks its labels are few. Chosen, not measured."""
MAX_LINES = 40
"""Weighted solves spent on one energy-delay product. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Plans worth judging, best last, and a lower bound on the goal; `proven_infeasible` if no plan exists.

    `prices` says what a whole further budget of each limit would be worth, in the goal's unit.
    """

    assignments: tuple[Assignment, ...]
    lower_bound: float
    proven_infeasible: bool = False
    prices: Mapping[str, float] = field(default_factory=dict)
    off_grid: tuple[Assignment, ...] = ()
    """Plans met that are cut where no candidate is."""


@dataclass(frozen=True, slots=True)
class _Weighted:
    path: tuple[int, ...] | None
    value: float
    bound: float
    prices: Mapping[str, float]


def solve_network(net: Network, incumbents: list[tuple[float, float]], deadline: float, max_labels: int,
                  tolerance: float = 0.0, start: Mapping[str, float] | None = None) -> Answer:
    """Minimise the problem's goal; `incumbents` are (latency, energy) of legal plans already known.

    The search for a better plan ends where none can be better by more than the fraction `tolerance`. `start` are prices on
    limits, by name, that were good in a relaxation.
    """
    if net.problem.goal is Goal.EDP:
        return _energy_delay(net, incumbents, deadline, max_labels, tolerance, start)
    weights = (1.0, 0.0) if net.problem.goal is Goal.LATENCY else (0.0, 1.0)
    found = _minimise(net, weights, incumbents, deadline, max_labels, tolerance, start)
    return Answer((net.assignment(found.path),) if found.path is not None else (), found.bound,
                  found.path is None and not incumbents and found.bound == inf, found.prices)


def _minimise(net: Network, weights: tuple[float, float], incumbents: list[tuple[float, float]], deadline: float,
              max_labels: int, tolerance: float = 0.0, start: Mapping[str, float] | None = None) -> _Weighted:
    """The least weighted sum of latency and energy. `bound` is inf if no legal plan exists."""
    known = min((weights[0] * s + weights[1] * j for s, j in incumbents), default=inf)
    priced = price_limits(net, weights, known, deadline, start)
    path, value, bound = priced.path, priced.value, priced.bound
    check_bound("prices on limits", bound, value)
    best = min(known, value)
    prices = {x.name: float(p) for x, p in zip(net.limits, priced.prices, strict=True)}
    if best - bound <= SETTLED * abs(bound):
        return _Weighted(path, value, min(bound, best), prices)
    active, costs = frozenset(name for name, p in prices.items() if p > 0), net.costs(weights)
    while max_labels > 0 and best - bound > max(SETTLED, tolerance) * abs(bound):
        found = _closed(net, costs, priced, active, best * (1 - tolerance / 2), deadline, max_labels, tolerance)
        check_bound("the search with labels", found.bound, value)
        bound = max(bound, min(found.bound, best))
        missed = frozenset() if found.path is None else _missed(net, found.path)
        if not missed:
            if found.path is not None and found.value < value:
                path, value = found.path, found.value
            break
        active |= missed
    return _Weighted(path, value, min(bound, known, value), prices)


def _closed(net: Network, costs: list[Floats], priced: Priced, active: frozenset[str], best: float, deadline: float,
            max_labels: int, tolerance: float) -> FoundPath:
    """Labels where one limit binds; where several do, plans met are put together anew, and several limits bound what is left."""
    if len(active) < 2:
        return _search(net, costs, priced, active, best, deadline, max_labels, tolerance)
    # With a pace, several processors and links bind at once, which labels alone are slow to satisfy.
    crossed = _crossed(net, costs, priced, best, deadline) if net.problem.max_interval_s is not None else None
    if crossed is None or crossed.path is None or crossed.value >= best:
        return _several(net, costs, priced, active, best, deadline, max_labels, tolerance)
    found = _several(net, costs, priced, active, crossed.value, deadline, max_labels, tolerance)
    return found if found.value < crossed.value else replace(crossed, bound=found.bound, complete=found.complete)


def _several(net: Network, costs: list[Floats], priced: Priced, active: frozenset[str], best: float, deadline: float,
             max_labels: int, tolerance: float) -> FoundPath:
    """Several limits: first all of them mixed into one, then labels or steps for the rest."""
    narrow, bound = max_labels <= FEW_LABELS, priced.bound
    mixture, alone = mixture_of(net, priced, active)
    if not narrow:
        # A relaxation no weaker than prices alone, with few labels: equal FPGAs share one budget in it.
        together = replace(net, limits=(mixture,))
        mixed = _search(together, costs, alone, frozenset({mixture.name}), best, halfway(deadline), max_labels,
                        tolerance)
        if mixed.complete and (mixed.path is None or not _missed(net, mixed.path)):
            return mixed
        bound = max(bound, mixed.bound)
    # Labels that keep every limit, but are compared by the mixture alone: a good plan, no proof.
    every = (mixture, *(x for x in net.limits if x.name in active))
    loose = replace(alone, prices=np.r_[alone.prices, np.zeros(len(every) - 1)])
    first = replace(_search(replace(net, limits=every), costs, loose, frozenset(x.name for x in every), best, halfway(deadline),
                            max_labels, by_first=True), bound=bound, complete=False)
    if narrow or min(best, first.value) - bound <= max(tolerance / 2, ROUGH) * abs(bound):
        return first
    best = min(best, first.value)
    # Below a cut-off so close to the bound labels are few, and quicker than a program of steps.
    found = _search(net, costs, priced, active, best, deadline if tolerance == 0 else halfway(deadline), max_labels, tolerance)
    first = replace(found if found.value < first.value else first, bound=max(bound, found.bound), complete=found.complete)
    if first.complete:
        return first
    stepped = solve_steps(net, costs, priced, best, deadline - worked(), max(tolerance / 2, ROUGH))
    if stepped is not None and stepped.complete:
        return replace(stepped if stepped.value < first.value else first, bound=max(stepped.bound, first.bound))
    return first


def _crossed(net: Network, costs: list[Floats], priced: Priced, best: float, deadline: float) -> FoundPath | None:
    """The best plan over the columns that plans met in the search for prices use: each misses some limit, mixed they may not."""
    return solve_steps(net, costs, priced, best, halfway(deadline) - worked(), ROUGH,
                       only=used_by(net, priced.met))


def mixture_of(net: Network, priced: Priced, active: frozenset[str]) -> tuple[Limit, Priced]:
    """All active limits mixed in proportion to their prices, and the same prices on the mixture."""
    chosen = [(x, float(p)) for x, p in zip(net.limits, priced.prices, strict=True) if x.name in active and p > 0]
    price = sum(p for _, p in chosen)
    mixture = Limit("together", None, 1.0, tuple((x, p / price) for x, p in chosen))
    return mixture, replace(priced, prices=np.array([price]))


def _search(net: Network, costs: list[Floats], priced: Priced, active: frozenset[str], best: float, deadline: float,
            max_labels: int, tolerance: float = 0.0, by_first: bool = False) -> FoundPath:
    """Labels with rising cut-offs, keeping count only of active limits: a relaxation until its plan meets the others too."""
    chosen = [i for i, x in enumerate(net.limits) if x.name in active]
    counted = replace(net, limits=tuple(net.limits[i] for i in chosen))
    search = Search(counted, costs, replace(priced, prices=priced.prices[chosen]), by_first)
    first = min(best, priced.bound + FIRST_WIDENING * abs(priced.bound))
    quick = found = search.run(first, min(max_labels, FEW_LABELS), deadline)
    least, narrow = max(priced.bound, found.bound), max_labels <= FEW_LABELS
    if (found.complete and (found.path is not None or first >= best)) or (narrow and found.path is not None):
        return replace(found, bound=least)
    blur = max(tolerance, CLOSE) / 2  # what a wider search may lose in all, as a fraction of the bound
    search.fan_out()
    # From below, the least cut-off at which there is a plan keeps the fewest labels.
    widening = FIRST_WIDENING if found.complete else FIRST_WIDENING / WIDER**4
    while True:
        # The more limits, the farther from the bound a plan is: one that could not be kept whole is not looked at closely.
        widening *= WIDER
        widening = inf if widening > 1 else widening if found.complete else widening * WIDER ** len(active)
        cutoff = min(best, priced.bound + widening * abs(priced.bound))
        sharp = widening <= WIDER**2 * FIRST_WIDENING or narrow or (found.complete and found.most <= FEW_LABELS)
        found = search.run(cutoff, max_labels, deadline, 0.0 if sharp else blur * abs(priced.bound) / len(net.tables))
        least = max(least, found.bound)
        if found.path is not None or cutoff >= best or worked() > deadline or not (found.complete or narrow):
            break
    better = found if found.value <= quick.value else quick
    return replace(better, bound=least, complete=found.complete)


def _missed(net: Network, path: tuple[int, ...]) -> frozenset[str]:
    """Limits that a plan exceeds."""
    used = {x.name: total(net, path, net.amounts(x)) for x in net.limits}
    return frozenset(name for name, amount in used.items() if amount > 1 + ROUNDING)


def _energy_delay(net: Network, incumbents: list[Point], deadline: float, max_labels: int, tolerance: float,
                  start: Mapping[str, float] | None) -> Answer:
    """Least latency x energy.

    The product is quasi-concave where both are positive, so its minimum over the plans is that over their convex hull,
    at an extreme point, which some weighted sum finds. Sums along the product's slope lead from a known plan to better ones.
    Lines that support the hull enclose it from below; the product at the best corner they form is a bound, and the weights
    across that corner are tried next.
    """
    search = _Products(net, list(incumbents), deadline)
    if not search.points:
        least = (search.support(AXES[0], max_labels), search.support(AXES[1], max_labels))
        if inf in least or not search.points:
            return Answer((), inf if inf in least else product(least), inf in least)
    search.prices = {name: p / (2 * search.best) for name, p in (start or search.prices).items()}
    search.descend(max_labels)
    if max_labels <= FEW_LABELS:
        return Answer(tuple(search.assignments), 0.0, prices={name: 2 * search.best * p for name, p in search.prices.items()})
    search.enclose(max_labels, max(SETTLED, tolerance))
    return Answer(tuple(search.assignments), min(search.bound, search.best))


class _Products:
    """Plans and lines met in the search for the least product."""

    def __init__(self, net: Network, points: list[Point], deadline: float) -> None:
        self.net, self.points, self.deadline = net, points, deadline
        self.prices: dict[str, float] = {}
        """What limits are worth, as parts of a sum."""
        self.assignments: list[Assignment] = []
        self.lines: list[tuple[Point, float]] = []
        self.bound = 0.0

    @property
    def nearest(self) -> Point:
        return min(self.points, key=product)

    @property
    def best(self) -> float:
        return product(self.nearest)

    def support(self, weights: Point, labels: int, deadline: float | None = None) -> float:
        """A line below all plans for given weights; the plan met on the way is kept."""
        found = _minimise(self.net, weights, self.points, self.deadline if deadline is None else deadline, labels,
                          start=self._prices(weights))
        self.prices = {name: p / self._sum(weights) for name, p in found.prices.items()} if self.points else {}
        if found.path is not None:
            point = total(self.net, found.path, self.net.costs(AXES[0])), total(self.net, found.path, self.net.costs(AXES[1]))
            if product(point) < min(map(product, self.points), default=inf):
                self.assignments.append(self.net.assignment(found.path))
            self.points.append(point)
        self.lines.append((weights, found.bound))
        return found.bound

    def _sum(self, weights: Point) -> float:
        """What the best plan comes to."""
        return weights[0] * self.nearest[0] + weights[1] * self.nearest[1]

    def _prices(self, weights: Point) -> dict[str, float] | None:
        """Prices to begin with: limits are worth about the same part of any sum."""
        return {name: p * self._sum(weights) for name, p in self.prices.items()} if self.points else None

    def descend(self, labels: int) -> None:
        """Look along the slope at the best plan, as long as that leads to a better one."""
        before = inf
        while self.best < before * (1 - CLOSE) and worked() <= self.deadline:
            before, at = self.best, self.nearest
            self.support((0.5 / at[0], 0.5 / at[1]), labels, halfway(self.deadline))

    def enclose(self, max_labels: int, tolerance: float) -> None:
        """A bound from lines around all plans, and the plans that these meet."""
        idle = (-self.net.problem.idle_power_w, 1.0)
        *least, spent = (price_limits(self.net, weights, self._sum(weights), self.deadline, self._prices(weights), ROUGH).bound
                         for weights in (*AXES, idle))
        if min(least) <= 0:
            return
        region = Region((least[0], least[1]), self.best)
        for line in ((idle, spent), *self.lines):
            region.clip(*line)
        # Prices alone give lines cheaply; labels then sharpen those that still matter.
        asked: dict[int, list[Point]] = {0: [], max_labels: [w for w, _ in self.lines]}
        for _ in range(MAX_LINES):
            self.bound = max(self.bound, region.bound)
            labels, weights = next(((n, w) for n in asked if (w := _across(self.points, region.corner, asked[n])) is not None),
                                   (0, None))
            if self.best - self.bound <= tolerance * self.best or weights is None or worked() > self.deadline:
                break
            asked[labels].append(weights)
            region.clip(weights, self.support(weights, labels))


def _across(points: list[Point], corner: Point, asked: list[Point]) -> Point | None:
    """Weights that may cut a corner off: across the plans on both sides, else along the product's slope; None if all tried."""
    left = max((p for p in points if p[0] <= corner[0] * (1 + ROUNDING)), default=None)
    right = min((p for p in points if p[1] <= corner[1] * (1 + ROUNDING)), default=None)
    tries = [(left[1] - right[1], right[0] - left[0])] if left is not None and right is not None else []
    for weights in (*tries, (corner[1], corner[0])):
        if min(weights) > 0:
            size = weights[0] * corner[0] + weights[1] * corner[1]
            scaled = (weights[0] / size, weights[1] / size)
            if not any(abs(scaled[0] * a[1] - scaled[1] * a[0]) <= ROUNDING * scaled[1] * a[0] for a in asked):
                return scaled
    return None
