"""Layers behind a pointwise one, ready to be launched by themselves."""

from __future__ import annotations

from dovetail.gpu.executor import Compiled, compile_graph
from dovetail.ir import Array, Graph
from dovetail.kernels.calls import Call


def behind_pointwise(graph: Graph, kind: str, x: Array, kernel: str) -> tuple[Compiled, Call]:
    """A network of a pointwise layer, which has run on `x`, and another, and the call of that kind which computes the other."""
    made = compile_graph(graph, kind, 1)
    made.launcher.buffers.clear()  # a place of its own for every tensor
    made.load("x", x, made.lowered.inputs["x"])
    (run,) = made.lowered.runs
    assert not isinstance(run, Call)
    options = list(made.lowered.options(run, float("inf")))
    front = next(call for first, last, call in options if (first, last) == (0, 0) and call.kernel == "conv")
    made.launcher.bound(front, front.configs[0])()
    return made, next(call for *_, call in options if call.kernel == kernel)
