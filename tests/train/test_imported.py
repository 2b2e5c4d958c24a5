"""Networks of users' own ONNX files: the same floats before training, few bits behind it, and integers that agree with torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from dovetail.cli import main
from dovetail.errors import DovetailError
from dovetail.ir import Coded, Thresholds
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.fixed import quantize
from dovetail.numerics.reference import run_integer
from dovetail.train.imported import as_read, load_network, not_negative, to_graph
from dovetail.train.networks import precision_of
from dovetail.train.recipe import Pace, TrainingRecipe
from dovetail.train.run import run
from tests.train.images import packed, patterns

SHAPE, CLASSES = (3, 12, 12), 4


def own_file(folder: Path, odd: str = "") -> Path:
    """A network as users have them: depthwise and grouped layers, branches joined, a residual sum, both kinds of pool."""
    rng = np.random.default_rng(5)
    nodes: list[onnx.NodeProto] = []
    constants: list[onnx.TensorProto] = []

    def constant(name: str, array: np.ndarray) -> str:
        constants.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def conv(x: str, y: str, channels: int, filters: int, size: int, groups: int = 1, stride: int = 1) -> str:
        weight = rng.normal(0, np.sqrt(2 / (channels // groups * size * size)), (filters, channels // groups, size, size))
        names = [x, constant(f"{y}_w", weight), constant(f"{y}_b", rng.normal(0, 0.1, filters))]
        nodes.append(helper.make_node("Conv", names, [y], y, pads=[size // 2] * 4, group=groups, strides=[stride, stride],
                                      kernel_shape=[size, size]))
        return y

    def add(kind: str, inputs: list[str], y: str, **more: object) -> str:
        nodes.append(helper.make_node(kind, inputs, [y], y, **more))
        return y

    x = add("Relu", [conv("image", "stem", 3, 8, 3)], "a")
    x = add("Relu", [conv(x, "depthwise", 8, 8, 3, groups=8)], "b")
    left, right = add("Relu", [conv(x, "left.1", 8, 4, 1)], "c"), add("Relu", [conv(x, "right.1", 8, 4, 3, groups=2)], "d")
    joined = add("Concat", [left, right], "e", axis=1)
    total = add("Relu", [add("Add", [conv(joined, "inner", 8, 8, 3), joined], "f")], "g")
    if odd:
        total = add(odd, [total], "odd")
    pooled = add("AveragePool", [add("MaxPool", [total], "h", kernel_shape=[2, 2], strides=[2, 2])], "i", kernel_shape=[3, 3],
                 strides=[1, 1], pads=[1, 1, 1, 1])
    flat = add("Flatten", [pooled], "j", axis=1)
    first = [constant("w1", rng.normal(0, 0.08, (16, 288))), constant("b1", rng.normal(0, 0.1, 16))]
    hidden = add("Relu", [add("Gemm", [flat, *first], "k", transB=1)], "l")
    add("Gemm", [hidden, constant("w2", rng.normal(0, 0.3, (4, 16))), constant("b2", np.zeros(4))], "scores", transB=1)
    graph = helper.make_graph(nodes, "own", [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, *SHAPE])],
                              [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 4])], constants)
    path = folder / "own.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def test_before_training_a_file_computes_what_onnx_runtime_says(tmp_path: Path) -> None:
    path, images = own_file(tmp_path), patterns(SHAPE, CLASSES, 16).train_images
    network = load_network(path, precision_of("float"), SHAPE, CLASSES, "0.4,0.5,0.45", "0.25").eval()
    session = onnxruntime.InferenceSession(str(path))
    x = ((images.astype(np.float32) / 256 - np.asarray([0.4, 0.5, 0.45], dtype=np.float32)[:, None, None]) / np.float32(0.25))
    known = np.concatenate([session.run(None, {"image": one[None]})[0] for one in x])
    found = network(torch.from_numpy(images).float() / 256).detach().numpy()
    np.testing.assert_allclose(found, known, rtol=1e-3, atol=1e-4)


def test_a_file_is_trained_to_two_bits_and_its_integers_agree_with_torch(tmp_path: Path) -> None:
    path, data = own_file(tmp_path), packed(tmp_path, patterns(SHAPE, CLASSES))
    said: list[str] = []
    recipe = TrainingRecipe(str(path), "w2a2", epochs=8, batch=32, rate=0.05, pad=0, flip=False, mean="0.45", deviation="0.25")
    result = run(recipe, data, tmp_path / "run", said.append, "cpu", Pace(4))
    assert result["test_accuracy"] > 0.7  # 1.00 in runs of other seeds, 0.25 untrained
    assert abs(result["integer_accuracy"] - result["torch_accuracy_on_them"]) <= 0.1  # wrong integers say 0.25
    graph = read_onnx(tmp_path / "run" / "model.onnx").graph
    kinds = {n.name: type(n.op) for n in graph.nodes}
    coded = {n.name for n in graph.nodes if isinstance(n.op, Coded) and n.op.input_bits == n.op.weight_bits == 2}
    assert len(coded) == 5  # all but the ends: depthwise, both branches, the inner layer, the hidden matrix
    assert sum(k is Thresholds for k in kinds.values()) == 4  # both branches read the same codes


@pytest.mark.parametrize("bits", ["float", "w1a8", "w3a3"])
def test_other_bits_are_trained_and_written_by_command(tmp_path: Path, bits: str) -> None:
    """The file itself, which knows nothing, is the teacher: half of what is learned is noise, so how much is not asked."""
    path, data = own_file(tmp_path), packed(tmp_path, patterns(SHAPE, CLASSES))
    done = main(["train", str(path), "--bits", bits, "--data", str(data), "--epochs", "4", "--batch", "32", "--pad", "0",
                 "--rate", "0.05", "--no-flip", "--every", "2", "--device", "cpu", "--teacher", str(path),
                 "-o", str(tmp_path / "run")])
    assert done == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert (result["recipe"]["bits"], result["recipe"]["teacher"]) == (bits, str(path))
    assert [e["epoch"] for e in result["epochs"]] == [2, 4]
    before = load_network(path, precision_of(bits), SHAPE, CLASSES).state_dict()
    after = torch.load(tmp_path / "run" / "model.pt", weights_only=True)["network"]
    moved = {name: not torch.equal(before[name], after[name]) for name in before if name.endswith("weight")}
    assert len(moved) >= 7
    assert all(moved.values())
    graph = read_onnx(tmp_path / "run" / "model.onnx").graph
    assert graph.quantized == (bits != "float")
    if bits == "float":
        return
    wanted = {"w1a8": (0, 1), "w3a3": (3, 3)}[bits]
    assert {(n.op.input_bits, n.op.weight_bits) for n in graph.nodes if isinstance(n.op, Coded)} == {wanted}
    assert abs(result["integer_accuracy"] - result["torch_accuracy_on_them"]) <= 0.1  # wrong integers say 0.25, torch 0.5 or more


@pytest.mark.parametrize(("bits", "method"), [("w2a2", "lsq"), ("w3a3", "apot"), ("w4a4", "lsq"), ("w8a8", "lq")])
def test_levels_of_a_learned_unit_are_exported_from_files_too(tmp_path: Path, bits: str, method: str) -> None:
    torch.manual_seed(0)
    images = patterns(SHAPE, CLASSES, 32).train_images
    network = load_network(own_file(tmp_path), precision_of(bits, method), SHAPE, CLASSES).train()
    x = torch.from_numpy(images).float() / 256
    for _ in range(3):
        network(x)
    with torch.no_grad():
        expected = network.eval()(x).numpy()
    graph = to_graph(network, images, "own")
    stored = quantize(as_read(network, images).astype(np.float64), graph.scheme(graph.inputs[0]))
    found = run_integer(graph, {graph.inputs[0]: stored})[graph.outputs[0]].reshape(expected.shape)
    found = found * graph.scheme(graph.outputs[0]).scale
    assert np.corrcoef(found.ravel(), expected.ravel())[0, 1] > 0.98  # tensors between layers have 8 bits


def test_signs_are_followed_through_joins_and_pools(tmp_path: Path) -> None:
    graph = read_onnx(own_file(tmp_path)).graph
    signed = {n.output for n in graph.nodes} - not_negative(graph)
    assert {n.name for n in graph.nodes if n.output in signed} == {"inner", "scores"}


@pytest.mark.parametrize(("bits", "odd", "shape", "mean", "message"), [
    ("w2a2", "Sigmoid", SHAPE, "", "is not trained here; choose bits after training with `dovetail bits`"),
    ("w2a3", "", SHAPE, "", "as many bits for activations as for weights, or 8: w2a2 or w2a8"),
    ("w2a2", "", (3, 8, 8), "", r"takes images of \[3, 12, 12\], the data set's are \[3, 8, 8\]"),
    ("w2a2", "", SHAPE, "0.1,0.2", "mean: 2 numbers; one, or one for each of 3 channels"),
    ("w2a2", "", SHAPE, "grey", "numbers with commas between them are needed"),
])
def test_what_cannot_be_trained_is_said(tmp_path: Path, bits: str, odd: str, shape: tuple[int, int, int], mean: str,
                                        message: str) -> None:
    path = own_file(tmp_path, odd)
    with pytest.raises(DovetailError, match=message):
        load_network(path, precision_of(bits), shape, CLASSES, mean)
    with pytest.raises(DovetailError, match="gives 4 scores, the data set has 9 classes"):
        load_network(own_file(tmp_path), precision_of("w2a2"), SHAPE, 9)
