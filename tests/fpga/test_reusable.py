"""Blocks of reusable engines against the reference: every kind of layer, stalls, exact clocks."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.cost.array import LEAVE_CLOCKS, Config, frame_ends
from dovetail.errors import UnsupportedError
from dovetail.fpga.reusable.block import ArrayBlock, build_block
from dovetail.fpga.reusable.image import tap_order
from dovetail.fpga.toolchain.simulate import Simulation, simulate_many
from dovetail.ir import Array, Graph, Window
from dovetail.numerics.reference import run_integer
from tests.fpga.random_graphs import Sketch, random_inputs, same_window
from tests.fpga.reusable_blocks import cases, layer

Run = tuple[Graph, ArrayBlock, dict[str, Array]]


def run_of(name: str, graph: Graph, config: Config) -> Run:
    return graph, build_block(graph, [n.name for n in graph.nodes], config, name), random_inputs(graph, 3, 1)


def simulated(runs: list[Run], stall_seed: int | None = None) -> list[Simulation]:
    return simulate_many([(block.design, {block.program.layers.entry: inputs[graph.inputs[0]]}) for graph, block, inputs in runs],
                         stall_seed)


def check_outputs(runs: list[Run], simulations: list[Simulation]) -> None:
    for (graph, block, inputs), simulation in zip(runs, simulations, strict=True):
        (expected,) = run_integer(graph, inputs).values()
        found = simulation.outputs[block.program.layers.exit].reshape(expected.shape)
        np.testing.assert_array_equal(found, expected, err_msg=block.design.top)


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    return [run_of(name, *case) for name, case in cases().items()]


def left(block: ArrayBlock) -> list[int]:
    """Clocks at which the model says that frames have left."""
    layers, config = block.program.layers, block.program.config
    shape = layers.maps[layers.exit]
    return [end + shape.pixels * config.words(shape.channels) + LEAVE_CLOCKS for end in frame_ends(block.program)]


@pytest.mark.verilator
def test_blocks_equal_the_reference_and_take_the_clocks_the_model_says(runs: list[Run]) -> None:
    simulations = simulated(runs)
    check_outputs(runs, simulations)
    for (_, block, _), simulation in zip(runs, simulations, strict=True):
        said, took = left(block), simulation.frame_cycles
        assert abs(said[0] / took[0] - 1) < 0.03, (block.design.top, said, took)
        assert abs((said[2] - said[1]) / (took[2] - took[1]) - 1) < 0.03, (block.design.top, said, took)


@pytest.mark.verilator
def test_blocks_equal_the_reference_when_streams_and_memory_stall(runs: list[Run]) -> None:
    check_outputs(runs, simulated(runs, 5))


def test_equal_tables_are_stored_once_for_all_layers_of_an_engine() -> None:
    graph, config = cases()["gated"]
    block = build_block(graph, [n.name for n in graph.nodes], config, "top")
    tables = [n for n in graph.nodes if n.op.table]
    looked_up = [x.node for x in block.program.layers.layers if x.table is not None]
    assert len(looked_up) == len(tables) == 10
    assert [len(own) for own in block.numbers.tables] == [4, 2]
    assert all(len(table) == 256 for own in block.numbers.tables for table in own)


def test_averages_that_no_one_cut_serves_have_one_each() -> None:
    graph, config = cases()["gated"]
    depthwise = build_block(graph, [n.name for n in graph.nodes], config, "top").numbers.engines[1]
    assert depthwise is not None
    assert len(set(depthwise.cuts)) == 2  # of 42 and of 12 values, which may be negative


def test_taps_of_a_smaller_kernel_come_before_those_of_a_larger_one() -> None:
    for kernel in range(1, 8):
        assert set(tap_order(7)[:kernel * kernel]) == {(a, b) for a in range(kernel) for b in range(kernel)}


def test_the_image_holds_weights_and_constants_job_after_job() -> None:
    s = Sketch(np.random.default_rng(0))
    graph = s.graph((s.conv(s.input((1, 2, 1, 3)), 3, Window((1, 1))),))
    weights, bias = (graph.constants[name].array for name in graph.nodes[0].params)
    block = build_block(graph, ["conv0"], Config(2, 4, port_bytes=4, bandwidth_bytes=4), "top")
    image = block.image.reshape(-1)
    rows = image[:8].view(np.int8).reshape(4, 2)
    assert rows[:3].tolist() == weights.reshape(3, 2).tolist()
    assert rows[3].tolist() == [0, 0]
    constants = image[8:8 + 48].reshape(2, 24)
    assert constants[:, :16].copy().view("<i4").reshape(4, 2)[:3, 0].tolist() == bias.tolist()
    assert len(image) == 56


def test_a_block_of_float_values_or_with_a_node_it_refuses_is_named() -> None:
    s = Sketch(np.random.default_rng(0))
    x = s.input((1, 2, 3, 3))
    graph = s.graph((s.concat(s.conv(x, 3, same_window(1)), x),))
    with pytest.raises(UnsupportedError) as caught:
        build_block(graph, [n.name for n in graph.nodes], Config(2, 2), "top")
    assert str(caught.value) == ("node concat1: cannot run on reusable engines, reusable engines have no Concat; "
                                 "leave it out of the block")


def test_a_lone_depthwise_layer_needs_no_array() -> None:
    graph = layer(6, (9, 6, 5), 9, same_window(3), 9)
    block = build_block(graph, ["conv0"], Config(4, 8), "top")
    assert not any("array_lanes" in name for name in block.design.files)
