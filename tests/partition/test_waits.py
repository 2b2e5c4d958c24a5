"""Rows of the bound on one frame hold for every choice of engines, whatever its area."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from math import inf

import numpy as np
import pytest

from dovetail.cost import costs_of
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
    TIMES,
    UNTIL,
    FrameBounds,
    LayerOptions,
    Path,
    Waits,
    clocks_of,
    fused_clocks,
    scan_of,
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


@pytest.mark.parametrize("seed", range(12))
def test_no_frame_is_shorter_than_any_row_says(seed: int) -> None:
    rng, graph = np.random.default_rng(seed), network(seed)
    (block,) = bottlenecks(graph)
    joined = seed % 3 == 0
    folds = drawn(graph, rng, joined)
    frame = frame_passage(graph, folds, (block.depthwise.name,) if joined else ()).last
    ends = FrameBounds(graph, DEVICE, ("lut",), np.ones(1)).awaited(len(graph.nodes))
    numbers = {n.name: i for i, n in enumerate(graph.nodes)}
    inside = tuple(numbers[n.name] for n in (*block.layers, block.join) if n is not None) if joined else ()
    items, waits = list[LayerOptions](), Waits(graph, len(graph.nodes))
    mean = np.zeros((len(graph.nodes), TIMES))
    for i, node in enumerate(graph.nodes):
        raster, fold, members = scan_of(graph, node), folds.get(node.name), (i,)
        table = None if fold is None else folds_of_one(shape_of(graph, node), fold_rows([fold]))
        times = clocks_of(raster, table)
        if i in inside:
            loops = Loops(shape_of(graph, block.expand).channels, folds[block.expand.name])
            raster = raster_of(graph, block.depthwise)
            times, members = fused_clocks(raster, np.array([loops.clocks]), np.array([loops.slices])), inside
        if i == max(members) and not node.op.still:
            items.append(LayerOptions(members, np.zeros((1, 1)), times, raster))
            mean[members[len(members) > 1]] = np.append(times[0, :UNTIL], 1.0)
    assert all(item.times[0, UNTIL] <= frame for item in items if max(item.members) in ends)

    def clocks(path: Path) -> float:
        work = [(item, found) for item in items if (found := waits.passed(path, item)) is not None]
        return sum(float(item.times[0, :UNTIL] @ found) - 1 for item, found in work)

    longest = 0.0
    for _, path in waits.paths(mean):
        longest = max(longest, clocks(path))
        assert clocks(path) <= frame, path
    assert longest > frame / 2
    for _ in range(200):
        assert clocks(drawn_path(waits, rng)) <= frame


def drawn_path(waits: Waits, rng: np.random.Generator) -> Path:
    """Nodes from the input to the end, and an output of each that waits for the one in front if there is one."""
    nodes = list[int | None]([waits.end])
    while (node := nodes[0]) is not None:
        nodes.insert(0, waits.sources[node][int(rng.integers(len(waits.sources[node])))])
    path = list[tuple[int, int]]()
    for source, node in pairwise(nodes):
        assert node is not None
        before = np.array([path[-1][1] if path else 0])
        least, most = int(waits.ended(source, node, before)[0]), len(waits.scans[node].steps) - 1
        if least > most:  # no output waits for it
            return ()
        some = least if rng.random() < 0.6 else int(rng.integers(least, most + 1))
        path.append((node, most if node == waits.end else some))
    return tuple(path)


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
