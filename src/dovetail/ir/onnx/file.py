"""The only entry point of ONNX files: bytes in, bytes out, with limits and plain words about what is wrong."""

from __future__ import annotations

import hashlib
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import numpy_helper

from dovetail.errors import ModelError
from dovetail.ir.tensor import Array
from dovetail.ir.tflite.file import is_tflite
from dovetail.ir.tflite.translate import translate

MAX_FILE_BYTES = 2 << 30
MAX_TENSOR_BYTES = 1 << 30
MAX_ACTIVATION_ELEMENTS = 1 << 30
"""Larger maps are a mistake in the file or in --shape; refused before anything is computed."""
OPSET = 17
WIDE_OPSET = 21
"""The first opset whose quantizers store 16 bits."""
IR_VERSION = 8
"""Written explicitly: newer defaults of the onnx package are ahead of what ONNX Runtime reads."""
PRODUCER = "dovetail"
"""Who wrote a file, as files of ours say it."""


def ir_version(opset: int) -> int:
    """The oldest version of the format that we write and that has an opset."""
    return 10 if opset > 20 else IR_VERSION


def load(path: Path) -> tuple[Any, str, tuple[str, ...]]:
    """Parse a model file without touching anything beside it; returns the protobuf, the file's sha256, and notes."""
    if not path.is_file():
        found = "no such file" if not path.exists() else "is a pipe or a device, not a file"
        raise ModelError(f"{path}: {found}; give the path of an ONNX model")
    size = path.stat().st_size
    if not size:
        raise ModelError(f"{path}: the file is empty; export the model again")
    if size > MAX_FILE_BYTES:
        raise ModelError(f"{path}: {size / 2**30:.1f} GiB; models up to {MAX_FILE_BYTES >> 30} GiB are read")
    return parse(path.read_bytes(), str(path))


def parse(content: bytes, where: str) -> tuple[Any, str, tuple[str, ...]]:
    """The protobuf of a model's bytes, their sha256, and notes; TensorFlow Lite's are translated."""
    digest = hashlib.sha256(content).hexdigest()
    if is_tflite(content):
        model, notes = translate(content, where)
        return model, digest, notes
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError as error:
        raise ModelError(f"{where}: not an ONNX file or truncated ({error}); export the model again") from None
    if not model.graph.node:
        raise ModelError(f"{where}: holds no graph, or an empty one; export the model again")
    return model, digest, ()


def whole(content: bytes | onnx.ModelProto, where: str) -> tuple[Any, str, tuple[str, ...]]:
    """The same of a model in memory, which has no folder that weights could lie in."""
    try:
        content = content if isinstance(content, bytes) else content.SerializeToString(deterministic=True)
    except (EncodeError, ValueError):
        raise ModelError(f"{where}: more than {MAX_FILE_BYTES >> 30} GiB; models up to that are read") from None
    model, sha256, notes = parse(content, where)
    if (tensor := external_tensor(content)) is not None:
        raise ModelError(f"{where}: tensor {tensor} lies in another file, and a model in memory has none beside it; give the "
                         "model's path, or load it with onnx.load, which brings such weights")
    return model, sha256, notes


def element_of(value: Any, where: str) -> str:
    """The NumPy name of an input's element type."""
    kind = value.type.WhichOneof("value")
    if kind not in (None, "tensor_type"):
        raise ModelError(f"{where}: input {value.name} is a {kind.removesuffix('_type').replace('_', ' ')}; tensors are "
                         "supported, export the model with one input per tensor")
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    except (KeyError, TypeError):
        raise ModelError(f"{where}: input {value.name} has no numeric element type; tensors of numbers are supported") from None
    if dtype.kind == "O":
        raise ModelError(f"{where}: input {value.name} holds text; tensors of numbers are supported, export the network without "
                         "its text processing")
    return dtype.name


def array_of(proto: Any, where: str) -> Array:
    """The values of a TensorProto; sizes are checked before anything is allocated."""
    try:
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(proto.data_type))
    except (KeyError, TypeError):
        raise ModelError(f"{where}: tensor {proto.name} has element type {proto.data_type}; use float32 or integers") from None
    count = 1
    for dim in proto.dims:
        if dim < 0:
            raise ModelError(f"{where}: tensor {proto.name} declares a dimension of {dim}; sizes must be positive")
        count *= dim
    if count * dtype.itemsize > MAX_TENSOR_BYTES:
        raise ModelError(f"{where}: tensor {proto.name} declares {count * dtype.itemsize / 2**30:.1f} GiB; "
                         f"at most {MAX_TENSOR_BYTES >> 30} GiB per tensor is read")
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        return np.frombuffer(_external(proto, where, count * dtype.itemsize), dtype=dtype).reshape(tuple(proto.dims)).copy()
    if proto.HasField("raw_data") and len(proto.raw_data) != count * dtype.itemsize:
        raise ModelError(f"{where}: tensor {proto.name} declares {count} elements but carries {len(proto.raw_data)} bytes; "
                         "the file is damaged")
    try:
        return np.asarray(numpy_helper.to_array(proto))
    except (ValueError, TypeError, RuntimeError) as error:
        raise ModelError(f"{where}: tensor {proto.name} cannot be read ({error}); the file is damaged") from None


def dense_of(sparse: Any, where: str) -> Array:
    """The values of a SparseTensorProto as a dense array, bounded like any other."""
    name, shape = sparse.values.name, tuple(int(d) for d in sparse.dims)
    values, indices = array_of(sparse.values, where).reshape(-1), array_of(sparse.indices, where)
    if min(shape, default=1) < 0 or prod(shape) * values.dtype.itemsize > MAX_TENSOR_BYTES:
        raise ModelError(f"{where}: sparse tensor {name} declares shape {list(shape)}; at most {MAX_TENSOR_BYTES >> 30} GiB per "
                         "tensor is read")
    flat = indices.reshape(-1) if indices.ndim < 2 else indices @ np.asarray([prod(shape[i + 1:]) for i in range(len(shape))])
    if flat.shape != values.shape or np.any((flat < 0) | (flat >= prod(shape))):
        raise ModelError(f"{where}: sparse tensor {name}: its indices do not fit shape {list(shape)}; the file is damaged")
    dense = np.zeros(prod(shape), dtype=values.dtype)
    dense[flat] = values
    return dense.reshape(shape)


def _external(proto: Any, where: str, size: int) -> bytes:
    """Bytes of a tensor stored beside the model; never outside the model's folder."""
    entries = {e.key: e.value for e in proto.external_data}
    folder = Path(where).parent.resolve()
    location = entries.get("location", "")
    path = (folder / location).resolve()
    if not location or Path(location).is_absolute() or not path.is_relative_to(folder):
        raise ModelError(f"{where}: tensor {proto.name} points to {location!r}, outside the model's folder; weights are read "
                         "from that folder alone")
    if path.exists() and not path.is_file():  # a pipe would be waited for, a device never ends
        raise ModelError(f"{where}: tensor {proto.name}: {location!r} is no regular file; keep the weights in a file beside the "
                         "model")
    try:
        offset = int(entries.get("offset", "0"))
        with path.open("rb") as stream:
            stream.seek(offset)
            content: bytes = stream.read(size)
    except (OSError, ValueError) as error:
        raise ModelError(f"{where}: tensor {proto.name}: weights in {location!r} cannot be read ({error}); "
                         "keep the file beside the model") from None
    if len(content) != size:
        raise ModelError(f"{where}: tensor {proto.name}: {location!r} holds {len(content)} of {size} bytes there; "
                         "the file is damaged")
    return content


def external_tensor(content: bytes) -> str | None:
    """The name of a tensor that a model keeps in another file; None where it holds all of them."""
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError:
        return None  # nothing can be run of it
    waiting = [model.graph, *model.functions]
    while waiting:
        graph = waiting.pop()
        tensors = list(getattr(graph, "initializer", ()))
        for sparse in getattr(graph, "sparse_initializer", ()):
            tensors += [sparse.values, sparse.indices]
        for attribute in (a for node in graph.node for a in node.attribute):
            tensors += [attribute.t, *attribute.tensors, attribute.sparse_tensor.values, attribute.sparse_tensor.indices]
            tensors += [t for s in attribute.sparse_tensors for t in (s.values, s.indices)]
            waiting += [attribute.g, *attribute.graphs]
        for tensor in tensors:
            if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
                return str(tensor.name)
    return None


def attributes_of(node: Any, where: str) -> dict[str, Any]:
    """A node's attributes as Python values; tensors as arrays."""
    values: dict[str, Any] = {}
    for attribute in node.attribute:
        value = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        elif isinstance(value, onnx.TensorProto):
            value = array_of(value, where)
        elif isinstance(value, onnx.SparseTensorProto):
            value = dense_of(value, where)
        values[attribute.name] = value
    return values


def copied(proto: Any) -> Any:
    """A protobuf of its own with the same content."""
    copy = type(proto)()
    copy.CopyFrom(proto)
    return copy
