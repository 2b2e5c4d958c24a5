"""Layers and the small network on which generators of hardware are compared: integers only, the same for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.hardware.adders.graph import IntMatrix
from dovetail.ir import RELU, Array, Constant, Conv, Graph, MaxPool, Node, Op, Scheme, Tensor, Window

SAME = (1, 1, 1, 1)
INPUT_EXPONENT, WEIGHT_EXPONENT, GAIN = -7, -7, 2
"""A layer's output is 2**GAIN times as coarse as its input."""


@dataclass(frozen=True, slots=True)
class Case:
    """A network as operators in a row, the (channels, height, width) it reads, and what a folded peer may work on at once."""

    name: str
    ops: tuple[Op, ...]
    shape: tuple[int, int, int]
    parallel: tuple[tuple[int, int], ...] = ((1, 1),)
    """Input and output channels at once; the best of these in area times cycles is compared."""


CASES = (
    Case("conv 3 to 8, 3x3", (Conv(8, Window((3, 3), pads=SAME)),), (3, 16, 16)),
    Case("depthwise 8, 3x3", (Conv(8, Window((3, 3), pads=SAME), 8),), (8, 16, 16)),
    Case("pointwise 16 to 16", (Conv(16, Window((1, 1))),), (16, 16, 16), ((1, 1), (4, 4))),
    Case("network", (Conv(8, Window((3, 3), pads=SAME), 1, RELU), MaxPool(Window((2, 2), (2, 2))), Conv(10, Window((1, 1)))),
         (3, 16, 16)),
)


def gaussian(shape: Sequence[int], seed: int = 0) -> Array:
    """Normally distributed int8 weights, every filter scaled to reach 127."""
    weights = np.random.default_rng(seed).normal(size=tuple(shape))
    peaks = np.abs(weights).max(axis=tuple(range(1, len(shape))), keepdims=True)
    return np.rint(weights * 127 / peaks).astype(np.int8)


def integer_network(ops: Sequence[Op], shape: tuple[int, int, int]) -> Graph:
    """A chain of operators on int8 with Gaussian weights, seeds counted from 0, and biases of zero."""
    exponent = INPUT_EXPONENT
    tensors = {"x": Tensor("x", (1, *shape), Scheme(8, True, (exponent,)))}
    nodes: list[Node] = []
    constants: dict[str, Constant] = {}
    at = "x"
    for index, op in enumerate(ops):
        sizes = op.param_shapes((tensors[at].shape,))
        params: tuple[str, ...] = ()
        if sizes:
            params = (f"weights{index}", f"bias{index}")
            constants[params[0]] = Constant(params[0], gaussian(sizes[0], len(constants) // 2),
                                            Scheme(8, True, (WEIGHT_EXPONENT,)))
            constants[params[1]] = Constant(params[1], np.zeros(sizes[0][0], np.int32),
                                            Scheme(32, True, (exponent + WEIGHT_EXPONENT,)))
            exponent += GAIN
        made = f"y{index}"
        tensors[made] = Tensor(made, op.infer((tensors[at].shape,)), Scheme(8, True, (exponent,)))
        nodes.append(Node(f"n{index}", op, (at,), params, made))
        at = made
    return Graph("layer", ("x",), (at,), tuple(nodes), tensors, constants)


def frames_for(graph: Graph, count: int, seed: int = 1) -> Array:
    """Random frames without the code -128, which a symmetric peer cannot read."""
    return np.random.default_rng(seed).integers(-127, 128, (count, *graph.shape("x")[1:])).astype(np.int8)


def dense_weights(graph: Graph, node: Node) -> Array:
    """A convolution's weights as (filters, all input channels, height, width): zero where groups do not reach."""
    assert isinstance(node.op, Conv)
    weights, channels, groups = graph.constants[node.params[0]].array, graph.shape(node.inputs[0])[1], node.op.groups
    full = np.zeros((node.op.filters, channels, *weights.shape[2:]), weights.dtype)
    for index, filter_ in enumerate(weights):
        first = index // (node.op.filters // groups) * (channels // groups)
        full[index, first:first + channels // groups] = filter_
    return full


def matrix_of(graph: Graph, node: Node) -> IntMatrix:
    """A convolution as a matrix over the taps of its window: (filters, channels * height * width)."""
    return dense_weights(graph, node).reshape(len(graph.constants[node.params[0]].array), -1).astype(np.int64)
