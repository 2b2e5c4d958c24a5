"""The one door to costs: shares of a node on a device, reductions, transfers. Arrays in, arrays out.

Nothing here changes state; every answer says where it comes from and whether it is extrapolated.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from dovetail.cost.accelerator import accelerator_costs, why_outside
from dovetail.cost.dhm import dhm_answers, dhm_costs, dhm_reductions
from dovetail.cost.dhm_reasons import dhm_why_not
from dovetail.cost.estimate import ShareCosts
from dovetail.cost.folded import folds_of_shares, paced_costs
from dovetail.cost.folded_area import FoldedCost
from dovetail.cost.gpu_kernels import has_kernels, kernel_answers, runs_kernels
from dovetail.cost.processor import processor_answers, processor_why_not, reduction_costs
from dovetail.hardware.shares import Floats, Ints, Question
from dovetail.ir import Axis, Graph, Node, Rounding
from dovetail.platform.device import Device, Kind, ModelSet, Platform


def why_not(graph: Graph, node: Node, device: Device) -> str | None:
    """Why the device cannot run the node; None if it can."""
    floats = not node.op.foreign and not graph.integers.issuperset((*node.inputs, node.output))
    if floats and device.kind is not Kind.CPU:
        return f"{device.name}: {node.name} works on floats: no layer beside it is quantized"
    scheme = graph.tensors[node.output].scheme
    if device.kind is Kind.GPU and scheme is not None and scheme.rounding is not Rounding.EVEN:
        return f"{device.name}: {node.name} rounds as TensorFlow Lite does, for which it has no kernel"
    if device.kind is not Kind.FPGA:
        return processor_why_not(node, device)
    if device.accelerator is not None and node.name in device.accelerator.reusable:
        return None
    return why_outside(node, device) or dhm_why_not(graph, node, device)


def costs_of(graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints, device: Device) -> ShareCosts | None:
    """Costs of shares [start, stop) along an axis; None where the device or the axis cannot.

    `axis` None is the whole node: starts = [0], stops = [1]. Float graphs are costed as the int8 they will become.
    A share of `Axis.INPUT_CHANNELS` yields int32 partial sums; `reductions` adds them.
    """
    extent = 1 if axis is None else node.op.extent(axis, graph.input_shapes(node))
    if extent < 1 or why_not(graph, node, device) is not None:
        return None
    assert np.all((starts >= 0) & (starts < stops) & (stops <= extent)), f"shares outside [0, {extent}) of {node.name}"
    question = node, ((axis, starts, stops),)
    if device.kind is Kind.FPGA:
        return _on_fpga(graph, question, dhm_costs(graph, node, axis, starts, stops, device), device)
    if has_kernels(graph, node, device):
        return kernel_answers(graph, [question], device)[0]
    return processor_answers(graph, [question], [device])[0][0]


def _on_fpga(graph: Graph, question: Question, direct: ShareCosts, device: Device,
             folds: Sequence[FoldedCost | None] | None = None) -> ShareCosts | None:
    """What direct mapping costs becomes what the device really builds: folded engines, or its part of an accelerator."""
    if device.accelerator is not None:
        (axis, starts, _), *others = question[1]
        whole = axis is None and len(starts) == 1 and not others  # accelerators compute no shares
        return accelerator_costs(graph, question, direct, device) if whole else None
    return paced_costs(graph, question, direct, device, folds)


def costs_of_many(graph: Graph, questions: Sequence[Question], devices: Sequence[Device]) -> list[list[ShareCosts | None]]:
    """Costs of many shares of many nodes at once, device by device; None where a device cannot run a node.

    To the last bit what `costs_of` says share by share, except for shares that are too large for any FPGA among the devices:
    their resources and energy are lower bounds, too large as well.
    """
    found: list[list[ShareCosts | None]] = [[None] * len(questions) for _ in devices]
    for answers, fpga in ((processor_answers, False), (dhm_answers, True)):
        chosen = [i for i, d in enumerate(devices) if (d.kind is Kind.FPGA) is fpga]
        able: dict[tuple[int, ...], list[int]] = {}
        for i in chosen:
            can = tuple(q for q, (node, _) in enumerate(questions) if why_not(graph, node, devices[i]) is None)
            able.setdefault(can, []).append(i)
        for can, alike in able.items():
            answered = answers(graph, [questions[q] for q in can], [devices[i] for i in alike])
            for i, own in zip(alike, answered, strict=True):
                folds = folds_of_shares(graph, [questions[q] for q in can], devices[i]) if fpga else []
                for number, (q, costs) in enumerate(zip(can, own, strict=True)):
                    found[i][q] = _on_fpga(graph, questions[q], costs, devices[i], folds[number]) if fpga else costs
    for i in (i for i, d in enumerate(devices) if runs_kernels(d)):
        ours = [q for q, (node, _) in enumerate(questions) if found[i][q] is not None and has_kernels(graph, node, devices[i])]
        for q, costs in zip(ours, kernel_answers(graph, [questions[q] for q in ours], devices[i]), strict=True):
            found[i][q] = costs
    return found


def reductions(shapes: Sequence[tuple[int, ...]], parts: int, device: Device) -> list[ShareCosts | None]:
    """Costs of adding `parts` int32 partial sums of outputs of each shape and rounding once; None where no kernel adds them."""
    if runs_kernels(device):
        return [None] * len(shapes)
    if device.kind is Kind.FPGA:
        every = dhm_reductions(shapes, parts, device)
        return [every.part(i, i + 1) for i in range(len(shapes))]
    return [reduction_costs(prod(shape), parts, device) for shape in shapes]


def transferred(sizes: Floats, latency_s: float, s_per_byte: float, j_per_byte: float) -> tuple[Floats, Floats]:
    """Seconds and joules of transfers over a route with the given rates; nothing for nothing."""
    return transfer_seconds(sizes, latency_s, s_per_byte), sizes * j_per_byte if j_per_byte else np.zeros(sizes.shape)


def transfer_seconds(sizes: Floats, latency_s: float, s_per_byte: float, busy: Floats | None = None) -> Floats:
    """The seconds alone, for those who ask for no joules; `busy` is one where there is anything to move, else zero."""
    seconds: Floats = (sizes > 0).astype(np.float64) if busy is None else busy
    seconds = seconds * latency_s
    if s_per_byte:
        seconds += sizes * s_per_byte
    return seconds


def transfer_rates(platform: Platform, source: str, target: str) -> tuple[float, float, float]:
    """Latency, seconds and joules per byte of a route, hop after hop; shared memory costs its latency only.

    What comes to a device begins a part there, so the latency has its dispatch; what comes to the host begins a part of the host
    or is handed to whoever reads results, through the same queues. The papers' models count none.
    """
    route, onto = platform.route(source, target), platform.device(target)
    planned = target != source and onto.models is ModelSet.PLANNING
    dispatch_s = onto.dispatch_s if planned and onto.dispatch_s is not None else 0.0
    copies = [link for link in route if not link.shared_memory]
    return (sum(link.latency_s for link in route) + dispatch_s, sum(1 / link.bandwidth_bytes_per_s for link in copies),
            sum(link.energy_j_per_byte for link in copies))
