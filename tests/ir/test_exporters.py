"""The handwriting of exporters, in small: each style becomes the few typed operators it means, with ONNX Runtime's results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.ir import Gemm, Graph, Opaque
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_float
from tests.ir.test_foreign import weights

node = helper.make_node
Batch = int | str


def constant(name: str, *numbers: float, kind: Any = np.int64) -> Any:
    """A Constant node, as most exporters write numbers."""
    array = np.asarray(numbers[0] if len(numbers) == 1 and kind is np.float32 else numbers, dtype=kind)
    return node("Constant", [], [name], f"{name}_constant", value=numpy_helper.from_array(array))


def read(path: Path, nodes: list[Any], shape: list[Batch], output: list[Batch], stored: dict[str, np.ndarray],
         opset: int) -> Graph:
    """Import the model and compare it with ONNX Runtime on a frame."""
    graph = helper.make_graph(nodes, "net", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
                              [numpy_helper.from_array(a, n) for n, a in stored.items()])
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8).SerializeToString())
    found = read_onnx(path).graph
    x = np.random.default_rng(1).standard_normal(found.shape("x")).astype(np.float32)
    np.testing.assert_allclose(run_float(found, {"x": x})["y"], run_onnx(path.read_bytes(), {"x": x})["y"], rtol=1e-4, atol=1e-5)
    return found


def kinds(graph: Graph) -> list[str]:
    assert not any(isinstance(n.op, Opaque) for n in graph.nodes)
    return [n.op.kind for n in graph.nodes]


def test_legacy_pytorch_flattens_by_shape_arithmetic(tmp_path: Path) -> None:
    """`x.view(x.size(0), -1)` over a symbolic batch, and adaptive pooling as GlobalAveragePool."""
    nodes = [
        node("Conv", ["x", "w"], ["/conv/Conv_output_0"], "/conv/Conv", dilations=[1, 1], group=1, kernel_shape=[3, 3],
             pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["/conv/Conv_output_0"], ["a"], "/relu/Relu"),
        node("GlobalAveragePool", ["a"], ["p"], "/pool/GlobalAveragePool"),
        node("Shape", ["p"], ["s"], "/Shape"), constant("zero", 0), node("Gather", ["s", "zero"], ["n"], "/Gather", axis=0),
        constant("rest", -1), node("Concat", ["n", "rest"], ["t"], "/Concat", axis=0),
        node("Reshape", ["p", "t"], ["f"], "/Reshape", allowzero=0),
        node("Gemm", ["f", "v", "b"], ["y"], "/fc/Gemm", alpha=1.0, beta=1.0, transB=1)]
    stored = {"w": weights(4, 3, 3, 3), "v": weights(5, 4), "b": weights(5, 1)[:, 0]}
    graph = read(tmp_path / "m.onnx", nodes, ["batch", 3, 8, 8], ["batch", 5], stored, 17)
    assert kinds(graph) == ["Conv", "GlobalAvgPool", "Reshape", "Gemm"]


def test_dynamo_pytorch_means_over_axes_and_reshapes_with_constants(tmp_path: Path) -> None:
    """Opset 18 and later: axes are inputs, BatchNorm is folded, the symbolic batch goes through Shape with start and end."""
    nodes = [
        node("Conv", ["x", "w", "b"], ["conv2d"], "node_conv2d", auto_pad="NOTSET", dilations=[1, 1], group=1, pads=[1, 1, 1, 1],
             strides=[1, 1]),
        node("Clip", ["conv2d", "low", "high"], ["hardtanh"], "node_hardtanh"),
        node("ReduceMean", ["hardtanh", "axes"], ["mean"], "node_mean", keepdims=1, noop_with_empty_axes=0),
        node("Shape", ["x"], ["size"], "node_Shape", start=0, end=1),
        node("Concat", ["size", "width"], ["target"], "node_Concat", axis=0),
        node("Reshape", ["mean", "target"], ["view"], "node_view", allowzero=1),
        node("Gemm", ["view", "v"], ["y"], "node_linear", transB=1)]
    stored = {"w": weights(4, 3, 3, 3), "b": weights(4, 1)[:, 0], "v": weights(5, 4), "axes": np.asarray([-1, -2]),
              "width": np.asarray([4]), "low": np.asarray(0, np.float32), "high": np.asarray(6, np.float32)}
    graph = read(tmp_path / "m.onnx", nodes, ["s77", 3, 6, 6], ["s77", 5], stored, 20)
    assert kinds(graph) == ["Conv", "GlobalAvgPool", "Reshape", "Gemm"]


def test_tf2onnx_pads_transposes_and_reduces_channels_last(tmp_path: Path) -> None:
    """Keras MobileNets: NHWC input, asymmetric zeros before a strided convolution, ReduceMean, MatMul with BiasAdd."""
    nodes = [
        node("Transpose", ["x"], ["t"], "model/conv__6", perm=[0, 3, 1, 2]),
        node("Pad", ["t", "pads"], ["q"], "model/pad/Pad", mode="constant"),
        node("Conv", ["q", "w"], ["c"], "model/conv", strides=[2, 2], kernel_shape=[3, 3], auto_pad="VALID"),
        node("Mul", ["c", "g"], ["m"], "model/bn/mul"), node("Add", ["m", "o"], ["n"], "model/bn/add"),
        node("Clip", ["n", "low", "high"], ["r"], "model/relu6"),
        node("Transpose", ["r"], ["u"], "model/back", perm=[0, 2, 3, 1]),
        node("ReduceMean", ["u"], ["h"], "model/mean", axes=[1, 2], keepdims=0),
        node("MatMul", ["h", "v"], ["z"], "model/dense/MatMul"), node("Add", ["z", "b"], ["y"], "model/dense/BiasAdd")]
    stored = {"w": weights(4, 3, 3, 3), "g": weights(1, 4, 1, 1), "o": weights(4, 1, 1), "v": weights(4, 5),
              "b": weights(5, 1)[:, 0], "pads": np.asarray([0, 0, 0, 0, 0, 0, 1, 1]),
              "low": np.asarray(0, np.float32), "high": np.asarray(6, np.float32)}
    graph = read(tmp_path / "m.onnx", nodes, ["unk__1", 8, 8, 3], ["unk__1", 5], stored, 13)
    found = kinds(graph)
    assert [k for k in found if k not in ("Reshape", "Transpose")] == ["Conv", "GlobalAvgPool", "Gemm"]
    assert found.count("Transpose") <= 1  # the input itself is channels last


def test_paddle_writes_every_number_as_a_node_and_hard_swish_by_hand(tmp_path: Path) -> None:
    """x * clip(x + 3, 0, 6) / 6 in five nodes; biases are reshaped constants; flattening goes through Shape and Slice."""
    nodes = [
        constant("one", 1, -1, 1, 1), node("Reshape", ["b", "one"], ["b4"], "Reshape.0"),
        node("Conv", ["x", "w"], ["c"], "Conv.0", dilations=[1, 1], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        node("Add", ["c", "b4"], ["a"], "Add.0"),
        constant("three", 3.0, kind=np.float32), node("Add", ["a", "three"], ["a3"], "Add.1"),
        constant("zero", 0.0, kind=np.float32), constant("six", 6.0, kind=np.float32),
        node("Clip", ["a3", "zero", "six"], ["k"], "Clip.0"), node("Mul", ["a", "k"], ["m"], "Mul.0"),
        node("Div", ["m", "six"], ["h"], "Div.0"), node("GlobalAveragePool", ["h"], ["p"], "GlobalAveragePool.0"),
        node("Shape", ["p"], ["s"], "Shape.0"), constant("from", 0), constant("to", 1),
        node("Slice", ["s", "from", "to"], ["n"], "Slice.0"), constant("rest", -1),
        node("Concat", ["n", "rest"], ["t"], "Concat.0", axis=0),
        node("Reshape", ["p", "t"], ["f"], "Reshape.1"), node("MatMul", ["f", "v"], ["y"], "MatMul.0")]
    stored = {"w": weights(4, 3, 3, 3), "b": weights(4, 1)[:, 0], "v": weights(4, 5)}
    graph = read(tmp_path / "m.onnx", nodes, ["DynamicDimension.0", 3, 6, 6], ["DynamicDimension.0", 5], stored, 11)
    assert kinds(graph)[0] == "Conv"
    assert kinds(graph)[-3:] == ["GlobalAvgPool", "Reshape", "Gemm"]


def test_cntk_reshapes_weights_and_adds_biases_one_by_one(tmp_path: Path) -> None:
    """The MNIST model of the ONNX zoo: SAME_UPPER, biases of shape C,1,1, a classifier whose weights are a reshaped block."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], "Convolution28", kernel_shape=[5, 5], strides=[1, 1], auto_pad="SAME_UPPER", group=1,
             dilations=[1, 1]),
        node("Add", ["c", "b"], ["p"], "Plus30"), node("Relu", ["p"], ["r"], "ReLU32"),
        node("MaxPool", ["r"], ["m"], "Pooling66", kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], auto_pad="NOTSET"),
        node("Reshape", ["m", "flat"], ["f"], "Times212_reshape0"), node("Reshape", ["v", "matrix"], ["v2"], "Times212_reshape1"),
        node("MatMul", ["f", "v2"], ["z"], "Times212"), node("Add", ["z", "o"], ["y"], "Plus214")]
    stored = {"w": weights(4, 1, 5, 5), "b": weights(4, 1, 1), "v": weights(4, 4, 4, 10), "o": weights(1, 10),
              "flat": np.asarray([1, 64]), "matrix": np.asarray([64, 10])}
    graph = read(tmp_path / "m.onnx", nodes, [1, 1, 8, 8], [1, 10], stored, 8)
    assert kinds(graph) == ["Conv", "MaxPool", "Reshape", "Gemm"]
    assert isinstance(graph.nodes[-1].op, Gemm)


def test_keras2onnx_casts_shapes_back_and_forth(tmp_path: Path) -> None:
    """Shapes pass through Cast chains on their way to a Reshape."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], "conv", kernel_shape=[1, 1]), node("Shape", ["c"], ["s"], "shape"),
        node("Cast", ["s"], ["sf"], "to_float", to=TensorProto.FLOAT),
        node("Cast", ["sf"], ["si"], "to_int", to=TensorProto.INT64),
        node("Gather", ["si", "first"], ["n"], "batch", axis=0), node("Cast", ["n"], ["n32"], "narrow", to=TensorProto.INT32),
        node("Cast", ["n32"], ["n64"], "wide", to=TensorProto.INT64), node("Concat", ["n64", "rest"], ["t"], "target", axis=0),
        node("Reshape", ["c", "t"], ["f"], "flatten"), node("Gemm", ["f", "v"], ["y"], "dense")]
    stored = {"w": weights(2, 3, 1, 1), "v": weights(32, 5), "first": np.asarray([0]), "rest": np.asarray([-1])}
    graph = read(tmp_path / "m.onnx", nodes, ["N", 3, 4, 4], ["N", 5], stored, 12)
    assert kinds(graph) == ["Conv", "Reshape", "Gemm"]


def test_weights_beside_the_model_come_in_as_large_exports_store_them(tmp_path: Path) -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], "conv")]
    graph = read(tmp_path / "m.onnx", nodes, [1, 3, 4, 4], [1, 4, 2, 2], {"w": weights(4, 3, 3, 3)}, 18)
    model = onnx.load(tmp_path / "m.onnx")
    onnx.save_model(model, tmp_path / "large.onnx", save_as_external_data=True, location="large.onnx.data", size_threshold=0)
    assert read_onnx(tmp_path / "large.onnx").graph == graph
