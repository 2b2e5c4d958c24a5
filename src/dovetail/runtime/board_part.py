"""A segment on a board that a driver reaches, whatever the transport: checksums of both sides must agree after every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dovetail.ir import Array, Graph
from dovetail.runtime.driver import Accelerator


@dataclass(frozen=True, slots=True)
class BoardPart:
    """What `Build.stream(parts={SEGMENT: …})` takes for a board; who opened the board closes it."""

    graph: Graph
    board: Accelerator

    @property
    def backend(self) -> str:
        return "board"

    @property
    def note(self) -> str:
        return f"a board with the design {self.board.shell.hash_text}"

    def run(self, inputs: Mapping[str, Array], on_frame: Callable[[int], None] | None = None) -> dict[str, Array]:
        tensors = self.graph.tensors
        return {name: x.reshape(len(x), *tensors[name].shape[1:]).astype(tensors[name].dtype)
                for name, x in self.board.run(inputs, on_frame).items()}
