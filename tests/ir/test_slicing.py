"""Laws of shares: whatever the axis, split-then-join equals the whole, exactly."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import UnsupportedError
from dovetail.ir import (
    Add,
    AvgPool,
    Axis,
    Clip,
    Concat,
    Conv,
    Gemm,
    GlobalAvgPool,
    Lookup,
    MaxPool,
    Mul,
    Op,
    Reshape,
    Select,
    Transpose,
    Window,
    slices,
)
from tests.strategies import convolutions, windows


def integers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-128, 128, shape).astype(np.float64)


def check_joins(op: Op, shapes: tuple[tuple[int, ...], ...], cuts: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    xs = [integers(rng, s) for s in shapes]
    params = [integers(rng, s) for s in op.param_shapes(shapes)]
    expected = op.accumulate(xs, params) / op.divisor(shapes)
    for axis in op.axes(shapes):
        extent = op.extent(axis, shapes)
        edges = sorted({0, extent, *(c % extent for c in cuts)})
        joined = np.zeros_like(expected)
        for start, stop in pairwise(edges):
            share = op.share(axis, start, stop, shapes)
            reads = [x[slices(r)] for x, r in zip(xs, share.inputs, strict=True)]
            owned = [p[slices(r)] for p, r in zip(params, share.params, strict=False)]
            part = share.op.accumulate(reads, owned) / share.op.divisor(tuple(r.shape for r in reads))
            assert part.shape == tuple(b - a for a, b in share.output)
            if axis is Axis.INPUT_CHANNELS:
                joined += part
            else:
                joined[slices(share.output)] = part
        if axis is Axis.INPUT_CHANNELS:
            joined += params[1].reshape((1, -1) + (1,) * (expected.ndim - 2))
        np.testing.assert_array_equal(joined, expected, err_msg=f"{op} along {axis} at {edges}")


cuts = st.lists(st.integers(0, 100), max_size=3)
seeds = st.integers(0, 1000)


@settings(max_examples=150, deadline=None)
@given(st.data(), cuts, seeds)
def test_convolution_joins_along_every_axis(data: st.DataObject, where: list[int], seed: int) -> None:
    channels, height, width = (data.draw(st.integers(1, n)) for n in (6, 11, 11))
    op = data.draw(convolutions(channels, height, width))
    check_joins(op, ((1, channels, height, width),), where, seed)


@settings(max_examples=80, deadline=None)
@given(st.data(), cuts, seeds, st.booleans())
def test_pooling_joins_along_every_axis(data: st.DataObject, where: list[int], seed: int, count_pads: bool) -> None:
    channels, height, width = (data.draw(st.integers(1, n)) for n in (4, 11, 11))
    window = data.draw(windows(height, width, pool=True))
    for op in (MaxPool(window), AvgPool(window, count_pads), GlobalAvgPool()):
        check_joins(op, ((1, channels, height, width),), where, seed)


@pytest.mark.parametrize(("op", "shapes", "axis"), [
    (Add(), ((1, 1, 4, 3), (1, 1, 4, 3)), Axis.GROUPS), (Clip(), ((1, 3, 1, 2),), Axis.ROWS),
    (GlobalAvgPool(), ((1, 1, 4, 4),), Axis.GROUPS), (MaxPool(Window((2, 2))), ((1, 1, 2, 3),), Axis.ROWS),
    (Select((2,)), ((1, 3, 4, 4),), Axis.GROUPS)])
def test_an_axis_of_one_unit_has_one_share_which_is_the_whole(op: Op, shapes: tuple[tuple[int, ...], ...], axis: Axis) -> None:
    assert op.extent(axis, shapes) == 1
    share = op.share(axis, 0, 1, shapes)
    rng = np.random.default_rng(0)
    xs = [integers(rng, s) for s in shapes]
    part = share.op.accumulate([x[slices(r)] for x, r in zip(xs, share.inputs, strict=True)], [])
    np.testing.assert_array_equal(part, op.accumulate(xs, []))
    assert share.output == tuple((0, n) for n in op.infer(shapes))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.integers(1, 12), cuts, seeds)
def test_gemm_joins_along_both_channel_axes(features: int, units: int, where: list[int], seed: int) -> None:
    check_joins(Gemm(units), ((1, features),), where, seed)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), cuts, seeds)
def test_elementwise_operators_join(channels: int, size: int, where: list[int], seed: int) -> None:
    shape = (1, channels, size, 3)
    check_joins(Add(), (shape, shape), where, seed)
    check_joins(Clip(), (shape,), where, seed)
    check_joins(Concat(1), (shape, (1, 2, size, 3)), where, seed)


@settings(max_examples=40, deadline=None)
@given(st.data(), cuts, seeds)
def test_movements_join(data: st.DataObject, where: list[int], seed: int) -> None:
    channels, height = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    first = data.draw(st.integers(0, channels - 1))
    chosen = data.draw(st.lists(st.integers(0, channels - 1), min_size=1, max_size=6))
    for indices in (tuple(range(first, channels)), tuple(chosen)):
        check_joins(Select(indices), ((1, channels, height, 3),), where, seed)
        check_joins(Select(indices), ((1, channels),), where, seed)
    for perm in ((0, 2, 3, 1), (0, 3, 2, 1), (0, 1, 3, 2)):
        check_joins(Transpose(perm), ((1, channels, height, 3),), where, seed)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), cuts, seeds)
def test_products_and_tables_join_also_where_an_operand_is_stretched(
        channels: int, size: int, where: list[int], seed: int) -> None:
    shape = (1, channels, size, 3)
    for small in (shape, (1, channels, 1, 1), (1, 1, size, 3)):
        check_joins(Mul(), (shape, small), where, seed)
        check_joins(Add(), (small, shape, small), where, seed)
    check_joins(Lookup("noise", True), (shape,), where, seed)
    check_joins(Lookup("noise", True, per_channel=True), (shape,), where, seed)


def test_input_channel_shares_carry_no_bias_and_no_activation() -> None:
    share = Conv(4, Window((3, 3))).share(Axis.INPUT_CHANNELS, 0, 2, ((1, 4, 5, 5),))
    assert isinstance(share.op, Conv)
    assert share.op.partial
    assert share.op.clamp is None
    assert len(share.params) == 1


def test_row_shares_of_a_padded_convolution_read_a_halo() -> None:
    op = Conv(1, Window((3, 3), pads=(1, 1, 1, 1)))
    upper = op.share(Axis.ROWS, 0, 4, ((1, 1, 8, 8),))
    lower = op.share(Axis.ROWS, 4, 8, ((1, 1, 8, 8),))
    assert upper.inputs[0][2] == (0, 5)
    assert lower.inputs[0][2] == (3, 8)
    assert upper.op.window.pads == (1, 1, 0, 1)
    assert lower.op.window.pads == (0, 1, 1, 1)


def test_an_operator_refuses_an_axis_it_does_not_have() -> None:
    with pytest.raises(UnsupportedError, match=r"^Reshape: cannot be divided along rows; possible: \[\]$"):
        Reshape((1, 4)).share(Axis.ROWS, 0, 1, ((1, 4, 1, 1),))
    with pytest.raises(UnsupportedError, match=r"^Gemm: cannot be divided along rows"):
        Gemm(4).share(Axis.ROWS, 0, 1, ((1, 4),))
