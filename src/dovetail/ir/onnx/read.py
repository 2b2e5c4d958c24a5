"""ONNX to graph: every node becomes one operator; activations and BatchNorm are folded by `passes`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir.graph import Graph, Node
from dovetail.ir.onnx import file as onnx_file
from dovetail.ir.onnx import lq as onnx_lq
from dovetail.ir.onnx.branches import decided, made_by_branches, taken
from dovetail.ir.onnx.clusters import Cluster, Table, grouped
from dovetail.ir.onnx.foreign import target_opset
from dovetail.ir.onnx.integer import expanded, in_floats, is_qonnx
from dovetail.ir.onnx.layout import sink_transposes
from dovetail.ir.onnx.opsets import modernised
from dovetail.ir.onnx.pointwise import read_alone, read_cluster, read_table
from dovetail.ir.onnx.precision import read_as_single
from dovetail.ir.onnx.prepare import ordered, prepared
from dovetail.ir.onnx.qonnx_thresholds import code_layers
from dovetail.ir.onnx.readers import READERS
from dovetail.ir.onnx.rows import lift, lifts, without_unread
from dovetail.ir.onnx.state import Reader
from dovetail.ir.operators.elementwise import Reshape
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
    with _placed(str(path)):
        model, notes = prepared(model, str(path))
        model = modernised(model)
        try:
            notes += read_as_single(model, str(path))
            sink_transposes(model, str(path))
        except MALFORMED as error:
            raise _malformed(str(path), "a node", error) from None
        graph, more = _read_graph(model, str(path), shapes or {})
    return Imported(graph, sha256, (*notes, *more))


def _read_graph(model: Any, where: str, shapes: Mapping[str, Shape]) -> tuple[Graph, tuple[str, ...]]:
    kept = ordered(model.graph, where)
    reader = Reader(where, target_opset(model), {o.name: {""} for o in model.graph.output},
                    traces=model.producer_name != onnx_file.PRODUCER)
    reader.note_users(kept)
    for proto in model.graph.initializer:
        reader.constants[proto.name] = Constant(proto.name, onnx_file.array_of(proto, where))
    for sparse in model.graph.sparse_initializer:
        reader.constants[sparse.values.name] = Constant(sparse.values.name, onnx_file.dense_of(sparse, where))
    notes: list[str] = []
    inputs = _read_inputs(reader, model, shapes, notes)
    for item in grouped(model, kept):
        node = item.nodes[-1] if isinstance(item, Cluster | Table) else item
        try:
            _read_item(reader, item)
        except MALFORMED as error:
            raise _malformed(where, f"node {node.name or node.op_type}", error) from None
    code_layers(reader)
    graph = _finish(reader, model, inputs)
    foreign = [f"kept as it is, for the CPU: {why}" for output, why in reader.reasons.items() if output in graph.tensors]
    return simplify(graph), (*notes, *reader.notes, *foreign)


@contextmanager
def _placed(where: str) -> Iterator[None]:
    """Errors of tensors and passes, which know nothing of files, get the file's name in front."""
    try:
        yield
    except (ModelError, UnsupportedError) as error:
        if str(error).startswith(where):
            raise
        raise type(error)(f"{where}: {error}") from None


def _read_inputs(reader: Reader, model: Any, shapes: Mapping[str, Shape], notes: list[str]) -> tuple[str, ...]:
    """Declare the graph's inputs; an initializer under an input's name is a default that becomes the value."""
    values = [v for v in model.graph.input if v.name not in reader.constants]
    if not values:
        raise ModelError(f"{reader.where}: the graph has no input; a network needs at least one")
    names = [v.name for v in values]
    for name in shapes:
        if name not in names:
            raise ModelError(f"{reader.where}: --shape {name}: no such input; inputs are {', '.join(names)}")
    for value in values:
        element = onnx_file.element_of(value, reader.where)
        shape = _input_shape(reader.where, value, shapes, notes)
        reader.declare(Tensor(value.name, shape or (1,), None, element), f"input {value.name}")
        if not shape:
            _read_scalar(reader, value.name, notes)
    return tuple(names)


MALFORMED = (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, ZeroDivisionError, MemoryError,
             AssertionError)
"""What NumPy, protobuf and arithmetic raise on attributes and arrays that cannot be; our own refusals pass through."""


def _malformed(where: str, what: str, error: BaseException) -> ModelError:
    said = str(error).splitlines()[0] if str(error) else type(error).__name__
    return ModelError(f"{where}: {what} contradicts itself ({said}); the file is damaged, export the model again")


QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
ANY_ELEMENT = ("Identity", "Dropout", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Shape", "DequantizeLinear", "Transpose",
               "Split", "Slice", "Gather")
"""Operators that only pass values on, whatever their type."""


def _read_item(reader: Reader, item: Any) -> None:
    """A formula or a table as one operator, everything else node by node."""
    if isinstance(item, Table):
        read_table(reader, item)
    elif not isinstance(item, Cluster):
        _read_node(reader, item)
    elif not read_cluster(reader, item):
        for node in item.nodes:
            _read_node(reader, node)


def _read_node(reader: Reader, node: Any) -> None:
    """A typed operator where one fits, a folded constant where nothing moves, else the node as it is."""
    if node.domain == onnx_lq.DOMAIN:
        onnx_lq.read(reader, node)
        return
    meant = expanded(node, reader.where)
    if meant is not None:
        for part in meant:
            _read_node(reader, part)
        return
    if decided(reader, node):
        for inner in taken(reader, node):
            _read_node(reader, inner)
        return
    if lifts(reader, node):
        lift(reader, node, _read_node)
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
            reader.reasons[next(o for o in node.output if o)] = str(reason).removeprefix(f"{reader.where}: ")
    if is_qonnx(node):
        for part in in_floats(node, reader.where):
            _read_node(reader, part)
        return
    if not read_alone(reader, node):
        reader.add_foreign(node, made_by_branches(reader, node, _read_node) if node.op_type == "If" else ())


def _read_scalar(reader: Reader, name: str, notes: list[str]) -> None:
    """Every input has one row per frame, so a scalar comes in as a row of one and is squeezed for those who read it."""
    inner = f"{name}/scalar"
    notes.append(f"input {name}: a scalar, given as one value per frame")
    reader.users[inner] = reader.users.get(name, set())
    reader.add_foreign(onnx_file.scalar_node(name, inner))
    reader.alias[name] = inner


def _input_shape(where: str, value: Any, shapes: Mapping[str, Shape], notes: list[str]) -> Shape:
    dims = value.type.tensor_type.shape.dim
    known = value.type.tensor_type.HasField("shape")
    example = ",".join(str(d.dim_value) if d.dim_value > 0 else "224" if i else "1" for i, d in enumerate(dims)) or "1,3,224,224"
    if value.name in shapes:
        if known and len(shapes[value.name]) != len(dims):
            raise ModelError(f"{where}: --shape {value.name}: {len(shapes[value.name])} sizes for an input of {len(dims)} "
                             f"dimensions; write for example --shape {value.name}={example}")
        return shapes[value.name]
    if not known:
        raise ModelError(f"{where}: input {value.name} has no shape; say it with --shape {value.name}={example}")
    found: list[int] = []
    for i, dim in enumerate(dims):
        if dim.HasField("dim_value") and dim.dim_value > 0:
            found.append(int(dim.dim_value))
        elif i == 0:
            found.append(1)
            notes.append(f"input {value.name}: symbolic batch {dim.dim_param or '?'!r} planned as 1")
        else:
            raise ModelError(f"{where}: input {value.name} has a symbolic or empty dimension {i} "
                             f"({dim.dim_param or dim.dim_value!r}); say its size with --shape {value.name}={example}")
    return tuple(found)


def _outputs(reader: Reader, model: Any, inputs: tuple[str, ...]) -> dict[str, str]:
    """The tensor behind each output; one that has a name already, of an input or of another output, is copied."""
    found: dict[str, str] = {}
    named = {value.name for value in model.graph.output if value.name in reader.tensors}  # tensors that have a public name
    for value in model.graph.output:
        tensor = reader.tensor(value.name)
        if value.name in reader.constants:
            reader.notes.append(f"output {value.name} does not depend on any input; it is left out")
            continue
        if value.name in inputs:
            reader.notes.append(f"output {value.name} is an input as it came; it is left out")
            continue
        if tensor not in reader.tensors:
            raise ModelError(f"{reader.where}: output {value.name} is produced by no node; the file is damaged")
        if tensor != value.name and (tensor in named or tensor in inputs):
            copy = onnx_file.copy_node(value.name)
            reader.alias.pop(value.name)
            reader.add(copy, Reshape(reader.tensors[tensor].shape), [tensor], {})
            tensor = value.name
        named.add(tensor)
        found[value.name] = tensor
    if not found:
        raise ModelError(f"{reader.where}: no output is computed from an input; a network needs at least one, export it again")
    return found


def _finish(reader: Reader, model: Any, inputs: tuple[str, ...]) -> Graph:
    """Give every output tensor its public name, attach schemes, and check the whole."""
    found = _outputs(reader, model, inputs)
    without_unread(reader, set(found.values()))
    rename = {tensor: name for name, tensor in found.items() if tensor not in inputs}
    schemes = {rename.get(t, t): s for t, s in reader.schemes.items()}
    nodes = tuple(Node(n.name, n.op, tuple(rename.get(i, i) for i in n.inputs), n.params, rename.get(n.output, n.output))
                  for n in reader.nodes.values())
    read = set(found)
    for node in reversed(nodes):  # movements that became one leave nodes behind that nobody reads
        read |= set(node.inputs) if node.output in read else set()
    nodes = tuple(n for n in nodes if n.output in read)
    owned = {c: reader.owned[c] for n in nodes for c in n.params}
    public = {t.name: rename.get(t.name, t.name) for t in reader.tensors.values()}
    tensors = {public[t.name]: Tensor(public[t.name], t.shape, schemes.get(public[t.name]), t.element)
               for t in reader.tensors.values()}
    kept = {*inputs, *(n.output for n in nodes)}
    return Graph(model.graph.name or "model", inputs, tuple(found), nodes, {k: t for k, t in tensors.items() if k in kept}, owned)
