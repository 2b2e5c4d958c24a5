"""Hold every tensor of a build that crosses a device boundary against the reference, and simulated clocks against the plan's."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dovetail.cost.clocks import FEWEST_CLOCKS, ClockEstimate
from dovetail.errors import MismatchError, UsageError
from dovetail.fpga.links.bench import SystemRun
from dovetail.fpga.links.stored import Boards
from dovetail.fpga.locate import wrong_engine
from dovetail.fpga.packing import first_wrong
from dovetail.fpga.part import FpgaPart
from dovetail.fpga.toolchain.simulate import Simulation
from dovetail.fpga.toolchain.tools import find_icarus
from dovetail.fpga.toolchain.verilate import QUICK_CYCLES, cycles_of
from dovetail.ir import Array, slices
from dovetail.numerics.reference import run_integer
from dovetail.progress import Progress
from dovetail.runtime.build import Build, synthetic_integers, watch
from dovetail.runtime.stages import RunnablePart, gather, scatter
from dovetail.schedule.program import Program, Segment
from dovetail.words import counted

DEFAULT_FRAMES = 64
"""Frames `verify` runs unless told otherwise, or simulation is slow."""
FEWEST_FRAMES = 2
"""Frames `verify` chooses at the least: the second one follows the first through hardware that is not empty."""
SIMULATED_S = 60.0
"""What simulating the frames that `verify` chooses may take, if that is more than the fewest. Chosen, not measured."""
STALLED_FRAMES = 4
"""Frames `verify` repeats under random stalls on every simulated part."""
ICARUS_FRAMES = 2
"""Frames `verify` repeats in Icarus, which takes some hundred times as long as Verilator."""
JOINED_FRAMES = 16
"""Frames `verify` sends through boards that are joined by links, at most."""
CLOCKS = {"one_frame": "one frame", "interval": "between frames"}
"""Clocks that are compared, in words."""
SETTLED_FRAMES = 4
"""Frames after which two follow each other as all later ones do; fewer say nothing of the interval."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first place where a device and the reference disagree."""

    tensor: str
    frame: int
    index: tuple[int, ...]
    expected: float
    found: float
    segment: str
    device: str
    backend: str
    nodes: tuple[str, ...]
    wrong_elements: int
    elements: int
    engine: str | None = None
    """The node whose hardware is wrong when run alone, where that could be found out."""
    fault: str = ""
    """What the part did instead of answering: locked up, sent too much, broke its protocol."""
    beat: str = ""
    """The first wrong beat of a simulated stream, with pixel and channel."""

    def __str__(self) -> str:
        where = ", ".join(map(str, self.index))
        blame = f"; the engine of {self.engine} is wrong by itself" if self.engine else ""
        beat = f"; first wrong beat: {self.beat}" if self.beat else ""
        if not self.engine and self.backend == "verilator":
            blame = "; every engine is right by itself, so the top module, a fork or a FIFO between them is wrong"
        if self.fault:
            return f"tensor {self.tensor}: {self.fault}; nodes {', '.join(self.nodes)}{blame}"
        return (f"tensor {self.tensor}[{where}] of frame {self.frame}: expected {self.expected}, found {self.found} "
                f"({self.wrong_elements} of {counted(self.elements, 'element')} differ); written by {self.segment} on "
                f"{self.device} ({self.backend}), nodes {', '.join(self.nodes)}{blame}{beat}")


@dataclass(frozen=True, slots=True)
class Verification:
    """What `verify` found. `tensors_compared` counts tensors (or shares of them) that crossed a device boundary."""

    equal: bool
    frames: int
    tensors_compared: int
    elements_compared: int
    first_mismatch: Mismatch | None
    segments: tuple[Mapping[str, str], ...]
    wall_s: float
    cycles: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Simulated segments: clock cycles in all, to the first output, and of the first frame."""
    high_water: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Simulated segments: most beats seen in each FIFO."""
    speed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Simulated segments: how fast the simulation ran, in cycles and frames per second."""
    clocks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Simulated segments: the plan's clocks beside the simulated ones, and whether they agree."""
    frames_note: str = ""
    """Why there are no more frames, where simulation was too slow for more."""


def stimulus(build: Build, count: int = DEFAULT_FRAMES) -> dict[str, Array]:
    """The stored samples, topped up with seeded values over the full input range where more frames are wanted."""
    samples = build.samples()
    available = len(next(iter(samples.values())))
    if count <= available:
        return {name: x[:count] for name, x in samples.items()}
    extra = synthetic_integers(build.graph, count - available, seed=1)
    return {name: np.concatenate([x, extra[name]]) for name, x in samples.items()}


def check_frames(frames: int, command: str = "verify") -> None:
    """Raise UsageError where a command has nothing to run on."""
    if frames < 1:
        raise UsageError(f"{command}: {counted(frames, 'frame')}; at least 1 is needed")


Results = dict[str, dict[str, Array]]
"""What segments wrote, by their names."""


def choose_frames(build: Build, simulated: dict[str, Simulation], progress: Progress | None = None) -> tuple[int, str, Results]:
    """How many frames to verify, by how long the fewest take to simulate; why there are fewer than usual; what they gave.

    Parts of few clocks a frame are not tried: their simulators would be compiled twice, for the short run and the long one. A
    part that gives no answer is found out by `verify` itself.
    """
    tried = [(segment, part) for segment in build.program.segments
             if isinstance(part := build.part(segment, partial(simulated.__setitem__, segment.name)), FpgaPart)
             and not part.emulated and cycles_of(part.design, FEWEST_FRAMES) > QUICK_CYCLES]
    if not tried:
        return DEFAULT_FRAMES, "", {}
    memory = stimulus(build, FEWEST_FRAMES)
    memory |= run_integer(build.graph, memory, keep=True)
    for segment in build.program.segments:
        expect_partials(segment, memory, build.program)
    found: Results = {}
    for segment, part in tried:
        _prepare(segment, part, FEWEST_FRAMES, progress)
        with suppress(MismatchError):
            found[segment.name] = part.run(gather(segment, memory), watch(progress, segment.name, part, FEWEST_FRAMES))
    each_s = sum(s.run_s for s in simulated.values()) / FEWEST_FRAMES
    frames = DEFAULT_FRAMES if each_s <= 0 else min(DEFAULT_FRAMES, max(FEWEST_FRAMES, int(SIMULATED_S / each_s)))
    note = "" if frames == DEFAULT_FRAMES else f"chosen: one takes {each_s:.3g} s to simulate; --frames N verifies more"
    return frames, note, found if frames == FEWEST_FRAMES else {}


def verify(build: Build, frames: int | None = None, progress: Progress | None = None, icarus: bool = False) -> Verification:
    """Run the build and compare every boundary tensor with the reference, exactly; stops at the first wrong one.

    Without `frames` there are as many as simulation is fast enough for (see `choose_frames`). With `icarus` a second simulator
    runs the simulated parts, too.
    """
    start, note, known = time.monotonic(), "", Results()
    simulated: dict[str, Simulation] = {}
    if icarus:
        find_icarus()  # before anything is simulated
    if frames is None:
        frames, note, known = choose_frames(build, simulated, progress)
    check_frames(frames)
    inputs = stimulus(build, frames)
    expected: dict[str, Array] = run_integer(build.graph, inputs, keep=True)
    memory: dict[str, Array] = dict(inputs)
    compared = elements = 0
    ran: list[Mapping[str, str]] = []
    mismatch = None
    for segment in build.program.segments:
        part = build.part(segment, partial(simulated.__setitem__, segment.name))
        _prepare(segment, part, frames, progress)
        on_frame = watch(progress, segment.name, part, frames)
        ran.append({"name": segment.name, "device": segment.device, "backend": part.backend, "note": part.note})
        expect_partials(segment, expected, build.program)
        try:
            results = known.get(segment.name) or part.run(gather(segment, memory), on_frame)
            mismatch = (_compare(segment, part, results, expected)
                        or _compare_stalled(segment, part, memory, expected, progress)
                        or (_compare_in_icarus(segment, part, memory, expected, ran, progress) if icarus else None))
        except MismatchError as fault:
            mismatch = _faulty(segment, part, str(fault), gather(segment, memory))
            break
        compared += len(segment.writes)
        elements += sum(results[b.name].size for b in segment.writes)
        if mismatch is not None:
            mismatch = replace(mismatch, engine=_blame(part, gather(segment, memory), mismatch.frame))
            break
        scatter(segment, results, memory, build.program)
    joined: dict[str, Simulation | SystemRun] = {}
    for boards in build.systems().values() if mismatch is None else ():
        ran.append({"name": boards.system.name, "device": boards.device, "backend": boards.backend, "note": boards.note})
        if not boards.emulated and mismatch is None:
            mismatch = _compare_joined(boards, inputs, expected, joined, progress)
    cycles = {name: {"total": s.cycles, "first_output": s.first_output_cycle, "first_frame": s.frame_cycles[0]}
              for name, s in {**simulated, **joined}.items()}
    speed = {name: {"cycles_per_s": s.cycles / s.run_s, "frames_per_s": frames / s.run_s} for name, s in simulated.items()}
    clocks = {name: compare_clocks(build.plan.clocks[name], run.frame_cycles) for name, run in simulated.items()
              if name in build.plan.clocks}
    return Verification(mismatch is None, frames, compared, elements, mismatch, tuple(ran), time.monotonic() - start, cycles,
                        {name: s.high_water for name, s in simulated.items()}, speed, clocks, note)


def _prepare(segment: Segment, part: RunnablePart, frames: int, progress: Progress | None) -> None:
    """Compile a part's simulator while somebody watches: of large designs that takes minutes."""
    if progress is not None and isinstance(part, FpgaPart) and not part.emulated:
        part.prepare(frames, partial(progress, f"{segment.name}: compile the simulator"))


def _compare(segment: Segment, part: RunnablePart, results: Mapping[str, Array],
             expected: Mapping[str, Array]) -> Mismatch | None:
    """The first difference between what a segment wrote and what the reference says; results may hold fewer frames."""
    for binding in segment.writes:
        found = results[binding.name]
        right = expected[binding.tensor][(slice(len(found)), *slices(binding.region)[1:])]
        mismatch = _difference(segment, part.backend, binding.tensor, binding.region[1:], right, found)
        if mismatch is not None:
            return replace(mismatch, beat=_wrong_beat(part, binding.name, right, found))
    return None


def _compare_joined(boards: Boards, inputs: Mapping[str, Array], expected: Mapping[str, Array],
                    joined: dict[str, Simulation | SystemRun], progress: Progress | None) -> Mismatch | None:
    """Boards with the links between them, freely and with stalls and jitter, against the reference."""
    tensors = {**expected, **inputs}
    for seed, most in ((None, JOINED_FRAMES), (1, STALLED_FRAMES)):
        few = {p.tensor: tensors[p.tensor][:most] for p in boards.system.inputs if p.tensor not in boards.weights}
        count = len(next(iter(few.values())))
        try:
            found = boards.run(few, seed, watch(progress, boards.system.name, boards, count))
        except MismatchError as fault:
            port, segment = boards.system.outputs[0], boards.segments[-1]
            return Mismatch(port.tensor, 0, (), 0, 0, segment.name, boards.device, boards.backend, segment.nodes, 0, 0, None,
                            str(fault))
        joined.setdefault(boards.system.name, found)
        for port, values in found.outputs.items():
            segment = next(s for s in boards.segments for w in s.writes if (w.tensor, w.region) == (port.tensor, port.region))
            right = expected[port.tensor][(slice(count), *slices(port.region)[1:])]
            wrong = _difference(segment, boards.backend, port.tensor, port.region[1:], right, values.reshape(right.shape))
            if wrong is not None:
                return replace(wrong, device=boards.device, fault="boards are right one by one and wrong when joined by links")
    return None


def _wrong_beat(part: RunnablePart, name: str, right: Array, found: Array) -> str:
    """Where a simulated stream first goes wrong, in the order of its beats."""
    if not isinstance(part, FpgaPart) or right.shape != found.shape:
        return ""
    return next((first_wrong(port, right, found) or "" for port in part.design.outputs if port.tensor == name), "")


def _compare_stalled(segment: Segment, part: RunnablePart, memory: Mapping[str, Array],
                     expected: Mapping[str, Array], progress: Progress | None) -> Mismatch | None:
    """A few frames of a simulated part again, with stalls: faults of FIFOs and handshakes show only under pressure."""
    if not isinstance(part, FpgaPart) or part.emulated:
        return None
    few = {name: x[:STALLED_FRAMES] for name, x in gather(segment, memory).items()}
    on_frame = watch(progress, f"{segment.name} with stalls", part, len(next(iter(few.values()))))
    return _compare(segment, part, part.run_stalled(few, 1, on_frame), expected)


def _compare_in_icarus(segment: Segment, part: RunnablePart, memory: Mapping[str, Array], expected: Mapping[str, Array],
                       ran: list[Mapping[str, str]], progress: Progress | None) -> Mismatch | None:
    """A few frames of a simulated part in the second simulator: from an unknown state, and from a random one with a reset."""
    if not isinstance(part, FpgaPart) or part.emulated:
        return None
    few = {name: x[:ICARUS_FRAMES] for name, x in gather(segment, memory).items()}
    for done, unknown in enumerate((True, False)):
        if progress is not None:
            progress(f"{segment.name} in Icarus", done, 2)
        mismatch = _compare(segment, part, part.run_in_icarus(few, unknown), expected)
        if mismatch is not None:
            return replace(mismatch, backend="icarus")
    ran.append({"name": segment.name, "device": segment.device, "backend": "icarus",
                "note": "from an unknown state, and from a random one with a reset in the first frame"})
    return None


def _faulty(segment: Segment, part: RunnablePart, fault: str, inputs: Mapping[str, Array]) -> Mismatch:
    """A part that gave no answer at all."""
    return Mismatch(segment.writes[0].tensor, 0, (), 0, 0, segment.name, segment.device, part.backend, segment.nodes, 0, 0,
                    _blame(part, inputs, 0), fault)


def _blame(part: RunnablePart, inputs: Mapping[str, Array], frame: int) -> str | None:
    """Name the wrong engine of a simulated design, with the frame that showed it among the frames tried."""
    if not isinstance(part, FpgaPart) or part.emulated or part.design.loads:
        return None
    return wrong_engine(part.graph, part.design, {name: x[frame:] for name, x in inputs.items()})


def expect_partials(segment: Segment, expected: dict[str, Array], program: Program) -> None:
    """Add what the reference says about partial sums, which exist only inside a plan."""
    if all(b.tensor in program.graph.tensors for b in segment.writes):
        return
    results = run_integer(segment.graph, gather(segment, expected))
    for binding in segment.writes:
        if binding.tensor not in program.graph.tensors:
            expected[binding.tensor] = results[binding.name]


def _difference(segment: Segment, backend: str, tensor: str, region: tuple[tuple[int, int], ...], expected: Array,
                found: Array) -> Mismatch | None:
    """The first wrong element, in the whole tensor's coordinates."""
    if expected.shape != found.shape:
        return Mismatch(tensor, 0, found.shape, expected.size, found.size, segment.name, segment.device, backend, segment.nodes,
                        max(expected.size, found.size), expected.size)
    wrong = expected != found.astype(expected.dtype)
    if expected.dtype.kind == "f":
        wrong &= ~(np.isnan(expected) & np.isnan(found))
    if not wrong.any():
        return None
    first = tuple(int(i) for i in np.argwhere(wrong)[0])
    index = tuple(i + start for i, (start, _) in zip(first[1:], region, strict=True))
    return Mismatch(tensor, first[0], index, expected[first].item(), found[first].item(), segment.name, segment.device, backend,
                    segment.nodes, int(wrong.sum()), wrong.size)


def compare_clocks(planned: ClockEstimate, frame_cycles: tuple[int, ...]) -> dict[str, Any]:
    """Of a segment that was simulated, and whose clocks the plan states: both, the stated error, and whether it holds."""
    interval = frame_cycles[-1] - frame_cycles[-2] if len(frame_cycles) >= SETTLED_FRAMES else None
    holds = {"one_frame": planned.one_frame_holds(frame_cycles[0]),
             "interval": interval is None or planned.interval_holds(interval)}
    return {"planned": {"one_frame": planned.one_frame, "interval": planned.interval},
            "simulated": {"one_frame": frame_cycles[0], "interval": interval},
            "error": planned.error, "source": planned.source, "holds": holds, "within": all(holds.values())}


def clocks_sentence(name: str, found: Mapping[str, Any]) -> str:
    """What a segment's comparison says, in one sentence."""
    stated = f"the plan's stated error of {found['error']:.0%} or {FEWEST_CLOCKS} clocks"
    if found["within"]:
        return f"{name}: simulated clocks are within {stated}: {_told(found, CLOCKS)}"
    outside = [key for key in CLOCKS if not found["holds"][key]]
    return (f"{name}: simulated clocks are outside {stated}: {_told(found, outside)}; the plan's times of this segment are "
            "wrong, please report it with the model and the board")


def _told(found: Mapping[str, Any], keys: Iterable[str]) -> str:
    return ", ".join(f"{CLOCKS[key]} {found['simulated'][key]:,} (planned {found['planned'][key]:,.0f})" for key in keys
                     if found["simulated"][key] is not None)
