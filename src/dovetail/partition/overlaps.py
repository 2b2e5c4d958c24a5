"""How many bytes each column fetches from each device, for every place of its inputs.

Regions of alike nodes are alike, so what two patterns have in common is computed once per pair of patterns. Arrays of a
target device span only the columns with a piece on it: a node's pieces are few, however many devices there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.cost.estimate import Flags, Floats, Ints
from dovetail.partition.columns import Held, Options, Pattern
from dovetail.partition.problem import Problem


@dataclass(frozen=True, slots=True)
class Common:
    """What the places of one pattern (rows) share with the reads of another (columns on the target device).

    `elements` counts them from device to device; `same` marks, per streaming device, where a piece reads exactly what
    the device made.
    """

    elements: Mapping[tuple[int, int], Floats]
    same: Mapping[int, Flags]


def fetched(problem: Problem, own: Options, known: Mapping[str, Held], inputs: Sequence[str], paying: Sequence[str],
            target: int, columns: Ints) -> dict[int, Floats]:
    """Bytes from each device to the target, as arrays that broadcast to (inputs' places..., the given columns).

    Inputs not in `paying` are wherever they are needed. A streaming device keeps nothing: where a piece cannot flow on
    from what the device made exactly as the piece needs it, the device's own part comes back over the host as well.
    """
    total: dict[int, Floats] = {}
    at = own.pattern.rank_on[own.columns[columns], target]
    streams = problem.streams(problem.devices[target])
    produced = all(problem.graph.producer(t) is not None for t in own.node.inputs)
    flows = np.full((*(1 for _ in inputs), len(columns)), produced)
    seen: list[tuple[str, Ints]] = []
    for slot, tensor in enumerate(own.node.inputs):
        reads = own.pattern.reads[slot]
        if tensor not in paying:
            continue
        held = known[tensor]
        both, axes = _common(problem, held.pattern, own.pattern, slot), [len(held.places) if t == tensor else 1 for t in inputs]
        if streams and tensor in inputs:
            flows = flows & both.same[target][np.ix_(held.places, at)].reshape(*axes, len(columns))
        if any(t == tensor and (r is reads or np.array_equal(r, reads)) for t, r in seen):
            continue
        seen.append((tensor, reads))
        width = float(problem.graph.tensors[tensor].element_bytes)
        for (s, d), elements in both.elements.items():
            if d == target:
                sizes = elements[np.ix_(held.places, at)].reshape(*axes, len(columns)) * width
                total[s] = total[s] + sizes if s in total else sizes
    if target in total:
        total[target] = total[target] * ~flows
    return {s: total[s] for s in sorted(total) if total[s].any()}


def _common(problem: Problem, made: Pattern, own: Pattern, slot: int) -> Common:
    key = (id(made), id(own), slot)
    if key not in problem.common:
        reads, elements, same = own.reads[slot], {}, {}
        sources = np.flatnonzero(made.held[:, :, 0, 1].any(axis=0)).tolist()
        for d in np.flatnonzero(own.has.any(axis=0)).tolist():
            wanted, streams = reads[own.has[:, d], d], problem.streams(problem.devices[d])
            for s in sources:
                rows = np.flatnonzero(made.held[:, s, 0, 1])
                shared = _shared(made.held[rows, s], wanted) if s != d or streams else None
                if shared is not None and shared.any():
                    elements[s, d] = np.zeros((len(made.held), len(wanted)))
                    elements[s, d][rows] = shared
            if streams:
                same[d] = (made.held[:, None, d] == wanted[None]).all(axis=(2, 3))
        problem.common[key] = Common(elements, same)
    return problem.common[key]


def _shared(held: Ints, reads: Ints) -> Floats:
    """Elements that each held region (rows) and each region read (columns) have in common."""
    common = np.ones((len(held), len(reads)))
    for dimension in range(held.shape[1]):
        start, stop, first, last = held[:, dimension, 0], held[:, dimension, 1], reads[:, dimension, 0], reads[:, dimension, 1]
        common *= np.maximum(np.minimum(stop[:, None], last) - np.maximum(start[:, None], first), 0)
    return common
