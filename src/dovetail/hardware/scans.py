"""Time and window storage of streaming engines: what every operator's engine has, whatever it computes.

Registers between two taps in use form chains, which some families have shift registers for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.hardware.rounding import input_bits, output_bits
from dovetail.hardware.shares import Floats, Ints, Question, Segments, shares_in
from dovetail.hardware.streaming import FIFO_LATENCY_CYCLES, Raster
from dovetail.hardware.work import channels_of, map_shape
from dovetail.ir import Axis, Coded, Concat, Gemm, Graph, Node, Op, Select, Window

ROUNDING_STAGES = 2
"""Clock edges from the accumulator to the output FIFO: bias with half a unit, then ties and saturation."""
Parts = dict[str, Any]
"""Some fields of an `Engine`, those of all shares of a node: arrays, or numbers that hold for all of them."""

OWN_FEATURES: tuple[type[Op], ...] = (Gemm, Coded, Concat, Select)
"""Operators whose flat outputs are channels of one pixel; those of others still stream as the map they came from."""


def stream_shape(graph: Graph, tensor: str) -> tuple[int, int, int]:
    """Channels, height and width of a tensor's stream; a flattened map still streams as the map."""
    shape, producer = graph.shape(tensor), graph.producer(tensor)
    while len(shape) == 2 and producer is not None and type(producer.op) not in OWN_FEATURES:
        shape, producer = graph.shape(producer.inputs[0]), graph.producer(producer.inputs[0])
    return map_shape(shape)


def window_of(graph: Graph, node: Node) -> tuple[Window, int, int, int]:
    """Window, channels, height and width of the stream a node reads.

    A fully connected layer behind a flattened map is a convolution whose window is the whole map. Of several inputs the largest
    counts: one value per channel is read once.
    """
    channels, height, width = stream_shape(graph, node.inputs[0])
    if node.op.broadcasts:
        channels, height, width = max((stream_shape(graph, t) for t in node.inputs), key=prod)
    window = node.op.body.window or Window((height, width) if node.op.layer else (1, 1))
    return window, channels, height, width


def keeps(graph: Graph, node: Node) -> bool:
    """Whether one value per channel is kept for a whole map, which waits for it: the gate of squeeze and excitation."""
    return node.op.broadcasts and len({prod(stream_shape(graph, t)[1:]) for t in node.inputs}) > 1


def phases_of(graph: Graph) -> dict[str, int]:
    """By node, the phase of a frame in which it works: what sums up a map saw all of it, so readers follow."""
    leaves, found = dict.fromkeys(graph.inputs, 0), dict[str, int]()
    for node in graph.nodes:
        found[node.name] = max((leaves[t] for t in node.inputs), default=0)
        leaves[node.output] = found[node.name] + (
            bool(node.op.layer or node.op.averages) and prod(stream_shape(graph, node.output)[1:]) == 1)
    return found


@lru_cache(maxsize=4096)
def _raster(window: Window, height: int, width: int) -> Raster:
    """What a node's window makes of a stream; remembered, as alike layers ask the same."""
    return Raster(window, height, width).padded


class Scans:
    """Time and window storage of shares, found once for alike layers that are asked the same."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.known = graph, dict[tuple[object, ...], tuple[Segments, Parts]]()

    def streamed(self, question: Question, taps: NDArray[np.bool_] | None = None) -> Parts:
        """Fields of every share; arithmetic is added by the caller. `taps` are those anything is computed from."""
        (node, segments), graph = question, self.graph
        dense = taps is None or np.count_nonzero(taps) == taps.size
        key = (id(segments), node.op, *(graph.shape(t) for t in (*node.inputs, node.output)), stream_shape(graph, node.inputs[0]),
               input_bits(graph, node), output_bits(graph, node), None if dense or taps is None else taps.tobytes())
        if key not in self.known:  # with the segments, so that their number stays theirs
            self.known[key] = segments, _streamed(graph, question, None if dense else taps)
        return dict(self.known[key][1])


SHORTEST_CHAIN = 3
"""Registers in a row from which a chain becomes a shift register."""


@dataclass(frozen=True, slots=True)
class Shifts:
    """Registers per bit of a pixel that stand alone, those in chains, and the chains."""

    alone: float
    chained: float
    chains: float


def window_shifts(taps: NDArray[np.bool_], window: Window, line: int | None) -> Shifts:
    """Registers of a window whose `taps` (channels, kernel rows, kernel columns) are used.

    A row shifts from its newest column to the oldest in use; where lines of `line` pixels are kept in registers, every row but
    the oldest shifts on until the next one begins.
    """
    (reach_h, reach_w), (_, columns), (_, dilation) = window.reach, window.kernel, window.dilation
    at = np.full(taps.shape[:2], float(reach_w))
    alone = chained = chains = 0.0

    def shift(distance: NDArray[np.float64]) -> None:
        nonlocal alone, chained, chains
        long = distance >= SHORTEST_CHAIN
        alone += float(np.where(long, 0.0, distance).sum())
        chained += float(np.where(long, distance, 0.0).sum())
        chains += float(long.sum())

    for column in range(columns - 1, -1, -1):
        shift(np.where(taps[:, :, column], at - column * dilation, 0.0))
        at = np.where(taps[:, :, column], float(column * dilation), at)
    if line is not None:
        shift(at[:, 1:] + max(0, line - reach_w))
        between = float(reach_h - taps.shape[1])  # rows that dilation skips
        shift(np.full((len(taps), 1), max(line, reach_w) * between))
    count = len(taps)
    return Shifts(alone / count, chained / count, chains / count)


NONE = Shifts(0.0, 0.0, 0.0)
"""Registers of a window of one pixel."""


@lru_cache(maxsize=4096)
def _dense_shifts(window: Window, line: int | None) -> Shifts:
    """Those of a window all taps of which are used."""
    return window_shifts(np.ones((1, *window.kernel), dtype=np.bool_), window, line)


def _streamed(graph: Graph, question: Question, taps: NDArray[np.bool_] | None) -> Parts:
    node, segments = question
    window, channels, height, width = window_of(graph, node)
    raster = _raster(window, height, width)
    count = shares_in(segments)
    steps, flush = np.full(count, float(raster.steps)), np.full(count, float(raster.flush))
    at = 0
    for axis, starts, stops in segments:
        here = slice(at, at + len(starts))
        if axis is Axis.ROWS:
            steps[here], flush[here] = row_steps(window, height, width, starts, stops)
        at = here.stop
    read, written = channels_of(graph, question)
    reads = read * (channels / map_shape(graph.shape(node.inputs[0]))[0])  # features of a flattened map to channels
    pixel_bits = reads * input_bits(graph, node)
    reach_h = window.reach[0]
    line = width if raster.line_in_registers else None
    if taps is None or taps.size % prod(window.kernel):  # a large matrix behind a flattened map is not looked at
        kept, per_channel = NONE if raster.pointwise else _dense_shifts(window, line), float(prod(window.kernel))
    else:
        taps = taps.reshape(-1, *window.kernel)
        kept, per_channel = NONE if raster.pointwise else window_shifts(taps, window, line), float(taps.sum(axis=(1, 2)).mean())
    # A line in a memory is registered, word by word, while its pixel waits; so it does for the counters of outputs.
    beside = 0 if raster.line_in_registers else reach_h - 1
    copies = 1 + raster.counted + (not raster.line_in_registers)
    chained = copies if copies >= SHORTEST_CHAIN else 0
    masked = pixel_bits * (per_channel if raster.masked else 0)
    beat = written * float(output_bits(graph, node))
    return {"steps": steps, "flush": flush, "stages": float(raster.stages + ROUNDING_STAGES + FIFO_LATENCY_CYCLES),
            "register_bits": pixel_bits * (copies - chained + kept.alone + beside) + beat, "masked_bits": masked,
            "output_bits": beat, "fifo_share": 1.0 / window.stride[1], "row_outputs": float(raster.output_size[1]),
            "row_steps": float(window.stride[0] * raster.width), "chain_bits": pixel_bits * (kept.chained + chained),
            "chain_rows": pixel_bits * (kept.chains + (chained > 0)), "line_depth": 0 if raster.line_in_registers else width,
            "line_bits": pixel_bits * (reach_h - 1), "control_bits": float(raster.counter_bits)}


def row_steps(window: Window, height: int, width: int, starts: Ints, stops: Ints) -> tuple[Floats, Floats]:
    """Steps and flush steps of row shares: `Raster` of `Window.rows(start, stop)`, for all shares at once."""
    (reach_h, reach_w), (stride_h, stride_w), (top, left, _, right) = window.reach, window.stride, window.pads
    first_row = np.maximum(0, starts * stride_h - top)
    last_row = np.minimum(height, (stops - 1) * stride_h - top + reach_h)
    above = np.maximum(0, top - starts * stride_h)
    columns = (width + left + right - reach_w) // stride_w + 1
    rows_down = reach_h - 1 - above + (stops - starts - 1) * stride_h
    last = rows_down * width + reach_w - 1 - left + (columns - 1) * stride_w
    beats = (last_row - first_row) * width
    steps = np.maximum(beats, last + 1)
    return steps.astype(np.float64), (steps - beats).astype(np.float64)
