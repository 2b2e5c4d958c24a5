"""The NumPy reference: what a graph computes, in floats or in exact integers.

Whatever a device computes is compared with `run_integer`; nothing else defines the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from dovetail.errors import ModelError
from dovetail.ir import Array, Function, Graph, Lookup, Node, Opaque, Real, Tensor
from dovetail.ir.operators.lq import count_steps
from dovetail.numerics.fixed import EXACT, dequantize, integer_bounds, quantize
from dovetail.numerics.oracle import run_function, run_onnx
from dovetail.numerics.requantize import LARGEST_SUM, Requantizer, along_channels, requantizer, rounded

Values = Callable[[Mapping[str, Array]], Iterable[tuple[str, Array]]]
"""What computes tensors, one after the other, from the frames of a graph's inputs."""


def batches(graph: Graph, inputs: Mapping[str, Array]) -> Iterator[tuple[range, dict[str, Array]]]:
    """The frames in batches of the graph's own size, with the numbers of those in each.

    The last frame fills up a batch that the frames do not; `own_frames` drops what it leads to.
    """
    lead = {name: graph.shape(name)[0] if graph.shape(name) else 1 for name in graph.inputs}
    batch, frames = lead[graph.inputs[0]], len(inputs[graph.inputs[0]])
    for turn, start in enumerate(range(0, frames, batch)):
        rows = {name: np.minimum(np.arange(turn * n, (turn + 1) * n), len(inputs[name]) - 1) for name, n in lead.items()}
        yield range(start, min(start + batch, frames)), {
            name: np.asarray(inputs[name])[rows[name]].reshape(graph.shape(name)) for name in lead}


def own_frames(x: Array, own: Sequence[int], frames: int) -> Array:
    """Of values computed for `frames` frames, those of the frames numbered in `own`."""
    apart = np.atleast_1d(x)
    whole = apart.reshape(frames, len(apart) // frames, *apart.shape[1:]) if len(apart) % frames == 0 else apart[None]
    return whole[list(own)].reshape(-1, *apart.shape[1:]) if len(whole) == frames else apart


def frame_by_frame(graph: Graph, inputs: Mapping[str, Array],
                   run: Callable[[Mapping[str, Array]], dict[str, Array]]) -> dict[str, Array]:
    """Run a graph whose batch is fixed on one batch of frames after another, and put the results together."""
    parts: dict[str, list[Array]] = {}
    for rows, chunk in batches(graph, inputs):
        for name, x in run(chunk).items():
            parts.setdefault(name, []).append(own_frames(x, range(len(rows)), graph.shape(graph.inputs[0])[0]))
    return {name: np.concatenate(found) for name, found in parts.items()}


def collect_outputs(graph: Graph, chunks: Iterable[tuple[range, Mapping[str, Array]]], values: Values,
                    done: Callable[[int], None] | None) -> dict[str, Array]:
    """The outputs of all chunks of frames, put together; `done` hears after how many frames."""
    parts: dict[str, list[Array]] = {name: [] for name in graph.outputs}
    for rows, chunk in chunks:
        for name, x in values(chunk):
            if name in parts:
                parts[name].append(own_frames(x, range(len(rows)), len(chunk[graph.inputs[0]])))
        if done is not None:
            done(rows.stop)
    return {name: np.concatenate(found) for name, found in parts.items()}


def fixes_batch(graph: Graph) -> bool:
    """Whether foreign nodes, with their shapes fixed, are among the nodes."""
    return any(n.op.foreign for n in graph.nodes)


def run_float(graph: Graph, inputs: Mapping[str, Array], keep: bool = False) -> dict[str, Real]:
    """Evaluate a float graph in float64; every tensor when `keep`, else the outputs."""
    if fixes_batch(graph) and len(inputs[graph.inputs[0]]) != graph.shape(graph.inputs[0])[0]:
        return frame_by_frame(graph, inputs, lambda one: run_float(graph, one, keep))
    values: dict[str, Real] = {name: np.asarray(inputs[name], dtype=_working(graph.tensors[name])) for name in graph.inputs}
    for node in graph.nodes:
        values[node.output] = run_float_node(graph, node, [values[t] for t in node.inputs])
    return values if keep else {name: values[name] for name in graph.outputs}


def run_float_node(graph: Graph, node: Node, xs: Sequence[Array]) -> Array:
    """One node of a float graph, in float64 where floats are computed; where its file quantizes a foreign node, on that grid."""
    if node.op.in_floats:
        made, result = graph.tensors[node.output], run_foreign(graph, node, xs)
        if made.scheme is None:
            return result.astype(_working(made))
        return real_values(made, quantize(result.astype(np.float64), made.scheme))
    params = [c.array.astype(np.float64) for c in graph.params(node)]
    divisor = node.op.divisor(tuple(x.shape for x in xs))
    result = node.op.accumulate(xs, params)
    result = result if isinstance(divisor, int) and divisor == 1 else result / divisor
    clamp = node.op.bounds
    return result if clamp is None else np.clip(result, clamp.lo, clamp.hi)


def _working(tensor: Tensor) -> np.dtype[np.generic]:
    """Floats are widened to float64 on the way; indices and flags stay what they are."""
    return np.dtype(np.float64) if tensor.dtype.kind == "f" else tensor.dtype


def run_foreign(graph: Graph, node: Node, inputs: Sequence[Array]) -> Array:
    """A foreign node or a formula on real values, in the types it was exported with."""
    typed = [np.asarray(x).astype(np.dtype(graph.tensors[t].element)) for x, t in zip(inputs, node.inputs, strict=True)]
    if isinstance(node.op, Function):
        return run_function(node.op, typed[0], [c.array for c in graph.params(node)])
    assert isinstance(node.op, Opaque)
    return run_onnx(node.op.content, {f"x{i}": x for i, x in enumerate(typed)})[f"y{node.op.index}"]  # of one frame


def run_integer(graph: Graph, inputs: Mapping[str, Array], keep: bool = False) -> dict[str, Array]:
    """Evaluate a quantized graph on stored integers; every tensor when `keep`, else the outputs."""
    if fixes_batch(graph) and len(inputs[graph.inputs[0]]) != graph.shape(graph.inputs[0])[0]:
        return frame_by_frame(graph, inputs, lambda one: run_integer(graph, one, keep))
    values = {name: check_stored(graph.tensors[name], np.asarray(inputs[name])) for name in graph.inputs}
    for node in graph.nodes:
        values[node.output] = run_node(graph, node, [values[t] for t in node.inputs])
    return values if keep else {name: values[name] for name in graph.outputs}


def run_node(graph: Graph, node: Node, inputs: Sequence[Array]) -> Array:
    """One quantized node on stored integers; foreign nodes compute in floats between dequantized and quantized values."""
    scheme = graph.tensors[node.output].scheme
    if node.op.in_floats:
        result = run_foreign(graph, node, [real_values(graph.tensors[t], x) for t, x in zip(node.inputs, inputs, strict=True)])
        return result if scheme is None else quantize(result.astype(np.float64), scheme).astype(scheme.dtype)
    if scheme is None:
        return node.op.accumulate([np.asarray(x) for x in inputs], ())
    if isinstance(node.op, Lookup):
        return node.op.look_up(inputs[0], graph.params(node)[0].array).astype(scheme.dtype)
    if node.op.code_bits:
        return run_coding(graph, node, inputs[0]).astype(scheme.dtype)
    how = requantizer(graph, node)
    total = accumulate(graph, node, inputs, how)
    if scheme.bits == 32:
        return total.astype(scheme.dtype)
    result = rounded(total, node.op.divisor(tuple(x.shape for x in inputs)), how, node)
    lo, hi = integer_bounds(node.op.bounds, scheme)
    return np.clip(result, lo, hi).astype(scheme.dtype)


def run_coding(graph: Graph, node: Node, x: Array) -> Array:
    """The codes of a node's integers: of its exact sums, or of what it reads."""
    params = [c.array for c in graph.params(node)]
    if not node.op.layer:
        return count_steps(x, params[0])
    return count_steps(node.op.accumulate([x.astype(np.float64)], [p.astype(np.float64) for p in params]), params[2])


def real_values(tensor: Tensor, x: Array) -> Array:
    """What a tensor's values mean: dequantized where it has a scheme."""
    return x if tensor.scheme is None else dequantize(x.astype(np.float64), tensor.scheme)


def accumulate(graph: Graph, node: Node, inputs: Sequence[Array], how: Requantizer) -> Real:
    """The exact integer sum of a node, before its one rounding."""
    xs = [(x.astype(np.float64) - zero) * along_channels(factor, x.ndim).astype(np.float64)
          for x, zero, factor in zip(inputs, how.zeros, how.factors, strict=True)]
    total = node.op.accumulate(xs, [c.array.astype(np.float64) for c in graph.params(node)])
    if node.op.largest:
        total = np.maximum(total, -EXACT if set(how.multipliers) == {1} else 1.0 - LARGEST_SUM)  # padding alone: saturates
    elif np.abs(total).max(initial=0.0) >= EXACT:
        raise ModelError(f"node {node.name}: the accumulator exceeds 2**53; narrow the weights or the input range")
    return total


def check_stored(tensor: Tensor, x: Array) -> Array:
    """Stored values as the tensor's type; integers outside the scheme are refused by index."""
    scheme = tensor.scheme
    if x.shape[1:] != tensor.shape[1:]:
        raise ModelError(f"tensor {tensor.name}: values of shape {list(x.shape)}; {list(tensor.shape)} is needed "
                         "(any leading count of frames)")
    if scheme is None:
        return x.astype(tensor.dtype)
    bad = (x < scheme.lo) | (x > scheme.hi)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ModelError(f"tensor {tensor.name}{list(index)}: {x[index]} is outside [{scheme.lo}, {scheme.hi}]")
    return x.astype(scheme.dtype)
