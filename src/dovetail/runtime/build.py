"""A build folder: everything a plan needs to run, written once, loaded anywhere, and run over its devices.

Stored integers go from segment to segment; float frames come in and go out.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from operator import length_hint
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.cpu import executor as cpu_executor
from dovetail.document import INCOMPLETE, NATURAL, Anything, Each, Maybe, Shape, read_document
from dovetail.errors import BuildError, RangeWarning, UsageError
from dovetail.fpga import part as fpga_part
from dovetail.fpga.links.stored import Boards, is_stored, load_system
from dovetail.fpga.links.system import in_turn, systems_of
from dovetail.gpu import part as gpu_part
from dovetail.ir import Array, Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.calibration import clipped_notes, frames_for, load_arrays
from dovetail.numerics.fixed import dequantize, quantize
from dovetail.numerics.ranges import Range, stored_ranges
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.plan import Plan
from dovetail.partition.plan_json import plan_from_json
from dovetail.partition.problem import Problem
from dovetail.partition.work import check_split
from dovetail.platform.device import Kind, Platform
from dovetail.platform.load import platform_from_dict
from dovetail.progress import Progress, silent
from dovetail.runtime.generate import HARDWARE, Hardware, hardware_from_json
from dovetail.runtime.record import RunRecord, Span, bytes_of
from dovetail.runtime.stages import OnSimulated, RunnablePart, Stage, SystemPart, gather, scatter
from dovetail.runtime.stream import FrameStream
from dovetail.runtime.transports.board import BoardPart, BoardPlace
from dovetail.runtime.trust import check_origin, check_plain, check_trusted
from dovetail.runtime.workers import IN_FLIGHT, StreamOptions
from dovetail.schedule.program import Program, Segment, lower

SCHEMA = 1
SAMPLES = "samples.npz"
Frames = Array | Mapping[str, Array]
"""One input or output as an array, several by their names."""


@dataclass(frozen=True, slots=True)
class Build:
    """A loaded build folder."""

    folder: Path
    manifest: Mapping[str, Any]
    graph: Graph
    plan: Plan
    platform: Platform
    program: Program
    partials: Mapping[str, Range]
    """Ranges of the partial sums that travel between parts."""
    boards: Mapping[str, BoardPlace] = field(default_factory=dict)
    """Where the real boards of devices are; FPGAs without one are simulated."""

    def part(self, segment: Segment, on_simulated: OnSimulated | None = None) -> RunnablePart:
        """The runnable form of a segment, from its files; simulated parts report each run to `on_simulated`."""
        kind = self.platform.device(segment.device).kind
        if segment.device in self.boards:
            place = self.boards[segment.device]
            return BoardPart(segment.graph, self.folder / "fpga", place, int(place.option("retries")))
        if kind is Kind.FPGA:
            return fpga_part.load_part(segment.graph, self.folder / "fpga", on_simulated)
        if kind is Kind.GPU:
            return gpu_part.load_part(segment.graph, self.folder / "gpu", self.partials)
        return cpu_executor.load_part(segment.graph, self.folder / "cpu", self.partials)

    def systems(self) -> dict[str, Boards]:
        """Boards that are joined by links, by the name of their system."""
        folder = self.folder / "fpga"
        return {name: Boards(load_system(name, folder), segments, {
            port: beats for s in segments
            for port, beats in fpga_part.loaded_sets(s.graph, fpga_part.load_design(folder / s.graph.name)).items()})
            for name, segments in systems_of(self.program, self.platform).items() if is_stored(name, folder)}

    def stages(self, record: RunRecord | None = None, parts: Mapping[str, RunnablePart] | None = None) -> list[Stage]:
        """What runs as one, in an order that respects every dependency; simulations are told to `record`.

        `parts` replace those of the build, by the names of their segments: a real board, for example.
        """
        listener = (lambda name: None) if record is None else record.listener
        systems = {s.name: boards for boards in self.systems().values() if not boards.emulated for s in boards.segments}
        found: dict[str, Stage] = {}
        for segment in in_turn(self.program, self.platform) if systems else self.program.segments:
            boards = systems.get(segment.name)
            if boards is not None:
                name = boards.system.name
                joined = SystemPart(boards, self.program, listener(name))
                found.setdefault(name, Stage(name, name, boards.system.devices, boards.segments, joined, joined.reads,
                                             joined.writes, True))
                continue
            hardware = self.platform.device(segment.device).kind is Kind.FPGA
            part = (parts or {}).get(segment.name) or self.part(segment, listener(segment.name))
            found[segment.name] = Stage(segment.name, segment.name if hardware else segment.device, (segment.device,), (segment,),
                                        part, segment.reads, segment.writes, hardware)
        return list(found.values())

    def run(self, inputs: Frames) -> Frames:
        """Inference over the plan's devices: float frames in, results out; one array each way for one input and output."""
        return _like(inputs, run(self, self._named(inputs)))

    @property
    def in_flight(self) -> int:
        """Frames that a stream has under way unless told otherwise: as many as the plan's latency has intervals, and two."""
        apart_s = self.plan.interval_s
        return IN_FLIGHT if apart_s <= 0 else max(IN_FLIGHT, ceil(self.plan.latency_s / apart_s) + 2)

    def stream(self, frames: Iterable[Frames], in_flight: int | None = None, options: StreamOptions | None = None,
               record: RunRecord | None = None, parts: Mapping[str, RunnablePart] | None = None) -> Iterator[Frames]:
        """As `run` for every item of `frames`, in order, on all devices at the same time with `in_flight` items under way.

        `options` say more, and then hold `in_flight` too; `record` hears what happens when. `parts` as of `stages`.
        """
        kinds: deque[Frames] = deque()
        options = options or StreamOptions(self.in_flight if in_flight is None else in_flight,
                                           frames=length_hint(frames) or None)
        with self.open_stream(options, record, parts) as stream:
            for results in stream.results(self._stored(item, kinds) for item in frames):
                yield _like(kinds.popleft(), real_results(self.graph, results))

    async def stream_async(self, frames: AsyncIterable[Frames], in_flight: int | None = None,
                           options: StreamOptions | None = None, record: RunRecord | None = None,
                           parts: Mapping[str, RunnablePart] | None = None) -> AsyncIterator[Frames]:
        """As `stream`, for frames that come one by one; results do not wait for later frames."""
        kinds: deque[Frames] = deque()
        options = options or StreamOptions(self.in_flight if in_flight is None else in_flight)
        with self.open_stream(options, record, parts) as stream:
            stored = (self._stored(item, kinds) async for item in frames)
            async for results in stream.results_async(stored):
                yield _like(kinds.popleft(), real_results(self.graph, results))

    def open_stream(self, options: StreamOptions, record: RunRecord | None = None,
                    parts: Mapping[str, RunnablePart] | None = None) -> FrameStream:
        """Workers for all stages, which take stored integers until the stream is closed."""
        record = record or RunRecord()
        return FrameStream(self.stages(record, parts), self.program, record, options)

    def _named(self, inputs: Frames) -> Mapping[str, Array]:
        return inputs if isinstance(inputs, Mapping) else {self.graph.inputs[0]: np.asarray(inputs)}

    def _stored(self, inputs: Frames, kinds: deque[Frames]) -> dict[str, Array]:
        """Stored integers of an item; `kinds` remembers whether it came by names."""
        kinds.append(inputs)
        return stored_inputs(self, self._named(inputs))

    def samples(self) -> dict[str, Array]:
        """The stored calibration inputs, as the integers the devices see."""
        path = self.folder / SAMPLES
        arrays = load_arrays(path) if path.is_file() else {}
        for name in self.graph.inputs:
            if name not in arrays:
                raise BuildError(f"{path}: no samples of input {name}; {INCOMPLETE}")
        return {name: arrays[name] for name in self.graph.inputs}


def partial_ranges(program: Program) -> dict[str, Range]:
    """Ranges of the partial sums that travel between parts, from the weights that make them."""
    found: dict[str, Range] = {}
    for segment in program.segments:
        ranges = stored_ranges(segment.graph)
        found |= {b.name: ranges[b.name] for b in segment.writes if b.tensor not in program.graph.tensors}
    return found


def read_json(path: Path, remedy: str = INCOMPLETE, shape: Shape | None = None) -> dict[str, Any]:
    """A JSON object of a build, with its schema checked, and its shape; `remedy` is what a user does about a bad one."""
    return read_document(path, SCHEMA, remedy, shape)


MANIFEST = {"platform": Each(Anything()), "versions": Each(str), "warnings": [str], "model": {"file": str, "sha256": str},
            "quantization": {"calibration": str, "samples": NATURAL}, "hardware?": HARDWARE}
"""What a manifest holds that builds are read by; `hardware` is missing in those of earlier versions."""
VERIFICATION = {"equal": bool, "frames": NATURAL, "tensors_compared": NATURAL, "elements_compared": NATURAL,
                "first_mismatch": Maybe({"text": str}), "segments": [{"name": str, "backend": str}],
                "high_water": Each(Each(NATURAL)), "cycles": Each(Each(NATURAL)), "speed?": Each(Each(float)),
                "clocks?": Each({"planned": {"one_frame": float, "interval": float}, "error": float, "source": str,
                                 "simulated": {"one_frame": NATURAL, "interval": Maybe(NATURAL)}, "within": bool,
                                 "holds": {"one_frame": bool, "interval": bool}})}
"""What a build remembers of commands on it: `verification.json`."""
SYNTHESIS = {"results": [{"device": str, "segment": str, "family": str, "tool": str, "resources": Each(float), "notes": [str],
                          "fmax_hz?": Maybe(float), "wall_s?": Maybe(float), "routes?": [{"fmax_hz": float}]}]}
"""`synthesis.json`."""
COUNTED_POWER = {"results": [{"segment": str, "toggles_per_clock": float, "activity": float, "planned_activity": float,
                      "energy_low_j": float, "energy_high_j": float, "planned_energy_j": float, "source": str}]}
"""`power.json`."""


def load_build(folder: str | Path, trust: bool = False, progress: Progress = silent) -> Build:
    """Load a build folder; the program is lowered again from the stored model and plan, its generated files are checked.

    `trust` takes generated files as they are, without a check of where they come from (`runtime.trust`).
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BuildError(f"{folder}: no such build folder; make one with `dovetail compile MODEL -p BOARD -o {folder}`")
    check_plain(folder)
    manifest = read_json(folder / "manifest.json", shape=MANIFEST)
    document = read_json(folder / "plan.json")
    if not (folder / "model.onnx").is_file():
        raise BuildError(f"{folder / 'model.onnx'}: missing; {INCOMPLETE}")
    graph = read_onnx(folder / "model.onnx").graph
    platform = platform_from_dict(manifest["platform"])
    plan = plan_from_json(document, str(folder / "plan.json"))
    program = _lowered(folder, graph, plan, platform)
    if trust:
        check_trusted(folder)
    else:
        hardware = hardware_from_json(manifest["hardware"]) if "hardware" in manifest else Hardware()
        check_origin(folder, program, platform, hardware, progress)
    return Build(folder, manifest, graph, plan, platform, program, partial_ranges(program))


def _lowered(folder: Path, graph: Graph, plan: Plan, platform: Platform) -> Program:
    """The program of a plan that is legal for the graph and the board."""
    missing = {n.name for n in graph.nodes} ^ set(plan.assignment)
    if missing:
        raise BuildError(f"{folder}: plan.json and model.onnx disagree about node {sorted(missing)[0]}; build again")
    problem = Problem(graph, platform, DeviceCosts())
    for node in graph.nodes:
        check_split(problem, node, plan.assignment[node.name])
    return lower(graph, plan.assignment)


def synthetic_integers(graph: Graph, count: int, seed: int) -> dict[str, Array]:
    """Seeded inputs over the whole range of every input's scheme."""
    rng = np.random.default_rng(seed)
    values = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        shape = (count, *tensor.shape[1:])
        if tensor.scheme is None:
            values[name] = rng.random(shape).astype(tensor.dtype)
            continue
        values[name] = rng.integers(tensor.scheme.lo, tensor.scheme.hi + 1, shape).astype(tensor.dtype)
    return values


def run_stored(build: Build, inputs: Mapping[str, Array], progress: Progress | None = None,
               record: RunRecord | None = None) -> dict[str, Array]:
    """Run stored integers through every stage on its device, one after another; outputs as stored integers."""
    memory: dict[str, Array] = dict(inputs)
    frames, record = len(next(iter(inputs.values()))), record or RunRecord()
    for stage in build.stages(record):
        began = record.now()
        results = stage.part.run(gather(stage, memory), watch(progress, stage.name, stage.part, frames))
        record.spans.append(Span(stage.name, stage.device, "compute", 0, frames, began, record.now(), bytes_of(results),
                                 stage.part.backend))
        scatter(stage, results, memory, build.program)
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


def stored_inputs(build: Build, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Float frames as the integers that devices see.

    Warns (RangeWarning) of frames that the integers of the inputs do not reach.
    """
    stored = store(build.graph, inputs, "run")
    for note in clipped_notes(build.graph, inputs, "run"):
        warnings.warn(note, RangeWarning, stacklevel=3)
    return stored


def real_results(graph: Graph, results: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs as floats, from stored integers."""
    schemes = {name: graph.tensors[name].scheme for name in results}
    return {name: x if (scheme := schemes[name]) is None else dequantize(x.astype(np.float64), scheme).astype(np.float32)
            for name, x in results.items()}


def run(build: Build, inputs: Mapping[str, Array], progress: Progress | None = None,
        record: RunRecord | None = None) -> dict[str, Array]:
    """Float frames in, float results out, computed by the plan's devices; warns as `stored_inputs` does.

    Raises:
        UsageError: frames do not fit the network.
        ToolError: a simulator is missing or failed.
    """
    return real_results(build.graph, run_stored(build, stored_inputs(build, inputs), progress, record))


def _like(inputs: Frames, results: dict[str, Array]) -> Frames:
    """Results by name where the inputs came so, or where there are several."""
    return results if isinstance(inputs, Mapping) or len(results) > 1 else next(iter(results.values()))
