"""Cuts weighed against each other: never worse, legal, no worse than geometric programming, and really what was offered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dovetail import zoo
from dovetail.ir import Axis, Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import evaluate
from dovetail.partition.exact.finer import finer_splits, worth_finer
from dovetail.partition.exact.refine import refine
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.partition.tables.columns import options
from dovetail.partition.work import check_split
from dovetail.platform.load import load_platform
from tests.partition.worlds import Synthetic, chain, depthwise, fork, platform, pooled, residual

GRAPHS = (lambda seed: chain(3, 64, 3), residual, fork, depthwise, pooled)


@pytest.fixture(scope="module")
def alexnet(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path: Path = tmp_path_factory.mktemp("finer") / "m.onnx"
    path.write_bytes(zoo.build("alexnet"))
    return read_onnx(path).graph


@pytest.mark.parametrize("goal", [Goal.LATENCY, Goal.ENERGY, Goal.EDP])
@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_weighing_cuts_is_legal_and_never_worse_than_moving_them_one_by_one(number: int, goal: Goal) -> None:
    for seed in range(3):
        graph, board, costs = GRAPHS[number](seed), platform(seed, budget=60.0), Synthetic(seed)
        problem = Problem(graph, board, costs, goal)
        grid = plan(graph, board, replace(PROOF, goal=goal), costs=costs)
        _, moved = refine(problem, grid.assignment, evaluate(problem, grid.assignment))
        found = plan(graph, board, replace(PROOF, goal=goal, off_grid=True), costs=costs)
        again = evaluate(problem, found.assignment)
        assert again.feasible
        assert again.objective == found.objective
        assert found.objective <= moved.objective
        assert found.lower_bound <= found.objective


def test_what_is_offered_is_legal_and_among_the_columns(alexnet: Graph) -> None:
    board = load_platform("tx2-c10gx")
    problem = Problem(alexnet, board, DeviceCosts())
    first = plan(alexnet, board, replace(PROOF, explained=False))
    offered = finer_splits(problem, first.assignment)
    wider = problem.offering(offered)
    for name, splits in offered.items():
        node = alexnet.node(name)
        for split in splits:
            check_split(problem, node, split)
        legal = set(options(wider, node).splits)
        assert set(options(problem, node).splits) <= legal
        free = [s for s in splits if "fpga" not in s.devices]  # others may exceed the FPGA
        assert free == [s for s in free if s in legal]
    assert any(split.axis is Axis.OUTPUT_CHANNELS for splits in offered.values() for split in splits)


@pytest.mark.parametrize("goal", [Goal.LATENCY, Goal.ENERGY])
def test_a_plan_for_alexnet_is_no_worse_than_that_of_geometric_programming(alexnet: Graph, goal: Goal) -> None:
    pytest.importorskip("cvxpy")
    board = load_platform("tx2-c10gx")
    exact = plan(alexnet, board, replace(PROOF, goal=goal, off_grid=True))
    assert exact.objective <= plan(alexnet, board, replace(PROOF, goal=goal, solver="gp", explained=False)).objective


def test_many_boards_and_busy_times_are_not_planned_again(alexnet: Graph) -> None:
    board = load_platform("tx2-c10gx")
    assert worth_finer(Problem(alexnet, board, DeviceCosts()))
    assert not worth_finer(Problem(alexnet, board, DeviceCosts(), Goal.THROUGHPUT))
    assert not worth_finer(Problem(alexnet, load_platform("fic:4"), DeviceCosts()))
