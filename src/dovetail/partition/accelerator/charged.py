"""Accelerators built at paces of their phases, and what plans charge for a frame of them.

Prices on resources say at which paces, and with which arrays, an accelerator may cost least (`dovetail.accelerator_prices`). Near
these paces whole engines are chosen by an integer program: those that fit for a short frame, those that take least for joules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, sqrt

import numpy as np

from dovetail.cost import Floats, costs_of
from dovetail.cost.array import Config
from dovetail.cost.folded import layer_pace
from dovetail.cost.power import power_w
from dovetail.hardware.scans import phases_of
from dovetail.ir import Conv, Gemm, Graph
from dovetail.partition.accelerator.architecture import accelerator_of
from dovetail.partition.accelerator.blocks import BlockOption
from dovetail.partition.accelerator.choice import Joint, least_cost, least_fill
from dovetail.partition.accelerator.dedicated import ONE, Engines, Fused, direct_needs, engines_within, expect_engines
from dovetail.partition.accelerator.search import AcceleratorSearch, FoundAccelerator
from dovetail.partition.effort import spend
from dovetail.platform.accelerator import AcceleratorDesign, Architecture
from dovetail.platform.device import Device
from dovetail.platform.fitted import dhm_model

SLOWER = (1.0, 1.002, 1.005, 1.01, 1.02, 1.04, 1.08, 1.15, 1.3)
"""Times the paces that prices say: at the first of them at which whole engines fit they are built. Chosen, not measured."""
NEAR = 1.005
"""Ratio of two times the paces that need not be told apart. Chosen, not measured."""
FASTER = (1, 2, 4, 8, 16)
"""Parts of a pace at which engines are offered where joules count: faster ones may take less. Chosen, not measured."""


def charged(graph: Graph, device: Device, design: AcceleratorDesign) -> tuple[float, float]:
    """Clocks and joules of a frame as plans charge them, above those of an idle board."""
    assert device.clock_hz is not None
    built = replace(device, accelerator=design)
    inside = [node for node in graph.nodes if design.has(node.name)]
    costs = [costs_of(graph, node, None, *ONE, built) for node in inside]
    spend("passages", 1, len(inside))
    seconds = sum(float((c.fused_s if i else c.alone_s)[0]) for i, c in enumerate(costs) if c is not None)
    return seconds * device.clock_hz, sum(float(c.energy_j[0]) for c in costs if c is not None)


class PacedEngines(AcceleratorSearch):
    """Engines of nodes that keep the pace of their phase; with `joules` also faster ones, which may take fewer."""

    def __init__(self, like: AcceleratorSearch, paces: Sequence[int], joules: bool) -> None:
        super().__init__(like.graph, like.device, like.cuts, like.blocks, shares=())
        self.words, self.frames, self.fronts = like.words, like.frames, like.fronts
        self.fused, self.direct = like.fused, like.direct
        phases, self.joules = phases_of(like.graph), joules
        own = [max(1, int(paces[phases[n.name]])) for n in like.graph.nodes]
        self.paces = [layer_pace(like.graph, n, pace) for n, pace in zip(like.graph.nodes, own, strict=True)]
        self.top, self.quick = max(own), {i for i, pace in enumerate(own) if pace < max(own)}
        """The longest pace of all, and the nodes that have a shorter one."""
        for pace in set(self.paces):
            expect_engines(like.graph, [n for n, p in zip(like.graph.nodes, self.paces, strict=True) if p == pace], like.device,
                           self.names, pace)

    def engine(self, index: int, pace: int) -> Engines:
        if (index, 0) not in self.engines:
            node, known = self.graph.nodes[index], self.direct
            if index not in known:
                known[index] = direct_needs(self.graph, node, self.device, self.names)
            parts = FASTER if self.joules and isinstance(node.op, Conv | Gemm) else FASTER[:1]
            paces = [self.paces[index] // part for part in parts if self.paces[index] // part]
            found = [engines_within(self.graph, node, self.device, self.names, pace, self.folds, known[index]) for pace in paces]
            self.engines[index, 0] = Engines(sum((e.folds for e in found), ()), sum((e.steps for e in found), ()),
                                             np.vstack([e.needs for e in found]))
        return self.engines[index, 0]

    def together(self, cut: int, pace: int) -> list[Fused]:
        """A phase with a joined engine has the longest pace of all: others have none."""
        return [f for f in super().together(cut, self.top) if not self.quick & set(f.members)]

    def fitting(self, cut: int, option: BlockOption | None) -> FoundAccelerator | None:
        """The engines that take the fewest joules where these count, or any that fit, beside arrays."""
        items = [self.engine(i, 0).needs for i in range(cut)]
        joints = [Joint(f.members, f.needs) for f in self.together(cut, 0)]
        if option is not None:
            items.append(np.array([option.needs]))
        spend("choices", 1, sum(map(len, items)))
        if not self.joules:
            chosen = least_fill(items, self.budget, joints)
        else:
            clocks = [np.array(self.engine(i, 0).steps) for i in range(cut)] + ([np.zeros(1)] if option is not None else [])
            chosen = least_cost(items, [c * self._power_w(n) for c, n in zip(clocks, items, strict=True)], self.budget, joints,
                                [np.array(f.steps) * self._power_w(f.needs) for f in self.together(cut, 0)])
        return self.made(cut, self.top, chosen, () if option is None else (option,)) if chosen.fill <= 1 else None

    def _power_w(self, needs: Floats) -> Floats:
        """Of hardware, row by row."""
        model = dhm_model(self.device.model)
        each = [power_w({model.logic: 0.0, model.block: 0.0, name: 1.0}, self.device) for name in self.names]
        return np.asarray(needs @ np.array(each))


@dataclass
class ChargedSearch:
    """The accelerator of the least charge that was built so far; a clock costs `per_clock`, a joule `per_joule`."""

    graph: Graph
    device: Device
    like: dict[bool, AcceleratorSearch]
    """Searches for the nodes that accelerators hold, by whether one array does everything."""
    per_clock: float
    per_joule: float
    best: FoundAccelerator | None = None
    kind: Architecture = Architecture.FIBHA
    cost: float = inf
    tried: set[tuple[object, ...]] = field(default_factory=set)

    def build(self, cut: int, config: Config | None, paces: Sequence[int], least: float) -> None:
        """Build what fits at some paces of phases, or at slower ones as long as it may cost less than the best.

        At these paces it costs no less than `least`.
        """
        if (key := (cut, config, tuple(paces))) in self.tried:
            return
        self.tried.add(key)
        like = self.like[config is not None and config.monolithic]
        option = None if config is None else like.blocks.option(cut, config)
        if config is not None and option is None:
            return
        def fits(times: float) -> bool:
            found = PacedEngines(like, [ceil(times * pace) for pace in paces], self.per_joule > 0).fitting(cut, option)
            return found is not None and self.take(found, kind_of(cut, len(like.graph.nodes), config))

        low, high = 0.0, inf
        for times in SLOWER if cut else SLOWER[:1]:
            if least * times >= self.cost and times > 1:
                return
            if fits(times):
                high = times
                break
            low = times
        while low and low * NEAR < high < inf:
            middle = sqrt(low * high)
            low, high = (low, middle) if fits(middle) else (middle, high)

    def take(self, found: FoundAccelerator, kind: Architecture) -> bool:
        """Keep an accelerator if it is the best so far; whether it fits as plans count."""
        if found.latency == inf:
            return False
        clocks, joules = charged(self.graph, self.device, accelerator_of(next(iter(self.like.values())).graph, found, kind))
        cost = self.per_clock * clocks + self.per_joule * joules
        if cost < self.cost:
            self.best, self.kind, self.cost = found, kind, cost
        return True


def kind_of(cut: int, count: int, config: Config | None) -> Architecture:
    """What an accelerator with a cut among so many nodes is called."""
    if config is None:
        return Architecture.SESL
    if cut:
        return Architecture.FIBHA
    return Architecture.MONOLITHIC if config.monolithic else Architecture.SEML
