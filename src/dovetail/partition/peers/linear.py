"""Integer linear programming (Stahl et al. 2019, 2021) and its relaxation with rounding (CoEdge, Zeng et al. 2021), by HiGHS.

One unknown says that a layer is run in a way, one that a pair of neighbours is. Budgets and limits on latency and energy are
rows.
The cited works minimise communication or energy alone; here both minimise the plan's goal, computation included.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.partition.linear_programs import Selection, selected
from dovetail.partition.peers.pairwise import Pairwise, pairwise
from dovetail.partition.plan import Assignment
from dovetail.partition.problem import Problem
from dovetail.partition.tolerances import TOLERANCE


def ilp(problem: Problem) -> Assignment | None:
    """The best choice of ways in whole numbers; None where there is none."""
    model = pairwise(problem)
    found = None if model is None else selected(_program(model), whole=True)
    return None if model is None or found is None else model.assignment([int(w.argmax()) for w in _apart(model, found)])


def lp(problem: Problem) -> Assignment | None:
    """The same in fractions, each layer then rounded to its largest that the budgets left have room for."""
    model = pairwise(problem)
    found = None if model is None else selected(_program(model), whole=False)
    if model is None or found is None:
        return None
    left, chosen = np.ones(len(problem.budgets)), list[int]()
    for part, used in zip(_apart(model, found), model.used, strict=True):
        room = (used <= left + TOLERANCE).all(axis=1)
        if not room.any():
            return None
        chosen.append(int(np.where(room, part, -1.0).argmax()))
        left = left - used[chosen[-1]] if problem.shared_budget else left
    return model.assignment(chosen)


def _apart(model: Pairwise, found: Floats) -> list[Floats]:
    """The unknowns of each node."""
    ends = list(accumulate(len(w) for w in model.ways))
    return np.split(found[:ends[-1]], ends[:-1])


def _program(model: Pairwise) -> Selection:
    """Ways first, then pairs; of every node one way, of every pair as much as of both its ends."""
    problem, counts = model.problem, [len(w) for w in model.ways]
    start = [0, *accumulate(counts)]
    own, between = model.wanted()
    entries = [(k, start[k] + i, 1.0) for k, count in enumerate(counts) for i in range(count)]
    row, at = len(counts), start[-1]
    for pair in model.pairs:
        rows, columns = counts[pair.producer], counts[pair.consumer]
        cells = at + np.arange(rows * columns).reshape(rows, columns)
        for ends, first, count in ((cells, start[pair.producer], rows), (cells.T, start[pair.consumer], columns)):
            for i in range(count):
                entries += [(row, int(c), 1.0) for c in ends[i]] + [(row, first + i, -1.0)]
                row += 1
        at += rows * columns
    shared = range(len(problem.budgets)) if problem.shared_budget else ()
    within = [np.r_[np.concatenate([used[:, r] for used in model.used]), np.zeros(at - start[-1])] for r in shared]
    limits = [(problem.max_latency_s, model.seconds, [p.seconds for p in model.pairs]),
              (problem.max_energy_j, model.joules, [p.joules for p in model.pairs])]
    within += [np.concatenate([*a, *[m.ravel() for m in b]]) / limit for limit, a, b in limits if limit is not None]
    return Selection(np.concatenate([*own, *[m.ravel() for m in between]]), start[-1], tuple(entries),
                     np.r_[np.ones(len(counts)), np.zeros(row - len(counts))], np.array(within).reshape(len(within), at))
