"""A limit on the interval between frames: kept, equal to enumeration, branches at once or not, told where it cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.errors import InfeasibleError
from dovetail.ir import Graph
from dovetail.partition.evaluate import evaluate
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal, Mode
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.partition.tables.columns import options
from dovetail.platform.device import Kind
from tests.partition.branching import SHAPES, branching, shuffled, two_blocks
from tests.partition.enumeration import Enumeration
from tests.partition.worlds import Synthetic, chain, depthwise, fork, platform, residual

KINDS = ((Kind.CPU, Kind.FPGA), (Kind.CPU, Kind.GPU), (Kind.CPU, Kind.GPU, Kind.FPGA))
GOALS = st.sampled_from([Goal.LATENCY, Goal.ENERGY, Goal.EDP])
slow = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


def check(problem: Problem) -> None:
    """The plan equals the best of all that keep the limit; none is found where there is none."""
    truth = Enumeration(problem)

    def found() -> None:
        made = plan(problem.graph, problem.platform,
                    replace(PROOF, goal=problem.goal, mode=problem.mode, time_limit_s=20.0,
                            budget="shared" if problem.shared_budget else "per_layer",
                            max_interval_s=problem.max_interval_s), costs=problem.costs)
        assert made.interval_s <= problem.max_interval_s * (1 + 1e-9)
        assert evaluate(problem, made.assignment).feasible
        assert made.lower_bound <= truth.best * (1 + 1e-9)
        assert made.objective == pytest.approx(truth.best, rel=1e-9)

    if truth.legal:
        found()
    else:
        with pytest.raises(InfeasibleError):
            found()


def interval(graph: Graph, problem: Problem, share: float) -> float:
    """A limit between the interval of the fastest plan and the shortest one, or a little beyond either."""
    budget = "shared" if problem.shared_budget else "per_layer"
    fastest = plan(graph, problem.platform, replace(PROOF, budget=budget), costs=problem.costs).interval_s
    shortest = plan(graph, problem.platform, replace(PROOF, goal=Goal.THROUGHPUT, budget=budget), costs=problem.costs).interval_s
    return shortest + share * (fastest - shortest)


@settings(max_examples=30, **slow)
@given(number=st.integers(0, 3), seed=st.integers(0, 100_000), kinds=st.sampled_from(KINDS), goal=GOALS,
       share=st.floats(-0.1, 1.1), budget=st.floats(5, 120), shared=st.booleans())
def test_the_best_plan_within_an_interval_equals_enumeration(number: int, seed: int, kinds: tuple[Kind, ...], goal: Goal,
                                                             share: float, budget: float, shared: bool) -> None:
    graph = (lambda s: chain(2, 2, 3), residual, fork, depthwise)[number](seed)
    problem = Problem(graph, platform(seed, kinds[:2], budget), Synthetic(seed), goal, shared_budget=shared)
    limit = interval(graph, problem, share)
    check(Problem(graph, problem.platform, problem.costs, goal, shared_budget=shared, max_interval_s=limit))


@settings(max_examples=30, **slow)
@given(shape=st.sampled_from([*SHAPES, "two_blocks"]), seed=st.integers(0, 100_000), kinds=st.sampled_from(KINDS), goal=GOALS,
       share=st.floats(-0.1, 1.1), budget=st.floats(5, 120))
def test_branches_at_once_keep_the_interval_too(shape: str, seed: int, kinds: tuple[Kind, ...], goal: Goal, share: float,
                                                budget: float) -> None:
    graph = shuffled(two_blocks(seed) if shape == "two_blocks" else branching(shape, seed, 1), seed)
    problem = Problem(graph, platform(seed, kinds, budget), Synthetic(seed), goal)
    check(Problem(graph, problem.platform, problem.costs, goal, max_interval_s=interval(graph, problem, share)))


def test_in_sequential_mode_the_interval_limits_latency() -> None:
    graph, board, costs = chain(2, 2, 3), platform(1, budget=60.0), Synthetic(1)
    fastest = plan(graph, board, replace(PROOF, mode=Mode.SEQUENTIAL), costs=costs).latency_s
    least = plan(graph, board, replace(PROOF, goal=Goal.ENERGY, mode=Mode.SEQUENTIAL), costs=costs)
    assert least.latency_s > fastest
    found = plan(graph, board,
                 replace(PROOF, goal=Goal.ENERGY, mode=Mode.SEQUENTIAL,
                         max_interval_s=(fastest + least.latency_s) / 2), costs=costs)
    assert found.latency_s <= (fastest + least.latency_s) / 2
    assert found.energy_j >= least.energy_j
    with pytest.raises(InfeasibleError, match=r"^latency: .* ms too much; raise the limit$"):
        plan(graph, board, replace(PROOF, goal=Goal.ENERGY, mode=Mode.SEQUENTIAL, max_interval_s=fastest / 2), costs=costs)


def test_an_interval_that_cannot_be_met_is_told_with_what_is_missing() -> None:
    graph, board, costs = residual(5), platform(5, budget=60.0), Synthetic(5)
    shortest = plan(graph, board, replace(PROOF, goal=Goal.THROUGHPUT), costs=costs)
    with pytest.raises(InfeasibleError, match=r"^interval between frames: .* ms allowed, .* ms too much; raise the limit$"):
        plan(graph, board, replace(PROOF, max_interval_s=shortest.lower_bound / 2), costs=costs)


def test_engines_slower_than_the_interval_are_not_offered() -> None:
    graph, board, costs = chain(3, 4, 6), platform(2, budget=1e9), Synthetic(2)
    every = Problem(graph, board, costs)
    at = every.devices.index("fpga")
    slowest = max(float(options(every, n).alone_s[:, at].max()) for n in graph.nodes)
    for node in graph.nodes:
        left = options(Problem(graph, board, costs, max_interval_s=slowest / 2), node)
        assert len(left) < len(options(every, node)) or options(every, node).alone_s[:, at].max() <= slowest / 2
        assert left.alone_s[:, at].max() <= slowest / 2
