"""Graph rewrites, each a function from graph to graph with a stated before and after."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

import numpy as np

from dovetail.ir import Clip, Conv, Gemm, Graph, Node, PixelShuffle, Reshape, Transpose, Window
from dovetail.ir.tensor import Constant, Real, integer_weights


def drop_still(graph: Graph) -> Graph:
    """X → Reshape to the shape it has → Y  -->  X → Y."""
    still = {n.output: n.inputs[0] for n in graph.nodes if n.op.still and n.output not in graph.outputs
             and replace(graph.tensors[n.output], name="") == replace(graph.tensors[n.inputs[0]], name="")}

    def source(tensor: str) -> str:
        while tensor in still:
            tensor = still[tensor]
        return tensor

    return graph.with_nodes(replace(n, inputs=tuple(map(source, n.inputs))) for n in graph.nodes if n.output not in still)


def turn_weights(graph: Graph) -> Graph:
    """Transpose → flattening Reshape → Gemm  -->  Reshape → Gemm with its weights' columns in the other order.

    A channels-last classifier reads rows, columns, channels; ours reads the map as it is.
    """
    for node in graph.nodes:
        source = graph.producer(node.inputs[0]) if isinstance(node.op, Reshape) and len(node.op.shape) == 2 else None
        if source is None or not isinstance(source.op, Transpose) or not _only_gemms_read(graph, node):
            continue
        if graph.tensors[source.output].scheme not in (None, graph.tensors[source.inputs[0]].scheme):
            continue  # a change of scale is more than a transpose
        shape = (1, *graph.shape(source.inputs[0])[1:])
        columns = np.arange(int(np.prod(shape))).reshape(shape).transpose(source.op.perm).reshape(-1)
        turned = []
        for gemm in graph.consumers(node.output):
            weight = graph.constants[gemm.params[0]]
            array = np.empty_like(weight.array)
            array[:, columns] = weight.array
            turned.append(replace(weight, array=array))
        nodes = [replace(n, inputs=source.inputs) if n is node else n for n in graph.nodes]
        read = {t for n in nodes for t in n.inputs} | set(graph.outputs)
        graph = graph.with_nodes((n for n in nodes if n is not source or n.output in read), constants=turned)
    return graph


def _only_gemms_read(graph: Graph, node: Node) -> bool:
    """Whether a flattened map goes into fully connected layers alone, whose columns carry no scales of their own."""
    readers = graph.consumers(node.output)
    return bool(readers) and node.output not in graph.outputs and node.op.infer(graph.input_shapes(node))[0] == graph.shape(
        node.inputs[0])[0] and all(n.op.product and not n.op.window
                                   and ((s := graph.constants[n.params[0]].scheme) is None or s.axis != 1)
                                   for n in readers)


def sink_shuffles(graph: Graph) -> Graph:
    """Conv → PixelShuffle → BatchNorm or Clip  -->  Conv → BatchNorm or Clip → PixelShuffle, so that they fold into the Conv."""
    for node in graph.nodes:
        shuffle = _sole_source(graph, node) if len(node.inputs) == 1 and (isinstance(node.op, Clip) or _is_affine(graph, node)) \
            else None
        op = None if shuffle is None else shuffle.op
        if shuffle is None or not isinstance(op, PixelShuffle) or graph.tensors[shuffle.output].scheme is not None:
            continue
        first = _sole_source(graph, shuffle)
        if first is None or not isinstance(first.op, Conv):
            continue
        channels = graph.shape(first.output)[1]
        depth = np.arange(channels // op.block)
        rows = np.tile(depth, op.block) if op.depth_first else np.repeat(depth, op.block)
        constants = [Constant(c.name, c.array[rows], c.scheme) for c in graph.params(node)]
        before = Conv(channels, Window((1, 1)), channels, node.op.clamp) if node.params else node.op
        swapped = {shuffle.name: replace(node, op=before, inputs=shuffle.inputs, output=shuffle.output),
                   node.name: replace(shuffle, inputs=(shuffle.output,), output=node.output)}
        tensor = replace(graph.tensors[shuffle.output], shape=graph.shape(first.output))
        graph = graph.with_nodes((swapped.get(n.name, n) for n in graph.nodes), [tensor], constants)
    return graph


def fold_affine(graph: Graph) -> Graph:
    """Conv → 1x1 depthwise Conv (a BatchNorm)  -->  Conv with scaled weights and bias; likewise Gemm → diagonal Gemm."""
    while pairs := _affine_pairs(graph):
        merged: dict[str, Node] = {}
        folded: list[Constant] = []
        for first, affine in pairs:
            scale, offset = (graph.constants[c].real for c in affine.params)
            scale = scale.reshape(-1) if affine.op.window else np.diagonal(scale)
            weight, bias = (graph.constants[c] for c in first.params)
            folded += [_scaled(weight, scale), Constant(bias.name, (bias.real * scale + offset).astype(np.float32))]
            op = first.op if affine.op.bounds is None else first.op.clamped(affine.op.bounds)
            assert op is not None, "both are of one class"
            merged[first.name] = replace(first, op=op, output=affine.output)
        graph = _merged(graph, merged, {affine.name for _, affine in pairs}, folded)
    return graph


def _merged(graph: Graph, merged: Mapping[str, Node], gone: Set[str], constants: Iterable[Constant] = ()) -> Graph:
    """The graph with some nodes replaced and some gone, checked once for all of them: long chains fold in linear time."""
    return graph.with_nodes((merged.get(n.name, n) for n in graph.nodes if n.name not in gone), constants=constants)


SMALLEST_FACTOR = 2.0**-80
"""A channel scaled by less is dead: float32 would lose it within a few layers."""


def _scaled(weight: Constant, scale: Real) -> Constant:
    """Each filter multiplied by a number: floats at once, integers through their scale and, where it is negative, their sign."""
    along = (-1, *[1] * (weight.array.ndim - 1))
    if weight.scheme is None:
        return Constant(weight.name, (weight.array.astype(np.float64) * scale.reshape(along)).astype(np.float32))
    alive = np.abs(scale) > SMALLEST_FACTOR
    integers = weight.array.astype(np.int64) * np.where(alive, np.sign(scale), 0).astype(np.int64).reshape(along)
    factor = np.where(alive, np.abs(scale), 1.0)
    steps = (np.asarray(weight.scheme.scales) * factor).astype(np.float32).astype(np.float64)
    return integer_weights(weight.name, integers, steps, 0)


def _affine_pairs(graph: Graph) -> list[tuple[Node, Node]]:
    """Pairs to fold at once: no node is in two of them."""
    found: list[tuple[Node, Node]] = []
    taken: set[str] = set()
    for node in graph.nodes:
        if len(node.inputs) != 1 or not _is_affine(graph, node):
            continue
        first = _sole_source(graph, node)
        if first is not None and first.name not in taken and type(first.op) is type(node.op) and first.op.bounds is None \
                and graph.tensors[first.output].scheme is None and graph.constants[first.params[0]].filterwise:
            found.append((first, node))
            taken |= {first.name, node.name}
    return found


def _is_affine(graph: Graph, node: Node) -> bool:
    """Whether a node scales and shifts each channel by itself (what BatchNorm is imported as)."""
    if not node.params or graph.constants[node.params[0]].scheme is not None:
        return False
    if isinstance(node.op, Conv):
        channels = graph.shape(node.inputs[0])[1]
        return node.op.window == Window((1, 1)) and node.op.groups == channels == node.op.filters
    if isinstance(node.op, Gemm):
        weight = graph.constants[node.params[0]].array
        return weight.shape[0] == weight.shape[1] and not np.any(weight - np.diag(np.diagonal(weight)))
    return False


def _sole_source(graph: Graph, node: Node) -> Node | None:
    """The producer of a node's only input, if nobody else reads that tensor and it is no graph output."""
    tensor = node.inputs[0]
    if tensor in graph.outputs or len(graph.consumers(tensor)) != 1:
        return None
    return graph.producer(tensor)


def fold_activations(graph: Graph) -> Graph:
    """X → Clip  -->  X with clamp, where the tensor between is read by nobody else and carries no scheme of its own."""
    while True:
        merged: dict[str, Node] = {}
        gone: set[str] = set()
        for node in graph.nodes:
            if not isinstance(node.op, Clip) or node.op.clamp is None:
                continue
            first = _sole_source(graph, node)
            if first is None or first.name in gone or graph.tensors[node.inputs[0]].scheme is not None:
                continue
            op = first.op.clamped(node.op.clamp)
            if op is not None:
                merged[first.name] = replace(first, op=op, output=node.output)
                gone.add(node.name)
        if not gone:
            return graph
        graph = _merged(graph, merged, gone)
