"""Pixel shuffles: the engine against the reference, its price against its design, and transposed convolutions on an FPGA."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.cost import costs_of
from dovetail.cost.costs import why_not
from dovetail.fpga.assemble import build_design
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.ir import Axis, Graph, MaxPool, PixelShuffle, Window, slices
from dovetail.planning import Options, make_plan
from dovetail.platform.load import load_platform
from dovetail.schedule.program import lower
from tests.fpga.random_graphs import Sketch, same_window
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
    assert price["register"] == pytest.approx(found["register"], rel=0.06)
    assert price["lut4"] == pytest.approx(found["lut4"], rel=0.11)


def test_a_share_of_the_output_channels_reads_and_leaves_its_own() -> None:
    op, shape = PixelShuffle(2, 3, cropped=(1, 2)), (1, 30, 4, 3)
    x = np.random.default_rng(0).integers(0, 255, shape).astype(np.float64)
    whole = op.accumulate((x,), ())
    for start, stop in ((0, 2), (2, 3), (3, 5)):
        share = op.share(Axis.GROUPS, start, stop, (shape,))
        found = share.op.accumulate((x[slices(share.inputs[0])],), ())
        np.testing.assert_array_equal(found, whole[slices(share.output)])
    assert op.axes((shape,)) == (Axis.GROUPS,)
    assert PixelShuffle(2, 3, True).axes((shape,)) == ()


def unet(s: Sketch) -> Graph:
    """An image halved twice and enlarged twice by blocks of pixels, with the maps of both levels across; all tensors go out."""
    skips, x = list[str](), s.conv(s.input((1, 2, 8, 12)), 3, same_window(3))
    for channels in (4, 6):
        skips.append(x)
        x = s.conv(s.pool(MaxPool(Window((2, 2), (2, 2))), x), channels, same_window(3))
    for channels in (4, 3):
        blocks = s.shuffle(s.conv(x, 4 * channels, Window((1, 1))), PixelShuffle(2, 2))
        x = s.conv(s.concat(skips.pop(), blocks), channels, same_window(3))
    graph = s.graph((x,))
    return replace(graph, outputs=tuple(n.output for n in graph.nodes))


@pytest.mark.verilator
def test_all_tensors_of_a_small_unet_are_those_of_the_reference() -> None:
    graph = unet(Sketch(np.random.default_rng(3)))
    assert len(graph.outputs) == 13
    whole = job(graph, "unet")
    (simulation,) = check_run([whole])
    assert simulation.frame_cycles[2] - simulation.frame_cycles[1] == whole[1].interval_cycles
    check_run([whole], 1)


def test_a_plan_keeps_a_transposed_convolution_on_the_fpga() -> None:
    s = Sketch(np.random.default_rng(1))
    x = s.conv(s.input((1, 3, 24, 24)), 4, same_window(3))
    x = s.shuffle(s.conv(x, 16, Window((1, 1))), PixelShuffle(2, 2))
    graph = s.graph((s.conv(x, 2, same_window(3)),))
    plan, _ = make_plan(graph, load_platform("tx2-c10gx"), Options())
    segments = lower(graph, plan.assignment).segments
    assert [len(seg.graph.nodes) for seg in segments if seg.device == "fpga"] == [4]
