"""Labels that know how full every board is: their bound holds for every plan, and what they find is a plan of the boards."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.partition.boards.incumbents import Incumbents
from dovetail.partition.boards.label_search import Filled, Filling
from dovetail.partition.boards.relaxation import STAND_INS, Pool, Share
from dovetail.partition.boards.solver import pooled_problem
from dovetail.partition.boards.symmetry import Names, states_of
from dovetail.partition.evaluate import evaluate
from dovetail.partition.exact.cuts import Network, price_limits
from dovetail.partition.exact.fronts import Fronts, Grain, fronts_of
from dovetail.partition.exact.solver import solve_network
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import PricedSplits
from tests.partition.enumeration import Enumeration
from tests.partition.test_optimality import shortcut
from tests.partition.test_pooled import Alike, net_of, ring
from tests.partition.worlds import chain

BUDGETS = st.sampled_from([12.0, 20.0, 30.0, 45.0])
LABELS = 50_000
FEW = 3
"""Labels so few that most are seen as one."""
NAMES = 2e-2
"""What boards' names may be worth in these small worlds, whose links between boards are slow."""
FAR = 0.15
"""The same where boards are many: labels take all of them for those at the host's door."""


def pooled(problem: Problem) -> tuple[Network, Pool, Share]:
    relaxed = pooled_problem(problem)
    assert relaxed is not None
    assert relaxed.pool is not None
    return net_of(relaxed), relaxed.pool, relaxed.shares[0]


def boards_of(net: Network, pool: Pool) -> tuple[int, ...]:
    return pool.among(net.problem.devices)


def fronts(net: Network, share: Share, names: Names | None, grain: Grain | None = None) -> Fronts:
    amounts = [share.taken(own.resources) for own in net.owners]
    found = fronts_of(net, net.costs((1.0, 0.0)), amounts, 0.0, inf, LABELS, inf, names, grain)
    assert found is not None
    return found


def filling_of(problem: Problem, grain: Grain | None = None) -> tuple[Filling, Names, Pool]:
    """A search for the best plan for all boards."""
    net, pool, share = pooled(problem)
    names = Names(net, boards_of(net, pool), pool.many)
    own = {net.problem.budgets[i][0]: i for i in share.budgets}
    chosen = [own[net.problem.devices[b]] for b in names.boards]
    loads = [owner.resources[:, chosen] / share.limit for owner in net.owners]
    return Filling(fronts(net, share, names, grain), names, loads, pool.many), names, pool


def filled(problem: Problem, most: int = LABELS) -> tuple[Filled, Names, Pool]:
    """The best plan for all boards, with nothing given up unless `most` is small."""
    filling, names, pool = filling_of(problem)
    return filling.run(inf, most, inf), names, pool


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(2, 4), budget=BUDGETS,
       shape=st.sampled_from([shortcut, lambda: chain(3, 2, 3)]))
def test_the_least_of_the_fronts_is_the_best_plan_of_the_pool(seed: int, count: int, budget: float, shape: object) -> None:
    problem = Problem(shape(), ring(seed, count, budget), Alike(seed))  # type: ignore[operator]
    net, pool, share = pooled(problem)
    alone = replace(net, limits=tuple(x for x in net.limits if x.name == share.name))
    best = solve_network(alone, [], inf, LABELS).lower_bound
    assert fronts(net, share, None).best == pytest.approx(best)
    for beside in (True, False):
        assert fronts(net, share, Names(net, boards_of(net, pool), beside)).best <= best * (1 + 1e-9)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(5, 8), budget=BUDGETS, parts=st.sampled_from([2, 8, 64]))
def test_labels_that_stand_for_others_bound_every_plan_and_the_cheapest_of_them_are_plans(seed: int, count: int, budget: float,
                                                                                         parts: int) -> None:
    net, pool, share = pooled(Problem(chain(3, 2, 3), ring(seed, count, budget), Alike(seed)))
    names = Names(net, boards_of(net, pool), beside=True)
    exact, below = fronts(net, share, names), fronts(net, share, names, Grain(parts, below=True))
    assert below.best <= exact.best * (1 + 1e-9)
    for own, lower in zip(exact.reached, below.reached, strict=True):
        assert len(lower) <= len(own)
        at = np.searchsorted(lower.keys, own.keys)
        assert (lower.keys[at] == own.keys).all()
        assert (lower.least(at[own.of], own.used) <= own.cost * (1 + 1e-9)).all(), "no label is above one it stands for"
    for most in (None, 3):
        rough = fronts(net, share, names, Grain(parts, below=False, most=most))
        assert rough.best >= exact.best * (1 - 1e-9)
        assert all(len(own) <= (most or LABELS) for own in rough.reached)
        path = rough.path()
        if path is not None:
            amounts = [share.taken(own.resources) for own in net.owners]
            assert sum(float(a[c]) for a, c in zip(amounts, path, strict=False) if c >= 0) <= 1 + 1e-9


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(5, 8), budget=BUDGETS, parts=st.sampled_from([2, 8, 64]))
def test_a_search_whose_fronts_stand_for_others_bounds_every_plan(seed: int, count: int, budget: float, parts: int) -> None:
    problem = Problem(chain(2, 2, 2), ring(seed, count, budget), Alike(seed))
    found = filling_of(problem, grain=Grain(parts, below=True))[0].run(inf, LABELS, inf)
    assert found.bound <= Enumeration(problem).best * (1 + 1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(2, 7), budget=BUDGETS, straight=st.booleans())
def test_labels_bound_every_plan_of_the_boards_and_find_one(seed: int, count: int, budget: float, straight: bool) -> None:
    # A chain never has more than four boards at work or holding tensors at once, of which the bound speaks.
    graph = chain(2, 2, 2) if straight or count > STAND_INS else shortcut()
    problem = Problem(graph, ring(seed, count, budget), Alike(seed))
    truth = Enumeration(problem).best
    found, names, pool = filled(problem)
    assert found.complete
    assert found.bound <= truth * (1 + 1e-9)
    hurried, _, _ = filled(problem, FEW)
    assert hurried.bound <= found.bound * (1 + 1e-9), "labels seen as one cost no more than each"
    assert hurried.value >= found.value * (1 - 1e-9)
    if found.assignment is None:
        assert truth == inf
        return
    state = Incumbents(problem, problem, pool, [])
    if pool.many:
        state.follow(found.assignment)
    else:
        state.name(found.assignment, names.orders)
    if state.found:  # other resources than the first may still be exceeded
        judged = evaluate(problem, state.found[-1])
        assert judged.feasible
        assert problem.score(*state.plans[-1]) == judged.objective
        # Renamed, a share beside the host's may be on any board, where candidates have it on the first alone.
        assert judged.objective <= truth * (1 + (NAMES if count <= STAND_INS else FAR))


def test_a_plan_fills_no_board_beyond_its_budget_where_the_pool_alone_would() -> None:
    over = 0
    for seed in range(12):
        problem = Problem(chain(4, 2, 3), ring(seed, 2, 20.0), Alike(seed))
        net, _, share = pooled(problem)
        path = fronts(net, share, None).path()
        assert path is not None
        over += not evaluate(problem, net.assignment(path)).feasible
        found, _, _ = filled(problem)
        assert found.assignment is not None
        judged = evaluate(problem, found.assignment)
        assert all(judged.resources[d][r] <= limit * (1 + 1e-9) for d, r, limit in problem.budgets if share.name.endswith(r))
        assert found.bound >= fronts(net, share, None).best * (1 - 1e-2)
    assert over > 0


@pytest.mark.parametrize(("count", "beside", "orders"), [(2, True, 2), (3, True, 6), (4, True, 8), (4, False, 24), (6, True, 8)])
def test_names_are_exchanged_in_all_ways_or_in_those_that_keep_neighbours(count: int, beside: bool, orders: int) -> None:
    net, pool, _ = pooled(Problem(chain(2, 2, 2), ring(1, count, 45.0), Alike(1)))
    assert len(Names(net, boards_of(net, pool), beside).orders) == orders


def test_a_window_of_neighbours_moves_on_with_what_it_holds_as_far_apart() -> None:
    """Of two boards that hold tensors, every way to call them keeps their distance, and every place at it is called the same."""
    net, pool, _ = pooled(Problem(shortcut(), ring(3, 7, 45.0), Alike(3)))
    names = Names(net, boards_of(net, pool), beside=True)
    stage = max(net.stages, key=lambda s: len(s.live))
    first, second = (next(t for t in net.tables if t.node.output == tensor).options for tensor in stage.live[:2])
    sizes, boards = (len(first.places), len(second.places)), range(len(names.boards))

    def whole(own: PricedSplits, board: int) -> int:
        """The place where one board alone holds all of a tensor."""
        at = names.boards[board]
        filled = own.pattern.held[own.places][:, :, 0, 1] > 0
        return int(np.flatnonzero(filled[:, at] & (filled.sum(axis=1) == 1))[0])

    state = np.array([[whole(first, a), whole(second, b)] for a, b in product(boards, repeat=2)])
    called = names.least(stage.live[:2], state @ [sizes[1], 1], sizes)
    apart = np.array([abs(a - b) for a, b in product(boards, repeat=2)])
    assert len(set(zip(apart.tolist(), called.tolist(), strict=True))) == len(set(apart.tolist())) == len(set(called.tolist()))


def test_a_state_and_what_other_names_make_of_it_are_called_the_same() -> None:
    net, pool, _ = pooled(Problem(shortcut(), ring(3, 4, 45.0), Alike(3)))
    names = Names(net, boards_of(net, pool), beside=False)
    for stage in net.stages:
        sizes = tuple(len(next(t for t in net.tables if t.node.output == tensor).options.places) for tensor in stage.live)
        keys = np.arange(int(np.prod(sizes)))
        renamed = names.keys(stage.live, states_of(keys, sizes), sizes)
        least = names.least(stage.live, keys, sizes)
        assert (least <= keys).all()
        for order in renamed:
            assert (least[order[order >= 0]] == least[order >= 0]).all()


def test_fronts_are_given_up_where_labels_are_too_many_or_time_is_over() -> None:
    net, _, share = pooled(Problem(chain(3, 2, 3), ring(2, 3, 30.0), Alike(2)))
    amounts = [share.taken(own.resources) for own in net.owners]
    assert fronts_of(net, net.costs((1.0, 0.0)), amounts, 0.0, inf, 1, inf) is None
    assert fronts_of(net, net.costs((1.0, 0.0)), amounts, 0.0, inf, LABELS, 0.0) is None


def test_no_beginning_is_below_a_cut_off_under_the_prices_bound() -> None:
    net, _, share = pooled(Problem(chain(3, 2, 3), ring(5, 3, 30.0), Alike(5)))
    bound = price_limits(net, (1.0, 0.0), inf, inf).bound
    amounts = [share.taken(own.resources) for own in net.owners]
    found = fronts_of(net, net.costs((1.0, 0.0)), amounts, 0.0, bound * 0.5, LABELS, inf)
    assert found is not None
    assert found.best == inf
    assert found.path() is None


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(2, 4), part=st.floats(0.7, 1.0))
def test_names_strike_nothing_that_a_plan_below_the_cut_off_needs(seed: int, count: int, part: float) -> None:
    """States called the same may cost less to complete than the one that gives the name."""
    problem = Problem(shortcut(), ring(seed, count, 45.0), Alike(seed))
    net, pool, share = pooled(problem)
    names = Names(net, boards_of(net, pool), beside=False)
    amounts = [share.taken(own.resources) for own in net.owners]
    free = fronts_of(net, net.costs((1.0, 0.0)), amounts, 0.0, inf, LABELS, inf, names)
    assert free is not None
    cut = fronts_of(net, net.costs((1.0, 0.0)), amounts, 0.0, free.best / part, LABELS, inf, names)
    assert cut is not None
    assert cut.best == free.best
