"""Plans for whole real topologies: bounded, never worse than the best single device, foreign operators on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from dovetail import zoo
from dovetail.ir import Opaque
from dovetail.pipeline import graph_to_plan
from dovetail.planning import Options, make_plan
from dovetail.platform.load import load_platform

NARROW = {"resnet18": 0.5, "yolov2": 0.25}


@pytest.mark.parametrize("board", ["tx2-c10gx", "ecp5-85"])
@pytest.mark.parametrize("name", ["squeezenet1.1", "mobilenet-v2-0.5", "shufflenet-v2-0.5", "resnet18", "ceit-t", "yolov2"])
def test_a_zoo_network_gets_a_bounded_plan(name: str, board: str, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(zoo.build(name, size=64, width=NARROW.get(name)))
    graph, _ = graph_to_plan(path)
    plan, timeline = make_plan(graph, load_platform(board), Options())
    assert plan.lower_bound <= plan.objective
    assert plan.gap <= 0.15
    singles = [v for kind in ("cpu", "gpu", "fpga") if (v := plan.baselines[kind]) is not None]
    assert plan.objective <= min(singles)
    assert timeline.makespan_s <= plan.objective * (1 + 1e-9)
    for node in graph.nodes:
        if isinstance(node.op, Opaque):
            assert plan.assignment[node.name].devices == ("cpu",)
