"""Learned quantization in ONNX: calls of functions that the file itself defines in standard operators.

A call carries codes, bases, products and thresholds as they are; its function says what they compute, so that any ONNX
runtime gets the same codes wherever float32 holds the sums (below 2**24), while readers that know the call see it whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import AttributeProto, TensorProto, helper

from dovetail.errors import ModelError
from dovetail.ir import Conv, Gemm, Graph, Node, Op, Window
from dovetail.ir.onnx.file import attributes_of
from dovetail.ir.onnx.prepare import LQ
from dovetail.ir.onnx.state import Reader
from dovetail.ir.onnx.writer import FunctionBody, Writer
from dovetail.ir.operators.lq import STORED, Coded, Thresholds, check_ascending, check_constants, steps_of
from dovetail.ir.tensor import Array, Constant, scheme_of_scales

DOMAIN = LQ
CONV = ("kernel_shape", "strides", "pads", "dilations", "group")
BITS = ("weight_bits", "input_bits", "output_bits")
PARAMETERS = ("codes", "products", "steps", "basis", "input_basis", "unit", "planes")


def function_name(op: Op, rank: int) -> str:
    """One function per operator and bit widths, and per rank where thresholds of channels must broadcast."""
    if op.layer:
        return f"{op.kind}_w{op.weight_bits}_a{op.input_bits}_y{op.code_bits}"
    return f"Thresholds_y{op.code_bits}" + (f"_channels_{rank}" if op.per_channel else "")


def functions(graph: Graph, opset: int) -> list[Any]:
    """The definitions of every function that a graph's nodes call."""
    found: dict[str, tuple[Coded | Thresholds, int]] = {}
    for node in graph.nodes:
        if isinstance(node.op, Coded | Thresholds):
            rank = len(graph.shape(node.output))
            found[function_name(node.op, rank)] = (node.op, rank)
    return [_Body(opset).define(name, op, rank) for name, (op, rank) in sorted(found.items())]


class _Body(FunctionBody):
    """The nodes of a layer of codes, or of thresholds."""

    def index(self, value: int) -> str:
        return self.constant(np.asarray(value, dtype=np.int64))

    def cast(self, name: str, kind: int, output: str = "") -> str:
        return self.emit("Cast", name, output=output, to=kind)

    def column(self, matrix: str, k: int, axis: int, shape: list[int]) -> str:
        """Entry `k` along an axis, shaped to broadcast."""
        taken = self.emit("Gather", matrix, self.index(k), axis=axis)
        return self.emit("Reshape", taken, self.constant(np.asarray(shape, dtype=np.int64)))

    def total(self, terms: list[str]) -> str:
        found = terms[0]
        for term in terms[1:]:
            found = self.emit("Add", found, term)
        return found

    def define(self, name: str, op: Coded | Thresholds, rank: int) -> Any:
        if isinstance(op, Thresholds):
            shape = [1, -1] + [1] * (rank - 2) if op.per_channel else []
            self._count(self.cast("x", TensorProto.FLOAT), self.cast("steps", TensorProto.FLOAT), op.bits, shape, op.per_channel)
            return self.function(DOMAIN, name, ["x", "steps"], ["bits"])
        self._coded(op, rank)
        return self.function(DOMAIN, name, ["x", *PARAMETERS], [*(CONV if op.body.window else ()), *BITS])

    def _coded(self, op: Coded, rank: int) -> None:
        signs, products = self._signs(op), self.cast("products", TensorProto.FLOAT)
        terms = []
        for j, plane in enumerate(self._planes(op)):
            column = self.emit("Gather", products, self.index(j), axis=2)
            weights = self.total([self.emit("Mul", s, self.column(column, i, 1, [-1] + [1] * (rank - 1)))
                                  for i, s in enumerate(signs)])
            terms.append(self._product(op, plane, weights))
        sums, steps, along = self.total(terms), self.cast("steps", TensorProto.FLOAT), [1, -1] + [1] * (rank - 2)
        if op.output_bits:
            self._count(sums, steps, op.output_bits, along, True)
            return
        shape = self.constant(np.asarray(along, dtype=np.int64))
        biased = self.emit("Add", sums, self.emit("Reshape", steps, shape))
        self.emit("Mul", biased, self.emit("Reshape", "unit", shape), output="y")

    def _signs(self, op: Coded) -> list[str]:
        if not op.weight_bits:
            return [self.cast("codes", TensorProto.FLOAT)]
        index, codes = self.cast("codes", TensorProto.INT32), np.arange(1 << op.weight_bits)
        tables = [self.constant((2 * (codes >> i & 1) - 1).astype(np.float32)) for i in range(op.weight_bits)]
        return [self.emit("Gather", table, index) for table in tables]

    def _planes(self, op: Coded) -> list[str]:
        if not op.input_bits:
            return [self.cast("x", TensorProto.FLOAT)]
        index, planes = self.cast("x", TensorProto.INT32), self.cast("planes", TensorProto.FLOAT)
        return [self.emit("Gather", self.column(planes, j, 1, [-1]), index) for j in range(op.input_bits)]

    def _product(self, op: Coded, plane: str, weights: str) -> str:
        if not op.body.window:
            return self.emit("Gemm", plane, weights, transB=1)
        output = self.emit("Conv", plane, weights)
        for name in CONV:
            kind = AttributeProto.INT if name == "group" else AttributeProto.INTS
            self.nodes[-1].attribute.append(AttributeProto(name=name, ref_attr_name=name, type=kind))
        return output

    def _count(self, values: str, steps: str, bits: int, along: list[int], by_channel: bool) -> None:
        """How many thresholds each value reaches."""
        reached = []
        for k in range(steps_of(bits)):
            limit = self.column(steps, k, 1 if by_channel else 0, along)
            reached.append(self.cast(self.emit("GreaterOrEqual", values, limit), TensorProto.FLOAT))
        self.cast(self.total(reached), TensorProto.UINT8, "y")


def write_thresholds(writer: Writer, node: Node, op: Thresholds, stored: str, output: str) -> None:
    """The call of thresholds: it reads stored integers and writes codes."""
    _call(writer, node, {"steps": writer.graph.constants[node.params[0]].array}, {"bits": op.bits}, stored, output)


def write_coded(writer: Writer, node: Node, op: Coded, stored: str, output: str) -> None:
    """The call of a layer of codes: it reads stored integers and writes codes, or the real numbers before rounding."""
    codes, products, steps_, basis, input_basis = writer.graph.params(node)
    assert products.scheme is not None
    unit = np.asarray(products.scheme.scales, dtype=np.float32)
    found = (codes.array, products.array, steps_.array, basis.array, input_basis.array, unit, planes_of(op))
    attributes: dict[str, Any] = dict(zip(BITS, (op.weight_bits, op.input_bits, op.output_bits), strict=True))
    if (window := op.body.window) is not None:
        values = (window.kernel, window.stride, window.pads, window.dilation, op.body.groups)
        attributes |= dict(zip(CONV, values, strict=True))
    _call(writer, node, dict(zip(PARAMETERS, found, strict=True)), attributes, stored, output)


def _call(writer: Writer, node: Node, arrays: dict[str, Array], attributes: dict[str, Any], stored: str, output: str) -> None:
    function = function_name(node.op, len(writer.graph.shape(node.output)))
    given = [writer.constant(f"{node.name}{writer.sep}{role}", array) for role, array in arrays.items()]
    writer.nodes.append(helper.make_node(function, [stored, *given], [output], name=node.name, domain=DOMAIN, **attributes))
    writer.domains.add(DOMAIN)


def planes_of(op: Coded) -> Array:
    """(codes, planes): which planes are set for each code of the input."""
    patterns = np.asarray(op.patterns or range(1 << op.input_bits))
    return (patterns[:, None] >> np.arange(op.input_planes) & 1).astype(np.uint8)


def read(reader: Reader, proto: Any) -> None:
    """A call as the operator it is."""
    where, a = f"{reader.where}: node {proto.name}", attributes_of(proto, reader.where)
    known = ("LqConv", "LqGemm") if "weight_bits" in a else ("Thresholds",)
    if not proto.op_type.startswith(known):
        raise ModelError(f"{where}: operator {proto.op_type} of domain {DOMAIN} is unknown; this version reads LqConv, LqGemm "
                         "and Thresholds")
    given = [reader.constant(i, proto.name, "parameter").array for i in proto.input[1:]]
    if known == ("Thresholds",):
        op: Op = Thresholds(int(a["bits"]), given[0].ndim == 2)
        check_ascending(where, given[0])
        reader.add(proto, op, params={"steps": (given[0], None)})
        reader.store(proto.output[0], STORED)
        return
    codes, products, steps, basis, input_basis, unit, planes = given
    op = _coded(a, codes, planes)
    scheme = scheme_of_scales(32, True, unit.astype(np.float64).tolist(), 0)
    params = {"codes": (codes, None), "products": (products, scheme), "steps": (steps, None if op.output_bits else scheme),
              "basis": (basis, None), "input_basis": (input_basis, None)}
    check_constants(where, op, *(Constant(role, *params[role]) for role in ("codes", "products", "steps")))
    reader.add(proto, op, params=params)
    if op.output_bits:
        reader.store(proto.output[0], STORED)


def _coded(a: dict[str, Any], codes: Array, planes: Array) -> Coded:
    weight_bits, input_bits, output_bits = (int(a[b]) for b in BITS)
    body: Conv | Gemm = Gemm(codes.shape[0])
    if codes.ndim == 4:
        kernel, strides, pads, dilations = (tuple(int(v) for v in a[name]) for name in CONV[:4])
        body = Conv(codes.shape[0], Window(kernel, strides, pads, dilations), int(a["group"]))  # type: ignore[arg-type]
    patterns = tuple(int(v) for v in planes.astype(np.int64) @ (1 << np.arange(planes.shape[1]))) if input_bits else ()
    return Coded(body, weight_bits, input_bits, output_bits, () if patterns == tuple(range(len(patterns))) else patterns)
