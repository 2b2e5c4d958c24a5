"""QuantizeLinear and DequantizeLinear as annotations: they state schemes, they are no nodes of ours."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.ir.onnx_reader import Attributes, Reader
from dovetail.ir.tensor import Constant, Scheme


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


def quantize(reader: Reader, proto: Any, a: Attributes) -> None:
    tensor = reader.tensor(proto.input[0])
    scheme = _scheme(reader, proto, a, np.dtype(np.uint8))
    if reader.schemes.setdefault(tensor, scheme) != scheme:
        raise UnsupportedError(f"{reader.where}: node {proto.name}: tensor {tensor} is quantized twice with different scales")
    reader.alias[proto.output[0]] = proto.input[0]


def dequantize(reader: Reader, proto: Any, a: Attributes) -> None:
    source = proto.input[0]
    if source in reader.constants:
        constant = reader.constants[source]
        reader.constants[proto.output[0]] = Constant(source, constant.array, _scheme(reader, proto, a, constant.array.dtype))
        return
    reader.alias[proto.output[0]] = source
