"""When one frame passes a row of dedicated engines: beat by beat, by the closed forms the engines are made of.

A frame is not through after one pace and what windows hold: engines faster than the slowest fill their windows sooner, an average
over a whole map leaves with its last pixel, and a fully connected layer cannot begin to leave before all of its input came.
So every beat gets the clock in which it can be taken (`streaming.leaving_times`), engine after engine, as `fpga/timing.py` does
for the engines that were made; here no engine is made, and pipeline stages are estimates.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, log2, prod

import numpy as np

from dovetail.cost.firb import STAGES, Bottleneck, bottlenecks
from dovetail.cost.folded import shape_of, weight_bits
from dovetail.hardware.folds import Channels, Fold, Loops, channels_of, soft_digits
from dovetail.hardware.scans import ROUNDING_STAGES, keeps, stream_shape, window_of
from dovetail.hardware.streaming import FIFO_LATENCY_CYCLES, Cycles, FoldedRaster, Raster, leaving_times
from dovetail.ir import Graph, Node

JOIN_STAGES, AVERAGE_STAGES, LANE_STAGES, ADDER_STAGES = 2, 6, 2, 2
"""Clock edges beside window, tree and rounding: of an engine without a window (its pixel, and a sum, product or table's word), of
an average over a map (sums and their division), of folded lanes (products and their bias) and of adders of constants."""
SCALED_STAGES = 4
"""Further ones where outputs are multiplied, between scales that are no powers of two."""
LEAST_AVERAGED, LEAST_SUMMED = 8, 3
"""Channels at once below which an average hardly gets smaller, and words of a pixel from which on it takes words
(fpga/network.py)."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A tensor's beats: channels of the tensor and of a beat, pixels, and the clock in which each beat can be taken."""

    channels: int
    fields: int
    pixels: int
    ready: Cycles


@dataclass(frozen=True, slots=True)
class EngineSchedule:
    """Steps of an engine per frame, those that need a beat of every input, those that lead to outputs, and edges behind them."""

    steps: int
    asks: Cycles
    leaves: Cycles
    stages: int


@dataclass(frozen=True, slots=True)
class FramePassage:
    """A frame through a row of engines: clocks of its outputs' last beat, of the slowest engine, and of each tensor's beats."""

    last: int
    slowest: int
    streams: Mapping[str, Stream]


class _Row:
    """Streams of a graph while its nodes are looked at in order."""

    def __init__(self, graph: Graph, folds: Mapping[str, Fold]) -> None:
        self.graph, self.folds, self.slowest = graph, folds, 1
        self.streams: dict[str, Stream] = {}
        for tensor in graph.inputs:
            channels, height, width = stream_shape(graph, tensor)
            self.streams[tensor] = Stream(channels, channels, height * width, 1 + np.arange(height * width, dtype=np.int64))
            self.slowest = max(self.slowest, height * width)

    def run(self, inputs: tuple[Stream, ...], schedule: EngineSchedule) -> Cycles:
        """The clocks in which an engine's outputs can be taken."""
        self.slowest = max(self.slowest, schedule.steps)
        left = leaving_times([s.ready for s in inputs], schedule.asks, schedule.leaves)
        return left + (schedule.stages + FIFO_LATENCY_CYCLES)

    def in_words(self, stream: Stream, fields: int) -> Stream:
        """A stream in beats of so many channels, cut anew if it is not."""
        fields = min(fields, stream.channels)
        if fields == stream.fields:
            return stream
        asks, leaves, turns = _turns(stream.channels, stream.fields, fields)
        pixels = np.arange(stream.pixels, dtype=np.int64)[:, None] * turns
        schedule = EngineSchedule(turns * stream.pixels, (pixels + asks).reshape(-1), (pixels + leaves).reshape(-1), 1)
        return replace(stream, fields=fields, ready=self.run((stream,), schedule))

    def add(self, node: Node) -> None:
        found = tuple(self.streams[t] for t in node.inputs)
        taken, fields = self.fields(node, found)
        inputs = tuple(self.in_words(s, taken or s.channels) for s in found)
        if keeps(self.graph, node):
            inputs = _kept(inputs)
        channels, height, width = stream_shape(self.graph, node.output)
        fields = min(channels, fields or channels)
        if node.op.layer or node.op.window:
            window, _, rows, columns = window_of(self.graph, node)
            inputs, raster = self.padded(inputs, Raster(window, rows, columns))
            schedule = self.windowed(node, raster, inputs[0])
        elif node.op.averages:
            words, beats = -(-channels // fields), len(inputs[0].ready)
            schedule = EngineSchedule(beats, np.arange(beats), np.arange(beats - words, beats), AVERAGE_STAGES + ROUNDING_STAGES)
        else:
            schedule = _pointwise(node, (height, width), -(-channels // fields))
        schedule = replace(schedule, stages=schedule.stages + SCALED_STAGES * self.scaled(node))
        self.streams[node.output] = Stream(channels, fields, height * width, self.run(inputs, schedule))

    def scaled(self, node: Node) -> bool:
        """Whether a node rounds between scales that are no powers of two."""
        return any((s := self.graph.tensors[t].scheme) is not None and not s.fixed_point for t in (*node.inputs, node.output))

    def loops(self, node: Node, channels: int) -> Loops | None:
        """The rounds of a layer that reads so many channels; None where it is mapped directly, and for what is no layer."""
        op, fold = node.op.layer, self.folds.get(node.name)
        if op is None or fold is None:
            return None
        return Loops(channels_of(op, channels, stream_shape(self.graph, node.output)[0]), fold)

    def fields(self, node: Node, inputs: tuple[Stream, ...]) -> tuple[int, int]:
        """Channels of a beat that a node takes and leaves, 0 for whole pixels."""
        if node.op.layer is not None:
            loops = self.loops(node, inputs[0].channels)
            return (0, 0) if loops is None else (loops.input_width, loops.output_width)
        if node.op.moves or node.op.joins:  # whole pixels
            return 0, 0
        fewest = min(s.fields for s in inputs)
        if node.op.averages and not node.op.window:
            fewest = min(fewest, self.averaged(node, inputs[0]))
            if -(-inputs[0].channels // fewest) < LEAST_SUMMED:
                return 0, 0
        return fewest, fewest

    def averaged(self, node: Node, stream: Stream) -> int:
        """Channels at once with which an average keeps up with a folded layer that leaves more of them, but seldom."""
        before = self.graph.producer(node.inputs[0])
        if before is None or not (before.op.product and before.op.window):
            return stream.channels
        loops = self.loops(before, self.graph.shape(before.inputs[0])[1])
        return stream.channels if loops is None else max(LEAST_AVERAGED, -(-2 * stream.channels // loops.clocks))

    def padded(self, inputs: tuple[Stream, ...], raster: Raster) -> tuple[tuple[Stream, ...], Raster]:
        """Explicit padding where masks cannot express it."""
        if raster.masks_suffice:
            return inputs, raster
        (stream,), (top, left, _, _) = inputs, raster.window.pads
        padded, words = raster.padded, -(-stream.channels // stream.fields)
        index = np.arange(padded.beats * words).reshape(padded.height, padded.width, words)
        asks = index[top:top + raster.height, left:left + raster.width].reshape(-1)
        ready = self.run((stream,), EngineSchedule(index.size, asks, index.reshape(-1), 1))
        return (replace(stream, pixels=padded.beats, ready=ready),), padded

    def windowed(self, node: Node, raster: Raster, stream: Stream) -> EngineSchedule:
        """A convolution, fully connected layer or pool."""
        op, loops, taps = node.op.layer, self.loops(node, stream.channels), prod(raster.window.kernel)
        if op is not None and loops is None:
            stages = raster.stages + ceil(log2(stream.channels // op.groups * taps)) + ROUNDING_STAGES + ADDER_STAGES
            return EngineSchedule(raster.steps, np.arange(raster.beats), raster.output_steps(), stages)
        lanes = 0 if loops is None else LANE_STAGES + (loops.slices > 1)
        loops = loops or Loops(Channels(stream.channels, 1, 1), Fold(stream.fields, 1, 1))
        folded = FoldedRaster(raster, loops)
        lanes += soft_digits(weight_bits(self.graph, node)) - 1 if loops.soft else 0
        stages = folded.stages + lanes + ceil(log2(loops.fold.inputs * taps)) + ROUNDING_STAGES
        return EngineSchedule(folded.steps, folded.input_steps(), folded.output_steps(), stages)

    def fuse(self, block: Bottleneck) -> None:
        """An inverted residual that is one engine."""
        last = block.join or block.project
        first, middle = shape_of(self.graph, block.expand), shape_of(self.graph, block.depthwise)
        loops = Loops(first.channels, self.folds[block.expand.name])
        raster = Raster(middle.window, middle.height, middle.width)
        stream = self.in_words(self.streams[block.expand.inputs[0]], loops.input_width)
        words = -(-stream.channels // stream.fields)
        asks = np.arange(raster.beats, dtype=np.int64)[:, None] * loops.clocks + np.arange(words, dtype=np.int64)
        schedule = EngineSchedule(raster.steps * loops.clocks, asks.reshape(-1), (raster.output_steps() + 1) * loops.clocks - 1,
                                  STAGES)
        channels, height, width = stream_shape(self.graph, last.output)
        self.streams[last.output] = Stream(channels, channels, height * width, self.run((stream,), schedule))


def frame_passage(graph: Graph, folds: Mapping[str, Fold], fused: Collection[str] = (),
                  leaving: int | None = None) -> FramePassage:
    """One frame through the engines of a graph, alone, its first beat in clock 1.

    Nodes without a fold are mapped directly; `fused` are the depthwise nodes of inverted residuals that are one engine. Outputs
    leave as whole pixels, or in beats of `leaving` channels.
    """
    row = _Row(graph, folds)
    blocks = {(b.join or b.project).name: b for b in bottlenecks(graph) if b.depthwise.name in fused} if fused else {}
    inside = {n.name for b in blocks.values() for n in (*b.layers, b.join) if n is not None} - set(blocks)
    for node in graph.nodes:
        if node.name in blocks:
            row.fuse(blocks[node.name])
        elif node.op.still:
            row.streams[node.output] = row.streams[node.inputs[0]]
        elif node.name not in inside:
            row.add(node)
    outputs = [row.in_words(row.streams[t], leaving or row.streams[t].channels) for t in graph.outputs]
    return FramePassage(max(int(s.ready[-1]) for s in outputs), row.slowest, row.streams)


def _kept(inputs: tuple[Stream, ...]) -> tuple[Stream, ...]:
    """Streams of one join: the values of one pixel are there for all pixels of the others."""
    pixels = max(s.pixels for s in inputs)
    return tuple(replace(s, pixels=pixels, ready=np.tile(s.ready, pixels // s.pixels)) for s in inputs)


def _pointwise(node: Node, size: tuple[int, int], words: int) -> EngineSchedule:
    """An engine that takes a beat of every input and leaves one; an enlargement leaves several."""
    height, width = size
    order = np.arange(height * width * words, dtype=np.int64)
    stages = JOIN_STAGES + (0 if node.op.table or node.op.formula else ROUNDING_STAGES)  # entries are stored rounded
    rows, columns = node.op.repeats
    taken = order.reshape(height, width, words)[::rows, ::columns].reshape(-1)
    return EngineSchedule(len(order), taken, order, stages)


@lru_cache(maxsize=4096)
def _turns(channels: int, taken: int, left: int) -> tuple[Cycles, Cycles, int]:
    """Clocks of a pixel in which beats of `taken` channels are first needed, and words of `left` leave (fpga/engines/regroup)."""
    asks, leaves = [0], list[int]()
    beat = word = turn = 0
    while word * left < channels:
        known = min(channels, (beat + 1) * taken)
        emits = min(channels, (word + 1) * left) <= known
        after = word + emits
        takes = not (emits and after * left < channels and min(channels, (after + 1) * left) <= known)
        leaves += [turn] * emits
        asks += [turn + 1] * takes
        beat, word, turn = beat + takes, after, turn + 1
    return np.array(asks[:-1], dtype=np.int64), np.array(leaves, dtype=np.int64), turn
