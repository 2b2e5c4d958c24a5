"""Common subexpressions: the same product with fewer adders."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.cost import subexpressions
from dovetail.cost.adder_graph import build
from dovetail.cost.subexpressions import column_blocks, minimize
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


@pytest.mark.parametrize(("filters", "taps", "saved"), [(8, 27, 0.2), (32, 16, 0.14), (32, 27, 0.14)])
def test_normally_distributed_filters_save_a_sixth_or_more_without_more_stages(filters: int, taps: int, saved: float) -> None:
    matrix, ranges = gaussian(filters, taps, 1), [(-128, 127)] * taps
    plain, shared = build(matrix, ranges), minimize(matrix, ranges)
    assert shared.count < (1 - saved) * plain.count
    assert shared.stages <= plain.stages


def test_a_sum_used_by_two_filters_is_made_once() -> None:
    graph = minimize(np.array([[1, 2, 4], [2, 4, -8], [-1, -2, 0]]), [(-128, 127)] * 3)
    assert graph.count == 3
