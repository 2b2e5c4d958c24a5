"""Bounds above plans that they cover are reported as our own mistake, never cut off."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dovetail.cli.program import main
from dovetail.errors import InternalError
from dovetail.ir import Conv, Graph, Window
from dovetail.partition import solve
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.exact import by_device
from dovetail.partition.exact import solver as exact
from dovetail.partition.exact.by_device import Known
from dovetail.partition.exact.elimination import Ranking
from dovetail.partition.options import PROOF
from dovetail.partition.pareto import front
from dovetail.partition.plan import Goal
from dovetail.partition.problem import Problem
from dovetail.partition.proof import SLACK, check_bound, on_grid
from dovetail.partition.solve import plan
from dovetail.platform.load import load_platform
from tests.strategies import Net

MODEL = str(Path(__file__).parents[2] / "examples" / "fashion" / "fashion.onnx")
TOO_HIGH = 1.01


def deep() -> Graph:
    """A layer whose best cut lies between the candidates' positions."""
    net = Net(1)
    return net.graph(net.add(Conv(512, Window((3, 3), pads=(1, 1, 1, 1))), net.input((1, 512, 7, 7)), name="deep"))


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the solver prove one percent more than it can."""
    honest = solve.SOLVERS["exact"]

    def wrong(problem: Problem, known: Known, deadline: float, gap: float) -> tuple[exact.Answer, tuple[str, ...]]:
        answer, notes = honest(problem, known, deadline, gap)
        return replace(answer, lower_bound=answer.lower_bound * TOO_HIGH), notes
    monkeypatch.setitem(solve.SOLVERS, "exact", wrong)


@pytest.mark.parametrize("goal", list(Goal))
@pytest.mark.parametrize("off_grid", [False, True])
def test_a_bound_one_percent_too_high_is_an_internal_error(monkeypatch: pytest.MonkeyPatch, goal: Goal, off_grid: bool) -> None:
    board = load_platform("tx2")
    best = plan(deep(), board, replace(PROOF, goal=goal))
    plant(monkeypatch)
    with pytest.raises(InternalError, match=r"^internal error: solver exact: its lower bound .*; please report this") as told:
        plan(deep(), board, replace(PROOF, goal=goal, off_grid=off_grid))
    bound, found = re.findall(r"(?:bound|of) (\d\S*\d)", str(told.value))
    assert (float(bound), float(found)) == pytest.approx((best.objective * TOO_HIGH, best.objective), rel=1e-6)


def test_the_command_line_shows_it_as_an_internal_error_to_report(monkeypatch: pytest.MonkeyPatch,
                                                                  capsys: pytest.CaptureFixture[str]) -> None:
    plant(monkeypatch)
    assert main(["plan", MODEL, "-p", "tx2"]) == InternalError.exit_code == 3
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("dovetail: internal error: solver exact: its lower bound ")
    assert told.endswith("please report this, with the command and its input")


def test_a_wrong_relaxation_is_seen_before_the_search_cuts_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = by_device.rank

    def wrong(*given: object) -> Ranking:
        ranking = honest(*given)  # type: ignore[arg-type]
        return Ranking([b * 50 for b in ranking.bounds], ranking.prices)
    monkeypatch.setattr(by_device, "rank", wrong)
    with pytest.raises(InternalError, match="the relaxation that ranks candidates: its lower bound"):
        plan(deep(), load_platform("tx2"))


def test_a_wrong_bound_of_prices_is_seen_before_the_search_cuts_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = exact.price_limits

    def wrong(*given: object) -> exact.Priced:
        priced = honest(*given)  # type: ignore[arg-type]
        return replace(priced, bound=priced.bound * TOO_HIGH)
    monkeypatch.setattr(exact, "price_limits", wrong)
    with pytest.raises(InternalError, match="prices on limits: its lower bound"):
        plan(deep(), load_platform("tx2"))


def test_a_wrong_bound_of_a_front_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(problem: Problem, known: Known, limit: float, tolerance: float) -> tuple[exact.Answer, tuple[str, ...]]:
        answer, notes = solve.exact(problem, known, limit, tolerance)
        return replace(answer, lower_bound=answer.lower_bound * TOO_HIGH), notes
    monkeypatch.setattr("dovetail.partition.pareto.exact", wrong)
    with pytest.raises(InternalError, match="a point of the front: its lower bound"):
        front(deep(), load_platform("tx2"), count=2)


def test_plans_cut_between_the_candidates_are_held_against_no_bound() -> None:
    graph, board = deep(), load_platform("tx2")
    on, off = plan(graph, board), plan(graph, board, replace(PROOF, off_grid=True))
    problem = Problem(graph, board, DeviceCosts())
    assert on_grid(problem, on.assignment)
    assert not on_grid(problem, off.assignment)
    assert off.objective < off.candidate_bound, "better than every candidate, which is no contradiction"
    assert off.lower_bound == off.objective


def test_rounding_is_no_internal_error() -> None:
    check_bound("here", 1 + SLACK / 2, 1.0)
    with pytest.raises(InternalError):
        check_bound("here", 1 + 2 * SLACK, 1.0)
