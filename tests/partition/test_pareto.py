"""Fronts: every point is proven, none is worse than another, and the drawing shows them all."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from dovetail.errors import UsageError
from dovetail.partition.evaluate import evaluate
from dovetail.partition.pareto import front
from dovetail.partition.plan_json import front_to_json, split_to_json
from dovetail.partition.problem import Problem
from dovetail.report.fronts import front_svg
from dovetail.terminal import front_table
from tests.partition.enumeration import Enumeration
from tests.partition.worlds import Synthetic, chain, platform, residual


@pytest.mark.parametrize("seed", range(4))
def test_every_point_is_the_fastest_within_its_energy_up_to_its_gap(seed: int) -> None:
    graph, board, costs = residual(seed), platform(seed, budget=40.0), Synthetic(seed)
    found = front(graph, board, 5, costs=costs)
    problem = Problem(graph, board, costs)
    for point in found.points:
        judged = evaluate(problem, point.assignment)
        assert (judged.latency_s, judged.energy_j) == (point.latency_s, point.energy_j)
        assert judged.feasible
        truth = Enumeration(Problem(graph, board, costs, max_energy_j=point.limit_j))
        assert point.lower_bound_s <= truth.best * (1 + 1e-9)
        assert point.latency_s <= truth.best * (1 + 1.1e-3)
    energies = [p.energy_j for p in found.points]
    assert energies == sorted(energies)
    assert [p.latency_s for p in found.points] == sorted((p.latency_s for p in found.points), reverse=True)


def test_a_front_is_drawn_listed_and_stored_whole() -> None:
    found = front(chain(4, 4, 4), platform(3), 4, costs=Synthetic(3))
    drawing = ElementTree.fromstring(front_svg(found))
    assert len(drawing.findall(".//{http://www.w3.org/2000/svg}circle")) == len(found.points)
    assert len(front_table(found).splitlines()) == len(found.points) + 4
    stored = front_to_json(found)["points"]
    assert [p["assignment"] for p in stored] == [{n: split_to_json(s) for n, s in p.assignment.items()} for p in found.points]


@pytest.mark.parametrize("seed", range(3))
def test_fronts_of_several_areas_keep_each_and_none_is_worse_in_every_respect(seed: int) -> None:
    graph, board, costs = residual(seed), platform(seed, budget=40.0), Synthetic(seed)
    found, whole = front(graph, board, 4, costs=costs, areas=4), front(graph, board, 4, costs=costs)
    assert len({p.area_limit for p in found.points}) > 1
    for point in found.points:
        judged = evaluate(Problem(graph, board, costs), point.assignment)
        assert (judged.latency_s, judged.energy_j) == (point.latency_s, point.energy_j)
        used = max(judged.resources[d][r] / limit for d, r, limit in Problem(graph, board, costs).budgets)
        assert point.area == pytest.approx(used)
        assert point.area <= point.area_limit * (1 + 1e-9)
        less = Problem(graph, board.with_area(point.area_limit), costs, max_energy_j=point.limit_j)
        assert point.lower_bound_s <= Enumeration(less).best * (1 + 1e-9)
        assert not any(other.area_limit <= point.area_limit and other.energy_j <= point.energy_j
                       and other.latency_s <= point.latency_s for other in found.points if other is not point)
    fastest = min(p.latency_s for p in found.points)
    assert fastest == pytest.approx(min(p.latency_s for p in whole.points), rel=1.1e-3)
    assert "one line for each limit on area" in front_svg(found)


def test_a_front_needs_two_points() -> None:
    with pytest.raises(UsageError, match="areas 0: at least the whole area is needed; ask for 1 or more"):
        front(chain(2), platform(1), 2, costs=Synthetic(1), areas=0)
    with pytest.raises(UsageError, match="points 1: a front has two ends; ask for 2 or more"):
        front(chain(2), platform(1), 1, costs=Synthetic(1))
