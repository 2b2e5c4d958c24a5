"""TensorFlow Lite's operators as ONNX nodes: channels last as they are, with the transposes that layers need around them.

The import moves those transposes on until they cancel (`ir/onnx/layout.py`). What is quantized comes as QDQ: after each operator
its tensor is rounded to the file's integers. Where TensorFlow Lite's reference kernels round in a way that is known exactly, the
QuantizeLinear is one of our domain and says which (`Rounding`); elsewhere it is ONNX's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.errors import ModelError, UnsupportedError
from dovetail.ir.onnx.prepare import LITE
from dovetail.ir.tensor import Array, Rounding, Shape, scheme_of_scales
from dovetail.ir.tflite.file import DAMAGED, LiteModel, LiteOperator, LiteTensor, read_tables
from dovetail.ir.tflite.rounding import addition

OPSET = 17
TO_FIRST, TO_LAST = (0, 3, 1, 2), (0, 2, 3, 1)
SAME = 0
"""`Padding` of the schema: as many pixels out as strides cover."""
LIMITS: Mapping[int, tuple[float, float]] = {2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""Fused activation functions of the schema that clip; 1 is Relu, 4 is Tanh, 0 none."""
INEXACT = "{} rounded once, half to even: TensorFlow Lite's own kernels may differ by one there"
"""What is to be said of a quantized file some of whose operators are not computed as its kernels do."""
EXACT = "its integers are those of TensorFlow Lite's reference kernels, but for nodes that are kept as they are"
"""What is to be said of a quantized file otherwise."""
WINDOWS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D"})
MOVED = frozenset({"MAX_POOL_2D", "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE", "PAD", "PADV2", "CONCATENATION", "SPLIT",
                   "SLICE", "STRIDED_SLICE", "RESIZE_NEAREST_NEIGHBOR", "DEPTH_TO_SPACE", "SPACE_TO_DEPTH", "REDUCE_MAX",
                   "MAXIMUM", "MINIMUM", "DEQUANTIZE"})
"""Operators that round nothing."""


def translate(content: bytes, where: str) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """A file's network as an ONNX model, and what is to be said of its numbers.

    Raises:
        ModelError: the file is damaged.
        UnsupportedError: an operator has no translation.
    """
    made = Translation(read_tables(content, where), where)
    try:
        return made.model(), made.notes()
    except DAMAGED as error:
        raise ModelError(f"{where}: contradicts itself ({type(error).__name__}: {error}); export the model again") from None


@dataclass(slots=True)
class Translation:
    """The ONNX model being made: nodes, constants, and the name under which each tensor is read."""

    lite: LiteModel
    where: str
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    inexact: dict[str, int] = field(default_factory=dict)
    """Operators whose integers may not be TensorFlow Lite's, by kind."""

    def model(self) -> onnx.ModelProto:
        self.used |= {self.lite.tensors[n].name for n in self.lite.outputs}
        inputs = [self._input(number) for number in self.lite.inputs]
        for at, operator in enumerate(self.lite.operators):
            rule = RULES.get(operator.kind)
            if rule is None:
                raise UnsupportedError(f"{self.where}: operator {at} is {operator.kind}, which is not read from .tflite files; "
                                       "export the network as ONNX")
            rule(self, operator)
        outputs = [self._output(number) for number in self.lite.outputs]
        graph = helper.make_graph(self.nodes, "network", inputs, outputs, list(self.constants.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(LITE, 1)],
                                 ir_version=8)

    def notes(self) -> tuple[str, ...]:
        made = (self.lite.tensors[n] for operator in self.lite.operators for n in operator.outputs)
        if not any(tensor.quantized is not None for tensor in made):
            return ()
        kinds = [f"{count} {kind}" for kind, count in self.inexact.items()]
        return (INEXACT.format(f"{', '.join(kinds)} {'is' if sum(self.inexact.values()) == 1 else 'are'}") if kinds else EXACT,)

    def name(self, wish: str) -> str:
        """A name that nothing has yet."""
        name, count = wish, 1
        while name in self.used:
            name, count = f"{wish}_{count}", count + 1
        self.used.add(name)
        return name

    def constant(self, wish: str, values: Array) -> str:
        name = self.name(wish)
        self.constants[name] = numpy_helper.from_array(np.asarray(values, order="C"), name)
        return name

    def node(self, kind: str, inputs: Sequence[str], wish: str, **attributes: Any) -> str:
        """One more node; its output's name."""
        name = self.name(wish)
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name, **attributes))
        return name

    def tensor(self, operator: LiteOperator, at: int) -> LiteTensor:
        return self.lite.tensors[operator.inputs[at]]

    def output(self, operator: LiteOperator) -> LiteTensor:
        return self.lite.tensors[operator.outputs[0]]

    def integers(self, operator: LiteOperator, at: int) -> tuple[int, ...]:
        """A constant input, such as axes or sizes."""
        values = self.tensor(operator, at).values
        if values is None:
            raise UnsupportedError(f"{self.where}: {operator.kind} takes {self.tensor(operator, at).name}, which is computed; "
                                   "export the network with fixed shapes")
        return tuple(int(v) for v in values.reshape(-1))

    def read(self, number: int, turn: Callable[[Array], Array] | None = None, axis: int | None = None) -> str:
        """The name of a tensor's real values; of a constant perhaps turned, with its scales then along `axis`."""
        known = self.names.get(number)
        if known is not None and turn is None:
            return known
        tensor = self.lite.tensors[number]
        if tensor.values is None:
            raise ModelError(f"{self.where}: tensor {tensor.name} is read before it is computed; the file is damaged")
        values = tensor.values if turn is None else turn(tensor.values)
        values = values.astype(np.float32) if values.dtype == np.float16 else values
        name = self.constant(tensor.name, values)
        if tensor.quantized is not None and values.dtype.kind in "iu":
            name = self._dequantized(name, tensor, axis)
        if turn is None:
            self.names[number] = name
        return name

    def write(self, operator: LiteOperator, name: str, fused: int = 0, rounding: Rounding = Rounding.EVEN) -> None:
        """A result: its fused activation, then its integers, where it has any, rounded as TensorFlow Lite's kernel does."""
        number, tensor = operator.outputs[0], self.output(operator)
        if fused in LIMITS:
            name = self.clipped(name, LIMITS[fused], tensor.name)
        elif fused:
            name = self.node({1: "Relu", 4: "Tanh"}[fused], [name], f"{tensor.name}_active")
        if tensor.quantized is not None and tensor.dtype.kind in "iu":
            if rounding is Rounding.EVEN and operator.kind not in MOVED:
                self.inexact[operator.kind] = self.inexact.get(operator.kind, 0) + 1
            name = self._rounded(name, tensor, rounding)
        self.names[number] = name

    def known(self, operator: LiteOperator, rounding: Rounding) -> Rounding:
        """The rounding, where all that an operator computes with and writes are bytes, as its kernel is known for."""
        read = [self.lite.tensors[n] for n in operator.inputs[:2]]
        bytes_alone = all(t.dtype == np.int8 and t.quantized is not None for t in (*read, self.output(operator)))
        return rounding if bytes_alone else Rounding.EVEN

    def adds_exactly(self, operator: LiteOperator) -> bool:
        """Whether some factors round every sum of two tensors as the kernel does."""
        schemes = []
        for number in (*operator.inputs, operator.outputs[0]):
            own = self.lite.tensors[number].quantized
            assert own is not None
            schemes.append(scheme_of_scales(8, True, [float(own.scales[0])], zero=int(own.zeros[0]), rounding=Rounding.TWICE))
        try:
            addition(schemes[0], schemes[1], schemes[2])
        except ModelError:
            return False
        return True

    def same_scale(self, operator: LiteOperator) -> bool:
        """Whether an operator's result means what its input means."""
        source, target = self.tensor(operator, 0).quantized, self.output(operator).quantized
        return source is not None and target is not None and source.scales[0] == target.scales[0] \
            and source.zeros[0] == target.zeros[0]

    def write_same(self, operator: LiteOperator, name: str) -> None:
        """A result that only moves values: it keeps the integers of what it reads."""
        if self.same_scale(operator):
            self.names[operator.outputs[0]] = name
        else:
            self.write(operator, name)

    def clipped(self, name: str, limits: tuple[float, float], wish: str) -> str:
        return self.node("Clip", [name, *(self.constant("limit", np.asarray(v, np.float32)) for v in limits)], f"{wish}_clip")

    def shaped(self, name: str, shape: Shape, wish: str) -> str:
        return self.node("Reshape", [name, self.constant("shape", np.asarray(shape, np.int64))], wish)

    def turned(self, name: str, perm: Sequence[int], wish: str) -> str:
        return self.node("Transpose", [name], wish, perm=list(perm))

    def first(self, number: int) -> str:
        """A map channels first, as layers read it."""
        return self.turned(self.read(number), TO_FIRST, f"{self.lite.tensors[number].name}_first")

    def last(self, operator: LiteOperator, name: str) -> str:
        """A layer's map channels last again."""
        return self.turned(name, TO_LAST, f"{self.output(operator).name}_last")

    def _input(self, number: int) -> Any:
        tensor = self.lite.tensors[number]
        name = self.name(tensor.name)
        self.names[number] = name if tensor.quantized is None else self._rounded(name, tensor)
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, tensor.shape)

    def _output(self, number: int) -> Any:
        """An output under the file's name."""
        tensor = self.lite.tensors[number]
        self.nodes.append(helper.make_node("Identity", [self.read(number)], [tensor.name], f"{tensor.name}_out"))
        return helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, tensor.shape)

    def _parameters(self, tensor: LiteTensor, axis: int | None) -> tuple[list[str], dict[str, int]]:
        """Scale and zero point as constants, and the axis where there are several."""
        own = tensor.quantized
        assert own is not None
        one = own.scales.size == 1
        scales = self.constant(f"{tensor.name}_scale", own.scales[0] if one else own.scales)
        if tensor.dtype == np.int32:
            return [scales], {} if one else {"axis": 0}
        zeros = (own.zeros[0] if one else own.zeros).astype(tensor.dtype)
        return [scales, self.constant(f"{tensor.name}_zero", zeros)], {} if one else {"axis": own.axis if axis is None else axis}

    def _dequantized(self, name: str, tensor: LiteTensor, axis: int | None = None) -> str:
        parameters, along = self._parameters(tensor, axis)
        return self.node("DequantizeLinear", [name, *parameters], f"{tensor.name}_real", **along)

    def _rounded(self, name: str, tensor: LiteTensor, rounding: Rounding = Rounding.EVEN) -> str:
        parameters, _ = self._parameters(tensor, None)
        own: dict[str, Any] = {} if rounding is Rounding.EVEN else {"domain": LITE, "rounding": str(rounding)}
        return self._dequantized(self.node("QuantizeLinear", [name, *parameters], f"{tensor.name}_integers", **own), tensor)


def _pads(size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
          padding: int) -> list[int]:
    """Zeros around a map, above and left first, as ONNX lists them."""
    if padding != SAME:
        return [0, 0, 0, 0]
    axes = zip(size, kernel, strides, dilations, strict=True)
    needed = [max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n) for n, k, s, d in axes]
    return [n // 2 for n in needed] + [n - n // 2 for n in needed]


def _convolve(made: Translation, op: LiteOperator) -> None:
    """Weights as (filters, height, width, channels); of a depthwise one as (1, height, width, filters)."""
    x, weights, o = made.tensor(op, 0), made.tensor(op, 1), op.options
    deep = op.kind == "DEPTHWISE_CONV_2D"
    turn = (3, 0, 1, 2) if deep else TO_FIRST
    kernel, strides, dilations = weights.shape[1:3], [o.StrideH(), o.StrideW()], [o.DilationHFactor(), o.DilationWFactor()]
    groups = x.shape[3] if deep else x.shape[3] // weights.shape[3]
    inputs = [made.first(op.inputs[0]),
              made.read(op.inputs[1], lambda w: w.transpose(turn), axis=0), *_bias(made, op)]
    y = made.node("Conv", inputs, made.output(op).name, kernel_shape=list(kernel), strides=strides, dilations=dilations,
                  group=groups, pads=_pads(x.shape[1:3], kernel, strides, dilations, o.Padding()))
    made.write(op, made.last(op, y), o.FusedActivationFunction(), made.known(op, Rounding.TWICE))


def _bias(made: Translation, op: LiteOperator) -> list[str]:
    return [made.read(op.inputs[2])] if len(op.inputs) > 2 and op.inputs[2] >= 0 else []


def _transposed(made: Translation, op: LiteOperator) -> None:
    """Inputs are the output's shape, weights as (filters, height, width, channels), the map, perhaps a bias."""
    size, weights, o = made.integers(op, 0), made.tensor(op, 1), op.options
    x, strides = made.tensor(op, 2), [o.StrideH(), o.StrideW()]
    inputs = [made.first(op.inputs[2]),
              made.read(op.inputs[1], lambda w: w.transpose(3, 0, 1, 2), axis=1)]
    if len(op.inputs) > 3 and op.inputs[3] >= 0:
        inputs.append(made.read(op.inputs[3]))
    extra = [(n - 1) * s + k - m for n, s, k, m in zip(x.shape[1:3], strides, weights.shape[1:3], size[1:3], strict=True)]
    cut, more = [max(0, e) for e in extra], [max(0, -e) for e in extra]
    y = made.node("ConvTranspose", inputs, made.output(op).name, kernel_shape=list(weights.shape[1:3]), strides=strides,
                  pads=[c // 2 for c in cut] + [c - c // 2 for c in cut], output_padding=more)
    fused = getattr(o, "FusedActivationFunction", lambda: 0)()
    made.write(op, made.last(op, y), fused)


def _connected(made: Translation, op: LiteOperator) -> None:
    x, (outputs, channels), shape = made.tensor(op, 0), made.tensor(op, 1).shape, made.output(op).shape
    name = made.read(op.inputs[0])
    if len(x.shape) != 2:
        name = made.shaped(name, (prod(x.shape) // channels, channels), f"{x.name}_flat")
    y = made.node("Gemm", [name, made.read(op.inputs[1]), *_bias(made, op)], made.output(op).name, transB=1)
    if len(shape) != 2:
        y = made.shaped(y, (*shape[:-1], outputs), f"{made.output(op).name}_shaped")
    made.write(op, y, op.options.FusedActivationFunction(), made.known(op, Rounding.AWAY))


def _pool(made: Translation, op: LiteOperator) -> None:
    x, o = made.tensor(op, 0), op.options
    kernel, strides = [o.FilterHeight(), o.FilterWidth()], [o.StrideH(), o.StrideW()]
    pads = _pads(x.shape[1:3], kernel, strides, (1, 1), o.Padding())
    kind = "MaxPool" if op.kind == "MAX_POOL_2D" else "AveragePool"
    y = made.node(kind, [made.first(op.inputs[0])], made.output(op).name,
                  kernel_shape=kernel, strides=strides, pads=pads)
    if kind == "MaxPool" and not o.FusedActivationFunction():
        made.write_same(op, made.last(op, y))
        return
    rounding = Rounding.AWAY if made.same_scale(op) and kind == "AveragePool" else Rounding.EVEN
    made.write(op, made.last(op, y), o.FusedActivationFunction(), made.known(op, rounding))


def _binary(kind: str) -> Callable[[Translation, LiteOperator], None]:
    def run(made: Translation, op: LiteOperator) -> None:
        fused = 0 if op.options is None or not hasattr(op.options, "FusedActivationFunction") else \
            op.options.FusedActivationFunction()
        computed = all(made.lite.tensors[n].values is None for n in op.inputs)
        rounding = made.known(op, Rounding.TWICE) if kind in ("Add", "Mul") and computed else Rounding.EVEN
        if kind == "Add" and rounding is Rounding.TWICE and not made.adds_exactly(op):
            rounding = Rounding.EVEN
        y = made.node(kind, [made.read(n) for n in op.inputs], f"{made.output(op).name}_{kind.lower()}")
        made.write(op, y, fused, rounding)
    return run


def _relu(made: Translation, op: LiteOperator) -> None:
    y = made.node("Relu", [made.read(op.inputs[0])], f"{made.output(op).name}_relu")
    made.write(op, y, 0, made.known(op, Rounding.TWICE))


def _unary(kind: str, **attributes: float) -> Callable[[Translation, LiteOperator], None]:
    def run(made: Translation, op: LiteOperator) -> None:
        made.write(op, made.node(kind, [made.read(op.inputs[0])], f"{made.output(op).name}_{kind.lower()}", **attributes))
    return run


def _clip(low: float, high: float) -> Callable[[Translation, LiteOperator], None]:
    def run(made: Translation, op: LiteOperator) -> None:
        y = made.clipped(made.read(op.inputs[0]), (low, high), made.output(op).name)
        made.write(op, y, 0, made.known(op, Rounding.TWICE))
    return run


def _leaky(made: Translation, op: LiteOperator) -> None:
    made.write(op, made.node("LeakyRelu", [made.read(op.inputs[0])], f"{made.output(op).name}_leaky", alpha=op.options.Alpha()))


def _reshape(made: Translation, op: LiteOperator) -> None:
    made.write_same(op, made.shaped(made.read(op.inputs[0]), made.output(op).shape, f"{made.output(op).name}_shaped"))


def _transpose(made: Translation, op: LiteOperator) -> None:
    made.write_same(op, made.turned(made.read(op.inputs[0]), made.integers(op, 1), f"{made.output(op).name}_turned"))


def _softmax(made: Translation, op: LiteOperator) -> None:
    name, beta = made.read(op.inputs[0]), op.options.Beta()
    if beta != 1.0:
        name = made.node("Mul", [name, made.constant("beta", np.asarray(beta, np.float32))], f"{made.output(op).name}_scaled")
    made.write(op, made.node("Softmax", [name], f"{made.output(op).name}_softmax", axis=-1))


def _reduce(kind: str) -> Callable[[Translation, LiteOperator], None]:
    def run(made: Translation, op: LiteOperator) -> None:
        axes, kept, wish = list(made.integers(op, 1)), int(op.options.KeepDims()), f"{made.output(op).name}_{kind.lower()}"
        if kind == "ReduceMean" and len(made.tensor(op, 0).shape) == 4 and sorted(axes) == [1, 2]:
            y = made.node(kind, [made.first(op.inputs[0])], wish, axes=[2, 3], keepdims=1)
            y = made.last(op, y) if kept else made.shaped(y, made.output(op).shape, f"{wish}_flat")
            made.write(op, y, 0, Rounding.TWICE if made.output(op).dtype == np.int8 else Rounding.EVEN)
            return
        inputs, attributes = [made.read(op.inputs[0])], {"axes": axes}
        if kind == "ReduceSum":  # the one whose axes are an input at this opset
            inputs, attributes = [*inputs, made.constant("axes", np.asarray(axes, np.int64))], {}
        made.write(op, made.node(kind, inputs, wish, keepdims=kept, **attributes))
    return run


def _pad(made: Translation, op: LiteOperator) -> None:
    pads = np.asarray(made.integers(op, 1), np.int64).reshape(-1, 2).T.reshape(-1)
    inputs = [made.read(op.inputs[0]), made.constant("pads", pads)]
    if len(op.inputs) > 2:
        inputs.append(made.read(op.inputs[2]))
    y = made.node("Pad", inputs, f"{made.output(op).name}_padded")
    readers = {other.kind for other in made.lite.operators if op.outputs[0] in other.inputs}
    if readers and readers <= WINDOWS and op.outputs[0] not in made.lite.outputs:  # which take the padding in
        made.write_same(op, y)
    else:
        made.write(op, y)


def _concat(made: Translation, op: LiteOperator) -> None:
    y = made.node("Concat", [made.read(n) for n in op.inputs], f"{made.output(op).name}_joined", axis=op.options.Axis())
    made.write(op, y, op.options.FusedActivationFunction())


def _split(made: Translation, op: LiteOperator) -> None:
    """Equal parts; the axis comes first."""
    (axis,), wish = made.integers(op, 0), made.output(op).name
    names = [made.name(f"{wish}_part") for _ in op.outputs]
    made.nodes.append(helper.make_node("Split", [made.read(op.inputs[1])], names, names[0], axis=axis))
    made.names.update(zip(op.outputs, names, strict=True))


def _slice(made: Translation, op: LiteOperator) -> None:
    """SLICE has begins and sizes, STRIDED_SLICE begins, ends and strides with masks of what is left out."""
    shape, begin = made.tensor(op, 0).shape, list(made.integers(op, 1))
    if op.kind == "SLICE":
        ends = [n if size < 0 else b + size for n, b, size in zip(shape, begin, made.integers(op, 2), strict=True)]
        steps = [1] * len(begin)
    else:
        o, steps = op.options, list(made.integers(op, 3))
        if o.EllipsisMask() or o.NewAxisMask() or o.ShrinkAxisMask() or min(steps) < 1:
            raise UnsupportedError(f"{made.where}: STRIDED_SLICE of {made.tensor(op, 0).name} adds or drops axes or goes "
                                   "backwards; export the network as ONNX")
        begin = [0 if o.BeginMask() >> i & 1 else b for i, b in enumerate(begin)]
        ends = [n if o.EndMask() >> i & 1 else e for i, (n, e) in enumerate(zip(shape, made.integers(op, 2), strict=True))]
    parts = [made.constant("slice", np.asarray(v, np.int64)) for v in (begin, ends, range(len(begin)), steps)]
    made.write_same(op, made.node("Slice", [made.read(op.inputs[0]), *parts], f"{made.output(op).name}_slice"))


def _resize(made: Translation, op: LiteOperator) -> None:
    x, o, wish = made.tensor(op, 0), op.options, made.output(op).name
    linear = op.kind == "RESIZE_BILINEAR"
    place = "align_corners" if o.AlignCorners() else "half_pixel" if o.HalfPixelCenters() else "asymmetric"
    rounding = {} if linear else {"nearest_mode": "floor" if place == "asymmetric" else "round_prefer_ceil"}
    height, width = made.integers(op, 1)
    sizes = made.constant("sizes", np.asarray((x.shape[0], x.shape[3], height, width), np.int64))
    y = made.node("Resize", [made.first(op.inputs[0]), "", "", sizes], f"{wish}_resized",
                  mode="linear" if linear else "nearest", coordinate_transformation_mode=place, **rounding)
    (made.write if linear else made.write_same)(op, made.last(op, y))


def _shuffle(made: Translation, op: LiteOperator) -> None:
    wish = made.output(op).name
    kind, more = ("DepthToSpace", {"mode": "DCR"}) if op.kind == "DEPTH_TO_SPACE" else ("SpaceToDepth", {})
    y = made.node(kind, [made.first(op.inputs[0])], f"{wish}_moved",
                  blocksize=op.options.BlockSize(), **more)
    made.write_same(op, made.last(op, y))


def _pass(made: Translation, op: LiteOperator) -> None:
    """QUANTIZE and DEQUANTIZE: other integers, or none, for the same values."""
    made.write(op, made.read(op.inputs[0]), 0, made.known(op, Rounding.TWICE))


RULES: Mapping[str, Callable[[Translation, LiteOperator], None]] = {
    "CONV_2D": _convolve, "DEPTHWISE_CONV_2D": _convolve, "TRANSPOSE_CONV": _transposed, "FULLY_CONNECTED": _connected,
    "AVERAGE_POOL_2D": _pool, "MAX_POOL_2D": _pool, "MEAN": _reduce("ReduceMean"), "SUM": _reduce("ReduceSum"),
    "REDUCE_MAX": _reduce("ReduceMax"),
    "ADD": _binary("Add"), "SUB": _binary("Sub"), "MUL": _binary("Mul"), "DIV": _binary("Div"), "MAXIMUM": _binary("Max"),
    "MINIMUM": _binary("Min"), "BATCH_MATMUL": _binary("MatMul"), "PRELU": _binary("PRelu"),
    "RELU": _relu, "RELU6": _clip(0, 6), "RELU_N1_TO_1": _clip(-1, 1), "LEAKY_RELU": _leaky,
    "LOGISTIC": _unary("Sigmoid"), "TANH": _unary("Tanh"), "HARD_SWISH": _unary("HardSwish"), "ELU": _unary("Elu"),
    "EXP": _unary("Exp"), "SQRT": _unary("Sqrt"),
    "ABS": _unary("Abs"), "NEG": _unary("Neg"), "SOFTMAX": _softmax,
    "RESHAPE": _reshape, "SQUEEZE": _reshape, "EXPAND_DIMS": _reshape, "TRANSPOSE": _transpose, "PAD": _pad, "PADV2": _pad,
    "CONCATENATION": _concat, "SPLIT": _split, "SLICE": _slice, "STRIDED_SLICE": _slice,
    "RESIZE_BILINEAR": _resize, "RESIZE_NEAREST_NEIGHBOR": _resize, "DEPTH_TO_SPACE": _shuffle, "SPACE_TO_DEPTH": _shuffle,
    "QUANTIZE": _pass, "DEQUANTIZE": _pass,
}
"""What becomes of each operator."""
