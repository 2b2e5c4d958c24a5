"""How much there is to do in each candidate share of a node: pixels, channels, multiply-adds, elements moved.

Closed forms over arrays of [start, stop) units of one axis; they agree with `Op.share`, which tests check.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from math import prod
from typing import Any

import numpy as np

from dovetail.hardware.shares import Floats, Ints, Question, shares_in
from dovetail.ir import Axis, Graph, Node, Pointwise, Select
from dovetail.values import dataclass


@dataclass(frozen=True, slots=True)
class ShareWork:
    """The work of several shares; arrays have one entry per share, plain numbers hold for all of them.

    `channels` are those one filter reads; `read_channels` those of the share's input region. `rows_in` includes
    halo rows. `reads` and `writes` count elements of activations, `weights` elements of constants.
    `plain` is true where the share is a dense convolution of stride and dilation 1, the shape that was measured.
    """

    rows_in: Floats
    columns_in: float
    rows_out: Floats
    columns_out: float
    channels: Floats
    read_channels: Floats
    filters: Floats
    kernel: float
    inputs: int
    macs: Floats
    weights: Floats
    plain: bool
    reads_beside: Floats | float = 0.0
    """Elements of operands that are stretched over the others' map."""

    @property
    def pixels(self) -> Floats:
        """Output pixels."""
        return self.rows_out * self.columns_out

    @property
    def reads(self) -> Floats:
        return self.rows_in * self.columns_in * self.read_channels * self.inputs + self.reads_beside

    @property
    def writes(self) -> Floats:
        return self.pixels * self.filters

    @property
    def windows(self) -> Floats:
        """Input values gathered over all window positions."""
        return self.pixels * self.kernel * self.read_channels

    def part(self, start: int, stop: int) -> ShareWork:
        """Some shares of work whose every field has an entry per share."""
        return ShareWork(**{f: getattr(self, f)[start:stop] for f in FIELDS})


FIELDS = tuple(f.name for f in fields(ShareWork))


def joined(graph: Graph, questions: Sequence[Question]) -> ShareWork:
    """The work of all shares of several nodes, one entry each in every field."""
    return ShareWork(**_filled(graph, questions, FIELDS))  # numbers that hold for all shares are arrays here


def channels_of(graph: Graph, question: Question) -> tuple[Floats, Floats]:
    """Channels that each share of a node reads, and those it writes."""
    found = _filled(graph, [question], ("read_channels", "filters"))
    return found["read_channels"], found["filters"]


def _filled(graph: Graph, questions: Sequence[Question], names: Sequence[str]) -> dict[str, Any]:
    """Some fields of the work of all shares."""
    total = sum(shares_in(segments) for _, segments in questions)
    found: dict[str, Any] = {f: np.empty(total, dtype=np.bool_ if f == "plain" else np.float64) for f in names}
    at = 0
    for node, segments in questions:
        whole, stop = _whole(graph, node), at + shares_in(segments)
        for f, array in found.items():
            array[at:stop] = getattr(whole, f)
        for axis, starts, stops in segments:
            changed = _changed(graph, node, whole, axis, starts, stops)
            for f in found.keys() & changed.keys():
                found[f][at:at + len(starts)] = changed[f]
            at += len(starts)
    return found


def whole_units() -> tuple[Ints, Ints]:
    """Start and stop of the single share of an undivided node."""
    return np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)


def map_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Channels, height and width of one frame; tensors without a map are one pixel."""
    if len(shape) == 4:
        return shape[1], shape[2], shape[3]
    return prod(shape[1:]), 1, 1


def work_of(graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints) -> ShareWork:
    """The work of units [start, stop) of an axis; `axis` None is the whole node, with one entry."""
    whole = _whole(graph, node)
    return replace(whole, **_changed(graph, node, whole, axis, starts, stops))


def _whole(graph: Graph, node: Node) -> ShareWork:
    """The work of a whole node; that of stretched operands is added share by share."""
    return _whole_product(graph, node) if node.op.layer else _whole_channelwise(graph, node)


def _changed(graph: Graph, node: Node, work: ShareWork, axis: Axis | None, starts: Ints, stops: Ints) -> dict[str, Any]:
    """In what the work of shares differs from that of the whole node."""
    found: dict[str, Any] = {}
    if node.op.broadcasts:
        found = _stretched(graph, node, axis, starts, stops)
        work = replace(work, **found)
    if axis is None:
        return found
    count = (stops - starts).astype(np.float64)
    part = count / node.op.extent(axis, graph.input_shapes(node))
    match axis:
        case Axis.OUTPUT_CHANNELS:
            return found | {"filters": count, "macs": work.macs * part, "weights": work.weights * part}
        case Axis.INPUT_CHANNELS:
            return found | {"channels": count, "read_channels": count, "macs": work.macs * part, "weights": work.weights * part}
        case Axis.GROUPS if isinstance(node.op, Select):  # a slice: a share reads what it writes
            return found | {"filters": count, "read_channels": count}
        case Axis.GROUPS:
            return found | {"filters": work.filters * part, "read_channels": work.read_channels * part,
                            "macs": work.macs * part, "weights": work.weights * (part if node.op.per_channel else 1.0)}
        case Axis.ROWS:
            rows_in = _input_rows(graph, node, starts, stops)
            return found | {"rows_in": rows_in, "rows_out": count, "macs": work.macs * part}


def _stretched(graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints) -> dict[str, Any]:
    """Operands of the output's shape are read like those of any join; smaller ones beside them, cut where they can be."""
    shape, shapes = graph.shape(node.output), graph.input_shapes(node)
    channels, height, width = map_shape(shape)
    dim = {Axis.GROUPS: 1, Axis.ROWS: 2}.get(axis) if axis is not None else None
    beside = np.zeros(len(starts))
    for small in (s for s in shapes if s != shape):
        cut = (stops - starts) / shape[dim] if dim is not None and small[dim] == shape[dim] else 1.0
        beside = beside + prod(small[1:]) * cut
    return {"rows_in": _one(height), "columns_in": width, "read_channels": _one(channels), "reads_beside": beside,
            "inputs": sum(s == shape for s in shapes)}


def _whole_product(graph: Graph, node: Node) -> ShareWork:
    (shape, *_) = graph.input_shapes(node)
    op, passes = node.op.layer, max(1, node.op.input_bits)  # plane by plane
    assert op is not None
    channels, height, width = map_shape(shape)
    filters, rows, columns = map_shape(graph.shape(node.output))
    kernel, groups = prod(op.window.kernel) if op.window else 1, op.groups
    plain = op.window is not None and groups == 1 and op.window.stride == (1, 1) and op.window.dilation == (1, 1)
    weights = filters * (channels // groups) * kernel
    return ShareWork(_one(height), width, _one(rows), columns, _one(channels // groups), _one(channels), _one(filters), kernel, 1,
                     _one(rows * columns * weights * passes), _one(weights), plain)


def _whole_channelwise(graph: Graph, node: Node) -> ShareWork:
    _, height, width = map_shape(graph.shape(node.inputs[0]))
    filters, rows, columns = map_shape(graph.shape(node.output))
    kernel = prod(node.op.window.kernel) if node.op.window else 1
    inputs = len(node.inputs)
    read = sum(map_shape(s)[0] for s in graph.input_shapes(node)) / inputs
    tables = node.op.param_shapes(graph.input_shapes(node)) if isinstance(node.op, Pointwise) else ()  # of a formula, too
    return ShareWork(_one(height), width, _one(rows), columns, _one(1), _one(read), _one(filters), kernel, inputs,
                     _one(node.op.macs(graph.input_shapes(node))), _one(sum(map(prod, tables))), False)


def _input_rows(graph: Graph, node: Node, starts: Ints, stops: Ints) -> Floats:
    """Input rows, halo included, that output rows [start, stop) read."""
    window = node.op.body.window
    if window is None:
        return (stops - starts).astype(np.float64)
    height = graph.shape(node.inputs[0])[2]
    first = np.maximum(0, starts * window.stride[0] - window.pads[0])
    last = np.minimum(height, (stops - 1) * window.stride[0] - window.pads[0] + window.reach[0])
    return (last - first).astype(np.float64)


def _one(value: float) -> Floats:
    return np.array((float(value),))
