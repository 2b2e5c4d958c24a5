"""The intervals of a plan's figures and what limits it, held against evaluations and plans made anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import hypot, sqrt

import pytest

from dovetail.cost.estimate import ShareCosts
from dovetail.hardware.shares import Ints
from dovetail.ir import Axis, Graph, Node
from dovetail.partition.evaluate import evaluate
from dovetail.partition.explain.sensitivity import LARGE, STEP, intervals
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal, Mode, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.platform.device import Device, Kind, Platform
from tests.partition.worlds import Synthetic, platform, residual

pytestmark = pytest.mark.quick


@dataclass(frozen=True)
class Faster(Synthetic):
    """The same world with some devices faster, at the same power."""

    speed: Mapping[str, float] = field(default_factory=dict)

    def costs_of(self, graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints,
                 device: Device) -> ShareCosts | None:
        return self._sped(super().costs_of(graph, node, axis, starts, stops, device), device)

    def reduce_costs(self, graph: Graph, node: Node, parts: int, device: Device) -> ShareCosts | None:
        return self._sped(super().reduce_costs(graph, node, parts, device), device)

    def _sped(self, found: ShareCosts | None, device: Device) -> ShareCosts | None:
        factor = self.speed.get(device.name, 1.0)
        return None if found is None else replace(found, alone_s=found.alone_s / factor, fused_s=found.fused_s / factor,
                                                  energy_j=found.energy_j / factor)


def with_limits(board: Platform, **limits: float) -> Platform:
    return replace(board, devices=tuple(replace(d, resources=limits) if d.kind is Kind.FPGA else d for d in board.devices))


@pytest.mark.parametrize("seed", range(4))
def test_errors_of_one_device_add_up_and_those_of_two_are_independent(seed: int) -> None:
    graph, board = residual(seed), platform(seed)
    problem = Problem(graph, board, Synthetic(seed), mode=Mode.SEQUENTIAL)
    alone = {n.name: whole_on("cpu") for n in graph.nodes}
    judged = evaluate(problem, alone)
    low, high = intervals(problem, alone, judged)["latency_s"]
    assert (low, high) == pytest.approx((0.9 * judged.latency_s, 1.1 * judged.latency_s))
    mixed = {n.name: whole_on(("cpu", "gpu")[i % 2]) for i, n in enumerate(graph.nodes)}
    judged = evaluate(problem, mixed)
    spent = {d: sum(c.compute_s for c in judged.nodes if mixed[c.node].devices == (d,)) for d in ("cpu", "gpu")}
    low, high = intervals(problem, mixed, judged)["latency_s"]
    assert high - judged.latency_s == pytest.approx(0.1 * hypot(*spent.values()))
    assert judged.latency_s - low == pytest.approx(0.1 * hypot(*spent.values()))
    assert high - judged.latency_s > 0.1 * sqrt(sum(c.compute_s**2 for c in judged.nodes)), "layers were taken as independent"


@pytest.mark.parametrize("seed", range(3))
def test_equal_devices_share_one_error(seed: int) -> None:
    graph, board = residual(seed), platform(seed, (Kind.CPU, Kind.GPU))
    cpu = board.device("cpu")
    twins = replace(board, devices=(cpu, replace(board.device("gpu"), model=cpu.model, idle_power_w=cpu.idle_power_w,
                                                 busy_power_w=cpu.busy_power_w)))
    problem = Problem(graph, twins, Synthetic(seed), mode=Mode.SEQUENTIAL)
    mixed = {n.name: whole_on(("cpu", "gpu")[i % 2]) for i, n in enumerate(graph.nodes)}
    judged = evaluate(problem, mixed)
    _, high = intervals(problem, mixed, judged)["latency_s"]
    assert high - judged.latency_s == pytest.approx(0.1 * sum(c.compute_s for c in judged.nodes))


@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("mode", Mode)
def test_every_figure_lies_in_its_interval(goal: Goal, mode: Mode) -> None:
    for seed in range(2):
        made = plan(residual(seed), platform(seed), replace(PROOF, goal=goal, mode=mode), costs=Synthetic(seed))
        assert set(made.intervals) == {"objective", "latency_s", "energy_j", "interval_s"}
        for name, (low, high) in made.intervals.items():
            assert 0 <= low <= getattr(made, name) <= high
        for name in ("latency_s", "energy_j"):  # a link, which has no error, may set the pace of frames
            assert made.intervals[name][0] < getattr(made, name) < made.intervals[name][1]
        same = {Goal.LATENCY: "latency_s", Goal.ENERGY: "energy_j", Goal.THROUGHPUT: "interval_s"}
        if goal in same:
            assert made.intervals["objective"] == made.intervals[same[goal]]
        else:
            assert made.intervals["objective"][1] > made.objective * made.intervals["latency_s"][1] / made.latency_s


@pytest.mark.parametrize("goal", [Goal.LATENCY, Goal.ENERGY, Goal.EDP])
def test_a_faster_device_buys_what_evaluating_with_it_says(goal: Goal) -> None:
    kinds = set()
    for seed in range(5):
        graph, board = residual(seed), platform(seed)
        made = plan(graph, board, replace(PROOF, goal=goal), costs=Synthetic(seed))
        found = made.limited_by
        assert found is not None
        kinds.add(found.kind)
        if found.kind not in ("layer", "device"):
            continue
        busy = next((c.busy_s for c in made.nodes if c.node == found.name), {})
        device = found.name if found.kind == "device" else max(
            made.assignment[found.name].devices, key=lambda d, busy=busy: sum(s for n, s in busy.items() if n.startswith(d)))
        then = evaluate(Problem(graph, board, Faster(seed, speed={device: 1 + STEP}), goal), made.assignment).objective
        assert found.objective_then == pytest.approx(then)
        assert found.one_step_up.startswith(f"a 25 % faster {device} would save ")
        spent = {c.node: c.energy_j if goal is Goal.ENERGY else c.compute_s for c in made.nodes}
        whole = made.energy_j if goal is Goal.ENERGY else made.latency_s
        if found.kind == "layer":
            assert found.share == pytest.approx(max(spent.values()) / whole)
            assert found.share >= LARGE
        else:
            assert max(spent.values()) < LARGE * whole
    assert "layer" in kinds


def test_a_slow_link_is_named_with_what_a_faster_one_buys() -> None:
    graph, board, costs = residual(1), platform(1, (Kind.CPU, Kind.GPU)), Synthetic(1)
    slow = replace(board, links=tuple(replace(link, bandwidth_bytes_per_s=1e4) for link in board.links))
    mixed = {n.name: whole_on(("cpu", "gpu")[i % 2]) for i, n in enumerate(graph.nodes)}
    made = plan(graph, slow, PROOF, mixed, costs)
    assert made.limited_by is not None
    assert (made.limited_by.kind, made.limited_by.name) == ("link", slow.links[0].name)
    faster = replace(slow, links=tuple(replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * (1 + STEP),
                                               latency_s=link.latency_s / (1 + STEP)) for link in slow.links))
    then = evaluate(Problem(graph, faster, costs), mixed).objective
    assert made.limited_by.objective_then == pytest.approx(then)
    waits = sum(c.transfer_s for c in made.nodes) + made.latency_s - sum(c.latency_s for c in made.nodes)
    assert made.limited_by.share == pytest.approx(waits / made.latency_s)


@pytest.mark.parametrize("seed", range(3))
def test_the_busiest_sets_the_pace_and_the_next_ends_what_a_step_buys(seed: int) -> None:
    made = plan(residual(seed), platform(seed), replace(PROOF, goal=Goal.THROUGHPUT), costs=Synthetic(seed))
    found, (first, *others) = made.limited_by, made.busy_s.items()
    assert found is not None
    if found.kind == "resource":
        assert found.objective_then < made.objective
        return
    assert found.name in first[0]
    assert found.kind == ("link" if ":" in first[0] else "layer" if " engine " in first[0] else "device")
    assert made.objective / (1 + STEP) <= found.objective_then <= made.objective
    assert found.objective_then >= max((s for _, s in others), default=0.0)


def test_a_full_budget_is_named_where_more_of_it_buys_most_and_a_plan_with_more_keeps_the_promise() -> None:
    named = 0
    for seed in range(8):
        graph, costs = residual(seed), Faster(seed, speed={"fpga": 20.0})
        board = with_limits(platform(seed), alm=40.0, m20k=1e3)
        made = plan(graph, board, costs=costs)
        found = made.limited_by
        assert found is not None
        if found.kind == "resource":
            named += 1
            device, resource = found.name.split()
            used, limit = made.resources[device][resource]
            assert found.share == used / limit >= 1 / (1 + STEP)
            assert found.objective_then < made.objective
            roomier = with_limits(board, **{**board.device(device).resources, resource: limit * (1 + STEP)})
            assert plan(graph, roomier, costs=costs).objective <= found.objective_then * (1 + 1e-9)
            assert f"25 % more {found.name} would save at least " in found.one_step_up
    assert named == 3


def test_plans_without_explanations_have_none() -> None:
    made = plan(residual(2), platform(2), replace(PROOF, explained=False), costs=Synthetic(2))
    assert made.intervals == {}
    assert made.limited_by is None
