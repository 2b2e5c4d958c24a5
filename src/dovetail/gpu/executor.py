"""Compiled networks on a GPU: kernels chosen by timing, tensors in one piece of memory, everything one CUDA graph.

`compile_graph` runs wherever PyTorch and Triton do; under Triton's interpreter (TRITON_INTERPRET=1) on the CPU, without timing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np
import torch
import triton

from dovetail.errors import UnsupportedError, UsageError
from dovetail.gpu.lane import GpuLane, open_lane
from dovetail.gpu.launcher import TYPES, Launcher, launcher_here
from dovetail.gpu.memory import planned
from dovetail.gpu.remembered import for_gpu
from dovetail.gpu.tuning import IN_PLACE_S, Options, Tuner, captured, chosen, launch_all
from dovetail.ir import Array, Graph
from dovetail.kernels.calls import Call, Lowered
from dovetail.kernels.estimator import FITTED_ON, Config
from dovetail.kernels.items import TensorLayout
from dovetail.kernels.layers import STORED_OFFSET
from dovetail.kernels.lower import lower
from dovetail.platform.gpu_specification import Gpu, matching, specification
from dovetail.words import counted


@dataclass(slots=True, eq=False)
class Compiled:
    """A network ready to run; call it with the model's own arrays."""

    graph: Graph
    lowered: Lowered
    launcher: Launcher
    calls: tuple[tuple[Call, Config], ...]
    replay: Callable[[], None] = lambda: None
    lanes: tuple[GpuLane, ...] = ()

    @property
    def images(self) -> int:
        """The batch the network was compiled for."""
        return next(iter(self.lowered.inputs.values())).images

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Results of frames, in batches of the size the network was compiled for."""
        given, found = frames_of(self.graph, inputs), dict[str, list[Array]]()
        count, waiting = len(next(iter(given.values()))), deque[GpuLane]()
        for lane, start in zip(cycle(self.lanes), range(0, count, self.images), strict=False):
            if len(waiting) == len(self.lanes):
                self.collect(waiting.popleft(), found)
            lane.submit({name: self.typed(name, frames[start:start + self.images]) for name, frames in given.items()})
            waiting.append(lane)
        for lane in waiting:
            self.collect(lane, found)
        return {name: np.concatenate(parts)[:count] for name, parts in found.items()}

    def collect(self, lane: GpuLane, found: dict[str, list[Array]]) -> None:
        """Put what a lane made behind what was found before."""
        for name, values in lane.results(self.graph).items():
            found.setdefault(name, []).append(values)

    def typed(self, name: str, frames: Array) -> Array:
        """Frames in the type in which they travel."""
        scheme = self.graph.tensors[name].scheme
        return frames.astype(np.float32 if scheme is None else scheme.dtype, copy=False)

    def load(self, name: str, frames: Array, place: TensorLayout) -> None:
        """Put frames (images x channels x rows x columns) where the first kernel reads them, by planes or by pixels."""
        scheme = self.graph.tensors[name].scheme
        values = frames if scheme is None else frames.astype(np.int16) - (0 if scheme.signed else STORED_OFFSET)
        laid_out = values if place.planar or values.ndim == 2 else values.transpose(0, 2, 3, 1)
        tensor = torch.from_numpy(np.ascontiguousarray(laid_out).reshape(-1))
        self.launcher.place(place)[:tensor.numel()].copy_(tensor.to(TYPES[self.lowered.kind]))

def frames_of(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """A model's inputs as arrays, frames first; UsageError names what is missing or of another form, since kernels would not."""
    if not isinstance(inputs, Mapping) or not set(graph.inputs) <= set(inputs):
        given = f"{', '.join(inputs) or 'none'} given" if isinstance(inputs, Mapping) else f"a {type(inputs).__name__} given"
        raise UsageError(f"inputs of {graph.name}: {given}; give an array for each of {', '.join(graph.inputs)}, by name")
    found = {name: np.asarray(inputs[name]) for name in graph.inputs}
    for name, array in found.items():
        own, scheme = graph.shape(name)[1:], graph.tensors[name].scheme
        if array.shape[1:] != own or not len(array):
            raise UsageError(f"input {name}: shape {list(array.shape)}; one or more frames of {list(own)} are needed, "
                             f"so [frames, {', '.join(map(str, own))}]")
        if array.dtype.kind not in ("iu" if scheme is not None else "fiub"):
            raise UsageError(f"input {name}: elements are {array.dtype}; "
                             f"{'numbers' if scheme is None else 'integers, as ' + scheme.dtype.name + ','} are needed")
    if len({len(array) for array in found.values()}) > 1:
        counts = ", ".join(f"{name} has {counted(len(array), 'frame')}" for name, array in found.items())
        raise UsageError(f"inputs of {graph.name}: {counts}; give as many of each")
    return found


def gpu_here() -> Gpu:
    """The specification of this machine's GPU, or of the one estimates were fitted on where it has none."""
    here = None if triton.knobs.runtime.interpret else matching(torch.cuda.get_device_name())
    return here or specification(FITTED_ON)


def options_of(lowered: Lowered) -> Options:
    """Of every run of a network, the kernels that could compute its layers."""
    return [[(0, 0, run)] if isinstance(run, Call) else list(lowered.options(run)) for run in lowered.runs]


def compile_graph(graph: Graph, kind: str = "float16", images: int = 1,
                  in_place_s: float = IN_PLACE_S) -> Compiled:
    """A float graph in float16, float32 or tf32, or a quantized graph in int8, for batches of `images`.

    `in_place_s`: seconds that choosing kernels anew inside the network may take, where nothing is remembered of it; where
    compiling and timing took long, up to two thirds less.
    """
    if kind not in TYPES:
        raise UsageError(f"arithmetic {kind}: unknown; possible: {', '.join(TYPES)}")
    if isinstance(images, bool) or not isinstance(images, int | np.integer) or images < 1:
        raise UsageError(f"images {images!r}: a batch is a whole number from 1 on")
    launcher, lowered = launcher_here(kind), lower(graph, kind, gpu_here(), images)
    timing = launcher.device == "cuda"
    known = for_gpu(torch.cuda.get_device_name(), (triton.__version__, torch.__version__)) if timing else None
    parts = chosen(options_of(lowered), Tuner(launcher, timing, known, in_place_s))
    if none := [p.call for p in parts if p.seconds == float("inf")]:
        raise UnsupportedError(f"node {none[0].nodes[0]}: none of its kernels runs on this GPU; such parts run in the integer "
                               "interpreter")
    memory = planned([p.call for p in parts], [*lowered.inputs.values(), *lowered.outputs.values()])
    launcher.share_memory(memory)
    launches = [launcher.bound(part.call, part.config) for part in parts]
    lanes = [open_lane(graph, lowered, launcher, launches)]
    if timing:
        beside = replace(launcher, buffers={})
        beside.share_memory(memory)
        lanes.append(open_lane(graph, lowered, beside, [beside.bound(part.call, part.config) for part in parts]))
    return Compiled(graph, lowered, launcher, tuple((p.call, p.config) for p in parts),
                    captured(launches) if timing else lambda: launch_all(launches), tuple(lanes))
