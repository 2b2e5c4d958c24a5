"""Foreign nodes in floats: a single-threaded ONNX Runtime session for each node alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dovetail.ir import Array, Opaque
from dovetail.numerics.oracle import session


@lru_cache(maxsize=256)
def _session(content: bytes) -> Any:
    return session(content)


def run_opaque(op: Opaque, inputs: Sequence[Array]) -> Array:
    """The node's output for one frame; its shapes are fixed."""
    runner = _session(op.content)
    named = {f"x{i}": x for i, x in enumerate(inputs)}
    return np.asarray(runner.run([f"y{op.index}"], named)[0])
