"""Linear and mixed-integer programs, all solved by HiGHS through SciPy.

SciPy's optimisers take longer to import than most plans to make, so they are imported when the first program is solved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.cost.estimate import Floats, Ints

DEAREST = 1e4
"""Prices stop growing at this multiple of what they are compared with."""


def largest_minimum(values: Floats, slopes: Floats, cap: float) -> tuple[float, Floats]:
    """The largest value over 0 <= x <= cap that the least of `values` + `slopes` @ x takes, and where."""
    from scipy.optimize import linprog

    scale = float(np.abs(values).max()) or 1.0
    count = slopes.shape[1]
    matrix = np.concatenate([np.ones((len(values), 1)), -slopes], axis=1)
    found = linprog(np.array([-1.0] + [0.0] * count), A_ub=matrix, b_ub=values / scale,
                    bounds=[(None, None)] + [(0.0, cap / scale)] * count, method="highs")
    assert found.x is not None, f"price search: {found.message}"
    return float(found.x[0]) * scale, np.maximum(np.asarray(found.x[1:]), 0.0) * scale


def largest_mixture(mixed: Floats, slopes: Floats) -> tuple[float, Floats, Floats]:
    """The largest value that the least of `mixed` @ w + `slopes` @ x takes over w >= 0 that sum to one and x >= 0, and where."""
    from scipy.optimize import linprog

    names, count = mixed.shape[1], slopes.shape[1]
    scale = float(mixed.max()) or 1.0
    matrix = np.concatenate([np.ones((len(mixed), 1)), -mixed / scale, -slopes], axis=1)
    found = linprog(np.r_[-1.0, np.zeros(names + count)], A_ub=matrix, b_ub=np.zeros(len(mixed)),
                    A_eq=np.r_[0.0, np.ones(names), np.zeros(count)][None], b_eq=np.ones(1),
                    bounds=[(None, None)] + [(0.0, 1.0)] * names + [(0.0, DEAREST)] * count, method="highs")
    assert found.x is not None, f"weights of busy times: {found.message}"
    weights = np.maximum(np.asarray(found.x[1:1 + names]), 0.0)
    return float(found.x[0]) * scale, weights / weights.sum(), np.maximum(np.asarray(found.x[1 + names:]), 0.0) * scale


@dataclass(frozen=True, slots=True)
class Walk:
    """The answer to `cheapest_walk`: the arcs taken (None: no answer), a bound on every walk, and whether it is final."""

    arcs: Ints | None
    bound: float | None
    final: bool
    impossible: bool = False


def cheapest_walk(source: Ints, target: Ints, nodes: int, costs: Floats, used: Floats, tolerance: float, seconds: float) -> Walk:
    """The cheapest way from node 0 to the last node along arcs, with the sum of each column of `used` at most one."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    count = len(costs)
    index, one = np.arange(count), np.ones(count)
    flow = csr_array((np.r_[one, -one], (np.r_[source, target], np.r_[index, index])), shape=(nodes, count))
    balance = np.zeros(nodes)
    balance[0], balance[-1] = 1.0, -1.0
    found = milp(costs, constraints=[LinearConstraint(flow, balance, balance), LinearConstraint(used.T, -np.inf, 1.0)],
                 integrality=np.ones(count, dtype=np.int64), bounds=Bounds(0, 1),
                 options={"mip_rel_gap": tolerance, "time_limit": max(0.05, seconds)})
    return Walk(None if found.x is None else np.flatnonzero(found.x > 0.5),
                None if found.mip_dual_bound is None else float(found.mip_dual_bound), found.status == 0, found.status == 2)
