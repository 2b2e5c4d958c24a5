"""ONNX in and out: identity on our own files, meaning kept on others', plain words on broken ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import TensorProto, helper, numpy_helper

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir import Clamp, Clip, Conv, Gemm, Graph, Node, Scheme, Tensor, Window
from dovetail.ir.onnx.read import STEPS, Draft, read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.fixed import dequantize, quantize
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.reference import run_float, run_integer
from tests.graph_text import to_text
from tests.strategies import Net, networks, quantized


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(network=networks())
def test_import_after_export_is_the_identity(tmp_path: Path, network: Graph) -> None:
    for graph in (network, quantized(network)):
        path = tmp_path / "net.onnx"
        path.write_bytes(to_onnx(graph))
        again = read_onnx(path).graph
        again = replace(again, name=graph.name)
        settled = path.with_name("again.onnx")
        settled.write_bytes(to_onnx(again))
        # folding on import is idempotent, so the second round trip changes nothing; the first folds what can be folded
        assert read_onnx(settled).graph == again
        assert to_text(again) == to_text(simplify(graph))
        if simplify(graph) == graph:
            assert again == graph


@pytest.mark.parametrize(("bits", "opset"), [(8, 17), (16, 21)])
def test_a_file_asks_for_no_newer_opset_than_its_integers_need(bits: int, opset: int) -> None:
    """QuantizeLinear has 16 bits since opset 21."""
    tensors = {name: Tensor(name, (1, 4), Scheme(bits, True, (-4,))) for name in "xy"}
    graph = Graph("g", ("x",), ("y",), (Node("n", Clip(Clamp(0.0)), ("x",), (), "y"),), tensors)
    (imported,) = onnx.load_model_from_string(to_onnx(graph)).opset_import
    assert (imported.domain, imported.version) == ("", opset)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(network=networks())
def test_the_float_reference_agrees_with_onnx_runtime(network: Graph) -> None:
    x = np.random.default_rng(0).standard_normal((2, *network.shape("x")[1:])).astype(np.float32)
    expected = run_onnx(to_onnx(network), {"x": x})
    for name, values in run_float(network, {"x": x}).items():
        # Sums of 32 bits that nearly cancel are as far off as their largest terms' last digits.
        largest = float(np.abs(expected[name]).max(initial=0.0))
        np.testing.assert_allclose(values, expected[name], rtol=1e-4, atol=max(1e-4, 2e-6 * largest))


def simplify(graph: Graph) -> Graph:
    """A graph after the steps of an import that rewrite graphs."""
    draft = Draft(Path(graph.name), {}, graph=graph)
    for step in STEPS[[s.name for s in STEPS].index("build the graph") + 1:]:
        draft = step.run(draft)
    assert draft.graph is not None
    return draft.graph


def save(path: Path, nodes: list, inputs: dict, outputs: dict, weights: dict, opset: int = 17) -> Path:
    def value(name: str, shape: list) -> object:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    graph = helper.make_graph(nodes, "model", [value(*i) for i in inputs.items()], [value(*o) for o in outputs.items()],
                              [numpy_helper.from_array(a, n) for n, a in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def check_same(path: Path, x: np.ndarray) -> Graph:
    graph = read_onnx(path).graph
    expected = run_onnx(path.read_bytes(), {graph.inputs[0]: x})
    for name, values in run_float(graph, {graph.inputs[0]: x}).items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-4, atol=1e-4)
    return graph


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_batchnorm_and_relu6_fold_into_the_convolution(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
             helper.make_node("BatchNormalization", ["a", "g", "b", "m", "v"], ["n"], "bn"),
             helper.make_node("Clip", ["n", "lo", "hi"], ["y"], "relu6")]
    weights = {"w": random(4, 3, 3, 3), "g": random(4), "b": random(4), "m": random(4), "v": np.abs(random(4)) + 0.1,
               "lo": np.float32(0).reshape(()), "hi": np.float32(6).reshape(())}
    graph = check_same(save(tmp_path / "m.onnx", nodes, {"x": [1, 3, 5, 5]}, {"y": [1, 4, 5, 5]}, weights), random(1, 3, 5, 5))
    assert [n.name for n in graph.nodes] == ["conv"]
    assert isinstance(graph.nodes[0].op, Conv)
    assert graph.nodes[0].op.clamp == Clamp(0.0, 6.0)


def test_a_batchnorm_before_the_convolution_stays_a_node_of_its_own(tmp_path: Path) -> None:
    nodes = [helper.make_node("BatchNormalization", ["x", "g", "b", "m", "v"], ["n"], "bn"),
             helper.make_node("Conv", ["n", "w"], ["y"], "conv", pads=[1, 1, 1, 1])]
    weights = {"w": random(4, 3, 3, 3), "g": random(3), "b": random(3), "m": random(3), "v": np.abs(random(3)) + 0.1}
    graph = check_same(save(tmp_path / "m.onnx", nodes, {"x": [1, 3, 5, 5]}, {"y": [1, 4, 5, 5]}, weights), random(1, 3, 5, 5))
    assert [n.name for n in graph.nodes] == ["bn", "conv"]


def test_matmul_with_added_bias_is_a_gemm(tmp_path: Path) -> None:
    nodes = [helper.make_node("Flatten", ["x"], ["f"], "flat"), helper.make_node("MatMul", ["f", "w"], ["p"], "fc"),
             helper.make_node("Add", ["p", "b"], ["y"], "bias")]
    weights = {"w": random(12, 5), "b": random(5)}
    graph = check_same(save(tmp_path / "m.onnx", nodes, {"x": [1, 3, 2, 2]}, {"y": [1, 5]}, weights), random(1, 3, 2, 2))
    assert [type(n.op) for n in graph.nodes][-1] is Gemm


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("stride", [1, 2])
def test_auto_pad_is_resolved(tmp_path: Path, mode: str, stride: int) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "conv", auto_pad=mode, strides=[stride, stride], kernel_shape=[3, 2])]
    check_same(save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 7, 6]}, {"y": [1, 3, None, None]}, {"w": random(3, 2, 3, 2)}),
          random(1, 2, 7, 6))


@pytest.mark.parametrize("size", [5, 6, 7, 8])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_ceil_mode_pooling_matches(tmp_path: Path, size: int, op: str) -> None:
    nodes = [helper.make_node(op, ["x"], ["y"], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1], ceil_mode=1)]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2, size, size]}, {"y": [1, 2, None, None]}, {})
    check_same(path, random(1, 2, size, size))


def test_a_symbolic_batch_is_planned_as_one_and_said(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "relu")]
    imported = read_onnx(save(tmp_path / "m.onnx", nodes, {"x": ["N", 3, 4, 4]}, {"y": ["N", 3, 4, 4]}, {}))
    assert imported.graph.shape("x") == (1, 3, 4, 4)
    assert imported.notes == ("input x: symbolic batch 'N' planned as 1",)


def test_other_symbolic_dimensions_ask_for_a_shape(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], "relu")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 3, "h", "w"]}, {"y": [1, 3, "h", "w"]}, {})
    wanted = r"input x has a symbolic or empty dimension 2 \('h'\); say its size with --shape x=1,3,224,224"
    with pytest.raises(ModelError, match=wanted):
        read_onnx(path)
    assert read_onnx(path, {"x": (1, 3, 8, 6)}).graph.shape("y") == (1, 3, 8, 6)


def test_nan_weights_are_named(tmp_path: Path) -> None:
    weight = random(2, 1, 1, 1)
    weight[1, 0, 0, 0] = np.nan
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], "conv")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 1, 2, 2]}, {"y": [1, 2, 2, 2]}, {"w": weight})
    with pytest.raises(ModelError, match=r"weight conv_weight\[1, 0, 0, 0\] is nan; all weights must be finite"):
        read_onnx(path)


def test_broken_files_say_what_is_wrong(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], "c")
    good = save(tmp_path / "good.onnx", [node], {"x": [1, 1, 4, 4]}, {"y": [1, 8, 4, 4]}, {"w": random(8, 1, 1, 1)}).read_bytes()
    path = tmp_path / "bad.onnx"
    with pytest.raises(ModelError, match="no such file; give the path of an ONNX model"):
        read_onnx(tmp_path / "absent.onnx")
    path.write_bytes(good[:len(good) // 2])
    with pytest.raises(ModelError, match=r"export the model again|the file is damaged"):
        read_onnx(path)
    path.write_bytes(b"\x89PNG not a model")
    with pytest.raises(ModelError, match="export the model again"):
        read_onnx(path)
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="the file is empty; export the model again"):
        read_onnx(path)


def test_a_tensor_that_declares_more_than_it_carries_is_refused_before_allocation(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"], "c")], {"x": [1, 1, 4, 4]}, {"y": [1, 8, 4, 4]},
                {"w": random(8, 1, 1, 1)})
    model = onnx.load(path)
    model.graph.initializer[0].dims[0] = 3 << 30
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"tensor w declares 12.0 GiB; at most 1 GiB per tensor is read"):
        read_onnx(path)
    model.graph.initializer[0].dims[0] = 9
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"tensor w declares 9 elements but carries 32 bytes; the file is damaged"):
        read_onnx(path)


def test_unknown_operators_and_cycles_are_named(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [helper.make_node("NonZero", ["x"], ["y"], "odd")], {"x": [1, 2]}, {"y": [1, 2]}, {})
    wanted = r"node odd: the shape of NonZero's output depends on data; export the model with fixed input shapes"
    with pytest.raises(UnsupportedError, match=wanted):
        read_onnx(path)
    unknown = helper.make_node("Frobnicate", ["x"], ["y"], "odd", domain="org.example")
    path = save(tmp_path / "m.onnx", [unknown], {"x": [1, 2]}, {"y": [1, 2]}, {})
    wanted = r"node odd: operator Frobnicate of domain org\.example is unknown; export the model with standard ONNX operators"
    with pytest.raises(ModelError, match=wanted):
        read_onnx(path)
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], "first"), helper.make_node("Relu", ["a"], ["b"], "second")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [1, 2]}, {"b": [1, 2]}, {})
    wanted = "node second waits for what node first makes of its own result; a network must not be cyclic"
    with pytest.raises(ModelError, match=wanted):
        read_onnx(path)


def test_external_weights_are_read_from_the_models_folder_alone(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"], "c")], {"x": [1, 1, 4, 4]}, {"y": [1, 8, 4, 4]},
                {"w": random(8, 1, 1, 1)})
    model = onnx.load(path)
    expected = read_onnx(path).graph
    onnx.save_model(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert (tmp_path / "weights.bin").is_file()
    assert read_onnx(path).graph == expected
    (tmp_path / "weights.bin").write_bytes(b"short")
    with pytest.raises(ModelError, match=r"tensor w: 'weights\.bin' holds 5 of 32 bytes there; the file is damaged"):
        read_onnx(path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"tensor w: weights in 'weights\.bin' cannot be read .*; keep the file beside"):
        read_onnx(path)
    for escape in ("../../etc/passwd", "/etc/passwd", "link/passwd"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to("/etc")
        model = onnx.load(path, load_external_data=False)
        model.graph.initializer[0].external_data[0].value = escape
        path.with_name("bad.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(ModelError, match=r"tensor w points to '.*passwd', outside the model's folder"):
            read_onnx(path.with_name("bad.onnx"))


def test_names_that_look_derived_do_not_clash(tmp_path: Path) -> None:
    net = Net(0)
    x = net.input((1, 1, 4, 4), "a")
    y = net.add(Conv(1, Window((1, 1))), x, name="a_q")
    z = net.add(Conv(1, Window((1, 1)), 1, Clamp(0.0, 2.0)), y, name="a_q_out_dq")
    w = net.add(Conv(1, Window((1, 1))), z, name="a_scale")
    graph = quantized(net.graph(w))
    path = tmp_path / "m.onnx"
    path.write_bytes(to_onnx(graph))
    assert read_onnx(path).graph == graph
    assert set(run_onnx(path.read_bytes(), {"a": np.zeros((1, 1, 4, 4), np.float32)})) == {"a_scale_out"}


def test_folding_keeps_the_activation_of_what_it_folds() -> None:
    net = Net(0)
    x = net.add(Conv(2, Window((3, 3))), net.input((1, 2, 5, 5)))
    graph = net.graph(net.add(Conv(2, Window((1, 1)), 2, Clamp(0.0, 6.0)), x))
    folded = simplify(graph)
    assert [n.op.bounds for n in folded.nodes] == [Clamp(0.0, 6.0)]
    values = np.random.default_rng(0).standard_normal((1, 2, 5, 5))
    np.testing.assert_allclose(run_float(folded, {"x": values})["n1_out"], run_float(graph, {"x": values})["n1_out"], atol=1e-5)


def test_inputs_of_few_bits_saturate_in_the_exported_file_as_they_do_here(tmp_path: Path) -> None:
    net = Net(0)
    made = net.graph(net.add(Conv(3, Window((3, 3))), net.input((1, 2, 5, 5))))
    graph = quantize_graph(made, synthetic(made), bits=4)
    scheme = graph.tensors["x"].scheme
    assert scheme is not None
    assert scheme.bits == 4
    content = to_onnx(graph)
    (tmp_path / "m.onnx").write_bytes(content)
    assert read_onnx(tmp_path / "m.onnx").graph.tensors["x"].scheme == scheme
    x = np.random.default_rng(0).normal(0, 3, (1, 2, 5, 5)).astype(np.float32)
    stored = quantize(x.astype(np.float64), scheme).astype(scheme.dtype)
    output = graph.outputs[0]
    target = graph.tensors[output].scheme
    assert target is not None
    expected = dequantize(run_integer(graph, {"x": stored})[output].astype(np.float64), target)
    np.testing.assert_array_equal(run_onnx(content, {"x": x})[output], expected)
