"""What one frame takes at the least on any accelerator of a cut: a linear programme over fractions of engines.

Along one path of layers every engine adds up: the clocks from its first pixel to its first output, or from there to its last
one, or, once the last beat of its input came, what is left to do. For every layer j of the path

    frame >= to the first output, of j and all in front of it  +  to the last one, of j  +  left, of all behind j  +  arrays

whatever the pace of the others is. So the least that fractions of engines within the budget take is below every accelerator that
is built. Pipeline stages are left out.

A window deep in a network sees much of the maps in front of it: its first output waits until engines there have left all that it
sees. So "to the first output of j" may be, for layers h0 < h1 < ... < j of the path,

    to the first output, of h0 and all in front  +  until h0 left what h1 sees first  +  until h1 left what h2 sees  +  ...

with what each layer in between takes for the pixel waited for. All beats are last ones: an output of a layer needs all words of
a pixel. Between two of these layers the clocks before the first outputs may
be added instead. There are very many such rows; those join that the fractions found so far violate most (`Waits`).

In a frame of so many clocks no engine takes longer. So the longest frame is sought that the programme denies with what is left of
the engines (`FrameProgramme.least`): fractions of slow engines beside fractions of fast ones would promise too much.

A layer that sums up a whole map waits for all of it, and a map for its gate: rows through such layers add up the clocks of the
phases of a frame.

The programme has one option of every group and many options: it is solved over those that matter, column after column. The duals
of a small programme price all options at once; what would lower its value joins it, until nothing would. Whatever the duals are,
the value less what the best option of each group would lower it by is below that of the whole programme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array

from dovetail.cost import Floats, Ints
from dovetail.cost.firb import Bottleneck, engine_folds, firb_table
from dovetail.cost.folded import parts_at_once, rounds_of, shape_of, twins_allowed
from dovetail.cost.folded_area import FoldTable, Shape, folds_of_one, padded_raster
from dovetail.hardware.streaming import FIFO_LATENCY_CYCLES, Raster
from dovetail.ir import Graph, Node, Reshape, Window
from dovetail.partition.accelerator.choice import shares_of
from dovetail.partition.accelerator.dedicated import raster_of, resource_columns
from dovetail.partition.effort import spend
from dovetail.partition.tolerances import PROGRAM_ERROR, WHOLE_ERROR
from dovetail.platform.device import Device
from dovetail.platform.fitted import dhm_model

Bools = NDArray[np.bool_]

OVERFULL = 1e4
"""What a share of the budget beyond it counts, in clocks of a frame as parts of the most:

no programme is without a solution. Chosen: far above any frame's clocks, far below what doubles lose.
"""
JOINING = 3
"""Options of a group that join at once. Chosen, not measured."""
MOST_ROUNDS = 200
"""Of columns that join; the bound holds whenever it ends. Chosen, not measured."""


CLOSE = 1.02
"""Ratio of two frames that need not be told apart. Chosen, not measured."""
WAIT_ROUNDS = 60
"""Of rows that join at the most; the bound holds whenever it ends. Chosen, not measured."""
SPARSE = 6
"""Of so many layers of a path one has its row from the beginning. Chosen, not measured."""
GAINED = 1.002
"""Ratio of a value to that of the round before from which on rows go on joining. Chosen, not measured."""
WAITS = 8
"""Rows that join at once. Chosen, not measured."""
VIOLATED = 1.005
"""Ratio of what a row says to the value so far from which on it joins. Chosen, not measured."""
BEFORE, AFTER, LEFT, WORDS, CLOCKS, ENDS, UNTIL = range(7)
"""Columns of an engine's times, all in clocks.

From the last beat of its first pixel to the last beat of its first output; from there to the last output; left once the last
beat of its input came; of a pixel that ends no output, and of one that does; from the last beat of a pixel to that of the output
it ends; and from the first step to the last output.
"""
TIMES = 7
"""How many those are."""


@dataclass(frozen=True, slots=True)
class LayerOptions:
    """Engines of a layer or of several at once, row by row: resources, and times of windows over a raster."""

    members: tuple[int, ...]
    needs: Floats
    times: Floats
    raster: Raster

    def beside(self, other: LayerOptions) -> LayerOptions:
        """With the engines of another behind them."""
        return replace(self, needs=np.vstack([self.needs, other.needs]), times=np.vstack([self.times, other.times]))


@dataclass(frozen=True, slots=True)
class ArrayOptions:
    """Configurations of arrays, row by row, each at the least: resources, clocks of one frame, and of one once it is loaded."""

    needs: Floats
    alone: Floats
    after: Floats


@dataclass(frozen=True, slots=True)
class Reach:
    """What the clocks of all engines of a raster follow from."""

    raster: Raster
    early: int
    """Outputs in front of the one, if any, at the last input pixel."""
    stays: bool
    """Whether an output ends at the last input pixel."""

    @property
    def trailing(self) -> bool:
        """Whether the last input pixels lead to no output."""
        return self.raster.last < self.raster.beats - 1


def reach_of(raster: Raster) -> Reach:
    """Of a window, behind explicit padding where masks do not suffice: what is padded at the end follows the last pixel."""
    raster = padded_raster(raster.window, raster.height, raster.width)
    steps = raster.output_steps()
    early = int(np.searchsorted(steps, raster.beats - 1))
    return Reach(raster, early, early < len(steps) and int(steps[early]) == raster.beats - 1)


def clocks_of(reach: Reach, table: FoldTable | None, padded: bool = False) -> Floats:
    """Times of engines, row by row; without folds it is one engine that takes a pixel per clock."""
    raster, one = reach.raster, np.ones(1, dtype=np.int64)
    words, clocks = (one, one) if table is None else (table.words, table.clocks)
    until = (raster.outputs - 1) * clocks + (raster.last - raster.outputs + 1) * words + clocks - 1
    taken = reach.early * clocks + (raster.beats - 1 - reach.early) * words
    enters = first = 0 * one  # the step that takes the last beat of a pixel that ends an output, and of the first pixel
    if table is not None:
        enters = np.where(table.reads_words, ((table.blocks - 1) * table.passes + 1) * table.slices - 1, 0)
        first = np.where(table.reads_words, words - 1, 0) if raster.first else enters
        taken = taken + (enters if reach.stays else np.where(table.reads_words, words - 1, 0))
    left = np.zeros(len(words)) if reach.trailing or padded else np.maximum(0, until - taken)
    ends = clocks - 1 - enters
    before = ends if padded else raster.first * words + clocks - 1 - first  # padding may enter with the first beat
    return np.column_stack([before, until - raster.first * words - clocks + 1, left, words, clocks, ends,
                            until]).astype(np.float64)


def fused_clocks(raster: Raster, clocks: Ints, slices: Ints) -> Floats:
    """Times of inverted residuals that are one engine each: their first pixel enters in slices, whole pixels leave."""
    until = (raster.last + 1) * clocks - 1
    left = np.maximum(0, until - (raster.beats - 1) * clocks - slices + 1)
    return np.column_stack([(raster.first + 1) * clocks - slices, (raster.last - raster.first) * clocks, left, clocks, clocks,
                            clocks - slices, until]).astype(np.float64)


def scan_of(graph: Graph, node: Node) -> Raster:
    """What a layer's window goes over; that of an average over a map is the map."""
    raster = raster_of(graph, node)
    whole = node.op.averages and not node.op.window
    return Raster(Window((raster.height, raster.width)), raster.height, raster.width) if whole else raster


def span_of(raster: Raster, first: int, last: int) -> tuple[int, ...]:
    """Of an engine for layers of a path: the first and the last of them, columns of its outputs, and its steps from one row and
    from one column of outputs to the next."""
    return first, last, raster.output_size[1], raster.window.stride[0] * raster.width, raster.window.stride[1]


class FrameBounds:
    """Lower bounds on one frame for the cuts of a graph, on a device with a budget of resources."""

    def __init__(self, graph: Graph, device: Device, names: tuple[str, ...], budget: Floats) -> None:
        self.graph, self.device, self.names, self.budget = graph, device, names, budget
        self.priced: dict[tuple[object, ...], LayerOptions] = {}
        """Folds of layers and inverted residuals, by what they depend on: many are alike."""
        self.taken: dict[tuple[int, ...], Ints] = {}
        """Engines, by the nodes that they stand for, of which fractions were the best at the cut before."""

    def layer(self, index: int, direct: Floats | None, most: float) -> LayerOptions:
        """Engines of a Conv or Gemm that take at most so many clocks; with folds only where `direct` leaves them open."""
        node = self.graph.nodes[index]
        shape, raster = shape_of(self.graph, node), raster_of(self.graph, node)
        reach, padded = reach_of(raster), not raster.masks_suffice
        if (shape, most) not in self.priced:
            table = folds_of_one(shape, self.folds(shape, most))
            clocks, rows = clocks_of(reach, table, padded), table.resources(dhm_model(self.device.model))
            near = clocks[:, UNTIL] <= most
            rows = resource_columns(rows, self.device.model, self.names)
            self.priced[shape, most] = self.able((), rows[near], clocks[near], reach.raster)
        folded = replace(self.priced[shape, most], members=(index,))
        return folded if direct is None else folded.beside(
            self.able((), direct[None], clocks_of(reach, None, padded), reach.raster))

    def folds(self, shape: Shape, most: float) -> Ints:
        """All folds on offer at any pace whose products may fit the device."""
        channels, taps, budget = shape.channels, prod(shape.window.kernel), dict(zip(self.names, self.budget, strict=True))
        room = {0: max(budget.values(), default=0.0), 1: budget.get("dsp", 0.0), 2: 2 * budget.get("dsp", 0.0)}
        pairs, filters = parts_at_once(channels.groups, channels.inputs), np.array(rounds_of(channels.outputs))
        rows = np.column_stack([np.repeat(pairs, len(filters), axis=0), np.tile(filters, len(pairs))])
        rounds = -(-np.array([channels.groups, channels.inputs, channels.outputs]) // rows)
        rows = rows[(shape.raster.outputs - 1) * rounds.prod(axis=1) <= most]
        found = []
        for kind in (0, 1, 2) if twins_allowed(self.device) else (0, 1):
            fits = (rows.prod(axis=1) * taps <= room[kind]) & ((kind < 2) | (rows[:, 2] > 1))
            found.append(np.column_stack([rows[fits], np.full(fits.sum(), kind)]))
        return np.concatenate(found)

    def plain(self, index: int, needs: Floats) -> LayerOptions:
        """The engine of a layer without weights."""
        raster = scan_of(self.graph, self.graph.nodes[index])
        reach = reach_of(raster)
        return self.able((index,), needs[None], clocks_of(reach, None, not raster.masks_suffice), reach.raster)

    def fused(self, block: Bottleneck, members: tuple[int, ...], most: float) -> LayerOptions:
        """An inverted residual as one engine, in every number of words and slices."""
        first, middle, last = (shape_of(self.graph, n) for n in block.layers)
        alike = first, middle, last, block.join is not None, most
        if alike in self.priced:
            return replace(self.priced[alike], members=members)
        raster = Raster(middle.window, middle.height, middle.width)
        at_once, inputs = (grid.reshape(-1) for grid in np.meshgrid(
            rounds_of(first.channels.outputs), rounds_of(first.channels.inputs), indexing="ij"))
        clocks = -(-first.channels.outputs // at_once) * -(-first.channels.inputs // inputs)
        near = raster.steps * clocks <= most + clocks
        folds = engine_folds(first, last, inputs[near], at_once[near], twins_allowed(self.device))
        slices = -(-first.channels.inputs // folds[:, 0, 1])
        clocks = -(-first.channels.outputs // folds[:, 0, 2]) * slices
        table = firb_table((first, middle, last), folds, block.join is not None, self.device.model)
        rows = resource_columns(table.resources, self.device.model, self.names)
        self.priced[alike] = self.able(members, rows, fused_clocks(raster, clocks, slices), raster)
        return self.priced[alike]

    def able(self, members: tuple[int, ...], needs: Floats, times: Floats, raster: Raster) -> LayerOptions:
        """Those that fit the device by themselves."""
        kept = np.flatnonzero(np.all(needs <= self.budget + 1e-9, axis=1))
        return LayerOptions(members, needs[kept], times[kept], raster)

    def path(self, cut: int, weights: Sequence[float] | None = None) -> list[int]:
        """Layers from an input to the end of a cut, one behind the other: as many as possible, or of the largest weights."""
        made = {node.output: i for i, node in enumerate(self.graph.nodes[:cut])}
        length, back = dict[int, float](), dict[int, int | None]()
        for i, node in enumerate(self.graph.nodes[:cut]):
            back[i] = max((made[t] for t in node.inputs if t in made), key=lambda p: length[p], default=None)
            before = back[i]
            length[i] = (1 if weights is None else weights[i]) + (0 if before is None else length[before])
        found, at = list[int](), cut - 1 if cut else None
        while at is not None:
            found.append(at)
            at = back[at]
        return [i for i in found[::-1] if not isinstance(self.graph.nodes[i].op, Reshape)]

    def awaited(self, cut: int) -> set[int]:
        """Nodes in front of a cut whose last outputs the frame waits for: none of their pixels is left out behind them."""
        readers, found = dict[str, list[int]](), set[int]()
        for i in range(cut - 1, -1, -1):
            node = self.graph.nodes[i]
            behind = readers.get(node.output, [])
            rasters = {k: scan_of(self.graph, self.graph.nodes[k]) for k in behind}
            if not behind or any(k in found and not reach_of(raster).trailing for k, raster in rasters.items()):
                found.add(i)
            for tensor in node.inputs:
                readers.setdefault(tensor, []).append(i)
        return found


class FrameProgramme:
    """The linear programme of a cut: `items` are engines within `most` clocks, `arrays` what may follow them."""

    def __init__(self, bounds: FrameBounds, cut: int, items: Sequence[LayerOptions], arrays: ArrayOptions | None,
                 most: float) -> None:
        self.bounds, self.cut, self.items, self.arrays, self.most = bounds, cut, items, arrays, most
        sizes = [len(item.needs) for item in items] + ([] if arrays is None else [len(arrays.needs)])
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        total = int(self.starts[-1])
        self.of = np.repeat(np.arange(len(sizes)), sizes)
        self.each = np.zeros((cut + (arrays is not None), len(sizes)))
        """Which groups of options stand for which node, and for the arrays."""
        for k, item in enumerate(items):
            self.each[list(item.members), k] = 1.0
        self.extra, self.alone = np.zeros(total), np.zeros(total)
        needs, times = [item.needs for item in items], [item.times for item in items]
        if arrays is not None:
            self.each[cut, -1] = 1.0
            here = slice(int(self.starts[-2]), total)
            self.alone[here], self.extra[here] = arrays.alone, arrays.after
            needs, times = [*needs, arrays.needs], [*times, np.zeros((len(arrays.needs), TIMES))]
        self.times = np.concatenate([*times, np.zeros((0, TIMES))])
        self.shares = shares_of(np.concatenate([*needs, np.zeros((0, len(bounds.names)))]), bounds.budget).T
        self.rows, self.constants = np.zeros((0, total)), np.zeros(0)
        self.paths: list[Waits] = []
        known = [start + own[own < len(item.needs)] for item, start in zip(items, self.starts, strict=False)
                 if (own := bounds.taken.get(item.members)) is not None]
        self.found = Fractions(0.0, np.concatenate([*known, np.zeros(0, dtype=np.int64)]), np.zeros(0), np.zeros(total),
                               np.zeros(0, dtype=np.bool_))
        if arrays is not None:
            self._join([self.alone], 0.0)
        self._follow(bounds.path(cut))
        self._join([self.paths[0].row([j], []) + self.extra for j in self.paths[0].last[::-SPARSE]] or [self.extra],
                   float(FIFO_LATENCY_CYCLES) if cut else 0.0)

    def _follow(self, path: list[int]) -> Waits:
        """Waits along a path, of all options."""
        for known in self.paths:
            if known.path == path:
                return known
        order = {node: k for k, node in enumerate(path)}
        spans = np.full((len(self.times), 5), -1)
        for k, item in enumerate(self.items):
            places = [order[m] for m in item.members if m in order]
            spans[self.starts[k]:self.starts[k + 1]] = span_of(item.raster, min(places, default=-1), max(places, default=-1))
        if self.arrays is not None:
            spans[self.starts[-2]:, :2] = len(path)
        self.paths.append(Waits(self.bounds.graph, path, self.times, spans))
        return self.paths[-1]

    def _join(self, rows: Sequence[Floats], constant: float) -> None:
        self.rows = np.vstack([self.rows, *(row / self.most for row in rows)])
        self.constants = np.append(self.constants, [constant / self.most] * len(rows))

    def _waited(self, value: float, keep: Bools) -> bool:
        """Let rows over options to keep join that fractions found so far violate, along the paths that these take longest on."""
        mean = np.zeros((self.cut, TIMES))
        for option, part in zip(self.found.taken.tolist(), self.found.parts.tolist(), strict=True):
            if self.of[option] < len(self.items):
                mean[list(self.items[self.of[option]].members)] += part * self.times[option]
        found = list[tuple[float, Waits, tuple[list[int], list[bool]]]]()
        paths = [self._follow(self.bounds.path(self.cut, mean[:, column].tolist())) for column in (BEFORE, UNTIL)]
        for waits in paths if paths[0] is not paths[1] else paths[:1]:
            found += waits.violated(self.found.taken, self.found.parts, self.extra, VIOLATED * value)
        found.sort(key=lambda own: -own[0])
        rows, kept = np.zeros((min(len(found), WAITS), len(self.of))), np.flatnonzero(keep)
        for row, (_, waits, chain) in zip(rows, found, strict=False):
            row[kept] = waits.row(*chain, kept) + self.extra[kept]
        self._join(list(rows), float(FIFO_LATENCY_CYCLES))
        spend("frames", len(rows), len(rows) * len(kept))
        return bool(found)

    def _forget(self) -> None:
        """Leave out the rows that the bound does not follow from, but for that of arrays."""
        binds = self.found.binds | (np.arange(len(self.found.binds)) < (self.arrays is not None))
        self.rows, self.constants = self.rows[binds], self.constants[binds]

    def least(self, enough: float) -> float:
        """The bound of a cut, sought no further once it is `enough`; `most` or more where no fractions fit."""
        bounds = self.bounds
        longest, ends = self.alone.copy(), bounds.awaited(self.cut)
        for k, item in enumerate(self.items):
            if max(item.members) in ends:
                longest[self.starts[k]:self.starts[k + 1]] = item.times[:, UNTIL]
        low, high, open_ = 0.0, self.most, longest <= self.most
        frame = high
        while True:
            keep, value = open_ & (longest <= frame), 0.0  # an engine that takes longer is in no frame of so many clocks
            for _ in range(WAIT_ROUNDS):
                able = np.zeros(self.each.shape[1])
                able[np.unique(self.of[keep])] = 1.0
                if not np.all(self.each @ able > 0):
                    value = inf
                    break
                programme = Programme(self.of, self.each, self.shares, self.rows, self.constants)
                self.found = solved(programme, keep, self.found.taken, frame / self.most / (1 - WHOLE_ERROR))
                value, before = max(value, self.found.value * self.most * (1 - WHOLE_ERROR)), value
                keep = keep & (value + self.found.reduced * self.most * (1 - WHOLE_ERROR) < frame)
                self._forget()
                if value >= frame or value < before * GAINED or not self._waited(value, open_):
                    break
            if value >= frame:
                low = frame
            else:
                low, high, open_ = max(low, value), frame, keep
            if high <= low * CLOSE or low >= enough:
                break
            frame = sqrt(low * high) if low else high / 2
        for k, item in enumerate(self.items):
            own = self.found.taken[(self.found.taken >= self.starts[k]) & (self.found.taken < self.starts[k + 1])]
            bounds.taken[item.members] = own - self.starts[k]
        return low


class Waits:
    """Clocks of a frame by the engines it waits for along a path, one row over all options each.

    `times` and `spans` (`span_of`) are those of options, `path` the layers by number.
    """

    def __init__(self, graph: Graph, path: list[int], times: Floats, spans: Ints) -> None:
        self.path, self.times, self.spans, count = path, times, spans, len(path)
        nodes = [graph.nodes[i] for i in path]
        self.rasters = [scan_of(graph, n) for n in nodes]
        self.apart = [node.op.moves or node.op.repeats != (1, 1) for node in nodes]
        trailing = [k for k, raster in enumerate(self.rasters) if reach_of(raster).trailing]
        self.last = range(trailing[-1] if trailing else 0, count)
        """Layers whose last outputs all behind them wait for."""
        self.seen = np.zeros((count, count), dtype=np.int64)
        """By two layers of the path, the output of the first that the first output of the second waits for."""
        for j in range(count):
            output = 0
            for k in range(j - 1, -1, -1):
                output = self.seen[k, j] = self._sees(k + 1, output)

    def _sees(self, place: int, output: int) -> int:
        """The output of the layer in front that an output waits for; the first where more is not known."""
        raster, front = self.rasters[place], self.rasters[place - 1]
        if self.apart[place] or self.apart[place - 1] or front.outputs != raster.beats:
            return 0
        if not raster.masks_suffice or output >= raster.outputs:
            return 0
        rows, columns = divmod(output, raster.output_size[1])
        step = raster.first + rows * raster.window.stride[0] * raster.width + columns * raster.window.stride[1]
        return min(step, raster.beats - 1)

    def _leaving(self, spans: Ints, times: Floats, output: Ints) -> Floats:
        """Clocks from an engine's first output to the one of a number."""
        rows, columns = np.divmod(output, np.maximum(1, spans[:, 2]))
        steps = rows * spans[:, 3] + columns * spans[:, 4]
        return np.asarray(output * (times[:, CLOCKS] - times[:, WORDS]) + steps * times[:, WORDS])

    def row(self, layers: Sequence[int], added: Sequence[bool], options: Ints | None = None) -> Floats:
        """Clocks of all or some options where the last of some layers waits for the one in front of it, and so on.

        What a layer waits for also passes those between the two. `added` says between which two of them clocks before first
        outputs are added instead.
        """
        spans, times = (self.spans, self.times) if options is None else (self.spans[options], self.times[options])
        hops, (low, high) = np.array(layers), spans[:, :2].T
        before, final = times[:, BEFORE], len(hops) - 1
        first, last = np.searchsorted(hops, low), np.searchsorted(hops, high, side="right") - 1
        adds, behind = np.array([True, *added, False]), np.clip(last, 0, final)
        waited = self._leaving(spans, times, self.seen[np.clip(high, 0, len(self.seen) - 1), hops[np.minimum(behind + 1, final)]])
        own = np.where(last == final, times[:, AFTER], np.where(adds[behind + 1], 0.0, waited))
        own = np.where(adds[first], before, times[:, ENDS]) + np.where(first <= last, own, 0.0)
        return np.where(low < 0, 0.0, np.where(low > hops[-1], times[:, LEFT], own))

    def violated(self, taken: Ints, parts: Floats, extra: Floats,
                 limit: float) -> list[tuple[float, Waits, tuple[list[int], list[bool]]]]:
        """What rows say of fractions of options, as far as that is more than `limit`, with the layers of each."""
        count, found = len(self.seen), list[tuple[float, Waits, tuple[list[int], list[bool]]]]()
        mean, spans = np.zeros((count, TIMES)), np.zeros((count, 5), dtype=np.int64)
        for k, raster in enumerate(padded_raster(r.window, r.height, r.width) for r in self.rasters):
            here = (self.spans[taken, 0] <= k) & (self.spans[taken, 1] >= k)
            mean[k] = parts[here] @ self.times[taken[here]]
            spans[k] = span_of(raster, k, k)
        starts, chains = mean[:, BEFORE].copy(), [([j], list[bool]()) for j in range(count)]
        for j in range(1, count):
            passed = np.cumsum(mean[1:j + 1, ENDS][::-1])[::-1]
            after = starts[:j] + self._leaving(spans[:j], mean[:j], self.seen[:j, j]) + passed
            add = bool(after.max() < starts[j - 1] + mean[j, BEFORE])
            front = j - 1 if add else int(after.argmax())
            starts[j] = max(after.max(), starts[j - 1] + mean[j, BEFORE])
            chains[j] = [*chains[front][0], j], [*chains[front][1], add]
        for j in self.last:
            value = float(parts @ (self.row(*chains[j], taken) + extra[taken]))
            if value > limit:
                found.append((value, self, chains[j]))
        return found


@dataclass(frozen=True, slots=True)
class Programme:
    """Least z, for x >= 0 that take one option of every row of `each`, shares x <= 1 and frames x + constants <= z."""

    of: Ints
    """Of every option its group, rising; at most one option of a group is taken."""
    each: Floats
    """Of every group what its options stand for."""
    shares: Floats
    frames: Floats
    constants: Floats


@dataclass(frozen=True, slots=True)
class Fractions:
    """A lower bound, options with their fractions of it, and by how much whole options would raise it at the least."""

    value: float
    taken: Ints
    parts: Floats
    reduced: Floats
    binds: Bools
    """Which rows of frames the bound follows from."""


def solved(programme: Programme, keep: Bools, taken: Ints, enough: float) -> Fractions:
    """The least z with the options of `keep`, or less that is `enough`; `taken` are options to begin with."""
    best, everything = 0.0, np.vstack([programme.shares, programme.frames])
    limits = np.concatenate([np.ones(len(programme.shares)), -programme.constants])
    beyond = np.concatenate([-np.ones(len(programme.shares)), np.zeros(len(programme.frames))])
    under = np.concatenate([np.zeros(len(programme.shares)), -np.ones(len(programme.frames))])
    kept = np.flatnonzero(keep)
    everything, of = everything[:, kept], programme.of[kept]
    firsts = np.flatnonzero(np.diff(of, prepend=-1))
    taken = np.searchsorted(kept, taken[keep[taken]])
    if len(np.unique(of[taken])) < len(firsts):
        taken = np.unique(np.concatenate([taken, _first(programme, kept, of)]))
    for _ in range(MOST_ROUNDS):
        matrix = np.column_stack([everything[:, taken], beyond, under])
        answer = linprog(np.concatenate([np.zeros(len(taken)), [OVERFULL, 1.0]]), matrix, limits,
                         csr_array(np.pad(programme.each[:, of[taken]], ((0, 0), (0, 2)))),
                         np.ones(len(programme.each)), (0, None))  # type: ignore[call-overload]  # no sparse matrix
        spend("programs", 1, matrix.size)
        if answer.x is None:
            return Fractions(best, kept[taken], np.zeros(len(taken)), np.zeros(len(programme.of)), programme.constants >= 0)
        prices, each = np.minimum(0.0, answer.ineqlin.marginals), np.asarray(answer.eqlin.marginals)
        prices = prices / max(1.0, float(prices @ under), float(prices @ beyond) / OVERFULL)  # what z and excess cost at the most
        reduced = -(prices @ everything) - (each @ programme.each)[of]
        less = np.minimum(0.0, np.minimum.reduceat(reduced, firsts))
        value = float(prices @ limits + each.sum() + less.sum())
        best = max(best, value)
        spend("frames", 1, everything.size)
        more = np.setdiff1d(_joining(reduced, of), taken)
        if best >= enough or best >= answer.fun * (1 - PROGRAM_ERROR) or not len(more):
            break
        taken = np.concatenate([taken, more])
    parts, whole = answer.x[:-2], np.full(len(programme.of), inf)
    whole[kept] = value - best + reduced - np.repeat(less, np.diff(np.append(firsts, len(kept))))
    taken = taken[:len(parts)]
    return Fractions(best, kept[taken[parts > 0]], parts[parts > 0], whole, prices[len(programme.shares):] < 0)


def _joining(reduced: Floats, of: Ints) -> Ints:
    """Options that lower the value, of every group those that do most."""
    able = np.flatnonzero(reduced < 0)
    able = able[np.lexsort((reduced[able], of[able]))]
    return able[_ranks(of[able]) < JOINING]


def _ranks(of: Ints) -> Ints:
    """The place of each in its group, of groups one after the other."""
    starts = np.flatnonzero(np.diff(of, prepend=-1))
    return np.arange(len(of)) - np.repeat(starts, np.diff(np.append(starts, len(of))))


def _first(programme: Programme, kept: Ints, of: Ints) -> Ints:
    """Of every group the option that fills least, and the one whose frames are shortest."""
    found = list[Ints]()
    for rows in (programme.shares, programme.frames):
        order = np.lexsort((rows[:, kept].max(axis=0, initial=0.0), of))
        found.append(order[_ranks(of) == 0])
    return np.concatenate(found)
