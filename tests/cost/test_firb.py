"""Inverted residual blocks as one pipeline: which nodes are one, and folds that share their words and keep the pace."""

from __future__ import annotations

import pytest

from dovetail.cost.firb import bottlenecks, firb_options
from dovetail.fpga.assemble import build_design, design_modules
from dovetail.hardware.folds import Loops, channels_of
from dovetail.ir import RELU, Add, Conv, Graph, Window
from dovetail.platform.load import load_platform
from tests.strategies import Net, quantized

DEVICE = load_platform("zcu102").device("fpga")
SAME = (1, 1, 1, 1)


def block(expanded: int, stride: int, residual: bool) -> Graph:
    net = Net(5)
    x = net.add(Conv(6, Window((3, 3), pads=SAME), 1, RELU), net.input((1, 3, 9, 8)))
    y = net.add(Conv(expanded, Window((1, 1)), 1, RELU), x)
    y = net.add(Conv(expanded, Window((3, 3), (stride, stride), SAME), expanded, RELU), y)
    y = net.add(Conv(6, Window((1, 1))), y)
    return quantized(net.graph(net.add(Add(), y, x) if residual else y))


@pytest.mark.parametrize(("stride", "residual"), [(1, True), (1, False), (2, False)])
def test_a_block_is_found_with_its_residual(stride: int, residual: bool) -> None:
    graph = block(18, stride, residual)
    (found,) = bottlenecks(graph)
    assert [node.name for node in found.layers] == [node.name for node in graph.nodes[1:4]]
    assert (found.join is not None) == residual


def test_layers_that_others_read_too_are_no_block() -> None:
    graph = block(18, 1, False)
    shown = Graph(graph.name, graph.inputs, (*graph.outputs, graph.nodes[2].output), graph.nodes, graph.tensors, graph.constants)
    assert bottlenecks(shown) == ()


@pytest.mark.parametrize("clocks", [1_000, 2_000, 5_000, 40_000])
@pytest.mark.parametrize(("expanded", "stride"), [(18, 1), (25, 2), (12, 1)])
def test_folds_of_a_block_share_their_words_and_keep_the_pace(expanded: int, stride: int, clocks: int) -> None:
    graph = block(expanded, stride, stride == 1)
    (found,) = bottlenecks(graph)
    options = firb_options(graph, found, DEVICE.model, True, clocks)
    assert options
    for option in options:
        assert option.steps <= clocks
        loops = [Loops(channels_of(node.op, graph.shape(node.inputs[0])[1], graph.shape(node.output)[1]), fold)
                 for node, fold in zip(found.layers, option.folds, strict=True) if isinstance(node.op, Conv)]
        assert loops[0].output_width == loops[1].input_width == loops[1].output_width == loops[2].input_width
    folds = {node.name: fold for node, fold in zip(found.layers, options[-1].folds, strict=True)}
    names = {f"words_{node.output}" for node in found.layers[:2]}
    assert not [m.name for m in design_modules(graph, "block", folds) if any(name in m.name for name in names)]
    assert build_design(graph, "block", folds=folds).interval_cycles <= max(clocks, 9 * 8)


def test_projections_in_passes_save_multipliers_and_keep_up_with_the_expander() -> None:
    graph = block(24, 1, True)
    (found,) = bottlenecks(graph)
    options = firb_options(graph, found, DEVICE.model, False, 3_000)
    assert all(option.steps <= 3_000 for option in options)
    pairs = {}
    for option in options:
        first, _, last = (Loops(channels_of(node.op, graph.shape(node.inputs[0])[1], graph.shape(node.output)[1]), fold)
                          for node, fold in zip(found.layers, option.folds, strict=True) if isinstance(node.op, Conv))
        assert last.passes in (1, min(first.slices, 6))
        pairs.setdefault(option.folds[0], {})[last.passes > 1] = dict(option.resources)
    several = [p for p in pairs.values() if len(p) == 2]
    assert several
    assert all(p[True]["dsp"] < p[False]["dsp"] and p[True]["lut"] < p[False]["lut"] for p in several)


def test_a_pace_that_no_block_keeps_has_no_folds() -> None:
    graph = block(18, 1, True)
    assert firb_options(graph, bottlenecks(graph)[0], DEVICE.model, True, 60) == ()
