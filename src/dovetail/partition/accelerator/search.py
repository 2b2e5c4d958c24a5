"""The best accelerator for a network on one FPGA: where dedicated engines end, how layers are folded, how large arrays are.

For an interval T between frames every dedicated layer may take T clocks and every configuration of the arrays is allowed that
finishes its layers in T. Whether one engine of each layer and one configuration fit together is a choice problem
(`choice.least_fill`); a longer interval only adds options, so T is found by bisection. The smallest T at which whole engines fit
is reached; below the largest T at which not even fractions of engines fit at any cut, there is no accelerator of this
kind: the bound.

A frame by itself passes phases one after the other, where a layer needs all that comes before it: a map waits for its gate, a
classifier for its average. Their engines need not be equally fast, so paces are looked at in which each phase has its share
(`phase_shares`), beside those that are the same for all. One frame is scheduled through the engines chosen, beat by beat, and
played on the arrays behind them (`made`); what no accelerator goes below is a linear programme of its own (`frame_bound.py`),
since engines of a frame need not be equally fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import heappop, heappush
from math import inf, sqrt
from typing import cast

import numpy as np

from dovetail.cost import Floats
from dovetail.cost.array import joined_latency
from dovetail.cost.budget import fill_note, usable
from dovetail.cost.clocks import before, leaving_words
from dovetail.cost.folded import layer_pace
from dovetail.cost.passage import frame_passage
from dovetail.errors import InfeasibleError
from dovetail.hardware.folds import Fold
from dovetail.hardware.scans import phases_of
from dovetail.ir import Conv, Gemm, Graph
from dovetail.partition.accelerator.blocks import BlockOption, Blocks
from dovetail.partition.accelerator.choice import Chosen, Joint, Room, least_fill, shares_of, undominated
from dovetail.partition.accelerator.dedicated import (
    Engines,
    Fused,
    beats_of,
    direct_needs,
    engines_within,
    expect_engines,
    fused_within,
    multiplications_of,
    phase_shares,
)
from dovetail.partition.accelerator.frame_bound import FrameBounds, FrameProgramme, LayerOptions
from dovetail.partition.accelerator.words import Row, Words
from dovetail.partition.tolerances import TOLERANCE
from dovetail.platform.device import Device

MULTIPLIER = "dsp"
CLOSE = 1.002
"""Ratio of two intervals that need not be told apart. Chosen, not measured."""
FIRST_PACE = 1 << 14
"""Clocks of the interval that is tried first. Chosen, not measured."""
LONGER = 1.5
"""How much longer the second and third are; then each time the square of that, as long ones have most choices.

Chosen, not measured.
"""
PRODUCTS_AT_ONCE = 4
"""Products per multiplier block and clock with which an accelerator is faster than most:

two in it, as many in logic. Chosen, not measured.
"""
MOST_WEIGHTS = 64
"""Weights of resources that are kept. Chosen, not measured."""
ALIKE = 0.02
"""How far apart they are. Chosen, not measured."""
SHORT_OF = 0.05
"""The weight from which a resource is named as one that is short."""
MUCH = 4096
"""Layers to be played from which on a cut is looked at behind the others. Chosen, not measured."""
NEAR = 1.005
"""Ratio of a latency to what a range promises at which the search ends. Chosen, not measured."""
NARROW = 1.01
"""Ratio of the ends of ranges that are not divided. Chosen, not measured."""
STEADY = 0.98
"""Ratio of a frame's clocks at a pace to those at a shorter one, at the least. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class FoundAccelerator:
    """An accelerator: `graph.nodes[:cut]` have engines of their own, folded as `folds` say, the others share `block`.

    The slowest engine takes `pace` clocks per frame; `interval` and `latency` are clocks, `bound` is what the objective cannot
    go below for any accelerator of this kind.
    """

    cut: int
    folds: dict[str, Fold]
    block: BlockOption | None
    pace: int
    interval: float
    latency: float
    bound: float
    needs: dict[str, float]
    fused: tuple[str, ...] = ()
    """Depthwise nodes of inverted residuals that are one engine."""


class AcceleratorSearch:
    """Engines and configurations of one graph on one device, remembered."""

    def __init__(self, graph: Graph, device: Device, cuts: Sequence[int], blocks: Blocks, folds: bool = True,
                 shares: tuple[float, ...] | None = None, like: AcceleratorSearch | None = None) -> None:
        """With `shares`, engines of a node take that part of a pace, as far as pixels allow; without, all take the same.

        `like` is a search of the same graph, device and folds, without shares, whose engines are known.
        """
        self.shares = shares
        self.graph, self.device, self.cuts, self.blocks, self.folds = graph, device, tuple(cuts), blocks, folds
        self.names = tuple(sorted(device.resources))
        self.budget = np.array([usable(device, accelerator=True)[r] for r in self.names])
        self.words, self.frames = Words(graph), FrameBounds(graph, device, self.names, self.budget)
        self.arrivals: dict[tuple[int, int], float] = {}
        """By cut and pace, clocks of one frame through the dedicated engines that were chosen."""
        self.fronts: dict[int, Graph | None] = {}
        self.engines: dict[tuple[int, int], Engines] = {}
        self.fused: dict[int, tuple[Fused, ...]] = {}
        self.direct: dict[int, Floats] = {}
        self.weights = np.eye(len(self.names))
        """Of resources, row by row, as linear programmes found them; the first ones look at one resource alone."""
        self.lows: dict[tuple[int, int], Floats] = {}
        self.full: dict[int, int] = {}
        """By cut, the longest interval found at which not even fractions of engines fit."""
        if like is not None:
            self.words, self.frames, self.fronts = like.words, like.frames, like.fronts
            self.engines, self.fused, self.direct = like.engines, like.fused, like.direct

    def engine(self, index: int, pace: int) -> Engines:
        """Engines of a node at a pace."""
        if (index, pace) not in self.engines:
            node = self.graph.nodes[index]
            if index not in self.direct:
                self.direct[index] = direct_needs(self.graph, node, self.device, self.names)
            clocks = (layer_pace(self.graph, node, pace) if self.shares is None
                      else max(beats_of(self.graph, node), int(pace * self.shares[index])))
            self.engines[index, pace] = engines_within(self.graph, node, self.device, self.names, clocks, self.folds,
                                                       self.direct[index])
        return self.engines[index, pace]

    def together(self, cut: int, pace: int) -> list[Fused]:
        """Inverted residuals before a cut that can be one engine within the pace."""
        if not cut:
            return []
        if pace not in self.fused:
            self.fused[pace] = fused_within(self.graph, self.device, self.names, pace) if self.folds else ()
        return [f for f in self.fused[pace] if max(f.members) < cut]

    def choose(self, cut: int, pace: int, options: Sequence[BlockOption]) -> Chosen:
        """Engines for the nodes before the cut within the pace, and one of the configurations behind it."""
        return self._chosen(cut, pace, np.array([o.needs for o in options]).reshape(len(options), len(self.names)))

    def _chosen(self, cut: int, pace: int, needs: Floats) -> Chosen:
        """The same for configurations of which no more is known than what they need, row by row."""
        items = [self.engine(i, pace).needs for i in range(cut)]
        if cut < len(self.graph.nodes):
            items.append(needs)
        chosen = least_fill(items, self.budget, [Joint(f.members, f.needs) for f in self.together(cut, pace)])
        self._learn(chosen.weights)
        return chosen

    def _learn(self, weights: tuple[float, ...]) -> None:
        if weights and len(self.weights) < MOST_WEIGHTS and np.abs(self.weights - np.array(weights)).max(axis=1).min() > ALIKE:
            self.weights = np.vstack([self.weights, weights])

    def _low(self, index: int, pace: int) -> Floats:
        """The weighted share of a node's cheapest engine, for all weights known."""
        known = self.lows.get((index, pace), np.zeros(0))
        if len(known) < len(self.weights):
            shares = shares_of(self.engine(index, pace).needs, self.budget) @ self.weights[len(known):].T
            known = self.lows[index, pace] = np.concatenate([known, shares.min(axis=0, initial=inf)])
        return known

    def room(self, cut: int, pace: int) -> Room:
        """What the engines before a cut leave at the most."""
        if self.folds:
            new = [node for i, node in enumerate(self.graph.nodes[:cut]) if (i, pace) not in self.engines]
            expect_engines(self.graph, new, self.device, self.names, pace)
        lows = np.array([self._low(i, pace) for i in range(cut)]).reshape(cut, len(self.weights))
        for fused in self.together(cut, pace):
            members = list(fused.members)
            joint = (shares_of(fused.needs, self.budget) @ self.weights.T).min(axis=0)
            lows[members[0]] = np.minimum(lows[members].sum(axis=0), joint)
            lows[members[1:]] = 0.0
        return Room(self.budget, self.weights, 1.0 - lows.sum(axis=0))

    def within(self, cut: int, pace: int) -> tuple[Chosen, Sequence[BlockOption]]:
        """What is chosen at a cut for an interval, and the configurations that it was chosen from."""
        nothing: tuple[Chosen, Sequence[BlockOption]] = Chosen(inf, inf), ()
        if pace <= self.full.get(cut, 0) or (cut < len(self.graph.nodes) and self.blocks.least_clocks(cut) > pace):
            return nothing
        room, found = self.room(cut, pace), nothing
        if np.all(room.left >= -TOLERANCE):
            found = self._with_any_block(cut, pace, room) if cut < len(self.graph.nodes) else (self.choose(cut, pace, ()), ())
        if found[0].bound > 1:
            self.full[cut] = pace
        return found

    def _with_any_block(self, cut: int, pace: int, room: Room) -> tuple[Chosen, Sequence[BlockOption]]:
        """Engines of a pace and a configuration that takes no longer between frames.

        Configurations take part with what they need at the least and are priced when they are chosen, until one is chosen that
        was, or what they need at the least leaves no choice.
        """
        offers = [o for o in self.blocks.promising(cut, room, pace) if o.known is None or o.known.interval <= pace]
        chosen = Chosen(inf, inf)
        while offers:
            needs = np.array([o.needs for o in offers])
            kept = undominated(needs)
            chosen = self._chosen(cut, pace, needs[kept])
            if chosen.fill > 1:
                break
            offer = offers[kept[chosen.places[cut]]]
            if offer.known is not None:
                return replace(chosen, places=(*chosen.places[:cut], 0)), (offer.known,)
            priced = [replace(o, known=o.price(inf)) if o.kin == offer.kin and o.known is None else o for o in offers]
            offers = [o if o.known is None else replace(o, needs=o.known.needs) for o, before in zip(priced, offers, strict=True)
                      if (o is before if o.known is None else o.known.interval <= pace)]
            chosen = Chosen(inf, inf)
        return chosen, ()

    def made(self, cut: int, pace: int, chosen: Chosen, options: Sequence[BlockOption]) -> FoundAccelerator:
        """An accelerator as it was chosen; nothing is known yet of others."""
        block = options[chosen.places[cut]] if options else None
        fused = [(f, k) for f, k in zip(self.together(cut, pace), chosen.together, strict=False) if k is not None]
        inside = {i: fold for f, k in fused for i, fold in zip(f.members, (*f.folds[k], None), strict=False)}
        places, alone = chosen.places, [i for i in range(cut) if i not in inside]
        used = sum((f.needs[k] for f, k in fused), np.zeros(len(self.names)) if block is None else np.array(block.needs))
        used = used + sum((self.engine(i, pace).needs[places[i]] for i in alone), np.zeros(len(self.names)))
        row = Row(tuple(inside[i] if i in inside else self.engine(i, pace).folds[places[i]] for i in range(cut)),
                  tuple(f.members for f, _ in fused), None if block is None else block.configuration.inputs)
        slowest = max([0, *self.words.clocks(row).values(), *(f.steps[k] for f, k in fused),
                       *(self.engine(i, pace).steps[places[i]] for i in alone)])
        interval = max(float(slowest), block.interval if block else 0.0)
        folds = {node.name: fold for node, fold in zip(self.graph.nodes, row.folds, strict=False) if fold is not None}
        latency = self._one_frame(cut, folds, tuple(f.block.depthwise.name for f, _ in fused), block, pace)
        if self.shares is not None:
            used = used + self._more_words({i: self.engine(i, pace).steps[places[i]] for i in alone}, pace,
                                           dict.fromkeys(inside, max(1, slowest)))
            latency = latency if np.all(used <= self.budget) else inf
        needs = dict(zip(self.names, map(float, used), strict=True))
        return FoundAccelerator(cut, folds, block, max(1, slowest), interval, latency, 0.0, needs,
                     tuple(f.block.depthwise.name for f, _ in fused))

    def _more_words(self, alone: dict[int, int], pace: int, fused: dict[int, int]) -> Floats:
        """What layers without weights need more than at a pace, since they keep up with their phase; clocks by node."""
        nodes, phases, more = self.graph.nodes, phases_of(self.graph), np.zeros(len(self.names))
        slowest = dict[int, int]()
        for i, steps in (alone | fused).items():
            slowest[phases[nodes[i].name]] = max(slowest.get(phases[nodes[i].name], 1), steps)
        for i in alone:
            if not isinstance(nodes[i].op, Conv | Gemm):
                kept = engines_within(self.graph, nodes[i], self.device, self.names, slowest[phases[nodes[i].name]])
                more += kept.needs[0] - self.engine(i, pace).needs[0]
        return more

    def _one_frame(self, cut: int, folds: dict[str, Fold], fused: tuple[str, ...], block: BlockOption | None,
                   pace: int) -> float:
        """Clocks of one frame through the engines of a cut, chosen for a pace, and the arrays behind them."""
        behind = tuple(n.name for n in self.graph.nodes[cut:])
        if cut not in self.fronts:
            self.fronts[cut] = before(self.graph, behind)
        front, arrives = self.fronts[cut], 0
        if front is not None:
            leaving = leaving_words(front, folds) if block is None else block.configuration.inputs
            arrives = frame_passage(front, folds, fused, leaving).last
            self.arrivals[cut, pace] = float(arrives)
        if block is None:
            return float(arrives)
        return float(joined_latency(self.graph, behind, block.configuration, arrives))

    def fastest(self, known: FoundAccelerator | None = None) -> FoundAccelerator:
        """The accelerator with the shortest interval between frames, or `known` if none has, with a bound on every other."""
        found = self._steadiest if known is None else self._shorter(known)
        return replace(found, bound=self._surely(self._interval_bound(found.interval)))

    def _surely(self, clocks: float) -> float:
        """Clocks that the hardware takes at the least where the model says so many."""
        return self.blocks.surely(clocks) if self.cuts[0] < len(self.graph.nodes) else clocks

    def _fastest_block(self, shorter: float) -> FoundAccelerator | None:
        """The configuration with the shortest interval where all nodes share arrays: all that may be faster are looked at."""
        best = None
        for offer in self.blocks.promising(0, self.room(0, 1)):
            if offer.clocks >= shorter:
                break
            option = offer.price(inf)
            if option is not None and np.all(np.array(option.needs) <= self.budget) and option.interval < shorter:
                best, shorter = option, option.interval
        return None if best is None else self.made(0, 1, Chosen(0.0, 0.0, (0,)), (best,))

    @cached_property
    def _steadiest(self) -> FoundAccelerator:
        """The accelerator with the shortest interval; nothing is known yet of others."""
        low, high = self.span()
        if self.cuts == (0,):
            found = self._fastest_block(inf)
            if found is None:
                raise InfeasibleError(self._reason(high))
            return found
        at_once = PRODUCTS_AT_ONCE * self.device.resources.get(MULTIPLIER, 0.0)
        work = multiplications_of(self.graph, self.graph.nodes)
        found, pace, longer = None, min(max(FIRST_PACE, int(work / at_once) if at_once else 0), high), LONGER
        while found is None and low < high and (low or any(self._may_fit(cut, high) for cut in self.cuts)):
            found = self._fitting(pace)
            if found is None:
                low, pace, longer = pace, min(int(longer * pace), high), longer * longer if low else longer
        if found is None:
            raise InfeasibleError(self._reason(high))
        return self._shorter(found, low)

    def _may_fit(self, cut: int, pace: int) -> bool:
        """Whether the cheapest engines of a cut leave room for any arrays, each with what it needs at the least."""
        room = self.room(cut, pace)
        return bool(np.all(room.left >= -TOLERANCE)) and (cut == len(self.graph.nodes) or self.blocks.room_for_any(cut, room))

    def _shorter(self, found: FoundAccelerator, low: int = 0) -> FoundAccelerator:
        """An accelerator of the shortest interval above `low`, or `found` if none is shorter."""
        if self.cuts == (0,):
            return self._fastest_block(found.interval) or found
        while (middle := between(low, found.interval)) is not None:
            better = self._fitting(middle, found.cut)
            if better is None or better.interval >= found.interval:
                low = middle
            else:
                found = better
        return found

    def span(self) -> tuple[int, int]:
        """Intervals between which the best lies: a pixel per clock at the least, every multiply-add by itself at the most."""
        most = 1.0
        for node in self.graph.nodes:
            shape = self.graph.shape(node.output)
            weights = self.graph.constants[node.params[0]].array.size if node.params else 1
            most = max(most, float(np.prod(shape[2:], dtype=np.float64)) * max(weights, shape[1] if len(shape) > 1 else 1) * 2)
        return 0, int(most) * len(self.graph.nodes)

    def _fitting(self, pace: int, first: int | None = None) -> FoundAccelerator | None:
        """An accelerator of at most so many clocks between frames; cut `first` is looked at before all others.

        Cuts behind which many layers of many arrays would have to be played come last, those with fewer layers first.
        """
        labour = {cut: self.blocks.effort(cut, pace) > MUCH for cut in self.cuts}
        for cut in sorted(self.cuts, key=lambda c: (c != first, labour[c], -c if labour[c] else c)):
            chosen, options = self.within(cut, pace)
            if chosen.fill <= 1:
                return self.made(cut, pace, chosen, options)
        return None

    def _interval_bound(self, reached: float) -> float:
        """The largest interval found at which no cut has room, not even for fractions of engines."""
        if self.cuts == (0,):
            return reached
        low, high, open_cut = 0, reached, self.cuts[0]
        while (pace := between(low, high)) is not None:
            fits = next((c for c in sorted(self.cuts, key=lambda c: c != open_cut) if self.within(c, pace)[0].bound <= 1), None)
            if fits is not None:
                high, open_cut = pace, fits
            else:
                low = pace
        return min(low + 1.0, reached)

    def _reason(self, pace: int) -> str:
        """Why nothing fits, of the cut that comes closest: how full it gets at the least, and of what."""
        full = {cut: self._chosen(cut, pace, self.blocks.least_needs(cut)) for cut in self.cuts}
        cut = min(full, key=lambda c: full[c].bound)
        bound, weights = full[cut].bound, np.array(full[cut].weights)
        if bound == inf:
            return (f"{self.device.name}: no accelerator of this kind fits; at no cut every layer has an engine; "
                    "take an architecture with other engines")
        if not len(weights):  # one resource alone decides
            weights = (self.room(cut, pace).left[:len(self.names)] <= 1 - bound + TOLERANCE).astype(np.float64)
        short = " and ".join(name for name, weight in zip(self.names, weights, strict=True) if weight > SHORT_OF) or "a resource"
        takes = f"takes {bound:.2f} times" + ("" if bound > 1 else " in fractions of engines, and in whole ones more than once,")
        return (f"{self.device.name}: no accelerator of this kind fits; the emptiest {takes} what may be used of {short} "
                f"({fill_note(self.device, accelerator=True)}); take a larger board or an architecture with reusable engines")

    def quickest(self, known: FoundAccelerator | None = None) -> FoundAccelerator:
        """The accelerator with the shortest latency of a single frame, or `known` if none has, with a bound on every other.

        Paces of a cut are halved, the most promising range first: at a pace a frame takes about as long as at the next shorter
        one that was tried, or longer.
        """
        best, shares = known or self._steadiest, phase_shares(self.graph)
        if min(shares) < 1 and self.folds and self.cuts[-1]:
            phased = AcceleratorSearch(self.graph, self.device, [c for c in self.cuts if c], self.blocks, shares=shares)
            best, _ = phased.quicker(best)
        best, settled = self.quicker(best)
        return replace(best, bound=self._surely(self._frames_bound(min(best.latency, settled), best.latency)))

    def quicker(self, best: FoundAccelerator) -> tuple[FoundAccelerator, float]:
        """The accelerator with the shortest latency found, or `best`; clocks below which none is on arrays alone."""
        high, settled = self.span()[1], inf
        ranges: list[tuple[float, int, int, int, float]] = []
        for cut in self.cuts:
            pixels = [beats_of(self.graph, node) for node in self.graph.nodes[:cut]] if self.shares is None else []
            slowest = max([1, *pixels]) if cut else high
            least = self.blocks.least_clocks(cut, alone=True) if cut < len(self.graph.nodes) else 0.0
            top = min(high, int(best.latency) + 1)  # an engine that takes longer than the best frame is no use
            settled = settled if cut else least
            heappush(ranges, (self._passing(cut, slowest) + least, cut, slowest, top, least))
        while ranges and ranges[0][0] * NEAR < best.latency:
            _, cut, low, top, least = heappop(ranges)
            middle = between(low, top, NARROW) if cut else top
            if middle is None:
                continue
            found, within = self._with_least_block(cut, middle, best.latency - self._passing(cut, low if cut else 0))
            best = found if found is not None and found.latency < best.latency else best
            if not cut:
                settled = within
            else:
                heappush(ranges, (self._passing(cut, low) + within, cut, low, middle, within))
                heappush(ranges, (self._passing(cut, middle) + least, cut, middle, top, least))
        return best, settled

    def _frames_bound(self, bound: float, most: float) -> float:
        """What one frame takes at the least at any cut but that of arrays alone, or `bound` if that is less."""
        alone = {c: self.blocks.least_clocks(c, alone=True) if c < len(self.graph.nodes) else 0.0 for c in self.cuts if c}
        items = dict[int, list[LayerOptions]]()
        for cut in sorted(alone, key=lambda c: alone[c]):
            if alone[cut] < bound:
                bound = min(bound, self._frame_bound(cut, most, bound, items))
        return bound

    def _passing(self, cut: int, pace: int) -> float:
        """Clocks of a frame through dedicated engines of a pace, as far as is known."""
        return max(float(pace), STEADY * self.arrivals.get((cut, pace), 0.0)) if cut else 0.0

    def _frame_bound(self, cut: int, most: float, enough: float, known: dict[int, list[LayerOptions]]) -> float:
        """The same at one cut, as far as it is less than `enough`; `known` are engines by node."""
        arrays, pace = None, max(1, int(most))
        if cut < len(self.graph.nodes):
            arrays = self.blocks.columns(cut, most)
            if not len(arrays.needs):
                return most
        for i in range(cut):
            if i not in known:
                known[i] = self._engines_of_frame(i, pace, most)
        items = [item for i in range(cut) for item in known[i] if max(item.members) < cut]
        if any(not any(i in item.members and len(item.needs) for item in items) for i in range(cut)):
            return most
        return min(most, FrameProgramme(self.frames, cut, items, arrays, most).least(enough))

    def _engines_of_frame(self, index: int, pace: int, most: float) -> list[LayerOptions]:
        """All engines that a node may have in a frame of so many clocks, by itself or as the first of several."""
        node, engines = self.graph.nodes[index], self.engine(index, pace)
        found = [self.frames.fused(f.block, f.members, most) for f in self.together(len(self.graph.nodes), pace)
                 if min(f.members) == index]
        if isinstance(node.op, Conv | Gemm):
            direct = self.direct[index] if beats_of(self.graph, node) <= pace else None
            return [*found, self.frames.layer(index, direct, most if self.folds else 0.0)]
        return [*found, self.frames.plain(index, engines.needs.min(axis=0))] if len(engines.needs) else found

    def _with_least_block(self, cut: int, pace: int, most: float) -> tuple[FoundAccelerator | None, float]:
        """The fastest configuration that fits beside engines of a pace, and the fastest of which fractions fit (or `most`)."""
        room, best, least = self.room(cut, pace), cast("tuple[Chosen, BlockOption] | None", None), most
        if np.any(room.left < -TOLERANCE):
            return None, inf
        if cut == len(self.graph.nodes):
            chosen = self.choose(cut, pace, ())
            return (self.made(cut, pace, chosen, ()) if chosen.fill <= 1 else None), 0.0 if chosen.bound <= 1 else inf
        for offer in self.blocks.promising(cut, room, most, alone=True):
            if offer.clocks >= least:
                break
            option = offer.price(least)
            if option is None or option.latency >= least or not room.holds(np.array([option.needs]))[0]:
                continue
            chosen = self.choose(cut, pace, (option,))
            if chosen.bound <= 1:
                least = option.latency
            elif len(self.weights) > len(room.weights):
                room = self.room(cut, pace)
            if chosen.fill <= 1:
                best = chosen, option
        return (None if best is None else self.made(cut, pace, best[0], (best[1],))), least


def between(low: int, high: float, close: float = CLOSE) -> int | None:
    """An interval to try between one that is too short and one that is reached; None where the two are close."""
    middle = max(int(sqrt(low * high)), low + 1)
    return middle if high > low * close and middle < high else None
