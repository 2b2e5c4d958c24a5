"""Damage that keeps a file readable: nodes, attributes, tensors and fields become what no exporter writes.

Every choice is drawn from `rng`; Hypothesis draws one that it can shrink.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from random import Random
from typing import Any

import numpy as np
import onnx
from onnx import helper

NUMBERS = (0, -1, 1, 2, 3, 7, 100, -2**31, 2**31, 2**62, -2**63)
REALS = (0.0, -1.0, 1e30, float("nan"), float("inf"))
WORDS = (b"", b"VALID", b"SAME_UPPER", b"reflect", b"\xff")
OPERATORS = (
    "Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "Mean", "Relu", "PRelu", "LeakyRelu", "Clip", "Softmax",
    "Sigmoid", "Gelu", "Erf", "Cast", "Identity", "Dropout", "Conv", "ConvTranspose", "Gemm", "MatMul", "MaxPool",
    "AveragePool", "GlobalAveragePool", "BatchNormalization", "InstanceNormalization", "LRN", "LayerNormalization",
    "Concat", "Split", "Slice", "Gather", "Pad", "Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Resize",
    "DepthToSpace", "SpaceToDepth", "Expand", "Tile", "Where", "ReduceMean", "ReduceSum", "ReduceMax", "ArgMax", "TopK",
    "Shape", "Constant", "ConstantOfShape", "Range", "Einsum", "QuantizeLinear", "DequantizeLinear", "QLinearConv",
    "QLinearMatMul", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear", "If", "Loop", "Scan")
JSON = (None, True, False, 0, -1, 1, 2, 0.5, 1e308, 10**30, -2**63, 2**64, "", "x", "1", "\ud800", [], {}, [[]], [None], [[1, 2]],
        [[1], [2]], [1, [2]], [1, 2], [True, False], ["1", "2"], {"a": 1})


def zoo_of_nodes() -> Any:
    """Most operators that import has a reader for, one behind the other."""
    rng, make = np.random.default_rng(0), helper.make_node
    weights = {"w": rng.normal(size=(4, 2, 3, 3)), "b": rng.normal(size=4), "s": np.full(4, 0.5), "v": rng.normal(size=(16, 3)),
               "k": rng.normal(size=(4, 1, 2, 2)), "one": np.array(1.0), "six": np.array(6.0)}
    whole = {"shape": [1, 16], "axes": [2], "starts": [0], "ends": [4], "pads": [0, 0, 1, 1, 0, 0, 1, 1], "halves": [2, 2],
             "sizes": [1, 4, 4, 4], "front": [1]}
    nodes = [
        make("Conv", ["x", "w", "b"], ["t0"], pads=[1, 1, 1, 1]), make("BatchNormalization", ["t0", "s", "b", "b", "s"], ["t1"]),
        make("Relu", ["t1"], ["t2"]), make("Split", ["t2", "halves"], ["l", "r"], axis=1), make("Sigmoid", ["l"], ["g"]),
        make("Mul", ["l", "g"], ["h"]), make("Concat", ["h", "r"], ["t3"], axis=1), make("Add", ["t3", "t2"], ["t4"]),
        make("Transpose", ["t4"], ["t5"], perm=[0, 2, 3, 1]), make("Transpose", ["t5"], ["t6"], perm=[0, 3, 1, 2]),
        make("Pad", ["t6", "pads"], ["t7"]), make("MaxPool", ["t7"], ["t8"], kernel_shape=[2, 2], strides=[2, 2]),
        make("ConvTranspose", ["t8", "k"], ["t9"], strides=[2, 2], group=4),
        make("Slice", ["t9", "starts", "ends", "axes"], ["t10"]),
        make("AveragePool", ["t10"], ["t11"], kernel_shape=[2, 2], strides=[2, 2]), make("Clip", ["t11", "one", "six"], ["t12"]),
        make("Resize", ["t12", "", "", "sizes"], ["t13"], mode="nearest", coordinate_transformation_mode="asymmetric",
             nearest_mode="floor"),
        make("DepthToSpace", ["t13"], ["t14"], blocksize=2), make("SpaceToDepth", ["t14"], ["t15"], blocksize=2),
        make("GlobalAveragePool", ["t15"], ["t16"]), make("Squeeze", ["t16", "axes"], ["t17"]),
        make("Unsqueeze", ["t17", "axes"], ["t18"]), make("Mul", ["t18", "t15"], ["t19"]),
        make("MaxPool", ["t19"], ["t20"], kernel_shape=[2, 2], strides=[2, 2]), make("Reshape", ["t20", "shape"], ["t21"]),
        make("Gemm", ["t21", "v"], ["t22"]), make("Softmax", ["t22"], ["y"], axis=1)]
    tensors = [onnx.numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    tensors += [onnx.numpy_helper.from_array(np.array(value, np.int64), name) for name, value in whole.items()]
    graph = helper.make_graph(nodes, "zoo", [helper.make_tensor_value_info("x", 1, [1, 2, 4, 4])],
                              [helper.make_tensor_value_info("y", 1, [1, 3])], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def change_model(model: Any, rng: Random) -> None:
    """One to three changes of the nodes and tensors of an ONNX model."""
    for _ in range(rng.randint(1, 3)):
        rng.choice(MODEL_CHANGES)(model.graph, rng)


def _attribute(graph: Any, rng: Random) -> None:
    known = [a for node in graph.node for a in node.attribute]
    if not known:
        return
    found = rng.choice(known)
    match found.type:
        case onnx.AttributeProto.INTS if len(found.ints) and rng.random() < 0.8:
            found.ints[rng.randrange(len(found.ints))] = rng.choice(NUMBERS)
        case onnx.AttributeProto.INTS:
            found.ints.append(rng.choice(NUMBERS))
        case onnx.AttributeProto.INT:
            found.i = rng.choice(NUMBERS)
        case onnx.AttributeProto.FLOAT:
            found.f = rng.choice(REALS)
        case _:
            found.s = rng.choice(WORDS)


def _operator(graph: Any, rng: Random) -> None:
    if graph.node:
        rng.choice(graph.node).op_type = rng.choice(OPERATORS)


def _input(graph: Any, rng: Random) -> None:
    """A node reads something else, or less, or more."""
    nodes = [node for node in graph.node if node.input]
    if not nodes:
        return
    node = rng.choice(nodes)
    names = [*(o for n in graph.node for o in n.output), *(t.name for t in graph.initializer), "x", "", "none"]
    match rng.randrange(4):
        case 0:
            del node.input[rng.randrange(len(node.input))]
        case 1:
            node.input.append(rng.choice(names))
        case _:
            node.input[rng.randrange(len(node.input))] = rng.choice(names)


def _nodes(graph: Any, rng: Random) -> None:
    """A node is missing, or there twice."""
    if graph.node:
        at = rng.randrange(len(graph.node))
        if rng.random() < 0.5:
            graph.node.add().CopyFrom(graph.node[at])
        else:
            del graph.node[at]


def _tensor(graph: Any, rng: Random) -> None:
    if not graph.initializer:
        return
    found = rng.choice(graph.initializer)
    match rng.randrange(4):
        case 0 if len(found.dims):
            found.dims[rng.randrange(len(found.dims))] = rng.choice(NUMBERS)
        case 1:
            found.data_type = rng.randrange(24)
        case 2:
            found.raw_data = found.raw_data[:rng.randrange(len(found.raw_data) + 1)]
        case _ if found.raw_data:
            values = bytearray(found.raw_data)
            values[rng.randrange(len(values))] = rng.choice((0, 127, 128, 255))
            found.raw_data = bytes(values)
        case _:
            pass


def _edge(graph: Any, rng: Random) -> None:
    """What the graph says of its inputs and outputs."""
    kind = rng.choice([*graph.input, *graph.output]).type.tensor_type
    if rng.random() < 0.3 or not kind.shape.dim:
        kind.elem_type = rng.randrange(20)
    elif rng.random() < 0.2:
        rng.choice(kind.shape.dim).dim_param = "N"
    else:
        rng.choice(kind.shape.dim).dim_value = rng.choice(NUMBERS)


MODEL_CHANGES = (_attribute, _attribute, _operator, _input, _input, _nodes, _tensor, _edge)
"""Changes of a graph, in the shares they are drawn in."""


def change_document(document: Any, rng: Random) -> None:
    """One to three fields of a JSON value are removed, doubled or of another value."""
    for _ in range(rng.randint(1, 3)):
        found = list(_fields(document))
        if not found:
            return
        above, key = rng.choice(found)
        match rng.randrange(6):
            case 0:
                del above[key]
            case 1 if isinstance(above, list):
                above.append(deepcopy(above[key]))
            case _:
                above[key] = deepcopy(rng.choice(JSON))


def _fields(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container of a JSON value with every key in it."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from _fields(value[key])
