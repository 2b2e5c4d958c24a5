"""The shortest interval between frames: reached, bounded, within limits, never worse than one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.errors import InfeasibleError
from dovetail.ir import Graph
from dovetail.partition.evaluate import evaluate
from dovetail.partition.exact.arcs import used_by
from dovetail.partition.interval.changes import TRIED
from dovetail.partition.interval.solver import _Search
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal, Mode, Status
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.partition.tables.columns import options
from dovetail.partition.tolerances import CLOSE
from dovetail.platform.device import Kind
from tests.partition.enumeration import Enumeration
from tests.partition.worlds import Synthetic, chain, fork, platform, residual

KINDS = (Kind.CPU, Kind.GPU, Kind.FPGA)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.floats(1.0, 1.6), on_energy=st.booleans())
def test_limits_on_latency_and_energy_are_kept_and_the_interval_is_still_least(seed: int, share: float, on_energy: bool) -> None:
    graph, board, costs = chain(3, 2, 2), platform(seed, KINDS, 40.0), Synthetic(seed)
    least = plan(graph, board, replace(PROOF, goal=Goal.ENERGY if on_energy else Goal.LATENCY), costs=costs)
    limit = {"max_energy_j": least.energy_j * share} if on_energy else {"max_latency_s": least.latency_s * share}
    found = plan(graph, board, replace(PROOF, goal=Goal.THROUGHPUT, **limit), costs=costs)
    truth = Enumeration(Problem(graph, board, costs, Goal.THROUGHPUT, **limit))
    assert found.lower_bound <= truth.best * (1 + 1e-12)
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(truth.best, rel=1e-9)


def test_where_arms_may_run_at_once_limits_leave_a_true_bound() -> None:
    for seed in range(6):
        graph, board, costs = fork(seed), platform(seed, KINDS, 40.0), Synthetic(seed)
        limit = plan(graph, board, replace(PROOF, goal=Goal.LATENCY), costs=costs).latency_s * 1.02
        found = plan(graph, board, replace(PROOF, goal=Goal.THROUGHPUT, max_latency_s=limit), costs=costs)
        problem = Problem(graph, board, costs, Goal.THROUGHPUT, max_latency_s=limit)
        choices = [options(problem, n).splits for n in problem.graph.nodes]
        rng = np.random.default_rng(seed)
        for _ in range(400):
            drawn = [s[rng.integers(len(s))] for s in choices]
            judged = evaluate(problem, {n.name: s for n, s in zip(problem.graph.nodes, drawn, strict=True)})
            assert not judged.feasible or found.lower_bound <= judged.objective * (1 + 1e-12)


def test_pipelined_frames_come_at_least_as_often_as_the_fastest_plan_lets_them() -> None:
    for seed in range(8):
        graph, board, costs = residual(seed), platform(seed, KINDS, 40.0), Synthetic(seed)
        paced, fastest = (plan(graph, board, replace(PROOF, goal=goal), costs=costs) for goal in (Goal.THROUGHPUT, Goal.LATENCY))
        assert paced.interval_s <= fastest.interval_s * (1 + 1e-12)
        assert fastest.latency_s <= paced.latency_s * (1 + 1e-12)
        assert paced.objective == paced.interval_s == evaluate(Problem(graph, board, costs, Goal.THROUGHPUT),
                                                               paced.assignment).interval_s
        assert next(iter(paced.busy_s.values())) == paced.interval_s
        assert paced.objective <= min(v for v in paced.baselines.values() if v is not None)


def test_in_sequence_the_interval_is_the_latency_and_so_is_the_plan() -> None:
    graph, board, costs = residual(3), platform(3, KINDS, 40.0), Synthetic(3)
    paced, fastest = (plan(graph, board, replace(PROOF, goal=goal, mode=Mode.SEQUENTIAL),
                           costs=costs) for goal in (Goal.THROUGHPUT, Goal.LATENCY))
    assert paced.interval_s == paced.latency_s == fastest.latency_s


def test_a_chain_of_sixteen_is_bounded_closely_and_without_time_still_truly() -> None:
    graph, board, costs = chain(16, 4, 6), platform(2), Synthetic(2)
    found, hurried = (plan(graph, board, replace(PROOF, goal=Goal.THROUGHPUT, time_limit_s=s), costs=costs) for s in (4.0, 0.0))
    assert found.gap <= 0.02
    assert hurried.lower_bound <= found.objective <= hurried.objective


def test_limits_that_cannot_be_met_are_named() -> None:
    with pytest.raises(InfeasibleError, match=r"latency: every plan .* needs at least .* ms"):
        plan(chain(2), platform(1), replace(PROOF, goal=Goal.THROUGHPUT, max_latency_s=1e-6), costs=Synthetic(1))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), budget=st.floats(8.0, 60.0))
def test_fronts_of_weighted_times_bound_every_plan_that_fits_and_are_no_weaker_than_prices(seed: int, budget: float) -> None:
    graph, board, costs = chain(3, 2, 2), platform(seed, KINDS, budget), Synthetic(seed)
    problem = Problem(graph, board, costs, Goal.THROUGHPUT)
    truth = Enumeration(problem).best
    search = _Search(problem, [options(problem, n) for n in problem.graph.nodes], inf)
    found = search.weigh({}, inf)
    for ceiling in (truth * 1.5, truth * (1 + 1e-9), truth * 0.99):
        bound, paths = search._fitting(found, ceiling, inf)
        assert found.bound <= bound
        assert bound <= truth * (1 + 1e-12) or bound <= found.bound
        for path in paths:
            busy, used = search.ledger.along(search.entries(path))
            priced = found.prices * (found.prices > 0)
            assert float(found.weights @ busy) >= bound * (1 - 1e-9)
            assert float(priced @ used) <= float(priced.sum()) * (1 + 1e-8)
        if paths:
            busy, _ = search.ledger.along(search.entries(paths[0]))
            assert float(found.weights @ busy) == pytest.approx(bound, rel=1e-9) or bound == found.bound


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_plans_put_together_are_as_good_as_every_mixture_of_their_columns(seed: int) -> None:
    problem = Problem(chain(5, 2, 3), platform(seed, budget=30.0), Synthetic(seed), Goal.THROUGHPUT)
    search = _Search(problem, [options(problem, n) for n in problem.graph.nodes], inf)
    rng = np.random.default_rng(seed)
    for _ in range(40):
        search.keep(tuple(int(rng.integers(len(t.options))) for t in search.net.tables))
    if search.path is None:
        return
    other, found = next(iter(search.met.values())), search.weigh({}, inf)
    mixtures = list(product(*({a, b} for a, b in zip(search.path, other, strict=True))))
    search.over(found, used_by(search.net, [search.path, other]), found.bound, inf)
    legal = [p for p in mixtures if (search.ledger.along(search.entries(p))[1] <= 1).all()]
    best = min(evaluate(problem, search.net.assignment(p)).interval_s for p in legal) if legal else inf
    assert search.best <= best * (1 + CLOSE)
    assert search.best == pytest.approx(evaluate(problem, search.net.assignment(search.path)).interval_s, rel=1e-9)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000), shape=st.sampled_from([lambda: chain(5, 2, 3), lambda: residual(3)]))
def test_changes_of_columns_come_to_what_the_changed_plan_does(seed: int, shape: Callable[[], Graph]) -> None:
    problem = Problem(shape(), platform(seed, budget=30.0), Synthetic(seed), Goal.THROUGHPUT)
    search = _Search(problem, [options(problem, n) for n in problem.graph.nodes], inf)
    rng, tables = np.random.default_rng(seed), search.net.tables
    path = tuple(int(rng.integers(len(t.options))) for t in tables)
    entries = search.entries(path)
    before = np.concatenate(search.ledger.along(entries))
    for k, table in enumerate(tables):
        added = search.changes.of(k, entries)
        for column in rng.integers(len(table.options), size=3).tolist():
            other = (*path[:k], column, *path[k + 1:])
            assert search.changes.moved(entries, k, column) == search.entries(other)
            after = np.concatenate(search.ledger.along(search.entries(other)))
            assert before + added[:, column] == pytest.approx(after, rel=1e-9, abs=1e-12)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_plans_with_two_columns_exchanged_are_better_and_no_pair_apart_is_better_still(seed: int) -> None:
    problem = Problem(chain(5, 2, 3), platform(seed, budget=30.0), Synthetic(seed), Goal.THROUGHPUT)
    search = _Search(problem, [options(problem, n) for n in problem.graph.nodes], inf)
    found = search.weigh({}, inf)
    if search.path is None:
        return
    path, counts = search.path, [len(t.options) for t in search.net.tables]
    changed = search.changes.exchanged(path, np.concatenate([found.weights, found.prices]))
    judged = [search.judged(p) for p in changed]
    assert all(interval < search.best and used <= 1 + 1e-9 for interval, used in judged)
    pairs = [(i, j) for i in range(5) for j in range(i + 2, 5)]  # of neighbours only some columns are tried
    others = [(*path[:i], a, *path[i + 1:j], b, *path[j + 1:])
              for i, j in pairs for a in range(counts[i]) for b in range(counts[j])]
    legal = [interval for interval, used in map(search.judged, others) if used <= 1]
    if max(counts) <= TRIED:
        assert min((i for i, _ in judged), default=search.best) <= min(legal, default=inf) * (1 + 1e-9)


def test_a_plan_of_a_search_over_fewer_columns_is_where_one_over_more_begins() -> None:
    problem = Problem(chain(5, 2, 3), platform(4, budget=30.0), Synthetic(4), Goal.THROUGHPUT)
    choices = [options(problem, n) for n in problem.graph.nodes]
    few, every = (_Search(problem, own, inf) for own in ([c.keep(np.arange(0, len(c), 2)) for c in choices], choices))
    few.weigh({}, inf)
    assert few.path is not None
    every.adopt(few.plans[0])
    assert every.path is not None
    assert every.net.assignment(every.path) == few.plans[0]
    few.path = None
    few.adopt(every.net.assignment(tuple(1 for _ in choices)))
    assert few.path is None
