"""Every module of the networks of Heterogeneity 2021 at its own place in a 224x224 network, and the whole networks.

Later modules hold more weights than an FPGA has logic for when they are mapped directly, so the authors' choice of nodes is
judged three ways: mapped directly, with the largest part of the filters that fits (the paper's GConv), and folded. Our optimum is
over all that `dovetail plan` weighs. What does not fit has no gain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dovetail.ir import Axis, Conv, Graph
from dovetail.numerics.tables import tabulate
from dovetail.partition.plan import Assignment, Goal, Piece, Split, whole_on
from dovetail.planning import Options, decide
from dovetail.platform.device import ModelSet, Platform
from dovetail.platform.load import load_platform
from dovetail.progress import Progress
from dovetail.reproduce import gains
from dovetail.reproduce.heterogeneity_2021.blocks import BLOCKS, BOARD, GPU_BOARD, SIZES, Figures, PaperBlock, believed, judge
from dovetail.reproduce.heterogeneity_2021.modules import METRICS, PARTS
from dovetail.space import PACES
from dovetail.zoo.mobilenet import V2_STAGES, inverted_residual
from dovetail.zoo.network import divisible
from dovetail.zoo.shufflenet import REPEATS, V2_CHANNELS, v2_unit
from dovetail.zoo.squeezenet import FIRES, fire
from lib.zoo_graph import network

FIRE, BOTTLENECK, HALVING, BASIC = BLOCKS
WIDTH = 0.5
"""Of MobileNetV2 and ShuffleNetV2, as in the paper."""
GOALS = (Goal.LATENCY, Goal.ENERGY, Goal.EDP)


@dataclass(frozen=True, slots=True)
class NetworkModule:
    """A module of a network: the prefix of its nodes' names, and the block that it is, which writes it on any input."""

    name: str
    prefix: str
    block: PaperBlock
    alike: tuple[object, ...]
    """The same for modules that differ in their input alone."""


def fires() -> Iterator[NetworkModule]:
    """fire2 to fire9 of SqueezeNet."""
    for number, (squeeze, expand) in enumerate(FIRES, 2):
        name = f"fire{number}"
        write = partial(fire, name=name, squeeze=squeeze, expand=expand)
        yield NetworkModule(name, f"{name}_", replace(FIRE, write=write), (squeeze, expand))


def bottlenecks() -> Iterator[NetworkModule]:
    """All 17 of MobileNetV2; the first has no expansion."""
    number = 0
    for expansion, channels, repeats, first in V2_STAGES:
        for stride in (first, *(1,) * (repeats - 1)):
            number += 1
            name, made = f"features.{number}", divisible(channels * WIDTH)
            write = partial(inverted_residual, name=name, channels=made, kernel=3, stride=stride, expansion=expansion)
            yield NetworkModule(name, f"{name}.", replace(BOTTLENECK, write=write), (made, stride, expansion))


def units() -> Iterator[NetworkModule]:
    """All 16 of ShuffleNetV2: one that halves the map in each of three stages, then those that keep its size."""
    for stage, (channels, repeats) in enumerate(zip(V2_CHANNELS[WIDTH][:-1], REPEATS, strict=True), 2):
        for i in range(repeats):
            name, halves = f"stage{stage}.{i}", i == 0
            write = partial(v2_unit, name=name, channels=channels, halves=halves)
            yield NetworkModule(name, f"{name}.", replace(HALVING if halves else BASIC, write=write), (channels, halves))


NETWORKS = {"squeezenet1.1": fires, "mobilenet-v2-0.5": bottlenecks, "shufflenet-v2-0.5": units}


def network_graph(name: str) -> Graph:
    """A zoo network as blocks are read."""
    return tabulate(network(name))


def boards() -> tuple[Platform, Platform]:
    """The board with its FPGA, and the one without."""
    return believed(load_platform(BOARD), ModelSet.PLANNING), believed(load_platform(GPU_BOARD), ModelSet.PLANNING)


def shared(graph: Graph, parts: Mapping[str, int]) -> Assignment:
    """The GPU computes everything but the given sixteenths of some convolutions' filters, the first ones, which the FPGA does."""
    found: dict[str, Split] = {}
    for node in graph.nodes:
        part = parts.get(node.name, 0)
        found[node.name] = whole_on("fpga" if part == PARTS else "gpu")
        if 0 < part < PARTS and isinstance(node.op, Conv):
            axis = Axis.OUTPUT_CHANNELS if node.op.groups == 1 else Axis.GROUPS
            stop = max(1, node.op.filters * part // PARTS)
            found[node.name] = Split(axis, (Piece("fpga", 0, stop), Piece("gpu", stop, node.op.filters)))
    return found


def hand_nodes(module: NetworkModule, graph: Graph) -> list[str]:
    """The nodes of a module that the authors give to the FPGA."""
    return [n.name for n in graph.nodes if n.name.startswith(module.prefix) and n.name.endswith(module.block.on_fpga)]


def largest_part(module: NetworkModule, graph: Graph, board: Platform) -> tuple[int, Figures]:
    """The most sixteenths of the authors' nodes that fit the FPGA mapped directly, and their figures; 0: the GPU alone."""
    for part in range(PARTS, 0, -1):
        found = judge(graph, board, shared(graph, dict.fromkeys(hand_nodes(module, graph), part)), module.block.parallel)
        if not found.violations:
            return part, found
    return 0, judge(graph, board, shared(graph, {}), module.block.parallel)


def fastest_fold(graph: Graph, board: Platform, assignment: Assignment, parallel: bool) -> tuple[int | None, Figures]:
    """The pace of the paces that plans try at which an assignment fits and is fastest; None: mapped directly, or none fits."""
    tries = [(None, judge(graph, board, assignment, parallel)),
             *((pace, judge(graph, board.with_pace(pace), assignment, parallel)) for pace in sorted(PACES))]
    return min(tries, key=lambda one: (len(one[1].violations) > 0, one[1].latency_s))


def optima(graph: Graph, board: Platform) -> dict[str, dict[str, Any]]:
    """For every metric the best of the plans that were made for latency, energy and their product, with that plan's proven gap.

    Of accelerators, plans for energy weigh only the fastest of each kind, so one that was made for another goal may be better.
    """
    found = []
    for goal in GOALS:
        plan, *_ = decide(graph, board, Options(goal=goal, explained=False, rivals=False))
        figures = Figures(plan.latency_s, plan.energy_j, gains.times_of(board))
        found.append({**_side(figures), "gap": plan.gap, "goal": goal.value})
    return {goal.value: min(found, key=lambda one: one[goal.value]) for goal in GOALS}


def _side(figures: Figures) -> dict[str, Any]:
    return {**figures.side(), "edp": figures.latency_s * figures.energy_j}


def of_module(module: NetworkModule, whole: Graph, board: Platform, gpu_board: Platform,
              sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """A module at its place in a network, every way, and the authors' choice as a mean over input sizes."""
    first = next(n for n in whole.nodes if n.name.startswith(module.prefix))
    _, channels, side, _ = whole.shape(first.inputs[0])
    block = replace(module.block, channels=channels)
    module = replace(module, block=block)
    graph = block.graph(side)
    on_fpga = shared(graph, dict.fromkeys(hand_nodes(module, graph), PARTS))
    alone = judge(graph, gpu_board, shared(graph, {}), False)
    hand = judge(graph, board, on_fpga, block.parallel)
    part, partly = largest_part(module, graph, board)
    pace, folded = fastest_fold(graph, board, on_fpga, block.parallel)
    best = optima(graph, board)
    sides = {"gpu": _side(alone), "hand": _side(hand), "part": _side(partly), "folded": _side(folded)}
    over = [_at_size(module, size, board, gpu_board) for size in sizes]
    return {"module": module.name, "block": block.name, "input": [channels, side, side], **sides, "best": best,
            "sixteenths": part, "pace_clocks": pace, "resources": hand.resources,
            "gain": {**{way: gains_of(sides["gpu"], sides[way]) for way in ("hand", "part", "folded")},
                     "best": {key: gains.gain([sides["gpu"]], [best[key]], key) for key in METRICS}},
            "mean_over_sizes": {way: {key: gains.gain([o["gpu"] for o in over], [o[way] for o in over], key)
                                      for key in METRICS} for way in ("hand", "part")}}


def _at_size(module: NetworkModule, side: int, board: Platform, gpu_board: Platform) -> dict[str, Any]:
    graph = module.block.graph(side)
    hand = judge(graph, board, shared(graph, dict.fromkeys(hand_nodes(module, graph), PARTS)), module.block.parallel)
    part = largest_part(module, graph, board)[1] if hand.violations else hand
    return {"gpu": _side(judge(graph, gpu_board, shared(graph, {}), False)), "hand": _side(hand), "part": _side(part)}


def gains_of(before: gains.Side, after: gains.Side) -> dict[str, float | None]:
    """Gains in energy, latency and energy-delay product."""
    return {key: gains.gain([before], [after], key) for key in METRICS}


def of_network(name: str, progress: Progress = lambda *_: None, most: int | None = None) -> dict[str, Any]:
    """All modules of a network (the first `most`), then the whole: GPU alone, the authors' choice two ways, our optimum."""
    board, gpu_board = boards()
    whole, found, known = network_graph(name), list[dict[str, Any]](), dict[object, dict[str, Any]]()
    modules = list(NETWORKS[name]())[:most]
    for number, module in enumerate(modules):
        progress(f"{name}: {module.name}", number, len(modules) + 1)
        first = next(n for n in whole.nodes if n.name.startswith(module.prefix))
        key = (module.alike, whole.shape(first.inputs[0]))
        if key not in known:
            known[key] = of_module(module, whole, board, gpu_board)
        found.append({**known[key], "module": module.name})
    progress(f"{name}: whole", len(modules), len(modules) + 1)
    return {"modules": found, "whole": _whole(whole, modules, found, board, gpu_board)}


def _whole(graph: Graph, modules: Sequence[NetworkModule], found: Sequence[Mapping[str, Any]], board: Platform,
           gpu_board: Platform) -> dict[str, Any]:
    hand = {name: PARTS for module in modules for name in hand_nodes(module, graph)}
    parts = {name: one["sixteenths"] for module, one in zip(modules, found, strict=True) for name in hand_nodes(module, graph)}
    pace, folded = fastest_fold(graph, board, shared(graph, hand), True)
    alone = _side(judge(graph, gpu_board, shared(graph, {}), False))
    each = _side(judge(graph, board, shared(graph, parts), True, share_fpga=False))
    fitting = whole_modules(graph, parts, board)
    best = optima(graph, board)
    return {"gpu": alone, "hand": fitting, "part": each, "folded": _side(folded), "pace_clocks": pace,
            "resources": folded.resources, "best": best,
            "gain": {"hand": gains_of(alone, fitting), "part": gains_of(alone, each), "folded": gains_of(alone, _side(folded)),
                     **{f"best for {goal}": gains_of(alone, one) for goal, one in best.items()}}}


def whole_modules(graph: Graph, parts: Mapping[str, int], board: Platform) -> dict[str, Any]:
    """The authors' nodes of those modules that fit whole, each module with an FPGA for itself; the GPU computes all others."""
    fitting = {name: part for name, part in parts.items() if part == PARTS}
    return _side(judge(graph, board, shared(graph, fitting), True, share_fpga=False))
