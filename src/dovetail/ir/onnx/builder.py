"""Writing an ONNX model node by node, its weights drawn from seeded laws only when the file is written.

Until then the model is shapes alone: parameters and multiply-accumulates of a network with hundreds of
megabytes of weights are counted in milliseconds. Weights go into the file as raw bytes, a few rows at a
time, so writing needs little more memory than the file itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from math import prod
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from dovetail.errors import UsageError
from dovetail.ir.onnx import file as onnx_file
from dovetail.ir.onnx.foreign import products
from dovetail.ir.tensor import Shape

CHUNK_ELEMENTS = 1 << 22
"""Weights are drawn at most this many at a time (or one row, where a row is longer)."""
LIMIT_BYTES = (1 << 31) - 1
"""Protobuf, and with it ONNX without external data, ends here."""

_INITIALIZER_TAG, _RAW_DATA_TAG, _GRAPH_TAG = b"\x2a", b"\x4a", b"\x3a"
"""Protobuf keys (field number << 3 | 2) of GraphProto.initializer, TensorProto.raw_data and ModelProto.graph."""


@dataclass(frozen=True, slots=True)
class Normal:
    """Normally distributed float32; `centred` makes every row (index of axis 0) sum to zero."""

    deviation: float
    mean: float = 0.0
    centred: bool = False

    def draw(self, rng: np.random.Generator, shape: Shape) -> npt.NDArray[Any]:
        values = rng.standard_normal(shape, dtype=np.float32)
        if self.centred:
            values -= values.mean(axis=tuple(range(1, len(shape))), keepdims=True, dtype=np.float64).astype(np.float32)
        values *= np.float32(self.deviation)
        values += np.float32(self.mean)
        return values


@dataclass(frozen=True, slots=True)
class Uniform:
    """Uniformly distributed float32 in [lo, hi)."""

    lo: float
    hi: float

    def draw(self, rng: np.random.Generator, shape: Shape) -> npt.NDArray[Any]:
        return rng.random(shape, dtype=np.float32) * np.float32(self.hi - self.lo) + np.float32(self.lo)


@dataclass(frozen=True, slots=True)
class Given:
    """Values known beforehand: all whole numbers become int64, others float32."""

    values: tuple[float, ...]

    @property
    def is_integer(self) -> bool:
        return all(isinstance(v, int) for v in self.values)

    def array(self, shape: Shape) -> npt.NDArray[Any]:
        return np.asarray(self.values, dtype=np.int64 if self.is_integer else np.float32).reshape(shape)


@dataclass(frozen=True, slots=True)
class Response:
    """What filters answer to a constant input: per filter the sum of its weights, each times its input channel's `level`.

    `filters` is the initializer they come from (drawn again here, from the same seed), `level` one number for
    all channels or the response that made them. The answer is multiplied by `factor` and blurred by `deviation`.
    With it a BatchNorm's running mean, or a bias, knows the layer before it.
    """

    filters: Initializer
    level: float | Response
    factor: float = 1.0
    deviation: float = 0.0

    def answer(self, seed: int) -> npt.NDArray[Any]:
        weights = np.frombuffer(b"".join(self.filters.chunks(seed)), dtype=np.float32)
        rows, depth, *taps = self.filters.shape
        level = self.level.answer(seed) if isinstance(self.level, Response) else np.full(depth, self.level)
        # double precision, so that the order of a sum on another machine does not show in the file
        sums = weights.reshape(rows, -1).astype(np.float64) @ np.repeat(level, prod(taps)) * self.factor
        return np.asarray(sums, dtype=np.float32)

    def blurred(self, rng: np.random.Generator, seed: int) -> npt.NDArray[Any]:
        values = self.answer(seed)
        values += rng.standard_normal(values.shape, dtype=np.float32) * np.float32(self.deviation)
        return values


Law = Normal | Uniform | Given | Response


@dataclass(frozen=True, slots=True)
class Initializer:
    """One stored tensor: its shape, the law of its values, and whether training would change it."""

    name: str
    shape: Shape
    law: Law
    trainable: bool

    @property
    def is_integer(self) -> bool:
        return isinstance(self.law, Given) and self.law.is_integer

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * (8 if self.is_integer else 4)

    def chunks(self, seed: int) -> Iterator[bytes]:
        """Little-endian values, row block by row block; they depend on seed, name and shape, on nothing else."""
        rng = np.random.default_rng([seed, crc32(self.name.encode())])
        if isinstance(self.law, Response | Given):
            yield (self.law.blurred(rng, seed) if isinstance(self.law, Response) else self.law.array(self.shape)).tobytes()
            return
        rows, row = self.shape[0], prod(self.shape[1:])
        step = max(1, CHUNK_ELEMENTS // max(1, row))
        for start in range(0, rows, step):
            yield self.law.draw(rng, (min(step, rows - start), *self.shape[1:])).tobytes()


@dataclass(slots=True)
class OnnxBuilder:
    """Collects the nodes of one model; every value's shape is known from the moment it is added.

    A batch of one may be opened to any number of frames by giving `free_batch`: the graph then names the
    first dimension of its input and output instead of fixing it.
    """

    name: str
    free_batch: bool = True
    nodes: list[Any] = field(default_factory=list)
    initializers: dict[str, Initializer] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)

    def input(self, name: str, shape: Shape) -> str:
        self.shapes[name] = shape
        self.inputs.append(name)
        return name

    def node(self, op: str, inputs: Sequence[str], name: str, shape: Shape, **attributes: Any) -> str:
        """Add a node with one output, which carries the node's name."""
        return self.nodes_of(op, inputs, name, {name: shape}, **attributes)[0]

    def nodes_of(self, op: str, inputs: Sequence[str], name: str, outputs: dict[str, Shape], **attributes: Any) -> list[str]:
        """Add a node with several outputs."""
        for output, shape in outputs.items():
            if output in self.shapes:
                raise ValueError(f"{self.name}: value {output} is written twice")
            if min(shape, default=1) < 1:
                raise UsageError(f"{self.name}: the map at {output} would be {'x'.join(map(str, shape))}; use a larger size")
            self.shapes[output] = shape
        self.nodes.append(helper.make_node(op, list(inputs), list(outputs), name=name, **attributes))
        return list(outputs)

    def initializer(self, name: str, shape: Shape, law: Law, trainable: bool = True) -> str:
        if name in self.shapes:
            raise ValueError(f"{self.name}: value {name} is written twice")
        self.initializers[name] = Initializer(name, shape, law, trainable)
        self.shapes[name] = shape
        return name

    def constant(self, name: str, values: Sequence[float] | float) -> str:
        """A fixed operand: int64 where every value is an int, float32 otherwise; a bare number has no dimension."""
        if isinstance(values, int | float):
            return self.initializer(name, (), Given((values,)), trainable=False)
        return self.initializer(name, (len(values),), Given(tuple(values)), trainable=False)

    def parameters(self) -> int:
        """Trainable numbers: weights, biases, BatchNorm's gamma and beta (not its running statistics)."""
        return sum(prod(i.shape) for i in self.initializers.values() if i.trainable)

    def macs(self) -> int:
        """Multiply-accumulates of every Conv, Gemm and MatMul for one frame; nothing else is counted."""
        return sum(products(n.op_type, [self.shapes[i] for i in n.input], self.shapes[n.output[0]]) for n in self.nodes)

    def serialize(self, outputs: Sequence[str], seed: int) -> bytes:
        """The model file: opset 17, IR 8; the same seed gives the same bytes."""
        head, graph = self._frame(outputs)
        fields = [self._fields(i) for i in self.initializers.values()]
        total = len(graph) + sum(map(len, fields)) + sum(i.size_bytes for i in self.initializers.values())
        if total + len(head) + 16 > LIMIT_BYTES:
            raise UsageError(f"{self.name}: the file would take {total / 1e9:.1f} GB, more than an ONNX file can hold "
                             f"({LIMIT_BYTES / 1e9:.1f} GB); use a smaller width or size")
        stream = BytesIO()
        stream.write(head + _GRAPH_TAG + _varint(total) + graph)
        for before, initializer in zip(fields, self.initializers.values(), strict=True):
            stream.write(before)
            for chunk in initializer.chunks(seed):
                stream.write(chunk)
        return stream.getvalue()

    def _frame(self, outputs: Sequence[str]) -> tuple[bytes, bytes]:
        """The model without its graph and the graph without its weights, each serialized."""
        graph = helper.make_graph(self.nodes, self.name, [self._interface(n) for n in self.inputs],
                                  [self._interface(n) for n in outputs])
        model = onnx.ModelProto(ir_version=onnx_file.IR_VERSION, producer_name="dovetail zoo",
                                opset_import=[helper.make_opsetid("", onnx_file.OPSET)])
        return model.SerializeToString(deterministic=True), graph.SerializeToString(deterministic=True)

    def _interface(self, name: str) -> Any:
        batch, *rest = self.shapes[name]
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch" if self.free_batch else batch, *rest])

    def _fields(self, initializer: Initializer) -> bytes:
        """What stands before the values of an initializer in its graph: keys, lengths, and its other fields."""
        kind = TensorProto.INT64 if initializer.is_integer else TensorProto.FLOAT
        proto = TensorProto(dims=initializer.shape, data_type=kind, name=initializer.name)
        fields: bytes = proto.SerializeToString(deterministic=True) + _RAW_DATA_TAG + _varint(initializer.size_bytes)
        return _INITIALIZER_TAG + _varint(len(fields) + initializer.size_bytes) + fields


def _varint(value: int) -> bytes:
    """Protobuf's base-128 number, least significant group first."""
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
