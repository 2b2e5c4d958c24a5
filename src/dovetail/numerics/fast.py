"""Quantized graphs at the speed of float32: the reference's numbers, bit for bit, node by node in bounded memory.

A weighted sum that float32 computes exactly (`ranges.float32_exact`) runs in ONNX Runtime's kernels; every other
node runs in the reference itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dovetail.ir import Array, Graph
from dovetail.numerics.fixed import quantize
from dovetail.numerics.kernels import run_stored_node
from dovetail.numerics.observe import chunks, walk
from dovetail.numerics.ranges import float32_exact, stored_ranges
from dovetail.numerics.reference import Values, check_stored, collect_outputs, real_values


def exact_nodes(graph: Graph) -> frozenset[str]:
    """Nodes that float32 computes exactly."""
    known = stored_ranges(graph)
    return frozenset(n.name for n in graph.nodes if float32_exact(graph, n, known))


def quantized_values(graph: Graph) -> Values:
    """A function from float frames to every tensor of a quantized graph, as real values, in order."""
    stored = stored_values(graph)

    def values(inputs: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
        for name, x in stored({name: _stored(graph, name, inputs[name]) for name in graph.inputs}):
            yield name, real_values(graph.tensors[name], x)

    return values


def stored_values(graph: Graph) -> Values:
    """A function from stored integers to those of every tensor of a quantized graph, in order."""
    exact = exact_nodes(graph)

    def values(inputs: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
        return walk(graph, inputs, lambda node, xs: run_stored_node(graph, node, xs, node.name in exact))

    return values


def run_quantized(graph: Graph, inputs: Mapping[str, Array], done: Callable[[int], None] | None = None) -> dict[str, Array]:
    """Real outputs of a quantized graph for float frames; `done` hears after how many."""
    return collect_outputs(graph, chunks(graph, inputs), quantized_values(graph), done)


def run_stored(graph: Graph, inputs: Mapping[str, Array], done: Callable[[int], None] | None = None) -> dict[str, Array]:
    """What `reference.run_integer` gives, bit for bit, for any number of frames; `done` hears after how many."""
    stored = {name: check_stored(graph.tensors[name], np.asarray(inputs[name])) for name in graph.inputs}
    return collect_outputs(graph, chunks(graph, stored), stored_values(graph), done)


def _stored(graph: Graph, name: str, x: Array) -> Array:
    scheme = graph.tensors[name].scheme
    return x if scheme is None else quantize(np.asarray(x, dtype=np.float64), scheme).astype(scheme.dtype)
