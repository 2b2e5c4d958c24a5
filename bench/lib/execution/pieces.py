"""A network on the CPU in pieces of a few nodes: distinct ones timed, and what they say of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from dovetail.ir import Graph
from dovetail.partition.plan import whole_on
from dovetail.schedule.program import lower
from lib.execution.parts import Manner, cpu_runner, noise
from lib.execution.timing import Effort, spread

NODES = 10
"""Nodes of a piece at least (chosen: some hundred microseconds, so that the start of a session is a small part)."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Distinct pieces of a network, and how often each occurs."""

    graphs: tuple[Graph, ...]
    counts: tuple[int, ...]

    @property
    def number(self) -> int:
        return sum(self.counts)


def cut(graph: Graph) -> Pieces:
    """A network in pieces of consecutive nodes; pieces whose nodes have equal operators, shapes and types are one.

    Each begins at a product. ONNX Runtime changes layouts around those, and a pool in front of the first one of a session is
    computed in another layout, by another kernel, than in a network.
    """
    assignment, length, piece = {}, 0, 0
    for node in graph.nodes:
        if length >= NODES and node.op.product:
            length, piece = 0, 1 - piece
        assignment[node.name] = whole_on(("gpu", "cpu")[piece])
        length += 1
    found: dict[str, list[Graph]] = {}
    for segment in lower(graph, assignment).segments:
        found.setdefault(_signature(segment.graph), []).append(segment.graph)
    return Pieces(tuple(own[0] for own in found.values()), tuple(len(own) for own in found.values()))


def _signature(graph: Graph) -> str:
    """What decides a piece's time: operators, shapes, types, and which node reads what."""
    places = {name: i for i, name in enumerate((*graph.inputs, *(n.output for n in graph.nodes)))}
    kinds = {name: (t.shape, str(t.dtype)) for name, t in graph.tensors.items()}
    return repr([(n.op, [(places[t], kinds[t]) for t in n.inputs], kinds[n.output],
                  [graph.constants[c].array.shape for c in n.params]) for n in graph.nodes])


def timed(pieces: Pieces, manner: Manner, images: int, seconds: float) -> list[float]:
    """Median seconds of every piece on so many frames.

    One session is there at a time: threads of another one that wait by spinning would hold the cores.
    """
    found = []
    for graph in pieces.graphs:
        runner = cpu_runner(graph, manner)
        frames = {name: np.concatenate([x] * images) for name, x in noise(graph, 1).items()}
        found.append(spread(partial(runner.run, frames), Effort(seconds / len(pieces.graphs), 4, 200), 2)["median_s"])
    return found


def whole_s(pieces: Pieces, taken: Sequence[float], start_s: float) -> float:
    """What the whole network takes, if every piece but one takes so much for its start."""
    return sum(n * s for n, s in zip(pieces.counts, taken, strict=True)) - (pieces.number - 1) * start_s


def start_s(rows: Sequence[tuple[Pieces, Sequence[float], float]]) -> float:
    """What a piece's start takes: the median of networks of which both the pieces and the whole were timed."""
    return median((whole_s(pieces, taken, 0.0) - whole) / max(1, pieces.number - 1) for pieces, taken, whole in rows)


def to_json(pieces: Pieces, taken: Sequence[float]) -> dict[str, Any]:
    return {"pieces": pieces.number, "distinct": len(pieces.counts), "counts": list(pieces.counts), "seconds": list(taken)}
