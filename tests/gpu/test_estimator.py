"""Estimates follow the specification: every GPU has one, and a slower one takes longer."""

from __future__ import annotations

import pytest

from dovetail.gpu.calls import Call
from dovetail.gpu.estimator import Programs, costs, matching, shared_out, specification, specifications
from dovetail.gpu.lower import lower
from tests.gpu.test_executor import GRAPHS


def calls(gpu: str, kind: str = "float16") -> list[Call]:
    lowered = lower(GRAPHS["inverted"](), kind, specification(gpu))
    return [call for run in lowered.runs if not isinstance(run, Call) for *_, call in lowered.options(run)]


@pytest.mark.parametrize("name", specifications())
def test_every_specification_estimates_every_kernel(name: str) -> None:
    found = calls(name)
    assert {c.kernel for c in found} >= {"conv", "depthwise", "fused"}
    for call in found:
        assert call.estimates_s == tuple(sorted(call.estimates_s))
        assert 0.3e-6 < call.estimates_s[0] < 1e-3


def test_a_smaller_gpu_takes_longer() -> None:
    large = {c.nodes: c.estimates_s[0] for c in calls("h200")}
    small = {c.nodes: c.estimates_s[0] for c in calls("gtx-1660")}
    assert all(small[nodes] > large[nodes] for nodes in large.keys() & small.keys())


def test_gpus_are_found_by_the_names_drivers_give_them() -> None:
    found = matching("NVIDIA RTX A4000 Laptop GPU")
    assert found is specification("rtx-a4000")
    assert matching("NVIDIA H200") is specification("h200")
    assert matching("Some other card") is None


def test_programs_that_do_not_fit_are_said_not_to() -> None:
    gpu = specification("gtx-1660")
    assert shared_out(gpu, 10, 4, 32, gpu.shared_bytes + 1) is None
    whole = shared_out(gpu, 45, 4, 255, gpu.shared_bytes)
    assert whole == Programs(45, 3, 3)


def test_no_cost_is_negative() -> None:
    assert {"conv", "depthwise", "fused", "vector"} <= set(costs())
    assert all(cost >= 0 for each in costs().values() for cost in each.values())
