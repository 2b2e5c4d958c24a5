"""Which labels another undercuts, against comparing every pair, and plans within two limits, against all plans there are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.exact import labels
from dovetail.partition.exact.by_device import choices_of, network_over
from dovetail.partition.exact.cuts import completions
from dovetail.partition.exact.labels import _least, front_of_two
from dovetail.partition.exact.tree import tree_of
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from tests.partition.enumeration import Enumeration
from tests.partition.worlds import Synthetic, platform, residual

pytestmark = pytest.mark.quick


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=40))
def test_labels_of_two_limits_are_kept_unless_an_earlier_one_takes_no_more(rows: list[tuple[int, int, int]]) -> None:
    rows = sorted(rows, key=lambda r: r[0])
    group, used = np.array([g for g, _, _ in rows]), np.array([r[1:] for r in rows]) / 7
    kept = [not any(group[j] == group[i] and (used[j] <= used[i]).all() for j in range(i)) for i in range(len(rows))]
    assert front_of_two(group, used).tolist() == kept


@pytest.mark.parametrize("seed", [1, 5, 6])
def test_plans_within_two_limits_are_the_best_there_are(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counted(group: Ints, used: Floats) -> NDArray[np.bool_]:
        compared.append(len(used))
        return front_of_two(group, used)

    monkeypatch.setattr(labels, "MANY", 1)
    monkeypatch.setattr(labels, "front_of_two", counted)
    graph, board, costs = residual(seed), platform(seed, budget=40.0), Synthetic(seed)
    fastest, thriftiest = (plan(graph, board, replace(PROOF, goal=goal), costs=costs).energy_j for goal in (Goal.LATENCY,
                                                                                                            Goal.ENERGY))
    for part in (0.1, 0.3, 0.6):
        limit = thriftiest + part * (fastest - thriftiest)
        found = plan(graph, board, replace(PROOF, max_energy_j=limit), costs=costs)
        truth = Enumeration(Problem(graph, board, costs, max_energy_j=limit)).best
        assert found.lower_bound <= truth * (1 + 1e-9)
        assert found.objective == pytest.approx(truth, rel=1e-9)
    assert compared, "two limits bind, and labels are compared"


@pytest.mark.parametrize("seed", [1, 5, 6])
def test_what_a_budget_must_still_give_is_one_number_a_cut_and_that_of_every_state(seed: int) -> None:
    problem = Problem(residual(seed), platform(seed, budget=40.0), Synthetic(seed))
    net = network_over(problem, tree_of(problem), choices_of(problem))
    costs = net.costs((1.0, 0.0))
    for limit in net.limits:
        amounts = net.amounts(limit)
        every = completions(net, [np.broadcast_to(own, cost.shape) for own, cost in zip(amounts, costs, strict=True)])
        for number, states in zip(_least(net, amounts, costs), every, strict=True):
            assert isinstance(number, float)
            assert (states == number).all()
    assert net.limits
