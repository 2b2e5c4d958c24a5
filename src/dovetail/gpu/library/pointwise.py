"""ONNX operators on one value at a time, as PyTorch's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  # its usual name

from dovetail.gpu.library.given import NARROW, Given

Compute = Callable[[Given], Any]
"""What a node makes of what it is given: a tensor, or a tuple of them."""


def one(function: Callable[[Any], Any]) -> Compute:
    return lambda g: function(g.x())


def wide(function: Callable[[Any], Any]) -> Compute:
    """Of narrow floats in float32, since results or what is in between leave their range."""
    return lambda g: function(g.wide())


def two(function: Callable[[Any, Any], Any]) -> Compute:
    return lambda g: function(g.x(0), g.x(1))


def several(function: Callable[[Any, Any], Any]) -> Compute:
    return lambda g: reduce(function, [g.x(i) for i in range(g.count)])


def multiply(g: Given) -> Any:
    same = g.values[0] is g.values[1]
    return g.wide(0) * g.wide(1) if same else g.x(0) * g.x(1)


def divide(g: Given) -> Any:
    a, b = g.x(0), g.x(1)
    return torch.div(a, b) if a.is_floating_point() or b.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def modulo(g: Given) -> Any:
    return torch.fmod(g.x(0), g.x(1)) if g.attr("fmod", 0) else torch.remainder(g.x(0), g.x(1))


def power(g: Given) -> Any:
    base = g.wide(0)
    exponent = np.asarray(g.values[1]).item() if isinstance(g.values[1], np.ndarray) and g.values[1].size == 1 and \
        g.values[1].ndim <= base.ndim else None
    if exponent == 2:
        return base * base
    return torch.pow(base, exponent if exponent is not None else g.wide(1)).to(base.dtype)


def clip(g: Given) -> Any:
    x = g.x()
    lo, hi = (bound(g, i, name) for i, name in ((1, "min"), (2, "max")))
    if lo is not None:
        x = torch.clamp(x, min=lo) if isinstance(lo, int | float) else torch.maximum(x, lo.to(x.dtype))
    if hi is not None:
        x = torch.clamp(x, max=hi) if isinstance(hi, int | float) else torch.minimum(x, hi.to(x.dtype))
    return x


def bound(g: Given, index: int, name: str) -> Any:
    """A bound as a number where it is constant, as a tensor where it is computed."""
    if not g.has(index):
        return g.attr(name)
    return g.values[index].item() if isinstance(g.values[index], np.ndarray) else g.x(index)


ELEMENTS = {1: torch.float32, 2: torch.uint8, 3: torch.int8, 4: torch.uint16, 5: torch.int16, 6: torch.int32, 7: torch.int64,
            9: torch.bool, 10: torch.float16, 11: torch.float64, 12: torch.uint32, 13: torch.uint64, 16: torch.bfloat16}
"""PyTorch's types by ONNX's numbers; source: TensorProto.DataType of onnx.proto."""


def cast(g: Given) -> Any:
    kind = ELEMENTS.get(int(g.attr("to")))
    if kind is None:
        raise g.unsupported(f"elements of ONNX's type {g.attr('to')}")
    return as_type(g, g.x(), kind)


def as_type(g: Given, x: Any, kind: Any) -> Any:
    """Elements of another type; all floats of a network are of one, but what is wide stays so."""
    if kind.is_floating_point:
        return x if x.is_floating_point() else x.to(torch.float32)
    if kind is torch.bool or not x.is_floating_point():
        return x.to(kind)
    return torch.trunc(x.float()).to(torch.int64).to(kind)


def hard_sigmoid(g: Given) -> Any:
    return torch.clamp(g.x() * g.attr("alpha", 0.2) + g.attr("beta", 0.5), 0, 1)


def parametric(g: Given) -> Any:
    x, slope = g.x(0), g.x(1)
    return torch.where(x < 0, x * slope, x)


def shrink(g: Given) -> Any:
    x, bias, limit = g.x(), g.attr("bias", 0.0), g.attr("lambd", 0.5)
    return torch.where(x < -limit, x + bias, torch.where(x > limit, x - bias, torch.zeros_like(x)))


def is_infinite(g: Given) -> Any:
    x = g.x()
    lower = torch.isneginf(x) if g.attr("detect_negative", 1) else torch.zeros_like(x, dtype=torch.bool)
    return lower | torch.isposinf(x) if g.attr("detect_positive", 1) else lower


def gelu(g: Given) -> Any:
    return F.gelu(g.x(), approximate=g.attr("approximate", "none"))


def biased_gelu(g: Given) -> Any:
    return F.gelu(g.x(0) + g.x(1))


def fast_gelu(g: Given) -> Any:
    return F.gelu(g.x(0) + g.x(1) if g.has(1) else g.x(0), approximate="tanh")


def shift(g: Given) -> Any:
    a, b = g.x(0), g.x(1)
    if a.dtype in (torch.uint16, torch.uint32, torch.uint64):
        raise g.unsupported(f"BitShift of {a.dtype}")
    return torch.bitwise_left_shift(a, b) if g.attr("direction") == "LEFT" else torch.bitwise_right_shift(a, b)


def mean_of(g: Given) -> Any:
    return reduce(torch.add, [g.x(i) for i in range(g.count)]) / g.count


def chosen(g: Given) -> Any:
    return torch.where(g.x(0).bool(), g.x(1), g.x(2))


def binary(function: Callable[[Any, Any], Any]) -> Compute:
    """A function of two tensors that must be of one type."""
    def compute(g: Given) -> Any:
        a, b = g.x(0), g.x(1)
        kind = torch.promote_types(a.dtype, b.dtype)
        if kind in NARROW or a.dtype == b.dtype:
            return function(a, b)
        return function(a.to(kind), b.to(kind))
    return compute


POINTWISE: Mapping[str, Compute] = {
    "Abs": one(torch.abs), "Acos": wide(torch.acos), "Acosh": wide(torch.acosh), "Add": two(torch.add),
    "And": two(torch.logical_and), "Asin": wide(torch.asin), "Asinh": wide(torch.asinh), "Atan": wide(torch.atan),
    "Atanh": wide(torch.atanh), "BitShift": shift, "BitwiseAnd": two(torch.bitwise_and), "BitwiseNot": one(torch.bitwise_not),
    "BitwiseOr": two(torch.bitwise_or), "BitwiseXor": two(torch.bitwise_xor), "Cast": cast,
    "CastLike": lambda g: as_type(g, g.x(0), g.x(1).dtype), "Ceil": one(torch.ceil),
    "Celu": lambda g: F.celu(g.x(), g.attr("alpha", 1.0)), "Clip": clip, "Cos": wide(torch.cos), "Cosh": wide(torch.cosh),
    "Div": divide, "Dropout": one(lambda x: x), "Elu": lambda g: F.elu(g.x(), g.attr("alpha", 1.0)), "Equal": two(torch.eq),
    "Erf": wide(torch.erf), "Exp": wide(torch.exp), "Floor": one(torch.floor), "Gelu": gelu, "Greater": two(torch.gt),
    "GreaterOrEqual": two(torch.ge), "HardSigmoid": hard_sigmoid, "HardSwish": one(F.hardswish), "Identity": one(lambda x: x),
    "IsInf": is_infinite, "IsNaN": one(torch.isnan), "LeakyRelu": lambda g: F.leaky_relu(g.x(), g.attr("alpha", 0.01)),
    "Less": two(torch.lt), "LessOrEqual": two(torch.le), "Log": wide(torch.log), "Max": several(torch.maximum),
    "Mean": mean_of, "Min": several(torch.minimum), "Mish": one(F.mish), "Mod": modulo, "Mul": multiply, "Neg": one(torch.neg),
    "Not": one(torch.logical_not), "Or": two(torch.logical_or), "PRelu": parametric, "Pow": power,
    "Reciprocal": wide(torch.reciprocal), "Relu": one(torch.relu), "Round": one(torch.round),
    "Selu": lambda g: g.attr("gamma", 1.05070102214813232421875) * F.elu(
        g.x(), g.attr("alpha", 1.67326319217681884765625)),
    "Shrink": shrink, "Sigmoid": one(torch.sigmoid), "Sign": one(torch.sign), "Sin": wide(torch.sin), "Sinh": wide(torch.sinh),
    "Softplus": one(lambda x: F.softplus(x, threshold=1e4) if x.dtype == torch.float64 else F.softplus(x)),
    "Softsign": one(F.softsign), "Sqrt": wide(torch.sqrt),
    "Sub": two(torch.sub), "Sum": several(torch.add), "Swish": lambda g: g.x() * torch.sigmoid(g.attr("alpha", 1.0) * g.x()),
    "Tan": wide(torch.tan), "Tanh": one(torch.tanh),
    "ThresholdedRelu": lambda g: torch.where(g.x() > g.attr("alpha", 1.0), g.x(), torch.zeros_like(g.x())),
    "Where": chosen, "Xor": two(torch.logical_xor),
}

CONTRIBUTED: Mapping[str, Compute] = {
    "Gelu": gelu, "BiasGelu": biased_gelu, "FastGelu": fast_gelu,
    "QuickGelu": lambda g: g.x() * torch.sigmoid(g.attr("alpha", 1.702) * g.x())}
"""Of ONNX Runtime's own domain."""

