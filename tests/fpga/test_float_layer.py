"""Folded layers in single precision: every bit as the stated order has it, in the clocks of the closed form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.errors import UnsupportedError, UsageError
from dovetail.fpga.float_layer import float_design
from dovetail.fpga.toolchain.simulate import simulate_many
from dovetail.hardware.folds import Fold
from dovetail.ir import Array, Window
from dovetail.numerics.floats import FloatFilters, convolve, sums_of, words_of

Case = tuple[FloatFilters, Array, Fold]


def negated(x: Array) -> Array:
    """Floats of which some are negative, and -0 among them; codes as they are."""
    return x if x.dtype == np.uint8 else np.where(np.arange(x.size).reshape(x.shape) % 7 == 0, -x, x)


def ended(filters: FloatFilters, x: Array, fold: Fold, steps: bool) -> Case:
    """With a bias, or with thresholds that are sums that occur, the next numbers above them, and zero."""
    if not steps:
        return filters, x, fold
    sums = np.moveaxis(sums_of(filters, x, fold.inputs), 1, 0).reshape(filters.count, -1)
    low, high = np.quantile(sums, (0.3, 0.6), axis=1, method="lower")
    limits = np.stack([low, np.nextafter(low, np.float32(np.inf)), np.where(high > 0, high, 0)], axis=1)
    return replace(filters, bias=None, steps=np.sort(limits, axis=1)), x, fold


def multiplied(seed: int, shape: tuple[int, int, int], count: int, window: Window, fold: Fold, steps: bool = False) -> Case:
    """A layer of floats of many sizes and three frames for it."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(count, shape[0], *window.kernel)) * 2.0 ** rng.integers(-9, 9, (count, shape[0], *window.kernel))
    x = negated(np.maximum(rng.normal(size=(3, *shape)), 0).astype(np.float32))
    bias = rng.normal(size=count).astype(np.float32)
    return ended(FloatFilters(window, weights.astype(np.float32), bias=bias), x, fold, steps)


def looked_up(seed: int, shape: tuple[int, int, int], count: int, window: Window, fold: Fold, steps: bool = True) -> Case:
    """A layer of two-bit codes with any products."""
    rng = np.random.default_rng(seed)
    tables = rng.normal(size=(count, 4, 4)).astype(np.float32)
    tables[:, :, 0] = 0
    codes = rng.integers(0, 4, (count, shape[0], *window.kernel)).astype(np.uint8)
    bias = rng.normal(size=count).astype(np.float32)
    return ended(FloatFilters(window, codes, tables, bias=bias), rng.integers(0, 4, (3, *shape)).astype(np.uint8), fold, steps)


CASES: dict[str, Case] = {
    "padded": multiplied(0, (4, 6, 7), 5, Window((3, 3), pads=(1, 1, 1, 1)), Fold(1, 2, 2)),
    "strides": multiplied(1, (3, 11, 9), 3, Window((5, 4), (2, 3), (0, 1, 1, 0)), Fold(1, 1, 1), True),
    "rows_left_over": multiplied(2, (3, 11, 9), 3, Window((5, 4), (4, 3), (0, 1, 1, 0)), Fold(1, 3, 3), True),
    "beyond_the_kernel": multiplied(3, (2, 9, 9), 2, Window((2, 2), (3, 3)), Fold(1, 1, 2)),
    "tables": looked_up(4, (4, 6, 5), 5, Window((3, 3), pads=(1, 1, 1, 1)), Fold(1, 2, 2)),
    "all_filters": looked_up(5, (4, 6, 5), 5, Window((3, 3), (3, 2)), Fold(1, 1, 5), False),
    "wide_padding": looked_up(6, (6, 6, 5), 4, Window((5, 5), (1, 1), (2, 2, 2, 2)), Fold(1, 3, 1))}


EXACT = ("floats_padded", "floats_rows_left_over", "floats_beyond_the_kernel", "floats_tables", "floats_all_filters",
         "floats_wide_padding")
"""Designs whose lanes take all filters at once, or go over a window again while the next rows come in."""


@pytest.mark.verilator
@pytest.mark.parametrize("stall_seed", [None, 3])
def test_folded_floats_have_every_bit_of_the_reference(stall_seed: int | None) -> None:
    jobs, expected = [], []
    for name, (filters, x, fold) in CASES.items():
        given, right = (words_of(v) if v.dtype == np.float32 else v.astype(np.int64)
                        for v in (x, convolve(filters, x, fold.inputs)))
        jobs.append((float_design(f"floats_{name}", filters, (x.shape[2], x.shape[3]), fold), {"x": given}))
        expected.append(right)
    for right, (design, _), found in zip(expected, jobs, simulate_many(jobs, stall_seed), strict=True):
        assert len(np.unique(right)) > 2, design.top
        np.testing.assert_array_equal(found.outputs["y"].reshape(right.shape), right, err_msg=design.top)
        promised = tuple(design.latency_cycles + k * design.interval_cycles for k in range(3))
        if stall_seed is None and design.top in EXACT:
            assert found.frame_cycles == promised, design.top
        assert all(a >= b for a, b in zip(found.frame_cycles, promised, strict=True)), design.top


def test_a_float_layer_says_what_it_cannot_be() -> None:
    filters, x, _ = CASES["padded"]
    with pytest.raises(UsageError, match="3 of 4 channels at once"):
        float_design("layer", filters, (6, 7), Fold(1, 3, 1))
    with pytest.raises(UsageError, match="one group and a multiplier for each product"):
        float_design("layer", filters, (6, 7), Fold(1, 1, 2, 2))
    with pytest.raises(UsageError, match="9 outputs at once; the layer has 5"):
        float_design("layer", filters, (6, 7), Fold(1, 1, 9))
    wide = FloatFilters(Window((2, 2), pads=(2, 2, 2, 2)), filters.weights[:, :, :2, :2], bias=filters.bias)
    with pytest.raises(UnsupportedError, match="padding beyond the kernel"):
        float_design("layer", wide, (6, 7), Fold(1, 1, 1))
    assert x.shape[1] == filters.weights.shape[1]
