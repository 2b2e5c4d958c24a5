"""What directly mapped hardware cannot do, in words a plan prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dovetail.hardware.engines import constant_divisor, has_engine
from dovetail.hardware.scans import keeps, stream_shape
from dovetail.hardware.streaming import Raster
from dovetail.ir import Add, AvgPool, Broadcast, Concat, Function, Graph, Lookup, MaxPool, Mul, Node, Op, Reduce, Reshape, Select
from dovetail.platform.device import Device
from dovetail.words import counted


def dhm_why_not(graph: Graph, node: Node, device: Device) -> str | None:
    """Why the node has no engine; None if it has one."""
    shapes = (*graph.input_shapes(node), graph.shape(node.output))
    odd = next((shape for shape in shapes if len(shape) not in (2, 4)), None)
    if odd is not None:
        return f"{device.name}: {node.name} has tensors of {counted(len(odd), 'dimension')}; streams carry N,C,H,W or N,C"
    batch = next((shape for shape in shapes if shape[0] != 1), None)
    if batch is not None:
        return (f"{device.name}: {node.name} has a tensor of {'x'.join(map(str, batch))}, which is a batch of {batch[0]}; "
                "hardware takes one frame at a time")
    if not (node.op.still or node.op.layer or has_engine(node.op)):
        return f"{device.name}: {node.name} is a {node.op.kind}, which has no engine"
    look = REASONS.get(type(node.op))
    reason = None if look is None else look(graph, node, node.op)
    return None if reason is None else f"{device.name}: {node.name} {reason}"


def _reshape_reason(graph: Graph, node: Node, op: Reshape) -> str | None:
    channels, height, width = stream_shape(graph, node.inputs[0])
    same = op.shape in ((1, channels * height * width), (1, channels, height, width))
    return None if same else f"reshapes to {'x'.join(map(str, op.shape))}; only flattening is wiring"


def _average_reason(graph: Graph, node: Node, op: AvgPool) -> str | None:
    constant = constant_divisor(graph, node) is not None
    return None if constant else "averages over a varying count (padding not counted); a constant divisor is needed"


def _maximum_reason(graph: Graph, node: Node, op: MaxPool) -> str | None:
    _, height, width = stream_shape(graph, node.inputs[0])
    empty = not Raster(op.window, height, width).every_window_sees
    return "has a window in the padding alone, without a largest value; shrink the padding" if empty else None


def _table_reason(graph: Graph, node: Node, op: Function | Lookup) -> str | None:
    _, height, width = stream_shape(graph, node.inputs[0])
    flat = op.per_channel and len(graph.shape(node.output)) == 2 and height * width > 1
    return "has a table per feature of a flattened map; look up before flattening" if flat else None


def _concat_reason(graph: Graph, node: Node, op: Concat) -> str | None:
    if op.axis != 1:
        return f"concatenates along axis {op.axis}; streams join channels (axis 1) only"
    return _reduce_reason(graph, node, op)


def _broadcast_reason(graph: Graph, node: Node, op: Broadcast) -> str | None:
    streams = [stream_shape(graph, t) for t in node.inputs]
    if not op.multiplies and len({s[0] for s in streams}) != 1:
        return f"adds streams of {', '.join(str(s[0]) for s in streams)} channels; they must agree"
    return None if keeps(graph, node) else _unequal_reason(graph, node)


def _reduce_reason(graph: Graph, node: Node, op: Concat | Reduce) -> str | None:
    return _unequal_reason(graph, node) or _flat_reason(graph, node, "joins")


def _unequal_reason(graph: Graph, node: Node) -> str | None:
    sizes = [stream_shape(graph, t)[1:] for t in node.inputs]
    agree = len(set(sizes)) == 1
    return None if agree else f"joins streams of {', '.join(f'{h}x{w}' for h, w in sizes)} pixels; they must agree"


def _flat_reason(graph: Graph, node: Node, verb: str) -> str | None:
    _, height, width = stream_shape(graph, node.inputs[0])
    flat = len(graph.shape(node.output)) == 2 and height * width > 1
    return f"{verb} flattened maps, whose features are not channels of one beat" if flat else None


REASONS: dict[type[Op], Callable[[Graph, Node, Any], str | None]] = {
    Add: _broadcast_reason, AvgPool: _average_reason, Concat: _concat_reason, Function: _table_reason, Lookup: _table_reason,
    MaxPool: _maximum_reason, Mul: _broadcast_reason, Reduce: _reduce_reason, Reshape: _reshape_reason, 
    Select: lambda graph, node, _: _flat_reason(graph, node, "chooses from"),
}
"""What the engines of some operators cannot do; others do everything, and an operator without an engine does nothing."""
