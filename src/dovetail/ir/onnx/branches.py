"""`If`: with a condition known at import the branch taken stands in for the node, as tracing would have written it.

Else the node stays whole, for the CPU; what its branches make is found by reading them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from onnx import helper

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir.onnx import file as onnx_file
from dovetail.ir.onnx.foreign import Kind
from dovetail.ir.onnx.prepare import captured, ordered, rename_inside, subgraphs
from dovetail.ir.onnx.state import Reader
from dovetail.ir.tensor import Constant


def decided(reader: Reader, node: Any) -> bool:
    """Whether a node is an `If` whose condition nothing can change any more."""
    return node.op_type == "If" and node.domain in ("", "ai.onnx") and node.input[0] in reader.constants


def taken(reader: Reader, node: Any) -> list[Any]:
    """The nodes of the branch taken, and an Identity for each output of the `If`.

    The branch's weights join the reader's constants, its values the reader's record of who reads what. Values whose names are
    in use elsewhere get names of their own; the others keep theirs, so that nested branches are not copied at every level.
    """
    condition = bool(reader.constants[node.input[0]].array.reshape(-1)[0])
    graph = next(a.g for a in node.attribute if a.name == ("then_branch" if condition else "else_branch"))
    prefix = f"{node.output[0]}/"  # one value has one source, so nothing else is called so
    own = {*(i.name for i in graph.initializer), *(s.values.name for s in graph.sparse_initializer),
           *(o for n in graph.node for o in n.output if o)}
    names = {name: f"{prefix}{name}" for name in own if name in reader.users or _known(reader, name)}
    take_weights(reader, graph, names)
    nodes = [_renamed(n, names, prefix) for n in ordered(graph, reader.where, (n for n in captured(node) if _known(reader, n)))]
    nodes += [helper.make_node("Identity", [names.get(v.name, v.name)], [outer])
              for v, outer in zip(graph.output, node.output, strict=False) if outer]
    reader.note_users(nodes)
    return nodes


def _known(reader: Reader, name: str) -> bool:
    return name in reader.constants or name in reader.tensors or name in reader.alias


def _renamed(node: Any, names: dict[str, str], prefix: str) -> Any:
    """A node that reads and writes under other `names`; one with graphs inside is copied only where they read such a name."""
    nested = subgraphs(node)
    if nested and names.keys().isdisjoint((*node.input, *node.output, *captured(node))):
        return node
    copy = onnx_file.copied(node)
    copy.name = f"{prefix}{node.name}" if node.name else ""
    for values in (copy.input, copy.output):
        values[:] = [names.get(name, name) for name in values]
    used = set(names.values()) if nested else set()
    rename_inside(copy, names, lambda name: f"{prefix}{name}" if name in used else name)
    return copy


def made_by_branches(reader: Reader, node: Any, read: Callable[[Reader, Any], None]) -> tuple[Kind | None, ...]:
    """Shape and type of each output of an undecided `If`, where its branches agree on them; None where they do not.

    Each branch is read as a graph of its own: shapes that it computes from those around it are known then. One that cannot
    work on these shapes (the other sampling rate of a speech model, say) has no part in it, which a note says.
    """
    found: list[list[Kind | None]] = []
    for attribute in (a for a in node.attribute if a.name in ("then_branch", "else_branch")):
        inner, graph = _around(reader, node), attribute.g
        take_weights(inner, graph)
        nodes = ordered(graph, reader.where, captured(node))
        inner.users = {v.name: {""} for v in graph.output}
        inner.note_users(nodes)
        try:
            for each in nodes:
                read(inner, each)
            found.append([_kind(inner, v.name) for v in graph.output])
        except (ModelError, UnsupportedError) as reason:
            said = str(reason).removeprefix(f"{reader.where}: ")
            reader.notes.append(f"node {node.name or node.output[0]}: its {attribute.name} cannot be computed on inputs of these "
                                f"shapes ({said}); runs that take it fail")
    return tuple(kinds[0] if len(set(kinds)) == 1 else None for kinds in zip(*found, strict=True))


def take_weights(reader: Reader, graph: Any, names: Mapping[str, str] = MappingProxyType({})) -> None:
    """Let the weights of a graph, or of a branch, join the reader's constants, perhaps under other `names`."""
    for proto in graph.initializer:
        name = names.get(proto.name, proto.name)
        reader.constants[name] = Constant(name, onnx_file.array_of(proto, reader.where))
    for sparse in graph.sparse_initializer:
        name = names.get(sparse.values.name, sparse.values.name)
        reader.constants[name] = Constant(name, onnx_file.dense_of(sparse, reader.where))


def _around(reader: Reader, node: Any) -> Reader:
    """A reader that knows what a node's sub-graphs read from around it, and nothing else; no padding is left to readers."""
    inner = Reader(reader.where, reader.opset)
    for name in captured(node):
        if name in reader.constants:
            inner.constants[name] = reader.constants[name]
        elif (tensor := reader.tensor(name)) in reader.tensors:
            inner.tensors[name] = replace(reader.tensors[tensor], name=name)
    return inner


def _kind(reader: Reader, name: str) -> Kind | None:
    if name in reader.constants:
        array = reader.constants[name].array
        return array.shape, array.dtype.name
    tensor = reader.tensors.get(reader.tensor(name))
    return None if tensor is None else (tensor.shape, tensor.element)
