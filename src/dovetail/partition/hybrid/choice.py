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


def undominated(options: Floats) -> list[int]:
    """Rows that no other row undercuts in every column; of equal rows the first."""
    order = np.lexsort((np.arange(len(options)), options.sum(axis=1)))
    kept: list[int] = []
    for row in order:
        if not any(bool(np.all(options[k] <= options[row])) for k in kept):
            kept.append(int(row))
    return sorted(kept)


def least_fill(items: Sequence[Floats], budget: Floats) -> Chosen:
    """Choose a row (resources, in the units of `budget`) of every item."""
    if any(len(options) == 0 for options in items):
        return Chosen(inf, inf)
    if not items:
        return Chosen(0.0, 0.0)
    shares = [_shares(options, budget) for options in items]
    quick = float(np.sum([s.min(axis=0) for s in shares], axis=0).max())
    if quick > 1:
        return Chosen(quick, inf)
    bound, weights = _relaxed(shares)
    places, fill = _rounded(shares, weights)
    return Chosen(min(bound, fill), fill, places)


def _shares(options: Floats, budget: Floats) -> Floats:
    """Parts of the budget; what is needed where there is nothing fills it infinitely often."""
    return np.divide(options, budget, out=np.where(options > 0, np.inf, 0.0), where=budget > 0)


def _relaxed(shares: Sequence[Floats]) -> tuple[float, list[Floats]]:
    """The linear programme's value and how much of every option it takes."""
    counts = [len(s) for s in shares]
    table = np.concatenate(shares)
    total, resources = table.shape
    finite = np.all(np.isfinite(table), axis=1, keepdims=True)
    rows = np.repeat(np.arange(len(counts)), counts)
    one_each = csr_array((np.ones(total), (rows, np.arange(total))), shape=(len(counts), total + 1))
    limits = np.hstack([np.where(finite, table, 0.0).T, -np.ones((resources, 1))])
    upper = np.append(np.where(finite[:, 0], 1.0, 0.0), np.inf)
    answer = milp(np.append(np.zeros(total), 1.0), bounds=Bounds(np.zeros(total + 1), upper), constraints=[
        LinearConstraint(one_each, np.ones(len(counts)), np.ones(len(counts))),
        LinearConstraint(limits, -np.inf, np.zeros(resources))])
    if answer.x is None:
        return inf, [np.eye(len(s))[0] for s in shares]
    return float(answer.fun), np.split(np.asarray(answer.x[:-1], dtype=np.float64), np.cumsum(counts)[:-1])


def _rounded(shares: Sequence[Floats], weights: Sequence[Floats]) -> tuple[tuple[int, ...], float]:
    """Items that the linear programme divides are decided together, by trying; the others are as it says."""
    places = [int(w.argmax()) for w in weights]
    divided = [i for i, w in enumerate(weights) if w.max() < WHOLE]
    candidates = [list(range(len(shares[i]))) for i in divided]
    if prod(map(len, candidates)) > TRIED:
        candidates = [[int(k) for k in np.flatnonzero(weights[i] > 0)] for i in divided]
    settled = np.zeros(shares[0].shape[1])
    for i, place in enumerate(places):
        if i not in divided:
            settled += shares[i][place]

    def fill(tried: Sequence[int]) -> float:
        return float((settled + np.sum([shares[i][p] for i, p in zip(divided, tried, strict=True)], axis=0)).max())

    best = min(product(*candidates), key=fill)
    for i, place in zip(divided, best, strict=True):
        places[i] = place
    return tuple(places), fill(best)
