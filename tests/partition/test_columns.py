"""Linear programmes solved column after column: the value of the whole one, and never more."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

from dovetail.partition.accelerator.frame_bound import Programme, solved

pytestmark = pytest.mark.quick

NONE = np.zeros(0, dtype=np.int64)


def programme_of(seed: int) -> Programme:
    """Groups of engines, faster ones larger, with one engine that stands for the first two groups' nodes; up to three phases."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(5, 40, 7)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    groups = tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(starts))
    one_each = np.zeros((6, starts[-1]))
    for node, group in enumerate(groups[:6]):
        one_each[node, group] = 1.0
    one_each[:2, groups[6]] = 1.0
    speed = rng.uniform(1, 20, starts[-1])
    shares = rng.uniform(0.2, 1.0, (3, starts[-1])) * speed / 40
    clocks, phases = rng.uniform(0.5, 1.0, (4, starts[-1])) / speed, 1 + seed % 3
    parts = np.vstack([np.eye(phases)[np.arange(3) % phases], np.ones((1, phases))])
    return Programme(groups, one_each, shares, clocks, rng.uniform(0, 0.1, 4), parts)


def least(programme: Programme) -> float:
    """The whole programme's value by the solver alone."""
    total, phases = programme.shares.shape[1], programme.parts.shape[1]
    upper = np.vstack([np.hstack([programme.shares, np.zeros((3, phases))]), np.hstack([programme.frames, -programme.parts])])
    answer = linprog(np.append(np.zeros(total), np.ones(phases)), upper, np.append(np.ones(3), -programme.constants),
                     np.hstack([programme.one_each, np.zeros((6, phases))]), np.ones(6), (0, None))
    return float(answer.fun)


@pytest.mark.parametrize("seed", range(8))
def test_columns_reach_the_value_of_the_whole_programme_from_below(seed: int) -> None:
    programme = programme_of(seed)
    whole = least(programme)
    value, taken = solved(programme, NONE, lambda value: False)
    assert value <= whole * (1 + 1e-9)
    assert value == pytest.approx(whole, rel=1e-5)
    again, _ = solved(programme, taken, lambda value: False)
    assert again == pytest.approx(whole, rel=1e-5)


def test_a_bound_that_is_enough_ends_the_search_below_the_value() -> None:
    programme = programme_of(3)
    value, _ = solved(programme, NONE, lambda value: value > 0)
    assert 0 < value <= least(programme) * (1 + 1e-9)


def test_engines_that_fit_nowhere_are_beyond_every_frame() -> None:
    programme = programme_of(1)
    full = Programme(programme.groups, programme.one_each, programme.shares + 1, programme.frames, programme.constants,
                     programme.parts)
    value, _ = solved(full, NONE, lambda value: False)
    assert value > 1000
