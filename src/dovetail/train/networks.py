"""Networks to train: chains of layers (VGG-small, AlexNet with BatchNorm, a small one) and residual ones (ResNet-20).

Every layer is a convolution or matrix product, BatchNorm, an activation that quantizes, and perhaps a maximum pool; the
exporter reads the same modules. Images come in as bytes over 256, without a mean: zero padding is then the byte zero.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from dovetail.errors import UsageError
from dovetail.ir import Real
from dovetail.train import quantizers
from dovetail.train.levels import ScaledActivation, ScaledWeight

Tensor = Any
FLOAT = 32
METHODS: dict[str, tuple[Callable[[int], Any], Callable[[int, int, int], Any]]] = {
    "lq": (quantizers.LearnedActivation, quantizers.LearnedWeight),
    "uniform": (quantizers.UniformActivation, lambda bits, filters, _: quantizers.UniformWeight(bits, filters)),
    "lsq": (lambda bits: ScaledActivation(bits, additive=False), lambda bits, *_: ScaledWeight(bits, additive=False)),
    "apot": (lambda bits: ScaledActivation(bits, additive=True), lambda bits, *_: ScaledWeight(bits, additive=True))}
"""Quantizers of activations, and of weights by bits, filters and weights in one."""


@dataclass(frozen=True, slots=True)
class Precision:
    """Bits of weights and activations (32 for floats, 8 for plain bytes), by which quantizer, and what the ends get.

    `ends` 8 keeps first and last layer in bytes, as LQ-Nets leave them in floats; 0 gives them the bits of all others.
    """

    weights: int = FLOAT
    activations: int = FLOAT
    method: str = "lq"
    ends: int = 8

    def __str__(self) -> str:
        return "float" if self.weights == FLOAT else f"w{self.weights}a{self.activations}"

    @property
    def floating(self) -> bool:
        return self.weights == FLOAT


def precision_of(text: str, method: str = "lq", ends: int = 8) -> Precision:
    """`float`, w1…w4 with a1…a4 or a8 (`w2a2`, `w1a8`), or plain bytes, `w8a8`."""
    if text == "float":
        return Precision(method=method, ends=ends)
    found = re.fullmatch(r"w([1-4])a([1-4]|8)|w(8)a(8)", text)
    if found is None:
        raise UsageError(f"bits {text!r}: unknown; write float, w1 to w4 with a1 to a4 or a8, such as w2a2, or w8a8")
    if method not in METHODS:
        raise UsageError(f"method {method!r}: unknown; {', '.join(METHODS)} exist")
    weights, activations = (int(found[i] or 8) for i in (1, 2))
    if method in ("lsq", "apot") and weights == 1:
        raise UsageError(f"bits {text!r}: {method} has weights of 2 to 4 bits; method lq has them of one")
    if method == "apot" and activations == 4:
        raise UsageError(f"bits {text!r}: apot's activations of 4 bits need codes of 6, and hardware takes 4; choose a1 to a3, "
                         "a8, or method lsq")
    return Precision(weights, activations, method, ends)


def activation_of(precision: Precision) -> Any:
    if precision.activations == FLOAT:
        return nn.ReLU()
    if precision.activations == 8:
        return quantizers.ByteActivation()
    return METHODS[precision.method][0](precision.activations)


def weight_quantizer(precision: Precision, filters: int, fan: int, plain: bool) -> Any:
    """What quantizes the weights of a layer: into bytes where it is to be `plain`."""
    if precision.floating:
        return nn.Identity()
    if plain or precision.weights == 8:
        return quantizers.ByteWeight()
    return METHODS[precision.method][1](precision.weights, filters, fan)


class TrainedLayer(nn.Module):
    """A convolution (or, without a kernel, a matrix product), BatchNorm or bias, then activation and pool where there are any."""

    def __init__(self, precision: Precision, channels: int, filters: int, kernel: int = 0, stride: int = 1, pad: int = 0,
                 activated: bool = True, pool: tuple[int, int] | None = None, end: bool = False, norm: bool = True) -> None:
        super().__init__()
        self.kernel, self.stride, self.pad, self.pool = kernel, stride, pad, pool
        shape = (filters, channels, kernel, kernel) if kernel else (filters, channels)
        self.weight = nn.Parameter(torch.empty(shape))
        nn.init.kaiming_normal_(self.weight, mode="fan_out" if kernel else "fan_in", nonlinearity="relu")
        self.quantizer = weight_quantizer(precision, filters, filters * max(1, kernel) ** 2, end and precision.ends > 0)
        self.norm = (nn.BatchNorm2d if kernel else nn.BatchNorm1d)(filters) if norm else None
        self.bias = None if norm else nn.Parameter(torch.zeros(filters))
        self.activation = activation_of(precision) if activated else None

    def forward(self, x: Tensor) -> Tensor:
        weight = self.quantizer(self.weight)
        if self.kernel:
            y = functional.conv2d(x, weight, self.bias, self.stride, self.pad)
        else:
            y = functional.linear(x.flatten(1), weight, self.bias)
        if self.norm is not None:
            y = self.norm(y)
        if self.activation is not None:
            y = self.activation(y)
        return functional.max_pool2d(y, *self.pool) if self.pool is not None else y


class Chain(nn.Module):
    """Layer after layer; maps are flattened before the first matrix product."""

    def __init__(self, layers: list[TrainedLayer], shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.layers, self.shape = nn.ModuleList(layers), shape

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Shortcut(nn.Module):
    """Every other pixel, and zeros for the channels that are new (option A of He et al.): nothing to learn or to round."""

    def __init__(self, stride: int, grow: int) -> None:
        super().__init__()
        self.stride, self.grow = stride, grow

    def forward(self, x: Tensor) -> Tensor:
        if self.stride == 1 and not self.grow:
            return x
        return functional.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, 0, self.grow))


class Rising(nn.BatchNorm2d):
    """BatchNorm whose gains never change a sign, so that thresholds on what it reads ascend like those behind it."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.batch_norm(x, self.running_mean, self.running_var, self.weight.abs(), self.bias, self.training,
                                     self.momentum, self.eps)


def affine_of(norm: Any) -> tuple[Real, Real]:
    """Gain and offset of BatchNorm as it evaluates, in double precision."""
    mean, variance, weight, bias = (v.detach().cpu().double().numpy() for v in (
        norm.running_mean, norm.running_var, norm.weight, norm.bias))
    gain: Real = (np.abs(weight) if isinstance(norm, Rising) else weight) / np.sqrt(variance + norm.eps)
    return gain, bias - mean * gain


class BlockEntry(nn.Module):
    """Where a block reads the residual sums: normalised by channel, then quantized.

    Without the norm one basis would have to serve channels that have grown apart by addition after addition; bytes are wide
    enough for them. It begins as a division by each channel's deviation, and the layer behind it is told, so that a network
    trained in floats stays what it was.
    """

    def __init__(self, precision: Precision, channels: int) -> None:
        super().__init__()
        self.activation = activation_of(precision)
        self.norm = None if isinstance(self.activation, quantizers.ByteActivation) else Rising(channels)
        self.register_buffer("begun", torch.zeros(()))
        self.ready = False

    @torch.no_grad()
    def begin(self, u: Tensor, weight: Tensor) -> None:
        """Once per network: a run that is resumed goes on as it was."""
        self.ready = True
        if self.norm is not None and not bool(self.begun):
            values = u.detach().float()
            deviation = values.std(dim=(0, 2, 3)).clamp(min=1e-3)
            self.norm.bias.copy_(values.mean(dim=(0, 2, 3)) / deviation)
            weight.mul_(deviation[None, :, None, None])
            self.begun.fill_(1.0)

    def forward(self, u: Tensor) -> Tensor:
        return self.activation(u if self.norm is None else self.norm(u))


class ResidualBlock(nn.Module):
    """Two layers beside a shortcut of full precision; only what the layers read is quantized."""

    def __init__(self, precision: Precision, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.entry = nn.Identity() if precision.floating else BlockEntry(precision, channels)
        self.first = TrainedLayer(precision, channels, filters, 3, stride, 1)
        self.second = TrainedLayer(precision, filters, filters, 3, 1, 1, activated=False)
        self.shortcut = Shortcut(stride, filters - channels)

    def forward(self, u: Tensor) -> Tensor:
        if self.training and isinstance(self.entry, BlockEntry) and not self.entry.ready:
            self.entry.begin(u, self.first.weight)
        return functional.relu(self.second(self.first(self.entry(u))) + self.shortcut(u))


class Residual(nn.Module):
    """ResNet for small images: three stages of `depth` blocks, global average, classifier."""

    def __init__(self, depth: int, precision: Precision, shape: tuple[int, int, int], classes: int, width: int) -> None:
        super().__init__()
        self.shape = shape
        self.first = TrainedLayer(precision, shape[0], width, 3, 1, 1, activated=False, end=True)
        blocks, channels = [], width
        for stage in range(3):
            for index in range(depth):
                filters = width << stage
                blocks.append(ResidualBlock(precision, channels, filters, 2 if stage and not index else 1))
                channels = filters
        self.blocks = nn.ModuleList(blocks)
        self.last = TrainedLayer(precision, channels, classes, activated=False, end=True, norm=False)

    def forward(self, x: Tensor) -> Tensor:
        u = functional.relu(self.first(x))
        for block in self.blocks:
            u = block(u)
        return self.last(u.mean(dim=(2, 3)))


def pairs(count: int, precision: Precision, shape: tuple[int, int, int], classes: int, width: int) -> Chain:
    """Pairs of convolutions, twice as wide from one pair to the next, each with a pool behind it, and a classifier.

    Three pairs are LQ-Nets' VGG-small; two suffice for grey images of 28x28 on any processor.
    """
    layers, channels = [], shape[0]
    for index in range(2 * count):
        filters = width << (index // 2)
        layers.append(TrainedLayer(precision, channels, filters, 3, 1, 1, pool=(2, 2) if index % 2 else None, end=index == 0))
        channels = filters
    size = (shape[1] >> count) * (shape[2] >> count)
    return Chain([*layers, TrainedLayer(precision, channels * size, classes, activated=False, end=True, norm=False)], shape)


def alexnet(precision: Precision, shape: tuple[int, int, int], classes: int, width: int = 96) -> Chain:
    """AlexNet in one tower with BatchNorm in the place of local response normalisation, for 227x227 images."""
    pool, w = (3, 2), width

    def reduced(size: int) -> int:
        first = (size - 11) // 4 + 1
        for _ in range(3):
            first = (first - 3) // 2 + 1
        return first

    features = w * 8 // 3 * reduced(shape[1]) * reduced(shape[2])
    return Chain([
        TrainedLayer(precision, shape[0], w, 11, 4, 0, pool=pool, end=True),
        TrainedLayer(precision, w, w * 8 // 3, 5, 1, 2, pool=pool),
        TrainedLayer(precision, w * 8 // 3, w * 4, 3, 1, 1),
        TrainedLayer(precision, w * 4, w * 4, 3, 1, 1),
        TrainedLayer(precision, w * 4, w * 8 // 3, 3, 1, 1, pool=pool),
        TrainedLayer(precision, features, w * 128 // 3),
        TrainedLayer(precision, w * 128 // 3, w * 128 // 3),
        TrainedLayer(precision, w * 128 // 3, classes, activated=False, end=True, norm=False)], shape)


NETWORKS: dict[str, Callable[..., Any]] = {
    "resnet20": partial(Residual, 3, width=16), "resnet8": partial(Residual, 1, width=16),
    "vgg-small": partial(pairs, 3, width=128), "alexnet": alexnet, "small": partial(pairs, 2, width=16)}


def build(name: str, precision: Precision, shape: tuple[int, int, int], classes: int, width: int | None = None) -> Any:
    """An untrained network by name; `width` changes the filters of its first layer."""
    if name not in NETWORKS:
        raise UsageError(f"network {name!r}: unknown; {', '.join(NETWORKS)} exist")
    return NETWORKS[name](precision, shape, classes, **({} if width is None else {"width": width}))
