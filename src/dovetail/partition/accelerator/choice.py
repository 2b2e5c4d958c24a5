"""One option for each item, so that the fullest resource is as empty as possible: a linear bound and a whole solution.

The linear programme min t, sum of resources <= t * budget, one unit of options per item, has a basic solution in which at most
as many items are divided as there are resources; only those are decided again, by trying all their options. Where that overfills
a resource and fractions do not, whether whole options fit is decided by branch and bound over the options whose reduced costs
leave them a chance (`_decided`), so that more options never turn a choice that fits into one that does not.

Its dual solution weighs the resources: with weights that add up to one, the weighted shares of the cheapest option of every item
add up to no more than t. Weights found for one choice bound others at once (`Room`), so few linear programmes are solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from dovetail.cost import Floats
from dovetail.partition.proof import check_bound
from dovetail.partition.tolerances import TOLERANCE, WHOLE_ERROR

TRIED = 4096
"""Combinations of divided items that are tried at most; beyond that, item after item. Chosen, not measured."""
NEVER = 1e9
"""The share of a resource that there is nothing of."""
PROVEN = 2
"""What `milp` answers where there is no solution. Source: the `status` of `scipy.optimize.milp`."""
MOST_NODES = 2000
"""Of branch and bound; what is not decided by then counts as not fitting, without proof."""


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
        return np.asarray(np.all(used <= self.left + TOLERANCE, axis=1), dtype=np.bool_)


def undominated(options: Floats) -> list[int]:
    """Rows that no other row undercuts in every column; of equal rows the first."""
    order = np.lexsort((np.arange(len(options)), options.sum(axis=1)))
    found: list[int] = []
    while len(order):  # what undercuts a row comes before it
        found.append(int(order[0]))
        order = order[(options[order] < options[order[0]]).any(axis=1)]
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
    relaxed = _relaxed(shares, wide)
    found = _rounded_whole(shares, wide, relaxed)
    return _decided(shares, wide, relaxed, found) if found.bound <= 1 < found.fill else found


def _rounded_whole(shares: Sequence[Floats], joints: Sequence[Joint], relaxed: _Relaxed) -> Chosen:
    """Whole options near those of the linear programme, joints as it has them or all their members one by one."""
    bound, weights, prices = relaxed.value, relaxed.items, relaxed.prices
    taken = tuple(int(w.argmax()) if w.sum() > 1 / 2 else None for w in relaxed.joints)
    rows = [None if k is None else j.options[k] for j, k in zip(joints, taken, strict=True)]
    places, fill = _rounded(shares, weights, rows, joints)
    check_bound("the linear programme of engines", bound, fill, WHOLE_ERROR)
    if any(k is not None for k in taken) and all(len(s) for s in shares):
        apart, alone = _rounded(shares, weights, [None] * len(joints), joints)
        if alone < fill:
            return Chosen(min(bound, alone), alone, apart, (None,) * len(joints), prices)
    return Chosen(min(bound, fill), fill, places, taken, prices)


def shares_of(options: Floats, budget: Floats) -> Floats:
    """Parts of the budget; what is needed where there is nothing fills it far too often."""
    return np.divide(options, budget, out=np.where(options > 0, NEVER, 0.0), where=budget > 0)


@dataclass(frozen=True, slots=True)
class _Relaxed:
    """The linear programme: its value, how much of every option it takes, of items and of joints, and weights of resources."""

    value: float
    items: list[Floats]
    joints: list[Floats]
    prices: tuple[float, ...]
    table: Floats
    """Shares of all options, row by row, joints behind items."""
    one_each: csr_array
    """Which options stand for which item."""
    reduced: Floats | None
    """By how much the value rises at the least with a whole option; None where nothing is known."""


def _relaxed(shares: Sequence[Floats], joints: Sequence[Joint]) -> _Relaxed:
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
        return _Relaxed(inf, [np.eye(max(1, len(s)))[0][:len(s)] for s in shares], [np.zeros(n) for n in sizes], (), table,
                        one_each, None)
    parts = np.split(np.asarray(answer.x[:-1], dtype=np.float64), np.cumsum([*counts, *sizes])[:-1])
    prices = np.maximum(0.0, -np.asarray(answer.ineqlin.marginals, dtype=np.float64))
    reduced = table @ prices - (one_each.T @ np.asarray(answer.eqlin.marginals, dtype=np.float64))[:-1]
    return _Relaxed(float(answer.fun), parts[:len(counts)], parts[len(counts):],
                    tuple((prices / prices.sum()).tolist()) if prices.sum() > 0 else (), table, one_each, reduced)


def _decided(shares: Sequence[Floats], joints: Sequence[Joint], relaxed: _Relaxed, rounded: Chosen) -> Chosen:
    """Whole options that fit, found by branch and bound; what was rounded where there are none, with a bound that says so."""
    if relaxed.reduced is None:
        return rounded
    able = np.flatnonzero(relaxed.value + relaxed.reduced <= 1 + WHOLE_ERROR)
    each = relaxed.one_each[:, able]
    answer = milp(np.zeros(len(able)), integrality=np.ones(len(able), dtype=np.int64), bounds=Bounds(0, 1),
                  constraints=[LinearConstraint(relaxed.table[able].T, -np.inf, 1.0), LinearConstraint(each, 1.0, 1.0)],
                  options={"node_limit": MOST_NODES})
    if answer.x is None:
        return replace(rounded, bound=max(rounded.bound, 1 + TOLERANCE)) if answer.status == PROVEN else rounded
    whole = np.zeros(len(relaxed.table), dtype=np.bool_)
    whole[able[np.asarray(answer.x) > 1 / 2]] = True
    parts = np.split(whole, np.cumsum([*map(len, shares), *(len(j.options) for j in joints)])[:-1])
    fill = float(relaxed.table[whole].sum(axis=0).max())
    if fill > 1:
        return rounded
    places = tuple(int(p.argmax()) if len(p) else -1 for p in parts[:len(shares)])
    together = tuple(int(p.argmax()) if p.any() else None for p in parts[len(shares):])
    return Chosen(min(rounded.bound, fill), fill, places, together, rounded.weights)


def _rounded(shares: Sequence[Floats], weights: Sequence[Floats], taken: Sequence[Floats | None],
             joints: Sequence[Joint]) -> tuple[tuple[int, ...], float]:
    """Items that the linear programme divides are decided together, by trying; the others, and what is `taken`, as it says."""
    covered = {i for j, row in zip(joints, taken, strict=True) if row is not None for i in j.members}
    if any(len(s) == 0 and i not in covered for i, s in enumerate(shares)):
        return (), inf
    places = [int(w.argmax()) if len(w) else -1 for w in weights]
    divided = [i for i, w in enumerate(weights) if i not in covered and w.max() < 1 - WHOLE_ERROR]
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
