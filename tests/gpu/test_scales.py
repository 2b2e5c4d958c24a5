"""Integers of any scale and zero point: whatever lies between two tensors, kernels round it as the reference does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.gpu.executor import compile_graph
from dovetail.ir import RELU, Array, Clip, Graph, Scheme
from dovetail.numerics.reference import run_integer
from tests.kernels.networks import GRAPHS, stem
from tests.strategies import Net, of_any_scale, quantized


def frames_of(graph: Graph, images: int) -> dict[str, Array]:
    rng = np.random.default_rng(1)
    found: dict[str, Array] = {}
    for name in graph.inputs:
        scheme = graph.tensors[name].scheme
        assert scheme is not None
        found[name] = rng.integers(scheme.lo, scheme.hi + 1, (images, *graph.shape(name)[1:])).astype(scheme.dtype)
    return found


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


def equal_to_the_reference(graph: Graph) -> None:
    frames = frames_of(graph, 3)
    found = compile_graph(graph, "int8", 2).run(frames)
    for tensor, value in run_integer(graph, frames).items():
        assert np.array_equal(found[tensor], value), tensor
        assert value.min() < value.max(), "nothing is said by values that are all the same"
