"""What a plan weighs by default: never worse than any switch, with a bound over all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from dovetail.cost.folded import pace_of
from dovetail.errors import InfeasibleError, UnsupportedError
from dovetail.forms import PlanQuestion
from dovetail.ir import Conv, Graph, Select, Window
from dovetail.partition.accelerator.search import SearchLimits
from dovetail.partition.options import AUTO, DIRECT
from dovetail.partition.plan import CANDIDATES, Goal, Plan, Status, whole_on
from dovetail.partition.plan_json import plan_from_json, plan_to_json
from dovetail.partition.solve import GOOD
from dovetail.planning import Options, decide, make_plan
from dovetail.platform.accelerator import Architecture
from dovetail.platform.device import Kind, Platform
from dovetail.platform.load import load_platform
from dovetail.progress import silent
from dovetail.space import accelerator, apart, planned, weigh
from tests.strategies import Net

pytestmark = pytest.mark.slow("weighs accelerators")

SWITCHES: tuple[Mapping[str, Any], ...] = ({"fold": DIRECT}, {"fold": AUTO}, {"fold": 4096}, {"architecture": "sesl"},
                                           {"architecture": "seml"}, {"architecture": "auto"})


def layers(*channels: int) -> Graph:
    """Convolutions one after another over 16 x 16 pixels."""
    net = Net(3)
    x = net.input((1, 4, 16, 16))
    for i, count in enumerate(channels):
        x = net.add(Conv(count, Window((3, 3), pads=(1, 1, 1, 1))), x, name=f"layer{i}")
    return net.graph(x)


def small(part: float) -> Platform:
    """A board with a part of its FPGA."""
    board = load_platform("zcu102")
    return replace(board, devices=tuple(
        replace(d, resources={r: part * v for r, v in d.resources.items()}) if d.kind is Kind.FPGA else d for d in board.devices))


def asked(graph: Graph, board: Platform, options: Options) -> PlanQuestion:
    def solve(where: Platform, pins: Mapping[str, Any], ceiling: float) -> Plan:
        return make_plan(graph, where, replace(options, explained=False), pins)[0]
    return PlanQuestion(graph, board, options, options.pinned(graph), solve, silent)


@pytest.mark.parametrize(("goal", "part"), [(Goal.LATENCY, 1.0), (Goal.THROUGHPUT, 0.02), (Goal.ENERGY, 0.02)])
def test_the_default_is_never_worse_than_a_switch_and_its_bound_never_above(goal: Goal, part: float) -> None:
    graph, board = layers(8, 16, 16), small(part)
    options = Options(goal=goal, thrift=0.0, explained=False)
    best, _, made = decide(graph, board, options)
    assert best.lower_bound <= best.objective
    assert 2 <= len(best.space) <= 6, best.space
    assert best.bound_covers.startswith(f"{CANDIDATES} of direct mapping, folded engines at ")
    assert all(form in best.bound_covers for form in best.space)
    assert plan_from_json(plan_to_json(best, made)).space == best.space
    for switch in SWITCHES:
        try:
            other, _, _ = decide(graph, board, replace(options, **switch))
        except UnsupportedError:
            continue
        assert best.objective <= other.objective * (1 + GOOD), switch
        assert best.lower_bound <= other.objective
        assert set(other.space) - set(best.space) <= {s for s in other.space if "of kind" in s or "at most" in s}


def test_a_form_that_may_be_better_keeps_a_plan_from_being_called_optimal() -> None:
    graph, board = layers(8, 16), small(1.0)
    space = weigh(asked(graph, board, Options(thrift=0.0)))
    best, plans = space.forms[space.best], space.plans
    plan = plans[space.best]
    assert plan is not None
    assert plan.objective == min(p.objective for p in plans if p is not None)
    found = space.within(plan)
    bounds = [form.bound(p) for form, p in zip(space.forms, plans, strict=True) if p is not None]
    assert found.lower_bound == min(bounds)
    assert (found.status is Status.OPTIMAL) == (plan.status is Status.OPTIMAL and min(bounds) >= plan.lower_bound)
    assert best.bound(plan) <= plan.lower_bound


def test_paces_that_are_passed_over_have_no_better_plan() -> None:
    graph, board = layers(8, 16), small(0.02)
    for goal in (Goal.LATENCY, Goal.THROUGHPUT):
        space = weigh(asked(graph, board, Options(goal=goal, thrift=0.0, fold=AUTO)))
        passed = [form.platform for form, plan in zip(space.forms, space.plans, strict=True) if plan is None]
        assert passed
        best = min(plan.objective for plan in space.plans if plan is not None)
        for where in passed:
            assert all(pace_of(d) for d in where.of_kind(Kind.FPGA))
            assert make_plan(graph, where, Options(goal=goal, thrift=0.0, explained=False))[0].objective >= best * (1 - 1e-9)


def test_the_form_of_the_best_first_plan_is_searched_first_and_others_below_what_is_reached() -> None:
    graph, board, searched = layers(8), small(1.0), list[tuple[int, float]]()

    def pace(where: Platform) -> int:
        return pace_of(where.of_kind(Kind.FPGA)[0]) or 0

    def solve(where: Platform, pins: Mapping[str, Any], ceiling: float) -> Plan:
        searched.append((pace(where), ceiling))
        return replace(plan, objective=promises.get(pace(where), 3.0) - 0.5)

    plan, promises = make_plan(graph, board, Options(explained=False))[0], {4096: 1.0, 0: 2.0}
    options = Options(goal=Goal.ENERGY, thrift=0.0, fold=AUTO)
    space = weigh(PlanQuestion(graph, board, options, {}, solve, silent, lambda where, _: promises.get(pace(where), 3.0)))
    assert searched[:2] == [(4096, 1.0), (0, 0.5)]
    assert all(reached == 0.5 for _, reached in searched[1:])
    assert space.paces[0] is None
    assert space.paces[space.best] == 4096


def test_an_accelerator_that_a_plan_waits_for_is_sought_again_as_fast_as_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    question = asked(layers(8), small(0.02), Options(goal=Goal.THROUGHPUT, thrift=0.0))
    _, form, plan = planned(question, Architecture.AUTO, inf)
    assert plan is not None
    floors = [1e6]
    monkeypatch.setattr("dovetail.space._outside", lambda *_: floors.pop())
    _, again, other = planned(question, Architecture.AUTO, inf)
    assert not floors, "a slow one was taken first"
    assert other is not None
    assert (other.objective, again.bound(other)) == (plan.objective, form.bound(plan))


def test_what_was_decided_before_is_not_weighed_again() -> None:
    graph, board = layers(8), small(1.0)
    for where in (board.with_pace(4096), load_platform("tx2")):
        plan, _, made = decide(graph, where, Options(explained=False))
        assert plan.space == ()
        assert made.of_kind(Kind.FPGA) == where.of_kind(Kind.FPGA)


def test_an_accelerator_never_takes_a_node_that_is_placed_elsewhere() -> None:
    graph, board = layers(8, 16), small(1.0)
    pins = {"layer0": whole_on("cpu")}
    with pytest.raises(UnsupportedError, match="node layer0: placed on cpu, which an accelerator for other nodes does not allow"):
        decide(graph, board, Options(pins=pins, architecture="sesl"))
    plan, _, _ = decide(graph, board, Options(pins=pins, explained=False))
    assert plan.assignment["layer0"].devices == ("cpu",)
    assert plan.pinned == 1
    assert any(note.startswith("accelerators: none is weighed; node layer0: placed on cpu") for note in plan.notes)


def test_kinds_that_take_other_layers_by_themselves_are_weighed_by_themselves() -> None:
    net = Net(3)
    x = net.add(Conv(8, Window((3, 3), pads=(1, 1, 1, 1))), net.input((1, 4, 8, 8)), name="first")
    x = net.add(Select(tuple(reversed(range(8)))), x, name="reversed")  # arrays move no channels
    for i in range(2):
        x = net.add(Conv(8, Window((3, 3), pads=(1, 1, 1, 1))), x, name=f"layer{i}")
    board = small(1.0)
    question = asked(net.graph(x), board, Options())
    assert apart(question, None) == [Architecture.SEML, Architecture.MONOLITHIC]
    assert apart(asked(layers(8, 8), board, Options()), None) == []


def test_what_nodes_outside_take_lowers_how_long_an_accelerator_may(monkeypatch: pytest.MonkeyPatch) -> None:
    ceilings, board = list[float](), small(0.02)

    def sought(*given: Any) -> Any:
        ceilings.append(next(v for v in given if isinstance(v, SearchLimits)).ceiling)
        raise InfeasibleError("none is wanted")

    monkeypatch.setattr("dovetail.space.best_charged", sought)
    monkeypatch.setattr("dovetail.space._outside", lambda *_: 1000.0)
    for reached, goal in ((1e-3, Goal.LATENCY), (inf, Goal.LATENCY), (1e-3, Goal.ENERGY)):
        with pytest.raises(InfeasibleError):
            accelerator(asked(layers(8), board, Options(goal=goal)), Architecture.SEML, reached)
    assert ceilings == [pytest.approx(1e-3 * 200e6 - 1000), inf, pytest.approx(1e-3)]
