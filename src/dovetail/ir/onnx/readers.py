"""How each ONNX operator becomes one of ours: one short function per operator, listed in `READERS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy as np

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir.onnx.movement import MOVERS, add_reshaped
from dovetail.ir.onnx.qonnx_thresholds import multi_threshold
from dovetail.ir.onnx.quantizers import bipolar, dequantize, quant, quantize
from dovetail.ir.onnx.state import Attributes, Reader
from dovetail.ir.onnx.windows import window_of
from dovetail.ir.operators.base import Clamp
from dovetail.ir.operators.convolution import Conv
from dovetail.ir.operators.elementwise import Add, Broadcast, Clip, Concat, Mul, Reshape
from dovetail.ir.operators.linear import Gemm
from dovetail.ir.operators.pooling import AvgPool, GlobalAvgPool, MaxPool
from dovetail.ir.operators.window import Window
from dovetail.ir.tensor import Array, Constant, Scheme, Shape


def _conv(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    weight = _weights(reader, proto)
    if len(shape) != 4 or weight.array.ndim != 4:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: convolution over {len(shape) - 2} dimensions; "
                               "two are supported")
    if tuple(a.get("kernel_shape", weight.array.shape[2:])) != weight.array.shape[2:]:
        raise ModelError(f"{reader.where}: node {proto.name}: kernel_shape {list(a['kernel_shape'])} beside weights of shape "
                         f"{list(weight.array.shape)}; the file is damaged, export the model again")
    filters = weight.array.shape[0]
    bias = _bias(reader, proto, 2, filters, weight)
    around = reader.padding.get(proto.input[0])
    window = window_of(a, weight.array.shape[2:], shape, f"{reader.where}: node {proto.name}", around)
    groups = int(a.get("group", 1))
    if weight.array.shape[1] * groups != shape[1]:
        raise ModelError(f"{reader.where}: node {proto.name}: weight of shape {list(weight.array.shape)} with {groups} groups "
                         f"does not fit {shape[1]} input channels")
    reader.add(proto, Conv(filters, window, groups), [proto.input[0]],
               {"weight": (weight.array, weight.scheme), "bias": bias})


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
        raise UnsupportedError(f"{reader.where}: node {proto.name}: Gemm with transA; transpose the input before export")
    weight = _weights(reader, proto)
    if proto.input[0] in reader.constants or weight.array.ndim != 2 or len(reader.shape(proto.input[0], proto.name)) != 2:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: {proto.op_type} of other than a matrix by constant weights")
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
        raise UnsupportedError(f"{reader.where}: node {proto.name}: quantized Gemm with alpha {alpha:g}, beta {beta:g}; "
                               "both must be 1")
    reader.add(proto, Gemm(array.shape[0]), [proto.input[0]], {"weight": (array, scheme), "bias": (bias, bias_scheme)})


def _imaged(reader: Reader, proto: Any) -> None:
    """Element-wise operators are typed for images and matrices; in between lies attention, which stays in floats."""
    ranks = {len(reader.shape(i, proto.name)) for i in proto.input if i and i not in reader.constants}
    if not ranks <= {2, 4} or len(ranks) > 1:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: {proto.op_type} of rank {sorted(ranks)}; 2 and 4 are typed")


def _matmul(reader: Reader, proto: Any, a: Attributes) -> None:
    _gemm(reader, proto, {"transB": 0})


def _max_pool(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    around = reader.padding.get(proto.input[0])
    window = window_of(a, tuple(a.get("kernel_shape", ())), shape, f"{reader.where}: node {proto.name}", around)
    if around is not None and any(p >= window.reach[i % 2] for i, p in enumerate(window.pads)):
        raise UnsupportedError(f"{reader.where}: node {proto.name}: a window of zeros alone; shrink the padding before it")
    reader.add(proto, MaxPool(window), [proto.input[0]], {})


def _avg_pool(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    where = f"{reader.where}: node {proto.name}"
    window = window_of(a, tuple(a.get("kernel_shape", ())), shape, where)
    count_pads = bool(a.get("count_include_pad"))
    if count_pads and a.get("ceil_mode") and window != window_of({**a, "ceil_mode": 0}, window.kernel, shape, where):
        raise UnsupportedError(f"{where}: average pooling with ceil_mode past the counted padding; pad the input explicitly")
    reader.add(proto, AvgPool(window, count_pads and any(window.pads)), [proto.input[0]], {})


def _global_avg_pool(reader: Reader, proto: Any, a: Attributes) -> None:
    reader.add(proto, GlobalAvgPool(), [proto.input[0]], {})


def _add(reader: Reader, proto: Any, a: Attributes) -> None:
    if len(proto.input) == 1:  # a Sum of one term
        _pass_through(reader, proto, a)
        return
    _imaged(reader, proto)
    fixed = [i for i in proto.input if i in reader.constants]
    if len(fixed) not in (0, 1) or (fixed and len(proto.input) != 2):
        raise UnsupportedError(f"{reader.where}: node {proto.name}: adds {len(fixed)} constants; one is typed")
    if not fixed:
        _joined(reader, proto, Add())
        return
    _affine(reader, proto, None, reader.constants[fixed[0]])


def _joined(reader: Reader, proto: Any, op: Broadcast) -> None:
    try:
        op.infer(tuple(reader.shape(i, proto.name) for i in proto.input))
    except ModelError as reason:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: {reason}") from None
    reader.add(proto, op, list(proto.input), {})


def _affine(reader: Reader, proto: Any, factor: Constant | None, offset: Constant | None) -> None:
    """Multiplication by or addition of one constant per channel: a depthwise 1x1 convolution or a diagonal Gemm.

    `passes` merges it into the convolution before it.
    """
    moving = next(i for i in proto.input if i not in reader.constants)
    shape = reader.shape(moving, proto.name)
    channels = shape[1]
    scale, shift = (_per_channel(reader, proto, c, shape) for c in (factor, offset))
    weight = np.ones(channels, dtype=np.float32) if scale is None else scale
    bias = np.zeros(channels, dtype=np.float32) if shift is None else shift
    if len(shape) == 2:
        reader.add(proto, Gemm(channels), [moving], {"weight": (np.diag(weight), None), "bias": (bias, None)})
        return
    op = Conv(channels, Window((1, 1)), channels)
    reader.add(proto, op, [moving], {"weight": (weight.reshape(channels, 1, 1, 1), None), "bias": (bias, None)})


def _per_channel(reader: Reader, proto: Any, constant: Constant | None, shape: Shape) -> Array | None:
    """A constant as one value per channel of `shape`, if it broadcasts so."""
    if constant is None:
        return None
    array = constant.real
    aligned = (1,) * (len(shape) - array.ndim) + array.shape
    if array.ndim > len(shape) or any(d != 1 for i, d in enumerate(aligned) if i != 1) \
            or aligned[1] not in (1, shape[1]):
        raise UnsupportedError(f"{reader.where}: node {proto.name}: {proto.op_type} with a constant of shape "
                               f"{list(array.shape)}; one value per channel is typed")
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
        _affine(reader, proto, Constant("", np.asarray(-1.0)), left)
    else:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: subtracts two activations")


def _div(reader: Reader, proto: Any, a: Attributes) -> None:
    _imaged(reader, proto)
    divisor = reader.constants.get(proto.input[1])
    if divisor is None or divisor.scheme is not None or not np.all(divisor.array):
        raise UnsupportedError(f"{reader.where}: node {proto.name}: divides by other than constants")
    _affine(reader, proto, Constant(divisor.name, 1.0 / divisor.array.astype(np.float64)), None)


def _neg(reader: Reader, proto: Any, a: Attributes) -> None:
    _imaged(reader, proto)
    _affine(reader, proto, Constant("", np.asarray(-1.0)), None)


def _clip(reader: Reader, proto: Any, a: Attributes) -> None:
    _imaged(reader, proto)
    lo, hi = float(a.get("min", -inf)), float(a.get("max", inf))
    for index, side in ((1, "min"), (2, "max")):
        if len(proto.input) > index and proto.input[index]:
            value = float(reader.constant(proto.input[index], proto.name, side).real.reshape(()))
            lo, hi = (value, hi) if side == "min" else (lo, value)
    limit = float(np.finfo(np.float32).max)
    lo, hi = (-inf if lo <= -limit else lo), (inf if hi >= limit else hi)
    reader.add(proto, Clip(Clamp(lo, hi)), [proto.input[0]], {})


def _relu(reader: Reader, proto: Any, a: Attributes) -> None:
    _imaged(reader, proto)
    reader.add(proto, Clip(Clamp(0.0, inf)), [proto.input[0]], {})


def _concat(reader: Reader, proto: Any, a: Attributes) -> None:
    _imaged(reader, proto)
    rank = len(reader.shape(proto.input[0], proto.name))
    reader.add(proto, Concat(int(a["axis"]) % rank), list(proto.input), {})


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
    channels = shape[1]
    if scale.shape != (channels,) or len(shape) not in (2, 4):
        raise UnsupportedError(f"{reader.where}: node {proto.name}: BatchNormalization over shape {list(shape)}; "
                               "N,C,H,W or N,C is supported")
    if len(shape) == 2:
        diagonal = np.diag(scale).astype(np.float32)
        reader.add(proto, Gemm(channels), [proto.input[0]], {"weight": (diagonal, None), "bias": (bias, None)})
        return
    weight = scale.reshape(channels, 1, 1, 1).astype(np.float32)
    op = Conv(channels, Window((1, 1)), channels)
    reader.add(proto, op, [proto.input[0]], {"weight": (weight, None), "bias": (bias, None)})


def _pass_through(reader: Reader, proto: Any, a: Attributes) -> None:
    if proto.input[0] in reader.constants:
        reader.constants[proto.output[0]] = reader.constants[proto.input[0]]
    else:
        reader.alias[proto.output[0]] = proto.input[0]


def _constant(reader: Reader, proto: Any, a: Attributes) -> None:
    values = [a[k] for k in ("value", "sparse_value", "value_float", "value_int", "value_floats", "value_ints") if k in a]
    if not values:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: Constant of an unusual kind; use a dense tensor")
    reader.constants[proto.output[0]] = Constant(proto.output[0], np.asarray(values[0]))


def _shape(reader: Reader, proto: Any, a: Attributes) -> None:
    """Shapes are static here, so the operator is a constant."""
    shape = reader.constants[proto.input[0]].array.shape if proto.input[0] in reader.constants \
        else reader.shape(proto.input[0], proto.name)
    cut = shape[a.get("start", 0):a.get("end", len(shape))]
    reader.constants[proto.output[0]] = Constant(proto.output[0], np.asarray(cut, dtype=np.int64))


def _axes(reader: Reader, proto: Any, a: Attributes, rank: int) -> tuple[int, ...]:
    """The axes of a reduction or squeeze, from its attribute (old opsets) or its second input."""
    if "axes" in a:
        found = [int(i) for i in a["axes"]]
    elif len(proto.input) > 1 and proto.input[1]:
        found = [int(i) for i in reader.constant(proto.input[1], proto.name, "axes").array.reshape(-1)]
    else:
        found = list(range(rank))
    return tuple(sorted(i % rank for i in found))


def _reduce_mean(reader: Reader, proto: Any, a: Attributes) -> None:
    """The mean over rows and columns is global average pooling, as some exporters write it."""
    shape = reader.shape(proto.input[0], proto.name)
    if len(shape) != 4 or _axes(reader, proto, a, 4) != (2, 3):
        raise UnsupportedError(f"{reader.where}: node {proto.name}: mean over other axes than rows and columns")
    if a.get("keepdims", 1):
        reader.add(proto, GlobalAvgPool(), [proto.input[0]], {})
        return
    pooled = _renamed(proto, f"{proto.output[0]}_pooled")
    reader.add(pooled, GlobalAvgPool(), [proto.input[0]], {})
    flat = _renamed(proto, proto.output[0], f"{proto.name}_flatten")
    reader.add(flat, Reshape(shape[:2]), [pooled.output[0]], {})


def _renamed(proto: Any, output: str, name: str | None = None) -> Any:
    copy = type(proto)()
    copy.CopyFrom(proto)
    copy.output[0] = output
    copy.name = proto.name if name is None else name
    return copy


def _global_max_pool(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    if len(shape) != 4:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: pooling over {len(shape) - 2} dimensions; two are supported")
    reader.add(proto, MaxPool(Window((shape[2], shape[3]))), [proto.input[0]], {})


def _pad(reader: Reader, proto: Any, a: Attributes) -> None:
    """Zero rows and columns that only convolutions read become part of their windows, as asymmetric padding needs.

    So do those that a maximum of values reads which are never below zero: there, a zero changes nothing.
    """
    shape = reader.shape(proto.input[0], proto.name)
    given = a["pads"] if "pads" in a else reader.constant(proto.input[1], proto.name, "pads").array.reshape(-1)
    pads = [int(p) for p in given]
    value = reader.constant(proto.input[2], proto.name, "value").real if len(proto.input) > 2 and proto.input[2] \
        else np.asarray(a.get("value", 0.0))
    spatial = len(shape) == 4 and len(pads) == 8 and not any(pads[i] for i in (0, 1, 4, 5)) and min(pads) >= 0
    if not spatial or a.get("mode", "constant") != "constant" or float(value.reshape(-1)[0]) != 0.0 or len(proto.input) > 3 \
            or not _absorbed(reader, proto):
        raise UnsupportedError(f"{reader.where}: node {proto.name}: padding other than zeros around a convolution's input")
    top, left, bottom, right = reader.padding.get(proto.input[0], (0, 0, 0, 0))
    reader.padding[proto.output[0]] = (top + pads[2], left + pads[3], bottom + pads[6], right + pads[7])
    reader.alias[proto.output[0]] = proto.input[0]


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
    count = len(a["axes"]) if "axes" in a else reader.constant(proto.input[1], proto.name, "axes").array.size
    axes = _axes(reader, proto, a, len(shape) + count)
    rest = iter(shape)
    add_reshaped(reader, proto, tuple(1 if i in axes else next(rest) for i in range(len(shape) + count)))


READERS: dict[str, Callable[[Reader, Any, Attributes], None]] = {
    "Add": _add, "AveragePool": _avg_pool, "BatchNormalization": _batch_norm, "Clip": _clip, "Concat": _concat,
    "Constant": _constant, "Conv": _conv, "DequantizeLinear": dequantize, "Div": _div, "Dropout": _pass_through,
    "Flatten": _flatten,
    "Gemm": _gemm, "GlobalAveragePool": _global_avg_pool, "GlobalMaxPool": _global_max_pool, "Identity": _pass_through,
    "MatMul": _matmul, "MaxPool": _max_pool, "Mul": _mul, "Neg": _neg, "Pad": _pad,
    "BipolarQuant": bipolar, "MultiThreshold": multi_threshold,
    "Quant": quant, "QuantizeLinear": quantize, "ReduceMean": _reduce_mean, "Relu": _relu,
    "Reshape": _reshape, "Shape": _shape, "Squeeze": _squeeze, "Sub": _sub, "Sum": _add, "Unsqueeze": _unsqueeze,
    **MOVERS,
}
