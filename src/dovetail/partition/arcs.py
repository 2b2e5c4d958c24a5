"""Several limits at once: a mixed-integer program over the few steps that can still be in a better plan.

A step takes one state of the cuts to the next by one column. Prices bound every plan through a step from below, so steps
whose bound exceeds the cut-off are left out; what remains is a shortest path with side constraints, which HiGHS solves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.cost.estimate import Floats, Ints
from dovetail.partition.cuts import Network, Priced, priced_costs
from dovetail.partition.labels import SLACK, Found
from dovetail.partition.programs import cheapest_walk

INEXACT = 1e-7
"""Relative error of a floating-point solver's bound."""
MOST_STEPS = 8_000
"""Steps beyond which a program of them is not worth building."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of one stage: between which states (numbered within their cut), by which columns, at what cost and use."""

    source: Ints
    target: Ints
    column: Ints
    cost: Floats
    used: Floats


def solve_steps(net: Network, weights: tuple[float, float], priced: Priced, cutoff: float, seconds: float,
                tolerance: float) -> Found | None:
    """The best plan below the cut-off, proven to a relative tolerance; None where too many steps are left or time ran out."""
    steps = _steps(net, weights, priced, cutoff)
    if steps is None:
        return None
    if not steps:
        return Found(None, np.inf, cutoff, True)
    offsets = np.cumsum([0, *(int(s.source.max()) + 1 for s in steps), 1])
    out = np.concatenate([s.source + offsets[k] for k, s in enumerate(steps)])
    into = np.concatenate([s.target + offsets[k + 1] for k, s in enumerate(steps)])
    cost, used = np.concatenate([s.cost for s in steps]), np.concatenate([s.used for s in steps])
    scale = abs(priced.bound)
    found = cheapest_walk(out, into, int(offsets[-1]), cost / scale, used, tolerance, seconds)
    if found.impossible:
        return Found(None, np.inf, cutoff, True)
    if found.bound is None:
        return None
    bound = min(cutoff, found.bound * scale * (1 - INEXACT))
    if found.arcs is None:
        return Found(None, np.inf, bound, False)
    stage = np.repeat(np.arange(len(steps)), [len(s.cost) for s in steps])
    column = np.concatenate([s.column for s in steps])
    path = tuple(int(c) for _, c in sorted(zip(stage[found.arcs].tolist(), column[found.arcs].tolist(), strict=True)))
    legal = len(path) == len(steps) and bool((used[found.arcs].sum(axis=0) <= 1 + SLACK * len(steps)).all())
    return Found(path, float(cost[found.arcs].sum()), bound, found.final) if legal else Found(None, np.inf, bound, False)


def _steps(net: Network, weights: tuple[float, float], priced: Priced, cutoff: float) -> list[Steps] | None:
    """Steps by stage whose bound is within the cut-off; empty if there are none, None if they are too many."""
    base = [net.cost(k, weights) for k in range(len(net.tables))]
    amounts = [[net.amounts(k, x) for k in range(len(net.tables))] for x in net.limits]
    priced_base = priced_costs(base, amounts, priced.prices)
    allowed = cutoff + float(priced.prices.sum()) + SLACK * abs(cutoff)
    states, reached = np.zeros((1, 0), dtype=np.int64), np.zeros(1)
    found: list[Steps] = []
    total = 0
    for k, (table, stage) in enumerate(zip(net.tables, net.stages, strict=True)):
        at = {t: states[:, i] for i, t in enumerate(stage.live)}
        entry = tuple(at[t] for t in table.inputs)
        shape = (len(states), len(table.options))
        onward = tuple(table.place_of[None, :] if t == table.node.output else at[t][:, None] for t in stage.after)
        step = priced_base[k][entry] if entry else priced_base[k]
        through = reached[:, None] + step
        row, column = np.nonzero(through + np.broadcast_to(priced.to_go[k + 1][onward], shape) <= allowed)
        if not len(row):
            return []
        after = np.stack([table.place_of[column] if t == table.node.output else at[t][row] for t in stage.after], axis=1) \
            if stage.after else np.zeros((len(row), 0), dtype=np.int64)
        following, target = np.unique(after, axis=0, return_inverse=True) if stage.after else (
            np.zeros((1, 0), dtype=np.int64), np.zeros(len(row), dtype=np.int64))
        least = np.full(len(following), np.inf)
        np.minimum.at(least, target.ravel(), np.broadcast_to(through, shape)[row, column])
        used = [np.broadcast_to(a[k] if a[k].ndim == 1 else a[k][entry], shape)[row, column] for a in amounts]
        cost = np.broadcast_to(base[k][entry] if entry else base[k], shape)[row, column]
        found.append(Steps(row, target.ravel(), column, cost, np.stack(used, axis=1) if used else np.zeros((len(row), 0))))
        states, reached = following, least
        total += len(row)
        if total > MOST_STEPS:
            return None
    return found
