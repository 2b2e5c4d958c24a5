"""Time and energy of shares on a CPU or GPU: fitted measurements where there are any, roofline elsewhere.

Kernels work on float32, as the measured ones do: four bytes per element in the processor's own memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.cost.calibrated import calibrated_joules, calibrated_seconds
from dovetail.cost.estimate import ShareCosts
from dovetail.cost.measured import row_costs
from dovetail.cost.predict import Location, locate
from dovetail.hardware.shares import Flags, Floats, Question, shares_in
from dovetail.hardware.work import ShareWork, joined
from dovetail.ir import Graph, Node
from dovetail.platform.calibrated import CALIBRATED
from dovetail.platform.device import Device, Kind, ModelSet
from dovetail.platform.fitted import ROOFLINE, PosynomialModel, posynomial_model
from dovetail.words import counted

Scalar = TypeVar("Scalar", bound=np.generic)

ELEMENT_BYTES = 4
ACCUMULATOR_BYTES = 4
EXTRAPOLATION_WIDENING = 2.0
"""How much wider an interval becomes outside the measured box."""
WIDEST = 1.0
"""Half-width of the interval of a layer that drowned in its measuring loop: half to twice the prediction."""


def processor_why_not(node: Node, device: Device) -> str | None:
    """Why the processor cannot run the node; None if it can."""
    if node.op.learned:
        return None if device.kind is Kind.CPU else f"{device.name}: {node.op.kind} works on codes, for which it has no kernel"
    able = device.kind is Kind.CPU or not node.op.foreign
    return None if able else f"{device.name}: {node.op.kind} is kept as it is and runs in ONNX Runtime on the CPU"


def processor_answers(graph: Graph, questions: Sequence[Question], devices: Sequence[Device]) -> list[list[ShareCosts]]:
    """Costs, device by device, of shares of nodes that every device can run; nodes of one formula are priced at once."""
    groups: dict[str, list[int]] = {}
    for i, (node, _) in enumerate(questions):
        groups.setdefault(_formula(node), []).append(i)
    found: list[list[ShareCosts]] = [[None] * len(questions) for _ in devices]  # type: ignore[list-item]  # filled below
    for formula, members in groups.items():
        asked = [questions[i] for i in members]
        sizes = [shares_in(segments) for _, segments in asked]
        edges = np.cumsum([0, *sizes]).tolist()
        work, points = joined(graph, asked) if formula != "free" else None, dict[bytes, _Point]()
        for d, device in enumerate(devices):
            if work is None or device.model == CALIBRATED:
                own = [_calibrated(graph, node, work.part(a, b), device, b - a) if work is not None else free_costs(
                       b - a, "same values in the same order: nothing to do")
                       for (node, _), (a, b) in zip(asked, pairwise(edges), strict=True)]
            else:
                costs = _priced(work, device, formula, edges[-1], points)
                own = [costs.part(a, b) for a, b in pairwise(edges)]
            for i, costs in zip(members, own, strict=True):
                found[d][i] = costs
    return found


def _formula(node: Node) -> str:
    if node.op.still:
        return "free"
    if node.op.layer is None:
        return "moved"
    return "dense" if node.op.window and node.op.layer.groups == 1 else "product"


def _priced(work: ShareWork, device: Device, formula: str, count: int, points: dict[bytes, _Point]) -> ShareCosts:
    """Costs of work by a device's model; `points` remembers where the work lies in tables, which devices may share levels of."""
    if device.model == ROOFLINE:
        return _roofline(work, device, count)
    model = posynomial_model(device.model)
    if formula == "moved":
        return _moved(work, device, model, count)
    if formula == "dense" and device.models is not ModelSet.PLANNING:
        return row_costs(work, device, count)
    return _fitted(work, device, model, formula == "dense", count, points)


def free_costs(count: int, source: str) -> ShareCosts:
    """Costs of something that takes no time, energy or area."""
    zero = np.zeros(count)
    return ShareCosts(zero, zero, zero, zero, zero, {}, np.zeros(count, dtype=np.bool_), source)


def _traffic_s(work: ShareWork, device: Device) -> Floats:
    return (work.reads + work.writes + work.weights) * ELEMENT_BYTES / device.parameters["bandwidth_bytes_per_s"]


def _costs(seconds: Floats, energy: Floats, half_width: Floats, extrapolated: Flags, source: str) -> ShareCosts:
    return ShareCosts(seconds, seconds, seconds / (1 + half_width), seconds * (1 + half_width), energy, {}, extrapolated, source)


def _roofline(work: ShareWork, device: Device, count: int) -> ShareCosts:
    """Launch plus the longer of computing and moving."""
    rates = device.parameters
    compute = 2 * work.macs / (rates["peak_flop_per_s"] * rates["efficiency"])
    seconds = _spread(rates["launch_s"] + np.maximum(compute, _traffic_s(work, device)), count)
    energy = seconds * (device.busy_power_w - device.idle_power_w)
    return _costs(seconds, energy, np.full(count, rates["interval_fraction"]), np.ones(count, dtype=np.bool_),
                  f"roofline of {device.description}, rates partly assumed")


def _calibrated(graph: Graph, node: Node, work: ShareWork, device: Device, count: int) -> ShareCosts:
    """The measured terms of the node's class, or of one like it; any other operator is launched and moves its elements."""
    found = None if node.op.foreign else calibrated_seconds(graph, node, work, device)
    if found is None:
        rates = device.parameters
        seconds, width, own = rates["launch_s"] + _traffic_s(work, device), rates["interval_fraction"], False
        source = f"bytes moved on {device.description}, not measured"
    else:
        seconds, width, own = found
        source = f"measured layers of {device.description}"
        if not own:
            width, source = width * EXTRAPOLATION_WIDENING, f"{source}, of another kind"
    return _costs(_spread(seconds, count), _spread(calibrated_joules(work, seconds, device), count), np.full(count, width),
                  np.full(count, not own), source)


def _moved(work: ShareWork, device: Device, model: PosynomialModel, count: int) -> ShareCosts:
    """An operator without multiplications: launch plus moving its elements; nothing of the kind was measured."""
    seconds = _spread(device.parameters["launch_s"] + _traffic_s(work, device), count)
    energy = seconds * (device.busy_power_w - device.idle_power_w)
    width = np.full(count, EXTRAPOLATION_WIDENING * model.latency_error[1])
    return _costs(seconds, energy, width, np.ones(count, dtype=np.bool_), f"bytes moved on {device.description}, not measured")


def _fitted(work: ShareWork, device: Device, model: PosynomialModel, dense: bool, count: int,
            points: dict[bytes, _Point]) -> ShareCosts:
    """The layer without its measuring loop, plus launch and reading input and weights.

    Dense convolutions follow the table of the layer; others its terms: grouped and depthwise layers have fewer
    multiply-adds and the same windows to gather, a fully connected layer is a 1x1 convolution of one pixel. Those were not
    measured: they are marked as extrapolated, and so is what lies outside of the measured box. Energy is the power of
    the nearest layer in the table, for the time the layer takes.
    """
    seconds = _terms(model, work.macs, work.writes, work.windows)
    factor, watts = _nearest(work, model, points)
    if dense:
        seconds = seconds * factor
    joules = seconds * watts
    rates = device.parameters
    waiting = rates["launch_s"] + (work.reads + work.weights) * ELEMENT_BYTES / rates["bandwidth_bytes_per_s"]
    # The table's energy is that of the whole rail; plans count idle power separately.
    active = np.maximum(joules - device.idle_power_w * seconds, 0.0)
    energy = active + (device.busy_power_w - device.idle_power_w) * waiting
    outside = _spread(outside_box(work, model), count)
    width = _spread(_half_width(work, model, seconds + waiting), count) * np.where(outside, EXTRAPOLATION_WIDENING, 1.0)
    source = f"TX2 {device.kind.upper()} fit ({counted(model.rows, 'row')}, float32, loop removed), CV error " \
             f"{model.latency_error[0]:.0%}"
    return _costs(_spread(seconds + waiting, count), _spread(energy, count), width, outside, source)


def _terms(model: PosynomialModel, macs: Floats, outputs: Floats, windows: Floats) -> Floats:
    """Seconds of the layer's terms."""
    return sum((model.term(name).latency_s * amount
                for name, amount in (("macs", macs), ("outputs", outputs), ("windows", windows))), np.zeros(1))


@dataclass(frozen=True, slots=True)
class _Point:
    """Side, channels, kernel and filters of the nearest points of a table's box, and where they lie among its levels."""

    inner: tuple[Floats, ...]
    location: Location


def _nearest(work: ShareWork, model: PosynomialModel, points: dict[bytes, _Point]) -> tuple[Floats, Floats]:
    """At the point of the table's box nearest to each share: what the table says over what the terms say, and its power.

    Beyond the box, the terms give the shape. The table knows square inputs without padding; any other layer
    counts by the square output of equal area.
    """
    table = model.table
    key = b" ".join([axis.tobytes() for axis in table.levels])
    if key not in points:
        kernel = np.atleast_1d(np.sqrt(work.kernel))
        point = (np.sqrt(work.pixels) + kernel - 1, work.channels, kernel, work.filters)
        inner = tuple(np.clip(v, axis[0], axis[-1]) for v, axis in zip(point, table.levels, strict=True))
        points[key] = _Point(inner, locate(table.levels, inner))
    own = points[key]
    log_s, log_j = own.location.interpolate(table.log_seconds), own.location.interpolate(table.log_joules)
    side, read, window, wrote = own.inner
    pixels = np.maximum(side - window + 1, 1.0) ** 2
    terms = _terms(model, pixels * window**2 * read * wrote, pixels * wrote, pixels * window**2 * read)
    return np.asarray(np.exp(log_s) / terms, dtype=np.float64), np.asarray(np.exp(log_j - log_s), dtype=np.float64)


def _half_width(work: ShareWork, model: PosynomialModel, seconds: Floats) -> Floats:
    """Relative half-width of the interval: the fit errs by a fraction of the measured loop, of which the layer is a part.

    A layer that took a small part of its loop is known less well, but never worse than by WIDEST.
    """
    loops = {"loop": np.ones(1), "random_input": work.reads, "random_input_root": np.sqrt(work.reads),
             "random_weights": work.weights}
    beside = sum((model.term(name).latency_s * amount for name, amount in loops.items()), np.zeros(1))
    return np.minimum(model.latency_error[1] * (1 + beside / seconds), WIDEST)


def outside_box(work: ShareWork, model: PosynomialModel) -> Flags:
    """Whether a share lies outside the measured box; rectangular maps count by the side of the square of equal area."""
    values = {"input_side": np.sqrt(work.rows_in * work.columns_in), "output_side": np.sqrt(work.pixels),
              "channels": work.channels, "kernel": np.atleast_1d(np.sqrt(work.kernel)), "filters": work.filters}
    outside = ~np.atleast_1d(np.asarray(work.plain, dtype=np.bool_))
    for name, value in values.items():
        lo, hi = model.box[name]
        outside = outside | (value < lo) | (value > hi)
    return outside


def reduction_costs(elements: int, parts: int, device: Device) -> ShareCosts:
    """Adding the int32 partial sums of an input-channel split: moves them all, writes the result."""
    moved = elements * (parts * ACCUMULATOR_BYTES + ELEMENT_BYTES)
    seconds = np.full(1, device.parameters["launch_s"] + moved / device.parameters["bandwidth_bytes_per_s"])
    width = np.full(1, device.parameters.get("interval_fraction", 0.5))
    return _costs(seconds, seconds * (device.busy_power_w - device.idle_power_w), width, np.ones(1, dtype=np.bool_),
                  f"bytes moved on {device.description}, not measured")


def _spread(values: NDArray[Scalar], count: int) -> NDArray[Scalar]:
    """One entry per share, also where no term depends on the share."""
    return np.broadcast_to(values, (count,)).copy()
