"""Rows of the bound on one frame hold for every choice of engines, whatever its area."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest

from dovetail.cost import Floats, costs_of
from dovetail.cost.budget import usable
from dovetail.cost.firb import bottlenecks
from dovetail.cost.folded import rounds_of, shape_of
from dovetail.cost.folded_area import fold_rows, folds_of_one
from dovetail.cost.passage import frame_passage
from dovetail.errors import InfeasibleError
from dovetail.hardware.folds import Fold, Loops
from dovetail.ir import RELU, Add, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Mul, Reshape, Window
from dovetail.partition.accelerator.blocks import Blocks
from dovetail.partition.accelerator.dedicated import ONE, raster_of
from dovetail.partition.accelerator.frame_bound import (
    UNTIL,
    FrameBounds,
    Waits,
    clocks_of,
    fused_clocks,
    reach_of,
    scan_of,
    span_of,
)
from dovetail.partition.accelerator.search import AcceleratorSearch
from dovetail.platform.accelerator import AcceleratorDesign, Architecture
from dovetail.platform.load import load_platform
from tests.strategies import Net, quantized

SAME = (1, 1, 1, 1)
DEVICE = load_platform("zcu102").device("fpga")


def network(seed: int) -> Graph:
    """Windows with and without stride and padding, an inverted residual, a gate, a pool, a mean or a flat map, a classifier."""
    net, odd = Net(seed), seed % 2
    x = net.add(Conv(6, Window((3, 3), (1 + odd, 2), SAME), 1, RELU), net.input((1, 3, 13 + odd, 12)))
    y = net.add(Conv(10, Window((1, 1)), 1, RELU), x)
    y = net.add(Conv(10, Window((3, 3), pads=SAME), 10, RELU), y)
    x = net.add(Add(), net.add(Conv(6, Window((1, 1))), y), x)
    if seed % 4 > 1:  # squeeze and excitation
        gate = net.add(Conv(4, Window((1, 1)), 1, RELU), net.add(GlobalAvgPool(), x))
        x = net.add(Mul(), x, net.add(Conv(6, Window((1, 1)), 1, RELU), gate))
    x = net.add(MaxPool(Window((2, 2), (2, 1))), x)
    x = net.add(Conv(8, Window((3, 2), (1, 1), (1, 0, 1, 1)), 2), x)
    x = net.add(Conv(5, Window((1, 1), (1 + odd, 1)), 1, RELU), x)
    height, width = net.tensors[x].shape[2:]
    if odd:
        x, height, width = net.add(GlobalAvgPool(), x), 1, 1
    x = net.add(Reshape((1, 5 * height * width)), x)
    return quantized(net.graph(net.add(Gemm(7), x)))


def drawn(graph: Graph, rng: np.random.Generator, joined: bool) -> dict[str, Fold]:
    """A fold of every layer, or none; those of an inverted residual share their words where it is one engine."""
    folds = dict[str, Fold]()
    for node in graph.nodes:
        if isinstance(node.op, Conv | Gemm) and rng.random() < 0.8:
            own = shape_of(graph, node).channels
            groups = int(rng.choice(rounds_of(own.groups)))
            inputs = int(rng.choice(rounds_of(own.inputs))) if groups == 1 else own.inputs
            folds[node.name] = Fold(groups, inputs, int(rng.choice(rounds_of(own.outputs))))
    (block,) = bottlenecks(graph)
    if joined:
        first, last = shape_of(graph, block.expand).channels, shape_of(graph, block.project).channels
        words = int(rng.choice(rounds_of(first.outputs)))
        folds |= {block.expand.name: Fold(1, int(rng.choice(rounds_of(first.inputs))), words),
                  block.depthwise.name: Fold(words, 1, 1), block.project.name: Fold(1, words, last.outputs)}
    return folds


@pytest.mark.parametrize("seed", range(24))
def test_no_frame_is_shorter_than_any_row_says(seed: int) -> None:
    rng, graph = np.random.default_rng(seed), network(seed)
    (block,) = bottlenecks(graph)
    joined = seed % 3 == 0
    folds = drawn(graph, rng, joined)
    frame = frame_passage(graph, folds, (block.depthwise.name,) if joined else ()).last
    bounds = FrameBounds(graph, DEVICE, ("lut",), np.ones(1))
    path = bounds.path(len(graph.nodes), rng.random(len(graph.nodes)).tolist())
    inside = [i for i in path if joined and graph.nodes[i] in (*block.layers, block.join)]
    items, spans = list[Floats](), list[tuple[int, ...]]()
    for place, index in enumerate(path):
        node, raster = graph.nodes[index], scan_of(graph, graph.nodes[index])
        if index in inside[1:]:
            continue
        if index in inside:
            middle, loops = raster_of(graph, block.depthwise), Loops(shape_of(graph, block.expand).channels, folds[node.name])
            items.append(fused_clocks(middle, np.array([loops.clocks]), np.array([loops.slices])))
            spans.append(span_of(middle, place, place + len(inside) - 1))
            continue
        fold = folds.get(node.name)
        table = None if fold is None else folds_of_one(shape_of(graph, node), fold_rows([fold]))
        items.append(clocks_of(reach_of(raster), table, not raster.masks_suffice))
        spans.append(span_of(reach_of(raster).raster, place, place))
    ends = bounds.awaited(len(graph.nodes))
    assert path[-1] in ends
    assert all(times[0, UNTIL] <= frame for times, span in zip(items, spans, strict=True) if path[span[1]] in ends)
    waits = Waits(graph, path, np.vstack(items), np.array(spans))
    for _ in range(200):
        last = int(rng.choice(list(waits.last)))
        layers = [k for k in range(last) if rng.random() < 0.5] + [last]
        added = (rng.random(len(layers) - 1) < 0.3).tolist()
        assert waits.row(layers, added).sum() <= frame, (layers, added)
    shares = np.ones(len(items))
    violated = waits.violated(np.arange(len(items)), shares, np.zeros(len(items)), 0.0)
    assert violated
    assert all(value <= frame for value, _, _ in violated)


def small(gated: bool) -> Graph:
    """Two layers, or one whose map waits for a gate."""
    net = Net(5)
    x = net.add(Conv(3, Window((3, 3), pads=SAME)), net.input((1, 2, 6, 7)))
    gate = net.add(Conv(3, Window((1, 1))), net.add(GlobalAvgPool(), x)) if gated else ""
    return quantized(net.graph(net.add(Mul(), x, gate) if gated else net.add(Conv(4, Window((1, 1))), x)))


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("scale", [0.02, 0.012])
def test_no_accelerator_takes_fewer_clocks_than_the_bound(gated: bool, scale: float) -> None:
    graph = small(gated)
    device = replace(DEVICE, resources={r: v * scale for r, v in DEVICE.resources.items()})
    search = AcceleratorSearch(graph, device, (len(graph.nodes),), Blocks(graph, device))
    layers = [n for n in graph.nodes if isinstance(n.op, Conv)]
    best = inf
    offered = [[None, *(Fold(*row) for row in search.frames.folds(shape_of(graph, n), inf).tolist())] for n in layers]
    for chosen in product(*offered):
        folds = {n.name: fold for n, fold in zip(layers, chosen, strict=True) if fold is not None}
        design = AcceleratorDesign(Architecture.SESL, {n.name: folds[n.name].sizes if n.name in folds else None
                                                       for n in graph.nodes}, (), {}, 1 << 20, ())
        board = replace(device, accelerator=design)
        costs = [costs_of(graph, n, None, *ONE, board) for n in graph.nodes]
        used = {r: sum(float(c.resources[r][0]) for c in costs if c is not None) for r in device.resources}
        if all(used[r] <= limit for r, limit in usable(device, accelerator=True).items()):
            best = min(best, frame_passage(graph, folds).last)
    try:
        found = search.quickest()
    except InfeasibleError:
        assert best == inf
        return
    assert found.bound <= best
    assert found.latency >= found.bound
