"""What a frame costs at the least on accelerators of a space, in clocks or joules as plans charge it, with resources priced.

Layers of a phase have the pace of its slowest engine. The first node of an accelerator takes a whole pace, every other one what
its window holds of one and what its engine adds. So each phase costs as much as some pace says, and engines that keep it fill so
much at the least: the cheapest pace of every phase, with the cheapest arrays, is below every accelerator. What is said may be of
some accelerators alone, whose paces and arrays lie between limits (`Box`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import inf

import numpy as np

from dovetail.certificate.accelerators import ARRAYS, LONGEST, ROUNDED, Accelerators, Box
from dovetail.certificate.arrays import EXACT
from dovetail.certificate.engines import ONE, SLACK, OfferedEngines, beats_of, folds_of
from dovetail.cost import costs_of
from dovetail.cost.folded import filled, layer_pace, shape_of, twins_allowed
from dovetail.cost.folded_area import FoldTable, Shape, folds_of_one, resource_names
from dovetail.hardware.scans import phases_of
from dovetail.hardware.shares import Floats, Ints
from dovetail.platform.device import Device, Platform
from dovetail.platform.fitted import dhm_model

WIDE = np.unique(np.geomspace(1, 1 << 26, 2400).astype(np.int64))
"""Paces at which ranges of them begin: a range promises what its shortest pace takes, and needs what its longest does."""
NARROW = 6
"""Parts of each of these ranges where more exact ones are asked for."""
SAMPLES = np.unique(np.append(np.geomspace(1, 1 << 26, 60).astype(np.int64), LONGEST))
"""Paces at which nodes without weights are priced: shorter ones fill at least as much."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What is counted of a frame, in the unit of a goal: clocks, or joules, of which an idle board takes some in a clock."""

    per_clock: float
    per_joule: float

    @staticmethod
    def of(goal: str, platform: Platform, device: Device) -> Charge:
        assert device.clock_hz is not None
        if goal == "latency":
            return Charge(1.0, 0.0)
        return Charge(sum(d.idle_power_w for d in platform.devices) / device.clock_hz, 1.0)


Filled = tuple[float, Floats]
"""What an engine costs by prices, and parts of the limits that it fills."""


@dataclass(frozen=True, slots=True)
class Cheapest:
    """What the cheapest accelerator costs, the range of paces of each phase, and which arrays it has (-1: none)."""

    value: float
    ranges: tuple[int, ...]
    arrays: int


class FrameTables:
    """What nodes of accelerators add to a frame, and fill where they have no weights, by wide ranges of paces."""

    def __init__(self, space: Accelerators) -> None:
        self.space, self.own = space, space.dedicated
        self.known: dict[int, tuple[Floats, Floats, Floats]] = {}
        self.filled: dict[int, Floats] = {}

    def added(self, index: int) -> tuple[Floats, Floats, Floats]:
        """Clocks at the least of a layer's folds that may be chosen, and of their stages; the least where it is mapped directly.

        The last are infinite where it is not.
        """
        if index not in self.known:
            self.known[index] = self._added(index)
        return self.known[index]

    def _added(self, index: int) -> tuple[Floats, Floats, Floats]:
        graph, node, device = self.space.graph, self.space.graph.nodes[index], self.space.device
        assert device.clock_hz is not None
        direct, fills = costs_of(graph, node, None, *ONE, device), min(1.0, filled(graph, node))
        never, none = np.full(len(WIDE), inf), np.zeros(len(WIDE))
        if direct is None or node.op.still:
            return none, none, never
        plain = np.full(len(WIDE), direct.fused_s[0] * device.clock_hz * (1 - ROUNDED))
        if index not in self.own.layers:
            return never, never, plain
        limits = device.resources
        mapped = max((float(v[0]) / limits[r] for r, v in direct.resources.items() if limits.get(r)), default=0.0)
        each = LONGEST // layer_pace(graph, node, LONGEST)
        folded, stages, largest = _at_paces(shape_of(graph, node), twins_allowed(device), device.model,
                                            tuple(sorted(device.resources.items())), fills, each)
        return folded, stages, np.where(mapped <= largest, plain, inf)

    def fills(self, index: int) -> Floats:
        """Of a node without weights parts of the limits at the least, by sample; infinite where it has no engine."""
        if index not in self.filled:
            never, rows = np.full(len(self.own.names), inf), dict[int, Floats]()
            first = int(np.searchsorted(SAMPLES, beats_of(self.space.graph, self.space.graph.nodes[index])))

            def price(low: int, high: int) -> None:
                """Paces between two that fill alike fill as these do, as longer ones fill no more."""
                for at in (low, high):
                    if at not in rows:
                        row = self.own.plain(index, float(SAMPLES[at]))
                        rows[at] = never if row is None else row
                if np.array_equal(rows[low], rows[high]):
                    rows.update(dict.fromkeys(range(low, high), rows[low]))
                elif high - low > 1:
                    price(low, (low + high) // 2)
                    price((low + high) // 2, high)

            price(first, len(SAMPLES) - 1)
            self.filled[index] = np.array([rows.get(at, never) for at in range(len(SAMPLES))])
        return self.filled[index]


@lru_cache(maxsize=1024)
def _at_paces(shape: Shape, twins: bool, model_name: str, limits: tuple[tuple[str, float], ...], fills: float,
              each: int) -> tuple[Floats, Floats, Floats]:
    """By range, of a layer's folds that may be chosen: clocks at the least, those of stages, and the most that one fills.

    A layer has a whole part of a pace; the last are infinite where there is none. Remembered, as many layers are alike.
    """
    rows, known = folds_of(shape, twins), dict(limits)
    table = folds_of_one(shape, rows[rows[:, 3] > 0])
    until, behind, edges = _until(table), table.tails, table.stages
    resources = table.resources(dhm_model(model_name))
    parts = np.array([resources[:, k] / known[r] for k, r in enumerate(resource_names(dhm_model(model_name))) if known.get(r)])
    most, sums = parts.max(axis=0), parts.sum(axis=0)
    folded, stages, largest = (np.full(len(WIDE), inf) for _ in range(3))
    first, last = WIDE // each, np.append(WIDE[1:] - 1, LONGEST) // each
    alike = np.stack([np.searchsorted(np.sort(own), clocks, side="right")
                      for own in (table.steps, until) for clocks in (first, last)])
    for own in np.split(np.arange(len(WIDE)), 1 + np.flatnonzero((alike[:, 1:] != alike[:, :-1]).any(axis=0))):
        begin, end = first[own[0]], last[own[0]]
        on = np.flatnonzero((table.steps <= end) & (until > begin))
        if len(on):  # of those that are on offer all the while none is chosen that fills more than another
            always = (table.steps[on] <= begin) & (until[on] > end)
            on = on[sums[on] * (1 - ROUNDED) <= sums[on][always].min(initial=inf)]
            folded[own] = (np.maximum(behind[on], fills * WIDE[own, None]) + edges[on]).min(axis=1)
            stages[own], largest[own] = edges[on].min(), most[on].max()
    return folded, stages, largest


class Framed:
    """Accelerators of a space, of which each frame is to cost so much at the least; `narrow` ranges of paces say more."""

    def __init__(self, space: Accelerators, least: float, charge: Charge, narrow: bool = True,
                 tables: FrameTables | None = None) -> None:
        self.space, self.least, self.charge, self.own = space, least, charge, space.dedicated
        self.tables = tables or FrameTables(space)
        edges = np.append(WIDE, 2 * WIDE[-1])
        self.starts = WIDE if not narrow else np.unique((edges[:-1, None] + (edges[1:] - edges[:-1])[:, None]
                                                         * np.arange(NARROW) // NARROW).reshape(-1))
        self.wide = np.searchsorted(WIDE, self.starts, side="right") - 1
        """The wide range that each lies in."""
        self.last = np.append(self.starts[1:] - 1, LONGEST)
        """The longest pace of each range."""
        phases = phases_of(space.graph)
        self.phase = {i: phases[space.graph.nodes[i].name] for i in range(space.start, space.stop)}
        self.count = 1 + max(self.phase.values())
        self.keeping: dict[tuple[int, ...], Ints] = {}
        """By engines of a node, or of several, how many of them keep the longest pace of each range."""
        self.known: tuple[Floats, dict[int, Floats], dict[tuple[int, ...], list[Floats]]] | None = None
        """Prices, and what nodes and groups cost by them, as far as that was asked."""

    @cached_property
    def times(self) -> dict[int, Floats]:
        """By node, clocks that it adds to a frame at the least, at any pace of each range."""
        return {i: self._time(i) for i in self.phase}

    def _time(self, index: int) -> Floats:
        if index == self.space.start:
            return self.starts.astype(np.float64)
        folded, stages, plain = (column[self.wide] for column in self.tables.added(index))
        window = min(1.0, filled(self.space.graph, self.space.graph.nodes[index])) * self.starts
        return np.asarray(np.minimum(np.maximum(folded, window * np.isfinite(stages) + stages), np.maximum(plain, window)))

    @cached_property
    def plains(self) -> dict[int, Floats]:
        """What nodes without weights fill at the least, by range and resource; infinite where no engine keeps the pace."""
        found, at = dict[int, Floats](), np.searchsorted(SAMPLES, self.last)
        for i in self.phase.keys() - self.own.layers.keys():
            fills = self.tables.fills(i)[at]
            fills[self.last < beats_of(self.space.graph, self.space.graph.nodes[i])] = inf
            found[i] = fills
        return found

    @cached_property
    def joules(self) -> dict[int, float]:
        """What nodes without weights take."""
        graph, device = self.space.graph, self.space.device
        costs = {i: costs_of(graph, graph.nodes[i], None, *ONE, device) for i in self.phase.keys() - self.own.layers.keys()}
        return {i: 0.0 if c is None else self.charge.per_joule * float(c.energy_j[0]) for i, c in costs.items()}

    def _values(self, engines: OfferedEngines, price: Floats) -> Floats:
        """What each engine costs, parts of limits priced."""
        return np.asarray(engines.shares @ price + self.charge.per_joule * engines.joules)

    def _row(self, engines: OfferedEngines, price: Floats) -> Floats:
        """Of every range the least cost of engines that keep one of its paces."""
        if engines.members not in self.keeping:
            self.keeping[engines.members] = np.searchsorted(engines.clocks, self.last, side="right")
        best = np.append(inf, np.minimum.accumulate(self._values(engines, price)))
        return np.asarray(best[self.keeping[engines.members]])

    def _single(self, index: int, price: Floats) -> Floats:
        if index in self.own.layers:
            return self._row(self.own.layers[index], price)
        fills = self.plains[index]
        return np.where(np.isfinite(fills).all(axis=1), np.nan_to_num(fills, posinf=0.0) @ price + self.joules[index], inf)

    def _priced(self, price: Floats, cut: int) -> tuple[dict[int, Floats], dict[tuple[int, ...], list[Floats]]]:
        """What each node before a cut costs by range, and the first nodes of every group: of the prices asked for last, they are
        known.
        """
        if self.known is None or not np.array_equal(self.known[0], price):
            self.known = price, {}, {}
        _, singles, groups = self.known
        for nodes, engines in self.own.groups:
            if nodes[0] < cut and nodes not in groups:
                groups[nodes] = self._of_group(nodes, engines, {i: self._single(i, price) for i in nodes}, price)
        apart = {i for nodes in groups for i in nodes}
        for i in range(self.space.start, cut):
            if i not in singles:
                timed = self.charge.per_clock * self.times[i]
                singles[i] = timed if i in apart else self._single(i, price) + timed
        return singles, groups

    def _of_group(self, nodes: tuple[int, ...], engines: tuple[OfferedEngines, ...], singles: dict[int, Floats],
                  price: Floats) -> list[Floats]:
        """Of the first nodes of a group, for every number of them, the least cost by range."""
        found = [np.zeros(len(self.starts))]
        if len({self.phase[i] for i in nodes}) > 1:  # of engines over several phases nothing is said
            return found * (1 + len(nodes))
        rows = {e.members: self._row(e, price) for e in engines}
        for count, node in enumerate(nodes, 1):
            ways = [found[-1] + singles[node]]
            ways += [found[count - len(members)] + row for members, row in rows.items() if members[-1] == node]
            found.append(np.minimum.reduce(ways))
        return found

    def front(self, number: int, price: Floats, box: Box) -> tuple[float, tuple[int, ...]]:
        """What nodes before the cut of an ending cost at the least, and the range of each phase."""
        cut = self.space.endings[number].cut
        (singles, groups), total = self._priced(price, cut), np.zeros((self.count, len(self.starts)))
        for i in range(self.space.start, cut):
            total[self.phase[i]] += singles[i]
        for nodes, least in groups.items():
            total[self.phase[nodes[0]]] += least[sum(i < cut for i in nodes)]
        if cut > self.space.start:  # its first node takes a whole pace
            total[self.phase[self.space.start], self.starts * self.charge.per_clock >= self.least] = inf
        for phase, (low, high) in box.items():
            if phase != ARRAYS:
                total[phase:phase + 1, (self.starts >= high) | (self.last < low)] = inf
        return float(total.min(axis=1).sum()), tuple(total.argmin(axis=1).tolist())

    def cheapest(self, number: int, price: Floats, box: Box, enough: float = inf,
                 known_to: Callable[[], int] = lambda: EXACT) -> Cheapest:
        """The accelerator of a box at an ending that costs least by prices, or what is known to be below it and is enough."""
        value, ranges = self.front(number, price, box)
        ending = self.space.endings[number]
        if ending.arrays is None or value >= enough:
            return Cheapest(value, ranges, -1)
        per_part = self.own.power_w * (self.charge.per_joule / (self.space.device.clock_hz or 1.0))
        behind, arrays = ending.arrays.cheapest(ending.cut, price, enough - value, self.charge.per_clock, per_part,
                                                box.get(ARRAYS, (0, LONGEST)), known_to)
        return Cheapest(value + behind, ranges, arrays)

    def taken(self, number: int, price: Floats, found: Cheapest) -> Floats:
        """Parts of the limits that the cheapest accelerator fills."""
        ending, last = self.space.endings[number], {i: int(self.last[found.ranges[p]]) for i, p in self.phase.items()}
        total = 0 * price
        if ending.arrays is not None and found.arrays >= 0:
            _, _, total = ending.arrays.known_of(ending.cut, found.arrays)

        def cheapest(engines: OfferedEngines) -> Filled:
            fits = int(np.searchsorted(engines.clocks, last[engines.members[-1]], side="right"))
            values = self._values(engines, price)[:fits]
            return (float(values.min()), engines.shares[values.argmin()]) if fits else (inf, 0 * price)

        singles = {i: cheapest(self.own.layers[i]) if i in self.own.layers else self._plain(i, found.ranges[self.phase[i]], price)
                   for i in range(self.space.start, ending.cut)}
        for nodes, engines in self.own.groups:
            inside, ways = [i for i in nodes if i < ending.cut], [(0.0, 0 * price)]
            for at, node in enumerate(inside, 1):
                offers = [(ways[-1], singles.pop(node))]
                offers += [(ways[at - len(e.members)], cheapest(e)) for e in engines if e.members[-1] == node]
                ways.append(min(((a + b, p + q) for (a, p), (b, q) in offers), key=lambda own: own[0]))
            total = total + ways[-1][1]
        return np.asarray(sum((parts for _, parts in singles.values()), total))

    def _plain(self, index: int, at: int, price: Floats) -> Filled:
        fills = np.nan_to_num(self.plains[index][at], posinf=0.0)
        return float(fills @ price), fills

    def shows(self, number: int, price: Floats, box: Box) -> bool:
        """Whether prices show that no accelerator of a box at an ending is below what is to be proven."""
        most = self.most(price)
        return self.cheapest(number, price, box, most).value >= most

    def most(self, price: Floats) -> float:
        """What an accelerator within all limits that is below costs less than."""
        total = float(price.sum())
        usable = bool((price >= 0).all()) and np.isfinite(total)
        return (self.least + total * (1 + SLACK)) * (1 + ROUNDED) if usable else float("nan")


def _until(table: FoldTable) -> Floats:
    """Of every fold, the clocks from which on a slower one of its kind keeps the pace, and it is chosen from no longer."""
    kinds = np.unique(table.folds[:, :2], axis=0, return_inverse=True)[1].ravel()
    order, until = np.lexsort((-table.steps, kinds)), np.full(len(kinds), inf)
    for here, before in zip(order[1:], order[:-1], strict=True):
        if kinds[here] == kinds[before]:
            until[here] = table.steps[before] if table.steps[before] > table.steps[here] else until[before]
    return until
