"""The shortest interval between pipelined frames: the busiest processor or link as little busy as possible.

Any weights that sum to one make a weighted sum of what a frame keeps busy, which is never above the busiest: its cheapest
plan, with prices on the limits, bounds the interval from below. The best weights are found by cutting planes, over the tree
relaxation to strike columns, then over the cuts of the graph. Columns whose own engine is slower than a known plan are in no
better one. What gap is left is closed by labels: the least of one busy time with the others kept below a cut-off that rises
from the bound until a plan is found, then falls from it until there is none.

Weights on busy times lose little, as many small columns balance them. Prices on an FPGA's area lose more: what fits are a few
large engines, and prices mix plans that have one of them with plans that have none. So under the best weights area is counted
instead: fronts (`exact.fronts`) end with the least weighted sum of any plan that fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

import numpy as np

from dovetail.hardware.shares import Flags, Floats
from dovetail.partition.effort import halfway, worked
from dovetail.partition.exact.arcs import solve_steps, used_by
from dovetail.partition.exact.cuts import Limit, Network, Priced, completions, follow, network
from dovetail.partition.exact.elimination import CORE, thin
from dovetail.partition.exact.fronts import fronts_of
from dovetail.partition.exact.labels import FEW_LABELS, MOST_LABELS, FoundPath, Search
from dovetail.partition.exact.price_search import LEAST_ROUNDS
from dovetail.partition.exact.solver import Answer
from dovetail.partition.exact.tree import Tree
from dovetail.partition.interval.changes import Changes
from dovetail.partition.interval.tables import busy_table, shared_names, untimed
from dovetail.partition.interval.weights import Cut, Ledger, Weighed, WeightedReply, best_weights, even_weights, rank_interval
from dovetail.partition.plan import Assignment
from dovetail.partition.problem import Problem
from dovetail.partition.proof import check_bound
from dovetail.partition.tables.columns import PricedSplits, inputs_held
from dovetail.partition.tables.costs import tabulate_all
from dovetail.partition.tolerances import CLOSE, ROUNDING, ROUNDOFF, TOLERANCE

WIDENINGS = tuple(1e-4 * 2.0**i for i in range(18))
"""Cut-offs above the bound below which plans are searched for in turn:

a tight one keeps few labels. Chosen: doubled each time.
"""
POLISHED = 6
"""Plans met in the search for weights in which single columns change. Chosen, not measured."""
CEILINGS = (3e-3, 7e-3, 0.012)
"""How far above the weights' bound fronts end, one after another until a plan is below; beyond, they are too many.

Where the best plan is no farther, they end there. Chosen, not measured.
"""
REACHED = 60_000
"""Labels of one cut beyond which fronts are given up. Chosen, not measured."""
DEARER = (0.0, 5e-4, 1e-3, 2e-3, 4e-3)
"""How much more than the least plans may cost that are told as well, as they take less area. Chosen, not measured."""
TOO_DEAR = 2.0
"""What a column that no plan below the ceiling has costs instead, as a multiple of the ceiling.

Chosen: anything above one does.
"""
NEAR = 5
"""Columns per node that the best plan is offered beside its own when plans are put together anew. Chosen, not measured."""


class _Search:
    """The cuts of the graph over some columns: a bound, and plans better than the best known one."""

    def __init__(self, problem: Problem, choices: list[PricedSplits], ceiling: float, gap: float = 0.0) -> None:
        known = inputs_held(problem) | {c.node.output: c.held for c in choices}
        timed = problem.max_latency_s is not None or problem.max_energy_j is not None
        tables = tabulate_all(problem, choices, known) if timed else [untimed(problem, c, known) for c in choices]
        self.net = network(problem, tuple(tables))
        self.ledger = Ledger(shared_names(problem), self.net.tables, [busy_table(problem, c, known) for c in choices],
                             [self.net.amounts(x) for x in self.net.limits])
        self.changes = Changes(self.net, self.ledger)
        self.best, self.gap = ceiling, gap
        self.to_go: list[Floats] = []
        self.polished: dict[tuple[int, ...], float] = {}
        self.met: dict[tuple[float, float], tuple[int, ...]] = {}
        self.cuts: list[Cut] = []
        self.path: tuple[int, ...] | None = None
        self.fitted, self.fitting, self.too_far = False, -inf, inf

    @property
    def plans(self) -> tuple[Assignment, ...]:
        return () if self.path is None else (self.net.assignment(self.path),)

    def named(self, found: Weighed) -> dict[str, float]:
        """Weights and prices by name, as another search may start with them."""
        return {**dict(zip(self.ledger.names, found.weights.tolist(), strict=True)),
                **dict(zip((x.name for x in self.net.limits), found.prices.tolist(), strict=True))}

    def weigh(self, start: Mapping[str, float], deadline: float, before: _Search | None = None) -> Weighed:
        """The best weights, beginning with those of another search and its cuts; plans met on the way are kept."""
        first = even_weights(len(self.ledger.names), len(self.net.limits))
        if start:
            first = Weighed(-inf, np.array([start[name] for name in self.ledger.names]),
                            np.array([start.get(x.name, 0.0) for x in self.net.limits]))
        alike = before is not None and [x.name for x in before.net.limits] == [x.name for x in self.net.limits]
        known = before.cuts if before is not None and alike else ()
        found = best_weights(self._answer, first, self.best, deadline, known=known,
                             least_rounds=1 if known else LEAST_ROUNDS // (2 if start else 1))
        self.to_go = completions(self.net, self.ledger.costs(found.weights, found.prices))
        return found

    def _answer(self, weights: Floats, prices: Floats) -> WeightedReply:
        costs = self.ledger.costs(weights, prices)
        path = follow(self.net, costs, completions(self.net, costs))
        self.keep(path)
        reply = self.ledger.reply(weights, prices, self.entries(path))
        self.cuts.append((reply.busy, reply.used - 1))
        return reply

    def entries(self, path: tuple[int, ...]) -> list[tuple[int, ...]]:
        """Where a plan's columns stand in the tables."""
        return self.changes.entries(path)

    def judged(self, path: tuple[int, ...]) -> tuple[float, float]:
        """A plan's interval, and the largest part it takes of a limit."""
        busy, used = self.ledger.along(self.entries(path))
        engines = (float(own.engines[c]) for own, c in zip(self.ledger.busy, path, strict=True))
        return max(float(busy.max()), *engines), float(used.max(initial=0.0))

    def keep(self, path: tuple[int, ...]) -> bool:
        """Remember a plan if it is legal and better than all before."""
        interval, used = self.judged(path)
        self.met[interval, used] = path
        better = used <= 1 + ROUNDING and interval < self.best
        if better:
            self.best, self.path = interval, path
        return better

    def adopt(self, found: Assignment | None) -> None:
        """Begin with the best plan of another search, if there is one and all of its columns are here."""
        columns = [list(table.options.splits) for table in self.net.tables]
        if found is not None and all(found[t.node.name] in own for t, own in zip(self.net.tables, columns, strict=True)):
            path = tuple(own.index(found[t.node.name]) for t, own in zip(self.net.tables, columns, strict=True))
            self.path, self.polished[path] = path, self.judged(path)[0]

    def polish(self, deadline: float) -> None:
        """Change single columns of the best plans met as long as that shortens the interval."""
        for _, path in sorted(self.met.items())[:POLISHED]:
            self.improve(path, deadline)

    def improve(self, path: tuple[int, ...], deadline: float) -> tuple[tuple[int, ...], float]:
        """The same of one plan; what becomes of it is remembered, with its interval."""
        better: tuple[int, ...] | None = path
        while better is not None and worked() < deadline:
            path = better
            self.keep(path)
            better = self.changes.improved(path)
        interval, used = self.judged(path)
        self.polished[path] = interval = interval if used <= 1 + ROUNDING else inf
        return path, interval

    def exchange(self, found: Weighed, bound: float, deadline: float) -> None:
        """Change two columns of polished plans at a time as long as that shortens their intervals, until one is near enough."""
        worth = np.concatenate([found.weights, found.prices])
        for path, interval in sorted(self.polished.items(), key=lambda pair: pair[1])[:POLISHED]:
            before = inf
            while interval < before and not self.near(bound) and worked() < deadline:
                before = interval
                tried = [(*self.judged(p), p) for p in self.changes.exchanged(path, worth)]
                best, _, better = min(tried, default=(inf, inf, path))
                if best < before:
                    path, interval = self.improve(better, deadline)
        self.polished.clear()

    def close(self, found: Weighed, bound: float, deadline: float) -> float:
        """A better bound from labels, by searching for plans below rising cut-offs, then below the best; plans met are kept."""
        bound, active = self.sweep(found, bound, deadline), self.active(found)
        if self.near(bound):
            return bound
        bound = max(bound, self.step(found, active, bound, deadline), self.fit(found, deadline))
        widenings = iter(WIDENINGS)
        while self.best - bound > TOLERANCE * self.best and not self.near(bound) and worked() < deadline:
            rising = found.bound * (1 + next(widenings, inf))
            if rising <= bound:
                continue
            cutoff = min(rising, self._middle(bound))
            labelled = self._below(found, cutoff, active, deadline)
            if labelled.path is not None:
                missed = self._missed(labelled.path, cutoff)
                if missed:
                    active |= missed
                    widenings = iter([w for w in WIDENINGS if found.bound * (1 + w) >= cutoff])
                elif not self.keep(labelled.path):
                    break
            elif labelled.complete:
                bound = max(bound, min(cutoff, self.best))
            else:
                break
        return bound

    def near(self, bound: float) -> bool:
        """Whether the best plan is as near to a bound as was asked for."""
        return self.best - bound <= max(TOLERANCE, self.gap) * self.best

    def sweep(self, found: Weighed, bound: float, deadline: float) -> float:
        """Where a few labels reach everything below the best plan, they prove it, or find better ones."""
        active = self.active(found)
        while self.best - bound > TOLERANCE * self.best and worked() < deadline:
            cutoff = self._middle(bound)
            labelled = self._below(found, cutoff, active, deadline, FEW_LABELS)
            if not labelled.complete:
                break
            if labelled.path is None:
                bound = cutoff
                continue
            missed = self._missed(labelled.path, cutoff)
            active |= missed
            if not missed and not self.keep(labelled.path):
                break
        return bound

    def _middle(self, bound: float) -> float:
        """A cut-off half way from a bound to the best plan; near it, just below that plan."""
        return bound + (self.best - bound) / 2 if self.best - bound > CLOSE * bound else self.best * (1 - TOLERANCE / 2)

    def fit(self, found: Weighed, deadline: float) -> float:
        """A bound on plans that fit; the plan that attains it is kept and polished.

        Below a ceiling so near to the weights' bound labels are few, wherever the best plan is: what is not below it is above.
        """
        bound = max(found.bound, self.fitting)
        near = self.best <= found.bound * (1 + CEILINGS[-1])
        late = self.fitted or worked() > deadline
        for far in () if late else CEILINGS[-1:] if near else CEILINGS:
            ceiling = min(self.best, found.bound * (1 + far))
            if ceiling <= max(bound, found.bound * (1 + CLOSE)) or ceiling >= self.too_far:
                break
            closer, paths = self._fitting(found, ceiling, deadline)
            if closer <= found.bound:
                self.too_far = ceiling
                break
            bound, self.fitted = max(bound, closer), bool(paths) or ceiling == self.best
            for path in paths:
                self.improve(path, deadline)
            if paths:
                break
        self.fitting = bound
        return bound

    def _fitting(self, found: Weighed, ceiling: float, deadline: float) -> tuple[float, list[tuple[int, ...]]]:
        """A bound on every plan whose interval is below the ceiling, and plans near it, the one that attains it first.

        They need not be legal. The bound that was found, and no plan, where no area has a price, or where time or labels end.
        """
        priced = [(x, p) for x, p in zip(self.net.limits, found.prices.tolist(), strict=True) if p > 0 and x.budget is not None]
        price = sum(p for _, p in priced)
        if not priced or ceiling <= found.bound or not np.isfinite(ceiling):
            return found.bound, []
        # What fits keeps every mixture of limits; no plan below the ceiling has a slower engine.
        amounts = self.net.amounts(Limit("area", None, 1.0, tuple((x, p / price) for x, p in priced)))
        weighted = self.ledger.costs(found.weights, np.zeros(len(self.net.limits)))
        base = [np.where(own.engines > ceiling, TOO_DEAR * ceiling, cost)
                for own, cost in zip(self.ledger.busy, weighted, strict=True)]
        fronts = fronts_of(self.net, base, amounts, price, ceiling, REACHED, deadline)
        if fronts is None:
            return found.bound, []
        bound = min(fronts.best, ceiling) * (1 - ROUNDOFF * len(self.net.tables))
        return max(bound, found.bound), [fronts.path_to(i) for i in fronts.thriftier(DEARER)]

    def step(self, found: Weighed, active: frozenset[str], bound: float, deadline: float) -> float:
        """A bound, and plans, from programs in whole numbers over the few steps that plans near the bound can take."""
        for widening in CEILINGS:
            cutoff, seconds = found.bound * (1 + widening), halfway(deadline) - worked()
            if cutoff >= self.best or seconds <= 0:
                break
            if cutoff <= bound:
                continue
            stepped = solve_steps(*self._view(found, cutoff, active), cutoff, seconds, CLOSE)
            if stepped is None:
                break
            if stepped.path is not None and self.keep(stepped.path):
                self.polish(deadline)
            bound = max(bound, min(stepped.bound, self.best))
            if stepped.bound < cutoff:
                break
        return bound

    def cross(self, found: Weighed, bound: float, deadline: float) -> float:
        """Put plans together anew: the best over columns that cheap plans met use, then over those nearest to the best plan.

        The latter again as long as that makes it better. A better plan may make a closer bound possible, which is then known.
        """
        cheap = sorted(self.met.values(), key=lambda path: self._worth(found, path))
        if self.path is not None and not self.near(bound) and self.best > bound * (1 + CLOSE):
            self.over(found, used_by(self.net, [*cheap, self.path]), bound, deadline)
        before = inf
        while self.path is not None and self.best < before:
            bound = max(bound, self.fit(found, deadline))
            if worked() > deadline or self.near(bound) or self.best <= bound * (1 + CLOSE):
                return bound
            before = self.best
            self.over(found, self._near(found), bound, deadline)
        return bound

    def _near(self, found: Weighed) -> list[Flags]:
        """Per node the best plan's column, and some that change what it comes to under weights and prices least."""
        assert self.path is not None, "only asked for once there is a plan"
        chosen, entries = used_by(self.net, [self.path]), self.entries(self.path)
        worth = np.concatenate([found.weights, found.prices])
        for k, own in enumerate(chosen):
            own[np.argsort(worth @ self.changes.of(k, entries), kind="stable")[:NEAR]] = True
        return chosen

    def over(self, found: Weighed, only: list[Flags], bound: float, deadline: float) -> None:
        """Keep the best plan over some columns, if the program is small enough to find it."""
        view = self._view(found, self.best, frozenset(self.named(found)))
        level = len(view[0].limits) - len(self.net.limits)
        stepped = solve_steps(*view, self.best, deadline - worked(), CLOSE, level, only, bound)
        if stepped is not None and stepped.path is not None and self.keep(stepped.path):
            self.improve(stepped.path, deadline)
            self.exchange(found, bound, deadline)

    def _worth(self, found: Weighed, path: tuple[int, ...]) -> float:
        """What a plan comes to under weights and prices."""
        busy, used = self.ledger.along(self.entries(path))
        return float(found.weights @ busy) + float(found.prices @ used)

    def active(self, found: Weighed) -> frozenset[str]:
        """Times and limits that count: those with a weight or a price."""
        times = {n for n, w in zip(self.ledger.names, found.weights.tolist(), strict=True) if w > 0}
        return frozenset(times | {x.name for x, p in zip(self.net.limits, found.prices.tolist(), strict=True) if p > 0})

    def _below(self, found: Weighed, cutoff: float, active: frozenset[str], deadline: float,
               labels: int = MOST_LABELS) -> FoundPath:
        """A plan with every active time and limit within the cut-off: the least of one time, the others being limits."""
        return Search(*self._view(found, cutoff, active)).run(cutoff, labels, deadline)

    def _view(self, found: Weighed, cutoff: float, active: frozenset[str]) -> tuple[Network, list[Floats], Priced]:
        """The network with the other active times as limits, the time of most weight as its cost, and their prices."""
        names, weights = self.ledger.names, found.weights
        chief = int(weights.argmax())
        others = [(name, weights[i]) for i, name in enumerate(names) if i != chief and name in active]
        limited = [(x, p) for x, p in zip(self.net.limits, found.prices, strict=True) if x.name in active]
        times = (Limit(n, None, cutoff, given=tuple(s / cutoff for s in self.ledger.seconds(n))) for n, _ in others)
        costs = [np.where(own.engines > cutoff, inf, seconds)
                 for own, seconds in zip(self.ledger.busy, self.ledger.seconds(names[chief]), strict=True)]
        prices = np.array([*(w * cutoff for _, w in others), *(p for _, p in limited)]) / weights[chief]
        to_go = [a / weights[chief] for a in self.to_go]
        least = float(to_go[0]) - float(prices.sum())
        return replace(self.net, limits=(*times, *(x for x, _ in limited))), costs, Priced(prices, least, to_go, None, inf)

    def _missed(self, path: tuple[int, ...], cutoff: float) -> frozenset[str]:
        busy, used = self.ledger.along(self.entries(path))
        late = {n for n, b in zip(self.ledger.names, busy.tolist(), strict=True) if b > cutoff * (1 + TOLERANCE)}
        return frozenset(late | {x.name for x, u in zip(self.net.limits, used.tolist(), strict=True) if u > 1 + TOLERANCE})


def shortest_interval(problem: Problem, choices: list[PricedSplits], tree: Tree, ceiling: float,
                      deadline: float, begun: Assignment | None = None,
                      gap: float = 0.0) -> tuple[Answer, list[PricedSplits], list[PricedSplits] | None]:
    """Plans better than `ceiling`, a bound on all, the columns left to look at and, of these, those that were.

    `begun` is a plan to begin with, `gap` how near to the bound, as a fraction, a plan need be.
    As for other goals, the most promising columns are searched first: what cannot beat their best plan is struck.
    """
    ranking = rank_interval(problem, tree, ceiling, deadline)
    plans: tuple[Assignment, ...] = ()
    start: Mapping[str, float] = {}
    first: _Search | None = None
    core = thin(problem, ranking.core(choices, CORE)) if any(len(c) > 2 * CORE for c in choices) else None
    if core is not None:
        first = _Search(problem, core, ceiling, gap)
        first.adopt(begun)
        ending = halfway(deadline)
        found = first.weigh(ranking.prices, halfway(ending))
        first.polish(ending)
        bound = first.fit(found, ending)
        first.exchange(found, bound, ending)
        first.cross(found, max(bound, first.fit(found, ending)), ending)
        ceiling, plans, start = first.best, first.plans, first.named(found)
    left = ranking.strike(choices, ceiling)
    if not all(len(c) for c in left):
        return Answer(plans, ceiling), choices, choices
    kept = thin(problem, left, bounds=ranking.of(choices, left))
    if kept is None:
        return Answer(plans, ranking.bound), left, None
    search = _Search(problem, kept, ceiling, gap)
    for known in (plans or (begun,))[-1:]:
        search.adopt(known)
    found = search.weigh(start, halfway(halfway(deadline)), first)
    bound = search.fit(found, deadline)
    if search.path is None:
        search.polish(deadline)
    search.exchange(found, bound, deadline)
    bound = search.cross(found, max(bound, search.fit(found, deadline)), deadline)
    bound = search.close(found, bound, deadline) if search.best > bound else bound
    held = [search.judged(path) for path in (search.path,) if path is not None]  # one begun with may exceed limits that add up
    check_bound("the search for the shortest interval", bound, min([i for i, used in held if used <= 1 + ROUNDING], default=inf))
    bound = min(bound, search.best, ranking.without(choices, left, kept))
    return Answer((*plans, *search.plans), max(bound, ranking.bound)), left, kept
