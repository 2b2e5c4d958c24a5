"""How each ONNX operator becomes one of ours: one short function per operator, listed in `READERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import numpy as np

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir.convolution import Conv
from dovetail.ir.elementwise import Add, Clip, Concat, Reshape
from dovetail.ir.graph import Node, check_finite
from dovetail.ir.linear import Gemm
from dovetail.ir.operator import Clamp, Op
from dovetail.ir.pooling import AvgPool, GlobalAvgPool, MaxPool
from dovetail.ir.tensor import Array, Constant, Scheme, Shape, Tensor
from dovetail.ir.window import Pads, Window


@dataclass(slots=True)
class Reader:
    """State of one import: what each ONNX value name means so far."""

    where: str
    constants: dict[str, Constant] = field(default_factory=dict)
    """Initializers and constant nodes by ONNX name; dequantized ones carry a scheme."""
    alias: dict[str, str] = field(default_factory=dict)
    """ONNX names that mean another tensor (Identity, Dropout, the two sides of Quantize/Dequantize)."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    schemes: dict[str, Scheme] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    owned: dict[str, Constant] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def tensor(self, name: str) -> str:
        while name in self.alias:
            name = self.alias[name]
        return name

    def shape(self, name: str, node: str) -> Shape:
        found = self.tensors.get(self.tensor(name))
        if found is None:
            raise ModelError(f"{self.where}: node {node} reads {name!r}, which nothing produces before it; "
                             "the graph is cyclic or incomplete")
        return found.shape

    def constant(self, name: str, node: str, what: str) -> Constant:
        if name not in self.constants:
            raise UnsupportedError(f"{self.where}: node {node}: {what} {name!r} is not a constant; "
                                   "only constant weights are supported")
        return self.constants[name]

    def unique(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.names:
            count += 1
            name = f"{wanted}_{count}"
        self.names.add(name)
        return name

    def add(self, proto: Any, op: Op, inputs: list[str], params: Mapping[str, tuple[Array, Scheme | None]]) -> None:
        """Append a node; its constants are named after it."""
        name = self.unique(proto.name or f"{proto.op_type.lower()}_{len(self.nodes)}")
        shapes = tuple(self.shape(i, name) for i in inputs)
        owned = []
        for role, (array, scheme) in params.items():
            constant = Constant(f"{name}_{role}", array, scheme)
            check_finite(constant, self.where)
            self.owned[constant.name] = constant
            owned.append(constant.name)
        try:
            shape = op.infer(shapes)
        except ModelError as error:
            raise ModelError(f"{self.where}: node {name}: {error}") from None
        output = proto.output[0]
        self.tensors[output] = Tensor(output, shape)
        self.nodes.append(Node(name, op, tuple(self.tensor(i) for i in inputs), tuple(owned), output))


Attributes = dict[str, Any]


def _window(attributes: Attributes, kernel: tuple[int, ...], shape: Shape, where: str) -> Window:
    if len(kernel) != 2:
        raise UnsupportedError(f"{where}: {len(kernel)}-dimensional kernel; two dimensions are supported")
    stride = tuple(attributes.get("strides", (1, 1)))
    dilation = tuple(attributes.get("dilations", (1, 1)))
    pads = tuple(attributes.get("pads", (0, 0, 0, 0)))
    mode = attributes.get("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        totals = []
        for size, k, s, d in zip(shape[2:], kernel, stride, dilation, strict=True):
            totals.append(max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size))
        small = [t // 2 for t in totals]
        large = [t - t // 2 for t in totals]
        first, last = (small, large) if mode == "SAME_UPPER" else (large, small)
        pads = (*first, *last)
    if attributes.get("ceil_mode"):
        pads = _ceil_pads(shape, kernel, stride, dilation, pads)
    four = (pads[0], pads[1], pads[2], pads[3])
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
    weight = reader.constant(proto.input[1], proto.name, "weight")
    if len(shape) != 4 or weight.array.ndim != 4:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: convolution over {len(shape) - 2} dimensions; "
                               "two are supported")
    filters = weight.array.shape[0]
    bias = _bias(reader, proto, 2, filters, weight)
    window = _window(a, weight.array.shape[2:], shape, f"{reader.where}: node {proto.name}")
    groups = int(a.get("group", 1))
    if weight.array.shape[1] * groups != shape[1]:
        raise ModelError(f"{reader.where}: node {proto.name}: weight of shape {list(weight.array.shape)} with {groups} groups "
                         f"does not fit {shape[1]} input channels")
    reader.add(proto, Conv(filters, window, groups), [proto.input[0]],
               {"weight": (_weights(weight), weight.scheme), "bias": bias})


def _weights(constant: Constant) -> Array:
    return constant.array if constant.scheme else constant.array.astype(np.float32)


def _bias(reader: Reader, proto: Any, index: int, count: int, weight: Constant) -> tuple[Array, Scheme | None]:
    if len(proto.input) > index and proto.input[index]:
        bias = reader.constant(proto.input[index], proto.name, "bias")
        if bias.scheme is not None:
            return bias.array, bias.scheme
        return np.broadcast_to(bias.array.astype(np.float32).reshape(-1), (count,)).copy(), None
    if weight.scheme is not None:
        scheme = reader.schemes.get(reader.tensor(proto.input[0]))
        base = scheme.exponent if scheme is not None else 0
        exponents = weight.scheme.exponents if weight.scheme.axis is not None else weight.scheme.exponents * count
        return np.zeros(count, dtype=np.int32), Scheme(32, True, tuple(base + e for e in exponents), 0)
    return np.zeros(count, dtype=np.float32), None


def _gemm(reader: Reader, proto: Any, a: Attributes) -> None:
    if a.get("transA"):
        raise UnsupportedError(f"{reader.where}: node {proto.name}: Gemm with transA; transpose the input before export")
    weight = reader.constant(proto.input[1], proto.name, "weight")
    array, scheme = _weights(weight), weight.scheme
    if not a.get("transB"):
        array = array.T.copy()
        if scheme is not None and scheme.axis is not None:
            scheme = Scheme(scheme.bits, scheme.signed, scheme.exponents, 1 - scheme.axis)
    bias, bias_scheme = _bias(reader, proto, 2, array.shape[0], Constant("", array, scheme))
    alpha, beta = float(a.get("alpha", 1.0)), float(a.get("beta", 1.0))
    if scheme is None:
        array, bias = (array * np.float32(alpha)).astype(np.float32), (bias * np.float32(beta)).astype(np.float32)
    elif alpha != 1.0 or beta != 1.0:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: quantized Gemm with alpha {alpha:g}, beta {beta:g}; "
                               "both must be 1")
    reader.add(proto, Gemm(array.shape[0]), [proto.input[0]], {"weight": (array, scheme), "bias": (bias, bias_scheme)})


def _matmul(reader: Reader, proto: Any, a: Attributes) -> None:
    _gemm(reader, proto, {"transB": 0})


def _max_pool(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    window = _window(a, tuple(a.get("kernel_shape", ())), shape, f"{reader.where}: node {proto.name}")
    reader.add(proto, MaxPool(window), [proto.input[0]], {})


def _avg_pool(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    where = f"{reader.where}: node {proto.name}"
    window = _window(a, tuple(a.get("kernel_shape", ())), shape, where)
    count_pads = bool(a.get("count_include_pad"))
    if count_pads and a.get("ceil_mode") and window != _window({**a, "ceil_mode": 0}, window.kernel, shape, where):
        raise UnsupportedError(f"{where}: average pooling with ceil_mode past the counted padding; pad the input explicitly")
    reader.add(proto, AvgPool(window, count_pads and any(window.pads)), [proto.input[0]], {})


def _global_avg_pool(reader: Reader, proto: Any, a: Attributes) -> None:
    reader.add(proto, GlobalAvgPool(), [proto.input[0]], {})


def _add(reader: Reader, proto: Any, a: Attributes) -> None:
    fixed = [i for i in proto.input if i in reader.constants]
    if not fixed:
        reader.add(proto, Add(), list(proto.input), {})
        return
    moving = [i for i in proto.input if i not in reader.constants]
    source = next((n for n in reader.nodes if moving and n.output == reader.tensor(moving[0])), None)
    if source is None or not isinstance(source.op, Conv | Gemm) or len(source.params) < 2:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: adds a constant that no Conv or Gemm can take as bias")
    bias = reader.owned[source.params[1]]
    channels = bias.array.shape[0]
    values = reader.constants[fixed[0]].array.astype(np.float32)
    if values.size not in (1, channels) or bias.scheme is not None:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: adds a constant of shape {list(values.shape)}; "
                               "one value per channel is supported")
    reader.owned[bias.name] = Constant(bias.name, (bias.array + values.reshape(-1)).astype(np.float32))
    reader.alias[proto.output[0]] = source.output


def _clip(reader: Reader, proto: Any, a: Attributes) -> None:
    lo, hi = float(a.get("min", -inf)), float(a.get("max", inf))
    for index, side in ((1, "min"), (2, "max")):
        if len(proto.input) > index and proto.input[index]:
            value = float(reader.constant(proto.input[index], proto.name, side).array.reshape(()))
            lo, hi = (value, hi) if side == "min" else (lo, value)
    limit = float(np.finfo(np.float32).max)
    lo, hi = (-inf if lo <= -limit else lo), (inf if hi >= limit else hi)
    reader.add(proto, Clip(Clamp(lo, hi)), [proto.input[0]], {})


def _relu(reader: Reader, proto: Any, a: Attributes) -> None:
    reader.add(proto, Clip(Clamp(0.0, inf)), [proto.input[0]], {})


def _concat(reader: Reader, proto: Any, a: Attributes) -> None:
    rank = len(reader.shape(proto.input[0], proto.name))
    reader.add(proto, Concat(int(a["axis"]) % rank), list(proto.input), {})


def _flatten(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    axis = int(a.get("axis", 1)) % (len(shape) + 1)
    reader.add(proto, Reshape((prod(shape[:axis]), prod(shape[axis:]))), [proto.input[0]], {})


def _reshape(reader: Reader, proto: Any, a: Attributes) -> None:
    shape = reader.shape(proto.input[0], proto.name)
    wanted = [int(d) for d in reader.constant(proto.input[1], proto.name, "shape").array.reshape(-1)]
    known = [shape[i] if d == 0 and i < len(shape) else d for i, d in enumerate(wanted)]
    if -1 in known:
        rest = prod(d for d in known if d != -1)
        known[known.index(-1)] = prod(shape) // rest if rest else 0
    reader.add(proto, Reshape(tuple(known)), [proto.input[0]], {})


def _batch_norm(reader: Reader, proto: Any, a: Attributes) -> None:
    """Becomes a depthwise 1x1 convolution; `passes` merges it into the convolution before it."""
    shape = reader.shape(proto.input[0], proto.name)
    gamma, beta, mean, var = (reader.constant(i, proto.name, "statistic").array.astype(np.float64) for i in proto.input[1:5])
    scale = gamma / np.sqrt(var + float(a.get("epsilon", 1e-5)))
    channels = shape[1]
    if scale.shape != (channels,) or len(shape) not in (2, 4):
        raise UnsupportedError(f"{reader.where}: node {proto.name}: BatchNormalization over shape {list(shape)}; "
                               "N,C,H,W or N,C is supported")
    bias = (beta - mean * scale).astype(np.float32)
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
    values = [a[k] for k in ("value", "value_float", "value_int", "value_floats", "value_ints") if k in a]
    if not values:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: Constant of an unusual kind; use a dense tensor")
    reader.constants[proto.output[0]] = Constant(proto.output[0], np.asarray(values[0]))


def _scheme(reader: Reader, proto: Any, a: Attributes, dtype: np.dtype[Any]) -> Scheme:
    """The fixed-point scheme a Quantize/Dequantize pair states; scales must be powers of two, zero points zero."""
    scale = reader.constant(proto.input[1], proto.name, "scale").array
    scales = scale.astype(np.float64).reshape(-1)
    if len(proto.input) > 2 and proto.input[2]:
        zero = reader.constant(proto.input[2], proto.name, "zero point").array
        dtype = zero.dtype
        if np.any(zero != 0):
            raise UnsupportedError(f"{reader.where}: node {proto.name}: zero point {zero.reshape(-1)[0]}; only 0 is supported, "
                                   "quantize the float model with `dovetail quantize`")
    mantissa, exponent = np.frexp(scales)
    if np.any(mantissa != 0.5) or not np.all(np.isfinite(scales)):
        raise UnsupportedError(f"{reader.where}: node {proto.name}: scale {scales[mantissa != 0.5][0]:g} is not a power of two; "
                               "quantize the float model with `dovetail quantize`")
    exponents = tuple(int(e) - 1 for e in exponent)
    bits = dtype.itemsize * 8
    axis = int(a.get("axis", 1)) if scale.ndim else None
    if scale.ndim and len(exponents) == 1 and proto.op_type == "QuantizeLinear":
        axis = None
    return Scheme(bits, dtype.kind == "i", exponents, axis)


def _quantize(reader: Reader, proto: Any, a: Attributes) -> None:
    tensor = reader.tensor(proto.input[0])
    scheme = _scheme(reader, proto, a, np.dtype(np.uint8))
    if reader.schemes.setdefault(tensor, scheme) != scheme:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: tensor {tensor} is quantized twice with different scales")
    reader.alias[proto.output[0]] = proto.input[0]


def _dequantize(reader: Reader, proto: Any, a: Attributes) -> None:
    source = proto.input[0]
    if source in reader.constants:
        constant = reader.constants[source]
        reader.constants[proto.output[0]] = Constant(source, constant.array, _scheme(reader, proto, a, constant.array.dtype))
        return
    reader.alias[proto.output[0]] = source


READERS: dict[str, Callable[[Reader, Any, Attributes], None]] = {
    "Add": _add, "AveragePool": _avg_pool, "BatchNormalization": _batch_norm, "Clip": _clip, "Concat": _concat,
    "Constant": _constant, "Conv": _conv, "DequantizeLinear": _dequantize, "Dropout": _pass_through, "Flatten": _flatten,
    "Gemm": _gemm, "GlobalAveragePool": _global_avg_pool, "Identity": _pass_through, "MatMul": _matmul, "MaxPool": _max_pool,
    "QuantizeLinear": _quantize, "Relu": _relu, "Reshape": _reshape,
}
