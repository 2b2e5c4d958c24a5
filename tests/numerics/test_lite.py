"""TensorFlow Lite's arithmetic as one division beside its own definition, step by step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import ModelError
from dovetail.ir import Clamp, Rounding, Scheme
from dovetail.ir.tensor import scheme_of_scales
from dovetail.ir.tflite.rounding import added, addition, away, divided, lite_bounds, mean, rounded_twice, twice
from dovetail.numerics.fixed import integer_bounds


def doubling_high_product(x: int, multiplier: int) -> int:
    """gemmlowp: 2 * x * multiplier / 2**32, halves away from zero but for -1/2, as C divides."""
    product = x * multiplier
    nudge = 1 << 30 if product >= 0 else 1 - (1 << 30)
    total = product + nudge
    return total >> 31 if total >= 0 else -(-total >> 31)


def shifted(x: int, places: int) -> int:
    """gemmlowp: x / 2**places, halves away from zero."""
    mask = (1 << places) - 1
    return (x >> places) + ((x & mask) > (mask >> 1) + (x < 0))


SUMS = st.one_of(st.integers(-(1 << 22), 1 << 22), st.integers(-(1 << 31) + 1, (1 << 31) - 1))


@given(SUMS, st.integers(1 << 30, (1 << 31) - 1), st.integers(0, 31))
def test_two_roundings_are_one_division(x: int, multiplier: int, places: int) -> None:
    wanted = shifted(doubling_high_product(x, multiplier), places)
    assert int(rounded_twice(multiplier, 31 + places).of(np.asarray([x], np.int64))[0]) == wanted


@given(st.integers(-(1 << 20), 1 << 20), st.integers(1 << 30, (1 << 31) - 1), st.integers(1, 8))
def test_multipliers_above_one_shift_first(x: int, multiplier: int, left: int) -> None:
    wanted = doubling_high_product(x << left, multiplier)
    assert int(rounded_twice(multiplier, 31 - left).of(np.asarray([x], np.int64))[0]) == wanted


@given(st.floats(2.0 ** -30, 2.0 ** 6))
def test_a_ratio_becomes_31_bits(ratio: float) -> None:
    made = twice(ratio)
    assert 1 << 30 <= made.multiplier < 1 << 31
    assert abs(made.multiplier / 2 ** made.shift / ratio - 1) <= 2.0 ** -31


def test_ratios_too_small_for_the_kernels_give_zero_and_too_large_ones_are_refused() -> None:
    assert not twice(2.0 ** -33).of(np.asarray([-(1 << 31), -1, 0, (1 << 31) - 1], np.int64)).any()
    with pytest.raises(ModelError, match=r"TensorFlow Lite's kernels shift by 1 to 62, check the scales"):
        twice(2.0 ** 31)


@given(st.floats(2.0 ** -14, 4.0))
def test_a_ratio_rounded_once_is_that_of_floats(ratio: float) -> None:
    x = np.arange(-3000, 3001, dtype=np.int64)
    real = x * ratio
    wanted = np.trunc(real + np.copysign(0.5, real)).clip(-100, 120)
    np.testing.assert_array_equal(away(ratio, -100, 120).of(x).clip(-100, 120), wanted)


@given(st.integers(1, 500))
def test_counts_divide_with_halves_away_from_zero(count: int) -> None:
    x, (above, below) = np.arange(-1000, 1001), divided(count)
    wanted = np.where(x > 0, (x + count // 2) // count, -((-x + count // 2) // count))
    np.testing.assert_array_equal((x + np.where(x < 0, below, above)) // count, wanted)


@given(st.floats(0.1, 4.0), st.integers(2, 130))
def test_a_mean_s_count_is_in_its_multiplier(ratio: float, count: int) -> None:
    exact = twice(ratio)
    more = min(count.bit_length() - 1, 62 - exact.shift)
    inexact = rounded_twice((exact.multiplier << more) // count, exact.shift + more)
    sums, made = np.arange(-255 * count, 255 * count + 1, dtype=np.int64), mean(ratio, count, 255, -128, 127)
    product = sums * made.multiplier + np.where(sums < 0, made.nudges[1], made.nudges[0])
    np.testing.assert_array_equal((product // (count << made.shift)).clip(-128, 127), inexact.of(sums).clip(-128, 127))


@pytest.mark.parametrize("seed", range(40))
def test_every_pair_of_integers_is_added_as_the_kernels_do(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scales, zeros = np.exp2(rng.uniform(-7, -3, 3)), rng.integers(-128, 128, 3)
    if seed % 4 == 0:
        scales = np.exp2(np.rint(np.log2(scales)))  # halves are hit exactly
    first, second, target = (scheme_of_scales(8, True, [float(np.float32(s))], zero=int(z), rounding=Rounding.TWICE)
                             for s, z in zip(scales, zeros, strict=True))
    a, b = (np.arange(-128, 128, dtype=np.int64) - s.zero for s in (first, second))
    made, lo, hi = addition(first, second, target), target.lo - target.zero, target.hi - target.zero
    total = a[:, None] * made.factors[0] + b[None, :] * made.factors[1]
    found = total + np.where(total < 0, made.nudges[1], made.nudges[0]) >> made.shift
    np.testing.assert_array_equal(found.clip(lo, hi), added(first, second, target, a[:, None], b[None, :]).clip(lo, hi))


@given(st.floats(-8, 8), st.floats(0.001, 0.3), st.integers(-128, 127))
def test_bounds_are_those_of_the_reference(bound: float, scale: float, zero: int) -> None:
    scheme = scheme_of_scales(8, True, [float(np.float32(scale))], zero=zero, rounding=Rounding.TWICE)
    for clamp in (Clamp(bound), Clamp(hi=bound), Clamp(min(bound, 0.0), max(bound, 0.0)), None):
        assert lite_bounds(clamp, scheme) == integer_bounds(clamp, scheme)


def test_rounding_is_part_of_a_scheme() -> None:
    plain, other = Scheme(8, True, (-4,)), Scheme(8, True, (-4,), rounding=Rounding.TWICE)
    assert plain != other
    assert plain.fixed_point
    assert not other.fixed_point
    assert str(other) == "s8~twicee-4"
