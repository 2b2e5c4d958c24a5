"""Blocks whose array counts bits: networks of codes of all widths, bit for bit, with stalls, at the clocks the model says."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.cost.accelerator import arrays_of
from dovetail.cost.array import LEAVE_CLOCKS, Config, frame_ends
from dovetail.errors import UnsupportedError, UsageError
from dovetail.fpga.accelerator import build_accelerator
from dovetail.fpga.design import Design
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.reusable.block import ArrayBlock, build_block
from dovetail.fpga.reusable.counting import counting_lanes
from dovetail.fpga.toolchain.simulate import simulate_many
from dovetail.hardware.arrays.popcount import count_levels
from dovetail.ir import Add, AvgPool, Coded, Constant, GlobalAvgPool, Graph, Node, Scheme, Tensor, Thresholds, Window
from dovetail.numerics.lq import coded_node
from dovetail.numerics.reference import run_integer
from dovetail.platform.accelerator import AcceleratorDesign, Architecture
from tests.fpga.random_graphs import random_inputs
from tests.numerics.lq_networks import conv_of, learned, network

CODES, SUMS = Scheme(2, False, (0,)), Scheme(16, True, (-8,))


def planes(inputs: int, outputs: int, pairs: tuple[int, int], thresholds: int = 3, bits: int = 16, map_bytes: int = 0) -> Config:
    return Config(inputs, outputs, weight_planes=pairs[0], input_planes=pairs[1], value_bits=bits, thresholds=thresholds,
                  map_bytes=map_bytes)


def residual(seed: int) -> Graph:
    """Residual sums of 16 bits in small: thresholds per channel and shared, an addition, averages, a stride, codes of 2 bits."""
    rng = np.random.default_rng(seed)
    tensors = {"x": Tensor("x", (1, 6, 8, 6), SUMS)}
    nodes: list[Node] = []
    constants: dict[str, Constant] = {}

    def put(node: Node, scheme: Scheme) -> str:
        nodes.append(node)
        tensors[node.output] = Tensor(node.output, node.op.infer(tuple(tensors[t].shape for t in node.inputs)), scheme)
        return node.output

    def steps(name: str, source: str, by_channel: bool) -> str:
        rows = np.sort(rng.integers(-9000, 9000, (tensors[source].shape[1], 3)), axis=1).astype(np.int32)
        constants[f"{name}_steps"] = Constant(f"{name}_steps", rows if by_channel else rows[0])
        return put(Node(name, Thresholds(2, by_channel), (source,), (f"{name}_steps",), f"{name}_y"), CODES)

    def conv(name: str, source: str, filters: int, stride: int, boundaries: list[float] | None) -> str:
        shape = (filters, tensors[source].shape[1], 3, 3)
        node, own = coded_node(name, learned(rng, conv_of(shape, 1, stride), shape, 2, 2), source, f"{name}_y", boundaries)
        constants.update({c.name: c for c in own})
        return put(node, SUMS if boundaries is None else CODES)

    codes = steps("entry", "x", True)
    inner = conv("first", codes, 5, 1, [0.1, 0.4, 0.9])
    summed = put(Node("add", Add(), (conv("second", inner, 6, 1, None), "x"), (), "add_y"), Scheme(16, True, (-8,)))
    pooled = put(Node("pool", AvgPool(Window((2, 2), (2, 2))), (summed,), (), "pool_y"), SUMS)
    last = conv("third", steps("again", pooled, False), 9, 2, None)
    out = put(Node("average", GlobalAvgPool(), (last,), (), "average_y"), SUMS)
    return Graph("residual", ("x",), (out,), tuple(nodes), tensors, constants)


def cases() -> dict[str, tuple[Graph, Config]]:
    return {
        "w3a3_by_turns": (network(24, 3, 3), planes(4, 4, (2, 1), 7)),
        "w4a4": (network(32, 4, 4, last="codes"), planes(2, 8, (4, 2), 15, bits=8)),
        "w1a1": (network(2, 1, 1, last="codes"), planes(4, 8, (1, 1), 1, bits=8)),
        "residual_outside": (residual(4), planes(4, 8, (1, 4), map_bytes=256)),
    }


def hybrid() -> tuple[Graph, Design]:
    """The first layer, which reads bytes, with an engine of its own, and the array behind it."""
    graph = network(5, 2, 2)
    arrays = arrays_of(planes(4, 4, (2, 2)))
    made = AcceleratorDesign(Architecture.FIBHA, {"first": None}, tuple(n.name for n in graph.nodes[1:]), arrays, 64)
    return graph, build_accelerator(graph, "hybrid", made)


@pytest.fixture(scope="module")
def blocks() -> list[tuple[Graph, ArrayBlock]]:
    return [(graph, build_block(graph, [n.name for n in graph.nodes], config, name))
            for name, (graph, config) in cases().items()]


@pytest.mark.verilator
@pytest.mark.parametrize("stall_seed", [None, 5])
def test_blocks_equal_the_reference_and_take_the_clocks_the_model_says(blocks: list[tuple[Graph, ArrayBlock]],
                                                                      stall_seed: int | None) -> None:
    inputs = [random_inputs(graph, 3, 1) for graph, _ in blocks]
    jobs = [(block.design, {graph.inputs[0]: x[graph.inputs[0]]}) for (graph, block), x in zip(blocks, inputs, strict=True)]
    whole, design = hybrid()
    images = random_inputs(whole, 3, 2)
    *found, both = simulate_many([*jobs, (design, {"x": as_pixels(design.inputs[0], images["x"])})], stall_seed)
    expected = run_integer(whole, images)["last_y"]
    np.testing.assert_array_equal(both.outputs["last_y"].reshape(expected.shape), expected)
    for (graph, block), x, simulation in zip(blocks, inputs, found, strict=True):
        (expected,) = run_integer(graph, x).values()
        out = simulation.outputs[block.program.layers.exit].reshape(expected.shape)
        np.testing.assert_array_equal(out, expected, err_msg=block.design.top)
        shape, took = block.program.layers.maps[block.program.layers.exit], simulation.frame_cycles
        said = [e + shape.pixels * block.program.config.words(shape.channels) + LEAVE_CLOCKS for e in frame_ends(block.program)]
        if stall_seed is None:
            assert abs(said[0] / took[0] - 1) < 0.02, (block.design.top, said, took)
            assert abs((said[2] - said[1]) / (took[2] - took[1]) - 1) < 0.02, (block.design.top, said, took)


def test_some_maps_lie_outside_and_some_layers_take_several_passes(blocks: list[tuple[Graph, ArrayBlock]]) -> None:
    known = {block.design.top: block.program for _, block in blocks}
    assert known["residual_outside"].outside
    assert {job.passes for job in known["w3a3_by_turns"].jobs} >= {1, 6}


def test_counts_take_the_clock_edges_that_the_model_says() -> None:
    for inputs in (1, 2, 3, 4, 7, 8, 16, 24, 30, 32, 48, 64, 69, 86, 96, 128):
        assert counting_lanes("lanes", 1, inputs, (1, 1), inputs).sum_stage == count_levels(inputs), inputs


def test_what_arrays_that_count_bits_cannot_do_is_named() -> None:
    graph = network(1, 2, 2)
    with pytest.raises(UnsupportedError) as caught:
        build_block(graph, [n.name for n in graph.nodes], planes(4, 8, (2, 2), bits=8), "top")
    assert str(caught.value) == ("node last: values of 16 bits and 0 thresholds; these arrays have 8 and 3, enlarge them")
    with pytest.raises(UnsupportedError, match="node first: cannot run on reusable engines, reusable engines have no LqConv"):
        build_block(graph, [n.name for n in graph.nodes], Config(4, 8), "top")
    with pytest.raises(UsageError, match="2 x 0 planes of bits; an array that counts bits has planes on both sides"):
        Config(4, 8, weight_planes=2)
    assert isinstance(graph.nodes[0].op, Coded)
