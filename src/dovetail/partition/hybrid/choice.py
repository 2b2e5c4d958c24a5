"""One option for each item, so that the fullest resource is as empty as possible: a linear bound and a whole solution.

The linear programme min t, sum of resources <= t * budget, one unit of options per item, has a basic solution in which at most
as many items are divided as there are resources; only those are decided again, by trying all their options.

Its dual solution weighs the resources: with weights that add up to one, the weighted shares of the cheapest option of every item
add up to no more than t. Weights found for one choice bound others at once (`Room`), so few linear programmes are solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, prod

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from dovetail.cost import Floats

TRIED = 4096
"""Combinations of divided items that are tried at most; beyond that, item after item."""
WHOLE = 1 - 1e-6
SLACK = 1e-9
NEVER = 1e9
"""The share of a resource that there is nothing of."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """How full the fullest resource is at least (`bound`) and with the options of `places`; inf where there are none."""

    bound: float
    fill: float
    places: tuple[int, ...] = ()
    together: tuple[int | None, ...] = ()
    """For every `Joint` its option, whose members' places then say nothing; None where they are chosen one by one."""
    weights: tuple[float, ...] = ()
    """Of the resources, adding up to one: those that prove the bound. Empty where no linear programme was needed."""


@dataclass(frozen=True, slots=True)
class Joint:
    """Options that take the place of several items at once."""

    members: tuple[int, ...]
    options: Floats
    """At least one."""


@dataclass(frozen=True, slots=True)
class Room:
    """What is left of a budget beside the cheapest options of all other items, for several weightings of its resources."""

    budget: Floats
    weights: Floats
    """Row by row; those of a row add up to one."""
    left: Floats

    def holds(self, needs: Floats) -> NDArray[np.bool_]:
        """Of every row of resources, whether the linear programme could still have a solution with it."""
        used = shares_of(needs, self.budget) @ self.weights.T
        return np.asarray(np.all(used <= self.left + SLACK, axis=1), dtype=np.bool_)


def undominated(options: Floats) -> list[int]:
    """Rows that no other row undercuts in every column; of equal rows the first."""
    order = np.lexsort((np.arange(len(options)), options.sum(axis=1)))
    kept = np.zeros_like(options)
    found: list[int] = []
    for row in order:
        if not np.any(np.all(kept[:len(found)] <= options[row], axis=1)):
            kept[len(found)] = options[row]
            found.append(int(row))
    return sorted(found)


def least_fill(items: Sequence[Floats], budget: Floats, joints: Sequence[Joint] = ()) -> Chosen:
    """Choose a row (resources, in the units of `budget`) of every item, or of a joint instead of all its members."""
    joined = {i for j in joints for i in j.members}
    if any(len(options) == 0 and i not in joined for i, options in enumerate(items)):
        return Chosen(inf, inf)
    if not items:
        return Chosen(0.0, 0.0)
    shares = [shares_of(options, budget) for options in items]
    wide = [Joint(j.members, shares_of(j.options, budget)) for j in joints]
    least = np.array([s.min(axis=0, initial=inf) for s in shares])
    for j in wide:
        members = list(j.members)
        least[members[0]] = np.minimum(least[members].sum(axis=0), j.options.min(axis=0))
        least[members[1:]] = 0.0
    quick = float(least.sum(axis=0).max())
    if quick > 1:
        return Chosen(quick, inf)
    bound, weights, together, prices = _relaxed(shares, wide)
    taken = tuple(int(w.argmax()) if w.sum() > 1 / 2 else None for w in together)
    rows = [None if k is None else j.options[k] for j, k in zip(wide, taken, strict=True)]
    places, fill = _rounded(shares, weights, rows, wide)
    if any(k is not None for k in taken) and all(len(s) for s in shares):
        apart, alone = _rounded(shares, weights, [None] * len(wide), wide)
        if alone < fill:
            return Chosen(min(bound, alone), alone, apart, (None,) * len(wide), prices)
    return Chosen(min(bound, fill), fill, places, taken, prices)


def shares_of(options: Floats, budget: Floats) -> Floats:
    """Parts of the budget; what is needed where there is nothing fills it far too often."""
    return np.divide(options, budget, out=np.where(options > 0, NEVER, 0.0), where=budget > 0)


def _relaxed(shares: Sequence[Floats], joints: Sequence[Joint]) -> tuple[float, list[Floats], list[Floats], tuple[float, ...]]:
    """The linear programme's value, how much of every option it takes, of items and of joints, and weights of the resources."""
    counts = [len(s) for s in shares]
    own, sizes = sum(counts), [len(j.options) for j in joints]
    table = np.concatenate([*shares, *(j.options for j in joints)])
    total, resources = table.shape
    rows, columns = [np.repeat(np.arange(len(counts)), counts)], [np.arange(own)]
    at = own
    for joint, size in zip(joints, sizes, strict=True):
        for member in joint.members:
            rows.append(np.full(size, member))
            columns.append(np.arange(at, at + size))
        at += size
    row, column = np.concatenate(rows), np.concatenate(columns)
    one_each = csr_array((np.ones(len(row)), (row, column)), shape=(len(counts), total + 1))
    limits = np.hstack([table.T, -np.ones((resources, 1))])
    answer = linprog(np.append(np.zeros(total), 1.0), limits, np.zeros(resources),
                     one_each, np.ones(len(counts)), (0, None))  # type: ignore[call-overload]  # its stubs know no sparse matrix
    if answer.x is None:
        return inf, [np.eye(max(1, len(s)))[0][:len(s)] for s in shares], [np.zeros(n) for n in sizes], ()
    parts = np.split(np.asarray(answer.x[:-1], dtype=np.float64), np.cumsum([*counts, *sizes])[:-1])
    prices = np.maximum(0.0, -np.asarray(answer.ineqlin.marginals, dtype=np.float64))
    return (float(answer.fun), parts[:len(counts)], parts[len(counts):],
            tuple((prices / prices.sum()).tolist()) if prices.sum() > 0 else ())


def _rounded(shares: Sequence[Floats], weights: Sequence[Floats], taken: Sequence[Floats | None],
             joints: Sequence[Joint]) -> tuple[tuple[int, ...], float]:
    """Items that the linear programme divides are decided together, by trying; the others, and what is `taken`, as it says."""
    covered = {i for j, row in zip(joints, taken, strict=True) if row is not None for i in j.members}
    if any(len(s) == 0 and i not in covered for i, s in enumerate(shares)):
        return (), inf
    places = [int(w.argmax()) if len(w) else -1 for w in weights]
    divided = [i for i, w in enumerate(weights) if i not in covered and w.max() < WHOLE]
    candidates = [list(range(len(shares[i]))) for i in divided]
    if prod(map(len, candidates)) > TRIED:
        candidates = [[int(k) for k in np.flatnonzero(weights[i] > 0)] or [places[i]] for i in divided]
    settled = np.zeros(shares[0].shape[1])
    for row in taken:
        settled += 0.0 if row is None else row
    for i, place in enumerate(places):
        if i not in divided and i not in covered:
            settled += shares[i][place]

    if not divided:
        return tuple(places), float(settled.max())
    sums = settled[None, :]
    for i, options in zip(divided, candidates, strict=True):
        sums = (sums[:, None, :] + shares[i][options][None, :, :]).reshape(-1, len(settled))
    fills = sums.max(axis=1)
    best = np.unravel_index(int(fills.argmin()), [len(options) for options in candidates])
    for i, able, chosen in zip(divided, candidates, best, strict=True):
        places[i] = able[int(chosen)]
    return tuple(places), float(fills.min())
