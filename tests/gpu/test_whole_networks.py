"""No network is refused: what has no kernel runs through PyTorch's operators, beside kernels in Triton's interpreter."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import dovetail.gpu
from dovetail.errors import ModelError, UnsupportedError, UsageError
from dovetail.gpu.executor import compile_graph
from dovetail.ir import RELU, Add, AvgPool, Conv, Function, PixelShuffle, Transpose, Upsample, Window
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.fixed import quantize
from dovetail.numerics.reference import run_float, run_integer
from tests.gpu.vision import NETWORKS, network, results, through_onnx
from tests.kernels.networks import GRAPHS, inverted, stem
from tests.strategies import Net, quantized, stored_inputs

TOLERANCE = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 6e-2}


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize(("name", "kind", "images"), [
    *((name, "float32", 2) for name in NETWORKS), ("ConvNeXt", "float16", 1), ("DeepLab", "float16", 2), ("ViT", "bfloat16", 1)])
def test_networks_of_vision_compile_and_agree(name: str, kind: str, images: int) -> None:
    made, shape = network(name)
    frames = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    with torch.no_grad():
        wanted = [w.numpy() for w in results(made.double()(torch.from_numpy(frames).double()))]
    graph = through_onnx(network(name)[0], shape)
    compiled = compile_graph(graph, kind, images)
    found = list(compiled.run({graph.inputs[0]: frames}).values())
    assert compiled.library
    for f, w in zip(found, wanted, strict=True):
        assert f.shape == w.shape
        if w.dtype.kind == "f":
            assert distance(f, w) <= TOLERANCE[kind]
        else:
            assert (f == w).mean() > 0.95  # of nearly equal scores another may be the largest


def test_a_summary_names_kernels_and_what_pytorch_computes() -> None:
    made, shape = network("U-Net")
    compiled = compile_graph(through_onnx(made, shape), "float32")
    kernels, others = compiled.summary().splitlines()
    assert kernels.startswith("6 kernels: ")
    assert others.startswith("PyTorch's operators for ")
    assert "1 Mish" in others
    assert any(one.endswith(": Mish") for one in compiled.library)


def test_a_formula_of_any_nodes_is_computed() -> None:
    net = Net(4)
    nodes = [helper.make_node("Sin", ["x0"], ["a"]), helper.make_node("Mul", ["a", "x0"], ["b"]),
             helper.make_node("Softplus", ["b"], ["y0"])]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("x0", "y0")]
    content = helper.make_model(helper.make_graph(nodes, "f", values[:1], values[1:]),
                                opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()
    graph = net.graph(net.add(Function("pointwise of 3 nodes", content, 17), stem(net)))
    frames = np.random.default_rng(1).normal(size=(2, *graph.shape("x")[1:])).astype(np.float32)
    (found,), (wanted,) = compile_graph(graph, "float32").run({"x": frames}).values(), run_float(graph, {"x": frames}).values()
    assert distance(found, wanted) < 1e-5


def test_an_operator_that_pytorch_lacks_is_computed_on_the_host() -> None:
    lstm = helper.make_node("LSTM", ["s", "w", "r"], ["", "y"], hidden_size=2)
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["s"]), lstm, helper.make_node("Relu", ["y"], ["z"])]
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.normal(size=s).astype(np.float32), n) for n, s in (("w", (1, 8, 3)), ("r", (1, 8, 2)))]
    weights.append(numpy_helper.from_array(np.array([4, 1, 3]), "shape"))
    model = helper.make_model(helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 12))],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, (1, 1, 2))], weights),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    graph = read_onnx(model.SerializeToString()).graph
    frames = rng.normal(size=(1, 12)).astype(np.float32)
    compiled = compile_graph(graph, "float32")
    (found,), (wanted,) = compiled.run({"x": frames}).values(), run_float(graph, {"x": frames}).values()
    assert any(one.endswith("LSTM on the host") for one in compiled.library)
    assert np.allclose(found, wanted, atol=1e-6)


def test_tensors_pass_through_without_arrays() -> None:
    graph = inverted(size=(4, 5))
    compiled = compile_graph(graph, "float32", 2)
    frames = torch.randn(3, *graph.shape("x")[1:])
    (found,) = compiled.run({"x": frames}).values()
    (wanted,) = compiled.run({"x": frames.numpy()}).values()
    assert isinstance(found, torch.Tensor)
    assert np.array_equal(found.numpy(), wanted)


def test_a_quantized_network_takes_real_frames() -> None:
    graph = quantized(GRAPHS["inverted"]())
    frames = np.random.default_rng(0).normal(size=(2, *graph.shape("x")[1:])).astype(np.float32)
    scheme = graph.tensors["x"].scheme
    assert scheme is not None
    codes = quantize(frames.astype(np.float64), scheme).astype(scheme.dtype)
    found = compile_graph(graph, "int8", 2).run({"x": frames})
    for tensor, value in run_integer(graph, {"x": codes}).items():
        assert np.array_equal(found[tensor], value)


@pytest.mark.parametrize("kind", ["float16", "int8"])
def test_a_saved_network_is_loaded_without_choosing_kernels(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = quantized(inverted(size=(4, 5))) if kind == "int8" else inverted(size=(4, 5))
    scheme = graph.tensors["x"].scheme
    frames = np.random.default_rng(0).normal(size=(2, *graph.shape("x")[1:])).astype(np.float32)
    compiled = compile_graph(graph, kind, 2)
    compiled.save(tmp_path / "saved")
    monkeypatch.setattr("dovetail.gpu.executor.chosen", lambda *_: pytest.fail("kernels are chosen again"))
    again = dovetail.gpu.load(tmp_path / "saved")
    for (call, tile), (wanted, own) in zip(again.calls, compiled.calls, strict=True):
        assert (call.kernel, dict(tile)) == (wanted.kernel, dict(own))
    assert scheme is None or again.graph.quantized
    for a, b in zip(compiled.run({"x": frames}).values(), again.run({"x": frames}).values(), strict=True):
        assert np.array_equal(a, b)


def test_a_saved_network_with_attention_comes_back(tmp_path: Path) -> None:
    made, shape = network("Swin")
    graph = through_onnx(made, shape)
    compiled = compile_graph(graph, "float32")
    compiled.save(tmp_path / "saved")
    again = dovetail.gpu.load(tmp_path / "saved")
    frames = {graph.inputs[0]: np.ones((1, *shape), np.float32)}
    for a, b in zip(compiled.run(frames).values(), again.run(frames).values(), strict=True):
        assert np.array_equal(a, b)


def test_a_network_for_another_gpu_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_graph(inverted(size=(4, 5)), "float32").save(tmp_path / "saved")
    monkeypatch.setattr("dovetail.gpu.saved.versions", lambda: {"gpu": "another", "torch": "1", "triton": "2"})
    with pytest.raises(UsageError, match=r"made with gpu .*, here another; .* compile the model here"):
        dovetail.gpu.load(tmp_path / "saved")


def test_what_is_no_saved_network_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        dovetail.gpu.load(tmp_path / "none")
    (tmp_path / "text").write_bytes(np.random.default_rng(7).bytes(100))
    with pytest.raises(ModelError, match="not a saved network, or damaged"):
        dovetail.gpu.load(tmp_path / "text")


@pytest.mark.parametrize(("key", "value"), [("kernels", 1), ("kernels", [{}]), ("images", "2"), ("avoided", [3]),
                                           ("joined", None), ("kind", None)])
def test_damaged_choices_are_named(tmp_path: Path, key: str, value: object) -> None:
    compile_graph(inverted(size=(4, 5)), "float32").save(tmp_path / "saved")
    with zipfile.ZipFile(tmp_path / "saved") as file:
        held, content = json.loads(file.read("choices.json")), file.read("model.onnx")
    with zipfile.ZipFile(tmp_path / "saved", "w") as file:
        file.writestr("choices.json", json.dumps({**held, key: value}))
        file.writestr("model.onnx", content)
    with pytest.raises(ModelError, match=r"choices\.json is damaged; save the network again"):
        dovetail.gpu.load(tmp_path / "saved")


def test_integers_without_a_kernel_are_the_references() -> None:
    net = Net(6)
    x = net.add(Conv(8, Window((3, 3)), clamp=RELU), net.input((1, 3, 6, 5)))
    moved = net.add(PixelShuffle(2, 2), net.add(Upsample(2, 1), x))
    means = net.add(Transpose((0, 1, 3, 2)), net.add(Conv(4, Window((1, 1))), moved))
    graph = quantized(net.graph(means, net.add(Add(), x, net.add(AvgPool(Window((1, 1))), x))))
    frames = stored_inputs(graph, 3)
    with pytest.raises(UnsupportedError, match="GPU kernels have no"):
        compile_graph(graph, "int8", 2, library=False)
    compiled = compile_graph(graph, "int8", 2)
    assert {one.split(": ")[1] for one in compiled.library} >= {"Upsample", "PixelShuffle", "Transpose"}
    found = compiled.run(frames)
    for tensor, value in run_integer(graph, frames).items():
        assert found[tensor].dtype == value.dtype
        assert np.array_equal(found[tensor], value)
