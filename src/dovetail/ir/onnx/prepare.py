"""A parsed file made ready for reading: plain names, known opsets, functions inlined, nodes in the order of their use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

import onnx
from onnx import inliner

from dovetail.errors import ModelError

STANDARD = ("", "ai.onnx")
LQ, LITE = "dovetail.lq", "dovetail.lite"
OWN_DOMAINS = (LQ, LITE)
"""Functions of these domains are read as operators; see `lq` here and `tflite.calls`."""
QONNX_DOMAINS = ("qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas")
"""So are QONNX's, where a file defines what they mean beside using them."""
MAX_NODES = 1 << 19
"""Nodes of one model, functions inlined and graphs inside nodes counted; beyond it a file is damaged or meant to be."""
NEWEST = int(onnx.defs.onnx_opset_version())
"""The newest opset the onnx package knows the meaning of."""


def check_size(model: Any, where: str) -> None:
    """Refuse more nodes than any network has."""
    count = sum(len(graph.node) for graph in _graphs(model.graph))
    if count > MAX_NODES:
        raise ModelError(f"{where}: {count:,} nodes; at most {MAX_NODES:,} are read, export the network alone")


def _printable(name: str | bytes) -> str:
    """A name as one line of text: bytes that are no UTF-8 and control characters are spelled out."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    return text if text.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def print_names(model: Any, where: str) -> None:
    """Make every name one line of text; old exporters write names in the encoding of their machine, which come as bytes."""
    for graph in _graphs(model.graph):
        graph.name = _printable(graph.name)
        for named in (*graph.input, *graph.output, *graph.initializer):
            if (plain := _printable(named.name)) != named.name:
                named.name = plain
        for node in graph.node:
            for field in ("name", "op_type", "domain"):
                if (plain := _printable(getattr(node, field))) != getattr(node, field):
                    setattr(node, field, plain)
            for values in (node.input, node.output):
                values[:] = [_printable(name) for name in values]


def _graphs(graph: Any) -> Iterator[Any]:
    """A graph and every graph inside its nodes."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _graphs(inner)


def subgraphs(node: Any) -> list[Any]:
    """The graphs a control-flow node carries."""
    return [g for a in node.attribute for g in ([a.g] if a.type == onnx.AttributeProto.GRAPH else a.graphs)]


def check_opsets(model: Any, where: str) -> tuple[str, ...]:
    """Refuse opsets whose operators nobody knows; returns a note where the file states none."""
    versions = [int(o.version) for o in model.opset_import if o.domain in STANDARD]
    if not versions:
        return ("the file states no opset; its operators are read in their present meaning",)
    for version in versions:
        if not 1 <= version <= NEWEST:
            raise ModelError(f"{where}: opset {version}; 1 to {NEWEST} are known, export the model with one of them (17 is safe)")
    for node in model.graph.node if min(versions) < 7 else ():
        if {"broadcast", "axis"} <= {a.name for a in node.attribute}:  # the onnx package converts these wrongly
            raise ModelError(f"{where}: node {_name(node)}: {node.op_type} broadcasts along an axis as before opset 7; "
                             "export the model with a newer opset (17 is safe)")
    return ()


def check_inputs(model: Any, where: str) -> None:
    """Refuse nodes with more or fewer inputs than their operator has: they would be read as if the others were not there."""
    opset = max((int(o.version) for o in model.opset_import if o.domain in STANDARD), default=NEWEST)
    for node in model.graph.node:
        if node.domain not in STANDARD or not onnx.defs.has(node.op_type, opset, ""):
            continue
        schema = onnx.defs.get_schema(node.op_type, opset, "")
        if not schema.min_input <= len(node.input) <= schema.max_input:
            most = f" to {schema.max_input}" if schema.max_input > schema.min_input else ""
            raise ModelError(f"{where}: node {_name(node)}: {node.op_type} of {len(node.input)} inputs; it has {schema.min_input}"
                             f"{most}, the file is damaged")


def check_outputs(model: Any, where: str) -> None:
    """Refuse a graph that computes nothing."""
    if not model.graph.output:
        raise ModelError(f"{where}: the graph has no output; a network needs at least one, export the model again")


def inlined(model: Any, where: str) -> Any:
    """Functions the file defines itself, replaced by their bodies; those that are operators of ours stay calls."""
    foreign = [(f.domain, f.name) for f in model.functions if f.domain not in (*OWN_DOMAINS, *QONNX_DOMAINS)]
    if not foreign:
        return model
    _check_calls(model, where)
    try:
        return inliner.inline_selected_functions(model, foreign)
    except Exception as error:  # the package raises its own family, rooted in Exception only
        raise ModelError(f"{where}: the functions of the file cannot be inlined ({str(error).splitlines()[0]}); "
                         "export the model without functions") from None


def _check_calls(model: Any, where: str) -> None:
    """Refuse functions that call themselves, and calls that would write more nodes than are read; nothing is written for that."""
    calls = {(f.domain, f.name): [(n.domain, n.op_type) for g in _graphs(f) for n in g.node] for f in model.functions}
    nodes: dict[tuple[str, str], int] = {}
    try:
        for name in TopologicalSorter(calls).static_order():
            nodes[name] = max(1, sum(nodes[c] for c in calls.get(name, ())))
    except CycleError as error:
        domain, function = error.args[1][0]
        raise ModelError(f"{where}: function {function} of domain {domain} calls itself; a network must end, "
                         "unroll the recursion before export") from None
    total = sum(nodes.get((n.domain, n.op_type), 1) for g in _graphs(model.graph) for n in g.node)
    if total > MAX_NODES:
        raise ModelError(f"{where}: {total:,} nodes once its functions are inlined; at most {MAX_NODES:,} are read, export the "
                         "model without functions that call functions")


def captured(node: Any) -> set[str]:
    """Names a node's sub-graphs read from around it."""
    found: set[str] = set()
    for graph in subgraphs(node):
        own = {v.name for v in (*graph.input, *graph.initializer)} | {o for n in graph.node for o in n.output}
        read = {i for n in graph.node for i in (*n.input, *captured(n))} | {v.name for v in graph.output}
        found |= read - own
    return found - {""}


def rename_inside(node: Any, names: Mapping[str, str], fresh: Callable[[str], str]) -> None:
    """Let a node's sub-graphs read what is around them under other `names`; their own values get `fresh` ones."""
    for graph in subgraphs(node):
        own = [*(v.name for v in (*graph.input, *graph.initializer)), *(s.values.name for s in graph.sparse_initializer),
               *(o for n in graph.node for o in n.output)]
        inside = {**names, **{name: fresh(name) for name in dict.fromkeys(filter(None, own))}}
        for value in (*graph.input, *graph.initializer, *graph.output, *(s.values for s in graph.sparse_initializer)):
            value.name = inside.get(value.name, value.name)
        del graph.value_info[:]
        for inner in graph.node:
            inner.name = ""
            for values in (inner.input, inner.output):
                values[:] = [inside.get(name, name) for name in values]
            rename_inside(inner, inside, fresh)


def domains(node: Any) -> set[str]:
    """Operator domains a node needs beside the standard one, its sub-graphs included."""
    return {n.domain for n in (node, *(i for g in subgraphs(node) for h in _graphs(g) for i in h.node))} - set(STANDARD)


def reads(node: Any) -> list[str]:
    """Every value a node needs, its sub-graphs included; in order, without repetition."""
    return list(dict.fromkeys((*filter(None, node.input), *sorted(captured(node)))))


def ordered(graph: Any, where: str, around: Iterable[str] = ()) -> list[Any]:
    """Nodes that some output depends on, each after those it reads from, else in file order.

    `around` are names that exist outside the graph.
    """
    producers = _producers(graph, where)
    given = {v.name for v in (*graph.input, *graph.initializer)} | {s.values.name for s in graph.sparse_initializer} | set(around)
    wanted = [v.name for v in graph.output]
    needed: set[int] = set()
    while wanted:
        name = wanted.pop()
        if name in producers and producers[name] not in needed:
            needed.add(producers[name])
            wanted += reads(graph.node[producers[name]])
    for index in sorted(needed):
        for name in reads(graph.node[index]):
            if name not in producers and name not in given:
                raise ModelError(f"{where}: node {_name(graph.node[index])} reads {name!r}, which no input, initializer or node "
                                 "of the file provides; export the model again, with its weights")
    return [graph.node[i] for i in _sorted(graph, producers, needed, where)]


def _producers(graph: Any, where: str) -> dict[str, int]:
    """The index of the node that writes each name; two writers of one name are refused."""
    inputs = {v.name for v in graph.input}
    found: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in found or name in inputs:
                other = f"node {_name(graph.node[found[name]])}" if name in found else "an input of the graph"
                raise ModelError(f"{where}: node {_name(node)} writes {name!r}, which {other} already does; every value has one "
                                 "source, export the model again")
            found[name] = index
    return found


def _sorted(graph: Any, producers: dict[str, int], needed: set[int], where: str) -> list[int]:
    """Depth first, without recursion, so that a chain of any length comes in."""
    order: list[int] = []
    state: dict[int, bool] = {}  # False while a node waits for what it reads
    for start in sorted(needed):
        stack = [start]
        while stack:
            index = stack[-1]
            if state.get(index):
                stack.pop()
                continue
            open_ = [producers[n] for n in reads(graph.node[index]) if n in producers and not state.get(producers[n])]
            other = next((i for i in open_ if state.get(i) is False), None)
            if other is not None:
                raise ModelError(f"{where}: node {_name(graph.node[index])} waits for what node {_name(graph.node[other])} makes "
                                 "of its own result; a network must not be cyclic, unroll the loop before export")
            state[index] = not open_
            if not open_:
                order.append(stack.pop())
            else:
                stack += reversed(open_)
    return order


def _name(node: Any) -> str:
    return str(node.name or next(filter(None, node.output), node.op_type))
