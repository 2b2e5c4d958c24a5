"""Clocks by the model, of the design that is built, and the bound: one law for every architecture."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from dovetail.cost.clocks import FEWEST_CLOCKS, ClockEstimate, accelerator_clocks, from_entries
from dovetail.cost.folded import shape_of
from dovetail.cost.passage import frame_passage
from dovetail.fpga import timing
from dovetail.fpga.accelerator import build_accelerator
from dovetail.fpga.assemble import build_design
from dovetail.fpga.network import make_network
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.timing import time_network
from dovetail.fpga.toolchain.simulate import simulate_many
from dovetail.hardware.folds import Fold
from dovetail.ir import Add, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Reshape, Window
from dovetail.partition.accelerator.architecture import accelerated_device, judge, pinned, region_of
from dovetail.partition.plan import Goal
from dovetail.pipeline import decide_numbers
from dovetail.planning import Options, decide
from dovetail.platform.accelerator import Architecture
from dovetail.platform.load import load_platform
from dovetail.space import cut_out
from tests.fpga.random_graphs import random_folds, random_graph, random_inputs
from tests.fpga.test_accelerator import accelerators
from tests.partition.test_hybrid import bottlenecks, fpga
from tests.strategies import Net, quantized

BENCH = Path(__file__).parents[2] / "bench"
SCENES = Path(__file__).parents[2] / "examples" / "scenes" / "scenes-int8.onnx"
FRAMES = 3
"""As many as the test of these accelerators sends, so that nothing is compiled twice."""


@pytest.mark.verilator
def test_no_accelerator_beats_the_bound_of_its_kind_and_the_model_knows_its_clocks() -> None:
    graph = bottlenecks(11)
    inputs, made = random_inputs(graph, FRAMES, 7), accelerators(graph)
    designs = [build_accelerator(graph, f"made_{i}", a) for i, a in enumerate(made)]
    jobs = [(d, {graph.inputs[0]: as_pixels(d.inputs[0], inputs[graph.inputs[0]])}) for d in designs]
    bounds = {(a.architecture, goal): judge(graph, fpga(0.15 if a.architecture is Architecture.FIBHA else 0.1), a.architecture,
                                            goal).bound for a in made[:4] for goal in (Goal.LATENCY, Goal.THROUGHPUT)}
    for accelerator, result in zip(made, simulate_many(jobs), strict=True):
        one, interval = result.frame_cycles[0], int(np.diff(result.frame_cycles)[-1])
        assert bounds[accelerator.architecture, Goal.LATENCY] <= one, accelerator
        assert bounds[accelerator.architecture, Goal.THROUGHPUT] <= interval, accelerator
        estimate = accelerator_clocks(graph, accelerator)
        assert estimate.one_frame_holds(one), (estimate, one, accelerator)
        assert estimate.interval_holds(interval), (estimate, interval, accelerator)


def mixed(seed: int, products: int = 1) -> tuple[Graph, dict[str, Fold]]:
    """Strides, paddings, a depthwise layer, an addition, a pool, an average and a classifier, some of them folded."""
    net = Net(seed)
    window = Window((3, 3), (1 + seed % 2,) * 2, (int(seed % 3 > 0),) * 4)
    x = net.add(Conv(6, window), net.input((1, 3, 12 + seed, 13)), name="stem")
    y = net.add(Conv(6, Window((3, 3), pads=(1, 1, 1, 1)), groups=6), x, name="depthwise")
    x = net.add(Add(), x, net.add(Conv(6, Window((1, 1))), y, name="project"), name="join")
    x = net.add(MaxPool(Window((2, 2), (2, 2))), x, name="pool") if seed % 2 else x
    x = net.add(GlobalAvgPool(), x, name="mean")
    graph = quantized(net.graph(net.add(Gemm(5), net.add(Reshape((1, 6)), x, name="flat"), name="scores")))
    folds = {}
    for number, node in enumerate(graph.nodes):
        if isinstance(node.op, Conv | Gemm) and (number + seed) % 3:
            channels = shape_of(graph, node).channels
            folds[node.name] = Fold(-(-channels.groups // 2), -(-channels.inputs // (1 + seed % 2)), -(-channels.outputs // 3),
                                    products)
    return graph, folds


@pytest.mark.parametrize("products", [1, 0])
@pytest.mark.parametrize("seed", range(6))
def test_one_frame_passes_engines_in_the_clocks_of_the_design_they_become(seed: int, products: int) -> None:
    graph, folds = mixed(seed, products)
    found, built = frame_passage(graph, folds), time_network(make_network(graph, "mixed", folds=folds))
    assert found.slowest == built.interval_cycles
    assert abs(found.last - built.latency_cycles) <= 2 * len(graph.nodes)  # of pipeline stages, which are estimates


@pytest.mark.parametrize("seed", range(12))
def test_graphs_of_every_operator_pass_in_the_clocks_of_the_design_they_become(seed: int) -> None:
    graph = random_graph(seed)
    folds = random_folds(graph, seed)
    found, built = frame_passage(graph, folds), time_network(make_network(graph, "any", folds=folds))
    assert found.slowest == built.interval_cycles
    assert abs(found.last - built.latency_cycles) <= FEWEST_CLOCKS


def scenes() -> tuple[Graph, dict[str, Fold]]:
    """A segmenter with two long branches, and folds that let most of its engines work all the time."""
    graph = decide_numbers(SCENES).graph
    sizes = {"/down.0/down.0.0/down.0.0.3/Conv": (1, 6, 3), "/down.0/down.0.1/down.0.1.0/Conv": (3, 1, 1),
             "/down.0/down.0.1/down.0.1.3/Conv": (1, 3, 12), "/down.1/down.1.0/down.1.0.0/Conv": (2, 1, 1),
             "/down.1/down.1.0/down.1.0.3/Conv": (1, 8, 2), "/down.1/down.1.1/down.1.1.0/Conv": (1, 1, 1),
             "/down.1/down.1.1/down.1.1.3/Conv": (1, 8, 4), "/bottom/bottom.0/Conv": (1, 1, 1),
             "/bottom/bottom.3/Conv": (1, 8, 4), "/up.0/up.0.0/Conv": (5, 1, 1), "/up.0/up.0.3/Conv": (1, 12, 8)}
    return graph, {name: Fold(*size) for name, size in sizes.items()}


def test_fifos_of_long_branches_do_not_get_deeper_with_more_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, folds = scenes()
    network = make_network(graph, "scenes", folds=folds)
    found = time_network(network)
    monkeypatch.setattr(timing, "MODEL_FRAMES", (48,))
    assert time_network(network) == found
    monkeypatch.setattr(timing, "MODEL_FRAMES", (3,))
    assert sum(time_network(network).fifo_depths.values()) < sum(found.fifo_depths.values())


@pytest.mark.verilator
def test_a_network_of_long_branches_keeps_its_interval() -> None:
    """Frames followed each other after 2,706 clocks where 2,592 were promised: FIFOs were as deep as three frames need."""
    graph, folds = scenes()
    design = build_design(graph, "scenes", folds=folds)
    (run,) = simulate_many([(design, random_inputs(graph, 9, 3))])
    assert np.diff(run.frame_cycles)[4:].tolist() == [design.interval_cycles] * 4


def test_a_keyword_spotter_takes_no_less_than_its_bound_and_what_its_plan_says() -> None:
    """MLPerf Tiny's KWS on a ZedBoard: 7,665 clocks where 12,596 were planned and 12,559 called a bound."""
    board = load_platform(str(BENCH / "mlperf_tiny" / "zedboard.toml"))
    graph = decide_numbers(BENCH / "mlperf_tiny" / "kws.onnx").graph
    device = accelerated_device(board)
    inside = cut_out(graph, pinned(graph, region_of(graph, device, Architecture.SESL), device.name), board.host, device.name)
    found = judge(inside, device, Architecture.SESL, Goal.LATENCY)
    built = build_accelerator(inside, "kws", found.accelerator)
    assert found.bound <= built.latency_cycles
    assert accelerator_clocks(inside, found.accelerator).one_frame_holds(built.latency_cycles)
    assert found.clocks == accelerator_clocks(inside, found.accelerator).one_frame


def test_a_plan_states_the_clocks_of_its_hardware_with_their_error() -> None:
    graph = bottlenecks()
    plan, _, board = decide(graph, load_platform("zc706"), Options(architecture="sesl"))
    ((segment, estimate),) = plan.clocks.items()
    assert segment.startswith(accelerated_device(board).name)
    assert estimate.error > 0
    assert "bench/clocks.py" in estimate.source
    assert from_entries(json.loads(json.dumps(asdict(estimate)))) == estimate


def test_clocks_outside_the_stated_error_are_told_from_those_within() -> None:
    estimate = ClockEstimate(10_000.0, 5_000.0, 0.02, "here")
    assert estimate.one_frame_holds(10_150)
    assert not estimate.one_frame_holds(10_300)
    assert not estimate.one_frame_holds(7_665)
    assert estimate.interval_holds(5_000)
    assert not estimate.interval_holds(5_200)
