"""Several FPGAs, several limits at once: mixing limits into one bounds plans, finds them, and never lies about either."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.partition.exact.cuts import Limit, Network, network, total
from dovetail.partition.plan import Goal
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import inputs_held, options
from dovetail.partition.tables.costs import tabulate
from dovetail.platform.device import Kind, Platform
from tests.partition.test_exact import check
from tests.partition.worlds import Synthetic, chain, platform, residual


def two_fpgas(seed: int, budget: float) -> Platform:
    """A host between two equal FPGAs."""
    one = platform(seed, (Kind.CPU, Kind.FPGA), budget)
    again = replace(one.devices[1], name="fpga2")
    link = replace(one.links[0], name="link2", ends=("cpu", "fpga2"))
    return replace(one, devices=(*one.devices, again), links=(*one.links, link))


def net_of(problem: Problem) -> Network:
    choices = [options(problem, n) for n in problem.graph.nodes]
    known = inputs_held(problem) | {c.node.output: c.held for c in choices}
    return network(problem, tuple(tabulate(problem, c, known) for c in choices))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), budget=st.floats(5, 60), goal=st.sampled_from([Goal.LATENCY, Goal.ENERGY]),
       shape=st.sampled_from([residual, lambda seed: chain(3, 2, 3)]))
def test_two_fpgas_are_planned_as_enumeration_would(seed: int, budget: float, goal: Goal, shape: object) -> None:
    found = check(Problem(shape(seed), two_fpgas(seed, budget), Synthetic(seed), goal))  # type: ignore[operator]
    assert found is not None, "the host can always run everything"


def test_exact_labels_agree_where_the_mixture_is_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.partition.exact.solver.FIRST_WIDENING", 1e-6)
    monkeypatch.setattr("dovetail.partition.exact.solver.FEW_LABELS", 1)
    for seed in range(8):
        check(Problem(chain(3, 2, 3), two_fpgas(seed, 25.0), Synthetic(seed)))


def test_a_plan_takes_of_a_mixture_what_it_takes_of_its_parts() -> None:
    problem = Problem(residual(2), two_fpgas(2, 12.0), Synthetic(2), max_energy_j=1e-3)
    net = net_of(problem)
    assert {x.name for x in net.limits} >= {"energy", "fpga alm", "fpga2 alm"}
    weights = np.linspace(1, 2, len(net.limits)) / np.linspace(1, 2, len(net.limits)).sum()
    mixture = Limit("together", None, 1.0, tuple(zip(net.limits, weights.tolist(), strict=True)))
    rng = np.random.default_rng(0)
    for _ in range(20):
        path = tuple(int(rng.integers(len(t.options))) for t in net.tables)
        parts = [total(net, path, net.amounts(x)) for x in net.limits]
        assert total(net, path, net.amounts(mixture)) == pytest.approx(float(weights @ np.array(parts)))
