"""Run a build over its devices: stored integers from segment to segment, float frames in and out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from dovetail.errors import RangeWarning, UsageError
from dovetail.fpga.links.stored import Boards
from dovetail.fpga.links.system import in_turn
from dovetail.ir import Array, Graph, Region, slices
from dovetail.numerics.calibration import clipped_notes, frames_for
from dovetail.numerics.fixed import dequantize, quantize
from dovetail.platform.device import Platform
from dovetail.progress import Progress
from dovetail.schedule.program import Program, Segment


class RunnablePart(Protocol):
    """A segment that can be run: stored integers in, stored integers out, any number of frames.

    Parts that take long tell `on_frame` how many frames are done.
    """

    @property
    def backend(self) -> str: ...
    @property
    def note(self) -> str: ...
    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]: ...


class LoadedBuild(Protocol):
    """What running needs of a build."""

    @property
    def graph(self) -> Graph: ...
    @property
    def program(self) -> Program: ...
    @property
    def platform(self) -> Platform: ...
    def part(self, segment: Segment) -> RunnablePart: ...
    def systems(self) -> dict[str, Boards]: ...


def gather(segment: Segment, memory: Mapping[str, Array]) -> dict[str, Array]:
    """What a segment reads, cut out of whole tensors."""
    return {b.name: memory[b.tensor][(slice(None), *slices(b.region)[1:])] for b in segment.reads}


def scatter(segment: Segment, results: Mapping[str, Array], memory: dict[str, Array], program: Program) -> None:
    """Put what a segment wrote into the tensors it belongs to."""
    for binding in segment.writes:
        _place(results[binding.name], binding.tensor, binding.region, memory, program)


def _place(values: Array, name: str, region: Region, memory: dict[str, Array], program: Program) -> None:
    """Put values into a region of a tensor, which is made where it is missing."""
    tensor = program.tensors[name]
    if name not in memory:
        memory[name] = np.zeros((len(values), *tensor.shape[1:]), dtype=tensor.dtype)
    place = memory[name][(slice(None), *slices(region)[1:])]
    place[...] = values.reshape(place.shape)


def run_stored(build: LoadedBuild, inputs: Mapping[str, Array], progress: Progress | None = None) -> dict[str, Array]:
    """Run stored integers through every segment on its device; outputs as stored integers."""
    memory: dict[str, Array] = dict(inputs)
    frames = len(next(iter(inputs.values())))
    systems = {s.name: boards for boards in build.systems().values() if not boards.emulated for s in boards.segments}
    for segment in in_turn(build.program, build.platform) if systems else build.program.segments:
        if segment.name in systems:
            boards = systems[segment.name]
            if segment is boards.segments[0]:
                found = boards.run(memory, on_frame=watch(progress, boards.system.name, boards, frames))
                for port, values in found.outputs.items():
                    _place(values, port.tensor, port.region, memory, build.program)
            continue
        part = build.part(segment)
        scatter(segment, part.run(gather(segment, memory), watch(progress, segment.name, part, frames)), memory, build.program)
    return {name: memory[name] for name in build.graph.outputs}


def watch(progress: Progress | None, name: str, part: RunnablePart | Boards, frames: int) -> Callable[[int], None] | None:
    """Announce a segment or a system, and pass its finished frames on to whoever watches."""
    if progress is None:
        return None
    stage = f"{name} ({part.backend})"
    progress(stage, 0, frames)
    return lambda done: progress(stage, done, frames)


def store(graph: Graph, inputs: Mapping[str, Array], where: str) -> dict[str, Array]:
    """Float inputs to the integers the graph's input schemes store; inputs that stay floats only change type."""
    stored = {}
    for name in graph.inputs:
        if name not in inputs:
            raise UsageError(f"{where}: no values for input {name}; inputs are {', '.join(graph.inputs)}")
        tensor = graph.tensors[name]
        frames = frames_for(np.asarray(inputs[name]), graph, name, where)
        stored[name] = frames.astype(tensor.dtype) if tensor.scheme is None \
            else quantize(frames.astype(np.float64), tensor.scheme).astype(tensor.dtype)
    return stored


def run(build: LoadedBuild, inputs: Mapping[str, Array], progress: Progress | None = None) -> dict[str, Array]:
    """Float frames in, float results out, computed by the plan's devices.

    Warns (RangeWarning) of frames that the integers of the inputs do not reach.
    """
    stored = store(build.graph, inputs, "run")
    for note in clipped_notes(build.graph, inputs, "run"):
        warnings.warn(note, RangeWarning, stacklevel=2)
    results = run_stored(build, stored, progress)
    found = {}
    for name, x in results.items():
        scheme = build.graph.tensors[name].scheme
        found[name] = x if scheme is None else dequantize(x.astype(np.float64), scheme).astype(np.float32)
    return found
