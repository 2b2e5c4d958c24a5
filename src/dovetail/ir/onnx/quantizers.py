"""QuantizeLinear, DequantizeLinear and QONNX's Quant as annotations: they state schemes, they are no nodes of ours.

Between the first two a tensor of ours holds real numbers under a scheme. Nodes that only pick values there may read these: what
they pick means the same. Every other node gets the stored integers, computed back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from dovetail.errors import ModelError
from dovetail.ir import Clamp, Clip
from dovetail.ir.onnx.file import attributes_of, copied
from dovetail.ir.onnx.integer import meant_otherwise
from dovetail.ir.onnx.prepare import captured, reads, rename_inside
from dovetail.ir.onnx.state import Attributes, Reader
from dovetail.ir.tensor import Array, Constant, Rounding, Scheme, integer_weights, scheme_of_scales

QUANTIZERS = frozenset({"QuantizeLinear", "Quant"})
STORED = ("int8", "uint8", "int16", "uint16")
PICKING = ("DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "Identity", "MaxPool", "ReduceMax", "ReduceMin", "Reshape",
           "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze")
"""Operators whose results are values of their first input."""
ASKING = ("ArgMax", "ArgMin", "DequantizeLinear", "Shape", "Size")
"""Operators whose results are the same for either reading, and no values of the input; and the one that ends the integers."""


def _scales(reader: Reader, proto: Any) -> Array:
    """Scale factors as one float64 per entry; they must be positive numbers."""
    scale = reader.constant(proto.input[1], proto.name, "scale").array.astype(np.float64)
    if scale.size == 0 or not np.all(np.isfinite(scale)) or np.any(scale <= 0):
        raise ModelError(f"{reader.where}: node {proto.name}: a scale is zero, negative or no number; scales must be positive")
    return scale


def _zero(reader: Reader, proto: Any, dtype: np.dtype[Any]) -> Array:
    """Zero points, with the element type the integers have; absent means zero."""
    if len(proto.input) > 2 and proto.input[2]:
        return reader.constant(proto.input[2], proto.name, "zero point").array
    return np.zeros((), dtype=dtype)


def _scheme(reader: Reader, proto: Any, a: Attributes, zero: Array) -> Scheme:
    """The scheme of an activation; one scale for all of it is what hardware streams."""
    scale = _scales(reader, proto)
    if scale.size > 1 or zero.size > 1 or str(zero.dtype) not in STORED:
        raise reader.unsupported(proto, f"activation quantized with {scale.size} scales to {zero.dtype}; one scale and "
                                        f"{', '.join(STORED)} are typed")
    return scheme_of_scales(zero.dtype.itemsize * 8, zero.dtype.kind == "i", scale.reshape(-1).tolist(),
                            zero=int(zero.reshape(-1)[0]), rounding=Rounding(a.get("rounding", Rounding.EVEN)))


def stored_as(reader: Reader, proto: Any, dtype: np.dtype[Any]) -> Scheme:
    """What a DequantizeLinear says about the integers it reads."""
    return _scheme(reader, proto, {}, _zero(reader, proto, dtype))


def quantize(reader: Reader, proto: Any, a: Attributes) -> None:
    if proto.input[0] in reader.constants:
        reader.add_foreign(proto)
        return
    default = {16: "uint16"}.get(a.get("output_dtype", 0), "uint8")
    reader.raw[proto.output[0]] = _scheme(reader, proto, a, _zero(reader, proto, np.dtype(default)))
    state(reader, proto, reader.raw[proto.output[0]])


def state(reader: Reader, proto: Any, scheme: Scheme) -> None:
    """Say that a tensor is stored by a scheme from here on; who reads it as it was, or by another scheme, gets its own copy."""
    source, output, tensor = proto.input[0], proto.output[0], reader.tensor(proto.input[0])
    known, stored = reader.schemes.get(tensor), reader.is_stored(source)
    if stored and known != scheme:
        reader.add(proto, Clip())
        reader.schemes[output] = scheme
    elif known == scheme or (known is None and reader.users.get(tensor, set()) <= QUANTIZERS):
        reader.schemes[tensor] = scheme
        reader.alias[output] = tensor
    else:
        reader.alias[output] = reader.copy(tensor, scheme)
    reader.stored.add(output)


def dequantize(reader: Reader, proto: Any, a: Attributes) -> None:
    source = proto.input[0]
    if source in reader.constants:
        reader.constants[proto.output[0]] = _weights(reader, proto, a, reader.constants[source])
        return
    tensor = reader.tensor(source)
    kind = reader.tensors[tensor].element if tensor in reader.tensors else "float32"
    scheme = _scheme(reader, proto, a, _zero(reader, proto, np.dtype(kind if kind in STORED else "uint8")))
    users = reader.users.get(source, set()) | reader.users.get(tensor, set())
    if kind in STORED and reader.producer(tensor) is None and users == {"DequantizeLinear"}:
        reader.tensors[tensor] = replace(reader.tensors[tensor], element="float32")
        reader.schemes[tensor] = reader.raw[source] = scheme
        reader.notes.append(f"input {tensor}: stored as {kind} in the file; here it takes real numbers, "
                            f"q = x / {scheme.scale:.6g} + {scheme.zero}")
    elif kind != "float32":
        raise reader.unsupported(proto, f"dequantizes {kind} integers that were computed as integers")
    elif replace(reader.raw.get(source, scheme), rounding=scheme.rounding) != scheme:
        raise reader.unsupported(proto, f"tensor {tensor} is dequantized by another scale than it was quantized by")
    reader.schemes.setdefault(tensor, scheme)  # what moved has none yet
    reader.alias[proto.output[0]] = source


def restated(reader: Reader, proto: Any) -> list[Any] | None:
    """What computes a DequantizeLinear by another scale than its integers were stored by; None where they were not stored."""
    known = reader.raw.get(proto.input[0])
    if known is None:
        return None
    rank, axis = len(reader.shape(proto.input[0], proto.name)), int(attributes_of(proto, reader.where).get("axis", 1))
    scale, zero = (values.reshape([-1 if d == axis % rank else 1 for d in range(rank)]) if values.size > 1 else values.reshape(())
                   for values in (_scales(reader, proto), _zero(reader, proto, np.dtype("uint8"))))
    return meant_otherwise(proto, _real(reader, proto.input[0]), known, scale, zero)


def in_integers(reader: Reader, node: Any) -> list[Any] | None:
    """The node as it reads integers, behind what computes them; None where it reads none, or may read what they stand for."""
    given = [name for name in reads(node) if name in reader.raw]
    if not given or (not captured(node) and _means_the_same(reader, node, given)):
        return None
    found, renamed = list[Any](), dict[str, str]()
    for name in given:
        renamed[name] = _whole(reader, name, found)
    if node.op_type != "Cast":  # else from whole numbers straight to what is asked for
        for name, whole in renamed.items():
            renamed[name] = reader.unique_tensor(f"{whole}_stored")
            found.append(helper.make_node("Cast", [whole], [renamed[name]], name=renamed[name],
                                          to=helper.np_dtype_to_tensor_dtype(reader.raw[name].dtype)))
    copy = copied(node)
    copy.input[:] = [renamed.get(name, name) for name in node.input]
    rename_inside(copy, renamed, reader.unique_tensor)
    return [*found, copy]


def passed_on(reader: Reader, node: Any) -> None:
    """Take down that what a node picked of stored integers is stored integers."""
    if node.domain in ("", "ai.onnx") and node.input[:1] and node.input[0] in reader.raw and node.op_type not in ASKING:
        reader.raw |= dict.fromkeys(filter(None, node.output if node.op_type == "Split" else node.output[:1]),
                                    reader.raw[node.input[0]])


def _means_the_same(reader: Reader, node: Any, given: list[str]) -> bool:
    """Whether a node gives of these stored integers what it would give of real numbers."""
    if node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "Concat":
        return set(given) == set(node.input) and len({reader.raw[name] for name in given}) == 1
    if given != list(node.input[:1]):
        return False
    if node.op_type in PICKING or node.op_type in ASKING:
        return True
    a, scheme = attributes_of(node, reader.where), reader.raw[node.input[0]]
    if node.op_type == "Pad":
        return a.get("mode", "constant") != "constant" or (scheme.zero == 0 and not any(node.input[2:3]))
    return (node.op_type == "Relu" and scheme.zero == 0) or (node.op_type == "Resize" and a.get("mode", "nearest") == "nearest")


def _real(reader: Reader, name: str) -> str:
    """Another name of a tensor: of the real numbers that its integers stand for."""
    real = reader.unique_tensor(f"{name}_real")
    reader.alias[real] = reader.tensor(name)
    return real


def _whole(reader: Reader, name: str, nodes: list[Any]) -> str:
    """Stored integers as whole numbers among floats; what computes them joins `nodes`, once per tensor."""
    if name not in reader.whole:
        scheme, real = reader.raw[name], _real(reader, name)
        for operator, value in (("Div", scheme.scale), ("Round", None), ("Add", scheme.zero)):
            output, given = reader.unique_tensor(f"{name}_{operator.lower()}"), [real]
            if value is not None:
                given.append(reader.unique_tensor(f"{output}_by"))
                nodes.append(helper.make_node("Constant", [], given[1:], name=given[1],
                                              value=numpy_helper.from_array(np.asarray(value, dtype=np.float32))))
            nodes.append(helper.make_node(operator, given, [output], name=output))
            real = output
        reader.whole[name] = real
    return reader.whole[name]


def _weights(reader: Reader, proto: Any, a: Attributes, constant: Constant) -> Constant:
    """Integers with one scale, or one per channel; a zero point is subtracted here and needs no further thought."""
    scale, zero = _scales(reader, proto), _zero(reader, proto, constant.array.dtype)
    axis = int(a.get("axis", 1)) if scale.ndim else None
    if constant.array.dtype.kind not in "iu" or scale.ndim > 1:
        raise reader.unsupported(proto, f"weights of {constant.array.dtype} with scales of shape {list(scale.shape)}; integers "
                                        "with one scale, or one per channel, are typed")
    if axis is not None:
        axis %= constant.array.ndim
        if constant.array.shape[axis] != scale.size > 1:
            raise ModelError(f"{reader.where}: node {proto.name}: {scale.size} scales for {constant.array.shape[axis]} channels")
        axis = axis if constant.array.shape[axis] == scale.size else None
    return integer_weights(constant.name, constant.array.astype(np.int64) - _along(zero, axis, constant.array.ndim),
                           scale.reshape(-1), axis)


def _along(values: Array, axis: int | None, rank: int) -> Array:
    values = values.astype(np.int64)
    return values.reshape([-1 if d == axis else 1 for d in range(rank)]) if values.size > 1 else values.reshape(())


def quant(reader: Reader, proto: Any, a: Attributes) -> None:
    """QONNX: round(x / scale + zero) within so many bits, times scale again."""
    scale, zero, bits = _scales(reader, proto), *(reader.constant(i, proto.name, what).array for i, what in
                                                  zip(proto.input[2:4], ("zero point", "bit width"), strict=True))
    mode, narrow, signed = str(a.get("rounding_mode", "ROUND")).upper(), int(a.get("narrow", 0)), bool(a.get("signed", 1))
    width = float(bits.reshape(-1)[0])
    whole = width == int(width) and np.all(zero == np.rint(zero))
    if mode not in ("ROUND", "HALF_EVEN") or bits.size != 1 or not whole or not 2 - int(not signed) <= width <= 32:
        raise reader.unsupported(proto, f"Quant with rounding {mode} to {width:g} bits; ROUND to whole bits is typed")
    hi = (1 << (int(width) - signed)) - 1 - (narrow and not signed)
    lo = (-hi if narrow else -hi - 1) if signed else 0
    if proto.input[0] in reader.constants:
        _quant_weights(reader, proto, scale, zero, (lo, hi))
        return
    if scale.size > 1 or zero.size > 1 or width > 16:
        raise reader.unsupported(proto, f"Quant of an activation by {scale.size} scales to {width:g} bits; one scale and at most "
                                        "16 bits are typed")
    step, offset = float(np.float32(scale.reshape(-1)[0])), int(zero.reshape(-1)[0])
    scheme = scheme_of_scales(8 if width <= 8 else 16, signed, [step], zero=offset)
    copy = copied(proto)
    if (lo, hi) != (scheme.lo, scheme.hi):
        copy.output[0] = f"{proto.output[0]}_limited"
        reader.add(copy, Clip(Clamp((lo - offset) * step, (hi - offset) * step)))
        copy.input[0], copy.output[0] = copy.output[0], proto.output[0]
    state(reader, copy, scheme)


def _quant_weights(reader: Reader, proto: Any, scale: Array, zero: Array, limits: tuple[int, int]) -> None:
    constant = reader.constants[proto.input[0]]
    real = constant.array.astype(np.float32)
    rank, axes = real.ndim, [i for i, d in enumerate(scale.shape) if d > 1]
    if len(axes) > 1 or (axes and scale.ndim != rank) or constant.scheme is not None:
        raise reader.unsupported(proto, f"Quant of weights by scales of shape {list(scale.shape)}; one scale, or one per "
                                        "channel, is typed")
    steps = real / scale.astype(np.float32) + zero.astype(np.float32)
    stored = np.clip(np.rint(steps), *limits).astype(np.int64) - zero.astype(np.int64)
    reader.constants[proto.output[0]] = integer_weights(proto.output[0], np.broadcast_to(stored, real.shape).copy(),
                                                        scale.astype(np.float32).astype(np.float64).reshape(-1),
                                                        axes[0] if axes else None)


def bipolar(reader: Reader, proto: Any, a: Attributes) -> None:
    """QONNX: the sign of a weight, times scale."""
    constant, scale = reader.constant(proto.input[0], proto.name, "weight"), _scales(reader, proto)
    axes = [i for i, d in enumerate(scale.shape) if d > 1]
    if len(axes) > 1 or (axes and scale.ndim != constant.array.ndim):
        raise reader.unsupported(proto, f"BipolarQuant by scales of shape {list(scale.shape)}; one, or one per channel, is typed")
    signs = np.where(constant.array >= 0, 1, -1).astype(np.int64)
    reader.constants[proto.output[0]] = integer_weights(proto.output[0], signs, scale.reshape(-1), axes[0] if axes else None)
