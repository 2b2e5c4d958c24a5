"""`python bench/engines.py --part codes`: the constants of `hardware.lq_engines`, read off adder graphs as they are built.

Layers with plain integers on one side, of drawn weights as quantization error minimisation codes them, go through
`subexpressions.minimize`. Of each stands here what remains of what the formula for any weights says: adders and carry bits of
weights that take few values, carry and register bits where single bits are added.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from dovetail.hardware.adders.graph import AdderGraph
from dovetail.hardware.adders.sharing import graph_bits
from dovetail.hardware.adders.slices import Arithmetic, adders_of
from dovetail.hardware.adders.subexpressions import minimize
from dovetail.hardware.lq_engines import FEW_WEIGHTS, SINGLE_BITS, SINGLE_BITS_KEPT, coded_slices, plane_matrix
from dovetail.hardware.work import whole_units
from dovetail.ir import Coded, Conv, Graph, Scheme, Tensor, Window
from dovetail.numerics.lq import LearnedLayer, boundaries_of, coded_node, fit_weights, ranked

SHAPES = ((3, 2, 11), (3, 8, 11), (8, 4, 5), (16, 8, 3), (8, 4, 3), (16, 16, 1), (32, 10, 1))
"""Channels, filters, and side of the window."""
SIDES = ((1, 0), (2, 0), (3, 0), (4, 0), (0, 1), (0, 2), (0, 0))
"""Bits of weights and of what is read; 0 where they are plain integers."""
LEVELS = np.asarray([0.52, 1.05])
STEP = 32


def layer(channels: int, filters: int, side: int, weight_bits: int, input_bits: int, seed: int = 0) -> Graph:
    """A drawn convolution with plain integers on one side or both."""
    rng, shape = np.random.default_rng(seed), (1, channels, 2 * side, 2 * side)
    body = Conv(filters, Window((side, side)))
    weights = rng.normal(size=(filters, channels, side, side))
    codes, basis = fit_weights(weights, weight_bits) if weight_bits else (
        np.clip(np.rint(weights * STEP), -127, 127).astype(np.int8), rng.uniform(0.8, 1.2, (filters, 1)) / STEP)
    levels = LEVELS[:input_bits] if input_bits else np.asarray([2.0**-8])
    learned = LearnedLayer(body, codes, weight_bits, basis, input_bits, levels, np.ones(filters), np.zeros(filters))
    node, constants = coded_node("layer", learned, "x", "y", boundaries_of(ranked(LEVELS)[0]).tolist())
    source = Scheme(input_bits, False, (0,)) if input_bits else Scheme(8, False, (-8,))
    tensors = {"x": Tensor("x", shape, source), "y": Tensor("y", body.infer((shape,)), Scheme(2, False, (0,)))}
    return Graph("layer", ("x",), ("y",), (node,), tensors, {c.name: c for c in constants})


def said_and_built(graph: Graph) -> tuple[Arithmetic, AdderGraph, int]:
    """What the formula for any weights says of a layer, its adder graph as engines have it, and the bits of its inputs."""
    (node,) = graph.nodes
    own = coded_slices(graph, node, ((None, *whole_units()),))
    (said,) = adders_of([own])
    codes, products = graph.params(node)[:2]
    assert isinstance(node.op, Coded)
    matrix = plane_matrix(codes, products, node.op).astype(np.int64)
    return said, minimize(matrix, [(0, (1 << own.bits) - 1)] * prod(matrix.shape[1:])), own.bits


def ratios(weight_bits: int, input_bits: int) -> Iterator[tuple[float, float, float]]:
    """Adders, carry bits and register bits as built, of those that the formula says, layer by layer."""
    for shape in SHAPES:
        print(f"w{weight_bits}a{input_bits}, {shape[0]} to {shape[1]}, {shape[2]}x{shape[2]} …", file=sys.stderr, flush=True)
        said, built, bits = said_and_built(layer(*shape, weight_bits, input_bits))
        carry, registers = graph_bits(built, bits)
        yield built.count / said.adders[0], carry / said.bits[0], registers / said.registers[0]


def main(asked: Sequence[str]) -> None:
    argparse.ArgumentParser(prog="engines.py --part codes", description=__doc__).parse_args(asked)
    for weight_bits, input_bits in SIDES:
        rows = np.asarray(list(ratios(weight_bits, input_bits)))
        mean, low, high = (f(rows, axis=0) for f in (np.mean, np.min, np.max))
        used = (1.0, SINGLE_BITS, SINGLE_BITS_KEPT) if input_bits else (FEW_WEIGHTS[weight_bits],) * 3
        print(f"weights of {weight_bits or 'int8'}, input of {input_bits or 8} bits: " + "; ".join(
            f"{what} {m:.2f} ({a:.2f} to {b:.2f}; used {u:.2f})"
            for what, m, a, b, u in zip(("adders", "carry", "registers"), mean, low, high, used, strict=True)), flush=True)
