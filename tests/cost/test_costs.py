"""Costs of shares: they follow the work, the stream and the weights, and say where they come from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dovetail.cost import costs_of, reductions, transfer_rates, transferred, why_not
from dovetail.cost.dhm import LINE_BLOCK_BITS, ram_blocks, resources_of
from dovetail.cost.estimate import ShareCosts
from dovetail.hardware.engines import EngineSizes, engine_of
from dovetail.hardware.scans import row_steps
from dovetail.hardware.shares import Floats
from dovetail.hardware.streaming import Raster
from dovetail.hardware.work import work_of
from dovetail.ir import RELU, Add, AvgPool, Axis, Concat, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Mul, Node, Reshape, Window
from dovetail.ir.tensor import region_shape, region_size
from dovetail.platform.device import Device, Platform
from dovetail.platform.fitted import dhm_model
from dovetail.platform.load import load_platform
from tests.strategies import Net, networks, quantized, windows

BOARDS = {name: load_platform(name) for name in ("tx2-c10gx", "ecp5-85", "this-machine")}
DEVICES = [(board, device.name) for board, platform in BOARDS.items() for device in platform.devices]
FPGAS = [d for p in BOARDS.values() for d in p.devices if d.family]
WHOLE = (np.array([0]), np.array([1]))


@pytest.fixture(params=DEVICES, ids=["-".join(d) for d in DEVICES])
def device(request: pytest.FixtureRequest) -> Device:
    board, name = request.param
    return BOARDS[board].device(name)


@pytest.fixture
def tx2() -> Platform:
    return BOARDS["tx2-c10gx"]


def layer(channels: int, filters: int, kernel: int, side: int, groups: int = 1, pad: int = 0, stride: int = 1) -> Graph:
    net = Net(1)
    x = net.input((1, channels, side, side))
    return net.graph(net.add(Conv(filters, Window((kernel, kernel), (stride, stride), (pad,) * 4), groups, RELU), x))


def every_share(graph: Graph, node: Node, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    starts, stops = np.triu_indices(node.op.extent(axis, graph.input_shapes(node)) + 1, 1)
    return starts.astype(np.int64), stops.astype(np.int64)


@settings(max_examples=60, deadline=None)
@given(networks())
def test_work_of_a_share_is_that_of_the_operator_it_becomes(graph: Graph) -> None:
    for node in graph.nodes:
        shapes = graph.input_shapes(node)
        for axis in node.op.axes(shapes):
            starts, stops = every_share(graph, node, axis)
            work = work_of(graph, node, axis, starts, stops)
            for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
                share = node.op.share(axis, int(start), int(stop), shapes)
                reads = tuple(region_shape(r) for r in share.inputs)
                assert np.broadcast_to(work.reads, starts.shape)[i] == sum(region_size(r) for r in share.inputs)
                assert np.broadcast_to(work.writes, starts.shape)[i] == region_size(share.output)
                assert np.broadcast_to(work.macs, starts.shape)[i] == pytest.approx(share.op.macs(reads))
                if share.params:
                    assert np.broadcast_to(work.weights, starts.shape)[i] == pytest.approx(region_size(share.params[0]))


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(1, 12), st.integers(1, 12))
def test_row_shares_take_the_steps_of_their_own_raster(data: st.DataObject, height: int, width: int) -> None:
    window = data.draw(windows(height, width))
    rows = window.output_size(height, width)[0]
    starts, stops = (v.astype(np.int64) for v in np.triu_indices(rows + 1, 1))
    if not window.divides_rows():
        return
    steps, flush = row_steps(window, height, width, starts, stops)
    for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        part, (first, last) = window.rows(int(start), int(stop), height)
        raster = Raster(part, last - first, width)
        assert (steps[i], flush[i]) == (raster.steps, raster.flush)


def some_shares(graph: Graph, node: Node, axis: Axis) -> tuple[np.ndarray, np.ndarray]:
    """Every share, or as many of them as can be compared with each other."""
    starts, stops = every_share(graph, node, axis)
    step = -(-len(starts) // 1500)
    return starts[::step], stops[::step]


def lines_of_one_length() -> Graph:
    """Found by search: lines of 4 channels are kept in logic, those of all 5 in RAM blocks."""
    net = Net(0)
    x = net.input((1, 1, 1, 7))
    x = net.add(Concat(1), net.add(Conv(2, Window((1, 1)), 1, RELU), x),
                net.add(Conv(3, Window((3, 3), pads=(1, 1, 1, 1)), 1, RELU), x))
    x = net.add(Mul(), x, net.add(Conv(1, Window((3, 3), pads=(1, 1, 1, 1))), x))
    return net.graph(net.add(Conv(1, Window((3, 1), pads=(0, 0, 4, 0), dilation=(2, 1))), net.add(MaxPool(Window((1, 1))), x)))


def pruned(filters: int, kept: tuple[int, ...]) -> Graph:
    """Found by search in pruned layers: no filter weighs some channels, and weights of one digit share nothing."""
    graph = layer(len(kept), filters, 1, 4)
    weight = graph.constants["n0_weight"]
    array = np.sign(weight.array) * np.asarray(kept, dtype=np.float32)[:, None, None]
    return graph.with_nodes(graph.nodes, constants=[type(weight)(weight.name, array)])


def growing(costs: ShareCosts, graph: Graph, node: Node, axis: Axis, shares: tuple[np.ndarray, np.ndarray],
            device: Device) -> Iterator[Floats]:
    """What a share never needs more of than one that contains it.

    Lines of a window stand in logic, or, from LINE_BLOCK_BITS on, in RAM blocks: a larger share may have less logic and more
    blocks. So logic is compared with lines of both in the same kind of memory, and what they are of the device as they are.
    """
    if not device.family:
        yield costs.alone_s
        return
    model = dhm_model(device.model)
    engine = engine_of(graph, node, axis, *shares)
    yield from resources_of(replace(engine, line_bits=None), model).values()
    yield costs.resources[model.block]
    yield np.sum([used / device.resources[name] for name, used in costs.resources.items()], axis=0)


@settings(max_examples=25, deadline=None)
@given(networks(), st.sampled_from(DEVICES))
@example(lines_of_one_length(), ("tx2-c10gx", "fpga"))
@example(pruned(1, (1, 0, 1, 0, 1)), ("tx2-c10gx", "fpga"))
@example(pruned(2, (1, 1, 0, 0, 0, 1)), ("ecp5-85", "fpga"))
def test_costs_are_finite_ordered_and_grow_with_the_share(graph: Graph, where: tuple[str, str]) -> None:
    device = BOARDS[where[0]].device(where[1])
    for node in graph.nodes:
        for axis in node.op.axes(graph.input_shapes(node)):
            starts, stops = some_shares(graph, node, axis)
            costs = costs_of(graph, node, axis, starts, stops, device)
            if costs is None:
                assert why_not(graph, node, device)
                continue
            assert set(costs.resources) == set(device.resources)
            for values in (costs.alone_s, costs.fused_s, costs.low_s, costs.high_s, costs.energy_j, *costs.resources.values()):
                assert values.shape == starts.shape
                assert np.isfinite(values).all()
                assert (values >= 0).all()
            assert (costs.low_s <= costs.alone_s).all()
            assert (costs.alone_s <= costs.high_s).all()
            assert (costs.fused_s <= costs.alone_s).all()
            inside = (starts[:, None] >= starts[None, :]) & (stops[:, None] <= stops[None, :])
            for values in growing(costs, graph, node, axis, (starts, stops), device):
                assert (np.where(inside, values[:, None] - values[None, :], 0.0) <= 1e-9 * values.max(initial=1.0)).all()


@pytest.mark.parametrize("device", FPGAS, ids=lambda d: d.name + d.family)
def test_lines_that_move_into_blocks_are_no_smaller_part_of_the_device(device: Device) -> None:
    depth = np.arange(1.0, LINE_BLOCK_BITS // 8)
    widest, zero = 8 * ((np.ceil(LINE_BLOCK_BITS / depth) - 1) // 8), np.zeros(len(depth))  # whole bytes

    def part(bits: Floats) -> tuple[Floats, Floats]:
        engine = EngineSizes(*[zero] * 9, line_depth=depth, line_bits=bits)
        found = resources_of(engine, dhm_model(device.model))
        return sum(used / device.resources[name] for name, used in found.items()), found[dhm_model(device.model).block]

    (in_logic, without), (in_blocks, some) = part(widest), part(widest + 8)
    assert not without.any()
    assert some.all()
    assert (in_logic <= in_blocks).all()


@settings(max_examples=15, deadline=None)
@given(networks(max_nodes=3))
def test_quantized_and_float_graphs_are_both_priced(graph: Graph) -> None:
    for priced in (graph, quantized(graph)):
        for node in priced.nodes:
            for device in (*BOARDS["tx2-c10gx"].devices, *BOARDS["ecp5-85"].devices):
                costs = costs_of(priced, node, None, *WHOLE, device)
                assert (costs is None) == (why_not(priced, node, device) is not None)


@pytest.mark.parametrize("fpga", FPGAS, ids=lambda d: d.family)
def test_time_follows_the_stream_and_not_the_filters(fpga: Device) -> None:
    few, many = (costs_of(g, g.nodes[0], None, *WHOLE, fpga) for g in (layer(3, 4, 3, 28), layer(3, 32, 3, 28)))
    assert few is not None
    assert many is not None
    assert many.alone_s == pytest.approx(few.alone_s, rel=0.02)
    assert fpga.clock_hz is not None
    assert few.alone_s[0] * fpga.clock_hz == pytest.approx(28 * 28, abs=20)
    (logic,) = {"alm", "lut4"} & set(fpga.resources)
    assert many.resources[logic][0] > 4 * few.resources[logic][0]


@pytest.mark.parametrize("fpga", FPGAS, ids=lambda d: d.family)
def test_area_follows_the_weights_themselves(fpga: Device) -> None:
    graph = layer(4, 8, 3, 14)
    weight = graph.constants["n0_weight"]
    easy = graph.with_nodes(graph.nodes, constants=[type(weight)(weight.name, np.sign(weight.array))])
    (logic,) = {"alm", "lut4"} & set(fpga.resources)
    dear, cheap = (costs_of(g, g.nodes[0], None, *WHOLE, fpga) for g in (graph, easy))
    assert dear is not None
    assert cheap is not None
    assert cheap.resources[logic][0] < 0.7 * dear.resources[logic][0]


def test_area_is_below_published_counts_of_shared_multiples_alone_but_of_their_size(tx2: Platform) -> None:
    counts = {18_974: layer(3, 64, 3, 224), 6_260: layer(16, 32, 1, 56), 4_927: layer(32, 32, 3, 56, groups=32)}
    for published, graph in counts.items():
        costs = costs_of(graph, graph.nodes[0], None, *WHOLE, tx2.device("fpga"))
        assert costs is not None
        assert 0.6 * published < costs.resources["alm"][0] < 1.05 * published


def test_shares_of_a_processor_add_up_to_the_whole_but_for_what_is_paid_twice(tx2: Platform) -> None:
    graph = layer(64, 64, 3, 28, pad=1)
    node, gpu = graph.nodes[0], tx2.device("gpu")
    whole = costs_of(graph, node, None, *WHOLE, gpu)
    halves = costs_of(graph, node, Axis.OUTPUT_CHANNELS, np.array([0, 20]), np.array([20, 64]), gpu)
    assert whole is not None
    assert halves is not None
    assert whole.alone_s[0] < halves.alone_s.sum()
    assert halves.alone_s.max() < whole.alone_s[0]


def test_the_measured_shape_is_inside_the_box_and_others_say_extrapolated(tx2: Platform) -> None:
    cpu = tx2.device("cpu")
    for graph, outside in ((layer(64, 64, 3, 28), False), (layer(64, 64, 3, 28, stride=2), True),
                           (layer(64, 64, 3, 28, groups=64), True), (layer(3, 64, 3, 224), True), (layer(2, 64, 3, 28), True)):
        costs = costs_of(graph, graph.nodes[0], None, *WHOLE, cpu)
        assert costs is not None
        assert costs.extrapolated.tolist() == [outside]
        assert costs.source == "TX2 CPU fit (4,014 rows, float32, loop removed), CV error 2%"


def test_the_gpu_beats_the_cpu_on_large_layers_by_the_ratio_of_their_fits(tx2: Platform) -> None:
    graph = layer(256, 256, 3, 56, pad=1)
    cpu, gpu = (costs_of(graph, graph.nodes[0], None, *WHOLE, tx2.device(n)) for n in ("cpu", "gpu"))
    assert cpu is not None
    assert gpu is not None
    assert 4 < cpu.alone_s[0] / gpu.alone_s[0] < 9


def test_flattening_is_free_everywhere(device: Device) -> None:
    net = Net(0)
    graph = net.graph(net.add(Gemm(5), net.add(Reshape((1, 48)), net.input((1, 3, 4, 4)))))
    costs = costs_of(graph, graph.nodes[0], None, *WHOLE, device)
    assert costs is not None
    assert costs.alone_s.tolist() == [0.0]


def test_a_fully_connected_layer_behind_a_map_streams_the_map(tx2: Platform) -> None:
    net = Net(0)
    flat = net.add(Reshape((1, 48)), net.input((1, 3, 4, 4)))
    graph = net.graph(net.add(Gemm(5), flat))
    fpga = tx2.device("fpga")
    costs = costs_of(graph, graph.nodes[1], None, *WHOLE, fpga)
    assert costs is not None
    assert fpga.clock_hz is not None
    assert 16 < costs.alone_s[0] * fpga.clock_hz < 16 + 25


def test_hardware_refuses_with_a_reason(tx2: Platform) -> None:
    net = Net(0)
    x = net.input((1, 4, 6, 6))
    uneven = net.add(AvgPool(Window((3, 3), pads=(1, 1, 1, 1))), x, name="uneven")
    stacked = net.add(Concat(2), x, uneven, name="stacked")
    folded = net.add(Reshape((1, 8, 6, 6)), stacked, name="folded")
    graph = net.graph(folded)
    fpga = tx2.device("fpga")
    assert [why_not(graph, n, fpga) for n in graph.nodes] == [
        "fpga: uneven averages over a varying count (padding not counted); a constant divisor is needed",
        "fpga: stacked concatenates along axis 2; streams join channels (axis 1) only",
        "fpga: folded reshapes to 1x8x6x6; only flattening is wiring"]
    assert all(costs_of(graph, n, None, *WHOLE, fpga) is None for n in graph.nodes)
    assert all(why_not(graph, n, tx2.device("cpu")) is None for n in graph.nodes)


def test_an_axis_that_does_not_exist_has_no_cost(tx2: Platform) -> None:
    graph = layer(4, 4, 3, 8, groups=4)
    assert costs_of(graph, graph.nodes[0], Axis.INPUT_CHANNELS, *WHOLE, tx2.device("cpu")) is None


def test_a_residual_waits_in_memory_for_its_slower_branch(tx2: Platform) -> None:
    net = Net(0)
    x = net.input((1, 16, 32, 32))
    same = Conv(16, Window((3, 3), pads=(1, 1, 1, 1)))
    branch = net.add(same, net.add(same, x))
    graph = net.graph(net.add(Add(), x, branch, name="sum"))
    costs = costs_of(graph, graph.node("sum"), None, *WHOLE, tx2.device("fpga"))
    assert costs is not None
    assert costs.resources["m20k"][0] >= 1


HALVING = Window((2, 2), (2, 2))


@pytest.mark.parametrize("op", [MaxPool(HALVING), AvgPool(HALVING), GlobalAvgPool()], ids=lambda o: o.kind)
def test_pooling_is_far_smaller_than_a_convolution(op: MaxPool | AvgPool | GlobalAvgPool, tx2: Platform) -> None:
    net = Net(0)
    graph = net.graph(net.add(op, net.input((1, 16, 14, 14))))
    pooled, convolved = (costs_of(g, g.nodes[0], None, *WHOLE, tx2.device("fpga")) for g in (graph, layer(16, 16, 3, 14)))
    assert pooled is not None
    assert convolved is not None
    assert pooled.resources["alm"][0] < 0.2 * convolved.resources["alm"][0]


def test_adding_more_partial_sums_costs_more(device: Device) -> None:
    graph = layer(8, 8, 3, 14)
    two, three = (reductions([graph.shape(graph.nodes[0].output)], parts, device)[0] for parts in (2, 3))
    assert three.energy_j[0] > two.energy_j[0] > 0


def test_moving_nothing_costs_nothing_and_hops_add_up(tx2: Platform) -> None:
    sizes = np.array([0.0, 1.0, 1e6])
    seconds, joules = transferred(sizes, *transfer_rates(tx2, "gpu", "fpga"))
    memory, pcie = tx2.route("gpu", "fpga")
    assert seconds[0] == joules[0] == 0.0
    dispatch_s = tx2.device("fpga").dispatch_s or 0.0
    assert dispatch_s > 0
    assert seconds[2] == pytest.approx(dispatch_s + memory.latency_s + pcie.latency_s + 1e6 / pcie.bandwidth_bytes_per_s)
    assert joules[2] == pytest.approx(1e6 * pcie.energy_j_per_byte)
    assert transferred(sizes, *transfer_rates(tx2, "cpu", "cpu"))[0].tolist() == [0.0, 0.0, 0.0]


def test_shared_memory_costs_its_latency_whatever_the_size(tx2: Platform) -> None:
    seconds, joules = transferred(np.array([1.0, 1e9]), *transfer_rates(tx2, "gpu", "cpu"))
    assert seconds.tolist() == [tx2.links[0].latency_s] * 2
    assert joules.tolist() == [0.0, 0.0]


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_memory_blocks_hold_at_least_the_bits_asked_of_them(depth: int, width: int) -> None:
    shapes = ((512, 40), (1024, 20), (2048, 10))
    blocks = float(ram_blocks(depth, np.array([float(width)]), shapes)[0])
    assert blocks * 20480 >= depth * width
    assert blocks <= np.ceil(depth / 512) * np.ceil(width / 40)
