"""The cost model's clocks of words cut anew are those of the engine that cuts them."""

from __future__ import annotations

from math import gcd

from hypothesis import given
from hypothesis import strategies as st

from dovetail.fpga.engines.regroup import turns
from dovetail.hardware.folds import regrouped_clocks


@given(st.integers(1, 200), st.integers(1, 200), st.integers(1, 200))
def test_a_pixel_is_cut_anew_in_the_clocks_of_the_model(channels: int, taken: int, left: int) -> None:
    taken, left = min(taken, channels), min(left, channels)
    if taken == left:
        return
    unit = gcd(taken, left)
    assert regrouped_clocks(channels, taken, left) == len(turns(-(-channels // unit), taken // unit, left // unit))


def test_six_into_seven_takes_a_clock_more_than_either_has_words() -> None:
    assert regrouped_clocks(144, 6, 7) == 25
