"""What a block of reusable engines costs: clocks, bytes from memory, resources.

Clocks come from playing the layer program (hardware/arrays/jobs.py) job by job, as the hardware runs it: a job starts when its
engine is free, what it needs is written and its weights have arrived; weights arrive one job after the other, each as soon as
there is room for it. Nothing here looks at weights, so that an optimiser may ask thousands of times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from dovetail.cost.array_area import block_resources, multipliers_of, outline_of
from dovetail.hardware.arrays.jobs import ArrayProgram, Bank, TransferKind
from dovetail.hardware.arrays.layers import ArrayLayers, Config, layers_of
from dovetail.hardware.arrays.program import divides, program_of
from dovetail.hardware.arrays.refusals import reason_refused
from dovetail.hardware.arrays.timeline import Play, Striped
from dovetail.ir import Graph
from dovetail.platform.device import Device

__all__ = ["BlockCost", "Config", "block_area", "block_cost", "block_interval", "block_latency", "block_multipliers",
           "block_steps", "joined_latency", "needs_limit", "program_cost", "reason_refused"]

LEAVE_CLOCKS = 4
"""Clocks from a frame's last word in the output buffer to the first beat that leaves."""
FRAMES = 3


@dataclass(frozen=True, slots=True)
class BlockCost:
    """A block's costs for a frame."""

    latency_clocks: int
    """Clocks from the first input beat, weights of the first job waiting, to the last output beat, of a frame alone."""
    interval_clocks: int
    """Clocks between frames that follow each other."""
    offchip_bytes: int
    """Bytes read from memory and written to it per frame."""
    map_bytes: int
    """Those of them that are maps."""
    resources: tuple[tuple[str, float], ...]
    layer_clocks: Mapping[str, int]
    """By node: its engine at work or its weights on their way, whichever takes longer."""
    buffer_bits: int
    """Bits of the memories that hold maps."""
    macs: int
    multipliers: int
    """All of them, in blocks and in logic."""
    steps: int
    """Jobs and transfers of a frame, which say how long it takes to price it."""

    @property
    def utilisation(self) -> float:
        """Multiplications done per multiplier and clock in steady state: 1 where every multiplier works all the time."""
        return self.macs / (self.multipliers * self.interval_clocks)


def block_cost(graph: Graph, nodes: Sequence[str], config: Config, device: Device) -> BlockCost:
    """Costs of the block that these nodes are; raises UnsupportedError where they are none (`reason_refused`)."""
    return program_cost(_program(graph, tuple(nodes), config), device)


def block_latency(graph: Graph, nodes: Sequence[str], config: Config) -> int:
    """Clocks of one frame, as `block_cost` has them, without all that asks for more."""
    return joined_latency(graph, nodes, config, 0)


def block_figures(graph: Graph, nodes: Sequence[str], config: Config, device: Device,
                  alone: bool) -> tuple[dict[str, float], int, int]:
    """Resources, clocks of one frame `alone` or between frames, jobs and transfers: as `block_cost` has them, at less work."""
    program = _program(graph, tuple(nodes), config)
    clocks = _player(program).frame(0) + _leaving(program) + LEAVE_CLOCKS if alone else program_interval(program)
    return dict(block_resources(program, device.model)), clocks, program_steps(program)


def block_area(graph: Graph, nodes: Sequence[str], config: Config, device: Device) -> tuple[dict[str, float], int]:
    """Resources of the block that these nodes are and bytes it moves per frame, as `block_cost` has them, without playing it."""
    program = _program(graph, tuple(nodes), config)
    return dict(block_resources(program, device.model)), sum(program.moved_bytes(kind) for kind in TransferKind)


def block_multipliers(graph: Graph, nodes: Sequence[str], config: Config) -> int:
    """Multipliers of the block that these nodes are, as `block_cost` has them."""
    return multipliers_of(outline_of(_program(graph, tuple(nodes), config)))


def joined_latency(graph: Graph, nodes: Sequence[str], config: Config, arrives: int) -> int:
    """Clocks of one frame whose last input beat arrives in a clock; 0 stands for input that comes without gaps.

    Weights come meanwhile, and every job that reads the input waits for all of it.
    """
    program = _program(graph, tuple(nodes), config)
    play = _player(program)
    play.loaded = max(0, arrives - play.load)
    return play.frame(0) + _leaving(program) + LEAVE_CLOCKS


def block_interval(graph: Graph, nodes: Sequence[str], config: Config) -> int:
    """Clocks between frames that follow each other."""
    return program_interval(_program(graph, tuple(nodes), config))


def program_interval(program: ArrayProgram) -> int:
    """Clocks between frames that follow each other."""
    return _between(program, frame_ends(program))


def _between(program: ArrayProgram, ends: Sequence[int]) -> int:
    """The same where it is known when the outputs of some frames are complete."""
    entry = program.layers.maps[program.layers.entry]
    return max(ends[-1] - ends[-2], entry.pixels * program.config.words(entry.channels))


def block_steps(graph: Graph, nodes: Sequence[str], config: Config) -> int:
    """Jobs and transfers that are played for a price of the block, which says how long that takes."""
    return program_steps(_program(graph, tuple(nodes), config))


def program_steps(program: ArrayProgram) -> int:
    """Jobs and transfers of a frame."""
    return len(program.jobs) + len(program.transfers)


def needs_limit(graph: Graph, nodes: Sequence[str], config: Config) -> bool:
    """Whether a configuration's limit on memories changes anything for these nodes, or there is none."""
    return not config.map_bytes or divides(_layers(graph, tuple(nodes), config.counts), config)


@lru_cache(maxsize=64)
def _layers(graph: Graph, nodes: tuple[str, ...], counts: bool) -> ArrayLayers:
    return layers_of(graph, nodes, counts)


def _program(graph: Graph, nodes: tuple[str, ...], config: Config) -> ArrayProgram:
    """The layer program, made once for all arrays that differ only in how products are made and in frames of the input."""
    plain = replace(config, packed=False, soft=0, input_buffers=1)
    found = _plain_program(graph, nodes, plain)
    depths = tuple(d * config.input_buffers if bank == Bank.INPUT else d for bank, d in enumerate(found.depths))
    return replace(found, config=config, depths=depths)


@lru_cache(maxsize=64)
def _plain_program(graph: Graph, nodes: tuple[str, ...], config: Config) -> ArrayProgram:
    return program_of(_layers(graph, nodes, config.counts), config)


def program_cost(program: ArrayProgram, device: Device) -> BlockCost:
    """Costs of a layer program."""
    ends = frame_ends(program)
    weights, loaded, stored = (program.moved_bytes(kind) for kind in TransferKind)
    maps = loaded + stored
    resources = block_resources(program, device.model)
    bits = sum(depth * width for depth, width in zip(program.depths, program.widths, strict=True))
    return BlockCost(ends[0] + _leaving(program) + LEAVE_CLOCKS, _between(program, ends), weights + maps, maps, resources,
                     _layer_clocks(program), bits, sum(x.macs for x in program.layers.layers),
                     multipliers_of(outline_of(program)), program_steps(program))


def _layer_clocks(program: ArrayProgram) -> dict[str, int]:
    config, work, beats = program.config, Counter[int](), Counter[int]()
    for job in program.jobs:
        work[job.layer] += job.clocks
        beats[job.layer] += job.beats
    return {layer.node: max(work[n], ceil(beats[n] * config.port_bytes / config.bandwidth_bytes))
            for n, layer in enumerate(program.layers.layers)}


def frame_ends(program: ArrayProgram) -> list[int]:
    """Clocks at which the outputs of some frames are complete, when frames arrive without gaps."""
    play = _player(program)
    return [play.frame(number) for number in range(FRAMES)]


def _player(program: ArrayProgram) -> Play:
    return Striped(program) if program.transfers else Play(program)


def _leaving(program: ArrayProgram) -> int:
    """Beats of the output stream."""
    last = program.layers.maps[program.layers.exit]
    return last.pixels * program.config.words(last.channels)
