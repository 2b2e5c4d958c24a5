"""Tables of many nodes worked out together, and plans without sentences."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from dovetail.ir import Graph
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Mode
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.partition.tables import timing
from dovetail.partition.tables.columns import compacted, inputs_held, options
from dovetail.partition.tables.costs import tabulate, tabulate_all
from dovetail.platform.device import Platform
from tests.partition.worlds import Synthetic, chain, fork, platform, residual

pytestmark = pytest.mark.quick


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


def test_what_is_remembered_of_columns_that_are_gone_is_not_taken_for_others() -> None:
    """Narrowed columns come and go; where one of them is made in the place of another, its costs are its own."""
    problem = Problem(chain(2), world(3), Synthetic(5))
    every = [options(problem, n) for n in problem.graph.nodes]
    for size in range(2, 40):
        picked = [c.keep(np.arange(0, len(c), 1 + size % 7)[:size]) for c in every]
        apart = Problem(chain(2), world(3), Synthetic(5))
        found = []
        for own, columns in ((problem, picked), (apart, [c.keep(p.columns) for c, p in zip(map(
                options, (apart, apart), apart.graph.nodes), picked, strict=True)])):
            few = compacted(columns)
            known = inputs_held(own) | {c.node.output: c.held for c in few}
            found.append([t.latency_s for t in tabulate_all(own, few, known)])
        assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def test_a_plan_without_sentences_is_the_same_plan() -> None:
    graph, board, costs = residual(2), platform(2), Synthetic(2)
    told, silent = plan(graph, board, costs=costs), plan(graph, board, replace(PROOF, explained=False), costs=costs)
    assert all(n.why for n in told.nodes)
    assert told.intervals
    assert told.limited_by is not None
    assert silent == replace(told, nodes=tuple(replace(n, why="") for n in told.nodes), intervals={}, limited_by=None)
