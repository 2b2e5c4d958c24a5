"""A linear programme with one option of every group and many options: solved over those that matter, column after column.

The duals of a small programme price all options at once; what would lower its value joins it, until nothing would. Whatever the
duals are, the value less what the best option of each group would lower it by is below that of the whole programme.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from dovetail.cost import Floats
from dovetail.partition.tolerances import PROGRAM_ERROR

Places = NDArray[np.int64]

OVERFULL = 1e4
"""What a share of the budget beyond it counts, in clocks of a frame as parts of the most:

no programme is without a solution. Chosen: far above any frame's clocks, far below what doubles lose.
"""
JOINING = 3
"""Options of a group that join at once. Chosen, not measured."""
MOST_ROUNDS = 200
"""Of columns that join; the bound holds whenever it ends. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class Programme:
    """Least z, for x >= 0 that take one option of every row of `one_each`, shares x <= 1 and frames x + constants <= z."""

    groups: tuple[slice, ...]
    """Options, of which at most one is taken."""
    one_each: Floats
    shares: Floats
    frames: Floats
    constants: Floats


def solved(programme: Programme, taken: Places, enough: Callable[[float], bool]) -> tuple[float, Places]:
    """A lower bound that is the least z unless `enough` was satisfied with less, and the options that matter for it.

    `taken` are options to begin with.
    """
    best, everything = 0.0, np.vstack([programme.shares, programme.frames])
    limits = np.concatenate([np.ones(len(programme.shares)), -programme.constants])
    beyond = np.concatenate([-np.ones(len(programme.shares)), np.zeros(len(programme.frames))])
    under = np.concatenate([np.zeros(len(programme.shares)), -np.ones(len(programme.frames))])
    taken = np.unique(np.concatenate([taken, _first(programme)]))
    for _ in range(MOST_ROUNDS):
        answer = linprog(np.concatenate([np.zeros(len(taken)), [OVERFULL, 1.0]]),
                         np.column_stack([everything[:, taken], beyond, under]), limits,
                         csr_array(np.hstack([programme.one_each[:, taken], np.zeros((len(programme.one_each), 2))])),
                         np.ones(len(programme.one_each)), (0, None))  # type: ignore[call-overload]  # no sparse matrix
        if answer.x is None:
            return best, taken
        prices, each = np.minimum(0.0, answer.ineqlin.marginals), np.asarray(answer.eqlin.marginals)
        prices = prices / max(1.0, float(prices @ under), float(prices @ beyond) / OVERFULL)  # what z and excess cost at the most
        reduced = -(prices @ everything) - each @ programme.one_each
        lower = sum(min(0.0, float(reduced[g].min(initial=0.0))) for g in programme.groups)
        best = max(best, float(prices @ limits + each.sum() + lower))
        joining = [_least(reduced, g) for g in programme.groups]
        more = np.setdiff1d(np.concatenate([*joining, np.zeros(0, dtype=np.int64)]), taken)
        if enough(best) or best >= answer.fun * (1 - PROGRAM_ERROR) or not len(more):
            break
        taken = np.concatenate([taken, more])
    return best, taken[answer.x[:len(taken)] > 0] if len(answer.x) == len(taken) + 2 else taken


def _least(reduced: Floats, group: slice) -> Places:
    """Options of a group that lower the value most."""
    own = reduced[group]
    places = np.argpartition(own, JOINING)[:JOINING] if len(own) > JOINING else np.arange(len(own))
    return np.asarray(places[own[places] < 0] + group.start, dtype=np.int64)


def _first(programme: Programme) -> Places:
    """Of every group the option that fills least, and the one whose frames are shortest."""
    full, long = programme.shares.max(axis=0, initial=0.0), programme.frames.max(axis=0, initial=0.0)
    return np.array([g.start + int(of[g].argmin()) for g in programme.groups for of in (full, long) if g.stop > g.start],
                    dtype=np.int64)
