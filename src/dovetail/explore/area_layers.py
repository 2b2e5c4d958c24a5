"""The layers whose area is counted: a designed set of single operators with weights, small enough to synthesize in seconds.

Kinds take turns; within a kind, sizes, widths of the map, bits of the numbers and the distribution of the weights vary
independently of each other, drawn with a seed of the layer's own number, so that a longer campaign contains a shorter one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dovetail.ir import AvgPool, Conv, Graph, MaxPool, Op
from dovetail.measure.layers import MeasuredLayer, graph_of, operator_of
from dovetail.numerics.calibration import Samples
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.quantize import quantize_graph

DEFAULT_LAYERS = 64
CALIBRATION_SHARE = 0.5
"""Part of the layers that coefficients are fitted to; the others judge them."""
SPARSITY = 0.6
"""Weights of a pruned layer that are zero."""
SIDES = (6, 9, 12, 16, 20, 28, 40, 56, 80, 112, 224)
"""Widths of maps: from lines kept in registers to lines in memory blocks."""
BITS = (8, 8, 8, 8, 6, 5, 4)
SAMPLES = 4


@dataclass(frozen=True, slots=True)
class AreaLayer:
    """A layer with what its area depends on beside its shape.

    `weights` is normal, laplace (heavy tails: most weights small) or sparse (laplace, `SPARSITY` of them zero);
    `bits` of weights and activations; inputs are `signed` or, as after ReLU, not.
    """

    layer: MeasuredLayer
    padded: bool
    weights: str
    bits: int
    signed: bool
    seed: int

    def __str__(self) -> str:
        return (f"{self.layer}{'' if self.padded else ' unpadded'}, {self.layer.activation}, {self.weights} weights, "
                f"{'s' if self.signed else 'u'}{self.bits}, seed {self.seed}")

    @property
    def calibrates(self) -> bool:
        """Whether coefficients are fitted to it; decided by its own description, so that no result can decide it."""
        return sha256(str(self).encode()).digest()[0] < CALIBRATION_SHARE * 256


def area_graph(specimen: AreaLayer) -> Graph:
    """The integer graph of the layer alone."""
    rng = np.random.default_rng(specimen.seed)
    graph = graph_of(specimen.layer, weigh=_weigher(specimen.weights, rng), op=_operator(specimen))
    inputs = {name: rng.normal(size=(SAMPLES, *graph.shape(name)[1:])).astype(np.float32) for name in graph.inputs}
    if not specimen.signed:
        inputs = {name: np.maximum(x, 0) for name, x in inputs.items()}
    return quantize_graph(graph, Samples(inputs, "drawn"), specimen.bits, equalise=Equalise.OFF)


def _operator(specimen: AreaLayer) -> Op:
    op = operator_of(specimen.layer)
    if not specimen.padded and isinstance(op, Conv | MaxPool | AvgPool):
        return replace(op, window=replace(op.window, pads=(0, 0, 0, 0)))
    return op


def _weigher(kind: str, rng: Generator) -> Callable[[tuple[int, ...]], NDArray[np.float32]]:
    def weigh(shape: tuple[int, ...]) -> NDArray[np.float32]:
        if len(shape) == 1:  # biases
            return rng.normal(scale=0.5, size=shape).astype(np.float32)
        found = rng.normal(size=shape) if kind == "normal" else rng.laplace(size=shape)
        if kind == "sparse":
            found = found * (rng.random(shape) >= SPARSITY)
        return np.asarray(found * 0.3, dtype=np.float32)

    return weigh


def designed_area_layers(count: int = DEFAULT_LAYERS) -> tuple[AreaLayer, ...]:
    """The first `count` layers of the campaign."""
    return tuple(_drawn(number) for number in range(count))


def _drawn(number: int) -> AreaLayer:
    rng = np.random.default_rng([number, 6])
    kinds = tuple(KINDS)
    layer = KINDS[kinds[number % len(kinds)]](rng)
    return AreaLayer(
        replace(layer, activation=str(rng.choice(["none", "relu", "relu6"])) if layer.op in ("conv", "gemm", "add") else "none"),
        bool(rng.random() < 0.6) if layer.kernel > 1 and layer.op != "max_pool" else layer.kernel == 1,
        str(rng.choice(["normal", "laplace", "sparse"])), int(rng.choice(BITS)), bool(rng.random() < 0.4), number)


def _one(rng: Generator, *values: int) -> int:
    return int(rng.choice(values))


def _conv(kernel: int, weights: int, strides: tuple[int, ...] = (1,)) -> Callable[[Generator], MeasuredLayer]:
    """A convolution with about so many weights, however they divide into channels and filters."""

    def draw(rng: Generator) -> MeasuredLayer:
        pairs = max(1.0, weights * float(rng.uniform(0.4, 1.4)) / kernel**2)
        channels = max(1, round(pairs ** float(rng.uniform(0.25, 0.7))))
        side = max(kernel + 1, _one(rng, *SIDES))
        return MeasuredLayer("conv", channels, side, max(1, round(pairs / channels)), kernel, _one(rng, *strides))

    return draw


def _depthwise(kernel: int, strides: tuple[int, ...]) -> Callable[[Generator], MeasuredLayer]:
    def draw(rng: Generator) -> MeasuredLayer:
        channels = _one(rng, 3, 4, 6, 8) if kernel > 3 else _one(rng, 4, 6, 8, 12, 16)
        return MeasuredLayer("conv", channels, max(kernel + 1, _one(rng, *SIDES)), channels, kernel, _one(rng, *strides),
                             channels)

    return draw


def _grouped(rng: Generator) -> MeasuredLayer:
    groups = _one(rng, 2, 3, 4)
    return MeasuredLayer("conv", groups * _one(rng, 1, 2), _one(rng, *SIDES), groups * _one(rng, 1, 2, 3), _one(rng, 1, 3), 1,
                         groups)


def _pool(rng: Generator, op: str, apart: bool) -> MeasuredLayer:
    channels, side, kernel = _one(rng, 4, 8, 12, 24), _one(rng, *SIDES), _one(rng, 2, 3)
    return MeasuredLayer(op, channels, side, 0, kernel, kernel if apart else _one(rng, 1, kernel))


KINDS: Mapping[str, Callable[[Generator], MeasuredLayer]] = {
    "3x3": _conv(3, 110),
    "1x1": _conv(1, 150),
    "depthwise 3x3": _depthwise(3, (1,)),
    "max pool": lambda rng: _pool(rng, "max_pool", False),
    "3x3 strided": _conv(3, 90, (2,)),
    "gemm": lambda rng: MeasuredLayer("gemm", _one(rng, 8, 16, 24, 40), 1, _one(rng, 2, 4, 6, 8)),
    "add": lambda rng: MeasuredLayer("add", _one(rng, 4, 8, 16, 24, 32), _one(rng, *SIDES), inputs=2),
    "5x5": _conv(5, 120, (1, 2)),
    "1x1 wide": _conv(1, 260),
    "average pool": lambda rng: _pool(rng, "average_pool", True),
    "grouped": _grouped,
    "depthwise strided": _depthwise(3, (2,)),
    "3x3 again": _conv(3, 150),
    "global average": lambda rng: MeasuredLayer("global_average", _one(rng, 4, 8, 16, 32), _one(rng, 4, 7, 8, 14)),
    "depthwise 5x5": _depthwise(5, (1, 2)),
    "1x1 strided": _conv(1, 120, (1, 2)),
}
