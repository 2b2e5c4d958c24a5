"""Bounds are proven up to the best of all plans, and never above it: every plan of small networks is tried."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.certificate.bound import Prices, SearchedForm
from dovetail.certify import priced
from dovetail.ir import Add, Conv, Graph, Window
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.plan import Goal
from dovetail.partition.problem import Problem
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform
from tests.partition.branching import SHAPES, branching
from tests.partition.enumeration import Enumeration
from tests.strategies import Net

GOALS = ("latency", "energy", "throughput")


def residual() -> Graph:
    """Three convolutions of a few channels, the last two beside a shortcut."""
    net = Net(3)
    x = net.add(Conv(4, Window((3, 3), pads=(1, 1, 1, 1))), net.input((1, 2, 6, 6)))
    y = net.add(Conv(4, Window((3, 3), pads=(1, 1, 1, 1))), x)
    return net.graph(net.add(Add(), y, x))


def cramped(board: str, logic: float) -> Platform:
    """A board whose FPGA has little of everything."""
    return load_platform(board).with_area(logic)


def hold(graph: Graph, platform: Platform, goal: str) -> None:
    """The best plan's objective is proven, more is not: with prices that were searched for, and with none."""
    best = Enumeration(Problem(graph, platform, DeviceCosts(), goal=Goal(goal))).best
    for bound, proven in ((best * (1 - 1e-8), True), (best * (1 + 1e-6), False)):
        form = SearchedForm(graph, platform, goal, bound)
        found, _ = priced(form, bound)
        assert found.proven() is proven
        even = np.ones(len(form.limits)) / len(form.limits) if form.timed else np.zeros(len(form.limits))
        assert Prices(form, even, bound).proven() is proven


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("part", [1.0, 0.004, 0.001])
def test_the_best_of_all_plans_is_the_highest_bound(goal: str, part: float) -> None:
    hold(residual(), cramped("ecp5-85", part), goal)


@pytest.mark.parametrize("goal", ["latency", "energy"])
@pytest.mark.parametrize("shape", SHAPES)
def test_branches_at_once_are_in_the_space(shape: str, goal: str) -> None:
    for seed in range(3):
        hold(branching(shape, seed), load_platform("tx2"), goal)


def test_what_the_tree_proves_is_below_the_best_plan() -> None:
    platform = cramped("ecp5-85", 0.004)
    best = Enumeration(Problem(residual(), platform, DeviceCosts())).best
    form = SearchedForm(residual(), platform, "latency")
    _, most = priced(form, best * 10)
    assert 0 < most <= best * (1 + 1e-9)


def test_pinned_nodes_stay_where_they_are() -> None:
    graph, platform = residual(), load_platform("tx2")
    form = SearchedForm(graph, platform, "latency")
    everywhere, _ = priced(form, 1.0)
    name = graph.nodes[0].name
    gpu = next(s for s in form.own[name].splits if s.pieces == (("gpu", 0, 1),))
    pinned = replace(form, pins={name: gpu})
    assert len(pinned.own[name]) == 1
    assert priced(pinned, 1.0)[1] >= priced(form, 1.0)[1]
    assert everywhere.cheapest()[0] > 0
