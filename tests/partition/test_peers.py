"""Peer methods: legal plans, exact where their papers say so, and what each leaves out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import inf

import pytest

from dovetail.partition.evaluate import evaluate
from dovetail.partition.options import PROOF
from dovetail.partition.peers.dynamic import dp
from dovetail.partition.peers.linear import ilp, lp
from dovetail.partition.peers.min_cut import min_cut
from dovetail.partition.peers.pairwise import pairwise, ways_of
from dovetail.partition.peers.work_stealing import work_stealing
from dovetail.partition.plan import Assignment, Goal, Mode, Split, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.solve import SOLVERS, plan
from dovetail.platform.device import Kind
from tests.partition.worlds import Synthetic, chain, depthwise, fork, platform, residual, resnet18_like

Method = Callable[[Problem], Assignment | None]
METHODS: tuple[Method, ...] = (ilp, lp, dp, min_cut, work_stealing)
GRAPHS = (lambda seed: chain(4, 8), residual, fork, depthwise)


def best_of_ways(problem: Problem, ways: Sequence[Sequence[Split]]) -> float:
    """The best objective over every combination of ways."""
    names = [n.name for n in problem.graph.nodes]
    judged = [evaluate(problem, dict(zip(names, combination, strict=True))) for combination in product(*ways)]
    return min((e.objective for e in judged if e.feasible), default=inf)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(4))
def test_every_method_makes_legal_plans_no_better_than_the_bound(method: Method, seed: int) -> None:
    graph, board, costs = GRAPHS[seed](seed), platform(seed), Synthetic(seed, refuse=0.2)
    for goal in (Goal.LATENCY, Goal.ENERGY):
        problem = Problem(graph, board, costs, goal)
        found = method(problem)
        assert found is not None
        judged = evaluate(problem, found)
        assert judged.feasible, judged.violations
        bound = plan(graph, board, replace(PROOF, goal=goal), costs=costs).lower_bound
        if method is ilp or method is lp or method is dp:  # shares of stolen tiles and cuts may lie between the candidates
            assert judged.objective >= bound * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_ilp_is_the_best_of_its_ways_in_a_chain_with_a_budget(seed: int) -> None:
    problem = Problem(chain(3, 4), platform(seed, budget=30.0), Synthetic(seed), mode=Mode.SEQUENTIAL)
    found = ilp(problem)
    assert found is not None
    ways = [ways_of(problem, n) for n in problem.graph.nodes]
    assert evaluate(problem, found).objective == pytest.approx(best_of_ways(problem, ways), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_dynamic_programming_is_the_best_of_its_ways_in_a_chain_without_budgets(seed: int) -> None:
    problem = Problem(chain(3, 4), platform(seed, budget=1e9), Synthetic(seed))
    found = dp(problem)
    assert found is not None
    ways = [ways_of(problem, n) for n in problem.graph.nodes]
    assert evaluate(problem, found).objective == pytest.approx(best_of_ways(problem, ways), rel=1e-9)


def test_pairs_of_a_chain_cost_what_the_evaluator_says() -> None:
    problem = Problem(chain(3, 4), platform(3), Synthetic(3), mode=Mode.SEQUENTIAL)
    model = pairwise(problem)
    assert model is not None
    for chosen in product(*(range(len(w)) for w in model.ways)):
        judged = evaluate(problem, model.assignment(chosen))
        seconds = sum(float(s[i]) for s, i in zip(model.seconds, chosen, strict=True))
        seconds += sum(float(p.seconds[chosen[p.producer], chosen[p.consumer]]) for p in model.pairs)
        assert seconds == pytest.approx(judged.latency_s, rel=1e-9)


def test_a_limit_on_latency_is_kept_while_energy_is_minimised() -> None:
    graph, board, costs = chain(3, 4), platform(17, budget=1e9), Synthetic(17)
    free = ilp(Problem(graph, board, costs, Goal.ENERGY, Mode.SEQUENTIAL))
    quick = ilp(Problem(graph, board, costs, Goal.LATENCY, Mode.SEQUENTIAL))
    assert free is not None
    assert quick is not None
    slowest, fastest = (evaluate(Problem(graph, board, costs, mode=Mode.SEQUENTIAL), a).latency_s for a in (free, quick))
    assert fastest < slowest
    limited = Problem(graph, board, costs, Goal.ENERGY, Mode.SEQUENTIAL, max_latency_s=(fastest + slowest) / 2)
    found = ilp(limited)
    assert found is not None
    assert evaluate(limited, found).feasible
    assert ilp(replace(limited, max_latency_s=fastest / 2)) is None


def test_min_cut_divides_no_layer_and_cuts_fewer_bytes_than_alternating_devices() -> None:
    problem = Problem(resnet18_like(), platform(2, (Kind.CPU, Kind.GPU)), Synthetic(2))
    found = min_cut(problem)
    assert found is not None
    assert all(s.axis is None for s in found.values())
    assert len({s.devices[0] for s in found.values()}) == 2, "loads are balanced, so both devices work"
    alternating = {n.name: whole_on(problem.devices[i % 2]) for i, n in enumerate(problem.graph.nodes)}
    assert cut_bytes(problem, found) < cut_bytes(problem, alternating) / 4


def cut_bytes(problem: Problem, assignment: Assignment) -> int:
    pairs = [(p, n, t) for n in problem.graph.nodes for t in n.inputs if (p := problem.graph.producer(t)) is not None]
    return sum(problem.graph.tensors[t].transfer_bytes for p, n, t in pairs
               if assignment[p.name].devices != assignment[n.name].devices)


def test_idle_devices_steal_in_the_ratio_of_their_speeds() -> None:
    problem = Problem(chain(1, 8, size=32), platform(4, (Kind.CPU, Kind.GPU)), Synthetic(4))
    found = work_stealing(problem)
    assert found is not None
    rows = {p.device: p.stop - p.start for p in found["n0"].pieces}
    assert sum(rows.values()) == 32
    assert all(n % 2 == 0 for n in rows.values()), "sixteen tiles of two rows"


@pytest.mark.parametrize("method", METHODS)
def test_fixed_nodes_stay_where_they_are(method: Method) -> None:
    fixed = {"n1": whole_on("cpu")}
    found = method(Problem(chain(3, 4), platform(5), Synthetic(5), fixed=fixed))
    assert found is not None
    assert found["n1"] == fixed["n1"]


@pytest.mark.parametrize("solver", ["ilp", "lp", "dp", "min-cut", "work-stealing"])
def test_each_is_a_solver_with_a_bound(solver: str) -> None:
    found = plan(chain(3, 4), platform(6), replace(PROOF, solver=solver), costs=Synthetic(6))
    assert solver in SOLVERS
    assert 0 < found.lower_bound <= found.objective
