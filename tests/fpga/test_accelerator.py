"""Whole accelerators in Verilator: dedicated engines, reusable ones, and both in a row, bit for bit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail.cost.accelerator import arrays_of
from dovetail.cost.array import Config
from dovetail.errors import UsageError
from dovetail.fpga.accelerator import build_accelerator
from dovetail.fpga.network import make_network
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.part import write_part
from dovetail.fpga.toolchain.simulate import simulate_many
from dovetail.hardware.folds import Fold
from dovetail.ir import Conv, GlobalAvgPool, Graph, Window
from dovetail.numerics.reference import run_integer
from dovetail.partition.accelerator.architecture import accelerator_of, judge
from dovetail.partition.accelerator.blocks import Blocks
from dovetail.partition.accelerator.search import AcceleratorSearch
from dovetail.partition.accelerator.words import Row, Words
from dovetail.partition.plan import Goal
from dovetail.platform.accelerator import AcceleratorDesign, Architecture
from tests.fpga.lint import check_clean
from tests.fpga.random_graphs import random_inputs
from tests.fpga.reusable_blocks import gated
from tests.partition.test_hybrid import bottlenecks, fpga
from tests.strategies import Net, quantized


def accelerators(graph: Graph) -> list[AcceleratorDesign]:
    """One of every kind, and one for every cut."""
    device = fpga(0.1)
    kinds = (Architecture.SESL, Architecture.SEML, Architecture.MONOLITHIC)
    found = [judge(graph, device, kind, Goal.THROUGHPUT).accelerator for kind in kinds]
    blocks = Blocks(graph, fpga(0.15))
    for cut in (1, 5, 6):
        found.append(accelerator_of(graph, AcceleratorSearch(graph, fpga(0.15), (cut,), blocks).fastest(), Architecture.FIBHA))
    return found


@pytest.fixture(scope="module")
def graph() -> Graph:
    return bottlenecks(11)


@pytest.mark.verilator
def test_every_kind_of_accelerator_computes_the_reference(graph: Graph) -> None:
    inputs = random_inputs(graph, 3, 7)
    designs = [build_accelerator(graph, f"made_{i}", a) for i, a in enumerate(accelerators(graph))]
    (source,), (target,) = graph.inputs, graph.outputs
    expected = run_integer(graph, inputs)[target]
    jobs = [(d, {source: as_pixels(d.inputs[0], inputs[source])}) for d in designs]
    for seed in (None, 3):
        for design, result in zip(designs, simulate_many(jobs, stall_seed=seed), strict=True):
            np.testing.assert_array_equal(result.outputs[target].reshape(expected.shape), expected, design.top)


@pytest.mark.verilator
def test_frames_follow_each_other_as_the_model_says(graph: Graph) -> None:
    inputs = random_inputs(graph, 6, 8)
    made = accelerators(graph)[-1]
    design = build_accelerator(graph, "paced", made)
    (result,) = simulate_many([(design, {graph.inputs[0]: as_pixels(design.inputs[0], inputs[graph.inputs[0]])})])
    steady = np.diff(result.frame_cycles)[-2:]
    assert abs(steady.mean() - design.interval_cycles) <= max(4, 0.03 * design.interval_cycles)


@pytest.mark.verilator
def test_front_ends_find_nothing_to_warn_about(graph: Graph, tmp_path: Path) -> None:
    for i, made in enumerate(accelerators(graph)):
        check_clean(tmp_path, f"clean_{i}", build_accelerator(graph, f"clean_{i}", made).files)


@pytest.mark.verilator
def test_gates_and_tables_behind_a_cut_compute_the_reference() -> None:
    graph = gated(46, (5, 6, 6))
    folds: dict[str, tuple[int, ...] | None] = {"conv0": (1, 5, 3), "lookup1": None}
    arrays = arrays_of(Config(4, 8, latency_clocks=20))
    made = AcceleratorDesign(Architecture.FIBHA, folds, tuple(n.name for n in graph.nodes[2:]), arrays, 1024)
    design = build_accelerator(graph, "gated", made)
    inputs, (target,) = random_inputs(graph, 3, 9), graph.outputs
    expected = run_integer(graph, inputs)[target]
    (result,) = simulate_many([(design, {graph.inputs[0]: as_pixels(design.inputs[0], inputs[graph.inputs[0]])})], 4)
    np.testing.assert_array_equal(result.outputs[target].reshape(expected.shape), expected)


@pytest.mark.verilator
def test_an_average_takes_few_channels_at_once_and_scores_leave_in_words() -> None:
    net = Net(5)
    x = net.add(Conv(48, Window((1, 1))), net.input((1, 8, 4, 4)), name="wide")
    graph = quantized(net.graph(net.add(Conv(20, Window((1, 1))), net.add(GlobalAvgPool(), x, name="mean"), name="scores")))
    made = AcceleratorDesign(Architecture.SESL, {"wide": (1, 1, 24), "mean": None, "scores": (1, 12, 5)}, (), {}, 256)
    design = build_accelerator(graph, "averaged", made)
    assert design.words == {"mean": 8}
    assert design.outputs[0].fields == 5
    inputs, (target,) = random_inputs(graph, 3, 9), graph.outputs
    (result,) = simulate_many([(design, {graph.inputs[0]: as_pixels(design.inputs[0], inputs[graph.inputs[0]])})])
    expected = run_integer(graph, inputs)[target]
    np.testing.assert_array_equal(result.outputs[target].reshape(expected.shape), expected)


def test_the_port_to_memory_is_as_wide_as_asked_for(graph: Graph, tmp_path: Path) -> None:
    device = fpga(0.1)
    one = replace(device, parameters={**device.parameters, "memory_masters": 1.0, "memory_master_bytes": 16.0})
    reusable = judge(graph, one, Architecture.SEML, Goal.THROUGHPUT).accelerator
    write_part(graph, tmp_path / "narrow", accelerator=reusable, memory_bits=32)
    assert json.loads((tmp_path / "narrow" / graph.name / "axi" / "shell.json").read_text())["memory_bits"] == 32
    with pytest.raises(UsageError, match="a memory bus of 48 bits; 128, 64, 32 are possible for beats of 16 bytes from 1 master"):
        write_part(graph, tmp_path / "odd", accelerator=reusable, memory_bits=48)


@pytest.mark.parametrize("scale", [0.04, 0.05, 0.08, 0.2])
def test_the_search_knows_how_fast_its_engines_and_the_words_between_them_are(graph: Graph, scale: float) -> None:
    device = fpga(scale)
    found = AcceleratorSearch(graph, device, (len(graph.nodes),), Blocks(graph, device)).fastest()
    made = accelerator_of(graph, found, Architecture.SESL)
    folds = {name: Fold(*sizes) for name, sizes in made.dedicated.items() if sizes is not None}
    network = make_network(graph, "paced", folds=folds, fused=made.fused)
    assert found.interval == max(engine.steps for station in network.stations for engine in station.engines)


def test_words_that_are_cut_anew_may_be_slower_than_both_neighbours() -> None:
    net = Net(4)
    x = net.add(Conv(144, Window((1, 1))), net.input((1, 24, 8, 8)), name="expand")
    graph = quantized(net.graph(net.add(Conv(144, Window((3, 3), pads=(1, 1, 1, 1)), groups=144), x, name="depthwise")))
    rows = [Row((Fold(1, 24, 6), Fold(groups, 1, 1)), (), None) for groups in (7, 8)]
    assert [max(Words(graph).clocks(row).values()) for row in rows] == [64 * 25, 64 * 24]
