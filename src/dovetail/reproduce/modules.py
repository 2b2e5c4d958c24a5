"""Building blocks of the zoo's networks as graphs of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from dovetail.ir import Graph
from dovetail.ir.onnx.builder import OnnxBuilder
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.tables import tabulate
from dovetail.zoo.mobilenet import inverted_residual
from dovetail.zoo.network import Moments, Net
from dovetail.zoo.shufflenet import v2_unit
from dovetail.zoo.squeezenet import fire

Write = Callable[[Net, str], str]
"""Writes a block behind an input; returns its output."""


def block(name: str, channels: int, side: int, write: Write) -> Graph:
    """A block on a square input of `channels` channels, weights seeded by name."""
    net = Net(OnnxBuilder(name), side)
    x = net.builder.input("input", (1, channels, side, side))
    net.moments[x] = Moments(0.0, 1.0)
    content = net.builder.serialize([write(net, x)], 0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.onnx"
        path.write_bytes(content)
        return tabulate(read_onnx(path).graph)


def fire_block(side: int) -> Graph:
    """SqueezeNet 1.1's fire2: 64 channels, 16 squeezed, 64 and 64 expanded."""
    return block("fire", 64, side, lambda net, x: fire(net, x, "fire", 16, 64))


def bottleneck(side: int) -> Graph:
    """MobileNetV2 0.5x: 16 channels, expanded sixfold, with its shortcut."""
    return block("bottleneck", 16, side, lambda net, x: inverted_residual(net, x, "bottleneck", 16, 3, 1, 6))


def shuffle_reduction(side: int) -> Graph:
    """ShuffleNetV2 0.5x: the first unit of stage 2, 24 to 48 channels at half the size."""
    return block("shuffle-reduction", 24, side, lambda net, x: v2_unit(net, x, "unit", 48, True))


def shuffle_basic(side: int) -> Graph:
    """ShuffleNetV2 0.5x: the other units of stage 2, 48 channels of which 24 are worked on."""
    return block("shuffle-basic", 48, side, lambda net, x: v2_unit(net, x, "unit", 48, False))
