"""Verilog of small designs of every engine, kept as digests: a change of what is generated shows here, before any simulator runs.

Whoever updates the golden file runs the slow tests of these designs, which simulate them against the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from dovetail.fpga.assemble import build_design
from dovetail.fpga.design import Design
from dovetail.fpga.engines.lq import Datapath
from dovetail.hardware.folds import Fold
from dovetail.ir import AvgPool, Clamp, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, PixelShuffle, Window
from dovetail.numbers import graph_to_plan
from tests.fpga import test_firb, test_folded, test_lq
from tests.fpga.random_graphs import Sketch, random_folds, random_graph, same_window
from tests.ir import test_tflite
from tests.numerics.lq_networks import conv_of
from tests.scales import with_arbitrary_scales
from tests.strategies import Net, quantized

SQUARE = same_window(3)


def folded() -> Iterator[Design]:
    layer = test_folded.layer_job
    for name, (_, design, _) in {
        "padded": layer("padded", (1, 4, 6, 7), 5, SQUARE, Fold(1, 2, 2)),
        "one_pass": layer("one_pass", (1, 3, 17, 9), 5, SQUARE, Fold(1, 2, 5), seed=1),
        "pointwise": layer("pointwise", (1, 4, 5, 9), 5, same_window(1), Fold(1, 3, 2), seed=3),
        "depthwise": layer("depthwise", (1, 5, 9, 10), 5, Window((3, 3), (2, 2), (1, 1, 1, 1)), Fold(2, 1, 1), 5, seed=6),
        "grouped": layer("grouped", (1, 6, 5, 9), 6, SQUARE, Fold(2, 2, 2), 3, seed=3),
        "uneven": layer("uneven", (1, 5, 17, 9), 5, Window((3, 2), (2, 2), (1, 1, 0, 1), (1, 2)), Fold(1, 2, 2), seed=4),
        "partial": layer("partial", (1, 3, 3, 5), 3, SQUARE, Fold(1, 2, 1), seed=1, partial=True),
        "flat": test_folded.flat_job("flat", (1, 11), 7, Fold(1, 4, 3)),
        "twins": layer("twins", (1, 3, 6, 7), 7, SQUARE, Fold(1, 3, 3, 2), seed=2),
        "grouped_twins": layer("grouped_twins", (1, 6, 5, 9), 6, SQUARE, Fold(2, 2, 2, 2), 3, seed=3),
        "soft": layer("soft", (1, 4, 6, 7), 5, SQUARE, Fold(1, 2, 2, 0)),
    }.items():
        yield replace(design, top=name)


def mapped() -> Iterator[Design]:
    for seed in (0, 3, 9, 20):
        graph = random_graph(seed)
        yield build_design(graph, f"direct{seed}")
        yield build_design(with_arbitrary_scales(graph, seed), f"scaled{seed}")
        yield build_design(graph, f"folded{seed}", folds=random_folds(graph, seed))
    for name, add in {
        "average": lambda s, x: s.pool(AvgPool(Window((2, 3))), x),
        "padded_average": lambda s, x: s.pool(AvgPool(SQUARE, True), x),
        "largest": lambda s, x: s.pool(MaxPool(SQUARE), x), "mean": lambda s, x: s.pool(GlobalAvgPool(), x),
        "shuffled": lambda s, x: s.shuffle(x, PixelShuffle(2, 2, cropped=(1, 0))), "repeated": lambda s, x: s.upsample(x, 2, 3),
        "wide_padding": lambda s, x: s.conv(x, 3, Window((2, 2), pads=(2, 2, 2, 2))),
    }.items():
        s = Sketch(np.random.default_rng(1))
        yield build_design(s.graph((add(s, s.input((1, 4, 9, 10))),)), name)
    for number, (low, high) in enumerate(((-0.3, 0.5), (-0.5, 0.4), (0.1, 0.7), (-1.7, 0.0))):
        net = Net(number)
        graph = quantized(net.graph(net.add(Conv(3, Window((1, 1)), 1, Clamp(low, high)), net.input((1, 4, 5, 6)))))
        yield build_design(graph, f"clamped{number}")
        weight = graph.params(graph.nodes[0])[0]
        alive = replace(weight, array=weight.array * np.asarray([1, 0, 1], np.int8).reshape(3, 1, 1, 1))
        yield build_design(replace(graph, constants={**graph.constants, weight.name: alive}), f"dead{number}")
    for padding, stride, activation in ((0, 1, 1), (1, 2, 0)):
        for kind in ("CONV_2D", "DEPTHWISE_CONV_2D"):
            graph, _ = graph_to_plan(test_tflite.layer(kind, True, padding, stride, 1, activation))
            node = next(n for n in graph.nodes if n.op.layer)  # without the transposes around it
            tensors = {t: graph.tensors[t] for t in (*node.inputs, node.output)}
            alone = Graph("alone", node.inputs, (node.output,), (node,), tensors, {c.name: c for c in graph.params(node)})
            yield build_design(alone, f"lite_{kind.lower()}_{stride}")


def coded() -> Iterator[Design]:
    shape, wide = (1, 3, 6, 5), (4, 3, 3, 3)
    for datapath in Datapath:
        for bits in ((2, 2, 2), (1, 1, 1), (3, 2, 2)):
            name = f"{datapath.name.lower()}_{''.join(map(str, bits))}"
            yield test_lq.layer(5, conv_of(wide), wide, shape, bits, datapath, name)[2]
    for bits in ((0, 0, 2), (2, 0, 2), (0, 2, 2), (1, 2, 0), (4, 4, 3)):
        yield test_lq.layer(6, conv_of(wide), wide, shape, bits, name=f"planes_{''.join(map(str, bits))}")[2]
    for number, (bits, fold) in enumerate((((2, 2, 0), Fold(1, 4, 2)), ((0, 2, 2), Fold(1, 3, 2)), ((1, 2, 2), Fold(1, 6, 5)))):
        yield test_lq.layer(11, Gemm(5), (5, 12), (1, 12), bits, name=f"fold{number}", fold=fold)[2]
    filters = (3, 2, 2, 2)
    for bits in ((0, 0, 2), (1, 0, 2), (2, 2, 2)):
        yield test_lq.layer(15, conv_of(filters, pad=0), filters, (1, 2, 3, 3), bits, name=f"lane_{''.join(map(str, bits))}",
                            fold=Fold(1, 1, 2))[2]
    graph: Graph = test_lq.layer(16, conv_of((3, 4, 3, 3)), (3, 4, 3, 3), (1, 4, 5, 5), (2, 2, 2))[0]
    yield build_design(graph, "loaded", folds={"n": Fold(1, 2, 3)}, loaded=("n",))


def blocks() -> Iterator[Design]:
    for number in (0, 1, 3, 6):
        yield test_firb.made(number, True)[1]
    yield test_firb.made(1, False)[1]


@pytest.mark.parametrize("made", [folded, mapped, coded, blocks])
def test_designs_are_those_that_were_simulated(made: Callable[[], Iterator[Design]], golden: Callable[[str, str], None]) -> None:
    rows = []
    for design in made():
        text = "".join(f"{name}\n{text}" for name, text in sorted(design.files.items()))
        rows.append(f"{design.top}: {design.latency_cycles} clocks, {design.interval_cycles} between frames, "
                    f"FIFOs of {', '.join(str(fifo.depth) for fifo in design.fifos) or 'none'}; {len(design.files)} files, "
                    f"{len(text.splitlines())} lines, {sha256(text.encode()).hexdigest()[:16]}\n")
    golden(f"generated_{made.__name__}.txt", "".join(rows))
