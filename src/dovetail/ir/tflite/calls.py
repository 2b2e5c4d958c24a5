"""TensorFlow Lite's arithmetic in ONNX: calls of functions that a file defines itself, in integer operators.

Values between calls are real numbers to whoever reads the file, and the integers that stand for them to whoever runs it: so any
ONNX runtime gets TensorFlow Lite's integers wherever float32 holds the sums (below 2**24), and the import finds scales as they
were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from dovetail.errors import ModelError
from dovetail.ir.graph import Graph, Node
from dovetail.ir.onnx.file import attributes_of
from dovetail.ir.onnx.prepare import LITE
from dovetail.ir.onnx.quantizers import quantize
from dovetail.ir.onnx.state import Reader
from dovetail.ir.onnx.writer import FunctionBody, Writer
from dovetail.ir.operators.base import Clamp
from dovetail.ir.operators.elementwise import Add, Clip
from dovetail.ir.tensor import Array, Rounding, Scheme
from dovetail.ir.tflite.rounding import divided, lite_bounds, lite_integers

INTEGERS, ADDEND, ACTIVATION, QUANTIZE = "Integers", "Addend", "Activation", "QuantizeLinear"
PARAMETERS = ("multiplier", "divisor", "above", "below", "count", "offset", "lo", "hi", "placed")


@dataclass(frozen=True, slots=True)
class LiteRounding:
    """What makes stored integers of a node's sums; arrays broadcast against them.

    clip(floor(((x * count + offset) * multiplier + nudge) / divisor) + placed, lo, hi); the nudge is `above` where the product is
    at least zero, else `below`. Operands of an addition are multiplied by `factors` first.
    """

    multiplier: Array
    divisor: Array
    above: Array
    below: Array
    count: Array
    offset: Array
    lo: int
    hi: int
    placed: int
    factors: tuple[int, ...] = ()

    def arrays(self) -> dict[str, Array]:
        kinds = {"count": np.float64}
        return {name: np.asarray(getattr(self, name), kinds.get(name, np.int64)) for name in PARAMETERS}


def lite_rounding(graph: Graph, node: Node) -> LiteRounding:
    """What is written of a node whose result TensorFlow Lite's kernels define."""
    known, target, rank = lite_integers(graph, node), graph.scheme(node.output), len(graph.shape(node.output))
    divisor = np.asarray(node.op.divisor(graph.input_shapes(node)), dtype=np.int64)
    lo, hi = lite_bounds(node.op.bounds, target)

    def along(values: Sequence[int]) -> Array:
        return np.asarray(values, np.int64).reshape((-1,) + (1,) * (rank - 2) if len(values) > 1 else ())

    shifts = along([d.shift for d in known.divisions])
    above, below = (along([d.nudges[side] for d in known.divisions]) for side in (0, 1))
    count, offset, zero = divisor, np.zeros((), np.int64), known.zero
    if node.op.averages and target.rounding is Rounding.AWAY:
        above, below = divided(divisor)
        offset, zero = divisor * graph.scheme(node.inputs[0]).zero, 0
    factors = tuple(f[0] for f in known.factors) if isinstance(node.op, Add) else ()
    return LiteRounding(along([d.multiplier for d in known.divisions]), divisor << shifts, above, below, count, offset, lo, hi,
                        zero, factors)


def functions(opset: int) -> list[Any]:
    """The definitions of all functions."""
    return [_integers(FunctionBody(opset)), _addend(FunctionBody(opset)), _activation(FunctionBody(opset)),
            _quantize(FunctionBody(opset))]


def _whole(body: FunctionBody) -> str:
    return body.emit("Round", body.emit("Div", "x", "scale"))


def _integers(body: FunctionBody) -> Any:
    body.emit("Identity", _whole(body), output="y")
    return body.function(LITE, INTEGERS, ["x", "scale"], [])


def _addend(body: FunctionBody) -> Any:
    """In float64, which holds the product."""
    body.emit("Mul", body.emit("Cast", _whole(body), to=TensorProto.DOUBLE), "factor", output="y")
    return body.function(LITE, ADDEND, ["x", "scale", "factor"], [])


def _activation(body: FunctionBody) -> Any:
    """Nothing yet: integers are bounded once they are rounded."""
    body.emit("Identity", "x", output="y")
    return body.function(LITE, ACTIVATION, ["x"], ["low", "high"])


def _quantize(body: FunctionBody) -> Any:
    nothing, one = body.constant(np.asarray(0, np.int64)), body.constant(np.asarray(1, np.int64))
    scaled = body.emit("Round", body.emit("Mul", body.emit("Cast", "x", to=TensorProto.DOUBLE), "count"))
    total = body.emit("Add", body.emit("Cast", scaled, to=TensorProto.INT64), "offset")
    product = body.emit("Mul", total, "multiplier")
    nudged = body.emit("Add", product, body.emit("Where", body.emit("Less", product, nothing), "below", "above"))
    lower = body.emit("Sub", nudged, body.emit("Sub", "divisor", one))  # Div rounds towards zero
    quotient = body.emit("Div", body.emit("Where", body.emit("Less", nudged, nothing), lower, nudged), "divisor")
    bounded = body.emit("Min", body.emit("Max", body.emit("Add", quotient, "placed"), "lo"), "hi")
    body.emit("CastLike", bounded, "zero", output="y")
    return body.function(LITE, QUANTIZE, ["x", "scale", "zero", *PARAMETERS], ["rounding"])


def _call(writer: Writer, function: str, inputs: Sequence[str], output: str, name: str, **attributes: Any) -> str:
    writer.nodes.append(helper.make_node(function, list(inputs), [output], name=name, domain=LITE, **attributes))
    writer.domains.add(LITE)
    return output


def write_integers(writer: Writer, node: Node, source: str, scheme: Scheme, at: int, rank: int,
                   factor: int | None = None) -> str:
    """The integers less the zero point of an input or of weights, times a factor if there is one."""
    stem = f"{node.name}{writer.sep}in{at}"
    scales = writer.constant(f"{stem}{writer.sep}unit", scheme.scales_along(rank).astype(np.float32))
    if factor is None:
        return _call(writer, INTEGERS, [source, scales], stem, f"{stem}{writer.sep}integers")
    given = writer.constant(f"{stem}{writer.sep}factor", np.asarray(factor, np.float64))
    return _call(writer, ADDEND, [source, scales, given], stem, f"{stem}{writer.sep}integers")


def write_activation(writer: Writer, clamp: Clamp, source: str, output: str, name: str) -> str:
    """An activation, as the real bounds that it has."""
    return _call(writer, ACTIVATION, [source], output, name, low=float(clamp.lo), high=float(clamp.hi))


def write_quantize(writer: Writer, node: Node, scheme: Scheme, how: LiteRounding, raw: str, stored: str) -> None:
    """The rounding itself."""
    stem = f"{node.output}{writer.sep}"
    given = [writer.constant(f"{stem}{name}", array) for name, array in how.arrays().items()]
    _call(writer, QUANTIZE, [raw, *writer.scale(node.output, scheme), *given], stored, f"{stem}quantize",
          rounding=str(scheme.rounding))


def read_call(reader: Reader, proto: Any) -> None:
    """A call as what it stands for."""
    where, source, target = f"{reader.where}: node {proto.name}", proto.input[0], proto.output[0]
    match proto.op_type:
        case "Integers" | "Addend":
            if source in reader.constants:
                reader.constants[target] = reader.constants[source]
            else:
                reader.alias[target] = source
        case "Activation":
            a = attributes_of(proto, reader.where)
            low, high = float(a.get("low", -inf)), float(a.get("high", inf))
            if not low <= high:
                raise ModelError(f"{where}: an activation between {low:g} and {high:g}; the file is damaged")
            reader.add(proto, Clip(Clamp(low, high)))
        case "QuantizeLinear":
            quantize(reader, proto, attributes_of(proto, reader.where))
        case _:
            raise ModelError(f"{where}: operator {proto.op_type} of domain {LITE} is unknown; this version reads {INTEGERS}, "
                             f"{ADDEND}, {ACTIVATION} and {QUANTIZE}")
