"""The question a partitioner answers: a graph, a platform, costs, a goal and its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite

import numpy as np

from dovetail import values
from dovetail.cost import transfer_seconds, transferred
from dovetail.cost.budget import usable
from dovetail.cost.estimate import ShareCosts
from dovetail.errors import UnsupportedError, UsageError
from dovetail.hardware.shares import Floats
from dovetail.ir import Axis, Conv, Graph, Node, Op, Region, whole
from dovetail.ir.branches import Block, in_order
from dovetail.partition.boards.relaxation import Pool, Share
from dovetail.partition.cost_model import CostModel, Rates
from dovetail.partition.effort import spend
from dovetail.partition.memo import Cache, Memo
from dovetail.partition.plan import Assignment, Goal, Mode, Piece, Split
from dovetail.partition.tables.regions import share_regions
from dovetail.partition.tolerances import TOLERANCE as TOLERANCE
from dovetail.platform.device import Kind, Platform

PACKET_BYTES = 256
"""Payload of one packet of PCI Express. Chosen: the usual Max_Payload_Size of hosts."""
PARTIAL_BYTES = 4
"""Partial sums travel as int32. Chosen: the width of accumulators everywhere."""


Shares = dict[tuple[int, int], "PieceCost"]
PIECES = Cache[tuple[str, Axis | None, str], Shares | None](lasting=True)
"""By node, axis and device the prices of its shares; None where the device cannot run it."""
SUMS = Cache[tuple[int | str, str, int], "PieceCost | None"](lasting=True)
"""By sort of node, device and number of parts."""
ROUTES = Cache[tuple[str, str], tuple[str, ...]](lasting=True)
RATES = Cache[tuple[str, str], tuple[Rates, ...]](lasting=True)
SORTS = Cache[object, int](lasting=True)
GEOMETRIES = Cache[object, int](lasting=True)
EXTENTS = Cache[int, Mapping[Axis, int]](lasting=True)
REGIONS = Cache[tuple[int, Axis | None, int, int], tuple[tuple[Region, ...], Region]](lasting=True)
Quote = tuple[Mapping[tuple[Axis | None, int, int], int], ShareCosts]
QUOTES = Cache[tuple[str, str], Quote | None]()
"""By node and device the prices of all its candidate shares (see `tables.quotes`)."""
TWINS = Cache[str, str]()
"""Devices that another one, asked instead, has the same prices as."""


@dataclass(frozen=True)
class Problem:
    """Everything `evaluate` and the solvers need to know; what they found out is kept in `memo`.

    The nodes of `graph` are put in an order that keeps the blocks of its branches together.
    """

    graph: Graph
    platform: Platform
    costs: CostModel
    goal: Goal = Goal.LATENCY
    mode: Mode = Mode.CONCURRENT
    shared_budget: bool = True
    max_latency_s: float | None = None
    max_energy_j: float | None = None
    max_interval_s: float | None = None
    """What any processor, direction of a link or engine may be busy with per frame (see `busy`); concurrent mode only."""
    fixed: Assignment = field(default_factory=dict)
    pool: Pool | None = None
    """The FPGAs that those of the platform stand for, with the budgets of all of them together."""
    more: Mapping[str, tuple[Split, ...]] = field(default_factory=dict)
    """Splits of nodes to choose from besides the candidates (see `candidates`)."""
    off_grid: bool = field(default=False, compare=False)
    """Whether plans may be cut where no candidate is."""
    forks: tuple[Block, ...] | None = field(default=None, repr=False, compare=False)
    """Blocks whose arms may run at once; None stands for all of the graph's."""
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.forks is None:
            ordered, forks = in_order(self.graph)
            object.__setattr__(self, "graph", ordered)
            object.__setattr__(self, "forks", forks)
        object.__setattr__(self, "memo", self.memo.about(self.graph, self.platform, self.costs))
        for name in self.fixed:
            if name not in self.order:
                raise UsageError(
                    f"fixed assignment: the model has no node {name}; its nodes are {', '.join(sorted(self.order))}")

    @cached_property
    def devices(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.platform.devices)

    @cached_property
    def order(self) -> Mapping[str, int]:
        """The position of every node."""
        return {n.name: k for k, n in enumerate(self.graph.nodes)}

    @cached_property
    def idle_power_w(self) -> float:
        """Every device of the platform is powered for as long as a frame takes."""
        return self.pool.idle_power_w if self.pool is not None else sum(d.idle_power_w for d in self.platform.devices)

    @cached_property
    def streaming(self) -> frozenset[str]:
        """Devices that pass pixels on as they come and keep no tensor."""
        return frozenset(d.name for d in self.platform.devices if d.kind is Kind.FPGA)

    @cached_property
    def budgets(self) -> tuple[tuple[str, str, float], ...]:
        """(device, resource, limit) of every limited resource."""
        return tuple((device, r, limit) for device, own in self.limits.items() for r, limit in own.items())

    @cached_property
    def limits(self) -> Mapping[str, Mapping[str, float]]:
        """Of every device, what plans may take of its resources."""
        return {d.name: usable(d) for d in self.platform.devices}

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """The limited resources that all nodes together may not exceed; those of a pool are added up."""
        if not self.shared_budget:
            return ()
        found: dict[str, Share] = {}
        for i, (device, resource, limit) in enumerate(self.budgets):
            pooled = self.pool is not None and device in self.pool.stand_ins
            name = f"{device} {resource}"
            if pooled and self.pool is not None:
                name = f"{self.pool.boards[0]}..{self.pool.boards[-1]} {resource}"
            known = found.get(name, Share(name, (), limit, len(self.pool.boards) if pooled and self.pool is not None else 1))
            found[name] = Share(name, (*known.budgets, i), limit, known.count)
        return tuple(found.values())

    def offering(self, more: Mapping[str, tuple[Split, ...]]) -> Problem:
        """The same question with further splits to choose from."""
        return replace(self, more=more, memo=self.memo.lasting())

    def pinned(self, fixed: Assignment) -> Problem:
        """The same question with these nodes fixed and no others."""
        return replace(self, fixed=fixed, more={}, memo=self.memo.lasting())

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Blocks whose arms may run at once, larger ones first where one holds another; none in sequential mode."""
        return (self.forks or ()) if self.mode is Mode.CONCURRENT else ()

    @cached_property
    def blocks_around(self) -> Mapping[str, tuple[int, ...]]:
        """Of every node, which of the `blocks` it is in or joins; those without are missing."""
        found: dict[str, tuple[int, ...]] = {}
        for i, block in enumerate(self.blocks):
            for n in block.around:
                found[n.name] = (*found.get(n.name, ()), i)
        return found

    @property
    def packet_bytes(self) -> int:
        """What must have arrived before a streaming device starts, and what leaves after its last pixel."""
        return PACKET_BYTES

    def streams(self, device: str) -> bool:
        """Whether a device passes pixels on as they come and keeps no tensor: what it made is gone unless it flows on."""
        return device in self.streaming

    def transfer(self, source: str, target: str, sizes_bytes: Floats) -> tuple[Floats, Floats]:
        """Seconds and joules of transfers; from a device to itself they go over the host, there and back."""
        found = [transferred(sizes_bytes, *rates) for rates in self.hops(source, target)]
        return found[0] if len(found) == 1 else (found[0][0] + found[1][0], found[0][1] + found[1][1])

    def transfer_s(self, source: str, target: str, sizes_bytes: Floats, busy: Floats) -> Floats:
        """The seconds of `transfer` alone; `busy` is one where there is anything to move, else zero."""
        found = [transfer_seconds(sizes_bytes, latency_s, per_byte, busy) for latency_s, per_byte, _ in self.hops(source, target)]
        return found[0] if len(found) == 1 else found[0] + found[1]

    def transfer_one(self, source: str, target: str, size_bytes: int) -> tuple[float, float]:
        """`transfer` of one size, in plain numbers."""
        size = float(size_bytes)
        found = [((latency_s if size > 0 else 0.0) + size * per_byte, size * joules)
                 for latency_s, per_byte, joules in self.hops(source, target)]
        return found[0] if len(found) == 1 else (found[0][0] + found[1][0], found[0][1] + found[1][1])

    def hops(self, source: str, target: str) -> tuple[Rates, ...]:
        """Rates of a transfer, one or, from a device to itself, there and back."""
        known = self.memo.of(RATES)
        if (source, target) not in known:
            host = self.platform.host
            ways = [(source, target)] if source != target else [(source, host), (host, target)]
            known[source, target] = tuple(self.costs.rates(self.platform, *way) for way in ways)
        return known[source, target]

    def lanes(self, source: str, target: str) -> tuple[str, ...]:
        """What a transfer occupies: of every link on its way one direction (`pcie:cpu>fpga`), or both if it is half duplex.

        No device has such a name, so what serves nodes can be told apart by names.
        """
        if source == target:
            return tuple(dict.fromkeys((*self.lanes(source, self.platform.host), *self.lanes(self.platform.host, target)))) \
                if source != self.platform.host else ()
        known = self.memo.of(ROUTES)
        if (source, target) not in known:
            at, found = source, []
            for link in self.platform.route(source, target):
                onto = link.ends[1] if link.ends[0] == at else link.ends[0]
                found.append(f"{link.name}:{at}>{onto}" if link.full_duplex else f"{link.name}:{'-'.join(link.ends)}")
                at = onto
            known[source, target] = tuple(found)
        return known[source, target]

    def duplex(self, source: str, target: str) -> bool:
        """Whether a transfer leaves the other direction of all its links free."""
        return all(link.full_duplex for link in self.platform.route(source, target))

    def score(self, latency_s: float, energy_j: float, interval_s: float = inf) -> float:
        """The goal's value in SI units."""
        return {Goal.LATENCY: latency_s, Goal.ENERGY: energy_j, Goal.EDP: latency_s * energy_j,
                Goal.THROUGHPUT: interval_s}[self.goal]


@values.dataclass(frozen=True, slots=True)
class PieceCost:
    """One entry of a ShareCosts."""

    alone_s: float
    fused_s: float
    low_s: float
    high_s: float
    energy_j: float
    resources: tuple[tuple[str, float], ...]
    extrapolated: bool
    source: str


def entry(costs: ShareCosts, i: int) -> PieceCost:
    """The price of one of several shares."""
    return PieceCost(costs.alone_s.item(i), costs.fused_s.item(i), costs.low_s.item(i), costs.high_s.item(i),
                     costs.energy_j.item(i), tuple([(r, v.item(i)) for r, v in costs.resources.items()]),
                     costs.extrapolated.item(i), costs.source)


def price_pieces(problem: Problem, node: Node, axis: Axis | None, device: str,
                 intervals: Sequence[tuple[int, int]]) -> dict[tuple[int, int], PieceCost] | None:
    """Costs of the given shares (and all asked before) on one device, in one vectorised question; None if it cannot."""
    device = problem.memo.of(TWINS).get(device, device)
    key = (node.name, axis, device)
    priced = problem.memo.of(PIECES)
    known = priced.setdefault(key, {})
    if known is None:
        return None
    missing = [i for i in sorted(set(intervals)) if i not in known and not _quoted(problem, node, axis, device, i, known)]
    if missing:
        starts, stops = (np.array([i[side] for i in missing], dtype=np.int64) for side in (0, 1))
        found = problem.costs.costs_of(problem.graph, node, axis, starts, stops, problem.platform.device(device))
        spend("shares", 1, len(missing))
        if found is None:
            priced[key] = None
            return None
        known.update({interval: entry(found, i) for i, interval in enumerate(missing) if np.isfinite(found.alone_s[i])})
    return known


def _quoted(problem: Problem, node: Node, axis: Axis | None, device: str, interval: tuple[int, int],
            known: dict[tuple[int, int], PieceCost]) -> bool:
    """Take a price from those asked for all columns at once; they are exact where they fit the device."""
    quote = problem.memo.of(QUOTES).get((node.name, device))
    if quote is None:
        return False
    index, costs = quote
    i = index.get((axis, *interval))
    if i is None or not isfinite(costs.alone_s.item(i)):
        return False
    limits = problem.platform.device(device).resources
    if costs.resources and any([limits.get(r, inf) < amounts.item(i) for r, amounts in costs.resources.items()]):
        return False
    known[interval] = entry(costs, i)
    return True


def price(problem: Problem, node: Node, axis: Axis | None, piece: Piece) -> PieceCost:
    """Cost of one piece; UnsupportedError where the device cannot run it."""
    own, interval = problem.memo.of(TWINS).get(piece.device, piece.device), (piece.start, piece.stop)
    known = problem.memo.of(PIECES).setdefault((node.name, axis, own), {})
    if known is not None and (interval in known or _quoted(problem, node, axis, own, interval, known)):
        return known[interval]
    known = price_pieces(problem, node, axis, own, [interval])
    if known is None or interval not in known:
        device = problem.platform.device(piece.device)
        reason = problem.costs.why_not(problem.graph, node, device) or f"no cost for its share along {axis}"
        raise UnsupportedError(f"node {node.name}: {piece.device} cannot run it, {reason}; place it on another device")
    return known[interval]


def price_reduce(problem: Problem, node: Node, parts: int, device: str) -> PieceCost | None:
    """Cost of adding `parts` partial sums on a device, None where it cannot; alike nodes cost alike where devices go by shape."""
    own = problem.platform.device(problem.memo.of(TWINS).get(device, device))
    key = (sort_of(problem, node) if problem.costs.by_shape(own) else node.name, own.name, parts)
    known = problem.memo.of(SUMS)
    if key not in known:
        found = problem.costs.reduce_costs(problem.graph, node, parts, own)
        known[key] = None if found is None else entry(found, 0)
    return known[key]


def piece_regions(problem: Problem, node: Node, axis: Axis | None, start: int, stop: int) -> tuple[tuple[Region, ...], Region]:
    """What a piece reads of each input and which part of the output it computes."""
    key = (sort_of(problem, node), axis, start, stop)
    known = problem.memo.of(REGIONS)
    if key not in known:
        shapes = problem.graph.input_shapes(node)
        if axis is None:
            known[key] = tuple(whole(s) for s in shapes), whole(problem.graph.shape(node.output))
        else:
            known[key] = share_regions(node.op, axis, start, stop, shapes, problem.graph.shape(node.output))
    return known[key]


def axes_of(problem: Problem, node: Node) -> Mapping[Axis, int]:
    """The axes along which a node can be divided, and how many units each has."""
    sort, known = sort_of(problem, node), problem.memo.of(EXTENTS)
    if sort not in known:
        shapes = problem.graph.input_shapes(node)
        known[sort] = {a: node.op.extent(a, shapes) for a in node.op.axes(shapes)}
    return known[sort]


def shape_of(problem: Problem, node: Node) -> int:
    """A number that nodes share whose shares read and make the same regions."""
    known = problem.memo.of(GEOMETRIES)
    found = known.get(node.name)
    if found is None:
        alike = (geometry_of(node), problem.graph.input_shapes(node))
        found = known[node.name] = known.setdefault(alike, len(known))
    return found


def geometry_of(node: Node) -> Op:
    """What decides which regions shares of a node read and make: its operator without its activation, which cuts nothing."""
    return replace(node.op, clamp=None) if isinstance(node.op, Conv) and node.op.clamp is not None else node.op


def sort_of(problem: Problem, node: Node) -> int:
    """A number that nodes of the same operator and shapes share, found by name: hashing an operator is slow."""
    known = problem.memo.of(SORTS)
    found = known.get(node.name)
    if found is None:
        alike = (node.op, problem.graph.input_shapes(node))
        found = known[node.name] = known.setdefault(alike, len(known))
    return found
