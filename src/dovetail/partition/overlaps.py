"""How many bytes each column fetches from each device, for every place of its inputs.

Regions of alike nodes are alike, so what two patterns have in common is computed once per pair of patterns. Arrays of a
target device span only the columns with a piece on it: a node's pieces are few, however many devices there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.cost.estimate import Flags, Floats, Ints
from dovetail.ir import Node
from dovetail.partition.columns import Held, Pattern
from dovetail.partition.problem import Problem


@dataclass(frozen=True, slots=True)
class Common:
    """What the places of one pattern (rows) share with the reads of another (columns on the target device).

    `elements` counts them from device to device; `same` marks, per streaming device, where a piece reads exactly what
    the device made.
    """

    elements: Mapping[tuple[int, int], Floats]
    same: Mapping[int, Flags]


def fetched(problem: Problem, node: Node, pattern: Pattern, columns: Ints, known: Mapping[str, Held], inputs: Sequence[str],
            paying: Sequence[str], target: int) -> dict[int, Floats]:
    """Bytes from each device to the target, as arrays that broadcast to (inputs' places..., the given columns).

    All given columns of the pattern have a piece on the target. Inputs not in `paying` are wherever they are needed. A
    streaming device keeps nothing: where a piece cannot flow on from what the device made exactly as the piece needs it, the
    device's own part comes back over the host as well.
    """
    total: dict[int, Floats] = {}
    at = pattern.rank_on[columns, target]
    streams = problem.streams(problem.devices[target])
    produced = all(problem.graph.producer(t) is not None for t in node.inputs)
    flows = np.full((*(1 for _ in inputs), len(columns)), produced)
    seen: list[tuple[str, Ints]] = []
    for slot, tensor in enumerate(node.inputs):
        reads = pattern.reads[slot]
        if tensor not in paying:
            continue
        held = known[tensor]
        both, axes = _common(problem, held.pattern, pattern, slot), [len(held.places) if t == tensor else 1 for t in inputs]
        grid = (held.places[:, None], at)
        if streams and tensor in inputs:
            flows = flows & both.same[target][grid].reshape(*axes, len(columns))
        if any(t == tensor and (r is reads or np.array_equal(r, reads)) for t, r in seen):
            continue
        seen.append((tensor, reads))
        width = float(problem.graph.tensors[tensor].element_bytes)
        for (s, d), elements in both.elements.items():
            if d == target:
                sizes = elements[grid].reshape(*axes, len(columns)) * width
                total[s] = total[s] + sizes if s in total else sizes
    if target in total:
        total[target] = total[target] * ~flows
    return {s: total[s] for s in sorted(total) if total[s].any()}


def _common(problem: Problem, made: Pattern, own: Pattern, slot: int) -> Common:
    key = (id(made), id(own), slot)
    if key not in problem.common:
        reads, elements, same = own.reads[slot], {}, {}
        places, sources = np.nonzero(made.held[:, :, 0, 1])
        columns, targets = np.nonzero(own.has)
        order = np.argsort(targets, kind="stable")
        columns, targets = columns[order], targets[order]
        shared = _shared(made.held[places, sources], reads[columns, targets])
        for d in np.unique(targets).tolist():
            streams, (low, high) = problem.streams(problem.devices[d]), np.searchsorted(targets, (d, d + 1))
            for s in np.unique(sources).tolist():
                if s == d and not streams:
                    continue
                rows = np.flatnonzero(sources == s)
                found = shared[rows, low:high]
                if found.any():
                    elements[s, d] = np.zeros((len(made.held), high - low))
                    elements[s, d][places[rows]] = found
            if streams:
                same[d] = _same(made.held[:, d], reads[columns[low:high], d])
        problem.common[key] = Common(elements, same)
    return problem.common[key]


def _shared(held: Ints, reads: Ints) -> Floats:
    """Elements that each held region (rows) and each region read (columns) have in common."""
    common, factor = None, 1.0
    for dimension in range(held.shape[1]):
        start, stop, first, last = held[:, dimension, 0], held[:, dimension, 1], reads[:, dimension, 0], reads[:, dimension, 1]
        if (start == start[:1]).all() and (stop == stop[:1]).all() and (first == first[:1]).all() and (last == last[:1]).all():
            # Most dimensions are never cut: one number serves all regions.
            factor *= max(0, int(min(stop[0], last[0]) - max(start[0], first[0]))) if len(start) and len(first) else 1
            continue
        both = np.maximum(np.minimum(stop[:, None], last) - np.maximum(start[:, None], first), 0)
        common = both if common is None else common * both
    if common is None:
        return np.full((len(held), len(reads)), factor)
    return np.asarray(common * factor, dtype=np.float64)


def _same(held: Ints, reads: Ints) -> Flags:
    """Where a held region (rows) is exactly the region read (columns)."""
    equal = np.ones((len(held), len(reads)), dtype=np.bool_)
    for dimension in range(held.shape[1]):
        for side in (0, 1):
            a, b = held[:, dimension, side], reads[:, dimension, side]
            if not ((a == a[:1]).all() and (b == a[:1]).all()):
                equal &= a[:, None] == b
    return equal
