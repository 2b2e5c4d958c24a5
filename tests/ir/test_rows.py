"""One-dimensional networks: images of one row, so that every device takes them; the meaning is ONNX Runtime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from dovetail.ir import AvgPool, Concat, Conv, Gemm, GlobalAvgPool, MaxPool, Reshape
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.pipeline import compile as compile_model
from dovetail.pipeline import verify_build
from tests.ir.test_foreign import weights
from tests.ir.test_onnx import check_same, save
from tests.strategies import quantized

node = helper.make_node


def keywords(path: Path) -> Path:
    """A small keyword spotter: convolutions, BatchNorm, a residual, pooling and a classifier over N,C,L."""
    nodes = [
        node("Conv", ["x", "w1"], ["a"], "stem", pads=[1, 1], strides=[2], kernel_shape=[3]),
        node("BatchNormalization", ["a", "g", "b", "m", "v"], ["n"], "bn"), node("Relu", ["n"], ["r"], "relu"),
        node("Conv", ["r", "w2"], ["d"], "wide", dilations=[2], pads=[2, 2], group=4, kernel_shape=[3]),
        node("Add", ["r", "d"], ["s"], "join"), node("Clip", ["s", "lo", "hi"], ["c"], "relu6"),
        node("MaxPool", ["c"], ["p"], "max", kernel_shape=[2], strides=[2]),
        node("AveragePool", ["c"], ["q"], "mean", kernel_shape=[2], strides=[2]),
        node("Concat", ["p", "q"], ["k"], "side", axis=-2),
        node("ReduceMean", ["k"], ["h"], "global", axes=[-1], keepdims=0), node("Gemm", ["h", "w3"], ["y"], "classes", transB=1),
    ]
    constants = {"w1": weights(4, 2, 3), "w2": weights(4, 1, 3, seed=1), "w3": weights(5, 8, seed=2), "g": weights(4, 1)[:, 0],
                 "b": weights(4, 1, seed=3)[:, 0], "m": weights(4, 1, seed=4)[:, 0], "v": np.ones(4, np.float32),
                 "lo": np.asarray(0, np.float32), "hi": np.asarray(6, np.float32)}
    return save(path, nodes, {"x": [1, 2, 33]}, {"y": [1, 5]}, constants)


def test_a_network_over_time_becomes_images_of_one_row(tmp_path: Path) -> None:
    graph = check_same(keywords(tmp_path / "m.onnx"), weights(1, 2, 33, seed=9))
    assert [type(n.op) for n in graph.nodes[:3]] == [Reshape, Conv, Conv]
    assert {type(n.op) for n in graph.nodes} >= {Conv, MaxPool, AvgPool, Concat, GlobalAvgPool, Gemm}
    assert [n.name for n in graph.nodes if isinstance(n.op, Reshape)] == ["x/row", "global_flatten"]
    assert graph.inputs == ("x",)
    assert graph.shape("x") == (1, 2, 33)


@pytest.mark.verilator
def test_its_quantized_form_survives_export_and_runs_on_its_devices(tmp_path: Path) -> None:
    path = keywords(tmp_path / "m.onnx")
    graph = quantized(read_onnx(path).graph)
    (tmp_path / "q.onnx").write_bytes(to_onnx(graph))
    assert read_onnx(tmp_path / "q.onnx").graph == graph
    assert verify_build(compile_model(path, "tx2-c10gx", tmp_path / "build", verify=False), frames=4).equal


def test_rows_are_given_back_to_those_who_read_them_as_rows(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["a"], "conv"), node("Transpose", ["a"], ["t"], "turn", perm=[0, 2, 1]),
             node("Relu", ["a"], ["y"], "relu")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 9]}, {"t": [1, 7, 3], "y": [1, 3, 7]}, {"w": weights(3, 2, 3)})
    graph = check_same(path, weights(1, 2, 9))
    assert graph.shape("y") == (1, 3, 7)
    assert graph.shape("t") == (1, 7, 3)


@pytest.mark.parametrize("opset", [10, 13])
def test_a_pad_over_time_joins_the_window(tmp_path: Path, opset: int) -> None:
    pads = np.asarray([0, 0, 2, 0, 0, 0])
    pad = node("Pad", ["x", "p"], ["a"], "pad") if opset > 10 else node("Pad", ["x"], ["a"], "pad", pads=pads.tolist())
    nodes = [pad, node("Conv", ["a", "w"], ["y"], "causal")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 9]}, {"y": [1, 3, 9]}, {"w": weights(3, 2, 3), "p": pads}, opset)
    graph = check_same(path, weights(1, 2, 9))
    conv = next(n.op for n in graph.nodes if isinstance(n.op, Conv))
    assert conv.window.pads == (0, 2, 0, 0)


def test_factors_and_slopes_follow_the_channels(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["a"], "conv"), node("Mul", ["a", "f"], ["b"], "factor"),
             node("Add", ["b", "o"], ["y"], "offset")]
    constants = {"w": weights(3, 2, 3), "f": weights(3, 1, seed=1), "o": weights(1, 3, 1, seed=2)}
    graph = check_same(save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 9]}, {"y": [1, 3, 7]}, constants), weights(1, 2, 9))
    assert [n.name for n in graph.nodes] == ["x/row", "conv", "y/back"]


def test_convolution_over_volumes_stays_as_it_is(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], "volume")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 5, 5, 5]}, {"y": [1, 3, 3, 3, 3]}, {"w": weights(3, 2, 3, 3, 3)})
    graph = check_same(path, weights(1, 2, 5, 5, 5))
    assert [n.op.kind for n in graph.nodes] == ["Conv"]
    assert not isinstance(graph.nodes[0].op, Conv)


@pytest.mark.parametrize(("axis", "length"), [(-1, 22), (2, 22), (-2, 11), (1, 11)])
def test_rows_are_joined_along_the_axis_that_is_named(tmp_path: Path, axis: int, length: int) -> None:
    nodes = [node("Conv", ["x", "w"], ["a"], "one", pads=[1, 1]), node("Relu", ["a"], ["r"]),
             node("Conv", ["x", "v"], ["b"], "two", pads=[1, 1]), node("Concat", ["r", "b"], ["c"], "join", axis=axis),
             node("MaxPool", ["c"], ["y"], "max", kernel_shape=[2])]
    channels = 8 if length == 11 else 4
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 11]}, {"y": [1, channels, length - 1]},
                {"w": weights(4, 2, 3), "v": weights(4, 2, 3, seed=1)})
    graph = check_same(path, weights(1, 2, 11, seed=2))
    assert {type(n.op) for n in graph.nodes} == {Reshape, Conv, Concat, MaxPool}
