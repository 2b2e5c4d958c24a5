"""How often frames can follow each other: what they keep busy, counted twice and held together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.interval.busy import busiest
from dovetail.partition.interval.tables import busy_table, shared_names
from dovetail.partition.plan import Goal, Mode, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import inputs_held, options
from dovetail.partition.tables.costs import tabulate
from dovetail.platform.accelerator import AcceleratorDesign, Architecture
from tests.partition.worlds import Synthetic, chain, depthwise, fork, platform, pooled, residual

GRAPHS = {"chain": lambda seed: chain(3, 2, 4), "residual": residual, "fork": fork, "depthwise": depthwise, "pooled": pooled}


def random_plan(problem: Problem, seed: int) -> tuple[list[int], Evaluation]:
    rng = np.random.default_rng(seed)
    choices = [options(problem, n) for n in problem.graph.nodes]
    path = [int(rng.integers(len(c))) for c in choices]
    return path, evaluate(problem, {c.node.name: c.splits[i] for c, i in zip(choices, path, strict=True)})


@pytest.mark.parametrize("name", GRAPHS)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), shared=st.booleans())
def test_arrays_and_evaluator_count_the_same(name: str, seed: int, shared: bool) -> None:
    hold_together(Problem(GRAPHS[name](seed), platform(seed, budget=1e9), Synthetic(seed), Goal.THROUGHPUT,
                          shared_budget=shared), seed)


def hold_together(problem: Problem, seed: int) -> None:
    """What arrays and evaluator count for a few random plans is the same."""
    choices = [options(problem, n) for n in problem.graph.nodes]
    known = inputs_held(problem) | {c.node.output: c.held for c in choices}
    for attempt in range(5):
        path, judged = random_plan(problem, seed + attempt)
        total, engines, at = dict.fromkeys(shared_names(problem), 0.0), [0.0], {}
        for own, column in zip(choices, path, strict=True):
            table, busy = tabulate(problem, own, known), busy_table(problem, own, known)
            for lane, seconds in busy.shared.items():
                total[lane] += float(seconds[(*(at[t] for t in table.inputs), column)])
            engines.append(float(busy.engines[column]))
            at[own.node.output] = int(own.place_of[column])
        for lane, seconds in total.items():
            assert seconds == pytest.approx(judged.busy_s.get(lane, 0.0), rel=1e-12)
        assert max(*total.values(), *engines) == pytest.approx(judged.interval_s, rel=1e-12)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("mode", Mode)
def test_frames_never_follow_each_other_more_slowly_than_one_takes(name: str, mode: Mode) -> None:
    for seed in range(30):
        problem = Problem(GRAPHS[name](seed), platform(seed, budget=1e9), Synthetic(seed), mode=mode, shared_budget=seed % 2 == 0)
        _, judged = random_plan(problem, seed)
        assert judged.interval_s <= judged.latency_s * (1 + 1e-12)
        assert mode is Mode.CONCURRENT or judged.interval_s == judged.latency_s


def test_one_processor_that_does_everything_is_busy_all_the_time() -> None:
    problem = Problem(residual(1), platform(1), Synthetic(1), Goal.THROUGHPUT)
    judged = evaluate(problem, {n.name: whole_on("cpu") for n in problem.graph.nodes})
    assert judged.objective == judged.interval_s == pytest.approx(judged.latency_s)
    assert set(judged.busy_s) == {"cpu"}


def test_engines_count_by_themselves_and_a_reused_fpga_adds_up() -> None:
    graph, board = chain(3, 2, 4), platform(1, budget=1e9)
    everywhere = {n.name: whole_on("fpga") for n in graph.nodes}
    resident, reused = (Problem(graph, board, Synthetic(1), Goal.THROUGHPUT, shared_budget=shared) for shared in (True, False))
    own, added = evaluate(resident, everywhere), evaluate(reused, everywhere)
    engines = [own.busy_s[f"fpga engine {n.name}"] for n in graph.nodes]
    assert own.interval_s == max(*engines, own.busy_s["link1:cpu>fpga"], own.busy_s["link1:fpga>cpu"])
    assert added.busy_s["fpga"] > max(engines)
    shown = busiest(resident, own.busy_s)
    assert list(shown.values()) == sorted(shown.values(), reverse=True)
    assert sum(" engine " in name for name in shown) == 1


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), name=st.sampled_from(sorted(GRAPHS)))
def test_layers_that_share_arrays_take_turns_on_them(seed: int, name: str) -> None:
    graph, board = GRAPHS[name](seed), platform(seed, budget=1e9)
    layers = [n.name for n in graph.nodes]
    shared = AcceleratorDesign(Architecture.FIBHA, dict.fromkeys(layers[:1]), tuple(layers[1:]))
    problem = Problem(graph, board.with_accelerator("fpga", shared), Synthetic(seed), Goal.THROUGHPUT)
    hold_together(problem, seed)
    everywhere = evaluate(problem, {n: whole_on("fpga") for n in layers})
    apart = evaluate(Problem(graph, board, Synthetic(seed), Goal.THROUGHPUT), {n: whole_on("fpga") for n in layers})
    assert everywhere.busy_s["fpga engine shared by layers"] == pytest.approx(
        sum(apart.busy_s[f"fpga engine {n}"] for n in layers[1:]), rel=1e-12)


def test_a_link_named_like_a_device_is_another_thing() -> None:
    graph, board = chain(2, 2, 4), platform(1, budget=1e9)
    alike = replace(board, links=tuple(replace(link, name="gpu") if link.name == "link0" else link for link in board.links))
    plans = [evaluate(Problem(graph, b, Synthetic(1)), {"n0": whole_on("gpu"), "n1": whole_on("fpga")}) for b in (board, alike)]
    assert {n.replace("gpu:", "link0:"): s for n, s in plans[1].busy_s.items()} == plans[0].busy_s
    assert plans[1].busy_s["gpu"] == plans[0].busy_s["gpu"] > 0


def test_a_way_over_the_host_keeps_both_of_its_links_busy() -> None:
    graph = chain(2, 2, 4)
    judged = evaluate(Problem(graph, platform(1, budget=1e9), Synthetic(1)), {"n0": whole_on("gpu"), "n1": whole_on("fpga")})
    assert {lane for lane in judged.busy_s if lane.startswith("link")} == {
        "link0:cpu-gpu", "link1:cpu>fpga", "link1:fpga>cpu"}, "link0 is half duplex: both directions are one"
