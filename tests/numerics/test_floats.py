"""Convolutions in single precision: one order of operations, followed to the bit, and refused where it would leave its range."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.errors import UnsupportedError, UsageError
from dovetail.ir import Window
from dovetail.numerics.floats import FloatFilters, convolve, floats_of, words_of
from dovetail.numerics.lq import Floats

WINDOW = Window((3, 2), (2, 1), (1, 0, 0, 1))


def layer(seed: int, channels: int = 3) -> tuple[FloatFilters, Floats]:
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(2, channels, 3, 2)).astype(np.float32)
    x = np.maximum(rng.normal(size=(1, channels, 5, 4)), 0).astype(np.float32)
    return FloatFilters(WINDOW, weights, bias=rng.normal(size=2).astype(np.float32)), x


def one_by_one(filters: FloatFilters, x: Floats, at_once: int, f: int, row: int, column: int) -> np.float32:
    """The stated order for one output, a number at a time."""
    assert filters.bias is not None
    padded = np.pad(x[0], ((0, 0), (1, 0), (0, 1)))
    products = [padded[c, 2 * row + i, column + j] * filters.weights[f, c, i, j]
                for i in range(3) for j in range(2) for c in range(x.shape[1])]
    beats = []
    for at in range(0, len(products), at_once):
        a = products[at:at + at_once]
        beats.append(a[0] if at_once == 1 else (a[0] + a[1]) + a[2])
    sums: dict[int, np.float32] = {}
    for b, beat in enumerate(beats):
        place = (b - len(beats)) % 8
        sums[place] = sums[place] + beat if place in sums else beat
    s = [sums[k] for k in range(8)]
    total = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
    return np.float32(max(total + filters.bias[f], np.float32(0)))


def test_every_output_is_what_the_stated_order_gives_and_no_other_order() -> None:
    filters, x = layer(1)
    found = convolve(filters, x, 1)
    for f, row, column in np.ndindex(found.shape[1:]):
        assert words_of(found[0, f, row, column]) == words_of(one_by_one(filters, x, 1, f, row, column))
    exact = np.asarray([[[max(0.0, float((np.pad(x[0], ((0, 0), (1, 0), (0, 1)))[:, 2 * r:2 * r + 3, c:c + 2].astype(np.float64)
                                          * filters.weights[f]).sum()) + float(filters.bias[f])) for c in range(4)]
                         for r in range(2)] for f in range(2)] if filters.bias is not None else [])
    np.testing.assert_allclose(found[0], exact, atol=1e-5)
    wide, many = layer(2, 12)
    assert np.any(convolve(wide, many, 1) != convolve(wide, many, 3)), "the last bits tell orders apart"
    for f, row, column in np.ndindex(found.shape[1:]):
        assert words_of(convolve(wide, many, 3)[0, f, row, column]) == words_of(one_by_one(wide, many, 3, f, row, column))


def test_look_ups_and_thresholds_count_what_products_and_comparisons_give() -> None:
    rng = np.random.default_rng(3)
    codes, x = rng.integers(0, 4, (2, 2, 3, 2)).astype(np.uint8), rng.integers(0, 4, (1, 2, 5, 4)).astype(np.uint8)
    values, levels = rng.normal(size=(2, 4)).astype(np.float32), np.asarray([0, 0.5, 1.1, 1.6], dtype=np.float32)
    steps = np.asarray([[-1, 0, 1]] * 2, dtype=np.float32)
    tables = FloatFilters(WINDOW, codes, values[:, :, None] * levels, steps)
    meant = values[np.arange(2)[:, None, None, None], codes]
    found = convolve(tables, x, 1)
    np.testing.assert_array_equal(found, convolve(FloatFilters(WINDOW, meant, steps=steps), levels[x], 1))
    assert found.dtype == np.uint8
    assert len(np.unique(found)) > 2
    assert (tables.input_bits, tables.weight_bits, tables.output_bits) == (2, 2, 2)
    np.testing.assert_array_equal(floats_of(words_of(values)), values)


def test_layers_that_cannot_be_followed_are_refused() -> None:
    filters, x = layer(4)
    with pytest.raises(UsageError, match="2 of 3 channels at once; it must divide them"):
        convolve(filters, x, 2)
    with pytest.raises(UsageError, match="6 beats of a window; at least 8 are needed, so take fewer channels at once"):
        convolve(filters, x, 3)
    with pytest.raises(UnsupportedError, match="float convolution: products from"):
        convolve(filters, x * np.float32(2.0**120), 1)
    with pytest.raises(UnsupportedError, match="float convolution: products from"):
        convolve(filters, x * np.float32(2.0**-110), 1)
    with pytest.raises(UsageError, match="steps and bias; a layer ends in exactly one"):
        FloatFilters(WINDOW, filters.weights)
    with pytest.raises(UsageError, match="weights are uint8; float32, or codes with tables"):
        FloatFilters(WINDOW, filters.weights.astype(np.uint8), bias=filters.bias)
    with pytest.raises(UnsupportedError, match="dilation"):
        FloatFilters(Window((3, 2), dilation=(2, 2)), filters.weights, bias=filters.bias)
    with pytest.raises(UsageError, match="a product of input code 0 is not zero"):
        FloatFilters(WINDOW, filters.weights.astype(np.uint8), np.ones((2, 4, 4), dtype=np.float32), bias=filters.bias)
