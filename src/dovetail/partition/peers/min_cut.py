"""Multilevel graph partitioning (METIS, Karypis and Kumar 1998; for IoT devices de Oliveira and Borin 2019).

Vertices are layers, edges the bytes between them. Heavy edges are contracted until few vertices are left; each of these goes
where it cuts least. Then vertices are moved, level by level, while that cuts fewer bytes and no part is overloaded. A part's load
is the time its device takes for it, and its share of all is that of its speed. Budgets are further weights (METIS's several
constraints). No layer is divided, as in the cited work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.plan import Assignment, whole_on
from dovetail.partition.problem import Problem, price_pieces
from dovetail.partition.tables.columns import fits
from dovetail.partition.tables.quotes import whole_needs
from dovetail.partition.tolerances import TOLERANCE

IMBALANCE = 0.03
"""By how much a part may exceed its share of the load. Chosen, not measured."""
COARSEST = 4
"""Vertices per device at which coarsening ends. Chosen, not measured."""
PASSES = 10
"""Rounds of moves on each level. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class _Level:
    """A coarsened graph: time of each vertex by device (inf: impossible), budgets each takes, bytes of each edge."""

    seconds: Floats
    needs: Floats
    edges: Mapping[tuple[int, int], float]
    inner: tuple[int, ...]
    """Of every vertex of the finer graph, the vertex here that it is part of."""


def min_cut(problem: Problem) -> Assignment | None:
    """The least cut found within the loads and budgets; None where some layer fits nowhere."""
    level = _finest(problem)
    if not np.isfinite(level.seconds).any(axis=1).all():
        return None
    levels = [level]
    while len(levels[-1].seconds) > COARSEST * len(problem.devices):
        coarser = _coarsened(levels[-1])
        if len(coarser.seconds) == len(levels[-1].seconds):
            break
        levels.append(coarser)
    speed = 1 / np.where(np.isfinite(level.seconds), level.seconds, 0.0).sum(axis=0).clip(1e-12)
    part: Ints = np.full(len(levels[-1].seconds), -1, dtype=np.int64)
    for i, at in enumerate(reversed(levels)):
        part = _moved(problem, at, part, speed / speed.sum())
        if i + 1 < len(levels):
            part = part[list(at.inner)]
    return {n.name: problem.fixed.get(n.name, whole_on(problem.devices[d]))
            for n, d in zip(problem.graph.nodes, part.tolist(), strict=True)}


def _finest(problem: Problem) -> _Level:
    seconds = np.full((len(problem.graph.nodes), len(problem.devices)), inf)
    needs = np.zeros((*seconds.shape, len(problem.budgets)))
    edges: dict[tuple[int, int], float] = {}
    for k, node in enumerate(problem.graph.nodes):
        pinned = problem.fixed.get(node.name)
        for d, device in enumerate(problem.devices):
            allowed = device == pinned.devices[0] if pinned is not None else fits(problem, node, whole_on(device))
            known = price_pieces(problem, node, None, device, [(0, 1)]) if allowed else None
            if known:
                seconds[k, d] = known[0, 1].alone_s
                own = whole_needs(problem, node, device) or {}
                needs[k, d] = [own.get(r, 0.0) / limit if b == device and limit else 0.0 for b, r, limit in problem.budgets]
        for tensor in dict.fromkeys(node.inputs):
            if (producer := problem.graph.producer(tensor)) is not None:
                edge = (problem.order[producer.name], k)
                edges[edge] = edges.get(edge, 0.0) + problem.graph.tensors[tensor].transfer_bytes
    return _Level(seconds, needs, edges, ())


def _coarsened(level: _Level) -> _Level:
    """Heavy-edge matching: a vertex joins at most one neighbour, heaviest edges first, where one device can have both."""
    mate = list(range(len(level.seconds)))
    for (a, b), _ in sorted(level.edges.items(), key=lambda item: (-item[1], item[0])):
        both = np.isfinite(level.seconds[a] + level.seconds[b]) & ((level.needs[a] + level.needs[b]) <= 1).all(axis=1)
        if mate[a] == a and mate[b] == b and both.any():
            mate[b] = a
            mate[a] = -1 - a  # taken
    kept = [v for v in range(len(mate)) if mate[v] in (v, -1 - v)]
    number = {v: i for i, v in enumerate(kept)}
    inner = tuple(number[v] if v in number else number[mate[v]] for v in range(len(mate)))
    seconds, needs = np.zeros((len(kept), level.seconds.shape[1])), np.zeros((len(kept), *level.needs.shape[1:]))
    np.add.at(seconds, list(inner), level.seconds)
    np.add.at(needs, list(inner), level.needs)
    edges: dict[tuple[int, int], float] = {}
    for (a, b), size in level.edges.items():
        key = (min(inner[a], inner[b]), max(inner[a], inner[b]))
        if key[0] != key[1]:
            edges[key] = edges.get(key, 0.0) + size
    seconds[(needs > 1 + TOLERANCE).any(axis=2)] = inf
    return _Level(seconds, needs, edges, inner)


def _moved(problem: Problem, level: _Level, start: Ints, target: Floats) -> Ints:
    """Every vertex where it cuts least among the parts with room, again and again; -1 is nowhere yet.

    Budgets count before loads, loads before bytes: where no part has room, the one least above its load is taken.
    """
    part, near = start.copy(), [list[tuple[int, float]]() for _ in level.seconds]
    for (a, b), size in level.edges.items():
        near[a].append((b, size))
        near[b].append((a, size))
    placed = (part >= 0).nonzero()[0]
    held = level.needs[placed, part[placed]].sum(axis=0)
    load = np.bincount(part[placed], level.seconds[placed, part[placed]], len(target))
    total = float(level.seconds.min(axis=1).sum()) or 1.0
    for _ in range(PASSES):
        before = part.copy()
        for v in range(len(part)):
            if part[v] >= 0:
                held, load[part[v]] = held - level.needs[v, part[v]], load[part[v]] - level.seconds[v, part[v]]
                part[v] = -1
            keys = []
            for d in np.isfinite(level.seconds[v]).nonzero()[0].tolist():
                short = problem.shared_budget and bool((held + level.needs[v, d] > 1 + TOLERANCE).any())
                over = max(0.0, (load[d] + level.seconds[v, d]) / total - target[d] * (1 + IMBALANCE))
                cut = sum(size for u, size in near[v] if part[u] not in (-1, d))
                keys.append((short, over, cut, d))
            part[v] = min(keys)[3]
            held, load[part[v]] = held + level.needs[v, part[v]], load[part[v]] + level.seconds[v, part[v]]
        if (part == before).all():
            break
    return part
