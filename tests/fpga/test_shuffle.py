"""Pixel shuffles: the engine against the reference, its price against its design, and transposed convolutions on an FPGA."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.cost import costs_of
from dovetail.cost.costs import why_not
from dovetail.fpga.assemble import build_design
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.ir import Graph, PixelShuffle
from dovetail.platform.load import load_platform
from tests.fpga.random_graphs import Sketch
from tests.fpga.test_assemble import Job, check_run, job

Case = tuple[tuple[int, ...], PixelShuffle]

CASES: list[Case] = [
    ((1, 4, 1, 1), PixelShuffle(2, 2)), ((1, 12, 3, 5), PixelShuffle(2, 2)), ((1, 12, 3, 5), PixelShuffle(2, 2, True)),
    ((1, 9, 4, 3), PixelShuffle(3, 3)), ((1, 18, 2, 3), PixelShuffle(3, 3, depth_first=True)), ((1, 6, 5, 1), PixelShuffle(3, 1)),
    ((1, 8, 1, 6), PixelShuffle(1, 4)), ((1, 8, 3, 70), PixelShuffle(2, 2)), ((1, 8, 3, 5), PixelShuffle(2, 2, cropped=(1, 1))),
    ((1, 12, 4, 3), PixelShuffle(3, 2, cropped=(2, 1))), ((1, 6, 3, 1), PixelShuffle(3, 2, True, (1, 0))),
    ((1, 3, 1, 4), PixelShuffle(1, 3, cropped=(0, 2))), ((1, 4, 1, 4), PixelShuffle(2, 2, cropped=(1, 0)))]


def shuffled(shape: tuple[int, ...], op: PixelShuffle) -> Graph:
    s = Sketch(np.random.default_rng(5))
    return s.graph((s.shuffle(s.input(shape), op),))


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    return [job(shuffled(*case), f"s{number}") for number, case in enumerate(CASES)]


@pytest.mark.verilator
def test_blocks_leave_one_pixel_per_clock(jobs: list[Job]) -> None:
    for (_, design, _), simulation in zip(jobs, check_run(jobs), strict=True):
        assert simulation.frame_cycles[0] == design.latency_cycles, design.top
        assert simulation.frame_cycles[2] - simulation.frame_cycles[1] == design.interval_cycles == design.outputs[0].beats


@pytest.mark.verilator
def test_blocks_leave_under_stalls_at_both_ends(jobs: list[Job]) -> None:
    check_run(jobs, 2)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1].attributes()}")
def test_the_price_has_the_clocks_of_the_design(case: Case) -> None:
    graph, fpga = shuffled(*case), load_platform("ecp5-85").device("fpga")
    assert why_not(graph, graph.nodes[0], fpga) is None
    costs = costs_of(graph, graph.nodes[0], None, np.array([0]), np.array([1]), fpga)
    assert costs is not None
    assert fpga.clock_hz is not None
    assert abs(float(costs.alone_s[0]) * fpga.clock_hz - build_design(graph, "s").latency_cycles) <= 2


@pytest.mark.yosys
@pytest.mark.parametrize(("shape", "op"), [((1, 64, 4, 120), PixelShuffle(2, 2)), ((1, 36, 3, 40), PixelShuffle(3, 3))])
def test_the_price_has_the_area_of_the_design(shape: tuple[int, ...], op: PixelShuffle) -> None:
    graph, fpga = shuffled(shape, op), load_platform("ecp5-85").device("fpga")
    costs = costs_of(graph, graph.nodes[0], None, np.array([0]), np.array([1]), fpga)
    assert costs is not None
    found = synthesize(build_design(graph, "s"), "ecp5").resources
    price = {name: float(values[0]) for name, values in costs.resources.items()}
    assert price["bram"] == found["bram"]
    assert price["register"] == pytest.approx(found["register"], rel=0.15)
    assert price["lut4"] == pytest.approx(found["lut4"], rel=0.3)
