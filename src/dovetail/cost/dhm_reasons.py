"""What directly mapped hardware cannot do, in words a plan prints."""

from __future__ import annotations

import numpy as np

from dovetail.hardware.engines import constant_divisor
from dovetail.hardware.scans import stream_shape
from dovetail.hardware.streaming import Raster
from dovetail.ir import (
    Add,
    AvgPool,
    Clip,
    Coded,
    Concat,
    Conv,
    Function,
    Gemm,
    GlobalAvgPool,
    Graph,
    Lookup,
    MaxPool,
    Mul,
    Node,
    Reduce,
    Reshape,
    Select,
    Thresholds,
    Upsample,
)
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
    reason = _operator_reason(graph, node)
    return None if reason is None else f"{device.name}: {node.name} {reason}"


def _operator_reason(graph: Graph, node: Node) -> str | None:
    match node.op:
        case Reshape(shape):
            channels, height, width = stream_shape(graph, node.inputs[0])
            same = shape in ((1, channels * height * width), (1, channels, height, width))
            return None if same else f"reshapes to {'x'.join(map(str, shape))}; only flattening is wiring"
        case AvgPool():
            constant = constant_divisor(graph, node) is not None
            return None if constant else "averages over a varying count (padding not counted); a constant divisor is needed"
        case MaxPool(window):
            _, height, width = stream_shape(graph, node.inputs[0])
            empty = not _every_window_sees(Raster(window, height, width))
            return "has a window in the padding alone, without a largest value; shrink the padding" if empty else None
        case Add() | Mul() | Concat() | Reduce() | Select():
            return _join_reason(graph, node)
        case Function() | Lookup():
            _, height, width = stream_shape(graph, node.inputs[0])
            flat = node.op.per_channel and len(graph.shape(node.output)) == 2 and height * width > 1
            return "has a table per feature of a flattened map; look up before flattening" if flat else None
        case Conv() | Gemm() | Coded() | Thresholds() | GlobalAvgPool() | Clip() | Upsample():
            return None
        case _:
            return f"is a {node.op.kind}, which has no engine"


def _join_reason(graph: Graph, node: Node) -> str | None:
    streams = [stream_shape(graph, t) for t in node.inputs]
    if isinstance(node.op, Concat) and node.op.axis != 1:
        return f"concatenates along axis {node.op.axis}; streams join channels (axis 1) only"
    pixels = {height * width for _, height, width in streams}
    if isinstance(node.op, Add | Mul) and {1} < pixels:
        return "has one value per channel for a whole map; it waits for a whole frame, which streams cannot"
    if isinstance(node.op, Add) and len({s[0] for s in streams}) != 1:
        return f"adds streams of {', '.join(str(s[0]) for s in streams)} channels; they must agree"
    if len({s[1:] for s in streams}) != 1:
        return f"joins streams of {', '.join(f'{h}x{w}' for _, h, w in streams)} pixels; they must agree"
    flat = len(graph.shape(node.output)) == 2 and streams[0][1] * streams[0][2] > 1
    if flat and isinstance(node.op, Concat | Reduce | Select):
        verb = "chooses from" if isinstance(node.op, Select) else "joins"
        return f"{verb} flattened maps, whose features are not channels of one beat"
    return None


def _every_window_sees(raster: Raster) -> bool:
    """Whether every window of a pooling covers at least one real pixel."""
    (rows, columns), (high, wide) = raster.output_size, raster.window.kernel
    for count, taps, inside in ((rows, high, raster.row_inside), (columns, wide, raster.column_inside)):
        seen = np.zeros(count, dtype=np.bool_)
        for tap in range(taps):
            seen[slice(*inside(tap))] = True
        if not seen.all():
            return False
    return True
