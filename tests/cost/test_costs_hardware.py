"""The cost of hardware against the hardware itself: which operators, how many clocks, how large."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from dovetail.cost import costs_of, why_not
from dovetail.fpga.assemble import build_design, unsupported
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.hardware.engines import engine_of
from dovetail.ir import RELU, Add, AvgPool, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Op, Reshape, Window
from dovetail.platform.load import load_platform
from tests.strategies import Net, networks, quantized

FPGA = load_platform("ecp5-85").device("fpga")
SAME = (1, 1, 1, 1)


def single(*ops: Op, shape: tuple[int, int, int]) -> Graph:
    net = Net(3)
    x = net.input((1, *shape))
    for op in ops:
        x = net.add(op, x)
    return quantized(net.graph(x))


@settings(max_examples=40, deadline=None)
@given(networks())
def test_what_has_a_cost_has_an_engine_and_the_other_way_round(graph: Graph) -> None:
    graph = quantized(graph)
    for node in graph.nodes:
        assert (why_not(graph, node, FPGA) is None) == (unsupported(graph, node) is None), node.op


LAYERS = {
    "dense": single(Conv(8, Window((3, 3)), 1, RELU), shape=(3, 12, 12)),
    "dense same": single(Conv(8, Window((3, 3), pads=SAME), 1, RELU), shape=(3, 12, 12)),
    "strided": single(Conv(8, Window((3, 3), (2, 2), SAME), 1, RELU), shape=(4, 14, 14)),
    "pointwise": single(Conv(16, Window((1, 1))), shape=(8, 7, 7)),
    "depthwise": single(Conv(8, Window((3, 3), pads=SAME), 8), shape=(8, 14, 14)),
    "five by five": single(Conv(4, Window((5, 5), pads=(2, 2, 2, 2))), shape=(2, 28, 28)),
    "wide padding": single(Conv(4, Window((5, 5), pads=(4, 4, 4, 4))), shape=(2, 8, 8)),
    "max pool": single(MaxPool(Window((2, 2), (2, 2))), shape=(8, 14, 14)),
    "average pool": single(AvgPool(Window((2, 2), (2, 2))), shape=(8, 14, 14)),
    "global average": single(GlobalAvgPool(), shape=(8, 7, 7)),
    "fully connected": single(Reshape((1, 128)), Gemm(10), shape=(8, 4, 4)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_planned_clocks_are_those_of_the_design_within_a_few(name: str) -> None:
    graph = LAYERS[name]
    costs = costs_of(graph, graph.nodes[-1], None, np.array([0]), np.array([1]), FPGA)
    assert costs is not None
    assert FPGA.clock_hz is not None
    assert costs.alone_s[0] * FPGA.clock_hz == pytest.approx(build_design(graph, "layer").latency_cycles, abs=5)


@pytest.mark.parametrize(("side", "blocks"), [(14, 1), (14, 2), (28, 2), (7, 1)])
def test_a_residual_waits_as_in_the_design_and_engines_in_a_row_only_add_their_tails(side: int, blocks: int) -> None:
    net = Net(3)
    start = x = net.add(Conv(8, Window((1, 1)), 1, RELU), net.input((1, 8, side, side)))
    for _ in range(blocks):
        x = net.add(Conv(8, Window((1, 1))), net.add(Conv(8, Window((3, 3), pads=SAME), 8, RELU), x))
    graph = quantized(net.graph(net.add(Add(RELU), start, x)))
    design = build_design(graph, "residual")
    join = engine_of(graph, graph.nodes[-1], None, np.array([0]), np.array([1]))
    assert join.skip_depth == pytest.approx(design.fifos[0].depth, abs=8)
    tails = [costs_of(graph, node, None, np.array([0]), np.array([1]), FPGA) for node in graph.nodes]
    assert FPGA.clock_hz is not None
    clocks = side * side + sum(float(t.fused_s[0]) for t in tails if t is not None) * FPGA.clock_hz
    assert clocks == pytest.approx(design.latency_cycles, abs=8)


@pytest.mark.yosys
def test_planned_area_is_that_of_synthesis_within_the_stated_error() -> None:
    graph = single(Conv(6, Window((3, 3), pads=SAME), 1, RELU), shape=(2, 20, 20))
    costs = costs_of(graph, graph.nodes[0], None, np.array([0]), np.array([1]), FPGA)
    assert costs is not None
    counted = synthesize(build_design(graph, "layer"), "ecp5").resources
    assert costs.resources["lut4"][0] == pytest.approx(counted["lut4"], rel=0.2)
    assert costs.resources["register"][0] == pytest.approx(counted["register"], rel=0.25)
    assert costs.resources["bram"][0] == counted["bram"]
