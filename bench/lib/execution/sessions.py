"""What an ONNX Runtime session takes, kernel by kernel: fitted to networks that calibrate, asked for others.

A session makes of a graph what it likes: it fuses nodes, packs weights, changes layouts, and computes in float32 where types of
activations differ. So layers that were timed apart say little about networks. Which kernels a session runs on which sizes is
read from the profile of one run, whose times are dropped; the time of each is that of a fit to kernels of its sort.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod, sqrt
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from scipy.optimize import nnls

from dovetail.cost.calibrated import class_of
from dovetail.ir import Array, Graph
from lib.execution.parts import Manner, cpu_runner

BYTES = {"float": 4, "double": 8, "int64": 8, "uint64": 8, "int32": 4, "uint32": 4, "int16": 2, "uint16": 2, "float16": 2}
"""Of an element, by ONNX Runtime's names of types; of others one."""
LEAST_ROWS = 4
"""Kernels of a sort that a fit needs (chosen); with fewer, a wider sort is asked."""
CLOCK_S = 1e-6
"""Profiles hold whole microseconds, cut off."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a session: its sorts, the narrowest first, what it does, and what it took."""

    sorts: tuple[str, ...]
    node: str
    """The graph's node it belongs to; empty where it is none's, such as a change of layout."""
    macs: float
    read_bytes: float
    written_bytes: float
    seconds: float

    @property
    def amounts(self) -> tuple[float, ...]:
        return 1.0, self.macs, sqrt(self.macs), self.read_bytes, self.written_bytes


def profiled(graph: Graph, manner: Manner, frames: Mapping[str, Array], runs: int) -> list[Kernel]:
    """The kernels of a session; their seconds are means of so many runs, without the first two."""
    with tempfile.TemporaryDirectory() as folder:
        runner = cpu_runner(graph, manner, str(Path(folder) / "profile"))
        for _ in range(runs + 2):
            runner.run(frames)
        events = json.loads(Path(runner.session.end_profiling()).read_text(encoding="utf-8"))
    found, order = dict[str, list[float]](), dict[str, Mapping[str, Any]]()
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            place = event["args"]["node_index"]
            found.setdefault(place, []).append(event["dur"] * 1e-6 + CLOCK_S / 2)
            order.setdefault(place, event)
    names = sorted((n.name for n in graph.nodes), key=len, reverse=True)
    images = len(next(iter(frames.values())))
    return [_kernel(graph, names, order[place], images, _usual(found[place][2:] or found[place])) for place in order]


def _usual(seconds: Sequence[float]) -> float:
    """The mean without the longest quarter, since the clock is coarse and some runs are disturbed."""
    return float(np.mean(sorted(seconds)[:max(1, 3 * len(seconds) // 4)]))


def _kernel(graph: Graph, names: Sequence[str], event: Mapping[str, Any], images: int, seconds: float) -> Kernel:
    args = event["args"]
    node = next((n for n in names if event["name"].startswith(n)), "")
    given, made = ([(kind, shape) for one in args[f"{side}_type_shape"] for kind, shape in one.items()]
                   for side in ("input", "output"))
    op = "Conv" if args["op_name"] == "FusedConv" else args["op_name"]
    kind = given[0][0] if given else "none"
    macs, sorts = 0.0, (f"{op} {kind}", op, "moves")
    if "Conv" in op and node and graph.node(node).op.layer is not None:
        own = graph.node(node)
        macs, group = float(own.op.macs(graph.input_shapes(own)) * images), class_of(graph, own)
        sorts = f"{op} {kind} {group}", f"{op} {group}", f"{op} {kind}", "products"
    elif "MatMul" in op or "Gemm" in op:
        macs, sorts = float(prod(made[0][1]) * given[0][1][-1]), (f"{op} {kind}", op, "products")
    elif op == "Gather" and prod(made[0][1]) > prod(given[1][1]):  # whole slices are moved, no entries looked up
        sorts = f"{op} of slices {kind}", f"{op} of slices", "moves"
    return Kernel(sorts, node, macs, _bytes(given), _bytes(made), seconds)


def _bytes(tensors: Sequence[tuple[str, Sequence[int]]]) -> float:
    return float(sum(prod(shape) * BYTES.get(kind, 1) for kind, shape in tensors))


@dataclass(frozen=True, slots=True)
class Sessions:
    """Seconds of every amount by the sort of kernel."""

    each: Mapping[str, tuple[float, ...]]
    rows: Mapping[str, int] = field(default_factory=dict)

    def kernel_s(self, kernel: Kernel) -> tuple[float, bool]:
        """Seconds of a kernel, and whether its own sort was measured."""
        known = next((sort for sort in kernel.sorts if sort in self.each), None)
        if known is None:
            return 0.0, False
        return float(np.dot(self.each[known], kernel.amounts)), known not in ("moves", "products")

    def predicted(self, kernels: Sequence[Kernel]) -> dict[str, Any]:
        """Seconds of a session, those that are extrapolated from other sorts of kernels, and those of each node."""
        nodes, extrapolated, total = dict[str, float](), 0.0, 0.0
        for kernel in kernels:
            seconds, own = self.kernel_s(kernel)
            total += seconds
            extrapolated += 0.0 if own else seconds
            nodes[kernel.node] = nodes.get(kernel.node, 0.0) + seconds
        return {"seconds": total, "extrapolated_s": extrapolated, "kernels": len(kernels), "nodes": nodes}


def fitted(sessions: Sequence[tuple[Sequence[Kernel], float]]) -> Sessions:
    """A model of kernels, from profiles and what the same sessions took without one."""
    groups: dict[str, list[Kernel]] = {}
    for kernel in (k for kernels, _ in sessions for k in kernels):
        for sort in kernel.sorts:
            groups.setdefault(sort, []).append(kernel)
    each = {sort: _terms(own) for sort, own in groups.items() if len(own) >= LEAST_ROWS or sort in ("moves", "products")}
    # kernels that are profiled take longer or shorter than without, and fits leave sums; what sessions took is what counts
    factor = median(wall / Sessions(each).predicted(kernels)["seconds"] for kernels, wall in sessions)
    each = {sort: tuple(factor * term for term in terms) for sort, terms in each.items()}
    return Sessions(each, {sort: len(own) for sort, own in groups.items()})


def _terms(kernels: Sequence[Kernel]) -> tuple[float, ...]:
    """Seconds of each amount; weighted so that long kernels count more, as they do in sums."""
    amounts, seconds = np.array([k.amounts for k in kernels]), np.array([k.seconds for k in kernels])
    weight, size = 1 / np.sqrt(seconds), np.maximum(amounts.max(0), 1e-30)
    return tuple((nnls(amounts / size * weight[:, None], seconds * weight)[0] / size).tolist())


def to_json(model: Sessions) -> dict[str, Any]:
    return {"each": {k: list(v) for k, v in model.each.items()}, "rows": dict(model.rows)}


def from_json(held: Mapping[str, Any]) -> Sessions:
    return Sessions({k: tuple(v) for k, v in held["each"].items()}, held["rows"])
