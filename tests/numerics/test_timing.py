"""Kernels of the processor under a clock by hand, and under their own."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from dovetail.ir import RELU, Conv, Window
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.timing import kernel_seconds, run_seconds, seeded_inputs, timed_session
from tests.strategies import Net


@pytest.fixture(scope="module")
def content() -> bytes:
    net = Net(1)
    return to_onnx(net.graph(net.add(Conv(2, Window((3, 3)), 1, RELU), net.input((1, 3, 8, 9)))))


def test_what_is_done_between_runs_is_not_counted(content: bytes) -> None:
    runner, seconds, done = timed_session(content, 1), count(), list[int]()

    def between() -> None:
        done.append(next(seconds))

    times = run_seconds(runner, seeded_inputs(runner), 4, between, clock=lambda: float(next(seconds)))
    assert times == [1.0] * 4
    assert done == [0, 3, 6, 9]
    assert run_seconds(runner, seeded_inputs(runner), 2, clock=lambda: float(next(seconds))) == [1.0, 1.0]


def test_inputs_are_drawn_in_the_shapes_of_the_model(content: bytes) -> None:
    first, second = (seeded_inputs(timed_session(content, 1)) for _ in range(2))
    assert {name: (x.shape, x.dtype) for name, x in first.items()} == {"x": ((1, 3, 8, 9), np.dtype(np.float32))}
    np.testing.assert_array_equal(first["x"], second["x"])


@pytest.mark.parametrize(("runs", "kept"), [(1, 1), (2, 1), (7, 4)])
def test_kernels_are_timed_without_their_first_runs(content: bytes, runs: int, kept: int) -> None:
    found = kernel_seconds(content, seeded_inputs(timed_session(content, 1)), 1, runs)
    assert len(found) >= 1
    assert {len(times) for _, times in found} == {kept}
    assert all(0 <= t < 10 for _, times in found for t in times)
