"""Foreign nodes and formulas in floats: a single-threaded ONNX Runtime session for each alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.ir import Array, Function, Opaque
from dovetail.numerics.oracle import run_onnx


def run_opaque(op: Opaque, inputs: Sequence[Array]) -> Array:
    """The node's output for one frame; its shapes are fixed."""
    return run_onnx(op.content, {f"x{i}": x for i, x in enumerate(inputs)})[f"y{op.index}"]


def run_function(op: Function, x: Array, params: Sequence[Array]) -> Array:
    """A formula of float32 values of any shape and number of frames; axis 1 is channels."""
    along = (1, -1) + (1,) * (x.ndim - 2)
    given = {f"p{i}": np.asarray(p, dtype=np.float32).reshape(along) for i, p in enumerate(params)}
    return run_onnx(op.content, {"x0": np.ascontiguousarray(x, dtype=np.float32), **given})["y0"]
