"""Depthwise layers of bytes on maps whose edges fall between columns computed side by side."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from dovetail.gpu.triton.depthwise_bytes import leaves
from dovetail.ir import Array
from dovetail.numerics.reference import run_integer
from tests.gpu.layers import behind_pointwise
from tests.gpu.outside import printed
from tests.gpu.run_ptx import LAYERS, layer
from tests.gpu.stored import stored


def test_pixels_leave_where_a_column_that_reads_them_is_beyond_an_edge() -> None:
    """By going through all columns of all maps that there are."""
    for size, taps, stride, pad, side in product(range(1, 10), (1, 3, 5, 7), (1, 2), range(4), (1, 2, 4)):
        columns = (size + 2 * pad - taps) // stride + 1
        for pixel in range((side - 1) * stride + taps if columns > 0 and pad < taps else 0):
            reading = [first for first, q in product(range(0, columns, side), range(side))
                       if first + q < columns and 0 <= pixel - q * stride < taps]
            wanted = any(not 0 <= first * stride + pixel - pad < size for first in reading)
            # told of a pixel that is inside costs an instruction, not told of one that is outside costs the result
            assert bool(leaves(pixel, side, taps, stride, pad, columns, size)) >= wanted, (pixel, side, taps, stride, pad, size)


@pytest.mark.parametrize(("kernel", "stride", "width"), LAYERS)
def test_maps_with_edges_between_columns_are_those_of_the_reference(kernel: int, stride: int, width: int) -> None:
    graph = layer(kernel, stride, width)
    scheme = graph.tensors["x"].scheme
    assert scheme is not None
    inputs: dict[str, Array] = {
        "x": np.random.default_rng(0).integers(scheme.lo, scheme.hi + 1, (1, 3, 7, width)).astype(scheme.dtype)}
    ((name, wanted),) = run_integer(graph, inputs).items()
    made, call = behind_pointwise(graph, "int8", inputs["x"], "bytewise")
    made.launcher.bound(call, min(call.configs, key=lambda c: c["R"]))()
    assert np.array_equal(stored(made, name), wanted)


def test_what_compiles_for_a_gpu_computes_what_the_reference_does(tmp_path: Path) -> None:
    """Instructions that Triton's interpreter never sees, run one by one."""
    lines = printed("tests.gpu.run_ptx", 90, tmp_path).split("\n")
    assert lines == [*(f"{kernel} {stride} {width} 0" for kernel, stride, width in LAYERS), ""]
