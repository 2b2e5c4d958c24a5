"""Linear programmes solved column after column: the value of the whole one, and never more."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from dovetail.partition.accelerator.frame_bound import Programme, solved

pytestmark = pytest.mark.quick

NONE = np.zeros(0, dtype=np.int64)


def programme_of(seed: int) -> Programme:
    """Groups of engines, faster ones larger, with one engine that stands for the first two groups' nodes."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 40, 7)
    of, each = np.repeat(np.arange(7), sizes), np.eye(6, 7)
    each[:2, 6] = 1.0
    speed = rng.uniform(1, 20, len(of))
    shares = rng.uniform(0.2, 1.0, (3, len(of))) * speed / 40
    clocks = rng.uniform(0.5, 1.0, (4, len(of))) / speed
    return Programme(of, each, shares, clocks, rng.uniform(0, 0.1, 4))


def least(programme: Programme, keep: NDArray[np.bool_]) -> float:
    """The whole programme's value by the solver alone."""
    shares, frames, each = (rows[:, keep] for rows in (programme.shares, programme.frames, programme.each[:, programme.of]))
    upper = np.vstack([np.hstack([shares, np.zeros((3, 1))]), np.hstack([frames, -np.ones((4, 1))])])
    answer = linprog(np.append(np.zeros(shares.shape[1]), 1.0), upper, np.append(np.ones(3), -programme.constants),
                     np.hstack([each, np.zeros((6, 1))]), np.ones(6), (0, None))
    return float(answer.fun)


@pytest.mark.parametrize("seed", range(8))
def test_columns_reach_the_value_of_the_whole_programme_from_below(seed: int) -> None:
    programme = programme_of(seed)
    keep = np.random.default_rng(seed).random(len(programme.of)) < 0.8
    whole = least(programme, keep)
    found = solved(programme, keep, NONE, inf)
    assert np.max(programme.shares[:, found.taken] @ found.parts) <= 1 + 1e-9
    assert keep[found.taken].all()
    assert found.value <= whole * (1 + 1e-9)
    assert found.value == pytest.approx(whole, rel=1e-5)
    assert solved(programme, keep, found.taken, inf).value == pytest.approx(whole, rel=1e-5)


def test_a_bound_that_is_enough_ends_the_search_below_the_value() -> None:
    programme = programme_of(3)
    keep = np.ones(len(programme.of), dtype=np.bool_)
    assert 0 < solved(programme, keep, NONE, 1e-9).value <= least(programme, keep) * (1 + 1e-9)


def test_engines_that_fit_nowhere_are_beyond_every_frame() -> None:
    programme = programme_of(1)
    keep = np.ones(len(programme.of), dtype=np.bool_)
    full = replace(programme, shares=programme.shares + 1)
    assert solved(full, keep, NONE, inf).value > 1000


@pytest.mark.parametrize("seed", range(4))
def test_whole_options_raise_the_value_by_what_is_said_at_the_least(seed: int) -> None:
    programme = programme_of(seed)
    keep = np.ones(len(programme.of), dtype=np.bool_)
    found = solved(programme, keep, NONE, inf)
    for option in np.flatnonzero(programme.of < 6)[::7]:
        alone = keep & ((programme.of != programme.of[option]) | (np.arange(len(keep)) == option))
        alone &= (programme.of != 6) | (programme.of[option] > 1)  # no other engine stands for the node
        assert found.value + found.reduced[option] <= least(programme, alone) * (1 + 1e-9)
