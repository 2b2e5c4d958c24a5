"""Making a partly quantized graph whole: schemes spread with moving values, parameters become integers, the rest stays floats."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from dovetail.ir import Clip, Coded, Graph, Node, Opaque, Pointwise
from dovetail.ir.onnx.file import OPSET
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.tensor import Constant, Real, Rounding, Scheme, Tensor, integer_weights, scheme_of_scales

SAME_SCALE = 1e-5
"""Relative difference up to which two scales are meant to be the same number."""
UNIT_FACTOR = 1 << 14
LARGEST_BIAS = float(1 << 30)


def spread_schemes(graph: Graph) -> Graph:
    """In a quantized graph, values that only move take the scheme of where they come from, or of where alone they go.

    Both are exact: rounding is monotone, so it may happen before or after a maximum, a limit or a move.
    """
    if not graph.quantized:
        return graph
    schemes = {name: t.scheme for name, t in graph.tensors.items()}
    for node in reversed(graph.nodes):
        target = schemes[node.output]
        if target is None or not node.op.picks:
            continue
        for name in node.inputs:
            if schemes[name] is None and graph.consumers(name) == (node,) and name not in graph.outputs \
                    and graph.tensors[name].element == "float32":
                schemes[name] = target
    for node in graph.nodes:
        if schemes[node.output] is None and node.op.commutes:
            schemes[node.output] = schemes[node.inputs[0]]
    return replace(graph, tensors={name: replace(t, scheme=schemes[name]) for name, t in graph.tensors.items()})


def narrow_inputs(graph: Graph) -> Graph:
    """An input limited to the range of fewer bits is an input of fewer bits."""
    narrow: dict[str, Scheme] = {}
    limits: dict[str, str] = {}
    for node in graph.nodes:
        name = node.inputs[0]
        scheme = graph.tensors[name].scheme
        if isinstance(node.op, Clip) and name in graph.inputs and graph.consumers(name) == (node,) and node.op.clamp is not None \
                and node.output not in graph.outputs and scheme is not None and scheme == graph.tensors[node.output].scheme:
            limited = [np.rint(bound / scheme.scale) + scheme.zero for bound in (node.op.clamp.lo, node.op.clamp.hi)]
            fewer = [replace(scheme, bits=b) for b in range(2, 8) if replace(scheme, bits=b, zero=0).lo <= scheme.zero
                     <= replace(scheme, bits=b, zero=0).hi]
            for found in (f for f in fewer if [f.lo, f.hi] == limited):
                narrow[name], limits[node.output] = found, name
    nodes = tuple(replace(n, inputs=tuple(limits.get(t, t) for t in n.inputs)) for n in graph.nodes if n.output not in limits)
    return graph.with_nodes(nodes, [replace(graph.tensors[name], scheme=scheme) for name, scheme in narrow.items()])


def settle_parameters(graph: Graph) -> Graph:
    """Integer weights and int32 biases, at the scale of their sums, for every Conv and Gemm between integers.

    Where a file quantizes its weights alone, nothing is between integers: they are the real numbers they stand for.
    """
    if not graph.quantized:
        stored = {c.name: Constant(c.name, c.real.astype(np.float32)) for c in graph.constants.values() if c.scheme is not None}
        return replace(graph, constants={**graph.constants, **stored}) if stored else graph
    settled: dict[str, Constant] = {}
    for node in graph.nodes:
        if (product := node.op.product) and not product.partial and _between_integers(graph, node):
            settled |= {c.name: c for c in _settled(graph, node)}
    return replace(graph, constants={**graph.constants, **settled})


def _between_integers(graph: Graph, node: Node) -> bool:
    return all(graph.tensors[t].scheme is not None for t in (*node.inputs, node.output))


def _settled(graph: Graph, node: Node) -> Iterable[Constant]:
    weight, bias = graph.params(node)
    source = graph.scheme(node.inputs[0])
    if weight.scheme is None and _single(weight):
        weight = _signs(weight)
    if weight.scheme is None or not weight.filterwise:
        return ()
    count = weight.array.shape[0]
    steps = np.asarray(weight.scheme.scales if weight.scheme.axis is not None else weight.scheme.scales * count)
    units = steps * source.scale
    if bias.scheme is not None and bias.array.dtype == np.int32 and _same(bias.scheme, units, bias.array):
        return weight, Constant(bias.name, bias.array, scheme_of_scales(32, True, units.tolist(), 0))
    excess = np.ceil(np.log2(np.maximum(np.abs(bias.real) / units / LARGEST_BIAS, 1.0)))
    if excess.any():  # weights far below one step of their bias: a coarser unit for both
        weight = _coarser(weight, steps, np.exp2(excess))
        units = units * np.exp2(excess)
    return weight, Constant(bias.name, np.rint(bias.real / units).astype(np.int32), scheme_of_scales(32, True, units.tolist(), 0))


def _coarser(weight: Constant, steps: Real, factors: Real) -> Constant:
    """Integers divided by powers of two, one per filter, and their scales multiplied."""
    along = factors.reshape(-1, *[1] * (weight.array.ndim - 1))
    return integer_weights(weight.name, np.rint(weight.array / along).astype(np.int64), steps * factors, 0)


def _same(scheme: Scheme, units: Real, integers: Real) -> bool:
    """Whether a file's bias scale is the scale of the sums, where it is a rounded product; zeros have any scale."""
    return not integers.any() or bool(np.all(np.abs(np.asarray(scheme.scales) / units - 1) < SAME_SCALE))


def _single(weight: Constant) -> bool:
    """Whether every filter multiplies one value alone, as factors per channel do."""
    return bool(np.count_nonzero(weight.array.reshape(weight.array.shape[0], -1), axis=1).max() <= 1)


def _signs(weight: Constant) -> Constant:
    """One float factor per channel as ± a power of two and a scale, which is exact and leaves the bias beside it fine steps."""
    factors = np.abs(weight.array.astype(np.float64)).reshape(weight.array.shape[0], -1).sum(axis=1)
    steps = np.where(factors == 0, 1.0, factors) / UNIT_FACTOR
    integers = (np.sign(weight.array) * UNIT_FACTOR).astype(np.int16)
    return Constant(weight.name, integers, scheme_of_scales(16, True, steps.tolist(), 0))


def keep_floats(graph: Graph) -> Graph:
    """Nodes that the model computes in floats while others compute in integers become foreign, and so stay exactly that."""
    if not graph.quantized:
        return graph
    nodes = tuple(node if node.op.foreign or _integer(graph, node) else foreign(graph, node) for node in graph.nodes)
    rounded = {n.output: s for n in nodes if n.op.in_floats and (s := graph.tensors[n.output].scheme) is not None}
    return graph.with_nodes(nodes, [replace(graph.tensors[name], scheme=replace(scheme, rounding=Rounding.EVEN))
                                    for name, scheme in rounded.items()])


def _integer(graph: Graph, node: Node) -> bool:
    """Whether a node computes integers, or only moves floats."""
    if node.op.moves and graph.tensors[node.inputs[0]].scheme == graph.tensors[node.output].scheme:
        return True
    tables = isinstance(node.op, Pointwise | Coded)
    return _between_integers(graph, node) and (tables or all(c.scheme is not None for c in graph.params(node)))


def foreign(graph: Graph, node: Node) -> Node:
    """A typed node as a foreign one, for places where its values stay floats."""
    names = {t: f"x{i}" for i, t in enumerate(dict.fromkeys(node.inputs))}
    tensors = [Tensor(names[t], graph.shape(t)) for t in names] + [Tensor("y0", graph.shape(node.output))]
    constants = {c.name: Constant(c.name, c.real.astype(np.float32)) for c in graph.params(node)}
    alone = Graph("node", tuple(names.values()), ("y0",),
                  (Node(node.name, node.op, tuple(names[t] for t in node.inputs), node.params, "y0"),),
                  {t.name: t for t in tensors}, constants)
    op = Opaque(node.op.kind, to_onnx(alone), 0, graph.shape(node.output), "float32",
                node.op.opset or OPSET,
                node.op.macs(graph.input_shapes(node)))
    return Node(node.name, op, tuple(names), (), node.output)
