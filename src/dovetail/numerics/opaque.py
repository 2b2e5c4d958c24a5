"""Foreign nodes in floats: a single-threaded ONNX Runtime session for each node alone."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.ir import Array, Opaque
from dovetail.numerics.oracle import run_onnx


def run_opaque(op: Opaque, inputs: Sequence[Array]) -> Array:
    """The node's output for one frame; its shapes are fixed."""
    return run_onnx(op.content, {f"x{i}": x for i, x in enumerate(inputs)})[f"y{op.index}"]
