"""`If` with a condition known at import: the branch taken stands in for the node, as tracing would have written it."""

from __future__ import annotations

from typing import Any

from onnx import helper

from dovetail.ir import onnx_file
from dovetail.ir.onnx_prepare import ordered, reads, rename_inside
from dovetail.ir.onnx_reader import Reader
from dovetail.ir.tensor import Constant


def decided(reader: Reader, node: Any) -> bool:
    """Whether a node is an `If` whose condition nothing can change any more."""
    return node.op_type == "If" and node.domain in ("", "ai.onnx") and node.input[0] in reader.constants


def taken(reader: Reader, node: Any) -> list[Any]:
    """The nodes of the branch taken, under names of their own, and an Identity for each output of the `If`.

    The branch's weights join the reader's constants, its values the reader's record of who reads what.
    """
    condition = bool(reader.constants[node.input[0]].array.reshape(-1)[0])
    graph = next(a.g for a in node.attribute if a.name == ("then_branch" if condition else "else_branch"))
    around = {*reader.constants, *reader.tensors, *reader.alias}
    prefix = f"{node.output[0]}/"  # one value has one source, so nothing else is called so
    own = {*(i.name for i in graph.initializer), *(s.values.name for s in graph.sparse_initializer),
           *(o for n in graph.node for o in n.output if o)}
    names = {name: f"{prefix}{name}" for name in own}
    for proto in graph.initializer:
        reader.constants[names[proto.name]] = Constant(names[proto.name], onnx_file.array_of(proto, reader.where))
    for sparse in graph.sparse_initializer:
        name = names[sparse.values.name]
        reader.constants[name] = Constant(name, onnx_file.dense_of(sparse, reader.where))
    nodes = [_renamed(n, names, prefix) for n in ordered(graph, reader.where, around)]
    nodes += [helper.make_node("Identity", [names.get(v.name, v.name)], [outer])
              for v, outer in zip(graph.output, node.output, strict=False) if outer]
    users = {name: set(found) for name, found in reader.users.items()}
    for inner in nodes:
        for name in reads(inner):
            users.setdefault(name, set()).add(inner.op_type)
    reader.users = {name: frozenset(found) for name, found in users.items()}
    reader.wanted = frozenset(users)
    return nodes


def _renamed(node: Any, names: dict[str, str], prefix: str) -> Any:
    copy = type(node)()
    copy.CopyFrom(node)
    copy.name = f"{prefix}{node.name}" if node.name else ""
    for values in (copy.input, copy.output):
        for i, name in enumerate(values):
            values[i] = names.get(name, name)
    rename_inside(copy, names, lambda name: f"{prefix}{name}")
    return copy
