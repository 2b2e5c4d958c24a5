"""Operators without a kernel compute what ONNX Runtime does: odd shapes, every attribute, opsets 9 to 21."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from dovetail.gpu.library.nodes import LibraryNode
from dovetail.gpu.library.table import OPERATORS
from dovetail.ir import Array, Graph, Node, Opaque, Tensor

X = (2, 3, 5, 7)
Case = tuple[str, dict[str, Any], list[Any], int]
"""Operator, attributes, inputs (a shape: random numbers; an array: a constant, or given where `moving` says so), opset."""


def case(operator: str, *inputs: Any, opset: int = 17, **attributes: Any) -> Case:
    return operator, attributes, list(inputs), opset


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


ONE_VALUE = ("Abs", "Asinh", "Atan", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish",
             "Identity", "LeakyRelu", "Mish", "Neg", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh",
             "Softplus", "Softsign", "Tan", "Tanh", "ThresholdedRelu", "IsNaN")
INSIDE = ("Acos", "Asin", "Atanh")
"""Of numbers between -1 and 1."""
POSITIVE = ("Log", "Sqrt", "Reciprocal", "Acosh", "ReduceLogSum")
TWO = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean")
COMPARED = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
REDUCED = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp",
           "ReduceSumSquare")
COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")

CASES: list[Case] = [
    *(case(name, X, opset=18 if name == "Mish" else 17) for name in (*ONE_VALUE, *INSIDE, *POSITIVE)), case("Celu", X,
    alpha=0.7), case("Elu", X, alpha=2.0), case("HardSigmoid", X, alpha=0.1, beta=0.3), case("LeakyRelu", X, alpha=0.3),
    case("Shrink", X, lambd=0.3, bias=0.1), case("ThresholdedRelu", X, alpha=0.2), case("Gelu", X, opset=20), case("Gelu", X,
    opset=20, approximate="tanh"), case("Selu", X, alpha=1.2, gamma=0.9), *(case(name, X, X) for name in TWO), *(case(name, X,
    (7,)) for name in TWO), *(case(name, (5, 1), X) for name in TWO), *(case(name, X, X) for name in COMPARED), case("PRelu",
    X, np.full((3, 1, 1), 0.2, np.float32)), case("Pow", X, floats(2.0)), case("Pow", X, np.array(3.0, np.float32)),
    case("Clip", X, floats(-0.3).reshape(()), floats(0.4).reshape(())), case("Clip", X, None, floats(0.1).reshape(())),
    case("Clip", X, min=-0.2, max=0.3, opset=9), case("Mod", X, floats(0.7), fmod=1), case("Cast", X, to=TensorProto.INT32),
    case("Cast", X, to=TensorProto.BOOL), case("Where", np.array([True, False, True, True, False, False, True]), X, X),
    case("IsInf", X), case("Reshape", X, ints(0, -1, 7)), case("Reshape", X, ints(6, 35)), case("Flatten", X, axis=2),
    case("Flatten", X, axis=-1), case("Squeeze", (1, 3, 1, 2), ints(0, 2)), case("Squeeze", (1, 3, 1, 2), axes=[0], opset=11),
    case("Unsqueeze", (3, 4), ints(0, -1)), case("Unsqueeze", (3, 4), axes=[1, 3], opset=9), case("Transpose", X),
    case("Transpose", X, perm=[0, 2, 3, 1]), case("Concat", X, X, axis=-2), case("Concat", X, (2, 4, 5, 7), axis=1),
    case("Slice", X, ints(1, -3), ints(3, 10**9), ints(1, 3)), case("Slice", X, ints(4), ints(-(10**9)), ints(2), ints(-2)),
    case("Slice", X, ints(6, 4), ints(0, 1), ints(3, 2), ints(-1, -3)), case("Slice", X, starts=[1], ends=[4], axes=[2],
    opset=9), case("Gather", X, ints(2, 0, -1), axis=1), case("Gather", X, np.array(-2), axis=3), case("Gather", X,
    np.array([[0, 1], [3, 4]]), axis=2), case("GatherElements", (3, 4), np.array([[0, -1, 2, 1]]), axis=0), case("GatherND",
    (3, 4, 2), np.array([[0, 1], [2, -1]])), case("GatherND", (2, 3, 4), np.array([[1], [0]]), batch_dims=1),
    case("ScatterElements", (3, 4), np.array([[0, 1], [2, 3]]), (2, 2), axis=1, opset=18), case("ScatterElements", (3, 4),
    np.array([[1, 1]]), (1, 2), axis=1, reduction="add", opset=18), case("ScatterND", (4, 3), np.array([[0], [-2]]), (2, 3),
    opset=18), case("Expand", (3, 1), ints(2, 3, 4)), case("Expand", (3, 4), ints(1)), case("Tile", (2, 3), ints(2, 1)),
    case("Pad", X, ints(0, 0, 1, 2, 0, 0, 3, 0)), case("Pad", X, ints(0, 0, 1, -2, 0, 0, -1, 1), floats(0.5).reshape(())),
    case("Pad", X, ints(0, 0, 1, 2, 0, 0, 3, 1), mode="reflect"), case("Pad", X, ints(0, 1, 1, 2, 0, 0, 3, 1), mode="edge"),
    case("Pad", X, pads=[0, 0, 1, 1, 0, 0, 1, 1], value=0.3, opset=9), case("Pad", X, ints(1, 2), floats(0.0).reshape(()),
    ints(-1), opset=18), case("Pad", X, ints(0, 0, 1, 2, 0, 0, 3, 1), mode="wrap", opset=19), case("DepthToSpace", (1, 8, 2,
    3), blocksize=2), case("DepthToSpace", (1, 8, 2, 3), blocksize=2, mode="CRD"), case("SpaceToDepth", (1, 2, 4, 6),
    blocksize=2), case("Trilu", (2, 4, 5)), case("Trilu", (4, 5), ints(1).reshape(()), upper=0), case("OneHot", np.array([1,
    -1, 3]), np.array(4), floats(0.25, 2.0), axis=0), case("CumSum", X, np.array(2)), case("CumSum", X, np.array(-1),
    exclusive=1, reverse=1), case("ReverseSequence", (4, 3, 2), ints(1, 4, 2)), case("EyeLike", (3, 5), k=1),
    case("CenterCropPad", (7, 6), ints(4, 9), opset=18), *(case(name, X, axes=[1, -1], keepdims=0) for name in REDUCED if name
    != "ReduceSum"), *(case(name, X, ints(2), opset=18) for name in REDUCED), *(case(name, X) for name in REDUCED),
    case("ReduceSum", X, ints(), noop_with_empty_axes=1), case("ArgMax", X, axis=1), case("ArgMin", X, axis=-1, keepdims=0),
    case("ArgMax", np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 1.0]], np.float32), axis=1, select_last_index=1), case("Softmax", X,
    axis=1), case("Softmax", X, opset=11), case("Softmax", X, axis=2, opset=11), case("LogSoftmax", X, axis=-2),
    case("Hardmax", X, axis=1), case("Split", X, ints(2, 3), axis=2),
    case("Split", X, axis=3, split=[3, 4], opset=9), case("TopK", X, ints(3), axis=1), case("TopK", X, ints(2), largest=0),
    case("LayerNormalization", X, (7,), (7,)), case("LayerNormalization", X, (5, 7), axis=-2, epsilon=1e-3),
    case("InstanceNormalization", X, (3,), (3,)), case("GroupNormalization", (2, 6, 3, 2), (6,), (6,), num_groups=3,
    opset=21), case("BatchNormalization", X, (3,), (3,), (3,), floats(0.5, 1.5, 2.0)), case("LpNormalization", X, axis=1),
    case("LpNormalization", X, axis=-1, p=1), case("LRN", X, size=3, alpha=0.1, beta=0.5, bias=2.0),
    case("MeanVarianceNormalization", X), case("MatMul", (2, 3, 4, 5), (5, 6)), case("MatMul", (4,), (3, 4, 2)), case("Gemm",
    (3, 4), (5, 4), (5,), transB=1), case("Gemm", (4, 3), (4, 5), alpha=0.5, transA=1), case("Gemm", (3, 4), (4, 5), (3, 1),
    alpha=2.0, beta=0.5), case("Einsum", (2, 3, 4), (2, 4, 5), equation="bij, bjk -> bik"), case("Einsum", (3, 3),
    equation="ii->i"), case("Conv", X, (4, 3, 3, 3), (4,), pads=[1, 0, 2, 1]), case("Conv", X, (6, 1, 3, 2), group=3,
    strides=[2, 1]), case("Conv", X, (4, 3, 3, 2), auto_pad="SAME_UPPER", strides=[2, 2]), case("Conv", X, (4, 3, 2, 2),
    auto_pad="SAME_LOWER"), case("Conv", (2, 3, 9), (4, 3, 3), dilations=[2]), case("Conv", (1, 2, 4, 5, 3), (3, 2, 2, 2, 2)),
    case("ConvTranspose", X, (3, 4, 3, 2), (4,), strides=[2, 3]), case("ConvTranspose", X, (3, 2, 2, 2), strides=[2, 2],
    group=3), case("ConvTranspose", X, (3, 4, 3, 3), pads=[1, 0, 0, 1], strides=[2, 2], output_padding=[1, 0]),
    case("ConvTranspose", X, (3, 4, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2], output_padding=[1, 1], dilations=[1, 2]),
    case("ConvTranspose", X, (3, 4, 3, 3), (4,), auto_pad="SAME_UPPER", strides=[2, 2]), case("ConvTranspose", X, (3, 4, 3,
    3), auto_pad="SAME_LOWER", strides=[2, 2]), case("ConvTranspose", X, (3, 4, 3, 3), strides=[2, 2], output_shape=[10, 14]),
    case("ConvTranspose", (2, 3, 6), (3, 2, 3)), case("MaxPool", X, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    case("MaxPool", X, kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1), case("MaxPool", X, kernel_shape=[2, 2],
    dilations=[2, 3]), case("MaxPool", X, kernel_shape=[3, 3], auto_pad="SAME_LOWER", strides=[2, 2]), case("MaxPool", (2, 3,
    9), kernel_shape=[3]), case("AveragePool", X, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]), case("AveragePool",
    X, kernel_shape=[3, 2], pads=[1, 0, 0, 1], count_include_pad=1), case("AveragePool", X, kernel_shape=[2, 3], strides=[2,
    2], ceil_mode=1, opset=19), case("AveragePool", X, kernel_shape=[3, 3], auto_pad="SAME_UPPER", strides=[2, 2]),
    case("AveragePool", X, kernel_shape=[2, 2], dilations=[2, 2], opset=19), case("LpPool", X, kernel_shape=[2, 2], p=3),
    case("GlobalAveragePool", X), case("GlobalMaxPool", X), case("GlobalLpPool", X, p=1), case("DequantizeLinear",
    np.array([[3, 250], [0, 7]], np.uint8), floats(0.5), np.array(9, np.uint8)), case("QuantizeLinear", X,
    floats(0.05).reshape(()), np.array(3, np.int8)), case("QuantizeLinear", X, floats(0.1, 0.2, 0.3), axis=1),
    *(case("Resize", X, None, None, ints(2, 3, 9, 4), mode=mode, coordinate_transformation_mode=how, opset=opset) for mode in
    ("nearest", "linear", "cubic") for how in COORDINATES for opset in (13, 18)), *(case("Resize", X, None, floats(1.0, 1.0,
    1.7, 0.6), mode=mode) for mode in ("nearest", "linear")), *(case("Resize", X, None, floats(1.0, 1.0, 2.0, 2.0),
    mode="nearest", nearest_mode=how, coordinate_transformation_mode="asymmetric") for how in ("floor", "ceil",
    "round_prefer_floor", "round_prefer_ceil")), case("Resize", X, None, None, ints(2, 3, 3, 4), mode="linear", antialias=1,
    opset=18), case("Resize", X, None, None, ints(2, 3, 3, 4), mode="cubic", antialias=1, opset=18), case("Resize", X, None,
    None, ints(2, 3, 8, 11), mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5), case("Resize", X, None, None, ints(8, 9),
    axes=[2, 3], mode="linear", keep_aspect_ratio_policy="not_larger", opset=18), case("Resize", X, floats(0, 0, 0.1, 0.2, 1,
    1, 0.9, 1.3), None, ints(2, 3, 4, 5), mode="linear", coordinate_transformation_mode="tf_crop_and_resize",
    extrapolation_value=0.5), case("Upsample", X, floats(1.0, 1.0, 2.0, 3.0), mode="nearest", opset=9), *(case("GridSample",
    X, (2, 4, 3, 2), mode=mode, padding_mode=pad, align_corners=corners, opset=16) for mode, pad, corners in (("bilinear",
    "zeros", 0), ("nearest", "border", 0), ("bilinear", "reflection", 1))),
]


def label(one: Case) -> str:
    operator, attributes, inputs, opset = one
    shapes = ["none" if i is None else "x".join(map(str, i if isinstance(i, tuple) else i.shape)) for i in inputs]
    return f"{operator} {attributes} {shapes} opset {opset}"


def evaluated(one: Case) -> tuple[list[Array], list[Array]]:
    """What ONNX Runtime and what PyTorch's functions make of a node."""
    operator, attributes, inputs, opset = one
    rng = np.random.default_rng(len(operator) + opset)
    names, given, constants = list[str](), dict[str, Array](), list[Any]()
    for i, value in enumerate(inputs):
        names.append("" if value is None else f"x{i}" if isinstance(value, tuple) else f"c{i}")
        if isinstance(value, tuple):
            x = rng.normal(size=value).astype(np.float32)
            x = np.tanh(x) * 0.95 if operator in (*INSIDE, "GridSample") else x
            given[names[-1]] = np.abs(x) + (1.1 if operator == "Acosh" else 0.1) if operator in POSITIVE else x
        elif value is not None:
            constants.append(numpy_helper.from_array(np.asarray(value), names[-1]))
    outputs = ["y0", "y1"] if operator in ("TopK", "Split") else ["y0"]
    node = helper.make_node(operator, names, outputs, **attributes)
    reads = [helper.make_tensor_value_info(n, TensorProto.FLOAT, x.shape) for n, x in given.items()]
    graph = helper.make_graph([node], "one", reads, [helper.make_empty_tensor_value_info(o) for o in outputs], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    content = model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    wanted = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"]).run(None, given)
    return wanted, [through_torch(content, given, i, w) for i, w in enumerate(wanted)]


def through_torch(content: bytes, given: dict[str, Array], index: int, wanted: Array) -> Array:
    renamed = {name: f"x{i}" for i, name in enumerate(given)}
    import onnx
    model = onnx.load_model_from_string(content)
    for node in model.graph.node:
        node.input[:] = [renamed.get(i, i) for i in node.input]
    op = Opaque("one", model.SerializeToString(), index, wanted.shape, wanted.dtype.name, 17)
    made = Tensor("y", wanted.shape, None, wanted.dtype.name)
    tensors = {name: Tensor(name, x.shape) for name, x in given.items()} | {"y": made}
    graph = Graph("one", tuple(given), ("y",), (Node("one", op, tuple(given), (), "y"),), tensors)
    found = LibraryNode(graph, graph.nodes[0], torch.float32, "cpu")([torch.from_numpy(x) for x in given.values()])
    return np.asarray(found.numpy())


@pytest.mark.parametrize("one", CASES, ids=label)
def test_an_operator_computes_what_onnx_runtime_does(one: Case) -> None:
    wanted, found = evaluated(one)
    for f, w in zip(found, wanted, strict=True):
        assert f.shape == w.shape
        assert (f.dtype.kind == "f") == (w.dtype.kind == "f")
        assert np.allclose(f.astype(np.float64), w.astype(np.float64), rtol=2e-4, atol=2e-5)


def test_most_operators_of_the_table_are_compared() -> None:
    compared = {operator for operator, *_ in CASES}
    left = {name for domain, name in OPERATORS if not domain} - compared
    assert left <= {"And", "Or", "Not", "Xor", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "CastLike",
                    "Constant", "ConstantOfShape", "Shape", "Size", "Range", "Dropout", "Swish", "RMSNormalization",
                    "Col2Im", "AffineGrid", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"}
