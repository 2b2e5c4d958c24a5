"""GPUs that run our kernels: prices from the estimator, fused nodes decided together with their places."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail import cost
from dovetail.errors import PlatformError
from dovetail.ir import Axis, Conv
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import evaluate
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Goal, Mode, Status, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.platform.device import Kind, ModelSet, Platform
from dovetail.platform.load import load_platform, platform_from_dict, platform_to_dict
from tests.kernels.networks import GRAPHS, inverted
from tests.partition.enumeration import Enumeration

BOARD = load_platform("h200")
GPU = BOARD.device("gpu")


def slow_link(board: Platform, host: float) -> Platform:
    """The board with a host that much faster, so that some nodes stay there."""
    devices = tuple(replace(d, parameters={**d.parameters, "launch_s": d.parameters["launch_s"] / host,
                                           "peak_flop_per_s": d.parameters["peak_flop_per_s"] * host})
                    if d.kind is Kind.CPU else d for d in board.devices)
    return replace(board, devices=devices, links=tuple(replace(x, latency_s=x.latency_s / host) for x in board.links))


def test_kernels_cost_what_they_were_measured_to_take_over_their_estimate() -> None:
    graph, slower = inverted(), replace(GPU, parameters={**GPU.parameters, "kernel_factor": 1.25})
    for node in graph.nodes:
        own, more = (cost.costs_of(graph, node, None, np.zeros(1, np.int64), np.ones(1, np.int64), d) for d in (GPU, slower))
        assert own is not None
        assert more is not None
        assert more.alone_s == pytest.approx(1.25 * own.alone_s)
        assert more.fused_s == pytest.approx(1.25 * own.fused_s)


def test_shares_are_priced_as_asked_together_and_partial_sums_have_no_kernel() -> None:
    graph = inverted()
    for node in graph.nodes:
        for axis in node.op.axes(graph.input_shapes(node)):
            stops = np.arange(1, node.op.extent(axis, graph.input_shapes(node)) + 1)
            starts = np.zeros(len(stops), dtype=np.int64)
            one = cost.costs_of(graph, node, axis, starts, stops, GPU)
            (many,), = cost.costs_of_many(graph, [(node, ((axis, starts, stops),))], [GPU])
            assert one is not None
            assert many is not None
            assert np.array_equal(one.alone_s, many.alone_s)
            assert np.array_equal(one.alone_s, one.fused_s)
            assert np.isfinite(one.alone_s).all() == (axis is not Axis.INPUT_CHANNELS)
            assert one.extrapolated.all()
    layer = next(n for n in graph.nodes if isinstance(n.op, Conv))
    assert cost.reductions([graph.shape(layer.output)], 2, GPU) == [None]


def test_a_gpu_without_the_key_or_with_other_models_keeps_its_own_model() -> None:
    graph = inverted()
    for device in (replace(GPU, kernels=None), replace(GPU, models=ModelSet.MEASURED)):
        found = cost.costs_of(graph, graph.nodes[1], None, np.zeros(1, np.int64), np.ones(1, np.int64), device)
        assert found is not None
        assert "our int8 kernels" not in found.source


@pytest.mark.parametrize("name", ["inverted", "classifier", "fire", "sums", "shuffled"])
def test_a_plan_on_the_gpu_costs_its_kernels_and_says_which_nodes_share_one(name: str) -> None:
    graph = GRAPHS[name]()
    problem = Problem(graph, BOARD, DeviceCosts())
    judged = evaluate(problem, {n.name: whole_on("gpu") for n in graph.nodes})
    own = cost.kernels_of(problem.graph, GPU)
    fed = {n.name for n in graph.nodes if set(n.inputs) & set(graph.inputs)}
    wanted = sum(p.alone_s if n in fed else p.behind_s for n, p in own.prices.items())
    assert sum(c.compute_s for c in judged.nodes) == pytest.approx(wanted)
    found = plan(graph, BOARD, fixed={n.name: whole_on("gpu") for n in graph.nodes})
    shared = own.together({n.name for n in graph.nodes})
    assert bool(shared) == any(note.startswith("kernels: ") for note in found.notes)
    for names in shared:
        why = {c.node: c.why for c in found.nodes}
        assert all("in one kernel with" in why[n] for n in names)


@pytest.mark.parametrize("host", [3.0, 30.0, 300.0])
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("goal", [Goal.LATENCY, Goal.ENERGY])
def test_small_networks_with_shared_kernels_are_planned_as_enumeration_would(host: float, mode: Mode, goal: Goal) -> None:
    board, graph = slow_link(BOARD, host), inverted(size=(4, 2))
    found = plan(graph, board, replace(PROOF, goal=goal, mode=mode), costs=Whole())
    problem = Problem(graph, board, Whole(), goal, mode)
    every = Enumeration(problem)
    assert every.legal == 2 ** len(graph.nodes)
    assert found.status is Status.OPTIMAL
    assert found.objective == pytest.approx(every.best, rel=1e-9)
    assert found.objective <= min(b for b in found.baselines.values() if b is not None) * (1 + 1e-9)


class Whole(DeviceCosts):
    """The devices' own prices for whole nodes only, so that all plans can be enumerated."""

    def costs_of(self, graph, node, axis, starts, stops, device):  # type: ignore[no-untyped-def]
        return super().costs_of(graph, node, axis, starts, stops, device) if axis is None else None

    def costs_of_many(self, graph, questions, devices):  # type: ignore[no-untyped-def]
        found = super().costs_of_many(graph, questions, devices)
        for own in found:
            for (_, segments), shares in zip(questions, own, strict=True):
                whole = np.concatenate([np.full(len(starts), axis is None) for axis, starts, _ in segments])
                if shares is not None:
                    for array in (shares.alone_s, shares.fused_s):
                        array[~whole] = np.inf
        return found


def test_boards_name_a_specification_that_exists_and_plans_keep_it() -> None:
    entries = platform_to_dict(BOARD)
    assert platform_from_dict(entries) == BOARD
    entries["device"][1]["kernels"] = "h100"
    with pytest.raises(PlatformError, match="kernels is 'h100'"):
        platform_from_dict(entries)
    entries["device"][1].pop("kernels")
    entries["device"][0]["kernels"] = "h200"
    with pytest.raises(PlatformError, match="key kernels is 'h200'; only a gpu runs them, this is a cpu"):
        platform_from_dict(entries)


