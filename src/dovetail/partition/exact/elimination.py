"""Which columns can still be in a better plan: a tree relaxation strikes the rest before large tables are built.

With any prices on the limits the relaxation (see `tree`) bounds every plan that uses a column from below; a column whose
bound exceeds a plan already known is in no better plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf, prod

import numpy as np

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.candidates import WHOLE_RANK
from dovetail.partition.exact.cuts import LiveTensors, priced_costs, stages, taking
from dovetail.partition.exact.price_search import Reply, maximise_bound
from dovetail.partition.exact.tree import Hanging, Tree, cheapest, hang, marginals
from dovetail.partition.plan import Goal
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import PricedSplits
from dovetail.partition.tables.costs import variable_inputs
from dovetail.partition.tolerances import ROUGH, TOLERANCE

CORE = 16
"""Columns per node, besides whole placements, that a first search looks at.

Chosen: half or double moves GoogLeNet's bound at a second of work, and no other plan (bench/constants.py).
"""
CORE_LIMIT = 200_000
"""Entries of the largest arrays a first search may need, over all devices.

Chosen: half or double moves GoogLeNet's bound at a second of work, and no other plan (bench/constants.py).
"""
STAGE_LIMIT = 1_500_000
"""Entries of the largest arrays one node may need, over all devices.

Chosen: any value from 750,000 to 3,000,000 gives the same plans (bench/constants.py).
"""
STEP = 0.02
"""Part of a node's columns that is left out in one step, where they are told apart by bounds.

Chosen: any value from 0.01 to 0.04 gives the same plans (bench/constants.py).
"""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Per node and column a lower bound on the goal of every plan that uses the column."""

    bounds: list[Floats]
    prices: Mapping[str, float]
    """Prices on the limits that gave them, by name; none for an energy-delay product."""

    @property
    def bound(self) -> float:
        """A lower bound on every plan: each node must use one of its columns."""
        return max(float(b.min()) for b in self.bounds)

    def core(self, choices: list[PricedSplits], count: int) -> list[PricedSplits]:
        """The most promising columns and all whole placements."""
        return [c.keep(chosen) for c, chosen in zip(choices, self._promising(choices, count), strict=True)]

    def _promising(self, choices: list[PricedSplits], count: int) -> list[Ints]:
        found = []
        for c, b in zip(choices, self.bounds, strict=True):
            chosen = c.rank == WHOLE_RANK
            chosen[b.argsort(kind="stable")[:count]] = True
            found.append(chosen.nonzero()[0])
        return found

    def few(self, choices: list[PricedSplits], best: float, count: int, times: int) -> bool:
        """Whether a plan better than `best` may use no more columns than some times those of a core."""
        left = sum([int(np.count_nonzero(b <= best * (1 + TOLERANCE))) for b in self.bounds])
        return left <= times * sum(map(len, self._promising(choices, count)))

    def strike(self, choices: list[PricedSplits], best: float) -> list[PricedSplits]:
        """The columns that a plan better than `best` may use."""
        return choices if best == inf else [c.keep((b <= best * (1 + TOLERANCE)).nonzero()[0])
                                            for c, b in zip(choices, self.bounds, strict=True)]

    def of(self, choices: list[PricedSplits], left: list[PricedSplits]) -> list[Floats]:
        """The bounds of some of the columns."""
        return [b[every.columns.searchsorted(own.columns)] for every, b, own in zip(choices, self.bounds, left, strict=True)]

    def without(self, choices: list[PricedSplits], left: list[PricedSplits], kept: list[PricedSplits]) -> float:
        """A lower bound on plans that use a column which was left, but not kept; infinite where all were."""
        found = inf
        for every, b, before, after in zip(choices, self.bounds, left, kept, strict=True):
            if len(after) < len(before):
                gone = np.setdiff1d(before.columns, after.columns, assume_unique=True)
                found = min(found, float(b[every.columns.searchsorted(gone)].min()))
        return found


def rank(problem: Problem, tree: Tree, known: tuple[float, float] | None, deadline: float) -> Ranking:
    """Bounds from the relaxation with the best prices on shared budgets; `known` is a plan's latency and energy."""
    if problem.goal is not Goal.EDP:
        costs = tree.latencies if problem.goal is Goal.LATENCY else tree.energies
        hung = hang(tree, costs)
        plain = marginals(tree, costs, hung)
        ceiling = inf if known is None else known[0] if problem.goal is Goal.LATENCY else known[1]
        priced, prices = _priced_marginals(problem, tree, costs, ceiling, deadline, hung)
        return Ranking([np.maximum(a, b) for a, b in zip(plain, priced, strict=True)], prices)
    latency, energy = marginals(tree, tree.latencies), marginals(tree, tree.energies)
    if known is None:
        return Ranking([a * b for a, b in zip(latency, energy, strict=True)], {})
    # Along the slope of the product at a known plan, latency and energy together are bounded more tightly than apart.
    slope = (known[1], known[0])
    mixed = [slope[0] * a + slope[1] * b for a, b in zip(tree.latencies, tree.energies, strict=True)]
    priced, _ = _priced_marginals(problem, tree, mixed, 2 * known[0] * known[1], deadline)
    return Ranking([_least_product(a, b, m, slope) for a, b, m in zip(latency, energy, priced, strict=True)], {})


def _least_product(latency: Floats, energy: Floats, mixed: Floats, slope: tuple[float, float]) -> Floats:
    """Least latency x energy with both above their bounds and slope . (latency, energy) >= mixed: at a corner of that region."""
    at_latency = latency * np.maximum(energy, (mixed - slope[0] * latency) / slope[1])
    at_energy = energy * np.maximum(latency, (mixed - slope[1] * energy) / slope[0])
    return np.minimum(at_latency, at_energy)


def _priced_marginals(problem: Problem, tree: Tree, costs: list[Floats], ceiling: float, deadline: float,
                      unpriced: Hanging | None = None) -> tuple[list[Floats], Mapping[str, float]]:
    """Marginals under the best prices on all limits that can bind, and these prices; `unpriced` is what costs alone come to."""
    sizes = [len(own) for own in tree.owners]
    edges, resources = [0, *accumulate(sizes)], np.concatenate([own.resources for own in tree.owners])
    taken = [(share.name, share.taken(resources)) for share in problem.shares if share.limit > 0]
    every = [(name, [a[i:j] for i, j in pairwise(edges)]) for name, a in taken
             if sum(np.maximum.reduceat(a, edges[:-1]).clip(0.0).tolist()) > 1]
    if problem.max_latency_s is not None:
        every.append(("latency", [a / problem.max_latency_s for a in tree.latencies]))
    if problem.max_energy_j is not None:  # energies are worked out when they are first asked for
        every.append(("energy", [a / problem.max_energy_j for a in tree.energies]))
    binding = {name: a for name, a in every if name not in ("latency", "energy") or sum(
        float(own.max(initial=0.0)) for own in a) > 1}
    amounts = list(binding.values())
    taken_of = taking(amounts)
    hung = {} if unpriced is None else {np.zeros(len(amounts)).tobytes(): unpriced}

    def answer(prices: Floats) -> Reply:
        priced, key = priced_costs(costs, taken_of, prices), prices.tobytes()
        if key not in hung:
            hung[key] = hang(tree, priced)
        path = cheapest(tree, priced, hung[key])
        spent = sum(float(costs[i][entry]) for i, entry in path)
        used = np.array([sum(float(a[i][entry[-1]] if a[i].ndim == 1 else a[i][entry]) for i, entry in path) for a in amounts])
        return Reply(spent + float(prices @ used) - float(prices.sum()), spent, used)

    prices, _ = maximise_bound(answer, len(amounts), ceiling, deadline, settled=ROUGH)
    spent = float(prices.sum())
    found = [m - spent for m in marginals(tree, priced_costs(costs, taken_of, prices), hung.get(prices.tobytes()))]
    return found, dict(zip(binding, prices.tolist(), strict=True))


def thin(problem: Problem, choices: list[PricedSplits], limit: int = STAGE_LIMIT,
         bounds: list[Floats] | None = None) -> list[PricedSplits] | None:
    """Leave out columns until no array outgrows the limit; None where even whole placements are too many.

    Those of low rank go first or, with `bounds` on plans that use each, those of high bounds.
    """
    limit //= len(problem.devices)
    kept, index = list(choices), {n.output: k for k, n in enumerate(problem.graph.nodes)}
    merits: list[Floats] = [c.rank.astype(np.float64) for c in choices] if bounds is None else [
        np.where(c.rank == WHOLE_RANK, inf, -b) for c, b in zip(choices, bounds, strict=True)]
    for k, stage in enumerate(stages(problem)):
        while not _affordable(problem, kept, k, stage, index, limit):
            around = [k, *(index[t] for t in stage.live)]
            thinner = [(len(kept[i].places) if bounds is None else -merits[i].min(), -i)
                       for i in around if merits[i].min() < merits[i].max()]
            if not thinner:
                return None
            i = -max(thinner)[1]
            better = (merits[i] > (merits[i].min() if bounds is None else _low(merits[i]))).nonzero()[0]
            kept[i], merits[i] = kept[i].keep(better), merits[i][better]
    return kept


def _low(merits: Floats) -> float:
    """Up to which merit columns are left out in one step: a part of those that may be."""
    own = np.sort(merits[merits < inf])
    return float(own[int(len(own) * STEP)])


def _affordable(problem: Problem, kept: list[PricedSplits], k: int, stage: LiveTensors, index: Mapping[str, int],
                limit: int) -> bool:
    table = prod(len(kept[index[t]].places) for t in variable_inputs(problem, kept[k].node)) * len(kept[k])
    return max(table, prod(len(kept[index[t]].places) for t in stage.live) * len(kept[k].places)) <= limit
