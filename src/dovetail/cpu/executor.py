"""CPU parts: an ONNX sub-model for ONNX Runtime, or exact integers in NumPy where float32 is not provably exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.ir import Array, Graph
from dovetail.numerics.ranges import Range
from dovetail.numerics.reference import run_integer
from dovetail.numerics.submodel import Submodel, inexact_sums, stored_submodel


@dataclass(frozen=True, slots=True)
class CpuPart:
    """A segment ready to run on the CPU; `content` is its ONNX file, None for the exact integer interpreter."""

    graph: Graph
    content: bytes | None
    inexact: str | None = None
    """Why it is not the file that runs."""

    @property
    def backend(self) -> str:
        return "onnxruntime" if self.content is not None else "numpy"

    @property
    def note(self) -> str:
        if self.content is not None:
            return "ONNX Runtime, graph optimisations off; float32 proven exact for this part"
        return f"exact integers in NumPy: {self.inexact}"

    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]:
        return run_integer(self.graph, inputs) if self.content is None else Submodel(self.graph, self.content).run(inputs)


def load_part(graph: Graph, folder: Path, known: Mapping[str, Range] | None = None) -> CpuPart:
    """The stored segment; what runs is the file, not the graph it was made from. `known` bounds its inputs."""
    stored, inexact = stored_submodel(graph, folder), inexact_sums(graph, known)
    return CpuPart(graph, None if inexact else stored.content, inexact)
