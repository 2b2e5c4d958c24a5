"""Engines counted by hand: steps, memories, counters and choices of operators that only move data, and names of folds."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.hardware.engines import EngineSizes, engine_of
from dovetail.hardware.folds import Fold
from dovetail.ir import Op, PixelShuffle, Upsample
from tests.strategies import Net, quantized

ONE = np.array([0]), np.array([1])


def alone(op: Op, shape: tuple[int, int, int]) -> EngineSizes:
    net = Net(3)
    graph = quantized(net.graph(net.add(op, net.input((1, *shape)))))
    return engine_of(graph, graph.nodes[0], None, *ONE)


@pytest.mark.parametrize(("rows", "columns", "counters"), [(2, 3, 1 + 2 + 3), (1, 2, 0 + 1 + 3), (4, 1, 2 + 0 + 3)])
def test_repeated_rows_come_from_a_memory_of_one_row(rows: int, columns: int, counters: int) -> None:
    """4 channels of 8 bits, 3 rows of 5 pixels; a pixel leaves per step, and 15 steps take one."""
    found = alone(Upsample(rows, columns), (4, 3, 5))
    steps, again = 3 * rows * 5 * columns, rows > 1
    assert (found.steps, found.flush) == (steps, steps - 15)
    assert found.control_bits == counters
    assert (found.line_depth, found.line_bits) == ((5, 32) if again else (0, 0))
    once = alone(Upsample(1, columns), (4, 3, 5))
    assert found.register_bits - once.register_bits == 3 * 32 * again
    assert found.stages - once.stages == 2 * again


@pytest.mark.parametrize(("op", "counters"), [
    (PixelShuffle(2, 3), 1 + 2 + 3 + 0), (PixelShuffle(1, 3), 0 + 2 + 3 + 0), (PixelShuffle(3, 2), 2 + 1 + 3 + 0),
    (PixelShuffle(3, 2, cropped=(1, 0)), 2 + 1 + 3 + 2)])
def test_rows_of_a_block_but_its_first_wait_in_a_memory(op: PixelShuffle, counters: int) -> None:
    """2 channels of 8 bits leave, from 4 rows of 5 pixels with a block each."""
    found = alone(op, (2 * op.rows * op.columns, 4, 5))
    steps, again = (4 * op.rows - op.cropped[0]) * 5 * op.columns, op.rows > 1
    assert (found.steps, found.flush) == (steps, steps - 20)
    assert found.control_bits == counters
    assert found.choice_bits == 16 * (op.rows * op.columns - 1)
    assert (found.line_depth, found.line_bits) == ((5, 16 * (op.rows - 1) * op.columns) if again else (0, 0))


@pytest.mark.parametrize(("fold", "name"), [
    (Fold(2, 3, 4), "2x3x4"), (Fold(1, 8, 2, 2), "1x8x2, 2 products a block"), (Fold(1, 1, 6, 0), "1x1x6, products in logic")])
def test_a_fold_is_named_by_what_works_at_once(fold: Fold, name: str) -> None:
    assert str(fold) == name
