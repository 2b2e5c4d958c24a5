"""Which nodes reusable engines refuse, and why: those that multiply bytes, and those that count bits."""

from __future__ import annotations

from math import prod

from dovetail.hardware.scans import stream_shape
from dovetail.ir import Add, AvgPool, Clip, Conv, Function, Gemm, GlobalAvgPool, Graph, Lookup, MaxPool, Mul, Node, Window
from dovetail.numerics.requantize import requantizer

ACTIVATION_BITS = 8
FACTOR_BITS = 30
"""Bits, sign and a doubling aside, of what counts of a pair of planes may be multiplied with."""
COUNTED_BITS = 16
"""Bits of a value that arrays which count bits work on, at the most."""
PLAIN = (Conv, Gemm, GlobalAvgPool, AvgPool, MaxPool, Clip, Add)
"""Operators that all reusable engines have."""
MULTIPLIED = (Mul, Lookup, Function)
"""Those that only engines which multiply bytes have: gates, and tables as well as the formulas that become such."""
SHORTEST_LINE = 3
"""Pixels of a row that line buffers need between reading a pixel and reading it again a row later."""


def follows(window: Window, width: int) -> bool:
    """Whether outputs follow the order in which the pixels of a map arrive, and line buffers can hold its rows."""
    (high, wide), (top, left, bottom, right) = window.kernel, window.pads
    return (top + bottom < high and left + right < wide and window.dilation == (1, 1)
            and (width >= SHORTEST_LINE or high == 1))


def reason_refused(graph: Graph, node: Node, counts: bool = False) -> str | None:
    """Why reusable engines that multiply bytes, or that count bits, cannot do a node, in words; None where they can."""
    op = node.op
    if op.still:
        return None if graph.shape(node.output)[0] == 1 and len(graph.shape(node.output)) == 2 else "it reorders a map"
    if type(op) not in (PLAIN if counts else PLAIN + MULTIPLIED) and not (counts and op.learned):
        return f"reusable engines have no {op.kind}"
    if (reason := _reason_not_mapped(graph, node, COUNTED_BITS if counts else ACTIVATION_BITS, counts)) is not None:
        return reason
    if counts and op.layer and factor_bits(graph, node) > FACTOR_BITS:
        return f"what its planes count is multiplied with {factor_bits(graph, node)} bits, and {FACTOR_BITS} are stored"
    if op.product:
        weights = graph.constants[node.params[0]]
        if weights.scheme is not None and (weights.scheme.bits > ACTIVATION_BITS or not weights.scheme.fixed_point):
            return "its weights have more than 8 bits, or scales that are no powers of two"
        return "it leaves partial sums" if op.product.partial else None
    if op.largest and op.window:
        if counts and bits_of(graph, node.output) > ACTIVATION_BITS:
            return f"it takes the largest of {bits_of(graph, node.output)}-bit values, and 8 bits are compared"
        return None if follows(op.window, graph.shape(node.inputs[0])[3]) else "its window is dilated or too wide for its map"
    if isinstance(op, AvgPool) and any(op.window.pads) and not op.count_pads:
        return "its divisor changes along the border"
    if counts and op.averages:
        count = prod(op.window.kernel if op.window else graph.shape(node.inputs[0])[2:])
        return None if count & (count - 1) == 0 else f"it averages {count} values, no power of two"
    if op.table or op.formula:
        return "its table differs between channels" if op.per_channel else None
    if op.multiplies:
        return _reason_not_multiplied(graph, node)
    return _reason_not_added(graph, node) if isinstance(op, Add) else None


def _reason_not_multiplied(graph: Graph, node: Node) -> str | None:
    (channels, *_), (others, *size) = sorted((stream_shape(graph, t) for t in node.inputs), key=prod, reverse=True)
    if node.inputs[0] == node.inputs[1]:
        return "it multiplies a map with itself"
    same = graph.shape(node.inputs[0]) == graph.shape(node.inputs[1])
    return None if same or (others == channels and prod(size) == 1) else "one map for all channels is multiplied with"


def _reason_not_mapped(graph: Graph, node: Node, bits: int, fewer: bool) -> str | None:
    """Why a node's tensors are no maps of so many bits, or of at most so many."""
    for tensor in (*node.inputs, node.output):
        scheme, shape = graph.tensors[tensor].scheme, graph.shape(tensor)
        if shape[0] != 1 or len(shape) not in (2, 4):
            return f"tensor {tensor} of shape {list(shape)} is no map"
        if scheme is not None and (scheme.bits > bits or (scheme.bits < bits and not fewer) or scheme.axis is not None
                                   or not scheme.fixed_point):
            size = f"at most {bits} bits" if fewer else f"{bits} bits"
            return f"tensor {tensor} is {scheme}; {size} with one power of two as scale and without a zero point are worked on"
    return None


def factor_bits(graph: Graph, node: Node) -> int:
    """Bits of what counts of a pair of planes are multiplied with, sign aside: a product of bases, powers of two, or both."""
    op, inputs = node.op, bits_of(graph, node.inputs[0])
    if not op.coded:
        return weight_bits(graph, node) + inputs - 1
    product = int(abs(graph.constants[node.params[1]].array).max()).bit_length()
    return product + (0 if op.weight_bits else weight_bits(graph, node) - 1) + (0 if op.input_bits else inputs - 1)


def weight_bits(graph: Graph, node: Node) -> int:
    """Planes of bits of a node's weights: two's complement where some are negative; a float network's are not known yet."""
    if node.op.weight_bits:
        return node.op.weight_bits
    if not node.op.layer:
        return 1
    array = graph.constants[node.params[0]].array
    if array.dtype.kind == "f" or not array.size:
        return ACTIVATION_BITS
    lo, hi = int(array.min()), int(array.max())
    return max((-lo - 1).bit_length(), hi.bit_length()) + 1 if lo < 0 else max(1, hi.bit_length())


def bits_of(graph: Graph, tensor: str) -> int:
    scheme = graph.tensors[tensor].scheme
    return ACTIVATION_BITS if scheme is None else scheme.bits


def _reason_not_added(graph: Graph, node: Node) -> str | None:
    if len(node.inputs) != 2 or len(set(graph.input_shapes(node))) != 1 or len(set(node.inputs)) != 2:
        return "only two maps of one shape are added"
    if not any(fusable(graph, t) for t in node.inputs):
        return "neither operand is a convolution's alone, into whose writing it could be fused"
    if graph.tensors[node.output].scheme is not None:
        how = requantizer(graph, node)
        if set(how.multipliers) != {1} or any(f & (f - 1) for each in how.factors for f in each):
            return "its operands' scales are not powers of two apart"
    return None


def fusable(graph: Graph, tensor: str) -> bool:
    producer = graph.producer(tensor)
    if producer is None or len(graph.consumers(tensor)) != 1 or tensor in graph.outputs:
        return False
    return producer.op.layer is not None and not producer.op.code_bits
