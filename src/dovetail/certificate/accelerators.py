"""That no accelerator of a stated space has a shorter interval, or takes less for a frame: prices on an FPGA's resources.

An accelerator computes the nodes [start, stop) of a network. Nodes before a cut have engines of their own, those behind it share
arrays; its kinds say which cuts there are. Every resource has a price. Where the cheapest engines of each layer that are fast
enough cost more than all of the FPGA does, no accelerator at that cut is as fast. Wrong prices prove less, and nothing false.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf, isfinite
from typing import Protocol

import numpy as np

from dovetail.certificate.arrays import Arrays, cuts_of
from dovetail.certificate.engines import SLACK, Dedicated, OfferedEngines, front
from dovetail.hardware.shares import Floats
from dovetail.ir import Graph
from dovetail.platform.accelerator import Architecture
from dovetail.platform.device import Device
from dovetail.words import counted, plural

CUT_AT = {Architecture.SESL: "end", Architecture.SEML: "start", Architecture.MONOLITHIC: "start", Architecture.FIBHA: "anywhere"}
"""Where accelerators of each kind are cut. Source: docs/method/accelerators.md."""
NOTHING = -1.0
"""Clocks of a claim that proves nothing: it says which accelerators were weighed, and a plan's must be one of them."""
ROUNDED = 1e-12
"""Relative error of sums of some hundred doubles."""
LONGEST = 1 << 40
"""Clocks that stand for any number of them."""
ARRAYS = -1
"""What limits of a box are called that are of arrays; those of the paces of a phase are called by its number."""

Box = Mapping[int, tuple[int, int]]
"""Some accelerators at a cut: those whose phases have paces, and whose arrays take clocks for a frame, from one number up to
below another."""


@dataclass(frozen=True, slots=True)
class CutPrices:
    """Prices of resources that hold at some cuts, by their place in the list of all; `line` is where they stand."""

    line: int
    first: int
    last: int
    prices: Mapping[str, float]
    box: Box = field(default_factory=dict)
    """The accelerators of which they are; of all where it is empty."""


@dataclass(frozen=True, slots=True)
class AcceleratorClaim:
    """That no accelerator of some kinds for the nodes [start, stop) is below some clocks, and no plan with one below the bound.

    For least energy they are joules. `prices` are those of the division of all other nodes. Where they are `NOTHING`, it says
    only which there are.
    """

    line: int
    kinds: tuple[Architecture, ...]
    start: int
    stop: int
    least: float
    prices: Mapping[str, float]
    cuts: tuple[CutPrices, ...]

    @property
    def proves(self) -> bool:
        return self.least >= 0

    def lines(self) -> list[str]:
        """As a certificate has it."""
        found = [f"form accelerators {','.join(self.kinds)} {self.start} {self.stop}"]
        if not self.proves:
            return found
        found.append(f"least {float(self.least)!r}")
        found += [f"price {float(value)!r} {name}" for name, value in self.prices.items() if value]
        for own in self.cuts:
            found.append(f"cuts {own.first} {own.last}")
            found += [f"{'arrays' if of == ARRAYS else f'phase {of}'} {low} {high}"
                      for of, (low, high) in sorted(own.box.items())]
            found += [f"price {float(value)!r} {name}" for name, value in own.prices.items() if value]
        return found


def accelerator_words(graph: Graph, kinds: Sequence[Architecture], start: int, stop: int, proven: bool) -> str:
    """What a space of accelerators is called in a plan; without a bound on them the fastest alone is weighed."""
    which = "all accelerators" if proven else "the fastest accelerator"
    return (f"{which} of {plural(len(kinds), 'kind')} {', '.join(kinds)} for {counted(stop - start, 'node')} from "
            f"{graph.nodes[start].name} to {graph.nodes[stop - 1].name}")


@dataclass(frozen=True, slots=True)
class Ending:
    """A cut with the arrays behind it; None where all nodes have engines of their own."""

    cut: int
    arrays: Arrays | None


class Accelerators:
    """All accelerators of some kinds for the nodes [start, stop) of a graph on a device."""

    def __init__(self, graph: Graph, device: Device, kinds: Sequence[Architecture], start: int, stop: int) -> None:
        self.graph, self.device, self.kinds, self.start, self.stop = graph, device, tuple(kinds), start, stop
        self.dedicated = Dedicated(graph, device, start, stop)
        self.names = self.dedicated.names

    @cached_property
    def endings(self) -> tuple[Ending, ...]:
        """All cuts, in order; the one array for everything comes last."""
        kinds = {CUT_AT[kind] for kind in self.kinds if kind is not Architecture.MONOLITHIC}
        cuts = [c for c in cuts_of(self.graph, self.start, self.stop) if "anywhere" in kinds
                or (c == self.start and "start" in kinds) or (c == self.stop and "end" in kinds)]
        found = [Ending(c, self.arrays(False) if c < self.stop else None) for c in cuts]
        return (*found, *([Ending(self.start, self.arrays(True))] if Architecture.MONOLITHIC in self.kinds else []))

    def arrays(self, monolithic: bool) -> Arrays:
        return self._monolithic if monolithic else self._several

    @cached_property
    def _monolithic(self) -> Arrays:
        return Arrays(self.graph, self.device, self.start, self.stop, True, self.dedicated.limits)

    @cached_property
    def _several(self) -> Arrays:
        return Arrays(self.graph, self.device, self.start, self.stop, False, self.dedicated.limits)


class Paced:
    """Accelerators that take at most so many clocks between frames."""

    def __init__(self, space: Accelerators, clocks: float) -> None:
        self.space, self.clocks = space, clocks
        self.known: tuple[Floats, list[float]] | None = None

    @cached_property
    def singles(self) -> dict[int, Floats]:
        """Parts of the limits of each node's engines, row by row."""
        own, found = self.space.dedicated, dict[int, Floats]()
        for i in range(own.start, own.stop):
            if i in own.layers:
                found[i] = own.layers[i].within(self.clocks).shares
            else:
                plain = own.plain(i, self.clocks)
                found[i] = np.zeros((0, len(own.names))) if plain is None else plain[None]
        return found

    @cached_property
    def groups(self) -> tuple[tuple[tuple[int, ...], tuple[OfferedEngines, ...]], ...]:
        """Inverted residuals as one engine, those together that share nodes."""
        return tuple((nodes, tuple(e.within(self.clocks) for e in engines)) for nodes, engines in self.space.dedicated.groups)

    def fronts(self, price: Floats) -> list[float]:
        """At every ending, the least that all nodes before the cut cost together."""
        if self.known is not None and np.array_equal(self.known[0], price):
            return self.known[1]
        singles = {i: float((s @ price).min(initial=inf)) for i, s in self.singles.items()}
        groups = [(nodes, {e.members: float((e.shares @ price).min(initial=inf)) for e in engines})
                  for nodes, engines in self.groups]
        self.known = price, front([e.cut for e in self.space.endings], singles, groups, self.space.start)
        return self.known[1]

    def least(self, number: int, price: Floats, enough: float) -> tuple[float, Floats]:
        """What the cheapest accelerator at an ending costs at the least, and parts of the limits of its arrays."""
        ending, before = self.space.endings[number], self.fronts(price)[number]
        none = np.zeros(len(price))
        if ending.arrays is None:
            return before, none
        if before >= enough:  # whatever arrays cost, they do not cost less than nothing
            return before, none
        behind, parts = ending.arrays.fullest(ending.cut, price, self.clocks, enough - before)
        return before + behind, parts

    def shows(self, number: int, price: Floats, box: Box) -> bool:
        """Whether prices show that all accelerators at an ending take longer."""
        most = threshold(price)
        return not box and self.least(number, price, most)[0] > most


def threshold(price: Floats) -> float:
    """What an accelerator within all limits costs no more than; nan where prices are none."""
    total = float(price.sum())
    usable = bool((price >= 0).all()) and isfinite(total) and total > 0
    return total * (1 + SLACK) * (1 + ROUNDED) if usable else float("nan")


class PricedProof(Protocol):
    """What shows by prices that accelerators take so many clocks between frames, or that one frame costs so much."""

    def shows(self, number: int, price: Floats, box: Box) -> bool:
        """Whether no accelerator of a box at an ending is below that."""


def first_unproven(space: Accelerators, cuts: Sequence[CutPrices], least: float, by: PricedProof) -> tuple[int, str] | None:
    """The line and the reason of the first claim that does not show that no accelerator is below so many clocks or joules."""
    shown: dict[int, list[Box]] = {}
    for own in cuts:
        if unknown := [name for name in own.prices if name not in space.names]:
            return own.line, f"a price on {unknown[0]}, which nothing limits"
        if not 0 <= own.first <= own.last < len(space.endings):
            return own.line, f"cuts {own.first} to {own.last} of {len(space.endings)}"
        price = np.array([own.prices.get(name, 0.0) for name in space.names])
        for number in range(own.first, own.last + 1):
            if not by.shows(number, price, own.box):
                cut = space.endings[number].cut
                return own.line, (f"these prices do not prove that accelerators with {counted(cut - space.start, 'node')} before "
                                  f"the cut take {least:,.6g} or more")
            shown.setdefault(number, []).append(own.box)
    missing = next((n for n in range(len(space.endings)) if not covers(shown.get(n, []), {})), None)
    return None if missing is None else (0, f"nothing is said of some accelerators at cut {missing}")


def covers(boxes: Sequence[Box], whole: Box) -> bool:
    """Whether every accelerator of a whole box is in one of some boxes."""
    met = [box for box in boxes if all(low < whole.get(of, (0, LONGEST))[1] and high > whole.get(of, (0, LONGEST))[0]
                                       for of, (low, high) in box.items())]
    for box in met:
        for of, (low, high) in box.items():
            least, most = whole.get(of, (0, LONGEST))
            for edge in (low, high):
                if least < edge < most:  # two halves, of which this box meets one
                    return covers(met, {**whole, of: (least, edge)}) and covers(met, {**whole, of: (edge, most)})
    return bool(met)
