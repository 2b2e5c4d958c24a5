"""The cheapest bound: nodes looked at one by one, transfers between them left out, prices on shared limits.

It costs next to nothing, so it goes first: a column that is too dear even so is in no plan better than a known one, and the
larger tables are made without it.
"""

from __future__ import annotations

from math import inf

import numpy as np

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.exact.price_search import Reply, maximise_bound
from dovetail.partition.memo import Cache
from dovetail.partition.plan import Goal, Mode
from dovetail.partition.problem import PARTIAL_BYTES, Problem
from dovetail.partition.tables.columns import PricedSplits
from dovetail.partition.tolerances import ROUGH, ROUNDING, TOLERANCE

LEAST = Cache[PricedSplits, tuple[Floats, Floats]]()


def least_costs(problem: Problem, own: PricedSplits) -> tuple[Floats, Floats]:
    """Seconds that each column takes at least, wherever the inputs lie, without the way home, and joules without idling."""
    known = problem.memo.of(LEAST)
    if own not in known:
        known[own] = _least(problem, own)
    return known[own]


def _least(problem: Problem, own: PricedSplits) -> tuple[Floats, Floats]:
    quick = np.minimum(own.alone_s, own.fused_s)
    joules = own.energy_j.sum(axis=1) + own.reduce_j
    reducers = own.reducer
    summed = (reducers >= 0).nonzero()[0]
    if len(summed):
        size, ends = problem.graph.tensors[own.node.output].size * PARTIAL_BYTES, reducers[summed]
        devices, has = problem.devices, own.pattern.has[own.columns[summed]]
        ways, (rows, sources) = np.zeros((2, len(devices), len(devices))), has.nonzero()
        for reducer, d in {*zip(ends[rows].tolist(), sources.tolist(), strict=True)}:
            if d != reducer:
                ways[:, reducer, d] = problem.transfer_one(devices[d], devices[reducer], size)
        seconds, spent = ways[:, ends] * has
        quick[summed] += seconds
        for each in spent.T:
            joules[summed] += each
    concurrent = problem.mode is Mode.CONCURRENT
    return (quick.max(axis=1) if concurrent else quick.sum(axis=1)) + own.reduce_s, joules


def _beside(problem: Problem, choices: list[PricedSplits], seconds: list[Floats]) -> set[str]:
    """Nodes that may run while others do: a block takes at least as long as its longest arm, all else in it may be hidden."""
    least = {c.node.name: float((s + c.home_s).min()) for c, s in zip(choices, seconds, strict=True)} if problem.blocks else {}
    found: set[str] = set()
    for block in problem.blocks:
        longest = max(range(len(block.arms)), key=lambda a: sum(least[n.name] for n in block.arms[a]))
        found |= {n.name for a, arm in enumerate(block.arms) if a != longest for n in arm}
    return found


def strike_dear(problem: Problem, choices: list[PricedSplits], best: tuple[float, float], deadline: float) -> list[PricedSplits]:
    """The columns that a plan better than one of the given latency and energy may use."""
    sizes = [len(c) for c in choices]
    starts = np.cumsum([0, *sizes[:-1]])
    found = [least_costs(problem, c) for c in choices]
    beside = _beside(problem, choices, [s for s, _ in found])
    hidden = np.repeat([c.node.name in beside for c in choices], sizes)
    seconds, joules = np.where(hidden, 0.0, np.concatenate([s for s, _ in found])), np.concatenate([j for _, j in found])
    joules = joules + problem.idle_power_w * seconds + np.concatenate([c.home_j for c in choices])
    seconds = seconds + np.concatenate([c.home_s for c in choices])
    resources = np.concatenate([c.resources for c in choices])
    limits = [share.taken(resources) for share in problem.shares if share.limit > 0]
    limits += [a / limit for a, limit in ((seconds, problem.max_latency_s), (joules, problem.max_energy_j)) if limit is not None]
    amounts = [a for a in limits if np.maximum.reduceat(a, starts).sum() > 1]

    def marginals(costs: Floats, goal: float) -> Floats:
        """For every column the least sum over all nodes if it is used."""
        priced, discount = _priced(costs, amounts, starts, sizes, goal, deadline)
        least = np.minimum.reduceat(priced, starts)
        return priced + np.repeat(float(least.sum()) - least, sizes) - discount

    if problem.goal is Goal.EDP:
        bounds, goal = marginals(seconds, inf) * marginals(joules, inf), best[0] * best[1]
    else:
        goal = best[0] if problem.goal is Goal.LATENCY else best[1]
        bounds = marginals(seconds if problem.goal is Goal.LATENCY else joules, goal)
    keep = bounds <= goal * (1 + TOLERANCE)
    return [c.keep(keep[a:a + n].nonzero()[0]) for c, a, n in zip(choices, starts.tolist(), sizes, strict=True)]


def _priced(costs: Floats, amounts: list[Floats], starts: Ints, sizes: list[int], ceiling: float,
            deadline: float) -> tuple[Floats, float]:
    """Costs under the prices with the largest bound, and the sum of these prices."""
    if not amounts:
        return costs, 0.0
    used, node = np.stack(amounts, axis=1), np.repeat(np.arange(len(sizes)), sizes)

    def answer(prices: Floats) -> Reply:
        priced = costs + used @ prices
        least = np.minimum.reduceat(priced, starts)
        cheapest = (priced == least[node]).nonzero()[0]
        _, first = np.unique(node[cheapest], return_index=True)
        path = cheapest[first]
        return Reply(float(least.sum() - prices.sum()), float(costs[path].sum()), used[path].sum(axis=0))

    prices, _ = maximise_bound(answer, len(amounts), ceiling, deadline, settled=ROUGH)
    return costs + used @ prices, float(prices.sum()) * (1 + ROUNDING)
