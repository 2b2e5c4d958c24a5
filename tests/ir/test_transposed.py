"""Transposed convolutions: ordinary ones with a pixel shuffle behind, equal to ONNX Runtime's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from dovetail.errors import ModelError
from dovetail.ir import RELU, Conv, Graph, PixelShuffle, Window
from dovetail.ir.onnx.read import read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.numerics.calibration import synthetic
from dovetail.numerics.oracle import run_onnx, run_oracle
from dovetail.numerics.quantize import quantize_graph
from dovetail.numerics.reference import run_float, run_integer


def transposed(shape: tuple[int, ...], filters: int, kernel: tuple[int, int], activated: bool = False,
               **attributes: Any) -> bytes:
    """A ConvTranspose, alone or with BatchNorm and ReLU behind it."""
    rng = np.random.default_rng(0)
    arrays = {"w": rng.standard_normal((shape[1], filters // attributes.get("group", 1), *kernel)),
              "b": rng.standard_normal(filters)}
    nodes = [helper.make_node("ConvTranspose", ["x", "w", "b"], ["t" if activated else "y"], name="up", **attributes)]
    if activated:
        arrays |= {name: rng.random(filters) + 0.5 for name in ("scale", "shift", "mean", "variance")}
        nodes += [helper.make_node("BatchNormalization", ["t", "scale", "shift", "mean", "variance"], ["n"], name="norm"),
                  helper.make_node("Relu", ["n"], ["y"], name="relu")]
    x, y = (helper.make_tensor_value_info(name, 1, dims) for name, dims in (("x", shape), ("y", None)))
    graph = helper.make_graph(nodes, "m", [x], [y],
                              [numpy_helper.from_array(a.astype(np.float32), name) for name, a in arrays.items()])
    content: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    return content


def read_same(path: Path, content: bytes) -> Graph:
    """The graph of a model, equal to ONNX Runtime on floats, and the same again after a round trip."""
    path.write_bytes(content)
    graph = read_onnx(path).graph
    x = np.random.default_rng(1).standard_normal(graph.shape("x")).astype(np.float32)
    np.testing.assert_allclose(run_float(graph, {"x": x})["y"], run_onnx(content, {"x": x})["y"], rtol=1e-4, atol=1e-4)
    path.write_bytes(to_onnx(graph))
    assert read_onnx(path).graph == graph
    return graph


SAME, LOWER = {"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}
CASES: list[tuple[tuple[int, int], dict[str, Any]]] = [
    ((2, 2), {"strides": [2, 2]}), ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}), ((3, 3), {}),
    ((3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}), ((3, 3), {"strides": [2, 2]}),
    ((3, 2), {"strides": [3, 2], "pads": [0, 1, 1, 0], "output_padding": [2, 1]}), ((1, 5), {"strides": [1, 3]}),
    ((1, 1), {"strides": [2, 2]}), ((3, 3), {"strides": [2, 2], "dilations": [2, 2], "pads": [1, 0, 0, 1]}),
    ((3, 3), {"dilations": [2, 3]}), ((2, 2), {"strides": [2, 2], "pads": [2, 2, 2, 2]}),
    ((4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1], "group": 2}), ((3, 4), {"strides": [2, 2], **SAME}),
    ((3, 4), {"strides": [2, 2], **LOWER}), ((5, 4), {"strides": [3, 2], "output_shape": [13, 11]}),
    ((4, 4), {"strides": [2, 2], "output_shape": [11, 15], **SAME}), ((2, 2), {"strides": [3, 3], "dilations": [3, 3]})]


@pytest.mark.parametrize(("kernel", "attributes"), CASES, ids=str)
def test_a_transposed_convolution_is_an_ordinary_one_with_a_shuffle(
        tmp_path: Path, kernel: tuple[int, int], attributes: dict[str, Any]) -> None:
    for activated in (False, True):
        graph = read_same(tmp_path / "m.onnx", transposed((1, 4, 5, 6), 6, kernel, activated, **attributes))
        strided = max(attributes.get("strides", [1])) > 1
        assert [type(n.op) for n in graph.nodes] == [Conv, PixelShuffle][:1 + strided]
        assert (graph.nodes[0].op.clamp == RELU) == activated


sizes = st.integers(1, 5)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_transposed_convolution_equals_onnx_runtime(tmp_path: Path, data: st.DataObject) -> None:
    pick = data.draw
    kernel, strides, size = (pick(sizes), pick(sizes)), [pick(sizes), pick(sizes)], [pick(sizes), pick(sizes)]
    dilations = [pick(st.integers(1, 3)) for _ in range(2)]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [pick(st.integers(0, (n - 1) * s + r - 1)) for n, s, r in zip(size * 2, strides * 2, reach * 2, strict=True)]
    for i in range(2):  # something must be left
        pads[i + 2] = min(pads[i + 2], (size[i] - 1) * strides[i] + reach[i] - 1 - pads[i])
    more = [pick(st.integers(0, s - 1)) for s in strides]
    read_same(tmp_path / "m.onnx", transposed((1, 2, *size), 2, kernel, strides=strides, dilations=dilations, pads=pads,
                                              output_padding=more, group=pick(st.integers(1, 2))))


def test_the_usual_enlargement_has_no_weight_more_than_before(tmp_path: Path) -> None:
    """Where the kernel is the stride, every pixel reads one; all other kernels lie in the smallest window of all places."""
    graph = read_same(tmp_path / "m.onnx", transposed((1, 4, 5, 6), 6, (2, 2), strides=[2, 2]))
    assert graph.nodes[0].op == Conv(24, Window((1, 1)))
    graph = read_same(tmp_path / "m.onnx", transposed((1, 4, 5, 6), 6, (4, 4), strides=[2, 2], pads=[1, 1, 1, 1]))
    assert graph.nodes[0].op == Conv(24, Window((3, 3), pads=(1, 1, 1, 1)))


@pytest.mark.parametrize(("kernel", "attributes"), CASES[:7], ids=str)
def test_integers_equal_onnx_runtime(tmp_path: Path, kernel: tuple[int, int], attributes: dict[str, Any]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(transposed((1, 4, 5, 6), 6, kernel, True, **attributes))
    network = read_onnx(path).graph
    graph = quantize_graph(network, synthetic(network, 4, 0))
    scheme = graph.scheme("x")
    stored = {"x": np.random.default_rng(0).integers(scheme.lo, scheme.hi + 1, (2, 4, 5, 6)).astype(scheme.dtype)}
    found = run_integer(graph, stored, keep=True)
    for name, values in run_oracle(graph, stored).items():
        np.testing.assert_array_equal(values, found[name])
    path.write_bytes(to_onnx(graph))
    assert read_onnx(path).graph == graph


def test_scales_per_output_channel_of_a_quantized_file_are_those_of_every_place(tmp_path: Path) -> None:
    """Scales are powers of two, so that ONNX Runtime's floats are exact."""
    rng = np.random.default_rng(2)
    arrays = {"w": rng.integers(-127, 128, (4, 3, 2, 2)).astype(np.int8), "s": np.array([0.25, 0.125, 0.5], np.float32),
              "z": np.zeros(3, np.int8), "b": rng.integers(-900, 900, 6).astype(np.int32),
              "bs": np.array([0.25, 0.125, 0.5] * 2, np.float32) / 8, "bz": np.zeros(6, np.int32),
              "xs": np.float32(0.125), "xz": np.uint8(7), "ys": np.float32(4.0), "yz": np.uint8(100)}
    make = helper.make_node
    nodes = [make("QuantizeLinear", ["x", "xs", "xz"], ["xq"]), make("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
             make("DequantizeLinear", ["w", "s", "z"], ["wd"], axis=1),
             make("DequantizeLinear", ["b", "bs", "bz"], ["bd"], axis=0),
             make("ConvTranspose", ["xd", "wd", "bd"], ["t"], name="up", strides=[2, 2], group=2),
             make("QuantizeLinear", ["t", "ys", "yz"], ["tq"]), make("DequantizeLinear", ["tq", "ys", "yz"], ["y"])]
    given = [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()]
    model = helper.make_model(helper.make_graph(nodes, "m", [helper.make_tensor_value_info("x", 1, [1, 4, 3, 5])],
                                                [helper.make_tensor_value_info("y", 1, [1, 6, 6, 10])], given),
                              opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    graph = read_onnx(path).graph
    assert [type(n.op) for n in graph.nodes] == [Conv, PixelShuffle]
    assert graph.quantized
    stored = rng.integers(0, 256, (1, 4, 3, 5)).astype(np.uint8)
    x = (stored.astype(np.float32) - 7) / 8
    found = run_integer(graph, {"x": stored})["y"]
    np.testing.assert_array_equal((found.astype(np.float32) - 100) * 4, run_onnx(path.read_bytes(), {"x": x})["y"])
    assert len(np.unique(found)) > 20


def test_a_transposed_convolution_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(transposed((1, 4, 2, 2), 6, (2, 2), strides=[2, 2], pads=[2, 0, 2, 0]))
    with pytest.raises(ModelError, match=r"node up: 4 of 4 rows or columns are cropped and nothing is left; export"):
        read_onnx(path)
