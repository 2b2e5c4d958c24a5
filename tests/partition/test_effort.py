"""Searches end by work that is counted, not by the clock: the same plan on any machine and beside any load."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from dovetail import partition, zoo
from dovetail.ir import Graph
from dovetail.partition import effort
from dovetail.partition.effort import GUARD, METER, RATES, counted, should_take, spend, worked
from dovetail.partition.linear_programs import cheapest_walk
from dovetail.partition.options import PROOF
from dovetail.partition.pareto import front
from dovetail.partition.plan import Goal, Plan
from dovetail.partition.solve import plan
from dovetail.pipeline import graph_to_plan
from dovetail.platform.load import load_platform
from dovetail.terminal import front_table

CASES = {
    "squeezenet1.1": ("tx2-c10gx", 0.3, Goal.LATENCY),
    "shufflenet-v2-0.5": ("fic:4", 0.5, Goal.LATENCY),
    "mobilenet-v2-0.5": ("tx2-c10gx", 0.3, Goal.THROUGHPUT),
}
"""Networks whose searches are ended by these limits, with programs in whole numbers, fronts and labels among them."""


@cache
def network(name: str) -> Graph:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "m.onnx"
        path.write_bytes(zoo.build(name, size=64))
        return graph_to_plan(path)[0]


def planned(name: str, limit_s: float | None = None) -> Plan:
    board, seconds, goal = CASES[name]
    return plan(network(name), load_platform(board).with_fill(1.0),
                replace(PROOF, goal=goal, time_limit_s=limit_s or seconds, off_grid=True, rivals=True))


class Clock:
    """A clock that runs so many times as fast as the one it stands for."""

    def __init__(self, times: float) -> None:
        self.times, self.true = times, time.thread_time

    def __call__(self) -> float:
        return self.times * self.true()


def run_clocks(monkeypatch: pytest.MonkeyPatch, times: float) -> None:
    for name in ("thread_time", "process_time", "perf_counter", "monotonic", "time"):
        monkeypatch.setattr(time, name, Clock(times))


@pytest.mark.parametrize("name", CASES)
def test_a_plan_and_its_bound_are_the_same_to_the_last_bit_however_fast_clocks_run(
        name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort, "GUARD", inf)
    found = []
    for times in (0.02, 50.0):
        with monkeypatch.context() as patched:
            run_clocks(patched, times)
            found.append(planned(name))
    assert found[0] == found[1]
    assert planned(name, 3.0).lower_bound > found[0].lower_bound  # the limit was what ended the search


def test_searches_on_two_threads_count_apart() -> None:
    names = ["squeezenet1.1"] * 2
    alone = [planned("squeezenet1.1")] * 2
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(planned, names)) == alone


def test_a_clock_that_runs_many_times_as_fast_cuts_a_search_short_which_the_plan_says(monkeypatch: pytest.MonkeyPatch) -> None:
    run_clocks(monkeypatch, 1e4)
    found = planned("squeezenet1.1", 8.0)
    assert re.fullmatch(r"search: cut short after .* s of computing, 3 times as long as the work of its limit of 8 s should "
                        r"take; another run may find another plan", found.notes[-1])
    assert found.lower_bound <= found.objective <= min(v for v in found.baselines.values() if v is not None)
    points = front(network("squeezenet1.1"), load_platform("tx2-c10gx"), 2)
    assert front_table(points).endswith("another run may find another plan")


def test_a_search_that_hurries_is_past_every_deadline_and_counts_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    before = METER.seconds
    with counted(2.0) as meter:
        begun_s = meter.begun_s
        monkeypatch.setattr(time, "thread_time", lambda: begun_s + GUARD * 2.0 - 1e-6)
        spend("nodes", 10)
        assert worked() == METER.seconds == 10 * RATES["nodes"][0]
        monkeypatch.setattr(time, "thread_time", lambda: begun_s + GUARD * 2.0 + 1e-6)
        deadline = worked() + 2.0
        assert meter.hurried
        assert worked() > deadline
        with counted(1.0):
            assert worked() == 0.0
        assert meter.hurried
    assert METER.seconds == before + 2.0  # it counts as its limit
    assert METER.limit_s == inf


def test_a_program_in_whole_numbers_branches_no_more_than_its_work_allows() -> None:
    rng, layers = np.random.default_rng(1), 24
    arcs = [(k, k + 1) for k in range(layers) for _ in range(5)]
    ends, costs, used = np.array(arcs), rng.uniform(0, 1, len(arcs)), rng.uniform(0, 2 / layers, (len(arcs), 6))
    counts = list[float]()
    some_s = should_take("walks", 1, len(arcs)) + 1.5 * should_take("branches", 1, len(arcs))
    for seconds in (0.0, some_s, 1e3):
        with counted(inf):
            found = cheapest_walk(ends[:, 0], ends[:, 1], layers + 1, costs, used, 0.0, seconds)
            counts.append(worked())
    assert counts[0] == 0.0
    assert 0.0 < counts[1] <= some_s
    assert counts[1] < counts[2]
    assert found.final


def test_every_kind_of_work_that_is_counted_has_rates_and_none_has_that_is_not() -> None:
    package = Path(partition.__path__[0])
    files = [*package.rglob("*.py"), package.parent / "accelerator_prices.py"]
    sources = [p.read_text() for p in files if p.name != "effort.py"]
    counted_lines = [line for text in sources for line in text.splitlines() if re.search(r"spend\(|kinds = \{", line)]
    assert {kind for line in counted_lines for kind in re.findall(r'"([a-z]+)"', line)} == RATES.keys()
