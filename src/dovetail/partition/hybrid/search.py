"""The best accelerator for a network on one FPGA: where dedicated engines end, how layers are folded, how large arrays are.

For an interval T between frames every dedicated layer may take T clocks and every configuration of the arrays is allowed that
finishes its layers in T. Whether one engine of each layer and one configuration fit together is a choice problem
(`choice.least_fill`); a longer interval only adds options, so T is found by bisection. The smallest T at which whole engines fit
is reached; below the largest T at which not even fractions of engines fit at any cut, there is no accelerator of this
kind: the bound.

One frame by itself passes the dedicated engines in T * (1 + what their windows hold before the first output), then the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from math import inf, sqrt
from typing import Protocol

import numpy as np

from dovetail.cost import Floats
from dovetail.cost.folds import Fold
from dovetail.errors import InfeasibleError
from dovetail.ir import Graph
from dovetail.partition.hybrid.choice import Chosen, Joint, least_fill
from dovetail.partition.hybrid.dedicated import Engines, Fused, beats_of, engines_within, fills, fused_within
from dovetail.platform.device import Device

MULTIPLIER = "dsp"
CLOSE = 1.002
"""Ratio of two intervals that need not be told apart."""
FIRST_PACE, FASTER = 1 << 14, 4
"""The interval that is tried first, and how much longer the next one is until one is reached: long ones have most choices."""
NEAR = 1.005
"""Ratio of a latency to its bound at which the search ends."""


@dataclass(frozen=True, slots=True)
class BlockOption:
    """A configuration of reusable arrays for the nodes behind a cut: clocks between frames and for one frame, and its area."""

    configuration: object
    interval: float
    latency: float
    needs: tuple[float, ...]
    offchip_bytes: float


class Offers(Protocol):
    """Configurations for the nodes behind a cut."""

    def promising(self, cut: int, multipliers: float = inf) -> Iterator[tuple[float, Callable[[], BlockOption | None]]]:
        """Clocks at the least, rising, and what gives the whole price; only those of so many multipliers."""

    def __call__(self, cut: int, most_clocks: float) -> Sequence[BlockOption]:
        """Those that may take at most so many clocks; slower ones may be left out."""


class NoBlocks:
    """For accelerators of dedicated engines alone."""

    def promising(self, cut: int, multipliers: float = inf) -> Iterator[tuple[float, Callable[[], BlockOption | None]]]:
        return iter(())

    def __call__(self, cut: int, most_clocks: float) -> Sequence[BlockOption]:
        return ()


@dataclass(frozen=True, slots=True)
class Found:
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


class Search:
    """Engines and configurations of one graph on one device, remembered."""

    def __init__(self, graph: Graph, device: Device, cuts: Sequence[int], blocks: Offers, folds: bool = True) -> None:
        self.graph, self.device, self.cuts, self.blocks, self.folds = graph, device, tuple(cuts), blocks, folds
        self.names = tuple(sorted(device.resources))
        self.budget = np.array([device.resources[r] for r in self.names])
        self.fills = fills(graph)
        self.engines: dict[tuple[int, int], Engines] = {}
        self.fused: dict[int, tuple[Fused, ...]] = {}
        self._fastest: Found | None = None

    def engine(self, index: int, pace: int) -> Engines:
        if (index, pace) not in self.engines:
            node = self.graph.nodes[index]
            self.engines[index, pace] = engines_within(self.graph, node, self.device, self.names, pace, self.folds)
        return self.engines[index, pace]

    def together(self, cut: int, pace: int) -> list[Fused]:
        """Inverted residuals before a cut that can be one engine within the pace."""
        if pace not in self.fused:
            self.fused[pace] = fused_within(self.graph, self.device, self.names, pace) if self.folds else ()
        return [f for f in self.fused[pace] if max(f.members) < cut]

    def choose(self, cut: int, pace: int, options: Sequence[BlockOption]) -> Chosen:
        """Engines for the nodes before the cut within the pace, and one of the configurations behind it."""
        items = [self.engine(i, pace).needs for i in range(cut)]
        if cut < len(self.graph.nodes):
            items.append(np.array([o.needs for o in options]).reshape(len(options), len(self.names)))
        return least_fill(items, self.budget, [Joint(f.members, f.needs) for f in self.together(cut, pace)])

    def _smallest(self, cut: int, pace: int) -> Floats:
        """Of every resource what the engines before a cut need at the least, each by itself."""
        least = np.array([self.engine(i, pace).needs.min(axis=0, initial=inf) for i in range(cut)]).reshape(cut, len(self.names))
        for fused in self.together(cut, pace):
            members = list(fused.members)
            least[members[0]] = np.minimum(least[members].sum(axis=0), fused.needs.min(axis=0))
            least[members[1:]] = 0.0
        return np.asarray(least.sum(axis=0), dtype=np.float64)

    def within(self, cut: int, pace: float) -> list[BlockOption]:
        """Configurations behind a cut that keep an interval."""
        return [o for o in self.blocks(cut, pace) if o.interval <= pace] if cut < len(self.graph.nodes) else []

    def made(self, cut: int, pace: int, chosen: Chosen, options: Sequence[BlockOption]) -> Found:
        """An accelerator as it was chosen; nothing is known yet of what others of its kind reach."""
        folds, used, slowest = dict[str, Fold](), np.zeros(len(self.names)), 0
        fused = [(f, k) for f, k in zip(self.together(cut, pace), chosen.together, strict=False) if k is not None]
        for f, k in fused:
            folds |= {node.name: fold for node, fold in zip(f.block.layers, f.costs[k].folds, strict=True)}
            used, slowest = used + f.needs[k], max(slowest, f.costs[k].steps)
        covered = {i for f, _ in fused for i in f.members}
        for i in (i for i in range(cut) if i not in covered):
            engines, place = self.engine(i, pace), chosen.places[i]
            fold = engines.folds[place]
            if fold is not None:
                folds[self.graph.nodes[i].name] = fold
            used, slowest = used + engines.needs[place], max(slowest, engines.steps[place])
        block = options[chosen.places[cut]] if options else None
        if block is not None:
            used = used + np.array(block.needs)
        interval = max(float(slowest), block.interval if block else 0.0)
        latency = slowest * (1 + float(self.fills[:cut].sum())) + (block.latency if block else 0.0)
        needs = dict(zip(self.names, map(float, used), strict=True))
        return Found(cut, folds, block, max(1, slowest), interval, latency, 0.0, needs,
                     tuple(f.block.depthwise.name for f, _ in fused))

    def fastest(self) -> Found:
        """The accelerator with the shortest interval between frames, with a bound on every other."""
        found = self._known_fastest()
        return replace(found, bound=self._interval_bound(found.interval))

    def _fastest_fitting(self) -> Found:
        low, high = self.span()
        found, pace = None, min(FIRST_PACE, high)
        while found is None and low < high:
            found = self._fitting(pace)
            if found is None:
                low, pace = pace, min(FASTER * pace, high)
        if found is None:
            raise InfeasibleError(self._reason(high))
        while (middle := between(low, found.interval)) is not None:
            better = self._fitting(middle)
            if better is None:
                low = middle
            else:
                found = better
        return found

    def _known_fastest(self) -> Found:
        if self._fastest is None:
            self._fastest = self._fastest_fitting()
        return self._fastest

    def span(self) -> tuple[int, int]:
        """Intervals between which the best lies: a pixel per clock at the least, every multiply-add by itself at the most."""
        most = 1.0
        for node in self.graph.nodes:
            shape = self.graph.shape(node.output)
            weights = self.graph.constants[node.params[0]].array.size if node.params else 1
            most = max(most, float(np.prod(shape[2:], dtype=np.float64)) * max(weights, shape[1] if len(shape) > 1 else 1) * 2)
        return 0, int(most) * len(self.graph.nodes)

    def _fitting(self, pace: int) -> Found | None:
        for cut in self.cuts:
            options = self.within(cut, pace)
            chosen = self.choose(cut, pace, options)
            if chosen.fill <= 1:
                return self.made(cut, pace, chosen, options)
        return None

    def _interval_bound(self, reached: float) -> float:
        """The largest interval found at which no cut has room, not even for fractions of engines."""
        low, high = 0, reached
        while (pace := between(low, high)) is not None:
            if any(self.choose(cut, pace, self.within(cut, pace)).bound <= 1 for cut in self.cuts):
                high = pace
            else:
                low = pace
        return min(low + 1.0, reached)

    def _reason(self, pace: int) -> str:
        full = {cut: self.choose(cut, pace, self.within(cut, inf)) for cut in self.cuts}
        cut = min(full, key=lambda c: full[c].bound)
        return (f"{self.device.name}: no accelerator of this kind fits; the emptiest takes {full[cut].bound:.2f} times what the "
                "device has of some resource; take a larger board or an architecture with reusable engines")

    def quickest(self) -> Found:
        """The accelerator with the shortest latency of a single frame, with a bound on every other.

        Paces of a cut are halved, the most promising range first: below its top no engine is cheaper than there, and none takes
        fewer clocks than its bottom.
        """
        _, high = self.span()
        best, settled = self._known_fastest(), inf
        ranges: list[tuple[float, int, int, int, float]] = []
        for cut in self.cuts:
            slowest = max([1, *(beats_of(self.graph, node) for node in self.graph.nodes[:cut])]) if cut else high
            least = next(self.blocks.promising(cut), (inf,))[0] if cut < len(self.graph.nodes) else 0.0
            heappush(ranges, (self._passing(cut, slowest) + least, cut, slowest, high, least))
        while ranges and ranges[0][0] * NEAR < best.latency:
            bound, cut, low, top, least = heappop(ranges)
            middle = between(low, top) if cut else top
            if middle is None:
                settled = min(settled, bound)
                continue
            best, within = self._tried(cut, middle, best)
            if not cut:
                settled = min(settled, within)
            else:
                heappush(ranges, (self._passing(cut, low) + within, cut, low, middle, within))
                heappush(ranges, (self._passing(cut, middle) + least, cut, middle, top, least))
        return replace(best, bound=min([best.latency, settled, *(r[0] for r in ranges[:1])]))

    def _passing(self, cut: int, pace: int) -> float:
        """Clocks of a frame through dedicated engines of a pace."""
        return pace * (1 + float(self.fills[:cut].sum())) if cut else 0.0

    def _tried(self, cut: int, pace: int, best: Found) -> tuple[Found, float]:
        """The better of what is known and the fastest single frame at a cut and a pace; the block's clocks at the least."""
        found, least = self._with_least_block(cut, pace, best.latency)
        return (found if found is not None and found.latency < best.latency else best), least

    def _with_least_block(self, cut: int, pace: int, most: float) -> tuple[Found | None, float]:
        """The fastest configuration that fits beside engines of a pace, and the fastest of which fractions fit (or `most`)."""
        if cut == len(self.graph.nodes):
            chosen = self.choose(cut, pace, ())
            return (self.made(cut, pace, chosen, ()) if chosen.fill <= 1 else None), 0.0 if chosen.bound <= 1 else inf
        least, smallest, best = most, self._smallest(cut, pace), None
        left = float((self.budget - smallest)[self.names.index(MULTIPLIER)]) if MULTIPLIER in self.names else inf
        for floor, price in self.blocks.promising(cut, left):
            if floor >= least:
                break
            option = price()
            if option is None or option.latency >= least or np.any(smallest + np.array(option.needs) > self.budget):
                continue
            chosen = self.choose(cut, pace, (option,))
            if chosen.bound <= 1:
                least = option.latency
            if chosen.fill <= 1:
                best = self.made(cut, pace, chosen, (option,))
        return best, least



def between(low: int, high: float) -> int | None:
    """An interval to try between one that is too short and one that is reached; None where the two are close."""
    middle = max(int(sqrt(low * high)), low + 1)
    return middle if high > low * CLOSE and middle < high else None
