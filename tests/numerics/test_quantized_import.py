"""Quantized models of other tools: QDQ, QOperator and QONNX come in with their own scales and zero points."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from dovetail.ir import Array, Graph, Opaque
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.fixed import dequantize, quantize
from dovetail.numerics.reference import run_float, run_integer

FASHION = Path(__file__).parents[2] / "examples" / "fashion"


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, name: str, values: Array) -> None:
        self.rows: Iterator[dict[str, Array]] = iter([{name: v[None]} for v in values])

    def get_next(self) -> dict[str, Array] | None:
        return next(self.rows, None)


def fashion_images() -> Array:
    return np.load(FASHION / "calibration.npz")["x"].astype(np.float32)


def statically_quantized(folder: Path, form: QuantFormat, activation: QuantType = QuantType.QUInt8) -> Path:
    """The trained example as ONNX Runtime's own tool quantizes it."""
    source, target = FASHION / "fashion.onnx", folder / f"{form}-{activation}.onnx"
    name = onnx.load(source).graph.input[0].name
    quantize_static(source, target, Samples(name, fashion_images()[:32]), quant_format=form, per_channel=True,
                    activation_type=activation, weight_type=QuantType.QInt8)
    return target


def plain_session(model: Path | bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = model if isinstance(model, bytes) else model.read_bytes()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def outside(model: Path | bytes, *values: Array) -> Array:
    """The first output as ONNX Runtime computes it without rewriting the graph."""
    session = plain_session(model)
    result: Array = session.run(None, {i.name: v for i, v in zip(session.get_inputs(), values, strict=True)})[0]
    return result


def ours(graph: Graph, *values: Array) -> Array:
    """The first output as real numbers, inputs given as real numbers."""
    if not graph.quantized:
        return run_float(graph, dict(zip(graph.inputs, values, strict=True)))[graph.outputs[0]]
    given = {}
    for name, x in zip(graph.inputs, values, strict=True):
        scheme = graph.tensors[name].scheme
        given[name] = x if scheme is None else quantize(x.astype(np.float64), scheme).astype(scheme.dtype)
    found, scheme = run_integer(graph, given)[graph.outputs[0]], graph.tensors[graph.outputs[0]].scheme
    return found if scheme is None else dequantize(found.astype(np.float64), scheme)


@pytest.mark.parametrize("activation", [QuantType.QUInt8, QuantType.QInt8])
def test_a_statically_quantized_network_predicts_what_onnx_runtime_predicts(tmp_path: Path, activation: QuantType) -> None:
    path = statically_quantized(tmp_path, QuantFormat.QDQ, activation)
    imported = read_onnx(path)
    assert not [n for n in imported.graph.nodes if isinstance(n.op, Opaque)]
    images = fashion_images()[:48]
    expected = np.concatenate([outside(path, image[None]) for image in images])
    found = ours(imported.graph, images)
    scheme = imported.graph.tensors[imported.graph.outputs[0]].scheme
    assert scheme is not None
    steps = np.abs(found - expected) / scheme.scale
    assert np.count_nonzero(steps > 0.5) <= steps.size // 50
    assert steps.max() < 3.5
    tied = np.sort(expected, axis=1)[:, -1] - np.sort(expected, axis=1)[:, -2] < 2 * scheme.scale
    np.testing.assert_array_equal(found.argmax(axis=1)[~tied], expected.argmax(axis=1)[~tied])


def integer_operators() -> bytes:
    """A network in ONNX Runtime's QOperator form, with weights too small for any kernel to saturate."""
    rng = np.random.default_rng(0)
    weights = {**U8, "w": rng.integers(-20, 21, (4, 2, 3, 3)).astype(np.int8),
               "ws": rng.uniform(0.01, 0.03, 4).astype(np.float32), "wz": np.zeros(4, np.int8),
               "b": rng.integers(-500, 501, 4).astype(np.int32),
               "m": rng.integers(-20, 21, (4, 5)).astype(np.int8), "ms": np.float32(0.02), "mz": np.int8(0)}
    x, c, wide = ["x_q", "scale", "zero"], ["c", "wide", "zero"], ["wide", "zero"]
    own = {"domain": "com.microsoft"}
    nodes = [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["x_q"]),
             helper.make_node("QLinearConv", [*x, "w", "ws", "wz", *wide, "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
             helper.make_node("MaxPool", ["c"], ["p"], name="pool", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1]),
             helper.make_node("QLinearAdd", [*c, "p", *wide, "scale", "zero"], ["a"], name="add", **own),
             helper.make_node("QLinearConcat", [*wide, "a", "scale", "zero", *c], ["j"], name="join", axis=1, **own),
             helper.make_node("QLinearGlobalAveragePool", ["a", "scale", "zero", *wide], ["g"], name="mean", **own),
             helper.make_node("Flatten", ["g"], ["f"]),
             helper.make_node("QLinearMatMul", ["f", *wide, "m", "ms", "mz", *wide], ["y_q"], name="product"),
             helper.make_node("DequantizeLinear", ["y_q", *wide], ["y"])]
    made = onnx.load_model_from_string(model(nodes, {"x": [1, 2, 6, 6]}, "y", weights))
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return made.SerializeToString()  # type: ignore[no-any-return]


def test_operators_on_integers_mean_quantizers_around_floats(tmp_path: Path) -> None:
    content = integer_operators()
    graph = read_bytes(tmp_path, content)
    assert not [n for n in graph.nodes if isinstance(n.op, Opaque)]
    assert np.abs(ours(graph, X) - outside(content, X)).max() <= 1.01 * U8["wide"]  # at most one step, where their kernels tie


def test_scales_and_zero_points_survive_a_round_trip(tmp_path: Path) -> None:
    first = read_onnx(statically_quantized(tmp_path, QuantFormat.QDQ)).graph
    (tmp_path / "again.onnx").write_bytes(to_onnx(first))
    second = read_onnx(tmp_path / "again.onnx").graph
    assert {t.scheme for t in second.tensors.values()} == {t.scheme for t in first.tensors.values()}
    images = fashion_images()[:8]
    np.testing.assert_array_equal(ours(first, images), ours(second, images))


def model(nodes: list[Any], inputs: dict[str, list[int]], output: str, weights: dict[str, Array], opset: int = 17,
          element: int = TensorProto.FLOAT) -> bytes:
    graph = helper.make_graph(nodes, "m", [helper.make_tensor_value_info(n, element, s) for n, s in inputs.items()],
                              [helper.make_empty_tensor_value_info(output)],
                              [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()])
    graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("qonnx.custom_op.general", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()  # type: ignore[no-any-return]


def quantizers(source: str, output: str, scale: str, zero: str) -> list[Any]:
    return [helper.make_node("QuantizeLinear", [source, scale, zero], [f"{output}_q"], name=f"{output}_q"),
            helper.make_node("DequantizeLinear", [f"{output}_q", scale, zero], [output], name=f"{output}_dq")]


WEIGHT = np.random.default_rng(3).normal(0, 0.4, (4, 2, 3, 3)).astype(np.float32)
X = np.random.default_rng(4).normal(0, 1, (1, 2, 6, 6)).astype(np.float32)
U8 = {"zero": np.uint8(117), "scale": np.float32(0.0213), "wide": np.float32(0.047), "none": np.uint8(0)}


def read_bytes(folder: Path, content: bytes) -> Graph:
    (folder / "m.onnx").write_bytes(content)
    return read_onnx(folder / "m.onnx").graph


def test_unsigned_weights_with_a_zero_point_of_their_own_are_exact(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = {**U8, "w": rng.integers(0, 256, (4, 2, 3, 3)).astype(np.uint8), "ws": np.float32(0.004), "wz": np.uint8(131)}
    nodes = [*quantizers("x", "xr", "scale", "zero"), helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wr"]),
             helper.make_node("Conv", ["xr", "wr"], ["c"], name="conv", pads=[1, 1, 1, 1]), *quantizers("c", "y", "wide", "zero")]
    content = model(nodes, {"x": [1, 2, 6, 6]}, "y", weights)
    graph = read_bytes(tmp_path, content)
    assert graph.node("conv").op.kind == "Conv"
    np.testing.assert_allclose(ours(graph, X), outside(content, X), atol=1e-6)


def test_a_value_read_both_rounded_and_as_it_was_keeps_both(tmp_path: Path) -> None:
    """c is quantized for one branch and goes unrounded into the other."""
    nodes = [*quantizers("x", "xr", "scale", "zero"),
             helper.make_node("Conv", ["xr", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]), *quantizers("c", "a", "wide", "zero"),
             helper.make_node("Relu", ["c"], ["r"]), *quantizers("r", "b", "scale", "none"),
             helper.make_node("Add", ["a", "b"], ["s"], name="add"), *quantizers("s", "y", "wide", "zero")]
    content = model(nodes, {"x": [1, 2, 6, 6]}, "y", {**U8, "w": WEIGHT})
    graph = read_bytes(tmp_path, content)
    np.testing.assert_allclose(ours(graph, X), outside(content, X), atol=1e-5)


def test_a_value_rounded_twice_is_rescaled(tmp_path: Path) -> None:
    nodes = [*quantizers("x", "a", "scale", "zero"), *quantizers("a", "y", "wide", "none")]
    content = model(nodes, {"x": [1, 2, 6, 6]}, "y", U8)
    np.testing.assert_allclose(ours(read_bytes(tmp_path, content), X), outside(content, X), atol=1e-6)


def test_floats_between_integers_stay_the_floats_they_were(tmp_path: Path) -> None:
    """The second convolution has float weights and nobody rounds its result: it runs in ONNX Runtime, as it did."""
    nodes = [*quantizers("x", "xr", "scale", "zero"), helper.make_node("DequantizeLinear", ["w", "ws"], ["wr"]),
             helper.make_node("Conv", ["xr", "wr"], ["c"], name="first", pads=[1, 1, 1, 1]),
             *quantizers("c", "cr", "wide", "zero"),
             helper.make_node("Conv", ["cr", "v"], ["d"], name="second"), helper.make_node("Relu", ["d"], ["y"])]
    weights = {**U8, "w": np.random.default_rng(0).integers(-128, 128, (4, 2, 3, 3)).astype(np.int8), "ws": np.float32(0.01),
               "v": np.random.default_rng(1).normal(0, 0.3, (3, 4, 1, 1)).astype(np.float32)}
    content = model(nodes, {"x": [1, 2, 6, 6]}, "y", weights)
    graph = read_bytes(tmp_path, content)
    assert {n.name: type(n.op).__name__ for n in graph.nodes} == {"first": "Conv", "second": "Opaque"}
    assert graph.macs == 4 * 2 * 9 * 36 + 3 * 4 * 36
    np.testing.assert_allclose(ours(graph, X), outside(content, X), atol=1e-6)


def test_a_batch_norm_behind_integer_weights_goes_into_their_scales(tmp_path: Path) -> None:
    """One factor is negative, one is zero: signs turn, a dead channel is its bias."""
    weights = {**U8, "w": np.random.default_rng(0).integers(-127, 128, (4, 2, 3, 3)).astype(np.int8), "ws": np.float32(0.01),
               "g": np.array([0.9, -1.3, 0.0, 2.0], np.float32), "b": np.array([0.1, -0.2, 0.3, 0.0], np.float32),
               "m": np.array([0.2, 0.1, 0.0, -0.1], np.float32), "v": np.array([1.1, 0.7, 1.0, 2.0], np.float32)}
    nodes = [*quantizers("x", "xr", "scale", "zero"), helper.make_node("DequantizeLinear", ["w", "ws"], ["wr"]),
             helper.make_node("Conv", ["xr", "wr"], ["c"], name="conv"),
             helper.make_node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"], name="norm"),
             helper.make_node("Relu", ["n"], ["r"]), *quantizers("r", "y", "wide", "none")]
    content = model(nodes, {"x": [1, 2, 6, 6]}, "y", weights)
    graph = read_bytes(tmp_path, content)
    assert [n.op.kind for n in graph.nodes] == ["Conv"]
    assert graph.constants["conv_weight"].array.dtype == np.int8
    np.testing.assert_allclose(ours(graph, X), outside(content, X), atol=1e-6)


def test_an_integer_input_becomes_a_real_one_with_a_note(tmp_path: Path) -> None:
    nodes = [helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["xr"]),
             helper.make_node("Relu", ["xr"], ["r"]), *quantizers("r", "y", "wide", "none")]
    content = model(nodes, {"x": [1, 2, 6, 6]}, "y", U8, element=TensorProto.UINT8)
    (tmp_path / "m.onnx").write_bytes(content)
    imported = read_onnx(tmp_path / "m.onnx")
    assert any(note.startswith("input x: stored as uint8 in the file") for note in imported.notes)
    codes = np.random.default_rng(0).integers(0, 256, (1, 2, 6, 6)).astype(np.uint8)
    real = (codes.astype(np.float32) - 117) * np.float32(0.0213)
    np.testing.assert_allclose(ours(imported.graph, real), outside(content, codes), atol=1e-6)


def quant(x: Array, scale: float, zero: float, bits: int, signed: int, narrow: int) -> Array:
    """QONNX's own definition of Quant."""
    hi = 2**(bits - 1) - 1 if signed else 2**bits - 1 - narrow
    lo = -(2**(bits - 1)) + narrow if signed else 0
    result: Array = (np.rint(np.clip(x / np.float32(scale) + zero, lo, hi)) - zero) * np.float32(scale)
    return result


def test_qonnx_quantizers_of_few_bits_are_schemes(tmp_path: Path) -> None:
    numbers = {"s1": np.float32(0.11), "s2": np.float32(0.21), "z": np.float32(0), "b3": np.float32(3), "b4": np.float32(4)}

    def node(source: str, scale: str, bits: str, output: str, signed: int, narrow: int) -> Any:
        return helper.make_node("Quant", [source, scale, "z", bits], [output], domain="qonnx.custom_op.general", signed=signed,
                                narrow=narrow, rounding_mode="ROUND", name=output)

    nodes = [node("x", "s1", "b4", "xq", 1, 0), node("w", "s1", "b3", "wq", 1, 1),
             helper.make_node("Conv", ["xq", "wq"], ["c"], name="conv"), helper.make_node("Relu", ["c"], ["r"]),
             node("r", "s2", "b4", "y", 0, 0)]
    graph = read_bytes(tmp_path, model(nodes, {"x": [1, 2, 6, 6]}, "y", {**numbers, "w": WEIGHT}))
    assert not [n for n in graph.nodes if isinstance(n.op, Opaque)]
    assert np.abs(graph.constants["conv_weight"].array).max() <= 3
    plain = model([helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])], {"x": [1, 2, 6, 6]}, "y",
                  {"w": quant(WEIGHT, 0.11, 0, 3, 1, 1)})
    expected = quant(outside(plain, quant(X, 0.11, 0, 4, 1, 0)), 0.21, 0, 4, 0, 0)
    np.testing.assert_allclose(ours(graph, X), expected, atol=1e-6)


@pytest.mark.parametrize(("attributes", "scale"), [
    ({"rounding_mode": "FLOOR"}, np.float32(0.1)), ({}, np.array([0.1, 0.3], np.float32).reshape(1, 2, 1, 1))])
def test_qonnx_quantizers_that_are_no_schemes_are_computed_in_floats(
        tmp_path: Path, attributes: dict[str, Any], scale: Array) -> None:
    node = helper.make_node("Quant", ["x", "s", "z", "b"], ["q"], domain="qonnx.custom_op.general", signed=1, narrow=0,
                            **attributes)
    nodes = [node, helper.make_node("Relu", ["q"], ["y"])]
    graph = read_bytes(tmp_path, model(nodes, {"x": [1, 2, 6, 6]}, "y", {"s": scale, "z": np.float32(0), "b": np.float32(4)}))
    steps = np.clip(X / scale, -8, 7)
    expected = np.maximum((np.floor(steps) if attributes else np.rint(steps)) * scale, 0)
    np.testing.assert_allclose(ours(graph, X), expected, atol=1e-6)


def test_bipolar_weights_are_signs(tmp_path: Path) -> None:
    nodes = [*quantizers("x", "xr", "scale", "zero"),
             helper.make_node("BipolarQuant", ["w", "s"], ["wq"], domain="qonnx.custom_op.general", name="sign"),
             helper.make_node("Conv", ["xr", "wq"], ["c"], name="conv"), *quantizers("c", "y", "wide", "zero")]
    graph = read_bytes(tmp_path, model(nodes, {"x": [1, 2, 6, 6]}, "y", {**U8, "w": WEIGHT, "s": np.float32(0.05)}))
    assert set(np.unique(graph.constants["conv_weight"].array)) == {-1, 1}
