"""The paper's method: what it stops at, and how far that is from the best."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail import zoo
from dovetail.ir import Axis
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import evaluate
from dovetail.partition.geometric.paper import (
    Division,
    Exchange,
    PaperLayer,
    PaperProblem,
    Tightening,
    TighteningSchedule,
    communication_weight,
    gp_paper,
    paper_problem,
    solve_paper,
    step_norm,
    tighten,
)
from dovetail.partition.geometric.posynomials import divisible
from dovetail.partition.geometric.rounding import whole_units
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal, Mode, Piece
from dovetail.partition.problem import Problem, price
from dovetail.partition.solve import plan
from dovetail.pipeline import graph_to_plan
from dovetail.platform.device import Kind, ModelSet
from dovetail.platform.load import load_platform
from tests.partition.enumeration import Enumeration
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


RESOURCES = ("alm", "alut", "lab", "m20k", "dsp")
"""Of Eq. 4, 7 and 10, and multipliers."""


def limited(scarce: str | None, layers: int = 2, shared: bool = True) -> PaperProblem:
    """Layers that want the FPGA, all of whose resources are ample but one."""
    area = {("fpga", r): ((0.9 if r == scarce else 0.01, 1.0),) for r in RESOURCES}
    found = tuple(replace(layer(str(i)), resources=area) for i in range(layers))
    return PaperProblem(found, kappa=None, shared_budget=shared)


@pytest.mark.parametrize("resource", RESOURCES)
def test_each_resource_of_the_shared_budget_binds_where_it_is_scarce(resource: str) -> None:
    free, tight = (tighten(limited(scarce)) for scarce in (None, resource))
    used = sum(0.9 * shares[0] for shares in tight.answer.shares)
    assert used == pytest.approx(1.0, abs=1e-3)
    assert sum(s[0] for s in tight.answer.shares) < sum(s[0] for s in free.answer.shares) - 0.1
    assert all(tight.met)


def test_the_same_layers_with_an_fpga_each_are_not_bound() -> None:
    apart, free = tighten(limited("lab", shared=False)), tighten(limited(None))
    assert apart.answer.shares[0][0] == pytest.approx(free.answer.shares[0][0], abs=1e-3)


def test_a_program_with_links_and_limits_has_the_least_penalised_cost_of_all_divisions() -> None:
    first = replace(layer("a"), resources={("fpga", "alm"): ((1.2, 1.0),)})
    links = (Exchange("fpga", "gpu", 3.0, 90.0, own=True), Exchange("gpu", "fpga", 1.0, 40.0))
    second = replace(layer("b", 20.0), resources={("fpga", "alm"): ((0.6, 0.5),)}, exchanges=links, after=0)
    found = tighten(PaperProblem((first, second), kappa=None), step=400.0).steps[0]
    grid = np.linspace(1 / CHANNELS, 1.0, 61)
    f1, g1, f2, g2 = np.meshgrid(*[grid] * 4, indexing="ij", sparse=True)
    cost = CHANNELS * (FPGA_US * f1 + GPU_US * g1 + 20.0 * f2 + GPU_US * g2) + 4.0 + 90.0 * f1 * g2 + 40.0 * g1
    penalty = 400.0 / (2 * np.sqrt(f1 * g1)) + 400.0 / (2 * np.sqrt(f2 * g2))
    legal = (1.2 * f1 + 0.6 * np.sqrt(f2) <= 1) & (f1 + g1 <= 1) & (f2 + g2 <= 1)
    best = float(np.where(legal, cost + penalty, np.inf).min())
    (a, b), (c, d) = found.shares
    ours = found.cost + 400.0 / (2 * np.sqrt(a * b)) + 400.0 / (2 * np.sqrt(c * d))
    assert ours <= best * (1 + 1e-6), "a grid holds no better division than the program's"
    assert ours >= best * (1 - 0.01), "nor a much worse one"


@pytest.mark.parametrize("division", Division)
@pytest.mark.parametrize("seed", range(3))
def test_every_division_gives_legal_plans_no_better_than_brute_force(division: Division, seed: int) -> None:
    board = platform(seed, (Kind.CPU, Kind.FPGA), budget=30.0)
    problem = Problem(chain(2, 4, size=4), board, Synthetic(seed), mode=Mode.SEQUENTIAL)
    _, assignment = solve_paper(problem, division=division)
    assert assignment is not None
    judged = evaluate(problem, assignment)
    assert judged.feasible, judged.violations
    assert judged.objective >= Enumeration(problem).best * (1 - 1e-9), "all cuts of four units are candidates"


def test_input_channels_are_added_by_a_device_without_a_budget() -> None:
    problem = Problem(chain(2, 8), platform(1, budget=1e9), Synthetic(1))
    _, assignment = solve_paper(problem, division=Division.INPUT_CHANNELS)
    assert assignment is not None
    divided = [s for s in assignment.values() if s.axis is not None]
    assert divided
    assert all(s.axis is Axis.INPUT_CHANNELS and s.reducer in ("cpu", "gpu") for s in divided)


def test_tiles_divide_rows() -> None:
    problem = Problem(chain(2, 8, size=16), platform(1, budget=1e9), Synthetic(1))
    _, assignment = solve_paper(problem, division=Division.TILES)
    assert assignment is not None
    assert {s.axis for s in assignment.values()} - {None} == {Axis.ROWS}


def test_all_three_links_of_equation_9_move_what_the_layer_before_made() -> None:
    problem = Problem(chain(2, 8), platform(2, budget=1e9), Synthetic(2))
    parts = tuple(p for n in problem.graph.nodes if (p := divisible(problem, n)) is not None)
    first, second = paper_problem(problem, parts, constant_power=False).layers
    assert not first.exchanges
    assert all(first.transfer[d] for d in ("gpu", "fpga"))
    assert not first.transfer["cpu"], "frames begin on the host"
    assert {frozenset((x.source, x.target)) for x in second.exchanges} == {
        frozenset(p) for p in (("cpu", "gpu"), ("cpu", "fpga"), ("gpu", "fpga"))}
    size = problem.graph.tensors["t0"].transfer_bytes
    for x in second.exchanges:
        assert x.first + x.whole == pytest.approx(problem.transfer_one(x.source, x.target, size)[0])


def test_the_authors_models_limit_aluts_and_labs_too(tmp_path: Path) -> None:
    board = load_platform("tx2-c10gx").with_models(ModelSet.PUBLISHED)
    path = tmp_path / "m.onnx"
    path.write_bytes(zoo.build("alexnet", size=64, width=0.25))
    problem = Problem(graph_to_plan(path)[0], board, DeviceCosts(), mode=Mode.SEQUENTIAL)
    limits = {r: limit for d, r, limit in problem.budgets if d == "fpga"}
    assert (limits["alut"], limits["lab"]) == (2 * limits["alm"], limits["alm"] / 10)
    node = problem.graph.nodes[0]
    few, more = (dict(price(problem, node, Axis.OUTPUT_CHANNELS, Piece("fpga", 0, n)).resources) for n in (1, 4))
    assert all(0 < few[r] < more[r] for r in ("alm", "alut", "lab", "m20k"))
    assert few["alut"] / limits["alut"] != few["alm"] / limits["alm"], "a limit of its own"
    assert not {"alut", "lab"} & {r for _, r, _ in Problem(problem.graph, load_platform("tx2-c10gx"), DeviceCosts()).budgets}
