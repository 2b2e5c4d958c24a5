"""Operators nobody models still come in: kept as they are, folded where constant, and whole networks stay exact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dovetail.cost.dhm_reasons import dhm_why_not
from dovetail.ir import Add, Conv, GlobalAvgPool, Opaque, Reshape
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.reference import run_float, run_integer
from dovetail.pipeline import compile as compile_model
from dovetail.pipeline import verify_build
from dovetail.platform.device import Kind
from dovetail.platform.load import load_platform
from dovetail.runtime.build import store
from dovetail.terminal import inspection

LIGHT = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("*.onnx"))


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def save(path: Path, nodes: Sequence[onnx.NodeProto], shape: list[int], output: tuple[str, list[int]],
         constants: dict[str, np.ndarray], opset: int = 17) -> Path:
    graph = helper.make_graph(
        nodes, "mixed", [helper.make_tensor_value_info("image", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output[0], TensorProto.FLOAT, output[1])],
        [numpy_helper.from_array(a, n) for n, a in constants.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Convolutions around HardSwish and squeeze-excite, a transposed Split, and a Softmax tail."""
    make = helper.make_node
    nodes = [
        make("Conv", ["image", "w1"], ["a"], "stem", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        make("HardSwish", ["a"], ["b"], "swish"),
        make("GlobalAveragePool", ["b"], ["p"], "squeeze"),
        make("Conv", ["p", "w2"], ["q"], "excite", kernel_shape=[1, 1]),
        make("Sigmoid", ["q"], ["s"], "gate"),
        make("Mul", ["b", "s"], ["c"], "scale"),
        make("Conv", ["c", "w3"], ["d"], "body", pads=[1, 1, 1, 1], kernel_shape=[3, 3], group=4),
        make("Split", ["d"], ["e", "f"], "halves", axis=1),
        make("Add", ["e", "f"], ["g"], "join"),
        make("Shape", ["g"], ["gs"], "shape"),
        make("Gather", ["gs", "zero"], ["n"], "batch"),
        make("Unsqueeze", ["n", "first"], ["n1"], "batch1"),
        make("Concat", ["n1", "rest"], ["target"], "target", axis=0),
        make("Reshape", ["g", "target"], ["flat"], "flatten"),
        make("Gemm", ["flat", "w4"], ["logits"], "classes", transB=1),
        make("Softmax", ["logits"], ["y"], "softmax", axis=1),
    ]
    constants = {"w1": weights(4, 2, 3, 3), "w2": weights(4, 4, 1, 1), "w3": weights(4, 1, 3, 3), "w4": weights(5, 2 * 36),
                 "zero": np.asarray(0, dtype=np.int64), "first": np.asarray([0], dtype=np.int64),
                 "rest": np.asarray([-1], dtype=np.int64)}
    return save(tmp_path / "mixed.onnx", nodes, [1, 2, 6, 6], ("y", [1, 5]), constants)


def test_foreign_operators_are_kept_and_shape_arithmetic_disappears(mixed: Path) -> None:
    graph = read_onnx(mixed).graph
    kinds = [n.op.kind for n in graph.nodes]
    assert [k for k in kinds if k in ("HardSwish", "Sigmoid", "Mul", "ChannelSlice", "Softmax")] == [
        "HardSwish", "Sigmoid", "Mul", "ChannelSlice", "ChannelSlice", "Softmax"]
    assert not {"Shape", "Gather", "Unsqueeze"} & set(kinds)
    assert {type(n.op) for n in graph.nodes} >= {Conv, Add, GlobalAvgPool, Reshape, Opaque}


def test_the_float_meaning_is_kept(mixed: Path) -> None:
    x = np.random.default_rng(1).random((3, 2, 6, 6), dtype=np.float32)
    expected = np.concatenate([run_onnx(mixed.read_bytes(), {"image": f[None]})["y"] for f in x])
    np.testing.assert_allclose(run_float(read_onnx(mixed).graph, {"image": x})["y"], expected, rtol=1e-4, atol=1e-5)


def test_a_quantized_mixture_survives_export_and_equals_onnx_runtime(mixed: Path, tmp_path: Path) -> None:
    graph = quantize_graph(read_onnx(mixed).graph, synthetic(read_onnx(mixed).graph, 8))
    assert graph.tensors["y"].scheme is None  # a float tail
    assert graph.tensors["b"].scheme is not None  # read by typed and foreign operators
    path = tmp_path / "int8.onnx"
    path.write_bytes(to_onnx(graph))
    assert read_onnx(path).graph == graph
    x = np.random.default_rng(2).random((4, 2, 6, 6), dtype=np.float32)
    found = np.concatenate([run_onnx(path.read_bytes(), {"image": f[None]})["y"] for f in x])
    np.testing.assert_array_equal(found, run_integer(graph, store(graph, {"image": x}, "test"))["y"])


@pytest.mark.verilator
def test_a_build_with_foreign_operators_runs_on_its_devices_and_is_exact(mixed: Path, tmp_path: Path) -> None:
    build = compile_model(mixed, "tx2-c10gx", tmp_path / "build", verify=False)
    outcome = verify_build(build, frames=6)
    assert outcome.equal, str(outcome.first_mismatch)
    for node in build.graph.nodes:
        if isinstance(node.op, Opaque):
            assert build.plan.assignment[node.name].devices == ("cpu",)


@pytest.mark.parametrize("path", LIGHT, ids=lambda p: p.stem)
def test_the_topologies_of_the_onnx_package_come_in(path: Path) -> None:
    imported = read_onnx(path)
    model = onnx.load(path)
    convs = sum(1 for n in model.graph.node if n.op_type == "Conv")
    assert sum(1 for n in imported.graph.nodes if isinstance(n.op, Conv)) >= convs
    assert imported.graph.outputs == tuple(o.name for o in model.graph.output)


def test_decomposed_batchnorm_folds_into_its_convolution(tmp_path: Path) -> None:
    make = helper.make_node
    nodes = [make("Conv", ["image", "w"], ["a"], "conv", pads=[1, 1, 1, 1]), make("Mul", ["a", "m"], ["b"], "mul"),
             make("Add", ["b", "o"], ["c"], "add"), make("Relu", ["c"], ["y"], "relu")]
    constants = {"w": weights(3, 2, 3, 3), "m": weights(3, 1, 1), "o": weights(3, 1, 1, seed=2)}
    path = save(tmp_path / "bn.onnx", nodes, [1, 2, 5, 5], ("y", [1, 3, 5, 5]), constants)
    graph = read_onnx(path).graph
    assert [n.name for n in graph.nodes] == ["conv"]
    x = np.random.default_rng(1).random((1, 2, 5, 5), dtype=np.float32)
    np.testing.assert_allclose(run_float(graph, {"image": x})["y"], run_onnx(path.read_bytes(), {"image": x})["y"], atol=1e-5)


@pytest.mark.parametrize("opset", [9, 11, 13, 18, 21])
def test_every_opset_from_nine_to_twenty_one_is_read(tmp_path: Path, opset: int) -> None:
    make = helper.make_node
    mean = make("ReduceMean", ["a"], ["p"], "mean", axes=[2, 3], keepdims=1) if opset < 18 \
        else make("ReduceMean", ["a", "axes"], ["p"], "mean", keepdims=1)
    clip = make("Clip", ["c"], ["a"], "clip", min=0.0, max=6.0) if opset < 11 else make("Clip", ["c", "lo", "hi"], ["a"], "clip")
    nodes = [make("Conv", ["image", "w"], ["c"], "conv"), clip, mean, make("Flatten", ["p"], ["f"], "flat"),
             make("Gemm", ["f", "v", "o"], ["g"], "fc", transB=1), make("Softmax", ["g"], ["y"], "softmax", axis=1)]
    constants = {"w": weights(4, 2, 3, 3), "v": weights(3, 4), "o": weights(3, seed=4)}
    if opset >= 11:
        constants |= {"lo": np.asarray(0, np.float32), "hi": np.asarray(6, np.float32)}
    if opset >= 18:
        constants["axes"] = np.asarray([2, 3], dtype=np.int64)
    path = save(tmp_path / "m.onnx", nodes, [1, 2, 6, 6], ("y", [1, 3]), constants, opset)
    graph = read_onnx(path).graph
    assert [n.op.kind for n in graph.nodes] == ["Conv", "GlobalAvgPool", "Reshape", "Gemm", "Softmax"]
    x = np.random.default_rng(1).random((1, 2, 6, 6), dtype=np.float32)
    np.testing.assert_allclose(run_float(graph, {"image": x})["y"], run_onnx(path.read_bytes(), {"image": x})["y"], atol=1e-5)


def test_a_network_of_foreign_operators_alone_still_becomes_a_build(tmp_path: Path) -> None:
    nodes = [helper.make_node("Sin", ["image"], ["a"], "sin"), helper.make_node("Flatten", ["a"], ["b"], "flat"),
             helper.make_node("Softmax", ["b"], ["y"], "softmax")]
    path = save(tmp_path / "m.onnx", nodes, [1, 2, 3, 3], ("y", [1, 18]), {})
    build = compile_model(path, "tx2-c10gx", tmp_path / "build", verify=False)
    assert {s.device for s in build.program.segments} == {"cpu"}
    assert verify_build(build, frames=3).equal


@pytest.mark.parametrize("mode", ["NOTSET", "SAME_UPPER"])
def test_a_pad_before_a_convolution_becomes_asymmetric_padding(tmp_path: Path, mode: str) -> None:
    make = helper.make_node
    own = {"pads": [1, 0, 0, 1]} if mode == "NOTSET" else {"auto_pad": mode}
    nodes = [make("Pad", ["image", "pads"], ["p"], "pad"), make("Conv", ["p", "w"], ["y"], "conv", kernel_shape=[3, 3], **own)]
    constants = {"w": weights(3, 2, 3, 3), "pads": np.asarray([0, 0, 0, 1, 0, 0, 2, 1], dtype=np.int64)}
    path = save(tmp_path / "m.onnx", nodes, [1, 2, 6, 5], ("y", [1, 3, 7, 6] if mode == "NOTSET" else [1, 3, 8, 7]), constants)
    graph = read_onnx(path).graph
    assert [n.name for n in graph.nodes] == ["conv"]
    x = np.random.default_rng(1).random((1, 2, 6, 5), dtype=np.float32)
    np.testing.assert_allclose(run_float(graph, {"image": x})["y"], run_onnx(path.read_bytes(), {"image": x})["y"], atol=1e-5)


def test_zeros_around_a_rectified_map_join_the_pooling_behind_them(tmp_path: Path) -> None:
    """As Keras writes ResNet's first pooling; without the ReLU a zero could be the largest, and the Pad stays."""
    make = helper.make_node
    constants = {"w": weights(3, 2, 3, 3), "pads": np.asarray([0, 0, 1, 1, 0, 0, 1, 1], dtype=np.int64)}
    x = np.random.default_rng(1).standard_normal((1, 2, 7, 7)).astype(np.float32)
    for rectify, kinds in (("Relu", ["Conv", "MaxPool"]), ("Neg", ["Conv", "Pad", "MaxPool"])):
        nodes = [make("Conv", ["image", "w"], ["c"], "conv"), make(rectify, ["c"], ["r"], "act"),
                 make("Pad", ["r", "pads"], ["p"], "pad"),
                 make("MaxPool", ["p"], ["y"], "pool", kernel_shape=[3, 3], strides=[2, 2])]
        path = save(tmp_path / "m.onnx", nodes, [1, 2, 7, 7], ("y", [1, 3, 3, 3]), constants)
        graph = read_onnx(path).graph
        assert [n.op.kind for n in graph.nodes] == kinds
        found = run_float(graph, {"image": x})["y"]
        np.testing.assert_allclose(found, run_onnx(path.read_bytes(), {"image": x})["y"], atol=1e-5)


def test_a_pad_of_whole_windows_stays_a_node(tmp_path: Path) -> None:
    make = helper.make_node
    nodes = [make("Conv", ["image", "w"], ["c"], "conv"), make("Relu", ["c"], ["r"], "act"),
             make("Pad", ["r", "pads"], ["p"], "pad"),
             make("Pad", ["p", "pads"], ["q"], "more"),
             make("MaxPool", ["q"], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2])]
    constants = {"w": weights(3, 2, 3, 3), "pads": np.asarray([0, 0, 1, 0, 0, 0, 0, 1], dtype=np.int64)}
    path = save(tmp_path / "m.onnx", nodes, [1, 2, 6, 6], ("y", [1, 3, 3, 3]), constants)
    graph = read_onnx(path).graph
    assert [n.op.kind for n in graph.nodes] == ["Conv", "Pad", "Pad", "MaxPool"]
    x = np.random.default_rng(1).standard_normal((1, 2, 6, 6)).astype(np.float32)
    np.testing.assert_allclose(run_float(graph, {"image": x})["y"], run_onnx(path.read_bytes(), {"image": x})["y"], atol=1e-5)


def test_a_pad_that_others_read_stays_a_node(tmp_path: Path) -> None:
    make = helper.make_node
    nodes = [make("Pad", ["image", "pads"], ["p"], "pad"), make("Relu", ["p"], ["r"], "relu"),
             make("Conv", ["p", "w"], ["c"], "conv", pads=[1, 1, 1, 1]), make("Concat", ["r", "c"], ["y"], "join", axis=1)]
    constants = {"w": weights(3, 2, 3, 3), "pads": np.asarray([0, 0, 1, 1, 0, 0, 1, 1], dtype=np.int64)}
    path = save(tmp_path / "m.onnx", nodes, [1, 2, 4, 4], ("y", [1, 5, 6, 6]), constants)
    graph = read_onnx(path).graph
    assert "pad" in [n.name for n in graph.nodes]
    x = np.random.default_rng(1).standard_normal((1, 2, 4, 4)).astype(np.float32)
    np.testing.assert_allclose(run_float(graph, {"image": x})["y"], run_onnx(path.read_bytes(), {"image": x})["y"], atol=1e-5)


def test_parameters_of_kept_nodes_are_counted_once(tmp_path: Path) -> None:
    nodes = [helper.make_node("LSTM", ["image", "W", "R", "B"], ["y", "last"], "lstm", hidden_size=3),
             helper.make_node("Squeeze", ["y", "axis"], ["rows"], "squeeze"),
             helper.make_node("Add", ["rows", "last"], ["sum"], "sum")]
    constants = {"W": weights(1, 12, 5), "R": weights(1, 12, 3), "B": weights(1, 24), "axis": np.array([1])}
    found = inspection(read_onnx(save(tmp_path / "m.onnx", nodes, [4, 1, 5], ("sum", [4, 1, 3]), constants)).graph)
    kept = [layer["parameters"] for layer in found["layers"] if layer["operator"] == "LSTM"]
    assert kept == [12 * 5 + 12 * 3 + 24, 0], "two outputs of one node hold its weights together"
    assert found["parameters"] == sum(layer["parameters"] for layer in found["layers"]) == sum(kept)


def test_a_reason_names_the_tensor_that_is_a_batch(tmp_path: Path) -> None:
    nodes = [helper.make_node("Reshape", ["image", "rows"], ["y"], "cut")]
    graph = read_onnx(save(tmp_path / "m.onnx", nodes, [1, 16, 4, 4], ("y", [4, 64]), {"rows": np.array([4, 64])})).graph
    (fpga,) = load_platform("tx2-c10gx").of_kind(Kind.FPGA)
    reason = "fpga: cut has a tensor of 4x64, which is a batch of 4; hardware takes one frame at a time"
    assert dhm_why_not(graph, graph.node("cut"), fpga) == reason
