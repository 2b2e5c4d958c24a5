"""Costs of nodes on an FPGA that is to become an accelerator for a whole network (platform/accelerator.py).

Dedicated layers cost what their engine costs, at the pace of the slowest of them. Nodes on reusable arrays take the array's
clocks one after the other; the arrays themselves are charged once, to the first of their nodes. No node is divided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np

from dovetail.cost.array import BlockCost, Config, block_cost, block_multipliers
from dovetail.cost.estimate import ShareCosts
from dovetail.cost.firb import Bottleneck, FirbCost, bottlenecks, firb_cost
from dovetail.cost.folded import paced_costs, shape_of
from dovetail.cost.folded_area import FoldedCost, folded_cost
from dovetail.cost.power import power_w
from dovetail.hardware.adders.digits import Once
from dovetail.hardware.folds import Fold, Loops
from dovetail.hardware.scans import phases_of, window_of
from dovetail.hardware.shares import Question
from dovetail.hardware.streaming import FoldedRaster, Raster
from dovetail.ir import Graph, Node
from dovetail.platform.accelerator import AcceleratorDesign
from dovetail.platform.device import Device, Kind
from dovetail.platform.fitted import dhm_model


def config_of(accelerator: AcceleratorDesign) -> Config | None:
    """The configuration of the arrays; None where every layer has an engine of its own."""
    if not accelerator.reusable:
        return None
    a, rate = {name: int(size) for name, size in accelerator.arrays.items()}, accelerator.arrays["bandwidth_bytes"]
    return Config(a["inputs"], a["outputs"], a["taps"], a["kernel"], bool(a["monolithic"]), bool(a["overlap"]), a["port_bytes"],
                  rate, a["latency_clocks"], a["input_buffers"], bool(a.get("packed", 0)),
                  a.get("map_bytes", 0), a.get("soft", 0), a.get("weight_planes", 0), a.get("input_planes", 0),
                  a.get("value_bits", 8), a.get("thresholds", 0), a.get("masters", 1))


def arrays_of(config: Config) -> dict[str, float]:
    """A configuration as an accelerator stores it."""
    sizes = {name: getattr(config, name) for name in Config.__dataclass_fields__}
    return {name: int(size) if size == int(size) else size for name, size in sizes.items()}


def multipliers_of(graph: Graph, accelerator: AcceleratorDesign) -> int:
    """Multipliers of an accelerator, whatever makes them: products that all its engines can make in a clock.

    Engines have one for every product of a clock, in multiplier blocks (two where one makes two) or in logic; layers that are
    mapped directly one for every weight; arrays also those that rescale sums.
    """
    config, count = config_of(accelerator), 0
    for node in graph.nodes:
        if node.name not in accelerator.dedicated or not node.op.product:
            continue
        sizes = accelerator.dedicated[node.name]
        count += graph.constants[node.params[0]].array.size if sizes is None else _products(graph, node, Fold(*sizes))
    inside = tuple(n.name for n in graph.nodes if n.name in accelerator.reusable)
    return count + (block_multipliers(graph, inside, config) if config else 0)


def soft_products_of(graph: Graph, accelerator: AcceleratorDesign) -> int:
    """Those of an accelerator's multipliers that are made of logic, of layers that are folded and of arrays."""
    config, folds = config_of(accelerator), {n: Fold(*sizes) for n, sizes in accelerator.dedicated.items() if sizes is not None}
    count = sum(_products(graph, n, folds[n.name]) for n in graph.nodes if n.name in folds and not folds[n.name].products)
    return count + (config.soft * config.inputs if config else 0)


def _products(graph: Graph, node: Node, fold: Fold) -> int:
    """Products that a folded engine makes in a clock."""
    return fold.groups * fold.inputs * fold.outputs * prod(window_of(graph, node)[0].kernel)


def why_outside(node: Node, device: Device) -> str | None:
    """Why the accelerator has no engine for a node; None if it has."""
    accelerator = device.accelerator
    if accelerator is None or accelerator.has(node.name):
        return None
    return f"{device.name}: {node.name} is no part of the {accelerator.architecture} accelerator"


@lru_cache(maxsize=8)
def _block(graph: Graph, nodes: tuple[str, ...], config: Config, device_name: str, clock_hz: float | None,
           model: str) -> BlockCost:
    return block_cost(graph, nodes, config, Device(device_name, Kind.FPGA, "", model, 0.0, 0.0, clock_hz))


def accelerator_costs(graph: Graph, question: Question, direct: ShareCosts, device: Device) -> ShareCosts:
    """Costs of a whole node from those of direct mapping."""
    accelerator, (node, _) = device.accelerator, question
    assert accelerator is not None
    if node.name in accelerator.reusable:
        return _reused(graph, node, direct, accelerator, device)
    paced = replace(device.at_pace(_phase_paces(Once(graph), Once(accelerator))[node.name]), accelerator=None)
    costs = paced_costs(graph, question, direct, paced)
    block = next((b for b in bottlenecks(graph) if b.depthwise.name in accelerator.fused and node in (*b.layers, b.join)), None)
    if block is not None:
        return _fused(graph, node, block, costs, device)
    fold = accelerator.dedicated[node.name]
    if not node.op.product:
        return costs
    if fold is None:
        return replace(costs, energy_j=direct.energy_j, resources=direct.resources)
    return _charged(costs, folded_cost(shape_of(graph, node), Fold(*fold), dhm_model(device.model)), device)


@lru_cache(maxsize=8)
def _phase_paces(graph: Once[Graph], accelerator: Once[AcceleratorDesign]) -> Mapping[str, int]:
    """By node, clocks of the slowest dedicated engine of its phase of a frame; a phase with a fused one has the common pace.

    A phase that multiplies nothing keeps up with the one before it, as an average of single pixels does.
    """
    design, phases, slowest = accelerator.value, phases_of(graph.value), dict[int, int]()
    fused = {n.name for b in bottlenecks(graph.value) if b.depthwise.name in design.fused for n in (*b.layers, b.join) if n}
    for node in graph.value.nodes:
        if node.name in design.dedicated and not node.op.still:
            window, _, height, width = window_of(graph.value, node)
            fold, steps = design.dedicated[node.name], Raster(window, height, width).steps
            if fold is not None and node.op.product:
                shape = shape_of(graph.value, node)
                steps = FoldedRaster(shape.raster, Loops(shape.channels, Fold(*fold))).steps
            steps = design.pace_clocks if node.name in fused else steps
            slowest[phases[node.name]] = max(steps, slowest.get(phases[node.name], 1))
    working = {phases[node.name] for node in graph.value.nodes if node.op.product}
    for phase in sorted(slowest.keys() - working):
        slowest[phase] = max(slowest[phase], slowest.get(phase - 1, 1))
    return {name: slowest.get(phase, design.pace_clocks) for name, phase in phases.items()}


def _charged(costs: ShareCosts, engine: FoldedCost | FirbCost, device: Device) -> ShareCosts:
    """The costs with an engine's area, and the energy that it takes for a frame."""
    assert device.clock_hz is not None
    used = dict(engine.resources)
    return replace(costs, energy_j=np.array([power_w(used, device) * engine.steps / device.clock_hz]),
                   resources={r: np.array([used.get(r, 0.0)]) for r in costs.resources})


def _fused(graph: Graph, node: Node, block: Bottleneck, costs: ShareCosts, device: Device) -> ShareCosts:
    """A node of an inverted residual that is one engine, whose area and energy are charged to its first layer."""
    accelerator = device.accelerator
    assert accelerator is not None
    if node is not block.expand:
        return replace(costs, energy_j=np.zeros(1), resources={r: np.zeros(1) for r in costs.resources})
    first, middle, last = (shape_of(graph, n) for n in block.layers)
    folds = [Fold(*sizes) for n in block.layers if (sizes := accelerator.dedicated[n.name]) is not None]
    own = firb_cost((first, middle, last), (folds[0], folds[1], folds[2]), block.join is not None, device.model)
    return _charged(costs, own, device)


def _reused(graph: Graph, node: Node, direct: ShareCosts, accelerator: AcceleratorDesign, device: Device) -> ShareCosts:
    config = config_of(accelerator)
    assert config is not None
    assert device.clock_hz is not None
    inside = tuple(n.name for n in graph.nodes if n.name in accelerator.reusable)
    block = _block(graph, inside, config, device.name, device.clock_hz, device.model)
    seconds = np.array([_frame_clocks(block, inside)[node.name] / device.clock_hz])
    used = dict(block.resources)
    energy = np.array([power_w(used, device)]) * seconds
    resources = {r: np.array([used.get(r, 0.0) if node.name == inside[0] else 0.0]) for r in direct.resources}
    spread = 1 + dhm_model(device.model).clock_error
    return ShareCosts(seconds, seconds, seconds / spread, seconds * spread, energy, resources, direct.extrapolated,
                      f"{direct.source}; on reusable engines {config}, layer after layer")


def _frame_clocks(block: BlockCost, inside: Sequence[str]) -> dict[str, float]:
    """By node, clocks of a frame alone; the first one has what is not a layer's own: loading, starting, leaving."""
    clocks = {name: float(block.layer_clocks.get(name, 0)) for name in inside}
    clocks[inside[0]] = max(0.0, clocks[inside[0]] + block.latency_clocks - sum(block.layer_clocks.values()))
    return clocks


def part_between_frames(graph: Graph, device: Device) -> float:
    """Of the seconds that layers take on reusable arrays, the part that keeps these from the next frame; 1 without arrays.

    A frame is loaded while the arrays still work on the one before it.
    """
    accelerator = device.accelerator
    config = config_of(accelerator) if accelerator is not None and accelerator.arrays else None
    inside = tuple(n.name for n in graph.nodes if accelerator is not None and n.name in accelerator.reusable)
    if config is None or not inside:
        return 1.0
    block = _block(graph, inside, config, device.name, device.clock_hz, device.model)
    alone = sum(_frame_clocks(block, inside).values())
    return block.interval_clocks / alone if alone else 1.0
