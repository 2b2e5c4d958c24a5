"""Which fewer layers an accelerator may be better for, beside other devices."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from dovetail.ir import Conv, Graph, Window
from dovetail.partition.accelerator.architecture import AcceleratedRegion, accelerated_device, judge
from dovetail.partition.accelerator.blocks import Blocks
from dovetail.partition.accelerator.runs import Elsewhere, Runs, runs_of
from dovetail.partition.plan import Goal
from dovetail.platform.accelerator import Architecture
from dovetail.platform.load import load_platform
from tests.strategies import Net

WHOLE = AcceleratedRegion(0, 4)


def alike(count: int, side: int = 8) -> Graph:
    """Convolutions that all multiply as often."""
    net = Net(3)
    x = net.input((1, 4, side, side))
    for i in range(count):
        x = net.add(Conv(4, Window((3, 3), pads=(1, 1, 1, 1))), x, name=f"layer{i}")
    return net.graph(x)


def guessed(others_s: list[float], overlapping: bool, byte_s: float = 0.0) -> Runs:
    """Runs of four layers that each take an accelerator two seconds."""
    places = np.arange(5)
    clocks = np.where(places[None, :] > places[:, None], 2.0 * (places[None, :] - places[:, None]), inf)
    return Runs(alike(4), WHOLE, tuple(range(5)), clocks, Elsewhere(others_s, 0.0, byte_s), 1.0, overlapping)


def test_devices_that_work_at_once_share_layers_until_they_take_as_long() -> None:
    run = guessed([2.0] * 4, True).promising(8.0)
    assert run is not None
    assert run.stop - run.start == 2
    assert guessed([9.0] * 4, True).promising(8.0) is None


def test_of_a_single_frame_the_accelerator_leaves_what_another_device_does_sooner() -> None:
    assert guessed([3.0, 3.0, 3.0, 0.5], False).promising(8.0) == AcceleratedRegion(0, 3)
    assert guessed([0.5, 3.0, 3.0, 0.5], False).promising(8.0) == AcceleratedRegion(1, 3)
    assert guessed([0.5, 3.0, 3.0, 0.5], False, byte_s=0.01).promising(8.0) is None, "transfers take longer than is saved"
    assert guessed([3.0, 3.0, 3.0, 0.5], False).promising(6.0) is None


def test_what_searches_find_mends_guesses_and_is_not_searched_again() -> None:
    runs = guessed([3.0, 3.0, 3.0, 0.5], False)
    first = runs.promising(8.0)
    assert first is not None
    runs.learn(first, 6.3)
    assert runs.factor == pytest.approx(1.05)
    assert runs.promising(8.0) not in (None, first)
    runs.learn(WHOLE, 16.0)
    assert runs.promising(8.0) is None, "twice as long as was guessed"
    runs.learn(AcceleratedRegion(1, 3), inf)
    assert runs.factor == 2.0


@pytest.mark.parametrize("goal", [Goal.LATENCY, Goal.THROUGHPUT])
@pytest.mark.parametrize("part", [0.02, 0.2])
def test_guesses_are_near_what_a_search_finds(goal: Goal, part: float) -> None:
    graph = alike(6, 32)
    device = accelerated_device(load_platform("zcu102").with_area(part))
    blocks, assumed = Blocks(graph, device), Elsewhere([1.0] * 6, 0.0, 0.0)
    found = judge(graph, device, Architecture.AUTO, goal)
    runs = runs_of(graph, AcceleratedRegion(0, 6), graph, blocks, assumed, goal is Goal.THROUGHPUT, 4 * found.clocks)
    assert runs.clocks[0, -1] == pytest.approx(found.clocks, rel=0.4)
    assert np.all(runs.clocks[0, 1:] <= runs.clocks[0, -1]), "more layers take no less"
    assert np.all(np.isinf(runs.clocks[np.tril_indices(7)])), "a run holds a layer"
