"""Configurations of reusable arrays for the nodes behind a cut, priced, the useless ones left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from math import inf
from typing import NamedTuple

import numpy as np

from dovetail.cost import Floats
from dovetail.cost.array import Config, block_area, block_interval, block_latency, block_steps, needs_limit, reason_refused
from dovetail.cost.array_area import SOFT_LOGIC
from dovetail.cost.array_floors import BlockNeeds, Floors, least_clocks, least_resources, needs_behind
from dovetail.cost.clocks import ARRAYS_OVER, OUTSIDE_OVER
from dovetail.cost.folded import twins_allowed
from dovetail.errors import UnsupportedError
from dovetail.hardware.arrays.layers import RATE_STEPS, ArrayLayers, counted_values, counts_bits, layers_of
from dovetail.hardware.arrays.popcount import PAIR_LOGIC
from dovetail.hardware.arrays.program import bank_sizes
from dovetail.ir import AvgPool, Coded, Conv, Graph, MaxPool
from dovetail.partition.accelerator.choice import Room, undominated
from dovetail.partition.accelerator.frame_bound import ArrayOptions
from dovetail.partition.effort import spend
from dovetail.platform.device import Device
from dovetail.platform.fitted import dhm_model

WIDTHS = (4, 8, 12, 16, 20, 24, 32, 48)
"""Channels worked on at once that are tried. Chosen, not measured."""
FILTER_WORDS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Filters worked on at once, in words of as many channels. Chosen, not measured."""
COUNTED_WIDTHS = (8, 16, 32, 48, 64, 128)
"""Channels worked on at once that are tried where bits are counted. Chosen, not measured."""
COUNTED_WORDS = (1, 2, 4, 8)
"""Filters worked on at once there, in words of as many channels. Chosen, not measured."""
WEIGHT_PLANES = (4,)
"""Planes of weights counted at once that are tried beside as many as codes have. Chosen, not measured."""
INPUT_PLANES = (4, 8)
"""The same of inputs: more of them make plain layers of a network faster. Chosen, not measured."""
TAPS = (3, 5, 9)
"""Taps of a depthwise window worked on at once. Chosen: rows of windows of 3 and 5, and a whole window of 3."""
MAP_BYTES = (0, 1 << 17, 1 << 18)
"""Bytes that a memory of maps may have, 0 standing for all that there are:

larger maps then lie in external memory. Those are also offered with room for one frame of the input instead of two. Chosen, not
measured.
"""
SOFT_PARTS = (0, 1, 2, 3, 4)
"""Quarters of the array's filters whose products are made in logic, where multipliers make one product. Chosen: all quarters."""
FEW_CUTS = 8
"""Cuts of which it is found out together what arrays behind them need at the least. Chosen, not measured."""
SHORT = 1 / 3
"""Share of the device's memory blocks above which a block is also offered with less memory. Chosen, not measured."""
FAR_TOO_MUCH = 1e18
"""Of every resource, for what cannot be built."""
PORT_BYTES = 16
"""Bytes wide that a master of external memory is where the board does not say, and the port at the least. Chosen: 128 bits."""
LATENCY_CLOCKS = 64
"""Clocks until external memory answers. Chosen, not measured."""


class MemorySizes(NamedTuple):
    """The port to external memory of an array: sizes as `Config` has them."""

    port_bytes: int
    bandwidth_bytes: float
    latency_clocks: int
    masters: int


def memory_port(device: Device, row_bytes: int) -> MemorySizes:
    """The port of an array whose words of weights have so many bytes: all masters of the device's memory, or fewer.

    A port wider than such a word would mostly carry filling. Fewer masters have their part of the rate.
    """
    assert device.clock_hz is not None, "every FPGA has a clock"
    known = device.parameters
    each, most = int(known.get("memory_master_bytes", PORT_BYTES)), int(known.get("memory_masters", 1))
    width = whole = each * most
    while width > max(PORT_BYTES, row_bytes):
        width //= 2
    rate = known.get("memory_bytes_per_s", whole * device.clock_hz) / device.clock_hz * width / whole
    steps = max(RATE_STEPS, min(int(rate * RATE_STEPS), width * RATE_STEPS))
    wait = known.get("memory_latency_s")
    return MemorySizes(width, steps / RATE_STEPS, LATENCY_CLOCKS if wait is None else round(wait * device.clock_hz),
                       max(1, width // each))


def configurations(graph: Graph, device: Device, monolithic: bool) -> list[Config]:
    """Arrays of all sizes that the device has multipliers or logic for, with all their maps on the chip or with less memory."""
    kernel = max((max(n.op.window.kernel) for n in graph.nodes
                  if isinstance(n.op, MaxPool | AvgPool) or (isinstance(n.op, Conv) and n.op.groups > 1)), default=3)
    model = dhm_model(device.model)
    most, each = device.resources.get("dsp", 0.0), model.coefficients["dsp_per_product"]
    logic = device.resources.get(model.logic, 0.0)
    found = []
    packings = (False, True) if twins_allowed(device) and not monolithic else (False,)
    parts = (0,) if twins_allowed(device) or monolithic else SOFT_PARTS
    memories = [*((limit, 2) for limit in MAP_BYTES), *((limit, 1) for limit in MAP_BYTES[1:])]
    for inputs, words, taps, packed, part, (limit, frames) in product(WIDTHS, FILTER_WORDS, TAPS, packings, parts, memories):
        used, outputs = min(taps, inputs) if monolithic else taps, inputs * words
        soft = outputs * part // SOFT_PARTS[-1]
        blocks = inputs * (outputs - soft) // (2 if packed else 1) + (0 if monolithic else inputs * used)
        if (each * blocks <= most and inputs * soft * SOFT_LOGIC <= logic and (bool(soft) == bool(part))
                and (not monolithic or taps == TAPS[-1])):
            port = memory_port(device, inputs * outputs)
            found.append(Config(inputs, outputs, used, kernel, monolithic, packed=packed, input_buffers=frames, map_bytes=limit,
                                soft=soft, **port._asdict()))
    return found


def counting(graph: Graph, device: Device, monolithic: bool) -> list[Config]:
    """Arrays that count bits, of all sizes that the device has logic for: as many planes at once as codes have, or more.

    Values lie in memory in the bits of the widest, or in fewer where what is wider may be left to dedicated engines. With pools
    there are two arrays, so that none is monolithic.
    """
    pools = [max(n.op.window.kernel) for n in graph.nodes if isinstance(n.op, MaxPool)]
    if monolithic and pools:
        return []
    logic, most = device.resources.get(dhm_model(device.model).logic, 0.0), device.resources.get("dsp", 0.0)
    coded = [n.op for n in graph.nodes if isinstance(n.op, Coded)]
    weights = sorted({max([1, *(op.weight_bits for op in coded)]), *WEIGHT_PLANES})
    inputs = sorted({max([1, *(op.input_bits for op in coded)]), *INPUT_PLANES})
    widest, steps = counted_values(graph)
    sizes = sorted({t.scheme.bits for t in graph.tensors.values() if t.scheme is not None and t.scheme.bits <= widest})
    memories = [*((limit, 2) for limit in MAP_BYTES), *((limit, 1) for limit in MAP_BYTES[1:])]
    found = []
    for channels, words, w, a, bits, (limit, frames) in product(COUNTED_WIDTHS, COUNTED_WORDS, weights, inputs, sizes, memories):
        pairs = channels * channels * words * w * a
        if PAIR_LOGIC * pairs <= logic and channels * w * a <= most and (not limit or channels * bits % 8 == 0):
            port = memory_port(device, channels * channels * words * w // 8)
            found.append(Config(channels, channels * words, kernel=max([3, *pools]), input_buffers=frames, map_bytes=limit,
                                weight_planes=w, input_planes=a, value_bits=bits, thresholds=steps, **port._asdict()))
    return found


@dataclass(frozen=True, slots=True)
class BlockOption:
    """A configuration of reusable arrays for the nodes behind a cut: its area, and clocks, found out when they are asked for."""

    configuration: Config
    needs: tuple[float, ...]
    offchip_bytes: float
    between: Callable[[], float]
    alone: Callable[[], float]

    @property
    def interval(self) -> float:
        """Clocks between frames."""
        return self.between()

    @property
    def latency(self) -> float:
        """Clocks of one frame."""
        return self.alone()


@dataclass(frozen=True, slots=True)
class Offer:
    """A configuration before it is priced: clocks and resources at the least, and the price where it is known."""

    clocks: float
    needs: tuple[float, ...]
    known: BlockOption | None
    price: Callable[[float], BlockOption | None]
    """The whole price; None where it cannot be built, or where single frames take at least so many clocks."""
    kin: Config
    """The same for all whose prices follow from one."""
    number: int
    """Among all configurations."""


class Blocks:
    """Configurations for the nodes behind a cut, priced when they are asked for and only if they may be fast and small enough."""

    def __init__(self, graph: Graph, device: Device, monolithic: bool = False) -> None:
        self.graph, self.device = graph, device
        self.names = tuple(sorted(device.resources))
        self.counts = counts_bits(graph)
        self.configs = counting(graph, device, monolithic) if self.counts else configurations(graph, device, monolithic)
        self.kin = [replace(c, soft=0) for c in self.configs]
        self.first, self.layers = _reusable(graph, self.counts)
        self.priced: dict[tuple[int, Config], BlockOption | None] = {}
        self.latencies: dict[tuple[int, Config], float] = {}
        self.intervals: dict[tuple[int, Config], float] = {}
        """Clocks of one frame and between frames, inf where there is no such block, of what was played."""
        self.least: dict[int, Floats] = {}
        self.needs: dict[Config, list[BlockNeeds]] = {}
        self.orders: dict[tuple[int, bool], list[int]] = {}
        self.sketches: dict[tuple[int, Config], tuple[float, ...]] = {}
        self.useful: dict[tuple[int, Config], bool] = {}
        self.behind: dict[int, ArrayLayers] = {}

    @cached_property
    def floors(self) -> list[Floors]:
        """For every configuration, what clocks of the block that begins with each layer are at the least."""
        found = [] if self.layers is None else least_clocks(self.layers, self.configs)
        spend("sketches", 0, 0 if self.layers is None else len(found) * len(self.layers.layers))
        return found

    def _clocks(self, cut: int, alone: bool) -> list[float]:
        """Behind a cut: clocks of every configuration at the least, between frames or of one `alone`."""
        at = self.first_behind(cut)
        return [(f.alone if alone else f.between)[at] for f in self.floors]

    def first_behind(self, cut: int) -> int:
        """The number of the first layer behind a cut; of layers, where nothing behind it computes."""
        assert self.layers is not None
        later = {node.name for node in self.graph.nodes[cut:]}
        return next((i for i, layer in enumerate(self.layers.layers) if layer.node in later), len(self.layers.layers))

    def _least(self, cut: int) -> Floats:
        """Behind a cut: resources of every configuration at the least, row by row; `_offer` puts in what it finds out."""
        if cut not in self.least:
            assert self.layers is not None
            at, known = self.first_behind(cut), dict[Config, dict[str, float]]()
            rows = []
            for config in self.configs:
                plain = replace(config, soft=0, map_bytes=0)
                if plain not in self.needs:
                    self.needs[plain] = needs_behind(self.layers.layers, plain)
                if plain not in known:
                    known[plain] = self.needs[plain][at].resources(self.device.model)
                rows.append(self._moved(tuple(known[plain].get(r, 0.0) for r in self.names), config))
            self.least[cut] = np.array(rows).reshape(-1, len(self.names))
            spend("sketches", len(known), len(known) * len(self.layers.layers[at:]))
        return self.least[cut]

    def _order(self, cut: int, alone: bool) -> list[int]:
        """Configurations behind a cut, those first that may be fastest."""
        if (cut, alone) not in self.orders:
            clocks = self._clocks(cut, alone)
            self.orders[cut, alone] = sorted(range(len(clocks)), key=clocks.__getitem__)
        return self.orders[cut, alone]

    def least_clocks(self, cut: int, alone: bool = False) -> float:
        """Clocks that all configurations behind a cut take at the least, inf where there are none or nothing computes."""
        if self.layers is None or cut < self.first or cut >= len(self.graph.nodes):
            return inf
        return min(self._clocks(cut, alone), default=inf) if self.first_behind(cut) < len(self.layers.layers) else inf

    def least_needs(self, cut: int) -> Floats:
        """Resources of all configurations behind a cut, at the least, row by row; none where nothing computes there."""
        if self.layers is None or cut < self.first or self.first_behind(cut) == len(self.layers.layers):
            return np.zeros((0, len(self.names)))
        return self._least(cut)

    def room_for_any(self, cut: int, room: Room) -> bool:
        """Whether there may be room for a configuration behind a cut."""
        needs = self.least_needs(cut)
        return bool(len(needs)) and bool(room.holds(needs).any())

    def surely(self, clocks: float) -> float:
        """Clocks that the hardware takes at the least where the model says so many."""
        outside = any(self.useful.values())
        return clocks * (1 - OUTSIDE_OVER) if outside else max(0.0, clocks - ARRAYS_OVER)

    def columns(self, cuts: Sequence[int], most_clocks: float) -> ArrayOptions:
        """Configurations behind any of some cuts that no other undercuts: resources and clocks of each at the least.

        Behind one of many cuts it is one that needs no resources and is as fast as any.
        """
        able = [cut for cut in cuts if self.least_clocks(cut, alone=True) <= most_clocks]
        if not able:
            return ArrayOptions(np.zeros((0, len(self.names))), np.zeros(0), np.zeros(0))
        at = [self.first_behind(cut) for cut in able]
        clocks = np.array([(min(f.alone[i] for i in at), min(f.after[i] for i in at)) for f in self.floors])
        if len(able) > FEW_CUTS:
            return ArrayOptions(np.zeros((1, len(self.names))), *clocks.min(axis=0)[:, None])
        table = np.column_stack([np.minimum.reduce([self._least(cut) for cut in able]), clocks])
        table = table[(table[:, -2] <= most_clocks) & (table[:, 0] < FAR_TOO_MUCH)]
        table = table[undominated(table)]
        return ArrayOptions(table[:, :-2], table[:, -2], table[:, -1])

    def effort(self, cut: int, most_clocks: float) -> int:
        """Layers that would be played to price all configurations that may take at most so many clocks."""
        if self.layers is None or cut < self.first:
            return 0
        behind = len(self.layers.layers) - self.first_behind(cut)
        return behind * sum(clocks <= most_clocks for clocks in self._clocks(cut, False)) if behind else 0

    def promising(self, cut: int, room: Room | None = None, most_clocks: float = inf,
                  alone: bool = False) -> Iterator[Offer]:
        """Configurations that there may be room for, those first that may be fastest."""
        if self.layers is None or cut < self.first or self.first_behind(cut) == len(self.layers.layers):
            return
        needs, clocks = self._least(cut), self._clocks(cut, alone)
        able = np.ones(len(needs), dtype=np.bool_) if room is None else room.holds(needs)
        for c in self._order(cut, alone):
            if clocks[c] > most_clocks:
                return
            if able[c] and (offer := self._offer(cut, c, clocks[c], room)) is not None:
                yield offer

    def _offer(self, cut: int, number: int, clocks: float, room: Room | None) -> Offer | None:
        """A configuration with what is known of it; None where it cannot be built or there is no room or no use for it."""
        config, kin = self.configs[number], self.kin[number]
        priced = (cut, kin) in self.priced
        known = self._priced(cut, config) if priced else None
        if (priced and known is None) or not self._useful(cut, kin):
            self.least[cut][number] = FAR_TOO_MUCH
            return None
        least = self._sketched(cut, config, kin) if known is None else known.needs
        self.least[cut][number] = least
        if room is not None and not room.holds(self.least[cut][number:number + 1])[0]:
            return None
        return Offer(clocks, least, known, partial(self._priced, cut, config), kin, number)

    def _sketched(self, cut: int, config: Config, plain: Config) -> tuple[float, ...]:
        """Resources of a configuration behind a cut, at the least, with its memories of maps; `plain` has nothing in logic."""
        if (cut, plain) not in self.sketches:
            try:
                if cut not in self.behind:
                    self.behind[cut] = layers_of(self.graph, self._nodes(cut), self.counts)
                layers = self.behind[cut]
                needs = least_resources(layers.layers, plain, self.device.model, bank_sizes(layers, plain))
            except UnsupportedError:
                needs = dict.fromkeys(self.names, FAR_TOO_MUCH)
            self.sketches[cut, plain] = tuple(needs.get(r, 0.0) for r in self.names)
            spend("sketches", 1, len(self.graph.nodes) - cut)
        return self._moved(self.sketches[cut, plain], config)

    def __call__(self, cut: int, most_clocks: float) -> Sequence[BlockOption]:
        """Configurations that finish the nodes behind a cut within so many clocks, without those that others undercut."""
        near = self.promising(cut, None, most_clocks)
        found = [option for offer in near if (option := offer.price(inf)) is not None and option.interval <= most_clocks]
        if not found:
            return ()
        table = np.column_stack([[o.interval for o in found], [o.latency for o in found], np.array([o.needs for o in found])])
        return [found[k] for k in undominated(table)]

    def option(self, cut: int, config: Config) -> BlockOption | None:
        """A configuration behind a cut with its price; None where it cannot be built."""
        return self._priced(cut, config)

    def _priced(self, cut: int, config: Config, less_than: float = inf) -> BlockOption | None:
        """The price; None where there is no such block, or one frame takes as many clocks."""
        if (cut, config) not in self.priced:
            if less_than < inf and self._latency(cut, config) >= less_than:
                return None
            self.priced[cut, config] = self._soft(cut, config) if config.soft else self._option(cut, config)
        return self.priced[cut, config]

    def _moved(self, needs: tuple[float, ...], config: Config) -> tuple[float, ...]:
        """What arrays need once some of their products are made in logic."""
        moved, model = config.soft * config.inputs, dhm_model(self.device.model)
        hard = model.coefficients["dsp_per_product"] * moved
        if hard > dict(zip(self.names, needs, strict=True)).get("dsp", 0.0):  # there is nothing to multiply behind the cut
            return needs
        less = {"dsp": -hard, model.logic: SOFT_LOGIC * moved}
        return tuple(amount + less.get(name, 0.0) for name, amount in zip(self.names, needs, strict=True))

    def _soft(self, cut: int, config: Config) -> BlockOption | None:
        """The same arrays with some products in logic, which changes no clock."""
        hard = self._priced(cut, replace(config, soft=0))
        return None if hard is None else replace(hard, configuration=config, needs=self._moved(hard.needs, config))

    def _latency(self, cut: int, config: Config) -> float:
        """Clocks of one frame: the same however products are made in logic, and however many frames of the input have room."""
        return self._played(self.latencies, block_latency, cut, replace(config, soft=0, input_buffers=1))

    def _interval(self, cut: int, config: Config) -> float:
        """Clocks between frames."""
        return self._played(self.intervals, block_interval, cut, replace(config, soft=0))

    def _played(self, known: dict[tuple[int, Config], float], play: Callable[[Graph, Sequence[str], Config], int], cut: int,
                config: Config) -> float:
        if (cut, config) not in known:
            try:
                known[cut, config] = float(play(self.graph, self._nodes(cut), config))
                spend("plays", 1, block_steps(self.graph, self._nodes(cut), config))
            except UnsupportedError:
                known[cut, config] = inf
        return known[cut, config]

    def _nodes(self, cut: int) -> list[str]:
        return [n.name for n in self.graph.nodes[cut:]]

    def _useful(self, cut: int, config: Config) -> bool:
        """Whether a limit on memories of maps, where there is one, is any use for the nodes behind a cut."""
        if config.map_bytes and (cut, config) not in self.useful:
            try:
                self.useful[cut, config] = self._short(cut, config) and needs_limit(self.graph, self._nodes(cut), config)
            except UnsupportedError:
                self.useful[cut, config] = False
        return not config.map_bytes or self.useful[cut, config]

    def _option(self, cut: int, config: Config) -> BlockOption | None:
        try:
            needs, moved_bytes = block_area(self.graph, self._nodes(cut), config, self.device)
            spend("plays", 1, block_steps(self.graph, self._nodes(cut), config))
        except UnsupportedError:
            return None
        return BlockOption(config, tuple(needs.get(r, 0.0) for r in self.names), float(moved_bytes),
                           partial(self._interval, cut, config), partial(self._latency, cut, config))

    def _short(self, cut: int, config: Config) -> bool:
        """Whether the block takes much of the device's memory with all its maps on the chip."""
        plain = replace(config, map_bytes=0, input_buffers=2)
        whole = self._sketched(cut, plain, plain)
        block = dhm_model(self.device.model).block
        return bool(dict(zip(self.names, whole, strict=True)).get(block, 0.0) > SHORT * self.device.resources.get(block, 0.0))


def _reusable(graph: Graph, counts: bool) -> tuple[int, ArrayLayers | None]:
    """The first cut such that all nodes behind it can run on arrays, with their layers; None where there is none."""
    refused = [i for i, node in enumerate(graph.nodes) if reason_refused(graph, node, counts) is not None]
    first = refused[-1] + 1 if refused else 0
    for cut in cut_points(graph):
        if first <= cut < len(graph.nodes):
            try:
                return cut, layers_of(graph, [n.name for n in graph.nodes[cut:]], counts)
            except UnsupportedError:
                continue
    return len(graph.nodes), None


def cut_points(graph: Graph) -> tuple[int, ...]:
    """Counts k, rising from 0 to all nodes, such that nodes[:k] hand exactly one tensor to nodes[k:].

    There a network can be handed from one kind of engine to another. At the ends the tensor is the graph's only input or output;
    a graph with several of them is not cut there.
    """
    born = {tensor: 0 for tensor in graph.inputs}
    dies: dict[str, int] = {}
    for index, node in enumerate(graph.nodes):
        born[node.output] = index + 1
        for tensor in node.inputs:
            dies[tensor] = index
    count = len(graph.nodes)
    for tensor in graph.outputs:
        dies[tensor] = count
    alive = [0] * (count + 1)
    for tensor, start in born.items():
        for k in range(start, dies.get(tensor, start - 1) + 1):
            alive[k] += 1
    return tuple(k for k in range(count + 1) if alive[k] == 1)
