"""Which nodes cannot be mapped to engines, and why, in one sentence each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.fpga.engines.stream import Format
from dovetail.fpga.mapping import ENGINES, Formats
from dovetail.hardware.engines import constant_divisor
from dovetail.hardware.streaming import Raster
from dovetail.ir import Add, AvgPool, Broadcast, Concat, Graph, Lookup, MaxPool, Mul, Node, Op, Reduce, Select


def reason_unsupported(graph: Graph, node: Node, formats: Formats) -> str | None:
    """Why a node cannot be mapped, in one sentence; None if it can."""
    if graph.shape(node.output)[0] != 1:
        return f"{node.name}: batch size {graph.shape(node.output)[0]}; hardware takes one frame at a time"
    for tensor in (*node.inputs, node.output):
        if tensor not in formats:
            shape = "x".join(map(str, graph.shape(tensor)))
            return f"{node.name}: tensor {tensor} ({shape}) has no pixel stream; N,C,H,W, N,C and their flattening have one"
    if not node.op.still and type(node.op) not in ENGINES:
        return f"{node.name}: no engine for {node.op.kind}"
    reason = REASONS.get(type(node.op))
    found = None if reason is None else reason(graph, node, node.op, [formats[t] for t in node.inputs])
    return None if found is None else f"{node.name}: {found}"


def _average_reason(graph: Graph, node: Node, op: AvgPool, inputs: list[Format]) -> str | None:
    varying = "the average divides by a count that depends on the position; count the padding instead"
    return varying if constant_divisor(graph, node) is None else None


def _select_reason(graph: Graph, node: Node, op: Select, inputs: list[Format]) -> str | None:
    flat = len(graph.shape(node.output)) == 2 and inputs[0].beats > 1
    return "chooses from a flattened map, whose features are not channels of one beat" if flat else None


def _lookup_reason(graph: Graph, node: Node, op: Lookup, inputs: list[Format]) -> str | None:
    flat = op.by_channel and len(graph.shape(node.output)) == 2 and inputs[0].beats > 1
    return "a table per feature of a flattened map; look up before flattening" if flat else None


def _max_pool_reason(graph: Graph, node: Node, op: MaxPool, inputs: list[Format]) -> str | None:
    sees = Raster(op.window, inputs[0].height, inputs[0].width).every_window_sees
    return None if sees else "a window lies in the padding alone and has no largest value; shrink the padding"


def _join_reason(graph: Graph, node: Node, op: Broadcast | Concat | Reduce, inputs: list[Format]) -> str | None:
    if op.broadcasts and {1} < {f.beats for f in inputs}:
        return "one value per channel for a whole map; it waits for a whole frame, which streams cannot"
    if len({(f.height, f.width) for f in inputs}) != 1:
        return f"inputs stream {[f'{f.height}x{f.width}' for f in inputs]} pixels; they must agree"
    if (op.multiplies and 1 in {f.channels for f in inputs}) or op.joins:
        return None
    if len({f.channels for f in inputs}) != 1:
        return f"inputs stream {[f.channels for f in inputs]} channels; they must agree"
    flat = len(graph.shape(node.output)) == 2 and inputs[0].beats > 1
    return "bias per feature of a flattened map; reduce before flattening" if flat and node.params else None


def _concat_reason(graph: Graph, node: Node, op: Concat, inputs: list[Format]) -> str | None:
    if (reason := _join_reason(graph, node, op, inputs)) is not None:
        return reason
    if op.axis != 1:
        return f"joins along axis {op.axis}; only channels (axis 1) lie side by side in a beat"
    flat = len(graph.shape(node.output)) == 2 and inputs[0].beats > 1
    return "joins flattened maps, whose features are not channels of one beat" if flat else None


REASONS: dict[type[Op], Callable[[Graph, Node, Any, list[Format]], str | None]] = {
    Add: _join_reason, AvgPool: _average_reason, Concat: _concat_reason, Lookup: _lookup_reason, MaxPool: _max_pool_reason,
    Mul: _join_reason, Reduce: _join_reason, Select: _select_reason,
}
"""What the engines of some operators cannot do; those of others do everything."""
