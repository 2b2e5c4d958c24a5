"""What one frame takes at the least on any accelerator of a cut: a linear programme over fractions of engines.

Along one path of layers every engine adds up: the clocks before its first output, or all it does until its last one, or, once the
last beat of its input came, what is left to do. For every layer j of the path

    frame >= before the first output, of all in front of j  +  until the last output, of j  +  left, of all behind j  +  arrays

whatever the pace of the others is. A layer that sums up a whole map ends a phase: what follows starts with its output. So the
clocks of all phases of a path add up, each with a layer j of its own; before the last phase only the first beat of j's last
pixel counts, since sums begin to leave with it. So the least that fractions of engines within the budget take is below every
accelerator that is built. Pipeline stages are left out.

The programme has one option of every group and many options: it is solved over those that matter, column after column. The duals
of a small programme price all options at once; what would lower its value joins it, until nothing would. Whatever the duals are,
the value less what the best option of each group would lower it by is below that of the whole programme.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf, prod

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array

from dovetail.cost import Floats, Ints
from dovetail.cost.firb import Bottleneck, engine_folds, firb_table
from dovetail.cost.folded import parts_at_once, rounds_of, shape_of, twins_allowed
from dovetail.cost.folded_area import FoldTable, Shape, folds_of_one, padded_raster
from dovetail.hardware.scans import stream_shape
from dovetail.hardware.streaming import FIFO_LATENCY_CYCLES, Raster
from dovetail.ir import Graph, Reshape
from dovetail.partition.accelerator.choice import shares_of
from dovetail.partition.accelerator.dedicated import raster_of, resource_columns
from dovetail.partition.tolerances import PROGRAM_ERROR, WHOLE_ERROR
from dovetail.platform.device import Device
from dovetail.platform.fitted import dhm_model

OVERFULL = 1e4
"""What a share of the budget beyond it counts, in clocks of a frame as parts of the most:

no programme is without a solution. Chosen: far above any frame's clocks, far below what doubles lose.
"""
JOINING = 3
"""Options of a group that join at once. Chosen, not measured."""
MOST_ROUNDS = 200
"""Of columns that join; the bound holds whenever it ends. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class LayerOptions:
    """Engines of a layer or of several at once, row by row: resources, and clocks of a frame.

    Those before the first output, to the last one, left once the last input came, and until the last output pixel begins.
    """

    members: tuple[int, ...]
    needs: Floats
    before: Floats
    until: Floats
    left: Floats
    begins: Floats

    def beside(self, other: LayerOptions) -> LayerOptions:
        """With the engines of another behind them."""
        return LayerOptions(self.members, np.vstack([self.needs, other.needs]),
                       *(np.append(a, b) for a, b in ((self.before, other.before), (self.until, other.until),
                                                      (self.left, other.left), (self.begins, other.begins))))


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
    """Of engines, row by row: clocks before the first output, until the last one, left after the last input, to the last pixel.

    Without folds it is one engine that takes a pixel per clock.
    """
    raster, one = reach.raster, np.ones(1, dtype=np.int64)
    words, clocks = (one, one) if table is None else (table.words, table.clocks)
    ends = clocks - 1 if table is None else np.where(table.writes_words, table.slices, clocks) - 1
    begins = (raster.outputs - 1) * clocks + (raster.last - raster.outputs + 1) * words
    until = begins + clocks - 1
    taken = reach.early * clocks + (raster.beats - 1 - reach.early) * words
    if table is not None:
        last = ((table.blocks - 1) * table.passes + 1) * table.slices - 1 if reach.stays else words - 1
        taken = taken + np.where(table.reads_words, last, 0)
    left = np.zeros(len(words)) if reach.trailing or padded else np.maximum(0, until - taken)
    return np.column_stack([raster.first * words + ends, until, left, begins]).astype(np.float64)


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
            near = clocks[:, 1] <= most
            rows = resource_columns(rows, self.device.model, self.names)
            self.priced[shape, most] = self.able((), rows[near], clocks[near])
        folded = replace(self.priced[shape, most], members=(index,))
        return folded if direct is None else folded.beside(self.able((), direct[None], clocks_of(reach, None, padded)))

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
        raster = raster_of(self.graph, self.graph.nodes[index])
        return self.able((index,), needs[None], clocks_of(reach_of(raster), None, not raster.masks_suffice))

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
        until = (raster.last + 1) * clocks - 1
        left = np.maximum(0, until - (raster.beats - 1) * clocks - slices + 1)
        table = firb_table((first, middle, last), folds, block.join is not None, self.device.model)
        rows = resource_columns(table.resources, self.device.model, self.names)
        found = np.column_stack([(raster.first + 1) * clocks - 1, until, left, raster.last * clocks]).astype(np.float64)
        self.priced[alike] = self.able(members, rows, found)
        return self.priced[alike]

    def able(self, members: tuple[int, ...], needs: Floats, clocks: Floats) -> LayerOptions:
        """Those that fit the device by themselves."""
        fits = np.all(needs <= self.budget + 1e-9, axis=1)
        return LayerOptions(members, needs[fits], *clocks[fits].T)

    def path(self, cut: int) -> list[int]:
        """Layers from an input to the end of a cut, one behind the other, as many as possible."""
        made = {node.output: i for i, node in enumerate(self.graph.nodes[:cut])}
        length, back = dict[int, int](), dict[int, int | None]()
        for i, node in enumerate(self.graph.nodes[:cut]):
            back[i] = max((made[t] for t in node.inputs if t in made), key=lambda p: length[p], default=None)
            before = back[i]
            length[i] = 1 + (0 if before is None else length[before])
        found, at = list[int](), cut - 1 if cut else None
        while at is not None:
            found.append(at)
            at = back[at]
        return found[::-1]

    def least(self, cut: int, items: Sequence[LayerOptions], blocks: tuple[Floats, Floats, Floats] | None, most: float,
              enough: float) -> float:
        """The bound of a cut, or less that is `enough`; `most` or more where no fractions fit.

        `items` are engines within `most` clocks, `blocks` arrays: resources, clocks of a frame, clocks behind it.
        """
        path = [i for i in self.path(cut) if not isinstance(self.graph.nodes[i].op, Reshape)]
        sizes = [len(item.needs) for item in items] + ([len(blocks[0])] if blocks else [])
        total, starts = sum(sizes), np.concatenate([[0], np.cumsum(sizes)])
        if not total or any(not any(i in item.members and len(item.needs) for item in items) for i in range(cut)):
            return inf if cut else 0.0
        each = np.zeros((cut + (blocks is not None), total))
        table, before, until, left, begins = np.zeros((total, len(self.names))), *(np.zeros(total) for _ in range(4))
        place = np.full(total, -1)
        order = {node: k for k, node in enumerate(path)}
        for item, at in zip(items, starts, strict=False):
            here = slice(int(at), int(at) + len(item.needs))
            each[list(item.members), here] = 1.0
            table[here], before[here], until[here], left[here] = item.needs, item.before, item.until, item.left
            begins[here] = item.begins
            place[here] = min((order[m] for m in item.members if m in order), default=-1)
        extra = np.zeros(total)
        if blocks is not None:
            here = slice(int(starts[len(items)]), total)
            each[cut, here], table[here], extra[here], place[here] = 1.0, blocks[0], blocks[2], len(path)
        rows, phases = self._frames(path, place, (before, until, left, begins), extra)
        consts = np.full(len(rows), float(FIFO_LATENCY_CYCLES) if path else 0.0)
        parts = np.eye(1 + max(phases))[phases]
        if blocks is not None:
            alone = np.zeros(total)
            alone[here] = blocks[1]
            rows, consts, parts = [*rows, alone], np.append(consts, 0.0), np.vstack([parts, np.ones(parts.shape[1])])
        groups = tuple(slice(int(a), int(b)) for a, b in pairwise(starts))
        programme = Programme(groups, each, shares_of(table, self.budget).T, np.array(rows) / most, consts / most, parts)
        known = [self.taken[item.members] + group.start for item, group in zip(items, groups, strict=False)
                 if item.members in self.taken]
        value, taken = solved(programme, np.concatenate([*known, np.zeros(0, dtype=np.int64)]),
                              lambda value: value * most * (1 - WHOLE_ERROR) >= enough)
        for item, group in zip(items, groups, strict=False):
            self.taken[item.members] = taken[(taken >= group.start) & (taken < group.stop)] - group.start
        return value * most * (1 - WHOLE_ERROR)

    def _frames(self, path: Sequence[int], place: Floats, clocks: tuple[Floats, Floats, Floats, Floats],
                extra: Floats) -> tuple[list[Floats], list[int]]:
        """Clocks of each phase by the slowest layer it has, with the phase: rows for layers that no trailing pixels follow."""
        before, until, left, begins = clocks
        rows, phases = list[Floats](), list[int]()
        ends = [k + 1 for k, i in enumerate(path[:-1]) if self._sums_up(i)]
        for phase, (start, stop) in enumerate(pairwise([0, *ends, len(path)])):
            on = (place >= start) & (place < stop)
            for j in range(stop - 1, start - 1, -1):
                own = before * (on & (place < j))
                if stop == len(path):
                    own = own + until * (place == j) + left * (on & (place > j)) + extra
                else:
                    own = own + (before if j == stop - 1 else begins) * (place == j)
                rows.append(own)
                phases.append(phase)
                if reach_of(raster_of(self.graph, self.graph.nodes[path[j]])).trailing:
                    break
        return rows or [extra], phases or [0]

    def _sums_up(self, index: int) -> bool:
        """Whether a layer's output is one pixel, which it cannot begin to leave before all of its input came."""
        node = self.graph.nodes[index]
        return bool(node.op.layer or node.op.averages) and prod(stream_shape(self.graph, node.output)[1:]) == 1


@dataclass(frozen=True, slots=True)
class Programme:
    """Least sum of z, for x >= 0 that take one option of every row of `one_each`.

    Limits are shares x <= 1 and frames x + constants <= parts z.
    """

    groups: tuple[slice, ...]
    """Options, of which at most one is taken."""
    one_each: Floats
    shares: Floats
    frames: Floats
    constants: Floats
    parts: Floats
    """Of every row of `frames`, the phases that it speaks of."""


def solved(programme: Programme, taken: Ints, enough: Callable[[float], bool]) -> tuple[float, Ints]:
    """A lower bound that is the least sum of z unless `enough` was satisfied with less, and the options that matter for it.

    `taken` are options to begin with.
    """
    best, everything = 0.0, np.vstack([programme.shares, programme.frames])
    limits = np.concatenate([np.ones(len(programme.shares)), -programme.constants])
    beyond = np.concatenate([-np.ones(len(programme.shares)), np.zeros(len(programme.frames))])
    under = np.vstack([np.zeros((len(programme.shares), programme.parts.shape[1])), -programme.parts])
    taken = np.unique(np.concatenate([taken, _first(programme)]))
    for _ in range(MOST_ROUNDS):
        answer = linprog(np.concatenate([np.zeros(len(taken)), [OVERFULL], np.ones(under.shape[1])]),
                         np.column_stack([everything[:, taken], beyond, under]), limits,
                         csr_array(np.pad(programme.one_each[:, taken], ((0, 0), (0, 1 + under.shape[1])))),
                         np.ones(len(programme.one_each)), (0, None))  # type: ignore[call-overload]  # no sparse matrix
        if answer.x is None:
            return best, taken
        prices, each = np.minimum(0.0, answer.ineqlin.marginals), np.asarray(answer.eqlin.marginals)
        most = max(1.0, float((prices @ under).max()), float(prices @ beyond) / OVERFULL)  # what z and excess cost at the most
        prices = prices / most
        reduced = -(prices @ everything) - each @ programme.one_each
        lower = sum(min(0.0, float(reduced[g].min(initial=0.0))) for g in programme.groups)
        best = max(best, float(prices @ limits + each.sum() + lower))
        joining = [_least(reduced, g) for g in programme.groups]
        more = np.setdiff1d(np.concatenate([*joining, np.zeros(0, dtype=np.int64)]), taken)
        if enough(best) or best >= answer.fun * (1 - PROGRAM_ERROR) or not len(more):
            break
        taken = np.concatenate([taken, more])
    return best, taken[answer.x[:len(taken)] > 0] if len(answer.x) == len(taken) + 1 + under.shape[1] else taken


def _least(reduced: Floats, group: slice) -> Ints:
    """Options of a group that lower the value most."""
    own = reduced[group]
    places = np.argpartition(own, JOINING)[:JOINING] if len(own) > JOINING else np.arange(len(own))
    return np.asarray(places[own[places] < 0] + group.start, dtype=np.int64)


def _first(programme: Programme) -> Ints:
    """Of every group the option that fills least, and the one whose frames are shortest."""
    full, long = programme.shares.max(axis=0, initial=0.0), programme.frames.max(axis=0, initial=0.0)
    return np.array([g.start + int(of[g].argmin()) for g in programme.groups for of in (full, long) if g.stop > g.start],
                    dtype=np.int64)
