"""Time and energy of shares on a GPU that runs our kernels: the estimator's best tile of each kernel.

Whole nodes cost what `kernels/prices.py` says, so that nodes that one kernel computes together cost what that kernel costs if
they follow each other on one GPU undivided. Shares of a node are kernels of their own. Kernels compute integers of 8 bits, as
builds do; costs were fitted to float16, so every estimate is labelled extrapolated and its interval twice as wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np

from dovetail.cost.calibrated import calibrated_joules
from dovetail.cost.estimate import ShareCosts
from dovetail.cost.processor import EXTRAPOLATION_WIDENING
from dovetail.hardware.adders.digits import Once
from dovetail.hardware.shares import Floats, Question, shares_in
from dovetail.hardware.work import ShareWork, joined
from dovetail.ir import Axis, Graph, Node
from dovetail.kernels.conv import MOST_HALVED, ConvShape
from dovetail.kernels.depthwise import DepthwiseShape
from dovetail.kernels.estimator import FITTED_KIND, FITTED_ON, judged
from dovetail.kernels.items import ELEMENT
from dovetail.kernels.layers import is_depthwise
from dovetail.kernels.moves import MovedShape
from dovetail.kernels.prices import GraphPrices, priced
from dovetail.kernels.ranking import best_seconds
from dovetail.kernels.shape import KernelShape
from dovetail.platform.device import Device, Kind, ModelSet
from dovetail.platform.gpu_specification import specification

KIND = "int8"


def runs_kernels(device: Device) -> bool:
    """Whether a device's time is that of our kernels."""
    return device.kind is Kind.GPU and device.kernels is not None and device.models is ModelSet.PLANNING


def kernels_of(graph: Graph, device: Device) -> GraphPrices:
    """A graph's kernels on a device that runs ours."""
    assert device.kernels is not None, "asked of devices that run kernels"
    return _kernels_once(Once(graph), device.kernels)


@lru_cache(maxsize=4)
def _kernels_once(graph: Once[Graph], gpu: str) -> GraphPrices:
    return priced(graph.value, specification(gpu), KIND)


def has_kernels(graph: Graph, node: Node, device: Device) -> bool:
    """Whether a device computes a node with our kernels; others are left to a library's."""
    return runs_kernels(device) and node.name in kernels_of(graph, device).prices


def kernel_answers(graph: Graph, questions: Sequence[Question], device: Device) -> list[ShareCosts]:
    """Costs of shares of nodes that have kernels."""
    assert device.kernels is not None, "asked of devices that run kernels"
    if not questions:
        return []
    gpu, whole = specification(device.kernels), kernels_of(graph, device)
    edges = np.cumsum([0, *(shares_in(segments) for _, segments in questions)]).tolist()
    work = joined(graph, questions)
    places, shapes = list[int](), list[KernelShape]()
    alone, behind = np.zeros((2, edges[-1]))
    for (node, segments), at in zip(questions, edges, strict=False):
        for axis, starts, _ in segments:
            here = slice(at, at + len(starts))
            if axis is None:
                price = whole.prices[node.name]
                alone[here], behind[here] = price.alone_s, price.behind_s
            elif axis is Axis.INPUT_CHANNELS:  # no kernel leaves partial sums
                alone[here] = behind[here] = np.inf
            else:
                places += range(here.start, here.stop)
                shapes += [_shape(graph, node, work, i) for i in range(here.start, here.stop)]
            at = here.stop
    alone[places] = behind[places] = best_seconds(gpu, KIND, shapes)
    alone, behind = np.array((alone, behind)) * device.parameters.get("kernel_factor", 1.0)
    joules = calibrated_joules(work, np.where(np.isfinite(alone), alone, 0.0), device)
    found, width = judged(), judged().best_error_90
    extrapolated = device.kernels != FITTED_ON or KIND != FITTED_KIND
    width *= EXTRAPOLATION_WIDENING if extrapolated else 1.0
    source = (f"estimate of our {KIND} kernels on {gpu.name} ({found.tiles:,} tiles in {FITTED_KIND} on "
              f"{specification(FITTED_ON).name}, best ones within {found.best_error_median:.0%} in the median)")
    every = ShareCosts(alone, behind, alone / (1 + width), alone * (1 + width), joules, {},
                       np.full(len(alone), extrapolated), source)
    return [every.part(a, b) for a, b in pairwise(edges)]


def _shape(graph: Graph, node: Node, work: ShareWork, share: int) -> KernelShape:
    """The kernel that computes one share of a node."""
    element, op = ELEMENT[KIND], node.op
    rows, columns, filters, reads = (int(_at(v, share)) for v in (work.rows_out, work.columns_out, work.filters,
                                                                    work.read_channels))
    moved = float(_at(work.reads, share) + _at(work.writes, share) + _at(work.weights, share)) * element
    if not op.product:
        by_image = op.averages and not op.window
        return MovedShape(element, moved, 1 if by_image else rows * columns, filters, by_image)
    if op.window and is_depthwise(graph, node):
        return DepthwiseShape(element, moved, 1, rows, columns, reads, *op.window.kernel, op.window.stride[0], op.window.reach[0])
    depth = int(_at(work.channels, share))
    groups, taps = max(1, reads // depth), int(_at(work.kernel, share))
    flat = taps > 1 and depth < 16
    planar = graph.producer(node.inputs[0]) is None
    halved = taps == 1 and rows * columns <= MOST_HALVED and not (op.window and any(op.window.pads))
    return ConvShape(element, moved, 1, rows * columns, max(1, filters // groups), taps * depth if flat else depth,
                     1 if flat else taps, groups, flat or planar, halved)


def _at(values: Floats | float, share: int) -> float:
    return float(np.asarray(values)[share])
