"""TensorFlow Lite files: every operator beside LiteRT, whole networks integer by integer, and files that lie.

Of int8, LiteRT's reference kernels are the judge; of floats its default ones.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from dovetail.cost.costs import why_not
from dovetail.errors import DovetailError, MissingToolError, ModelError, UnsupportedError
from dovetail.ir import Graph
from dovetail.ir.onnx.read import read_model, read_onnx
from dovetail.ir.onnx.write import to_onnx
from dovetail.ir.tensor import Array, Shape
from dovetail.ir.tflite import file
from dovetail.ir.tflite.translate import RULES, translate
from dovetail.kernels import layers
from dovetail.numbers import graph_to_plan
from dovetail.numerics.oracle import run_oracle
from dovetail.numerics.reference import run_integer
from dovetail.numerics.submodel import inexact_sums
from dovetail.platform.device import Kind
from dovetail.platform.load import load_platform
from tests.ir.lite import Lite, Scale, litert

NETWORKS = Path(__file__).parents[2] / "bench" / "mlperf_tiny"
X: Shape = (1, 7, 6, 4)
IN, OUT, OTHER = (0.05, 3), (0.031, -5), (0.023, -7)
HALVES = (0.03333333507180214, -5)
"""Two thirds of the scale of `IN`: in single precision to the last digit, in double precision a little less."""
COARSER = (0.08, 2)
"""Between one and two steps of `IN`, for which the kernels round once."""
FRAMES = 40


def ints(*values: Any) -> Array:
    return np.asarray(values, np.int32)


def unary(kind: str, options: str | None, out: Shape, scale: Scale, int8: bool, shape: Shape = X,
          constants: Sequence[Array] = (), **values: Any) -> bytes:
    lite, dtype = Lite(), "int8" if int8 else "float32"
    x = lite.tensor("x", shape, dtype, IN if int8 else None)
    more = [lite.tensor(f"c{i}", v.shape, "int32", values=v) for i, v in enumerate(constants)]
    y = lite.tensor("y", out, dtype, scale if int8 else None)
    lite.operator(kind, [x, *more], [y], options, **values)
    return lite.content([x], [y])


def binary(kind: str, options: str, int8: bool) -> bytes:
    lite, dtype = Lite(), "int8" if int8 else "float32"
    a, b, y = (lite.tensor(name, X, dtype, scale if int8 else None) for name, scale in (("a", IN), ("b", OTHER), ("y", OUT)))
    lite.operator(kind, [a, b], [y], options)
    return lite.content([a, b], [y])


def layer(kind: str, int8: bool, padding: int, stride: int, dilation: int, activation: int) -> bytes:
    """A convolution, a depthwise one of two filters a channel, or a fully connected layer."""
    rng, lite, dtype = np.random.default_rng(stride), Lite(), "int8" if int8 else "float32"
    deep, flat = kind == "DEPTHWISE_CONV_2D", kind == "FULLY_CONNECTED"
    filters = 8 if deep else 6
    x = lite.tensor("x", (1, 12) if flat else X, dtype, IN if int8 else None)
    shape = (filters, 12) if flat else (1, 3, 3, filters) if deep else (filters, 3, 3, 4)
    scales = rng.uniform(0.002, 0.01, 1 if flat else filters).astype(np.float32)
    zeros = np.zeros(scales.size)
    weights = rng.integers(-127, 128, shape) if int8 else rng.normal(size=shape)
    bias = rng.integers(-1000, 1000, filters) if int8 else rng.normal(size=filters)
    w = lite.tensor("w", shape, dtype, (scales, zeros) if int8 else None, weights, 3 if deep else 0)
    b = lite.tensor("b", (filters,), "int32" if int8 else dtype, (scales * np.float32(IN[0]), zeros) if int8 else None, bias)
    size = [-(-n // stride) if padding == 0 else (n - 2 * dilation - 1) // stride + 1 for n in X[1:3]]
    y = lite.tensor("y", (1, filters) if flat else (1, *size, filters), dtype, OUT if int8 else None)
    options = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}.get(kind, "FullyConnectedOptions")
    values = {} if flat else {"padding": padding, "strideH": stride, "strideW": stride, "dilationHFactor": dilation,
                              "dilationWFactor": dilation}
    lite.operator(kind, [x, w, b], [y], options, 4 if flat else 3, fusedActivationFunction=activation, **values,
                  **({"depthMultiplier": 2} if deep else {}))
    return lite.content([x], [y])


def transposed(int8: bool) -> bytes:
    rng, lite = np.random.default_rng(1), Lite()
    shape = lite.tensor("shape", (4,), "int32", values=ints(1, 14, 12, 5))
    w = lite.tensor("w", (5, 3, 3, 4), values=rng.normal(size=(5, 3, 3, 4)))
    x, y = lite.tensor("x", X), lite.tensor("y", (1, 14, 12, 5))
    lite.operator("TRANSPOSE_CONV", [shape, w, x], [y], "TransposeConvOptions", padding=0, strideH=2, strideW=2)
    return lite.content([x], [y])


def joined(int8: bool) -> bytes:
    lite, dtype = Lite(), "int8" if int8 else "float32"
    parts = [lite.tensor(name, X, dtype, IN if int8 else None) for name in "ab"]
    y = lite.tensor("y", (1, 7, 6, 8), dtype, IN if int8 else None)
    lite.operator("CONCATENATION", parts, [y], "ConcatenationOptions", axis=3)
    return lite.content(parts, [y])


POOL = {"filterHeight": 3, "filterWidth": 3, "strideH": 2, "strideW": 2, "padding": 0}
LARGE: Shape = (1, 14, 12, 4)
EQUAL: dict[str, tuple[Any, ...]] = {
    **{f"{kind} {p} {s} {d} {a}": (layer, kind, p, s, d, a) for kind in ("CONV_2D", "DEPTHWISE_CONV_2D")
       for p, s, d, a in ((0, 1, 1, 1), (0, 2, 1, 3), (1, 2, 1, 0), (1, 1, 1 if kind.startswith("DEPTH") else 2, 1))},
    "FULLY_CONNECTED": (layer, "FULLY_CONNECTED", 1, 1, 1, 1),
    "CONCATENATION": (joined,),
    "MAX_POOL_2D": (unary, "MAX_POOL_2D", "Pool2DOptions", (1, 4, 3, 4), IN, POOL),
    "MEAN": (unary, "MEAN", "ReducerOptions", (1, 4), OUT, {"constants": [ints(1, 2)]}),
    "SOFTMAX": (unary, "SOFTMAX", "SoftmaxOptions", (1, 12), (1 / 256, -128), {"shape": (1, 12), "beta": 1.0}),
    "LOGISTIC": (unary, "LOGISTIC", None, X, (1 / 256, -128), {}),
    "TANH": (unary, "TANH", None, X, (1 / 128, 0), {}),
    "HARD_SWISH": (unary, "HARD_SWISH", "HardSwishOptions", X, OUT, {}),
    "RELU": (unary, "RELU", None, X, OUT, {}),
    "RELU6": (unary, "RELU6", None, X, OUT, {}),
    "RELU of halves": (unary, "RELU", None, X, HALVES, {}),
    "RESHAPE": (unary, "RESHAPE", None, (1, 168), IN, {"constants": [ints(1, 168)]}),
    "TRANSPOSE": (unary, "TRANSPOSE", "TransposeOptions", (1, 4, 7, 6), IN, {"constants": [ints(0, 3, 1, 2)]}),
    "PAD": (unary, "PAD", None, (1, 9, 9, 4), IN, {"constants": [ints([0, 0], [1, 1], [1, 2], [0, 0])]}),
    "RESIZE_NEAREST_NEIGHBOR": (unary, "RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", LARGE, IN,
                                {"constants": [ints(14, 12)]}),
    "RESIZE_NEAREST_NEIGHBOR half": (unary, "RESIZE_NEAREST_NEIGHBOR", "ResizeNearestNeighborOptions", LARGE, IN,
                                     {"constants": [ints(14, 12)], "halfPixelCenters": True}),
    "DEPTH_TO_SPACE": (unary, "DEPTH_TO_SPACE", "DepthToSpaceOptions", (1, 14, 12, 1), IN, {"blockSize": 2}),
    "STRIDED_SLICE": (unary, "STRIDED_SLICE", "StridedSliceOptions", (1, 3, 6, 4), IN,
                      {"constants": [ints(0, 1, 0, 0), ints(1, 7, 6, 4), ints(1, 2, 1, 1)], "beginMask": 8}),
    "SLICE": (unary, "SLICE", "SliceOptions", (1, 3, 6, 4), IN, {"constants": [ints(0, 2, 0, 0), ints(-1, 3, 6, 4)]}),
    **{kind: (binary, kind, f"{kind.title()}Options") for kind in ("ADD", "MUL")},
    "AVERAGE_POOL_2D": (unary, "AVERAGE_POOL_2D", "Pool2DOptions", (1, 4, 3, 4), IN, POOL),
    "AVERAGE_POOL_2D even": (unary, "AVERAGE_POOL_2D", "Pool2DOptions", (1, 3, 3, 4), IN, {**POOL, "filterHeight": 2,
                             "filterWidth": 2, "padding": 1}),
    "MEAN kept": (unary, "MEAN", "ReducerOptions", (1, 1, 1, 4), IN, {"constants": [ints(2, 1)], "keepDims": True}),
    "QUANTIZE": (unary, "QUANTIZE", None, X, OUT, {}),
    "RELU to coarser": (unary, "RELU", None, X, COARSER, {}),
    "QUANTIZE to coarser": (unary, "QUANTIZE", None, X, COARSER, {}),
    "QUANTIZE to halves": (unary, "QUANTIZE", None, X, HALVES, {}),
}
"""Operators whose int8 results are LiteRT's."""
NEAR: dict[str, tuple[Any, ...]] = {
    "SUB": (binary, "SUB", "SubOptions"),
    "LEAKY_RELU": (unary, "LEAKY_RELU", "LeakyReluOptions", X, OUT, {"alpha": 0.2}),
    "RESIZE_BILINEAR": (unary, "RESIZE_BILINEAR", "ResizeBilinearOptions", LARGE, IN,
                        {"constants": [ints(14, 12)], "halfPixelCenters": True}),
}
"""Operators whose int8 results differ by one at most."""
FLOAT: dict[str, tuple[Any, ...]] = {
    **{kind: (binary, kind, "MaximumMinimumOptions") for kind in ("MAXIMUM", "MINIMUM")},
    "DIV": (binary, "DIV", "DivOptions"),
    "TRANSPOSE_CONV": (transposed,),
    "ELU": (unary, "ELU", None, X, OUT, {}), "EXP": (unary, "EXP", "ExpOptions", X, OUT, {}),
    "ABS": (unary, "ABS", "AbsOptions", X, OUT, {}), "NEG": (unary, "NEG", "NegOptions", X, OUT, {}),
    "SUM": (unary, "SUM", "ReducerOptions", (1, 1, 1, 4), OUT, {"constants": [ints(1, 2)], "keepDims": True}),
    "REDUCE_MAX": (unary, "REDUCE_MAX", "ReducerOptions", (1, 4), OUT, {"constants": [ints(1, 2)]}),
    "SPACE_TO_DEPTH": (unary, "SPACE_TO_DEPTH", "SpaceToDepthOptions", (1, 3, 3, 16), OUT,
                       {"shape": (1, 6, 6, 4), "blockSize": 2}),
    "RELU_N1_TO_1": (unary, "RELU_N1_TO_1", None, X, OUT, {}),
    "SQUEEZE": (unary, "SQUEEZE", "SqueezeOptions", (1, 4), OUT, {"shape": (1, 1, 1, 4), "squeezeDims": [1, 2]}),
}


def written(case: tuple[Any, ...], int8: bool) -> bytes:
    """The file of a case."""
    write, *own = case
    if write is unary:
        *plain, values = own
        return unary(*plain, int8, **values)
    content: bytes = write(int8) if write in (joined, transposed) else \
        write(*own, int8) if write is binary else write(own[0], int8, *own[1:])
    return content


def compared(content: bytes) -> tuple[Array, Array]:
    """LiteRT's outputs on floats, and those of the translation in ONNX Runtime."""
    model, _ = translate(content, "case.tflite")
    lite, rng = file.read_tables(content, "case.tflite"), np.random.default_rng(0)
    given = [rng.normal(size=(FRAMES, *lite.tensors[n].shape[1:])).astype(np.float32) * 2 for n in lite.inputs]
    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [value.name for value in model.graph.input]
    found = [session.run(None, {name: x[i:i + 1] for name, x in zip(names, given, strict=True)})[0] for i in range(FRAMES)]
    return litert(content, given), np.concatenate(found)


def integers(content: bytes) -> tuple[Array, Array]:
    """The integers of LiteRT's reference kernels, and ours."""
    lite, (graph, _), rng = file.read_tables(content, "case.tflite"), graph_to_plan(content), np.random.default_rng(0)
    given = [rng.integers(-128, 128, (FRAMES, *lite.tensors[n].shape[1:])).astype(np.int8) for n in lite.inputs]
    expected, (target,) = litert(content, given, reference=True), graph.outputs
    found = run_integer(graph, dict(zip(graph.inputs, given, strict=True)))[target].reshape(expected.shape)
    scale = lite.tensors[lite.outputs[0]].quantized
    if graph.tensors[target].scheme is None and scale is not None:  # moved by a node that stays in floats
        found = np.rint(found / scale.scales[0] + scale.zeros[0])
    return expected, found


@pytest.mark.parametrize("name", [*EQUAL, *NEAR, *FLOAT])
def test_an_operator_on_floats_is_litert_s(name: str) -> None:
    expected, found = compared(written({**EQUAL, **NEAR, **FLOAT}[name], False))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", EQUAL)
def test_an_operator_on_int8_is_litert_s(name: str) -> None:
    expected, found = integers(written(EQUAL[name], True))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", NEAR)
def test_an_operator_without_exact_rounding_says_so(name: str) -> None:
    content = written(NEAR[name], True)
    expected, found = integers(content)
    assert np.abs(found - expected).max() <= 1
    assert f"1 {name}" in translate(content, "case.tflite")[1][0]


@pytest.mark.parametrize("seed", range(12))
def test_any_scales_round_as_litert_does(seed: int) -> None:
    """Multipliers above one and far below, zero points anywhere, shapes and strides that do not divide."""
    rng = np.random.default_rng(seed)
    for content in (drawn_layer(rng, "CONV_2D"), drawn_layer(rng, "DEPTHWISE_CONV_2D"), drawn_layer(rng, "FULLY_CONNECTED"),
                    drawn_sum(rng, "ADD"), drawn_sum(rng, "MUL")):
        expected, found = integers(content)
        np.testing.assert_array_equal(found, expected)


def drawn_layer(rng: np.random.Generator, kind: str) -> bytes:
    lite, deep, flat = Lite(), kind == "DEPTHWISE_CONV_2D", kind == "FULLY_CONNECTED"
    height, width, channels = (int(n) for n in rng.integers(3, 9, 3))
    size, stride, padding = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(0, 2))
    filters = channels if deep else int(rng.integers(1, 7))
    zero, ratio = int(rng.integers(-128, 128)), 2.0 ** rng.uniform(-12, 1.5)
    scales = (rng.uniform(0.5, 1.5, filters) * ratio).astype(np.float32)
    shape: Shape = (1, 40) if flat else (1, height, width, channels)
    of_weights = (filters, 40) if flat else (1, size, size, filters) if deep else (filters, size, size, channels)
    x = lite.tensor("x", shape, "int8", (0.1, zero))
    weights = rng.integers(-127, 128, of_weights)
    w = lite.tensor("w", of_weights, "int8", (scales, np.zeros(filters)), weights, 3 if deep else 0)
    b = lite.tensor("b", (filters,), "int32", (scales * np.float32(0.1), np.zeros(filters)), rng.integers(-5000, 5000, filters))
    sizes = [-(-n // stride) if padding == 0 else (n - size) // stride + 1 for n in (height, width)]
    scale = float(rng.uniform(0.05, 0.2))
    y = lite.tensor("y", (1, filters) if flat else (1, *sizes, filters), "int8", (scale, int(rng.integers(-128, 128))))
    options = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}.get(kind, "FullyConnectedOptions")
    values = {} if flat else {"padding": padding, "strideH": stride, "strideW": stride}
    lite.operator(kind, [x, w, b], [y], options, 4 if flat else 3, fusedActivationFunction=int(rng.choice([0, 1, 3])), **values,
                  **({"depthMultiplier": 1} if deep else {}))
    return lite.content([x], [y])


def drawn_sum(rng: np.random.Generator, kind: str) -> bytes:
    lite, scales = Lite(), np.exp2(rng.uniform(-7, -2, 3))
    if kind == "MUL":
        scales[2] = scales[0] * scales[1] * 100
    a, b, y = (lite.tensor(name, (1, 16, 16, 8), "int8", (scale, int(rng.integers(-128, 128))))
               for name, scale in zip("aby", scales, strict=True))
    lite.operator(kind, [a, b], [y], f"{kind.title()}Options", fusedActivationFunction=int(rng.choice([0, 1])))
    return lite.content([a, b], [y])


@pytest.fixture(scope="module")
def keywords() -> tuple[Graph, tuple[str, ...]]:
    return graph_to_plan(NETWORKS / "kws.tflite")


def test_a_keyword_network_gives_litert_s_integers(keywords: tuple[Graph, tuple[str, ...]]) -> None:
    graph, _ = keywords
    frames = np.random.default_rng(3).integers(-128, 128, (30, 49, 10, 1)).astype(np.int8)
    expected = litert((NETWORKS / "kws.tflite").read_bytes(), [frames], reference=True)
    np.testing.assert_array_equal(run_integer(graph, {graph.inputs[0]: frames})[graph.outputs[0]], expected)


def test_a_written_network_is_read_back_and_gives_the_same_integers_in_onnx_runtime(
        keywords: tuple[Graph, tuple[str, ...]]) -> None:
    graph, _ = keywords
    assert read_onnx(to_onnx(graph)).graph == graph
    assert inexact_sums(graph) is None
    frame = np.random.default_rng(4).integers(-128, 128, (1, 49, 10, 1)).astype(np.int8)
    wanted, found = run_integer(graph, {graph.inputs[0]: frame}, keep=True), run_oracle(graph, {graph.inputs[0]: frame})
    for node in graph.nodes:
        np.testing.assert_array_equal(found[node.output], wanted[node.output], node.name)


def test_gpus_leave_what_rounds_twice_to_other_devices(keywords: tuple[Graph, tuple[str, ...]]) -> None:
    graph, board = keywords[0], load_platform("tx2-c10gx")
    gpu = next(d for d in board.devices if d.kind is Kind.GPU)
    layer = next(n for n in graph.nodes if n.op.layer)
    assert "rounds as TensorFlow Lite does" in str(why_not(graph, layer, gpu))
    with pytest.raises(UnsupportedError, match="rounds as TensorFlow Lite does, for which there is no kernel"):
        layers.layer(graph, layer)


def test_a_residual_network_is_read_whole() -> None:
    graph = read_model(NETWORKS / "ic.tflite").graph
    assert graph.quantized
    kinds = [n.op.kind for n in graph.nodes]
    assert kinds.count("Conv") == 9
    assert [i for i, kind in enumerate(kinds) if kind == "Transpose"] == [0]  # the image; layers hand maps on as they are


def test_half_floats_are_weights() -> None:
    lite = Lite()
    x, half = lite.tensor("x", X), lite.tensor("half", (4,), "float16", values=np.asarray([1, 2, 3, 4]))
    whole, y = lite.tensor("whole", (4,)), lite.tensor("y", X)
    lite.operator("DEQUANTIZE", [half], [whole])
    lite.operator("MUL", [x, whole], [y], "MulOptions")
    expected, found = compared(lite.content([x], [y]))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_few_rules_are_not_compared() -> None:
    compared_kinds = {name.partition(" ")[0] for name in (*EQUAL, *NEAR, *FLOAT)}
    assert set(RULES) - compared_kinds == {"BATCH_MATMUL", "PRELU", "SQRT", "EXPAND_DIMS", "PADV2", "SPLIT",
                                           "DEQUANTIZE"}


def test_what_cannot_be_read_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedError, match=r"operator 0 is CUMSUM, which is not read from \.tflite files"):
        translate(unary("CUMSUM", "CumsumOptions", X, OUT, False, constants=[ints(1)]), "x.tflite")
    with pytest.raises(ModelError, match=r"x\.tflite: not a TensorFlow Lite file, or damaged"):
        translate(b"\x1c\0\0\0TFL3", "x.tflite")
    file._schema.cache_clear()
    monkeypatch.setitem(sys.modules, "tflite", None)
    with pytest.raises(MissingToolError, match=r"pip install 'dovetail-accel\[tflite\]'"):
        read_model(NETWORKS / "kws.tflite")


def test_damaged_files_are_refused_or_read() -> None:
    content, rng, refused = bytearray((NETWORKS / "kws.tflite").read_bytes()), np.random.default_rng(5), 0
    tables = len(content) - 12_000  # where tables lie behind the weights
    for _ in range(80):
        spoilt = content.copy()
        for at in rng.integers(8 if rng.random() < 0.2 else tables, len(content), rng.integers(1, 6)):
            spoilt[at] = rng.integers(256)
        try:
            read_model(bytes(spoilt))
        except DovetailError:
            refused += 1
    assert refused > 8
