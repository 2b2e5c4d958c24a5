"""Boards filled to the brim: plans that are poured are legal, and better than candidates where those leave boards empty."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dovetail import zoo
from dovetail.ir import Axis
from dovetail.ir.onnx_read import read_onnx
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import evaluate
from dovetail.partition.plan import whole_on
from dovetail.partition.pooled import pooled_problem
from dovetail.partition.pouring import pour
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.platform.load import load_platform
from tests.partition.test_pooled import Alike, ring
from tests.partition.worlds import chain


def test_what_fits_on_no_board_as_it_is_is_cut_to_fill_them() -> None:
    """Each of three nodes takes most of a board, and there are two and a half boards' worth of them."""
    poured = 0
    for seed in range(12):
        graph, costs = chain(3, 16, 3), Alike(seed)
        wide = Problem(graph, ring(seed, 3, 1e9), costs)
        sizes = [dict(costs.costs_of(graph, n, None, np.array([0]), np.array([1]), wide.platform.device("fpga0")).resources)
                 for n in graph.nodes]
        largest = max(float(v[0]) for s in sizes for v in s.values())
        problem = Problem(graph, ring(seed, 3, 1.05 * largest), costs)
        pooled = pooled_problem(problem)
        assert pooled is not None
        assert pooled.pool is not None
        found = pour(problem, pooled.pool, {n.name: whole_on("fpga0") for n in graph.nodes}, np.inf)
        if found is not None:
            poured += 1
            assert evaluate(problem, found).feasible
            assert all(d.startswith("fpga") for s in found.values() for d in s.devices)
            assert all(s.axis in (None, Axis.OUTPUT_CHANNELS) for s in found.values())
    assert poured


def test_a_plan_that_cannot_be_is_none() -> None:
    graph, costs = chain(3, 4, 3), Alike(1)
    problem = Problem(graph, ring(1, 2, 1e-3), costs)
    pooled = pooled_problem(problem)
    assert pooled is not None
    assert pooled.pool is not None
    assert pour(problem, pooled.pool, {n.name: whole_on("fpga0") for n in graph.nodes}, np.inf) is None


def test_resnet18_fills_four_boards(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(zoo.build("resnet18"))
    graph, board = read_onnx(path).graph, load_platform("fic:4")
    found = plan(graph, board, off_grid=True, explained=False)
    assert found.gap <= 0.005
    assert evaluate(Problem(graph, board, DeviceCosts()), found.assignment).objective == found.objective
