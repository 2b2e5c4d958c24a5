"""Enlargement by repeated pixels: the engine against the reference, its price against its design, and a plan that uses it."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.cost import costs_of
from dovetail.cost.costs import why_not
from dovetail.fpga.assemble import build_design
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.ir import Graph
from dovetail.planning import Options, make_plan
from dovetail.platform.load import load_platform
from dovetail.schedule.program import lower
from tests.fpga.random_graphs import Sketch, same_window
from tests.fpga.test_assemble import Job, check_run, job

CASES = [((1, 3, 1, 1), 2, 3), ((1, 2, 5, 1), 3, 1), ((1, 2, 1, 6), 1, 4), ((1, 4, 3, 5), 2, 2), ((1, 3, 4, 70), 2, 2),
         ((1, 1, 3, 3), 1, 1)]


def enlarged(shape: tuple[int, ...], rows: int, columns: int) -> Graph:
    s = Sketch(np.random.default_rng(5))
    return s.graph((s.upsample(s.input(shape), rows, columns),))


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    return [job(enlarged(*case), f"e{number}") for number, case in enumerate(CASES)]


@pytest.mark.verilator
def test_pixels_are_repeated_one_per_clock(jobs: list[Job]) -> None:
    for (_, design, _), simulation in zip(jobs, check_run(jobs), strict=True):
        assert simulation.frame_cycles[0] == design.latency_cycles, design.top
        assert simulation.frame_cycles[2] - simulation.frame_cycles[1] == design.interval_cycles == design.outputs[0].beats


@pytest.mark.verilator
def test_pixels_are_repeated_under_stalls_at_both_ends(jobs: list[Job]) -> None:
    check_run(jobs, 2)


@pytest.mark.parametrize("case", CASES)
def test_the_price_has_the_clocks_of_the_design(case: tuple[tuple[int, ...], int, int]) -> None:
    graph, fpga = enlarged(*case), load_platform("ecp5-85").device("fpga")
    assert why_not(graph, graph.nodes[0], fpga) is None
    costs = costs_of(graph, graph.nodes[0], None, np.array([0]), np.array([1]), fpga)
    assert costs is not None
    assert fpga.clock_hz is not None
    assert abs(float(costs.alone_s[0]) * fpga.clock_hz - build_design(graph, "e").latency_cycles) <= 2


@pytest.mark.yosys
def test_rows_that_come_again_lie_in_memory_blocks_as_the_price_says() -> None:
    graph, fpga = enlarged((1, 16, 4, 120), 2, 2), load_platform("ecp5-85").device("fpga")
    costs = costs_of(graph, graph.nodes[0], None, np.array([0]), np.array([1]), fpga)
    assert costs is not None
    found = synthesize(build_design(graph, "e"), "ecp5").resources
    assert float(costs.resources["bram"][0]) == found["bram"] > 0
    assert float(costs.resources["register"][0]) == pytest.approx(found["register"], rel=0.15)


def test_a_plan_keeps_an_enlargement_between_layers_on_the_fpga() -> None:
    s = Sketch(np.random.default_rng(1))
    x = s.conv(s.input((1, 3, 24, 24)), 4, same_window(3))
    graph = s.graph((s.conv(s.upsample(x, 2, 2), 2, same_window(3)),))
    plan, _ = make_plan(graph, load_platform("tx2-c10gx"), Options())
    segments = lower(graph, plan.assignment).segments
    assert [len(seg.graph.nodes) for seg in segments if seg.device == "fpga"] == [3]
