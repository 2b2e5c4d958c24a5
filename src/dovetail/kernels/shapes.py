"""What decides how long a kernel lasts, without its weights: sizes, the tiles worth a look (`kernels/tiles.py`), and the grid of
programs.

Fields are numbers of one kernel, or, `stacked`, arrays with one entry per tile of many kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

import numpy as np

from dovetail.kernels.estimator import Config, Number, Tiles, power
from dovetail.kernels.tiles import (
    BYTE,
    MANY_CHANNELS,
    banded_tiles,
    bridged_tiles,
    bytewise_tiles,
    conv_tiles,
    deep_tiles,
    depthwise_tiles,
    fused_tiles,
    moved_tiles,
    vector_tiles,
    walked_tiles,
)

Grid = tuple[Number, Number, Number]


class ConvShape(NamedTuple):
    """A convolution of any kind but depthwise, or a fully connected layer; sizes are those of one group."""

    element: Number
    moved_bytes: Number
    images: Number
    pixels: Number
    """Output pixels of all images."""
    filters: Number
    depth: Number
    steps_of: Number
    """Input values that are one axis of the product, and how many such axes follow each other: taps, or one."""
    groups: Number = 1
    scattered: Number = False
    halved: Number = False
    """Whether two sums side by side are worth a look."""
    mean: Number = False
    """Whether all pixels of an image are averaged."""

    def grid(self, c: Tiles) -> Grid:
        return (np.where(self.mean, self.images, np.ceil(self.pixels / c["BP"])), np.ceil(self.filters / c["BN"]), self.groups)

    def programs(self, c: Tiles) -> Number:
        return _count(self.grid(c))

    def tiles(self) -> Tiles:
        pixels = self.pixels // self.images if self.mean else self.pixels
        return conv_tiles(pixels if self.mean else min(pixels, 128), min(self.filters, 256), self.depth, self.steps_of,
                           bool(self.mean), bool(self.halved), 32 if self.element == BYTE else 16, bool(self.scattered))


class DeepShape(NamedTuple):
    """A pointwise layer of few pixels: all weights of a program are held before it begins."""

    element: Number
    moved_bytes: Number
    images: Number
    pixels: Number
    filters: Number
    depth: Number
    mean: Number = False

    def grid(self, c: Tiles) -> Grid:
        return np.where(self.mean, self.images, np.ceil(self.pixels / c["BP"])), np.ceil(self.filters / c["BN"]), 1

    def programs(self, c: Tiles) -> Number:
        return _count(self.grid(c))

    def tiles(self) -> Tiles:
        return deep_tiles(self)


class DepthwiseShape(NamedTuple):
    """One filter per channel; height and width are those of the output."""

    element: Number
    moved_bytes: Number
    images: Number
    height: Number
    width: Number
    channels: Number
    taps_down: Number
    taps_across: Number
    stride: Number
    reach: Number
    """Input rows between those of two output rows, and those that one output row reads."""

    def grid(self, c: Tiles) -> Grid:
        across = np.ceil(self.width / (c["TW"] * c.get("SIDE", np.ones(1))))
        return self.images * across * np.ceil(self.height / c["R"]), np.ceil(self.channels / c["BC"]), 1

    def programs(self, c: Tiles) -> Number:
        return _count(self.grid(c))

    def tiles(self) -> Tiles:
        # What tiles do not depend on is left aside, so that shares of alike layers find those of each other.
        channels = min(self.channels, MANY_CHANNELS)
        return depthwise_tiles(self._replace(element=0, moved_bytes=0, images=1, channels=channels, reach=0))


class BytewiseShape(NamedTuple):
    """One filter per channel, of bytes: words of four channels, `side` output columns from `words` words of four pixels."""

    element: Number
    moved_bytes: Number
    images: Number
    height: Number
    width: Number
    quarters: Number
    """Words of a pixel."""
    taps_down: Number
    stride: Number
    side: Number
    words: Number

    def grid(self, c: Tiles) -> Grid:
        across = np.ceil(self.width / (c["TW"] * self.side))
        return self.images * across * np.ceil(self.height / c["R"]), np.ceil(self.quarters / c["BC"]), 1

    def programs(self, c: Tiles) -> Number:
        return _count(self.grid(c))

    def tiles(self) -> Tiles:
        return bytewise_tiles(self.height, min(ceil(self.width / self.side), 32), min(self.quarters, 64), self)


class FusedShape(NamedTuple):
    """A module: a pointwise layer in front, a depthwise one in the middle, a pointwise one at the back, two of them or all."""

    element: Number
    moved_bytes: Number
    pixels: Number
    inner: Number
    """Channels between the stages."""
    taps: Number
    channels: Number
    filters: Number
    front: Number
    middle: Number
    back: Number

    def grid(self, c: Tiles) -> Grid:
        return np.ceil(self.pixels / c["BP"]), np.where(self.back, 1, np.ceil(self.inner / c["BE"])), 1

    def programs(self, c: Tiles) -> Number:
        return _count(self.grid(c))

    def tiles(self) -> Tiles:
        padded = power(self.taps, 1) if self.middle and self.front else 1
        least = 32 if self.element == BYTE else 16
        return fused_tiles(min(self.inner, 64), padded, power(self.channels, least), power(self.filters if self.back else 16),
                            bool(self.back), least)


class BandedShape(NamedTuple):
    """A pointwise layer and the depthwise one behind it, in bands of output rows."""

    element: Number
    moved_bytes: Number
    images: Number
    height: Number
    width: Number
    read_width: Number
    inner: Number
    channels: Number
    taps: Number
    taps_down: Number
    stride: Number

    def grid(self, c: Tiles) -> Grid:
        return self.images * np.ceil(self.height / c["BAND"]), np.ceil(self.inner / c["BE"]), 1

    def programs(self, c: Tiles) -> Number:
        return _count(self.grid(c))

    def tiles(self) -> Tiles:
        return banded_tiles(self)


class WalkedShape(NamedTuple):
    """A pointwise, a depthwise and, unless `back` is false, a pointwise layer in bands of output rows."""

    element: Number
    moved_bytes: Number
    images: Number
    height: Number
    width: Number
    inner: Number
    channels: Number
    filters: Number
    taps_down: Number
    taps_across: Number
    stride: Number
    back: Number

    def grid(self, c: Tiles) -> Grid:
        across = np.ceil(self.images * self.width / c["BP"])
        return across * np.ceil(self.height / c["R"]), np.where(self.back, 1, np.ceil(self.inner / c["BE"])), 1

    def programs(self, c: Tiles) -> Number:
        return _count(self.grid(c))

    def tiles(self) -> Tiles:
        return walked_tiles(self._replace(moved_bytes=0, images=1))


class WalkedBytesShape(WalkedShape):
    """The same of bytes, four rows of values in a word."""

    __slots__ = ()


class BridgedShape(NamedTuple):
    """A depthwise layer, the pointwise one behind it, and the pointwise one that begins the next block."""

    element: Number
    moved_bytes: Number
    images: Number
    height: Number
    width: Number
    channels: Number
    middle: Number
    """Channels of the layer between."""
    filters: Number
    taps_down: Number
    taps_across: Number
    stride: Number
    near: Number = 1
    words: Number = 0
    """Output columns side by side, and words of four pixels they come from; none where channels come one by one."""

    def grid(self, c: Tiles) -> Grid:
        pixels = np.ceil(self.height / c["R"]) * np.ceil(self.width / c["SIDE"])
        return self.images * pixels, np.ceil(self.filters / c["BN"]), 1

    def programs(self, c: Tiles) -> Number:
        return _count(self.grid(c))

    def tiles(self) -> Tiles:
        return bridged_tiles(self._replace(moved_bytes=0, images=1))


class VectorShape(NamedTuple):
    """A layer of one pixel per image, for few images."""

    element: Number
    moved_bytes: Number
    images: Number
    filters: Number
    depth: Number

    def grid(self, c: Tiles) -> Grid:
        return np.ceil(self.filters / c["BN"]), self.images, 1

    def programs(self, c: Tiles) -> Number:
        return _count(self.grid(c))

    def tiles(self) -> Tiles:
        return vector_tiles(power(self.depth))


class MovedShape(NamedTuple):
    """A kernel that computes next to nothing; `by_image`: a program reads all pixels of an image."""

    element: Number
    moved_bytes: Number
    rows: Number
    channels: Number
    by_image: Number = False

    def grid(self, c: Tiles) -> Grid:
        return np.where(self.by_image, self.rows, np.ceil(self.rows / c["BP"])), np.ceil(self.channels / c["BC"]), 1

    def programs(self, c: Tiles) -> Number:
        return _count(self.grid(c))

    def tiles(self) -> Tiles:
        """One size of tiles."""
        return moved_tiles(16 if self.rows * self.channels < 1 << 20 else 64, min(64, power(self.channels)))


KernelShape = (ConvShape | DeepShape | DepthwiseShape | BytewiseShape | FusedShape | BandedShape | WalkedShape | BridgedShape
               | VectorShape | MovedShape)


def _count(grid: Grid) -> Number:
    return grid[0] * grid[1] * grid[2]


def stacked(shapes: Sequence[KernelShape], counts: Sequence[int]) -> KernelShape:
    """Shapes of one kernel, each repeated as often as it has tiles."""
    columns = np.repeat(np.array(shapes, dtype=np.float64), counts, axis=0).T
    return type(shapes[0])(*columns)


def configs_of(tiles: Tiles) -> tuple[Config, ...]:
    """Tiles one by one."""
    return tuple(dict(zip(tiles, map(int, each), strict=True)) for each in zip(*tiles.values(), strict=True))
