"""The arithmetic behind the engines, where Python can check it for every value."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.fpga.engines.arithmetic import half_even
from dovetail.hardware.adders.digits import reciprocal
from dovetail.numerics.fixed import divide_half_even


@pytest.mark.parametrize("divisor", [3, 5, 7, 9, 25, 49, 147, 3969])
def test_reciprocals_divide_every_value_of_their_range_exactly(divisor: int) -> None:
    limit = 70_000
    multiplier, shift = reciprocal(divisor, limit)
    values = np.arange(limit + 1, dtype=np.int64)
    np.testing.assert_array_equal(values * multiplier >> shift, values // divisor)


@given(st.integers(-(10**9), 10**9), st.integers(1, 10**4))
def test_half_even_is_that_of_the_reference(value: int, divisor: int) -> None:
    assert half_even(value, divisor) == int(divide_half_even(np.float64(value), divisor))  # type: ignore[arg-type]
