"""ONNX to graph: the steps of `STEPS`, one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir.graph import Graph
from dovetail.ir.onnx.steps import STEPS, Draft
from dovetail.ir.tensor import Shape


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph with where it came from and what was assumed on the way in."""

    graph: Graph
    sha256: str
    notes: tuple[str, ...] = ()


def read_onnx(path: str | Path, shapes: Mapping[str, Shape] | None = None) -> Imported:
    """Read a float or quantized model (QDQ, QOperator, QONNX); folds BatchNorm and activations.

    A symbolic batch becomes 1 with a note; other symbolic dimensions need `shapes` (input name to shape). An error names the
    file; its notes name the step that failed and those before it.
    """
    draft = Draft(Path(path), shapes or {})
    for i, step in enumerate(STEPS):
        try:
            draft = step.run(draft)
        except Exception as error:
            if isinstance(error, ModelError | UnsupportedError) and not str(error).startswith(draft.where):
                error = type(error)(f"{draft.where}: {error}")  # tensors and passes know nothing of files
            error.add_note(f"import step: {step.name}; done before: {', '.join(s.name for s in STEPS[:i]) or 'nothing'}")
            raise error from None
    assert draft.graph is not None
    return Imported(draft.graph, draft.sha256, draft.notes)
