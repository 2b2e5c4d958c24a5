"""Closed forms of streaming engines against step-by-step simulation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dovetail.errors import ModelError
from dovetail.hardware.streaming import Raster, high_water, issue_times, output_fifo_depth
from dovetail.ir import Window


@st.composite
def rasters(draw: st.DrawFn) -> Raster:
    pair = st.tuples(st.integers(1, 4), st.integers(1, 4))
    small = st.tuples(st.integers(1, 3), st.integers(1, 3))
    pads = draw(st.tuples(*[st.integers(0, 3)] * 4))
    window = Window(draw(pair), draw(small), pads, draw(small))
    raster = Raster(window, draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    try:
        _ = raster.output_size
    except ModelError:
        assume(False)
    return raster


def bottom_right(raster: Raster, row: int, column: int) -> tuple[int, int]:
    """Input position of the last tap of an output; may lie in the padding."""
    (sh, sw), (rh, rw), pads = raster.window.stride, raster.window.reach, raster.window.pads
    return row * sh + rh - 1 - pads[0], column * sw + rw - 1 - pads[1]


@given(rasters())
def test_outputs_leave_when_their_last_tap_has_passed(raster: Raster) -> None:
    rows, columns = raster.output_size
    expected = []
    for row in range(rows):
        for column in range(columns):
            y, x = bottom_right(raster, row, column)
            expected.append(y * raster.width + x)
    assert raster.output_steps().tolist() == expected
    assert (raster.first, raster.last) == (expected[0], expected[-1])
    assert raster.steps == max(raster.height * raster.width, expected[-1] + 1)
    assert raster.flush == raster.steps - raster.height * raster.width
    assert raster.masks_suffice == (expected[0] >= 0 and all(b > a for a, b in pairwise(expected)))


@given(rasters())
def test_counters_are_wide_enough_for_what_they_count_and_no_wider(raster: Raster) -> None:
    """Steps where the frame outlasts its pixels, rows, columns and the longest wait for an output, the place in a line."""
    rows, columns = raster.output_size
    assume(raster.masks_suffice and rows > 1 and columns > 1)
    steps = raster.output_steps()
    waits = [*(np.diff(steps) - 1).tolist(), int(steps[0]), raster.steps - 1 - int(steps[-1]) + int(steps[0])]
    counted = [max(waits), rows - 1, columns - 1] if raster.counted else []
    line = [] if raster.line_in_registers else [raster.width - 1]
    assert raster.counter_bits == sum(n.bit_length() for n in (*counted, *line, raster.steps - 1 if raster.flush else 0))


@given(rasters())
def test_masks_name_exactly_the_taps_inside_the_input(raster: Raster) -> None:
    rows, columns = raster.output_size
    (sh, sw), (dh, dw), pads = raster.window.stride, raster.window.dilation, raster.window.pads
    outside = False
    for tap in range(raster.window.kernel[0]):
        start, stop = raster.inside(0, tap)
        inside = [0 <= r * sh + tap * dh - pads[0] < raster.height for r in range(rows)]
        assert inside == [start <= r < stop for r in range(rows)]
        outside |= not all(inside)
    for tap in range(raster.window.kernel[1]):
        start, stop = raster.inside(1, tap)
        inside = [0 <= c * sw + tap * dw - pads[1] < raster.width for c in range(columns)]
        assert inside == [start <= c < stop for c in range(columns)]
        outside |= not all(inside)
    assert raster.masked == outside


@given(st.lists(st.integers(0, 9), min_size=2, max_size=8), st.integers(0, 4))
def test_steps_follow_beats_and_each_other(gaps: list[int], flush: int) -> None:
    arrivals = np.cumsum(np.array(gaps)).reshape(1, -1)
    beats = arrivals.shape[1]
    issued = issue_times([arrivals], [np.arange(beats)], beats + flush)[0]
    clock = -1
    for step in range(beats + flush):
        clock = max(clock + 1, int(arrivals[0, step]) if step < beats else 0)
        assert issued[step] == clock


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 20)), min_size=1, max_size=20))
def test_the_high_water_mark_is_what_a_counter_would_see(moves: list[tuple[int, int]]) -> None:
    pushes = np.cumsum([1 + gap for gap, _ in moves])
    pops = np.maximum.accumulate(pushes + np.array([1 + stay for _, stay in moves]))
    pops = np.maximum.accumulate(pops - np.arange(len(pops))) + np.arange(len(pops))
    most = max(sum(1 for a, b in zip(pushes, pops, strict=True) if a <= clock < b or a == clock) for clock in pushes)
    assert abs(high_water(pushes, pops) - most) <= 1
    assert high_water(pushes, pops) >= most


@pytest.mark.parametrize(("stages", "steps", "outputs", "depth"), [(5, 100, 100, 15), (5, 100, 1, 7), (9, 4, 1, 10)])
def test_output_fifos_hold_what_can_be_in_flight(stages: int, steps: int, outputs: int, depth: int) -> None:
    assert output_fifo_depth(np.arange(steps)[-outputs:], steps, stages) == depth


def test_padding_costs_flush_steps_but_no_beats() -> None:
    raster = Raster(Window((3, 3), pads=(1, 1, 1, 1)), 224, 224)
    assert raster.steps == 224 * 224 + 225
    assert raster.stages == 5
    assert Raster(Window((1, 1)), 7, 7).stages == 1
