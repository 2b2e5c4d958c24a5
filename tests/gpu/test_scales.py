"""Integers of any scale and zero point: whatever lies between two tensors, kernels round it as the reference does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dovetail.errors import UnsupportedError
from dovetail.gpu.executor import Compiled, compile_graph
from dovetail.ir import RELU, Add, Clip, Concat, Conv, Graph, Mul, Op, Scheme, Window
from dovetail.kernels.layers import LOOKED_UP
from dovetail.kernels.lower import lower
from dovetail.numerics.reference import run_integer
from dovetail.platform.gpu_specification import specification
from tests.gpu.test_executor import every_tile
from tests.kernels.networks import GRAPHS, SAME, activated, function, stem
from tests.scales import with_arbitrary_scales
from tests.strategies import Net, quantized, stored_inputs

of_any_scale = partial(with_arbitrary_scales, seed=0, of_movements=True)


@pytest.mark.usefixtures("kept_inside")
@pytest.mark.parametrize("name", ["pooled", "gated", "inverted", "inverted stride 2", "classifier", "fire", "sums", "shuffled",
                                  "unit"])
def test_scales_that_are_no_powers_of_two_give_the_reference_s_integers(name: str) -> None:
    equal_to_the_reference(of_any_scale(quantized(GRAPHS[name]())))


@pytest.mark.parametrize("exponent", [-9, -4, -1, 0])
def test_a_limit_brings_bytes_to_finer_and_coarser_steps(exponent: int) -> None:
    net = Net(23)
    graph = quantized(net.graph(net.add(Clip(RELU), stem(net))))
    tensors = dict(graph.tensors)
    (output,) = graph.outputs
    tensors[output] = replace(tensors[output], scheme=Scheme(8, False, (exponent,)))
    equal_to_the_reference(replace(graph, tensors=tensors))


@pytest.mark.parametrize("op", [Add(), Mul(), Concat()], ids=["sum", "product", "side by side"])
def test_scales_too_far_apart_for_64_bits_are_refused_by_name(op: Op) -> None:
    net = Net(26)
    x = stem(net)
    graph = quantized(net.graph(net.add(op, x, net.add(Conv(12, Window((1, 1))), x), name="joint")))
    far = {graph.nodes[-1].inputs[0]: 30, graph.nodes[-1].output: -40}
    tensors = {name: replace(t, scheme=Scheme(8, True, (far[name],))) if name in far else t for name, t in graph.tensors.items()}
    with pytest.raises(UnsupportedError, match="node joint: between scales so far apart that sums exceed 64 bits"):
        lower(replace(graph, tensors=tensors), "int8", specification("h200"))


def equal_to_the_reference(graph: Graph) -> Compiled:
    """The network, whose results were compared."""
    frames, made = stored_inputs(graph, 3, seed=1), compile_graph(graph, "int8", 2)
    found = made.run(frames)
    for tensor, value in run_integer(graph, frames).items():
        assert np.array_equal(found[tensor], value), tensor
        assert value.min() < value.max(), "nothing is said by values that are all the same"
    return made


@pytest.mark.usefixtures("kept_inside")
@pytest.mark.parametrize(("name", "scales"), [("GELU", lambda graph: graph), ("HardSwish", of_any_scale)],
                         ids=["own scales", "any scale"])
def test_a_table_joins_the_layer_before_it(name: str, scales: Callable[[Graph], Graph]) -> None:
    graph = scales(quantized(activated(name)))
    made = equal_to_the_reference(graph)
    assert {call.kernel for call, _ in made.calls if call.constants.get("ACT") == LOOKED_UP} == {"conv", "bytewise"}
    assert sum(call.kernel == "looked_up" for call, _ in made.calls) == 1  # the one behind an addition
    every_tile(made, {"conv2", "bytewise2", "vector2"}, 0)


def test_a_table_joins_a_depthwise_layer_whose_channels_are_no_words() -> None:
    net = Net(24)
    x = net.add(Conv(7, Window((3, 3), (1, 1), SAME), groups=7), net.add(Conv(7, Window((1, 1))), net.input((1, 3, 9, 7))))
    graph = quantized(net.graph(net.add(function("SiLU"), x)))
    assert [call.kernel for call, _ in equal_to_the_reference(graph).calls] == ["conv", "depthwise"]


@pytest.mark.usefixtures("kept_inside")
def test_a_table_joins_a_layer_whose_weights_are_held() -> None:
    net = Net(25)
    graph = quantized(net.graph(net.add(function("GELU"), net.add(Conv(24, Window((1, 1))), stem(net, filters=40)))))
    every_tile(equal_to_the_reference(graph), {"deep2"}, 0)
