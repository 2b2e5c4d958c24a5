"""How each ONNX operator becomes one of ours: one short function per operator, listed in `READERS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, isnan, prod
from typing import Any

import numpy as np

from dovetail import plugins
from dovetail.errors import ModelError
from dovetail.ir import RELU, Add, AvgPool, Broadcast, Clamp, Clip, Concat, Conv, Gemm, GlobalAvgPool, MaxPool, Mul, Reshape
from dovetail.ir.onnx.file import MAX_TENSOR_BYTES
from dovetail.ir.onnx.movement import MOVERS, add_moved, add_reshaped, with_output
from dovetail.ir.onnx.qonnx_thresholds import multi_threshold
from dovetail.ir.onnx.quantizers import bipolar, dequantize, quant, quantize
from dovetail.ir.onnx.state import Attributes, Reader
from dovetail.ir.onnx.transposed import repeated_scales, transposed_weights, transposed_window
from dovetail.ir.operators.window import Pads, Window
from dovetail.ir.tensor import Array, Constant, Scheme, Shape


def _window(reader: Reader, proto: Any, a: Attributes, kernel: tuple[int, ...]) -> Window:
    """The window a node slides over its first input, with the zero padding that a Pad node put around that."""
    if len(kernel) != 2:
        raise reader.unsupported(proto, f"{len(kernel)}-dimensional kernel; two dimensions are supported")
    top, left, bottom, right = reader.padding.get(proto.input[0], (0, 0, 0, 0))
    batch, channels, height, width = reader.shape(proto.input[0], proto.name)
    inner = window_of(a, kernel, (batch, channels, height + top + bottom, width + left + right))
    pads = inner.pads
    return replace(inner, pads=(pads[0] + top, pads[1] + left, pads[2] + bottom, pads[3] + right))


def window_of(attributes: Attributes, kernel: tuple[int, ...], shape: Shape) -> Window:
    """The window that attributes state for an input of `shape`: explicit pads, auto_pad, ceil_mode."""
    stride = tuple(attributes.get("strides", (1, 1)))
    dilation = tuple(attributes.get("dilations", (1, 1)))
    edges = tuple(attributes.get("pads", (0, 0, 0, 0)))
    mode = attributes.get("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = []
        for size, k, s, d in zip(shape[2:], kernel, stride, dilation, strict=True):
            totals.append(max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size))
        small = [t // 2 for t in totals]
        large = [t - t // 2 for t in totals]
        first, last = (small, large) if mode == "SAME_UPPER" else (large, small)
        edges = (*first, *last)
    if attributes.get("ceil_mode"):
        edges = _ceil_pads(shape, kernel, stride, dilation, edges)
    four = (edges[0], edges[1], edges[2], edges[3])
    return Window((kernel[0], kernel[1]), (stride[0], stride[1]), four, (dilation[0], dilation[1]))


def _ceil_pads(shape: Shape, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...],
               pads: tuple[int, ...]) -> Pads:
    """Padding below and right that makes floor arithmetic give the size `ceil_mode` asks for."""
    extra = []
    for i in range(2):
        span = shape[2 + i] + pads[i] + pads[i + 2] - ((kernel[i] - 1) * dilation[i] + 1)
        count = -(-span // stride[i]) + 1
        if (count - 1) * stride[i] >= shape[2 + i] + pads[i]:
            count -= 1  # a window may not start in the padding after the input
        extra.append(max(0, (count - 1) * stride[i] - span))
    return (pads[0], pads[1], pads[2] + extra[0], pads[3] + extra[1])


def _conv(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    weight = _weights(reader, proto)
    if len(shape) != 4 or weight.array.ndim != 4:
        raise reader.unsupported(proto, f"convolution over {len(shape) - 2} dimensions; two are supported")
    if tuple(a.get("kernel_shape", weight.array.shape[2:])) != weight.array.shape[2:]:
        raise ModelError(f"{reader.where}: node {proto.name}: kernel_shape {list(a['kernel_shape'])} beside weights of shape "
                         f"{list(weight.array.shape)}; the file is damaged, export the model again")
    filters, groups = weight.array.shape[0], int(a.get("group", 1))
    bias, window = _bias(reader, proto, 2, filters, weight), _window(reader, proto, a, weight.array.shape[2:])
    if weight.array.shape[1] * groups != shape[1]:
        raise ModelError(f"{reader.where}: node {proto.name}: weight of shape {list(weight.array.shape)} with {groups} groups "
                         f"does not fit {shape[1]} input channels")
    reader.add(proto, Conv(filters, window, groups), params={"weight": (weight.array, weight.scheme), "bias": bias})


def _conv_transpose(reader: Reader, proto: Any, a: Attributes) -> None:
    """The convolution of every place in a block of pixels, one after the other, and the pixel shuffle that puts them there."""
    shape, weight = reader.shape(proto.input[0], proto.name), _weights(reader, proto)
    if len(shape) != 4 or weight.array.ndim != 4:
        raise reader.unsupported(proto, f"transposed convolution over {len(shape) - 2} dimensions; two are supported")
    groups, each = int(a.get("group", 1)), weight.array.shape[1]
    if weight.array.shape[0] != shape[1] or shape[1] % groups:
        raise ModelError(f"{reader.where}: node {proto.name}: weight of shape {list(weight.array.shape)} with {groups} groups "
                         f"does not fit {shape[1]} input channels")
    array, bias_scheme = _bias(reader, proto, 2, groups * each, weight)
    placed = transposed_window(a, weight.array.shape[2:], shape, f"{reader.where}: node {proto.name}")
    block = placed.block
    if prod(weight.array.shape[:2]) * block * prod(placed.window.kernel) > MAX_TENSOR_BYTES // 8:
        raise reader.unsupported(proto, f"transposed convolution of {block:,} places with weights each; they take too much room")
    found = transposed_weights(weight, placed, groups)
    bias = (np.repeat(array, block), None if bias_scheme is None else repeated_scales(bias_scheme, block, 0))
    op = Conv(groups * each * block, placed.window, groups)
    params = {"weight": (found.array, found.scheme), "bias": bias}
    if block == 1:
        reader.add(proto, op, params=params)
        return
    phases = reader.unique_tensor(f"{proto.output[0]}_phases")
    reader.add(with_output(proto, phases, proto.name), op, params=params)
    shuffle = with_output(proto, proto.output[0], f"{proto.name}_shuffle" if proto.name else "")
    shuffle.input[:] = [phases]
    add_moved(reader, shuffle, [placed.shuffle.moved], placed.shuffle)


def _weights(reader: Reader, proto: Any) -> Constant:
    """Weights as floats, or as integers with one scale in all or one per filter; anything else is made floats again."""
    found = reader.constant(proto.input[1], proto.name, "weight")
    if found.scheme is None and found.array.dtype == np.float32:
        return found  # hundreds of megabytes in large classifiers: no copy where none is needed
    usual = found.scheme is not None and found.scheme.bits <= 16
    return found if usual else Constant(found.name, found.real.astype(np.float32))


def _bias(reader: Reader, proto: Any, index: int, count: int, weight: Constant) -> tuple[Array, Scheme | None]:
    if len(proto.input) > index and proto.input[index]:
        bias = reader.constant(proto.input[index], proto.name, "bias")
        if bias.scheme is not None:
            return bias.array, bias.scheme
        return np.broadcast_to(bias.array.astype(np.float32).reshape(-1), (count,)).copy(), None
    if weight.scheme is not None:
        return np.zeros(count, dtype=np.int32), Scheme(32, True, (0,) * count, 0)  # zero at any scale; `passes` says which
    return np.zeros(count, dtype=np.float32), None


def _gemm(reader: Reader, proto: Any, a: Attributes) -> None:
    if a.get("transA"):
        raise reader.unsupported(proto, "Gemm with transA; transpose the input before export")
    weight = _weights(reader, proto)
    if proto.input[0] in reader.constants or weight.array.ndim != 2 or len(reader.shape(proto.input[0], proto.name)) != 2:
        raise reader.unsupported(proto, f"{proto.op_type} of other than a matrix by constant weights")
    array, scheme = weight.array, weight.scheme
    if not a.get("transB"):
        array = array.T.copy()
        if scheme is not None and scheme.axis is not None:
            scheme = replace(scheme, axis=1 - scheme.axis)
    bias, bias_scheme = _bias(reader, proto, 2, array.shape[0], Constant("", array, scheme))
    alpha, beta = float(a.get("alpha", 1.0)), float(a.get("beta", 1.0))
    if scheme is None:
        array = array if alpha == 1.0 else (array * np.float32(alpha)).astype(np.float32)
        bias = bias if beta == 1.0 else (bias * np.float32(beta)).astype(np.float32)
    elif alpha != 1.0 or beta != 1.0:
        raise reader.unsupported(proto, f"quantized Gemm with alpha {alpha:g}, beta {beta:g}; both must be 1")
    reader.add(proto, Gemm(array.shape[0]), params={"weight": (array, scheme), "bias": (bias, bias_scheme)})


def _imaged(reader: Reader, proto: Any) -> None:
    """Element-wise operators are typed for images and matrices; in between lies attention, which stays in floats."""
    ranks = {len(reader.shape(i, proto.name)) for i in proto.input if i and i not in reader.constants}
    if not ranks <= {2, 4} or len(ranks) > 1:
        raise reader.unsupported(proto, f"{proto.op_type} of rank {sorted(ranks)}; 2 and 4 are typed")


def _max_pool(reader: Reader, proto: Any, a: Attributes) -> None:
    kernel = tuple(a.get("kernel_shape", ()))
    window = _window(reader, proto, a, kernel)
    if proto.input[0] in reader.padding and any(p >= window.reach[i % 2] for i, p in enumerate(window.pads)):
        _keep_padding(reader, proto.input[0])  # a window of zeros alone
        window = _window(reader, proto, a, kernel)
    reader.add(proto, MaxPool(window))


def _avg_pool(reader: Reader, proto: Any, a: Attributes) -> None:
    window = _window(reader, proto, a, tuple(a.get("kernel_shape", ())))
    count_pads = bool(a.get("count_include_pad"))
    if count_pads and a.get("ceil_mode") and window != _window(reader, proto, {**a, "ceil_mode": 0}, window.kernel):
        raise reader.unsupported(proto, "average pooling with ceil_mode past the counted padding; pad the input explicitly")
    reader.add(proto, AvgPool(window, count_pads and any(window.pads)))


def _add(reader: Reader, proto: Any, a: Attributes) -> None:
    if len(proto.input) == 1:  # a Sum of one term
        _pass_through(reader, proto, a)
        return
    _imaged(reader, proto)
    fixed = [i for i in proto.input if i in reader.constants]
    if len(fixed) not in (0, 1) or (fixed and len(proto.input) != 2):
        raise reader.unsupported(proto, f"adds {len(fixed)} constants; one is typed")
    if not fixed:
        _joined(reader, proto, Add())
        return
    _affine(reader, proto, None, reader.constants[fixed[0]])


def _joined(reader: Reader, proto: Any, op: Broadcast) -> None:
    try:
        op.infer(tuple(reader.shape(i, proto.name) for i in proto.input))
    except ModelError as reason:
        raise reader.unsupported(proto, str(reason)) from None
    reader.add(proto, op, proto.input)


ZERO, ONE, MINUS_ONE = (Constant("", np.asarray(value)) for value in (0.0, 1.0, -1.0))


def _affine(reader: Reader, proto: Any, factor: Constant | None, offset: Constant | None) -> None:
    """Multiplication by or addition of one constant per channel: a depthwise 1x1 convolution or a diagonal Gemm.

    `passes` merges it into the convolution before it.
    """
    moving = next(i for i in proto.input if i not in reader.constants)
    shape = reader.shape(moving, proto.name)
    scale, shift = (_per_channel(reader, proto, c, shape) for c in (factor or ONE, offset or ZERO))
    _add_affine(reader, proto, moving, scale, shift)


def _add_affine(reader: Reader, proto: Any, moving: str, scale: Array, shift: Array) -> None:
    """The node that scales and shifts each channel by a number of its own."""
    channels, weight = len(scale), scale.astype(np.float32)
    matrix = len(reader.shape(moving, proto.name)) == 2
    op = Gemm(channels) if matrix else Conv(channels, Window((1, 1)), channels)
    weight = np.diag(weight) if matrix else weight.reshape(channels, 1, 1, 1)
    reader.add(proto, op, [moving], {"weight": (weight, None), "bias": (shift.astype(np.float32), None)})


def _per_channel(reader: Reader, proto: Any, constant: Constant, shape: Shape) -> Array:
    """A constant as one value per channel of `shape`, if it broadcasts so."""
    array = constant.real
    aligned = (1,) * (len(shape) - array.ndim) + array.shape
    if array.ndim > len(shape) or any(d != 1 for i, d in enumerate(aligned) if i != 1) \
            or aligned[1] not in (1, shape[1]):
        raise reader.unsupported(proto, f"{proto.op_type} with a constant of shape {list(array.shape)}; one value per channel is "
                                        "typed")
    return np.broadcast_to(array.astype(np.float32).reshape(aligned[1]), (shape[1],)).copy()


def _mul(reader: Reader, proto: Any, a: Attributes) -> None:
    _imaged(reader, proto)
    fixed = [i for i in proto.input if i in reader.constants]
    if not fixed:
        _joined(reader, proto, Mul())
        return
    _affine(reader, proto, reader.constants[fixed[0]], None)


def _sub(reader: Reader, proto: Any, a: Attributes) -> None:
    """Subtraction of a constant, as preprocessing has it, or from one."""
    _imaged(reader, proto)
    left, right = (reader.constants.get(i) for i in proto.input)
    if left is None and right is not None and right.scheme is None:
        _affine(reader, proto, None, Constant(right.name, -right.array))
    elif left is not None and left.scheme is None:
        _affine(reader, proto, MINUS_ONE, left)
    else:
        raise reader.unsupported(proto, "subtracts two activations")


def _div(reader: Reader, proto: Any, a: Attributes) -> None:
    _imaged(reader, proto)
    divisor = reader.constants.get(proto.input[1])
    if divisor is None or divisor.scheme is not None or not np.all(divisor.array):
        raise reader.unsupported(proto, "divides by other than constants")
    _affine(reader, proto, Constant(divisor.name, 1.0 / divisor.array.astype(np.float64)), None)


def _neg(reader: Reader, proto: Any, a: Attributes) -> None:
    _imaged(reader, proto)
    _affine(reader, proto, MINUS_ONE, None)


def _clip(reader: Reader, proto: Any, a: Attributes) -> None:
    _imaged(reader, proto)
    lo, hi = float(a.get("min", -inf)), float(a.get("max", inf))
    for index, side in ((1, "min"), (2, "max")):
        if len(proto.input) > index and proto.input[index]:
            value = float(reader.constant(proto.input[index], proto.name, side).real.reshape(()))
            lo, hi = (value, hi) if side == "min" else (lo, value)
    if isnan(lo) or isnan(hi):
        raise ModelError(f"{reader.where}: node {proto.name}: Clip to NaN; both bounds must be numbers, the file is damaged")
    limit = float(np.finfo(np.float32).max)
    lo, hi = (-inf if lo <= -limit else lo), (inf if hi >= limit else hi)
    reader.add(proto, Clip(Clamp(lo, hi)))


def _relu(reader: Reader, proto: Any, a: Attributes) -> None:
    _imaged(reader, proto)
    reader.add(proto, Clip(RELU))


def _concat(reader: Reader, proto: Any, a: Attributes) -> None:
    _imaged(reader, proto)
    rank = len(reader.shape(proto.input[0], proto.name))
    reader.add(proto, Concat(int(a["axis"]) % rank), proto.input)


def _flatten(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    axis = int(a.get("axis", 1)) % (len(shape) + 1)
    add_reshaped(reader, proto, (prod(shape[:axis]), prod(shape[axis:])))


def _reshape(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    wanted = [int(d) for d in reader.constant(proto.input[1], proto.name, "shape").array.reshape(-1)]
    known = [shape[i] if d == 0 and i < len(shape) else d for i, d in enumerate(wanted)]
    if -1 in known:
        rest = prod(d for d in known if d != -1)
        known[known.index(-1)] = prod(shape) // rest if rest else 0
    add_reshaped(reader, proto, tuple(known))


def _batch_norm(reader: Reader, proto: Any, a: Attributes) -> None:
    """Becomes a depthwise 1x1 convolution; `passes` merges it into the convolution before it."""
    shape = reader.shape(proto.input[0], proto.name)
    gamma, beta, mean, var = (reader.constant(i, proto.name, "statistic").real for i in proto.input[1:5])
    with np.errstate(all="ignore"):  # what is not finite is refused by name when the node is added
        scale = gamma / np.sqrt(var + float(a.get("epsilon", 1e-5)))
        bias = (beta - mean * scale).astype(np.float32)
    if scale.shape != shape[1:2] or len(shape) not in (2, 4):
        raise reader.unsupported(proto, f"BatchNormalization over shape {list(shape)}; N,C,H,W or N,C is supported")
    _add_affine(reader, proto, proto.input[0], scale, bias)


def _pass_through(reader: Reader, proto: Any, a: Attributes) -> None:
    if proto.input[0] in reader.constants:
        reader.constants[proto.output[0]] = reader.constants[proto.input[0]]
    else:
        reader.alias[proto.output[0]] = proto.input[0]


def _constant(reader: Reader, proto: Any, a: Attributes) -> None:
    values = [a[k] for k in ("value", "sparse_value", "value_float", "value_int", "value_floats", "value_ints") if k in a]
    if not values:
        raise reader.unsupported(proto, "Constant of an unusual kind; use a dense tensor")
    reader.constants[proto.output[0]] = Constant(proto.output[0], np.asarray(values[0]))


def _shape(reader: Reader, proto: Any, a: Attributes) -> None:
    """Shapes are static here, so the operator is a constant."""
    shape = reader.constants[proto.input[0]].array.shape if proto.input[0] in reader.constants \
        else reader.shape(proto.input[0], proto.name)
    cut = shape[a.get("start", 0):a.get("end", len(shape))]
    reader.constants[proto.output[0]] = Constant(proto.output[0], np.asarray(cut, dtype=np.int64))


def _axes(reader: Reader, proto: Any, a: Attributes, rank: int) -> tuple[int, ...]:
    """The axes of a reduction or squeeze; all where it names none."""
    found = reader.integers(proto, a, "axes", 1)
    axes = sorted(i % rank for i in (range(rank) if found is None else found))
    if len({*axes}) < len(axes) or any(not -rank <= i < rank for i in found or ()):
        raise ModelError(f"{reader.where}: node {proto.name}: axes {list(found or ())}; each of {-rank} to {rank - 1} at most "
                         "once is possible, the file is damaged")
    return tuple(axes)


def _reduce_mean(reader: Reader, proto: Any, a: Attributes) -> None:
    """The mean over rows and columns is global average pooling, as some exporters write it."""
    shape = reader.shape(proto.input[0], proto.name)
    if len(shape) != 4 or _axes(reader, proto, a, 4) != (2, 3):
        raise reader.unsupported(proto, "mean over other axes than rows and columns")
    if a.get("keepdims", 1):
        reader.add(proto, GlobalAvgPool())
        return
    pooled = f"{proto.output[0]}_pooled"
    reader.add(with_output(proto, pooled, proto.name), GlobalAvgPool())
    reader.add(with_output(proto, proto.output[0], f"{proto.name}_flatten"), Reshape(shape[:2]), [pooled])


def _global_max_pool(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    if len(shape) != 4:
        raise reader.unsupported(proto, f"pooling over {len(shape) - 2} dimensions; two are supported")
    reader.add(proto, MaxPool(Window((shape[2], shape[3]))))


def _pad(reader: Reader, proto: Any, a: Attributes) -> None:
    """Zero rows and columns that only convolutions read become part of their windows, as asymmetric padding needs.

    So do those that a maximum of values reads which are never below zero: there, a zero changes nothing.
    """
    shape = reader.shape(proto.input[0], proto.name)
    pads = reader.integers(proto, a, "pads", 1) or []
    value = reader.constant(proto.input[2], proto.name, "value").real if len(proto.input) > 2 and proto.input[2] \
        else np.asarray(a.get("value", 0.0))
    spatial = len(shape) == 4 and len(pads) == 8 and not any(pads[i] for i in (0, 1, 4, 5)) and min(pads) >= 0
    if not spatial or a.get("mode", "constant") != "constant" or float(value.reshape(-1)[0]) != 0.0 or len(proto.input) > 3 \
            or not _absorbed(reader, proto):
        raise reader.unsupported(proto, "padding other than zeros around a convolution's input")
    top, left, bottom, right = reader.padding.get(proto.input[0], (0, 0, 0, 0))
    reader.padding[proto.output[0]] = (top + pads[2], left + pads[3], bottom + pads[6], right + pads[7])
    reader.alias[proto.output[0]] = proto.input[0]
    reader.padded[proto.output[0]] = proto


def _keep_padding(reader: Reader, value: str) -> None:
    """Nodes for padding that was to become part of windows."""
    if value in reader.padding:
        node = reader.padded[value]
        _keep_padding(reader, node.input[0])
        del reader.padding[value], reader.alias[value]
        reader.reasons[value] = "a window of zeros alone reads it"
        reader.add_foreign(node)


def _absorbed(reader: Reader, proto: Any) -> bool:
    """Whether whoever reads a padded value can take the padding into its window."""
    users, source = reader.users.get(proto.output[0]), reader.producer(reader.tensor(proto.input[0]))
    bounds = None if source is None else source.op.bounds
    return users == {"Conv"} or (users == {"MaxPool"} and bounds is not None and bounds.lo >= 0)


def _squeeze(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    given = "axes" in a or (len(proto.input) > 1 and proto.input[1])
    axes = _axes(reader, proto, a, len(shape)) if given else tuple(i for i, d in enumerate(shape) if d == 1)
    add_reshaped(reader, proto, tuple(d for i, d in enumerate(shape) if i not in axes))


def _unsqueeze(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    rank = len(shape) + len(reader.integers(proto, a, "axes", 1) or ())
    axes, rest = _axes(reader, proto, a, rank), iter(shape)
    add_reshaped(reader, proto, tuple(1 if i in axes else next(rest) for i in range(rank)))


READERS: dict[str, Callable[[Reader, Any, Attributes], None]] = {
    "Add": _add, "AveragePool": _avg_pool, "BatchNormalization": _batch_norm, "Clip": _clip, "Concat": _concat,
    "Constant": _constant, "Conv": _conv, "ConvTranspose": _conv_transpose, "DequantizeLinear": dequantize, "Div": _div,
    "Dropout": _pass_through,
    "Flatten": _flatten, "Gemm": _gemm, "GlobalAveragePool": lambda reader, proto, a: reader.add(proto, GlobalAvgPool()),
    "GlobalMaxPool": _global_max_pool, "Identity": _pass_through, "MatMul": lambda reader, proto, a: _gemm(reader, proto, {}),
    "MaxPool": _max_pool, "Mul": _mul, "Neg": _neg, "Pad": _pad, "BipolarQuant": bipolar, "MultiThreshold": multi_threshold,
    "Quant": quant, "QuantizeLinear": quantize, "ReduceMean": _reduce_mean, "Relu": _relu,
    "Reshape": _reshape, "Shape": _shape, "Squeeze": _squeeze, "Sub": _sub, "Sum": _add, "Unsqueeze": _unsqueeze,
    **MOVERS,
}


def reader_of(op_type: str) -> Callable[[Reader, Any, Attributes], None] | None:
    """How an operator of ONNX is read: by us, or else by a plug-in; None where by nobody."""
    if op_type in READERS or op_type not in plugins.names("operators"):
        return READERS.get(op_type)
    found: plugins.OperatorPlugin = plugins.load("operators", op_type)
    return found.read
