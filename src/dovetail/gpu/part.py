"""GPU parts of a plan: kernels where PyTorch, Triton and a GPU are at hand, ONNX Runtime on CUDA where it is the one that reaches
the GPU (older Jetsons), the integer reference elsewhere, and the reason said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir import Array, Graph
from dovetail.kernels.layers import byte_scheme
from dovetail.numerics.oracle import has_cuda
from dovetail.numerics.ranges import Range
from dovetail.numerics.reference import run_integer
from dovetail.numerics.submodel import inexact_sums, stored_submodel

Compute = Callable[[Mapping[str, Array]], dict[str, Array]]
"""What a network makes of frames."""


@dataclass(frozen=True, slots=True)
class GpuPart:
    """A segment planned for a GPU, in the integers of the quantized graph, and who computes it here."""

    compute: Compute
    backend: str
    note: str

    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]:
        return self.compute(inputs)


def load_part(graph: Graph, folder: Path | None = None, known: Mapping[str, Range] | None = None) -> GpuPart:
    """The part on this machine's GPU, by kernels or by its ONNX file in `folder`, if either gives the reference's integers.

    Else emulated. `known` bounds its inputs.
    """
    reason = None
    if find_spec("torch") is not None and find_spec("triton") is not None:
        import torch  # here, so that other machines need no PyTorch

        from dovetail.gpu.executor import compile_graph
        if torch.cuda.is_available():
            try:
                network = compile_graph(graph, "int8", library=False)
                reason = first_difference(graph, network.run)
                if reason is None:
                    return GpuPart(network.run, "cuda", "")
            except UnsupportedError as unsupported:
                reason = str(unsupported)
    if folder is not None and has_cuda():
        part = onnx_part(graph, folder, known)
        if isinstance(part, GpuPart):
            return part
        reason = part if reason is None else f"{reason}; {part}"
    why = "" if reason is None else f" ({reason})"
    return GpuPart(partial(run_integer, graph), "emulated", f"GPU part emulated on the CPU by the integer reference{why}; "
                                                            "its time is the plan's estimate, not a measurement")


def onnx_part(graph: Graph, folder: Path, known: Mapping[str, Range] | None = None) -> GpuPart | str:
    """The stored ONNX file on ONNX Runtime's CUDA provider, or why not: float32 must be exact, and a frame of noise agree."""
    network, inexact = stored_submodel(graph, folder, cuda=True), inexact_sums(graph, known)
    if inexact is not None:
        return inexact
    try:
        wrong = first_difference(graph, network.run)
    except (UnsupportedError, ModelError) as reason:
        return str(reason)
    return wrong or GpuPart(network.run, "onnxruntime on cuda", "ONNX Runtime on CUDA; float32 proven exact for this part")


def first_difference(graph: Graph, compute: Compute) -> str | None:
    """Where kernels and the integer reference disagree on a frame of noise: kernels are trusted on no GPU before that."""
    rng, frame = np.random.default_rng(0), {}
    for name in graph.inputs:
        scheme = byte_scheme(graph, name)
        frame[name] = rng.integers(scheme.lo, scheme.hi + 1, (1, *graph.shape(name)[1:])).astype(scheme.dtype)
    found = compute(frame)
    for name, wanted in run_integer(graph, frame).items():
        bad = np.argwhere(found[name] != wanted)
        if len(bad):
            at = tuple(int(i) for i in bad[0])
            return f"tensor {name}{list(at)}: kernels give {found[name][at]} where {wanted[at]} is right"
    return None
