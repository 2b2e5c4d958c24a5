"""Successive geometric programming: legal plans, near the exact ones, and prices of what limits them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail import zoo
from dovetail.cost.estimate import ShareCosts
from dovetail.errors import ToolError
from dovetail.hardware.shares import Ints
from dovetail.ir import Axis, Graph, Node
from dovetail.partition.evaluate import evaluate
from dovetail.partition.geometric import convex as gp_convex
from dovetail.partition.geometric.posynomials import Divisible, divisible, fit
from dovetail.partition.geometric.rounding import fit_budgets, whole_units
from dovetail.partition.geometric.solver import gp
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal, Mode, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.pipeline import graph_to_plan
from dovetail.platform.device import Device
from dovetail.platform.load import load_platform
from tests.partition.priced import FPGA_US, GPU_US, PerUnit, one_layer
from tests.partition.worlds import Synthetic, chain, platform

FOREVER = float("inf")


@dataclass(frozen=True)
class Thrifty(PerUnit):
    """A GPU that is four times as fast as the FPGA and takes forty times the power."""

    unit_us: Mapping[str, float] = field(default_factory=lambda: {"gpu": 10.0, "fpga": 40.0})

    def costs_of(self, graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints,
                 device: Device) -> ShareCosts | None:
        found = PerUnit.costs_of(self, graph, node, axis, starts, stops, device)
        return None if found is None else replace(found, energy_j=found.alone_s * (40.0 if device.name == "gpu" else 1.0))


@given(st.integers(1, 600), st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=4))
def test_whole_units_cover_the_axis_and_stay_within_one_of_the_shares(extent: int, shares: list[float]) -> None:
    units = whole_units(extent, shares)
    assert sum(units) == extent
    assert all(abs(n - extent * s / sum(shares)) < 1 + 1e-6 for n, s in zip(units, shares, strict=True))


def test_a_sum_of_powers_is_fitted_to_the_last_digits() -> None:
    shares = np.array([1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0])
    assert dict((e, c) for c, e in fit(shares, 3.0 + 2.0 * shares)) == pytest.approx({0.0: 3.0, 1.0: 2.0}, rel=1e-6)


def test_in_sequence_all_goes_to_the_cheaper_device() -> None:
    problem = one_layer(PerUnit({"gpu": GPU_US, "fpga": FPGA_US}), Mode.SEQUENTIAL)
    (found,), _ = gp(problem, FOREVER)
    assert found["n0"] == whole_on("fpga")


def test_at_once_devices_share_in_the_ratio_of_their_speeds() -> None:
    problem = one_layer(PerUnit({"gpu": GPU_US, "fpga": FPGA_US}), Mode.CONCURRENT)
    (found,), _ = gp(problem, FOREVER)
    assert {p.device: p.stop - p.start for p in found["n0"].pieces} == {"fpga": 14, "gpu": 2}
    assert evaluate(problem, found).objective == pytest.approx(14 * FPGA_US * 1e-6)


def test_a_full_budget_has_a_price_per_unit() -> None:
    """Half of the filters fit: one more would take its GPU time away and put its FPGA time in."""
    problem = one_layer(PerUnit({"gpu": GPU_US, "fpga": FPGA_US}, area=10.0), Mode.SEQUENTIAL, budget=80.0)
    (found,), notes = gp(problem, FOREVER)
    assert {p.device: p.stop - p.start for p in found["n0"].pieces} == {"fpga": 8, "gpu": 8}
    price = (GPU_US - FPGA_US) / 10
    (note,) = [n for n in notes if n.startswith("gp: one more alm of fpga saves ")]
    assert float(note.split()[-2]) == pytest.approx(price, rel=0.01)


def test_repair_takes_what_does_not_fit_from_the_fpga() -> None:
    problem = one_layer(PerUnit({"gpu": GPU_US, "fpga": FPGA_US}, area=10.0), Mode.SEQUENTIAL, budget=35.0)
    part = divisible(problem, problem.graph.nodes[0])
    assert isinstance(part, Divisible)
    split = fit_budgets(problem, [part], {"n0": whole_on("fpga")})["n0"]
    assert {p.device: p.stop - p.start for p in split.pieces} == {"fpga": 3, "gpu": 13}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("goal", Goal)
@pytest.mark.parametrize("seed", range(2))
def test_plans_are_legal_and_never_better_than_the_bound(seed: int, goal: Goal, mode: Mode) -> None:
    graph, board = chain(4, 8), platform(seed)
    found = plan(graph, board, replace(PROOF, goal=goal, mode=mode, solver="gp"), costs=Synthetic(seed))
    best = plan(graph, board, replace(PROOF, goal=goal, mode=mode), costs=Synthetic(seed))
    assert evaluate(Problem(graph, board, Synthetic(seed), goal, mode), found.assignment).feasible
    assert found.lower_bound <= found.objective
    assert found.objective <= best.objective * 1.25


def test_a_limit_on_latency_is_a_constraint_of_the_program_and_has_a_price() -> None:
    """Energy alone would take the thrifty device; a limit between both divides the layer, and a longer one would save energy."""
    problem = replace(one_layer(Thrifty(), Mode.SEQUENTIAL, goal=Goal.ENERGY), max_latency_s=16 * 25e-6)
    (found,), notes = gp(problem, FOREVER)
    judged = evaluate(problem, found)
    units = {p.device: p.stop - p.start for p in found["n0"].pieces}
    assert judged.feasible
    assert units == {"gpu": 8, "fpga": 8}
    assert any(n.startswith("gp: one more ms of the limit on latency saves ") for n in notes), notes


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_within_a_limit_on_energy_is_legal_and_not_far_from_the_best(seed: int) -> None:
    graph, board, costs = chain(4, 8), platform(seed), Synthetic(seed)
    limit = 1.05 * plan(graph, board, replace(PROOF, goal=Goal.ENERGY), costs=costs).energy_j
    found, best = (plan(graph, board, replace(PROOF, solver=s, max_energy_j=limit), costs=costs) for s in ("gp", "exact"))
    assert found.energy_j <= limit * (1 + 1e-9)
    assert best.objective * (1 - 1e-9) <= found.objective <= best.objective * 1.35


@pytest.mark.parametrize("goal", [Goal.LATENCY, Goal.ENERGY])
def test_a_real_network_comes_near_the_exact_plan(goal: Goal, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(zoo.build("squeezenet1.1", size=64))
    graph, _ = graph_to_plan(path)
    board = load_platform("tx2-c10gx")
    ours, theirs, best = (plan(graph, board, replace(PROOF, goal=goal, solver=s)) for s in ("gp", "gp-paper", "exact"))
    assert ours.objective <= best.objective * 1.03
    assert best.lower_bound <= ours.objective < theirs.objective


def test_without_cvxpy_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> ModuleType:
        raise ImportError(name=name)

    monkeypatch.setattr(gp_convex, "import_module", missing)
    problem = one_layer(PerUnit({"gpu": GPU_US, "fpga": FPGA_US}), Mode.SEQUENTIAL)
    with pytest.raises(ToolError) as error:
        plan(problem.graph, problem.platform, replace(PROOF, solver="gp"), costs=problem.costs)
    assert str(error.value) == ("solvers gp and gp-paper: clarabel is not installed, and geometric programs are solved with it; "
                                "run pip install 'dovetail-accel[gp]'")
