"""Stages of a program: what runs as one on its device, a segment or boards joined by links; stored integers in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dovetail.fpga.links.bench import SystemRun
from dovetail.fpga.links.stored import Boards
from dovetail.fpga.toolchain.simulate import RUN_TIMEOUT_S, Simulation
from dovetail.ir import Array, Region, intersect, slices
from dovetail.numerics.reference import run_integer
from dovetail.schedule.program import Binding, Program, Segment

OnSimulated = Callable[[Simulation | SystemRun], None]
"""Hears of every simulation."""


class RunnablePart(Protocol):
    """A segment that can be run: stored integers in, stored integers out, any number of frames.

    Parts that take long tell `on_frame` how many frames are done.
    """

    @property
    def backend(self) -> str: ...
    @property
    def note(self) -> str: ...
    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]: ...


class Bound(Protocol):
    """What reads and writes regions of whole tensors: a segment or a stage."""

    @property
    def reads(self) -> tuple[Binding, ...]: ...
    @property
    def writes(self) -> tuple[Binding, ...]: ...


@dataclass(frozen=True, slots=True)
class Stage:
    """A segment, or all segments of boards that are joined by links, with the part that computes it."""

    name: str
    worker: str
    """Who runs it: a processor runs its stages one after another, hardware on an FPGA is there for its own stage alone."""
    devices: tuple[str, ...]
    segments: tuple[Segment, ...]
    part: RunnablePart
    reads: tuple[Binding, ...]
    writes: tuple[Binding, ...]
    pipelined: bool = False
    """Whether frames follow each other through it: those that wait go in together."""

    @property
    def device(self) -> str:
        return "+".join(self.devices)

    @property
    def joined(self) -> bool:
        """Whether it is boards with links between them."""
        return self.name != self.segments[0].name


@dataclass(frozen=True, slots=True)
class SystemPart:
    """Joined boards as a part: inputs and outputs are named by the numbers of the system's ports."""

    boards: Boards
    program: Program
    on_simulated: OnSimulated | None = None
    timeout_s: float = RUN_TIMEOUT_S
    """After which a simulation is ended."""

    @property
    def backend(self) -> str:
        return self.boards.backend

    @property
    def note(self) -> str:
        return self.boards.note

    @property
    def reads(self) -> tuple[Binding, ...]:
        return tuple(Binding(f"in{n}", p.tensor, p.region) for n, p in enumerate(self.boards.system.inputs)
                     if p.tensor not in self.boards.weights)

    @property
    def writes(self) -> tuple[Binding, ...]:
        return tuple(Binding(f"out{n}", p.tensor, p.region) for n, p in enumerate(self.boards.system.outputs))

    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]:
        tensors: dict[str, Array] = {}
        for binding in self.reads:
            place(inputs[binding.name], binding.tensor, binding.region, tensors, self.program)
        found = self.boards.run(tensors, on_frame=on_frame, timeout_s=self.timeout_s)
        if self.on_simulated is not None:
            self.on_simulated(found)
        return {f"out{n}": found.outputs[port] for n, port in enumerate(self.boards.system.outputs)}


def gather(bound: Bound, memory: Mapping[str, Array]) -> dict[str, Array]:
    """What a segment reads, cut out of whole tensors."""
    return {b.name: memory[b.tensor][(slice(None), *slices(b.region)[1:])] for b in bound.reads}


def scatter(bound: Bound, results: Mapping[str, Array], memory: dict[str, Array], program: Program) -> None:
    """Put what a segment wrote into the tensors it belongs to."""
    for binding in bound.writes:
        place(results[binding.name], binding.tensor, binding.region, memory, program)


def targets(bound: Bound, memory: dict[str, Array], frames: int, program: Program) -> list[Array]:
    """The regions of tensors that a segment writes, of so many frames; tensors are made where they are missing."""
    return [_region(b.tensor, b.region, memory, frames, program) for b in bound.writes]


def place(values: Array, name: str, region: Region, memory: dict[str, Array], program: Program) -> None:
    """Put values into a region of a tensor, which is made where it is missing."""
    target = _region(name, region, memory, len(values), program)
    target[...] = values.reshape(target.shape)


def _region(name: str, region: Region, memory: dict[str, Array], frames: int, program: Program) -> Array:
    tensor = program.tensors[name]
    if name not in memory:
        memory[name] = np.zeros((frames, *tensor.shape[1:]), dtype=tensor.dtype)
    return memory[name][(slice(None), *slices(region)[1:])]


def emulate(stage: Stage, inputs: Mapping[str, Array], program: Program) -> dict[str, Array]:
    """What a stage writes, by the integer reference on the CPU: the same integers that its device must give."""
    memory: dict[str, Array] = {}
    for binding in stage.reads:
        place(inputs[binding.name], binding.tensor, binding.region, memory, program)
    for segment in stage.segments:
        scatter(segment, run_integer(segment.graph, gather(segment, memory)), memory, program)
    return {b.name: memory[b.tensor][(slice(None), *slices(b.region)[1:])] for b in stage.writes}


def needs(stages: Sequence[Stage]) -> list[set[int]]:
    """For every stage, the positions of those whose results it reads."""
    return [{i for i, other in enumerate(stages) if other is not stage
             and any(w.tensor == r.tensor and intersect(w.region, r.region) for w in other.writes for r in stage.reads)}
            for stage in stages]
