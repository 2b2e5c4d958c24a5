"""The stated space: which splits of every node a bound speaks of, and what each costs by itself.

A node is whole on a device, or cut along an axis of its operator into contiguous pieces in the order of the board's devices.
The positions are those of docs/method/space.md. Splits that a device cannot run, or that alone exceed it, are in no plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.cost import costs_of_many, reductions
from dovetail.cost.budget import usable
from dovetail.cost.estimate import ShareCosts
from dovetail.hardware.shares import Flags, Ints, Segments
from dovetail.ir import Axis, Graph, Node, whole
from dovetail.platform.device import Device, Kind, Platform

Numbers = NDArray[Any]
"""Doubles, or fractions where nothing may be rounded."""
Pieces = tuple[tuple[str, int, int], ...]
Share = tuple[Axis | None, int, int]
Priced = tuple[ShareCosts, int]
"""Costs of several shares, and which of them is meant."""

NEAR_END = (0.0, 1 / 16, 3 / 32, 1 / 8, 3 / 16, 1 / 4, 5 / 16, 3 / 8, 1 / 2)
"""Where operators with weights are cut, from either end; 0 stands for one unit. Source: docs/method/space.md."""
WITHOUT_WEIGHTS = (1 / 8, 1 / 4, 1 / 2, 3 / 4, 7 / 8)
AMONG_MANY = (1 / 4, 1 / 2, 3 / 4)
AROUND_MIDDLE = (1 / 8, 1 / 2, 7 / 8)
FEW = 3
"""Devices all groups of which may share a node; among more, only neighbours."""
MOST_PAIRS = 12
SLACK = Fraction(1, 10**9)
"""Of limits, relative: what rounding may add to a sum that just keeps one. Chosen: as the evaluator allows."""


@dataclass(frozen=True, slots=True)
class DividedNode:
    """One way to run a node: `pieces` are (device, start, stop) along the axis; `reducer` adds partial sums."""

    axis: Axis | None
    pieces: Pieces
    reducer: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Ways to run a node as arrays: columns x devices (x dimensions x 2 for regions); `amounts` are columns x limits."""

    node: Node
    splits: tuple[DividedNode, ...]
    reads: tuple[Ints, ...]
    held: Ints
    has: Flags
    reducer: Ints
    alone_s: Numbers
    fused_s: Numbers
    energy_j: Numbers
    reduce_s: Numbers
    amounts: Numbers
    stream_s: Numbers
    """How long before its end a whole node on an FPGA begins to put its output out."""

    def __len__(self) -> int:
        return len(self.splits)

    def take(self, chosen: Sequence[int]) -> Columns:
        """Some of the columns."""
        rows = np.array(chosen, dtype=np.int64)
        return Columns(self.node, tuple(self.splits[i] for i in chosen), tuple(r[rows] for r in self.reads), self.held[rows],
                       self.has[rows], self.reducer[rows], self.alone_s[rows], self.fused_s[rows], self.energy_j[rows],
                       self.reduce_s[rows], self.amounts[rows], self.stream_s[rows])


def limits_of(platform: Platform) -> dict[tuple[str, str], float]:
    """What all nodes together may take of each device's resources."""
    return {(d.name, r): limit for d in platform.devices for r, limit in usable(d).items()}


def axes_of(graph: Graph, node: Node) -> dict[Axis, int]:
    """Along which axes a node may be cut, and how many units each has."""
    shapes = graph.input_shapes(node)
    return {a: node.op.extent(a, shapes) for a in node.op.axes(shapes)}


def splits_of(graph: Graph, node: Node, platform: Platform) -> list[DividedNode]:
    """All splits of a node that the space holds, whether or not devices can run them."""
    names = [d.name for d in platform.devices]
    found = [DividedNode(None, ((name, 0, 1),)) for name in names]
    weights = bool(node.params)
    ends = tuple(sorted({*NEAR_END, *(1 - f for f in NEAR_END)}))
    pairs_at = AMONG_MANY if len(names) > FEW else ends if weights else WITHOUT_WEIGHTS
    for axis, extent in axes_of(graph, node).items():
        for group in _groups(platform):
            cuts = [(c,) for c in _positions(extent, pairs_at)] if len(group) == 2 else _two_cuts(extent, weights)
            for places in cuts:
                pieces = tuple((d, a, b) for d, (a, b) in zip(group, pairwise((0, *places, extent)), strict=True))
                reducers = group if axis is Axis.INPUT_CHANNELS else (None,)
                found += [DividedNode(axis, pieces, reducer) for reducer in reducers]
    return found


def _groups(platform: Platform) -> list[tuple[str, ...]]:
    """Devices that may share a node: any two or three of few, neighbours of many, those near the host first."""
    names, host, route = [d.name for d in platform.devices], platform.host, platform.route
    if len(names) <= FEW:
        return [g for size in (2, 3) for g in combinations(names, size)]
    joined = {frozenset(link.ends) for link in platform.links}
    beside = {host, *(d for d in names if frozenset((host, d)) in joined)}
    pairs: list[tuple[str, ...]] = [p for p in combinations(names, 2) if frozenset(p) in joined or beside.issuperset(p)
             or (host in p and len(route(*p)) == 1)]
    return sorted(pairs, key=lambda p: sum(len(route(host, d)) for d in p))[:MOST_PAIRS]


def _positions(extent: int, fractions: Sequence[float]) -> list[int]:
    """Where an axis may be cut: everywhere if it is short; halves round down."""
    if extent - 1 <= len(fractions):
        return list(range(1, extent))
    return sorted({min(max(1, int(extent * f + 0.5 - 1e-9)), extent - 1) for f in fractions})


def _two_cuts(extent: int, weights: bool) -> list[tuple[int, ...]]:
    """Where three devices divide an axis: evenly, and with weights around the middle as well."""
    even = (extent // 3, 2 * extent // 3)
    if extent < len(even) + 1:
        return []
    return sorted({even, *combinations(_positions(extent, AROUND_MIDDLE), 2)}) if weights else [even]


def columns_of(graph: Graph, platform: Platform, splits: Mapping[str, Sequence[DividedNode]],
               exact: bool = False) -> dict[str, Columns]:
    """Prices of given splits of every node; those that no device runs, or that exceed one alone, are left out."""
    asked = {node.name: _shares(splits[node.name]) for node in graph.nodes}
    pricing = _Pricing(graph, platform, {d.name: _priced(graph, asked, d) for d in platform.devices}, exact)
    return {n.name: pricing.columns(n, splits[n.name]) for n in graph.nodes}


def _shares(splits: Sequence[DividedNode]) -> dict[str, list[Share]]:
    """Of each device, which shares are asked for."""
    found: dict[str, dict[Share, None]] = {}
    for split in splits:
        for device, start, stop in split.pieces:
            found.setdefault(device, {})[split.axis, start, stop] = None
    return {device: list(shares) for device, shares in found.items()}


def _priced(graph: Graph, asked: Mapping[str, Mapping[str, list[Share]]],
            device: Device) -> dict[str, dict[Share, Priced]]:
    """The price of every share that is asked for on one device, where it can run it."""
    nodes = [n for n in graph.nodes if device.name in asked[n.name]]
    ordered = {n.name: sorted(asked[n.name][device.name], key=lambda s: (s[0] is not None, str(s[0]), s[1:])) for n in nodes}
    if device.accelerator is not None:  # accelerators compute no shares
        ordered = {name: [s for s in shares if s[0] is None] for name, shares in ordered.items()}
        nodes = [n for n in nodes if ordered[n.name]]
    (answers,) = costs_of_many(graph, [(n, _segments(ordered[n.name])) for n in nodes], [device])
    found: dict[str, dict[Share, Priced]] = {}
    for node, costs in zip(nodes, answers, strict=True):
        if costs is not None:
            own = {share: (costs, i) for i, share in enumerate(ordered[node.name])}
            found[node.name] = {s: (c, i) for s, (c, i) in own.items() if np.isfinite(c.alone_s[i])}
    return found


def _segments(shares: Sequence[Share]) -> Segments:
    found: dict[Axis | None, list[tuple[int, int]]] = {}
    for axis, start, stop in shares:
        found.setdefault(axis, []).append((start, stop))
    return [(axis, np.array([a for a, _ in ends]), np.array([b for _, b in ends])) for axis, ends in found.items()]


class _Entry(NamedTuple):
    """One split's prices: by device alone and fused, joules, seconds of the sum, limited amounts, seconds it streams."""

    alone_s: list[Any]
    fused_s: list[Any]
    energy_j: Any
    reduce_s: Any
    amounts: list[Any]
    stream_s: Any


class _Pricing:
    """Prices of shares put together to those of splits, as doubles or fractions."""

    def __init__(self, graph: Graph, platform: Platform, prices: Mapping[str, Mapping[str, Mapping[Share, Priced]]],
                 exact: bool) -> None:
        self.graph, self.platform, self.prices = graph, platform, prices
        self.number: Callable[[float], Any] = Fraction if exact else float
        self.kind: Any = object if exact else np.float64
        self.devices = {d.name: i for i, d in enumerate(platform.devices)}
        self.limits = limits_of(platform)
        self.sums: dict[tuple[object, ...], ShareCosts | None] = {}

    def columns(self, node: Node, splits: Sequence[DividedNode]) -> Columns:
        """The splits of a node that can be in a plan."""
        every = [(split, self._entry(node, split)) for split in splits]
        kept = [(split, entry) for split, entry in every if entry is not None and all(
            taken <= limit * (1 + SLACK) for taken, limit in zip(entry.amounts, self.limits.values(), strict=True))]
        numbers = [np.array(column, dtype=self.kind) for column in zip(*(entry for _, entry in kept), strict=True)] or [
            np.zeros((0, size) if size else 0, dtype=self.kind)
            for size in (len(self.devices), len(self.devices), 0, 0, len(self.limits), 0)]
        chosen = tuple(split for split, _ in kept)
        return Columns(node, chosen, *_regions(self.graph, node, self.devices, chosen), *numbers)

    def _entry(self, node: Node, split: DividedNode) -> _Entry | None:
        """None where a device cannot run its piece."""
        none, stream_s = self.number(0), self.number(0)
        alone, fused, amounts = [none] * len(self.devices), [none] * len(self.devices), dict.fromkeys(self.limits, none)
        parts: list[tuple[str, Priced]] = []
        for device, start, stop in split.pieces:
            price = self.prices[device].get(node.name, {}).get((split.axis, start, stop))
            if price is None:
                return None
            parts.append((device, price))
            d, (costs, i) = self.devices[device], price
            alone[d], fused[d] = self.number(costs.alone_s.item(i)), self.number(costs.fused_s.item(i))
            if split.axis is None and self.platform.device(device).kind is Kind.FPGA:
                stream_s = max(none, alone[d] - fused[d])
        reduce_s = none
        if split.reducer is not None:
            added = self._sum(node, len(split.pieces), split.reducer)
            if added is None:
                return None
            parts.append((split.reducer, (added, 0)))
            reduce_s = self.number(added.alone_s.item(0))
        for device, (costs, i) in parts:
            for resource, amount in costs.resources.items():
                if (device, resource) in amounts:
                    amounts[device, resource] += self.number(amount.item(i))
        joules = sum((self.number(costs.energy_j.item(i)) for _, (costs, i) in parts), none)
        return _Entry(alone, fused, joules, reduce_s, list(amounts.values()), stream_s)

    def _sum(self, node: Node, parts: int, device: str) -> ShareCosts | None:
        """What adding partial sums costs."""
        key = self.graph.shape(node.output), parts, device
        if key not in self.sums:
            (self.sums[key],) = reductions([key[0]], parts, self.platform.device(device))
        return self.sums[key]


LONG_BEFORE = 1e9
"""Seconds before its end from which on an accelerator may put its output out: nothing is known of it, so it delays nothing."""


@dataclass(frozen=True, slots=True)
class HeldNode:
    """A node of an accelerator of which no more is known than that it adds so much to what waits for its input.

    Where it adds joules, an idle board's while it computes are among them: the frame then waits for its first packet alone.
    """

    seconds: float = 0.0
    joules: float = 0.0


def held_columns(graph: Graph, platform: Platform, node: Node, device: str, held: HeldNode) -> Columns:
    """The one column of a node of an accelerator."""
    split, numbers = DividedNode(None, ((device, 0, 1),)), {d.name: i for i, d in enumerate(platform.devices)}
    alone, none = np.zeros((1, len(numbers))), np.zeros(1)
    alone[0, numbers[device]], fused = held.seconds, np.zeros_like(alone)
    if held.joules:  # whatever arrives later may do so while it computes
        fused[0, numbers[device]] = -LONG_BEFORE
    return Columns(node, (split,), *_regions(graph, node, numbers, (split,)), alone, fused, np.full(1, held.joules), none,
                   np.zeros((1, len(limits_of(platform)))), np.full(1, LONG_BEFORE))


def _regions(graph: Graph, node: Node, numbers: Mapping[str, int],
             splits: Sequence[DividedNode]) -> tuple[tuple[Ints, ...], Ints, Flags, Ints]:
    """What pieces read of each input, where they leave the output, which devices have one, and who adds."""
    shapes, made = graph.input_shapes(node), whole(graph.shape(node.output)) or ((0, 1),)
    size = len(splits), len(numbers)
    reads = tuple(np.zeros((*size, max(len(s), 1), 2), dtype=np.int64) for s in shapes)
    held, has = np.zeros((*size, len(made), 2), dtype=np.int64), np.zeros(size, dtype=np.bool_)
    reducer, known = np.full(len(splits), -1, dtype=np.int64), dict[Share, Any]()
    for c, split in enumerate(splits):
        for device, start, stop in split.pieces:
            key, d = (split.axis, start, stop), numbers[device]
            if key not in known:
                share = None if split.axis is None else node.op.share(split.axis, start, stop, shapes)
                known[key] = (tuple(whole(s) for s in shapes), made) if share is None else (share.inputs, share.output)
            has[c, d] = True
            for read, region in zip(reads, known[key][0], strict=True):
                read[c, d] = region or ((0, 1),)
            if split.reducer is None:
                held[c, d] = known[key][1] or ((0, 1),)
        if split.reducer is not None:
            reducer[c] = numbers[split.reducer]
            held[c, numbers[split.reducer]] = made
    return reads, held, has, reducer
