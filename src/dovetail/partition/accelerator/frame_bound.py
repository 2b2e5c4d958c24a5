"""What one frame takes at the least on any accelerator of a cut: a linear programme over fractions of engines.

Along one path of layers every engine adds up: the clocks before its first output, or all it does until its last one, or, once the
last beat of its input came, what is left to do. For every layer j of the path

    frame >= before the first output, of all in front of j  +  until the last output, of j  +  left, of all behind j  +  arrays

whatever the pace of the others is. So the least that fractions of engines within the budget take is below every accelerator that
is built. Pipeline stages are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import inf, prod

import numpy as np

from dovetail.cost import Floats
from dovetail.cost.firb import Bottleneck, firb_cost
from dovetail.cost.folded import shape_of, twins_allowed
from dovetail.cost.folded_area import Shape
from dovetail.hardware.folds import Fold, Loops
from dovetail.hardware.scans import window_of
from dovetail.hardware.streaming import FIFO_LATENCY_CYCLES, Raster
from dovetail.ir import Graph, Reshape
from dovetail.partition.accelerator.choice import shares_of
from dovetail.partition.accelerator.column_generation import Places, Programme, solved
from dovetail.partition.accelerator.dedicated import folded_row
from dovetail.partition.tolerances import WHOLE_ERROR
from dovetail.platform.device import Device


@dataclass(frozen=True, slots=True)
class LayerOptions:
    """Engines of a layer or of several at once, row by row: resources, and clocks before the first output, to the last, left."""

    members: tuple[int, ...]
    needs: Floats
    before: Floats
    until: Floats
    left: Floats

    def beside(self, other: LayerOptions) -> LayerOptions:
        """With the engines of another behind them."""
        return LayerOptions(self.members, np.vstack([self.needs, other.needs]),
                       *(np.append(a, b) for a, b in ((self.before, other.before), (self.until, other.until),
                                                      (self.left, other.left))))


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
    """Of a window, behind explicit padding where masks do not suffice."""
    if not raster.masks_suffice:  # what is padded below and to the right follows the last pixel
        top, left, bottom, right = raster.window.pads
        raster = Raster(replace(raster.window, pads=(0, 0, 0, 0)), raster.height + top + bottom, raster.width + left + right)
    steps = raster.output_steps()
    early = int(np.searchsorted(steps, raster.beats - 1))
    return Reach(raster, early, early < len(steps) and int(steps[early]) == raster.beats - 1)


def clocks_of(reach: Reach, loops: Loops | None, padded: bool = False) -> tuple[float, float, float]:
    """Of an engine: clocks before its first output, until its last one, and left once the last beat of its input came."""
    raster = reach.raster
    words, clocks = (1, 1) if loops is None else (loops.words, loops.clocks)
    ends = 0 if loops is None else (loops.slices if loops.writes_words else clocks) - 1
    first = raster.first * words + ends
    until = (raster.outputs - 1) * clocks + (raster.last - raster.outputs + 1) * words + clocks - 1
    if reach.trailing or padded:
        return float(first), float(until), 0.0
    taken = reach.early * clocks + (raster.beats - 1 - reach.early) * words
    if loops is not None and loops.reads_words:
        taken += ((loops.blocks - 1) * loops.passes + 1) * loops.slices - 1 if reach.stays else words - 1
    return float(first), float(until), float(max(0, until - taken))


class FrameBounds:
    """Lower bounds on one frame for the cuts of a graph, on a device with a budget of resources."""

    def __init__(self, graph: Graph, device: Device, names: tuple[str, ...], budget: Floats) -> None:
        self.graph, self.device, self.names, self.budget = graph, device, names, budget
        self.priced: dict[tuple[object, ...], LayerOptions] = {}
        """Folds of layers and inverted residuals, by what they depend on: many are alike."""
        self.taken: dict[tuple[int, ...], Places] = {}
        """Engines, by the nodes that they stand for, of which fractions were the best at the cut before."""

    def layer(self, index: int, direct: Floats | None, most: float) -> LayerOptions:
        """Engines of a Conv or Gemm that take at most so many clocks; with folds only where `direct` leaves them open."""
        node = self.graph.nodes[index]
        shape, raster = shape_of(self.graph, node), self.raster(index)
        reach, padded = reach_of(raster), not raster.masks_suffice
        if (shape, most) not in self.priced:
            rows, clocks = list[Floats](), list[tuple[float, float, float]]()
            for fold in self.folds(shape, most):
                found = clocks_of(reach, Loops(shape.channels, fold), padded)
                if found[1] <= most:
                    rows.append(np.array(folded_row(shape, fold, self.device.model, self.names)))
                    clocks.append(found)
            self.priced[shape, most] = self.able((), rows, clocks)
        folded = replace(self.priced[shape, most], members=(index,))
        return folded if direct is None else folded.beside(self.able((), [direct], [clocks_of(reach, None, padded)]))

    def raster(self, index: int) -> Raster:
        """What a layer's window goes over."""
        window, _, height, width = window_of(self.graph, self.graph.nodes[index])
        return Raster(window, height, width)

    def folds(self, shape: Shape, most: float) -> list[Fold]:
        """All folds on offer at any pace whose products may fit the device."""
        channels, taps, budget = shape.channels, prod(shape.window.kernel), dict(zip(self.names, self.budget, strict=True))
        kinds = (0, 1, 2) if twins_allowed(self.device) else (0, 1)
        room = {0: max(budget.values(), default=0.0), 1: budget.get("dsp", 0.0), 2: 2 * budget.get("dsp", 0.0)}
        pairs = [(1, i) for i in _rounds(channels.inputs)] + [(g, channels.inputs) for g in _rounds(channels.groups)]
        found = dict.fromkeys(Fold(g, i, o, kind) for (g, i), o, kind in product(pairs, _rounds(channels.outputs), kinds)
                              if g * i * o * taps <= room[kind] and (kind < 2 or o > 1))
        pixels = shape.raster.outputs
        return [fold for fold in found if (pixels - 1) * Loops(channels, fold).clocks <= most]

    def plain(self, index: int, needs: Floats) -> LayerOptions:
        """The engine of a layer without weights."""
        raster = self.raster(index)
        return self.able((index,), [needs], [clocks_of(reach_of(raster), None, not raster.masks_suffice)])

    def fused(self, block: Bottleneck, members: tuple[int, ...], most: float) -> LayerOptions:
        """An inverted residual as one engine, in every number of words and slices."""
        first, middle, last = (shape_of(self.graph, n) for n in block.layers)
        alike = first, middle, last, block.join is not None, most
        if alike in self.priced:
            return replace(self.priced[alike], members=members)
        raster = Raster(middle.window, middle.height, middle.width)
        rows, found = [], []
        for at_once, inputs in product(_rounds(first.channels.outputs), _rounds(first.channels.inputs)):
            loops = Loops(first.channels, Fold(1, inputs, at_once))
            if raster.steps * loops.clocks > most + loops.clocks:
                continue
            until = (raster.last + 1) * loops.clocks - 1
            left = max(0, until - (raster.beats - 1) * loops.clocks - loops.slices + 1)
            filters = last.channels.outputs
            for products in (1, 2) if twins_allowed(self.device) and at_once > 1 else (1,):
                for leaving in dict.fromkeys((filters, -(-filters // loops.slices))):
                    folds = (Fold(1, inputs, at_once, products), Fold(at_once, 1, 1),
                             Fold(1, at_once, leaving, products if leaving > 1 else 1))
                    used = dict(firb_cost((first, middle, last), folds, block.join is not None, self.device.model).resources)
                    rows.append(np.array([used.get(r, 0.0) for r in self.names]))
                    found.append((float((raster.first + 1) * loops.clocks - 1), float(until), float(left)))
        self.priced[alike] = self.able(members, rows, found)
        return self.priced[alike]

    def able(self, members: tuple[int, ...], rows: Sequence[Floats],
             clocks: Sequence[tuple[float, float, float]]) -> LayerOptions:
        """Those that fit the device by themselves."""
        needs, times = np.array(rows).reshape(-1, len(self.names)), np.array(clocks).reshape(-1, 3)
        fits = np.all(needs <= self.budget + 1e-9, axis=1)
        return LayerOptions(members, needs[fits], *times[fits].T)

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
        table, before, until, left = np.zeros((total, len(self.names))), *(np.zeros(total) for _ in range(3))
        place = np.full(total, -1)
        order = {node: k for k, node in enumerate(path)}
        for item, at in zip(items, starts, strict=False):
            here = slice(int(at), int(at) + len(item.needs))
            each[list(item.members), here] = 1.0
            table[here], before[here], until[here], left[here] = item.needs, item.before, item.until, item.left
            place[here] = min((order[m] for m in item.members if m in order), default=-1)
        extra = np.zeros(total)
        if blocks is not None:
            here = slice(int(starts[len(items)]), total)
            each[cut, here], table[here], extra[here], place[here] = 1.0, blocks[0], blocks[2], len(path)
        rows, consts = self._frames(path, place, (before, until, left), extra)
        if blocks is not None:
            alone = np.zeros(total)
            alone[here] = blocks[1]
            rows, consts = [*rows, alone], [*consts, 0.0]
        groups = tuple(slice(int(a), int(b)) for a, b in pairwise(starts))
        programme = Programme(groups, each, shares_of(table, self.budget).T, np.array(rows) / most, np.array(consts) / most)
        known = [self.taken[item.members] + group.start for item, group in zip(items, groups, strict=False)
                 if item.members in self.taken]
        value, taken = solved(programme, np.concatenate([*known, np.zeros(0, dtype=np.int64)]),
                              lambda value: value * most * (1 - WHOLE_ERROR) >= enough)
        for item, group in zip(items, groups, strict=False):
            self.taken[item.members] = taken[(taken >= group.start) & (taken < group.stop)] - group.start
        return value * most * (1 - WHOLE_ERROR)

    def _frames(self, path: Sequence[int], place: Floats, clocks: tuple[Floats, Floats, Floats],
                extra: Floats) -> tuple[list[Floats], list[float]]:
        """Clocks of a frame by the slowest layer it passes: a row for every layer of the path that no trailing pixels follow."""
        before, until, left = clocks
        rows, consts = list[Floats](), list[float]()
        for j in range(len(path) - 1, -1, -1):
            on = (place >= 0) & (place < len(path))
            own = before * (on & (place < j)) + until * (place == j) + left * (on & (place > j))
            rows.append(own + extra)
            consts.append(float(FIFO_LATENCY_CYCLES))
            window = window_of(self.graph, self.graph.nodes[path[j]])
            if reach_of(Raster(window[0], *window[2:])).trailing:
                break
        return rows or [extra], consts or [0.0]


def _rounds(count: int) -> list[int]:
    """The smallest numbers at once for every number of rounds."""
    return sorted({-(-count // rounds) for rounds in range(1, count + 1)})
