"""Quantized graphs with arbitrary scales and zero points, made from power-of-two ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dovetail.ir import Conv, Gemm, Graph, Reshape, Scheme, Select
from dovetail.ir.schemes import settle_parameters
from dovetail.ir.tensor import Constant, scheme_of_scales


def with_arbitrary_scales(graph: Graph, seed: int, of_movements: bool = False) -> Graph:
    """The same network with every scale multiplied by a float32 number of [0.7, 1.4) and zero points moved; biases rounded anew.

    Partial sums (32 bits) keep theirs: they are integers of the plan's own making. What is only moved keeps its scale, unless
    those `of_movements` are to change as well.
    """
    rng = np.random.default_rng(seed)
    schemes: dict[str, Scheme] = {}
    for name in (*graph.inputs, *(n.output for n in graph.nodes)):
        scheme, node = graph.tensors[name].scheme, graph.producer(name)
        assert scheme is not None
        moved = not of_movements and node is not None and isinstance(node.op, Reshape | Select)
        schemes[name] = schemes[node.inputs[0]] if moved else scheme if scheme.bits > 16 else _arbitrary(scheme, rng, True)  # type: ignore[union-attr]
    constants: dict[str, Constant] = {}
    for node in graph.nodes:
        if isinstance(node.op, Conv | Gemm) and schemes[node.output].bits <= 16:
            weight, bias = graph.params(node)
            assert weight.scheme is not None
            constants[weight.name] = replace(weight, scheme=_arbitrary(weight.scheme, rng, False))
            constants[bias.name] = Constant(bias.name, bias.real.astype(np.float32))
    tensors = {name: replace(t, scheme=schemes[name]) for name, t in graph.tensors.items()}
    return settle_parameters(replace(graph, tensors=tensors, constants={**graph.constants, **constants}))


def _arbitrary(scheme: Scheme, rng: np.random.Generator, moved: bool) -> Scheme:
    scales = (np.asarray(scheme.scales) * rng.uniform(0.7, 1.4, len(scheme.scales))).astype(np.float32)
    zero = int(rng.integers(scheme.lo // 2, scheme.hi // 2 + 1)) if moved else 0
    return scheme_of_scales(scheme.bits, scheme.signed, scales.tolist(), scheme.axis, zero)
