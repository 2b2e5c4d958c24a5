"""The exact solver against enumeration, on hundreds of random worlds."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dovetail.errors import InfeasibleError
from dovetail.ir import Graph
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal, Mode, Plan, Status
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.platform.device import Kind
from tests.partition.enumeration import Enumeration
from tests.partition.worlds import Synthetic, chain, depthwise, fork, platform, pooled, residual

GRAPHS = {"chain": lambda seed: chain(2 + seed % 2, 2, 3), "residual": residual, "fork": fork, "depthwise": depthwise,
          "pooled": pooled}
KINDS = ((Kind.CPU, Kind.FPGA), (Kind.CPU, Kind.GPU), (Kind.CPU, Kind.GPU, Kind.FPGA))
worlds = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def solve(problem: Problem) -> Plan | None:
    try:
        return plan(problem.graph, problem.platform,
                    replace(PROOF, goal=problem.goal, mode=problem.mode, solver="exact",
                            budget="shared" if problem.shared_budget else "per_layer", max_latency_s=problem.max_latency_s,
                            max_energy_j=problem.max_energy_j), fixed=problem.fixed, costs=problem.costs)
    except InfeasibleError:
        return None


def check(problem: Problem) -> Plan | None:
    """The laws: never below the bound, equal to enumeration when called optimal, infeasible only if nothing is legal."""
    truth, found = Enumeration(problem), solve(problem)
    if found is None:
        assert truth.legal == 0
        return None
    assert truth.legal > 0
    assert found.lower_bound <= truth.best
    assert found.objective >= truth.best * (1 - 1e-12)
    if found.status is Status.OPTIMAL:
        assert found.objective == pytest.approx(truth.best, rel=1e-9)
    for value in found.baselines.values():
        assert value is None or found.objective <= value
    return found


def world(name: str, seed: int, kinds: tuple[Kind, ...], budget: float, **options: object) -> Problem:
    graph: Graph = GRAPHS[name](seed)
    return Problem(graph, platform(seed, kinds, budget), Synthetic(seed, refuse=0.2), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", GRAPHS)
@worlds
@given(seed=st.integers(0, 10_000), kinds=st.sampled_from(KINDS), budget=st.floats(5, 80), goal=st.sampled_from(Goal),
       mode=st.sampled_from(Mode), shared=st.booleans())
def test_the_plan_equals_enumeration(name: str, seed: int, kinds: tuple[Kind, ...], budget: float, goal: Goal, mode: Mode,
                                     shared: bool) -> None:
    found = check(world(name, seed, kinds, budget, goal=goal, mode=mode, shared_budget=shared))
    assert found is not None, "the host can always run everything"
    assert found.status is Status.OPTIMAL


@pytest.mark.parametrize("name", ["chain", "residual"])
@settings(worlds, max_examples=15)
@given(seed=st.integers(0, 10_000), goal=st.sampled_from(Goal), share=st.floats(0.3, 1.2), on_energy=st.booleans())
def test_a_bound_on_the_other_criterion_is_kept_and_the_plan_is_still_best(name: str, seed: int, goal: Goal, share: float,
                                                                           on_energy: bool) -> None:
    free = solve(world(name, seed, KINDS[2], 50.0, goal=Goal.LATENCY if on_energy else Goal.ENERGY))
    assert free is not None
    limit = {"max_energy_j": free.energy_j * share} if on_energy else {"max_latency_s": free.latency_s * share}
    check(world(name, seed, KINDS[2], 50.0, goal=goal, **limit))


def test_a_label_limit_leaves_a_true_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MOST_LABELS", 1), ("FEW_LABELS", 1), ("CORE", 0)):
        monkeypatch.setattr(f"dovetail.partition.exact.by_device.{name}", value)
    found = [check(world("residual", seed, KINDS[2], 30.0, goal=goal)) for seed in range(5) for goal in Goal]
    assert any(p is not None and p.status is Status.FEASIBLE for p in found), "the limit must bind somewhere"


def test_without_time_the_answer_is_still_legal_and_bounded() -> None:
    for seed in range(6):
        problem = world("residual", seed, KINDS[2], 25.0, goal=Goal.EDP)
        found = plan(problem.graph, problem.platform, replace(PROOF, goal=Goal.EDP, time_limit_s=0.0), costs=problem.costs)
        assert found.lower_bound <= Enumeration(problem).best


def test_too_many_live_tensors_fall_back_to_a_true_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("exact.by_device", "interval.solver"):
        monkeypatch.setattr(f"dovetail.partition.{module}.thin", lambda problem, choices, limit=0, bounds=None: None)
    for seed in range(8):
        for goal in Goal:
            problem = world("fork", seed, KINDS[2], 25.0, goal=goal)
            found = check(problem)
            assert found is not None
            assert "too many tensors are alive at once" in found.notes[0]


def test_an_impossible_latency_names_the_limit_and_by_how_much() -> None:
    problem = world("chain", 1, KINDS[0], 20.0)
    message = r"latency: every plan .* needs at least .* ms, 0.001 ms allowed, .* ms too much; raise the limit"
    with pytest.raises(InfeasibleError, match=message):
        plan(problem.graph, problem.platform, replace(PROOF, max_latency_s=1e-6), costs=problem.costs)
