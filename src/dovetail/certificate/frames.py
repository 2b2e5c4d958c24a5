"""What a frame takes at the least on accelerators of a space, by the cost model of plans: pace by pace, with resources priced.

Layers of a phase have the pace of its slowest engine. The first node of an accelerator takes a whole pace, every other one what
its window holds of one and what its engine adds. So each phase takes as long as some pace says, and engines that keep it fill so
much at the least: the cheapest pace of every phase, with the cheapest arrays, is below every accelerator.
"""

from __future__ import annotations

from functools import cached_property
from math import inf

import numpy as np

from dovetail.certificate.accelerators import ROUNDED, Accelerators
from dovetail.certificate.engines import ONE, SLACK, OfferedEngines, beats_of, folds_of
from dovetail.cost import costs_of
from dovetail.cost.folded import filled, layer_pace, shape_of, twins_allowed
from dovetail.cost.folded_area import FoldTable, folds_of_one, resource_names
from dovetail.hardware.scans import phases_of
from dovetail.hardware.shares import Floats
from dovetail.platform.fitted import dhm_model

RANGES = np.unique(np.geomspace(1, 1 << 26, 2400).astype(np.int64))
"""Paces at which ranges of them begin: a range promises what its shortest pace takes, and needs what its longest does."""
LONGEST = 1 << 40
"""Clocks that stand for any pace."""
SAMPLES = np.unique(np.append(np.geomspace(1, 1 << 26, 60).astype(np.int64), LONGEST))
"""Paces at which nodes without weights are priced: shorter ones fill at least as much."""


class Framed:
    """Accelerators of a space, of which each frame is to take at least so many clocks."""

    def __init__(self, space: Accelerators, clocks: float) -> None:
        self.space, self.clocks, self.own = space, clocks, space.dedicated
        self.starts = RANGES
        self.last = np.append(self.starts[1:] - 1, LONGEST)
        """The longest pace of each range."""
        phases = phases_of(space.graph)
        self.phase = {i: phases[space.graph.nodes[i].name] for i in range(space.start, space.stop)}

    @cached_property
    def times(self) -> dict[int, Floats]:
        """By node, clocks that it adds to a frame at the least, at any pace of each range."""
        return {i: self._time(i) for i in self.phase}

    def _time(self, index: int) -> Floats:
        graph, node, device = self.space.graph, self.space.graph.nodes[index], self.space.device
        assert device.clock_hz is not None
        if index == self.space.start:
            return self.starts.astype(np.float64)
        direct, window = costs_of(graph, node, None, *ONE, device), min(1.0, filled(graph, node)) * self.starts
        if direct is None or node.op.still:
            return np.zeros(len(self.starts))
        plain = np.maximum(direct.fused_s[0] * device.clock_hz * (1 - ROUNDED), window)
        if index not in self.own.layers:
            return np.asarray(plain)
        shape = shape_of(graph, node)
        rows = folds_of(shape, twins_allowed(device))
        table = folds_of_one(shape, rows[rows[:, 3] > 0])
        until = _until(table)
        each = LONGEST // layer_pace(graph, node, LONGEST)
        resources, limits = table.resources(dhm_model(device.model)), device.resources
        largest = np.max([resources[:, k] / limits[r] for k, r in enumerate(resource_names(dhm_model(device.model)))
                          if limits.get(r)], axis=0)
        mapped = max((float(v[0]) / limits[r] for r, v in direct.resources.items() if limits.get(r)), default=0.0)
        found = np.empty(len(self.starts))
        for k, (start, last) in enumerate(zip(self.starts.tolist(), self.last.tolist(), strict=True)):
            on = (table.steps <= last // each) & (until > start // each)
            folded = float((np.maximum(table.tails[on], window[k]) + table.stages[on]).min(initial=inf))
            found[k] = min(folded, plain[k]) if not on.any() or mapped <= largest[on].max() else folded
        return found

    @cached_property
    def plains(self) -> dict[int, Floats]:
        """What nodes without weights fill at the least, by range and resource; infinite where no engine keeps the pace."""
        found, at = dict[int, Floats](), np.searchsorted(SAMPLES, self.last)
        for i in self.phase.keys() - self.own.layers.keys():
            rows = [self.own.plain(i, float(pace)) for pace in SAMPLES.tolist()]
            table = np.array([np.full(len(self.own.names), inf) if row is None else row for row in rows])
            fills = table[at]
            fills[self.last < beats_of(self.space.graph, self.space.graph.nodes[i])] = inf
            found[i] = fills
        return found

    def _row(self, engines: OfferedEngines, cost: Floats) -> Floats:
        """Of every range the least cost of engines that keep one of its paces."""
        if not len(cost):
            return np.full(len(self.last), inf)
        best = np.append(inf, np.minimum.accumulate(cost))
        return np.asarray(best[np.searchsorted(engines.clocks, self.last, side="right")])

    def _singles(self, price: Floats) -> dict[int, Floats]:
        found = {i: self._row(e, e.shares @ price) for i, e in self.own.layers.items()}
        for i, fills in self.plains.items():
            found[i] = np.where(np.isfinite(fills).all(axis=1), np.nan_to_num(fills, posinf=0.0) @ price, inf)
        return found

    def fronts(self, price: Floats, only: int | None = None) -> list[tuple[float, tuple[int, ...]]]:
        """At every ending, what nodes before the cut cost at the least, clocks and priced parts, and the range of each phase.

        Where it is of one ending `only`, others may have that of it.
        """
        singles, found = self._singles(price), dict[int, tuple[float, tuple[int, ...]]]()
        count = 1 + max(self.phase.values())
        totals = np.zeros((count, len(self.starts)))
        groups = [(nodes, self._of_group(nodes, engines, singles, price)) for nodes, engines in self.own.groups]
        apart = {i for nodes, _ in groups for i in nodes}
        cuts = {e.cut for e in self.space.endings} if only is None else {self.space.endings[only].cut}
        for cut in range(self.space.start, self.space.stop + 1):
            if cut in cuts:
                here = totals.copy()
                for nodes, least in groups:
                    here[self.phase[nodes[0]]] += least[sum(i < cut for i in nodes)]
                found[cut] = float(here.min(axis=1).sum()), tuple(here.argmin(axis=1).tolist())
            if cut < self.space.stop:
                totals[self.phase[cut]] += self.times[cut] + (0.0 if cut in apart else singles[cut])
        (other, *_) = found.values()
        return [found.get(e.cut, other) for e in self.space.endings]

    def _of_group(self, nodes: tuple[int, ...], engines: tuple[OfferedEngines, ...], singles: dict[int, Floats],
                  price: Floats) -> list[Floats]:
        """Of the first nodes of a group, for every number of them, the least cost by range."""
        found = [np.zeros(len(self.starts))]
        if len({self.phase[i] for i in nodes}) > 1:  # of engines over several phases nothing is said
            return found * (1 + len(nodes))
        rows = {e.members: self._row(e, e.shares @ price) for e in engines}
        for count, node in enumerate(nodes, 1):
            ways = [found[-1] + singles[node]]
            ways += [found[count - len(members)] + row for members, row in rows.items() if members[-1] == node]
            found.append(np.minimum.reduce(ways))
        return found

    def taken(self, number: int, price: Floats, ranges: tuple[int, ...]) -> Floats:
        """Parts of the limits that the cheapest engines before a cut fill, each phase at a pace of a range."""
        cut, total = self.space.endings[number].cut, np.zeros(len(price))
        last = {i: int(self.last[ranges[self.phase[i]]]) for i in self.phase}
        rows: dict[int, Floats] = {}
        for i in range(self.space.start, cut):
            if i in self.own.layers:
                fits = self.own.layers[i].shares[:int(np.searchsorted(self.own.layers[i].clocks, last[i], side="right"))]
                rows[i] = fits[int((fits @ price).argmin())] if len(fits) else np.zeros(len(price))
            else:
                rows[i] = np.nan_to_num(self.plains[i][ranges[self.phase[i]]], posinf=0.0)
        done = set[int]()
        for nodes, engines in self.own.groups:
            inside = [i for i in nodes if i < cut]
            ways: list[tuple[float, Floats]] = [(0.0, np.zeros(len(price)))]
            for at, node in enumerate(inside, 1):
                options = [ways[-1][1] + rows[node]]
                for e in engines:
                    fits = e.shares[:int(np.searchsorted(e.clocks, last[node], side="right"))]
                    if e.members[-1] == node and len(fits):
                        options.append(ways[at - len(e.members)][1] + fits[int((fits @ price).argmin())])
                ways.append(min(((float(o @ price), o) for o in options), key=lambda own: own[0]))
            total, done = total + ways[-1][1], done | set(inside)
        return np.asarray(total + sum((row for i, row in rows.items() if i not in done), np.zeros(len(price))))

    def least(self, number: int, price: Floats, before: float, enough: float) -> tuple[float, float, Floats]:
        """What the cheapest accelerator at an ending costs at the least, with clocks and parts of its arrays."""
        ending = self.space.endings[number]
        if ending.arrays is None or before >= enough:
            return before, 0.0, np.zeros(len(price))
        behind, clocks, parts = ending.arrays.cheapest(ending.cut, price, enough - before)
        return before + behind, clocks, parts

    def shows(self, number: int, price: Floats, fronts: list[tuple[float, tuple[int, ...]]]) -> bool:
        """Whether prices show that frames take so many clocks with every accelerator at an ending."""
        most = self.most(price)
        return self.least(number, price, fronts[number][0], most)[0] >= most

    def most(self, price: Floats) -> float:
        """What an accelerator within all limits that is faster costs less than."""
        total = float(price.sum())
        usable = bool((price >= 0).all()) and np.isfinite(total)
        return (self.clocks + total * (1 + SLACK)) * (1 + ROUNDED) if usable else float("nan")


def _until(table: FoldTable) -> Floats:
    """Of every fold, the clocks from which on a slower one of its kind keeps the pace, and it is chosen from no longer."""
    kinds = np.unique(table.folds[:, :2], axis=0, return_inverse=True)[1].ravel()
    order, until = np.lexsort((-table.steps, kinds)), np.full(len(kinds), inf)
    for here, before in zip(order[1:], order[:-1], strict=True):
        if kinds[here] == kinds[before]:
            until[here] = table.steps[before] if table.steps[before] > table.steps[here] else until[before]
    return until
