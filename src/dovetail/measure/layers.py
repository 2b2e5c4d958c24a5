"""The layers that are measured: a designed set, each one operator of the graph on plain shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import UsageError
from dovetail.ir import Add, AvgPool, Clamp, Concat, Constant, Conv, Gemm, GlobalAvgPool, Graph, MaxPool, Node, Op, Tensor, Window

ACTIVATIONS: dict[str, Clamp | None] = {"none": None, "relu": Clamp(0.0), "relu6": Clamp(0.0, 6.0)}
TURN = ("relu", "none", "relu6")
"""Activations take turns across sizes and windows, so that none is measured with one kind of layer alone."""
SIDES = (7, 14, 28, 56, 112)
LARGEST_MACS = 1.2e9
"""A layer beyond this is in no network of ours and would take the time of fifty others."""


@dataclass(frozen=True, slots=True)
class MeasuredLayer:
    """One operator on a square map: `channels` of `side` x `side` pixels in, `filters` out; padding keeps the side.

    `op` is conv, max_pool, average_pool, global_average, gemm, add or concat; `inputs` counts tensors added or joined.
    A gemm reads `channels` features and writes `filters`; sides, kernel, stride and groups are 1 where they mean nothing.
    """

    op: str
    channels: int
    side: int = 1
    filters: int = 0
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    inputs: int = 1
    activation: str = "none"

    def __str__(self) -> str:
        text = f"{self.op} {self.channels}x{self.side}x{self.side}"
        if self.op == "conv":
            text += f" to {self.filters}, {self.kernel}x{self.kernel}"
        text += f" stride {self.stride}" if self.stride > 1 else ""
        return text + (f" groups {self.groups}" if self.groups > 1 else "")


COLUMNS = ("op", "channels", "side", "filters", "kernel", "stride", "groups", "inputs", "activation", "seconds", "energy_j")
"""Of a table of measurements: a layer's own, its seconds, and its energy in joules (empty where none was read)."""


def operator_of(layer: MeasuredLayer) -> Op:
    """The operator a layer is."""
    clamp = ACTIVATIONS.get(layer.activation)
    if layer.activation not in ACTIVATIONS:
        raise UsageError(f"{layer}: activation {layer.activation!r} is unknown; known are {', '.join(ACTIVATIONS)}")
    pad = layer.kernel // 2
    window = Window((layer.kernel, layer.kernel), (layer.stride, layer.stride), (pad,) * 4)
    known: dict[str, Op] = {
        "conv": Conv(layer.filters, window, layer.groups, clamp), "gemm": Gemm(layer.filters, clamp),
        "max_pool": MaxPool(window), "average_pool": AvgPool(window, count_pads=True), "global_average": GlobalAvgPool(),
        "add": Add(clamp), "concat": Concat(),
    }
    if layer.op not in known:
        raise UsageError(f"{layer}: operator {layer.op!r} is unknown; known are {', '.join(known)}")
    return known[layer.op]


def shape_of(layer: MeasuredLayer) -> Graph:
    """A graph of the layer alone whose weights are all zero: enough to count its work, at no cost."""
    return graph_of(layer, weigh=lambda shape: np.zeros(shape, dtype=np.float32))


def normal_graph(layer: MeasuredLayer, seed: int) -> Graph:
    """A graph of the layer alone with weights of a standard normal distribution, and biases of zero."""
    random = np.random.default_rng(seed)
    return graph_of(layer, lambda shape: (random.normal(size=shape) if len(shape) > 1 else np.zeros(shape)).astype(np.float32))


def graph_of(layer: MeasuredLayer, weigh: Callable[[tuple[int, ...]], NDArray[np.float32]] | None = None,
             op: Op | None = None) -> Graph:
    """A graph of the layer alone, with seeded weights unless `weigh` makes others; `op` replaces its operator."""
    op = op or operator_of(layer)
    shape = (1, layer.channels) if layer.op == "gemm" else (1, layer.channels, layer.side, layer.side)
    inputs = tuple(f"x{i}" for i in range(layer.inputs))
    shapes = (shape,) * layer.inputs
    random = np.random.default_rng(0)
    weigh = weigh or (lambda size: (random.standard_normal(size) * 0.05).astype(np.float32))
    constants = [Constant(f"layer_{role}", weigh(s))
                 for role, s in zip(("weight", "bias"), op.param_shapes(shapes), strict=False)]
    tensors = {t: Tensor(t, shape) for t in inputs} | {"y": Tensor("y", op.infer(shapes))}
    node = Node("layer", op, inputs, tuple(c.name for c in constants), "y")
    return Graph("layer", inputs, ("y",), (node,), tensors, {c.name: c for c in constants})


def designed_layers() -> tuple[MeasuredLayer, ...]:
    """Every kind of layer over the sizes that networks use, channel counts a factor of two apart."""
    found = [*_pointwise(), *_dense(), *_stems(), *_depthwise(), *_grouped(), *_pools(), *_rest()]
    return tuple(layer for layer in found if operator_macs(layer) <= LARGEST_MACS)


def operator_macs(layer: MeasuredLayer) -> int:
    """Multiply-adds of a layer."""
    shape = (1, layer.channels) if layer.op == "gemm" else (1, layer.channels, layer.side, layer.side)
    return operator_of(layer).macs((shape,) * layer.inputs)


def _turns(*names: str) -> Iterator[str]:
    """Activations in turn, so that each kind of layer is measured with and without."""
    return (names[i % len(names)] for i in count())


def _pointwise() -> Iterator[MeasuredLayer]:
    widths = {7: (96, 160, 320, 640, 1024), 14: (48, 96, 192, 384, 768), 28: (24, 48, 128, 256, 512), 56: (16, 32, 64, 144, 256),
              112: (8, 16, 32, 64, 96)}
    for s, side in enumerate(SIDES):
        for i, channels in enumerate(widths[side]):
            for j, filters in enumerate(widths[side]):
                if (i + 2 * j) % 3 != 1:  # two of three pairs, spread evenly
                    yield MeasuredLayer("conv", channels, side, filters, activation=TURN[(i + j + s) % 3])


def _dense() -> Iterator[MeasuredLayer]:
    turn = _turns("relu", "none")
    pairs = {7: ((128, 128), (256, 512), (512, 256), (512, 512), (64, 512)),
             14: ((48, 192), (64, 64), (128, 256), (256, 256), (256, 512)),
             28: ((32, 128), (64, 64), (64, 192), (128, 128), (128, 256)),
             56: ((16, 64), (32, 32), (64, 64), (48, 128), (96, 96)),
             112: ((16, 16), (32, 32), (32, 64), (64, 64))}
    for side in SIDES:
        for channels, filters in pairs[side]:
            yield MeasuredLayer("conv", channels, side, filters, 3, activation=next(turn))
        for channels, filters in pairs[side][1:4]:
            yield MeasuredLayer("conv", channels, side, filters, 3, 2, activation=next(turn))
    for side, channels, filters in ((14, 64, 96), (28, 32, 64), (28, 64, 192), (56, 24, 48)):
        yield MeasuredLayer("conv", channels, side, filters, 5, activation=next(turn))
    for side, channels, filters in ((28, 128, 256), (56, 64, 128), (14, 256, 512)):
        yield MeasuredLayer("conv", channels, side, filters, 1, 2, activation=next(turn))


def _stems() -> Iterator[MeasuredLayer]:
    for side in (64, 112, 160, 224):
        for filters, kernel, stride in ((16, 3, 1), (32, 3, 2), (64, 3, 2), (64, 7, 2), (96, 7, 4), (64, 11, 4)):
            yield MeasuredLayer("conv", 3, side, filters, kernel, stride, activation="relu")


def _depthwise() -> Iterator[MeasuredLayer]:
    widths = {7: (192, 576, 1024), 14: (96, 240, 480, 768), 28: (64, 160, 288), 56: (32, 80, 160), 112: (16, 48, 96)}
    for s, side in enumerate(SIDES):
        for i, channels in enumerate(widths[side]):
            for j, (kernel, stride) in enumerate(((3, 1), (3, 2), (5, 1))):
                if kernel == 3 or side <= 28:
                    yield MeasuredLayer("conv", channels, side, channels, kernel, stride, channels,
                                        activation=TURN[(i + j + s) % 3])


def _grouped() -> Iterator[MeasuredLayer]:
    """Few wide groups, as in ShuffleNet and AlexNet, to many narrow ones, as in ResNeXt and RegNet."""
    widths = {7: (384, 768, 1024), 14: (192, 256, 384, 512), 28: (96, 240, 256), 56: (64, 96, 128), 112: (32, 64)}
    groups = (2, 3, 4, 8, 16, 32)
    kinds = ((3, 1), (1, 1), (3, 2), (3, 1), (5, 1))
    turn = 0
    for s, side in enumerate(SIDES):
        for i, channels in enumerate(widths[side]):
            for j, count_of in enumerate(groups):
                if channels % count_of == 0 and (i + j + s) % 2 == 0:
                    kernel, stride = kinds[turn % len(kinds)]
                    yield MeasuredLayer("conv", channels, side, channels, kernel, stride, count_of, activation=TURN[turn % 3])
                    turn += 1
    for side, channels, filters, count_of in ((28, 240, 60, 3), (28, 60, 240, 3), (14, 480, 120, 3), (14, 120, 480, 3),
                                              (27, 96, 256, 2), (13, 384, 256, 2)):
        yield MeasuredLayer("conv", channels, side, filters, 5 if side == 27 else 3 if side == 13 else 1, 1, count_of,
                            activation="relu")


def _pools() -> Iterator[MeasuredLayer]:
    maps = ((112, 16), (112, 64), (56, 32), (56, 64), (55, 96), (28, 64), (28, 192), (28, 256), (27, 128), (14, 128), (14, 512),
            (13, 256), (7, 512))
    for i, (side, channels) in enumerate(maps):
        yield MeasuredLayer("max_pool", channels, side, channels, 3, 2)
        yield MeasuredLayer("max_pool", channels, side, channels, 2, 2)
        if i % 2:
            yield MeasuredLayer("max_pool", channels, side, channels, 3, 1)
        if i % 4 == 0 and side < 112:
            yield MeasuredLayer("max_pool", channels, side, channels, 5, 1)
    for i, (side, channels) in enumerate(maps[1:]):
        kernel, stride = ((3, 1), (2, 2), (3, 2), (3, 1))[i % 4]
        yield MeasuredLayer("average_pool", channels, side, channels, kernel, stride)
    for side, channels in ((7, 512), (7, 960), (7, 1280), (14, 256), (14, 1000), (13, 512), (28, 64), (28, 128), (28, 240),
                           (56, 64), (56, 128), (112, 32)):
        yield MeasuredLayer("global_average", channels, side, channels)


def _rest() -> Iterator[MeasuredLayer]:
    for i, features in enumerate((64, 256, 512, 1024, 1280, 2048, 4096, 9216)):
        for j, units in enumerate((10, 100, 512, 1000, 2048, 4096)):
            if (i + j) % 2 == 0 or units == 1000:
                yield MeasuredLayer("gemm", features, 1, units, activation=("none", "relu")[(i + j) // 2 % 2])
    sums = ((56, 24), (56, 64), (28, 32), (28, 128), (14, 64), (14, 96), (14, 256), (7, 160), (7, 512), (112, 16), (56, 256),
            (28, 512), (112, 64))
    for i, (side, channels) in enumerate(sums):
        yield MeasuredLayer("add", channels, side, channels, inputs=2, activation=("none", "relu")[i % 2])
    for side, channels in ((56, 64), (28, 64), (28, 128), (27, 128), (14, 192), (13, 256), (7, 256), (56, 16), (112, 32)):
        yield MeasuredLayer("concat", channels, side, 2 * channels, inputs=2)
    for side, channels in ((28, 64), (14, 128), (56, 32)):
        yield MeasuredLayer("concat", channels, side, 4 * channels, inputs=4)
