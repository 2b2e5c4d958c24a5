"""Reusable arrays of an accelerator, restated: sizes that docs/method/accelerators.md offers, and what each fills behind a cut.

What an array takes at the least is looked at first, then with its memories of maps, then as it is built: the cost model's words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import floor, inf

import numpy as np

from dovetail.certificate.engines import NEVER
from dovetail.cost.array import Config, block_figures, needs_limit, reason_refused
from dovetail.cost.array_area import SOFT_LOGIC
from dovetail.cost.array_floors import BlockNeeds, Floors, least_clocks, needs_behind
from dovetail.cost.folded import twins_allowed
from dovetail.errors import UnsupportedError
from dovetail.hardware.arrays.layers import ArrayLayers, counts_bits, layers_of
from dovetail.hardware.arrays.program import bank_sizes
from dovetail.hardware.shares import Floats, Ints
from dovetail.ir import AvgPool, Conv, Graph, MaxPool
from dovetail.platform.device import Device
from dovetail.platform.fitted import dhm_model

CHANNELS = (4, 8, 12, 16, 20, 24, 32, 48)
"""Channels worked on at once. Source of all these sizes: docs/method/accelerators.md."""
WORDS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Filters at once, in words of as many channels."""
TAPS = (3, 5, 9)
MAPS = ((0, 2), (1 << 17, 2), (1 << 18, 2), (1 << 17, 1), (1 << 18, 1))
"""Bytes of each memory of maps (0: as many as there are), and frames of the input that are kept."""
QUARTERS = 4
"""Filters of an array may have their products in logic by quarters, where a multiplier makes one."""
MUCH = 1 / 3
"""The part of the memory blocks that all maps must fill for less memory to be on offer."""
MASTER_WIDTH, PORT_LATENCY = 16, 64
"""Bytes wide that a master of external memory is, and clocks until it answers, where the board does not say."""
FLOOR, SKETCHED, EXACT = range(3)
"""How well an array behind a cut is known."""


def port_of(device: Device, word_bytes: int) -> tuple[int, float, int, int]:
    """Bytes of a beat of the device's external memory, bytes per clock, clocks until it answers, and masters.

    `word_bytes` are those of a word of weights: of all masters' width the largest half, quarter, ... that is no wider, or 16.
    """
    clock_hz, stated = device.clock_hz or 1.0, device.parameters
    width, masters = int(stated.get("memory_master_bytes", MASTER_WIDTH)), int(stated.get("memory_masters", 1))
    beat = next(b for b in (width * masters >> k for k in range(12)) if b <= max(word_bytes, MASTER_WIDTH))
    part = beat / (width * masters)
    rate = stated["memory_bytes_per_s"] / clock_hz * part if "memory_bytes_per_s" in stated else float(beat)
    answers = stated.get("memory_latency_s")
    wait = PORT_LATENCY if answers is None else round(answers * clock_hz)
    return beat, min(float(beat), max(16, floor(16 * rate)) / 16), wait, max(1, beat // width)


def arrays_on_offer(graph: Graph, device: Device, start: int, stop: int, monolithic: bool) -> list[Config]:
    """All arrays for the nodes [start, stop) that the device has multipliers or logic for."""
    windows = [n.op.window.kernel for n in graph.nodes[start:stop] if n.op.window is not None
               and (isinstance(n.op, MaxPool | AvgPool) or (isinstance(n.op, Conv) and n.op.groups > 1))]
    model, twins = dhm_model(device.model), twins_allowed(device)
    blocks, each = device.resources.get("dsp", 0.0), model.coefficients["dsp_per_product"]
    logic, found, kernel = device.resources.get(model.logic, 0.0), list[Config](), max(map(max, windows), default=3)
    for inputs, words, taps, (limit, frames) in product(CHANNELS, WORDS, TAPS[-1:] if monolithic else TAPS, MAPS):
        for packed in (False, True) if twins and not monolithic else (False,):
            for quarter in range(QUARTERS + 1) if not (twins or monolithic) else (0,):
                filters, used = inputs * words, min(taps, inputs) if monolithic else taps
                soft = filters * quarter // QUARTERS
                multipliers = inputs * (filters - soft) // (1 + packed) + (0 if monolithic else inputs * used)
                if each * multipliers <= blocks and inputs * soft * SOFT_LOGIC <= logic and bool(soft) == bool(quarter):
                    beat, rate, latency, masters = port_of(device, inputs * filters)
                    found.append(Config(inputs, filters, used, kernel, monolithic, True, beat, rate, latency, frames,
                                        packed, limit, soft, masters=masters))
    return found


@dataclass
class _Known:
    """What is known of all arrays behind a cut: parts of the limits, row by row, and how well."""

    shares: Floats
    level: Ints
    clocks: Floats
    """Of one frame or between frames, at the least; infinite where there are no such arrays."""


class Arrays:
    """Arrays of one kind for the nodes [start, stop) of a graph, behind any cut between."""

    def __init__(self, graph: Graph, device: Device, start: int, stop: int, monolithic: bool, limits: dict[str, float]) -> None:
        self.graph, self.device, self.start, self.stop, self.limits = graph, device, start, stop, limits
        self.names = tuple(sorted(limits))
        self.configs = arrays_on_offer(graph, device, start, stop, monolithic)
        self.known: dict[tuple[int, bool], _Known] = {}
        """By cut, and whether clocks are those of a frame alone."""
        self.behind: dict[int, ArrayLayers | None] = {}
        self.figures: dict[tuple[int, bool, Config], tuple[dict[str, float], int, int] | None] = {}
        self.needs: dict[Config, list[BlockNeeds]] = {}
        self.sketches: dict[tuple[int, Config], dict[str, float] | None] = {}

    def nodes(self, cut: int) -> list[str]:
        """Names of the nodes behind a cut."""
        return [n.name for n in self.graph.nodes[cut:self.stop]]

    def layers(self, cut: int) -> ArrayLayers | None:
        """The layers behind a cut; None where arrays refuse one, or there is none."""
        if cut not in self.behind:
            nodes, self.behind[cut] = self.graph.nodes[cut:self.stop], None
            if nodes and not counts_bits(self.graph) and all(reason_refused(self.graph, n) is None for n in nodes):
                try:
                    found = layers_of(self.graph, self.nodes(cut))
                    self.behind[cut] = found if found.layers else None
                except UnsupportedError:
                    pass
        return self.behind[cut]

    @cached_property
    def _floors(self) -> tuple[ArrayLayers, list[Floors]]:
        """The longest run of layers that arrays can have, and clocks of every array at the least behind each of them."""
        longest = next(layers for cut in range(self.start, self.stop) if (layers := self.layers(cut)) is not None)
        return longest, least_clocks(longest, self.configs)

    def _first(self, cut: int) -> int:
        """The number of the first layer behind a cut among those of the longest run; how many these are where none is.

        A node that is a layer of its own behind the cut may be part of one that begins in front of it.
        """
        behind, layers = set(self.nodes(cut)), self._floors[0].layers
        return next((i for i, layer in enumerate(layers) if layer.node in behind), len(layers))

    def floors(self, cut: int, alone: bool = False) -> Floats:
        """Clocks of every array behind a cut at the least: between frames, or of one `alone`."""
        first, (longest, floors) = self._first(cut), self._floors
        if first == len(longest.layers):
            return np.zeros(len(floors))
        return np.array([(f.alone if alone else f.between)[first] for f in floors])

    @cached_property
    def _kin(self) -> tuple[list[Config], Ints, Floats]:
        """Arrays with all products in multipliers and all maps; which of them each one on offer is, and its products in logic."""
        plain = [replace(config, soft=0, map_bytes=0) for config in self.configs]
        kin = {config: number for number, config in enumerate(dict.fromkeys(plain))}
        return list(kin), np.array([kin[p] for p in plain]), np.array([float(c.soft * c.inputs) for c in self.configs])

    @property
    def kinds(self) -> int:
        """Arrays that differ in more than where products are made and how large memories of maps may be."""
        return len(self._kin[0])

    def _parts(self, resources: Sequence[Mapping[str, float]], moved: Floats) -> Floats:
        """Resources of arrays with every product in a multiplier as parts of the limits, row by row, with some moved to logic."""
        model, each = dhm_model(self.device.model), dhm_model(self.device.model).coefficients["dsp_per_product"]
        amounts = np.array([[own.get(name, 0.0) for name in self.names] for own in resources]).reshape(-1, len(self.names))
        there = np.array([own.get("dsp", 0.0) for own in resources]) >= each * moved  # else nothing behind the cut multiplies
        for name, less in (("dsp", -each * moved * there), (model.logic, SOFT_LOGIC * moved * there)):
            if name in self.names:
                amounts[:, self.names.index(name)] += less
        limits = np.array([self.limits[name] for name in self.names])
        return np.asarray(np.divide(amounts, limits, out=NEVER * (amounts > 0), where=limits > 0))

    def _of(self, cut: int, alone: bool) -> _Known:
        if (cut, alone) not in self.known:
            layers, (kin, of, moved) = self.layers(cut), self._kin
            if layers is None or not kin:
                return self.known.setdefault((cut, alone), _Known(
                    np.zeros((0, len(self.names))), np.zeros(0, dtype=np.int64), np.zeros(0)))
            least = [self._least(cut, layers, own).resources(self.device.model) for own in kin]
            self.known[cut, alone] = _Known(self._parts([least[k] for k in of], moved), np.zeros(len(of), dtype=np.int64),
                                            self.floors(cut, alone))
        return self.known[cut, alone]

    def _least(self, cut: int, layers: ArrayLayers, config: Config) -> BlockNeeds:
        """What arrays need behind a cut at the least; how large memories of maps may be changes nothing of it."""
        plain, first, longest = replace(config, map_bytes=0), self._first(cut), self._floors[0].layers
        if layers.layers != longest[first:]:
            return needs_behind(layers.layers, config)[0]
        if plain not in self.needs:
            self.needs[plain] = needs_behind(longest, plain)
        found = self.needs[plain][first]
        return found if plain == config else replace(found, config=config)

    def offered(self, cut: int, config: Config) -> bool:
        """Whether less memory for maps is on offer: all maps fill much of the board's, and it changes anything."""
        if not config.map_bytes:
            return True
        block = dhm_model(self.device.model).block
        whole = self._sketch(cut, replace(config, soft=0, map_bytes=0, input_buffers=2))
        if whole is None or whole.get(block, 0.0) <= MUCH * self.device.resources.get(block, 0.0):
            return False
        try:
            return needs_limit(self.graph, self.nodes(cut), replace(config, soft=0))
        except UnsupportedError:
            return False

    def _sketch(self, cut: int, config: Config) -> dict[str, float] | None:
        """Resources behind a cut at the least, memories of maps included; None where there are no such arrays."""
        if (cut, config) not in self.sketches:
            layers = self.layers(cut)
            try:
                self.sketches[cut, config] = None if layers is None else self._least(cut, layers, config).resources(
                    self.device.model, bank_sizes(layers, config))
            except UnsupportedError:
                self.sketches[cut, config] = None
        return self.sketches[cut, config]

    def figure(self, cut: int, config: Config, alone: bool) -> tuple[dict[str, float], int, int] | None:
        """Resources of arrays behind a cut with every product in a multiplier, clocks, and steps played; None where none are."""
        key = cut, alone, replace(config, soft=0)
        if key not in self.figures:
            try:
                self.figures[key] = block_figures(self.graph, self.nodes(cut), key[2], self.device, alone)
            except UnsupportedError:
                self.figures[key] = None
        return self.figures[key]

    def _look(self, cut: int, number: int, alone: bool) -> None:
        """Know an array better by one step."""
        known, config = self._of(cut, alone), self.configs[number]
        if known.level[number] == FLOOR:
            found = self._sketch(cut, replace(config, soft=0)) if self.offered(cut, config) else None
        else:
            exact = self.figure(cut, config, alone)
            found = None if exact is None else exact[0]
            known.clocks[number] = inf if exact is None else exact[1]
        if found is None:
            known.clocks[number] = inf
        else:
            known.shares[number] = self._parts([found], np.array([float(config.soft * config.inputs)]))[0]
        known.level[number] += 1

    def fullest(self, cut: int, price: Floats, clocks: float, enough: float) -> tuple[float, Floats]:
        """The least priced parts of arrays behind a cut that may take at most so many clocks between frames, and its parts.

        What it is at the least is given where that is enough; infinity where there are no such arrays.
        """
        none = np.zeros(len(self.names))
        if self.layers(cut) is None:
            return inf, none
        known = self._of(cut, False)
        while len(able := np.flatnonzero(known.clocks <= clocks)):
            values = known.shares[able] @ price
            best = int(able[values.argmin()])
            if known.level[best] == EXACT or not values.min() < enough:
                return float(values.min()), known.shares[best]
            self._look(cut, best, False)
        return inf, none

    def cheapest(self, cut: int, price: Floats, enough: float, per_clock: float, per_part: Floats,
                 within: tuple[int, int], known_to: Callable[[], int] = lambda: EXACT) -> tuple[float, int]:
        """The least of what a frame on arrays behind a cut costs and their priced parts, and which arrays these are (-1: none).

        A clock costs so much, and so much more by the parts that are filled. Their clocks are some number up to below another.
        Arrays are looked at until they are known so well; before, what they are at the least does for them.
        """
        if self.layers(cut) is None or not len(self.configs):
            return inf, -1
        known, (low, high) = self._of(cut, True), within
        while True:
            clocks = np.where(known.clocks < high, np.maximum(known.clocks, low), inf)
            clocks[(known.level == EXACT) & (known.clocks < low)] = inf
            values = np.where(np.isfinite(clocks), clocks * (per_clock + known.shares @ per_part) + known.shares @ price, inf)
            best = int(values.argmin())
            if not values[best] < inf:
                return inf, -1
            if known.level[best] >= known_to() or not values[best] < enough:
                return float(values[best]), best
            self._look(cut, best, True)

    def known_of(self, cut: int, number: int) -> tuple[Config, float, Floats]:
        """Arrays behind a cut, with clocks of one frame and parts of the limits as far as they are known."""
        known = self._of(cut, True)
        return self.configs[number], float(known.clocks[number]), known.shares[number]


def cuts_of(graph: Graph, start: int, stop: int) -> list[int]:
    """Numbers from `start` to `stop` before which exactly one tensor is handed on: there engines may give way to arrays."""
    at = {t: 0 for t in graph.inputs} | {n.output: i + 1 for i, n in enumerate(graph.nodes)}
    until = {t: max([i for i, n in enumerate(graph.nodes) if t in n.inputs], default=-1) for t in at}
    until |= dict.fromkeys(graph.outputs, len(graph.nodes))
    return [k for k in range(start, stop + 1) if sum(at[t] <= k <= until[t] for t in at) == 1]

