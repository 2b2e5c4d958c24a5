"""Compiled networks on a GPU: kernels chosen by timing, tensors in one piece of memory, everything one CUDA graph.

`compile_graph` runs wherever PyTorch and Triton do; under Triton's interpreter (TRITON_INTERPRET=1) on the CPU, without timing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import triton

from dovetail.errors import UnsupportedError, UsageError
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

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Results of frames, in batches of the size the network was compiled for."""
        images = next(iter(self.lowered.inputs.values())).images
        given, found = frames_of(self.graph, inputs), dict[str, list[Array]]()
        count = len(next(iter(given.values())))
        for start in range(0, count, images):
            for name, place in self.lowered.inputs.items():
                frames = given[name][start:start + images]
                filled = np.concatenate([frames, *[frames[-1:]] * (images - len(frames))])  # the last frame fills up a batch
                self.load(name, filled, place)
            self.replay()
            for name, place in self.lowered.outputs.items():
                found.setdefault(name, []).append(self.stored(name, place)[:count - start])
        return {name: np.concatenate(parts) for name, parts in found.items()}

    def load(self, name: str, frames: Array, place: TensorLayout) -> None:
        """Put frames (images x channels x rows x columns) where the first kernel reads them, by planes or by pixels."""
        scheme = self.graph.tensors[name].scheme
        values = frames if scheme is None else frames.astype(np.int16) - (0 if scheme.signed else STORED_OFFSET)
        laid_out = values if place.planar or values.ndim == 2 else values.transpose(0, 2, 3, 1)
        tensor = torch.from_numpy(np.ascontiguousarray(laid_out).reshape(-1))
        self.launcher.place(place)[:tensor.numel()].copy_(tensor.to(TYPES[self.lowered.kind]))

    def stored(self, name: str, place: TensorLayout) -> Array:
        """An output as the model has it."""
        flat = self.launcher.buffers[place.buffer].cpu().float().numpy()
        maps = flat[:place.pixels * place.pitch].reshape(place.images, place.height, place.width, place.pitch)
        own = maps[..., place.offset:place.offset + place.channels].transpose(0, 3, 1, 2)
        tensor = self.graph.tensors[name]
        shaped = own.reshape(place.images, *tensor.shape[1:])
        if tensor.scheme is None:
            return np.array(shaped, dtype=np.float32)  # a copy: the next frames come to the same place
        values: Array = (shaped + (0 if tensor.scheme.signed else STORED_OFFSET)).astype(tensor.scheme.dtype)
        return values


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
    launcher.share_memory(planned([p.call for p in parts], [*lowered.inputs.values(), *lowered.outputs.values()]))
    launches = [launcher.bound(part.call, part.config) for part in parts]
    made = Compiled(graph, lowered, launcher, tuple((p.call, p.config) for p in parts))
    made.replay = captured(launches) if timing else lambda: launch_all(launches)
    return made
