"""Engines counted by hand: steps, memories, counters and choices of operators that only move data, and names of folds."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.fpga.assemble import build_design
from dovetail.hardware.arrays.layers import table_bytes
from dovetail.hardware.arrays.refusals import factor_bits
from dovetail.hardware.engines import EngineSizes, engine_of
from dovetail.hardware.folds import Fold
from dovetail.hardware.rounding import fixed_schemes, value_widths
from dovetail.ir import (
    Add,
    Clip,
    Constant,
    Conv,
    Gemm,
    GlobalAvgPool,
    Graph,
    Lookup,
    Mul,
    Node,
    Op,
    PixelShuffle,
    Scheme,
    Tensor,
    Upsample,
    Window,
)
from tests.scales import with_arbitrary_scales
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


@pytest.mark.parametrize("side", [(5, 7), (6, 9)])
def test_a_map_waits_for_its_gate_in_the_fifo_of_the_design(side: tuple[int, int]) -> None:
    """The gate's average comes with the last pixel: its one beat stands for the whole map."""
    net = Net(3)
    x = net.add(Conv(8, Window((1, 1))), net.input((1, 8, *side)))
    gate = net.add(Conv(8, Window((1, 1))), net.add(GlobalAvgPool(), x))
    graph = quantized(net.graph(net.add(Mul(), x, gate)))
    design = build_design(graph, "gated")
    join = engine_of(graph, graph.nodes[-1], None, *ONE)
    assert join.skip_depth == pytest.approx(max(f.depth for f in design.fifos), abs=12)
    assert join.skip_depth >= side[0] * side[1] - 1


def test_a_strided_branch_waits_as_many_beats_as_it_has() -> None:
    """Behind a stride of two a beat stands for four pixels, and what waits is counted in beats."""
    net = Net(3)
    x = net.add(Conv(4, Window((1, 1))), net.input((1, 4, 16, 16)))
    long = net.add(Conv(4, Window((3, 3), pads=(1, 1, 1, 1))), net.add(Conv(4, Window((3, 3), (2, 2), (1, 1, 1, 1))), x))
    graph = quantized(net.graph(net.add(Add(), long, net.add(Conv(4, Window((1, 1), (2, 2))), x))))
    design = build_design(graph, "strided")
    join = engine_of(graph, graph.nodes[-1], None, *ONE)
    assert join.skip_depth == pytest.approx(max(f.depth for f in design.fifos), abs=8)


@pytest.mark.parametrize("signed", [False, True])
def test_the_memory_of_a_table_is_addressed_by_stored_bytes(signed: bool) -> None:
    entries, scheme = np.random.default_rng(0).permutation(256).astype(np.uint8), Scheme(8, signed, (0,))
    op = Lookup("mixed", signed)
    graph = Graph("g", ("x",), ("y",), (Node("n", op, ("x",), ("t",), "y"),),
                  {"x": Tensor("x", (1, 4), scheme), "y": Tensor("y", (1, 4), Scheme(8, False, (0,)))},
                  {"t": Constant("t", entries)})
    codes = np.arange(scheme.lo, scheme.hi + 1, dtype=scheme.dtype)
    stored = np.frombuffer(table_bytes(graph, graph.nodes[0]), np.uint8)
    np.testing.assert_array_equal(stored[codes.view(np.uint8)], op.look_up(codes, entries))


@pytest.mark.parametrize(("entries", "width"), [
    (np.arange(256), 8), (np.arange(256) % 5, 3), (np.arange(256) - 128, 8), (np.arange(256) // 64 - 4, 3)])
def test_a_table_has_an_entry_for_every_byte_as_wide_as_its_numbers_need(entries: np.ndarray, width: int) -> None:
    scheme = Scheme(8, bool(entries.min() < 0), (0,))
    graph = Graph("g", ("x",), ("y",), (Node("n", Lookup("mixed", False), ("x",), ("t",), "y"),),
                  {"x": Tensor("x", (1, 3, 4, 4), Scheme(8, False, (0,))), "y": Tensor("y", (1, 3, 4, 4), scheme)},
                  {"t": Constant("t", entries.astype(scheme.dtype))})
    assert engine_of(graph, graph.nodes[0], None, *ONE).table_bits == 3 * width * 256


def test_widths_of_shifts_are_those_of_powers_of_two_alone() -> None:
    """Between other scales a result is rounded from a product, with room for the output's own bits and two more."""
    net = Net(3)
    graph = quantized(net.graph(net.add(Clip(), net.add(Conv(4, Window((3, 3))), net.input((1, 2, 6, 6))))))
    other = with_arbitrary_scales(graph, 2)
    for node in graph.nodes:
        schemes = fixed_schemes(graph, node)
        assert schemes is not None
        assert schemes[1] == graph.tensors[node.output].scheme
        assert fixed_schemes(other, node) is None
    last = graph.nodes[-1]
    assert value_widths(other, last) == (8 + 2, 8)


@pytest.mark.parametrize(("weights", "bits"), [(np.asarray([[3, -128]]), 8 + 8 - 1), (np.asarray([[3, 0]]), 2 + 8 - 1)])
def test_planes_of_plain_layers_are_multiplied_with_powers_of_two_of_both_sides(weights: np.ndarray, bits: int) -> None:
    graph = Graph("g", ("x",), ("y",), (Node("n", Gemm(1), ("x",), ("w", "b"), "y"),),
                  {"x": Tensor("x", (1, 2), Scheme(8, False, (0,))), "y": Tensor("y", (1, 1), Scheme(8, True, (4,)))},
                  {"w": Constant("w", weights.astype(np.int8), Scheme(8, True, (0,))),
                   "b": Constant("b", np.zeros(1, np.int32), Scheme(32, True, (0,)))})
    assert factor_bits(graph, graph.nodes[0]) == bits
