"""The NumPy reference: what a graph computes, in floats or in exact integers.

Whatever a device computes is compared with `run_integer`; nothing else defines the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import ModelError
from dovetail.ir import Array, Conv, Gemm, Graph, MaxPool, Node, Real, Tensor
from dovetail.numerics.fixed import EXACT, integer_bounds, rescale


def run_float(graph: Graph, inputs: Mapping[str, Array], keep: bool = False) -> dict[str, Real]:
    """Evaluate a float graph in float64; every tensor when `keep`, else the outputs."""
    values: dict[str, Real] = {name: np.asarray(inputs[name], dtype=np.float64) for name in graph.inputs}
    for node in graph.nodes:
        xs = [values[t] for t in node.inputs]
        params = [c.array.astype(np.float64) for c in graph.params(node)]
        result = node.op.accumulate(xs, params) / node.op.divisor(tuple(x.shape for x in xs))
        clamp = node.op.bounds
        values[node.output] = result if clamp is None else np.clip(result, clamp.lo, clamp.hi)
    return values if keep else {name: values[name] for name in graph.outputs}


def run_integer(graph: Graph, inputs: Mapping[str, Array], keep: bool = False) -> dict[str, Array]:
    """Evaluate a quantized graph on stored integers; every tensor when `keep`, else the outputs."""
    values: dict[str, Array] = {}
    for name in graph.inputs:
        values[name] = check_stored(graph.tensors[name], np.asarray(inputs[name]))
    for node in graph.nodes:
        values[node.output] = run_node(graph, node, [values[t] for t in node.inputs])
    return values if keep else {name: values[name] for name in graph.outputs}


def run_node(graph: Graph, node: Node, inputs: Sequence[Array]) -> Array:
    """One quantized node on stored integers."""
    scheme = graph.tensors[node.output].scheme
    assert scheme is not None
    accumulator, exponents = accumulate(graph, node, inputs)
    if scheme.bits == 32:
        return accumulator.astype(scheme.dtype)
    shift = scheme.exponent - exponents
    result = rescale(accumulator, node.op.divisor(tuple(x.shape for x in inputs)), shift)
    lo, hi = integer_bounds(node.op.bounds, scheme)
    return np.clip(result, lo, hi).astype(scheme.dtype)


def accumulate(graph: Graph, node: Node, inputs: Sequence[Array]) -> tuple[Real, NDArray[np.int64]]:
    """The exact integer accumulator of a node and its exponents, broadcastable along channels.

    Inputs with different exponents are shifted left to the finest one first, so rounding happens once.
    """
    rank = len(graph.shape(node.output))
    exponents = [graph.tensors[t].scheme.exponents_along(len(graph.shape(t)))  # type: ignore[union-attr]
                 for t in node.inputs]
    finest = exponents[0]
    for other in exponents[1:]:
        finest = np.minimum(finest, other)
    xs = [np.ldexp(x.astype(np.float64), (e - finest).astype(np.int32)) for x, e in zip(inputs, exponents, strict=True)]
    params = [c.array.astype(np.float64) for c in graph.params(node)]
    result = node.op.accumulate(xs, params)
    if isinstance(node.op, MaxPool):
        result = np.maximum(result, -EXACT)  # a window of padding only; cannot be stored, saturates
    if np.abs(result).max(initial=0.0) >= EXACT:
        raise ModelError(f"node {node.name}: the accumulator exceeds 2**53; narrow the weights or the input range")
    out = np.broadcast_to(finest.reshape(-1)[0], (1,) * rank) if finest.size == 1 else finest
    if isinstance(node.op, Conv | Gemm):
        weights = graph.constants[node.params[0]].scheme
        assert weights is not None
        out = out.reshape(-1)[0] + np.asarray(weights.exponents).reshape((1, -1) + (1,) * (rank - 2))
    return result, np.asarray(out, dtype=np.int64)


def accumulator_exponents(graph: Graph, node: Node) -> tuple[int, ...]:
    """Exponent of a node's accumulator, one per output channel (or one in all); static."""
    finest = min(min(s.exponents) for t in node.inputs if (s := graph.tensors[t].scheme) is not None)
    if isinstance(node.op, Conv | Gemm):
        weights = graph.constants[node.params[0]].scheme
        assert weights is not None
        channels = node.op.filters if isinstance(node.op, Conv) else node.op.units
        exponents = weights.exponents if weights.axis is not None else weights.exponents * channels
        return tuple(finest + e for e in exponents)
    first = graph.tensors[node.inputs[0]].scheme
    assert first is not None
    return first.exponents if first.axis is not None else (finest,)


def check_stored(tensor: Tensor, x: Array) -> Array:
    """Stored integers as the tensor's type; values outside the scheme are refused by index."""
    scheme = tensor.scheme
    assert scheme is not None
    if x.shape[1:] != tensor.shape[1:]:
        raise ModelError(f"tensor {tensor.name}: values of shape {list(x.shape)}; {list(tensor.shape)} is needed "
                         "(any leading count of frames)")
    bad = (x < scheme.lo) | (x > scheme.hi)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ModelError(f"tensor {tensor.name}{list(index)}: {x[index]} is outside [{scheme.lo}, {scheme.hi}]")
    return x.astype(scheme.dtype)
