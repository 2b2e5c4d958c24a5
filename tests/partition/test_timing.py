"""Tables of many nodes worked out together, and plans without sentences."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dovetail.ir import Graph
from dovetail.partition import timing
from dovetail.partition.columns import inputs_held, options
from dovetail.partition.plan import Mode
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.partition.tables import tabulate, tabulate_all
from dovetail.platform.device import Platform
from tests.partition.worlds import Synthetic, chain, fork, platform, residual


def world(fpgas: int) -> Platform:
    """The synthetic world with a chain of further FPGAs behind its first."""
    board = platform(5, budget=1e9)
    first, link = board.device("fpga"), board.links[-1]
    names = ["fpga", *(f"fpga{i}" for i in range(1, fpgas))]
    more = tuple(replace(first, name=name) for name in names[1:])
    ways = tuple(replace(link, name=f"way{i}", ends=ends) for i, ends in enumerate(pairwise(names)))
    return replace(board, devices=(*board.devices, *more), links=(*board.links, *ways))


@pytest.mark.parametrize("cells", [1, 300, 1 << 14])
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(("graph", "fpgas"), [(chain(5), 1), (residual(3), 1), (fork(4), 1), (chain(3), 3)],
                         ids=["chain", "residual", "fork", "many devices"])
def test_nodes_cost_together_what_they_cost_one_by_one(graph: Graph, fpgas: int, mode: Mode, cells: int,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(graph, world(fpgas), Synthetic(5), mode=mode)
    choices = [options(problem, n) for n in problem.graph.nodes]
    known = inputs_held(problem) | {c.node.output: c.held for c in choices}
    apart = [tabulate(problem, c, known) for c in choices]
    monkeypatch.setattr(timing, "CELLS", cells)
    for one, same in zip(apart, tabulate_all(problem, choices, known), strict=True):
        assert np.array_equal(one.latency_s, same.latency_s)
        assert np.array_equal(one.energy_j, same.energy_j)


def test_a_plan_without_sentences_is_the_same_plan() -> None:
    graph, board, costs = residual(2), platform(2), Synthetic(2)
    told, silent = plan(graph, board, costs=costs), plan(graph, board, costs=costs, explained=False)
    assert all(n.why for n in told.nodes)
    assert silent == replace(told, nodes=tuple(replace(n, why="") for n in told.nodes))
