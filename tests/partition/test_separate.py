"""The cheapest bound and the small programs behind prices: nothing that a better plan needs is struck."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.partition.evaluate import evaluate
from dovetail.partition.exact.separate_bound import strike_dear
from dovetail.partition.linear_programs import Corner, _by_highs, _pivoted, largest_minimum
from dovetail.partition.plan import Goal, Mode
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import compacted, options
from tests.partition.worlds import Synthetic, chain, depthwise, fork, platform, residual

GOALS = (Goal.LATENCY, Goal.ENERGY, Goal.EDP)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), shape=st.sampled_from([residual, fork, depthwise, lambda seed: chain(3, 3, 3)]),
       goal=st.sampled_from(GOALS), mode=st.sampled_from(Mode), budget=st.sampled_from([20.0, 60.0, 1e9]))
def test_no_plan_better_than_the_known_one_uses_a_struck_column(seed: int, shape: object, goal: Goal, mode: Mode,
                                                                budget: float) -> None:
    problem = Problem(shape(seed), platform(seed, budget=budget), Synthetic(seed), goal, mode)  # type: ignore[operator]
    choices = [options(problem, n) for n in problem.graph.nodes]
    rng = np.random.default_rng(seed)
    judged = []
    for _ in range(60):
        path = [int(rng.integers(len(c))) for c in choices]
        found = evaluate(problem, {c.node.name: c.splits[i] for c, i in zip(choices, path, strict=True)})
        judged += [(path, found)] if found.feasible else []
    if not judged:
        return
    known = sorted((e.objective, e.latency_s, e.energy_j) for _, e in judged)[len(judged) // 2]
    left = [set(c.splits) for c in strike_dear(problem, choices, known[1:], inf)]
    for path, found in judged:
        if found.objective < known[0] * (1 - 1e-9):
            assert all(c.splits[i] in kept for c, i, kept in zip(choices, path, left, strict=True))


def test_compacted_options_are_the_same_columns_and_places() -> None:
    problem = Problem(residual(5), platform(5, budget=1e9), Synthetic(5))
    choices = [options(problem, n).keep(np.arange(0, len(options(problem, n)), 3)) for n in problem.graph.nodes]
    for before, after in zip(choices, compacted(choices), strict=True):
        assert after.splits == before.splits
        assert np.array_equal(after.place_of, before.place_of)
        assert np.array_equal(after.pattern.held[after.places], before.pattern.held[before.places])
        assert len(after.pattern.has) <= len(before.pattern.has)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 9999), cuts=st.integers(1, 40), limits=st.integers(2, 4))
def test_pivots_find_what_a_solver_finds(seed: int, cuts: int, limits: int) -> None:
    rng = np.random.default_rng(seed)
    values, slopes = rng.uniform(0.5, 2, cuts), rng.normal(size=(cuts, limits)).round(int(rng.integers(0, 6)))
    cap = float(10 ** rng.uniform(-1, 2))
    expected, _ = _by_highs(values, slopes, cap, 2.0)
    found, at = largest_minimum(values, slopes, cap)
    assert found == pytest.approx(expected, rel=1e-9)
    assert (values + slopes @ at).min() == pytest.approx(expected, rel=1e-9)
    assert _pivoted(values / 2, slopes, cap / 2) is not None


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 9999), limits=st.integers(2, 4))
def test_pivots_go_on_from_the_last_corner_when_planes_are_added(seed: int, limits: int) -> None:
    rng = np.random.default_rng(seed)
    values, slopes = rng.uniform(0.5, 2, 12), rng.normal(size=(12, limits)).round(int(rng.integers(0, 6)))
    cap, corner = float(10 ** rng.uniform(-1, 2)), Corner()
    for count in range(1, len(values) + 1):
        cap *= 8 if count == 7 else 1  # a search for prices widens where the largest is as dear as can be
        found, at = largest_minimum(values[:count], slopes[:count], cap, corner)
        expected, _ = largest_minimum(values[:count], slopes[:count], cap)
        assert found == pytest.approx(expected, rel=1e-9)
        assert (values[:count] + slopes[:count] @ at).min() == pytest.approx(expected, rel=1e-9)
