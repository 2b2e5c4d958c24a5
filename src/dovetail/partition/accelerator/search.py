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
from dovetail.partition.accelerator.choice import (
    Chosen,
    Clash,
    Joint,
    Room,
    least_cost,
    least_fill,
    least_sum,
    shares_of,
    undominated,
)
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
from dovetail.partition.effort import halfway, spend, worked
from dovetail.partition.tolerances import TOLERANCE
from dovetail.platform.device import Device
from dovetail.platform.fitted import dhm_model

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
TRIES = 24
"""Choices of engines for an interval, at the most, each without the words that were too slow before. Chosen, not measured."""
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
ABOUT = 1.1
"""Ratio of two latencies that need not be told apart where any accelerator will do. Chosen, not measured."""
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


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How far a search goes: no accelerator above `ceiling` clocks is of use, no bound above `enough`, and work ends in time.

    An interval of `floor` clocks is as good as any shorter one, since other devices take as long.
    """

    ceiling: float = inf
    enough: float = inf
    until_s: float = inf
    floor: float = 0.0

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        return worked() >= self.until_s


UNLIMITED = SearchLimits()


@dataclass(frozen=True, slots=True)
class Cuts:
    """Cuts that are still to be looked at, with clocks that no frame at any of them goes below."""

    promise: float
    cuts: tuple[int, ...]

    def __lt__(self, other: Cuts | Paces) -> bool:
        return self.promise < other.promise


@dataclass(frozen=True, slots=True)
class Paces:
    """Paces of a cut from `low` to `top` that are still to be tried, with clocks that a frame will hardly go below."""

    promise: float
    search: int
    """0 where all engines have the pace, 1 where each phase has its share of it."""
    cut: int
    low: int
    top: int
    least: float
    """Clocks of the arrays at the least."""

    def __lt__(self, other: Cuts | Paces) -> bool:
        return self.promise < other.promise


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
        self.clashes: dict[int, list[Clash]] = {}
        """By pace, engines between which pixels would be cut anew too slowly, as far as any were chosen."""
        self.weights = np.eye(len(self.names))
        """Of resources, row by row, as linear programmes found them; the first ones look at one resource alone."""
        self.lows: dict[tuple[int, int], Floats] = {}
        self.items: dict[int, list[LayerOptions]] = {}
        self.floors: dict[int, float] = {}
        """By cut whose paces were looked at, clocks that no frame goes below, as far as is known."""
        self.settled = inf
        """What no frame at any other cut goes below."""
        self.steady: FoundAccelerator | None = None
        self.full: dict[int, int] = {}
        """By cut, the longest interval found at which not even fractions of engines fit."""
        if like is not None:
            self.words, self.frames, self.fronts = like.words, like.frames, like.fronts
            self.engines, self.fused, self.direct, self.clashes = like.engines, like.fused, like.direct, like.clashes

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
        clashes = [c for c in self.clashes.get(pace, ()) if all(i < cut for i, _ in c.options)]
        chosen = least_fill(items, self.budget, [Joint(f.members, f.needs) for f in self.together(cut, pace)], clashes)
        spend("choices", 1, sum(map(len, items)))
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

    def lightest(self, cut: int, pace: int) -> Floats:
        """Of every node before a cut the weighted share of its cheapest engine, for all weights known."""
        new = [node for i, node in enumerate(self.graph.nodes[:cut]) if (i, pace) not in self.engines]
        if self.folds:
            expect_engines(self.graph, new, self.device, self.names, pace)
        spend("rooms", len(new), cut)
        return np.array([self._low(i, pace) for i in range(cut)]).reshape(cut, len(self.weights))

    def room(self, cut: int, pace: int) -> Room:
        """What the engines before a cut leave at the most."""
        lows = self.lightest(cut, pace)
        joints = [(f.members, (shares_of(f.needs, self.budget) @ self.weights.T).min(axis=0)) for f in self.together(cut, pace)]
        return Room(self.budget, self.weights, 1.0 - least_sum(lows, joints))

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
        fused, row = self._row(cut, pace, chosen, block)
        places, inside = chosen.places, {i for members in row.fused for i in members}
        alone = [i for i in range(cut) if i not in inside]
        used = sum((f.needs[k] for f, k in fused), np.zeros(len(self.names)) if block is None else np.array(block.needs))
        used = used + sum((self.engine(i, pace).needs[places[i]] for i in alone), np.zeros(len(self.names)))
        if self.shares is None:
            places, row, used = self._cut_in_time(pace, places, row, used, set(alone))
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
        spend("passages", 1, cut)
        return FoundAccelerator(cut, folds, block, max(1, slowest), interval, latency, 0.0, needs,
                     tuple(f.block.depthwise.name for f, _ in fused))

    def _row(self, cut: int, pace: int, chosen: Chosen, block: BlockOption | None) -> tuple[list[tuple[Fused, int]], Row]:
        """The joined engines of a choice with their options, and the folds of all."""
        fused = [(f, k) for f, k in zip(self.together(cut, pace), chosen.together, strict=False) if k is not None]
        inside = {i: fold for f, k in fused for i, fold in zip(f.members, (*f.folds[k], None), strict=False)}
        folds = tuple(inside[i] if i in inside else self.engine(i, pace).folds[chosen.places[i]] for i in range(cut))
        return fused, Row(folds, tuple(f.members for f, _ in fused), None if block is None else block.configuration.inputs)

    def in_words(self, cut: int, pace: int) -> FoundAccelerator | None:
        """An accelerator of a cut for an interval, of which each try excludes the words that were too slow in the one before.

        It may take longer than the pace where no try keeps it.
        """
        best: FoundAccelerator | None = None
        for _ in range(TRIES):
            chosen, options = self.within(cut, pace)
            if chosen.fill > 1:
                break
            found = self.made(cut, pace, chosen, options)
            best = found if best is None or found.interval < best.interval else best
            if best.interval <= pace or not self._exclude(cut, pace, chosen, options):
                break
        return best

    def _exclude(self, cut: int, pace: int, chosen: Chosen, options: Sequence[BlockOption]) -> bool:
        """Let no later choice at a pace have words that are too slow in this one; whether anything is excluded."""
        _, row = self._row(cut, pace, chosen, options[chosen.places[cut]] if options else None)
        inside = {i for members in row.fused for i in members}
        folds = {i: self.engine(i, pace).folds for i in range(cut) if i not in inside}
        slow = [number for number, clocks in self.words.clocks(row).items() if clocks > pace]
        found = [c for number in slow if (c := self.words.clashing(number, row, folds, pace)) is not None]
        self.clashes.setdefault(pace, []).extend(found)
        return bool(found)

    def _cut_in_time(self, pace: int, places: tuple[int, ...], row: Row, used: Floats,
                     free: set[int]) -> tuple[tuple[int, ...], Row, Floats]:
        """The same with other engines of some layers, where cutting pixels anew between layers takes longer than the pace.

        Engines are exchanged one by one, each time the one that leaves least to cut late, as long as all fit. Exchanging two at
        once helped at none of some forty paces of two networks.
        """
        def late(tried: Row) -> int:
            return sum(max(0, clocks - pace) for clocks in self.words.clocks(tried).values())

        while least := late(row):
            slow = [number for number, clocks in self.words.clocks(row).items() if clocks > pace]
            best: tuple[int, float, int, int] | None = None
            for i in sorted(free & {i for number in slow for i in self.words.deciding(number)}):
                engines = self.engine(i, pace)
                fills = shares_of(engines.needs, self.budget).max(axis=1)
                for k in np.flatnonzero(np.all(used - engines.needs[places[i]] + engines.needs <= self.budget, axis=1)).tolist():
                    tried = replace(row, folds=(*row.folds[:i], engines.folds[k], *row.folds[i + 1:]))
                    found = late(tried), float(fills[k]), i, k
                    best = found if found[0] < least and (best is None or found < best) else best
            if best is None:
                break
            _, _, i, k = best
            needs, folds = self.engine(i, pace).needs, self.engine(i, pace).folds
            used, row = used - needs[places[i]] + needs[k], replace(row, folds=(*row.folds[:i], folds[k], *row.folds[i + 1:]))
            places = (*places[:i], k, *places[i + 1:])
        return places, row, used

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

    def fastest(self, known: FoundAccelerator | None = None, limits: SearchLimits = UNLIMITED) -> FoundAccelerator:
        """The accelerator with the shortest interval between frames, or `known` if none has, with a bound on every other.

        Half of the time is for the accelerator, the rest for the bound.
        """
        half = replace(limits, until_s=halfway(limits.until_s))
        found = self._steadiest(half) if known is None else self._shorter(known, limits=half)
        found = self._thrifty(found)
        if found.interval <= limits.floor:  # no bound is sought
            return replace(found, bound=0.0)
        return replace(found, bound=self._surely(self._interval_bound(found.interval, limits)))

    def _thrifty(self, found: FoundAccelerator) -> FoundAccelerator:
        """The same frames per second with as little logic as is found: products are in multiplier blocks while there are any."""
        pace, logic = int(found.interval), self.names.index(dhm_model(self.device.model).logic)
        if not found.cut or self.shares is not None:
            return found
        block, joined = found.block, self.together(found.cut, pace)
        items = [self.engine(i, pace).needs for i in range(found.cut)]
        items += [] if block is None else [np.array([block.needs])]
        chosen = least_cost(items, [needs[:, logic] for needs in items], self.budget,
                            [Joint(f.members, f.needs) for f in joined], [f.needs[:, logic] for f in joined])
        spend("choices", 1, sum(map(len, items)))
        if chosen.fill > 1:
            return found
        better = self.made(found.cut, pace, chosen, () if block is None else (block,))
        less = better.needs[self.names[logic]] < found.needs[self.names[logic]]
        return better if less and better.interval <= found.interval else found

    def _surely(self, clocks: float) -> float:
        """Clocks that the hardware takes at the least where the model says so many."""
        return self.blocks.surely(clocks) if self.cuts[0] < len(self.graph.nodes) else clocks

    def _fastest_block(self, shorter: float, floor: float = 0.0) -> FoundAccelerator | None:
        """The configuration with the shortest interval where all nodes share arrays, or the first of no more than `floor` clocks:
        all that may be faster are looked at.
        """
        best = None
        for offer in self.blocks.promising(0, self.room(0, 1)):
            if offer.clocks >= shorter or shorter <= floor:
                break
            option = offer.price(inf)
            if option is not None and np.all(np.array(option.needs) <= self.budget) and option.interval < shorter:
                best, shorter = option, option.interval
        return None if best is None else self.made(0, 1, Chosen(0.0, 0.0, (0,)), (best,))

    def _steadiest(self, limits: SearchLimits) -> FoundAccelerator:
        """The accelerator with the shortest interval, or the best once the time is over; nothing is known yet of others."""
        if self.steady is not None:
            return self.steady
        if self.cuts == (0,):
            self.steady = self._fastest_block(inf, limits.floor)
            if self.steady is None:
                raise InfeasibleError(self._reason(self.span()[1]))
            return self.steady
        found, low = self._some(limits.floor)
        self.steady = self._shorter(found, low, limits)
        return self.steady

    def some(self) -> FoundAccelerator:
        """An accelerator that fits, about the quickest where all nodes share arrays."""
        if self.cuts != (0,):
            return self._some()[0]
        found, _ = self._with_least_block(0, self.span()[1], inf, ABOUT)
        if found is None:
            raise InfeasibleError(self._reason(self.span()[1]))
        return found

    def _some(self, floor: float = 0.0) -> tuple[FoundAccelerator, int]:
        """An accelerator of an interval of at least `floor` at which one fits, and the longest tried at which none was found."""
        low, high = self.span()
        at_once = PRODUCTS_AT_ONCE * self.device.resources.get(MULTIPLIER, 0.0)
        work = multiplications_of(self.graph, self.graph.nodes)
        found, pace, longer = None, min(max(FIRST_PACE, int(floor), int(work / at_once) if at_once else 0), high), LONGER
        while found is None and low < high and (low or any(self._may_fit(cut, high) for cut in self.cuts)):
            found = self._fitting(pace)
            if found is None:
                low, pace, longer = pace, min(int(longer * pace), high), longer * longer if low else longer
        if found is None:
            raise InfeasibleError(self._reason(high))
        return found, low

    def _may_fit(self, cut: int, pace: int) -> bool:
        """Whether the cheapest engines of a cut leave room for any arrays, each with what it needs at the least."""
        room = self.room(cut, pace)
        return bool(np.all(room.left >= -TOLERANCE)) and (cut == len(self.graph.nodes) or self.blocks.room_for_any(cut, room))

    def _shorter(self, found: FoundAccelerator, low: int = 0, limits: SearchLimits = UNLIMITED) -> FoundAccelerator:
        """An accelerator of the shortest interval above `low`, or `found` if none is shorter."""
        if found.interval <= limits.floor:
            return found
        if self.cuts == (0,):
            return self._fastest_block(found.interval) or found
        high = found.interval
        while high > limits.floor and (middle := between(low, high)) is not None and not limits.over:
            better = self._fitting(middle, found.cut, limits)
            found = found if better is None else min(found, better, key=lambda f: f.interval)
            if better is None or better.interval > middle:  # cutting pixels anew takes longer than their pace
                low, high = middle, min(high, found.interval)
            else:
                high = better.interval
        return found

    def span(self) -> tuple[int, int]:
        """Intervals between which the best lies: a pixel per clock at the least, every multiply-add by itself at the most."""
        most = 1.0
        for node in self.graph.nodes:
            shape = self.graph.shape(node.output)
            weights = self.graph.constants[node.params[0]].array.size if node.params else 1
            most = max(most, float(np.prod(shape[2:], dtype=np.float64)) * max(weights, shape[1] if len(shape) > 1 else 1) * 2)
        return 0, int(most) * len(self.graph.nodes)

    def _fitting(self, pace: int, first: int | None = None, limits: SearchLimits = UNLIMITED) -> FoundAccelerator | None:
        """An accelerator of at most so many clocks between frames; cut `first` is looked at before all others.

        Cuts behind which many layers of many arrays would have to be played come last, those with fewer layers first.
        """
        labour, best = {cut: self.blocks.effort(cut, pace) > MUCH for cut in self.cuts}, cast("FoundAccelerator | None", None)
        for cut in sorted(self.cuts, key=lambda c: (c != first, labour[c], -c if labour[c] else c)):
            if limits.over:
                break
            found = self.in_words(cut, pace)
            best = found if found is not None and (best is None or found.interval < best.interval) else best
            if best is not None and best.interval <= pace:
                break
        return best

    def _interval_bound(self, reached: float, limits: SearchLimits = UNLIMITED) -> float:
        """The largest interval found at which no cut has room, not even for fractions of engines."""
        if self.cuts == (0,):
            return reached
        low, high, open_cut = min(self.full.get(cut, 0) for cut in self.cuts), reached, self.cuts[0]
        while (pace := between(low, high)) is not None:
            fits = None
            for cut in sorted(self.cuts, key=lambda c: c != open_cut):
                if limits.over:
                    return min(low + 1.0, reached)
                self.in_words(cut, pace)
                if pace > self.full.get(cut, 0) and self.within(cut, pace)[0].bound <= 1:
                    fits = cut
                    break
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

    def quickest(self, known: FoundAccelerator | None = None, limits: SearchLimits = UNLIMITED) -> FoundAccelerator:
        """The accelerator with the shortest latency of a single frame, or `known` if none has, with a bound on every other.

        What promises most is looked at first. Of several cuts it is soon known what none of them goes below; they are halved.
        Paces of a single cut are halved: at a pace a frame takes about as long as at the next shorter one that was tried, or
        longer. When the time is over, promises of cuts are bounds.
        """
        best = self._begun(known, replace(limits, until_s=halfway(limits.until_s)))
        self.items, self.floors = {}, {}  # of the clocks that were known before
        settled, shares = inf, phase_shares(self.graph)
        if 0 in self.cuts:
            least = self.blocks.least_clocks(0, alone=True)
            found, settled = self._with_least_block(0, self.span()[1], best.latency) if least < best.latency else (None, least)
            best = found if found is not None and found.latency < best.latency else best
        searches = [self]
        if min(shares) < 1 and self.folds:
            searches.append(AcceleratorSearch(self.graph, self.device, self.cuts, self.blocks, shares=shares))
        count = len(self.graph.nodes)
        between_engines = (tuple(c for c in self.cuts if 0 < c < count), tuple(c for c in self.cuts if c == count))
        pending: list[Cuts | Paces] = [Cuts(float(self.slowest(cuts[0])), cuts) for cuts in between_engines if cuts]
        while pending and pending[0].promise * NEAR < min(best.latency, limits.ceiling) and not limits.over:
            most, entry = min(best.latency, limits.ceiling), heappop(pending)
            if isinstance(entry, Paces):
                if (middle := between(entry.low, entry.top, NARROW)) is not None:
                    found = searches[entry.search].tried(entry, middle, most, pending)
                    best = found if found is not None and found.latency < best.latency else best
            elif len(entry.cuts) == 1:
                (cut,) = entry.cuts
                self.floors[cut] = entry.promise
                for number, search in enumerate(searches):
                    least = self.blocks.least_clocks(cut, alone=True) if cut < count else 0.0
                    low = search.slowest(cut) if search.shares is None else 1
                    heappush(pending, Paces(max(entry.promise, search.passing(cut, low) + least), number, cut, low,
                                            min(self.span()[1], int(most) + 1), least))
            else:
                middle = len(entry.cuts) // 2
                for half in (entry.cuts[:middle], entry.cuts[middle:]):
                    heappush(pending, Cuts(max(entry.promise, self._frame_bound(half, most, 0.0, limits)), half))
        self.settled = min([settled, *(e.promise for e in pending if isinstance(e, Cuts))])
        return replace(best, bound=self.frame_bound(min(best.latency, limits.ceiling), limits))

    def _begun(self, known: FoundAccelerator | None, limits: SearchLimits) -> FoundAccelerator:
        """Where the search for the quickest begins: `known`, or the accelerator of the shortest interval if frames take less."""
        if self.cuts == (0,):
            return known or self.some()
        try:
            steady = self._steadiest(limits)
        except InfeasibleError:
            if known is None:
                raise
            return known
        return steady if known is None else min(known, steady, key=lambda f: f.latency)

    def frame_bound(self, most: float, limits: SearchLimits = UNLIMITED) -> float:
        """What no frame goes below, or `most`, after a search for the quickest; found out as far as limits let it."""
        bound = min(most, self.settled)
        for cut in sorted(self.floors, key=self.floors.__getitem__):  # the first ones decide
            if self.floors[cut] < min(bound, limits.enough) and not limits.over:
                here = self._frame_bound((cut,), most, min(bound, limits.enough), limits)
                self.floors[cut] = max(self.floors[cut], here)
            bound = min(bound, self.floors[cut])
        return self._surely(bound)

    def slowest(self, cut: int) -> int:
        """Clocks of a frame that the engines before a cut take at the least: no more than a pixel per clock."""
        return max([1, *(beats_of(self.graph, node) for node in self.graph.nodes[:cut])])

    def tried(self, paces: Paces, middle: int, most: float, pending: list[Cuts | Paces]) -> FoundAccelerator | None:
        """The accelerator of a pace in the middle of others; both halves are then pending."""
        cut, low = paces.cut, paces.low
        found, within = self._with_least_block(cut, middle, most - self.passing(cut, low))
        heappush(pending, replace(paces, promise=max(paces.promise, self.passing(cut, low) + within), top=middle, least=within))
        heappush(pending, replace(paces, promise=max(paces.promise, self.passing(cut, middle) + paces.least), low=middle))
        return found

    def passing(self, cut: int, pace: int) -> float:
        """Clocks of a frame through dedicated engines of a pace, as far as is known."""
        return max(float(pace), STEADY * self.arrivals.get((cut, pace), 0.0)) if cut else 0.0

    def _frame_bound(self, cuts: tuple[int, ...], most: float, enough: float, limits: SearchLimits) -> float:
        """What one frame takes at the least at any of some cuts, as far as that is below `most`; what is `enough`, or is known in
        time.

        Layers in front of the first cut have engines of their own, and arrays are at least those of one of the cuts; what lies
        between is left out.
        """
        cut, arrays = cuts[0], None
        if np.any(self.room(cut, max(1, int(most))).left < -TOLERANCE):
            return most
        if cut < len(self.graph.nodes):
            arrays = self.blocks.columns(cuts, most)
            if not len(arrays.needs):
                return most
        for i in range(cut):
            if i not in self.items:
                self.items[i] = self._engines_of_frame(i, max(1, int(most)), most)
                spend("frames", 1, sum(len(item.needs) for item in self.items[i]))
        items = [item for i in range(cut) for item in self.items[i] if max(item.members) < cut]
        if any(not any(i in item.members and len(item.needs) for item in items) for i in range(cut)):
            return most
        return min(most, FrameProgramme(self.frames, cut, items, arrays, most).least(enough, limits.until_s))

    def _engines_of_frame(self, index: int, pace: int, most: float) -> list[LayerOptions]:
        """All engines that a node may have in a frame of so many clocks, by itself or as the first of several."""
        node, engines = self.graph.nodes[index], self.engine(index, pace)
        found = [self.frames.fused(f.block, f.members, most) for f in self.together(len(self.graph.nodes), pace)
                 if min(f.members) == index]
        if isinstance(node.op, Conv | Gemm):
            direct = self.direct[index] if beats_of(self.graph, node) <= pace else None
            return [*found, self.frames.layer(index, direct, most if self.folds else 0.0)]
        return [*found, self.frames.plain(index, engines.needs.min(axis=0))] if len(engines.needs) else found

    def _with_least_block(self, cut: int, pace: int, most: float, near: float = 1.0) -> tuple[FoundAccelerator | None, float]:
        """The fastest configuration that fits beside engines of a pace, and the fastest of which fractions fit (or `most`).

        None is looked at that may not be faster by the ratio `near`.
        """
        room, best, least = self.room(cut, pace), cast("tuple[Chosen, BlockOption] | None", None), most
        if np.any(room.left < -TOLERANCE):
            return None, inf
        if cut == len(self.graph.nodes):
            chosen = self.choose(cut, pace, ())
            return (self.made(cut, pace, chosen, ()) if chosen.fill <= 1 else None), 0.0 if chosen.bound <= 1 else inf
        for offer in self.blocks.promising(cut, room, most, alone=True):
            if offer.clocks * near >= least:
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
