"""Plans survive JSON to the last bit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from dovetail.errors import BuildError
from dovetail.partition.evaluate import evaluate
from dovetail.partition.options import PROOF
from dovetail.partition.plan import CANDIDATES, Goal, Mode
from dovetail.partition.plan_json import plan_from_json, plan_to_json
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from tests.partition.worlds import Synthetic, platform, residual

pytestmark = pytest.mark.quick

KEYS = {"schema", "model", "platform", "goal", "mode", "solver", "status", "objective", "best_objective", "lower_bound", "gap",
        "beyond", "candidate_bound", "bound_covers", "latency_s", "energy_j", "makespan_s", "interval_s", "busy_s", "baselines",
        "clocks", "objective_low", "objective_high", "confidence", "intervals", "limited_by", "space",
        "pinned", "assignment", "resources", "nodes", "notes"}


@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("mode", Mode)
def test_a_plan_read_back_is_equal_and_evaluates_to_the_same_number(goal: Goal, mode: Mode) -> None:
    graph, board, costs = residual(3), platform(3), Synthetic(3)
    made = plan(graph, board, replace(PROOF, goal=goal, mode=mode), costs=costs)
    text = json.dumps(plan_to_json(made))
    back = plan_from_json(json.loads(text))
    assert back == made
    assert json.dumps(plan_to_json(back)) == text
    assert evaluate(Problem(graph, board, costs, goal, mode), back.assignment).objective == made.objective


def test_the_contract_of_scripts_is_kept() -> None:
    made = plan_to_json(plan(residual(5), platform(5), costs=Synthetic(5)))
    assert set(made) == KEYS
    assert set(made["baselines"]) == {"cpu", "gpu", "fpga", "greedy", "balanced", "random"}
    for entry in made["assignment"].values():
        assert set(entry) == {"axis", "shares", "reducer"}
        assert all(set(s) == {"device", "start", "stop"} for s in entry["shares"])
    assert set(made["resources"]["fpga"]["alm"]) == {"used", "limit"}
    assert made["objective_low"] < made["objective"] < made["objective_high"]
    assert made["confidence"] == 0.9
    assert set(made["intervals"]) == {"latency_s", "energy_j", "interval_s"}
    assert set(made["limited_by"]) == {"kind", "name", "share", "objective_then", "one_step_up"}
    assert made["gap"] <= 1e-9
    assert made["candidate_bound"] == made["lower_bound"]
    assert made["bound_covers"] == CANDIDATES


def test_a_plan_of_an_older_version_is_read_without_intervals() -> None:
    made = plan_to_json(plan(residual(5), platform(5), costs=Synthetic(5)))
    new = ("objective_low", "objective_high", "confidence", "intervals", "limited_by")
    back = plan_from_json({key: value for key, value in made.items() if key not in new})
    assert (back.intervals, back.limited_by) == ({}, None)
    with pytest.raises(BuildError, match=r"plan: field limited_by\.share is 'much'; a number is needed"):
        plan_from_json({**made, "limited_by": {**made["limited_by"], "share": "much"}})


def test_planning_twice_gives_the_same_text() -> None:
    texts = {json.dumps(plan_to_json(plan(residual(7), platform(7), replace(PROOF, goal=Goal.EDP),
                                          costs=Synthetic(7)))) for _ in range(2)}
    assert len(texts) == 1


def test_another_schema_and_a_broken_file_are_refused_by_name() -> None:
    with pytest.raises(BuildError, match="plan: schema 2 found; this version reads schema 1, make the plan again"):
        plan_from_json({"schema": 2})
    with pytest.raises(BuildError, match="plan: field model is missing; the file is incomplete or edited, make the plan again"):
        plan_from_json({"schema": 1})
