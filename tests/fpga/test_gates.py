"""Squeeze-excite gates: a map waits for one value per channel, directly mapped and folded, as the reference and the price say."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.cost import costs_of
from dovetail.cost.costs import why_not
from dovetail.cost.folded import GATE_PART, layer_pace
from dovetail.cost.passage import frame_passage
from dovetail.fpga.assemble import build_design, unsupported
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.hardware.engines import TYPICAL_STAGES, gate_layers, waiting_beats
from dovetail.hardware.folds import Fold
from dovetail.hardware.scans import phases_of
from dovetail.ir import Add, GlobalAvgPool, Graph, Mul, Scheme, Window
from dovetail.platform.load import load_platform
from tests.fpga.random_graphs import Sketch, random_inputs, same_window
from tests.fpga.test_assemble import Job, check_run, job
from tests.scales import with_arbitrary_scales

ONE = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
CASES = [((1, 1, 7, 7), 1, True), ((1, 5, 3, 11), 2, False), ((1, 3, 1, 4), 1, True), ((1, 3, 1, 1), 1, True)]
"""Map, channels it is squeezed to, and whether the gate is the first operand."""
FOLDS = [((1, 12, 5, 6), 4, False, {"conv0": (1, 3, 3), "conv2": (1, 4, 2), "conv3": (1, 2, 3), "conv6": (1, 4, 3)}),
         ((1, 13, 7, 7), 3, True, {"conv0": (1, 13, 5), "conv3": (1, 3, 4), "conv6": (1, 5, 1)}),
         ((1, 9, 4, 3), 2, False, {"conv0": (1, 9, 2), "conv2": (1, 1, 1), "conv3": (1, 1, 1), "conv6": (1, 3, 1)})]


def gated(shape: tuple[int, ...], squeezed: int, first: bool, seed: int = 0) -> Graph:
    """A convolution, a gate over its map, the product, and a convolution."""
    s = Sketch(np.random.default_rng(seed))
    x = s.conv(s.input(shape), shape[1], same_window(3))
    scheme = s.tensors[x].scheme
    assert scheme is not None
    gate = s.conv(s.append(GlobalAvgPool(), (x,), scheme), squeezed, Window((1, 1)))
    gate = s.lookup(s.conv(gate, shape[1], Window((1, 1))))
    return s.graph((s.conv(s.mul(gate, x) if first else s.mul(x, gate), 3, same_window(3)),))


def folded_job(number: int) -> Job:
    shape, squeezed, first, folds = FOLDS[number]
    graph = gated(shape, squeezed, first, number + 10)
    made = build_design(graph, f"f{number}", folds={name: Fold(*sizes) for name, sizes in folds.items()})
    return graph, made, random_inputs(graph, 4, number)


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    return [*(job(gated(*case, seed=n), f"g{n}", 4) for n, case in enumerate(CASES[:3])), *map(folded_job, range(len(FOLDS)))]


@pytest.mark.verilator
def test_gated_maps_equal_the_reference_and_wait_in_the_memory_that_was_planned(jobs: list[Job]) -> None:
    for (graph, design, _), simulation in zip(jobs, check_run(jobs), strict=True):
        assert simulation.frame_cycles[0] == design.latency_cycles, design.top
        assert simulation.frame_cycles[3] - simulation.frame_cycles[2] == design.interval_cycles, design.top
        waits = [f for f in design.fifos if "_to_mul5" in f.name]
        assert waits, design.top
        for fifo in design.fifos:
            assert fifo.depth - 4 <= simulation.high_water[fifo.name] <= fifo.depth, (design.top, fifo)
        _, channels, height, width = graph.shape("mul5_out")
        assert waits[0].depth * waits[0].width_bits >= channels * height * width * 8


@pytest.mark.verilator
def test_gated_maps_equal_the_reference_under_stalls_at_both_ends(jobs: list[Job]) -> None:
    check_run(jobs, 1)


@pytest.mark.verilator
def test_sums_and_outer_products_with_one_value_per_channel_equal_the_reference() -> None:
    found = []
    for number, (op, shape) in enumerate([(Add(), (1, 4, 3, 5)), (Mul(), (1, 1, 3, 5))]):
        s = Sketch(np.random.default_rng(number))
        value, x = s.input((1, 4, 1, 1)), s.input(shape)
        graph = s.graph((s.append(op, (value, x), Scheme(8, True, (-7 if op.kind == "Add" else -8,))),))
        found += [job(graph, f"b{number}"), job(with_arbitrary_scales(graph, number), f"s{number}")]
    check_run(found, 2)


@pytest.mark.parametrize("case", CASES)
def test_the_price_has_the_clocks_of_the_design(case: tuple[tuple[int, ...], int, bool]) -> None:
    graph, fpga = gated(*case), load_platform("zcu102").device("fpga")
    assert all(why_not(graph, n, fpga) is None and unsupported(graph, n) is None for n in graph.nodes)
    design = build_design(graph, "g")
    passage = frame_passage(graph, {})
    assert abs(passage.last - design.latency_cycles) <= 12
    assert passage.slowest == design.interval_cycles
    mul = graph.node("mul5")
    costs = costs_of(graph, mul, None, *ONE, fpga)
    assert costs is not None
    assert fpga.clock_hz is not None
    beats = graph.shape(mul.output)[2] * graph.shape(mul.output)[3]
    assert float(costs.fused_s[0]) * fpga.clock_hz >= beats - 1
    if beats > 1:
        depth, bits = waiting_beats(graph, mul)
        (fifo,) = [f for f in design.fifos if "_to_mul5" in f.name]
        assert bits == fifo.width_bits
        assert 0.75 * fifo.depth <= depth <= fifo.depth + 4 * TYPICAL_STAGES  # four engines after the map


def test_layers_that_a_map_waits_for_are_a_phase_of_their_own_and_fast() -> None:
    graph = gated((1, 6, 7, 7), 3, False)
    assert gate_layers(graph) == {"conv2", "conv3", "lookup4"}
    assert phases_of(graph) == {"conv0": 0, "globalavgpool1": 0, "conv2": 1, "conv3": 2, "lookup4": 3, "mul5": 3, "conv6": 3}
    assert [layer_pace(graph, graph.node(n), 800) for n in ("conv0", "conv2", "conv3", "conv6")] == [
        800, 800 // GATE_PART, 800 // GATE_PART, 800]


@pytest.mark.yosys
@pytest.mark.parametrize("shape", [(1, 16, 14, 14), (1, 5, 20, 23)])
def test_the_area_of_a_gate_is_near_its_price(shape: tuple[int, ...]) -> None:
    s = Sketch(np.random.default_rng(3))
    x = s.input(shape)
    gate = s.append(GlobalAvgPool(), (x,), Scheme(8, True, (-7,)))
    graph = s.graph((s.append(Mul(), (x, gate), Scheme(8, True, (-8,))),))
    fpga = load_platform("ecp5-85").device("fpga")
    costs = [costs_of(graph, node, None, *ONE, fpga) for node in graph.nodes]
    found = synthesize(build_design(graph, "g"), "ecp5").resources
    for resource, error in (("bram", 0.25), ("register", 0.3), ("lut4", 0.5)):
        price = sum(float(c.resources[resource][0]) for c in costs if c is not None)
        assert found[resource] == pytest.approx(price, rel=error, abs=1), resource
