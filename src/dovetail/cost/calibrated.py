"""Time and energy of shares on a device that was measured layer by layer: the terms of the layer's class, vectorised."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.hardware.work import ShareWork
from dovetail.ir import AvgPool, Concat, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Node
from dovetail.platform.calibrated import RELATED, TERMS
from dovetail.platform.device import Device

STEM_CHANNELS = 4
VECTOR = 4
"""Channels that vector units take at once, at least."""


def class_of(graph: Graph, node: Node) -> str:
    """The class of layer a node is."""
    op = node.op.body
    match op:
        case Conv(_, window, groups, _, _):
            channels = graph.input_shapes(node)[0][1]
            if groups > 1:
                return "depthwise" if groups == channels else _grouped(channels // groups, op.filters // groups)
            if channels <= STEM_CHANNELS:
                return "stem"
            return "pointwise" if window.kernel == (1, 1) else "dense"
        case Gemm():
            return "gemm"
        case MaxPool():
            return "max_pool"
        case AvgPool():
            return "average_pool"
        case GlobalAvgPool():
            return "global_average"
        case Concat():
            return "concat"
    return "add"


def _grouped(read: int, wrote: int) -> str:
    """Libraries have kernels for groups as wide as a vector or several; any other width takes three times as long."""
    return "grouped" if min(read, wrote) >= VECTOR and not (read & (read - 1) or wrote & (wrote - 1)) else "grouped_odd"


def amounts(graph: Graph, node: Node, work: ShareWork) -> dict[str, Floats]:
    """What each of TERMS is multiplied by, one entry per share (or one for all)."""
    bounds = node.op.bounds
    activated, clipped = (np.full(1, float(b)) for b in (bounds is not None, bounds is not None and isfinite(bounds.hi)))
    return {"launch_s": np.ones(1), "s_per_mac": work.macs, "s_per_read": work.reads, "s_per_write": work.writes,
            "s_per_weight": work.weights, "s_per_tap": work.windows, "s_per_depth": work.channels * work.kernel,
            "s_per_root_mac": np.sqrt(work.macs), "activation_s": activated,
            "s_per_rectified": (activated - clipped) * work.writes, "s_per_clipped": clipped * work.writes}


def measured_class(group: str, found: Mapping[str, float]) -> str | None:
    """The class itself if it was measured, else the nearest one that was; None where there is neither."""
    return next((near for near in (group, *RELATED.get(group, ())) if any(f"{near}_{term}" in found for term in TERMS)), None)


def calibrated_seconds(graph: Graph, node: Node, work: ShareWork, device: Device) -> tuple[Floats, float, bool] | None:
    """Seconds of every share, the relative half-width of their interval, and whether the node's own class was measured.

    None if neither its class nor one like it was measured.
    """
    own, found = class_of(graph, node), device.parameters
    group = measured_class(own, found)
    if group is None:
        return None
    seconds = np.zeros(1)
    for term, amount in amounts(graph, node, work).items():
        coefficient = found.get(f"{group}_{term}", 0.0)
        if coefficient:
            seconds = seconds + coefficient * amount
    return seconds, found.get(f"{group}_interval_fraction", found["interval_fraction"]), group == own


def calibrated_joules(work: ShareWork, seconds: Floats, device: Device) -> Floats:
    """Energy above idle: what running draws, and what the multiply-adds and the moved elements take."""
    found = device.parameters
    done = found.get("j_per_mac", 0.0) * work.macs + found.get("j_per_element", 0.0) * (work.reads + work.writes)
    return np.asarray(seconds * (device.busy_power_w - device.idle_power_w) + done, dtype=np.float64)
