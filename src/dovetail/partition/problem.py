"""The question a partitioner answers, and the candidate splits it chooses from.

A *column* is one way to run one node: whole on a device, or cut along a legal axis of its operator into
contiguous pieces, one per device, in the platform's device order. Cut positions lie on a grid (`cut_positions`):
every position where the axis has at most `GRID + 1` units, else `GRID` positions from the first to the last.
On platforms of more than three devices only neighbours share a node, on a coarser grid (`partners`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from dovetail.cost.estimate import Floats, ShareCosts
from dovetail.errors import UnsupportedError, UsageError
from dovetail.ir import Axis, Graph, Node, Region, Shape, whole
from dovetail.partition.cost_model import CostModel
from dovetail.partition.plan import Assignment, Goal, Mode, Piece, Split, whole_on
from dovetail.platform.device import Kind, Platform

if TYPE_CHECKING:
    from dovetail.partition.tables import Options

GRID = 16
"""Cut positions per axis and device pair where the graph is narrow enough to afford them."""
THREE_WAY_GRID = 4
"""Cut positions two of which bound the middle piece of a three-device split."""
FEW_DEVICES = 3
"""Up to so many devices, every pair and all three may share a node; among more, neighbours."""
MOST_PAIRS = 12
"""Pairs of neighbours that may share a node; those near the host come first."""
WHOLE_RANK = 4
"""Rank of whole placements, above that of any cut."""
TOLERANCE = 1e-9
"""Relative slack of limits, for the rounding of sums."""
PARTIAL_BYTES = 4
"""Partial sums travel as int32."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Everything `evaluate` and the solvers need; the fields from `pieces` on remember what was once computed."""

    graph: Graph
    platform: Platform
    costs: CostModel
    goal: Goal = Goal.LATENCY
    mode: Mode = Mode.CONCURRENT
    shared_budget: bool = True
    max_latency_s: float | None = None
    max_energy_j: float | None = None
    fixed: Assignment = field(default_factory=dict)
    pieces: dict[tuple[str, Axis | None, str], dict[tuple[int, int], PieceCost] | None] = field(
        default_factory=dict, repr=False, compare=False)
    routes: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)
    sorts: dict[object, int] = field(default_factory=dict, repr=False, compare=False)
    regions: dict[tuple[int, Axis | None, int, int], tuple[tuple[Region, ...], Region]] = field(
        default_factory=dict, repr=False, compare=False)
    moved: dict[tuple[str, str, int], tuple[float, float]] = field(default_factory=dict, repr=False, compare=False)
    column_sets: dict[tuple[object, ...], tuple[Column, ...]] = field(default_factory=dict, repr=False, compare=False)
    choices: dict[str, Options] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        known = {n.name for n in self.graph.nodes}
        for name in self.fixed:
            if name not in known:
                raise UsageError(f"fixed assignment: the model has no node {name}; its nodes are {', '.join(sorted(known))}")

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(d.name for d in self.platform.devices)

    @property
    def idle_power_w(self) -> float:
        """Every device of the platform is powered for as long as a frame takes."""
        return sum(d.idle_power_w for d in self.platform.devices)

    @property
    def budgets(self) -> tuple[tuple[str, str, float], ...]:
        """(device, resource, limit) of every limited resource."""
        return tuple((d.name, r, float(limit)) for d in self.platform.devices for r, limit in d.resources.items())

    def streams(self, device: str) -> bool:
        """Whether a device passes pixels on as they come and keeps no tensor: what it made is gone unless it flows on."""
        return self.platform.device(device).kind is Kind.FPGA

    def transfer(self, source: str, target: str, sizes_bytes: Floats) -> tuple[Floats, Floats]:
        """Seconds and joules of transfers; from a device to itself they go over the host, there and back."""
        if source != target:
            return self.costs.transfer_costs(self.platform, source, target, sizes_bytes)
        out_s, out_j = self.costs.transfer_costs(self.platform, source, self.platform.host, sizes_bytes)
        back_s, back_j = self.costs.transfer_costs(self.platform, self.platform.host, target, sizes_bytes)
        return out_s + back_s, out_j + back_j

    def lanes(self, source: str, target: str) -> tuple[str, ...]:
        """What a transfer occupies: one direction of every link on its way (`pcie:cpu>fpga`), or the link if half duplex."""
        if source == target:
            return tuple(dict.fromkeys((*self.lanes(source, self.platform.host), *self.lanes(self.platform.host, target)))) \
                if source != self.platform.host else ()
        if (source, target) not in self.routes:
            at, found = source, []
            for link in self.platform.route(source, target):
                onto = link.ends[1] if link.ends[0] == at else link.ends[0]
                found.append(f"{link.name}:{at}>{onto}" if link.full_duplex else link.name)
                at = onto
            self.routes[source, target] = tuple(found)
        return self.routes[source, target]

    def score(self, latency_s: float, energy_j: float) -> float:
        """The goal's value in SI units."""
        return {Goal.LATENCY: latency_s, Goal.ENERGY: energy_j, Goal.EDP: latency_s * energy_j}[self.goal]


@dataclass(frozen=True, slots=True)
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


def _entry(costs: ShareCosts, i: int) -> PieceCost:
    return PieceCost(float(costs.alone_s[i]), float(costs.fused_s[i]), float(costs.low_s[i]), float(costs.high_s[i]),
                     float(costs.energy_j[i]), tuple((r, float(v[i])) for r, v in costs.resources.items()),
                     bool(costs.extrapolated[i]), costs.source)


def price_pieces(problem: Problem, node: Node, axis: Axis | None, device: str,
                 intervals: Sequence[tuple[int, int]]) -> dict[tuple[int, int], PieceCost] | None:
    """Costs of the given shares (and all asked before) on one device, in one vectorised question; None if it cannot."""
    key = (node.name, axis, device)
    known = problem.pieces.get(key, {})
    if known is None:
        return None
    missing = sorted({i for i in intervals if i not in known})
    if missing:
        starts, stops = (np.array([i[side] for i in missing], dtype=np.int64) for side in (0, 1))
        found = problem.costs.costs_of(problem.graph, node, axis, starts, stops, problem.platform.device(device))
        if found is None:
            problem.pieces[key] = None
            return None
        known.update({interval: _entry(found, i) for i, interval in enumerate(missing) if np.isfinite(found.alone_s[i])})
        problem.pieces[key] = known
    return known


def price(problem: Problem, node: Node, axis: Axis | None, piece: Piece) -> PieceCost:
    """Cost of one piece; UnsupportedError where the device cannot run it."""
    known = price_pieces(problem, node, axis, piece.device, [(piece.start, piece.stop)])
    if known is None or (piece.start, piece.stop) not in known:
        device = problem.platform.device(piece.device)
        reason = problem.costs.why_not(problem.graph, node, device) or f"no cost for its share along {axis}"
        raise UnsupportedError(f"node {node.name}: {piece.device} cannot run it, {reason}; place it on another device")
    return known[piece.start, piece.stop]


def price_reduce(problem: Problem, node: Node, parts: int, device: str) -> PieceCost | None:
    """Cost of adding `parts` partial sums on a device, None where it cannot."""
    key = (node.name, None, f"{device}+{parts}")
    if key not in problem.pieces:
        found = problem.costs.reduce_costs(problem.graph, node, parts, problem.platform.device(device))
        problem.pieces[key] = None if found is None else {(0, parts): _entry(found, 0)}
    known = problem.pieces[key]
    return None if known is None else known[0, parts]


def piece_regions(problem: Problem, node: Node, axis: Axis | None, start: int, stop: int) -> tuple[tuple[Region, ...], Region]:
    """What a piece reads of each input and which part of the output it computes."""
    key = (_sort(problem, node), axis, start, stop)
    if key not in problem.regions:
        shapes = problem.graph.input_shapes(node)
        if axis is None:
            problem.regions[key] = tuple(whole(s) for s in shapes), whole(problem.graph.shape(node.output))
        else:
            share = node.op.share(axis, start, stop, shapes)
            problem.regions[key] = share.inputs, share.output
    return problem.regions[key]


def _sort(problem: Problem, node: Node) -> int:
    """A number that nodes of the same operator and shapes share, found by name: hashing an operator is slow."""
    found = problem.sorts.get(node.name)
    if found is None:
        alike = (node.op, problem.graph.input_shapes(node))
        found = problem.sorts[node.name] = problem.sorts.setdefault(alike, len(problem.sorts))
    return found


def cut_positions(extent: int, count: int = GRID) -> tuple[int, ...]:
    """Where an axis of `extent` units may be cut: all places if few, else `count` spread from end to end and the middle."""
    if extent - 1 <= count:
        return tuple(range(1, extent))
    return tuple(sorted({*np.rint(np.linspace(1, extent - 1, count)).astype(int).tolist(), extent // 2}))


def partners(problem: Problem) -> tuple[tuple[tuple[str, ...], ...], int]:
    """Groups of devices that may share a node, and cut positions per pair: as many columns for many devices as for three."""
    if len(problem.devices) <= FEW_DEVICES:
        return tuple(g for parts in (2, 3) for g in combinations(problem.devices, parts)), GRID
    host = problem.platform.host
    joined = {frozenset(link.ends) for link in problem.platform.links}
    beside = {host, *(d for d in problem.devices if frozenset((host, d)) in joined)}
    pairs = [p for p in combinations(problem.devices, 2) if frozenset(p) in joined or set(p) <= beside]
    pairs = sorted(pairs, key=lambda p: sum(len(problem.platform.route(host, d)) for d in p))[:MOST_PAIRS]
    return tuple(pairs), max(2, FEW_DEVICES * GRID // max(1, len(pairs)))


def even_cuts(extent: int, parts: int) -> tuple[int, ...]:
    """Cut positions that divide an axis into `parts` as even as integers allow."""
    return tuple(extent * i // parts for i in range(1, parts))


def divide(axis: Axis, cuts: Sequence[int], extent: int, devices: Sequence[str], reducer: str | None = None) -> Split:
    """A split with the given cut positions."""
    edges = (0, *cuts, extent)
    return Split(axis, tuple(Piece(d, a, b) for d, a, b in zip(devices, edges[:-1], edges[1:], strict=True)), reducer)


def _cut_sets(extent: int, parts: int, grid: int) -> list[tuple[tuple[int, ...], int]]:
    """Sets of cut positions with their rank: every second position ranks higher than its neighbours, and so on."""
    if parts == 2:
        places = cut_positions(extent, grid)
        return [((c,), 3 if c == extent // 2 else min(3, (i & -i).bit_length() - 1 if i else 3)) for i, c in enumerate(places)]
    if extent < 3:
        return []
    even = even_cuts(extent, 3)
    return [(cuts, int(cuts == even)) for cuts in sorted({*combinations(cut_positions(extent, THREE_WAY_GRID), 2), even})]


@dataclass(frozen=True, slots=True)
class Column:
    """A candidate split; where too many tensors are alive at once, low ranks are left out (see tables)."""

    split: Split
    rank: int


def columns(problem: Problem, node: Node) -> tuple[Column, ...]:
    """All candidate splits of a node, priced; a fixed node has one. Whole placements rank highest."""
    if node.name in problem.fixed:
        return (Column(problem.fixed[node.name], WHOLE_RANK),)
    capable = tuple(d for d in problem.devices if price_pieces(problem, node, None, d, [(0, 1)]))
    shapes = problem.graph.input_shapes(node)
    key = (node.op, shapes, capable)
    if key not in problem.column_sets:
        problem.column_sets[key] = tuple(_cut_columns(problem, node, shapes, capable))
    found = [Column(whole_on(d), WHOLE_RANK) for d in capable] + list(problem.column_sets[key])
    usable = _price_all(problem, node, [c.split for c in found])
    return tuple(c for c in found if _priced(problem, node, c.split, usable))


def _cut_columns(problem: Problem, node: Node, shapes: tuple[Shape, ...], capable: Sequence[str]) -> list[Column]:
    found: list[Column] = []
    groups, grid = partners(problem)
    for axis in node.op.axes(shapes):
        extent = node.op.extent(axis, shapes)
        for devices in (g for g in groups if set(g) <= set(capable)):
            reducers = devices if axis is Axis.INPUT_CHANNELS else (None,)
            found += [Column(divide(axis, cuts, extent, devices, reducer), rank)
                      for cuts, rank in _cut_sets(extent, len(devices), grid) for reducer in reducers]
    return found


Usable = dict[tuple[Axis | None, str], set[tuple[int, int]]]
"""Shares per axis and device that have a price and fit the device by themselves."""


def _price_all(problem: Problem, node: Node, splits: Sequence[Split]) -> Usable:
    wanted: dict[tuple[Axis | None, str], list[tuple[int, int]]] = {}
    for split in splits:
        for p in split.pieces:
            wanted.setdefault((split.axis, p.device), []).append((p.start, p.stop))
    usable: Usable = {}
    for (axis, device), intervals in wanted.items():
        limits = problem.platform.device(device).resources
        known = price_pieces(problem, node, axis, device, intervals) or {}
        usable[axis, device] = {interval for interval, cost in known.items() if not limits or all(
            amount <= limits.get(resource, inf) * (1 + TOLERANCE) for resource, amount in cost.resources)}
    return usable


def _priced(problem: Problem, node: Node, split: Split, usable: Usable) -> bool:
    if not all((p.start, p.stop) in usable[split.axis, p.device] for p in split.pieces):
        return False
    return split.reducer is None or price_reduce(problem, node, len(split.pieces), split.reducer) is not None
