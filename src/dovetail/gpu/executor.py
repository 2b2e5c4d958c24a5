"""Compiled networks on a GPU: kernels chosen by timing, tensors in one piece of memory, everything one CUDA graph.

`compile_graph` runs wherever PyTorch and Triton do; under Triton's interpreter (TRITON_INTERPRET=1) on the CPU, without timing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton

from dovetail.errors import UnsupportedError, UsageError
from dovetail.gpu.lane import GpuLane, GpuProgram, open_lane
from dovetail.gpu.launcher import TYPES, Launcher, launcher_here
from dovetail.gpu.library.joined import PartChoice, faster
from dovetail.gpu.library.part import LibraryLaunch, described
from dovetail.gpu.memory import MemoryPlan, planned
from dovetail.gpu.remembered import for_gpu
from dovetail.gpu.saved import save
from dovetail.gpu.tuning import IN_PLACE_S, ChosenKernel, Options, Tuner, captured, chosen, estimated, replay_seconds
from dovetail.ir import Array, Graph
from dovetail.kernels.calls import Call, LibraryPart, Lowered
from dovetail.kernels.estimator import FITTED_ON, Config
from dovetail.kernels.items import TensorLayout
from dovetail.kernels.layers import STORED_OFFSET
from dovetail.kernels.lower import lower
from dovetail.platform.gpu_specification import Gpu, matching, specification
from dovetail.words import counted

LIBRARY_SHARE = 0.25
"""Of a network's time: where parts of the library take more, all of it is tried there (chosen: compiling takes a minute)."""


@dataclass(slots=True, eq=False)
class Compiled:
    """A network ready to run; call it with the model's own arrays, or with tensors on the GPU."""

    program: GpuProgram
    launcher: Launcher
    replay: Callable[[], None]
    memory: MemoryPlan
    bare: GpuLane | None = None
    """Kernels alone, which `replay` runs."""
    ways: dict[tuple[bool, bool], tuple[GpuLane, ...]] = field(default_factory=dict)
    """By whether frames are on the GPU, and whether they are real numbers for integers."""

    @property
    def graph(self) -> Graph:
        return self.program.graph

    @property
    def lowered(self) -> Lowered:
        return self.program.lowered

    @property
    def calls(self) -> tuple[tuple[Call, Config], ...]:
        """Kernels with their tiles, in order."""
        return tuple((step.call, step.config) for step in self.program.steps if isinstance(step, ChosenKernel))

    @property
    def images(self) -> int:
        """The batch the network was compiled for."""
        return self.lowered.images

    @property
    def library(self) -> tuple[str, ...]:
        """Nodes that PyTorch's operators compute, each with its operator; of those that ONNX Runtime does, so."""
        host = {name for name, each in self.program.made.items() if each.on_host}
        return tuple(f"{node.name}: {operator}{' on the host' * (node.name in host)}" for part in self.lowered.library
                     for node, operator in zip(part.nodes, described(part), strict=True))

    def save(self, path: str | Path) -> None:
        """Write the network with its kernels to a file that `dovetail.gpu.load` reads."""
        save(self.program, path)

    def summary(self) -> str:
        """Which kernels, and what PyTorch computes, in two lines."""
        kernels, others = Counter(call.kernel for call, _ in self.calls), Counter(o.split(": ")[-1] for o in self.library)
        said = [f"{counted(len(self.calls), 'kernel')}: {_counts(kernels)}" if kernels else "no kernels of ours"]
        return "\n".join([*said, f"PyTorch's operators for {counted(len(self.library), 'node')}: {_counts(others)}"]
                         if others else said)

    @property
    def lanes(self) -> tuple[GpuLane, ...]:
        """The ways from the host and back."""
        return self.lanes_for(False, False)

    def lanes_for(self, on_device: bool, quantizes: bool) -> tuple[GpuLane, ...]:
        """The ways into the network for frames of a kind, opened when they are first asked for."""
        key = (on_device, quantizes)
        if key not in self.ways:
            count = 1 if on_device or self.launcher.device == "cpu" else 2
            self.ways[key] = tuple(self._opened(i, *key) for i in range(count))
        return self.ways[key]

    def _opened(self, index: int, on_device: bool, quantizes: bool) -> GpuLane:
        launcher = self.launcher
        if index:
            launcher = replace(launcher, buffers={})
            launcher.share_memory(self.memory)
        return open_lane(self.program, launcher, on_device, quantizes)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Results of frames, in batches of the size the network was compiled for: arrays of arrays, tensors of tensors.

        A quantized network also takes real numbers.
        """
        tensors = on_this_device(inputs, self.launcher.device)
        given = frames_of(self.graph, inputs if tensors is None else tensors, tensors is not None)
        quantizes = any(self.graph.tensors[name].scheme is not None and is_real(x) for name, x in given.items())
        lanes, found = self.lanes_for(tensors is not None, quantizes), dict[str, list[Any]]()
        rows = {name: self.program.rows(name) for name in (*given, *self.graph.outputs)}
        first = self.graph.inputs[0]
        count, waiting = len(given[first]), deque[GpuLane]()
        for lane, start in zip(cycle(lanes), range(0, count, rows[first]), strict=False):
            turn = start // rows[first]
            batch = {name: frames[turn * rows[name]:(turn + 1) * rows[name]] for name, frames in given.items()}
            if tensors is not None:
                self.keep(lane.pass_through(batch, self.graph), found)
                continue
            if len(waiting) == len(lanes):
                self.keep(waiting.popleft().results(self.graph), found)
            lane.submit({name: self.typed(name, frames, quantizes) for name, frames in batch.items()})
            waiting.append(lane)
        for lane in waiting:
            self.keep(lane.results(self.graph), found)
        join = torch.cat if tensors is not None else np.concatenate
        return {name: (parts[0] if len(parts) == 1 else join(parts))[:max(1, count * rows[name] // rows[first])]
                for name, parts in found.items()}

    def keep(self, results: Mapping[str, Any], found: dict[str, list[Any]]) -> None:
        """Put what a lane made behind what was found before."""
        for name, values in results.items():
            found.setdefault(name, []).append(values)

    def typed(self, name: str, frames: Array, quantizes: bool) -> Array:
        """Frames in the type in which they travel."""
        tensor = self.graph.tensors[name]
        return frames.astype(np.float32 if quantizes and tensor.scheme is not None else tensor.dtype, copy=False)

    def load(self, name: str, frames: Array, place: TensorLayout) -> None:
        """Put frames (images x channels x rows x columns) where the first kernel reads them, by planes or by pixels."""
        scheme = self.graph.tensors[name].scheme
        values = frames if scheme is None else frames.astype(np.int16) - (0 if scheme.signed else STORED_OFFSET)
        laid_out = values if place.planar or values.ndim == 2 else values.transpose(0, 2, 3, 1)
        tensor = torch.from_numpy(np.ascontiguousarray(laid_out).reshape(-1))
        self.launcher.place(place)[:tensor.numel()].copy_(tensor.to(TYPES[self.lowered.kind]))


def _counts(found: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items(), key=lambda f: (-f[1], f[0])))


def is_real(x: Any) -> bool:
    """Whether elements are floats."""
    return bool(x.is_floating_point() if isinstance(x, torch.Tensor) else x.dtype.kind == "f")


def on_this_device(inputs: Any, device: str) -> dict[str, Any] | None:
    """Inputs as PyTorch's tensors where all are tensors on the device (PyTorch's, or whatever speaks DLPack); else None."""
    if not isinstance(inputs, Mapping) or not inputs:
        return None
    found = {}
    for name, x in inputs.items():
        if not isinstance(x, torch.Tensor):
            if isinstance(x, np.ndarray) or not hasattr(x, "__dlpack__"):
                return None
            x = torch.from_dlpack(x)
        if x.device.type != device:
            return None
        found[name] = x.detach()
    return found


def frames_of(graph: Graph, inputs: Mapping[str, Any], on_device: bool = False) -> dict[str, Any]:
    """A model's inputs, frames first, as arrays unless they are `on_device`.

    UsageError names what is missing or of another form, since kernels would not.
    """
    if not isinstance(inputs, Mapping) or not set(graph.inputs) <= set(inputs):
        given = f"{', '.join(inputs) or 'none'} given" if isinstance(inputs, Mapping) else f"a {type(inputs).__name__} given"
        raise UsageError(f"inputs of {graph.name}: {given}; give an array for each of {', '.join(graph.inputs)}, by name")
    found = {name: inputs[name] if on_device else np.atleast_1d(np.asarray(inputs[name])) for name in graph.inputs}
    for name, array in found.items():
        own, tensor = graph.shape(name)[1:], graph.tensors[name]
        if tuple(array.shape[1:]) != own or not len(array):
            raise UsageError(f"input {name}: shape {list(array.shape)}; one or more frames of {list(own)} are needed, "
                             f"so [frames, {', '.join(map(str, own))}]")
        kind = np.dtype(str(array.dtype).removeprefix("torch.")).kind if array.dtype is not torch.bfloat16 else "f"
        if kind not in ("fiub" if tensor.scheme is not None or tensor.dtype.kind == "f" else "iub"):
            wanted = f"integers, as {tensor.dtype.name}," if tensor.dtype.kind in "iu" else "numbers"
            raise UsageError(f"input {name}: elements are {array.dtype}; {wanted} are needed")
    leads = {name: (graph.shape(name)[:1] or (1,))[0] for name in found}
    if len({len(array) * leads[graph.inputs[0]] // leads[name] for name, array in found.items()}) > 1:
        counts = ", ".join(f"{name} has {counted(len(array), 'frame')}" for name, array in found.items())
        raise UsageError(f"inputs of {graph.name}: {counts}; give as many of each")
    return found


def gpu_here() -> Gpu:
    """The specification of this machine's GPU, or of the one estimates were fitted on where it has none."""
    here = None if triton.knobs.runtime.interpret else matching(torch.cuda.get_device_name())
    return here or specification(FITTED_ON)


def options_of(lowered: Lowered, whole: bool = False) -> Options:
    """Of every run of a network that has kernels, those that could compute its layers; the `whole` list has hopeless ones too."""
    hopeless = {"hopeless": float("inf")} if whole else {}
    return [[(0, 0, run)] if isinstance(run, Call) else list(lowered.options(run, **hopeless)) for run in lowered.runs
            if not isinstance(run, LibraryPart)]


def in_order(lowered: Lowered, parts: Sequence[ChosenKernel]) -> tuple[ChosenKernel | LibraryPart, ...]:
    """Chosen kernels, and what the library computes between them."""
    steps, number = list[ChosenKernel | LibraryPart](), 0
    for run in lowered.runs:
        if isinstance(run, LibraryPart):
            steps.append(run)
        else:
            steps += [part for part in parts if part.run == number]
            number += 1
    return tuple(steps)


def compile_graph(graph: Graph, kind: str = "float16", images: int = 1,
                  in_place_s: float = IN_PLACE_S, tune: bool = True,
                  functions: Mapping[str, Any] | None = None, library: bool = True) -> Compiled:
    """A float graph in float16, bfloat16, float32 or tf32, or a quantized graph in int8, for batches of `images`.

    `in_place_s`: seconds that choosing kernels anew inside the network may take, where nothing is remembered of it; where
    compiling and timing took long, up to two thirds less. Without `tune`, estimates choose. `functions` compute
    foreign nodes of graphs that come from PyTorch, by name. What has no kernel goes to the `library` of operators, or
    UnsupportedError names it.
    """
    if kind not in TYPES:
        raise UsageError(f"arithmetic {kind}: unknown; possible: {', '.join(TYPES)}")
    if isinstance(images, bool) or not isinstance(images, int | np.integer) or images < 1:
        raise UsageError(f"images {images!r}: a batch is a whole number from 1 on")
    launcher, avoided = launcher_here(kind), frozenset[str]()
    if kind == "bfloat16" and launcher.device == "cpu":
        avoided = frozenset(node.name for node in graph.nodes)  # Triton's interpreter has no such numbers
    timing = launcher.device == "cuda" and tune
    known = for_gpu(torch.cuda.get_device_name(), (triton.__version__, torch.__version__)) if timing else None
    tuner = Tuner(launcher, timing, known, in_place_s)
    while True:
        lowered = lower(graph, kind, gpu_here(), images, library=library, avoided=avoided)
        own = (graph.shape(graph.inputs[0])[:1] or (1,))[0]
        if lowered.library and images % own:
            raise UsageError(f"images {images}: the model's own batch is {own}, which nodes without kernels keep; take a "
                             "multiple of it")
        options = options_of(lowered)
        parts = [] if not options else chosen(options, tuner) if tune else estimated(options, tuner)
        broken = frozenset(name for p in parts if p.seconds == float("inf") for name in p.call.nodes)
        if not broken:
            program = GpuProgram(graph, lowered, in_order(lowered, parts), functions or {}, avoided)
            if not timing or graph.quantized:
                return assembled(program, launcher)
            return whole_if_faster(assembled(replace(program, choose=_by_time), launcher))
        if not library:
            raise UnsupportedError(f"node {min(broken)}: none of its kernels runs on this GPU; such parts run in the integer "
                                   "interpreter")
        avoided |= broken


def _by_time(launch: LibraryLaunch) -> PartChoice:
    return faster(launch, lambda call: replay_seconds(captured([call])))


def whole_if_faster(made: Compiled) -> Compiled:
    """A network, or all of it in the library, where that takes a good part of the time and is faster alone."""
    program, lowered = made.program, made.lowered
    library_s, own_s = sum(c.seconds for c in program.choices.values()), replay_seconds(made.lanes_for(True, False)[0].replay)
    if not made.calls or library_s < LIBRARY_SHARE * own_s:
        return made
    avoided = frozenset(node.name for node in program.graph.nodes)
    alone = lower(program.graph, lowered.kind, lowered.gpu, lowered.images, library=True, avoided=avoided)
    whole = assembled(replace(program, lowered=alone, steps=in_order(alone, []), avoided=avoided, choices={}),
                      launcher_here(lowered.kind))
    return whole if replay_seconds(whole.lanes_for(True, False)[0].replay) < own_s else made


def assembled(program: GpuProgram, launcher: Launcher) -> Compiled:
    """A network whose kernels are chosen, in memory and as CUDA graphs."""
    lowered, timing = program.lowered, launcher.device == "cuda"
    calls = [step if isinstance(step, LibraryPart) else step.call for step in program.steps]
    memory = planned(calls, [*lowered.inputs.values(), *lowered.outputs.values()])
    launcher.share_memory(memory)
    made = Compiled(program, launcher, lambda: None, memory)
    if timing:
        made.bare = open_lane(program, launcher, on_device=True, moves=False)
        made.replay = made.bare.replay
    made.lanes_for(bool(program.functions), False)  # modules are given tensors
    return made
