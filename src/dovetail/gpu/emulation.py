"""GPU parts: an ordinary ONNX sub-model to take along, and bit-exact emulation wherever no GPU executor is built in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dovetail.ir import Array, Graph
from dovetail.numerics.reference import run_integer


@dataclass(frozen=True, slots=True)
class EmulatedGpuPart:
    """A segment planned for a GPU, computed by the reference interpreter: same integers, not its speed."""

    graph: Graph
    backend: str = "emulated"
    note: str = "GPU part emulated on the CPU by the integer reference; its time is the plan's estimate, not a measurement"

    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]:
        return run_integer(self.graph, inputs)
