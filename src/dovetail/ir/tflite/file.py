"""The tables of a TensorFlow Lite file as plain values: tensors with what they stand for, operators with their options."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from dovetail.errors import MissingToolError, ModelError, UnsupportedError
from dovetail.ir.tensor import Array, Shape

MAGIC = b"TFL3"
"""Bytes 4 to 8 of a file."""
DAMAGED = (struct.error, IndexError, ValueError, TypeError, AttributeError, KeyError, ArithmeticError)
"""What reading a table raises whose offsets lead nowhere."""
MAX_TABLES = 200_000
"""Tensors or operators of a file: thousands are many."""
MOST_READ = 8
"""Times a file's bytes that its tensors may come to: some share their values, and a false file could have all share all."""
TYPES = {"FLOAT32": np.float32, "FLOAT16": np.float16, "INT8": np.int8, "UINT8": np.uint8, "INT16": np.int16,
         "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_}


@dataclass(frozen=True, slots=True)
class LiteScale:
    """What integers stand for: (integer - zero) * scale, per tensor or along an axis."""

    scales: Array
    zeros: Array
    axis: int


@dataclass(frozen=True, slots=True)
class LiteTensor:
    """A tensor; `values` are those of a constant."""

    name: str
    shape: Shape
    dtype: np.dtype[Any]
    quantized: LiteScale | None
    values: Array | None


@dataclass(frozen=True, slots=True)
class LiteOperator:
    """An operator by its name in the schema; tensors by number, -1 where an optional one is left out."""

    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Any = None
    """The table of the schema."""


@dataclass(frozen=True, slots=True)
class LiteModel:
    """The one network of a file."""

    tensors: Sequence[LiteTensor]
    operators: Sequence[LiteOperator]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def is_tflite(content: bytes) -> bool:
    """Whether a file's bytes begin as TensorFlow Lite's do."""
    return content[4:8] == MAGIC


def read_tables(content: bytes, where: str) -> LiteModel:
    """The network of a file.

    Raises:
        ModelError: the file is damaged.
        UnsupportedError: it holds several networks, or tensors of unknown types.
    """
    schema = _schema()
    try:
        model = schema.Model.GetRootAs(content, 0)
        if model.SubgraphsLength() != 1:
            raise UnsupportedError(f"{where}: holds {model.SubgraphsLength()} networks (control flow or signatures); export one "
                                   "network without loops and branches")
        graph = model.Subgraphs(0)
        if max(graph.TensorsLength(), graph.OperatorsLength(), model.OperatorCodesLength()) > MAX_TABLES:
            raise ModelError(f"{where}: more than {MAX_TABLES:,} tensors or operators; the file is damaged")
        kinds = [_kind(schema, model.OperatorCodes(i)) for i in range(model.OperatorCodesLength())]
        tensors, read = list[LiteTensor](), 0
        for i in range(graph.TensorsLength()):
            tensors.append(_tensor(schema, model, graph.Tensors(i), i, where))
            read += len(tensors[-1].name) + (0 if tensors[-1].values is None else tensors[-1].values.nbytes)
            if read > MOST_READ * len(content):
                raise ModelError(f"{where}: its tensors hold more than the file; the file is damaged")
        operators = [_operator(schema, graph.Operators(i), kinds) for i in range(graph.OperatorsLength())]
        return LiteModel(tensors, operators, _numbers(graph.InputsAsNumpy()), _numbers(graph.OutputsAsNumpy()))
    except DAMAGED as error:
        raise ModelError(f"{where}: not a TensorFlow Lite file, or damaged ({error}); export the model again") from None


@cache
def _schema() -> ModuleType:
    try:
        import tflite
    except ImportError:
        raise MissingToolError("reading .tflite files needs the package tflite; install it with "
                               "pip install 'dovetail-accel[tflite]'") from None
    module: ModuleType = tflite
    return module


@cache
def _names(enumeration: type) -> dict[int, str]:
    return {value: name for name, value in vars(enumeration).items() if isinstance(value, int)}


def _numbers(found: Any) -> tuple[int, ...]:
    """A vector of numbers, which reads as 0 where a table leaves it out."""
    return () if isinstance(found, int) else tuple(int(x) for x in found)


def _kind(schema: ModuleType, code: Any) -> str:
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    custom = code.CustomCode()
    return custom.decode("utf-8", "replace") if custom else _names(schema.BuiltinOperator).get(number, f"operator {number}")


def _tensor(schema: ModuleType, model: Any, table: Any, number: int, where: str) -> LiteTensor:
    name = (table.Name() or b"").decode("utf-8", "replace").partition(";")[0] or f"tensor{number}"  # the first that was fused
    kind = _names(schema.TensorType).get(table.Type(), str(table.Type()))
    shape, values = _numbers(table.ShapeAsNumpy()), None
    data = model.Buffers(table.Buffer()).DataAsNumpy() if table.Buffer() else 0
    if kind not in TYPES:
        raise UnsupportedError(f"{where}: tensor {name} is of type {kind}; {', '.join(TYPES)} are read")
    dtype = np.dtype(TYPES[kind])
    if not isinstance(data, int) and data.size:
        if data.size != prod(shape) * dtype.itemsize:
            raise ModelError(f"{where}: tensor {name} declares {prod(shape)} elements but carries {data.size} bytes; the file is "
                             "damaged")
        values = np.frombuffer(data.tobytes(), dtype).reshape(shape)
    table = table.Quantization()
    scales = 0 if table is None else table.ScaleAsNumpy()
    if isinstance(scales, int) or not scales.size:
        return LiteTensor(name, shape, dtype, None, values)
    zeros = table.ZeroPointAsNumpy()
    zeros = np.zeros(scales.size, np.int64) if isinstance(zeros, int) else zeros
    if zeros.size != scales.size or (scales.size > 1 and scales.size != shape[table.QuantizedDimension()]):
        raise ModelError(f"{where}: tensor {name} has {scales.size} scales and {zeros.size} zero points for shape "
                         f"{list(shape)}; the file is damaged")
    return LiteTensor(name, shape, dtype, LiteScale(scales, zeros, table.QuantizedDimension()), values)


def _operator(schema: ModuleType, table: Any, kinds: Sequence[str]) -> LiteOperator:
    union, options = _names(schema.BuiltinOptions).get(table.BuiltinOptionsType(), "NONE"), None
    if union != "NONE":
        options = getattr(schema, union)()
        options.Init(table.BuiltinOptions().Bytes, table.BuiltinOptions().Pos)
    return LiteOperator(kinds[table.OpcodeIndex()], _numbers(table.InputsAsNumpy()), _numbers(table.OutputsAsNumpy()), options)
