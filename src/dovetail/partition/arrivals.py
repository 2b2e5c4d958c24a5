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
from dovetail.partition.columns import Held, Options, Pattern
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

    def take(self, rows: Ints, columns: Ints, spans: Mapping[int, Ints]) -> Arrivals:
        """Some places of the one input and some columns; `spans` numbers those of each device's arrays."""
        grid = (rows[:, None], columns)
        return Arrivals({d: self.pieces[d][:, rows[:, None], at] for d, at in spans.items()}, self.joules[grid],
                        self.added_s[grid], {lane: busy[grid] for lane, busy in self.lanes.items()},
                        None if self.slack_s is None else self.slack_s[grid])


def arrivals(problem: Problem, own: Options, known: Mapping[str, Held], inputs: Sequence[str],
             paying: Sequence[str]) -> tuple[Arrivals, Arrivals | None, Ints]:
    """Arrivals for the given columns; `inputs` have an axis each, those in `paying` are fetched, others always there.

    Then those of the places that leave while they are made, if there are any, and which places of the one input these are.
    """
    if len(inputs) > 1:
        return _arrived(problem, own.node, own.pattern, own.columns, known, inputs, paying, None), None, own.columns[:0]
    columns, has = own.columns, own.pattern.has[own.columns]
    spans = {d: columns if wide(problem) else own.pattern.rank_on[columns[has[:, d]], d]
             for d in np.flatnonzero(has.any(axis=0)).tolist()}
    if not inputs:
        found = _shared(problem, own, known, inputs, paying).take(np.zeros(1, dtype=np.int64), columns, spans)
        return Arrivals({d: a[:, 0] for d, a in found.pieces.items()}, found.joules[0], found.added_s[0],
                        {lane: busy[0] for lane, busy in found.lanes.items()}), None, columns[:0]
    held = known[inputs[0]]
    found = _shared(problem, own, known, inputs, paying)
    if len(columns) < len(own.pattern.has) or len(held.places) < len(held.pattern.held):
        found = found.take(held.places, columns, spans)
    early = np.flatnonzero(held.stream_s > 0) if follows(problem, own.node) else columns[:0]
    if not len(early):
        return found, None, early
    if wide(problem) and found.slack_s is not None:
        return found, found.sooner(early, held.stream_s[early]), early
    stream = Held(held.pattern, held.places[early], held.stream_s[early])
    sooner = _shared(problem, own, {**known, inputs[0]: stream}, inputs, paying, stream)
    return found, sooner.take(np.arange(len(early)), columns, spans), early


def _shared(problem: Problem, own: Options, known: Mapping[str, Held], inputs: Sequence[str], paying: Sequence[str],
            stream: Held | None = None) -> Arrivals:
    """Arrivals of all columns from all places, with one axis of places even where no input has any.

    With `stream`, from these places only, which leave while they are made.
    """
    node = own.node
    at = {t: i for i, t in enumerate(dict.fromkeys(node.inputs))}
    key = (id(own.pattern), tuple(id(known[t].pattern) for t in paying), tuple(at[t] for t in node.inputs),
           tuple(at[t] for t in paying), tuple(at[t] for t in inputs),
           tuple(problem.graph.tensors[t].element_bytes for t in node.inputs),
           tuple(problem.graph.producer(t) is None for t in node.inputs),
           None if stream is None else (stream.places.tobytes(), stream.stream_s.tobytes()))
    if key not in problem.arrived:
        columns = np.arange(len(own.pattern.has))
        wide = {t: Held(known[t].pattern, np.arange(count := len(known[t].pattern.held)), np.zeros(count))
                for t in inputs} if stream is None else {}
        found = _arrived(problem, node, own.pattern, columns, {**known, **wide}, inputs, paying,
                         None if stream is None else stream.stream_s)
        problem.arrived[key] = found if inputs else Arrivals(
            {d: a[:, None] for d, a in found.pieces.items()}, found.joules[None], found.added_s[None],
            {lane: busy[None] for lane, busy in found.lanes.items()})
    return problem.arrived[key]


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


def _arrived(problem: Problem, node: Node, pattern: Pattern, columns: Ints, known: Mapping[str, Held], inputs: Sequence[str],
             paying: Sequence[str], stream_s: Floats | None) -> Arrivals:
    """Arrivals worked out; `stream_s` says how long before the node starts each place of the one input began to leave."""
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
