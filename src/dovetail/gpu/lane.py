"""Frames to a network on a GPU and back: pinned memory, copies and one CUDA graph on a stream of their own.

Frames travel as the model has them. The graph copies them between pinned memory and the GPU, and changes their layout there,
before its first kernel and behind its last one. So the host copies to pinned memory and back, and starts one graph per batch.
Tensors that are on the GPU already stay there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from dovetail.gpu.launcher import Launcher, precise
from dovetail.gpu.library.joined import PartChoice
from dovetail.gpu.library.nodes import LibraryNode
from dovetail.gpu.library.part import FIRST_BIT, LibraryLaunch, seen_as_maps
from dovetail.gpu.tuning import ChosenKernel, captured, launch_all
from dovetail.ir import Array, Graph, Node, Scheme, Tensor
from dovetail.kernels.calls import LibraryPart, Lowered


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output as the model has it, in pinned memory and on the GPU, and where kernels read or write it.

    `quantizes`: frames come as real numbers and become integers of the scheme.
    """

    host: Any
    device: Any
    laid_out: Callable[[], Any]
    scheme: Scheme | None
    quantizes: bool = False

    def enter(self) -> None:
        self.device.copy_(self.host, non_blocking=True)

    def arrive(self) -> None:
        """Put what is on the GPU where kernels read it."""
        self.change(self.integers() if self.quantizes else self.device, self.laid_out())

    def depart(self) -> None:
        self.change(self.laid_out(), self.device)

    def leave(self) -> None:
        self.host.copy_(self.device, non_blocking=True)

    def integers(self) -> Any:
        """Frames as integers of the scheme, rounded to even as the reference does."""
        assert self.scheme is not None
        given = self.device if self.scheme.mantissas else self.device.double()
        codes = torch.round((given / torch.full_like(given, self.scheme.scale)).double()) + self.scheme.zero
        return torch.clamp(codes, self.scheme.lo, self.scheme.hi).to(getattr(torch, self.scheme.dtype.name))

    def change(self, source: Any, target: Any) -> None:
        """Copy; kernels have unsigned bytes less 128: those with another first bit."""
        if self.scheme is None or self.scheme.signed:
            target.copy_(source.reshape(target.shape))
        elif source.shape == target.shape:
            torch.bitwise_xor(source.view(torch.int8), FIRST_BIT, out=target.view(torch.int8))
        else:
            target.view(torch.int8).copy_(torch.bitwise_xor(source.view(torch.int8), FIRST_BIT).reshape(target.shape))


@dataclass(slots=True, eq=False)
class GpuLane:
    """A batch on its way through a network; with several lanes, copies of one batch overlap with kernels of another."""

    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    replay: Callable[[], None]
    kept: Any = None
    """What the CUDA graph reads and writes: its memory must not go before it does."""
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
            held[:len(given)] = given
            if len(given) < len(held):
                held[len(given):] = given[-1]
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

    def pass_through(self, frames: Mapping[str, Any], graph: Graph) -> dict[str, Any]:
        """What becomes of tensors on the GPU, in order with what else the caller's stream does; where frames are too few, others
        are what was there before."""
        for name, port in self.inputs.items():
            held = port.device
            given = frames[name].reshape(-1, *held.shape[1:])
            held[:len(given)].copy_(given)
        self.replay()
        return {name: port.device.reshape(len(port.device), *graph.shape(name)[1:]).clone()
                for name, port in self.outputs.items()}


@dataclass(frozen=True, slots=True, eq=False)
class GpuProgram:
    """A network in its order: kernels as chosen, and parts for the library."""

    graph: Graph
    lowered: Lowered
    steps: tuple[ChosenKernel | LibraryPart, ...]
    functions: Mapping[str, Any] = field(default_factory=dict)
    """What computes nodes that come from PyTorch."""
    avoided: frozenset[str] = frozenset()
    """Nodes whose kernels do not run here."""
    made: dict[str, LibraryNode] = field(default_factory=dict)
    """Nodes of the library, whose constants all lanes share."""
    choose: Callable[[LibraryLaunch], PartChoice] = lambda launch: PartChoice()
    """How a part of the library is computed; asked once of each, behind those before it."""
    choices: dict[str, PartChoice] = field(default_factory=dict)
    """By a part's first node."""

    @property
    def batches(self) -> int:
        """How many batches of the model's own size are computed at once."""
        return max(1, self.lowered.images // (self.graph.shape(self.graph.inputs[0])[:1] or (1,))[0])

    def launches(self, launcher: Launcher, held: dict[str, Any]) -> list[Callable[[], Any]]:
        """Everything bound to a launcher's buffers; `held` are tensors beside those."""
        return [LibraryLaunch(self.graph, step, self.views(step, launcher), self.batches,
                              [self.library_node(node, launcher) for node in step.nodes], held)
                if isinstance(step, LibraryPart) else launcher.bound(step.call, step.config) for step in self.steps]

    def library_node(self, node: Node, launcher: Launcher) -> LibraryNode:
        if node.name not in self.made:
            self.made[node.name] = LibraryNode(self.graph, node, launcher.real, launcher.device, self.functions.get(node.name))
        return self.made[node.name]

    def chosen(self, launch: LibraryLaunch) -> PartChoice:
        first = launch.part.nodes[0].name
        if first not in self.choices:
            self.choices[first] = self.choose(launch)
        return self.choices[first]

    def views(self, part: LibraryPart, launcher: Launcher) -> dict[str, Any]:
        return {name: seen_as_maps(launcher.place(place), place, len(self.graph.shape(name)))
                for places in (part.reads, part.writes) for name, place in places.items()}

    def rows(self, name: str) -> int:
        """Of an input or output, how many rows all images have."""
        place = self.lowered.inputs.get(name) or self.lowered.outputs.get(name)
        return place.images if place is not None else self.batches * (self.graph.shape(name)[:1] or (1,))[0]


def open_lane(program: GpuProgram, launcher: Launcher, on_device: bool = False, quantizes: bool = False,
              moves: bool = True) -> GpuLane:
    """A lane through a network: from pinned memory and back, or from the GPU and back; of real numbers, where it `quantizes`.

    Without `moves`, inputs and outputs stay as kernels have them.
    """
    graph, held = program.graph, dict[str, Any]()
    launches = program.launches(launcher, held)
    travelling = launcher.real if on_device else torch.float32
    inputs = {name: _port(program, graph.tensors[name], launcher, held, travelling, quantizes) for name in graph.inputs}
    outputs = {name: _port(program, graph.tensors[name], launcher, held, travelling) for name in graph.outputs}

    def hold(name: str, port: Port) -> None:
        given = port.integers() if port.quantizes else port.device
        typed = given.to(launcher.real) if given.is_floating_point() else given
        held[name] = _in_batches(typed, program, name)

    arriving = [p.arrive if name in program.lowered.inputs else partial(hold, name, p) for name, p in inputs.items()]
    for arrive in arriving:
        arrive()
    steps: list[Callable[[], Any]] = [*arriving, *launches, *(p.depart for p in outputs.values())] if moves else launches
    if not on_device:
        steps = [*(p.enter for p in inputs.values()), *steps, *(p.leave for p in outputs.values())]
    run, kept = partial(precise, launcher.kind, partial(launch_all, steps)), (launches, held, launcher)
    if launcher.device == "cpu":
        return GpuLane(inputs, outputs, run, kept)
    side = (None, None) if on_device else (torch.cuda.Stream(), torch.cuda.Event())
    precise(launcher.kind, partial(_begun, program, launches))
    if any(isinstance(each, LibraryLaunch) and each.leaves_gpu for each in launches):
        return GpuLane(inputs, outputs, run, kept, *side)  # what the host computes is no part of a CUDA graph
    replay = captured([run])
    replay()  # the first one is slow: the driver loads the graph
    torch.cuda.synchronize()
    return GpuLane(inputs, outputs, replay, kept, *side)


def _begun(program: GpuProgram, launches: Sequence[Callable[[], Any]]) -> None:
    """Everything once, in order, with parts of the library in the form that is chosen for them."""
    for each in launches:
        if isinstance(each, LibraryLaunch):
            each.joined = program.chosen(each).function
        each()


def _in_batches(tensor: Any, program: GpuProgram, name: str) -> Any:
    shape = program.graph.shape(name)
    return tensor.reshape(program.batches, *shape) if program.batches > 1 or not shape else tensor


def _port(program: GpuProgram, tensor: Tensor, launcher: Launcher, held: dict[str, Any], floats: Any,
          quantizes: bool = False) -> Port:
    """Memory of a tensor: as the model has it, in the model's own type; floats travel as stated."""
    lowered, name, real = program.lowered, tensor.name, quantizes and tensor.scheme is not None
    place = lowered.inputs.get(name) or lowered.outputs.get(name)
    kind = torch.float32 if real else floats if tensor.dtype.kind == "f" else getattr(torch, tensor.dtype.name)
    shape = (program.rows(name), *tensor.shape[1:])
    device = torch.zeros(shape, dtype=kind, device=launcher.device)
    host = torch.zeros(shape, dtype=kind, pin_memory=launcher.device != "cpu")
    if place is None:
        return Port(host, device, lambda: held[name], tensor.scheme if real else None, real)
    laid_out = seen_as_maps(launcher.place(place), place, len(tensor.shape))
    return Port(host, device, lambda: laid_out, tensor.scheme, real)
