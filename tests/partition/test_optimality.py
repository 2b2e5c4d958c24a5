"""Thousands of tiny problems against enumeration, medium graphs against a mixed-integer program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.ir import Add, Axis, Concat, Graph
from dovetail.partition.evaluate import evaluate
from dovetail.partition.exact.arcs import solve_steps
from dovetail.partition.exact.cuts import price_limits
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal, Mode, Status
from dovetail.partition.plan_json import plan_from_json, plan_to_json
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.platform.device import Kind
from tests.partition.enumeration import Enumeration
from tests.partition.test_arcs import net_of
from tests.partition.worlds import Builder, Synthetic, chain, platform

KINDS = ((Kind.CPU, Kind.FPGA), (Kind.CPU, Kind.GPU), (Kind.CPU, Kind.GPU, Kind.FPGA))
BUDGETS = (8.0, 30.0, 1e9)
CHOSEN: Counter[Axis | None] = Counter()


def grouped() -> Graph:
    b = Builder(2, 1)
    return b.graph(b.conv(b.conv("x", 2, 1, groups=2), 2, 1))


def rows() -> Graph:
    b = Builder(1, 2)
    return b.graph(b.conv(b.conv("x", 1, 3), 1, 1))


def channels() -> Graph:
    b = Builder(2, 1)
    return b.graph(b.conv(b.conv("x", 2, 1), 2, 1))


def shortcut() -> Graph:
    b = Builder(1, 2)
    stem = b.conv("x", 1, 1)
    return b.graph(b.add(Add(), stem, b.conv(stem, 1, 1)))


TINY = (grouped, rows, channels, shortcut)


@settings(max_examples=28, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 10**6), mode=st.sampled_from(Mode), kinds=st.sampled_from(KINDS), budget=st.sampled_from(BUDGETS),
       shared=st.booleans())
def test_tiny_problems_of_every_axis_are_planned_as_enumeration_would(seed: int, mode: Mode, kinds: tuple[Kind, ...],
                                                                      budget: float, shared: bool) -> None:
    for make in TINY:
        for i, goal in enumerate(Goal):
            graph, board, costs = make(), platform(seed + i, kinds, budget), Synthetic(seed + i, refuse=0.1)
            problem = Problem(graph, board, costs, goal, mode, shared)
            found, truth = plan(graph, board, replace(PROOF, goal=goal, mode=mode, budget="shared" if shared else "per_layer"),
                                costs=costs), \
                Enumeration(problem)
            assert found.status is Status.OPTIMAL
            assert found.objective == pytest.approx(truth.best, rel=1e-9)
            assert found.lower_bound <= truth.best
            back = plan_from_json(plan_to_json(found))
            assert evaluate(problem, back.assignment).objective == found.objective
            CHOSEN.update(s.axis for s in found.assignment.values())


def test_every_axis_was_the_best_somewhere() -> None:
    """Of the problems above, which run before: an axis that never wins would not have been tested."""
    if CHOSEN:
        assert min(CHOSEN[a] for a in Axis) > 0, CHOSEN


def blocks(count: int) -> Graph:
    """Residual blocks one after another: three nodes each."""
    b = Builder(2, 3)
    at = b.conv("x", 2)
    for _ in range(count):
        at = b.add(Add(), at, b.conv(b.conv(at, 2, 1), 2))
    return b.graph()


def arms(count: int) -> Graph:
    """Two convolutions side by side and their concatenation, one after another: four nodes each."""
    b = Builder(2, 2)
    at = b.conv("x", 2, 1)
    for _ in range(count):
        at = b.conv(b.add(Concat(1), b.conv(at, 1, 1), b.conv(at, 1)), 2, 1)
    return b.graph()


@pytest.mark.parametrize("goal", [Goal.LATENCY, Goal.ENERGY])
@pytest.mark.parametrize(("make", "count"), [(blocks, 4), (blocks, 6), (arms, 3), (arms, 5), (lambda n: chain(n, 3, 4), 20)])
def test_medium_graphs_are_planned_as_a_mixed_integer_program_would(make: Callable[[int], Graph], count: int, goal: Goal) -> None:
    for seed in range(2):
        graph, board, costs = make(count), platform(seed, KINDS[2], 60.0), Synthetic(seed)
        assert 12 <= len(graph.nodes) <= 30
        found = plan(graph, board, replace(PROOF, goal=goal, time_limit_s=30.0), costs=costs)
        net, weights = net_of(Problem(graph, board, costs, goal)), (1.0, 0.0) if goal is Goal.LATENCY else (0.0, 1.0)
        priced = price_limits(net, weights, np.inf, np.inf)
        other = solve_steps(net, net.costs(weights), priced, found.objective * 1.005, 60.0, 0.0)
        assert other is not None
        assert found.gap <= 1e-4
        assert found.lower_bound <= other.value * (1 + 1e-9)
        assert other.value == pytest.approx(found.objective, rel=1e-6 if found.status is Status.OPTIMAL else 1e-4)
