"""Graph to QONNX: floats between quantizers (`Quant`, `BipolarQuant`) and thresholds (`MultiThreshold`), for FINN and its kin.

Expressible is what has evenly spaced levels: integers, and layers of codes whose products are one integer times powers of two.
Every other basis is refused by name; `to_onnx` writes it as functions of ours. The file defines the three operators itself in
standard ones, so that any runtime computes it, and all arithmetic is exact wherever float32 holds the sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir.graph import Graph, Node
from dovetail.ir.onnx import file as onnx_file
from dovetail.ir.onnx.write import STORED_WRITERS, activated, declared_output, emit_product, leading, read_value
from dovetail.ir.onnx.writer import Boundary, FunctionBody, Writer
from dovetail.ir.operators.lq import Coded, Thresholds, holds_codes
from dovetail.ir.tensor import Array, Constant, Scheme, scheme_of_scales

DOMAIN = "qonnx.custom_op.general"
UNREACHED = float(np.finfo(np.float32).max)
"""A threshold that no sum reaches; its negative is reached by all."""
HELD_BITS = 24
"""Bits of integers that float32 holds."""


@dataclass(slots=True)
class _QonnxWriter(Writer):
    """Writes values in floats behind quantizers."""

    def quantize(self, source: str, output: str, name: str, scheme: Scheme, rank: int = 0) -> str:
        """Values by a scheme: `rank` dimensions where scales lie along an axis."""
        scales = np.asarray(scheme.scales, dtype=np.float32)
        along = [-1 if d == scheme.axis else 1 for d in range(rank)] if scheme.axis is not None else []
        inputs = [self.constant(f"{name}{self.sep}{role}", np.asarray(value, dtype=np.float32)) for role, value in (
            ("scale", scales.reshape(along)), ("zero_point", scheme.zero), ("bits", scheme.bits))]
        return self._general("Quant", [source, *inputs], output, f"{name}{self.sep}quant", signed=int(scheme.signed), narrow=0,
                             rounding_mode="ROUND")

    def parameter(self, name: str) -> str:
        constant = self.graph.constants[name]
        if constant.scheme is None:
            return self.constant(name, constant.array)
        self.constant(name, constant.real.astype(np.float32))
        return self.quantize(name, f"{name}{self.sep}dq", name, constant.scheme, constant.array.ndim)

    def signs(self, source: str, scale: Array, output: str) -> str:
        given = self.constant(f"{source}{self.sep}scale", scale.astype(np.float32))
        return self._general("BipolarQuant", [source, given], output, f"{source}{self.sep}quant")

    def thresholds(self, source: str, steps: Array, bits: int, output: str, name: str, rank: int) -> str:
        given = self.constant(f"{name}{self.sep}steps", np.atleast_2d(steps).astype(np.float32))
        return self._general("MultiThreshold", [source, given], output, name, out_dtype=f"UINT{bits}", out_scale=1.0,
                             out_bias=0.0, data_layout="NCHW" if rank == 4 else "NC")

    def _general(self, op: str, inputs: list[str], output: str, name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name=name, domain=DOMAIN, **attributes))
        return output


def to_qonnx(graph: Graph) -> bytes:
    """A quantized graph as a serialized QONNX model (opset 17, IR 8).

    Raises UnsupportedError where a layer is none of QONNX's, or where float32 does not hold its sums.
    """
    if not graph.quantized or not all(graph.tensors[t].scheme for t in (*graph.inputs, *(n.output for n in graph.nodes))):
        raise ModelError(f"{graph.name}: holds floats; quantize it before it is written as QONNX")
    writer = _QonnxWriter(graph, Boundary.FLOAT)
    inputs = []
    for name in graph.inputs:
        writer.quantize(name, f"{name}{writer.sep}dq", name, graph.scheme(name))
        inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, leading(writer, graph.shape(name))))
    for node in graph.nodes:
        _node(writer, node)
    outputs = [declared_output(writer, graph.tensors[name]) for name in graph.outputs]
    proto = helper.make_graph(writer.nodes, graph.name, inputs, outputs, list(writer.initializers.values()))
    imports = [helper.make_opsetid("", onnx_file.OPSET), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(proto, opset_imports=imports, functions=list(definitions()), ir_version=onnx_file.IR_VERSION,
                              producer_name=onnx_file.PRODUCER)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString(deterministic=True)
    return content


def _node(writer: _QonnxWriter, node: Node) -> None:
    graph = writer.graph
    scheme = graph.scheme(node.output)
    real = node.output if node.output in graph.outputs else f"{node.output}{writer.sep}dq"
    if isinstance(node.op, Thresholds):
        source = graph.scheme(node.inputs[0])
        steps = (graph.params(node)[0].array.astype(np.float64) - source.zero) * source.scale
        writer.thresholds(read_value(writer, node.inputs[0]), steps, node.op.bits, real, node.name, len(graph.shape(node.output)))
        return
    if isinstance(node.op, Coded):
        _coded(writer, node, node.op, scheme, real)
        return
    if scheme.bits > 16 or type(node.op) in STORED_WRITERS:
        raise UnsupportedError(f"{node.name}: {node.op.kind} to {scheme.bits} bits has no form in QONNX; write it with to_onnx")
    if holds_codes(graph, node.output):  # they only move
        activated(writer, node, real, None)
        return
    raw = f"{node.output}{writer.sep}raw"
    activated(writer, node, raw, None)
    writer.quantize(raw, real, node.output, scheme)


def even_products(name: str, op: Coded, products: Array) -> Array:
    """The integer whose multiples by powers of two all products of each filter are; UnsupportedError where they are not."""
    first = products[:, 0, 0].astype(np.int64)
    powers = (1 << np.arange(op.weight_planes))[:, None] * (1 << np.arange(op.input_planes))[None, :]
    uneven = np.flatnonzero((products.astype(np.int64) != first[:, None, None] * powers).any(axis=(1, 2)))
    if len(uneven) or op.patterns:
        row = int(uneven[0]) if len(uneven) else 0
        raise UnsupportedError(f"{name}: levels of filter {row} are not evenly spaced, products {products[row].tolist()}; "
                               "QONNX has uniform quantizers alone; write the network with to_onnx, whose functions any "
                               "runtime computes")
    return first


def _coded(writer: _QonnxWriter, node: Node, op: Coded, scheme: Scheme, real: str) -> None:
    """Weights as evenly spaced integers, the sum in real units, then thresholds or bias and rounding."""
    graph = writer.graph
    codes, products, steps, *_ = graph.params(node)
    common, source = even_products(node.name, op, products.array), graph.scheme(node.inputs[0])
    assert products.scheme is not None
    dead, unit = common == 0, np.asarray(products.scheme.scales)
    factor = np.where(dead, 1, common)
    if op.output_bits:  # a sum times a factor reaches a threshold where the sum reaches that many factors
        limits = -(-steps.array.astype(np.int64) // factor[:, None]) * unit[:, None]
        limits[dead] = np.where(steps.array[dead] <= 0, -UNREACHED, UNREACHED)
        largest, scale = products.array // np.maximum(common, 1)[:, None, None], unit
    else:
        limits, largest, scale = steps.array * unit, products.array, factor * unit
        if dead.any():
            raise UnsupportedError(f"{node.name}: filter {int(np.flatnonzero(dead)[0])} has no weights; ± levels cannot say so")
    if op.bound(codes.array, largest, max(-source.lo, source.hi)) >> HELD_BITS:
        raise UnsupportedError(f"{node.name}: sums beyond {HELD_BITS} bits, which float32 does not hold; write it with to_onnx")
    scale = scale / (1.0 if op.input_bits else source.scale)
    weight = _weight(writer, node.name, op, codes, scale)
    total = f"{node.output}{writer.sep}sum"
    inputs = [read_value(writer, node.inputs[0]), weight]
    if not op.output_bits:
        inputs.append(writer.constant(f"{node.name}{writer.sep}bias", limits.astype(np.float32)))
    emit_product(writer, op.body, inputs, total, node.name)
    if op.output_bits:
        name = f"{node.name}{writer.sep}thresholds"
        writer.thresholds(total, limits, op.output_bits, real, name, len(graph.shape(node.output)))
    else:
        writer.quantize(total, real, node.output, scheme)


def _weight(writer: _QonnxWriter, node: str, op: Coded, codes: Constant, scale: Array) -> str:
    """Signs, or sums of ± powers of two, or plain integers, by a scale per filter."""
    name, rank = f"{node}{writer.sep}weight", codes.array.ndim
    along = scale.reshape(-1, *[1] * (rank - 1))
    whole = sum((op.signs(codes.array, i).astype(np.int64) << i for i in range(op.weight_planes)), np.zeros(()))
    writer.constant(name, (whole * along).astype(np.float32))
    if op.weight_bits == 1:
        return writer.signs(name, along, f"{name}{writer.sep}dq")
    scheme = scheme_of_scales(op.weight_bits + 1 if op.weight_bits else 8, True, scale.tolist(), 0)
    return writer.quantize(name, f"{name}{writer.sep}dq", name, scheme, rank)


def definitions() -> tuple[Any, ...]:
    """The three operators as functions of standard ones, as QONNX defines them, rounding half to even."""
    return _Body().quant(), _Body().bipolar(), _Body().thresholds()


class _Body(FunctionBody):
    """The nodes of one of the operators."""

    def number(self, value: float) -> str:
        return self.constant(np.asarray(value, dtype=np.float32))

    def given(self, name: str, whole: bool) -> str:
        """An attribute of the call, as a float."""
        source = self.emit("Constant")
        kind = AttributeProto.INT if whole else AttributeProto.FLOAT
        own = AttributeProto(name="value_int" if whole else "value_float", ref_attr_name=name, type=kind)
        self.nodes[-1].attribute.append(own)
        return self.emit("Cast", source, to=TensorProto.FLOAT)

    def closed(self, name: str, inputs: tuple[str, ...], attributes: tuple[str, ...], last: str) -> Any:
        self.emit("Identity", last, output="y")
        return self.function(DOMAIN, name, inputs, attributes)

    def quant(self) -> Any:
        signed, narrow = (self.given(n, True) for n in ("signed", "narrow"))
        one, plain = self.number(1.0), self.emit("Sub", self.number(1.0), signed)
        power = self.emit("Pow", self.number(2.0), self.emit("Sub", "bits", signed))
        most = self.emit("Sub", self.emit("Sub", power, one), self.emit("Mul", narrow, plain))
        least = self.emit("Mul", self.emit("Sub", narrow, power), signed)
        steps = self.emit("Add", self.emit("Div", "x", "scale"), "zero")
        kept = self.emit("Min", self.emit("Max", steps, least), most)
        real = self.emit("Mul", self.emit("Sub", self.emit("Round", kept), "zero"), "scale")
        return self.closed("Quant", ("x", "scale", "zero", "bits"), ("signed", "narrow", "rounding_mode"), real)

    def bipolar(self) -> Any:
        holds = self.emit("GreaterOrEqual", "x", self.number(0.0))
        sign = self.emit("Where", holds, self.number(1.0), self.number(-1.0))
        return self.closed("BipolarQuant", ("x", "scale"), (), self.emit("Mul", sign, "scale"))

    def thresholds(self) -> Any:
        """Thresholds (channels or 1, steps) along a last axis that is summed over; channels are axis 1 of any rank."""
        one, last, two = (self.constant(np.asarray([value], dtype=np.int64)) for value in (1, -1, 2))
        sizes, rows = self.emit("Shape", "x"), self.emit("Shape", "steps")
        ones = self.emit("Expand", one, self.emit("Sub", self.emit("Shape", sizes), two))
        zero = self.constant(np.asarray(0, dtype=np.int64))
        channels = self.emit("Reshape", self.emit("Gather", rows, zero), one)
        count = self.emit("Slice", rows, one, two)
        placed = self.emit("Reshape", "steps", self.emit("Concat", one, channels, ones, count, axis=0))
        reached = self.emit("Cast", self.emit("GreaterOrEqual", self.emit("Unsqueeze", "x", last), placed), to=TensorProto.FLOAT)
        total = self.emit("ReduceSum", reached, last, keepdims=0)
        scaled = self.emit("Mul", total, self.given("out_scale", False))
        return self.closed("MultiThreshold", ("x", "steps"), ("out_dtype", "out_scale", "out_bias", "data_layout"),
                           self.emit("Add", scaled, self.given("out_bias", False)))
