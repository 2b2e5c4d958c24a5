"""Files made to cost more than they weigh: work is counted before it is done, and refused in one sentence."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from dovetail.errors import ModelError, UsageError
from dovetail.ir.onnx import prepare as onnx_prepare
from dovetail.ir.onnx import read as onnx_read
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics import calibration
from dovetail.numerics.calibration import load_arrays
from tests.ir.test_foreign import weights
from tests.ir.test_onnx import check_same, save

node = helper.make_node


def nested(path: Path, depth: int) -> Path:
    """Constant `If`s inside each other, every level under the same names, the innermost computing something."""
    def graph(*nodes: Any) -> Any:
        return helper.make_graph(nodes, "g", [], [onnx.ValueInfoProto(name="o")])

    other, inner = graph(node("Neg", ["x"], ["o"], "neg")), graph(node("Relu", ["x"], ["o"], "relu"))
    for _ in range(depth):
        inner = graph(node("If", ["yes"], ["o"], "choice", then_branch=inner, else_branch=other))
    return save(path, [node("If", ["yes"], ["y"], "first", then_branch=inner, else_branch=other)], {"x": [1, 2, 3, 3]},
                {"y": [1, 2, 3, 3]}, {"yes": np.asarray(True)})


def test_nested_branches_are_read_once_under_names_that_do_not_double(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[Any] = []
    whole = onnx_read.read_node
    monkeypatch.setattr(onnx_read, "read_node", lambda reader, each: (visited.append(each), whole(reader, each))[1])
    counts, longest = {}, {}
    for depth in (4, 8, 16):
        visited.clear()
        check_same(nested(tmp_path / "m.onnx", depth), weights(1, 2, 3, 3))
        counts[depth] = len(visited)
        longest[depth] = max(len(name) for each in visited for name in each.output)
    assert counts[16] - counts[8] == 2 * (counts[8] - counts[4])
    assert longest[16] - longest[8] <= 2 * (longest[8] - longest[4])


def calling(path: Path, levels: int, times: int, cyclic: bool = False) -> Path:
    """A function that calls another one `times` times, which calls another one, and so on."""
    save(path, [node("f0", ["x"], ["y"], "call", domain="own")], {"x": [1, 2, 3, 3]}, {"y": [1, 2, 3, 3]}, {})
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid("own", 1))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    for level in range(levels):
        last = level == levels - 1
        called, domain = ("Relu", "") if last and not cyclic else ("f0" if last else f"f{level + 1}", "own")
        body = [node(called, [f"v{i}"], [f"v{i + 1}"], domain=domain) for i in range(times)]
        model.functions.append(helper.make_function("own", f"f{level}", ["v0"], [f"v{times}"], body, imports))
    onnx.save(model, path)
    return path


def test_calls_are_counted_before_they_are_inlined(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"10,000,000,000 nodes once its functions are inlined; at most 524,288 are read"):
        read_onnx(calling(tmp_path / "m.onnx", 10, 10))
    assert len(read_onnx(calling(tmp_path / "m.onnx", 2, 3)).graph.nodes) == 1
    with pytest.raises(ModelError, match="function f0 of domain own calls itself"):
        read_onnx(calling(tmp_path / "m.onnx", 1, 1, cyclic=True))


def test_more_nodes_than_are_read_are_refused_by_their_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"]) for i in range(20)]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 3, 3]}, {"v20": [1, 2, 3, 3]}, {})
    monkeypatch.setattr(onnx_prepare, "MAX_NODES", 19)
    with pytest.raises(ModelError, match="20 nodes; at most 19 are read"):
        read_onnx(path)


def test_weights_in_a_pipe_and_a_model_that_is_a_device_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Conv", ["x", "w"], ["y"], "conv")], {"x": [1, 2, 3, 3]}, {"y": [1, 3, 1, 1]},
                {"w": weights(3, 2, 3, 3)})
    model = onnx.load(path)
    outside = TensorProto(name="w", dims=[3, 2, 3, 3], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    outside.external_data.add(key="location", value="pipe")
    model.graph.initializer[0].CopyFrom(outside)
    path.write_bytes(model.SerializeToString())
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelError, match="tensor w: 'pipe' is no regular file"):
        read_onnx(path)
    with pytest.raises(ModelError, match="/dev/zero: is a pipe or a device, not a file"):
        read_onnx("/dev/zero")


def test_samples_are_refused_by_what_they_inflate_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1024, 1024), np.float32))
    monkeypatch.setattr(calibration, "MAX_INFLATED_BYTES", 1 << 20)
    with pytest.raises(UsageError, match=r"x\.npz: inflates to 0\.0 GiB; at most 0\.000976562 GiB of samples are read"):
        load_arrays(tmp_path / "x.npz")


def lines_run(work: Callable[[], object]) -> int:
    """Lines of Python that something runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> object:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_a_chain_costs_in_proportion_to_its_length(tmp_path: Path) -> None:
    """Counted in lines of Python: about 880 for a node more; a search for formulas at every node takes 3,900."""
    counts = []
    for length in (20, 100, 200):  # the first one loads modules
        nodes = [node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}"], "same") for i in range(length)]
        path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 3, 3]}, {f"v{length}": [1, 2, 3, 3]}, {})
        counts.append(lines_run(lambda path=path: read_onnx(path)))
    assert counts[2] - counts[1] <= 100 * 1500
    assert counts[2] <= 2.2 * counts[1]
