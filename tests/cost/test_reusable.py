"""Layer programs of reusable engines: what waits for what, where maps lie, and what a block costs."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from dovetail.cost.array import Config, block_cost, frame_ends, reason_refused
from dovetail.errors import UnsupportedError, UsageError
from dovetail.hardware.arrays.jobs import ARRAY, DEPTHWISE, ArrayProgram, ArrayTransfer, Bank, TransferKind
from dovetail.hardware.arrays.layers import layers_of
from dovetail.hardware.arrays.program import program_of
from dovetail.ir import AvgPool, Conv, GlobalAvgPool, Graph, MaxPool, Reshape, Scheme, Window
from dovetail.ir.tensor import scheme_of_scales
from dovetail.platform.load import load_platform
from tests.fpga.random_graphs import Sketch, same_window
from tests.fpga.reusable_blocks import cases, compact, outside_cases, residual
from tests.scales import with_arbitrary_scales
from tests.strategies import Net


def program(graph: Graph, config: Config) -> ArrayProgram:
    return program_of(layers_of(graph, [n.name for n in graph.nodes]), config)


def bottleneck() -> Graph:
    """Expand 8 to 24 channels, filter, project, add."""
    s = Sketch(np.random.default_rng(0))
    x = s.input((1, 8, 6, 6))
    y = s.conv(s.conv(s.conv(x, 24, Window((1, 1))), 24, same_window(3), 24), 8, Window((1, 1)))
    return s.graph((s.conv(s.add(y, x), 8, Window((1, 1))),))


def pointwise() -> Graph:
    """Nothing but products: 16 to 16 channels twice, which keep an array busy."""
    s = Sketch(np.random.default_rng(1))
    x = s.conv(s.input((1, 16, 12, 12)), 16, Window((1, 1)))
    return s.graph((s.conv(x, 16, Window((1, 1))),))


def test_a_depthwise_layer_follows_its_convolution_block_by_block_through_a_ring() -> None:
    made = program(bottleneck(), Config(4, 8))
    order = [(job.engine, job.first) for job in made.jobs if job.layer < 2]
    assert order == [(0, 0), (0, 2), (1, 0), (1, 1), (0, 4), (1, 2), (1, 3), (1, 4), (1, 5)]
    expanding = [job for job in made.jobs if job.layer == 0]
    assert [job.write.base for job in expanding] == [0, 72, 0]  # the third block takes the place of the first
    assert [job.needs for job in expanding] == [(0, 0), (0, 0), (1, 2)]  # once both words of it have been filtered
    filtering = [job for job in made.jobs if job.layer == 1]
    assert [job.needs[ARRAY] for job in filtering] == [1, 1, 2, 2, 3, 3]
    assert made.depths == (2 * 72, 72, 144, 216, 72, 0, 0, 0)


def test_without_overlap_maps_are_stored_as_wholes_and_layers_wait_for_each_other() -> None:
    made = program(bottleneck(), Config(4, 8, overlap=False))
    assert [job.needs[ARRAY] for job in made.jobs if job.layer == 1] == [3] * 6
    assert made.depths[Bank.EXPANDED] == 216


def test_additions_read_another_memory_than_their_convolution() -> None:
    for graph, config in (case for case in cases().values() if "add" in str(case[0].nodes)):
        for job in program(graph, config).jobs:
            assert job.residual is None or job.residual.bank != job.read.bank


def test_jobs_of_one_array_wait_for_all_jobs_before_them() -> None:
    made = program(bottleneck(), Config(4, 8, taps=4, monolithic=True))
    done = [0, 0]
    for job in made.jobs:
        assert job.needs[1 - job.engine] == done[1 - job.engine]
        done[job.engine] += 1


@pytest.mark.parametrize("name", ["compact_slow", "compact_wide", "residual", "flattened", "gated", "gated_wide"])
def test_maps_that_are_needed_at_once_do_not_overlap(name: str) -> None:
    """Play the program on a memory that knows which tensor's word lies where."""
    graph, config = cases()[name]
    made = program(graph, config)
    memory: dict[tuple[int, int], tuple[str, int, int]] = {}
    layers = made.layers

    def words(place, first: int, count: int, pixels: int):  # type: ignore[no-untyped-def]
        return [((place.bank, place.base + p * place.stride + w), p, first + w) for p in range(pixels) for w in range(count)]

    entry = layers.maps[layers.entry]
    per_pixel = config.words(entry.channels)
    memory.update({(Bank.INPUT, p * per_pixel + w): (layers.entry, p, w) for p in range(entry.pixels) for w in range(per_pixel)})
    for job in made.jobs:
        layer = layers.layers[job.layer]
        for at, pixel, word in words(job.read, job.read_first, job.read_words, layer.reads.pixels):
            assert memory[at] == (layer.source, pixel, word)
        if job.residual is not None:
            for at, pixel, word in words(job.residual, job.first, job.words, layer.writes.pixels):
                assert memory[at] == (layer.residual, pixel if job.residual.stride else 0, word)
        for at, pixel, word in words(job.write, job.first, job.words, layer.writes.pixels):
            assert at[1] < made.depths[at[0]]
            memory[at] = (layer.target, pixel, word)


@pytest.mark.parametrize("name", list(outside_cases()))
def test_stripes_read_what_was_loaded_and_stored_before(name: str) -> None:
    """Play transfers in their order, and jobs when their weights come, on memories that know which tensor's word lies where."""
    graph, config = outside_cases()[name]
    made = program(graph, config)
    layers, chip, memory = made.layers, dict[tuple[int, int], tuple[str, int, int]](), dict[int, list[tuple[str, int, int]]]()
    entry = layers.maps[layers.entry]
    per_pixel = config.words(entry.channels)
    chip.update({(Bank.INPUT, p * per_pixel + w): (layers.entry, p, w) for p in range(entry.pixels) for w in range(per_pixel)})
    done, loads, bursts = [0, 0], 0, 0
    for transfer in made.transfers:
        if transfer.kind is TransferKind.WEIGHTS:
            job = made.jobs[transfer.job]
            layer, part = layers.layers[job.layer], job.part
            assert done[0] >= job.needs[0]
            assert done[1] >= job.needs[1]
            assert loads >= job.loads
            assert bursts >= job.stores
            for p, w in product(range(part.reads.pixels), range(job.read_words)):
                tensor, pixel, word = chip[job.read.bank, job.read.base + p * job.read.stride + w]
                assert (tensor, word) == (layer.source, job.read_first + w)
                assert (pixel - p) % part.reads.width == 0
            for p, w in product(range(part.writes.pixels), range(job.words)):
                pixel = p + job.write_row * part.writes.width
                if job.residual is not None:
                    assert chip[job.residual.bank, job.residual.base + p * job.residual.stride + w] == (
                        layer.residual, pixel if job.residual.stride else 0, job.first + w)
                chip[job.write.bank, job.write.base + p * job.write.stride + w] = (layer.target, pixel, job.first + w)
            done[job.engine] += 1
            continue
        rows = [(transfer.bank, transfer.base + k) for k in range(transfer.words)]
        assert done[0] >= transfer.needs[0]
        assert done[1] >= transfer.needs[1]
        if transfer.kind is TransferKind.STORE:
            memory[transfer.address] = [chip[at] for at in rows]
            bursts += transfer.bursts
        else:
            assert bursts >= transfer.stored
            for at, what in zip(rows, found_rows(made, memory, transfer), strict=True):
                chip[at] = what
            loads += 1


def found_rows(made: ArrayProgram, memory: dict[int, list[tuple[str, int, int]]],
               transfer: ArrayTransfer) -> list[tuple[str, int, int]]:
    """The words of a load, out of the stores that cover its rows."""
    tensor, where = next((t, o) for t, o in made.outside.items()
                         if o.address <= transfer.address < o.address + o.row_beats * made.layers.maps[t].height)
    shape = made.layers.maps[tensor]
    words: list[tuple[str, int, int]] = []
    for address in sorted(a for a, kept in memory.items() if kept[0][0] == tensor):
        words += memory[address]
    row = (transfer.address - where.address) // where.row_beats
    per_row = shape.width * made.config.words(shape.channels)
    return words[row * per_row:(row + transfer.rows) * per_row]


def test_memories_are_no_larger_than_their_limit_and_traffic_is_counted() -> None:
    device = load_platform("zc706").device("fpga")
    graph = residual(23, (4, 24, 20))
    names = [n.name for n in graph.nodes]
    whole, less = (block_cost(graph, names, Config(4, 8, map_bytes=limit), device) for limit in (0, 1000))
    made = program(graph, Config(4, 8, map_bytes=1000))
    assert max(made.depths[Bank.KEPT:Bank.OUTPUT] + made.depths[Bank.LOADED:]) * 4 <= 1000
    assert whole.map_bytes == 0 < less.map_bytes == less.offchip_bytes - sum(job.beats for job in made.jobs) * 16
    assert less.buffer_bits < whole.buffer_bits
    assert less.interval_clocks > whole.interval_clocks
    assert block_cost(graph, names, Config(4, 8, map_bytes=1 << 30), device) == whole


def test_every_bank_has_its_kind_of_maps() -> None:
    made = program(compact(18, (3, 9, 8), 9), Config(4, 8))
    for job in made.jobs:
        layer = made.layers.layers[job.layer]
        wanted = Bank.OUTPUT if layer.target == made.layers.exit else Bank.FILTERED if job.engine == DEPTHWISE else None
        assert wanted is None or job.write.bank == wanted
        assert job.write.bank in (Bank.KEPT, Bank.EXPANDED, Bank.FILTERED, Bank.OUTPUT)


def test_costs_count_what_the_program_does() -> None:
    device = load_platform("zc706").device("fpga")
    graph, config = compact(18, (3, 9, 8), 9), Config(4, 8)
    made, cost = program(graph, config), block_cost(graph, [n.name for n in graph.nodes], config, device)
    assert cost.offchip_bytes == made.image_beats * 16 == sum(job.beats for job in made.jobs) * 16
    assert cost.interval_clocks == frame_ends(made)[2] - frame_ends(made)[1]
    assert cost.buffer_bits == sum(made.depths) * 32 - made.depths[Bank.INPUT] * 8  # three channels of four
    assert dict(cost.resources)["dsp"] == 4 * 8 + 4 * 9 + 2 * 4
    assert 0 < cost.utilisation < 1


@pytest.mark.parametrize("config", [
    Config(4, 8), Config(4, 8, packed=True), Config(4, 8, soft=8), Config(4, 8, soft=4), Config(4, 8, taps=3, monolithic=True),
    Config(4, 4, packed=True, input_buffers=1)], ids=str)
def test_no_multiplier_makes_more_than_one_product_in_a_clock(config: Config) -> None:
    device = load_platform("zcu102").device("fpga")
    for graph in (compact(18, (3, 9, 8), 9), bottleneck(), pointwise()):
        cost = block_cost(graph, [n.name for n in graph.nodes], config, device)
        products = config.inputs * config.outputs // (2 if config.packed else 1) - config.inputs * config.soft
        in_logic = config.inputs * config.soft
        assert cost.multipliers == dict(cost.resources)["dsp"] + products * config.packed + in_logic
        assert 0 < cost.utilisation <= 1


def test_neither_more_bandwidth_nor_overlap_costs_clocks() -> None:
    device = load_platform("zc706").device("fpga")
    graph = compact(19, (3, 14, 14), 30)
    names = [n.name for n in graph.nodes]
    small = Config(4, 8, bandwidth_bytes=4)
    clocks = block_cost(graph, names, small, device).interval_clocks
    assert block_cost(graph, names, replace(small, bandwidth_bytes=16), device).interval_clocks <= clocks
    assert block_cost(graph, names, replace(small, overlap=False), device).interval_clocks >= clocks


def test_nodes_that_engines_cannot_do_are_refused_with_a_reason() -> None:
    s = Sketch(np.random.default_rng(0))
    x = s.input((1, 4, 6, 6))
    y = s.conv(x, 4, same_window(3))
    dilated = MaxPool(Window((2, 2), dilation=(2, 1)))
    tensors = (s.pool(dilated, y), s.pool(AvgPool(same_window(3)), y), s.conv(x, 4, same_window(3), partial=True),
               s.add(x, y), s.pool(GlobalAvgPool(), y), s.concat(x, y))
    graph = s.graph(tensors)
    reasons = [reason_refused(graph, node) for node in graph.nodes]
    assert reasons == [None, "its window is dilated or too wide for its map", "its divisor changes along the border",
                       "tensor conv3_out is s32@1e" + str(graph.tensors["conv3_out"].scheme).split("e", 1)[1]
                       + "; 8 bits with one power of two as scale and without a zero point are worked on",
                       "neither operand is a convolution's alone, into whose writing it could be fused", None,
                       "reusable engines have no Concat"]


@pytest.mark.parametrize("scheme", [Scheme(16, True, (-4,)), scheme_of_scales(8, True, [0.3])])
def test_weights_that_multipliers_do_not_take_are_refused(scheme: Scheme) -> None:
    graph = residual(23, (4, 6, 7))
    node = graph.nodes[0]
    weight = graph.params(node)[0]
    other = replace(graph, constants={**graph.constants, weight.name: replace(weight, scheme=scheme)})
    assert reason_refused(graph, node) is None
    assert reason_refused(other, node) == "its weights have more than 8 bits, or scales that are no powers of two"


def test_a_network_of_floats_is_judged_as_what_it_becomes() -> None:
    net = Net(3)
    graph = net.graph(net.add(Conv(4, Window((3, 3), pads=(1, 1, 1, 1))), net.input((1, 4, 6, 6))))
    assert reason_refused(graph, graph.nodes[0]) is None


def test_arbitrary_scales_are_refused_before_anything_is_planned() -> None:
    graph = with_arbitrary_scales(compact(18, (3, 9, 8), 9), 1)
    reasons = [reason_refused(graph, node) for node in graph.nodes if not isinstance(node.op, Reshape)]
    assert all("8 bits with one power of two as scale and without a zero point are worked on" in str(r) for r in reasons)


def test_a_part_with_two_ways_out_is_no_block() -> None:
    graph = residual(23, (4, 6, 7))
    with pytest.raises(UnsupportedError) as caught:
        layers_of(graph, [n.name for n in graph.nodes[:4]])
    assert str(caught.value) == ("block of reusable engines: 1 tensor enters (x0), 2 leave (add2_out, conv3_out); "
                                 "one each is needed")


@pytest.mark.parametrize(("sizes", "words"), [
    ({"outputs": 10}, "10 filters at once; a multiple of 4 is needed"),
    ({"monolithic": True}, "9 taps at once; a lane of the one array has 4 products"),
    ({"bandwidth_bytes": 32}, "at most 16 bytes a clock"),
    ({"inputs": 0}, "a size is below 1"),
    ({"packed": True, "monolithic": True, "taps": 4}, "an even number of filters at once and an array without depthwise work"),
    ({"packed": True, "inputs": 1, "outputs": 7}, "two products in a multiplier; an even number of filters at once"),
    ({"soft": 9}, "9 filters in logic; none to all 8 of an array of its own"),
    ({"soft": 2, "packed": True}, "2 filters in logic; none to all 8 of an array of its own"),
    ({"input_buffers": 3}, "one or two input buffers and no negative latency or memory"),
    ({"latency_clocks": -1}, "no negative latency or memory are possible"),
    ({"masters": 3}, "16 bytes over 3 masters"),
    ({"weight_planes": 2}, "2 x 0 planes of bits; an array that counts bits has planes on both sides and no products"),
    ({"weight_planes": 2, "input_planes": 2, "soft": 1}, "2 x 2 planes of bits; an array that counts bits has planes"),
    ({"value_bits": 4}, "values of 4 bits; 1 to 16 are possible where bits are counted, in words of whole bytes"),
    ({"weight_planes": 2, "input_planes": 2, "value_bits": 0}, "values of 0 bits; 1 to 16 are possible"),
    ({"weight_planes": 2, "input_planes": 2, "value_bits": 17}, "values of 17 bits; 1 to 16 are possible"),
    ({"weight_planes": 2, "input_planes": 2, "value_bits": 3, "map_bytes": 64}, "in words of whole bytes where maps lie in"),
])
def test_sizes_that_cannot_be_are_refused(sizes: dict[str, int], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Config(**{"inputs": 4, "outputs": 8, **sizes})
