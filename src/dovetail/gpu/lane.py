"""Frames to a network on a GPU and back: pinned memory, copies and one CUDA graph on a stream of their own.

Frames travel as the model has them. The graph copies them between pinned memory and the GPU, and changes their layout there,
before its first kernel and behind its last one. So the host copies to pinned memory and back, and starts one graph per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from dovetail.gpu.launcher import Launcher
from dovetail.gpu.tuning import captured, launch_all
from dovetail.ir import Array, Graph, Tensor
from dovetail.kernels.calls import Lowered
from dovetail.kernels.items import TensorLayout

FIRST_BIT = -128
"""As a signed byte; changing it takes 128 (`kernels.layers.STORED_OFFSET`) from an unsigned one, or adds it."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output as the model has it, in pinned memory and on the GPU, and where kernels read or write it."""

    host: Any
    device: Any
    laid_out: Any
    flipped: bool
    """Whether kernels have unsigned bytes less 128: those with another first bit."""

    def enter(self) -> None:
        self.device.copy_(self.host, non_blocking=True)
        self.change(self.device, self.laid_out)

    def leave(self) -> None:
        self.change(self.laid_out, self.device)
        self.host.copy_(self.device, non_blocking=True)

    def change(self, source: Any, target: Any) -> None:
        if self.flipped:
            torch.bitwise_xor(source.view(torch.int8), FIRST_BIT, out=target.view(torch.int8))
        else:
            target.copy_(source)


@dataclass(slots=True, eq=False)
class GpuLane:
    """A batch on its way through a network; with several lanes, copies of one batch overlap with kernels of another."""

    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    replay: Callable[[], None]
    stream: Any = None
    done: Any = None

    def submit(self, frames: Mapping[str, Array]) -> None:
        """Begin with a batch; where frames are too few, the last one fills it up.

        NumPy copies in this thread. Torch divides copies of more than 32,768 elements among threads and waits for all: for
        milliseconds where others hold the cores, as threads of ONNX Runtime do (`docs/method/execution.md`).
        """
        for name, port in self.inputs.items():
            held = port.host.numpy()
            given = frames[name].reshape(-1, *held.shape[1:])
            held[:len(given)], held[len(given):] = given, given[-1]
        with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
            self.replay()
            if self.done is not None:
                self.done.record(self.stream)

    def results(self, graph: Graph) -> dict[str, Array]:
        """What became of the batch, once it is done; copies, since the next batch comes to the same place."""
        if self.done is not None:
            self.done.synchronize()
        return {name: port.host.numpy().reshape(len(port.host), *graph.shape(name)[1:]).copy()
                for name, port in self.outputs.items()}


def open_lane(graph: Graph, lowered: Lowered, launcher: Launcher, launches: Sequence[Callable[[], object]]) -> GpuLane:
    """A lane through kernels that are bound to the launcher's buffers."""
    inputs, outputs = ({name: _port(graph.tensors[name], place, launcher) for name, place in places.items()}
                       for places in (lowered.inputs, lowered.outputs))
    steps = [*(p.enter for p in inputs.values()), *launches, *(p.leave for p in outputs.values())]
    if launcher.device == "cpu":
        return GpuLane(inputs, outputs, partial(launch_all, steps))
    return GpuLane(inputs, outputs, captured(steps), torch.cuda.Stream(), torch.cuda.Event())


def _port(tensor: Tensor, place: TensorLayout, launcher: Launcher) -> Port:
    """Memory of a tensor: maps of channels, rows and columns, in the model's own type; floats travel in 32 bits."""
    maps, kind = (place.images, place.channels, place.height, place.width), torch.float32
    if tensor.scheme is not None:
        kind = getattr(torch, tensor.scheme.dtype.name)
    images, rows, columns, channels = place.strides
    buffer = launcher.place(place)
    laid_out = buffer.as_strided(maps, (images, channels, rows, columns), buffer.storage_offset())
    return Port(torch.zeros(maps, dtype=kind, pin_memory=launcher.device != "cpu"),
                torch.zeros(maps, dtype=kind, device=launcher.device), laid_out,
                tensor.scheme is not None and not tensor.scheme.signed)
