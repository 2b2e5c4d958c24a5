"""The candidate splits of a node, and which parts of tensors each reads and makes.

A *column* is one way to run one node: whole on a device, or cut along a legal axis of its operator into contiguous
pieces, one per device, in the platform's device order. Short axes may be cut anywhere. Long ones are cut where a device
gets one unit, or 1/16, 3/32, 1/8, 3/16, 1/4, 5/16, 3/8, 1/2 of them: devices differ by factors, and equal fractions let
neighbouring layers keep their data in place. Operators without weights, which cost little anywhere, get the five widest.
On platforms of more than three devices only neighbours share a node, at fewer positions (`partners`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from dovetail.hardware.shares import Flags, Ints
from dovetail.ir import Axis, Node, Op, whole
from dovetail.partition.memo import Cache
from dovetail.partition.plan import Piece, Split
from dovetail.partition.problem import Problem, axes_of
from dovetail.partition.tables.regions import Ends, share_ends

SHARES = (0.0, 1 / 16, 3 / 32, 1 / 8, 3 / 16, 1 / 4, 5 / 16, 3 / 8, 1 / 2)
"""Shares of the smaller device at which long axes are cut; zero stands for one unit.

Chosen: devices differ by factors, so shares do.
"""
FRACTIONS = tuple(sorted({*SHARES, *(1 - f for f in SHARES)}))
"""Where long axes are cut; the ends mean one unit. Chosen: `SHARES` from both ends."""
COARSE = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)
"""The same for operators without weights. Chosen: such operators cost little anywhere."""
SPARSE = (1 / 4, 1 / 2, 3 / 4)
"""The same among many devices. Chosen: few, as pairs of devices are many."""
MIDDLE = (1 / 8, 1 / 2, 7 / 8)
"""Positions two of which bound the middle piece of a three-device split. Chosen: few, as pairs of them count."""
FEW_DEVICES = 3
"""Up to so many devices, every pair and all three may share a node; among more, neighbours.

Chosen: a processor, a GPU and an FPGA; two would lose plans, six keep them (bench/constants.py).
"""
MOST_PAIRS = 12
"""Pairs of neighbours that may share a node; those near the host come first. Chosen, not measured."""
EVEN_AXES = (Axis.OUTPUT_CHANNELS, Axis.GROUPS, Axis.ROWS)
"""Axes the balanced baseline divides, first legal one first; input channels would add a sum."""
MOST_SHARES = 8
"""Devices the balanced baseline divides a node among:

more shares than that are for their transfers alone. Chosen, not measured.
"""
WHOLE_RANK = 4
"""Rank of whole placements, above that of any cut. Chosen: one more than the highest `_rank`."""
PARTNERS = Cache[tuple[str, ...], tuple[tuple[str, ...], ...]]()


def cut_positions(extent: int, fractions: Sequence[float] = FRACTIONS) -> tuple[int, ...]:
    """Where an axis of `extent` units may be cut: everywhere if it is short, else at the given fractions."""
    if extent - 1 <= len(fractions):
        return tuple(range(1, extent))
    # Halves round down, as `even_cuts` does.
    return tuple(sorted({min(max(1, int(extent * f + 0.5 - 1e-9)), extent - 1) for f in fractions}))


def partners(problem: Problem) -> tuple[tuple[str, ...], ...]:
    """Groups of devices that may share a node."""
    known = problem.memo.of(PARTNERS)
    if problem.devices not in known:
        known[problem.devices] = _partners(problem)
    return known[problem.devices]


def _partners(problem: Problem) -> tuple[tuple[str, ...], ...]:
    if len(problem.devices) <= FEW_DEVICES:
        return tuple(g for parts in (2, 3) for g in combinations(problem.devices, parts))
    host = problem.platform.host
    joined = {frozenset(link.ends) for link in problem.platform.links}
    beside = {host, *(d for d in problem.devices if frozenset((host, d)) in joined)}
    route = problem.platform.route  # of a pool, every board is at the host's door
    pairs = [p for p in combinations(problem.devices, 2) if frozenset(p) in joined or set(p) <= beside
             or (host in p and len(route(*p)) == 1)]
    return tuple(sorted(pairs, key=lambda p: sum(len(problem.platform.route(host, d)) for d in p))[:MOST_PAIRS])


def even_cuts(extent: int, parts: int) -> tuple[int, ...]:
    """Cut positions that divide an axis into `parts` as even as integers allow."""
    return tuple(extent * i // parts for i in range(1, parts))


def even_counts(problem: Problem, node: Node, devices: int) -> tuple[Axis | None, list[int]]:
    """Along which axis the balanced baseline divides a node, and into how many parts, of so many devices; None: it does not."""
    for axis in (a for a in EVEN_AXES if a in axes_of(problem, node)):
        most = min(devices, axes_of(problem, node)[axis], MOST_SHARES)
        return axis, list(range(most, 1, -1)) if most <= FEW_DEVICES else [most >> i for i in range(most.bit_length() - 1)]
    return None, []


def divide(axis: Axis, cuts: Sequence[int], extent: int, devices: Sequence[str], reducer: str | None = None) -> Split:
    """A split with the given cut positions."""
    edges = (0, *cuts, extent)
    return Split(axis, tuple(Piece(d, a, b) for d, a, b in zip(devices, edges[:-1], edges[1:], strict=True)), reducer)


def _fractions(problem: Problem, node: Node) -> tuple[float, ...]:
    if len(problem.devices) > FEW_DEVICES:
        return SPARSE
    return FRACTIONS if node.params else COARSE


def _rank(extent: int, cut: int) -> int:
    """The nearer to the middle, the higher: where too many tensors are alive at once, low ranks are left out first."""
    share = min(cut, extent - cut) / extent
    return 3 if share > 3 / 8 else 2 if share > 3 / 16 else 1 if share > 3 / 32 else 0


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Columns of a node as arrays: which axis (index into `axes`), units [start, stop) per device, reducer (-1: none), rank."""

    axes: tuple[Axis | None, ...]
    axis: Ints
    start: Ints
    stop: Ints
    reducer: Ints
    rank: Ints

    @property
    def has(self) -> Flags:
        """Which devices have a piece, columns x devices."""
        return self.stop > self.start

    def take(self, chosen: Ints | Flags) -> Candidates:
        return Candidates(self.axes, self.axis[chosen], self.start[chosen], self.stop[chosen], self.reducer[chosen],
                          self.rank[chosen])


def candidates(problem: Problem, node: Node) -> Candidates:
    """Every candidate column, as if all devices could run the node; a fixed node has one."""
    if node.name in problem.fixed:
        return _given(problem, problem.fixed[node.name])
    found = _grid(problem, node)
    return found if node.name not in problem.more else _with(found, problem, problem.more[node.name])


def _with(found: Candidates, problem: Problem, more: Sequence[Split]) -> Candidates:
    """Further columns, of the lowest rank, where they are not there already."""
    at, rows = {d: i for i, d in enumerate(problem.devices)}, list[tuple[tuple[int, ...], ...]]()
    known = set(zip(found.axis.tolist(), map(tuple, found.start.tolist()), map(tuple, found.stop.tolist()),
                    found.reducer.tolist(), strict=True))
    for split in more:
        start, stop = [0] * len(at), [0] * len(at)
        for p in split.pieces:
            start[at[p.device]], stop[at[p.device]] = p.start, p.stop
        row = (found.axes.index(split.axis), tuple(start), tuple(stop), at[split.reducer] if split.reducer is not None else -1)
        if row not in known:
            known.add(row)
            rows.append(((row[0], row[3]), row[1], row[2]))
    if not rows:
        return found
    kinds, starts, stops = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Candidates(found.axes, np.r_[found.axis, kinds[:, 0]], np.r_[found.start, starts], np.r_[found.stop, stops],
                      np.r_[found.reducer, kinds[:, 1]], np.r_[found.rank, np.zeros(len(rows), dtype=np.int64)])


def _grid(problem: Problem, node: Node) -> Candidates:
    """The columns of all nodes alike."""
    at = {d: i for i, d in enumerate(problem.devices)}
    groups = tuple([tuple([at[d] for d in g]) for g in partners(problem)])
    return _columns(len(at), groups, _fractions(problem, node), bool(node.params), tuple(axes_of(problem, node).items()))


@lru_cache(maxsize=512)
def _columns(count: int, groups: tuple[tuple[int, ...], ...], fractions: tuple[float, ...], weights: bool,
             axes: tuple[tuple[Axis, int], ...]) -> Candidates:
    """The columns of nodes with such axes on so many devices: the same object, until others were asked for many times."""
    parts = [_wholes(count), *[_cuts(count, groups, fractions, weights, extent, axis is Axis.INPUT_CHANNELS)
                               for axis, extent in axes]]
    start, stop, reducer, rank = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return Candidates((None, *[axis for axis, _ in axes]), np.repeat(np.arange(len(parts)), [len(own[-1]) for own in parts]),
                      start, stop, reducer, rank)


_Columns = tuple[Ints, Ints, Ints, Ints]
"""Starts and stops (columns x devices), reducers and ranks."""


@lru_cache(maxsize=64)
def _wholes(count: int) -> _Columns:
    """Whole placements on each of so many devices."""
    one = np.eye(count, dtype=np.int64)
    return np.zeros_like(one), one, np.full(count, -1, dtype=np.int64), np.full(count, WHOLE_RANK, dtype=np.int64)


@lru_cache(maxsize=1024)
def _cuts(count: int, groups: tuple[tuple[int, ...], ...], fractions: tuple[float, ...], weights: bool, extent: int,
          summed: bool) -> _Columns:
    """Columns along one axis, group by group of devices; if their results are summed, once for each device that may do it."""
    pairs, triples = _pairs(fractions, extent), _triples(weights, extent)
    blocks = [(g, *(pairs if len(g) == 2 else triples), len(g) if summed else 1) for g in groups]
    total = sum(len(ranks) * times for *_, ranks, times in blocks)
    start, stop = np.zeros((2, total, count), dtype=np.int64)
    reducer, rank = np.full(total, -1, dtype=np.int64), np.zeros(total, dtype=np.int64)
    row = 0
    for group, edges, ranks, times in blocks:
        rows, shape = slice(row, row + len(ranks) * times), (len(ranks), times)
        rank[rows].reshape(shape)[:] = ranks[:, None]
        if len(ranks):
            start[rows].reshape(*shape, count)[:, :, group] = edges[:, None, :-1]
            stop[rows].reshape(*shape, count)[:, :, group] = edges[:, None, 1:]
        if times > 1:
            reducer[rows].reshape(shape)[:] = group
        row = rows.stop
    return start, stop, reducer, rank


def _given(problem: Problem, split: Split) -> Candidates:
    """The one column of a node that is fixed."""
    at, count = {d: i for i, d in enumerate(problem.devices)}, len(problem.devices)
    start, stop = np.zeros((1, count), dtype=np.int64), np.zeros((1, count), dtype=np.int64)
    for p in split.pieces:
        start[0, at[p.device]], stop[0, at[p.device]] = p.start, p.stop
    one = np.zeros(1, dtype=np.int64)
    return Candidates((None,) if split.axis is None else (None, split.axis), one + (split.axis is not None), start, stop,
                      one + (at[split.reducer] if split.reducer is not None else -1), one + WHOLE_RANK)


def _edges(cuts: list[tuple[tuple[int, ...], int]], extent: int) -> tuple[Ints, Ints]:
    """Cut positions with both ends of the axis, one row per column, and ranks."""
    edges = np.array([(0, *places, extent) for places, _ in cuts], dtype=np.int64)
    return edges, np.array([rank for _, rank in cuts], dtype=np.int64)


@lru_cache(maxsize=1024)
def _pairs(fractions: tuple[float, ...], extent: int) -> tuple[Ints, Ints]:
    """Cuts among two devices, as `_edges`."""
    return _edges([((c,), _rank(extent, c)) for c in cut_positions(extent, fractions)], extent)


@lru_cache(maxsize=1024)
def _triples(weights: bool, extent: int) -> tuple[Ints, Ints]:
    """Cuts among three devices; operators without weights, which gain little from a third, are cut evenly."""
    even = even_cuts(extent, 3)
    if extent < 3 or not weights:
        return _edges([(even, 1)] if extent >= 3 else [], extent)
    return _edges([(cuts, int(cuts == even)) for cuts in sorted({*combinations(cut_positions(extent, MIDDLE), 2), even})], extent)


@dataclass(frozen=True, slots=True)
class Boxes:
    """Regions of a tensor by column and device (columns, devices, dimension, 2), and the dimensions along which any is cut."""

    shape: tuple[int, ...]
    regions: Ints
    cut: Flags

    def write(self, rows: Ints, devices: Ints, ends: Ends) -> None:
        """Cut the regions of some columns on some devices."""
        for i, low, high in ends:
            self.regions[rows, devices, i, 0], self.regions[rows, devices, i, 1] = low, high
            self.cut[i] |= bool(np.count_nonzero(low) or np.count_nonzero(high != self.shape[i]))


def boxes_of(op: Op, shapes: tuple[tuple[int, ...], ...], output: tuple[int, ...],
             own: Candidates) -> tuple[list[Boxes], Boxes]:
    """What each column's pieces read of each input, and where they leave the output."""
    has, summed = own.has, own.reducer >= 0
    reads = [_whole_boxes(s, has) for s in shapes]
    held = _whole_boxes(output, has if not np.count_nonzero(summed) else has & ~summed[:, None])
    held.regions[summed, own.reducer[summed]] = whole(output) or ((0, 1),)
    for number, axis in enumerate(own.axes):
        of_axis = (own.axis == number).nonzero()[0]
        rows, devices = has[of_axis].nonzero()
        rows = of_axis[rows]
        if axis is None or not len(rows):
            continue
        ends = share_ends(op, axis, own.start[rows, devices], own.stop[rows, devices], shapes, output)
        for tensor, cut in zip([*reads, *([held] if axis is not Axis.INPUT_CHANNELS else [])], ends, strict=False):
            tensor.write(rows, devices, cut)
    return reads, held


def _whole_boxes(shape: tuple[int, ...], has: Flags) -> Boxes:
    """The whole tensor wherever there is a piece; one without dimensions has one of size one."""
    regions = has.astype(np.int64)[:, :, None, None] * np.array(whole(shape) or ((0, 1),), dtype=np.int64)
    return Boxes(shape or (1,), regions, np.zeros(max(len(shape), 1), dtype=np.bool_))
