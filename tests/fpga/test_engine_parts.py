"""Parts of engines whose results Python can read off: constants of filters without weights, words of floats, refused folds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.errors import UsageError
from dovetail.fpga.engines.arithmetic import biased, rescaled
from dovetail.fpga.engines.float_lane import constants_of
from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.rtl.expressions import Const, const
from dovetail.fpga.rtl.modules import Module
from dovetail.hardware.folds import Fold
from dovetail.ir import Gemm, Window
from dovetail.numerics.floats import FloatFilters, floats_of
from tests.fpga import test_lq


@given(st.integers(-(1 << 20), 1 << 20), st.integers(1, 9), st.integers(1, 9), st.integers(-6, 12), st.integers(-20, 20))
def test_a_sum_that_never_changes_is_rounded_when_it_is_printed(total: int, multiplier: int, divisor: int, shift: int,
                                                               zero: int) -> None:
    made = rescaled(Pipeline(Module("m")), "n", Staged(const(total), 3), (multiplier, divisor, shift), zero, (-128, 127))
    exact = round(Fraction(total * multiplier, divisor) / Fraction(2)**shift) + zero  # Python rounds halves to even
    assert isinstance(made.value, Const)
    assert made.value.lo == min(max(exact, -128), 127)
    assert made.stage == 0


def test_a_filter_without_weights_is_its_bias_from_the_first_stage() -> None:
    made, shift = biased(Pipeline(Module("m")), "n", None, [], 9, 4)
    assert isinstance(made.value, Const)
    assert (made.value.lo, made.stage, shift) == (13, 0, 0)


def test_thresholds_of_zero_are_stored_as_minus_zero_and_others_as_they_are() -> None:
    """A sum of -0 reaches a threshold of 0, which comparing bits would not say."""
    steps = np.asarray([[0.0, 1.0, 2.5], [-1.5, 0.0, 1.0]], np.float32)
    filters = FloatFilters(Window((1, 1)), np.ones((2, 1, 1, 1), np.float32), steps=steps)
    found = constants_of(filters)
    assert found.products == ()
    assert [name for name, _ in found.ends] == ["step_0", "step_1", "step_2"]
    stored = np.asarray([words for _, words in found.ends], np.uint32).T
    assert (stored[steps == 0] == 1 << 31).all()
    np.testing.assert_array_equal(floats_of(stored), steps)


def test_entries_of_products_leave_out_input_code_zero() -> None:
    tables = np.asarray([[[0.0, 0.5, 1.5], [0.0, -0.5, -1.5]]], np.float32)
    filters = FloatFilters(Window((1, 1)), np.zeros((1, 1, 1, 1), np.uint8), tables, bias=np.asarray([0.25], np.float32))
    found = constants_of(filters)
    assert [name for name, _ in found.products] == ["entry_0_1", "entry_0_2", "entry_1_1", "entry_1_2"]
    stored = np.asarray([words for _, words in found.products], np.uint32)
    np.testing.assert_array_equal(floats_of(stored)[:, 0], [0.5, 1.5, -0.5, -1.5])
    assert [name for name, _ in found.ends] == ["bias"]


@pytest.mark.parametrize(("fold", "said"), [(Fold(1, 5, 1), "1x5x1"), (Fold(1, 4, 2, 2), "1x4x2, 2 products a block")])
def test_folds_that_codes_cannot_take_are_refused(fold: Fold, said: str) -> None:
    with pytest.raises(UsageError, match=f"a fold of {said} for 12 input channels of codes; it must divide them, and no "
                                         "multiplier holds two products"):
        test_lq.layer(1, Gemm(5), (5, 12), (1, 12), (2, 2, 2), fold=fold)
