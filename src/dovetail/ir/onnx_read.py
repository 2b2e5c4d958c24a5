"""ONNX to graph: every node becomes one operator; activations and BatchNorm are folded by `passes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir import onnx_file
from dovetail.ir.graph import Graph, Node
from dovetail.ir.onnx_foreign import target_opset
from dovetail.ir.onnx_integer import expanded, in_floats, is_qonnx
from dovetail.ir.onnx_operators import READERS
from dovetail.ir.onnx_reader import Reader
from dovetail.ir.passes import simplify
from dovetail.ir.tensor import Constant, Shape, Tensor


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph with where it came from and what was assumed on the way in."""

    graph: Graph
    sha256: str
    notes: tuple[str, ...] = ()


def read_onnx(path: str | Path, shapes: Mapping[str, Shape] | None = None) -> Imported:
    """Read a float or quantized model (QDQ, QOperator, QONNX); folds BatchNorm and activations.

    A symbolic batch becomes 1 with a note; other symbolic dimensions need `shapes` (input name to shape).
    """
    path = Path(path)
    model, sha256 = onnx_file.load(path)
    model = onnx_file.modernised(model)
    kept = _needed(model)
    users: dict[str, set[str]] = {o.name: {""} for o in model.graph.output}
    for node in kept:
        for name in node.input:
            users.setdefault(name, set()).add(node.op_type)
    reader = Reader(str(path), target_opset(model), frozenset(users), {name: frozenset(found) for name, found in users.items()})
    for proto in model.graph.initializer:
        reader.constants[proto.name] = Constant(proto.name, onnx_file.array_of(proto, reader.where))
    notes: list[str] = []
    inputs = []
    for value in model.graph.input:
        if value.name in reader.constants:
            continue
        shape = _input_shape(reader.where, value, shapes or {}, notes)
        reader.tensors[value.name] = Tensor(value.name, shape, None, onnx_file.element_of(value, reader.where))
        inputs.append(value.name)
    if not inputs:
        raise ModelError(f"{path}: the graph has no input; a network needs at least one")
    for node in kept:
        try:
            _read_node(reader, node)
        except MALFORMED as error:
            raise ModelError(f"{path}: node {node.name or node.op_type} contradicts itself ({_first_line(error)}); "
                             "the file is damaged, export the model again") from None
    graph = _finish(reader, model, tuple(inputs))
    return Imported(simplify(graph), sha256, (*notes, *reader.notes))


MALFORMED = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, ZeroDivisionError, MemoryError,
             AssertionError)
"""What NumPy, protobuf and arithmetic raise on attributes and arrays that cannot be; our own refusals pass through."""


def _first_line(error: BaseException) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
ANY_ELEMENT = ("Identity", "Dropout", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Shape", "DequantizeLinear")
"""Operators that only pass values on, whatever their type."""


def _read_node(reader: Reader, node: Any) -> None:
    """A typed operator where one fits, a folded constant where nothing moves, else the node as it is."""
    meant = expanded(node, reader.where)
    if meant is not None:
        for part in meant:
            _read_node(reader, part)
        return
    inputs = [i for i in node.input if i]
    typed = (node.domain in ("", "ai.onnx") or is_qonnx(node)) and node.op_type in READERS
    moving = [reader.tensors[t] for i in inputs if (t := reader.tensor(i)) in reader.tensors]
    if inputs and not moving and all(i in reader.constants for i in inputs) and not is_qonnx(node) \
            and node.op_type not in (*QUANTIZERS, "Identity"):
        reader.add_foreign(node)
        return
    if typed and (node.op_type in ANY_ELEMENT or all(t.element == "float32" for t in moving)):
        try:
            READERS[node.op_type](reader, node, onnx_file.attributes_of(node, reader.where))
            return
        except UnsupportedError as reason:
            if any(i in reader.padding for i in inputs):
                raise
            reader.notes.append(f"kept as it is, for the CPU: {str(reason).removeprefix(f'{reader.where}: ')}")
    if is_qonnx(node):
        for part in in_floats(node, reader.where):
            _read_node(reader, part)
        return
    reader.add_foreign(node)


def _needed(model: Any) -> list[Any]:
    """Nodes that some output depends on, in file order."""
    wanted = {o.name for o in model.graph.output}
    kept = []
    for node in reversed(model.graph.node):
        if any(o in wanted for o in node.output):
            wanted |= set(node.input)
            kept.append(node)
    return kept[::-1]


def _input_shape(where: str, value: Any, shapes: Mapping[str, Shape], notes: list[str]) -> Shape:
    if value.name in shapes:
        return shapes[value.name]
    dims: list[int] = []
    for i, dim in enumerate(value.type.tensor_type.shape.dim):
        if dim.HasField("dim_value") and dim.dim_value > 0:
            dims.append(int(dim.dim_value))
        elif i == 0:
            dims.append(1)
            notes.append(f"input {value.name}: symbolic batch {dim.dim_param or '?'!r} planned as 1")
        else:
            raise ModelError(f"{where}: input {value.name} has a symbolic or empty dimension {i} "
                             f"({dim.dim_param or dim.dim_value!r}); say its size with --shape {value.name}=1,3,224,224")
    if not dims:
        raise ModelError(f"{where}: input {value.name} has no shape; say it with --shape {value.name}=1,3,224,224")
    return tuple(dims)


def _finish(reader: Reader, model: Any, inputs: tuple[str, ...]) -> Graph:
    """Give every output tensor its public name, attach schemes, and check the whole."""
    rename: dict[str, str] = {}
    for value in model.graph.output:
        tensor = reader.tensor(value.name)
        if tensor not in reader.tensors:
            raise ModelError(f"{reader.where}: output {value.name} is produced by no node; the file is damaged")
        if tensor not in inputs and tensor not in rename:
            rename[tensor] = value.name
    outputs = tuple(rename.get(reader.tensor(v.name), reader.tensor(v.name)) for v in model.graph.output)
    schemes = {rename.get(t, t): s for t, s in reader.schemes.items()}
    nodes = tuple(Node(n.name, n.op, tuple(rename.get(i, i) for i in n.inputs), n.params, rename.get(n.output, n.output))
                  for n in reader.nodes)
    public = {t.name: rename.get(t.name, t.name) for t in reader.tensors.values()}
    tensors = {public[t.name]: Tensor(public[t.name], t.shape, schemes.get(public[t.name]), t.element)
               for t in reader.tensors.values()}
    return Graph(model.graph.name or "model", inputs, outputs, nodes, tensors, reader.owned)
