"""How many bytes each column fetches from each device, for every place of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from math import prod
from operator import mul

import numpy as np
from numpy.typing import NDArray

from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.ir import Node
from dovetail.partition.boards.relaxation import STAND_INS
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import Held, Pattern

SHORT = 1 << 24
"""Whole numbers up to this are exact in a float of 32 bits. Source: IEEE 754 singles."""
LONG = 1 << 62
"""Whole numbers below this, and their sums, fit one of 64 bits. Chosen: half of what 64 bits hold."""


def wide(problem: Problem) -> bool:
    """Whether arrays of one device span all columns: among few devices, fewer calls are worth more than shorter arrays."""
    return len(problem.devices) <= STAND_INS + 1  # those of a pool and its host


def fetched(problem: Problem, node: Node, pattern: Pattern, columns: Ints, known: Mapping[str, Held], inputs: Sequence[str],
            paying: Sequence[str], target: int, flowing: bool = True) -> dict[int, Floats]:
    """Bytes from each device to the target: (inputs' places..., columns) of the devices from which anything comes."""
    streams = problem.streams(problem.devices[target])
    sources = np.array([s for s in range(len(problem.devices)) if s != target or streams])
    found = all_fetched(problem, node, pattern, columns, known, inputs, paying, (sources, np.full(len(sources), target)), flowing)
    return {s: sizes for s, sizes in zip(sources.tolist(), found, strict=True) if np.count_nonzero(sizes)}


def _slots(node: Node, pattern: Pattern, paying: Sequence[str]) -> list[tuple[int, str, bool]]:
    """The inputs that are fetched, by position, and whether they count: what is read twice in the same place comes once."""
    found: list[tuple[int, str, bool]] = []
    for slot, tensor in enumerate(node.inputs):
        if tensor in paying:
            again = any(t == tensor and (pattern.reads[i] is pattern.reads[slot] or np.array_equal(
                pattern.reads[i], pattern.reads[slot])) for i, t, counted in found if counted)
            found.append((slot, tensor, not again))
    return found


def ways(problem: Problem) -> tuple[Ints, Ints]:
    """Sources and targets between which anything may move: a device that keeps what it made fetches nothing from itself."""
    return _ways(tuple(d in problem.streaming for d in problem.devices))


@lru_cache(maxsize=64)
def _ways(streaming: tuple[bool, ...]) -> tuple[Ints, Ints]:
    found = [(s, d) for s in range(len(streaming)) for d, streams in enumerate(streaming) if s != d or streams]
    return np.array([s for s, _ in found], dtype=np.int64), np.array([d for _, d in found], dtype=np.int64)


def all_fetched(problem: Problem, node: Node, pattern: Pattern, columns: Ints, known: Mapping[str, Held], inputs: Sequence[str],
                paying: Sequence[str], between: tuple[Ints, Ints], flowing: bool = True) -> Floats:
    """Bytes from sources to targets (`between`): (these pairs, inputs' places..., columns).

    Inputs not in `paying` are wherever they are needed. A streaming device keeps nothing: where a piece cannot flow on from
    what the device made exactly as the piece needs it, the device's own part comes back over the host as well; so does it
    everywhere if nothing may be `flowing`.
    """
    sources, targets = between
    shape = (*(len(known[t].places) for t in inputs), len(columns))
    total: Floats | None = None
    produced = flowing and all(problem.graph.producer(t) is not None for t in node.inputs)
    back = {d: i for i, (s, d) in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)) if s == d} if produced else {}
    flows: dict[int, Flags] = {}
    for slot, tensor, counted in _slots(node, pattern, paying):
        held = known[tensor]
        axes = [len(held.places) if t == tensor else 1 for t in inputs]
        places, wanted = held.pattern.held[held.places], pattern.reads[slot][columns]
        cut = _cut(held.pattern, pattern, slot)
        if tensor in inputs:
            for d in back:
                same = _alike(held, pattern, columns, slot, d).reshape(*axes, len(columns))
                flows[d] = flows[d] & same if d in flows else same
        if counted:
            width = float(problem.graph.tensors[tensor].element_bytes)
            sizes = _all_shared(held.pattern, places, wanted, cut, between, width).reshape(len(sources), *axes, len(columns))
            total = sizes if total is None else total + sizes
    if total is None or total.shape[1:] != shape:
        total = np.zeros((len(sources), *shape)) + (0.0 if total is None else total)
    for d, i in back.items():
        total[i] *= ~flows[d] if d in flows else 0.0
    return total


def _alike(held: Held, pattern: Pattern, columns: Ints, slot: int, d: int) -> Flags:
    """Where what a device holds of a tensor (places) is exactly what columns read of it there; an empty region is none."""
    shape = held.pattern.shape
    if prod([size + 1 for size in shape]) ** 2 >= LONG:
        regions = held.pattern.held[held.places, None, d]
        return np.asarray((regions == pattern.reads[slot][columns, d]).all(axis=(2, 3)) & (regions[:, :, 0, 1] > 0))
    # One number for all ends of a region, known once for a pattern; none for an empty region, which ends at 0.
    made, wanted = held.pattern.codes.get((-1, d)), pattern.codes.get((slot, d))
    if made is None:
        made = held.pattern.codes[-1, d] = _coded(held.pattern.held[:, d], shape)
        made[held.pattern.held[:, d, 0, 1] == 0] = -1
    if wanted is None:
        wanted = pattern.codes[slot, d] = _coded(pattern.reads[slot][:, d], shape)
    return np.asarray(made[held.places][:, None] == wanted[columns])


def _coded(regions: Ints, shape: tuple[int, ...]) -> Ints:
    """A number for each region of a tensor."""
    sizes = [size + 1 for size in shape for _ in (0, 1)]
    return regions.reshape(len(regions), -1) @ np.array([1, *accumulate(sizes[:-1], mul)], dtype=np.int64)


def _all_shared(pattern: Pattern, held: Ints, reads: Ints, cut: Sequence[int], between: tuple[Ints, Ints],
                width: float = 1.0) -> Floats:
    """What regions held and regions read have in common, from sources to targets (first axis), `width` for each element."""
    factor, (sources, targets) = _factor(pattern, cut) * width, between
    if not cut:
        there = (held[:, sources, 0, 1] > 0).T[:, :, None] & (reads[:, targets, 0, 1] > 0).T[:, None, :]
        return np.where(there, factor, 0.0)
    # As floats, which processors compare several at once; short ones where they hold all that can be common exactly.
    exact = np.float32 if prod([pattern.shape[i] for i in cut]) <= SHORT else np.float64
    made, wanted = held.T.astype(exact)[:, :, sources], reads.T.astype(exact)[:, :, targets]
    common: NDArray[np.floating] | None = None
    for i in cut:
        both = np.minimum(made[1, i][:, :, None], wanted[1, i][:, None, :])
        both -= np.maximum(made[0, i][:, :, None], wanted[0, i][:, None, :])
        np.maximum(both, 0.0, out=both)
        common = both if common is None else np.multiply(common, both, out=common)
    assert common is not None, "at least one dimension is cut"
    found: Floats = np.multiply(common, factor, dtype=np.float64)
    return found


def _cut(made: Pattern, own: Pattern, slot: int) -> list[int]:
    """Dimensions along which regions made or read are not whole."""
    found: list[int] = (made.cut | own.reads_cut[slot]).nonzero()[0].tolist()
    return found


def _factor(made: Pattern, cut: Sequence[int]) -> float:
    """Elements of a tensor per unit of all its cut dimensions."""
    return float(prod(size for i, size in enumerate(made.shape) if i not in cut))
