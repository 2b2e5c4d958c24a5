"""Time of shares on a device that was measured layer by layer: the terms of the layer's class, vectorised."""

from __future__ import annotations

from math import isfinite

import numpy as np

from dovetail.cost.estimate import Floats
from dovetail.cost.work import Work
from dovetail.ir import AvgPool, Concat, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Node
from dovetail.platform.calibrated import CLASSES
from dovetail.platform.device import Device

STEM_CHANNELS = 4


def class_of(graph: Graph, node: Node) -> str:
    """The class of layer a node is."""
    match node.op:
        case Conv(_, window, groups, _, _):
            channels = graph.input_shapes(node)[0][1]
            if groups > 1:
                return "depthwise" if groups == channels else "grouped"
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


def amounts(graph: Graph, node: Node, work: Work) -> dict[str, Floats]:
    """What each of TERMS is multiplied by, one entry per share (or one for all)."""
    bounds = node.op.bounds
    activated, clipped = (np.full(1, float(b)) for b in (bounds is not None, bounds is not None and isfinite(bounds.hi)))
    return {"launch_s": np.ones(1), "s_per_mac": work.macs, "s_per_read": work.reads, "s_per_write": work.writes,
            "s_per_weight": work.weights, "s_per_tap": work.windows, "s_per_depth": work.channels * work.kernel,
            "s_per_root_mac": np.sqrt(work.macs), "activation_s": activated,
            "s_per_rectified": (activated - clipped) * work.writes, "s_per_clipped": clipped * work.writes}


def calibrated_seconds(graph: Graph, node: Node, work: Work, device: Device) -> tuple[Floats, float]:
    """Seconds of every share, and the relative half-width of their interval."""
    group, found = class_of(graph, node), device.parameters
    assert group in CLASSES
    seconds = np.zeros(1)
    for term, amount in amounts(graph, node, work).items():
        coefficient = found.get(f"{group}_{term}", 0.0)
        if coefficient:
            seconds = seconds + coefficient * amount
    return seconds, found.get(f"{group}_interval_fraction", found["interval_fraction"])
