"""Costs of layers of codes: the work of shares, and hardware estimates that follow what is built."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import lq
from dovetail.cost import costs_of, costs_of_many
from dovetail.cost.lq_folds import DEEP_BLOCK_WORDS, choice_logic
from dovetail.fpga.assemble import build_design
from dovetail.hardware.adders.sharing import graph_bits
from dovetail.hardware.engines import engine_of
from dovetail.hardware.work import whole_units, work_of
from dovetail.ir import Axis, Coded
from dovetail.ir.tensor import region_size
from dovetail.platform.device import Kind
from dovetail.platform.load import load_platform
from lib import lq_parts
from lib.engines import codes
from tests.numerics.lq_networks import coded, network

GRAPH = network(1, 2, 2)
RECORD = json.loads((Path(lq.__file__).parent / "records" / "lq_datapaths.json").read_text(encoding="utf-8"))
RECORD = json.loads((resources.files("dovetail.reproduce") / "records" / "lq_2020.json").read_text(encoding="utf-8"))
PARTS = RECORD["parts"]


def test_work_of_a_share_of_codes_is_that_of_the_operator_it_becomes() -> None:
    """Planes of the input are passes of a processor over the layer."""
    for node in coded(GRAPH):
        assert isinstance(node.op, Coded)
        shapes = GRAPH.input_shapes(node)
        for axis in node.op.axes(shapes):
            starts, stops = (v.astype(np.int64) for v in np.triu_indices(node.op.extent(axis, shapes) + 1, 1))
            work = work_of(GRAPH, node, axis, starts, stops)
            for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
                share = node.op.share(axis, int(start), int(stop), shapes)
                reads = tuple(tuple(b - a for a, b in r) for r in share.inputs)
                assert np.broadcast_to(work.reads, starts.shape)[i] == sum(region_size(r) for r in share.inputs)
                assert np.broadcast_to(work.writes, starts.shape)[i] == region_size(share.output)
                assert np.broadcast_to(work.macs, starts.shape)[i] == pytest.approx(share.op.macs(reads) * node.op.input_planes)


@pytest.mark.parametrize("name", ["first", "second", "third"])
def test_time_of_an_engine_is_its_own_but_for_a_few_clocks_of_depth(name: str) -> None:
    node = GRAPH.node(name)
    engine = engine_of(GRAPH, node, None, *whole_units())
    alone = {t: GRAPH.tensors[t] for t in (*node.inputs, node.output)}
    graph = type(GRAPH)("one", node.inputs, (node.output,), (node,), alone, {c.name: c for c in GRAPH.params(node)})
    design = build_design(graph, "one")
    assert engine.steps[0] == design.interval_cycles
    assert float(engine.steps[0] + engine.stages[0]) == pytest.approx(design.latency_cycles, abs=12)


def test_many_answers_are_those_asked_one_by_one() -> None:
    board = load_platform("tx2-c10gx")
    questions = [(n, ((None, *whole_units()),)) for n in GRAPH.nodes]
    answers = costs_of_many(GRAPH, questions, [board.device("cpu"), board.device("fpga")])
    assert all(a is not None and np.isfinite(a.alone_s).all() for row in answers for a in row)
    area = {n.name: a.resources["alm"][0] for n, a in zip(GRAPH.nodes, answers[1], strict=True) if a is not None and a.resources}
    assert area["second"] > area["third"] > 0  # half the taps of each filter


COUNTED = [(layer, family) for layer in lq.LAYERS for family in RECORD["datapaths"].get(f"{layer}: popcount", {})]


@pytest.mark.parametrize(("layer", "family"), COUNTED)
def test_logic_of_counters_is_near_what_was_synthesized(layer: str, family: str) -> None:
    """Families count in their own way, and plans know: full adders of two LUT4 where look-up tables have four inputs."""
    board, logic = {"xcup": ("zcu102", "lut"), "ecp5": ("ecp5-85", "lut4"), "cyclonev": ("tx2-c10gx", "alm")}[family]
    graph, device = lq.coded_graph(*lq.LAYERS[layer]), load_platform(board).of_kind(Kind.FPGA)[0]
    share = costs_of(graph, graph.nodes[0], None, *whole_units(), device)
    assert share is not None
    counted = RECORD["datapaths"][f"{layer}: popcount"][family]["lut"]
    assert float(share.resources[logic][0]) == pytest.approx(counted, rel=0.08)


@pytest.mark.parametrize(("weight_bits", "input_bits"), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (0, 1), (0, 2)])
def test_adders_of_layers_with_plain_integers_are_near_the_graph_that_is_built(weight_bits: int, input_bits: int) -> None:
    graph = codes.layer(4, 4, 3, weight_bits, input_bits, seed=1)
    engine = engine_of(graph, graph.nodes[0], None, *whole_units())
    _, built, bits = codes.said_and_built(graph)
    carry, registers = graph_bits(built, bits)
    assert float(engine.adder_bits[0]) == pytest.approx(carry, rel=0.2)
    assert float(engine.sum_bits[0]) == pytest.approx(registers, rel=0.25)


def test_choosing_among_the_blocks_of_a_deep_memory_takes_what_yosys_counted() -> None:
    """Every memory of LQ AlexNet on three boards whose words fill its blocks; where they do not, Yosys takes more."""
    deep = {(m["words"], m["width"]): m["lut"] for board in RECORD["memories"]["boards"].values()
            for layer in board["layers"].values() for m in layer["memories"]}
    deep[tuple(RECORD["memories"]["rom"]["geometry"])] = RECORD["memories"]["rom"]["written"]["lut"]
    full = {at: lut for at, lut in deep.items() if at[0] % DEEP_BLOCK_WORDS == 0}
    assert len(full) >= 6
    for (words, width), lut in full.items():
        assert choice_logic(words, width) == pytest.approx(lut, rel=0.03)
    assert all(choice_logic(*at) <= lut for at, lut in deep.items())
    assert sum(choice_logic(*at) for at in deep) > 0.75 * sum(deep.values())


def test_filters_of_a_byte_layer_share_adders_and_its_area_is_near_synthesis() -> None:
    """AlexNet's first layer: Yosys counts what the record has; more filters share more."""
    device = load_platform("fic:1").device("fpga0")
    for name, found in PARTS.items():
        if name.startswith("conv1"):
            graph = lq_parts.slice_of_conv1(int(name.split()[1]))
            share = costs_of(graph, graph.nodes[0], None, *whole_units(), device)
            assert share is not None
            for key in ("lut", "register", "bram36"):
                assert float(share.resources[key][0]) == pytest.approx(found[key]["yosys"], rel=0.1)
    graph = lq_parts.slice_of_conv1(8)
    starts, stops = np.asarray([0, 0]), np.asarray([4, 8])
    parts = costs_of(graph, graph.nodes[0], Axis.OUTPUT_CHANNELS, starts, stops, device)
    assert parts is not None
    assert parts.resources["lut"][0] < parts.resources["lut"][1] < 2.1 * parts.resources["lut"][0]
