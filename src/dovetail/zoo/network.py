"""The layers the papers' networks are made of, written as the ONNX nodes an exporter would write.

Weights are He-normal (He et al. 2015, "Delving Deep into Rectifiers"), divided by the expected power of the
layer's input. For that every value carries the mean and variance a unit-variance image would give it, so
that activations stay near one through any depth, with BatchNorm or without. Filters over many channels sum
to zero, and what the others make of the positive mean of rectified inputs is in their BatchNorm's running
mean (or their bias): otherwise that mean drowns the image after a few layers, and every image gets the same
answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import erf, exp, pi, prod, sqrt
from statistics import NormalDist
from typing import Literal

from dovetail.ir.onnx.builder import Initializer, Law, Normal, OnnxBuilder, Response, Uniform
from dovetail.ir.onnx.readers import window_of
from dovetail.ir.operators.window import Window
from dovetail.ir.tensor import Shape

BATCH_NORM_EPSILON = 1e-5
"""PyTorch's default."""
LEAK = 0.1
"""Slope of a leaky ReLU below zero. Source: `leaky_activate` of Darknet."""
CENTRED_FROM_CHANNELS = 8
"""Filters over fewer input channels (depthwise, first layer) keep their sum: centring them would erase smooth images."""


class Activation(StrEnum):
    """What follows a convolution."""

    NONE = "none"
    RELU = "relu"
    RELU6 = "relu6"
    LEAKY = "leaky"
    HARD_SWISH = "hardswish"
    SWISH = "swish"


@dataclass(frozen=True, slots=True)
class Moments:
    """Expected mean and variance of a value."""

    mean: float
    variance: float

    @property
    def power(self) -> float:
        return self.mean**2 + self.variance

    def rectified(self) -> Moments:
        """After ReLU, taking the value as normal."""
        deviation = sqrt(self.variance)
        above = (1 + erf(self.mean / deviation / sqrt(2))) / 2
        edge = deviation * exp(-(self.mean**2) / self.variance / 2) / sqrt(2 * pi)
        mean = self.mean * above + edge
        return Moments(mean, self.power * above + self.mean * edge - mean**2)


    def through(self, function: Callable[[float], float]) -> Moments:
        """After any function, taking the value as normal: over its quantiles."""
        values = [function(x) for x in NormalDist(self.mean, sqrt(self.variance)).quantiles(n=200)]
        mean = sum(values) / len(values)
        return Moments(mean, sum(v**2 for v in values) / len(values) - mean**2)


def hard_sigmoid(x: float) -> float:
    return min(max(x / 6 + 0.5, 0.0), 1.0)


def sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


SAME: Literal["same"] = "same"
Pads = int | Literal["same"]
"""One number for all sides, or TensorFlow's SAME."""


def divisible(channels: float, by: int = 8) -> int:
    """Round to a multiple of `by`, never losing more than a tenth (the rule of MobileNet's authors)."""
    rounded = max(by, int(channels + by / 2) // by * by)
    return rounded + by if rounded < 0.9 * channels else rounded


@dataclass(slots=True)
class Net:
    """A network being written: layers add nodes and return the name of their value."""

    builder: OnnxBuilder
    size: int
    width: float = 1.0
    batch_norm: bool = True
    moments: dict[str, Moments] = field(default_factory=dict)
    offsets: dict[str, Response] = field(default_factory=dict)

    def image(self) -> str:
        self.moments["input"] = Moments(0.0, 1.0)
        return self.builder.input("input", (1, 3, self.size, self.size))

    def shape(self, x: str) -> Shape:
        return self.builder.shapes[x]

    def channels(self, count: int, by: int = 8) -> int:
        """`count` channels of the paper at this network's width."""
        return count if self.width == 1.0 else divisible(count * self.width, by)

    def emit(self, op: str, inputs: Sequence[str], name: str, shape: Shape, moments: Moments, **attributes: object) -> str:
        self.moments[name] = moments
        return self.builder.node(op, inputs, name, shape, **attributes)

    # convolution and what follows it

    def conv(self, x: str, name: str, channels: int, kernel: int = 1, *, stride: int = 1, pad: Pads = 0, groups: int = 1,
             bias: bool = True, gain: float = 1.0) -> str:
        """A convolution with output variance `gain`."""
        _, depth, height, width = self.shape(x)
        window = self._window(x, kernel, stride, pad)
        per_group = depth // groups
        centred = per_group > CENTRED_FROM_CHANNELS
        law = Normal(sqrt(gain / (per_group * kernel**2 * self.moments[x].variance)), centred=centred)
        inputs = [x, self.builder.initializer(f"{name}.weight", (channels, per_group, kernel, kernel), law)]
        offset = self._offset(x, self.builder.initializers[inputs[1]])
        if bias:
            spread = 0.1 * sqrt(gain)
            undone = Normal(spread) if offset is None else replace(offset, factor=-1.0, deviation=spread)
            inputs.append(self.builder.initializer(f"{name}.bias", (channels,), undone))
        elif offset is not None:
            self.offsets[name] = offset
        shape = (1, channels, *window.output_size(height, width))
        return self.emit("Conv", inputs, name, shape, Moments(0.0, gain), kernel_shape=[kernel] * 2, strides=[stride] * 2,
                         pads=list(window.pads), dilations=[1, 1], group=groups)

    def conv_transpose(self, x: str, name: str, channels: int, kernel: int = 2) -> str:
        """An enlargement by learned blocks of pixels: a transposed convolution whose stride is its kernel."""
        batch, depth, height, width = self.shape(x)
        law = Normal(sqrt(1.0 / (depth * self.moments[x].variance)))
        weights = [self.builder.initializer(f"{name}.weight", (depth, channels, kernel, kernel), law),
                   self.builder.initializer(f"{name}.bias", (channels,), Normal(0.1))]
        return self.emit("ConvTranspose", [x, *weights], name, (batch, channels, height * kernel, width * kernel),
                         Moments(0.0, 1.0), kernel_shape=[kernel] * 2, strides=[kernel] * 2)

    def _offset(self, x: str, filters: Initializer) -> Response | None:
        """What the mean of the input leaves in each output channel, where the filters do not sum to zero."""
        if x in self.offsets and filters.shape[1] == self.shape(x)[1]:
            return Response(filters, self.offsets[x])
        mean = self.moments[x].mean
        return None if mean == 0.0 or filters.shape[1] > CENTRED_FROM_CHANNELS else Response(filters, mean)

    def norm(self, x: str, name: str, epsilon: float = BATCH_NORM_EPSILON) -> str:
        """Batch normalization with statistics that fit the value, or nothing where the network goes without."""
        if not self.batch_norm:
            return x
        count, seen = self.shape(x)[1], self.moments[x]
        spread = 0.1 * sqrt(seen.variance)
        mean = replace(self.offsets[x], deviation=spread) if x in self.offsets else Normal(spread, seen.mean)
        laws: dict[str, Law] = {"weight": Uniform(0.8, 1.25), "bias": Normal(0.1), "running_mean": mean,
                                "running_var": Uniform(0.75 * seen.variance, 1.33 * seen.variance)}
        stored = [self.builder.initializer(f"{name}.{key}", (count,), law, trainable=not key.startswith("running"))
                  for key, law in laws.items()]
        return self.emit("BatchNormalization", [x, *stored], name, self.shape(x), Moments(0.0, 1.0), epsilon=epsilon)

    def activate(self, x: str, name: str, kind: Activation = Activation.RELU) -> str:
        if kind is Activation.NONE:
            return x
        if kind is Activation.HARD_SWISH:
            return self.emit("HardSwish", [x], name, self.shape(x), self.moments[x].through(lambda v: v * hard_sigmoid(v)))
        if kind is Activation.SWISH:  # as exporters write it
            gate = self.emit("Sigmoid", [x], f"{name}.sigmoid", self.shape(x), self.moments[x].through(sigmoid))
            return self.emit("Mul", [x, gate], name, self.shape(x), self.moments[x].through(lambda v: v * sigmoid(v)))
        if kind is Activation.LEAKY:
            seen = self.moments[x].through(lambda v: v if v > 0 else LEAK * v)
            return self.emit("LeakyRelu", [x], name, self.shape(x), seen, alpha=LEAK)
        moments = self.moments[x].rectified()
        if kind is Activation.RELU:
            return self.emit("Relu", [x], name, self.shape(x), moments)
        limits = [self.builder.constant(f"{name}.min", 0.0), self.builder.constant(f"{name}.max", 6.0)]
        return self.emit("Clip", [x, *limits], name, self.shape(x), moments)

    def unit(self, x: str, name: str, channels: int, kernel: int = 1, *, stride: int = 1, pad: Pads | None = None,
             groups: int = 1, act: Activation = Activation.RELU, epsilon: float = BATCH_NORM_EPSILON) -> str:
        """Convolution, BatchNorm, activation: `name.conv`, `name.bn`, `name.relu`; padded by half a kernel."""
        pad = kernel // 2 if pad is None else pad
        x = self.conv(x, f"{name}.conv", channels, kernel, stride=stride, pad=pad, groups=groups, bias=not self.batch_norm,
                      gain=1.0 if act is Activation.NONE else 2.0)
        return self.activate(self.norm(x, f"{name}.bn", epsilon), f"{name}.{act}", act)

    def squeeze_excite(self, x: str, name: str, channels: int, act: Activation = Activation.RELU, hard: bool = True) -> str:
        """One factor per channel from the means of all (Hu et al. 2018); `hard` is the form of MobileNetV3."""
        y = self.conv(self.global_pool(x, f"{name}.avgpool"), f"{name}.fc1", channels, gain=2.0)
        y = self.conv(self.activate(y, f"{name}.{act}", act), f"{name}.fc2", self.shape(x)[1])
        seen = self.moments[y].through(hard_sigmoid if hard else sigmoid)
        slope = {"alpha": 1 / 6, "beta": 0.5} if hard else {}
        gate = self.emit("HardSigmoid" if hard else "Sigmoid", [y], f"{name}.gate", self.shape(y), seen, **slope)
        m = self.moments[x]
        scaled = Moments(m.mean * seen.mean, m.power * seen.power - (m.mean * seen.mean) ** 2)
        return self.emit("Mul", [gate, x], f"{name}.scale", self.shape(x), scaled)

    # pooling

    def max_pool(self, x: str, name: str, kernel: int = 3, stride: int = 2, pad: Pads = 0, ceil_mode: bool = False) -> str:
        m = self.moments[x]
        shape, pads = self._pooled(x, kernel, stride, pad, ceil_mode)
        return self.emit("MaxPool", [x], name, shape, Moments(m.mean + sqrt(m.variance), 0.7 * m.variance),
                         kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, ceil_mode=int(ceil_mode))

    def average_pool(self, x: str, name: str, kernel: int, stride: int, pad: Pads = 0) -> str:
        m = self.moments[x]
        shape, pads = self._pooled(x, kernel, stride, pad, False)
        return self.emit("AveragePool", [x], name, shape, Moments(m.mean, m.variance / kernel), kernel_shape=[kernel] * 2,
                         strides=[stride] * 2, pads=pads, count_include_pad=1)

    def _pooled(self, x: str, kernel: int, stride: int, pad: Pads, ceil_mode: bool) -> tuple[Shape, list[int]]:
        """A pool's shape, and the padding its node states."""
        batch, depth, height, width = self.shape(x)
        size = self._window(x, kernel, stride, pad, ceil_mode).output_size(height, width)
        return (batch, depth, *size), list(self._window(x, kernel, stride, pad).pads)

    def _window(self, x: str, kernel: int, stride: int, pad: Pads, ceil_mode: bool = False) -> Window:
        """The window of a layer over a value, as a reader of the file will see it."""
        given: dict[str, object] = {"auto_pad": "SAME_UPPER"} if pad == SAME else {"pads": (pad,) * 4}
        return window_of({"strides": (stride,) * 2, "ceil_mode": ceil_mode, **given}, (kernel,) * 2, self.shape(x))

    def global_pool(self, x: str, name: str) -> str:
        batch, depth, *_ = self.shape(x)
        return self.emit("GlobalAveragePool", [x], name, (batch, depth, 1, 1), self._averaged(x))

    def mean(self, x: str, name: str) -> str:
        """Global pooling as the newer exporters write it: ReduceMean over rows and columns, dimensions dropped."""
        return self.emit("ReduceMean", [x], name, self.shape(x)[:2], self._averaged(x), axes=[2, 3], keepdims=0)

    def _averaged(self, x: str) -> Moments:
        """About half the variance is between channels and survives, the rest is over the map and goes."""
        return replace(self.moments[x], variance=self.moments[x].variance / 2)

    # shape and joining

    def flatten(self, x: str, name: str) -> str:
        batch, *rest = self.shape(x)
        return self.emit("Flatten", [x], name, (batch, prod(rest)), self.moments[x], axis=1)

    def gemm(self, x: str, name: str, features: int, *, gain: float = 1.0) -> str:
        count = self.shape(x)[1]
        law = Normal(sqrt(gain / (count * self.moments[x].variance)), centred=True)
        weights = [self.builder.initializer(f"{name}.weight", (features, count), law),
                   self.builder.initializer(f"{name}.bias", (features,), Normal(0.1 * sqrt(gain)))]
        return self.emit("Gemm", [x, *weights], name, (1, features), Moments(0.0, gain), transB=1)

    def add(self, a: str, b: str, name: str) -> str:
        x, y = self.moments[a], self.moments[b]
        return self.emit("Add", [a, b], name, self.shape(a), Moments(x.mean + y.mean, x.variance + y.variance))

    def concat(self, parts: Sequence[str], name: str) -> str:
        shapes = [self.shape(p) for p in parts]
        depth = sum(s[1] for s in shapes)
        mean, power = (sum(v * s[1] for v, s in zip(values, shapes, strict=True)) / depth for values in
                       ([self.moments[p].mean for p in parts], [self.moments[p].power for p in parts]))
        return self.emit("Concat", parts, name, (1, depth, *shapes[0][2:]), Moments(mean, power - mean**2), axis=1)

    def split(self, x: str, name: str, parts: Sequence[int]) -> list[str]:
        """Channels (or tokens) apart along axis 1."""
        batch, _, *rest = self.shape(x)
        outputs = {f"{name}.{i}": (batch, count, *rest) for i, count in enumerate(parts)}
        self.moments |= dict.fromkeys(outputs, self.moments[x])
        return self.builder.nodes_of("Split", [x, self.builder.constant(f"{name}.sizes", list(parts))], name, outputs, axis=1)

    def reshape(self, x: str, name: str, shape: Shape) -> str:
        """To `shape`, whose leading 1 is the batch and stays whatever it is."""
        wanted = self.builder.constant(f"{name}.shape", [0, *shape[1:]])
        return self.emit("Reshape", [x, wanted], name, shape, self.moments[x])

    def transpose(self, x: str, name: str, order: Sequence[int]) -> str:
        shape = self.shape(x)
        return self.emit("Transpose", [x], name, tuple(shape[i] for i in order), self.moments[x], perm=list(order))

    def space_to_depth(self, x: str, name: str, block: int) -> str:
        """Pixels of a block as channels of one."""
        batch, depth, height, width = self.shape(x)
        return self.emit("SpaceToDepth", [x], name, (batch, depth * block**2, height // block, width // block), self.moments[x],
                         blocksize=block)

    def shuffle(self, x: str, name: str, groups: int) -> str:
        """Channel shuffle (Zhang et al. 2018) as reshape, transpose, reshape."""
        _, depth, height, width = shape = self.shape(x)
        apart = self.reshape(x, f"{name}.apart", (1, groups, depth // groups, height, width))
        return self.reshape(self.transpose(apart, f"{name}.transpose", (0, 2, 1, 3, 4)), f"{name}.together", shape)
