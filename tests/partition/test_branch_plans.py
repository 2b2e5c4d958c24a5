"""Plans with branches at once against enumeration, over every kind of branch, goal and limit."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.ir import Graph
from dovetail.partition.evaluate import evaluate
from dovetail.partition.exact.arcs import solve_steps
from dovetail.partition.exact.cuts import price_limits, total
from dovetail.partition.exact.elimination import rank
from dovetail.partition.exact.labels import Search
from dovetail.partition.exact.tree import relaxed_tree
from dovetail.partition.interval.weights import rank_interval
from dovetail.partition.options import PROOF
from dovetail.partition.parallel.overlap import arm_devices
from dovetail.partition.plan import Goal, Mode
from dovetail.partition.plan_json import plan_from_json, plan_to_json
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.partition.tables.columns import options
from dovetail.platform.device import Kind
from tests.partition.branching import SHAPES, branching, shuffled, two_blocks
from tests.partition.enumeration import Enumeration
from tests.partition.test_arcs import net_of
from tests.partition.test_branches import random_placement
from tests.partition.test_exact import check
from tests.partition.worlds import Synthetic, platform

KINDS = ((Kind.CPU, Kind.FPGA), (Kind.CPU, Kind.GPU), (Kind.CPU, Kind.GPU, Kind.FPGA))
ALL = st.sampled_from([*SHAPES, "two_blocks"])
slow = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


def small(shape: str, seed: int, most: int = 1) -> Graph:
    """A network small enough to try every plan of, its nodes in some order."""
    return shuffled(two_blocks(seed) if shape == "two_blocks" else branching(shape, seed, most), seed)


@settings(max_examples=120, **slow)
@given(shape=ALL, seed=st.integers(0, 100_000), kinds=st.sampled_from(KINDS), goal=st.sampled_from(Goal),
       budget=st.floats(5, 120), refuse=st.sampled_from([0.0, 0.3]), shared=st.booleans())
def test_the_plan_equals_enumeration(shape: str, seed: int, kinds: tuple[Kind, ...], goal: Goal, budget: float, refuse: float,
                                     shared: bool) -> None:
    check(Problem(small(shape, seed), platform(seed, kinds, budget), Synthetic(seed, refuse), goal, shared_budget=shared))


@settings(max_examples=30, **slow)
@given(shape=ALL, seed=st.integers(0, 100_000), mode=st.sampled_from(Mode))
def test_networks_whose_nodes_can_also_be_divided_are_planned_best(shape: str, seed: int, mode: Mode) -> None:
    check(Problem(small(shape, seed, 2), platform(seed, (Kind.CPU, Kind.FPGA), 60.0), Synthetic(seed), mode=mode))


@settings(max_examples=10, **slow)
@given(shape=ALL, seed=st.integers(0, 100_000), share=st.floats(0.9, 1.3), budget=st.floats(20, 120))
def test_a_limit_on_the_other_criterion_is_kept_and_the_plan_is_still_best(shape: str, seed: int, share: float,
                                                                           budget: float) -> None:
    graph, board, costs = small(shape, seed), platform(seed, KINDS[2], budget), Synthetic(seed)
    least = plan(graph, board, replace(PROOF, goal=Goal.ENERGY), costs=costs).energy_j
    check(Problem(graph, board, costs, Goal.LATENCY, max_energy_j=share * least))
    fastest = plan(graph, board, costs=costs).latency_s
    check(Problem(graph, board, costs, Goal.ENERGY, max_latency_s=share * fastest))
    check(Problem(graph, board, costs, Goal.THROUGHPUT, max_latency_s=share * fastest))


@settings(max_examples=50, **slow)
@given(shape=ALL, seed=st.integers(0, 100_000), share=st.floats(0.9, 1.3), budget=st.floats(5, 60))
def test_programs_of_steps_and_labels_equal_enumeration(shape: str, seed: int, share: float, budget: float) -> None:
    graph, board, costs = small(shape, seed), platform(seed, KINDS[2], budget), Synthetic(seed, refuse=0.2)
    problem = Problem(graph, board, costs,
                      max_energy_j=share * plan(graph, board, replace(PROOF, goal=Goal.ENERGY), costs=costs).energy_j)
    truth, net = Enumeration(problem), net_of(problem)
    priced = price_limits(net, (1.0, 0.0), inf, inf)
    assert priced.bound <= truth.best * (1 + 1e-9)
    for found in (solve_steps(net, net.costs((1.0, 0.0)), priced, inf, 20.0, 0.0),
                  Search(net, net.costs((1.0, 0.0)), priced).run(inf, 10_000, inf)):
        assert found is not None
        assert (found.path is None) == (truth.legal == 0)
        if found.path is not None:
            assert found.value == pytest.approx(truth.best, rel=1e-6)
            assert evaluate(problem, net.assignment(found.path)).latency_s <= found.value * (1 + 1e-9)
            assert all(total(net, found.path, net.amounts(x)) <= 1 + 1e-6 for x in net.limits)


@settings(max_examples=100, **slow)
@given(shape=ALL, seed=st.integers(0, 100_000), goal=st.sampled_from(Goal), budget=st.floats(20, 200))
def test_a_columns_bound_is_below_every_plan_that_uses_it(shape: str, seed: int, goal: Goal, budget: float) -> None:
    problem = Problem(small(shape, seed, 2), platform(seed, budget=budget), Synthetic(seed), goal)
    choices = [options(problem, n) for n in problem.graph.nodes]
    tree = relaxed_tree(problem, choices)
    found = rank_interval(problem, tree, inf, inf) if goal is Goal.THROUGHPUT else rank(problem, tree, (3e-3, 1e-2), inf)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        judged = evaluate(problem, placed := random_placement(problem, rng))
        if judged.feasible and all(placed[c.node.name] in c.splits for c in choices):
            for own, bound in zip(choices, found.bounds, strict=True):
                assert bound[own.splits.index(placed[own.node.name])] <= judged.objective * (1 + 1e-12)


def test_the_best_plan_often_runs_branches_at_once() -> None:
    found = 0
    for seed in range(30):
        graph, board, costs = branching("downsample", seed), platform(seed), Synthetic(seed)
        made = plan(graph, board, costs=costs)
        problem = Problem(graph, board, costs)
        if any(arm_devices(b, made.assignment) for b in problem.blocks):
            found += 1
            first = next(c for c in made.nodes if c.beside)
            assert f"runs at the same time as {first.beside[0]}" in first.why
            assert any(note.startswith("branches: at 1 of 1 fork they run on several devices at once") for note in made.notes)
            assert plan_from_json(plan_to_json(made)).nodes == made.nodes
            assert made.latency_s == pytest.approx(evaluate(problem, made.assignment).latency_s, rel=1e-15)
    assert found >= 5
