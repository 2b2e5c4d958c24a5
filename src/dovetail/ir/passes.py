"""Graph rewrites, each a function from graph to graph with a stated before and after."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dovetail.errors import ModelError
from dovetail.ir.convolution import Conv
from dovetail.ir.elementwise import Add, Clip, Reshape
from dovetail.ir.graph import Graph, Node
from dovetail.ir.linear import Gemm
from dovetail.ir.opaque import Opaque
from dovetail.ir.operator import Clamp, Op
from dovetail.ir.pooling import MaxPool
from dovetail.ir.tensor import Constant
from dovetail.ir.window import Window


def simplify(graph: Graph) -> Graph:
    """The order matters: affine folding exposes Conv → Clip, activation folding then leaves one node each."""
    for step in (fold_affine, fold_activations, inherit_schemes):
        graph = step(graph)
    return graph


def fold_affine(graph: Graph) -> Graph:
    """Conv → 1x1 depthwise Conv (a BatchNorm)  -->  Conv with scaled weights and bias; likewise Gemm → diagonal Gemm."""
    while (pair := _first_affine_pair(graph)) is not None:
        first, affine = pair
        weight, bias = (graph.constants[c].array.astype(np.float64) for c in first.params)
        scale, offset = (graph.constants[c].array.astype(np.float64) for c in affine.params)
        scale = np.diagonal(scale) if isinstance(affine.op, Gemm) else scale.reshape(-1)
        folded = (Constant(first.params[0], (weight * scale.reshape(-1, *[1] * (weight.ndim - 1))).astype(np.float32)),
                  Constant(first.params[1], (bias * scale + offset).astype(np.float32)))
        assert isinstance(first.op, Conv | Gemm)
        merged = replace(first, op=replace(first.op, clamp=affine.op.bounds), output=affine.output)
        nodes = (merged if n is first else n for n in graph.nodes if n is not affine)
        graph = graph.with_nodes(nodes, constants=folded)
    return graph


def _first_affine_pair(graph: Graph) -> tuple[Node, Node] | None:
    for node in graph.nodes:
        if len(node.inputs) != 1 or not _is_affine(graph, node):
            continue
        first = _sole_source(graph, node)
        if first is not None and type(first.op) is type(node.op) and first.op.bounds is None \
                and graph.constants[first.params[0]].scheme is None:
            return first, node
    return None


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


def _clamped(op: Op, clamp: Clamp) -> Op | None:
    """The operator with a further activation, or None where it takes none."""
    if not isinstance(op, Conv | Gemm | Add | Clip):
        return None
    if op.clamp is None:
        return replace(op, clamp=clamp)
    lo, hi = min(max(op.clamp.lo, clamp.lo), clamp.hi), max(min(op.clamp.hi, clamp.hi), clamp.lo)
    return replace(op, clamp=Clamp(lo, hi))


def fold_activations(graph: Graph) -> Graph:
    """X → Clip  -->  X with clamp, where the tensor between is read by nobody else and carries no scheme of its own."""
    changed = True
    while changed:
        changed = False
        for node in graph.nodes:
            if not isinstance(node.op, Clip) or node.op.clamp is None:
                continue
            first = _sole_source(graph, node)
            if first is None or graph.tensors[node.inputs[0]].scheme is not None:
                continue
            op = _clamped(first.op, node.op.clamp)
            if op is None:
                continue
            merged = replace(first, op=op, output=node.output)
            graph = graph.with_nodes(merged if n is first else n for n in graph.nodes if n is not node)
            changed = True
            break
    return graph


def inherit_schemes(graph: Graph) -> Graph:
    """In a quantized graph, Reshape and MaxPool outputs without a scheme take their input's; other typed nodes need one."""
    if all(t.scheme is None for t in graph.tensors.values()):
        return graph
    tensors = dict(graph.tensors)
    for name in graph.inputs:
        if tensors[name].scheme is None and not all(isinstance(n.op, Opaque) for n in graph.consumers(name)):
            raise ModelError(f"graph {graph.name}: input {name} is not quantized while other tensors are; "
                             "quantize the whole model, or none of it")
    for node in graph.nodes:
        tensor = tensors[node.output]
        if tensor.scheme is None and isinstance(node.op, Reshape | MaxPool):
            tensor = replace(tensor, scheme=tensors[node.inputs[0]].scheme)
            tensors[node.output] = tensor
        floats = isinstance(node.op, Opaque) or (isinstance(node.op, Reshape) and tensors[node.inputs[0]].scheme is None)
        if tensor.scheme is None and not floats:
            raise ModelError(f"node {node.name}: its output {node.output} is not quantized while other tensors are; "
                             "quantize the whole model, or none of it")
    return replace(graph, tensors=tensors)

