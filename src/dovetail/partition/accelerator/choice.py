"""One option for each item, so that the fullest resource is as empty as possible: a linear bound and a whole solution.

The linear programme min t, sum of resources <= t * budget, one unit of options per item, is the bound. Where fractions of
options fit, whether whole ones do is decided by branch and bound over the options whose reduced costs leave them a chance
(`_decided`), so that more options never turn a choice that fits into one that does not.

Its dual solution weighs the resources: with weights that add up to one, the weighted shares of the cheapest option of every item
add up to no more than t. Weights found for one choice bound others at once (`Room`), so few linear programmes are solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array, hstack

from dovetail.cost import Floats
from dovetail.hardware.shares import Ints
from dovetail.partition.proof import check_bound
from dovetail.partition.tolerances import TOLERANCE, WHOLE_ERROR

NEVER = 1e9
"""The share of a resource that there is nothing of."""
PROVEN = 2
"""What `milp` answers where there is no solution. Source: the `status` of `scipy.optimize.milp`."""
NEAR_COST = 0.02
"""By which part of all costs an option may raise them at the least to be looked at. Chosen, not measured."""
COST_GAP = 1e-3
"""Within which costs are least. Chosen: a fifth of how near to the best accelerators are sought."""
FEW_NODES = 200
"""Of branch and bound for least costs: what is found by then is good enough. Chosen, not measured."""
MOST_NODES = 2000
"""Of branch and bound; what is not decided by then counts as not fitting, without proof."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """How full the fullest resource is at least (`bound`) and with the options of `places`; inf where none are known to fit."""

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
class Clash:
    """By item, options that may not be chosen all together: one of each item's."""

    options: tuple[tuple[int, tuple[int, ...]], ...]


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


def least_fill(items: Sequence[Floats], budget: Floats, joints: Sequence[Joint] = (), clashes: Sequence[Clash] = ()) -> Chosen:
    """Choose a row (resources, in the units of `budget`) of every item, or of a joint instead of all its members."""
    joined = {i for j in joints for i in j.members}
    if any(len(options) == 0 and i not in joined for i, options in enumerate(items)):
        return Chosen(inf, inf)
    if not items:
        return Chosen(0.0, 0.0)
    shares = [shares_of(options, budget) for options in items]
    wide = [Joint(j.members, shares_of(j.options, budget)) for j in joints]
    least = np.array([s.min(axis=0, initial=inf) for s in shares])
    quick = float(least_sum(least, [(j.members, j.options.min(axis=0)) for j in wide]).max())
    if quick > 1:
        return Chosen(quick, inf)
    relaxed = _relaxed(shares, wide)
    return Chosen(inf, inf) if relaxed is None else _decided(shares, wide, relaxed, clashes)


def least_cost(items: Sequence[Floats], costs: Sequence[Floats], budget: Floats, joints: Sequence[Joint],
               joint_costs: Sequence[Floats]) -> Chosen:
    """The same so that costs of the rows, in any unit, add up to as little as is found where all fits; the bound is 0."""
    shares = [shares_of(options, budget) for options in items]
    table = np.concatenate([*shares, *(shares_of(j.options, budget) for j in joints)])
    each, every = _one_of_each(list(map(len, shares)), joints), np.concatenate([*costs, *joint_costs])
    scale = float(np.abs(every).max(initial=0.0)) or 1.0
    relaxed = linprog(every / scale, table.T, np.ones(table.shape[1]), each,
                      np.ones(each.shape[0]), (0, 1))  # type: ignore[call-overload]  # its stubs know no sparse matrix
    if relaxed.x is None:
        return Chosen(inf, inf)
    reduced = every / scale - table @ relaxed.ineqlin.marginals - each.T @ relaxed.eqlin.marginals
    near = np.flatnonzero(reduced <= NEAR_COST * max(relaxed.fun, 0.0) + WHOLE_ERROR)
    answer = milp(every[near] / scale, integrality=np.ones(len(near), dtype=np.int64), bounds=Bounds(0, 1),
                  constraints=[LinearConstraint(table[near].T, -np.inf, 1.0), LinearConstraint(each[:, near], 1.0, 1.0)],
                  options={"node_limit": FEW_NODES, "mip_rel_gap": COST_GAP})
    if answer.x is None:
        return Chosen(0.0, inf)
    whole = np.zeros(len(table), dtype=np.bool_)
    whole[near[np.asarray(answer.x) > 1 / 2]] = True
    return _read(whole, table, list(map(len, shares)), [len(j.options) for j in joints], 0.0, ())


def _read(whole: NDArray[np.bool_], table: Floats, counts: Sequence[int], joined: Sequence[int], bound: float,
          weights: tuple[float, ...]) -> Chosen:
    """The choice that marks of options say."""
    parts = np.split(whole, np.cumsum([*counts, *joined])[:-1])
    fill = float(table[whole].sum(axis=0).max(initial=0.0))
    if fill > 1:
        return Chosen(bound, inf, weights=weights)
    check_bound("the linear programme of engines", bound, fill, WHOLE_ERROR)
    places = tuple(int(p.argmax()) if len(p) else -1 for p in parts[:len(counts)])
    together = tuple(int(p.argmax()) if p.any() else None for p in parts[len(counts):])
    return Chosen(min(bound, fill), fill, places, together, weights)


def least_sum(alone: Floats, joints: Sequence[tuple[tuple[int, ...], Floats]]) -> Floats:
    """Column by column the least sum of a row for every item, where a joint's row may stand for all of its members' (rising).

    Joints may share members, of which each then counts once: one ends with the item that the next begins with.
    """
    groups: list[tuple[set[int], list[tuple[tuple[int, ...], Floats]]]] = []
    for members, row in joints:
        touched = [g for g in groups if g[0] & set(members)]
        groups = [g for g in groups if g not in touched]
        groups.append((set(members).union(*(g[0] for g in touched)), [*(j for g in touched for j in g[1]), (members, row)]))
    total = np.delete(alone, sorted(set().union(*(g[0] for g in groups))), axis=0).sum(axis=0)
    for together, own in groups:
        nodes, sums = sorted(together), [np.zeros(alone.shape[1])]
        for count, node in enumerate(nodes, 1):
            ways = [sums[-1] + alone[node]]
            for members, row in own:
                if members[-1] == node:  # where others lie between them, those are left out, which bounds less
                    run = tuple(nodes[count - len(members):count]) == members
                    ways.append(row + (sums[count - len(members)] if run else 0.0))
            sums.append(np.minimum.reduce(ways))
        total = total + sums[-1]
    return np.asarray(total)


def prices_of(items: Sequence[Floats], joints: Sequence[Joint]) -> Floats:
    """Prices of resources, one in all, with which the cheapest options of all items together cost most."""
    count = items[0].shape[1]
    if any(len(options) == 0 and not any(i in j.members for j in joints) for i, options in enumerate(items)):
        return np.full(count, 1.0 / count)
    relaxed = _relaxed(items, joints)
    return np.full(count, 1.0 / count) if relaxed is None or not relaxed.prices else np.array(relaxed.prices)


def shares_of(options: Floats, budget: Floats) -> Floats:
    """Parts of the budget; what is needed where there is nothing fills it far too often."""
    return np.divide(options, budget, out=np.where(options > 0, NEVER, 0.0), where=budget > 0)


@dataclass(frozen=True, slots=True)
class _Relaxed:
    """The linear programme: its value, and weights of resources that prove it."""

    value: float
    prices: tuple[float, ...]
    table: Floats
    """Shares of all options, row by row, joints behind items."""
    one_each: csr_array
    """Which options stand for which item."""
    reduced: Floats
    """By how much the value rises at the least with a whole option."""


def _one_of_each(counts: Sequence[int], joints: Sequence[Joint]) -> csr_array:
    """Which options, those of items first and then those of joints, stand for which item."""
    rows, columns = [np.repeat(np.arange(len(counts)), counts)], [np.arange(sum(counts))]
    at = sum(counts)
    for joint in joints:
        size = len(joint.options)
        for member in joint.members:
            rows.append(np.full(size, member))
            columns.append(np.arange(at, at + size))
        at += size
    row, column = np.concatenate(rows), np.concatenate(columns)
    return csr_array((np.ones(len(row)), (row, column)), shape=(len(counts), at))


def _relaxed(shares: Sequence[Floats], joints: Sequence[Joint]) -> _Relaxed | None:
    """The linear programme; None where it has no solution."""
    counts = [len(s) for s in shares]
    table = np.concatenate([*shares, *(j.options for j in joints)])
    total, resources = table.shape
    one_each = csr_array(hstack([_one_of_each(counts, joints), csr_array((len(counts), 1))]))
    limits = np.hstack([table.T, -np.ones((resources, 1))])
    answer = linprog(np.append(np.zeros(total), 1.0), limits, np.zeros(resources),
                     one_each, np.ones(len(counts)), (0, None))  # type: ignore[call-overload]  # its stubs know no sparse matrix
    if answer.x is None:
        return None
    prices = np.maximum(0.0, -np.asarray(answer.ineqlin.marginals, dtype=np.float64))
    reduced = table @ prices - (one_each.T @ np.asarray(answer.eqlin.marginals, dtype=np.float64))[:-1]
    weights = tuple((prices / prices.sum()).tolist()) if prices.sum() > 0 else ()
    return _Relaxed(float(answer.fun), weights, table, one_each, reduced)


def _decided(shares: Sequence[Floats], joints: Sequence[Joint], relaxed: _Relaxed, clashes: Sequence[Clash]) -> Chosen:
    """Whole options that fit, found by branch and bound; none where they overfill, with a bound that says so."""
    none = Chosen(relaxed.value, inf, weights=relaxed.prices)
    if relaxed.value > 1:
        return none
    able = np.flatnonzero(relaxed.value + relaxed.reduced <= 1 + WHOLE_ERROR)
    each = relaxed.one_each[:, able]
    answer = milp(np.zeros(len(able)), integrality=np.ones(len(able), dtype=np.int64), bounds=Bounds(0, 1),
                  constraints=[LinearConstraint(relaxed.table[able].T, -np.inf, 1.0), LinearConstraint(each, 1.0, 1.0),
                               *_apart(clashes, list(map(len, shares)), len(relaxed.table), able)],
                  options={"node_limit": MOST_NODES})
    if answer.x is None:
        return replace(none, bound=max(none.bound, 1 + TOLERANCE)) if answer.status == PROVEN else none
    whole = np.zeros(len(relaxed.table), dtype=np.bool_)
    whole[able[np.asarray(answer.x) > 1 / 2]] = True
    return _read(whole, relaxed.table, list(map(len, shares)), [len(j.options) for j in joints], relaxed.value, relaxed.prices)


def _apart(clashes: Sequence[Clash], counts: Sequence[int], every: int, able: Ints) -> list[LinearConstraint]:
    """That not one option of each item of a clash is chosen, among those that are able."""
    if not clashes:
        return []
    starts, table = np.concatenate([[0], np.cumsum(counts)]), np.zeros((len(clashes), every))
    for row, clash in zip(table, clashes, strict=True):
        for item, options in clash.options:
            row[starts[item] + np.array(options, dtype=np.int64)] = 1.0
    return [LinearConstraint(csr_array(table[:, able]), -np.inf, np.array([len(c.options) - 1.0 for c in clashes]))]
