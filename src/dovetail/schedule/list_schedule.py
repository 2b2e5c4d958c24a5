"""A plan in time: list scheduling of one frame in topological order, every task as early as its order allows.

Tasks take devices and directions of links (`pcie:cpu>fpga`) in the order the evaluator runs them, but do not wait for
nodes they do not depend on: independent branches on different devices and transfers that can go ahead overlap. The
evaluator's own timing keeps to the same order on every device and link, so the makespan is never larger than its latency.

A piece that streams behind its producers on the same device overlaps them as a pipeline: it adds `fused_s` after the
last of them and is drawn over the time it would take alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dovetail.ir import Graph, Node, region_size
from dovetail.partition.cost_model import CostModel
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.plan import Assignment, Plan, Split
from dovetail.partition.problem import PARTIAL_BYTES, Problem
from dovetail.partition.tables.quotes import ask_pieces
from dovetail.partition.work import Move, Place, Work, check_split, deliveries, input_places, output_place, work_of
from dovetail.platform.device import Platform


@dataclass(frozen=True, slots=True)
class Task:
    """Something that occupies one resource (a device, or one direction of a link) from start to stop."""

    name: str
    resource: str
    kind: str
    """`compute`, `transfer` or `reduce`."""
    node: str
    start_s: float
    stop_s: float
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor (or a piece of one) held in a device's memory from start to stop."""

    tensor: str
    device: str
    size_bytes: int
    start_s: float
    stop_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The whole schedule of one frame."""

    tasks: tuple[Task, ...]
    buffers: tuple[Buffer, ...]

    @property
    def makespan_s(self) -> float:
        return max((t.stop_s for t in self.tasks), default=0.0)


def schedule(graph: Graph, platform: Platform, plan: Plan | Assignment, costs: CostModel | None = None) -> Timeline:
    """Tasks and buffers of one frame under a plan (or a bare assignment); costs default to the devices' own models."""
    assignment: Assignment = plan.assignment if isinstance(plan, Plan) else plan
    problem = Problem(graph, platform, costs if costs is not None else DeviceCosts())
    for node in graph.nodes:
        check_split(problem, node, assignment[node.name])
    ask_pieces(problem, assignment)
    return _Scheduler(problem).run(assignment)


@dataclass
class _Held:
    """A region of a tensor on a device: since when, until when, how large."""

    size_bytes: int
    start_s: float
    ready_s: float
    last_use_s: float


@dataclass
class _Scheduler:
    """When devices and lanes are free again, each by its own names, and what each device holds."""

    problem: Problem
    free: dict[str, float] = field(default_factory=dict)
    lanes: dict[str, float] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    held: dict[tuple[str, str], _Held] = field(default_factory=dict)
    copies: list[Buffer] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)

    def run(self, assignment: Mapping[str, Split]) -> Timeline:
        graph = self.problem.graph
        self.places = input_places(self.problem)
        for tensor, place in self.places.items():
            self._hold(tensor, place, {device: (0.0, 0.0) for device, _ in place.parts})
        for node in graph.nodes:
            split = assignment[node.name]
            self._node(node, split, work_of(self.problem, node, split, self.places))
        for tensor in graph.outputs:
            self._deliver(tensor)
        home = [Buffer(t, d, h.size_bytes, h.start_s, h.last_use_s) for (t, d), h in self.held.items()]
        return Timeline(tuple(self.tasks), tuple(sorted((*home, *self.copies), key=lambda b: (b.start_s, b.tensor, b.device))))

    def _hold(self, tensor: str, place: Place, times: Mapping[str, tuple[float, float]]) -> None:
        width = self.problem.graph.tensors[tensor].element_bytes
        for device, region in place.parts:
            start, ready = times[device]
            self.held[tensor, device] = _Held(region_size(region) * width, start, ready, ready)

    def _move(self, name: str, node: str, move: Move, ready_s: float) -> float:
        """Place a transfer on its lanes, one task per lane, as early as what it moves is made; returns when it is done."""
        start = max([ready_s - move.before_s, *(self.lanes.get(lane, 0.0) for lane in move.lanes)])
        stop = start + move.before_s + move.seconds
        for lane in move.lanes:
            self.lanes[lane] = stop
            self.tasks.append(Task(name, lane, "transfer", node, start, stop, move.size_bytes))
        return stop

    def _ready(self, node: Node, device: str) -> float:
        """When what a device holds of a node's inputs is there."""
        return max((self.held[t, device].ready_s for t in node.inputs if (t, device) in self.held), default=0.0)

    def _use(self, node: Node, device: str, until_s: float) -> None:
        for tensor in node.inputs:
            if (tensor, device) in self.held:
                self.held[tensor, device].last_use_s = max(self.held[tensor, device].last_use_s, until_s)

    def _node(self, node: Node, split: Split, work: Work) -> None:
        arrived: dict[int, list[tuple[Move, float]]] = {}
        for m in work.arrivals:
            stop = self._move(f"{node.name}: {m.source} to {m.target}", node.name, m, self._ready(node, m.source))
            self._use(node, m.source, stop)
            arrived.setdefault(m.piece, []).append((m, stop))
        times: dict[str, tuple[float, float]] = {}
        for i, piece in enumerate(split.pieces):
            got = arrived.get(i, [])
            start, stop = self._compute(node, split, work, i, got)
            times[piece.device] = (start, stop)
            self._use(node, piece.device, stop)
            names = " and ".join(dict.fromkeys(node.inputs))
            self.copies += [Buffer(names, piece.device, m.size_bytes, at - m.before_s - m.seconds, stop) for m, at in got]
        if work.reduce is not None and split.reducer is not None:
            times = {split.reducer: self._reduce(node, work, split.reducer, times)}
        self.places[node.output] = output_place(self.problem, node, split)
        self._hold(node.output, self.places[node.output], times)

    def _compute(self, node: Node, split: Split, work: Work, i: int, got: list[tuple[Move, float]]) -> tuple[float, float]:
        """Run a piece after its transfers: processors one piece at a time, a streaming device each in hardware of its own."""
        piece, cost = split.pieces[i], work.pieces[i]
        ready = max([0.0, self._ready(node, piece.device)])
        if not self.problem.streams(piece.device):
            ready = max(ready, self.free.get(piece.device, 0.0))
        begin = max([ready, *(at for _, at in got)])
        stop = work.done_s(i, max([ready, *(at - m.before_s - m.seconds + m.lead_s for m, at in got)]), begin)
        start = stop - cost.alone_s if work.flowing[i] else begin
        if work.fused[i] and cost.fused_s < cost.alone_s and self.problem.streams(piece.device):
            began = [self.held[t, piece.device].start_s for t in node.inputs if (t, piece.device) in self.held]
            first = max(began, default=begin)
            start = min(begin, max(first, stop - cost.alone_s))
        self.free[piece.device] = stop
        label = node.name if split.axis is None else f"{node.name}[{piece.start}:{piece.stop}]"
        self.tasks.append(Task(label, piece.device, "compute", node.name, start, stop))
        return start, stop

    def _reduce(self, node: Node, work: Work, reducer: str, times: Mapping[str, tuple[float, float]]) -> tuple[float, float]:
        assert work.reduce is not None, "called for input-channel splits"
        size = self.problem.graph.tensors[node.output].size * PARTIAL_BYTES
        sent = [(m, self._move(f"{node.name}: sums {m.source} to {m.target}", node.name, m, times[m.source][1]))
                for m in work.partials]
        own = [times[reducer][1]] if reducer in times else []
        start = max([self.free.get(reducer, 0.0), *own, *(at for _, at in sent)])
        stop = start + work.reduce.alone_s
        self.free[reducer] = stop
        self.tasks.append(Task(f"{node.name}: sum", reducer, "reduce", node.name, start, stop))
        sums = f"{node.name} sums"
        self.copies += [Buffer(sums, m.source, size, times[m.source][0], at) for m, at in sent]
        self.copies += [Buffer(sums, reducer, size, at - m.seconds, stop) for m, at in sent]
        self.copies += [Buffer(sums, reducer, size, times[reducer][0], stop)] if own else []
        return start, stop

    def _deliver(self, tensor: str) -> None:
        """Bring a graph output home as soon as it is there; it stays until the end of its transfer."""
        host = self.problem.platform.host
        for m in deliveries(self.problem, tensor, self.places[tensor]):
            held = self.held[tensor, m.source]
            stop = self._move(f"{tensor}: {m.source} to {host}", tensor, m, held.ready_s)
            held.last_use_s = max(held.last_use_s, stop)
            self.copies.append(Buffer(tensor, host, m.size_bytes, stop - m.before_s - m.seconds, stop))
