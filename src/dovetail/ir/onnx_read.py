"""ONNX to graph: every node becomes one operator; activations and BatchNorm are folded by `passes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir import onnx_file
from dovetail.ir.graph import Graph, Node
from dovetail.ir.onnx_operators import READERS, Reader
from dovetail.ir.passes import simplify
from dovetail.ir.tensor import Constant, Shape, Tensor


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph with where it came from and what was assumed on the way in."""

    graph: Graph
    sha256: str
    notes: tuple[str, ...] = ()


def read_onnx(path: str | Path, shapes: Mapping[str, Shape] | None = None) -> Imported:
    """Read a float or power-of-two QDQ model; folds BatchNorm and activations.

    A symbolic batch becomes 1 with a note; other symbolic dimensions need `shapes` (input name to shape).
    """
    path = Path(path)
    model, sha256 = onnx_file.load(path)
    reader = Reader(str(path))
    for proto in model.graph.initializer:
        reader.constants[proto.name] = Constant(proto.name, onnx_file.array_of(proto, reader.where))
    notes: list[str] = []
    inputs = []
    for value in model.graph.input:
        if value.name in reader.constants:
            continue
        shape = _input_shape(reader.where, value, shapes or {}, notes)
        reader.tensors[value.name] = Tensor(value.name, shape)
        inputs.append(value.name)
    if not inputs:
        raise ModelError(f"{path}: the graph has no input; a network needs at least one")
    for node in _needed(model):
        if node.domain not in ("", "ai.onnx") or node.op_type not in READERS:
            raise UnsupportedError(f"{path}: node {node.name or node.output[0]}: operator {node.op_type} of domain "
                                   f"{node.domain or 'ai.onnx'} is not supported; supported are {', '.join(sorted(READERS))}")
        READERS[node.op_type](reader, node, onnx_file.attributes_of(node, reader.where))
    graph = _finish(reader, model, tuple(inputs))
    return Imported(simplify(graph), sha256, tuple(notes))


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
    tensors = {rename.get(t.name, t.name): Tensor(rename.get(t.name, t.name), t.shape, schemes.get(rename.get(t.name, t.name)))
               for t in reader.tensors.values()}
    return Graph(model.graph.name or "model", inputs, outputs, nodes, tensors, reader.owned)
