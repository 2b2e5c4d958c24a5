"""Compact DNNs 2024: SEML, SESL and their hybrid as the thesis describes them, and MEML, its fourth category.

The other tables compare kinds that are all built as well as we can. Here the baselines are the thesis's own. SEML: one array for
convolutions and one for depthwise layers, layer after layer, one product per DSP block; it is searched among the arrays that we
generate, without what we added (two products per block, products in logic, depthwise layers run behind convolutions). SESL, after
FINN-R: an engine of a power of two multipliers per layer, a tile of each input buffered twice, weights on the chip as far as they
fit and else read anew for each tile. The hybrid is SESL for the first layers and SEML for the others. Multipliers, RAM blocks and
memory traffic limit these; logic of SESL's engines is not counted, and nothing of it is generated.

MEML: several engines, each a pair of our arrays, work on bands of rows of one layer and go through all layers together. It is
modelled only: no program for bands is generated. Engines that divide filters instead are one array with as many more filters,
which the search for SEML offers already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log2, prod
from typing import Any, cast

from dovetail.cost.array import Config, block_cost
from dovetail.cost.budget import usable
from dovetail.errors import DovetailError, InfeasibleError, UnsupportedError
from dovetail.ir import Add, Conv, Graph, Node
from dovetail.partition.accelerator.architecture import judged
from dovetail.partition.accelerator.blocks import BlockOption, Blocks, cut_points, memory_port
from dovetail.partition.accelerator.dedicated import multiplications_of
from dovetail.partition.accelerator.search import AcceleratorSearch, between
from dovetail.partition.plan import Goal
from dovetail.platform.accelerator import Architecture
from dovetail.platform.device import Device

RAM_BYTES = 4608
"""Of a RAM block of 36 Kbit. Source: UG473 and UG573 of AMD, 36 Kbit per block."""
SKIP_ROWS = 4
"""Rows for which a block's input waits until it is added, as many as its three layers' windows hold. Chosen as for FIRB."""
DESCRIBED_NETWORKS = ("mobilenet-v2", "mobilenet-v1", "proxylessnas-mobile")
"""The networks of paper I. Source: references 4, 56 and 58 of the thesis."""
ENGINES = (2, 4, 8)
"""Engines of MEML that are tried. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class DescribedLayer:
    """What the thesis's SESL needs to know of a layer."""

    macs: int
    weight_bytes: int
    buffer_bytes: int
    """A tile of its input, twice."""
    tiles: int


def described_layer(graph: Graph, node: Node) -> DescribedLayer:
    """A layer whose tiles are as many rows as its window has; of an addition, the rows that wait."""
    shape, made = graph.shape(node.inputs[0]), graph.shape(node.output)
    rows = node.op.window.kernel[0] if isinstance(node.op, Conv) else SKIP_ROWS if isinstance(node.op, Add) else 1
    weights = graph.constants[node.params[0]].array.size if node.params else 0
    row_bytes = prod(shape[1:]) // (shape[2] if len(shape) > 3 else 1)
    return DescribedLayer(multiplications_of(graph, [node]), weights, 2 * rows * row_bytes, made[2] if len(made) > 3 else 1)


WIDE = 1 << 20
"""Bytes of a word of weights that all masters of any memory serve together."""


@dataclass(frozen=True, slots=True)
class DescribedBudget:
    """What an accelerator may take: multipliers, RAM blocks, bytes of memory per clock."""

    dsp: float
    ram: float
    bytes_per_clock: float


def budget_of(device: Device) -> DescribedBudget:
    """What a plan may take of a device, its memory as the board file states it."""
    limits = usable(device, accelerator=True)
    return DescribedBudget(limits["dsp"], limits["bram36"], memory_port(device, WIDE).bandwidth_bytes)


def sesl_interval(layers: Sequence[DescribedLayer], budget: DescribedBudget) -> float:
    """Clocks between frames of the thesis's SESL under a budget; inf where even tiles do not fit."""
    ram = sum(ceil(x.buffer_bytes / RAM_BYTES) + ceil(x.weight_bytes / RAM_BYTES) for x in layers)
    streamed = 0
    for x in sorted(layers, key=lambda x: (x.tiles, -x.weight_bytes)):
        if ram <= budget.ram:
            break
        ram -= ceil(x.weight_bytes / RAM_BYTES) - (1 if x.weight_bytes else 0)
        streamed += x.weight_bytes * x.tiles
    if ram > budget.ram:
        return inf

    def fits(clocks: int) -> bool:
        needed = sum(2 ** max(0, ceil(log2(x.macs / clocks))) for x in layers if x.macs)
        return needed <= budget.dsp and streamed <= budget.bytes_per_clock * clocks

    low, high = 0, 1 + max(x.macs for x in layers) + ceil(streamed / budget.bytes_per_clock)
    if not fits(high):
        return inf
    while (middle := between(low, high)) is not None:
        low, high = (low, middle) if fits(middle) else (middle, high)
    return float(high)


def powers_of_two(graph: Graph, device: Device) -> Blocks:
    """Those of our arrays whose channels and filters at once are powers of two, with room for two frames of the input."""
    found = Blocks(graph, device)
    found.configs = [c for c in found.configs if c.inputs.bit_count() == c.outputs.bit_count() == 1 and c.input_buffers == 2]
    found.kin = [replace(c, soft=0) for c in found.configs]
    return found


def described_blocks(graph: Graph, device: Device) -> Blocks:
    """The arrays of the thesis's SEML: powers of two, one product per block, layer after layer."""
    found = powers_of_two(graph, device)
    found.configs = [replace(c, overlap=False) for c in found.configs if not c.packed and not c.soft]
    found.kin = list(found.configs)
    return found


def _fits(option: BlockOption, budget: Mapping[str, float], names: Sequence[str]) -> bool:
    return all(need <= budget[name] for name, need in zip(names, option.needs, strict=True))


def described_hybrid(graph: Graph, device: Device, blocks: Blocks, alone: float) -> tuple[float, int]:
    """Clocks between frames and the cut of the fastest hybrid: SESL's engines with their weights on the chip, arrays behind.

    `alone` are clocks of arrays for all layers, which is what a cut of 0 stands for.
    """
    limits, whole, best = usable(device, accelerator=True), budget_of(device), (alone, 0)
    layers = [described_layer(graph, node) for node in graph.nodes]
    for cut in (c for c in cut_points(graph) if 0 < c < len(graph.nodes)):
        front = layers[:cut]
        if sum(ceil(x.buffer_bytes / RAM_BYTES) + ceil(x.weight_bytes / RAM_BYTES) for x in front) > whole.ram:
            break
        for offer in blocks.promising(cut, None, best[0]):
            if offer.clocks >= best[0]:
                break
            option = offer.price(inf)
            if option is None or option.interval >= best[0] or not _fits(option, limits, blocks.names):
                continue
            used = dict(zip(blocks.names, option.needs, strict=True))
            left = DescribedBudget(whole.dsp - used["dsp"], whole.ram - used["bram36"], whole.bytes_per_clock)
            clocks = max(option.interval, sesl_interval(front, left) if left.dsp > 0 else inf)
            best = min(best, (clocks, cut))
    return best


def described(graph: Graph, device: Device) -> dict[str, Any]:
    """Clocks between frames of the thesis's three kinds on a device, and how many times faster its hybrid is."""
    blocks = described_blocks(graph, device)
    try:
        seml = judged(AcceleratorSearch(graph, device, (0,), blocks), Architecture.SEML, Goal.THROUGHPUT).clocks
    except DovetailError:
        seml = inf
    sesl = sesl_interval([described_layer(graph, node) for node in graph.nodes], budget_of(device))
    hybrid, cut = described_hybrid(graph, device, blocks, seml)
    found = {"seml": seml, "sesl": sesl, "fibha": hybrid}
    return {**{f"{name}_clocks": None if clocks == inf else clocks for name, clocks in found.items()}, "dedicated": cut,
            "over_seml": seml / hybrid if max(seml, hybrid) < inf else None,
            "over_sesl": sesl / hybrid if max(sesl, hybrid) < inf else None}


def meml(graph: Graph, device: Device, blocks: Blocks) -> dict[str, Any]:
    """The fastest MEML of the arrays and numbers of engines on offer, by the model of bands, beside the same with one engine.

    A layer takes its compute clocks times the largest band's share of its rows, or as long as its weights need to arrive for all
    engines together, and that is put in proportion to the clocks that one engine takes as played, so that one engine is SEML.
    Every engine has arrays and weight buffers of its own; memories of maps are divided, rows at the edges of bands lie in both.

    Raises:
        InfeasibleError: no two engines fit.
    """
    limits, tried, best = usable(device, accelerator=True), 0, cast("dict[str, Any] | None", None)
    needs, place = blocks.least_needs(0), blocks.names.index("dsp")
    most = [max((e for e in ENGINES if e * row[place] <= limits["dsp"]), default=0) for row in needs]
    floors = {i: blocks.floors[i].between[0] / e for i, e in enumerate(most) if e}
    for number in sorted(floors, key=floors.__getitem__):
        if best is not None and floors[number] >= best["clocks"]:
            break
        tried += 1
        for found in _banded(graph, device, blocks.configs[number], [e for e in ENGINES if e <= most[number]]):
            if all(found["needs"][name] <= limits[name] for name in blocks.names) and (
                    best is None or found["clocks"] < best["clocks"]):
                best = found
    if best is None:
        raise InfeasibleError(f"{device.name}: no two engines of any arrays on offer fit; take a larger board")
    return {**best, "tried": tried, "offered": len(blocks.configs) * len(ENGINES)}


def _banded(graph: Graph, device: Device, config: Config, engines: Sequence[int]) -> list[dict[str, Any]]:
    """A configuration with several numbers of engines; none where its arrays cannot run the graph."""
    try:
        cost = block_cost(graph, [n.name for n in graph.nodes], config, device)
    except UnsupportedError:
        return []
    layers = [(clocks, described_layer(graph, graph.node(name))) for name, clocks in cost.layer_clocks.items()]

    def clocks(count: int) -> float:
        return sum(max(alone * ceil(x.tiles / count) / x.tiles, x.weight_bytes / config.bandwidth_bytes) for alone, x in layers)

    maps, largest = cost.buffer_bits / 8 / RAM_BYTES, max(x.tiles for _, x in layers)
    found = []
    for count in engines:
        needs = {name: count * amount for name, amount in cost.resources}
        needs["bram36"] += maps * (1 + (count - 1) * (config.kernel - 1) / largest - count)
        found.append({"clocks": cost.interval_clocks * clocks(count) / clocks(1), "engines": count, "arrays": str(config),
                      "one_engine_clocks": cost.interval_clocks, "needs": needs})
    return found
