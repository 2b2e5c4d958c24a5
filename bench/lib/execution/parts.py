"""Parts as they run here: ONNX Runtime on the CPU in the fastest form that gives the reference's integers, kernels on the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import onnxruntime
import torch

from dovetail.errors import UnsupportedError
from dovetail.gpu.executor import Compiled, compile_graph, gpu_here
from dovetail.gpu.lane import GpuProgram, open_lane
from dovetail.gpu.launcher import launcher_here
from dovetail.gpu.memory import planned
from dovetail.gpu.tuning import IN_PLACE_S
from dovetail.ir import Array, Graph
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.onnx.writer import Boundary
from dovetail.kernels.lower import lower
from dovetail.numerics.reference import fixes_batch
from lib.execution.timing import Effort, device_s, interval, spread

FORMS = ("int8", "float32", "plain")
"""ONNX Runtime with its int8 kernels; with float32 kernels, weights unpacked when it is loaded; without any optimisation."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How a session runs: its form, its threads, and whether they spin while they wait for work."""

    form: str
    threads: int
    spinning: bool = True


class Runner(Protocol):
    """A part that runs."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...


@dataclass(slots=True, eq=False)
class CpuRunner:
    """A graph of integers in an ONNX Runtime session."""

    graph: Graph
    session: Any
    one_by_one: bool

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        names, count = [o.name for o in self.session.get_outputs()], len(next(iter(inputs.values())))
        if not self.one_by_one or count == 1:
            return dict(zip(names, self.session.run(names, dict(inputs)), strict=True))
        found = [self.session.run(names, {k: v[i:i + 1] for k, v in inputs.items()}) for i in range(count)]
        return {name: np.concatenate([f[i] for f in found]) for i, name in enumerate(names)}


def cpu_runner(graph: Graph, manner: Manner, profile: str = "") -> CpuRunner:
    """A part on threads of the CPU; with a profile, which begins with that name."""
    options, form = onnxruntime.SessionOptions(), manner.form
    options.intra_op_num_threads, options.inter_op_num_threads, options.log_severity_level = manner.threads, 1, 4
    if profile:
        options.enable_profiling, options.profile_file_prefix = True, profile
    if not manner.spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if form == "plain":
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if form == "float32":
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    session = onnxruntime.InferenceSession(to_onnx(graph, Boundary.INTEGER), options, providers=["CPUExecutionProvider"])
    return CpuRunner(graph, session, fixes_batch(graph) or any(graph.shape(n)[0] != 1 for n in graph.inputs))


def noise(graph: Graph, count: int, seed: int = 0) -> dict[str, Array]:
    """Seeded frames over the whole range of every input."""
    rng, found = np.random.default_rng(seed), dict[str, Array]()
    for name in graph.inputs:
        tensor = graph.tensors[name]
        shape = (count, *tensor.shape[1:])
        found[name] = rng.random(shape).astype(tensor.dtype) if tensor.scheme is None else \
            rng.integers(tensor.scheme.lo, tensor.scheme.hi + 1, shape).astype(tensor.dtype)
    return found


def differing(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> int:
    """Elements that are not the reference's."""
    return int(sum((np.asarray(found[name]).reshape(value.shape) != value).sum() for name, value in wanted.items()))


def gpu_network(graph: Graph, images: int = 1, in_place_s: float = IN_PLACE_S) -> Compiled | str:
    """A part's kernels, or why there are none."""
    try:
        return compile_graph(graph, "int8", images, in_place_s, library=False)
    except UnsupportedError as reason:
        return str(reason)


def pretended(graph: Graph, images: int = 1) -> Compiled | str:
    """The same with ONNX Runtime in the place of kernels, between the same memory and layouts: for machines without a GPU."""
    try:
        lowered = lower(graph, "int8", gpu_here(), images)
    except UnsupportedError as reason:
        return str(reason)
    launcher, runner = launcher_here("int8"), cpu_runner(graph, Manner("plain", 1))
    program = GpuProgram(graph, lowered, ())
    lane = open_lane(program, launcher)

    def replay() -> None:
        for port in lane.inputs.values():
            port.enter()
        given = {n: p.device.numpy().reshape(images, *graph.shape(n)[1:]) for n, p in lane.inputs.items()}
        for name, found in runner.run(given).items():
            lane.outputs[name].host.copy_(torch.from_numpy(found).view(lane.outputs[name].device.shape))
    lane.replay = replay
    return Compiled(program, launcher, replay, planned([], [*lowered.inputs.values(), *lowered.outputs.values()]),
                    ways={(False, False): (lane,)})


def gpu_terms(made: Compiled, frames: Mapping[str, Array], effort: Effort) -> dict[str, Any]:
    """Where a batch's time goes on the GPU: memory to pinned memory, copies both ways, kernels, the graph that holds both and
    changes of layout, the whole."""
    lane = made.lanes[0]

    def finish() -> None:
        if lane.done is not None:
            lane.done.record()
            lane.done.synchronize()

    def enter() -> None:
        for port in lane.inputs.values():
            port.device.copy_(port.host, non_blocking=True)
        finish()

    def leave() -> None:
        for port in lane.outputs.values():
            port.host.copy_(port.device, non_blocking=True)
        finish()

    def replayed() -> None:
        lane.replay()
        finish()

    def fill() -> None:
        for name, port in lane.inputs.items():
            port.host.numpy()[...] = frames[name].reshape(port.host.shape)

    whole = spread(partial(made.run, frames), effort)
    host = {"fill_s": spread(fill, effort)["median_s"], "copy_in_s": spread(enter, effort)["median_s"],
            "graph_and_wait_s": spread(replayed, effort)["median_s"], "copy_out_s": spread(leave, effort)["median_s"]}
    return {"wall": whole, **host, "kernels_s": device_s(made.replay, effort), "graph_s": device_s(lane.replay, effort),
            "estimated_s": sum(c.estimates_s[c.configs.index(t)] if t in c.configs else c.estimates_s[0] for c, t in made.calls),
            "launches": len(made.calls), "bytes_in": sum(p.host.numel() * p.host.element_size() for p in lane.inputs.values()),
            "bytes_out": sum(p.host.numel() * p.host.element_size() for p in lane.outputs.values())}


def stream_s(runner: Runner, frames: Mapping[str, Array], count: int) -> float:
    """Seconds per frame of a stream through one part."""
    held = len(next(iter(frames.values())))
    many = {name: np.concatenate([x] * -(-count // held)) for name, x in frames.items()}
    return interval(lambda n: runner.run({name: x[:n] for name, x in many.items()}), count)
