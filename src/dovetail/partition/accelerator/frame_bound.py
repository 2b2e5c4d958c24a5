"""What one frame takes at the least on any accelerator of a cut: a linear programme over fractions of engines.

Along a path of layers, take any output of each that waits for that of the layer in front. An engine does one step per clock, so

    frame >= sum over the path of the steps from the last beat of the pixel that a layer waits for to that of its own output

whatever the other engines do. Which outputs these are says where a frame is thought to wait: until a window deep in the network
has seen enough rows of an early map, while a slow engine works through its map, or at the end, when all that is left of a map
passes a slow engine behind a fast one. So the least that fractions of engines within the budget take is below every accelerator
that is built. Pipeline stages are left out. There are very many such rows; those join that the fractions found so far violate
most (`Waits`).

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
from functools import lru_cache
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
from dovetail.ir import Graph, Node, Window
from dovetail.partition.accelerator.choice import shares_of
from dovetail.partition.accelerator.dedicated import raster_of, resource_columns
from dovetail.partition.effort import spend, worked
from dovetail.partition.tolerances import PROGRAM_ERROR, WHOLE_ERROR
from dovetail.platform.device import Device
from dovetail.platform.fitted import dhm_model

Bools = NDArray[np.bool_]
Path = tuple[tuple[int, int], ...]
"""Nodes one behind the other, by number, and an output of each."""

OVERFULL = 1e4
"""What a share of the budget beyond it counts, in clocks of a frame as parts of the most:

no programme is without a solution. Chosen: far above any frame's clocks, far below what doubles lose.
"""
JOINING = 3
"""Options of a group that join at once. Chosen, not measured."""
MOST_ROUNDS = 200
"""Of columns that join; the bound holds whenever it ends. Chosen, not measured."""


CLOSE = 1.005
"""Ratio of two frames that need not be told apart. Chosen, not measured."""
WAIT_ROUNDS = 60
"""Of rows that join at the most; the bound holds whenever it ends. Chosen, not measured."""
GAINED = 1.002
"""Ratio of a value to that of some rounds before from which on rows go on joining. Chosen, not measured."""
PATIENCE = 3
"""How many rounds before. Chosen, not measured."""
WAITS = 8
"""Rows that join at once. Chosen, not measured."""
VIOLATED = 1.003
"""Ratio of what a row says to the value so far from which on it joins. Chosen, not measured."""
CLOCKS, WORDS, ENDING, OTHER, UNTIL = range(5)
"""Columns of an engine's times, all in clocks.

Of a pixel that ends an output, and of one that does not; from the first step of such a pixel to the one that takes its last beat,
of either; and from the first step of a frame to the last output.
"""
TIMES = 5
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
class Scan:
    """Which pixels of its input the outputs of a window wait for."""

    raster: Raster
    """Behind explicit padding, where masks do not suffice."""
    steps: Ints
    """The pixel of the raster that ends each output."""
    taken: Ints
    """The place in the raster of each pixel of the input."""

    def ends(self, pixels: Ints) -> Ints:
        """The first output that ends with a pixel or behind it; as many as there are outputs where none does."""
        return np.searchsorted(self.steps, self.taken[pixels])

    def needed(self, outputs: Ints) -> Ints:
        """The last pixel of the input that comes no later than the end of an output."""
        return np.maximum(0, np.searchsorted(self.taken, self.steps[outputs], side="right") - 1)

    def work(self, pixels: Ints, outputs: Ints) -> Floats:
        """Steps from the last beat of a pixel to that of an output, row by row: how often each of an engine's times counts.

        One less than their sum is what that takes.
        """
        before, place, steps = self.ends(pixels), self.taken[pixels], self.steps[outputs]
        stays = (self.steps[np.minimum(before, len(self.steps) - 1)] == place).astype(np.int64)
        return np.stack([outputs + 1 - before, steps - outputs - place + before, -stays, stays - 1], axis=-1).astype(np.float64)


@lru_cache(maxsize=1024)
def scanned(raster: Raster) -> Scan:
    """Remembered, as many layers are alike."""
    padded, (top, left, _, _) = padded_raster(raster.window, raster.height, raster.width), raster.window.pads
    taken = np.arange(raster.beats)
    if not raster.masks_suffice:
        rows, columns = np.divmod(taken, raster.width)
        taken = (rows + top) * padded.width + columns + left
    return Scan(padded, padded.output_steps(), taken)


def clocks_of(raster: Raster, table: FoldTable | None) -> Floats:
    """Times of engines, row by row; without folds it is one engine that takes a pixel per clock."""
    one = np.ones(1, dtype=np.int64)
    words, clocks = (one, one) if table is None else (table.words, table.clocks)
    ending = other = 0 * one
    if table is not None:
        ending = np.where(table.reads_words, ((table.blocks - 1) * table.passes + 1) * table.slices - 1, 0)
        other = np.where(table.reads_words, words - 1, 0)
    return _times(raster, clocks, words, ending, other)


def fused_clocks(raster: Raster, clocks: Ints, slices: Ints) -> Floats:
    """Times of inverted residuals that are one engine each: pixels enter in slices, whole pixels leave."""
    return _times(raster, clocks, clocks, slices - 1, slices - 1)


def _times(raster: Raster, clocks: Ints, words: Ints, ending: Ints, other: Ints) -> Floats:
    scan = scanned(raster).raster
    until = scan.outputs * clocks + (scan.last - scan.outputs + 1) * words - 1
    return np.column_stack([clocks, words, ending, other, until]).astype(np.float64)


def scan_of(graph: Graph, node: Node) -> Raster:
    """What a layer's window goes over; that of an average over a map is the map."""
    raster = raster_of(graph, node)
    whole = node.op.averages and not node.op.window
    return Raster(Window((raster.height, raster.width)), raster.height, raster.width) if whole else raster


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
        if (shape, most) not in self.priced:
            table = folds_of_one(shape, self.folds(shape, most))
            clocks, rows = clocks_of(raster, table), table.resources(dhm_model(self.device.model))
            near = clocks[:, UNTIL] <= most
            rows = resource_columns(rows, self.device.model, self.names)
            self.priced[shape, most] = self.able((), rows[near], clocks[near], raster)
        folded = replace(self.priced[shape, most], members=(index,))
        return folded if direct is None else folded.beside(
            self.able((), direct[None], clocks_of(raster, None), raster))

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
        return self.able((index,), needs[None], clocks_of(raster, None), raster)

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

    def awaited(self, cut: int) -> set[int]:
        """Nodes in front of a cut whose last outputs the frame waits for: none of their pixels is left out behind them."""
        readers, found = dict[str, list[int]](), set[int]()
        for i in range(cut - 1, -1, -1):
            node = self.graph.nodes[i]
            behind = readers.get(node.output, [])
            scans = {k: scanned(scan_of(self.graph, self.graph.nodes[k])) for k in behind}
            if not behind or any(k in found and scan.steps[-1] >= scan.taken[-1] for k, scan in scans.items()):
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
        self.longest, ends = self.alone.copy(), bounds.awaited(cut)
        """Clocks that a frame takes at the least with each option."""
        for k, item in enumerate(items):
            if max(item.members) in ends:
                self.longest[self.starts[k]:self.starts[k + 1]] = item.times[:, UNTIL]
        self.rows, self.constants = np.zeros((0, total)), np.zeros(0)
        self.waits = Waits(bounds.graph, cut)
        known = [start + own[own < len(item.needs)] for item, start in zip(items, self.starts, strict=False)
                 if (own := bounds.taken.get(item.members)) is not None]
        self.found = Fractions(0.0, np.concatenate([*known, np.zeros(0, dtype=np.int64)]), np.zeros(0), np.zeros(total),
                               np.zeros(0, dtype=np.bool_))
        if arrays is not None:
            self._join([self.alone], 0.0)
        passed = self.waits.paths(np.ones((cut, TIMES)) if cut else np.zeros((0, TIMES)))
        self._join([self._row(path) for _, path in passed[:WAITS]] or [self.extra], float(FIFO_LATENCY_CYCLES) if cut else 0.0)

    def _row(self, path: Path) -> Floats:
        """Clocks that all options take along a path."""
        work, on = np.zeros((len(self.starts) - 1, 4)), np.zeros(len(self.starts) - 1)
        for k, item in enumerate(self.items):
            found = self.waits.passed(path, item)
            if found is not None:
                work[k], on[k] = found, 1.0
        return np.asarray((self.times[:, :UNTIL] * work[self.of]).sum(axis=1) - on[self.of] + self.extra)

    def _join(self, rows: Sequence[Floats], constant: float) -> None:
        self.rows = np.vstack([self.rows, *(row / self.most for row in rows)])
        self.constants = np.append(self.constants, [constant / self.most] * len(rows))

    def _waited(self, value: float) -> bool:
        """Let rows join that fractions found so far violate."""
        mean = np.zeros((self.cut, TIMES))
        for option, part in zip(self.found.taken.tolist(), self.found.parts.tolist(), strict=True):
            if self.of[option] < len(self.items):
                members = self.items[self.of[option]].members  # the second of several is the one with the window
                mean[members[len(members) > 1]] += part * np.append(self.times[option, :UNTIL], 1.0)
        after, rows = float(self.extra[self.found.taken] @ self.found.parts), list[Floats]()
        for clocks, path in self.waits.paths(mean):
            if clocks + after <= VIOLATED * value or len(rows) == WAITS:
                break
            row = self._row(path)
            if row[self.found.taken] @ self.found.parts > VIOLATED * value:
                rows.append(row)
        self._join(rows, float(FIFO_LATENCY_CYCLES))
        spend("frames", len(rows), len(rows) * len(self.of))
        return bool(rows)

    def _forget(self) -> None:
        """Leave out the rows that the bound does not follow from, but for that of arrays."""
        binds = self.found.binds | (np.arange(len(self.found.binds)) < (self.arrays is not None))
        self.rows, self.constants = self.rows[binds], self.constants[binds]

    def least(self, enough: float, until_s: float = inf) -> float:
        """The bound of a cut, sought no further than `enough` or until time is over; `most` or more where no fractions fit."""
        low, high, frame, open_ = 0.0, self.most, self.most, self.longest <= self.most
        while True:
            value, keep = self._relaxed(frame, open_, until_s)
            if value >= frame:
                low = frame
            else:
                low, high, open_ = max(low, value), frame, keep
            if high <= low * CLOSE or low >= enough or worked() >= until_s:
                break
            frame = sqrt(low * high) if low else high / 2
        for k, item in enumerate(self.items):
            own = self.found.taken[(self.found.taken >= self.starts[k]) & (self.found.taken < self.starts[k + 1])]
            self.bounds.taken[item.members] = own - self.starts[k]
        return low

    def _relaxed(self, frame: float, open_: Bools, until_s: float) -> tuple[float, Bools]:
        """What fractions take at the least in a frame of so many clocks, and the options that whole ones may be of."""
        keep, value = open_ & (self.longest <= frame), 0.0  # an engine that takes longer is in no frame of so many clocks
        values = list[float]()
        for _ in range(WAIT_ROUNDS):
            able = np.zeros(self.each.shape[1])
            able[np.unique(self.of[keep])] = 1.0
            if not np.all(self.each @ able > 0):
                return inf, keep
            programme = Programme(self.of, self.each, self.shares, self.rows, self.constants)
            self.found = solved(programme, keep, self.found.taken, frame / self.most / (1 - WHOLE_ERROR))
            value = max(value, self.found.value * self.most * (1 - WHOLE_ERROR))
            values.append(value)
            keep = keep & (value + self.found.reduced * self.most * (1 - WHOLE_ERROR) < frame)
            self._forget()
            slow = len(values) > PATIENCE and value < values[-1 - PATIENCE] * GAINED
            if value >= frame or slow or worked() >= until_s or not self._waited(value):
                break
        return value, keep


class Waits:
    """What engines of the nodes in front of a cut wait for, pixel by pixel; only some outputs of every node are looked at.

    A path is followed from the graph's input to the last output of the last node: of every node on it some output, which waits
    for that of the node in front. Those are looked at that wait for the first or last output of another node, or that one waits
    for.
    """

    def __init__(self, graph: Graph, cut: int) -> None:
        self.scans, self.sources, self.readers = dict[int, Scan](), dict[int, list[int | None]](), dict[int, list[int]]()
        made, self.apart = dict[str, int | None](), set[int]()
        for i, node in enumerate(graph.nodes[:cut]):
            if node.op.still:
                made[node.output] = made.get(node.inputs[0])
                continue
            self.scans[i], made[node.output] = scanned(scan_of(graph, node)), i
            self.sources[i] = [made.get(tensor) for tensor in node.inputs]
            if node.op.moves or node.op.repeats != (1, 1):
                self.apart.add(i)
            for source in self.sources[i]:
                if source is not None:
                    self.readers.setdefault(source, []).append(i)
        self.end = made[graph.nodes[cut - 1].output] if cut else None
        self.places = {i: np.unique([0, len(scan.steps) - 1]) for i, scan in self.scans.items()}
        self._close()

    def _close(self) -> None:
        """Add the outputs that wait for those known, and those that these wait for."""
        for _ in range(2):
            for i in self.scans:
                self._add(i, [self.ended(s, i, self.places[s]) for s in self.sources[i] if s is not None])
            for i in reversed(self.scans):
                needed = self.scans[i].needed(self.places[i])
                for s in self.sources[i]:
                    if s is not None:
                        last = needed == len(self.scans[i].taken) - 1
                        self._add(s, [needed if self._alike(s, i) else np.where(last, len(self.scans[s].steps) - 1, 0)])

    def _add(self, node: int, places: list[Ints]) -> None:
        every = np.unique(np.concatenate([self.places[node], *places]))
        self.places[node] = every[every < len(self.scans[node].steps)]

    def _alike(self, source: int, node: int) -> bool:
        """Whether the outputs of a node are the pixels of another, in the same order."""
        return not self.apart & {source, node} and len(self.scans[source].steps) == len(self.scans[node].taken)

    def _pixels(self, source: int | None, node: int, outputs: Ints) -> Ints:
        """Pixels of a node that come no sooner than outputs of the node in front of it; its first where that is the input."""
        if source is not None and self._alike(source, node):
            return outputs
        return np.where(outputs == 0, 0, len(self.scans[node].taken) - 1)

    def ended(self, source: int | None, node: int, outputs: Ints) -> Ints:
        """The first output of a node that waits for an output of the node in front of it."""
        return self.scans[node].ends(self._pixels(source, node, outputs))

    def passed(self, path: Path, item: LayerOptions) -> Floats | None:
        """How often the times of engines count along a path (`Scan.work`); None where they are not on it."""
        on = [k for k, (node, _) in enumerate(path) if node in item.members]
        if not on:
            return None
        source, output = path[on[0] - 1] if on[0] else (None, 0)
        pixels = self._pixels(source, path[on[0]][0], np.array([output]))
        return np.asarray(scanned(item.raster).work(pixels, np.array([path[on[-1]][1]]))[0])

    def paths(self, mean: Floats) -> list[tuple[float, Path]]:
        """Through the last output of every node the path on which engines take longest, those first that take longest.

        `mean` are times of engines by node, and in the last column how much of an engine there is.
        """
        if self.end is None:
            return []
        (to, back), (onward, ahead), found = self._reached(mean), self._left(mean), list[tuple[float, Path]]()
        for node in self.scans:
            value = float(to[node][-1] + onward[node][-1])
            if value > 0:
                path, at = [(node, len(self.places[node]) - 1)], (node, len(self.places[node]) - 1)
                while (before := back[at[0]][at[1]])[0] >= 0:
                    at = int(before[0]), int(before[1])
                    path.insert(0, at)
                at = path[-1]
                while (after := ahead[at[0]][at[1]])[0] >= 0:
                    at = int(after[0]), int(after[1])
                    path.append(at)
                found.append((value, tuple((n, int(self.places[n][k])) for n, k in path)))
        kept = {path: value for value, path in found}
        return sorted(((value, path) for path, value in kept.items()), key=lambda own: -own[0])

    def _clocks(self, mean: Floats, node: int, source: int | None, outputs: Ints) -> tuple[Floats, Floats]:
        """Steps of a mean engine to its own outputs, and to what comes of those in front of it."""
        scan, pixels = self.scans[node], self._pixels(source, node, outputs)
        zero, own = np.zeros(1, dtype=np.int64), self.places[node]
        out = scan.work(np.repeat(zero, len(own)), own) @ mean[node, :UNTIL] - mean[node, UNTIL]
        start = scan.work(zero, zero)[0] @ mean[node, :UNTIL]
        return out, start - scan.work(pixels, np.repeat(zero, len(pixels))) @ mean[node, :UNTIL]

    def _reached(self, mean: Floats) -> tuple[dict[int, Floats], dict[int, Ints]]:
        """By node and place, clocks at the least until that output, and the node and place in front that say so."""
        clocks, back = dict[int, Floats](), dict[int, Ints]()
        for i, own in self.places.items():
            clocks[i], back[i] = np.full(len(own), -inf), np.full((len(own), 2), -1)
            for source in self.sources[i]:
                front = np.zeros(1, dtype=np.int64) if source is None else self.places[source]
                so_far = np.zeros(1) if source is None else clocks[source]
                out, taken = self._clocks(mean, i, source, front)
                late = so_far - taken
                best = np.maximum.accumulate(late)
                which = np.maximum.accumulate(np.where(late == best, np.arange(len(late)), 0))
                at = np.searchsorted(self.ended(source, i, front), own, side="right") - 1
                value = np.where(at >= 0, best[at], -inf) + out
                better = value > clocks[i]
                clocks[i] = np.where(better, value, clocks[i])
                back[i][better] = np.column_stack([np.full(len(own), -1 if source is None else source), which[at]])[better]
        return clocks, back

    def _left(self, mean: Floats) -> tuple[dict[int, Floats], dict[int, Ints]]:
        """By node and place, clocks at the least from that output to the end, and the node and place behind that say so."""
        clocks, ahead = dict[int, Floats](), dict[int, Ints]()
        for i in reversed(self.scans):
            own = self.places[i]
            clocks[i], ahead[i] = np.full(len(own), -inf), np.full((len(own), 2), -1)
            if i == self.end:
                clocks[i][-1] = 0.0
            for reader in self.readers.get(i, ()):
                out, taken = self._clocks(mean, reader, i, own)
                after = (out + clocks[reader])[::-1]
                best = np.maximum.accumulate(after)
                which = np.maximum.accumulate(np.where(after == best, np.arange(len(after)), 0))
                at = np.searchsorted(self.places[reader], self.ended(i, reader, own))
                able, turned = at < len(best), np.maximum(0, len(best) - 1 - at)
                value = np.where(able, best[turned], -inf) - taken
                better = value > clocks[i]
                clocks[i] = np.where(better, value, clocks[i])
                ahead[i][better] = np.column_stack([np.full(len(own), reader), len(best) - 1 - which[turned]])[better]
        return clocks, ahead


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
