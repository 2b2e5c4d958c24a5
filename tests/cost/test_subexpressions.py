"""Common subexpressions: the same product with fewer adders."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.hardware.adders import subexpressions
from dovetail.hardware.adders.digit_forms import shortest_forms
from dovetail.hardware.adders.graph import build, signed_digits
from dovetail.hardware.adders.subexpressions import column_blocks, minimize
from tests.cost.test_adder_graph import Product, gaussian, products


@given(products())
def test_the_minimized_graph_computes_the_matrix_product_with_no_more_adders(case: Product) -> None:
    matrix, ranges, inputs = case
    graph = minimize(matrix, ranges)
    assert graph.evaluate(inputs) == [int(v) for v in matrix @ np.array(inputs)]
    assert graph.count <= build(matrix, ranges).count


@given(products(), st.integers(1, 40))
def test_searching_in_blocks_of_columns_changes_no_result(case: Product, limit: int) -> None:
    matrix, ranges, inputs = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subexpressions, "MAX_PAIRS", limit)
        subexpressions._minimized.cache_clear()
        blocks = column_blocks(matrix)
        graph = minimize(matrix, ranges)
        subexpressions._minimized.cache_clear()
    assert [c for block in blocks for c in block] == list(range(matrix.shape[1]))
    assert graph.evaluate(inputs) == [int(v) for v in matrix @ np.array(inputs)]


@pytest.mark.parametrize(("filters", "taps", "saved"), [(8, 27, 0.24), (32, 16, 0.17), (32, 27, 0.17)])
def test_normal_filters_save_a_sixth_or_more_with_one_more_stage_at_most(filters: int, taps: int, saved: float) -> None:
    matrix, ranges = gaussian(filters, taps, 1), [(-128, 127)] * taps
    plain, shared = build(matrix, ranges), minimize(matrix, ranges)
    assert shared.count < (1 - saved) * plain.count
    assert shared.stages <= plain.stages + 1


def test_a_sum_used_by_two_filters_is_made_once() -> None:
    graph = minimize(np.array([[1, 2, 4], [2, 4, -8], [-1, -2, 0]]), [(-128, 127)] * 3)
    assert graph.count == 3


def test_filters_equal_up_to_sign_and_a_power_of_two_are_made_once() -> None:
    matrix = np.array([[3, 5, 0, -7], [-12, -20, 0, 28], [0, 0, 0, 0], [6, 10, 0, -14]])
    graph = minimize(matrix, [(0, 255)] * 4)
    assert graph.count == minimize(matrix[:1], [(0, 255)] * 4).count
    assert graph.evaluate([1, 2, 3, 4]) == [-15, 60, 0, -30]


def test_sums_come_with_the_sign_they_are_wanted_with() -> None:
    outputs = minimize(gaussian(16, 27, 1), [(-128, 127)] * 27).outputs
    assert not any(term is not None and term.negative for term in outputs)


def test_searching_blocks_in_several_processes_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, ranges = gaussian(8, 36, 3), [(0, 255)] * 36
    monkeypatch.setattr(subexpressions, "MAX_PAIRS", 2000)
    found = []
    for least in (1, 10**9):
        monkeypatch.setattr(subexpressions, "PARALLEL_PAIRS", least)
        subexpressions._minimized.cache_clear()
        found.append(minimize(matrix, ranges))
    assert len(column_blocks(matrix)) > 2
    assert found[0] == found[1]


@pytest.mark.parametrize("value", range(1, 256))
def test_every_shortest_form_is_the_number_with_as_many_digits_as_the_canonical_one(value: int) -> None:
    forms = shortest_forms(value)
    canonical = signed_digits(value)
    assert tuple(sorted(canonical, key=lambda d: d[1])) in {tuple(sorted(f, key=lambda d: d[1])) for f in forms}
    assert len(set(forms)) == len(forms)
    for form in forms:
        assert sum(digit << exponent for digit, exponent in form) == value
        assert len(form) == len(canonical)


@pytest.mark.parametrize("cheap", [True, False])
def test_a_block_of_many_terms_is_searched_once_and_another_in_every_order(cheap: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = list[int]()

    class Listening(subexpressions.TermPairs):
        def run(self) -> None:
            orders.append(len(orders))
            super().run()

    monkeypatch.setattr(subexpressions, "TermPairs", Listening)
    monkeypatch.setattr(subexpressions, "CHEAP_SQUARES", 200_000 if cheap else 0)
    subexpressions.search_block(np.asarray([[3, 5, 7], [9, 11, 13]], np.int64))
    assert len(orders) == (len(subexpressions.AGES) if cheap else 1)
