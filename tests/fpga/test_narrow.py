"""Shorter factors give every sum the same result, and sums that are saturated first do too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.fpga.engines.layers import Rescale
from dovetail.fpga.engines.narrow import MOST_KINDS, SHORT, SPREAD, narrowed, reach, settled
from dovetail.ir.tflite.rounding import away, twice

FILTERS = 8


def results(rescale: Rescale, output: int, sums: np.ndarray) -> np.ndarray:
    assert rescale.scales is not None
    (factor, shift), (above, below) = rescale.scales[output], rescale.nudges[output]
    quotients = (sums * factor + np.where(sums < 0, below, above) >> shift) + rescale.zero
    return np.clip(quotients, *rescale.bounds)


def drawn(seed: int) -> Rescale:
    """Filters as TensorFlow Lite's kernels rescale them, of ratios up to eight times apart."""
    rng = np.random.default_rng(seed)
    ratios = 2.0 ** (rng.uniform(-14, -2) - rng.uniform(0, 3, FILTERS))
    if seed % 4 != 1:
        ratios[0] *= 2.0 ** -(seed % 5 * 4)  # a filter that hardly lives
    zero = int(rng.integers(-128, 128))
    bounds = (max(zero, -128), 127) if seed % 3 == 0 and zero < 100 else (-128, 127)
    made = [away(r, -128 - zero, 127 - zero) if seed % 4 == 1 else twice(r) for r in ratios]
    return Rescale(1, tuple((d.multiplier, d.shift) for d in made), bounds, zero, tuple(d.nudges for d in made))


@pytest.mark.parametrize("seed", range(24))
def test_short_factors_give_every_sum_the_same_result(seed: int) -> None:
    rescale = drawn(seed)
    most = 1 << (12, 18, 24)[seed % 3]
    short = narrowed(rescale, [most] * FILTERS)
    ends = reach(short)
    assert rescale.scales is not None
    assert short.scales is not None
    far = np.random.default_rng(seed).integers(-most, most + 1, 200_000)
    sums = np.unique(np.concatenate([np.arange(-70_000, 70_000).clip(-most, most), far]))
    for output in range(len(rescale.scales)):
        wanted = results(rescale, output, sums)
        np.testing.assert_array_equal(results(short, output, sums), wanted)
        np.testing.assert_array_equal(results(short, output, np.clip(sums, *ends)), wanted)
        assert results(short, output, np.asarray(ends)).tolist() == [*rescale.bounds], "saturated where sums are cut"


def test_factors_are_cut_to_a_multiplier_block_in_nearly_all_layers() -> None:
    cut = 0
    for seed in range(24):
        short = narrowed(rescale := drawn(seed), [1 << 18] * FILTERS)
        assert short.scales is not None
        if short is not rescale:
            shifts = {shift for _, shift in short.scales}
            assert max(shifts) - min(shifts) <= SPREAD
            assert len({(s, n) for (_, s), n in zip(short.scales, short.nudges, strict=True)}) <= MOST_KINDS
        cut += max(f for f, _ in short.scales) < 1 << SHORT
    assert cut >= 18


def test_what_is_no_single_product_stays_as_it_is() -> None:
    rescale = drawn(2)
    for other in (replace(rescale, nudges=()), replace(rescale, divisor=49), replace(rescale, scales=None)):
        assert narrowed(other, [1 << 20] * FILTERS) is other


def test_filters_that_never_change_are_rescaled_as_others_are() -> None:
    """Converters give filters without weights a bias of 2**30 and a scale to match."""
    few, far, below = twice(2.0 ** -9.3), twice(2.0 ** -24.4), twice(2.0 ** -10.1)
    made = [far, few, few, below]
    rescale = Rescale(1, tuple((d.multiplier, d.shift) for d in made), (-128, 127), -128, tuple(d.nudges for d in made))
    matrix, bias = np.array([[0, 0], [9, -7], [0, 0], [-3, 2]], dtype=np.int64), [1 << 30, 400, -9000, 7000]
    weights, moved, alike = settled(matrix, bias, (-128, 127), rescale)
    assert alike.scales is not None
    assert alike.scales == (alike.scales[1], alike.scales[1], alike.scales[1], rescale.scales[3] if rescale.scales else None)
    frames = np.random.default_rng(0).integers(-128, 128, (500, 2))
    for output in range(4):
        wanted = results(rescale, output, frames @ matrix[output] + bias[output])
        np.testing.assert_array_equal(results(alike, output, frames @ weights[output] + moved[output]), wanted)
    assert max(abs(b) for b in moved) < 1 << 18
