"""Laws of the list schedule: never later than the evaluator, never two tasks at once on a resource, data before use."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.ir import Graph
from dovetail.partition.evaluate import evaluate
from dovetail.partition.plan import Mode, Split, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.partition.tables.columns import options
from dovetail.schedule.list_schedule import Timeline, schedule
from tests.partition.worlds import Synthetic, chain, depthwise, fork, platform, pooled, residual

SHAPES = {"chain": lambda seed: chain(3, 4, 4), "residual": residual, "fork": fork, "depthwise": depthwise, "pooled": pooled}


def random_assignment(problem: Problem, seed: int) -> dict[str, Split]:
    rng = np.random.default_rng(seed)
    found = {}
    for node in problem.graph.nodes:
        choices = options(problem, node).splits
        found[node.name] = choices[int(rng.integers(len(choices)))]
    return found


def check(graph: Graph, timeline: Timeline, streaming: frozenset[str] = frozenset({"fpga"})) -> None:
    order = {n.name: k for k, n in enumerate(graph.nodes)}
    for resource in {t.resource for t in timeline.tasks}:
        mine = [t for t in timeline.tasks if t.resource == resource]
        for a, b in pairwise(mine):
            if resource not in streaming:  # there every node has hardware of its own
                assert b.start_s >= a.stop_s - 1e-15
    for task in timeline.tasks:
        assert 0 <= task.start_s <= task.stop_s
        assert task.kind in {"compute", "transfer", "reduce"}
        assert (task.size_bytes > 0) == (task.kind == "transfer")
    assert {t.node for t in timeline.tasks if t.kind == "compute"} == set(order)
    for buffer in timeline.buffers:
        assert buffer.size_bytes > 0
        assert buffer.start_s <= buffer.stop_s <= timeline.makespan_s + 1e-15


@pytest.mark.parametrize("name", SHAPES)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), mode=st.sampled_from(Mode))
def test_the_makespan_is_never_larger_than_the_latency(name: str, seed: int, mode: Mode) -> None:
    graph, board, costs = SHAPES[name](seed), platform(seed, budget=1e9), Synthetic(seed)
    problem = Problem(graph, board, costs, mode=mode)
    for k in range(4):
        assignment = random_assignment(problem, seed + k)
        timeline = schedule(graph, board, assignment, costs)
        assert timeline.makespan_s <= evaluate(problem, assignment).latency_s * (1 + 1e-12)
        check(graph, timeline)


def test_independent_branches_on_different_devices_overlap() -> None:
    graph, board, costs = fork(1), platform(1), Synthetic(1)
    assignment = {"n0": whole_on("cpu"), "n1": whole_on("cpu"), "n2": whole_on("gpu"), "n3": whole_on("cpu")}
    timeline = schedule(graph, board, assignment, costs)
    compute = {t.node: t for t in timeline.tasks if t.kind == "compute"}
    assert compute["n2"].start_s < compute["n1"].stop_s
    # The plan overlaps them as well: nothing is left for the schedule to gain.
    assert timeline.makespan_s == pytest.approx(evaluate(Problem(graph, board, costs), assignment).latency_s, rel=1e-12)


def test_a_streaming_chain_is_a_pipeline() -> None:
    graph, board, costs = chain(3), platform(1, budget=1e9), Synthetic(1)
    timeline = schedule(graph, board, {n.name: whole_on("fpga") for n in graph.nodes}, costs)
    compute = [t for t in timeline.tasks if t.kind == "compute"]
    assert compute[0].start_s <= compute[1].start_s < compute[0].stop_s < compute[1].stop_s
    check(graph, timeline)


def test_a_plan_and_its_assignment_give_the_same_timeline() -> None:
    graph, board, costs = residual(2), platform(2), Synthetic(2)
    made = plan(graph, board, costs=costs)
    assert schedule(graph, board, made, costs) == schedule(graph, board, made.assignment, costs)
    assert schedule(graph, board, made, costs).makespan_s <= made.latency_s * (1 + 1e-12)


def test_a_link_may_be_called_like_a_device() -> None:
    graph, costs = fork(1), Synthetic(1)
    board = platform(1, budget=1e9)
    plain = replace(board, links=tuple(replace(link, full_duplex=False) for link in board.links))
    alike = replace(plain, links=tuple(replace(link, name=link.ends[1]) for link in plain.links))
    for seed in range(8):
        assignment = random_assignment(Problem(graph, plain, costs), seed)
        assert schedule(graph, alike, assignment, costs).makespan_s == schedule(graph, plain, assignment, costs).makespan_s
