"""What is known while plans for equal FPGAs are looked for: plans, a bound, and what must be cut off for the two to meet.

A plan of the pool becomes one of the boards in several ways: whole boards get their names (`seating`), parts get boards
(`lifting`), or nodes are cut anywhere to fill boards to the brim (`pouring`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from dovetail.partition.boards.assignment import Parts, lift, parts_of, without_rest
from dovetail.partition.boards.closing import Told
from dovetail.partition.boards.dividing import pour
from dovetail.partition.boards.label_search import Filled, Filling
from dovetail.partition.boards.node_moves import settle
from dovetail.partition.boards.prefix_bounds import remembered, remembered_beside
from dovetail.partition.boards.relaxation import ROW, Pool, Share, curves
from dovetail.partition.boards.ring_order import SPARING, THRIFTY, WIDE, wind
from dovetail.partition.boards.ring_places import homeward, seat
from dovetail.partition.columns import Options
from dovetail.partition.cuts import Limit, Network, Priced, completions, follow, price_limits, priced_costs
from dovetail.partition.effort import worked
from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.exact.energy_delay import Point, Region, ends
from dovetail.partition.exact.refine import refine
from dovetail.partition.parallel.overlap import arm_devices
from dovetail.partition.plan import Assignment, Goal
from dovetail.partition.problem import TOLERANCE, Problem

WORTH = 1e-4
"""By how much parts must exceed the boards under a curve for it to become a limit."""
CURVES = 2
"""Limits added at a time."""
TIGHTER = 0.985
"""By how much boards are taken smaller, each time, where parts do not fit though no curve shows why: that finds plans only."""
FAR = 5e-3
"""Distance beyond which parts are given boards one by one as well, where boards are many."""
NEAR, CLOSER_LABELS = 4.5e-3, 300
"""Distance below the best plan up to which a closer bound is looked for then, and labels kept per cut."""
FARTHER, BESIDE, LONGER = (7.5e-3, 1e-2), 4.9e-3, 4.0
"""Distances between which boards beside a window are remembered at once, as that alone may bring the bound near, how near it
shall, and times as long as the window alone took that both take."""
WIDER, AGAIN = 3.0, 1.2
"""Times as long as a plan took to be wound that one with far more beginnings takes at most, and one with some more, as prices are
known by then: where limits bind, as no closer bound is looked for then."""
LOWER = 0.97
"""Part of the best prices under which plans ask for more than there is, where no plan of the pool is known or finds room."""
ASTRAY = 0.03
"""Distance from the bound beyond which more beginnings would not do: those that waste less of the boards may, and the host takes
back what it would rather do itself. From half of it on, where limits bind, what is cheapest under lower prices is wound too."""
TRIES = 2
"""Plans of the pool that are poured whatever the time, until one has found room."""
ADDED = 0.5
"""Part of what pouring added to a plan, where that made it no better than a known one, that it is taken to add to others."""
NEARLY = 1e-3
"""By how much less than a known plan one of the pool must cost to be poured; within half of it, what comes of it will do."""


AIM, LEAST_AIM = 3.5e-3, 5e-4
"""How far from the best plan a product's corners may be, and how far at least from what the line along its slope proves."""


@dataclass
class Hunt:
    """What is known so far: plans, a bound, and the limits that curves have added."""

    problem: Problem
    relaxed: Problem
    pool: Pool
    plans: list[tuple[float, float]]
    found: list[Assignment] = field(default_factory=list)
    loose: list[Assignment] = field(default_factory=list)
    """Plans met that are cut where no candidate is."""
    bound: float = 0.0
    limits: list[Limit] = field(default_factory=list)
    fraction: float = 1.0
    left: list[Options] = field(default_factory=list)
    kept: list[Options] = field(default_factory=list)
    struck: float = inf
    seated: list[Assignment] = field(default_factory=list)
    unseated: Assignment | None = None
    of_pool: Assignment | None = None
    """The last plans that found no seats, and that of the pool alone."""
    filled: Assignment | None = None
    """The last plan of a search that knows how full boards are, in names of the pool."""
    filling: Filling | None = None
    """The last such search, where boards are many."""
    late_s: float = 0.0
    net: Network | None = None
    """The network over the columns kept, and for which goal they were."""
    poured: set[frozenset[str]] = field(default_factory=set)
    """Which nodes plans that were poured have on boards alone."""
    region: Region | None = None
    """Of a product: the lines that no plan is below."""
    slope: Point | None = None
    line: float = 0.0
    """The weights that a product's search has at the moment, and its bound on their sum."""

    @property
    def goal(self) -> float:
        return min((self.problem.score(*p) for p in self.plans), default=inf)

    @property
    def best(self) -> tuple[float, float] | None:
        return min(self.plans, key=lambda p: self.problem.score(*p), default=None)

    @property
    def weights(self) -> tuple[float, float]:
        """What latency and energy count; a product counts along its slope at the best plan, or as a search for it goes."""
        slope = self.slope or ((1.0, 1.0) if self.best is None else (self.best[1], self.best[0]))
        return {Goal.LATENCY: (1.0, 0.0), Goal.ENERGY: (0.0, 1.0)}.get(self.problem.goal, slope)

    @property
    def merged(self) -> bool:
        """Whether boards are many and limits bind: labels of the last search stand for others."""
        return self.filling is not None and self.filling.fronts.merged

    @property
    def labelled(self) -> bool:
        """Whether a search over boards has been; if not, it is what to do once there is a plan."""
        return self.filling is not None and bool(self.filling.last)

    def value(self, weights: tuple[float, float]) -> float:
        """The least weighted sum of a known plan."""
        return min((weights[0] * s + weights[1] * j for s, j in self.plans), default=inf)

    def face(self, least: Point, others: Mapping[Point, float]) -> None:
        """Look along a product's slope at the best plan from now on; `least` bounds latency and energy, `others` bounds sums."""
        assert self.best is not None, "only asked for once there is a plan"
        self.region, self.slope, self.line = Region(least, self.goal), (self.best[1], self.best[0]), 0.0
        for weights, bound in others.items():
            self.region.clip(weights, bound)

    def aside(self, axes: Sequence[Point], asked: Sequence[Point]) -> tuple[Point, float] | None:
        """Weights not asked for yet of a sum that may cut a product's corner off, and up to where, for what is left to be near.

        None where the corner is the best plan's own.
        """
        assert self.region is not None, "it is a product's"
        assert self.slope is not None, "there is a plan"
        corner, middle = self.region.corner, self.line ** 2 / (4 * self.slope[0] * self.slope[1])
        slow = self.slope[0] * corner[0] > self.slope[1] * corner[1]
        end = ends(self.slope, self.line, min(self.goal * (1 - AIM), middle * (1 - LEAST_AIM)))[slow]
        for weights in (axes[slow], (corner[1], corner[0])):
            cutoff = weights[0] * end[0] + weights[1] * end[1]
            if weights not in asked and cutoff > (weights[0] * corner[0] + weights[1] * corner[1]) * (1 + TOLERANCE):
                return weights, cutoff
        return None

    def rise(self, bound: float, weights: Point | None = None) -> None:
        """Keep a bound on the sum that is looked at, or on another one."""
        if self.region is not None:
            self.line = max(self.line, bound) if weights is None else self.line
            self.region.clip(weights or self.weights, bound)
            bound = self.region.bound
        self.bound = max(self.bound, min(bound, self.goal))

    def worth(self, cost: float) -> float:
        """What a plan is worth at the most whose sum costs so much."""
        return cost if self.region is None else cost ** 2 / (4 * self.weights[0] * self.weights[1])

    def judge(self, assignment: Assignment) -> None:
        """Keep a plan for the boards, after its nodes have moved to where they would rather be."""
        judged = evaluate(self.problem, assignment)
        if judged.feasible:
            self.keep(*settle(self.problem, self.pool, assignment, judged))

    def keep(self, assignment: Assignment, judged: Evaluation) -> None:
        self.found.append(assignment)
        self.plans.append((judged.latency_s, judged.energy_j))

    def together(self, assignment: Assignment) -> list[tuple[tuple[str, ...], ...]]:
        """The blocks whose arms run at once, arm by arm."""
        return [tuple(tuple(n.name for n in arm) for arm in b.arms) for b in self.relaxed.blocks
                if arm_devices(b, assignment) is not None]

    def lift(self, assignment: Assignment) -> bool:
        """Keep what becomes of a plan of the pool; where it does not fit on the boards, what it misses is a further limit."""
        together = self.together(assignment)
        lifted = lift(self.problem, self.relaxed, self.pool, assignment, together)
        if lifted is not None:
            self.keep(*lifted)
            return True
        if not self.bend(parts_of(self.problem, self.pool, assignment, together)):
            self.fraction *= TIGHTER
        # Without what does not fit it is a plan all the same, if not one that the bound speaks of.
        fewer = without_rest(self.problem, self.pool, assignment, together)
        lifted = lift(self.problem, self.relaxed, self.pool, fewer, together) if not self.found and fewer is not None else None
        if lifted is not None:
            self.keep(*lifted)
        return False

    def told(self, told: Told) -> None:
        """Keep what a search over boards told."""
        self.rise(told.bound)
        self.filling = told.filling or self.filling
        if told.assignment is None:
            self.of_pool = told.pooled or self.of_pool
        if told.assignment is None or told.assignment in self.seated:
            return
        self.seated.append(told.assignment)
        self.filled = told.pooled
        seated = seat(self.problem, self.pool, told.assignment, told.names, told.line)
        if seated is not None:
            self.keep(*seated)
        else:
            self.unseated = told.pooled

    def pour(self, offers: Sequence[tuple[float, Assignment]], deadline: float) -> None:
        """Keep what becomes of plans of the pool, each with its cost, where boards are few and nodes may be cut anywhere."""
        if not self.problem.off_grid or self.pool.many:
            return
        whole_s, tries, beyond = deadline - worked(), 0, 0.0
        for cost, assignment in offers:
            boards = frozenset(n for n, s in assignment.items() if all(d in self.pool.boards for d in s.devices))
            late = worked() > deadline and (bool(self.loose) or tries >= TRIES)
            if boards in self.poured or cost + beyond >= self.value(self.weights) * (1 - NEARLY) or late:
                continue
            self.poured.add(boards)
            # Until one has found room, another may take as long.
            tries, now = tries + 1, worked()
            ending = deadline if self.loose else max(deadline, now + whole_s)
            found = pour(self.problem, self.pool, assignment, ending, self.worth(cost * (1 + NEARLY / 2)))
            if found is not None:
                judged = evaluate(self.problem, found)
                own = self.weights[0] * judged.latency_s + self.weights[1] * judged.energy_j
                if own >= self.value(self.weights):  # what pouring added is not wholly due to this plan: others lose some too
                    beyond = ADDED * (own - cost)
                self.loose.append(found)
                self.plans.append((judged.latency_s, judged.energy_j))

    def exceeded(self, known: list[Share]) -> list[Share]:
        """Resources of single boards that a plan without seats takes too much of, besides those it was made for."""
        if self.unseated is None or self.pool.many:
            return []
        used = evaluate(self.problem, self.unseated).resources
        over = {r for d, r, limit in self.problem.budgets if d in self.pool.boards and used[d][r] > limit * (1 + TOLERANCE)}
        return [s for s in self.relaxed.shares if s.name.rpartition(" ")[2] in over and s not in known]

    def lift_again(self, net: Network, deadline: float) -> None:
        """Boards of a long ring are farther from each other than in the pool: nodes of its plans, or parts, find their own."""
        if len(self.pool.boards) <= len(self.pool.stand_ins) or self.close(FAR):
            return
        assignment = self.unseated or self.of_pool
        if assignment is None:
            priced = price_limits(net, self.weights, self.value(self.weights), deadline)
            assignment = net.assignment(cheapest(net, self.weights, priced))
            if self.problem.off_grid:
                self.wind_lower(net, priced, deadline)
        if self.problem.off_grid and self.wind(self.filled or assignment, deadline):
            if self.merged and not self.close(ASTRAY / 2):
                self.wind_lower(net, price_limits(net, self.weights, self.value(self.weights), deadline), deadline)
            return
        lifted = lift(self.problem, self.relaxed, self.pool, assignment, self.together(assignment), deadline)
        if lifted is not None:
            self.keep(*lifted)

    def wind_lower(self, net: Network, priced: Priced, deadline: float) -> None:
        """Wind what is cheapest under lower prices. It may ask for more than there is: what finds no room stays on the host."""
        costs = priced_costs(net.costs(self.weights), [net.amounts(x) for x in net.limits], LOWER * priced.prices)
        self.wind(net.assignment(follow(net, costs, completions(net, costs))), deadline, sparing=False)

    def come_nearer(self, deadline: float, late: float) -> None:
        """Look for a closer bound until late, where boards are many and the best plan is far from the last one."""
        # Where limits bind labels are many, and it takes longer than it may be late.
        if self.filling is None or len(self.pool.boards) < ROW or self.close(FAR) or worked() > (
                deadline if self.merged and self.labelled else late):
            return
        self.move_cuts()
        begun = worked()
        if self.close(FAR):
            return
        if not self.labelled:
            self.nearer(remembered(self.filling, self.below(BESIDE), CLOSER_LABELS, late), deadline)
            return
        if self.close(FARTHER[0]) or not self.close(FARTHER[1]):
            self.nearer(remembered(self.filling, self.below(NEAR), CLOSER_LABELS, late), deadline)
            if self.close(FAR) or begun + LONGER * (worked() - begun) > late:
                return
        self.nearer(remembered_beside(self.filling, self.below(BESIDE), CLOSER_LABELS, late), deadline)

    def move_cuts(self) -> None:
        """Move the cuts of the best plan, if it is cut between candidates: it may be near enough then."""
        judged = [(e, a) for a in self.loose if (e := evaluate(self.problem, a)).feasible]
        best = min(judged, key=lambda pair: pair[0].objective, default=None)
        if best is None or best[0].objective > self.goal:
            return
        plan, found = refine(self.problem, best[1], best[0])
        if found.objective < self.goal:
            self.loose.append(plan)
            self.plans.append((found.latency_s, found.energy_j))

    def nearer(self, found: Filled, deadline: float) -> None:
        """Keep what a search with a longer memory found; its plan gets boards before the deadline alone."""
        assert self.filling is not None, "it went on from one"
        named = worked() < deadline
        self.told(Told(found.assignment if named else None, found.pooled if named else None, found.bound, self.filling.names,
                       found.line))

    def wind(self, assignment: Assignment, deadline: float, sparing: bool = True) -> bool:
        """Keep what becomes of a plan of the pool that is wound around a long ring; whether anything did."""
        # What boards share with the host stays as it is, so its cuts are moved before.
        host = self.problem.platform.host
        free = replace(self.relaxed, shared_budget=False, fixed={n: s for n, s in assignment.items() if host not in s.devices})
        assignment, begun = refine(free, assignment, evaluate(free, assignment))[0], worked()
        found = [wind(self.problem, self.pool, assignment, deadline)]
        spent = worked() - begun
        best = min((self.problem.score(e.latency_s, e.energy_j) for _, e in filter(None, found)), default=inf)
        far, astray = best - self.bound > FAR * best, best - self.bound >= ASTRAY * best
        if far and not astray and begun + (1 + WIDER) * spent < deadline:
            found.append(wind(self.problem, self.pool, assignment, deadline, WIDE))
        elif far and not astray and begun + (1 + AGAIN) * spent < deadline and self.merged and self.labelled:
            found.append(wind(self.problem, self.pool, assignment, deadline, THRIFTY))
        elif sparing and astray and begun + (1 + WIDER) * spent < deadline:
            found.append(wind(self.problem, self.pool, assignment, deadline, SPARING))
        for plan, judged in filter(None, found):
            if self.problem.score(judged.latency_s, judged.energy_j) * (1 - ASTRAY) > self.bound:
                plan, judged = homeward(self.problem, plan, judged)
            self.loose.append(plan)
            self.plans.append((judged.latency_s, judged.energy_j))
        return any(found)

    def over(self, net: Network) -> Network:
        """A network with the limits found so far."""
        limits = [x for x in self.limits if sum(float(a.max(initial=0.0)) for a in net.amounts(x)) > 1]
        if self.fraction < 1:
            limits += [Limit(f"{s.name}, less", replace(s, limit=s.limit * self.fraction), s.limit * s.count)
                       for s in self.relaxed.shares if s.limit > 0]
        return replace(net, limits=(*net.limits, *limits))

    def close(self, tolerance: float) -> bool:
        return self.goal - self.bound <= tolerance * self.goal

    def below(self, distance: float) -> float:
        """What the sum that is looked at comes to so far below the best plan; a product is twice as far below as its sum."""
        return self.value(self.weights) * (1 - (distance if self.region is None else distance / 2))

    def enough(self, tolerance: float) -> bool:
        """Whether plan and bound are near each other, or those of a product's sum are."""
        return self.close(tolerance) or (self.region is not None and self.below(tolerance) <= self.line)

    def largest(self, net: Network) -> Share | None:
        """The budget of which some node takes the largest part."""
        return max((s for s in self.relaxed.shares if s.limit > 0), default=None,
                   key=lambda s: max(float(s.taken(t.resources).max(initial=0.0)) for t in net.tables))

    def bend(self, parts: Parts) -> bool:
        """Add the limits that these parts miss most; whether there are any."""
        boards, added = len(self.pool.boards), list[tuple[float, Limit]]()
        resources = list(self.problem.platform.device(self.pool.boards[0]).resources)
        shares = {s.name.rpartition(" ")[2]: s for s in self.relaxed.shares}
        for r, resource in enumerate(resources):
            sizes = parts.sizes[:, r]
            if not sizes.any() or shares[resource].limit <= 0:
                continue
            for name, curve in curves(sizes):
                excess = float(curve(sizes[:, None]).sum()) / boards - 1
                if excess > WORTH:
                    share: Share = replace(shares[resource], name=f"{shares[resource].name} ({name})", curve=curve)
                    added.append((excess, Limit(share.name, share, 1.0)))
        known = {x.name for x in self.limits}
        worst = [x for _, x in sorted(added, key=lambda pair: -pair[0]) if x.name not in known][:CURVES]
        self.limits += worst
        return bool(worst)


def cheapest(net: Network, weights: tuple[float, float], priced: Priced) -> tuple[int, ...]:
    """The plan met with prices, or else the cheapest under them."""
    if priced.path is not None:
        return priced.path
    amounts = [net.amounts(x) for x in net.limits]
    return follow(net, priced_costs(net.costs(weights), amounts, priced.prices), priced.to_go)
