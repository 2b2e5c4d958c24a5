"""A GPU and a CPU in a pipeline: a network cut in two where both take about as long, run in turn and as a stream of the runtime.

What a plan promises of a stream is what its parts take alone, their sum over the longer of them, with what frames take between
them: handing on is timed with parts that do nothing, in turn and as a stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from statistics import median
from typing import Any, Protocol

import numpy as np

from dovetail.ir import Array, Graph
from dovetail.numerics.reference import run_integer
from dovetail.partition.plan import whole_on
from dovetail.runtime.record import RunRecord
from dovetail.runtime.stages import Stage, gather, scatter
from dovetail.runtime.stream import FrameStream
from dovetail.runtime.workers import StreamOptions
from dovetail.schedule.program import Program, lower
from lib.execution.parts import FORMS, Manner, Runner, cpu_runner, differing, gpu_network, noise, pretended
from lib.execution.timing import Effort, spread

NETWORKS = (("googlenet", 8), ("mobilenet-v1", 64), ("resnet50", 64), ("googlenet", 64))
"""Networks, and frames that travel together. Groups of 8 and 16 were chosen before anything was measured; their parts take about
a millisecond, of which handing frames on between threads takes a third to a half. One of them stays, beside groups of 64."""
SMALL = (("squeezenet1.1@32", 2),)
"""Those of `--quick`."""
CUTS = 10
"""Places of the cut that are tried on the CPU at the most."""
LEAST_SHARE = 0.5
"""Of the multiply-adds that the GPU has at the least: a CPU is the slower one."""
KEPT_THREADS = 2
"""Threads that the CPU's part leaves to those who start kernels and hand frames on (chosen)."""
THREADS = (1, 2, 3, 4, 6, 8, 12)
"""Threads of the CPU's part that are tried, besides all: the one whose time is nearest the GPU's is taken."""
IN_FLIGHT = 4
"""Groups of frames under way: one in either part and one before each."""
ITEMS = 64
"""Groups of frames of a stream."""
ROUNDS = 5
PROMISED = 1.7
"""What a plan must promise of a stream over one part after another, to be judged."""
REACHED = 1.5
"""What it must then reach."""


class Devices(Protocol):
    """What makes parts."""

    def gpu(self, graph: Graph, images: int) -> Runner | str:
        """A part on the GPU for so many frames together, or why there is none."""

    def cpu(self, graph: Graph, threads: int) -> Runner:
        """A part on so many threads of the CPU."""


@dataclass(frozen=True, slots=True)
class Here:
    """This machine; `pretends` lets ONNX Runtime take the GPU's part."""

    pretends: bool = False
    forms: dict[str, str] = field(default_factory=dict)

    def gpu(self, graph: Graph, images: int) -> Runner | str:
        return pretended(graph, images) if self.pretends else gpu_network(graph, images)

    def cpu(self, graph: Graph, threads: int) -> Runner:
        """In the first form that gives the reference's integers; threads that wait do not spin, since others need the cores."""
        key = " ".join(node.name for node in graph.nodes)
        frame = noise(graph, 1)
        for form in (self.forms[key],) if key in self.forms else FORMS:
            runner = cpu_runner(graph, Manner(form, threads, spinning=False))
            if key in self.forms or not differing(runner.run(frame), run_integer(graph, frame)):
                self.forms[key] = form
                return runner
        raise SystemExit(f"cpu: no form of ONNX Runtime gives the reference's integers of {graph.name}")


@dataclass(frozen=True, slots=True)
class RunnerPart:
    """A runner as a part of the runtime."""

    runner: Runner
    backend: str
    note: str = ""

    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]:
        return self.runner.run({name: np.ascontiguousarray(x) for name, x in inputs.items()})


def cuts(graph: Graph) -> list[int]:
    """How many nodes come before every place where one tensor alone crosses, that is none of the inputs."""
    found = []
    for cut in range(1, len(graph.nodes)):
        made = {*graph.inputs, *(node.output for node in graph.nodes[:cut])}
        read = {*graph.outputs, *(tensor for node in graph.nodes[cut:] for tensor in node.inputs)}
        if len(made & read) == 1 and not made & read & set(graph.inputs):
            found.append(cut)
    return found


def parted(graph: Graph, cut: int) -> Program:
    """The network with so many nodes on the GPU and the others on the CPU."""
    return lower(graph, {node.name: whole_on("gpu" if i < cut else "cpu") for i, node in enumerate(graph.nodes)})


def promise(seconds: Sequence[float]) -> float:
    """How much faster parts are at the same time than one after another."""
    return sum(seconds) / max(seconds)


@dataclass(frozen=True, slots=True)
class Ready:
    """A part whose results are there already."""

    results: Mapping[str, Array]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        return dict(self.results)


def handing_s(program: Program, frames: Mapping[str, Array], items: int) -> tuple[float, float]:
    """Seconds per group of frames between parts, where they run in turn and as a stream: the runtime's own."""
    count = len(next(iter(frames.values())))
    ready = {s.name: Ready({name: np.zeros((count, *s.graph.shape(name)[1:]), s.graph.tensors[name].dtype)
                            for name in s.graph.outputs}) for s in program.segments}
    stages, taken = stages_of(program, ready), [list[float](), list[float]()]
    with FrameStream(stages, program, RunRecord(), StreamOptions(IN_FLIGHT)) as stream:
        for number in range(ROUNDS + 1):
            begun = time.perf_counter()
            in_turn(program, stages, iter([frames] * items))
            between = time.perf_counter()
            for _ in stream.results(iter([frames] * items)):
                pass
            if number:  # the first warms up
                taken[0].append((between - begun) / items)
                taken[1].append((time.perf_counter() - between) / items)
    return median(taken[0]), median(taken[1])


def candidates(graph: Graph) -> list[int]:
    """Cuts that leave the GPU its share, some of them where there are many."""
    able = [cut for cut in cuts(graph) if share(graph, cut) >= LEAST_SHARE]
    return [able[i * len(able) // CUTS] for i in range(CUTS)] if len(able) > CUTS else able


def share(graph: Graph, cut: int) -> float:
    """The GPU's part of the multiply-adds."""
    return parted(graph, cut).segments[0].graph.macs / graph.macs


def stages_of(program: Program, runners: Mapping[str, Runner]) -> list[Stage]:
    return [Stage(s.name, s.device, (s.device,), (s,), RunnerPart(runners[s.name], s.device), s.reads, s.writes)
            for s in program.segments]


def in_turn(program: Program, stages: Sequence[Stage], items: Iterator[Mapping[str, Array]]) -> list[dict[str, Array]]:
    """Results of stages one after another."""
    found = []
    for item in items:
        memory = dict(item)
        for stage in stages:
            scatter(stage, stage.part.run(gather(stage, memory)), memory, program)
        found.append({name: memory[name] for name in program.graph.outputs})
    return found


def compared(program: Program, stages: Sequence[Stage], frames: Mapping[str, Array], items: int, rounds: int) -> dict[str, Any]:
    """The same groups of frames one part after another and as a stream, in turn; every result is compared."""
    images = len(next(iter(frames.values())))
    taken: dict[str, list[float]] = {"sequential_s": [], "concurrent_s": []}
    wanted, wrong = run_integer(program.graph, {name: x[:1] for name, x in frames.items()}), 0
    with FrameStream(stages, program, RunRecord(), StreamOptions(IN_FLIGHT)) as stream:
        for number in range(rounds + 1):
            begun = time.perf_counter()
            first = in_turn(program, stages, iter([frames] * items))
            between = time.perf_counter()
            second = list(stream.results(iter([frames] * items)))
            ended = time.perf_counter()
            if number:  # the first warms up
                taken["sequential_s"].append(between - begun)
                taken["concurrent_s"].append(ended - between)
            wrong += sum(differing({n: v[:1] for n, v in found.items()}, wanted) for found in (*first, *second))
            wrong += sum(differing(found, first[0]) for found in (*first, *second)) + abs(len(second) - items)
    seconds = {key: median(own) for key, own in taken.items()}
    return {"frames": images * items, **seconds, "rounds": taken, "wrong": wrong, "equal": not wrong,
            "frames_per_s": {key[:-2]: images * items / value for key, value in seconds.items()},
            "gain": seconds["sequential_s"] / seconds["concurrent_s"]}


def case(graph: Graph, images: int, devices: Devices, threads: int, effort: Effort, items: int = ITEMS,
         rounds: int = ROUNDS) -> dict[str, Any]:
    """A network cut where GPU and CPU take about as long: where that is, what it promises, and what it takes."""
    def alone_s(runner: Runner, own: Graph) -> float:
        frames = noise(own, images)
        return spread(lambda: runner.run(frames), effort)["median_s"]

    whole = devices.gpu(graph, images)
    if isinstance(whole, str):
        return {"not possible": whole}
    whole_s, most = alone_s(whole, graph), max(1, threads - KEPT_THREADS)
    tried = dict[int, tuple[float, float]]()
    for cut in candidates(graph):
        rest = parted(graph, cut).segments[1].graph
        tried[cut] = whole_s * share(graph, cut), alone_s(devices.cpu(rest, most), rest)
    if not tried:
        return {"not possible": "nowhere does one tensor alone cross"}
    cut = max(tried, key=lambda c: promise(tried[c]))
    program = parted(graph, cut)
    first, rest = (segment.graph for segment in program.segments)
    made = devices.gpu(first, images)
    if isinstance(made, str):
        return {"not possible": made}
    gpu_s = alone_s(made, first)
    counts = sorted({most, *(n for n in THREADS if n < most)})
    runners = {n: devices.cpu(rest, n) for n in counts}
    cpu_s = {n: alone_s(runner, rest) for n, runner in runners.items()}
    best = min(counts, key=lambda n: abs(log(cpu_s[n] / gpu_s)))
    stages = stages_of(program, {program.segments[0].name: made, program.segments[1].name: runners[best]})
    turn_s, stream_s = handing_s(program, noise(graph, images), items)
    found = compared(program, stages, noise(graph, images), items, rounds)
    alone = promise([gpu_s, cpu_s[best]])
    promised = (gpu_s + cpu_s[best] + turn_s) / (max(gpu_s, cpu_s[best]) + stream_s)
    return {"batch": images, "nodes": [cut, len(graph.nodes) - cut], "gpu_share_of_macs": share(graph, cut), "threads": best,
            "gpu_whole_s": whole_s, "gpu_s": gpu_s, "cpu_s": {str(n): s for n, s in cpu_s.items()},
            "planned_s": gpu_s + cpu_s[best] + (items - 1) * (max(gpu_s, cpu_s[best]) + stream_s), "promised": promised,
            "promised_without_handing": alone, "handing_s": {"in_turn": turn_s, "stream": stream_s}, **found,
            "judged": promised >= PROMISED, "ok": found["equal"] and (promised < PROMISED or found["gain"] >= REACHED)}
