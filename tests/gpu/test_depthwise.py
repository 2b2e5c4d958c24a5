"""Every way a thread may go through rows, columns and taps of a depthwise layer gives the reference's results."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.ir import RELU, Array, Conv, Graph, Window
from dovetail.numerics.reference import run_float, run_integer
from tests.gpu.layers import behind_pointwise
from tests.gpu.stored import stored
from tests.strategies import Net, quantized

WAYS = [(1, 1, 4, 16, 0, 1), (4, 2, 2, 16, 0, 1), (2, 7, 1, 16, 0, 1), (7, 1, 4, 16, 0, 1),  # R, SIDE, TW, BC, EARLY, LOOPED
        (2, 4, 2, 16, 1, 0), (4, 1, 4, 16, 0, 0), (1, 7, 1, 16, 1, 0), (2, 2, 4, 8, 0, 0)]


def layer(kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]) -> Graph:
    """A pointwise layer, so that channels lie side by side, and a depthwise one of a channel more than the smallest tile has."""
    net = Net(sum(kernel) + 10 * sum(stride))
    pads = tuple(d * (k - 1) // 2 for k, d in zip(kernel, dilation, strict=True)) * 2
    x = net.add(Conv(9, Window((1, 1)), clamp=RELU), net.input((1, 3, 7, 7)))
    return net.graph(net.add(Conv(9, Window(kernel, stride, pads, dilation), groups=9, clamp=RELU), x))


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize(("kernel", "stride", "dilation"), [
    ((5, 5), (1, 1), (1, 1)), ((7, 7), (2, 2), (1, 1)), ((3, 3), (2, 1), (1, 1)), ((3, 5), (1, 2), (2, 2))])
def test_all_ways_through_a_depthwise_layer_agree(kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int],
                                                  kind: str) -> None:
    graph, rng = layer(kernel, stride, dilation), np.random.default_rng(0)
    if kind == "int8":
        graph = quantized(graph)
        scheme = graph.tensors["x"].scheme
        assert scheme is not None
        inputs: dict[str, Array] = {"x": rng.integers(scheme.lo, scheme.hi + 1, (1, 3, 7, 7)).astype(scheme.dtype)}
        (wanted,) = run_integer(graph, inputs).values()
    else:
        inputs = {"x": rng.normal(size=(1, 3, 7, 7)).astype(np.float32)}
        (wanted,) = run_float(graph, inputs).values()
    made, call = behind_pointwise(graph, kind, inputs["x"], "depthwise")
    place, = made.lowered.outputs.values()
    for way in WAYS:
        config = {**dict(zip(("R", "SIDE", "TW", "BC", "EARLY", "LOOPED"), way, strict=True)), "num_warps": 1, "num_stages": 2}
        made.launcher.place(place).fill_(7)
        made.launcher.bound(call, config)()
        found = stored(made, graph.outputs[0])
        if kind == "int8":
            assert np.array_equal(found, wanted), way
        else:
            assert np.allclose(found, wanted, rtol=1e-5, atol=1e-5), way
