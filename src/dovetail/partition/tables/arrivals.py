"""When what the pieces of nodes fetch has arrived, for every place of their inputs and every column: no prices but links'.

Many nodes are looked at together: a *cell* is one column of one node from one place of each of its inputs, and arrays run over
the cells of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import prod

import numpy as np

from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.ir import Node
from dovetail.partition.plan import Mode
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import Held, Pattern
from dovetail.partition.tables.transfers import all_fetched, fetched, ways, wide
from dovetail.partition.work import packet_s
from dovetail.values import dataclass


@dataclass(frozen=True, slots=True)
class Landing:
    """Pieces on one device, an entry per cell: when all is there, and whether anything comes at all.

    Of a device that streams also when the first packet is there, and whether its own part comes back; None where it never does.
    """

    arrived: Floats
    busy: Flags
    first: Floats
    returns: Flags | None = None


@dataclass(frozen=True, slots=True)
class Fetch:
    """Columns of a node from places of its inputs: `inputs` have an axis each, those in `paying` are fetched, others are there.

    `stream_s` says how long before the node starts each place of the one input began to leave; None where none did.
    """

    node: Node
    pattern: Pattern
    columns: Ints
    known: Mapping[str, Held]
    inputs: tuple[str, ...]
    paying: Sequence[str]
    stream_s: Floats | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (*(len(self.known[t].places) for t in self.inputs), len(self.columns))

    def streams(self) -> Floats:
        """`stream_s` of every cell."""
        return np.zeros(prod(self.shape)) if self.stream_s is None else np.repeat(self.stream_s, len(self.columns))


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrays over cells; `pieces` per device, over the cells with a piece there, or, among few devices, over all.

    `joules` are those of all transfers, where energy was asked for; `added_s` is all transfers one after another, in sequential
    mode; `lanes` is how long each direction of a link is busy.
    """

    pieces: Mapping[int, Landing]
    joules: Floats | None
    added_s: Floats
    lanes: Mapping[str, Floats]


@dataclass()
class _Links:
    """Transfers being laid on links in the evaluator's order."""

    count: int
    stream_s: Floats | None
    energy: bool
    lanes: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.joules, self.added = np.zeros(self.count) if self.energy else None, np.zeros(self.count)
        self.early = self.stream_s > 0 if self.stream_s is not None else None

    def before(self, span: Ints | slice, busy: Flags, most: Floats, overlaps: bool) -> Floats | None:
        """How long before their node starts transfers from a streaming device began, which only the first of them can.

        `most` is how long they could at most, None stands for none; `overlaps` if they can at all.
        """
        if self.stream_s is None or self.early is None:
            return None
        first = busy & self.early[span]
        self.early[span] &= ~busy
        return np.where(first, np.minimum(self.stream_s[span], most), 0.0) if overlaps else None

    def occupy(self, names: Sequence[str], span: Ints | slice, busy: Floats, seconds: Floats) -> Floats:
        """Array form of `work.occupy` for transfers ready at once, where `busy` is one in the cells that transfer at all.

        When they end, zero in all other cells.
        """
        known = [self.lanes[lane][span] for lane in names if lane in self.lanes]
        stop = seconds  # nothing takes no time
        if known:
            # As no lane is free before it was, the later of two ends is the last: quicker than choosing by cell.
            stop = (known[0] if len(known) == 1 else np.maximum.reduce(known)) + seconds
            stop *= busy
        for lane in names:
            if isinstance(span, slice):
                self.lanes[lane] = np.maximum(self.lanes[lane], stop) if lane in self.lanes else stop
            else:
                own = self.lanes.setdefault(lane, np.zeros(self.count))
                own[span] = np.maximum(own[span], stop)
        return stop


def arrivals(problem: Problem, fetches: Sequence[Fetch], energy: bool) -> Arrivals:
    """Arrivals at the cells of several nodes, one after another, and, if asked for, the energy of transfers."""
    counts = [prod(f.shape) for f in fetches]
    streams = np.concatenate([f.streams() for f in fetches]) if any(f.stream_s is not None for f in fetches) else None
    links = _Links(sum(counts), streams, energy)
    pieces: dict[int, Landing] = {}
    for d, span, sizes in _all_sizes(problem, fetches, counts) if wide(problem) else _sizes(problem, fetches, counts):
        pieces[d] = _laid(problem, links, sizes, slice(None) if span is None else span, d,
                          links.count if span is None else len(span))
    return Arrivals(pieces, links.joules, links.added, links.lanes)


Sizes = list[tuple[int, Ints | None, dict[int, Floats]]]
"""Per target device the cells with a piece there (None: all), and the bytes from each source to each of them."""


def _all_sizes(problem: Problem, fetches: Sequence[Fetch], counts: Sequence[int]) -> Sizes:
    """Bytes to all cells, for few devices."""
    between = ways(problem)
    found = [all_fetched(problem, f.node, f.pattern, f.columns, f.known, f.inputs, f.paying, between)
             .reshape(len(between[0]), count) for f, count in zip(fetches, counts, strict=True)]
    total = np.concatenate(found, axis=1) if len(found) > 1 else found[0]
    used = np.logical_or.reduce([f.pattern.used for f in fetches]).nonzero()[0].tolist()
    sizes: dict[int, dict[int, Floats]] = {d: {} for d in used}
    for s, d, own, most in zip(*(each.tolist() for each in between), total, total.max(axis=1, initial=0.0).tolist(), strict=True):
        if most > 0:
            sizes[d][s] = own
    return [(d, None, own) for d, own in sizes.items()]


def _sizes(problem: Problem, fetches: Sequence[Fetch], counts: Sequence[int]) -> Sizes:
    """The same among many devices, where a node's pieces are on few of them."""
    starts = np.cumsum([0, *counts[:-1]]).tolist()
    parts: dict[int, list[tuple[Ints, tuple[int, ...], dict[int, Floats]]]] = {}
    for f, first, count in zip(fetches, starts, counts, strict=True):
        has = f.pattern.has[f.columns]
        cells = first + np.arange(count).reshape(f.shape)
        for d in np.asarray(has.any(axis=0)).nonzero()[0].tolist():
            at = has[:, d].nonzero()[0]
            sizes = fetched(problem, f.node, f.pattern, f.columns[at], f.known, f.inputs, f.paying, d)
            parts.setdefault(d, []).append((cells[..., at].ravel(), (*f.shape[:-1], len(at)), sizes))
    found: Sizes = []
    for d, own in sorted(parts.items()):
        sources = sorted({s for _, _, sizes in own for s in sizes})
        found.append((d, np.concatenate([span for span, _, _ in own]), {
            s: np.concatenate([np.broadcast_to(sizes.get(s, 0.0), shape).ravel() for _, shape, sizes in own]) for s in sources}))
    return found


def _laid(problem: Problem, links: _Links, sizes: Mapping[int, Floats], span: Ints | slice, d: int, count: int) -> Landing:
    """Transfers to the pieces on one device, source by source; those of nothing take no time."""
    target = problem.devices[d]
    streams = problem.streams(target)
    found: list[Floats] = []
    first, busy_at_all, returns = np.zeros(count if streams else 0), np.zeros(count, dtype=np.bool_), None
    for s, size in sizes.items():
        source, busy = problem.devices[s], size > 0
        there = busy.astype(np.float64)
        if links.joules is None:
            seconds = problem.transfer_s(source, target, size, there)
        else:
            seconds, joules = problem.transfer(source, target, size)
            links.joules[span] += joules
        if streams or source in problem.streaming:
            lead = np.minimum(seconds, packet_s(problem, source, target))
            before = links.before(span, busy, seconds - lead, s != d and problem.duplex(source, target)) \
                if source in problem.streaming and links.stream_s is not None else None
            if before is not None:
                seconds, lead = seconds - before, lead - before
        if problem.mode is Mode.SEQUENTIAL:
            links.added[span] += seconds
        found.append(links.occupy(problem.lanes(source, target), span, there, seconds))
        busy_at_all |= busy
        if streams:
            np.maximum(first, found[-1] - seconds + lead, out=first)
            returns = busy if s == d else returns
    arrived = found[0] if len(found) == 1 else np.maximum.reduce(found) if found else np.zeros(count)
    return Landing(arrived, busy_at_all, first, returns)
