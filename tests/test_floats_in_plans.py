"""What stays in floats is planned as what it is compiled as: plan and compile agree, and both say why a pin cannot be kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from onnx import helper

from dovetail.errors import UnsupportedError
from dovetail.partition.plan import whole_on
from dovetail.pipeline import compile as compile_model
from dovetail.pipeline import graph_to_plan
from dovetail.planning import Options, decide
from dovetail.platform.load import load_platform
from tests.ir.test_foreign import weights
from tests.ir.test_onnx import save

node = helper.make_node
SILU = [node("Sigmoid", ["a"], ["s"], "sigmoid"), node("Mul", ["a", "s"], ["y"], "silu")]
NETWORKS: dict[str, tuple[list[Any], list[int], str]] = {
    "a function": ([node("Sigmoid", ["x"], ["s"], "sigmoid"), node("Mul", ["x", "s"], ["y"], "silu")], [1, 3, 4, 4], "silu"),
    "a movement": ([node("Transpose", ["x"], ["y"], "turn", perm=[0, 2, 3, 1])], [1, 4, 4, 3], "turn"),
    "a function behind a foreign operator": ([node("Conv", ["x", "w"], ["c"], "conv"), node("Softmax", ["c"], ["a"], "softmax"),
                                              *SILU], [1, 3, 4, 4], "silu"),
}


def written(path: Path, name: str) -> Path:
    nodes, shape, _ = NETWORKS[name]
    return save(path, nodes, {"x": [1, 3, 4, 4]}, {"y": shape}, {"w": weights(3, 3, 1, 1)} if "conv" in str(nodes) else {})


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("device", ["gpu", "fpga"])
def test_a_pin_of_what_stays_float_is_refused_by_plan_and_compile_alike(tmp_path: Path, name: str, device: str) -> None:
    path, pinned = written(tmp_path / "m.onnx", name), NETWORKS[name][2]
    options = Options(pins={pinned: whole_on(device)})
    with pytest.raises(UnsupportedError) as planned:
        decide(graph_to_plan(path)[0], load_platform("tx2-c10gx"), options)
    with pytest.raises(UnsupportedError) as compiled:
        compile_model(path, "tx2-c10gx", tmp_path / "build", options=options, verify=False)
    assert f"{device}: {pinned} works on floats: no layer beside it is quantized" in str(planned.value)
    for refused in (planned, compiled):
        assert str(refused.value).startswith(f"node {pinned}: {device} cannot run it")


@pytest.mark.parametrize("name", NETWORKS)
def test_what_stays_float_is_planned_for_the_cpu_as_it_is_compiled(tmp_path: Path, name: str) -> None:
    path, alone = written(tmp_path / "m.onnx", name), NETWORKS[name][2]
    planned, _, _ = decide(graph_to_plan(path)[0], load_platform("tx2-c10gx"), Options())
    compiled = compile_model(path, "tx2-c10gx", tmp_path / "build", verify=False).plan
    for found in (planned, compiled):
        assert found.assignment[alone] == whole_on("cpu")
        (why,) = (n.why for n in found.nodes if n.node == alone)
        assert "fpga cannot: " in why
