"""Weighted sums in float32, fast: ONNX Runtime's convolution with weights as operands, and NumPy's matrix product.

Weights are never copied into a model, so a network of any size costs no memory beyond its own. On integers
the sums are exact wherever `ranges.float32_exact` holds, in any order of addition.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.ir import Array, Coded, Conv, Graph, Node, Product, Real, Scheme, Shape
from dovetail.ir.onnx.builder import OnnxBuilder
from dovetail.ir.operators.lq import count_steps
from dovetail.numerics.fixed import integer_bounds
from dovetail.numerics.oracle import session
from dovetail.numerics.ranges import FLOAT32_EXACT
from dovetail.numerics.reference import run_node
from dovetail.numerics.requantize import along_channels, requantizer

Single = NDArray[np.float32]
CHUNK_ELEMENTS = 1 << 24
"""Float32 values held at once, about, by anything here that goes through many frames."""


@lru_cache(maxsize=1024)
def _convolution(op: Conv, source: Shape, weight: Shape, target: Shape) -> Any:
    """A session for one geometry; the leading size of `source` is free."""
    builder = OnnxBuilder("convolution")
    window = op.window
    builder.node("Conv", [builder.input("x", source), builder.input("w", weight)], "y", target, kernel_shape=window.kernel,
                 strides=window.stride, pads=window.pads, dilations=window.dilation, group=op.groups)
    return session(builder.serialize(["y"], 0), arena=False)


def weighted_sum(op: Product, x: Array, weight: Array) -> Single:
    """What a convolution or matrix product sums up, without bias and activation."""
    values, factors = (np.ascontiguousarray(a, dtype=np.float32) for a in (x, weight))
    if op.window is None:
        product: Single = values @ factors.T
        return product
    target = (1, *op.infer((x.shape,))[1:])
    runner = _convolution(op, (1, *x.shape[1:]), factors.shape, target)
    found: Single = runner.run(["y"], {"x": values, "w": factors})[0]
    return found


def channel_means(x: Array) -> Real:
    """The mean of each channel (index of axis 1)."""
    return np.asarray(x.mean(axis=tuple(d for d in range(x.ndim) if d != 1), dtype=np.float64))


def frames_at_once(elements: int) -> int:
    """How many frames of so many float32 values fit into one chunk."""
    return max(1, CHUNK_ELEMENTS // max(1, elements))


def run_stored_node(graph: Graph, node: Node, inputs: list[Array], exact: bool) -> Array:
    """`reference.run_node`, bit for bit, and much faster for weighted sums that float32 computes exactly (`exact`)."""
    target = graph.tensors[node.output].scheme
    if exact and node.op.layer and node.op.code_bits:
        return np.concatenate([_codes(graph, node, part) for part in _parts(graph, node, inputs[0])])
    if not (exact and node.op.layer and target is not None and target.bits < 32
            and all(s is not None and s.fixed_point for s in (graph.tensors[node.inputs[0]].scheme, target))):
        return run_node(graph, node, inputs)
    how = requantizer(graph, node)
    if set(how.multipliers) != {1}:
        return run_node(graph, node, inputs)
    shifts = np.asarray(how.shifts)
    return np.concatenate([_rounded_sum(graph, node, part, shifts, target) for part in _parts(graph, node, inputs[0])])


def _parts(graph: Graph, node: Node, x: Array) -> list[Array]:
    step = frames_at_once(graph.tensors[node.inputs[0]].size + 2 * graph.tensors[node.output].size)
    return [x[i:i + step] for i in range(0, len(x), step)]


def _sum(graph: Graph, node: Node, x: Array) -> Single:
    """The weighted sum of a node without its bias; of codes plane by plane, with the integers its bits are multiplied with."""
    params = [c.array for c in graph.params(node)]
    if not isinstance(node.op, Coded):
        assert node.op.product is not None
        return weighted_sum(node.op.product, x, params[0])
    total, *rest = (weighted_sum(node.op.body, node.op.plane(x, j), node.op.weights(params[0], params[1], j))
                    for j in range(node.op.input_planes))
    for part in rest:
        total += part
    return total


def _codes(graph: Graph, node: Node, x: Array) -> Array:
    """Codes of exact sums; a threshold beyond 2**24, which no sum reaches, stays beyond them as a float32."""
    limits = np.clip(graph.params(node)[2].array, -FLOAT32_EXACT, FLOAT32_EXACT).astype(np.float32)
    return count_steps(_sum(graph, node, x), limits).astype(graph.scheme(node.output).dtype)


def _rounded_sum(graph: Graph, node: Node, x: Array, shifts: NDArray[np.int64], target: Scheme) -> Array:
    bias = graph.params(node)[2 if node.op.coded else 1]
    total = _sum(graph, node, x)
    total += along_channels(tuple(int(b) for b in bias.array), total.ndim).astype(np.float32)
    total *= np.ldexp(np.float32(1), -along_channels(tuple(int(s) for s in shifts), total.ndim).astype(np.int32))
    np.rint(total, out=total)
    np.clip(total, *integer_bounds(node.op.bounds, target), out=total)
    return total.astype(target.dtype)
