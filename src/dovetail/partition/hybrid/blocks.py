"""Configurations of reusable arrays for the nodes behind a cut, priced, the useless ones left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import product, takewhile
from math import inf, prod

import numpy as np

from dovetail.cost import Floats
from dovetail.cost.folded import twins_allowed
from dovetail.cost.reusable import Config, block_cost, needs_limit, reason_refused
from dovetail.cost.reusable_area import SOFT_LOGIC
from dovetail.errors import UnsupportedError
from dovetail.ir import AvgPool, Conv, Gemm, Graph, MaxPool, Node
from dovetail.partition.hybrid.choice import undominated
from dovetail.partition.hybrid.search import BlockOption
from dovetail.platform.device import Device
from dovetail.platform.fitted import dhm_model

WIDTHS = (4, 8, 12, 16, 20, 24, 32, 48)
"""Channels worked on at once that are tried."""
FILTER_WORDS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Filters worked on at once, in words of as many channels."""
TAPS = (3, 5, 9)
"""Taps of a depthwise window worked on at once."""
MAP_BYTES = (0, 1 << 18, 1 << 17)
"""Bytes that a memory of maps may have, 0 standing for all that there are: larger maps then lie in external memory.

The second one is also offered with room for one frame of the input instead of two."""
SOFT_PARTS = (0, 1, 2, 3, 4)
"""Quarters of the array's filters whose products are made in logic, where multipliers make one product."""
SHORT = 1 / 3
"""Share of the device's memory blocks above which a block is also offered with less memory."""
MEMORY_RATE, MEMORY_LATENCY = "memory_bytes_per_s", "memory_latency_s"
PORT_BYTES = 16
LATENCY_CLOCKS = 64


def memory_port(device: Device) -> tuple[int, int]:
    """Whole bytes per clock that the device's memory delivers, and clocks from a request to its first beat."""
    assert device.clock_hz is not None, "every FPGA has a clock"
    rate = device.parameters.get(MEMORY_RATE)
    wait = device.parameters.get(MEMORY_LATENCY)
    per_clock = PORT_BYTES if rate is None else max(1, int(rate / device.clock_hz))
    return min(PORT_BYTES, per_clock), LATENCY_CLOCKS if wait is None else round(wait * device.clock_hz)


def configurations(graph: Graph, device: Device, monolithic: bool) -> list[Config]:
    """Arrays of all sizes that the device has multipliers or logic for, with all their maps on the chip or with less memory."""
    rate, latency = memory_port(device)
    kernel = max((max(n.op.window.kernel) for n in graph.nodes
                  if isinstance(n.op, MaxPool | AvgPool) or (isinstance(n.op, Conv) and n.op.groups > 1)), default=3)
    most = device.resources.get("dsp", 0.0)
    logic = device.resources.get(dhm_model(device.model).logic, 0.0)
    found = []
    packings = (False, True) if twins_allowed(device) and not monolithic else (False,)
    parts = (0,) if twins_allowed(device) or monolithic else SOFT_PARTS
    memories = [*((limit, 2) for limit in MAP_BYTES), *((limit, 1) for limit in MAP_BYTES[1:2])]
    for inputs, words, taps, packed, part, (limit, frames) in product(WIDTHS, FILTER_WORDS, TAPS, packings, parts, memories):
        used, outputs = min(taps, inputs) if monolithic else taps, inputs * words
        soft = outputs * part // SOFT_PARTS[-1]
        blocks = inputs * (outputs - soft) // (2 if packed else 1) + (0 if monolithic else inputs * used)
        if (blocks <= most and inputs * soft * SOFT_LOGIC <= logic and (bool(soft) == bool(part))
                and (not monolithic or taps == TAPS[-1])):
            found.append(Config(inputs, outputs, used, kernel, monolithic, port_bytes=PORT_BYTES, bandwidth_bytes=rate,
                                latency_clocks=latency, packed=packed, input_buffers=frames, map_bytes=limit, soft=soft))
    return found


class Blocks:
    """Configurations for the nodes behind a cut, priced when they are asked for and only if they may be fast enough."""

    def __init__(self, graph: Graph, device: Device, monolithic: bool = False) -> None:
        self.graph, self.device = graph, device
        self.names = tuple(sorted(device.resources))
        self.configs = configurations(graph, device, monolithic)
        refused = [i for i, node in enumerate(graph.nodes) if reason_refused(graph, node) is not None]
        self.first = refused[-1] + 1 if refused else 0
        """The first node such that it and all behind it can run on arrays."""
        plain = [replace(c, map_bytes=0, soft=0, input_buffers=2) for c in self.configs]
        floors = {c: _floors(graph, self.first, c) for c in set(plain)}
        self.floors = [floors[c] for c in plain]
        self.products = [c.inputs * (c.outputs - c.soft) // (2 if c.packed else 1) for c in self.configs]
        self.priced: dict[tuple[int, Config], BlockOption | None] = {}

    def promising(self, cut: int, multipliers: float = inf) -> Iterator[tuple[float, Callable[[], BlockOption | None]]]:
        """Configurations of at most so many multipliers, those first that may be fastest: clocks at the least, and the price."""
        if cut < self.first:
            return
        for c in sorted(range(len(self.configs)), key=lambda c: self.floors[c][cut]):
            if self.products[c] <= multipliers:
                yield float(self.floors[c][cut]), partial(self._priced, cut, self.configs[c])

    def __call__(self, cut: int, most_clocks: float) -> Sequence[BlockOption]:
        """Configurations that may finish the nodes behind a cut within so many clocks, without those that others undercut."""
        near = takewhile(lambda found: found[0] <= most_clocks, self.promising(cut))
        found = [option for _, price in near if (option := price()) is not None]
        if not found:
            return ()
        table = np.array([[o.interval, o.latency, *o.needs] for o in found])
        return [found[k] for k in undominated(table)]

    def _priced(self, cut: int, config: Config) -> BlockOption | None:
        if (cut, config) not in self.priced:
            self.priced[cut, config] = self._soft(cut, config) if config.soft else self._option(cut, config)
        return self.priced[cut, config]

    def _soft(self, cut: int, config: Config) -> BlockOption | None:
        """The same arrays with some products in logic, which changes no clock."""
        hard = self._priced(cut, replace(config, soft=0))
        if hard is None:
            return None
        moved, logic = config.soft * config.inputs, dhm_model(self.device.model).logic
        less = {"dsp": -float(moved), logic: SOFT_LOGIC * moved}
        needs = tuple(amount + less.get(name, 0.0) for name, amount in zip(self.names, hard.needs, strict=True))
        return replace(hard, configuration=config, needs=needs)

    def _option(self, cut: int, config: Config) -> BlockOption | None:
        nodes = [n.name for n in self.graph.nodes[cut:]]
        try:
            if config.map_bytes and not self._short(cut, config):
                return None
            if not needs_limit(self.graph, nodes, config):
                return None
            cost = block_cost(self.graph, nodes, config, self.device)
        except UnsupportedError:
            return None
        needs = dict(cost.resources)
        return BlockOption(config, float(cost.interval_clocks), float(cost.latency_clocks),
                           tuple(needs.get(r, 0.0) for r in self.names), float(cost.offchip_bytes))


    def _short(self, cut: int, config: Config) -> bool:
        """Whether the block takes much of the device's memory with all its maps on the chip."""
        whole = self._priced(cut, replace(config, map_bytes=0, input_buffers=2))
        if whole is None:
            return True
        block = dhm_model(self.device.model).block
        return dict(zip(self.names, whole.needs, strict=True)).get(block, 0.0) > SHORT * self.device.resources.get(block, 0.0)


def _floors(graph: Graph, first: int, config: Config) -> Floats:
    """Clocks that the nodes behind every cut take at least: those in which the busiest array or the memory port is at work."""
    work = np.zeros((3, len(graph.nodes) + 1))
    for index, node in enumerate(graph.nodes[first:], first):
        if not isinstance(node.op, Conv | Gemm):
            continue
        weights = graph.constants[node.params[0]].array
        outputs = prod(graph.shape(node.output)[2:])
        channels = weights.shape[1]
        groups = node.op.groups if isinstance(node.op, Conv) else 1
        depthwise = channels == 1 and groups > 1
        if depthwise:
            work[1, index] = config.words(weights.shape[0]) * outputs
        else:
            filters = -(-weights.shape[0] // config.outputs) if groups == 1 else weights.shape[0] / config.outputs
            words = config.words(channels) if groups == 1 else channels / config.inputs
            work[0, index] = filters * outputs * prod(weights.shape[2:]) * words
        work[2, index] = weights.size / config.bandwidth_bytes
    behind = np.cumsum(work[:, ::-1], axis=1)[:, ::-1]
    engines = behind[0] + behind[1] if config.monolithic else np.maximum(behind[0], behind[1])
    return np.asarray(np.maximum(engines, behind[2]), dtype=np.float64)


def multiplications_of(graph: Graph, nodes: Iterable[Node]) -> int:
    """Multiply-adds of a frame."""
    return sum(prod(graph.shape(n.output)) * prod(graph.constants[n.params[0]].array.shape[1:])
               for n in nodes if n.params and graph.constants[n.params[0]].array.ndim > 1)
