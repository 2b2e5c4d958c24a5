"""What users ask of plans beyond what a single search answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dovetail.errors import InfeasibleError, UsageError
from dovetail.ir import Conv, Graph, Window
from dovetail.partition.options import PROOF
from dovetail.partition.plan import CANDIDATES, Goal, Status, whole_on
from dovetail.partition.plan_json import plan_from_json, plan_to_json
from dovetail.partition.solve import plan
from dovetail.planning import Options, decide
from dovetail.platform.load import load_platform
from dovetail.report.collect import plan_fields
from dovetail.report.verdict import verdict
from tests.strategies import Net


def deep(names: tuple[str, ...] = ("deep",)) -> Graph:
    """Layers whose best cut lies between the candidates' positions."""
    net = Net(1)
    x = net.input((1, 512, 7, 7))
    for name in names:
        x = net.add(Conv(512, Window((3, 3), pads=(1, 1, 1, 1))), x, name=name)
    return net.graph(x)


def test_limits_that_only_other_cuts_meet_are_met() -> None:
    graph, board = deep(), load_platform("tx2")
    on, off = plan(graph, board), plan(graph, board, replace(PROOF, off_grid=True))
    assert on.beyond == 0.0
    assert off.beyond == pytest.approx(on.latency_s / off.latency_s - 1)
    assert plan_from_json(plan_to_json(off)).beyond == off.beyond
    assert plan_to_json(off)["candidate_bound"] == pytest.approx(on.lower_bound, rel=1e-9)
    assert on.bound_covers == CANDIDATES
    assert plan_to_json(off)["bound_covers"].startswith(f"{CANDIDATES}; cuts of this plan lie between them")
    every = "proven optimal over all whole placements and candidate cuts"
    assert f"{every}, then {100 * off.beyond:.2f} % better by cuts between them; limited by " in verdict(plan_fields(off))
    assert f"{every}; limited by " in verdict(plan_fields(on))
    assert off.latency_s < on.latency_s * 0.99
    limit = (on.latency_s + off.latency_s) / 2
    with pytest.raises(InfeasibleError) as refused:
        plan(graph, board, replace(PROOF, max_latency_s=limit))
    assert refused.value.excess == pytest.approx(on.latency_s / limit - 1)
    fast, _, _ = decide(graph, board, Options(max_latency_s=limit))
    assert fast.latency_s == off.latency_s
    thrifty, _, _ = decide(graph, board, Options(goal=Goal.ENERGY, max_latency_s=limit))
    assert thrifty.latency_s <= limit
    assert thrifty.objective == thrifty.energy_j
    assert thrifty.intervals["objective"] == thrifty.intervals["energy_j"]
    assert thrifty.status is Status.FEASIBLE
    assert thrifty.lower_bound == pytest.approx(plan(graph, board, replace(PROOF, goal=Goal.ENERGY)).lower_bound)
    assert thrifty.pinned == 0
    said = "limits: only plans cut between the candidates' positions meet them; this is the one of least latency"
    assert said in fast.notes
    assert said in thrifty.notes
    with pytest.raises(InfeasibleError, match="latency: every plan within the other limits needs at least"):
        decide(graph, board, Options(max_latency_s=off.latency_s * 0.999))


def test_pins_name_nodes_or_several_at_once() -> None:
    graph, board = deep(("block.a", "block.b", "last")), load_platform("tx2")
    found, _, _ = decide(graph, board, Options(pins={"block.*": whole_on("gpu"), "last": whole_on("cpu")}))
    assert [found.assignment[n].devices for n in ("block.a", "block.b", "last")] == [("gpu",), ("gpu",), ("cpu",)]
    with pytest.raises(UsageError, match=r"pin block\.c: .* has no such node \(did you mean block\.[ab]\?\)"):
        decide(graph, board, Options(pins={"block.c": whole_on("gpu")}))
    with pytest.raises(UsageError, match=r"pin x\*: .* has no such node; `dovetail inspect MODEL` lists them"):
        decide(graph, board, Options(pins={"x*": whole_on("gpu")}))
