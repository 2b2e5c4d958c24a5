"""A network on the CPU in pieces of a few nodes: distinct ones timed in turn, and what they say of the whole."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from dovetail.ir import Graph
from dovetail.partition.plan import whole_on
from dovetail.schedule.program import lower
from lib.execution.parts import Manner, cpu_runner, noise

NODES = 10
"""Nodes of a piece at least (chosen: some hundred microseconds, so that the start of a session is a small part)."""
LEAST_TURNS = 4
MOST_TURNS = 30


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
    """Median seconds of every piece on so many frames; pieces take turns, so that caches hold what they hold in a network."""
    runners = [cpu_runner(graph, manner) for graph in pieces.graphs]
    frames = [{n: np.concatenate([x] * images) for n, x in noise(g, 1).items()} for g in pieces.graphs]
    found, begun = [list[float]() for _ in runners], time.perf_counter()
    for turn in range(MOST_TURNS):
        for own, runner, given in zip(found, runners, frames, strict=True):
            start = time.perf_counter()
            runner.run(given)
            own.append(time.perf_counter() - start)
        if turn >= LEAST_TURNS and time.perf_counter() - begun > seconds:
            break
    return [median(own[1:]) for own in found]


def whole_s(pieces: Pieces, taken: Sequence[float], start_s: float) -> float:
    """What the whole network takes, if every piece but one takes so much for its start."""
    return sum(n * s for n, s in zip(pieces.counts, taken, strict=True)) - (pieces.number - 1) * start_s


def start_s(rows: Sequence[tuple[Pieces, Sequence[float], float]]) -> float:
    """What a piece's start takes: the median of networks of which both the pieces and the whole were timed."""
    return median((whole_s(pieces, taken, 0.0) - whole) / max(1, pieces.number - 1) for pieces, taken, whole in rows)


def to_json(pieces: Pieces, taken: Sequence[float]) -> dict[str, Any]:
    return {"pieces": pieces.number, "distinct": len(pieces.counts), "counts": list(pieces.counts), "seconds": list(taken)}
