"""How many bytes each column fetches from each device, for every place of its inputs.

Regions of alike nodes are alike, so what two patterns have in common is computed once per pair of patterns. Arrays of a
target device span only the columns with a piece on it: a node's pieces are few, however many devices there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.ir import Node
from dovetail.partition.boards.relaxation import STAND_INS
from dovetail.partition.memo import Cache
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import Held, Pattern, numbered

SHORT = 1 << 24
"""Whole numbers up to this are exact in a float of 32 bits. Source: IEEE 754 singles."""
LONG = 1 << 62
"""Whole numbers below this, and their sums, fit one of 64 bits. Chosen: half of what 64 bits hold."""


@dataclass(frozen=True, slots=True)
class Common:
    """What the places of one pattern (rows) share with the reads of another (columns with a piece on the target, see `on`).

    `elements` counts them from device to device; `same` marks, per streaming device, where a piece reads exactly what
    the device made.
    """

    elements: Mapping[tuple[int, int], Floats]
    same: Mapping[int, Flags]


COMMON = Cache[tuple[int, int, int], Common]()
DISTINCT = Cache[tuple[int, int, int], tuple[Ints, Ints]]()


def wide(problem: Problem) -> bool:
    """Whether arrays of one device span all columns: among few devices, fewer calls are worth more than shorter arrays."""
    return len(problem.devices) <= STAND_INS + 1  # those of a pool and its host


def on(problem: Problem, has: Flags, device: int) -> Ints | slice:
    """The columns that arrays of one device span: those with a piece there, or all."""
    return slice(None) if wide(problem) else has[:, device].nonzero()[0]


def fetched(problem: Problem, node: Node, pattern: Pattern, columns: Ints, known: Mapping[str, Held], inputs: Sequence[str],
            paying: Sequence[str], target: int, flowing: bool = True) -> dict[int, Floats]:
    """Bytes from each device to the target, as arrays that broadcast to (inputs' places..., the given columns).

    Inputs not in `paying` are wherever they are needed. A streaming device keeps nothing: where a piece cannot flow on from
    what the device made exactly as the piece needs it, the device's own part comes back over the host as well; so does it
    everywhere if nothing may be `flowing`.
    """
    total: dict[int, Floats] = {}
    at = columns if wide(problem) else pattern.rank_on[columns, target]
    streams = problem.streams(problem.devices[target])
    produced = flowing and all(problem.graph.producer(t) is not None for t in node.inputs)
    flows = np.full((*(1 for _ in inputs), len(columns)), produced)
    for slot, tensor, counted in _slots(node, pattern, paying):
        held = known[tensor]
        axes = [len(held.places) if t == tensor else 1 for t in inputs]
        every = len(held.places) == len(held.pattern.held) and len(columns) == len(pattern.has) and wide(problem)
        alone = len(columns) == 1 and wide(problem)
        one = not alone and len(held.places) == 1 and (held.pattern.number, pattern.number, slot) not in problem.memo.of(COMMON)
        both = _to_one(problem, held, pattern, slot, int(columns[0]), target) if alone else _from_one(
            problem, held, pattern, slot, target) if one else _common(problem, held.pattern, pattern, slot)
        grid: Any = (slice(None), at) if one else ... if every or alone else (held.places[:, None], at)
        if streams and tensor in inputs:
            flows = flows & both.same[target][grid].reshape(*axes, len(columns))
        if not counted:
            continue
        width = float(problem.graph.tensors[tensor].element_bytes)
        for (s, d), elements in both.elements.items():
            if d == target:
                sizes = elements[grid].reshape(*axes, len(columns))
                sizes = sizes * width if width != 1 else sizes
                total[s] = total[s] + sizes if s in total else sizes
    if target in total:
        total[target] = total[target] * ~flows
    return {s: total[s] for s in sorted(total) if np.count_nonzero(total[s])}


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
                paying: Sequence[str], between: tuple[Ints, Ints]) -> Floats:
    """`fetched` for all sources and targets of few devices at once: (ways, inputs' places..., columns)."""
    sources, targets = between
    shape = (*(len(known[t].places) for t in inputs), len(columns))
    total: Floats | None = None
    produced = all(problem.graph.producer(t) is not None for t in node.inputs)
    back = {d: i for i, (s, d) in enumerate(zip(sources.tolist(), targets.tolist(), strict=True)) if s == d} if produced else {}
    flows: dict[int, Flags] = {}
    for slot, tensor, counted in _slots(node, pattern, paying):
        held = known[tensor]
        axes = [len(held.places) if t == tensor else 1 for t in inputs]
        places, wanted = held.pattern.held[held.places], pattern.reads[slot][columns]
        cut = _cut(held.pattern, pattern, slot)
        if tensor in inputs:
            for d in back:
                same = _alike(held, pattern, columns, slot, cut, d).reshape(*axes, len(columns))
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


def _alike(held: Held, pattern: Pattern, columns: Ints, slot: int, cut: Sequence[int], d: int) -> Flags:
    """Where what a device holds of a tensor (places) is exactly what columns read of it there; an empty region is none."""
    shape = held.pattern.shape
    if prod([size + 1 for size in shape]) ** 2 >= LONG:
        return _same(held.pattern.held[held.places, d], pattern.reads[slot][columns, d], cut, shape)
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
    """`_shared` from sources to targets (first axis), `width` for each element."""
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


def _common(problem: Problem, made: Pattern, own: Pattern, slot: int) -> Common:
    key, known = (made.number, own.number, slot), problem.memo.of(COMMON)
    if key not in known:
        elements, same = {}, {}
        cut = _cut(made, own, slot)
        factor = _factor(made, cut)
        sources = np.asarray(made.held[:, :, 0, 1].any(axis=0)).nonzero()[0].tolist()
        for d in np.asarray(own.has.any(axis=0)).nonzero()[0].tolist():
            streams = problem.streams(problem.devices[d])
            wanted, inverse = _read(problem, own, slot, d)
            for s in sources:
                if s != d or streams:
                    held, place = _held(problem, made, s)
                    elements[s, d] = _shared(held, wanted, cut, factor)[place[:, None], inverse]
            if streams:
                held, place = _held(problem, made, d)
                same[d] = _same(held, wanted, cut, made.shape)[place[:, None], inverse]
        known[key] = Common(elements, same)
    return known[key]


def _from_one(problem: Problem, held: Held, own: Pattern, slot: int, d: int) -> Common:
    """The same for one place and one target."""
    place, wanted = held.pattern.held[held.places[0]], own.reads[slot][on(problem, own.has, d), d]
    cut = _cut(held.pattern, own, slot)
    factor = _factor(held.pattern, cut)
    streams = problem.streams(problem.devices[d])
    elements = {(s, d): _shared(place[s:s + 1], wanted, cut, factor) for s in place[:, 0, 1].nonzero()[0].tolist()
                if s != d or streams}
    return Common(elements, {d: _same(place[d:d + 1], wanted, cut, held.pattern.shape)} if streams else {})


def _to_one(problem: Problem, held: Held, own: Pattern, slot: int, column: int, d: int) -> Common:
    """The same for one column and one target."""
    places, wanted = held.pattern.held[held.places], own.reads[slot][column:column + 1]
    cut = _cut(held.pattern, own, slot)
    every = np.arange(len(problem.devices))
    found = _all_shared(held.pattern, places, wanted, cut, (every, np.full(len(every), d)))
    streams = problem.streams(problem.devices[d])
    return Common({(s, d): sizes for s, sizes in enumerate(found) if s != d or streams},
                  {d: _same(places[:, d], wanted[:, d], cut, held.pattern.shape)} if streams else {})


def _read(problem: Problem, own: Pattern, slot: int, d: int) -> tuple[Ints, Ints]:
    """The distinct regions that columns read on a device, and which of them each reads."""
    key, known = (own.number, slot, d), problem.memo.of(DISTINCT)
    if key not in known:
        known[key] = _distinct(own.reads[slot][on(problem, own.has, d), d])
    return known[key]


def _held(problem: Problem, made: Pattern, s: int) -> tuple[Ints, Ints]:
    """The distinct regions that places hold on a device, and which of them each holds."""
    key, known = (made.number, -1, s), problem.memo.of(DISTINCT)
    if key not in known:
        known[key] = _distinct(made.held[:, s])
    return known[key]


def _distinct(regions: Ints) -> tuple[Ints, Ints]:
    """Regions without repeats, and which of them each is: many columns read the same."""
    number, first = numbered(regions)
    return regions[first], number


def _shared(held: Ints, reads: Ints, cut: Sequence[int], factor: float) -> Floats:
    """Elements that each held region (rows) and each region read (columns) have in common; only `cut` dimensions differ."""
    common = np.full((len(held), len(reads)), factor)
    for i in cut:
        common *= np.maximum(np.minimum(held[:, i, 1, None], reads[:, i, 1]) - np.maximum(held[:, i, 0, None], reads[:, i, 0]), 0)
    if not cut:
        common *= (held[:, 0, 1, None] > 0) & (reads[:, 0, 1] > 0)
    return common


def _same(held: Ints, reads: Ints, cut: Sequence[int], shape: tuple[int, ...]) -> Flags:
    """Where a held region (rows) of a tensor of some shape is exactly the region read (columns); an empty one is none."""
    if not cut:
        return np.asarray((held[:, 0, 1, None] > 0) & (reads[:, 0, 1] > 0))
    if prod([shape[i] + 1 for i in cut]) ** 2 < LONG:
        # One number for all ends of a region along the dimensions that are cut; none for an empty region, which ends at 0.
        radix = np.zeros((len(shape), 2), dtype=np.int64)
        unit = 1
        for i in cut:
            radix[i] = unit, unit * (shape[i] + 1)
            unit *= (shape[i] + 1) ** 2
        made = np.where(held[:, cut[0], 1] > 0, held.reshape(len(held), -1) @ radix.ravel(), -1)
        return np.asarray(made[:, None] == reads.reshape(len(reads), -1) @ radix.ravel())
    there, wanted = held.T, reads.T
    equal: Flags = there[1, cut[0]][:, None] == wanted[1, cut[0]]
    equal &= there[1, cut[0]][:, None] > 0
    equal &= there[0, cut[0]][:, None] == wanted[0, cut[0]]
    for i in cut[1:]:
        equal &= there[1, i][:, None] == wanted[1, i]
        equal &= there[0, i][:, None] == wanted[0, i]
    return equal
