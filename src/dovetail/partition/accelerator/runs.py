"""Which runs of layers an accelerator may be better for, where other devices take the rest: a guess, no bound.

Dedicated engines: at a pace, the cheapest engines of each layer weigh on the FPGA's resources, under several weightings of
these, and a run fits that weighs no more than there is. Arrays: a run takes the clocks that each of its layers adds. Nothing is
searched, so thousands of runs are looked at in less time than one search takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

import numpy as np

from dovetail.cost import Floats
from dovetail.hardware.scans import window_of
from dovetail.hardware.shares import Flags
from dovetail.ir import Graph
from dovetail.partition.accelerator.architecture import AcceleratedRegion
from dovetail.partition.accelerator.blocks import Blocks, cut_points
from dovetail.partition.accelerator.choice import shares_of
from dovetail.partition.accelerator.search import AcceleratorSearch
from dovetail.partition.effort import spend

WORTH = 0.01
"""By which fraction a run has to promise to be better to be searched. Chosen, not measured."""
STEP = 1.25
"""Ratio of two paces that are looked at. Chosen: promises are no better known."""
MOST_PACES = 24
"""Paces that are looked at, from the slowest of use on: to a two-hundredth of it."""
MOST_ARRAYS = 16
"""Configurations of arrays that are looked at. Chosen, not measured."""
MOST_CUTS = 48
"""Places where a run may begin or end, evenly spread over those that there are. Chosen, not measured."""
SAME = 0.1
"""Part of its work by which a run has to differ from those searched. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What a network takes beside an accelerator: seconds of every node on the fastest other device, and to carry a byte."""

    nodes_s: Sequence[float]
    link_s: float
    """Of every transfer."""
    byte_s: float


@dataclass(slots=True)
class Runs:
    """Runs of the layers `inside` that may be better than what is reached, and those that were searched."""

    graph: Graph
    whole: AcceleratedRegion
    """What `clocks` speak of."""
    cuts: tuple[int, ...]
    """In `graph`, rising."""
    clocks: Floats
    """By the places of two cuts, clocks of an accelerator for what lies between them; inf where none fits."""
    elsewhere: Elsewhere
    clock_s: float
    overlapping: bool
    factor: float = 1.0
    """How many times as long as guessed the last accelerator took."""
    searched: list[AcceleratedRegion] = field(default_factory=list)

    def promising(self, reached_s: float) -> AcceleratedRegion | None:
        """The run that promises most, or None where none promises to be worth a search."""
        promised = self._promised()
        for region in self.searched:
            promised[self._alike(region)] = inf
        first, last = np.unravel_index(int(promised.argmin()), promised.shape)
        if promised[first, last] >= reached_s * (1 - WORTH):
            return None
        return AcceleratedRegion(self.cuts[first], self.cuts[last])

    def learn(self, region: AcceleratedRegion, clocks: float) -> None:
        """What an accelerator for a run took; inf where there is none."""
        self.searched.append(region)
        if region.start in self.cuts and region.stop in self.cuts:
            guessed = self.clocks[self.cuts.index(region.start), self.cuts.index(region.stop)]
            if guessed < inf and clocks < inf:
                self.factor = clocks / float(guessed)

    def _promised(self) -> Floats:
        """By the places of two cuts: seconds of a frame, or between frames, with other devices and transfers."""
        inside = self.clocks * (self.factor * self.clock_s)
        taken = np.array([0.0, *accumulate(self.elsewhere.nodes_s)])[list(self.cuts)]
        outside = sum(self.elsewhere.nodes_s) - (taken[None, :] - taken[:, None])
        moved = np.array([self.elsewhere.link_s + self.elsewhere.byte_s * _bytes_at(self.graph, cut) for cut in self.cuts])
        if self.overlapping:
            return np.asarray(np.maximum(np.maximum(inside, outside), np.maximum(moved[:, None], moved[None, :])))
        return np.asarray(inside + outside + moved[:, None] + moved[None, :])

    def _alike(self, region: AcceleratedRegion) -> Flags:
        """Places of cuts between which there is nearly the same work for other devices as beside a run."""
        taken = np.array([0.0, *accumulate(self.elsewhere.nodes_s)])
        most = SAME * min(taken[region.stop] - taken[region.start], taken[-1] - taken[region.stop] + taken[region.start])
        off = np.abs(taken[list(self.cuts)] - taken[region.start])[:, None] + np.abs(taken[list(self.cuts)] - taken[region.stop])
        off[np.ix_(np.array(self.cuts) == region.start, np.array(self.cuts) == region.stop)] = 0.0
        return np.asarray(off <= most)


def runs_of(graph: Graph, whole: AcceleratedRegion, inside: Graph, blocks: Blocks, elsewhere: Elsewhere, overlapping: bool,
            most: float) -> Runs:
    """Guesses for all runs of the nodes `inside`, which are those of `whole`; those of more than `most` clocks are of no use."""
    search = AcceleratorSearch(inside, blocks.device, (len(inside.nodes),), blocks)
    cuts = cut_points(inside)
    if len(cuts) > MOST_CUTS:
        cuts = tuple(cuts[round(k)] for k in np.linspace(0, len(cuts) - 1, MOST_CUTS))
    assert blocks.device.clock_hz is not None, "costs of an FPGA need its clock"
    return Runs(graph, whole, tuple(whole.start + cut for cut in cuts), _clocks(search, cuts, overlapping, most), elsewhere,
                1 / blocks.device.clock_hz, overlapping)


def _clocks(search: AcceleratorSearch, cuts: Sequence[int], overlapping: bool, most: float) -> Floats:
    """By the places of two cuts, clocks of the best accelerator for what lies between them, as far as is guessed."""
    count = len(search.names)
    pairs = [(a, b) for a in range(count) for b in range(a)]
    search.weights = np.vstack([np.eye(count), *((np.eye(count)[a] + np.eye(count)[b]) / 2 for a, b in pairs),
                                np.full(count, 1 / count)])
    found, waits = np.full((len(cuts), len(cuts)), inf), _waits(search.graph)
    arrays = _arrays(search, cuts, overlapping)
    for config, taken in arrays:  # nothing dedicated
        if np.all(shares_of(config, search.budget) @ search.weights.T <= 1):
            found = np.minimum(found, taken)
    for number in range(MOST_PACES):
        pace = int(most / STEP**number)
        left = _left(search, cuts, pace) if pace > 0 else np.full((1, 1, 1), -1.0)
        fits = np.all(left >= 0, axis=2) & np.triu(np.ones(left.shape[:2], dtype=np.bool_), 1)
        if not fits.any():
            break
        alone = pace * (1.0 if overlapping else 1 + waits[list(cuts)][None, :] - waits[list(cuts)][:, None])
        found = np.minimum(found, np.where(fits, alone, inf))
        for config, taken in arrays:
            held = fits & np.all(left >= shares_of(config, search.budget) @ search.weights.T, axis=2)
            if held.any():
                found = np.minimum(found, _joined(np.where(held, alone, inf), taken, overlapping))
    return np.where(found <= most, found, inf)


def _joined(front: Floats, behind: Floats, overlapping: bool) -> Floats:
    """The least over where dedicated engines end: both parts at once where frames overlap, else one after the other."""
    rows = [i for i in range(len(front)) if front[i].min() < inf]
    found = np.full(front.shape, inf)
    for i in rows:
        both = np.maximum(front[i][:, None], behind) if overlapping else front[i][:, None] + behind
        found[i] = both.min(axis=0)
    return found


def _left(search: AcceleratorSearch, cuts: Sequence[int], pace: int) -> Floats:
    """By the places of two cuts and by weighting, what the cheapest engines of a pace leave of the FPGA."""
    nodes, lows = search.graph.nodes, search.lightest(len(search.graph.nodes), pace)
    joints = {f.members[-1]: (f.members[0], (shares_of(f.needs, search.budget) @ search.weights.T).min(axis=0))
              for f in search.together(len(nodes), pace) if f.members == tuple(range(f.members[0], f.members[-1] + 1))}
    starts = np.array(cuts)
    used = [np.full((len(cuts), lows.shape[1]), inf)]
    used[0][starts == 0] = 0.0
    for k, low in enumerate(lows, 1):
        now = used[-1] + low
        if k - 1 in joints:
            first, row = joints[k - 1]
            now = np.minimum(now, used[first] + row)
        now[starts == k] = 0.0
        used.append(now)
    spend("rooms", len(nodes), len(nodes) * len(cuts))
    return 1.0 - np.stack([used[cut] for cut in cuts], axis=1)


def _arrays(search: AcceleratorSearch, cuts: Sequence[int], overlapping: bool) -> list[tuple[Floats, Floats]]:
    """Configurations that may be of use: resources at the least, and by the places of two cuts clocks of what lies between."""
    blocks, found, size = search.blocks, list[tuple[Floats, Floats]](), len(cuts)
    if blocks.layers is None:
        return found
    able = [place for place, cut in enumerate(cuts) if cut >= blocks.first]
    if len(able) < 2:
        return found
    needs = blocks.least_needs(cuts[able[0]])
    for number in _front(blocks, needs, search.budget):
        floors = blocks.floors[number]
        behind = np.full(size, inf)
        each = [*(floors.between if overlapping else floors.after), 0.0]
        behind[able] = [each[blocks.first_behind(cuts[place])] for place in able]
        with np.errstate(invalid="ignore"):
            taken = behind[:, None] - behind[None, :]
        taken[~np.triu(np.ones((size, size), dtype=np.bool_), 1) | ~np.isfinite(taken)] = inf
        found.append((needs[number], np.maximum(taken, 1.0)))
    return found


def _front(blocks: Blocks, needs: Floats, budget: Floats) -> Iterator[int]:
    """Configurations by how fast they are, each emptier than those before it."""
    fills, least, kept = shares_of(needs, budget).max(axis=1, initial=0.0), inf, 0
    for number in np.argsort([f.between[0] for f in blocks.floors], kind="stable").tolist() if len(needs) else ():
        if fills[number] < least and fills[number] <= 1:
            least, kept = fills[number], kept + 1
            yield number
        if kept == MOST_ARRAYS:
            return


def _waits(graph: Graph) -> Floats:
    """In front of every node, how many times its map a frame has waited in the layers before it, besides passing the first."""
    found = [0.0]
    for node in graph.nodes:
        window, _, height, _ = window_of(graph, node)
        rows = max(0, window.reach[0] - 1 - window.pads[0])
        found.append(found[-1] + min(1.0, rows / max(1, height)))
    return np.array(found)


def _bytes_at(graph: Graph, cut: int) -> float:
    """Of what passes a cut; nothing at the ends, where it passes in any case."""
    later = {tensor for node in graph.nodes[cut:] for tensor in node.inputs}
    return float(sum(graph.tensors[node.output].transfer_bytes for node in graph.nodes[:cut] if node.output in later))
