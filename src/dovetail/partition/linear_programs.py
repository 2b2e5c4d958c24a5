"""Linear and mixed-integer programs, all solved by HiGHS through SciPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp
from scipy.sparse import csr_array

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.effort import hurry, should_take, spend
from dovetail.partition.tolerances import ROUNDING

DEAREST = 1e5
"""Prices stop growing at this multiple of what they are compared with. Chosen, not measured."""


MOST_PIVOTS = 200
"""Pivots after which a program counts as cycling. Chosen, not measured."""


class Corner:
    """Where a search for the largest minimum ended: the constraints it met exactly, and their multipliers; none at first."""

    __slots__ = ("basis", "weights")

    def __init__(self) -> None:
        self.basis: Ints | None = None
        self.weights: Floats | None = None


def largest_minimum(values: Floats, slopes: Floats, cap: float, corner: Corner | None = None) -> tuple[float, Floats]:
    """The largest value over 0 <= x <= cap that the least of `values` + `slopes` @ x takes, and where.

    A search over the same planes and more, in this order, goes on from the `corner` where the last one ended.
    """
    scale = float(np.abs(values).max()) or 1.0
    found = _pivoted(values / scale, slopes, cap / scale, corner)
    return (found[0] * scale, found[1] * scale) if found is not None else _by_highs(values, slopes, cap, scale)


def _pivoted(values: Floats, slopes: Floats, cap: float, corner: Corner | None = None) -> tuple[float, Floats] | None:
    """The same by the dual simplex method, faster than any solver starts where x has two or three entries; None if it tires.

    A basis is as many constraints met exactly as there are unknowns (the value and x), with multipliers >= 0 that add up to
    the goal; the constraint missed most enters, and the one whose multiplier vanishes first leaves. Bounds come before planes,
    so that constraints keep their numbers when there are more planes.
    """
    count = slopes.shape[1]
    matrix = np.zeros((2 * count + len(values), 1 + count))
    matrix[:count, 1:], matrix[count:2 * count, 1:] = np.eye(count), -np.eye(count)
    matrix[2 * count:, 0], matrix[2 * count:, 1:] = 1.0, -slopes
    limits = np.concatenate([[cap] * count + [0.0] * count, values])
    if corner is not None and corner.basis is not None and corner.weights is not None:
        basis, weights, corner.basis = corner.basis, corner.weights, None
    else:
        basis = np.array([2 * count, *(j + (0 if slopes[0, j] > 0 else count) for j in range(count))])
        weights = np.array([1.0, *np.abs(slopes[0])])
    for _ in range(MOST_PIVOTS):
        try:
            inverse = np.linalg.inv(matrix[basis])
        except np.linalg.LinAlgError:
            return None
        point = inverse @ limits[basis]
        spend("pivots", 1, matrix.size)
        missed = matrix @ point - limits
        enters = int(missed.argmax())
        if missed[enters] <= ROUNDING * (1 + abs(float(point[0]))):
            if corner is not None:
                corner.basis, corner.weights = basis, weights
            return float(point[0]), np.maximum(point[1:], 0.0)
        part = matrix[enters] @ inverse
        ratios = np.where(part > ROUNDING, weights / np.where(part > ROUNDING, part, 1.0), np.inf)
        leaves = int(ratios.argmin())
        if not np.isfinite(ratios[leaves]):
            return None
        weights = np.maximum(weights - ratios[leaves] * part, 0.0)
        weights[leaves], basis[leaves] = ratios[leaves], enters
    return None


def _by_highs(values: Floats, slopes: Floats, cap: float, scale: float) -> tuple[float, Floats]:
    count = slopes.shape[1]
    matrix = np.concatenate([np.ones((len(values), 1)), -slopes], axis=1)
    found = linprog(np.array([-1.0] + [0.0] * count), A_ub=matrix, b_ub=values / scale,
                    bounds=[(None, None)] + [(0.0, cap / scale)] * count, method="highs")
    spend("programs", 1, matrix.size)
    assert found.x is not None, f"price search: {found.message}"
    return float(found.x[0]) * scale, np.maximum(np.asarray(found.x[1:]), 0.0) * scale


def largest_mixture(mixed: Floats, slopes: Floats) -> tuple[float, Floats, Floats]:
    """The largest value that the least of `mixed` @ w + `slopes` @ x takes over w >= 0 that sum to one and x >= 0, and where."""
    names, count = mixed.shape[1], slopes.shape[1]
    scale = float(mixed.max()) or 1.0
    matrix = np.concatenate([np.ones((len(mixed), 1)), -mixed / scale, -slopes], axis=1)
    found = linprog(np.r_[-1.0, np.zeros(names + count)], A_ub=matrix, b_ub=np.zeros(len(mixed)),
                    A_eq=np.r_[0.0, np.ones(names), np.zeros(count)][None], b_eq=np.ones(1),
                    bounds=[(None, None)] + [(0.0, 1.0)] * names + [(0.0, DEAREST)] * count, method="highs")
    spend("programs", 1, matrix.size)
    assert found.x is not None, f"weights of busy times: {found.message}"
    weights = np.maximum(np.asarray(found.x[1:1 + names]), 0.0)
    return float(found.x[0]) * scale, weights / weights.sum(), np.maximum(np.asarray(found.x[1 + names:]), 0.0) * scale


@dataclass(frozen=True, slots=True)
class CheapestWalk:
    """The answer to `cheapest_walk`: the arcs taken (None: no answer), a bound on every walk, and whether it is final."""

    arcs: Ints | None
    bound: float | None
    final: bool
    impossible: bool = False


MOST_BRANCHES = 1_000_000
"""More than any program in whole numbers makes, for those without a limit. Chosen, not measured."""
CLOCK_STRUCK = 1
"""How SciPy calls a program that the clock has ended. Source: `scipy.optimize.OptimizeResult.status`."""
PATIENCE = 10.0
"""Times as long as it should take that a program in whole numbers may. Chosen, not measured."""


def cheapest_walk(source: Ints, target: Ints, nodes: int, costs: Floats, used: Floats, tolerance: float, seconds: float,
                  level: int = 0, slowdown: float = 1.0, least: float = 0.0) -> CheapestWalk:
    """The cheapest way from node 0 to the last node along arcs, with the sum of each column of `used` at most one.

    The sums of the first `level` columns are kept low instead: what counts is the largest of them and of the cost, which is known
    to be no less than `least`. It may branch as often as is worth so many seconds of work, and is not begun where its relaxation
    alone takes longer. The clock, by which a second of computing takes `slowdown` seconds, ends it only where it takes many times
    as long.
    """
    count, more = len(costs), 1 if level else 0  # the last unknown is the largest of the sums
    branches = int(min(MOST_BRANCHES, (seconds - should_take("walks", 1, count)) / should_take("branches", 1, count)))
    if branches < 1:
        return CheapestWalk(None, None, False)
    index, one = np.arange(count), np.ones(count)
    flow = csr_array((np.r_[one, -one], (np.r_[source, target], np.r_[index, index])), shape=(nodes, count + more))
    balance = np.zeros(nodes)
    balance[0], balance[-1] = 1.0, -1.0
    sums, most = used.T, np.ones(used.shape[1])
    if level:
        sums, most = np.concatenate([costs[None], sums]), np.r_[np.zeros(level + 1), most[level:]]
        sums = np.concatenate([sums, np.r_[-np.ones(level + 1), np.zeros(len(sums) - level - 1)][:, None]], axis=1)
    found = milp(np.r_[np.zeros(count), 1.0] if level else costs,
                 constraints=[LinearConstraint(flow, balance, balance), LinearConstraint(sums, -np.inf, most)],
                 integrality=np.r_[np.ones(count, dtype=np.int64), np.zeros(more, dtype=np.int64)],
                 bounds=Bounds(np.r_[np.zeros(count), np.full(more, least)], np.r_[one, np.full(more, np.inf)]),
                 options={"mip_rel_gap": tolerance, "node_limit": branches,
                          "time_limit": PATIENCE * max(1.0, seconds) * slowdown})
    made = found.mip_node_count or 0
    spend("walks", 1, count)
    spend("branches", made, made * count)
    if found.status == CLOCK_STRUCK:
        hurry()
    return CheapestWalk(None if found.x is None else np.flatnonzero(found.x[:count] > 0.5),
                None if found.mip_dual_bound is None else float(found.mip_dual_bound), found.status == 0, found.status == 2)


@dataclass(frozen=True, slots=True)
class Selection:
    """Choices at least cost: the first `whole` unknowns are 0 or 1, all lie between.

    `entries` (row, unknown, coefficient) times the unknowns equal `equal`; every row of `within` times them is at most one.
    """

    costs: Floats
    whole: int
    entries: tuple[tuple[int, int, float], ...]
    equal: Floats
    within: Floats


SELECTION_BRANCHES = 2_000
"""Branches after which a selection in whole numbers is taken as it is: counted, so that plans are the same everywhere. Chosen."""


def selected(asked: Selection, whole: bool) -> Floats | None:
    """The best unknowns, in whole numbers or as fractions; None where nothing fits."""
    count = len(asked.costs)
    rows, columns, values = zip(*asked.entries, strict=True)
    matrix = csr_array((values, (rows, columns)), shape=(len(asked.equal), count))
    scale = float(np.abs(asked.costs).max()) or 1.0
    found = milp(asked.costs / scale, integrality=np.where(np.arange(count) < (asked.whole if whole else 0), 1, 0),
                 constraints=[LinearConstraint(matrix, asked.equal, asked.equal),
                              *([LinearConstraint(asked.within, -np.inf, 1.0)] if len(asked.within) else [])],
                 bounds=Bounds(0.0, 1.0), options={"mip_rel_gap": ROUNDING, "node_limit": SELECTION_BRANCHES})
    spend("programs", 1, count + len(asked.entries))
    return None if found.x is None else np.asarray(found.x, dtype=np.float64)
