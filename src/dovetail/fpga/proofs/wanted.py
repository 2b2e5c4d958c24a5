"""What the outputs of a node's engine have to be, from the quantized graph alone: not from what the hardware was made of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from dovetail import ir
from dovetail.errors import UnsupportedError
from dovetail.fpga.engines.stream import Format
from dovetail.fpga.proofs.obligations import Computed, Output
from dovetail.fpga.proofs.solver import Term, Vectors
from dovetail.fpga.proofs.specification import WantedRounding
from dovetail.fpga.proofs.sums import Summed
from dovetail.ir import Graph, Node
from dovetail.numerics.fixed import integer_bounds
from dovetail.numerics.requantize import requantizer


def tap(channel: int, row: int, column: int) -> str:
    """The wire of a window's tap."""
    return f"x{channel}_{row}_{column}"


def rounding(graph: Graph, node: Node, channel: int) -> WantedRounding:
    """How a channel's integer becomes what is stored."""
    scheme = graph.scheme(node.output)
    if scheme.bits == 32:
        return WantedRounding()
    how = requantizer(graph, node)
    multiplier, shift = how.per_channel(graph.shape(node.output)[1])[channel]
    divisor = int(np.max(node.op.divisor(graph.input_shapes(node))))
    return WantedRounding(multiplier, divisor, shift, how.zero, integer_bounds(node.op.bounds, scheme))


def outputs(graph: Graph, node: Node, inputs: Sequence[Format], output: Format) -> list[Output]:
    """Every field of a beat of a node that works on whole pixels; UnsupportedError where it has no such form."""
    channels = range(output.fields)
    match node.op:
        case ir.Conv() | ir.Gemm():
            return [_filter(graph, node, inputs[0], f) for f in channels]
        case ir.AvgPool(window):
            zero = requantizer(graph, node).zeros[0]
            places = list(product(range(window.kernel[0]), range(window.kernel[1])))
            return [Summed({tap(c, i, j): 1 for i, j in places}, -zero * len(places), rounding(graph, node, c)) for c in channels]
        case ir.MaxPool(window):
            return [_largest(graph, node, inputs[0], window, c) for c in channels]
        case ir.Add() | ir.Clip() | ir.Reduce() | ir.Concat():
            return [_joined(graph, node, inputs, c) for c in channels]
        case ir.Select(indices):
            return [_moved(graph, node, index, c) for c, index in enumerate(indices)]
        case ir.Mul():
            return [_product(graph, node, inputs, c) for c in channels]
        case ir.Lookup():
            return [_entry(graph, node, inputs[0], c) for c in channels]
    raise UnsupportedError(f"{node.name}: no statement for {node.op.kind} is written down yet")


def _filter(graph: Graph, node: Node, form: Format, number: int) -> Summed:
    """sum of weight * (x - zero) + bias over a filter's taps."""
    op, zero = node.op, requantizer(graph, node).zeros[0]
    weights = graph.params(node)[0].array.astype(np.int64)
    bias = int(graph.params(node)[1].array[number]) if len(node.params) > 1 else 0
    if isinstance(op, ir.Conv):
        own, first = weights[number], number // (op.filters // op.groups) * weights.shape[1]
    else:
        own, first = weights[number].reshape(form.channels, form.height, form.width), 0
    named = {tap(first + int(c), int(i), int(j)): int(own[c, i, j]) for c, i, j in np.ndindex(*own.shape)}
    return Summed(named, bias - zero * int(own.sum()), rounding(graph, node, number))


def _largest(graph: Graph, node: Node, form: Format, window: ir.Window, channel: int) -> Computed:
    zero = requantizer(graph, node).zeros[0]

    def make(vectors: Vectors, taps: Sequence[Term]) -> Term:
        found = taps[0]
        for other in taps[1:]:
            found = vectors.choose(vectors.compare("BV_SGT", other, found), other, found)
        return vectors.make("BV_SUB", [found, vectors.value(zero, vectors.width(found))])

    names = tuple(tap(channel, i, j) for i in range(window.kernel[0]) for j in range(window.kernel[1]))
    return Computed(names, make, (form.lo - zero, form.hi - zero), rounding(graph, node, channel))


def _joined(graph: Graph, node: Node, inputs: Sequence[Format], channel: int) -> Summed:
    """Of every input the same channel, or of a concatenation the one input that has it, each times its factor."""
    how, stored, named, total, at = requantizer(graph, node), graph.params(node), dict[str, int](), 0, 0
    for index, (form, factors, zero) in enumerate(zip(inputs, how.factors, how.zeros, strict=True)):
        own = channel - at if node.op.joins else channel
        at += form.channels
        if not 0 <= own < form.channels:
            continue
        factor = factors[own if len(factors) > 1 else 0]
        named[f"in{index}_x{own}"] = factor
        total -= factor * zero
    if stored:
        total += int(np.broadcast_to(stored[0].array.reshape(-1), (graph.shape(node.output)[1],))[channel])
    return Summed(named, total, rounding(graph, node, channel))


def _moved(graph: Graph, node: Node, index: int, channel: int) -> Summed:
    source, target = graph.scheme(node.inputs[0]), graph.scheme(node.output)
    if source == target:
        return Summed({f"in0_x{index}": 1}, 0, WantedRounding())
    return Summed({f"in0_x{index}": 1}, -source.zero, rounding(graph, node, channel))


def _product(graph: Graph, node: Node, inputs: Sequence[Format], channel: int) -> Computed:
    zeros = requantizer(graph, node).zeros
    names = tuple(f"in{i}_x{min(channel, form.channels - 1)}" for i, form in enumerate(inputs))
    ends = [[end - zero for end in (form.lo, form.hi)] for form, zero in zip(inputs, zeros, strict=True)]
    corners = [a * b for a in ends[0] for b in ends[1]]

    def make(vectors: Vectors, taps: Sequence[Term]) -> Term:
        width = vectors.width(taps[0]) * 2
        sides = [vectors.make("BV_SUB", [vectors.fitted(t, width, True), vectors.value(z, width)])
                 for t, z in zip(taps, zeros, strict=True)]
        return vectors.make("BV_MUL", sides)

    return Computed(names, make, (min(corners), max(corners)), rounding(graph, node, channel))


def _entry(graph: Graph, node: Node, form: Format, channel: int) -> Computed:
    table = graph.params(node)[0].array.astype(np.int64)
    row = [int(v) for v in (table[channel] if table.ndim > 1 and len(table) > 1 else table.reshape(-1))]
    assert isinstance(node.op, ir.Lookup)
    lo = node.op.lo
    ends = min(row), max(row)

    def make(vectors: Vectors, taps: Sequence[Term]) -> Term:
        width = max(vectors.width(taps[0]), max(abs(e) for e in ends).bit_length() + 2)
        code = vectors.fitted(taps[0], width, True)
        found = vectors.value(row[form.lo - lo], width)
        for value in range(form.lo + 1, form.hi + 1):
            here = vectors.compare("EQUAL", code, vectors.value(value, width))
            found = vectors.choose(here, vectors.value(row[value - lo], width), found)
        return found

    return Computed((f"in0_x{channel}",), make, ends, WantedRounding())
