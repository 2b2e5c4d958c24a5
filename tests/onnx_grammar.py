"""Random ONNX models from a grammar of the operators that convolutional networks have, written as exporters write them.

Model `seed` is always the same. Maps have 1 to 12 channels and sides of 1 to 14; every attribute of an operator is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.ir import Array

Shape = tuple[int, ...]
MOST_SIDE = 14
MOST_CHANNELS = 12
OPSETS = (13, 15, 17, 18, 20, 21)


class Sentence:
    """A model under construction: maps that may be read on, with their shapes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.choice(OPSETS))
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.shapes: dict[str, Shape] = {}

    def one(self, low: int, high: int) -> int:
        """Any of `low` to `high`."""
        return int(self.rng.integers(low, high + 1))

    def any(self, *choices: Any) -> Any:
        return choices[self.one(0, len(choices) - 1)]

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def constant(self, values: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(values)
        return name

    def weights(self, *shape: int) -> str:
        reach = max(1.0, float(np.prod(shape[1:]))) ** 0.5
        return self.constant((self.rng.standard_normal(shape) / reach).astype(np.float32))

    def node(self, kind: str, inputs: Sequence[str], shape: Shape, **attributes: Any) -> str:
        """A node of one output, whose shape the caller knows."""
        return self.nodes_of(kind, inputs, [shape], **attributes)[0]

    def nodes_of(self, kind: str, inputs: Sequence[str], shapes: Sequence[Shape], **attributes: Any) -> list[str]:
        outputs = [f"t{len(self.shapes) + i}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(kind, inputs, outputs, f"n{len(self.nodes)}", **attributes))
        self.shapes.update(zip(outputs, shapes, strict=True))
        return outputs


def _window(s: Sentence, sides: Sequence[int], most: int, dilates: bool) -> tuple[dict[str, Any], list[int]]:
    """Attributes of a window that fits in both directions, and the map's sides behind it."""
    kernel, stride, dilation, begin, end, out = [], [], [], [], [], []
    for side in sides:
        d = s.one(1, 2) if dilates else 1
        k = s.one(1, most)
        reach = (k - 1) * d
        front, back = s.one(0, min(k - 1, reach)), s.one(0, min(k - 1, reach))
        if side + front + back <= reach:
            k, d, front, back, reach = 1, 1, 0, 0, 0
        t = s.one(1, 3)
        kernel.append(k), stride.append(t), dilation.append(d), begin.append(front), end.append(back)
        out.append((side + front + back - reach - 1) // t + 1)
    found: dict[str, Any] = {"kernel_shape": kernel}
    if stride != [1, 1] or s.chance(0.5):
        found["strides"] = stride
    if dilation != [1, 1]:
        found["dilations"] = dilation
    if any(begin + end):
        found["pads"] = begin + end
    return found, out


def _conv(s: Sentence, x: str) -> str:
    _, c, *sides = s.shapes[x]
    groups = s.any(1, 1, c, *[g for g in range(2, c) if c % g == 0][:1])
    filters = groups * s.one(1, max(1, MOST_CHANNELS // groups))
    window, out = _window(s, sides, 5, True)
    if s.chance(0.15):
        window.pop("pads", None), window.pop("dilations", None)
        window["auto_pad"] = s.any("SAME_UPPER", "SAME_LOWER")
        out = [-(-side // t) for side, t in zip(sides, window.get("strides", [1, 1]), strict=True)]
    inputs = [x, s.weights(filters, c // groups, *window["kernel_shape"]), *([s.weights(filters)] if s.chance(0.7) else [])]
    y = s.node("Conv", inputs, (1, filters, *out), group=groups, **window)
    return _normalised(s, y) if s.chance(0.3) else y


def _normalised(s: Sentence, x: str) -> str:
    c = s.shapes[x][1]
    scale, shift, mean = (s.constant(s.rng.normal(m, 0.3, c).astype(np.float32)) for m in (1, 0, 0))
    variance = s.constant(s.rng.uniform(0.2, 2, c).astype(np.float32))
    return s.node("BatchNormalization", [x, scale, shift, mean, variance], s.shapes[x], epsilon=1e-5)


def _transposed(s: Sentence, x: str) -> str:
    _, c, *sides = s.shapes[x]
    groups = s.any(1, 1, c)
    filters = s.one(1, max(1, MOST_CHANNELS // groups))
    kernel, stride = [s.one(1, 3), s.one(1, 3)], [s.one(1, 2), s.one(1, 2)]
    more = [s.one(0, t - 1) for t in stride]
    pads = [s.one(0, k - 1) for k in kernel]
    out = [t * (side - 1) + m + k - p for side, t, m, k, p in zip(sides, stride, more, kernel, pads, strict=True)]
    if min(out) < 1 or max(out) > 2 * MOST_SIDE:
        return _activation(s, x)
    inputs = [x, s.weights(c, filters, *kernel), *([s.weights(groups * filters)] if s.chance(0.5) else [])]
    return s.node("ConvTranspose", inputs, (1, groups * filters, *out), group=groups, strides=stride,
                  pads=[*pads, 0, 0], output_padding=more)


def _pool(s: Sentence, x: str) -> str:
    _, c, *sides = s.shapes[x]
    kind = s.any("MaxPool", "AveragePool")
    window, out = _window(s, sides, 3, kind == "MaxPool" and s.chance(0.2))
    while "dilations" in window and "pads" in window:  # where a window lies in the padding alone, it has no largest value
        window, out = _window(s, sides, 3, True)
    if kind == "AveragePool" and s.chance(0.5):
        window["count_include_pad"] = 1
    return s.node(kind, [x], (1, c, *out), **window)


def _whole_map(s: Sentence, x: str) -> str:
    _, c, *_ = s.shapes[x]
    kind = s.any("GlobalAveragePool", "GlobalMaxPool", "ReduceMean", "ReduceMax")
    if not kind.startswith("Reduce"):
        return s.node(kind, [x], (1, c, 1, 1))
    if s.opset >= 18:
        return s.node(kind, [x, s.constant(np.array([2, 3]))], (1, c, 1, 1), keepdims=1)
    return s.node(kind, [x], (1, c, 1, 1), axes=[2, 3], keepdims=1)


def _activation(s: Sentence, x: str) -> str:
    shape = s.shapes[x]
    kind = s.any("Relu", "Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu", "Selu",
                 "Softplus", "Softsign", "Erf", "Abs", "Neg", "SiLU", "Gelu", "Mish", "Square", "ThresholdedRelu", "Celu")
    if kind == "SiLU":
        return s.node("Mul", s.any([x, y := s.node("Sigmoid", [x], shape)], [y, x]), shape)
    if kind == "Square":
        return s.node("Pow", [x, s.constant(np.float32(2))], shape) if s.chance(0.5) else s.node("Mul", [x, x], shape)
    if kind == "PRelu":
        slope = s.rng.uniform(-0.2, 0.5, s.any((shape[1], 1, 1), (1,), (1, shape[1], 1, 1))).astype(np.float32)
        return s.node("PRelu", [x, s.constant(slope)], shape)
    if kind == "Clip":
        low, high = sorted(s.rng.uniform(-2, 4, 2).astype(np.float32))
        bounds = s.any([s.constant(low), s.constant(high)], [s.constant(low)], ["", s.constant(high)])
        return s.node("Clip", [x, *bounds], shape)
    attributes: dict[str, Any] = {}
    if kind in ("LeakyRelu", "Elu", "ThresholdedRelu", "Celu"):
        attributes["alpha"] = float(s.rng.uniform(0.05, 1.2))
    if kind == "HardSigmoid":
        attributes = s.any({}, {"alpha": 1 / 6, "beta": 0.5})
    if kind == "Gelu":
        if s.opset < 20:
            kind = "Tanh"
        else:
            attributes["approximate"] = s.any("none", "tanh")
    if (kind, s.opset < 18) == ("Mish", True) or (kind, s.opset < 14) == ("HardSwish", True):
        kind = "Softplus"
    return s.node(kind, [x], shape, **attributes)


def _with_constant(s: Sentence, x: str) -> str:
    shape = s.shapes[x]
    kind = s.any("Add", "Sub", "Mul", "Div", "Max", "Min")
    like = s.any((), (1,), (shape[1], 1, 1), (1, shape[1], 1, 1), (1, 1, *shape[2:]), shape)
    values = s.rng.uniform(0.5, 2, like) * (1 if kind == "Div" else s.rng.choice([-1, 1], like))
    c = s.constant(values.astype(np.float32))
    return s.node(kind, s.any([x, c], [c, x]) if kind not in ("Div", "Sub") else [x, c], shape)


def _branches(s: Sentence, x: str) -> str:
    """Two ways from a map that meet again."""
    shape = s.shapes[x]
    c = shape[1]

    def way() -> str:
        w = s.weights(c, c, 3, 3)
        y = s.node("Conv", [x, w], shape, pads=[1, 1, 1, 1])
        return _activation(s, y) if s.chance(0.5) else y

    left, right = way(), x if s.chance(0.5) else way()
    kind = s.any("Add", "Add", "Mul", "Sub", "Max", "Min", "Sum", "Mean", "Concat", "Div")
    if kind == "Concat":
        return s.node("Concat", [left, right], (1, 2 * c, *shape[2:]), axis=s.any(1, -3))
    if kind == "Div":
        return s.node("Div", [left, s.node("Add", [s.node("Abs", [right], shape), s.constant(np.float32(0.5))], shape)], shape)
    more = [x] if kind in ("Sum", "Mean", "Max") and s.chance(0.3) else []
    return s.node(kind, [left, right, *more], shape)


def _excited(s: Sentence, x: str) -> str:
    """Channels by what their means say."""
    shape = s.shapes[x]
    c, inner = shape[1], s.one(1, 4)
    y = s.node("GlobalAveragePool", [x], (1, c, 1, 1))
    y = s.node("Relu", [s.node("Conv", [y, s.weights(inner, c, 1, 1)], (1, inner, 1, 1))], (1, inner, 1, 1))
    y = s.node(s.any("Sigmoid", "HardSigmoid"), [s.node("Conv", [y, s.weights(c, inner, 1, 1)], (1, c, 1, 1))], (1, c, 1, 1))
    return s.node("Mul", s.any([x, y], [y, x]), shape)


def _split(s: Sentence, x: str) -> str:
    _, c, *sides = s.shapes[x]
    if c < 2:
        return _activation(s, x)
    first = c // 2 if c % 2 == 0 else s.one(1, c - 1)
    shapes = [(1, first, *sides), (1, c - first, *sides)]
    parts = s.nodes_of("Split", [x, s.constant(np.array([first, c - first]))], shapes, axis=1)
    parts[0] = _activation(s, parts[0])
    return s.node("Concat", parts[::-1] if s.chance(0.5) else parts, (1, c, *sides), axis=1)


def _slice(s: Sentence, x: str) -> str:
    shape = list(s.shapes[x])
    axis = s.one(1, 3)
    start, step = s.one(0, shape[axis] - 1), s.one(1, 2)
    end = s.one(start + 1, shape[axis])
    shape[axis] = -(-(end - start) // step)
    inputs = [s.constant(np.array([v])) for v in (start, s.any(end, np.iinfo(np.int64).max) if end == s.shapes[x][axis] else end,
                                                  s.any(axis, axis - 4), step)]
    return s.node("Slice", [x, *inputs], tuple(shape))


def _pad(s: Sentence, x: str) -> str:
    _, c, h, w = s.shapes[x]
    mode = s.any("constant", "constant", "edge", "reflect")
    most = [1 if mode != "reflect" else min(1, side - 1) for side in (h, w)]
    pads = [0, 0, s.one(0, most[0]), s.one(0, most[1]), 0, 0, s.one(0, most[0]), s.one(0, most[1])]
    value = [s.constant(np.float32(s.any(0, 0, -1.5)))] if mode == "constant" and s.chance(0.5) else []
    return s.node("Pad", [x, s.constant(np.array(pads)), *value], (1, c, h + pads[2] + pads[6], w + pads[3] + pads[7]), mode=mode)


def _moved(s: Sentence, x: str) -> str:
    """Data that only moves."""
    _, c, h, w = s.shapes[x]
    kind = s.any("turn", "shuffle", "depth", "space", "gather", "flip", "there and back", "concat", "identity")
    if kind == "turn":
        return s.node("Transpose", [x], (1, c, w, h), perm=[0, 1, 3, 2])
    if kind == "there and back":
        y = s.node("Transpose", [x], (1, h, w, c), perm=[0, 2, 3, 1])
        y = s.node("Relu", [y], (1, h, w, c)) if s.chance(0.5) else y
        return s.node("Transpose", [y], (1, c, h, w), perm=[0, 3, 1, 2])
    if kind == "shuffle" and c % 2 == 0:
        y = s.node("Reshape", [x, s.constant(np.array([1, 2, c // 2, h, w]))], (1, 2, c // 2, h, w))
        y = s.node("Transpose", [y], (1, c // 2, 2, h, w), perm=[0, 2, 1, 3, 4])
        return s.node("Reshape", [y, s.constant(np.array(s.any([1, c, h, w], [1, -1, h, w], [0, c, h, w])))], (1, c, h, w))
    if kind == "depth" and c % 4 == 0:
        return s.node("DepthToSpace", [x], (1, c // 4, 2 * h, 2 * w), blocksize=2, mode=s.any("DCR", "CRD"))
    if kind == "space" and h % 2 == 0 and w % 2 == 0 and c <= 4:
        return s.node("SpaceToDepth", [x], (1, 4 * c, h // 2, w // 2), blocksize=2)
    if kind == "gather":
        chosen = s.rng.integers(0, c, s.one(1, c))
        return s.node("Gather", [x, s.constant(chosen)], (1, len(chosen), h, w), axis=1)
    if kind == "flip":
        inputs = [s.constant(np.array([v])) for v in (-1, np.iinfo(np.int64).min, 3, -1)]
        return s.node("Slice", [x, *inputs], (1, c, h, w))
    if kind == "concat" and h <= MOST_SIDE // 2:
        return s.node("Concat", [x, s.node("Neg", [x], (1, c, h, w))], (1, c, 2 * h, w), axis=2)
    return s.node("Identity", [x], (1, c, h, w))


def _resize(s: Sentence, x: str) -> str:
    _, c, h, w = s.shapes[x]
    if max(h, w) > MOST_SIDE // 2:
        return _pool(s, x)
    up = s.one(2, 3) if max(h, w) <= 4 else 2
    how = s.any({"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
                {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"},
                {"mode": "linear", "coordinate_transformation_mode": "half_pixel"},
                {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
                {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"})
    shape = (1, c, up * h, up * w)
    if s.chance(0.5):
        return s.node("Resize", [x, "", s.constant(np.array([1, 1, up, up], dtype=np.float32))], shape, **how)
    return s.node("Resize", [x, "", "", s.constant(np.array(shape))], shape, **how)


def _seldom(s: Sentence, x: str) -> str:
    """What no device but a CPU has."""
    shape = s.shapes[x]
    c = shape[1]
    kind = s.any("LRN", "InstanceNormalization", "Softmax", "LpNormalization", "Cast", "Sin", "CumSum", "LogSoftmax")
    if kind == "LRN":
        return s.node(kind, [x], shape, size=3)
    if kind == "InstanceNormalization":
        return s.node(kind, [x, s.weights(c), s.weights(c)], shape)
    if kind == "Cast":
        return s.node("Cast", [s.node("Cast", [x], shape, to=TensorProto.DOUBLE)], shape, to=TensorProto.FLOAT)
    if kind == "CumSum":
        return s.node(kind, [x, s.constant(np.int64(s.any(1, 2)))], shape)
    return s.node(kind, [x], shape, **({} if kind == "Sin" else {"axis": 1}))


RULES: tuple[tuple[Callable[[Sentence, str], str], int], ...] = (
    (_conv, 8), (_activation, 5), (_pool, 3), (_branches, 4), (_with_constant, 3), (_excited, 1), (_split, 1), (_slice, 1),
    (_pad, 1), (_moved, 2), (_resize, 1), (_transposed, 1), (_whole_map, 1), (_seldom, 1))
"""What a map may become, and how often."""


def random_model(seed: int) -> tuple[onnx.ModelProto, Shape]:
    """A model with one input, at most two outputs, and a convolution in it; and the input's shape."""
    s = Sentence(seed)
    rules = [rule for rule, often in RULES for _ in range(often)]
    shape = (1, s.one(1, 4), s.one(1, MOST_SIDE), s.one(1, MOST_SIDE))
    s.shapes["x"] = shape
    y = _conv(s, "x") if s.chance(0.8) else "x"
    outputs = list[str]()
    for step in range(s.one(1, 8)):
        if step and not outputs and s.chance(0.03):
            outputs.append(y)
        if s.shapes[y][1] > MOST_CHANNELS or max(s.shapes[y][2:]) > 2 * MOST_SIDE:
            sides = [-(-n // 2) for n in s.shapes[y][2:]]
            y = s.node("Conv", [y, s.weights(4, s.shapes[y][1], 1, 1)], (1, 4, *sides), strides=[2, 2])
        y = s.any(*rules)(s, y)
    if not any(node.op_type in ("Conv", "ConvTranspose") for node in s.nodes):
        y = _conv(s, y)
    if s.chance(0.4):
        y = _classifier(s, y)
    outputs = [*dict.fromkeys([*outputs, y])]
    graph = helper.make_graph(
        s.nodes, f"model{seed}", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, s.shapes[name]) for name in outputs],
        [numpy_helper.from_array(values, name) for name, values in s.constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", s.opset)], ir_version=8), shape


def _classifier(s: Sentence, x: str) -> str:
    if s.chance(0.5):
        x = s.node("GlobalAveragePool", [x], (1, s.shapes[x][1], 1, 1))
    values = int(np.prod(s.shapes[x]))
    flat = s.any(lambda: s.node("Flatten", [x], (1, values), axis=1),
                 lambda: s.node("Reshape", [x, s.constant(np.array([1, -1]))], (1, values)))()
    classes = s.one(1, 6)
    if s.chance(0.5):
        bias = [s.weights(classes)] if s.chance(0.7) else []
        y = s.node("Gemm", [flat, s.weights(classes, values), *bias], (1, classes), transB=1)
    else:
        y = s.node("MatMul", [flat, s.weights(values, classes)], (1, classes))
        y = s.node("Add", [y, s.weights(classes)], (1, classes)) if s.chance(0.5) else y
    return s.node("Softmax", [y], (1, classes), axis=-1) if s.chance(0.3) else y
