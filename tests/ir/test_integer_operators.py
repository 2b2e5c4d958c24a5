"""Integer operators of older exporters and QONNX's thresholds, read as what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from dovetail.ir import Array, Conv, Graph
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.tensor import scheme_of_scales
from dovetail.ir.tflite.rounding import STEPS, _neighbours
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_float, run_integer
from tests.ir.test_onnx import save

node = helper.make_node
QONNX = "qonnx.custom_op.general"
SCALES = {"scale": np.float32(0.03125), "zero": np.uint8(120), "ws": np.float32(0.0078125), "wz": np.int8(0)}


def quantizers(source: str, output: str) -> list[Any]:
    return [node("QuantizeLinear", [source, "scale", "zero"], [f"{output}_stored"]),
            node("DequantizeLinear", [f"{output}_stored", "scale", "zero"], [output])]


def imported(path: Path, nodes: list[Any], constants: dict[str, Array], shape: tuple[int, ...] = (1, 2, 6, 6)) -> Graph:
    """A network in the domains of other tools, as it is read."""
    save(path, nodes, {"x": list(shape)}, {"y": [1, 4, 6, 6]}, constants)
    model = onnx.load(path)
    model.opset_import.extend([helper.make_opsetid("com.microsoft", 1), helper.make_opsetid(QONNX, 1)])
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    onnx.save(model, path)
    return read_onnx(path).graph


@pytest.mark.parametrize("given", [{}, {"domain": "com.microsoft", "channels_last": 0}])
def test_a_convolution_on_integers_keeps_its_groups(tmp_path: Path, given: dict[str, Any]) -> None:
    weights = np.random.default_rng(0).integers(-20, 21, (4, 1, 3, 3)).astype(np.int8)
    wide = ["scale", "zero"]
    nodes = [node("QuantizeLinear", ["x", *wide], ["q"]),
             node("QLinearConv", ["q", *wide, "w", "ws", "wz", *wide], ["c"], "conv", group=2, pads=[1] * 4, **given),
             node("DequantizeLinear", ["c", *wide], ["y"])]
    graph = imported(tmp_path / "m.onnx", nodes, {**SCALES, "w": weights})
    (conv,) = graph.nodes
    assert isinstance(conv.op, Conv)
    assert conv.op.groups == 2
    assert graph.tensors[conv.output].scheme == scheme_of_scales(8, False, [0.03125], zero=120)
    stored = np.random.default_rng(1).integers(0, 256, (1, 2, 6, 6)).astype(np.uint8)
    real = (stored.astype(np.float32) - 120) * np.float32(0.03125)
    theirs = run_onnx((tmp_path / "m.onnx").read_bytes(), {"x": real})["y"]
    ours = (run_integer(graph, {"x": stored})[graph.outputs[0]].astype(np.float64) - 120) * 0.03125
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("shown", [{}, {"kernel_shape": [3, 3]}])
def test_integer_layers_whose_channels_come_last_are_those_of_images_by_channel(tmp_path: Path, shown: dict[str, Any]) -> None:
    """ONNX Runtime's own layout: it moves a network's integer layers to channels last and saves them so."""
    weights, wide = np.random.default_rng(4).integers(-20, 21, (4, 2, 3, 3)).astype(np.int8), ["scale", "zero"]
    last: dict[str, Any] = {"domain": "com.microsoft", "channels_last": 1}
    nodes = [node("QuantizeLinear", ["x", *wide], ["q"]), node("Transpose", ["q"], ["t"], "last", perm=[0, 2, 3, 1]),
             node("QLinearConv", ["t", *wide, "w", "ws", "wz", *wide], ["c"], "conv", pads=[1] * 4, **last, **shown),
             node("QLinearAveragePool", ["c", *wide, *wide], ["p"], "pool", kernel_shape=[2, 2], **last),
             node("NhwcMaxPool", ["p"], ["m"], "largest", kernel_shape=[3, 3], domain="com.microsoft"),
             node("Transpose", ["m"], ["u"], "first", perm=[0, 3, 1, 2]), node("DequantizeLinear", ["u", *wide], ["y"])]
    graph = imported(tmp_path / "m.onnx", nodes, {**SCALES, "w": weights})
    assert [type(n.op).__name__ for n in graph.nodes] == ["Conv", "AvgPool", "MaxPool"]
    stored = np.random.default_rng(1).integers(0, 256, (1, 2, 6, 6)).astype(np.uint8)
    real = (stored.astype(np.float32) - 120) * np.float32(0.03125)
    theirs = run_onnx((tmp_path / "m.onnx").read_bytes(), {"x": real})["y"]
    ours = (run_integer(graph, {"x": stored})[graph.outputs[0]].astype(np.float64) - 120) * 0.03125
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("layout", "shape"), [("NCHW", (1, 2, 6, 6)), ("NHWC", (1, 6, 6, 2)), ("NC", (3, 2))])
def test_steps_over_floats_are_counted_by_channel_in_any_layout(tmp_path: Path, layout: str, shape: tuple[int, ...]) -> None:
    steps = np.asarray([[-0.5, 0.0, 1.25], [-1.0, 0.25, 0.5]], np.float32)
    nodes = [node("MultiThreshold", ["x", "steps"], ["y"], "count", domain=QONNX, data_layout=layout, out_scale=0.5,
                  out_bias=-1.0)]
    x = np.random.default_rng(2).normal(0, 1, shape).astype(np.float32)
    x.reshape(-1)[:4] = 0.0, 0.25, 0.5, -1.0
    graph = imported(tmp_path / "m.onnx", nodes, {"steps": steps}, shape)
    limits = steps.reshape(1, 2, *[1] * (len(shape) - 2), 3) if layout[1] == "C" else steps
    counts = (x[..., None] >= limits).sum(axis=-1)
    np.testing.assert_array_equal(run_float(graph, {"x": x})[graph.outputs[0]], counts * 0.5 - 1)


@pytest.mark.parametrize("operator", ["Quant", "BipolarQuant"])
@pytest.mark.parametrize("size", [(), (1, 1, 1, 1), (4, 1, 1, 1), (4, 2, 1, 1), (2, 1, 1)])
@pytest.mark.parametrize("quantized", [False, True])
def test_weights_may_have_scales_along_any_axes(tmp_path: Path, operator: str, size: tuple[int, ...], quantized: bool) -> None:
    """One scale, or one per filter, makes a layer of integers between integers; the real weights are the same in all places."""
    rng = np.random.default_rng(3)
    scale, w = rng.uniform(0.05, 0.2, size).astype(np.float32), rng.normal(0, 0.4, (4, 2, 3, 3)).astype(np.float32)
    constants = {**SCALES, "w": w, "s": scale, "none": np.float32(0), "bits": np.float32(4)}
    given = ["w", "s", "none", "bits"] if operator == "Quant" else ["w", "s"]
    nodes = [node(operator, given, ["q"], "levels", domain=QONNX), node("Conv", ["x", "q"], ["c"], "conv", pads=[1] * 4)]
    if quantized:
        nodes = [*quantizers("x", "xq"), nodes[0], node("Conv", ["xq", "q"], ["c"], "conv", pads=[1] * 4), *quantizers("c", "y")]
    else:
        nodes.append(node("Relu", ["c"], ["y"], "relu"))
    graph = imported(tmp_path / "m.onnx", nodes, constants)
    levels = np.clip(np.rint(w / scale), -8, 7) if operator == "Quant" else np.where(w >= 0, 1, -1)
    weight = graph.params(graph.nodes[0])[0] if graph.nodes[0].params else None
    if weight is not None:
        np.testing.assert_allclose(weight.real, levels * scale, rtol=1e-6)
    assert (weight is not None and weight.array.dtype == np.int8) == (quantized and size in ((), (1, 1, 1, 1), (4, 1, 1, 1)))
    if not quantized:
        same_as(graph, nodes[1:], {"q": (levels * scale).astype(np.float32)}, tmp_path)


def test_a_file_that_quantizes_its_weights_alone_is_a_network_of_their_real_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    w, v = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((4, 2, 3, 3), (4, 1, 3, 3)))
    scales, offsets = rng.uniform(0.001, 0.02, 4).astype(np.float32), rng.normal(0, 1, 4).astype(np.float32)
    plain = [node("Conv", ["x", "wr", "b"], ["c"], "first", pads=[1] * 4), node("Relu", ["c"], ["r"], "relu"),
             node("Conv", ["r", "vr"], ["y"], "second", pads=[1] * 4, group=4)]
    stored = [node("DequantizeLinear", ["w", "s"], ["wr"], axis=0), node("DequantizeLinear", ["v", "one", "two"], ["vr"])]
    constants = {"w": w, "v": v, "s": scales, "one": np.float32(0.0125), "two": np.int8(2), "b": offsets}
    graph = imported(tmp_path / "m.onnx", [*stored, *plain], constants)
    assert not graph.quantized
    assert {c.array.dtype for c in graph.constants.values()} == {np.dtype(np.float32)}
    assert {c.scheme for c in graph.constants.values()} == {None}
    real = {"wr": w * scales.reshape(4, 1, 1, 1), "vr": (v.astype(np.float32) - 2) * np.float32(0.0125)}
    same_as(graph, plain, {**real, "b": offsets}, tmp_path)


@pytest.mark.parametrize("coarser", [False, True])
def test_a_bias_of_many_digits_is_kept_where_its_scale_is_that_of_the_sums(tmp_path: Path, coarser: bool) -> None:
    """The file's scale is a product in single precision, which is off by so little that integers must not move with it."""
    scale, steps = np.float32(0.0213), np.asarray([0.0091, 0.0137, 0.0033, 0.0077], np.float32)
    units = scale * steps * (2 if coarser else 1)
    digits = np.asarray([500_000_001, -400_000_003, 7, 300_000_009], np.int32)
    weights = np.random.default_rng(7).integers(-20, 21, (4, 2, 3, 3)).astype(np.int8)
    nodes = [*quantizers("x", "xq"), node("DequantizeLinear", ["w", "ws"], ["wr"], axis=0),
             node("DequantizeLinear", ["b", "bs"], ["br"], axis=0),
             node("Conv", ["xq", "wr", "br"], ["c"], "conv", pads=[1] * 4), *quantizers("c", "y")]
    graph = imported(tmp_path / "m.onnx", nodes, {"scale": scale, "zero": np.uint8(0), "w": weights, "ws": steps, "b": digits,
                                                 "bs": units})
    weight, bias = graph.params(graph.nodes[0])
    np.testing.assert_array_equal(weight.array, weights)
    if not coarser:
        np.testing.assert_array_equal(bias.array, digits)
    np.testing.assert_allclose(bias.real, digits * units.astype(np.float64), rtol=2e-7)
    np.testing.assert_allclose(bias.scheme.scales, float(scale) * steps.astype(np.float64), rtol=1e-6)  # type: ignore[union-attr]


@pytest.mark.parametrize(("wide", "low"), [
    (np.float32(0.0625), np.uint8(100)), (np.float32(0.0213), np.uint8(120)),
    (np.asarray([0.0625, 0.011], np.float32), np.asarray([100, 7], np.uint8))])
@pytest.mark.parametrize("moved", [False, True])
def test_integers_that_are_read_by_another_scale_mean_what_they_are_read_as(
        tmp_path: Path, wide: Array, low: Array, moved: bool) -> None:
    """Values that were stored by one scale are multiplied on the way to those who read them by another, or by several."""
    nodes = [node("Relu", ["x"], ["r"], "relu"), node("QuantizeLinear", ["r", "scale", "zero"], ["q"], "store"),
             node("DequantizeLinear", ["m" if moved else "q", "wide", "low"], ["d"], "read"), node("Neg", ["d"], ["y"], "negate")]
    if moved:
        nodes.insert(2, node("Transpose", ["q"], ["m"], "turn", perm=[0, 1, 3, 2]))
    graph = imported(tmp_path / "m.onnx", nodes, {**SCALES, "wide": wide, "low": low})
    stored = np.random.default_rng(8).integers(0, 256, (1, 2, 6, 6)).astype(np.uint8)
    real = (stored.astype(np.float32) - 120) * np.float32(0.03125)
    wanted = run_onnx((tmp_path / "m.onnx").read_bytes(), {"x": real})["y"]
    assert graph.tensors["x"].scheme == scheme_of_scales(8, False, [0.03125], zero=120)
    np.testing.assert_allclose(run_integer(graph, {"x": stored})[graph.outputs[0]], wanted, rtol=1e-6)


def same_as(graph: Graph, nodes: list[Any], constants: dict[str, Array], folder: Path) -> None:
    """Whether a float graph computes what ONNX Runtime does of plain nodes."""
    path = save(folder / "plain.onnx", nodes, {"x": [1, 2, 6, 6]}, {"y": [1, 4, 6, 6]}, constants)
    x = np.random.default_rng(6).normal(0, 1, (1, 2, 6, 6)).astype(np.float32)
    wanted = run_onnx(path.read_bytes(), {"x": x})["y"]
    np.testing.assert_allclose(run_float(graph, {"x": x})[graph.outputs[0]], wanted, rtol=1e-5, atol=1e-5)


def test_factors_of_a_sum_are_sought_outwards_and_each_pair_once() -> None:
    tried = list(_neighbours(3))
    far = 3 * (STEPS - 1)
    assert sorted(tried) == [(a, b) for a in range(-far, far + 1, 3) for b in range(-far, far + 1, 3)]
    reach = [max(abs(a), abs(b)) for a, b in tried]
    assert reach == sorted(reach)


def branch(name: str, operator: str) -> Any:
    """A sub-graph that reads stored integers from around it."""
    return helper.make_graph([node("Cast", ["q"], [f"{name}_c"], to=6), node(operator, [f"{name}_c", "k"], [name])], name, [],
                             [helper.make_tensor_value_info(name, 6, None)])


AS_INTEGERS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "cast": ([node("Cast", ["q"], ["c"], to=1), node("Mul", ["c", "k"], ["y"])], {"k": np.float32(2)}),
    "clip": ([node("Clip", ["q", "lo", "hi"], ["c"]), node("DequantizeLinear", ["c", "scale", "zero"], ["y"])],
             {"lo": np.uint8(100), "hi": np.uint8(131)}),
    "pad": ([node("Pad", ["q", "k"], ["c"]), node("DequantizeLinear", ["c", "scale", "zero"], ["y"])],
            {"k": np.asarray([0, 0, 1, 1] * 2, np.int64)}),
    "join": ([node("Concat", ["q", "k"], ["c"], axis=1), node("DequantizeLinear", ["c", "scale", "zero"], ["y"])],
             {"k": np.full((1, 1, 6, 6), 9, np.uint8)}),
    "moved": ([node("MaxPool", ["q"], ["p"], kernel_shape=[2, 2]), node("Transpose", ["p"], ["t"], perm=[0, 1, 3, 2]),
               node("Cast", ["t"], ["y"], to=1)], {}),
    "table": ([node("Cast", ["q"], ["c"], to=7), node("Gather", ["k", "c"], ["y"])],
              {"k": np.linspace(-3, 3, 256, dtype=np.float32)}),
    "sums": ([node("MatMulInteger", ["q", "k", "zero"], ["c"]), node("Cast", ["c"], ["y"], to=1)],
             {"k": np.arange(-12, 12, dtype=np.int8).reshape(6, 4)}),
    "both": ([node("DequantizeLinear", ["q", "scale", "zero"], ["d"]), node("Cast", ["q"], ["c"], to=1),
              node("Abs", ["c"], ["a"]), node("Add", ["d", "a"], ["y"])], {}),
    "branch": ([node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "none"], ["b"]),
                node("If", ["b"], ["r"], then_branch=branch("more", "Add"), else_branch=branch("less", "Sub")),
                node("Cast", ["r"], ["y"], to=1)], {"k": np.int32(3), "none": np.float32(0)}),
}


@pytest.mark.parametrize("case", AS_INTEGERS)
def test_who_reads_stored_integers_as_integers_gets_them(tmp_path: Path, case: str) -> None:
    """Not the real numbers that they stand for, which our tensors hold."""
    nodes, constants = AS_INTEGERS[case]
    graph = imported(tmp_path / "m.onnx", [node("QuantizeLinear", ["x", "scale", "zero"], ["q"], "store"), *nodes],
                     {**SCALES, **constants})
    stored = np.random.default_rng(1).integers(0, 256, (1, 2, 6, 6)).astype(np.uint8)
    real = (stored.astype(np.float32) - 120) * np.float32(0.03125)
    theirs, scheme = run_onnx((tmp_path / "m.onnx").read_bytes(), {"x": real})["y"], graph.tensors[graph.outputs[0]].scheme
    ours = run_integer(graph, {"x": real if graph.tensors["x"].scheme is None else stored})[graph.outputs[0]]
    np.testing.assert_array_equal(ours if scheme is None else (ours.astype(np.float64) - scheme.zero) * scheme.scale, theirs)


@pytest.mark.parametrize("cast_first", [False, True])
def test_an_input_of_integers_may_be_read_both_ways(tmp_path: Path, cast_first: bool) -> None:
    ways = [node("DequantizeLinear", ["x", "scale", "zero"], ["d"]), node("Cast", ["x"], ["c"], to=1)]
    nodes = [*ways[::-1 if cast_first else 1], node("Add", ["d", "c"], ["y"])]
    save(tmp_path / "m.onnx", nodes, {"x": [1, 2, 6, 6]}, {"y": [1, 2, 6, 6]}, SCALES)
    model = onnx.load(tmp_path / "m.onnx")
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    graph = read_onnx(model).graph
    x = np.random.default_rng(6).integers(0, 256, (1, 2, 6, 6)).astype(np.uint8)
    np.testing.assert_array_equal(run_float(graph, {"x": x})["y"], run_onnx(model.SerializeToString(), {"x": x})["y"])
