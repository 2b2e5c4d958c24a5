"""One option for each item, so that the fullest resource is as empty as possible: a linear bound and a whole solution.

The linear programme min t, sum of resources <= t * budget, one unit of options per item, has a basic solution in which at most
as many items are divided as there are resources; only those are decided again, by trying all their options.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from dovetail.cost import Floats

TRIED = 4096
"""Combinations of divided items that are tried at most; beyond that, item after item."""
WHOLE = 1 - 1e-6


@dataclass(frozen=True, slots=True)
class Chosen:
    """How full the fullest resource is at least (`bound`) and with the options of `places`; inf where there are none."""

    bound: float
    fill: float
    places: tuple[int, ...] = ()
    together: tuple[int | None, ...] = ()
    """For every `Joint` its option, whose members' places then say nothing; None where they are chosen one by one."""


@dataclass(frozen=True, slots=True)
class Joint:
    """Options that take the place of several items at once."""

    members: tuple[int, ...]
    options: Floats
    """At least one."""


def undominated(options: Floats) -> list[int]:
    """Rows that no other row undercuts in every column; of equal rows the first."""
    order = np.lexsort((np.arange(len(options)), options.sum(axis=1)))
    kept: list[int] = []
    for row in order:
        if not any(bool(np.all(options[k] <= options[row])) for k in kept):
            kept.append(int(row))
    return sorted(kept)


def least_fill(items: Sequence[Floats], budget: Floats, joints: Sequence[Joint] = ()) -> Chosen:
    """Choose a row (resources, in the units of `budget`) of every item, or of a joint instead of all its members."""
    joined = {i for j in joints for i in j.members}
    if any(len(options) == 0 and i not in joined for i, options in enumerate(items)):
        return Chosen(inf, inf)
    if not items:
        return Chosen(0.0, 0.0)
    shares = [_shares(options, budget) for options in items]
    wide = [Joint(j.members, _shares(j.options, budget)) for j in joints]
    least = np.array([s.min(axis=0, initial=inf) for s in shares])
    for j in wide:
        members = list(j.members)
        least[members[0]] = np.minimum(least[members].sum(axis=0), j.options.min(axis=0))
        least[members[1:]] = 0.0
    quick = float(least.sum(axis=0).max())
    if quick > 1:
        return Chosen(quick, inf)
    bound, weights, together = _relaxed(shares, wide)
    taken = tuple(int(w.argmax()) if w.sum() > 1 / 2 else None for w in together)
    rows = [None if k is None else j.options[k] for j, k in zip(wide, taken, strict=True)]
    places, fill = _rounded(shares, weights, rows, wide)
    if any(k is not None for k in taken) and all(len(s) for s in shares):
        apart, alone = _rounded(shares, weights, [None] * len(wide), wide)
        if alone < fill:
            return Chosen(min(bound, alone), alone, apart, (None,) * len(wide))
    return Chosen(min(bound, fill), fill, places, taken)


def _shares(options: Floats, budget: Floats) -> Floats:
    """Parts of the budget; what is needed where there is nothing fills it infinitely often."""
    return np.divide(options, budget, out=np.where(options > 0, np.inf, 0.0), where=budget > 0)


def _relaxed(shares: Sequence[Floats], joints: Sequence[Joint]) -> tuple[float, list[Floats], list[Floats]]:
    """The linear programme's value and how much of every option it takes, of items and of joints."""
    counts = [len(s) for s in shares]
    own, sizes = sum(counts), [len(j.options) for j in joints]
    table = np.concatenate([*shares, *(j.options for j in joints)])
    total, resources = table.shape
    finite = np.all(np.isfinite(table), axis=1, keepdims=True)
    rows, columns = [np.repeat(np.arange(len(counts)), counts)], [np.arange(own)]
    at = own
    for joint, size in zip(joints, sizes, strict=True):
        for member in joint.members:
            rows.append(np.full(size, member))
            columns.append(np.arange(at, at + size))
        at += size
    row, column = np.concatenate(rows), np.concatenate(columns)
    one_each = csr_array((np.ones(len(row)), (row, column)), shape=(len(counts), total + 1))
    limits = np.hstack([np.where(finite, table, 0.0).T, -np.ones((resources, 1))])
    upper = np.append(np.where(finite[:, 0], 1.0, 0.0), np.inf)
    answer = milp(np.append(np.zeros(total), 1.0), bounds=Bounds(np.zeros(total + 1), upper), constraints=[
        LinearConstraint(one_each, np.ones(len(counts)), np.ones(len(counts))),
        LinearConstraint(limits, -np.inf, np.zeros(resources))])
    if answer.x is None:
        return inf, [np.eye(max(1, len(s)))[0][:len(s)] for s in shares], [np.zeros(n) for n in sizes]
    parts = np.split(np.asarray(answer.x[:-1], dtype=np.float64), np.cumsum([*counts, *sizes])[:-1])
    return float(answer.fun), parts[:len(counts)], parts[len(counts):]


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

    def fill(tried: Sequence[int]) -> float:
        return float((settled + np.sum([shares[i][p] for i, p in zip(divided, tried, strict=True)], axis=0)).max())

    best = min(product(*candidates), key=fill)
    for i, place in zip(divided, best, strict=True):
        places[i] = place
    return tuple(places), fill(best)
