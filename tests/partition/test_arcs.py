"""Programs of steps: the same answers as labels and enumeration, by another road."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.partition.effort import counted, slowdown
from dovetail.partition.exact.arcs import solve_steps
from dovetail.partition.exact.cuts import Network, network, price_limits, total
from dovetail.partition.linear_programs import cheapest_walk
from dovetail.partition.options import PROOF
from dovetail.partition.parallel.block_steps import jumps
from dovetail.partition.plan import Goal, Status
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.partition.tables.columns import inputs_held, options
from dovetail.partition.tables.costs import prune, tabulate
from dovetail.platform.device import Kind
from tests.partition.enumeration import Enumeration
from tests.partition.worlds import Synthetic, chain, fork, platform, residual

KINDS = (Kind.CPU, Kind.GPU, Kind.FPGA)
GRAPHS = {"chain": lambda seed: chain(3, 2, 3), "residual": residual, "fork": fork}


def net_of(problem: Problem) -> Network:
    choices = [options(problem, n) for n in problem.graph.nodes]
    known = inputs_held(problem) | {c.node.output: c.held for c in choices}
    return network(problem, tuple(prune(problem, tabulate(problem, c, known)) for c in choices), jumps(problem, choices, known))


@pytest.mark.parametrize("name", GRAPHS)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), budget=st.floats(5, 60), share=st.floats(0.8, 1.3))
def test_steps_equal_enumeration_under_several_limits(name: str, seed: int, budget: float, share: float) -> None:
    graph, board, costs = GRAPHS[name](seed), platform(seed, KINDS, budget), Synthetic(seed, refuse=0.2)
    cap = share * plan(graph, board, replace(PROOF, goal=Goal.ENERGY), costs=costs).energy_j
    problem = Problem(graph, board, costs, max_energy_j=cap)
    truth, net = Enumeration(problem), net_of(problem)
    found = solve_steps(net, net.costs((1.0, 0.0)), price_limits(net, (1.0, 0.0), np.inf, np.inf), np.inf, 20.0, 0.0)
    assert found is not None
    assert found.bound <= truth.best * (1 + 1e-9)
    if truth.legal == 0:
        assert found.path is None
    else:
        assert found.path is not None
        assert found.value == pytest.approx(truth.best, rel=1e-6)
        assert all(total(net, found.path, net.amounts(x)) <= 1 + 1e-6 for x in net.limits)


@pytest.mark.parametrize("seed", range(4))
def test_medium_chains_are_planned_as_a_mixed_integer_program_would(seed: int) -> None:
    graph, board, costs = chain(12, 4, 6), platform(seed, KINDS, 60.0), Synthetic(seed)
    found, problem = plan(graph, board, replace(PROOF, time_limit_s=30.0), costs=costs), Problem(graph, board, costs)
    net = net_of(problem)
    priced = price_limits(net, (1.0, 0.0), np.inf, np.inf)
    other = solve_steps(net, net.costs((1.0, 0.0)), priced, found.objective * 1.01, 60.0, 0.0)
    assert found.status is Status.OPTIMAL
    assert other is not None
    assert other.value == pytest.approx(found.objective, rel=1e-6)


def test_blurred_labels_lose_no_more_than_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.partition.exact.solver.FIRST_WIDENING", 1e-9)
    monkeypatch.setattr("dovetail.partition.exact.solver.FEW_LABELS", 1)
    for seed in range(6):
        graph, board, costs = residual(seed), platform(seed, KINDS, 25.0), Synthetic(seed)
        found, truth = plan(graph, board, costs=costs), Enumeration(Problem(graph, board, costs))
        assert found.lower_bound <= truth.best
        assert found.objective <= truth.best * (1 + 2e-3)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), level=st.integers(1, 2))
def test_the_most_even_walk_is_that_of_enumeration(seed: int, level: int) -> None:
    rng, layers = np.random.default_rng(seed), 4
    arcs = [(k, k + 1) for k in range(layers) for _ in range(3)]
    costs, used = rng.uniform(0, 1, len(arcs)), rng.uniform(0, 0.5, (len(arcs), 3))
    walks = [np.array([3 * k + c for k, c in enumerate(chosen)]) for chosen in product(range(3), repeat=layers)]
    legal = [w for w in walks if (used[w, level:].sum(axis=0) <= 1).all()]
    ends = np.array(arcs)
    found = cheapest_walk(ends[:, 0], ends[:, 1], layers + 1, costs, used, 0.0, 20.0, level)
    assert found.impossible == (not legal)
    if legal:
        assert found.arcs is not None
        values = [max(costs[w].sum(), used[w, :level].sum(axis=0).max()) for w in (*legal, found.arcs)]
        assert values[-1] == pytest.approx(min(values[:-1]), rel=1e-6)
        assert found.bound == pytest.approx(values[-1], rel=1e-6)


def test_a_program_has_as_many_seconds_by_the_clock_as_its_computing_takes_beside_other_work(
        monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"clock": 100.0, "computing": 7.0}
    monkeypatch.setattr("dovetail.partition.effort.time.perf_counter", lambda: now["clock"])
    monkeypatch.setattr("dovetail.partition.effort.time.thread_time", lambda: now["computing"])
    found = list[float]()
    with counted(4.0):
        for clock, computing in ((0.01, 0.001), (0.5, 1.0), (3.0, 1.0), (90.0, 1.0)):
            now.update(clock=100.0 + clock, computing=7.0 + computing)
            found.append(slowdown())
    assert found == [1.0, 1.0, 3.0, 10.0]
