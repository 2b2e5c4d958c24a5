"""Parts of a build as the ONNX files they are stored in, for ONNX Runtime on a processor or a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import BuildError
from dovetail.ir import Array, Graph
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.ranges import Range, float32_exact, stored_ranges
from dovetail.numerics.reference import fixes_batch, frame_by_frame


@dataclass(frozen=True, slots=True)
class Submodel:
    """A stored part: what runs is the file, not the graph it was made from. On the CPU, or a `cuda` GPU."""

    graph: Graph
    content: bytes
    cuda: bool = False

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        if fixes_batch(self.graph) or any(self.graph.shape(name)[:1] > (1,) for name in self.graph.inputs):
            return frame_by_frame(self.graph, inputs, lambda one: run_onnx(self.content, one, self.cuda))
        return run_onnx(self.content, inputs, self.cuda)


def stored_submodel(graph: Graph, folder: Path, cuda: bool = False) -> Submodel:
    """A part's file in its folder; BuildError where it is missing."""
    path = folder / f"{graph.name}.onnx"
    if not path.is_file():
        raise BuildError(f"{path}: missing; the build is incomplete, run `dovetail compile` again")
    return Submodel(graph, path.read_bytes(), cuda)


def inexact_sums(graph: Graph, known: Mapping[str, Range] | None = None) -> str | None:
    """Why ONNX Runtime may not be bit-exact, naming the first node whose float32 sums may exceed 2**24; None where it is.

    `known` bounds the graph's inputs.
    """
    ranges = stored_ranges(graph, known)
    node = next((n.name for n in graph.nodes if not float32_exact(graph, n, ranges)), None)
    return None if node is None else f"float32 sums of {node} could exceed 2**24"
