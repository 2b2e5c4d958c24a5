"""Options of `plan`, baselines and the sentences beside each node."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from dovetail.errors import InfeasibleError, UsageError
from dovetail.ir import Axis
from dovetail.partition.effort import worked
from dovetail.partition.evaluate import evaluate
from dovetail.partition.exact.by_device import Known
from dovetail.partition.exact.solver import Answer
from dovetail.partition.explain.baselines import balanced, chance, single
from dovetail.partition.options import PROOF
from dovetail.partition.plan import SOLVER_NAMES, Assignment, Goal, Mode, Piece, Plan, Split, Status, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.solve import SOLVERS, plan
from dovetail.partition.strategy import exact
from dovetail.platform.device import Kind
from tests.partition.worlds import Synthetic, chain, platform, residual


@cache
def planned(solver: str, goal: Goal, seed: int) -> Plan:
    return plan(residual(seed), platform(seed), replace(PROOF, goal=goal, solver=solver), costs=Synthetic(seed, refuse=0.2))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("goal", Goal)
def test_every_solver_gives_a_judged_plan_above_its_bound(solver: str, goal: Goal) -> None:
    for seed in range(4):
        graph, board, costs = residual(seed), platform(seed), Synthetic(seed, refuse=0.2)
        found, best = planned(solver, goal, seed), planned("exact", goal, seed)
        assert found.lower_bound <= best.objective <= found.objective
        assert found.objective == evaluate(Problem(graph, board, costs, goal), found.assignment).objective
        if solver in found.baselines:
            assert found.objective == found.baselines[solver]


def test_a_chain_of_sixteen_is_proven_best() -> None:
    found = plan(chain(16, 8, 8), platform(2), costs=Synthetic(2))
    assert found.status is Status.OPTIMAL
    assert "holds over all whole placements and splits" in found.notes[0]


def test_fixed_nodes_stay_and_the_rest_is_best_around_them() -> None:
    rows = Split(Axis.ROWS, (Piece("gpu", 0, 1), Piece("cpu", 1, 3)))
    graph, board, costs = residual(4), platform(4), Synthetic(4)
    found = plan(graph, board, fixed={"n1": rows}, costs=costs)
    assert found.assignment["n1"] == rows
    assert found.nodes[1].why.endswith("; pinned")
    assert found.status is Status.OPTIMAL
    everything = plan(graph, board, fixed=found.assignment, costs=costs)
    assert everything.objective == found.objective
    with pytest.raises(UsageError, match="fixed assignment: the model has no node n9; its nodes are n0, n1, n2"):
        plan(graph, board, fixed={"n9": rows}, costs=costs)
    with pytest.raises(UsageError, match="node n1: pieces end at 1; rows has 3 units and all must be covered"):
        plan(graph, board, fixed={"n1": Split(Axis.ROWS, (Piece("gpu", 0, 1),))}, costs=costs)


def test_single_devices_are_judged_without_pins_and_other_baselines_with_them() -> None:
    graph, board, costs = residual(4), platform(4, budget=1e9), Synthetic(4)
    free = plan(graph, board, costs=costs)
    everything = {n.name: whole_on("fpga") for n in graph.nodes}
    for pins in ({"n1": whole_on("fpga")}, everything):
        found = plan(graph, board, replace(PROOF, thrift=0.05), fixed=pins, costs=costs)
        assert found.pinned == len(pins)
        assert {k: found.baselines[k] for k in Kind} == {k: free.baselines[k] for k in Kind}
        assert None not in found.baselines.values()
        assert found.baselines["greedy"] != free.baselines["greedy"]
        assert all(found.assignment[name] == split for name, split in pins.items())
        assert f"of plans with the {len(pins)} pinned of 3 nodes in place" in found.notes[0]
    assert found.baselines["greedy"] == found.baselines["balanced"] == found.objective == free.baselines["fpga"]
    assert free.pinned == 0
    assert free.objective < found.objective, "pins may cost more than any device alone: the plan then says so"


def test_a_device_that_cannot_run_all_is_not_alone_even_if_what_it_cannot_is_pinned_elsewhere() -> None:
    graph, board = chain(2), platform(1, budget=1.0)
    found = plan(graph, board, fixed={"n0": whole_on("cpu")}, costs=Synthetic(1))
    assert found.baselines["fpga"] is None
    assert found.baselines["cpu"] is not None


def test_a_device_that_is_absent_or_too_small_has_no_baseline() -> None:
    two = plan(chain(2), platform(1, (Kind.CPU, Kind.GPU)), costs=Synthetic(1))
    assert two.baselines["fpga"] is None
    assert two.baselines["gpu"] is not None
    small = plan(chain(2), platform(1, budget=1.0), costs=Synthetic(1))
    assert small.baselines["fpga"] is None


def test_the_balanced_baseline_divides_evenly() -> None:
    found = balanced(Problem(chain(2, 6, 4), platform(1, budget=1e9), Synthetic(1)))
    assert found is not None
    assert found["n0"] == Split(Axis.OUTPUT_CHANNELS, (Piece("cpu", 0, 2), Piece("gpu", 2, 4), Piece("fpga", 4, 6)))


def test_the_random_baseline_is_drawn_alike_every_time_within_the_budget() -> None:
    drawn: set[str] = set()
    for seed in range(6):
        problem = Problem(residual(seed), platform(seed, budget=4.0), Synthetic(seed))
        found = chance(problem)
        assert found is not None
        assert found == chance(Problem(residual(seed), platform(seed, budget=4.0), Synthetic(seed)))
        assert evaluate(problem, found).feasible
        best = plan(residual(seed), platform(seed, budget=4.0), costs=Synthetic(seed))
        assert best.baselines["random"] == evaluate(problem, found).objective >= best.objective
        drawn |= {p.device for s in found.values() for p in s.pieces}
    assert len(drawn) > 1


def test_sequential_shares_never_beat_concurrent_ones() -> None:
    for seed in range(5):
        times = [plan(residual(seed), platform(seed), replace(PROOF, mode=m), costs=Synthetic(seed)).objective
                 for m in (Mode.CONCURRENT, Mode.SEQUENTIAL)]
        assert times[0] <= times[1] * (1 + 1e-12)


def test_a_node_nothing_can_run_is_named_with_every_reason() -> None:
    board = platform(1, (Kind.FPGA, Kind.GPU), 0.5)
    board = replace(board, devices=(board.devices[0],), links=())
    with pytest.raises(InfeasibleError, match=r"node n0: no device can run it \(fpga: needs .* alm of 0"):
        plan(chain(2), board, costs=Synthetic(1))


def test_a_node_too_large_for_where_it_is_pinned_is_told_what_it_exceeds_there() -> None:
    board = platform(1, (Kind.FPGA, Kind.GPU), 0.5)
    with pytest.raises(InfeasibleError, match=r"^fpga alm \d+ > 0(, fpga m20k \d+ > 0)? already at n1, which is pinned there; "
                                              "pin it elsewhere, or use a platform with a larger device$"):
        plan(chain(3), board, costs=Synthetic(1), fixed={"n1": whole_on("fpga")})


def test_a_budget_too_small_for_all_nodes_is_named_with_the_amount() -> None:
    board = platform(1, (Kind.FPGA, Kind.GPU), 45.0)
    board = replace(board, devices=(board.devices[0],), links=())
    message = (r"fpga (alm|m20k) \d+ > 45 already at n\d, smallest legal share; "
               r"fpga (alm|m20k): every plan needs at least \d+, 45 allowed, \d+ too much; raise the limit")
    with pytest.raises(InfeasibleError, match=message):
        plan(chain(4), board, costs=Synthetic(1))


def test_unknown_options_are_refused() -> None:
    with pytest.raises(UsageError, match="solver magic: unknown; possible: exact, greedy, balanced, random, single"):
        plan(chain(2), platform(1), replace(PROOF, solver="magic"), costs=Synthetic(1))
    with pytest.raises(UsageError, match="budget lavish: unknown; possible: shared, per_layer"):
        plan(chain(2), platform(1), replace(PROOF, budget="lavish"), costs=Synthetic(1))


def test_every_node_says_why() -> None:
    found = plan(chain(4), platform(1), costs=Synthetic(1))
    assert all(n.why for n in found.nodes)
    assert any(" less in all, but it needs " in n.why and " left" in n.why for n in found.nodes), [n.why for n in found.nodes]
    alone = plan(chain(1), platform(1, (Kind.CPU, Kind.FPGA)), costs=Synthetic(1, refuse=1.0))
    assert alone.nodes[0].why.endswith("fpga cannot: Conv has no engine")
    assert alone.assignment["n0"] == whole_on("cpu")


def test_the_command_line_names_the_solvers_there_are() -> None:
    assert tuple(SOLVERS) == SOLVER_NAMES


def test_explanations_take_none_of_a_searchs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deadlines were earlier by what explanations may take, so that a plan that was explained could be a worse one."""
    left: list[float] = []

    def search(problem: Problem, known: Known, deadline: float, gap: float = 0.0) -> tuple[Answer, tuple[str, ...]]:
        left.append(deadline - worked())
        return exact(problem, known, deadline, gap)

    monkeypatch.setitem(SOLVERS, "exact", search)
    for explained in (False, True):
        plan(chain(16, 8, 8), platform(2), replace(PROOF, explained=explained), costs=Synthetic(2))
    assert left == [PROOF.time_limit_s] * 2


def test_a_plan_is_never_worse_than_an_earlier_answer_and_a_proven_one_is_not_sought_again(
        monkeypatch: pytest.MonkeyPatch) -> None:
    graph, board, costs, asked = chain(16, 8, 8), platform(2), Synthetic(2), replace(PROOF, explained=False)
    before = plan(graph, board, asked, costs=costs)
    assert before.status is Status.OPTIMAL
    met = list[tuple[Assignment, ...]]()

    def nothing(problem: Problem, *_: object, **given: tuple[Assignment, ...]) -> tuple[Answer, tuple[str, ...]]:
        met.append(given["met"])
        return Answer((single(problem, Kind.CPU) or {},), 0.0), ()

    monkeypatch.setattr("dovetail.partition.solve.exact", nothing)
    unproven = replace(before, status=Status.FEASIBLE, lower_bound=0.9 * before.lower_bound)
    again = plan(graph, board, asked, costs=costs, begun=unproven)
    assert (again.objective, again.lower_bound) == (before.objective, pytest.approx(unproven.lower_bound, rel=1e-9))
    assert met == [(before.assignment,)], "the search begins with it"
    monkeypatch.setattr("dovetail.partition.solve.exact", lambda *_, **__: pytest.fail("it was sought again"))
    again = plan(graph, board, PROOF, costs=costs, begun=before)
    assert (again.objective, again.status) == (before.objective, Status.OPTIMAL)
    assert again.lower_bound == pytest.approx(before.lower_bound, rel=1e-9)
    assert all(node.why for node in again.nodes)
