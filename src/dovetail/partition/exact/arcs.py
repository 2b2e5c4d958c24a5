"""Several limits at once: a mixed-integer program over the few steps that can still be in a better plan.

A step takes one state of the cuts to the next by one column. Prices bound every plan through a step from below, so steps
whose bound exceeds the cut-off are left out; what remains is a shortest path with side constraints, which HiGHS solves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.partition.effort import slowdown, spend
from dovetail.partition.exact.cuts import COVERED, Network, Priced, Step, onward, priced_costs
from dovetail.partition.exact.labels import FoundPath
from dovetail.partition.linear_programs import cheapest_walk
from dovetail.partition.tolerances import PROGRAM_ERROR, ROUNDING

MOST_STEPS = 40_000
"""Steps beyond which a program of them is not worth building.

Chosen: any value from 20,000 to 80,000 gives the same plans (bench/constants.py).
"""


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps that begin at one cut and end at another: between which states, by which columns, at what cost and use.

    States are numbered within their cut; columns as paths name them.
    """

    start: int
    stop: int
    source: Ints
    target: Ints
    column: Ints
    cost: Floats
    used: Floats


@dataclass(frozen=True, slots=True)
class _Landing:
    """Steps to a cut whose states are not numbered yet: the states they reach, and at what least priced cost."""

    steps: Steps
    states: Ints
    through: Floats


def solve_steps(net: Network, costs: list[Floats], priced: Priced, cutoff: float, seconds: float,
                tolerance: float, level: int = 0, only: Sequence[Flags] | None = None, least: float = 0.0) -> FoundPath | None:
    """The best plan below the cut-off, proven to a relative tolerance; None where too many steps are left or time ran out.

    With a `level`, the first so many limits are no limits: the largest part taken of one of them, or of the cut-off by the cost,
    is made as small as possible; no plan's is below `least`, in seconds. With `only` (see `used_by`) the best over some columns
    is looked for, and there is no bound.
    """
    left = _steps(net, costs, priced, cutoff, only)
    if left is None:
        return None
    steps, sizes = left
    if not sizes[-1]:
        return FoundPath(None, np.inf, cutoff if only is None else -np.inf, only is None)
    offsets = np.cumsum([0, *sizes])
    out = np.concatenate([s.source + offsets[s.start] for s in steps])
    into = np.concatenate([s.target + offsets[s.stop] for s in steps])
    cost, used = np.concatenate([s.cost for s in steps]), np.concatenate([s.used for s in steps])
    scale = cutoff if level else abs(priced.bound)
    found = cheapest_walk(out, into, int(offsets[-1]), cost / scale, used, tolerance, seconds, level, slowdown(),
                          least / scale if level else 0.0)
    if found.impossible:
        return FoundPath(None, np.inf, cutoff if only is None else -np.inf, only is None)
    if found.bound is None:
        return None
    bound = -np.inf if only is not None else min(cutoff, found.bound * scale * (1 - PROGRAM_ERROR))
    if found.arcs is None:
        return FoundPath(None, np.inf, bound, False)
    path = _path(len(net.tables), steps, found.arcs)
    legal = path is not None and bool((used[found.arcs, level:].sum(axis=0) <= 1 + ROUNDING * len(net.tables)).all())
    return FoundPath(path, float(cost[found.arcs].sum()), bound, found.final) if legal else FoundPath(None, np.inf, bound, False)


def _path(length: int, steps: list[Steps], chosen: Ints) -> tuple[int, ...] | None:
    """The path of the chosen steps (numbered through all of them), None where they do not lead from the start to the end."""
    path, at = [COVERED] * length, 0
    group = np.repeat(np.arange(len(steps)), [len(s.cost) for s in steps])
    column = np.concatenate([s.column for s in steps])
    for i in sorted(chosen.tolist(), key=lambda i: steps[group[i]].start):
        if steps[group[i]].start != at:
            return None
        path[at], at = int(column[i]), steps[group[i]].stop
    return tuple(path) if at == length else None


def used_by(net: Network, paths: Iterable[tuple[int, ...]]) -> list[Flags]:
    """Of every table and jump the columns that any of some paths uses."""
    found = [np.zeros(len(own), dtype=np.bool_) for own in net.owners]
    for path in paths:
        for step, column, _ in net.walk(path):
            found[step.index][column] = True
    return found


def _steps(net: Network, base: list[Floats], priced: Priced, cutoff: float,
           only: Sequence[Flags] | None) -> tuple[list[Steps], list[int]] | None:
    """Steps whose bound is within the cut-off, and the number of states of every cut; None if they are too many."""
    amounts = [net.amounts(x) for x in net.limits]
    arrays = _Arrays(net, base, amounts, priced_costs(base, amounts, priced.prices), priced.to_go,
                     cutoff + float(priced.prices.sum()) + ROUNDING * abs(cutoff), only)
    states, reached = np.zeros((1, 0), dtype=np.int64), np.zeros(1)
    coming: list[list[_Landing]] = [[] for _ in range(len(net.tables) + 1)]
    found: list[Steps] = []
    sizes, count = [1], 0
    for k in range(len(net.tables)):
        for step in net.steps(k):
            coming[step.stop].append(_landing(arrays, step, states, reached))
            count += len(coming[step.stop][-1].through)
        if count > MOST_STEPS:
            return None
        landed, states, reached = _numbered(coming[k + 1])
        found += landed
        sizes.append(len(states))
    return found, sizes


@dataclass(frozen=True, slots=True)
class _Arrays:
    """What the steps of a network cost and use, plain and priced, and what is allowed in all."""

    net: Network
    base: list[Floats]
    amounts: list[list[Floats]]
    priced: list[Floats]
    to_go: list[Floats]
    allowed: float
    only: Sequence[Flags] | None


def _landing(arrays: _Arrays, step: Step, states: Ints, reached: Floats) -> _Landing:
    """The steps from some states by the columns of a table or jump that can still be in a better plan."""
    live, after = arrays.net.stages[step.start].live, arrays.net.stages[step.stop - 1].after
    at = {t: states[:, i] for i, t in enumerate(live)}
    entry, shape, leaves = tuple(at[t] for t in step.own.inputs), (len(states), len(step.own)), step.own.leaves

    def over(array: Floats) -> Floats:
        return np.broadcast_to(array[entry] if entry and array.ndim > 1 else array, shape)

    through = reached[:, None] + over(arrays.priced[step.index])
    ahead = onward(step, after, {t: places[:, None] for t, places in at.items()})
    near = through + np.broadcast_to(arrays.to_go[step.stop][ahead], shape) <= arrays.allowed
    row, column = np.nonzero(near if arrays.only is None else near & arrays.only[step.index])
    spend("landings", 1, near.size)
    left = [leaves[t][column] if t in leaves else at[t][row] for t in after]
    used = [over(a[step.index])[row, column] for a in arrays.amounts]
    steps = Steps(step.start, step.stop, row, row, step.first_column + column, over(arrays.base[step.index])[row, column],
                  np.stack(used, axis=1) if used else np.zeros((len(row), 0)))
    return _Landing(steps, np.stack(left, axis=1) if left else np.zeros((len(row), 0), dtype=np.int64), through[row, column])


def _numbered(landings: list[_Landing]) -> tuple[list[Steps], Ints, Floats]:
    """The steps to a cut with their states numbered, these states, and the least priced cost of reaching each."""
    reached = np.concatenate([x.states for x in landings])
    states, target = np.unique(reached, axis=0, return_inverse=True) if reached.shape[1] else (
        reached[:1], np.zeros(len(reached), dtype=np.int64))
    least = np.full(len(states), np.inf)
    np.minimum.at(least, target.ravel(), np.concatenate([x.through for x in landings]))
    edges = np.cumsum([0, *(len(x.through) for x in landings)])
    parts = [replace(x.steps, target=target.ravel()[a:b]) for x, a, b in zip(landings, edges[:-1], edges[1:], strict=True)]
    return parts, states, least
