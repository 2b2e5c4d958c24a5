"""Cuts between the candidates' positions: never worse, legal, told, and the best along one axis where that can be tried out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dovetail import zoo
from dovetail.ir import Axis, Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.partition.candidates import divide
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import evaluate
from dovetail.partition.exact.refine import refine
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal
from dovetail.partition.problem import Problem, axes_of
from dovetail.partition.solve import plan
from dovetail.planning import Options, make_plan
from dovetail.platform.load import load_platform
from tests.partition.worlds import Synthetic, chain, depthwise, fork, platform, pooled, residual

GRAPHS = (lambda seed: chain(3, 64, 3), residual, fork, depthwise, pooled)


@pytest.fixture(scope="module")
def alexnet(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    path: Path = tmp_path_factory.mktemp("refine") / "m.onnx"
    path.write_bytes(zoo.build("alexnet"))
    return read_onnx(path).graph


@pytest.mark.parametrize("goal", list(Goal))
@pytest.mark.parametrize("number", range(len(GRAPHS)))
def test_a_refined_plan_is_legal_and_never_worse(number: int, goal: Goal) -> None:
    for seed in range(4):
        graph, board = GRAPHS[number](seed), platform(seed, budget=60.0)
        own = plan(graph, board, replace(PROOF, goal=goal), costs=Synthetic(seed))
        problem = Problem(graph, board, Synthetic(seed), goal)
        found, judged = refine(problem, own.assignment, evaluate(problem, own.assignment))
        assert judged == evaluate(problem, found)
        assert judged.feasible
        assert judged.objective <= own.objective


def test_both_cuts_of_a_node_on_three_devices_move() -> None:
    moved = set()
    for seed in range(6):
        graph, board = chain(2, 4, 48), platform(seed, budget=1e9)
        problem = Problem(graph, board, Synthetic(seed))
        extents = {n.name: axes_of(problem, n)[Axis.ROWS] for n in graph.nodes}
        start = {n: divide(Axis.ROWS, (e // 3, 2 * e // 3), e, problem.devices) for n, e in extents.items()}
        found, judged = refine(problem, start, evaluate(problem, start))
        assert judged == evaluate(problem, found)
        assert judged.objective <= evaluate(problem, start).objective
        moved |= {i for n in start for i in (0, 1) if found[n].pieces[i].stop != start[n].pieces[i].stop}
    assert moved == {0, 1}


def test_fixed_nodes_stay_where_they_are(alexnet: Graph) -> None:
    graph, board = alexnet, load_platform("tx2-c10gx")
    pinned = divide(*next((s.axis, [p.stop for p in s.pieces[:-1]], s.pieces[-1].stop, s.devices)
                          for s in plan(graph, board).assignment.values() if s.axis is not None))
    name = next(n for n, s in plan(graph, board).assignment.items() if s == pinned)
    assert plan(graph, board, replace(PROOF, off_grid=True), fixed={name: pinned}).assignment[name] == pinned


def test_alexnet_gains_between_the_candidates_and_the_plan_says_so(alexnet: Graph) -> None:
    graph, board = alexnet, load_platform("tx2-c10gx")
    on_grid = plan(graph, board)
    found, _ = make_plan(graph, board, Options(thrift=0.0))
    assert found.objective < on_grid.objective * 0.999
    assert found.lower_bound <= found.objective
    assert any(note.startswith("cuts: ") for note in found.notes)
    problem = Problem(graph, board, DeviceCosts())
    assert evaluate(problem, found.assignment).objective == found.objective
