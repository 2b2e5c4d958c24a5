"""What a block of reusable engines costs: clocks, bytes from memory, resources.

Clocks come from playing the layer program (cost/reusable_jobs.py) job by job, as the hardware runs it: a job starts when its
engine is free, what it needs is written and its weights have arrived; weights arrive one job after the other, each as soon as
there is room for it. Nothing here looks at weights, so that an optimiser may ask thousands of times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log2

from dovetail.cost.reusable_area import block_resources
from dovetail.cost.reusable_jobs import ARRAY, ARRAY_SLOTS, DEPTHWISE, DEPTHWISE_SLOTS, Program, fifo_depth, program_of
from dovetail.cost.reusable_layers import Config, Layers, layers_of, reason_refused
from dovetail.ir import Graph
from dovetail.platform.device import Device

__all__ = ["BlockCost", "Config", "LayerCost", "block_cost", "program_cost", "reason_refused"]

START_CLOCKS = 3
"""Clocks from the end of what a job waits for (a word written, a frame loaded) to its first work."""
FILLED_CLOCKS = 2
"""Clocks from the last beat of a job's weights to its first work."""
ROOM_CLOCKS = 2
"""Clocks from the end of a job to the first beat of the one that takes its place in the weight memory."""
NEXT_FILL_CLOCKS = 1
"""Clocks between the beats of two jobs."""
FRAME_CLOCKS = 1
"""Clocks that the first jobs of a frame wait longer for the last ones of the frame before."""
ARRAY_STAGES = 7
"""Clock edges from the last work of a job to its last word in memory, beside tree, words and finishing; depthwise two more."""
FINISH_STAGES = 6
"""Clock edges that finish a sum, without an addition behind it."""
ADD_STAGES = 5
FIRST_BEAT_CLOCKS = 5
"""Clocks from reset to the first beat of weights in their memory, without the memory's latency."""
LEAVE_CLOCKS = 4
"""Clocks from a frame's last word in the output buffer to the first beat that leaves."""
FRAMES = 3


@dataclass(frozen=True, slots=True)
class LayerCost:
    """A layer's part in a frame: clocks in which its engine works, clocks in which its weights arrive, bytes from memory."""

    node: str
    engine: str
    compute_clocks: int
    transfer_clocks: int
    bytes: int
    macs: int


@dataclass(frozen=True, slots=True)
class BlockCost:
    """A block's costs for a frame."""

    latency_clocks: int
    """Clocks from the first input beat, weights of the first job waiting, to the last output beat, of a frame alone."""
    interval_clocks: int
    """Clocks between frames that follow each other."""
    load_clocks: int
    """Beats of the input stream; a slower source adds what it is slower."""
    offchip_bytes: int
    """Bytes read from memory per frame."""
    resources: tuple[tuple[str, float], ...]
    layers: tuple[LayerCost, ...]
    buffer_bits: int
    """Bits of the memories that hold maps."""
    macs: int

    @property
    def utilisation(self) -> float:
        """Multiplications done per multiplier and clock in steady state."""
        return self.macs / (dict(self.resources)["dsp"] * self.interval_clocks)


def block_cost(graph: Graph, nodes: Sequence[str], config: Config, device: Device) -> BlockCost:
    """Costs of the block that these nodes are; raises UnsupportedError where they are none (`reason_refused`)."""
    return program_cost(_program(graph, tuple(nodes), config), device)


@lru_cache(maxsize=64)
def _layers(graph: Graph, nodes: tuple[str, ...]) -> Layers:
    return layers_of(graph, nodes)


@lru_cache(maxsize=256)
def _program(graph: Graph, nodes: tuple[str, ...], config: Config) -> Program:
    return program_of(_layers(graph, nodes), config)


def program_cost(program: Program, device: Device) -> BlockCost:
    """Costs of a layer program."""
    layers, config = program.layers, program.config
    entry, last = layers.maps[layers.entry], layers.maps[layers.exit]
    load, leave = (m.pixels * config.words(m.channels) for m in (entry, last))
    ends = frame_ends(program)
    beats = image_beats(program)
    resources = block_resources(program, device.model)
    bits = sum(depth * width for depth, width in zip(program.depths, program.widths, strict=True))
    return BlockCost(ends[0] + leave + LEAVE_CLOCKS, max(ends[-1] - ends[-2], load), load, beats * config.port_bytes, resources,
                     _layer_costs(program), bits, sum(x.macs for x in layers.layers))


def image_beats(program: Program) -> int:
    """Beats of a frame's weights."""
    return sum(job.beats for job in program.jobs)


def _layer_costs(program: Program) -> tuple[LayerCost, ...]:
    found = []
    config = program.config
    for number, layer in enumerate(program.layers.layers):
        own = [job for job in program.jobs if job.layer == number]
        beats = sum(job.beats for job in own)
        found.append(LayerCost(layer.node, ("array", "depthwise")[own[0].engine], sum(job.clocks for job in own),
                               ceil(beats * config.port_bytes / config.bandwidth_bytes), beats * config.port_bytes, layer.macs))
    return tuple(found)


def stages_of(program: Program) -> tuple[int, int]:
    """Clock edges from the last issued work of a job to its word in memory, of either engine."""
    config, shared = program.config, program.config.monolithic and program.phases > 0
    adds = ADD_STAGES * any(x.add is not None for x in program.layers.layers)
    array = ARRAY_STAGES + config.tree_levels + FINISH_STAGES + adds
    products = config.inputs if shared else config.taps
    return array + shared, ARRAY_STAGES + 2 + ceil(log2(products)) + FINISH_STAGES + shared


def frame_ends(program: Program) -> list[int]:
    """Clocks at which the outputs of some frames are complete, when frames arrive without gaps."""
    play = _Play(program)
    return [play.frame(number) for number in range(FRAMES)]


class _Play:
    """The clocks at which everything happens, frame after frame."""

    def __init__(self, program: Program) -> None:
        config = program.config
        self.program, stages = program, stages_of(program)
        self.rows = [(job.engine, job.needs, job.weight_beats + job.constant_beats, job.clocks,
                      job.tail + stages[job.engine] + (job.words if job.engine == ARRAY else 0), job.needs_input,
                      job.needs_output, job.releases_input, job.finishes) for job in program.jobs]
        self.beats_per_clock = config.bandwidth_bytes / config.port_bytes
        self.fifo = fifo_depth(config)
        self.slots = (ARRAY_SLOTS, DEPTHWISE_SLOTS)
        self.free = [0, 0]
        self.done: list[list[int]] = [[], []]
        self.filled_at, self.ahead = float(FIRST_BEAT_CLOCKS + config.latency_clocks), 0.0
        entry, last = (program.layers.maps[t] for t in (program.layers.entry, program.layers.exit))
        self.load, self.leave = (m.pixels * config.words(m.channels) for m in (entry, last))
        self.begins = self.loaded = self.left = 0
        self.released: list[int] = []

    def frame(self, number: int) -> int:
        """Clock at which the last word of the frame's output is written."""
        buffers = self.program.config.input_buffers
        begins = max(self.loaded, self.released[number - buffers] if number >= buffers else 0)
        self.loaded = begins + self.load
        end, free, done = 0, self.free, self.done
        array_base, depthwise_base = len(done[ARRAY]), len(done[DEPTHWISE])
        for engine, (array, depthwise), beats, clocks, after, reads, writes, releases, finishes in self.rows:
            waits = self.begins
            if array:
                waits = max(waits, done[ARRAY][array_base + array - 1])
            if depthwise:
                waits = max(waits, done[DEPTHWISE][depthwise_base + depthwise - 1])
            if reads:
                waits = max(waits, self.loaded)
            if writes:
                waits = max(waits, self.left)
            issued = max(free[engine], self._fill(beats, done[engine], self.slots[engine]) + FILLED_CLOCKS,
                         waits + START_CLOCKS) + clocks
            free[engine] = issued
            done[engine].append(issued + after)
            if releases:
                self.released.append(issued + after)
            if finishes:
                end = issued + after
        self.begins = max(times[-1] for times in done if times) + FRAME_CLOCKS
        self.left = end + self.leave
        return end

    def _fill(self, beats: int, earlier: list[int], slots: int) -> int:
        """Clock at which a job's weights are there: beats wait in the FIFO while there is no room for them."""
        start = self.filled_at + NEXT_FILL_CLOCKS
        if len(earlier) >= slots:
            start = max(start, earlier[-slots] + ROOM_CLOCKS)
        rate, most = self.beats_per_clock, self.fifo
        ahead = min(self.ahead + (start - self.filled_at) * rate, most)
        self.filled_at = start + max(beats, (beats - ahead) / rate)
        self.ahead = max(0.0, min(ahead + (self.filled_at - start) * rate - beats, most))
        return ceil(self.filled_at)
