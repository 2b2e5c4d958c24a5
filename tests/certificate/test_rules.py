"""The checker's own rules and candidates against the evaluator's, which share no code with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.certificate.columns import DividedNode, columns_of, splits_of
from dovetail.certificate.judge import in_order, judge
from dovetail.errors import BuildError
from dovetail.ir import Axis, Conv, Graph, Window
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import evaluate
from dovetail.partition.plan import Split
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import options
from dovetail.platform.load import load_platform
from tests.partition.branching import SHAPES, branching
from tests.strategies import Net, networks

pytestmark = pytest.mark.slow("compares rules on random networks")

BOARDS = ("tx2", "tx2-c10gx", "ecp5-85", "fic:3")


def divided(split: Split) -> DividedNode:
    return DividedNode(split.axis, tuple(split.pieces), split.reducer)


def compare(graph: Graph, board: str, pace: int | None, seed: int) -> None:
    """The same columns, and the same figures of some of their plans."""
    platform = load_platform(board).with_link_logic()
    platform = platform if pace is None else platform.with_pace(pace)
    problem, (ordered, _) = Problem(graph, platform, DeviceCosts()), in_order(graph)
    assert [n.name for n in ordered.nodes] == [n.name for n in problem.graph.nodes]
    own = columns_of(ordered, platform, {n.name: splits_of(ordered, n, platform) for n in ordered.nodes})
    rng = np.random.default_rng(seed)
    offered = {n.name: options(problem, n).splits for n in problem.graph.nodes}
    for name, splits in offered.items():
        assert {divided(s) for s in splits} == set(own[name].splits)
    for part in (0.0, 0.5, 1.0):
        whole = {name: [s for s in splits if s.axis is None] for name, splits in offered.items()}
        plan = {name: found[int(rng.integers(len(found)))] for name, splits in offered.items()
                for found in [splits if rng.random() < part else whole[name]]}
        judged, exact = evaluate(problem, plan), judge(graph, platform, {name: divided(s) for name, s in plan.items()})
        assert [float(exact.latency_s), float(exact.energy_j), float(exact.interval_s)] == pytest.approx(
            [judged.latency_s, judged.energy_j, judged.interval_s], rel=1e-12)
        for (device, resource), taken in exact.taken.items():
            assert float(taken) == pytest.approx(judged.resources[device][resource], rel=1e-12)


@given(networks(), st.sampled_from(BOARDS), st.sampled_from([None, 64, 4096]), st.integers(0, 99))
def test_columns_and_figures_are_those_of_the_evaluator(graph: Graph, board: str, pace: int | None, seed: int) -> None:
    compare(graph, board, pace, seed)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("board", BOARDS[:3])
def test_branches_that_run_at_once_end_when_the_evaluator_says(shape: str, board: str) -> None:
    for seed in range(4):
        compare(branching(shape, seed, 4), board, None, seed)


@pytest.mark.parametrize(("split", "said"), [
    (DividedNode(None, (("cpu", 0, 1), ("gpu", 0, 1))), "does not cover"),
    (DividedNode(None, (("tpu", 0, 1),)), "names a device twice, or one that the board does not have"),
    (DividedNode(Axis.ROWS, (("cpu", 0, 3), ("gpu", 4, 8))), r"does not cover rows \[0, 8\) once"),
    (DividedNode(Axis.ROWS, (("cpu", 0, 3), ("gpu", 3, 7))), r"does not cover rows \[0, 8\) once"),
    (DividedNode(Axis.GROUPS, (("cpu", 0, 1), ("gpu", 1, 2))), "cannot be divided along groups"),
    (DividedNode(Axis.INPUT_CHANNELS, (("cpu", 0, 1), ("gpu", 1, 4))), "needs a reducer"),
])
def test_a_split_that_cannot_be_is_refused_by_name(split: DividedNode, said: str) -> None:
    net = Net(1)
    graph = net.graph(net.add(Conv(8, Window((3, 3), pads=(1, 1, 1, 1))), net.input((1, 4, 8, 8)), name="conv"))
    with pytest.raises(BuildError, match=said):
        judge(graph, load_platform("tx2"), {"conv": split})
