"""Engines of an accelerator's own layers, restated: all folds that docs/method/accelerators.md offers, and what each fills.

A layer without folds has one engine; one with folds works on some groups, inputs and filters at once, in as few as each number
of rounds needs; an inverted residual may be one engine. Prices are the cost model's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np

from dovetail.cost import costs_of, costs_of_many
from dovetail.cost.budget import usable
from dovetail.cost.estimate import ShareCosts
from dovetail.cost.firb import Bottleneck, bottlenecks, firb_table
from dovetail.cost.folded import shape_of, twins_allowed, word_part
from dovetail.cost.folded_area import Shape, folds_of_one, resource_names
from dovetail.cost.power import power_w
from dovetail.hardware.scans import keeps, window_of
from dovetail.hardware.shares import Floats, Ints
from dovetail.hardware.streaming import Raster
from dovetail.ir import Conv, Gemm, Graph, Node
from dovetail.platform.device import Device
from dovetail.platform.fitted import dhm_model

ONE = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
NEVER = 1e9
"""The part of a resource that a device has nothing of."""
SLACK = 1e-9
"""Of limits, relative, as plans have it."""
SIZES = 4
"""Numbers of a fold: groups, inputs, filters at once, and products of a multiplier block."""


@dataclass(frozen=True, slots=True)
class OfferedEngines:
    """Engines that a node may have, or several as one; row by row: clocks per frame, rising, parts of every limit, joules."""

    members: tuple[int, ...]
    clocks: Ints
    shares: Floats
    joules: Floats

    def within(self, clocks: float) -> OfferedEngines:
        """Those that take at most so many clocks, and that no other undercuts."""
        shares = self.shares[:int(np.searchsorted(self.clocks, clocks, side="right"))]
        kept = undominated(shares)
        return OfferedEngines(self.members, self.clocks[kept], shares[kept], self.joules[kept])


def undominated(rows: Floats) -> Ints:
    """Rows that no other is below in every column; of equal ones the first."""
    order, found = np.argsort(rows.sum(axis=1), kind="stable"), list[int]()
    while len(order):  # what is below a row has a smaller sum
        found.append(int(order[0]))
        order = order[(rows[order] < rows[order[0]]).any(axis=1)]
    return np.array(sorted(found), dtype=np.int64)


def at_once(count: int) -> list[int]:
    """As few at once as a number of rounds needs, for every number of rounds."""
    return sorted({-(-count // rounds) for rounds in range(1, count + 1)})


def folds_of(shape: Shape, twins: bool) -> Ints:
    """All folds of a layer: all inputs of some groups, or some inputs of one; products in multipliers, in logic, or in pairs."""
    channels = shape.channels
    pairs = {(1, i) for i in at_once(channels.inputs)} | {(g, channels.inputs) for g in at_once(channels.groups)}
    filters = at_once(channels.outputs)
    return np.array([(groups, inputs, some, products) for groups, inputs in sorted(pairs) for some in filters
                     for products in ((0, 1, 2) if twins and some > 1 else (0, 1))], dtype=np.int64)


def joined_folds(first: Shape, last: Shape, twins: bool) -> Ints:
    """All folds of an inverted residual as one engine: engines x layers x sizes.

    Some inputs of some expanded channels are worked on at once. The projection takes a clock for a word of them, or as long as
    the expansion.
    """
    found, filters = list[tuple[tuple[int, ...], ...]](), last.channels.outputs
    for words in at_once(first.channels.outputs):
        for inputs in at_once(first.channels.inputs):
            for leaving in dict.fromkeys((filters, -(-filters // -(-first.channels.inputs // inputs)))):
                for products in (1, 2) if twins and words > 1 else (1,):
                    found.append(((1, inputs, words, products), (words, 1, 1, 1),
                                  (1, words, leaving, products if leaving > 1 else 1)))
    return np.array(found, dtype=np.int64).reshape(-1, 3, SIZES)


class Dedicated:
    """Engines of their own for the nodes [start, stop) of a graph on a device."""

    def __init__(self, graph: Graph, device: Device, start: int, stop: int) -> None:
        self.graph, self.device, self.start, self.stop = graph, device, start, stop
        self.limits = usable(device, accelerator=True)
        self.names = tuple(sorted(self.limits))

    def shares(self, resources: Floats, names: Sequence[str]) -> Floats:
        """Resources, column by column of some names, as parts of every limit."""
        parts = np.zeros((len(resources), len(self.names)))
        for column, name in enumerate(self.names):
            if name in names:
                amount = resources[:, list(names).index(name)]
                parts[:, column] = amount / self.limits[name] if self.limits[name] > 0 else np.where(amount > 0, NEVER, 0.0)
        return parts

    @cached_property
    def power_w(self) -> Floats:
        """What all of each limit takes while it works."""
        assert self.device.clock_hz is not None
        model = dhm_model(self.device.model)
        none = {model.logic: 0.0, model.block: 0.0}
        return np.array([power_w({**none, name: self.limits[name]}, self.device) for name in self.names])

    def joules(self, shares: Floats, clocks: Ints | Floats) -> Floats:
        """What hardware that fills parts of the limits takes in so many clocks."""
        assert self.device.clock_hz is not None
        return np.asarray(shares @ self.power_w * clocks / self.device.clock_hz)

    def _offered(self, members: tuple[int, ...], clocks: Ints, shares: Floats, mapped: tuple[int, Floats, float] | None = None,
                 ) -> OfferedEngines:
        """Those that fit by themselves, in the order of clocks; one that is mapped directly has joules of its own."""
        joules = self.joules(shares, clocks)
        if mapped is not None:
            beats, parts, own = mapped
            clocks, shares, joules = np.append(clocks, beats), np.vstack([shares, parts]), np.append(joules, own)
        fits = np.flatnonzero((shares <= 1 + SLACK).all(axis=1))
        order = fits[np.argsort(clocks[fits], kind="stable")]
        return OfferedEngines(members, clocks[order], shares[order], joules[order])

    @cached_property
    def layers(self) -> dict[int, OfferedEngines]:
        """All engines of every layer with weights, by the node's number."""
        return {i: self._layer(i) for i, node in self._numbered() if isinstance(node.op, Conv | Gemm)}

    def _numbered(self) -> list[tuple[int, Node]]:
        return [(i, self.graph.nodes[i]) for i in range(self.start, self.stop)]

    def _layer(self, index: int) -> OfferedEngines:
        node, model = self.graph.nodes[index], dhm_model(self.device.model)
        shape = shape_of(self.graph, node)
        table = folds_of_one(shape, folds_of(shape, twins_allowed(self.device)))
        shares = self.shares(table.resources(model), resource_names(model))
        mapped = (beats_of(self.graph, node), *self._direct[index]) if index in self._direct else None
        return self._offered((index,), table.steps, shares, mapped)

    @cached_property
    def _direct(self) -> dict[int, tuple[Floats, float]]:
        """What layers with weights fill and take that are mapped directly, where they can be."""
        asked = [(i, node) for i, node in self._numbered() if isinstance(node.op, Conv | Gemm)]
        (answers,) = costs_of_many(self.graph, [(node, ((None, *ONE),)) for _, node in asked], [self.device])
        return {i: (self._priced(costs), float(costs.energy_j[0]))
                for (i, _), costs in zip(asked, answers, strict=True) if costs is not None}

    def _priced(self, costs: ShareCosts) -> Floats:
        """What one engine fills."""
        names = list(costs.resources)
        amounts = np.array([float(costs.resources[r][0]) for r in names])
        return np.asarray(self.shares(amounts[None], names)[0])

    def plain(self, index: int, clocks: float) -> Floats | None:
        """What a node without folds fills at the least in frames of so many clocks; None where it takes longer, or has no engine.

        The longer a frame, the fewer channels it works on at once, and the less it fills. A map that waits lies in words of so
        many channels, which may suit memories better where they are wider: all widths count.
        """
        node = self.graph.nodes[index]
        if beats_of(self.graph, node) > clocks:
            return None
        found = self._at_pace(node, int(clocks))
        if found is None or not keeps(self.graph, node):
            return found
        _, channels, height, width = window_of(self.graph, node)
        fewest = round(word_part(self.graph, node, self.device.at_pace(int(clocks))) * channels)
        widths = {-(-channels // fields): fields for fields in range(channels + 1, fewest, -1)}
        for fields in widths.values():
            shorter = self._at_pace(node, -(-2 * channels * height * width // fields))
            found = found if shorter is None else np.minimum(found, shorter)
        return found

    def _at_pace(self, node: Node, clocks: int) -> Floats | None:
        costs = costs_of(self.graph, node, None, *ONE, self.device.at_pace(clocks))
        return None if costs is None else self._priced(costs)

    @cached_property
    def blocks(self) -> tuple[tuple[Bottleneck, tuple[int, ...]], ...]:
        """Inverted residuals of these nodes, with the numbers of theirs."""
        at = {node.name: i for i, node in self._numbered()}
        found = [(b, [n.name for n in (*b.layers, b.join) if n is not None]) for b in bottlenecks(self.graph)]
        return tuple((b, tuple(at[n] for n in names)) for b, names in found if at.keys() >= set(names))

    @cached_property
    def joined(self) -> tuple[OfferedEngines, ...]:
        """All engines of inverted residuals that are one engine."""
        known, found = dict[tuple[object, ...], OfferedEngines](), list[OfferedEngines]()
        for block, members in self.blocks:
            first, middle, last = (shape_of(self.graph, n) for n in block.layers)
            if not Raster(middle.window, middle.height, middle.width).masks_suffice:
                continue
            alike = (first, middle, last, block.join is None)
            if alike not in known:
                folds = joined_folds(first, last, twins_allowed(self.device))
                table = firb_table((first, middle, last), folds, block.join is not None, self.device.model)
                shares = self.shares(table.resources, resource_names(dhm_model(self.device.model)))
                known[alike] = self._offered(members, table.steps, shares)
            found.append(OfferedEngines(members, known[alike].clocks, known[alike].shares, known[alike].joules))
        return tuple(found)

    @cached_property
    def groups(self) -> tuple[tuple[tuple[int, ...], tuple[OfferedEngines, ...]], ...]:
        """Nodes that may be in one engine with others, those together whose engines may share a node, with these engines."""
        found: list[tuple[set[int], list[OfferedEngines]]] = []
        for engines in self.joined:
            touched = [g for g in found if g[0] & set(engines.members)]
            found = [g for g in found if g not in touched]
            found.append((set(engines.members).union(*(g[0] for g in touched)), [e for g in touched for e in g[1]] + [engines]))
        return tuple((tuple(sorted(nodes)), tuple(engines)) for nodes, engines in found)


def beats_of(graph: Graph, node: Node) -> int:
    """Clocks per frame of an engine that takes a pixel per clock."""
    if node.op.still:
        return 0
    window, _, height, width = window_of(graph, node)
    return Raster(window, height, width).steps


def front(cuts: Sequence[int], singles: dict[int, float], groups: Sequence[tuple[tuple[int, ...], dict[tuple[int, ...], float]]],
          start: int) -> list[float]:
    """Of every cut the least sum over the nodes before it, each by itself or in one engine with others of its group."""
    apart = {i for nodes, _ in groups for i in nodes}
    found = list[float]()
    sums, total = [0.0], 0.0
    for i in range(start, max(cuts, default=start)):
        total += 0.0 if i in apart else singles.get(i, inf)
        sums.append(total)
    least = [_least_of_group(nodes, engines, singles) for nodes, engines in groups]
    for cut in cuts:
        inside = sum(own[sum(i < cut for i in nodes)] for (nodes, _), own in zip(groups, least, strict=True))
        found.append(sums[cut - start] + inside)
    return found


def _least_of_group(nodes: tuple[int, ...], engines: dict[tuple[int, ...], float], singles: dict[int, float]) -> list[float]:
    """Of the first nodes of a group, for every number of them, the least sum: the last is alone, or ends an engine."""
    found = [0.0]
    for count, node in enumerate(nodes, 1):
        ways = [found[-1] + singles.get(node, inf)]
        for members, value in engines.items():
            if members[-1] == node:
                assert nodes[count - len(members):count] == members, "inverted residuals meet at their ends alone"
                ways.append(found[count - len(members)] + value)
        found.append(min(ways))
    return found
