"""Integer operators of older and other exporters, rewritten as what they mean: dequantize, compute, quantize.

ONNX Runtime's QOperator format (QLinearConv and its kin), and the quantizers of QONNX where they cannot be schemes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from dovetail.ir.onnx.file import attributes_of
from dovetail.ir.onnx.prepare import QONNX_DOMAINS
from dovetail.ir.tensor import Array, Scheme

QONNX_OPERATORS = ("Quant", "BipolarQuant", "MultiThreshold")

_BINARY = {"QLinearAdd": "Add", "QLinearMul": "Mul", "QLinearMatMul": "MatMul"}
_UNARY = {"QLinearGlobalAveragePool": "GlobalAveragePool", "QLinearAveragePool": "AveragePool", "QLinearSigmoid": "Sigmoid",
          "QLinearLeakyRelu": "LeakyRelu", "QLinearSoftmax": "Softmax", "QLinearReduceMean": "ReduceMean"}
_OWN = ("channels_last", "opset")
"""Attributes of the fused operators that the plain ones do not have."""


def is_qonnx(node: Any) -> bool:
    return node.domain in QONNX_DOMAINS and node.op_type in QONNX_OPERATORS


def expanded(node: Any, where: str) -> list[Any] | None:
    """The nodes an integer operator stands for; None for every other operator."""
    if node.domain not in ("", "ai.onnx", "com.microsoft"):
        return None
    make, x = _Parts(node), list(node.input)
    attributes = {k: v for k, v in attributes_of(node, where).items() if k not in _OWN}
    if node.op_type == "QLinearConv":
        bias = [make.dequantized_bias(x[8], x[1], x[4])] if len(x) > 8 and x[8] else []
        op, values, scale = "Conv", [make.dequantized(x[0:3]), make.dequantized(x[3:6], axis=0), *bias], 6
    elif node.op_type in _BINARY:
        op, values, scale = _BINARY[node.op_type], [make.dequantized(x[0:3]), make.dequantized(x[3:6])], 6
    elif node.op_type in _UNARY:
        op, values, scale = _UNARY[node.op_type], [make.dequantized(x[0:3])], 3
    elif node.op_type == "NhwcMaxPool":
        return make.by_channel("MaxPool", x, node.output[0], node.name, attributes)
    elif node.op_type == "QLinearConcat":
        op, values, scale = "Concat", [make.dequantized(x[i:i + 3]) for i in range(2, len(x), 3)], 0
    elif node.op_type == "QGemm" and len(x) > 8 and x[7]:
        bias = [make.dequantized_bias(x[6], x[1], x[4])] if x[6] else []
        axis = 0 if attributes.get("transB") else 1
        op, values, scale = "Gemm", [make.dequantized(x[0:3]), make.dequantized(x[3:6], axis), *bias], 7
    else:
        return None
    computed = f"{make.stem}_real"
    if _channels_last(node):
        make.by_channel(op, values, computed, node.name, attributes)
    else:
        make.nodes.append(helper.make_node(op, values, [computed], name=node.name, **attributes))
    return [*make.nodes, helper.make_node("QuantizeLinear", [computed, *filter(None, x[scale:scale + 2])], [node.output[0]],
                                          name=f"{make.stem}_stored")]


def expand(model: Any, where: str) -> None:
    """Integer operators in plain ones, so that transposes and tables around them are seen."""
    plain = [part for node in model.graph.node for part in expanded(node, where) or [node]]
    del model.graph.node[:]
    model.graph.node.extend(plain)


def _channels_last(node: Any) -> bool:
    return any(a.name == "channels_last" and a.i for a in node.attribute)


class _Parts:
    """Nodes made on the way, with names derived from the operator's output."""

    def __init__(self, node: Any) -> None:
        self.nodes, self.stem = list[Any](), f"{node.output[0]}_meaning"

    def _emit(self, op: str, inputs: list[str], **attributes: Any) -> str:
        output = f"{self.stem}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **attributes))
        return output

    def dequantized(self, stored: list[str], axis: int = 1) -> str:
        """Value, scale and zero point of a tensor, or of weights with scales along an axis."""
        return self._emit("DequantizeLinear", [i for i in stored if i], axis=axis)

    def by_channel(self, op: str, inputs: list[str], output: str, name: str, attributes: dict[str, Any]) -> list[Any]:
        """An operator whose images have their channels last; where no window says how many axes these have, rows and columns."""
        axes, inner = range(2, 2 + len(attributes.get("kernel_shape", (0, 0)))), f"{self.stem}_by_channel"
        first = self._emit("Transpose", inputs[:1], perm=[0, 1 + len(axes), *(k - 1 for k in axes)])
        self.nodes += [helper.make_node(op, [first, *inputs[1:]], [inner], name=name, **attributes),
                       helper.make_node("Transpose", [inner], [output], name=output, perm=[0, *axes, 1])]
        return self.nodes

    def dequantized_bias(self, value: str, source: str, weights: str) -> str:
        """A bias counts in the product of its input's and its weights' scale."""
        return self._emit("DequantizeLinear", [value, self._emit("Mul", [source, weights])], axis=0)


def in_floats(node: Any, where: str) -> list[Any]:
    """A QONNX quantizer as plain arithmetic, for what is no scheme: several scales, other roundings, many bits."""
    a, make = attributes_of(node, where), _Parts(node)

    def constant(value: float) -> str:
        return make._emit("Constant", [], value=numpy_helper.from_array(np.asarray(value, dtype=np.float32)))

    x, scale = node.input[0], node.input[1]
    if node.op_type == "BipolarQuant":
        sign = make._emit("Where", [make._emit("GreaterOrEqual", [x, constant(0.0)]), constant(1.0), constant(-1.0)])
        return [*make.nodes, helper.make_node("Mul", [sign, scale], [node.output[0]], name=node.name)]
    if node.op_type == "MultiThreshold":
        return _steps_in_floats(node, a, make)
    zero, bits, signed, narrow = node.input[2], node.input[3], int(a.get("signed", 1)), int(a.get("narrow", 0))
    power = make._emit("Pow", [constant(2.0), make._emit("Sub", [bits, constant(float(signed))])])
    hi = make._emit("Sub", [power, constant(1.0 + (narrow and not signed))])
    lo = make._emit("Neg", [make._emit("Sub", [power, constant(float(narrow))])]) if signed else constant(0.0)
    steps = make._emit("Add", [make._emit("Div", [x, scale]), zero])
    kept = make._emit("Min", [make._emit("Max", [steps, lo]), hi])
    mode = {"FLOOR": "Floor", "CEIL": "Ceil"}.get(str(a.get("rounding_mode", "ROUND")).upper(), "Round")
    whole = make._emit("Sub", [make._emit(mode, [kept]), zero])
    return [*make.nodes, helper.make_node("Mul", [whole, scale], [node.output[0]], name=node.name)]


def meant_otherwise(node: Any, real: str, stored: Scheme, scale: Array, zero: Array) -> list[Any]:
    """A DequantizeLinear of integers stored, for `real` numbers, by another scheme: these again, and what they mean here."""
    make = _Parts(node)

    def constant(values: Array) -> str:
        return make._emit("Constant", [], value=numpy_helper.from_array(values.astype(np.float32)))

    steps = make._emit("Round", [make._emit("Div", [real, constant(np.asarray(stored.scale))])])
    own, step = make._emit("Add", [steps, constant(stored.zero - zero.astype(np.float64))]), constant(scale)
    return [*make.nodes, helper.make_node("Mul", [own, step], [node.output[0]], name=node.name)]


def _steps_in_floats(node: Any, a: dict[str, Any], make: _Parts) -> list[Any]:
    """How many thresholds each value reaches, by channel; values have them last in layouts that end so, else second."""
    def integers(*values: int) -> str:
        return make._emit("Constant", [], value=numpy_helper.from_array(np.asarray(values, dtype=np.int64)))

    layout = str(a.get("data_layout", "NCHW"))
    inner = [d for d in layout[1:] if d != "C"] if layout[1:2] == "C" else []
    rows = make._emit("Unsqueeze", [node.input[1], integers(*range(1, len(inner) + 1))]) if inner else node.input[1]
    reached = make._emit("GreaterOrEqual", [make._emit("Unsqueeze", [node.input[0], integers(-1)]), rows])
    total = make._emit("ReduceSum", [make._emit("Cast", [reached], to=1), integers(-1)], keepdims=0)
    scale, bias = (make._emit("Constant", [], value=numpy_helper.from_array(np.asarray(a.get(k, d), dtype=np.float32)))
                   for k, d in (("out_scale", 1.0), ("out_bias", 0.0)))
    scaled = make._emit("Mul", [total, scale])
    return [*make.nodes, helper.make_node("Add", [scaled, bias], [node.output[0]], name=node.name)]
