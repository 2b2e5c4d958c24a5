"""What is known while plans for equal FPGAs are looked for: the best plans so far and a bound on all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from dovetail.hardware.shares import Ints
from dovetail.partition.boards.local_search import improved
from dovetail.partition.boards.placement import NARROW, place, renamed
from dovetail.partition.boards.relaxation import Pool, Share
from dovetail.partition.effort import worked
from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.exact.cuts import Network
from dovetail.partition.exact.energy_delay import Point, Region, ends
from dovetail.partition.exact.refine import refine
from dovetail.partition.plan import Assignment, Goal, Split
from dovetail.partition.problem import TOLERANCE, Problem
from dovetail.partition.tables.columns import PricedSplits

WASTES = (1.0, 0.5, 0.0, 2.0)
"""Weights of unused room with which partial plans are compared, one search after another: chosen, as none is best for all."""
WIDTHS = (NARROW, 32, 128, 512)
"""Partial plans kept per node in one round of searches after another: chosen, each takes about four times as long as the last."""
AIM = 3.5e-3
"""Fraction of the best plan within which the corners of a product's bound are wanted: chosen, below the 0.5 % that is shown."""
LEAST_AIM = 5e-4
"""Fraction by which those corners are cut off at least: chosen."""
BETTER = 1e-3
"""Fraction by which a guide must cost less than the best plan to be followed: chosen; boards seldom add less to it."""
FAR = 5e-3
"""Relative distance of plan and bound beyond which guides are followed once more: chosen, as plans are
asked to be within 0.5 %."""


@dataclass(frozen=True, slots=True)
class _Guide:
    """A plan of the relaxation, its cost there, and the objective of the plan that came of it."""

    assignment: Assignment
    cost: float
    objective: float


@dataclass
class Incumbents:
    """Plans (latency and energy of each), the bound, and the candidates left that a better plan may use."""

    problem: Problem
    relaxed: Problem
    pool: Pool
    plans: list[tuple[float, float]]
    late_s: float = 0.0
    found: list[Assignment] = field(default_factory=list)
    loose: list[Assignment] = field(default_factory=list)
    """Plans met that are cut where no candidate is."""
    bound: float = 0.0
    left: list[PricedSplits] = field(default_factory=list)
    kept: list[PricedSplits] = field(default_factory=list)
    net: Network | None = None
    """The network over the candidates kept; None where none are."""
    guides: list[_Guide] = field(default_factory=list)
    seen: list[Assignment] = field(default_factory=list)
    """The guides before their cuts were moved."""
    cuts: set[tuple[object, ...]] = field(default_factory=set)
    """How plans of the relaxation divide nodes."""
    too_large: Assignment | None = None
    """The last plan of a label search that does not fit on the boards."""
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

    def keep(self, assignment: Assignment, judged: Evaluation) -> None:
        """Keep a plan; one with other cuts than the guides' may be better than all that the bound speaks of."""
        on_grid = all(len(s.pieces) == 1 or _cuts(n, s) in self.cuts for n, s in assignment.items())
        (self.found if on_grid else self.loose).append(assignment)
        self.plans.append((judged.latency_s, judged.energy_j))

    def follow(self, guide: Assignment, cost: float = 0.0) -> None:
        """Keep what becomes of a plan of the relaxation on real boards, looked for with few partial plans.

        `cost` is its weighted sum there: a plan that follows it is no better.
        """
        if guide in self.seen or not self._promising(cost):
            return
        self.seen.append(guide)
        self.cuts |= {_cuts(n, s) for n, s in guide.items()}
        every = [guide]
        if self.problem.off_grid:
            # The search keeps cuts between host and boards as they are: they are moved before, as if boards had room for all.
            host = self.problem.platform.host
            free = replace(self.relaxed, shared_budget=False, fixed={n: s for n, s in guide.items() if host not in s.devices})
            every.append(refine(free, guide, evaluate(free, guide))[0])
        for own in every if every[0] != every[-1] else every[:1]:
            self.guides.append(_Guide(own, cost, self._placed(own, WASTES[0], NARROW, inf)))

    def follow_again(self, deadline: float) -> None:
        """Follow the guides in other ways, with more and more partial plans; those first of which the best plans came."""
        for width in WIDTHS:
            for guide in sorted(reversed(self.guides), key=lambda g: g.objective):
                for waste in WASTES[width == WIDTHS[0]:] if self._promising(guide.cost) else ():
                    if self.close(FAR) or worked() > deadline:
                        return
                    self._placed(guide.assignment, waste, width, deadline)

    def _promising(self, cost: float) -> bool:
        return cost < self.value(self.weights) * (1 - BETTER)

    def _placed(self, guide: Assignment, waste: float, width: int, deadline: float) -> float:
        """Keep what a beam search makes of a guide; its objective, infinite where there is none."""
        found = place(self.problem, self.pool, guide, deadline, waste, width)
        if found is None:
            return inf
        plan, judged = improved(self.problem, self.pool, *found)
        self.keep(plan, judged)
        return judged.objective

    def name(self, assignment: Assignment, orders: Sequence[Ints]) -> None:
        """Keep a plan of few boards with their names exchanged in the best of some ways, if it fits on them so."""
        devices, best = self.problem.devices, None
        for order in orders:
            names = dict(zip(devices, (devices[i] for i in order.tolist()), strict=True))
            plan = {node: renamed(split, names) for node, split in assignment.items()}
            judged = evaluate(self.problem, plan)
            if judged.feasible and (best is None or judged.objective < best[1].objective):
                best = plan, judged
        self.too_large = assignment if best is None else None
        self.cuts |= {_cuts(n, s) for n, s in assignment.items()}
        if best is not None:
            self.keep(*improved(self.problem, self.pool, *best))

    def exceeded(self, known: Sequence[Share]) -> list[Share]:
        """Resources of single boards that the last plan that did not fit takes too much of, besides those it was made for."""
        if self.too_large is None:
            return []
        used = evaluate(self.problem, self.too_large).resources
        over = {r for d, r, limit in self.problem.budgets if d in self.pool.boards and used[d][r] > limit * (1 + TOLERANCE)}
        return [s for s in self.relaxed.shares if s.name.rpartition(" ")[2] in over and s not in known]

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


def _cuts(node: str, split: Split) -> tuple[object, ...]:
    """How a split divides a node, whatever the devices."""
    return node, split.axis, *(p.start for p in split.pieces)
