"""What a split of a node costs, given where its inputs lie: the rules of plans, restated over arrays of doubles or fractions.

Rows are places of the inputs, columns ways to run the node. A piece fetches what it reads and does not have, one transfer per
source, in the order of targets and then of sources; transfers that share a lane wait for each other. It computes when all is
there. An FPGA keeps nothing: a piece there flows on from what was made there exactly as it reads it, or fetches everything, its
own part over the host and back; a piece with one input may begin with its first packet. Partial sums go to the reducer last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from dovetail.certificate.columns import Columns, Numbers
from dovetail.cost import transfer_rates
from dovetail.cost.accelerator import part_between_frames
from dovetail.hardware.shares import Flags, Ints
from dovetail.ir import Graph, Node, whole
from dovetail.platform.device import Kind, Platform

PACKET_BYTES = 256
"""What must have arrived before an FPGA starts. Source: the usual payload of a packet of PCI Express."""
SUM_BYTES = 4
"""Of a partial sum, an int32."""
SHARED = "engine shared by layers"


@dataclass(frozen=True, slots=True)
class TensorPlaces:
    """Where a tensor may lie: regions as places x devices x dimensions x 2; None stands for wherever it is wanted."""

    regions: Ints | None
    stream_s: Numbers | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """Of places x columns: when the node is done, the joules of transfers, and what is kept busy how long."""

    done_s: Numbers
    moved_j: Numbers
    busy_s: Mapping[str, Numbers]


@dataclass(frozen=True)
class Rules:
    """A network on a board; `exact` computes with fractions."""

    graph: Graph
    platform: Platform
    exact: bool = False
    known: dict[tuple[int, int], tuple[tuple[Any, ...], ...]] = field(default_factory=dict, repr=False, compare=False)
    parts: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)
    """By device, `occupied` of its arrays."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.platform.devices)

    @cached_property
    def streams(self) -> tuple[bool, ...]:
        return tuple(d.kind is Kind.FPGA for d in self.platform.devices)

    @cached_property
    def idle_w(self) -> Any:
        return sum(self.number(d.idle_power_w) for d in self.platform.devices)

    @cached_property
    def follows(self) -> Mapping[str, bool]:
        """Nodes that read one tensor alone, made by the node just before: their transfers may begin while it is made."""
        nodes = self.graph.nodes
        return {n.name: k > 0 and set(n.inputs) == {nodes[k - 1].output} for k, n in enumerate(nodes)}

    def number(self, value: float) -> Any:
        return Fraction(value) if self.exact else float(value)

    def zeros(self, *shape: int) -> Numbers:
        return np.full(shape, Fraction(0), dtype=object) if self.exact else np.zeros(shape)

    def home(self, tensor: str) -> TensorPlaces:
        """The place of a graph input: whole on the host."""
        region = whole(self.graph.shape(tensor)) or ((0, 1),)
        regions = np.zeros((1, len(self.names), len(region), 2), dtype=np.int64)
        regions[0, self.names.index(self.platform.host)] = region
        return TensorPlaces(regions, self.zeros(1))

    def lanes(self, source: int, target: int) -> tuple[str, ...]:
        """One direction of every link on the way, or both of one that is half duplex."""
        names, found = self.names, dict[str, None]()
        for here, there in self._ways(names[source], names[target]):
            at = here
            for link in self.platform.route(here, there):
                onto = link.ends[1] if link.ends[0] == at else link.ends[0]
                found[f"{link.name}:{at}>{onto}" if link.full_duplex else f"{link.name}:{'-'.join(link.ends)}"] = None
                at = onto
        return tuple(found)

    def _ways(self, source: str, target: str) -> list[tuple[str, str]]:
        host = self.platform.host
        return [(source, target)] if source != target else [(source, host), (host, target)]

    def duplex(self, source: int, target: int) -> bool:
        return source != target and all(link.full_duplex for link in self.platform.route(self.names[source], self.names[target]))

    def transfer(self, source: int, target: int, size: Numbers) -> tuple[Numbers, Numbers]:
        """Seconds and joules; nothing for nothing."""
        if (source, target) not in self.known:
            self.known[source, target] = tuple(
                tuple(map(self.number, transfer_rates(self.platform, *way)))
                for way in self._ways(self.names[source], self.names[target]))
        seconds, joules = self.zeros(*size.shape), self.zeros(*size.shape)
        for latency_s, per_byte_s, per_byte_j in self.known[source, target]:
            seconds = seconds + np.where(size > 0, latency_s, self.number(0)) + size * per_byte_s
            joules = joules + size * per_byte_j
        return seconds, joules

    def worker(self, device: int, node: str) -> str:
        """What a piece keeps busy: a processor, or on an FPGA the engine that it has to itself or shares."""
        if not self.streams[device]:
            return self.names[device]
        return f"{self.names[device]} {SHARED if self.shares(device, node) else f'engine {node}'}"

    def shares(self, device: int, node: str) -> bool:
        """Whether a node is on arrays that serve many."""
        accelerator = self.platform.devices[device].accelerator
        return accelerator is not None and node in accelerator.reusable

    def occupied(self, device: int, node: str) -> Any:
        """Of the seconds of a piece by itself, the part that keeps its engine from the next frame: arrays load one meanwhile."""
        if not self.shares(device, node):
            return self.number(1)
        if device not in self.parts:
            self.parts[device] = self.number(part_between_frames(self.graph, self.platform.devices[device]))
        return self.parts[device]


@dataclass
class ArmClock:
    """When lanes are free, and when what each device holds was made: all zero before a node that runs by itself."""

    lanes: dict[str, Numbers] = field(default_factory=dict)
    ready: Mapping[int, Numbers] = field(default_factory=dict)
    begin: Mapping[int, Numbers] = field(default_factory=dict)


def run(rules: Rules, own: Columns, places: Sequence[TensorPlaces], clock: ArmClock | None = None) -> Spent:
    """Run a node in all its columns on inputs in all given places."""
    clock = ArmClock() if clock is None else clock
    graph, node = rules.graph, own.node
    rows = max((len(p.regions) for p in places if p.regions is not None), default=1)
    shape, zero = (rows, len(own)), rules.zeros(rows, len(own))
    produced = all(graph.producer(t) is not None for t in node.inputs)
    relaxed, alone = any(p.regions is None for p in places), len(set(node.inputs)) == 1
    early = zero + places[0].stream_s[:, None] if rules.follows[node.name] and places[0].stream_s is not None else None
    done: dict[int, Numbers] = {}
    busy: dict[str, Numbers] = {}
    latest, moved_j = zero, zero

    def occupy(source: int, target: int, some: Flags, seconds: Numbers, ready: Numbers) -> Numbers:
        start = ready
        for lane in rules.lanes(source, target):
            start = np.maximum(start, clock.lanes.get(lane, zero))
        for lane in rules.lanes(source, target):
            clock.lanes[lane] = np.where(some, start + seconds, clock.lanes.get(lane, zero))
        return start

    def count(name: str, seconds: Numbers) -> None:
        busy[name] = busy.get(name, zero) + seconds

    for d in np.nonzero(own.has.any(axis=0))[0].tolist():
        here = np.broadcast_to(own.has[:, d], shape)
        flows = _flows(node, own, places, d) & here if rules.streams[d] and produced else np.zeros(shape, dtype=np.bool_)
        first = arrived = zero + clock.begin.get(d, 0)
        fetched, returned = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
        for s in range(len(rules.names)):
            if s == d and not rules.streams[d]:
                continue
            size = _bytes(rules, own, places, s, d)
            some = (size > 0) & here & (~flows if s == d else True)
            if not some.any():
                continue
            size = np.where(some, size, 0)
            seconds, joules = rules.transfer(s, d, size)
            lead, _ = rules.transfer(s, d, np.minimum(size, PACKET_BYTES))
            before = np.minimum(early, seconds - lead) if early is not None and rules.duplex(s, d) else zero
            start = occupy(s, d, some, seconds - before, zero + clock.ready.get(s, 0))
            first = np.where(some, np.maximum(first, start - before + lead), first)
            arrived = np.where(some, np.maximum(arrived, start + seconds - before), arrived)
            moved_j = moved_j + joules
            for lane in rules.lanes(s, d):
                count(lane, seconds)
            fetched, returned = fetched | some, returned | (some if s == d else False)
        if early is not None:
            early = np.where(fetched, zero, early)
        quick = np.minimum(own.alone_s[:, d], own.fused_s[:, d])
        still = own.alone_s[:, d] if not produced else quick if relaxed else own.fused_s[:, d]
        compute = np.where(fetched, own.alone_s[:, d], still)
        flowing = fetched & ~returned & (rules.streams[d] and alone)
        done[d] = np.where(flowing, np.maximum(first + own.alone_s[:, d], arrived + quick), arrived + compute)
        latest = np.where(here, np.maximum(latest, done[d]), latest)
        alone_s = zero + own.alone_s[:, d] * rules.occupied(d, node.name)
        count(rules.worker(d, node.name), np.where(here, alone_s if rules.streams[d] else compute, zero))
    for r in sorted({r for r in own.reducer.tolist() if r >= 0}):
        sums = np.broadcast_to(own.reducer == r, shape)
        latest = np.where(sums, done.get(r, zero), latest) if r in done else np.where(sums, zero, latest)
        for d in sorted(done):
            some = sums & own.has[:, d]
            if d == r or not some.any():
                continue
            size = np.where(some, graph.tensors[node.output].size * SUM_BYTES, 0)
            seconds, joules = rules.transfer(d, r, size)
            start = occupy(d, r, some, seconds, done[d])
            latest = np.where(some, np.maximum(latest, start + seconds), latest)
            moved_j = moved_j + joules
            for lane in rules.lanes(d, r):
                count(lane, seconds)
        latest = np.where(sums, latest + own.reduce_s, latest)
        count(rules.worker(r, f"{node.name} sum"), np.where(sums, zero + own.reduce_s, zero))
    return Spent(latest, moved_j, busy)


def _flows(node: Node, own: Columns, places: Sequence[TensorPlaces], d: int) -> Flags:
    """Where all that a piece reads was made on its device in exactly that region."""
    same: Flags = np.ones((1, len(own)), dtype=np.bool_)
    for read, place in zip(own.reads, places, strict=True):
        if place.regions is not None:
            made = place.regions[:, None, d]
            same = same & (made == read[None, :, d]).all(axis=(2, 3)) & (made[..., 0, 1] > 0)
    return same


def _bytes(rules: Rules, own: Columns, places: Sequence[TensorPlaces], s: int, d: int) -> Numbers:
    """Bytes that a device holds of what a piece elsewhere reads; what is read twice alike comes once."""
    total: Any = np.zeros((1, len(own)), dtype=np.int64)
    for i, (tensor, read, place) in enumerate(zip(own.node.inputs, own.reads, places, strict=True)):
        if place.regions is None:
            continue
        low = np.maximum(place.regions[:, None, s, :, 0], read[None, :, d, :, 0])
        high = np.minimum(place.regions[:, None, s, :, 1], read[None, :, d, :, 1])
        common = np.maximum(high - low, 0).prod(axis=2) * rules.graph.tensors[tensor].element_bytes
        for j in range(i):
            if own.node.inputs[j] == tensor:
                common = np.where((own.reads[j][:, d] == read[:, d]).all(axis=(1, 2)), 0, common)
        total = total + common
    return np.asarray(total, dtype=object if rules.exact else np.float64)


def delivery(rules: Rules, tensor: str, place: TensorPlaces) -> Spent:
    """Bring a graph output home from each of its places; the last node's may leave while it is made."""
    assert place.regions is not None
    host, rows = rules.names.index(rules.platform.host), len(place.regions)
    lanes: dict[str, Numbers] = {}
    busy: dict[str, Numbers] = {}
    zero = rules.zeros(rows, 1)
    last = rules.graph.nodes[-1].output == tensor and place.stream_s is not None
    stream = zero + place.stream_s[:, None] if last and place.stream_s is not None else zero
    done, moved_j = zero, zero
    for s in range(len(rules.names)):
        sizes = place.regions[:, s]
        size = ((sizes[:, :, 1] - sizes[:, :, 0]).prod(axis=1) * rules.graph.tensors[tensor].element_bytes)[:, None]
        size = np.asarray(size, dtype=object if rules.exact else np.float64)
        if s == host or not (size > 0).any():
            continue
        seconds, joules = rules.transfer(s, host, size)
        lead, _ = rules.transfer(s, host, np.minimum(size, PACKET_BYTES))
        before = np.minimum(stream, seconds - lead) if rules.duplex(s, host) else zero
        start = zero
        for lane in rules.lanes(s, host):
            start = np.maximum(start, lanes.get(lane, zero))
        for lane in rules.lanes(s, host):
            lanes[lane] = np.where(size > 0, start + seconds - before, lanes.get(lane, zero))
            busy[lane] = busy.get(lane, zero) + seconds
        done = np.where(size > 0, np.maximum(done, start + seconds - before), done)
        moved_j = moved_j + joules
    return Spent(done, moved_j, busy)
