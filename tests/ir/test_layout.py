"""Channels-last models: transposes move on until they cancel, and not a number changes on the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from dovetail.ir import Conv, Gemm, Opaque, Reshape, Transpose, Window
from dovetail.ir.onnx.layout import sink_transposes
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.oracle import run_onnx
from dovetail.numerics.reference import run_float, run_integer
from dovetail.pipeline import compile as compile_model
from dovetail.pipeline import verify_build
from dovetail.runtime.build import store
from tests.ir.test_onnx import simplify
from tests.strategies import Net, quantized

make = helper.make_node
FIRST, LAST = [0, 3, 1, 2], [0, 2, 3, 1]


class Keras:
    """A channels-last model under construction: every convolution between two transposes, as converters write it."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0) -> None:
        self.rng, self.nodes, self.weights = np.random.default_rng(seed), list[onnx.NodeProto](), dict[str, np.ndarray]()
        self.shape, self.x = shape, "x"

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = array
        return name

    def whole(self, *shape: int) -> str:
        """Small whole numbers: sums of them are exact in any order."""
        return self.constant(self.rng.integers(-2, 3, shape).astype(np.float32))

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        self.nodes.append(make(op, list(inputs), [f"t{len(self.nodes)}"], f"{op.lower()}{len(self.nodes)}", **attributes))
        return self.nodes[-1].output[0]

    def conv(self, x: str, channels: int, filters: int, kernel: int = 1, groups: int = 1) -> str:
        weight = self.whole(filters, channels // groups, kernel, kernel)
        y = self.add("Conv", self.add("Transpose", x, perm=FIRST), weight, kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4,
                     group=groups)
        return self.add("Transpose", y, perm=LAST)

    def model(self, y: str, opset: int = 17) -> onnx.ModelProto:
        graph = helper.make_graph(
            [*self.nodes, make("Identity", [y], ["y"], "end")], "keras",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)], [onnx.ValueInfoProto(name="y")],
            [numpy_helper.from_array(a, n) for n, a in self.weights.items()])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)


def transposes(model: onnx.ModelProto) -> int:
    return sum(n.op_type == "Transpose" for n in model.graph.node)


def run(model: onnx.ModelProto, shape: tuple[int, ...]) -> np.ndarray:
    x = np.random.default_rng(7).integers(-3, 4, shape).astype(np.float32)
    return run_onnx(model.SerializeToString(), {"x": x})["y"]


def sunk(model: onnx.ModelProto) -> onnx.ModelProto:
    """The rewritten model, checked by ONNX's own rules."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    sink_transposes(copy, "test")
    onnx.checker.check_model(copy)
    return copy


def block(shape: tuple[int, ...] = (1, 8, 8, 3)) -> onnx.ModelProto:
    """An inverted residual and a classifier, as a converter from Keras writes them."""
    k = Keras(shape)
    x = k.add("Mul", k.add("Sub", "x", k.whole(3)), k.constant(np.asarray([0.5, 0.25, 0.5], np.float32)))
    six = [k.constant(np.asarray(v, np.float32)) for v in (0.0, 6.0)]
    y = k.add("Add", k.conv(x, 3, 4, 3), k.whole(4))
    y = a = k.add("Clip", y, *six)
    pads = k.constant(np.asarray([0, 1, 1, 0, 0, 1, 1, 0], dtype=np.int64))
    y = k.add("Transpose", k.add("Pad", k.add("Clip", k.conv(y, 4, 8), *six), pads), perm=FIRST)
    y = k.add("Transpose", k.add("Conv", y, k.whole(8, 1, 3, 3), group=8), perm=LAST)
    y = k.add("Add", a, k.conv(k.add("Clip", y, *six), 8, 4))
    y = k.add("ReduceMean", y, axes=[1, 2], keepdims=0)
    return k.model(k.add("Add", k.add("MatMul", y, k.whole(4, 5)), k.whole(5)))


def test_a_keras_block_loses_all_transposes_but_the_one_at_its_input() -> None:
    model = block()
    rewritten = sunk(model)
    assert transposes(model) == 8
    assert transposes(rewritten) == 1
    np.testing.assert_array_equal(run(rewritten, (1, 8, 8, 3)), run(model, (1, 8, 8, 3)))


@pytest.mark.parametrize("between", [
    lambda k, x: k.add("PRelu", x, k.whole(1, 1, 4)), lambda k, x: k.add("Relu", x),
    lambda k, x: k.add("Concat", k.add("Relu", x), k.add("Neg", x), axis=1), lambda k, x: k.add("Max", x, k.whole(4)),
    lambda k, x: k.add("Add", x, k.add("Relu", x))], ids=["PRelu", "Relu", "Concat", "Max", "Add"])
def test_operators_between_convolutions_keep_no_transpose(between: Callable[[Keras, str], str]) -> None:
    k = Keras((1, 6, 5, 3))
    model = k.model(k.conv(between(k, k.conv("x", 3, 4, 3)), 4, 2))
    assert transposes(sunk(model)) == 2, "one at either end"
    np.testing.assert_array_equal(run(sunk(model), (1, 6, 5, 3)), run(model, (1, 6, 5, 3)))


def test_a_keras_block_comes_in_as_convolutions(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(block().SerializeToString())
    graph = read_onnx(path).graph
    assert not [n.name for n in graph.nodes if isinstance(n.op, Opaque)]
    assert [n.op.kind for n in graph.nodes] == ["Transpose", "Conv", "Conv", "Conv", "Conv", "Conv", "Add", "GlobalAvgPool",
                                                "Reshape", "Gemm"]
    assert [n.op.window.pads for n in graph.nodes if isinstance(n.op, Conv)][3] == (1, 1, 1, 1)
    x = np.random.default_rng(1).standard_normal((2, 8, 8, 3)).astype(np.float32)
    expected = np.concatenate([run_onnx(path.read_bytes(), {"x": f[None]})["y"] for f in x])
    np.testing.assert_allclose(run_float(graph, {"x": x})["y"], expected, rtol=1e-4, atol=1e-4)


def test_constants_behind_transposes_and_reshapes_are_computed_before_sinking(tmp_path: Path) -> None:
    """Keras and torch.export leave weights as they were stored; a scale behind a Reshape must not stop a transpose."""
    k = Keras((1, 8, 8, 3))
    kernel = k.add("Transpose", k.whole(3, 3, 3, 4), perm=[3, 2, 0, 1])
    y = k.add("Transpose", k.add("Conv", k.add("Transpose", "x", perm=FIRST), kernel, pads=[1] * 4), perm=LAST)
    shape = k.add("Constant", value=numpy_helper.from_array(np.asarray([1, 1, 1, 4])))
    k.nodes[-1].ClearField("input")
    y = k.add("Mul", y, k.add("Reshape", k.constant(np.asarray([1, 2, 0.5, 4], np.float32)), shape))
    y = k.add("Relu", k.add("Add", y, k.add("Identity", k.whole(1, 1, 1, 4))))
    path = tmp_path / "m.onnx"
    path.write_bytes(k.model(k.conv(y, 4, 5)).SerializeToString())
    graph = read_onnx(path).graph
    assert [n.op.kind for n in graph.nodes] == ["Transpose", "Conv", "Conv", "Transpose"]
    x = np.random.default_rng(2).integers(-3, 4, (1, 8, 8, 3)).astype(np.float32)
    np.testing.assert_array_equal(run_float(graph, {"x": x})["y"], run_onnx(path.read_bytes(), {"x": x})["y"])


@st.composite
def channels_last(draw: st.DrawFn) -> tuple[onnx.ModelProto, tuple[int, ...]]:
    """Random channels-last graphs of the operators that pass a permutation on, and some that do not."""
    shape = (draw(st.integers(1, 2)), draw(st.integers(2, 4)), draw(st.integers(2, 4)), draw(st.integers(2, 4)))
    k = Keras(shape, draw(st.integers(0, 99)))
    x, size = "x", list(shape)
    kinds = ["conv", "unary", "bias", "residual", "concat", "pad", "split", "slice", "turn", "prelu", "full", "max", "dense"]
    for _ in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(kinds))
        axis = draw(st.integers(-3, 3))
        if kind == "conv":
            filters = draw(st.integers(2, 4))
            x, size = k.conv(x, size[3], filters, draw(st.sampled_from([1, 3]))), [*size[:3], filters]
        elif kind == "unary":
            x = k.add(draw(st.sampled_from(["Relu", "Abs", "Neg", "Floor"])), x)
        elif kind == "bias":
            x = k.add(draw(st.sampled_from(["Add", "Sub", "Mul", "Max"])), x, k.whole(*size[draw(st.integers(0, 3)):]))
        elif kind == "residual":
            x = k.add("Add", k.conv(x, size[3], size[3]), x)
        elif kind == "concat":
            other = k.conv(x, size[3], size[3]) if draw(st.booleans()) else k.whole(*size)
            x = k.add("Concat", x, other, axis=axis)
            size[axis] *= 2
        elif kind == "pad":
            edges = draw(st.lists(st.integers(0, 2), min_size=8, max_size=8))
            x = k.add("Pad", x, k.constant(np.asarray(edges, dtype=np.int64)))
            size = [d + edges[i] + edges[i + 4] for i, d in enumerate(size)]
        elif kind == "split" and size[axis] > 1:
            sizes = k.constant(np.asarray([1, size[axis] - 1], dtype=np.int64))
            k.add("Split", x, sizes, axis=axis)
            k.nodes[-1].output.append(f"{k.nodes[-1].output[0]}_rest")
            x = k.nodes[-1].output[1]
            size[axis] -= 1
        elif kind == "slice":
            bounds = (k.constant(np.asarray([v], dtype=np.int64)) for v in (-1, -100, axis, -1))
            x = k.add("Slice", x, *bounds)
        elif kind == "turn":
            perm = draw(st.permutations(range(4)))
            x, size = k.add("Transpose", x, perm=list(perm)), [size[p] for p in perm]
        elif kind == "prelu":
            x = k.add("PRelu", x, k.whole(1, 1, size[3]))
        elif kind == "full":
            x = k.add("Mul", x, k.whole(*size))
        elif kind == "max":
            x = k.add("ReduceMax", x, axes=[axis], keepdims=1)
            size[axis] = 1
        elif kind == "dense":
            units = draw(st.integers(1, 3))
            x, size = k.add("MatMul", x, k.whole(size[3], units)), [*size[:3], units]
    end = draw(st.sampled_from(["none", "mean", "sum", "argmax", "squeeze", "flatten", "softmax", "quantize"]))
    if end == "mean":
        x = k.add("ReduceSum", x, k.constant(np.asarray([1, -2], dtype=np.int64)), keepdims=0)
    elif end == "sum":
        x = k.add("ReduceMax", x, axes=[0, 3], keepdims=draw(st.integers(0, 1)))
    elif end == "argmax":
        x = k.add("ArgMax", x, axis=-1, keepdims=draw(st.integers(0, 1)))
    elif end == "squeeze":
        x = k.add("Squeeze", k.add("ReduceMax", x, axes=[1, 3]), k.constant(np.asarray([3, 1], dtype=np.int64)))
    elif end == "flatten":
        x = k.add("Reshape", x, k.constant(np.asarray([0, -1], dtype=np.int64)))
    elif end == "softmax":
        x = k.add("Softmax", x, axis=-1)
    elif end == "quantize":
        scale = k.constant(np.asarray([0.5] * size[3], np.float32))
        zero = k.constant(np.arange(size[3], dtype=np.int8))
        x = k.add("DequantizeLinear", k.add("QuantizeLinear", x, scale, zero, axis=3), scale, zero, axis=-1)
    return k.model(x), shape


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(channels_last())
def test_sinking_never_changes_a_number(made: tuple[onnx.ModelProto, tuple[int, ...]]) -> None:
    model, shape = made
    rewritten = sunk(model)
    assert transposes(rewritten) <= transposes(model)
    expected, found = run(model, shape), run(rewritten, shape)
    if any(n.op_type == "Softmax" for n in model.graph.node):  # exponentials are added in another order
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    else:
        np.testing.assert_array_equal(found, expected)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(made=channels_last())
def test_what_is_read_computes_what_the_file_says(tmp_path: Path, made: tuple[onnx.ModelProto, tuple[int, ...]]) -> None:
    model, shape = made
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    x = np.random.default_rng(7).integers(-3, 4, shape).astype(np.float32)
    found = run_float(read_onnx(path).graph, {"x": x})
    np.testing.assert_allclose(next(iter(found.values())), run(model, shape), rtol=1e-5, atol=1e-5)


def flattened(shape: tuple[int, ...] = (1, 4, 3, 2)) -> onnx.ModelProto:
    """A channels-last map, flattened and read by two classifiers."""
    k = Keras(shape)
    y = k.add("Relu", k.conv("x", 2, 5, 3))
    y = k.add("Reshape", y, k.constant(np.asarray([0, -1], dtype=np.int64)))
    a, b = k.add("MatMul", y, k.whole(60, 3)), k.add("Gemm", y, k.whole(2, 60), transB=1)
    return k.model(k.add("Concat", a, b, axis=1))


def test_a_flattened_channels_last_map_turns_the_weights_instead(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(flattened().SerializeToString())
    graph = read_onnx(path).graph
    assert [n.op.kind for n in graph.nodes] == ["Transpose", "Conv", "Reshape", "Gemm", "Gemm", "Concat"]
    x = np.random.default_rng(0).integers(-3, 4, (1, 4, 3, 2)).astype(np.float32)
    np.testing.assert_array_equal(run_float(graph, {"x": x})["y"], run_onnx(path.read_bytes(), {"x": x})["y"])


def test_integer_weights_are_turned_like_floats() -> None:
    net = Net(0)
    y = net.add(Transpose((0, 2, 3, 1)), net.add(Conv(3, Window((1, 1))), net.input((1, 2, 2, 4))))
    graph = quantized(net.graph(net.add(Gemm(5), net.add(Reshape((1, 24)), y))))
    turned = simplify(graph)
    assert [n.op.kind for n in turned.nodes] == ["Conv", "Reshape", "Gemm"]
    scheme = graph.tensors["x"].scheme
    assert scheme is not None
    stored = {"x": np.random.default_rng(0).integers(scheme.lo, scheme.hi + 1, (4, 2, 2, 4)).astype(scheme.dtype)}
    (name,) = graph.outputs
    np.testing.assert_array_equal(run_integer(turned, stored)[name], run_integer(graph, stored)[name])


def quantized_block() -> onnx.ModelProto:
    """A channels-last block with quantizers around everything, as a quantizer for TensorFlow models leaves it."""
    k = Keras((1, 5, 4, 3))

    def stored(x: str, scale: float, zero: int = 0) -> str:
        numbers = k.constant(np.asarray(scale, np.float32)), k.constant(np.asarray(zero, np.int8))
        return k.add("DequantizeLinear", k.add("QuantizeLinear", x, *numbers), *numbers)

    weight = k.constant(k.rng.integers(-50, 50, (4, 3, 3, 3)).astype(np.int8))
    scales = k.constant(np.asarray([0.03125, 0.0625, 0.03125, 0.015625], np.float32))
    weight = k.add("DequantizeLinear", weight, scales, k.constant(np.zeros(4, np.int8)), axis=0)
    y = k.add("Transpose", stored("x", 0.25, 3), perm=FIRST)
    y = k.add("Transpose", k.add("Conv", y, weight, pads=[1] * 4), perm=LAST)
    y = stored(k.add("Relu", y), 0.5, -128)
    y = stored(k.add("Concat", y, y, axis=3), 0.5, -128)
    return k.model(y)


def test_a_quantized_channels_last_block_keeps_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(quantized_block().SerializeToString())
    graph = read_onnx(path).graph
    assert [n.op.kind for n in graph.nodes] == ["Transpose", "Conv", "Concat", "Transpose"]
    x = np.random.default_rng(0).standard_normal((1, 5, 4, 3)).astype(np.float32) * 8
    expected = run_onnx(path.read_bytes(), {"x": x})["y"]
    (name,) = graph.outputs
    scheme = graph.tensors[name].scheme
    assert scheme is not None
    found = run_integer(graph, store(graph, {"x": x}, "test"))[name]
    np.testing.assert_array_equal((found.astype(np.float64) - scheme.zero) * scheme.scale, expected)


@pytest.mark.verilator
def test_a_channels_last_build_is_exact_and_reads_its_own_model_again(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(block((1, 6, 6, 3)).SerializeToString())
    build = compile_model(path, "tx2-c10gx", tmp_path / "build", verify=False)
    outcome = verify_build(build, frames=2)
    assert outcome.equal, str(outcome.first_mismatch)
    fpga = [n for s in build.program.segments if s.device == "fpga" for n in s.nodes]
    assert len(fpga) >= 8  # everything but the transpose at the input


def test_a_float_that_its_file_quantizes_saturates(tmp_path: Path) -> None:
    """An operator that nothing else of the file quantizes, then a grid that its result leaves."""
    k = Keras((1, 2, 2, 2))
    x = k.add("Mul", k.add("ReduceMax", "x", axes=[2], keepdims=1), k.constant(np.asarray(-100.0, np.float32)))
    scale, zero = k.constant(np.asarray(0.5, np.float32)), k.constant(np.asarray(0, np.int8))
    model = k.model(k.add("DequantizeLinear", k.add("QuantizeLinear", x, scale, zero), scale, zero))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    x = np.random.default_rng(7).integers(-3, 4, (1, 2, 2, 2)).astype(np.float32)
    expected = run(model, (1, 2, 2, 2))
    assert expected.min() == -64.0
    np.testing.assert_array_equal(next(iter(run_float(read_onnx(path).graph, {"x": x}).values())), expected)
