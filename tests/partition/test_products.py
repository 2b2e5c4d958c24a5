"""The least product above lines: never above that of any point the lines are below, and near it where lines are close."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.partition.exact.energy_delay import Point, Region, ends

POINTS = st.lists(st.tuples(st.floats(0.1, 10.0), st.floats(0.1, 10.0)), min_size=1, max_size=8)
WEIGHTS = st.lists(st.one_of(st.tuples(st.floats(0.01, 10.0), st.floats(0.01, 10.0)), st.just((1.0, 0.0)),
                             st.tuples(st.floats(-5.0, 0.0), st.just(1.0))), max_size=10)


def _least(points: list[Point], weights: Point) -> float:
    return min(weights[0] * s + weights[1] * j for s, j in points)


@given(points=POINTS, weights=WEIGHTS, looser=st.floats(0.5, 1.0))
def test_no_line_below_all_plans_makes_the_product_too_large(points: list[Point], weights: list[Point], looser: float) -> None:
    best = min(s * j for s, j in points)
    region = Region((looser * _least(points, (1.0, 0.0)), looser * _least(points, (0.0, 1.0))), best)
    before = region.bound
    for pair in weights:
        region.clip(pair, _least(points, pair))
        assert before * (1 - 1e-9) <= region.bound <= best * (1 + 1e-9)
        before = region.bound
        assert all(a[0] <= b[0] * (1 + 1e-9) for a, b in zip(region.chain, region.chain[1:], strict=False))


def test_a_rising_line_keeps_what_is_slow_and_dear() -> None:
    region = Region((0.8, 0.8), 1.0)
    region.clip((-1.0, 1.0), 0.0)
    region.clip((1.0, 1.0), 2.0)
    assert region.bound == pytest.approx(0.96)
    region.clip((1.0, 0.0), 0.97)
    assert region.bound == pytest.approx(0.97 * 1.03)
    region.clip((1.0, 0.0), 1.0)
    assert region.corner == pytest.approx((1.0, 1.0))


def test_the_ends_of_a_line_have_the_product_asked_for() -> None:
    fast, slow = ends((2.0, 1.0), 4.0, 1.5)
    assert fast == pytest.approx((0.5, 3.0))
    assert slow == pytest.approx((1.5, 1.0))
    assert ends((1.0, 1.0), 2.0, 3.0) == ((1.0, 1.0), (1.0, 1.0))
