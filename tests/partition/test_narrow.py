"""Striking and thinning columns: what they keep, and that a wide graph stays within its limit."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from dovetail.ir import Concat, Graph
from dovetail.partition import by_device
from dovetail.partition.busy_ranking import rank_interval
from dovetail.partition.candidates import WHOLE_RANK
from dovetail.partition.columns import options
from dovetail.partition.cuts import stages
from dovetail.partition.evaluate import evaluate
from dovetail.partition.narrow import rank, thin
from dovetail.partition.plan import Goal, Status
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.partition.tree import relaxed_tree
from tests.partition.worlds import Builder, Synthetic, platform, residual


def wide(branches: int) -> Graph:
    """Branches side by side, joined at the end: as many tensors alive at once."""
    b = Builder(4, 6)
    stem = b.conv("x", 4)
    return b.graph(b.add(Concat(1), *(b.conv(stem, 4, 1) for _ in range(branches))))


@pytest.mark.parametrize("goal", Goal)
def test_a_columns_bound_is_below_every_plan_that_uses_it(goal: Goal) -> None:
    for seed in range(6):
        problem = Problem(residual(seed), platform(seed, budget=40.0), Synthetic(seed), goal)
        choices = [options(problem, n) for n in problem.graph.nodes]
        tree = relaxed_tree(problem, choices)
        interval = goal is Goal.THROUGHPUT
        ranking = rank_interval(problem, tree, inf, inf) if interval else rank(problem, tree, (3e-3, 1e-2), inf)
        rng = np.random.default_rng(seed)
        for _ in range(60):
            path = [int(rng.integers(len(c.splits))) for c in choices]
            judged = evaluate(problem, {c.node.name: c.splits[i] for c, i in zip(choices, path, strict=True)})
            if judged.feasible:
                for bounds, i in zip(ranking.bounds, path, strict=True):
                    assert bounds[i] <= judged.objective * (1 + 1e-12)
        assert [len(c) for c in ranking.strike(choices, inf)] == [len(c) for c in choices]


def test_thinning_keeps_whole_placements_and_meets_the_limit() -> None:
    problem = Problem(wide(4), platform(1), Synthetic(1))
    choices = [options(problem, n) for n in problem.graph.nodes]
    kept = thin(problem, choices, 5_000)
    assert kept is not None
    sizes = {c.node.output: len(c.places) for c in kept}
    for own, stage in zip(kept, stages(problem), strict=True):
        assert np.prod([sizes[t] for t in stage.live]) * len(own.places) <= 5_000
        assert (own.rank == WHOLE_RANK).sum() == (options(problem, own.node).rank == WHOLE_RANK).sum()
    assert thin(problem, choices, 10) is None


def test_many_branches_are_planned_with_coarser_cuts_and_said_so() -> None:
    found = plan(wide(6), platform(3), costs=Synthetic(3), time_limit_s=20.0)
    assert found.lower_bound <= found.objective
    assert found.status is Status.OPTIMAL or "fewer at" in found.notes[0]


def test_a_graph_too_wide_for_cuts_still_gets_a_plan_and_a_bound() -> None:
    found = plan(wide(18), platform(3), costs=Synthetic(3), time_limit_s=5.0)
    assert 0 < found.lower_bound <= found.objective
    assert found.objective <= min(v for v in found.baselines.values() if v is not None)


def test_how_near_to_the_bound_a_plan_is_looked_for_first_changes_neither_plan_nor_proof(
        monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[bool] = []
    below = by_device._below

    def watched(*asked: object) -> object:
        found = below(*asked)  # type: ignore[arg-type]
        met.append(found is not None)
        return found

    monkeypatch.setattr(by_device, "_below", watched)
    for seed in range(8):
        goal, found = (Goal.LATENCY, Goal.ENERGY)[seed % 2], []
        for near in (1e-4, 0.02, 0.3):
            monkeypatch.setattr(by_device, "NEAR", near)
            found.append(plan(residual(seed), platform(seed, budget=40.0), goal, costs=Synthetic(seed), explained=False))
        assert {p.status for p in found} == {Status.OPTIMAL}
        assert max(p.objective for p in found) <= min(p.objective for p in found) * (1 + 1e-9)
    assert set(met) == {False, True}
