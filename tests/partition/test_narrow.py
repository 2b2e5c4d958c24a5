"""Striking and thinning columns: what they keep, and that a wide graph stays within its limit."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from dovetail.errors import InternalError
from dovetail.hardware.shares import Floats
from dovetail.ir import Concat, Graph
from dovetail.partition.candidates import WHOLE_RANK
from dovetail.partition.evaluate import evaluate
from dovetail.partition.exact import by_device
from dovetail.partition.exact.cuts import stages
from dovetail.partition.exact.elimination import rank, thin
from dovetail.partition.exact.every_way import bound_every_way
from dovetail.partition.exact.tree import relaxed_tree
from dovetail.partition.interval import solver as throughput
from dovetail.partition.interval.weights import rank_interval
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal, Status
from dovetail.partition.problem import Problem
from dovetail.partition.proof import hold_over, looked_at
from dovetail.partition.solve import plan
from dovetail.partition.tables.columns import PricedSplits, options
from tests.partition.worlds import Builder, Synthetic, platform, residual


def wide(branches: int) -> Graph:
    """Branches side by side, joined at the end: as many tensors alive at once."""
    b = Builder(4, 6)
    stem = b.conv("x", 4)
    return b.graph(b.add(Concat(1), *(b.conv(stem, 4, 1) for _ in range(branches))))


def wide_twice() -> Graph:
    """Two such blocks in a row, arms of two nodes in the second."""
    b = Builder(4, 6)
    stem = b.conv("x", 4)
    middle = b.conv(b.add(Concat(1), *(b.conv(stem, 2, 1) for _ in range(7))), 4, 1)
    return b.graph(b.add(Concat(1), *(b.conv(b.conv(middle, 4, 1), 2, 1) for _ in range(7))))


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
    found = plan(wide(6), platform(3), replace(PROOF, time_limit_s=20.0), costs=Synthetic(3))
    assert found.lower_bound <= found.objective
    assert found.status is Status.OPTIMAL or "fewer at" in found.notes[0] or "ways not looked at" in " ".join(found.notes)


@pytest.mark.parametrize("goal", Goal)
def test_a_graph_too_wide_for_cuts_still_gets_a_plan_and_a_bound(goal: Goal) -> None:
    found = plan(wide(18), platform(3), replace(PROOF, goal=goal, time_limit_s=5.0), costs=Synthetic(3))
    assert 0 < found.lower_bound <= found.objective
    assert found.objective <= min(v for v in found.baselines.values() if v is not None)
    assert found.status is Status.FEASIBLE, "most ways to run 18 branches at once were not looked at"
    greedy = plan(wide(18), platform(3), replace(PROOF, goal=goal, solver="greedy", explained=False), costs=Synthetic(3))
    assert greedy.lower_bound <= found.objective, "a bound of all plans, whoever states it"


@pytest.mark.parametrize("goal", [Goal.LATENCY, Goal.ENERGY, Goal.EDP])
@pytest.mark.parametrize("graph", [wide(6), wide(18), wide_twice()])
def test_a_bound_over_every_way_to_run_branches_is_below_plans_drawn_of_them(goal: Goal, graph: Graph) -> None:
    problem = Problem(graph, platform(1, budget=1e4), Synthetic(1), goal)
    bound, rng, unseen = bound_every_way(problem, None, inf), np.random.default_rng(1), 0
    for _ in range(80):
        path = {n.name: rng.choice([s for s in options(problem, n).splits if s.axis is None]) for n in problem.graph.nodes}
        judged = evaluate(problem, path)
        if judged.feasible and not looked_at(problem, path):
            unseen += 1
            assert 0 < bound <= judged.objective * (1 + 1e-12)
    assert unseen > 10


@pytest.mark.parametrize("goal", Goal)
def test_a_bound_from_fewer_columns_holds_for_those_left_out(goal: Goal, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = range(1 if goal is Goal.THROUGHPUT else 3)
    every = [plan(wide(2), platform(seed), replace(PROOF, goal=goal, explained=False), costs=Synthetic(seed)) for seed in seeds]

    def few(problem: Problem, choices: list[PricedSplits], limit: int = 0,
            bounds: list[Floats] | None = None) -> list[PricedSplits] | None:
        return thin(problem, choices, 100, bounds)

    for module in (by_device, throughput):
        monkeypatch.setattr(module, "thin", few)
    fewer = [plan(wide(2), platform(seed), replace(PROOF, goal=goal, explained=False), costs=Synthetic(seed)) for seed in seeds]
    assert any("fewer at" in p.notes[0] for p in fewer)
    for best, found in zip(every, fewer, strict=True):
        assert found.lower_bound <= best.objective
        assert found.status is Status.FEASIBLE or found.objective <= best.objective * (1 + 1e-9)


def test_thinning_by_bounds_keeps_the_columns_of_the_lowest() -> None:
    problem = Problem(wide(4), platform(1), Synthetic(1))
    choices = [options(problem, n) for n in problem.graph.nodes]
    ranking = rank(problem, relaxed_tree(problem, choices), None, inf)
    kept = thin(problem, choices, 5_000, ranking.bounds)
    assert kept is not None
    for own, every, bounds in zip(kept, choices, ranking.bounds, strict=True):
        there = np.isin(every.columns, own.columns)
        assert there[every.rank == WHOLE_RANK].all()
        split = every.rank != WHOLE_RANK
        assert bounds[split & there].max(initial=-inf) <= bounds[split & ~there].min(initial=inf)
    gone = [b[~np.isin(c.columns, k.columns)].min(initial=inf) for c, b, k in zip(choices, ranking.bounds, kept, strict=True)]
    assert ranking.without(choices, choices, kept) == min(gone)
    assert ranking.without(choices, choices, choices) == inf


def test_a_plan_that_no_search_looks_at_lowers_a_bound_and_is_held_against_the_lower_one(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, rng = Problem(wide(6), platform(1, budget=1e4), Synthetic(1)), np.random.default_rng(1)
    drawn = [{n.name: rng.choice([s for s in options(problem, n).splits if s.axis is None]) for n in problem.graph.nodes}
             for _ in range(20)]
    unseen = [(a, evaluate(problem, a)) for a in drawn if not looked_at(problem, a)]
    best = min(e.objective for _, e in unseen)
    assert hold_over(problem, "here", best / 1e3, unseen, inf) == best / 1e3
    assert hold_over(problem, "here", best * 1.1, unseen, inf) == bound_every_way(problem, None, inf) < best
    monkeypatch.setattr("dovetail.partition.proof.bound_every_way", lambda *_: best * 1.01)
    with pytest.raises(InternalError, match="here, over all ways to run branches at once: its lower bound"):
        hold_over(problem, "here", best * 1.1, unseen, inf)


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
            found.append(plan(residual(seed), platform(seed, budget=40.0), replace(PROOF, goal=goal, explained=False),
                              costs=Synthetic(seed)))
        assert {p.status for p in found} == {Status.OPTIMAL}
        assert max(p.objective for p in found) <= min(p.objective for p in found) * (1 + 1e-9)
    assert set(met) == {False, True}
