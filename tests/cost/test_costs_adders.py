"""Adder estimates of slices against the adder graph that is really built."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.hardware.adders.digits import Once, count_digits, digits_of, used_taps
from dovetail.hardware.adders.sharing import Matrices, graph_bits, summed
from dovetail.hardware.adders.slices import Arithmetic, Slices, adders_of
from dovetail.hardware.adders.subexpressions import minimize
from dovetail.ir import Axis, Constant, Scheme

WHOLE = (np.array([0]), np.array([1]))


def weights(filters: int, channels: int, kernel: int, seed: int, deviation: float = 30.0) -> np.ndarray:
    values = np.random.default_rng(seed).normal(0, deviation, (filters, channels, kernel, kernel))
    return np.clip(np.rint(values), -128, 127).astype(np.int64)


def arithmetic(w: np.ndarray, groups: int, axis: Axis | None, starts: np.ndarray, stops: np.ndarray, bits: int) -> Arithmetic:
    return adders_of([Slices(count_digits(w), groups, ((axis, starts, stops),), bits)])[0]


def pairs(extent: int) -> tuple[np.ndarray, np.ndarray]:
    starts, stops = np.triu_indices(extent + 1, 1)
    return starts.astype(np.int64), stops.astype(np.int64)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 3), st.integers(0, 999))
def test_filter_slices_are_counted_like_their_own_matrix(filters: int, channels: int, kernel: int, seed: int) -> None:
    w = weights(filters, channels, kernel, seed)
    starts, stops = pairs(filters)
    counted = arithmetic(w, 1, Axis.OUTPUT_CHANNELS, starts, stops, 8)
    for start, stop, adders in zip(starts, stops, counted.adders, strict=True):
        assert adders == pytest.approx(arithmetic(w[start:stop], 1, None, *WHOLE, 8).adders[0])


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3), st.integers(0, 999))
def test_channel_slices_are_counted_like_their_own_matrix(filters: int, channels: int, kernel: int, seed: int) -> None:
    w = weights(filters, channels, kernel, seed)
    starts, stops = pairs(channels)
    counted = arithmetic(w, 1, Axis.INPUT_CHANNELS, starts, stops, 8)
    for start, stop, adders in zip(starts, stops, counted.adders, strict=True):
        own = np.array([0]), np.array([stop - start])
        assert adders == pytest.approx(arithmetic(w[:, start:stop], 1, Axis.INPUT_CHANNELS, *own, 8).adders[0], rel=0.05)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 3), st.integers(0, 999))
def test_groups_add_up(groups: int, per_group: int, kernel: int, seed: int) -> None:
    w = weights(groups * per_group, 2, kernel, seed)
    starts, stops = pairs(groups)
    counted = arithmetic(w, groups, Axis.GROUPS, starts, stops, 8)
    for start, stop, adders in zip(starts, stops, counted.adders, strict=True):
        cuts = [w[g * per_group:(g + 1) * per_group] for g in range(start, stop)]
        assert adders == pytest.approx(sum(arithmetic(cut, 1, None, *WHOLE, 8).adders[0] for cut in cuts))


SHAPES = [(1, 3, 3), (8, 3, 3), (16, 16, 1), (32, 1, 3), (8, 4, 5), (10, 32, 1)]


@pytest.mark.parametrize("deviation", [15.0, 45.0])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_estimate_is_near_what_the_search_finds(shape: tuple[int, int, int], deviation: float) -> None:
    w = weights(*shape, 5, deviation)
    matrix = w.reshape(len(w), -1)
    graph = minimize(matrix, [(0, 255)] * matrix.shape[1])
    estimate = arithmetic(w, 1, None, *WHOLE, 8)
    carry, registers = graph_bits(graph, 8)
    assert estimate.adders[0] == pytest.approx(graph.count, rel=0.15)
    assert estimate.bits[0] == pytest.approx(carry, rel=0.15)
    assert estimate.registers[0] == pytest.approx(registers, rel=0.2)
    assert abs(estimate.levels[0] - graph.stages) <= 1


@given(st.integers(1, 512), st.integers(1, 4608), st.floats(0.05, 4))
def test_more_filters_or_inputs_never_need_fewer_adder_bits(filters: int, columns: int, density: float) -> None:
    def bits(rows: int, inputs: int) -> float:
        digits, filters, columns = (np.array([float(n)]) for n in (density * rows * inputs, rows, inputs))
        return float(summed(Matrices(digits, filters, columns, 8, 5.0, 9.0))[1][0])

    assert bits(filters + 1, columns) >= bits(filters, columns)
    assert bits(filters, columns + 1) >= bits(filters, columns)


def test_bits_that_pass_an_adder_are_no_part_of_its_carry_chain_and_kept_once() -> None:
    """5x and 9x pass the lowest two and three bits of x, which one register of three bits keeps for both."""
    graph = minimize(np.array([[5], [9]]), [(0, 15)])
    assert graph.count == 2
    widths = [(5 * 15).bit_length(), (9 * 15).bit_length()]
    carry = [w - passed for w, passed in zip(widths, (2, 3), strict=True)]
    assert graph_bits(graph, 4) == (sum(carry), sum(carry) + 3)


def test_taps_without_weights_are_known() -> None:
    w = np.ones((2, 2, 1, 3), dtype=np.int8)
    w[:, 0, 0, 0] = 0
    dense = used_taps(Once(Constant("w", w, Scheme(8, True, (0,)))), 1)
    assert dense.tolist() == [[[False, True, True]], [[True, True, True]]]
    assert used_taps(Once(Constant("v", w, Scheme(8, True, (0,)))), 2).shape == (4, 1, 3)


def test_zero_weights_need_no_adders() -> None:
    nothing = arithmetic(np.zeros((4, 2, 3, 3), dtype=np.int64), 1, Axis.INPUT_CHANNELS, *WHOLE, 8)
    assert (nothing.adders[0], nothing.bits[0], nothing.levels[0]) == (0.0, 0.0, 0.0)


def test_a_layers_digits_are_counted_once_and_two_layers_are_never_confused() -> None:
    same = np.full((2, 3), 85, dtype=np.float32)
    first, second = Constant("w", same), Constant("w", same * 0)
    assert digits_of(Once(first)) is digits_of(Once(first))
    assert digits_of(Once(first)).per_filter.sum() > digits_of(Once(second)).per_filter.sum() == 0


def test_weights_below_the_smallest_scale_count_as_dead() -> None:
    """A filter that training switched off keeps denormal weights; pricing it must not overflow."""
    weight = np.full((2, 3, 1, 1), 1e-42, dtype=np.float32)
    weight[1] = 0.5
    with np.errstate(over="raise", invalid="raise"):
        digits = digits_of(Once(Constant("w", weight)))
    assert digits.per_filter[0] == 0
    assert digits.per_filter[1] > 0


def test_slices_are_counted_the_same_whatever_is_asked_beside_them() -> None:
    w = weights(96, 96, 3, seed=4)
    parts = (np.array([0, 0, 48, 95]), np.array([48, 24, 96, 96]))
    segments = ((None, *WHOLE), (Axis.OUTPUT_CHANNELS, *parts), (Axis.INPUT_CHANNELS, *parts), (Axis.ROWS, *WHOLE))
    together = adders_of([Slices(count_digits(w), 1, segments, 8)])[0]
    alone = [adders_of([Slices(count_digits(w), 1, (one,), 8)])[0] for one in segments]
    for name in ("adders", "bits", "registers", "levels", "lag"):
        assert np.array_equal(getattr(together, name), np.concatenate([getattr(own, name) for own in alone])), name
