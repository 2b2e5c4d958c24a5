"""What kernels need of a node: weights in their order, rounding constants, bounds; from a float or a quantized graph.

Quantized tensors are stored as int8, unsigned ones less 128 (`STORED_OFFSET`): tensor cores multiply signed bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.ir import Array, Clamp, Conv, Graph, Mul, Node, Scheme
from dovetail.numerics.fixed import integer_bounds
from dovetail.numerics.requantize import Requantizer, requantizer

STORED_OFFSET = 128
"""What stored bytes of an unsigned tensor are less than its integers."""
PLAIN = 0
"""Sums are rounded by shifts of 32 bits."""
WIDE = 1
"""Sums are rounded by multipliers and shifts of 64-bit products."""
FLOATING = 2
"""Sums are rounded by float32, which holds them."""
LARGEST_FLOATING = 1 << 22
"""Sums stay below it for float32 to round them: chosen one bit below what its mantissa holds, for the sign."""
MOST_FLOATING_SHIFT = 22
"""Bits that such sums are shifted by at most."""
LARGEST_SUM = 1 << 31
"""Sums of products must stay below, or int32 accumulators would wrap."""
MOST_APART = 255
"""How far apart two bytes are."""
LARGEST_WIDE = 1 << 61
"""Chosen to leave room to round in 64 bits."""
FACTORS: Mapping[type, int] = {Mul: 2}
"""Inputs that one operator multiplies with each other, where there are several."""
ACTIVATIONS = {"HardSwish": 1, "HardSigmoid": 2, "GELU": 3, "GELU (tanh)": 4, "SiLU": 5, "Sigmoid": 6, "Tanh": 7}
"""Functions of floats that kernels compute, by the names that reading a model gives them."""
LOOKED_UP = 8
"""What stands for a function of bytes, which is a table: chosen as the number behind ACTIVATIONS."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """Weights and what follows them. Integers: `multipliers` and `shifts` per channel, `zero` and bounds in stored form."""

    weights: Array
    bias: Array
    multipliers: Array
    shifts: Array
    rounding: int
    """How sums become the next layer's integers: PLAIN, WIDE or FLOATING."""
    lo: float
    hi: float
    zero: int
    pad: float
    """What padding reads: the stored form of zero."""


@dataclass(frozen=True, slots=True)
class Addition:
    """Constants of an addition: of integers, factors and zero points of both sides, one shift, and the result's bounds."""

    factors: tuple[int, int] = (1, 1)
    zeros: tuple[int, int] = (0, 0)
    shift: int = 0
    lo: float = -inf
    hi: float = inf
    zero: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """What makes a sum, or a mean, of a tensor's values another tensor's.

    Of integers: the zero point `source` of every value, factor and shift of the sum, the result's zero point and bounds.
    """

    factor: int = 1
    shift: int = 0
    source: int = 0
    zero: int = 0
    lo: float = -inf
    hi: float = inf


def offset_of(scheme: Scheme) -> int:
    """What stored bytes are less than the scheme's integers."""
    return 0 if scheme.signed else STORED_OFFSET


def byte_scheme(graph: Graph, tensor: str) -> Scheme:
    """The scheme of a tensor that kernels can hold; UnsupportedError otherwise."""
    scheme = graph.tensors[tensor].scheme
    if scheme is None or scheme.bits > 8 or scheme.axis is not None:
        raise UnsupportedError(f"tensor {tensor}: GPU kernels hold integers of up to 8 bits with one scale for the tensor, "
                               f"it has {scheme}; such parts run in the integer interpreter")
    return scheme


def _to_even(graph: Graph, node: Node) -> Requantizer:
    """How a node's sums are rounded; UnsupportedError where halves do not go to even."""
    how = requantizer(graph, node)
    if how.nudges:
        raise UnsupportedError(f"node {node.name}: rounds as TensorFlow Lite does, for which there is no kernel; such parts run "
                               "in the integer interpreter")
    return how


def float_bounds(clamp: Clamp | None) -> tuple[float, float]:
    return (-inf, inf) if clamp is None else (clamp.lo, clamp.hi)


def arranged(graph: Graph, node: Node, height: int, width: int) -> Array:
    """Weights as (taps x input channels per group) x filters per group, groups one after another; depthwise as taps x channels.

    A Gemm that reads a flattened map is a convolution whose kernel is the map.
    """
    weights, groups = graph.constants[node.params[0]].array, max(1, groups_of(node))
    if is_depthwise(graph, node):
        return np.ascontiguousarray(weights[:, 0].transpose(1, 2, 0).reshape(-1, len(weights)))
    if weights.ndim == 2:
        weights = weights.reshape(len(weights), -1, height, width)
    filters, channels, rows, columns = weights.shape
    apart = weights.reshape(groups, filters // groups, channels, rows, columns).transpose(0, 3, 4, 2, 1)
    return np.ascontiguousarray(apart.reshape(groups * rows * columns * channels, filters // groups))


def groups_of(node: Node) -> int:
    """Groups of a convolution, none of anything else."""
    return node.op.groups if isinstance(node.op, Conv) else 0


def is_depthwise(graph: Graph, node: Node) -> bool:
    """One filter per channel."""
    return 1 < groups_of(node) == graph.shape(node.inputs[0])[1] == graph.shape(node.output)[1]


def layer(graph: Graph, node: Node, height: int = 1, width: int = 1) -> LayerWeights:
    """A convolution or fully connected layer, whose flattened input map is height x width."""
    if len(node.params) < 2:  # no bias
        raise UnsupportedError(f"node {node.name}: one share of an input-channel split; such parts run in the interpreter")
    weights, bias = arranged(graph, node, height, width), graph.constants[node.params[1]].array
    if not graph.quantized:
        lo, hi = float_bounds(node.op.bounds)
        return LayerWeights(weights, bias.astype(np.float32), np.ones(1, np.int32), np.zeros(1, np.int32), PLAIN, lo, hi, 0, 0.0)
    source, target = byte_scheme(graph, node.inputs[0]), byte_scheme(graph, node.output)
    how, filters = _to_even(graph, node), graph.shape(node.output)[1]
    pairs = how.per_channel(filters)
    zero = how.zeros[0] - offset_of(source)
    total = graph.constants[node.params[0]].array.astype(np.int64).reshape(filters, -1)
    bound = np.abs(total).sum(1) * (source.hi - source.lo) + np.abs(bias.astype(np.int64))
    shifts = np.array([s for _, s in pairs], dtype=np.int32)
    half = np.left_shift(1, np.clip(shifts, 0, 62), dtype=np.int64) >> 1
    rounding = PLAIN
    if any(m != 1 for m, _ in pairs) or bool((shifts < 0).any() or (bound + half).max(initial=0) >= LARGEST_SUM):
        rounding = WIDE
    elif bound.max(initial=0) < LARGEST_FLOATING and shifts.max(initial=0) <= MOST_FLOATING_SHIFT:
        rounding = FLOATING
    if bound.max(initial=0) >= LARGEST_SUM or shifts.max(initial=0) > (62 if rounding == WIDE else 31):
        raise UnsupportedError(f"node {node.name}: its sums may exceed 32 bits; such parts run in the integer interpreter")
    lo, hi = integer_bounds(node.op.bounds, target)
    moved = offset_of(target)
    multipliers = np.array([m << max(-s, 0) for m, s in pairs], dtype=np.int64)
    return LayerWeights(weights.astype(np.int8), (bias.astype(np.int64) - zero * total.sum(1)).astype(np.int32), multipliers,
                 np.maximum(shifts, 0), rounding, lo - moved, hi - moved, how.zero - moved, zero)


def common_rounding(layers: Sequence[LayerWeights]) -> int:
    """How one kernel may round the sums of several layers."""
    found = {layer.rounding for layer in layers}
    return WIDE if WIDE in found else FLOATING if found == {FLOATING} else PLAIN


MOST_STEPS = 256
"""Bytes between a layer's bounds."""
MOST_KEPT_SHIFT = 16
"""Shifts up to which a sum less its lower bound is exact in float32: eight of its 24 bits are for the byte."""


def finished_in_floats(layer: LayerWeights) -> bool:
    """Whether a kernel may bound a layer's sums before it rounds them, in float32 (`triton/inverted_residual.py`)."""
    exact = layer.lo == layer.zero or int(layer.shifts.max(initial=0)) <= MOST_KEPT_SHIFT
    return layer.rounding == FLOATING and layer.hi - layer.lo <= MOST_STEPS and exact


FLOATS_BEGIN = 1.5 * 2.0 ** 23
"""Where a mantissa of float32 counts ones, up and down; source: IEEE 754."""
FLOATS_BITS = 0x4B400000
"""The bits of that number; source: IEEE 754."""
BYTE_BOUNDS = (-128, 127)
"""Bounds of a stored byte, which an instruction that packs bytes keeps by itself; source: PTX ISA, cvt.pack.sat."""


def scaled_taps(middle: LayerWeights, front_scale: float, middle_scale: float) -> tuple[Array, Array]:
    """Taps and biases of a depthwise layer whose inputs and outputs are divided by scales."""
    taps = middle.weights.astype(np.float64) * (front_scale / middle_scale)
    return taps.astype(np.float32).reshape(-1), (middle.bias / middle_scale).astype(np.float32)


def packs_to_bytes(layer: LayerWeights) -> bool:
    """Whether the instruction that packs bytes keeps a layer's bounds, and one float32 multiplication rounds its sums."""
    return layer.rounding == FLOATING and (layer.lo, layer.hi) == BYTE_BOUNDS


def as_floats(layer: LayerWeights) -> tuple[Array, Array, Array]:
    """Where sums of bytes begin so that they are the bits of floats, and what one multiplication makes of them.

    That is what lies between bounds, as 0 to 1, not yet rounded.
    """
    factor = np.ldexp(np.float32(1.0 / MOST_STEPS), -layer.shifts).astype(np.float32)
    rest = -(layer.lo - layer.zero) / MOST_STEPS
    return layer.bias + np.int32(FLOATS_BITS), factor, (rest - FLOATS_BEGIN * factor.astype(np.float64)).astype(np.float32)


LEAST_BEGIN = 2.0 ** -100
"""What one counts where sums begin at 1.5 * 2**-77: chosen so that one factor takes them to float32's least numbers."""
LEAST_BITS = FLOATS_BITS - (100 << 23)
"""The bits of 1.5 * 2**-77; source: IEEE 754."""
LEAST = -149
"""The exponent of float32's least number; source: IEEE 754."""


def as_least_floats(layer: LayerWeights) -> tuple[Array, Array, Array]:
    """The same, where one multiplication makes float32's least numbers of sums: their bits are bytes without sign, rounded."""
    factor = np.ldexp(1.0 / LEAST_BEGIN, LEAST - layer.shifts.astype(np.int64)).astype(np.float32)
    ones = layer.zero + STORED_OFFSET - np.ldexp(FLOATS_BEGIN, -layer.shifts.astype(np.int64))
    return layer.bias + np.int32(LEAST_BITS), factor, np.ldexp(ones, LEAST).astype(np.float32)


def without_signs(layer: LayerWeights) -> LayerWeights:
    """A depthwise layer that reads bytes without sign, as many more than the stored ones."""
    return replace(layer, bias=layer.bias - np.int32(STORED_OFFSET) * layer.weights.astype(np.int32).sum(0, dtype=np.int32))


def taps_by_rows(weights: Array, kernel: tuple[int, int], stride: int) -> tuple[Array, int]:
    """Taps (taps x channels) of a depthwise layer as words of four rows, and how many words a column of them takes.

    They lie as columns x places x words x channels; a row of outputs at an odd place has them one byte further on.
    """
    rows, across = kernel
    places, words = 1 + stride % 2, -(-(rows + stride % 2) // 4)
    taps = np.zeros((across, places, 4 * words, weights.shape[1]), dtype=np.int8)
    for place in range(places):
        taps[:, place, place:place + rows] = weights.reshape(rows, across, -1).transpose(1, 0, 2)
    four = taps.reshape(across, places, words, 4, -1).transpose(0, 1, 2, 4, 3)
    return np.ascontiguousarray(four).view(np.int32).reshape(-1), words


def among(weights: LayerWeights, channels: Sequence[int], whole: int) -> LayerWeights:
    """The same layer reading all channels of the tensor its own were chosen from: others have no weight."""
    own = weights.weights.reshape(-1, len(channels), weights.weights.shape[1])
    spread = np.zeros((len(own), whole, own.shape[2]), dtype=own.dtype)
    spread[:, list(channels)] = own
    return replace(weights, weights=spread.reshape(-1, own.shape[2]))


def change_of(graph: Graph, node: Node, index: int = 0) -> Change:
    """How sums over values of one of a node's inputs become its output; of products, those of both."""
    if not graph.quantized:
        lo, hi = float_bounds(node.op.bounds)
        return Change(lo=lo, hi=hi)
    how, source, target = _to_even(graph, node), byte_scheme(graph, node.inputs[index]), byte_scheme(graph, node.output)
    lo, hi = integer_bounds(node.op.bounds, target)
    moved, count = offset_of(target), int(np.max(node.op.divisor(graph.input_shapes(node))))
    _fits(node, how, MOST_APART ** FACTORS.get(type(node.op), 1) * count * _factor(how, index), count)
    return Change(_factor(how, index), max(how.shifts[0], 0), how.zeros[index] - offset_of(source), how.zero - moved,
                  lo - moved, hi - moved)


def _fits(node: Node, how: Requantizer, largest: int, count: int = 1) -> None:
    """Whether sums up to so much, divided by `count` and two to the power of a shift, are computed in 64 bits."""
    if max(largest, count << max(how.shifts[0], 0)) > LARGEST_WIDE:
        raise UnsupportedError(f"node {node.name}: between scales so far apart that sums exceed 64 bits; such parts run in the "
                               "integer interpreter")


def _factor(how: Requantizer, index: int) -> int:
    """What values of an input are multiplied by before they are shifted to the right, where one factor serves all channels."""
    return how.factors[index][0] * how.multipliers[0] << max(-how.shifts[0], 0)


def addition(graph: Graph, node: Node, first: str) -> Addition:
    """The constants of an addition of two tensors, `first` being the own side."""
    if not graph.quantized:
        return Addition(lo=float_bounds(node.op.bounds)[0], hi=float_bounds(node.op.bounds)[1])
    how, target = _to_even(graph, node), byte_scheme(graph, node.output)
    _fits(node, how, MOST_APART * (_factor(how, 0) + _factor(how, 1)))
    order = (0, 1) if node.inputs[0] == first else (1, 0)
    zeros = [how.zeros[i] - offset_of(byte_scheme(graph, node.inputs[i])) for i in order]
    lo, hi = integer_bounds(node.op.bounds, target)
    moved = offset_of(target)
    return Addition((_factor(how, order[0]), _factor(how, order[1])), (zeros[0], zeros[1]), max(how.shifts[0], 0), lo - moved,
               hi - moved, how.zero - moved)
