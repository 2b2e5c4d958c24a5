"""The edges of an imported graph: its inputs declared with shapes, its outputs under their public names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import helper

from dovetail.errors import ModelError
from dovetail.ir import Graph, Node, Reshape, Shape, Tensor
from dovetail.ir.onnx import file as onnx_file
from dovetail.ir.onnx.state import Reader


def read_inputs(reader: Reader, model: Any, shapes: Mapping[str, Shape]) -> tuple[str, ...]:
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
        shape = _input_shape(reader, value, shapes)
        reader.declare(Tensor(value.name, shape or (1,), None, element), f"input {value.name}")
        if not shape:
            _read_scalar(reader, value.name)
    return tuple(names)


def _read_scalar(reader: Reader, name: str) -> None:
    """Every input has one row per frame, so a scalar comes in as a row of one and is squeezed for those who read it."""
    inner = f"{name}/scalar"
    reader.notes.append(f"input {name}: a scalar, given as one value per frame")
    reader.users[inner] = reader.users.get(name, set())
    reader.add_foreign(helper.make_node("Squeeze", [name], [inner], name=inner))
    reader.alias[name] = inner


def _input_shape(reader: Reader, value: Any, shapes: Mapping[str, Shape]) -> Shape:
    where = reader.where
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
            reader.notes.append(f"input {value.name}: symbolic batch {dim.dim_param or '?'!r} planned as 1")
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
            reader.alias.pop(value.name)
            copy = helper.make_node("Identity", [tensor], [value.name], name=value.name)
            reader.add(copy, Reshape(reader.tensors[tensor].shape))
            tensor = value.name
        named.add(tensor)
        found[value.name] = tensor
    if not found:
        raise ModelError(f"{reader.where}: no output is computed from an input; a network needs at least one, export it again")
    return found


def build_graph(reader: Reader, model: Any, inputs: tuple[str, ...]) -> Graph:
    """Give every output tensor its public name, attach schemes, and check the whole."""
    found = _outputs(reader, model, inputs)
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
