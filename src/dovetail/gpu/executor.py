"""Compiled networks on a GPU: kernels chosen by timing, tensors in one piece of memory, everything one CUDA graph.

`compile_graph` runs wherever PyTorch and Triton do; under Triton's interpreter (TRITON_INTERPRET=1) on the CPU, without timing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
import triton

from dovetail.errors import UnsupportedError, UsageError
from dovetail.gpu.memory import Memory, planned
from dovetail.gpu.precompile import ALIGNED, KERNELS, UNALIGNED, Job
from dovetail.gpu.remembered import for_gpu
from dovetail.gpu.tuning import IN_PLACE_S, Options, Tuner, captured, chosen, launch_all
from dovetail.ir import Array, Graph
from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import FITTED_ON, Config
from dovetail.kernels.layers import STORED_OFFSET
from dovetail.kernels.lower import lower
from dovetail.kernels.options import Lowered
from dovetail.kernels.place import Place
from dovetail.platform.gpu_specification import Gpu, matching, specification
from dovetail.words import counted

TYPES = {"float16": torch.float16, "float32": torch.float32, "tf32": torch.float32, "int8": torch.int8}
PDL_CAPABILITY = (9, 0)
"""First compute capability with programmatic dependent launches."""


SHARED_CARVEOUT, SHARED_PERCENT, HELD_PERCENT = 9, 25, {"bridged": 100}
"""CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, and the percentage preferred; a kernel that needs more gets more.

Kernels that hold weights there follow each other, and the next one's have to find room beside this one's."""

OWN_CACHES = ("walked", "walked_bytes")
"""Kernels that last long enough to have the first-level cache divided as suits them: several of their programs fit only then."""


@cache
def cuda_driver() -> ctypes.CDLL:
    """The CUDA driver, which PyTorch has loaded already."""
    return ctypes.CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")


@dataclass(slots=True, eq=False)
class Launcher:
    """Kernels, constants and buffers of one network on one device."""

    kind: str
    device: str
    pdl: bool
    buffers: dict[str, Any] = field(default_factory=dict)
    arrays: dict[int, tuple[Array, Any]] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)

    def constant(self, array: Array) -> Any:
        """A constant array on the device, in the type its kernel multiplies in."""
        known = self.arrays.get(id(array))
        if known is None:
            values = array if array.dtype.kind == "i" else array.astype(np.float32)
            tensor = torch.from_numpy(np.ascontiguousarray(values)).to(self.device).to(self.element(array))
            known = self.arrays[id(array)] = (array, tensor)
        return known[1]

    def element(self, operand: Place | Array) -> torch.dtype:
        """The type of an operand's elements: weights in that of activations, what is added to sums in float32."""
        if isinstance(operand, Place):
            return TYPES[self.kind]
        if operand.dtype.kind == "i" or operand.dtype == np.float16:
            own: torch.dtype = getattr(torch, operand.dtype.name)
            return own
        return TYPES[self.kind] if operand.ndim > 1 else torch.float32

    def place(self, at: Place) -> Any:
        """The first element of a place."""
        if at.buffer not in self.buffers:
            self.buffers[at.buffer] = torch.zeros(at.pixels * at.pitch, device=self.device, dtype=TYPES[self.kind])
        return self.buffers[at.buffer][at.offset:]

    def share_memory(self, memory: Memory) -> None:
        """Put all buffers into one piece of memory, in the place of those that tuning used."""
        self.buffers.clear()
        whole = torch.zeros(max(memory.elements, 1), device=self.device, dtype=TYPES[self.kind])
        self.buffers |= {name: whole[at:at + memory.sizes[name]] for name, at in memory.offsets.items()}

    def described(self, call: Call, config: Config) -> Job:
        """What compiling a launch needs to know; nothing is put on the device."""
        kinds = list[str | int]()
        for operand in call.operands:
            if isinstance(operand, int):
                kinds.append(operand)
                continue
            element = self.element(operand)
            inside = isinstance(operand, Place) and operand.offset * element.itemsize % ALIGNED > 0
            kinds.append(str(element).removeprefix("torch.") + UNALIGNED * inside)
        return Job(call.kernel, tuple(kinds), dict(call.constants), dict(config), self.pdl)

    def operands(self, call: Call) -> list[Any]:
        """A call's operands on the device; numbers stay numbers."""
        return [self.place(o) if isinstance(o, Place) else self.constant(o) if isinstance(o, np.ndarray) else o
                for o in call.operands]

    def options(self, config: Config) -> dict[str, int | bool]:
        """What a launch says beside operands and constants."""
        options: dict[str, int | bool] = dict(config)
        if self.pdl:
            options["launch_pdl"] = True
        if self.device == "cpu":
            options = {k: v for k, v in options.items() if k not in ("num_warps", "num_stages")}
        return options | {"PDL": self.pdl}

    def loaded(self, call: Call, config: Config) -> Any:
        """The compiled kernel of a launch, on the device but not launched: what it takes there is known then."""
        made = KERNELS[call.kernel].warmup(*self.operands(call), grid=call.grid(config), **call.constants, **self.options(config))
        _ = made.run  # looking at it loads it
        return made

    def bound(self, call: Call, config: Config) -> Callable[[], Any]:
        """A launch with all its arguments; it returns the compiled kernel, where there is one."""
        kernel, grid, operands, options = KERNELS[call.kernel], call.grid(config), self.operands(call), self.options(config)

        def launch() -> Any:
            made = kernel[grid](*operands, **call.constants, **options)
            if self.device != "cpu" and call.kernel not in OWN_CACHES:
                self.share_caches(made.function, HELD_PERCENT.get(call.kernel, SHARED_PERCENT))
            return made
        return launch

    def share_caches(self, function: int, percent: int) -> None:
        """Let a kernel divide the first-level cache as all others do: a change makes a multiprocessor run empty first."""
        if function not in self.shared:
            cuda_driver().cuFuncSetAttribute(ctypes.c_void_p(function), SHARED_CARVEOUT, percent)
            self.shared.add(function)


@dataclass(slots=True, eq=False)
class Compiled:
    """A network ready to run; call it with the model's own arrays."""

    graph: Graph
    lowered: Lowered
    launcher: Launcher
    calls: tuple[tuple[Call, Config], ...]
    times_s: tuple[float, ...]
    """Of every call, as timed; empty where nothing was timed."""
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

    def load(self, name: str, frames: Array, place: Place) -> None:
        """Put frames (images x channels x rows x columns) where the first kernel reads them, by planes or by pixels."""
        scheme = self.graph.tensors[name].scheme
        values = frames if scheme is None else frames.astype(np.int16) - (0 if scheme.signed else STORED_OFFSET)
        laid_out = values if place.planar or values.ndim == 2 else values.transpose(0, 2, 3, 1)
        tensor = torch.from_numpy(np.ascontiguousarray(laid_out).reshape(-1))
        self.launcher.place(place)[:tensor.numel()].copy_(tensor.to(TYPES[self.lowered.kind]))

    def stored(self, name: str, place: Place) -> Array:
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


def launcher_here(kind: str) -> Launcher:
    """A launcher for this machine: its GPU, or the CPU under Triton's interpreter."""
    if triton.knobs.runtime.interpret:
        return Launcher(kind, "cpu", pdl=False)
    if not torch.cuda.is_available():
        raise UsageError("GPU: PyTorch finds no CUDA device; set TRITON_INTERPRET=1 to run kernels on the CPU (slowly)")
    return Launcher(kind, "cuda", torch.cuda.get_device_capability() >= PDL_CAPABILITY)


def gpu_here() -> Gpu:
    """The specification of this machine's GPU, or of the one estimates were fitted on where it has none."""
    here = None if triton.knobs.runtime.interpret else matching(torch.cuda.get_device_name())
    return here or specification(FITTED_ON)


def options_of(lowered: Lowered) -> Options:
    """Of every run of a network, the kernels that could compute its layers."""
    return [[(0, 0, run)] if isinstance(run, Call) else list(lowered.options(run)) for run in lowered.runs]


def compile_graph(graph: Graph, kind: str = "float16", images: int = 1, gpu: Gpu | None = None,
                  in_place_s: float = IN_PLACE_S) -> Compiled:
    """A float graph in float16, float32 or tf32, or a quantized graph in int8, for batches of `images`.

    `gpu` is what estimates assume; else the GPU at hand, or the one they were fitted on where that has no specification.
    `in_place_s`: seconds that choosing kernels anew inside the network may take, where nothing is remembered of it; where
    compiling and timing took long, up to two thirds less.
    """
    if kind not in TYPES:
        raise UsageError(f"arithmetic {kind}: unknown; possible: {', '.join(TYPES)}")
    if isinstance(images, bool) or not isinstance(images, int | np.integer) or images < 1:
        raise UsageError(f"images {images!r}: a batch is a whole number from 1 on")
    launcher, lowered = launcher_here(kind), lower(graph, kind, gpu or gpu_here(), images)
    timing = launcher.device == "cuda"
    known = for_gpu(torch.cuda.get_device_name(), (triton.__version__, torch.__version__)) if timing else None
    parts = chosen(options_of(lowered), Tuner(launcher, timing, known, in_place_s))
    if none := [p.call for p in parts if p.seconds == float("inf")]:
        raise UnsupportedError(f"node {none[0].nodes[0]}: none of its kernels runs on this GPU; such parts run in the integer "
                               "interpreter")
    launcher.share_memory(planned([p.call for p in parts], [*lowered.inputs.values(), *lowered.outputs.values()]))
    launches = [launcher.bound(part.call, part.config) for part in parts]
    made = Compiled(graph, lowered, launcher, tuple((p.call, p.config) for p in parts), tuple(p.seconds for p in parts))
    made.replay = captured(launches) if timing else lambda: launch_all(launches)
    return made
