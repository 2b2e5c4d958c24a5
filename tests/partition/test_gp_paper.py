"""The paper's method: what it stops at, and how far that is from the best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dovetail import zoo
from dovetail.partition.evaluate import evaluate
from dovetail.partition.geometric.paper import (
    PaperLayer,
    PaperProblem,
    Tightening,
    TighteningSchedule,
    communication_weight,
    gp_paper,
    solve_paper,
    step_norm,
    tighten,
)
from dovetail.partition.geometric.rounding import whole_units
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal, Mode
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.pipeline import graph_to_plan
from dovetail.platform.device import ModelSet
from dovetail.platform.load import load_platform
from tests.partition.priced import CHANNELS, FPGA_US, GPU_US, PerUnit, one_layer
from tests.partition.worlds import Synthetic, chain, platform


def layer(name: str = "conv", fpga: float = FPGA_US, area: float = 0.0) -> PaperLayer:
    return PaperLayer(name, CHANNELS, {"fpga": ((fpga * CHANNELS, 1.0),), "gpu": ((GPU_US * CHANNELS, 1.0),)},
                      {"fpga": (), "gpu": ()}, {("fpga", "alm"): ((area, 1.0),)} if area else {})


def test_the_single_layer_example_stops_at_14_and_2_channels_at_iteration_17() -> None:
    found = tighten(PaperProblem((layer(),), kappa=None), step=10.0)
    assert len(found.steps) == 17
    assert found.answer.alphas == (170.0,)
    assert whole_units(CHANNELS, found.answer.shares[0]) == (14, 2)
    assert found.answer.cost == pytest.approx(257, abs=2)
    assert found.met == (True,)


def test_earlier_iterations_of_the_example_leave_channels_undone() -> None:
    sums = [s.tightness(0) for s in tighten(PaperProblem((layer(),), kappa=None), step=10.0).steps]
    assert sums == sorted(sums)
    assert all(s < 0.999 for s in sums[:-1])


def test_the_exact_solver_gives_the_whole_example_to_the_fpga() -> None:
    problem = one_layer(PerUnit({"gpu": GPU_US, "fpga": FPGA_US}), Mode.SEQUENTIAL)
    best = plan(problem.graph, problem.platform, replace(PROOF, mode=Mode.SEQUENTIAL), costs=problem.costs)
    assert best.assignment["n0"].devices == ("fpga",)
    assert best.objective == pytest.approx(16 * FPGA_US * 1e-6)
    theirs = plan(problem.graph, problem.platform, replace(PROOF, mode=Mode.SEQUENTIAL, solver="gp-paper"), costs=problem.costs)
    assert {p.device: p.stop - p.start for p in theirs.assignment["n0"].pieces} == {"fpga": 14, "gpu": 2}
    assert theirs.objective == pytest.approx((14 * FPGA_US + 2 * GPU_US) * 1e-6)


@pytest.mark.parametrize("schedule", TighteningSchedule)
def test_both_schedules_reach_every_sum_within_the_budget(schedule: TighteningSchedule) -> None:
    layers = (layer("a", area=1.0), layer("b", 20.0, area=1.0))
    found = tighten(PaperProblem(layers, kappa=None), schedule)
    assert found.met == (True, True)
    assert sum(shares[0] for shares in found.answer.shares) <= 1 + 1e-6


def test_together_raises_all_weights_at_once_and_one_by_one_only_one() -> None:
    layers = (layer("a"), layer("b", 20.0))
    together, one = (tighten(PaperProblem(layers, kappa=None), s, step=10.0) for s in TighteningSchedule)
    assert together.steps[0].alphas == (10.0, 10.0)
    assert one.steps[0].alphas == (10.0, 0.0)
    assert len(together.steps) < len(one.steps)


def test_the_communication_weight_makes_transfers_nearly_free() -> None:
    assert communication_weight(1.0) == 1.0
    assert communication_weight(61 / 64) == pytest.approx(6.8e-5, rel=0.02)
    assert step_norm(100) == pytest.approx(0.0499, abs=1e-4)


@pytest.mark.parametrize("constant_power", [True, False])
def test_constant_power_makes_energy_the_latency_times_a_number(constant_power: bool) -> None:
    problem = one_layer(PerUnit({"gpu": GPU_US, "fpga": FPGA_US}, power_w=2.0), Mode.SEQUENTIAL, goal=Goal.ENERGY)
    found, _ = solve_paper(problem, constant_power=constant_power)
    assert found is not None
    shares = found.answer.shares[0]
    joules = CHANNELS * (shares[0] * GPU_US + shares[1] * FPGA_US) * 1e-6 * (1.0 if constant_power else 2.0)
    assert found.answer.cost == pytest.approx(joules, rel=1e-3)


def test_the_authors_models_leave_the_fpga_out_where_one_filter_is_too_much(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(zoo.build("resnet18", size=64))
    graph, _ = graph_to_plan(path)
    board = load_platform("tx2-c10gx").with_models(ModelSet.PUBLISHED)
    found = plan(graph, board, replace(PROOF, mode=Mode.SEQUENTIAL, solver="gp-paper", budget="per_layer"))
    assert "fpga" not in found.assignment["layer4.1.conv2"].devices
    assert found.lower_bound <= found.objective


@pytest.mark.parametrize("goal", [Goal.LATENCY, Goal.ENERGY])
def test_both_schedules_and_constant_power_can_be_asked_for(goal: Goal) -> None:
    graph, board, costs = chain(3, 8), platform(2, budget=1e9), Synthetic(2)
    notes = {s: plan(graph, board, replace(PROOF, goal=goal, mode=Mode.SEQUENTIAL, solver=s), costs=costs).notes[-1]
             for s in ("gp-paper", "gp-paper-one-by-one", "gp-paper-constant-power")}
    programs = {s: int(note.split()[1]) for s, note in notes.items()}
    assert programs["gp-paper-one-by-one"] > programs["gp-paper"]
    assert (programs["gp-paper-constant-power"] == programs["gp-paper"]) is (goal is Goal.LATENCY), programs


@pytest.mark.parametrize("seed", range(4))
def test_its_plans_are_legal(seed: int) -> None:
    problem = Problem(chain(4, 8), platform(seed), Synthetic(seed))
    _, assignment = solve_paper(problem)
    assert assignment is not None
    assert evaluate(problem, assignment).feasible


@pytest.mark.parametrize(("failing", "said"), [(1, "geometric programs"), (10**6, "an even division, repaired")])
def test_a_program_without_an_answer_is_asked_again_or_an_even_division_repaired(
        monkeypatch: pytest.MonkeyPatch, failing: int, said: str) -> None:
    asked = list[float | None]()

    def unanswered(problem: PaperProblem, schedule: TighteningSchedule) -> Tightening:
        asked.append(problem.floor)
        return Tightening((), (False,) * len(problem.layers)) if len(asked) <= failing else tighten(problem, schedule)

    monkeypatch.setattr("dovetail.partition.geometric.paper.tighten", unanswered)
    problem = Problem(chain(4, 8), platform(1), Synthetic(1))
    (assignment,), (note,) = gp_paper(problem, 0.0)
    assert evaluate(problem, assignment).feasible
    assert said in note
    assert len(asked) == 2
    assert asked[0] is not None
    assert asked[1] == pytest.approx(asked[0] / 10)
