"""GPU parts of a plan: kernels where a GPU is at hand, the integer reference elsewhere, and the reason said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.gpu.emulation import EmulatedGpuPart
from dovetail.ir import Array, Graph
from dovetail.kernels.layers import byte_scheme
from dovetail.numerics.reference import run_integer


class Runnable(Protocol):
    """A compiled network."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]: ...


@dataclass(frozen=True, slots=True)
class GpuPart:
    """A segment computed by Triton kernels, in the integers of the quantized graph."""

    network: Runnable
    backend: str = "cuda"
    note: str = ""

    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]:
        return self.network.run(inputs)


def load_part(graph: Graph) -> GpuPart | EmulatedGpuPart:
    """The part on this machine's GPU, if PyTorch, Triton and a GPU are here and every operator has a kernel; else emulated."""
    if find_spec("torch") is None or find_spec("triton") is None:
        return EmulatedGpuPart(graph)
    import torch  # here, so that other machines need no PyTorch

    from dovetail.gpu.executor import compile_graph
    if not torch.cuda.is_available():
        return EmulatedGpuPart(graph)
    try:
        network = compile_graph(graph, "int8")
    except UnsupportedError as reason:
        return _emulated(graph, str(reason))
    wrong = first_difference(graph, network)
    return GpuPart(network) if wrong is None else _emulated(graph, wrong)


def _emulated(graph: Graph, reason: str) -> EmulatedGpuPart:
    return EmulatedGpuPart(graph, note=f"GPU part emulated on the CPU by the integer reference ({reason}); "
                                       "its time is the plan's estimate, not a measurement")


def first_difference(graph: Graph, network: Runnable) -> str | None:
    """Where kernels and the integer reference disagree on a frame of noise: kernels are trusted on no GPU before that."""
    rng, frame = np.random.default_rng(0), {}
    for name in graph.inputs:
        scheme = byte_scheme(graph, name)
        frame[name] = rng.integers(scheme.lo, scheme.hi + 1, (1, *graph.shape(name)[1:])).astype(scheme.dtype)
    found = network.run(frame)
    for name, wanted in run_integer(graph, frame).items():
        bad = np.argwhere(found[name] != wanted)
        if len(bad):
            at = tuple(int(i) for i in bad[0])
            return f"tensor {name}{list(at)}: kernels give {found[name][at]} where {wanted[at]} is right"
    return None
