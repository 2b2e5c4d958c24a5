"""When what the pieces of a node fetch has arrived, for every place of its inputs and every column: no prices but links'.

Alike nodes that read from alike producers share these arrays. Only an input that leaves a streaming device while it is made
comes at times of its own; its places are looked at again, node by node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dovetail.cost.estimate import Flags, Floats, Ints
from dovetail.ir import Node
from dovetail.partition.columns import Held, Pattern
from dovetail.partition.overlaps import fetched, on, wide
from dovetail.partition.plan import Mode
from dovetail.partition.problem import Problem
from dovetail.partition.work import follows, packet_s

ARRIVED, FIRST, BUSY, RETURNS = range(4)
"""What `Arrivals.pieces` holds: when all is there, when the first packet is, whether anything comes, also from the device."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Arrays over the inputs' places and columns; `pieces` per device, over the columns it spans (`overlaps.on`, ARRIVED).

    `added_s` is all transfers one after another where they are, `lanes` how long each direction of a link is busy.
    """

    pieces: Mapping[int, Floats]
    joules: Floats
    added_s: Floats
    lanes: Mapping[str, Floats]
    slack_s: Floats | None = None
    """By how much earlier the first transfer from a place that a streaming device fills could begin, if only it were there."""

    def sooner(self, rows: Ints, stream_s: Floats) -> Arrivals:
        """Arrivals from some places that leave while they are made, for so long: what waits behind the first comes sooner too."""
        assert self.slack_s is not None
        gain = np.minimum(stream_s[:, None], self.slack_s[rows])
        pieces = {}
        for d, own in self.pieces.items():
            pieces[d] = own[:, rows]
            pieces[d][ARRIVED:FIRST + 1] -= gain * pieces[d][BUSY]
        return Arrivals(pieces, self.joules[rows], self.added_s[rows] - gain,
                        {lane: busy[rows] - gain * (busy[rows] > 0) for lane, busy in self.lanes.items()})


def from_everywhere(problem: Problem, node: Node, pattern: Pattern, columns: Ints, known: Mapping[str, Held],
                    inputs: Sequence[str], paying: Sequence[str]) -> Arrivals:
    """Arrivals at the given columns from all places of the one input (if it has any), shared by all alike nodes."""
    at = {t: i for i, t in enumerate(dict.fromkeys(node.inputs))}
    key = (id(pattern), columns.tobytes(), tuple(id(known[t].pattern) for t in paying), tuple(at[t] for t in node.inputs),
           tuple(at[t] for t in paying), tuple(at[t] for t in inputs),
           tuple(problem.graph.tensors[t].element_bytes for t in node.inputs),
           tuple(problem.graph.producer(t) is None for t in node.inputs), follows(problem, node))
    if key not in problem.arrived:
        every = {t: Held(known[t].pattern, np.arange(count := len(known[t].pattern.held)), np.zeros(count)) for t in inputs}
        problem.arrived[key] = arrivals(problem, node, pattern, columns, {**known, **every}, inputs, paying)
    return problem.arrived[key]


def from_streams(problem: Problem, node: Node, pattern: Pattern, columns: Ints, known: Mapping[str, Held], tensor: str,
                 paying: Sequence[str], leaving: Held) -> Arrivals:
    """Arrivals from places of the one input `tensor` that leave a streaming device while they are made."""
    shared = from_everywhere(problem, node, pattern, columns, known, (tensor,), paying)
    if shared.slack_s is not None:
        return shared.sooner(leaving.places, leaving.stream_s)
    return arrivals(problem, node, pattern, columns, {**known, tensor: leaving}, (tensor,), paying, leaving.stream_s)


@dataclass
class _Links:
    """Transfers being laid on links in the evaluator's order."""

    shape: tuple[int, ...]
    stream_s: Floats | None
    lanes: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.joules, self.added = np.zeros(self.shape), np.zeros(self.shape)
        self.early = np.ones(self.shape, dtype=np.bool_) if self.stream_s is not None else None
        self.slack, self.first = np.zeros(self.shape), np.ones(self.shape, dtype=np.bool_)

    def occupy(self, names: Sequence[str], span: Ints | slice, busy: Flags, seconds: Floats) -> Floats:
        """Array form of `work.occupy` for transfers ready at once, where `busy` marks the entries that transfer at all."""
        known = {lane: self.lanes[lane][..., span] for lane in names if lane in self.lanes}
        stop = seconds
        if known:
            start, *others = known.values()
            for other in others:
                start = np.maximum(start, other)
            stop = start + seconds
        for lane in names:
            if lane not in self.lanes:
                self.lanes[lane] = np.zeros(self.shape)
            self.lanes[lane][..., span] = np.where(busy, stop, known[lane]) if lane in known else np.where(busy, stop, 0.0)
        return stop


def arrivals(problem: Problem, node: Node, pattern: Pattern, columns: Ints, known: Mapping[str, Held], inputs: Sequence[str],
             paying: Sequence[str], stream_s: Floats | None = None) -> Arrivals:
    """Arrivals at the given columns; `inputs` have an axis each, those in `paying` are fetched, others always there.

    `stream_s` says how long before the node starts each place of the one input began to leave.
    """
    links = _Links((*(len(known[t].places) for t in inputs), len(columns)), stream_s)
    # From a device whose every way out is the same link, all waits for the first transfer.
    serial = stream_s is None and len(inputs) == 1 and wide(problem) and follows(problem, node) and _serial(problem)
    has, pieces = pattern.has[columns], {}
    for d in np.flatnonzero(has.any(axis=0)).tolist():
        span = on(problem, has, d)
        sizes = fetched(problem, node, pattern, columns[span], known, inputs, paying, d)
        pieces[d] = _laid(problem, links, sizes, span, d, len(columns[span]))
    return Arrivals(pieces, links.joules, links.added, links.lanes, links.slack if serial else None)


def _serial(problem: Problem) -> bool:
    """Whether every transfer from a streaming device takes the same lane first."""
    return all(len({problem.lanes(s, t)[0] for t in problem.devices if s != problem.platform.host}) == 1
               for s in problem.streaming if s != problem.platform.host) and problem.platform.host not in problem.streaming


def _laid(problem: Problem, links: _Links, sizes: Mapping[int, Floats], span: Ints | slice, d: int, count: int) -> Floats:
    """Transfers to the pieces on one device, source by source."""
    target, shape = problem.devices[d], (*links.shape[:-1], count)
    found = np.zeros((4, *shape))
    for s, size in sizes.items():
        source, busy = problem.devices[s], size > 0
        seconds, joules = (x.reshape(size.shape) for x in problem.transfer(source, target, size.ravel()))
        lead = np.minimum(seconds, packet_s(problem, source, target))
        if source in problem.streaming and links.stream_s is None:
            if s != d and problem.duplex(source, target):
                links.slack[..., span] = np.where(busy & links.first[..., span], seconds - lead, links.slack[..., span])
            links.first[..., span] &= ~busy
        if links.stream_s is not None and links.early is not None:
            if s != d and problem.duplex(source, target):
                before = np.where(busy & links.early[..., span], np.minimum(links.stream_s[:, None], seconds - lead), 0.0)
                seconds, lead = seconds - before, lead - before
            links.early[..., span] &= ~busy
        links.joules[..., span] += joules
        if problem.mode is Mode.SEQUENTIAL:
            links.added[..., span] += seconds
        stop = links.occupy(problem.lanes(source, target), span, busy, seconds)
        np.maximum(found[ARRIVED], np.where(busy, stop, 0.0), out=found[ARRIVED])
        if problem.streams(target):
            np.maximum(found[FIRST], np.where(busy, stop - seconds + lead, 0.0), out=found[FIRST])
            found[RETURNS] = busy if s == d else found[RETURNS]
        np.maximum(found[BUSY], busy, out=found[BUSY])
    return found
