"""What starting a part costs, and plans of few parts: judged and searched alike, bounded by plans of any number."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dovetail import zoo
from dovetail.errors import InfeasibleError, UsageError
from dovetail.ir import Graph
from dovetail.numbers import graph_to_plan
from dovetail.partition.options import PROOF, Options
from dovetail.partition.plan import Goal, Mode, Status, whole_on
from dovetail.partition.solve import plan
from dovetail.planning import make_plan
from dovetail.platform.device import ModelSet, Platform
from dovetail.platform.load import load_platform, platform_from_dict, platform_to_dict
from dovetail.schedule.program import count_parts, lower
from tests.strategies import quantized

BOARD = load_platform("tx2-c10gx")


def dispatching(**seconds: float) -> Platform:
    """The board with other dispatch times."""
    return replace(BOARD, devices=tuple(replace(d, dispatch_s=seconds.get(d.name, d.dispatch_s),
                                                sources={**d.sources, "dispatch_s": "test"}) for d in BOARD.devices))


@cache
def network() -> Graph:
    """MobileNetV2 of half the width, for a small image."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(zoo.build("mobilenet-v2-0.5", size=64))
        return graph_to_plan(path)[0]


def test_every_part_away_from_the_host_takes_its_dispatch_longer() -> None:
    graph = network()
    names = [n.name for n in graph.nodes]
    pins = {name: whole_on("gpu" if i in (2, 3, 8) else "cpu") for i, name in enumerate(names)}
    free, charged = (plan(graph, dispatching(gpu=seconds), PROOF, pins) for seconds in (0.0, 1e-3))
    assert charged.latency_s - free.latency_s == pytest.approx(2e-3)  # nodes 2 and 3 are one part
    alone = {name: whole_on("cpu") for name in names}
    assert plan(graph, dispatching(gpu=1e-3, fpga=1e-3), PROOF, alone).latency_s == plan(graph, BOARD, PROOF, alone).latency_s


def test_parts_of_the_host_take_its_dispatch_where_it_was_measured() -> None:
    graph = network()
    pins = {n.name: whole_on("gpu" if i in (2, 3, 8) else "cpu") for i, n in enumerate(graph.nodes)}
    alone = {n.name: whole_on("cpu") for n in graph.nodes}
    free, charged = (plan(graph, dispatching(cpu=seconds), PROOF, pins) for seconds in (0.0, 1e-3))
    assert charged.latency_s - free.latency_s == pytest.approx(2e-3)  # what follows either part of the GPU
    assert plan(graph, dispatching(cpu=1e-3), PROOF, alone).latency_s == plan(graph, BOARD, PROOF, alone).latency_s
    ending = {n.name: whole_on("gpu") for n in graph.nodes}
    free, charged = (plan(graph, dispatching(cpu=seconds), PROOF, ending) for seconds in (0.0, 1e-3))
    assert charged.latency_s - free.latency_s == pytest.approx(1e-3)  # handed to whoever reads results


def test_the_papers_models_count_no_dispatch() -> None:
    graph, believed = network(), [dispatching(gpu=s, fpga=s).with_models(ModelSet.MEASURED) for s in (0.0, 1e-2)]
    pins = {n.name: whole_on("gpu") for n in graph.nodes}
    assert len({plan(graph, board, PROOF, pins).latency_s for board in believed}) == 1


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("goal", [Goal.LATENCY, Goal.ENERGY])
def test_the_search_prices_a_dispatch_as_the_evaluator_does(goal: Goal, mode: Mode) -> None:
    found = plan(network(), dispatching(cpu=40e-6, gpu=70e-6, fpga=110e-6), replace(PROOF, goal=goal, mode=mode))
    assert found.status is Status.OPTIMAL
    dearer = plan(network(), dispatching(cpu=40e-6, gpu=5e-3, fpga=5e-3), replace(PROOF, goal=goal, mode=mode))
    assert dearer.objective >= found.objective
    assert count_parts(network(), dearer.assignment) < count_parts(network(), found.assignment)


def test_a_board_keeps_its_dispatch_in_a_plan() -> None:
    board = dispatching(fpga=12e-6)
    assert platform_from_dict(platform_to_dict(board)).device("fpga").dispatch_s == 12e-6


def test_parts_are_those_of_the_program() -> None:
    graph = quantized(network())
    found = plan(graph, BOARD, PROOF)
    assert count_parts(graph, found.assignment) == len(lower(graph, found.assignment).segments)


@pytest.mark.slow("plans a network many times")
def test_a_limit_on_parts_holds_and_says_what_it_costs() -> None:
    graph, most, quick = network(), 4, replace(PROOF, time_limit_s=0.3)
    free, _ = make_plan(graph, BOARD, quick)
    found, _ = make_plan(graph, BOARD, replace(quick, max_parts=most))
    assert count_parts(graph, found.assignment) <= most < count_parts(graph, free.assignment)
    assert found.objective >= free.objective
    assert found.lower_bound == free.lower_bound
    assert found.status is Status.FEASIBLE
    note = next(n for n in found.notes if n.startswith("parts: "))
    assert f"of {most} allowed" in note
    assert f"without the limit {count_parts(graph, free.assignment)} parts" in note


def test_a_limit_that_is_kept_anyway_changes_nothing() -> None:
    free, _ = make_plan(network(), BOARD, PROOF)
    kept, _ = make_plan(network(), BOARD, replace(PROOF, max_parts=1000))
    assert (kept.assignment, kept.notes) == (free.assignment, free.notes)


@pytest.mark.slow("plans a network many times")
def test_pins_that_need_more_parts_are_refused_with_the_fewest() -> None:
    names = [n.name for n in network().nodes]
    pins = {name: whole_on("gpu" if i % 2 else "cpu") for i, name in enumerate(names)}
    with pytest.raises(InfeasibleError, match=r"max parts 2: the fewest found are \d+, or miss a limit; allow more parts"):
        make_plan(network(), BOARD, replace(PROOF, max_parts=2, pins=pins))


def test_options_that_mean_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match=r"max parts 0: a program has at least 1"):
        Options(max_parts=0)
    with pytest.raises(UsageError, match=r"fill 1.5: a part of an FPGA from 0.01 to 1 is possible, such as 0.8"):
        Options(fill=1.5)


@pytest.mark.slow("plans a network many times")
def test_a_plan_fills_the_fpga_no_further_than_it_says() -> None:
    by_default, _ = make_plan(network(), BOARD, PROOF)
    full, _ = make_plan(network(), BOARD, replace(PROOF, fill=1.0))
    half, _ = make_plan(network(), BOARD, replace(PROOF, fill=0.5))
    for found, most in ((by_default, 0.75), (full, 1.0), (half, 0.5)):
        used, limit = found.resources["fpga"]["alm"]
        assert limit == BOARD.device("fpga").resources["alm"]
        assert used <= most * limit
    assert full.objective <= by_default.objective <= half.objective
    assert "fpga: alm and register are filled to 75.0% at the most, so that the design fits with 95 % confidence " \
           "(area is estimated to ±25.0%); --fill changes it" in by_default.notes
    assert "fpga: filled to 50% of each resource at the most, as asked for" in half.notes
