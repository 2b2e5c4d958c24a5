"""Floors of reusable engines: never above what the layer program says of the same block."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.cost.array import Config, block_cost, block_latency, program_cost
from dovetail.cost.array_floors import least_clocks, least_resources
from dovetail.errors import UnsupportedError
from dovetail.hardware.arrays.layers import layers_of
from dovetail.hardware.arrays.program import bank_sizes, program_of
from dovetail.ir import Graph
from dovetail.partition.accelerator.blocks import cut_points
from dovetail.platform.device import Device, Kind
from dovetail.platform.load import load_platform
from tests.fpga.reusable_blocks import gated
from tests.fpga.test_counting import residual
from tests.numerics.lq_networks import network
from tests.partition.test_hybrid import bottlenecks

GATED = 0


@pytest.fixture(scope="module")
def graphs() -> dict[int, Graph]:
    return {12: bottlenecks(12), 40: bottlenecks(40), GATED: gated(45, (5, 12, 9))}


def fpga(board: str) -> Device:
    (found,) = load_platform(board).of_kind(Kind.FPGA)
    return found


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([12, 40, GATED]), st.sampled_from([4, 8, 12]), st.integers(1, 3), st.sampled_from([3, 5, 9]),
       st.sampled_from(["plain", "monolithic", "packed", "stripes"]), st.sampled_from([2, 5, 16]), st.integers(1, 2))
def test_floors_are_below_the_price_at_every_cut(graphs: dict[int, Graph], size: int, inputs: int, words: int, taps: int,
                                                 kind: str, rate: int, buffers: int) -> None:
    graph, device = graphs[size], fpga("zcu102")
    config = Config(inputs, inputs * words * 2, min(taps, inputs) if kind == "monolithic" else taps,
                    monolithic=kind == "monolithic", packed=kind == "packed", bandwidth_bytes=rate, input_buffers=buffers,
                    map_bytes=1500 if kind == "stripes" else 0)
    whole = layers_of(graph, [n.name for n in graph.nodes])
    ((between, alone, _),) = least_clocks(whole, [config])
    priced = 0
    for cut in cut_points(graph)[:-1]:
        names = [n.name for n in graph.nodes[cut:]]
        try:
            cost = block_cost(graph, names, config, device)
        except UnsupportedError:
            continue
        layers = layers_of(graph, names)
        first = next(i for i, layer in enumerate(whole.layers) if layer.node in names)
        assert between[first] <= cost.interval_clocks
        assert alone[first] <= cost.latency_clocks == block_latency(graph, names, config)
        exact = dict(cost.resources)
        for banks in (None, bank_sizes(layers, config)):
            least = least_resources(layers.layers, config, device.model, banks)
            assert all(least[name] <= exact[name] + 1e-9 for name in exact)
        priced += 1
    assert priced


@pytest.mark.parametrize("map_bytes", [0, 1500])
def test_arrays_that_make_products_in_another_way_share_a_program(graphs: dict[int, Graph], map_bytes: int) -> None:
    graph, device = graphs[40], fpga("zc706")
    names = [n.name for n in graph.nodes]
    for config in (Config(8, 16, 5, map_bytes=map_bytes, packed=True), Config(8, 16, 5, map_bytes=map_bytes, input_buffers=1),
                   Config(8, 16, 5, map_bytes=map_bytes, soft=8)):
        assert block_cost(graph, names, config, device) == program_cost(program_of(layers_of(graph, names), config), device)


def test_floors_of_a_chain_come_close_to_its_price(graphs: dict[int, Graph]) -> None:
    graph, config = graphs[40], Config(8, 8, 9)
    layers = layers_of(graph, [n.name for n in graph.nodes])
    ((between, alone, _),) = least_clocks(layers, [config])
    cost = block_cost(graph, [n.name for n in graph.nodes], config, fpga("zcu102"))
    assert between[0] >= 0.8 * cost.interval_clocks
    assert alone[0] >= 0.8 * cost.latency_clocks


@pytest.mark.parametrize("config", [
    Config(8, 16, weight_planes=2, input_planes=2, value_bits=16, thresholds=3),
    Config(4, 4, weight_planes=1, input_planes=4, value_bits=16, thresholds=3, bandwidth_bytes=5, input_buffers=1),
    Config(16, 16, weight_planes=4, input_planes=8, value_bits=16, thresholds=3, map_bytes=256)])
def test_floors_of_arrays_that_count_bits_are_below_their_price(config: Config) -> None:
    device = fpga("zcu102")
    for graph in (network(1, 2, 2), residual(3)):
        names = [n.name for n in graph.nodes]
        layers = layers_of(graph, names, True)
        cost, ((between, alone, _),) = block_cost(graph, names, config, device), least_clocks(layers, [config])
        assert between[0] <= cost.interval_clocks
        assert alone[0] <= cost.latency_clocks == block_latency(graph, names, config)
        exact = dict(cost.resources)
        for banks in (None, bank_sizes(layers, config)):
            least = least_resources(layers.layers, config, device.model, banks)
            assert all(least[name] <= exact[name] + 1e-9 for name in exact)
