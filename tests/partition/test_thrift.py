"""Thrift gives up little of the objective for much area, says so, and never hides behind a loose bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.errors import UsageError
from dovetail.ir import Graph
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import evaluate, reevaluate
from dovetail.partition.options import PROOF, Options
from dovetail.partition.plan import Goal, Plan, Status, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.pipeline import decide_numbers
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform


def used(found: Plan) -> float:
    return found.resources["fpga"]["alm"][0]


@pytest.fixture(scope="module")
def graph() -> Graph:
    """A trunk that suits the FPGA, and a classifier that would fill it for a few percent."""
    example = Path(__file__).parents[2] / "examples" / "fashion"
    return decide_numbers(example / "fashion.onnx", example / "calibration.npz").graph


@pytest.fixture(scope="module")
def board() -> Platform:
    """The papers' board as they count: all of the FPGA, and no time to start a part, so that it is worth filling."""
    found = load_platform("tx2-c10gx").with_fill(1.0)
    return replace(found, devices=tuple(replace(d, dispatch_s=None) for d in found.devices))


def test_area_is_saved_within_the_fraction_allowed(graph: Graph, board: Platform) -> None:
    best = plan(graph, board)
    thrifty = plan(graph, board, replace(PROOF, thrift=0.05))
    assert best.status is Status.OPTIMAL
    assert best.objective < thrifty.objective <= best.objective * 1.05
    assert thrifty.lower_bound <= best.objective
    assert used(thrifty) < 0.2 * used(best)
    (note,) = [note for note in thrifty.notes if note.startswith("thrift: ")]
    for name, change in (("latency", thrifty.latency_s / best.latency_s), ("energy", thrifty.energy_j / best.energy_j),
                         ("frames/s", best.interval_s / thrifty.interval_s)):
        assert f"{name} {100 * change - 100:+.2f} %".replace("-", "−") in note
    assert "--thrift 0 keeps it" in note
    assert thrifty.status is Status.FEASIBLE


def test_nothing_is_given_up_unless_asked(graph: Graph, board: Platform) -> None:
    assert Options().thrift == 0.0
    found = plan(graph, board, Options(rivals=False))
    assert found.best_objective is None
    assert not any("thrift" in note for note in found.notes)


def test_the_trunk_stays_on_the_fpga_and_the_classifier_leaves_it(graph: Graph, board: Platform) -> None:
    found = plan(graph, board, replace(PROOF, thrift=0.05))
    assert found.assignment["conv1"].devices == ("fpga",)
    assert found.assignment["fc1"].devices == ("cpu",)


@pytest.mark.parametrize("thrift", [0.0, 0.1, 0.3, 0.9])
@pytest.mark.parametrize("goal", list(Goal))
def test_a_thrifty_plan_is_never_worse_than_a_baseline(graph: Graph, board: Platform, thrift: float, goal: Goal) -> None:
    found = plan(graph, board, replace(PROOF, goal=goal, thrift=thrift))
    assert found.objective <= min(v for v in found.baselines.values() if v is not None)


def test_a_node_that_thrift_moved_says_so(graph: Graph, board: Platform) -> None:
    found = plan(graph, board, replace(PROOF, thrift=0.05))
    assert any(n.why.endswith("less in all, given up by thrift to save area") for n in found.nodes)


def test_thrift_leaves_the_plans_of_other_solvers_alone(graph: Graph, board: Platform) -> None:
    found = plan(graph, board, replace(PROOF, solver="greedy", thrift=0.05))
    assert found.objective == found.baselines["greedy"]


def test_a_moved_node_judged_locally_is_judged_as_anew(graph: Graph, board: Platform) -> None:
    problem = Problem(graph, board, DeviceCosts())
    assignment = plan(graph, board).assignment
    judged = evaluate(problem, assignment)
    for node in graph.nodes:
        for device in ("cpu", "gpu"):
            moved = reevaluate(problem, assignment, judged, node.name, whole_on(device))
            assert moved == evaluate(problem, {**assignment, node.name: whole_on(device)})


def test_an_impossible_fraction_is_refused(graph: Graph, board: Platform) -> None:
    with pytest.raises(UsageError, match=r"thrift 1: a fraction of the objective from 0 to below 1 is possible, such as 0\.01"):
        plan(graph, board, replace(PROOF, thrift=1.0))
