"""Weights of busy times: a weighted sum of them is never above the busiest, so its cheapest plan bounds the interval.

The best weights, with prices on the limits, are found by cutting planes (Kelley 1960), taken from inside: corners of what the
planes allow lie far apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.partition.effort import spend, worked
from dovetail.partition.exact.elimination import Ranking
from dovetail.partition.exact.price_search import LEAST_ROUNDS, ROUNDS
from dovetail.partition.exact.tree import Tree, cheapest, marginals
from dovetail.partition.interval.tables import Busy, busy_table, shared_names
from dovetail.partition.linear_programs import largest_mixture
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import Held, inputs_held
from dovetail.partition.tables.costs import Table
from dovetail.partition.tolerances import ROUNDOFF

SETTLED = 5e-5
"""Relative distance between a bound and what cutting planes still allow at which the search for weights ends.

Chosen, not measured.
"""
STALLED = 6
"""Rounds without progress after which it ends too. Chosen, not measured."""
INWARD = 0.3
"""How far from the best weights towards the cutting planes' the next are taken, while that still cuts. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class WeightedReply:
    """The cheapest plan under some weights and prices: what it proves, keeps busy and uses (as fractions of the limits)."""

    bound: float
    busy: Floats
    used: Floats


@dataclass(frozen=True, slots=True)
class Weighed:
    """The best bound, and the weights and prices that prove it."""

    bound: float
    weights: Floats
    prices: Floats


Cut = tuple[Floats, Floats]
"""What a plan keeps busy, and how far it exceeds each limit (as a fraction of it)."""


def best_weights(answer: Callable[[Floats, Floats], WeightedReply], start: Weighed, ceiling: float, deadline: float,
                 rounds: int = ROUNDS, known: Sequence[Cut] = (), least_rounds: int = LEAST_ROUNDS) -> Weighed:
    """Weights (which sum to one) and prices with the largest bound, by cutting planes taken from inside.

    `known` are planes of plans met before; every plan gives one, wherever it was met.
    """
    weights, prices = start.weights, start.prices
    best = Weighed(-inf, weights, prices)
    cuts = list(known)
    stalled = 0
    for number in range(rounds):
        reply = answer(weights, prices)
        better, rising = reply.bound > best.bound, reply.bound > best.bound * (1 + SETTLED)
        stalled = 0 if rising else stalled + 1
        best = Weighed(reply.bound, weights, prices) if better else best
        cuts.append((reply.busy, reply.used - 1))
        upper, target_weights, target_prices = largest_mixture(np.array([b for b, _ in cuts]), np.array([s for _, s in cuts]))
        if upper - best.bound <= SETTLED * abs(upper) or best.bound >= ceiling or stalled > STALLED:
            break
        if number >= least_rounds and worked() > deadline:
            break
        # A point near the best one so far cuts more than a corner; every other time without success the corner is tried.
        part = INWARD if better or number % 2 else 1.0
        weights = best.weights + part * (target_weights - best.weights)
        prices = best.prices + part * (target_prices - best.prices)
    return _tidied(answer, best)


def _tidied(answer: Callable[[Floats, Floats], WeightedReply], best: Weighed) -> Weighed:
    """The same without weights and prices that hardly count, where the bound stays: what has none need not be looked after."""
    weights = np.where(best.weights < SETTLED, 0.0, best.weights)
    prices = np.where(best.prices < SETTLED * best.bound, 0.0, best.prices)
    reply = answer(weights / weights.sum(), prices)
    return Weighed(reply.bound, weights / weights.sum(), prices) if reply.bound >= best.bound * (1 - SETTLED) else best


def even_weights(names: int, limits: int) -> Weighed:
    """Weights to begin with."""
    return Weighed(-inf, np.full(names, 1 / names), np.zeros(limits))


@dataclass(frozen=True, slots=True)
class Ledger:
    """Tables with what their entries keep busy (by `names`) and take of limits (limit, then node, as fractions of it)."""

    names: tuple[str, ...]
    tables: Sequence[Table]
    busy: Sequence[Busy]
    amounts: Sequence[Sequence[Floats]]

    def seconds(self, name: str) -> list[Floats]:
        """Per node what every entry keeps one thing busy."""
        return [own.shared[name] if name in own.shared else np.zeros(table.latency_s.shape)
                for own, table in zip(self.busy, self.tables, strict=True)]

    def costs(self, weights: Floats, prices: Floats) -> list[Floats]:
        """Per node the weighted busy times plus priced limits of every entry."""
        worth = dict(zip(self.names, weights.tolist(), strict=True))
        found = []
        for k, (table, busy) in enumerate(zip(self.tables, self.busy, strict=True)):
            total = np.zeros(table.latency_s.shape)
            for name, seconds in busy.shared.items():
                if worth[name] > 0:
                    total += worth[name] * seconds
            for price, amounts in zip(prices.tolist(), self.amounts, strict=True):
                if price > 0:
                    total += price * amounts[k]
            found.append(total)
        spend("weights", len(found), sum([own.size for own in found]))
        return found

    def along(self, entries: Sequence[tuple[int, ...]]) -> tuple[Floats, Floats]:
        """What a plan keeps busy and uses; `entries` index every node's table."""
        held = list(zip(self.busy, entries, strict=True))
        busy = np.array([sum(float(own.shared[name][at]) for own, at in held if name in own.shared) for name in self.names])
        used = np.array([sum(float(a[at] if a.ndim > 1 else a[at[-1]]) for a, at in zip(amounts, entries, strict=True))
                         for amounts in self.amounts])
        return busy, used

    def reply(self, weights: Floats, prices: Floats, entries: Sequence[tuple[int, ...]]) -> WeightedReply:
        """What the cheapest plan under weights and prices proves."""
        busy, used = self.along(entries)
        slack = ROUNDOFF * len(self.tables) * (float(weights @ busy) + float(prices.sum()))
        return WeightedReply(float(weights @ busy) + float(prices @ used) - float(prices.sum()) - slack, busy, used)


def rank_interval(problem: Problem, tree: Tree, ceiling: float, deadline: float) -> Ranking:
    """Per column a lower bound on the interval of every plan that uses it, from the tree relaxation."""
    tree = tree.plain
    known: dict[str, Held] = inputs_held(problem) | {t.node.output: t.options.held for t in tree.tables}
    every = [(share.name, [share.taken(t.resources) for t in tree.tables]) for share in problem.shares if share.limit > 0]
    every += [(name, [a / limit for a in spent]) for name, spent, limit in
              (("latency", tree.latencies, problem.max_latency_s), ("energy", tree.energies, problem.max_energy_j))
              if limit is not None]
    binding = [a for _, a in every if sum(float(own.max(initial=0.0)) for own in a) > 1]
    ledger = Ledger(shared_names(problem), tree.tables,
                    [busy_table(problem, t.options, known, t.inputs) for t in tree.tables], binding)

    def answer(weights: Floats, prices: Floats) -> WeightedReply:
        return ledger.reply(weights, prices, [entry for _, entry in cheapest(tree, ledger.costs(weights, prices))])

    found = best_weights(answer, even_weights(len(ledger.names), len(binding)), ceiling, deadline,
                         4 * len(ledger.names))
    least = [m - float(found.prices.sum()) for m in marginals(tree, ledger.costs(found.weights, found.prices))]
    weights = dict(zip(ledger.names, found.weights.tolist(), strict=True))
    return Ranking([np.maximum(a, own.engines) for a, own in zip(least, ledger.busy, strict=True)], weights)
