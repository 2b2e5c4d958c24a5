"""Prices that bound one frame of all accelerators, and show which of them to build: a tree of boxes, the least bound first.

Prices on resources relax what fits together (`certificate.frames`): at the best prices a mixture of accelerators is below all of
them. Where the mixture holds several paces or arrays, accelerators are divided between these, and each half gets prices of its
own. A box whose mixture is of one pace and one array differs from a whole accelerator in fractions of engines alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import islice
from math import ceil, inf, sqrt

import numpy as np

from dovetail.certificate.accelerators import ARRAYS, LONGEST, Accelerators, Box, CutPrices
from dovetail.certificate.arrays import EXACT, SKETCHED, Arrays
from dovetail.certificate.engines import SLACK
from dovetail.certificate.frames import Charge, Cheapest, Framed
from dovetail.cost.costs import costs_of, transfer_rates
from dovetail.errors import InfeasibleError
from dovetail.hardware.shares import Floats
from dovetail.ir import Graph, Node
from dovetail.partition.accelerator.architecture import AcceleratedRegion, JudgedAccelerator, accelerator_of, search_of
from dovetail.partition.accelerator.blocks import Blocks
from dovetail.partition.accelerator.charged import ChargedSearch
from dovetail.partition.accelerator.dedicated import ONE
from dovetail.partition.accelerator.search import SearchLimits
from dovetail.partition.effort import spend, worked
from dovetail.partition.linear_programs import DEAREST, largest_minimum
from dovetail.partition.plan import Goal
from dovetail.partition.problem import PACKET_BYTES
from dovetail.partition.proof import check_bound
from dovetail.platform.accelerator import AcceleratorDesign, Architecture
from dovetail.platform.device import Kind, Platform
from dovetail.progress import Progress, silent

ROUNDS = 60
"""Prices that are tried for a box, at the most. Chosen: they have converged long before."""
SURE = 1e-8
"""By which part what is proven is lowered so that rounding cannot fail it. Chosen: ten times the slack of limits."""
CONVERGED = 1e-4
"""Progress of what is proven, relative, at which prices have converged. Chosen, not measured."""
TABLES = 4
"""Prices of a box that take as long as what a layer has at all paces. Measured: 0.012 s."""
CLOSE = 1.0005
"""Ratio of two costs that need not be told apart. Chosen, not measured."""
NEAR = 1.005
"""Ratio of the best accelerator's cost to what none is below at which the search for it ends.

Chosen: plans are to be within 0.5 % of those with any switch.
"""
HARDLY = 1e-9
"""Part of an accelerator's cost that none is below, where none is of use. Chosen: any small one proves as quickly."""
MOST_BOXES = 400
"""Boxes at the most, beyond one of every cut. Chosen: few networks need half as many."""


@dataclass(frozen=True, slots=True)
class FrameProof:
    """That no accelerator is below so many clocks or joules, and the prices that prove it."""

    least: float
    cuts: tuple[CutPrices, ...]
    spare: float
    """By how much a plan with another accelerator may be below the best with the one chosen, in seconds or joules."""


@dataclass(frozen=True, slots=True, eq=False)
class PricedBox:
    """Some accelerators at an ending: what none of them is below, the prices that say so, and those that cost least by them."""

    value: float
    number: int
    box: Box
    price: Floats
    mixture: tuple[Cheapest, ...]
    parent: PricedBox | None = None
    exact: bool = False
    """Whether arrays count as they are built, or as they are at the least."""

    def __lt__(self, other: PricedBox) -> bool:
        return self.value < other.value


Spared = Callable[[AcceleratorDesign], float]
"""By how many seconds or joules the best plan with an accelerator is worse than what is reached."""
Build = Callable[[PricedBox], float]
"""Builds accelerators from the prices of a box; what the best one so far costs."""


@dataclass
class PriceTree:
    """All accelerators of a space, divided into boxes with prices."""

    framed: Framed
    progress: Progress = silent
    wide: Framed = field(init=False)
    """The same with wide ranges of paces, for what need not be exact."""
    boxes: list[PricedBox] = field(default_factory=list)
    """Those that can still be divided, the lowest first."""
    whole: list[PricedBox] = field(default_factory=list)
    """Those that cannot."""
    close: float = CLOSE
    """Ratio of what is enough to the lowest box at which no box is divided any more."""
    until_s: float = inf
    """When the time is over: then no box is divided, and no array is built."""
    sketched_s: float = inf
    """When that of bounding all endings is: then every one left has the prices of the one beside it."""
    counted: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """How many cuts, sketches and prices of arrays count as work already, by the arrays' identity."""

    def __post_init__(self) -> None:
        framed = self.framed
        spend("prices", TABLES * len(framed.phase))
        self.wide = Framed(framed.space, framed.least, framed.charge, narrow=False, tables=framed.tables)

    def grow(self, enough: float, build: Build | None = None) -> float:
        """What no accelerator is below, as far as that is less than `enough` or than what the best one built costs."""
        enough = self._bounded(enough, build)
        for done in range(MOST_BOXES):
            if not self.boxes or self.boxes[0].value * self.close >= enough or worked() >= self.until_s:
                break
            self.progress("bound accelerators", done, MOST_BOXES)
            lowest = heappop(self.boxes)
            if build is not None:
                enough = min(enough, build(lowest))
            if not lowest.exact:
                heappush(self.boxes, self._priced(lowest.number, lowest.box, lowest.price, enough, lowest.parent, exact=True))
                continue
            halves = self.halves(lowest)
            if not halves:
                self.whole.append(lowest)
            for limits in halves:
                heappush(self.boxes, self._priced(lowest.number, limits, lowest.price, enough, lowest, exact=True))
        return min([enough, *(box.value for box in (*self.boxes[:1], *self.whole))])

    def _bounded(self, enough: float, build: Build | None) -> float:
        """Bound all endings; what is enough then.

        Endings far apart come first, and the lowest so far is built: what others have to prove is known early.
        """
        count, none = len(self.framed.space.endings), np.zeros(len(self.framed.space.names))
        for done, number in enumerate(sorted(range(count), key=lambda k: f"{k:0{count.bit_length()}b}"[::-1])):
            self.progress("bound accelerators", done, count)
            beside = min(self.boxes, key=lambda own: abs(own.number - number), default=None)
            box = self._priced(number, {}, none if beside is None else beside.price, enough, None)
            first = box.value < min((own.value for own in self.boxes), default=inf)
            if build is not None and first and box.value * self.close < enough and worked() < self.until_s:
                enough = min(enough, build(box))
            self.boxes.append(box)
        heapify(self.boxes)
        return enough

    def proof(self, least: float) -> tuple[CutPrices, ...]:
        """Prices that prove so much of all accelerators, as few as do."""
        found: dict[PricedBox, None] = {}
        for box in (*self.boxes, *self.whole):
            while box.parent is not None and box.parent.value >= least:
                box = box.parent
            found[box] = None
        names = self.framed.space.names
        return tuple(CutPrices(0, own.number, own.number, named(names, own.price), own.box)
                     for own in sorted(found, key=lambda own: own.number))

    def _priced(self, number: int, box: Box, price: Floats, enough: float, parent: PricedBox | None,
                exact: bool = False) -> PricedBox:
        """A box with the best prices, found by planes above what they prove: each is what the cheapest so far costs."""
        framed, costs, slopes, found = self.framed if exact else self.wide, list[float](), list[Floats](), list[Cheapest]()
        best, cap = (-inf, price), DEAREST * framed.least
        level, until_s = partial(self._level, framed.space.endings[number].arrays, exact), self._until(exact)
        for _ in range(ROUNDS):
            sure = (enough + float(price.sum()) * (1 + SLACK)) * (1 + 2 * SURE)  # what proves enough
            cheapest = framed.cheapest(number, price, box, sure, level)
            spend("prices", 1, len(framed.starts) * len(framed.phase))
            if not cheapest.value < inf:
                return PricedBox(enough, number, box, price, (), parent, exact)
            proven = cheapest.value / (1 + SURE) - float(price.sum()) * (1 + SLACK)
            best = max(best, (proven, price), key=lambda own: own[0])
            if best[0] >= enough or worked() >= until_s:
                break
            taken = framed.taken(number, price, cheapest)
            costs.append(cheapest.value - float(price @ taken))
            slopes.append(taken - 1.0)
            found.append(cheapest)
            reach, price = largest_minimum(np.array(costs), np.array(slopes), cap)
            if reach <= best[0] * (1 + CONVERGED):
                break
        values = np.array(costs) + np.array(slopes).reshape(len(costs), -1) @ price if costs else np.zeros(0)
        near = values <= values.min(initial=inf) + CONVERGED * abs(best[0])
        return PricedBox(max(best[0], 0.0 if parent is None else min(parent.value, enough)), number, box, best[1],
                         tuple(c for c, n in zip(found, near, strict=True) if n), parent, exact)

    def _until(self, exact: bool) -> float:
        """When prices are sought no more."""
        return self.until_s if exact else self.sketched_s

    def _level(self, arrays: Arrays | None, exact: bool) -> int:
        """How well arrays are to be known: once the time is over by a step less."""
        if arrays is not None:
            cuts, sketched, played = self.counted.get(id(arrays), (0, 0, 0))
            self.counted[id(arrays)] = len(arrays.known), len(arrays.sketches), len(arrays.figures)
            spend("needs", (len(arrays.known) - cuts) * arrays.kinds)
            for figure in islice(arrays.figures.values(), played, None):
                spend("plays", 1, 0 if figure is None else figure[-1])  # made, and a frame of it played
            new = len(arrays.sketches) - sketched
            spend("sketches", new, new * (arrays.stop - arrays.start))
        return (EXACT if exact else SKETCHED) - (worked() >= self._until(exact))

    def halves(self, whole: PricedBox) -> tuple[Box, ...]:
        """A box divided where what its mixture holds costs most differently; nothing where it is all alike."""
        framed, ending, best = self.framed, self.framed.space.endings[whole.number], (0.0, 0, 0)
        if len(whole.mixture) < 2:
            return ()
        for phase in range(framed.count):
            at = {c.ranges[phase] for c in whole.mixture}
            inside = [i for i in framed.phase if framed.phase[i] == phase and i < ending.cut]
            costs = [sum(float(framed.times[i][k]) for i in inside) for k in (min(at), max(at))]
            middle = max(int(sqrt(framed.starts[min(at)] * framed.starts[max(at)])), int(framed.starts[min(at)]) + 1)
            edge = int(framed.starts[np.searchsorted(framed.starts, middle)])
            best = max(best, (costs[1] - costs[0], phase, edge))
        fewest, _ = whole.box.get(ARRAYS, (0, LONGEST))
        clocks = [max(fewest, ending.arrays.known_of(ending.cut, c.arrays)[1]) for c in whole.mixture
                  if ending.arrays is not None and c.arrays >= 0]
        if clocks:
            best = max(best, (max(clocks) - min(clocks), ARRAYS, ceil((max(clocks) + min(clocks)) / 2)))
        gain, of, edge = best
        if gain < CONVERGED * framed.least / framed.charge.per_clock:
            return ()
        low, high = whole.box.get(of, (0, LONGEST))
        return tuple({**whole.box, of: limits} for limits in ((low, edge), (edge, high)) if limits[0] < limits[1])


def named(names: tuple[str, ...], price: Floats) -> Mapping[str, float]:
    """Prices by resource."""
    return {name: float(value) for name, value in zip(names, price, strict=True) if value > 0}


def frame_prices(framed: Framed, progress: Progress = silent) -> tuple[float, tuple[CutPrices, ...]]:
    """The most that prices prove of one frame on all accelerators, up to what is asked for, and these prices."""
    tree = PriceTree(framed, progress)
    reached = tree.grow(framed.least)
    return reached * (1 - SURE), tree.proof(reached)


def best_charged(graph: Graph, platform: Platform, region: AcceleratedRegion, inside: Graph, blocks: Blocks,
                 kinds: Sequence[Architecture], goal: Goal, limits: SearchLimits, spared: Spared,
                 progress: Progress = silent) -> tuple[JudgedAccelerator, FrameProof]:
    """The accelerator of some kinds for a region that plans charge least for, and what no other is below; `inside` is the region.

    None is sought that saves less than plans must to be better than what is reached: `spared` says how much that is.

    Raises:
        InfeasibleError: none fits.
    """
    (device,), charge = platform.of_kind(Kind.FPGA), Charge.of(goal.value, platform, platform.of_kind(Kind.FPGA)[0])
    first, begun_s = search_of(inside, device, Architecture.FIBHA, blocks), worked()
    like = {False: first, True: search_of(inside, device, Architecture.MONOLITHIC)}
    built, none = ChargedSearch(graph, device, like, charge.per_clock, charge.per_joule), dict[Architecture, str]()
    for kind in sorted(kinds, key=lambda k: k is Architecture.FIBHA):
        progress(f"choose an accelerator: {kind}", 0, 1)
        if kind is not Architecture.FIBHA or built.best is None:  # else there is one
            try:
                built.take(search_of(inside, device, kind, blocks, first).some(), kind)
            except InfeasibleError as reason:
                none[kind] = f"{kind}: {reason}"
    if built.best is None:
        raise InfeasibleError("; ".join(none.values()))
    clock_hz = device.clock_hz or 1.0
    unit, begun = 1.0 if goal is Goal.ENERGY else 1 / clock_hz, accelerator_of(inside, built.best, built.kind)

    def late(design: AcceleratorDesign) -> float:
        board = platform.with_accelerator(device.name, design)
        return _late_s(graph, board, graph.nodes[region.start]) * clock_hz * charge.per_clock

    space = Accelerators(graph, device, kinds, region.start, region.stop)
    wanted = max(HARDLY * built.cost, min(limits.ceiling, built.cost, built.cost + late(begun) - spared(begun) / unit))
    until_s = limits.until_s + worked() - begun_s  # whatever there is to begin with took
    tree = PriceTree(Framed(space, wanted, charge), progress, close=NEAR, until_s=until_s, sketched_s=2 * until_s - worked())
    least = tree.grow(wanted, partial(_built, tree, built))
    design = accelerator_of(inside, built.best, built.kind)
    spare = unit * (built.cost - least + late(design))
    return (JudgedAccelerator(design, built.best, built.cost, least, tuple(none)),
            FrameProof(least * (1 - SURE), tree.proof(least), spare))


def _late_s(graph: Graph, board: Platform, first: Node) -> float:
    """How much longer than the first node of an accelerator its input may take to come, from its first packet on.

    Another accelerator may do more of its work meanwhile.
    """
    (device,), size = board.of_kind(Kind.FPGA), graph.tensors[first.inputs[0]].transfer_bytes
    costs = costs_of(graph, first, None, *ONE, device)
    assert costs is not None, "an accelerator can compute its nodes"
    alone_s, added_s = float(costs.alone_s[0]), min(float(costs.alone_s[0]), float(costs.fused_s[0]))
    ways = [transfer_rates(board, d.name, device.name) for d in board.devices if d.name != device.name]
    return max(0.0, *(float(max(0, size - PACKET_BYTES) * per_byte_s + added_s - alone_s) for _, per_byte_s, _ in ways))


def _built(tree: PriceTree, search: ChargedSearch, box: PricedBox) -> float:
    """What the best accelerator costs, after those were built that a box's prices show."""
    framed, before = tree.framed if box.exact else tree.wide, search.cost
    ending = framed.space.endings[box.number]
    first, graph = framed.phase[framed.space.start], framed.space.graph
    working = {framed.phase[i] for i in framed.phase if graph.nodes[i].op.product}
    for cheapest in dict.fromkeys((c.ranges, c.arrays) for c in box.mixture):
        ranges, arrays = cheapest
        paces = [min(int(framed.last[k]), 2 * int(framed.starts[k])) for k in ranges]
        for phase in range(first + 1, framed.count):  # one that multiplies nothing keeps up with the one before it
            paces[phase] = paces[phase] if phase in working else max(paces[phase], paces[phase - 1])
        config = None if ending.arrays is None else ending.arrays.configs[arrays]
        search.build(ending.cut - framed.space.start, config, paces[first:], box.value)
    root = box
    while root.parent is not None:
        root = root.parent
    if search.cost < before:
        check_bound("prices of accelerators", root.value, search.cost)
    return search.cost
