"""CPU parts: an ONNX sub-model for ONNX Runtime, or exact integers in NumPy where float32 is not provably exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import BuildError
from dovetail.ir import Array, Graph
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.ranges import Range, float32_exact, stored_ranges
from dovetail.numerics.reference import fixes_batch, frame_by_frame, run_integer


def inexact_node(graph: Graph, known: Mapping[str, Range] | None = None) -> str | None:
    """The first node whose float32 sums may exceed 2**24, or None: then ONNX Runtime is bit-exact."""
    ranges = stored_ranges(graph, known)
    return next((n.name for n in graph.nodes if not float32_exact(graph, n, ranges)), None)


@dataclass(frozen=True, slots=True)
class CpuPart:
    """A segment ready to run on the CPU; `content` is its ONNX file, None for the exact integer interpreter."""

    graph: Graph
    content: bytes | None
    inexact: str | None = None

    @property
    def backend(self) -> str:
        return "onnxruntime" if self.content is not None else "numpy"

    @property
    def note(self) -> str:
        if self.content is not None:
            return "ONNX Runtime, graph optimisations off; float32 proven exact for this part"
        return f"exact integers in NumPy: float32 sums of {self.inexact} could exceed 2**24"

    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]:
        if self.content is None:
            return run_integer(self.graph, inputs)
        if fixes_batch(self.graph) or any(self.graph.shape(name)[:1] > (1,) for name in self.graph.inputs):
            content = self.content
            return frame_by_frame(self.graph, inputs, lambda one: run_onnx(content, one))
        return run_onnx(self.content, inputs)


def load_part(graph: Graph, folder: Path, known: Mapping[str, Range] | None = None) -> CpuPart:
    """The stored segment; what runs is the file, not the graph it was made from. `known` bounds its inputs."""
    path = folder / f"{graph.name}.onnx"
    if not path.is_file():
        raise BuildError(f"{path}: missing; the build is incomplete, run `dovetail compile` again")
    inexact = inexact_node(graph, known)
    return CpuPart(graph, None if inexact else path.read_bytes(), inexact)
