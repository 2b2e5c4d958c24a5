"""Adder graphs compute the matrix product, share what they can, and count honestly."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.hardware.adders.graph import build, multiples, signed_digits

Product = tuple[np.ndarray, list[tuple[int, int]], list[int]]
"""Matrix, input ranges, inputs."""


@st.composite
def products(draw: st.DrawFn) -> Product:
    """A matrix of 8-bit (rarely larger) weights, input ranges, and inputs inside them."""
    rows, columns = draw(st.integers(1, 7)), draw(st.integers(1, 9))
    weight = st.one_of(st.integers(-128, 127), st.integers(-128, 127), st.just(0), st.integers(-70_000, 70_000))
    matrix = draw(st.lists(st.lists(weight, min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    ranges = [draw(st.sampled_from([(-128, 127), (0, 255), (0, 48), (-3, 9)])) for _ in range(columns)]
    inputs = [draw(st.one_of(st.sampled_from([lo, hi]), st.integers(lo, hi))) for lo, hi in ranges]
    return np.array(matrix, dtype=np.int64), ranges, inputs


@given(products())
def test_the_graph_computes_the_matrix_product_within_its_stated_ranges(case: Product) -> None:
    matrix, ranges, inputs = case
    graph = build(matrix, ranges)
    assert graph.evaluate(inputs) == [int(v) for v in matrix @ np.array(inputs)]


@given(products())
def test_operands_are_ready_before_they_are_added(case: Product) -> None:
    graph = build(case[0], case[1])
    for adder in graph.adders:
        assert adder.stage == 1 + max(graph.stage(adder.left), graph.stage(adder.right))


@pytest.mark.parametrize("constant", range(1, 128, 2))
def test_every_int8_constant_takes_at_most_three_adders_in_two_levels(constant: int) -> None:
    steps = multiples(frozenset([constant]))
    assert len(steps) <= min(3, len(signed_digits(constant)))
    known = {1: 0}
    for step in steps:
        left, right = step.left << step.left_shift, step.right << step.right_shift
        assert step.constant == (left - right if step.minus else left + right)
        known[step.constant] = 1 + max(known[step.left], known[step.right])
    assert known[constant] <= 2


def test_all_int8_weights_including_minus_128_are_exact() -> None:
    matrix = np.arange(-128, 128).reshape(1, -1)
    x = np.random.default_rng(1).integers(-128, 128, 256)
    assert build(matrix, [(-128, 127)] * 256).evaluate([int(v) for v in x]) == [int((matrix @ x)[0])]


def test_zero_filters_vanish_and_equal_filters_are_built_once() -> None:
    row = np.array([3, -7, 0, 64])
    alone = build(row[None], [(-128, 127)] * 4)
    graph = build(np.stack([row, row, row * 0]), [(-128, 127)] * 4)
    assert graph.count == alone.count
    assert graph.outputs[0] == graph.outputs[1]
    assert graph.outputs[2] is None


def test_powers_of_two_cost_nothing_but_their_sum() -> None:
    graph = build(np.array([[1, -128, 4, 0]]), [(-128, 127)] * 4)
    assert graph.count == 2


def test_signed_digits_are_sparse_and_sum_to_the_value() -> None:
    for value in range(1, 1000):
        digits = signed_digits(value)
        assert sum(d << e for d, e in digits) == value
        assert all(later - earlier >= 2 for (_, earlier), (_, later) in pairwise(digits))


def gaussian(filters: int, taps: int, seed: int) -> np.ndarray:
    """Weights like a trained layer's: normal, each filter scaled to the full range."""
    values = np.random.default_rng(seed).standard_normal((filters, taps))
    return np.rint(values / np.abs(values).max(axis=1, keepdims=True) * 127).astype(np.int64)


def test_sharing_beats_separate_signed_digit_multipliers() -> None:
    matrix = gaussian(8, 27, 1)
    separate = sum(len(signed_digits(abs(int(w)))) for w in matrix.flat) - 8
    assert build(matrix, [(-128, 127)] * 27).count < 0.8 * separate
