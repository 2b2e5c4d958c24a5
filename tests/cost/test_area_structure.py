"""What an engine is priced by, against the hardware that is generated for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.cost.dhm import distributed, fifo_words_of, resources_of
from dovetail.explore.area_layers import AreaLayer, area_graph, designed_area_layers
from dovetail.fpga.assemble import design_modules
from dovetail.hardware.engines import EngineSizes, engine_of
from dovetail.hardware.rounding import division_bits, live_weights, tree_bits
from dovetail.hardware.scans import Shifts, window_shifts
from dovetail.ir import Axis, Constant, Gemm, Graph, Node, Reshape, Tensor, Window
from dovetail.measure.layers import MeasuredLayer
from dovetail.platform.fitted import dhm_model

ONE = (np.array([0]), np.array([1]))


def engine(graph: Graph) -> EngineSizes:
    return engine_of(graph, graph.nodes[-1], None, *ONE)


DENSE = [layer for layer in designed_area_layers(48) if layer.weights != "sparse"]


@pytest.mark.parametrize("layer", DENSE[::3], ids=str)
def test_registers_and_fifo_are_those_of_the_design(layer: AreaLayer) -> None:
    """All but what a synthesizer finds out: registers of equal content, and the words that RAM blocks register themselves."""
    graph = area_graph(layer)
    modules = design_modules(graph, "layer")
    built = sum(r.target.width for m in modules for r in m.registers) + sum(
        memory.width for m in modules for memory in m.memories if not memory.block)
    found = engine(graph)
    assert float(resources_of(found, dhm_model("dhm-ecp5"))["register"][0]) == pytest.approx(built, rel=0.2)
    fifo = next(m for m in modules if m.name.endswith("_fifo"))
    assert float(fifo_words_of(found)[0]) == pytest.approx(fifo.memories[0].depth, abs=4)


def test_a_large_matrix_behind_a_flattened_map_is_priced() -> None:
    """Its window is the whole map, of which no tap is looked at."""
    weights = np.random.default_rng(0).normal(size=(100, 64 * 49)).astype(np.float32)
    tensors = {"x": Tensor("x", (1, 64, 7, 7)), "f": Tensor("f", (1, 64 * 49)), "y": Tensor("y", (1, 100))}
    constants = {"w": Constant("w", weights), "b": Constant("b", np.zeros(100, dtype=np.float32))}
    nodes = (Node("flat", Reshape((1, 64 * 49)), ("x",), (), "f"), Node("fc", Gemm(100), ("f",), ("w", "b"), "y"))
    found = engine(Graph("head", ("x",), ("y",), nodes, tensors, constants))
    assert float(found.adder_bits[0]) > 1e6


def test_a_filter_whose_bias_decides_its_output_costs_nothing() -> None:
    graph = area_graph(AreaLayer(MeasuredLayer("conv", 3, 8, 4, 1, activation="relu"), True, "normal", 8, False, 5))
    node = graph.nodes[0]
    _, bias = graph.params(node)
    dead = bias.array.copy()
    dead[1] = -(1 << 24)
    changed = replace(graph, constants={**graph.constants, bias.name: Constant(bias.name, dead, bias.scheme)})
    assert live_weights(graph, node).array[1].any()
    assert not live_weights(changed, node).array[1].any()
    assert float(engine(changed).adder_bits[0]) < float(engine(graph).adder_bits[0])


def test_rows_shift_as_far_as_their_oldest_tap_and_long_ways_are_chains() -> None:
    window, dense = Window((2, 3)), np.ones((1, 2, 3), dtype=np.bool_)
    assert window_shifts(dense, window, None) == Shifts(6.0, 0.0, 0.0)
    newest = dense.copy()
    newest[0, 0, :2] = False
    assert window_shifts(newest, window, None) == Shifts(4.0, 0.0, 0.0)
    oldest = dense.copy()
    oldest[0, 1, 1:] = False
    assert window_shifts(oldest, window, None) == Shifts(3.0, 3.0, 1.0)
    assert window_shifts(dense, window, 7) == Shifts(6.0, 4.0, 1.0)


def test_small_memories_fill_whole_primitives() -> None:
    bits, banks = distributed(17, np.array([9.0]), ((16, 4),))
    assert (bits[0], banks[0]) == (2 * 3 * 64, 2)
    bits, banks = distributed(40, np.array([14.0]), ((32, 14), (64, 7)))
    assert (bits[0], banks[0]) == (2 * 448, 2)


def test_a_tree_and_a_division_are_counted_level_by_level() -> None:
    assert tree_bits(5, 8, 1) == (2 * 9 + 10 + 11, 8 + 9 + 0)
    assert division_bits(16, 12) == (0, 0)
    carry, registers = division_bits(9, 12)
    assert carry > 12
    assert registers > 12


def test_shares_of_a_layer_need_no_more_than_the_layer() -> None:
    graph = area_graph(AreaLayer(MeasuredLayer("conv", 6, 12, 10, 3, activation="relu"), True, "laplace", 8, False, 7))
    starts, stops = np.zeros(10, dtype=np.int64), np.arange(1, 11)
    slices = resources_of(engine_of(graph, graph.nodes[0], Axis.OUTPUT_CHANNELS, starts, stops), dhm_model("dhm-xcu"))
    assert (np.diff(slices["lut"]) > 0).all()
    whole = resources_of(engine(graph), dhm_model("dhm-xcu"))
    assert slices["lut"][-1] == pytest.approx(whole["lut"][0])
