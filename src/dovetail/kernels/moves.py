"""The kernels that compute next to nothing: pooling, means, additions, choices of channels, tables, products of two tensors.

They have one shape; what they cost is called `moved`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import NamedTuple

import numpy as np

from dovetail.ir import Array, Window
from dovetail.kernels import launch
from dovetail.kernels.estimator import KernelWork, Number, Tiles, power, shared_out, tiles_of, work_from
from dovetail.kernels.items import ELEMENT, TensorLayout
from dovetail.kernels.layers import Addition, Change
from dovetail.kernels.shape import Grid, programs_of
from dovetail.platform.gpu_specification import Gpu

MEANS = (16, 64, 128, 256)
"""Pixels that a program of a mean reads at once (chosen; with 256, a thread has 64 sums)."""


class MovedShape(NamedTuple):
    """A kernel that computes next to nothing; `by_image`: a program reads all pixels of an image."""

    element: Number
    moved_bytes: Number
    rows: Number
    channels: Number
    by_image: Number = False

    def grid(self, c: Tiles) -> Grid:
        return np.where(self.by_image, self.rows, np.ceil(self.rows / c["BP"])), np.ceil(self.channels / c["BC"]), 1

    @property
    def pixels(self) -> Number:
        """Of an image, where a program reads all of them; its results are one more."""
        return self.moved_bytes / (self.element * self.channels * self.rows) - 1

    def tiles(self) -> Tiles:
        """One size of tiles; several where programs read all pixels, since a program has to wait for every step."""
        rows = MEANS if self.by_image else (16 if self.rows * self.channels < 1 << 20 else 64,)
        return _tiles(rows, min(64, power(self.channels)))


@lru_cache(maxsize=64)
def _tiles(rows: tuple[int, ...], channels: int) -> Tiles:
    return tiles_of([{"BP": own, "BC": channels, "num_warps": 8 if own > 64 else 4, "num_stages": 2} for own in rows])


def work(gpu: Gpu, c: Tiles, s: MovedShape) -> KernelWork:
    """Programs, the values each of them reads, and of means the steps that follow one another."""
    out = shared_out(gpu, programs_of(s, c), c["num_warps"], np.full(len(c["BP"]), 64.0), np.zeros(len(c["BP"])))
    steps = np.where(s.by_image, np.ceil(s.pixels / c["BP"]), 0.0)
    return work_from(out, c, {"waves": out.waves, "steps": steps}, 0.0, s.moved_bytes)


@dataclass(frozen=True, slots=True, eq=False)
class MoveLaunch:
    """One launch: its kernel by name, what it is given, and the rows of channels its programs share out."""

    kernel: str
    operands: launch.Operands
    constants: launch.Constants
    rows: int
    by_image: bool = False

    def shape(self, kind: str, y: TensorLayout) -> MovedShape:
        moved = sum(o.pixels * o.channels for o in self.operands if isinstance(o, TensorLayout)) * ELEMENT[kind]
        return MovedShape(ELEMENT[kind], moved, self.rows, y.channels, self.by_image)


def pool(kind: str, x: TensorLayout, y: TensorLayout, window: Window, largest: bool, counts_pads: bool,
         how: Change | None) -> MoveLaunch:
    """The largest value of every window, or their mean; `how` None leaves values as they are stored."""
    constants = {**launch.map_constants(x, y), "C": x.channels, **launch.window_constants(window),
                 "DH": window.dilation[0], "DW": window.dilation[1], "XP": x.pitch, "YP": y.pitch, "LARGEST": largest,
                 "PADS_COUNT": counts_pads, "LOWEST": (-128.0 if kind == "int8" else -inf) if largest else 0.0,
                 **launch.change_constants(how or Change()), "SAME": how is None, "INTEGER": kind == "int8"}
    return MoveLaunch("pool", (x, y, x.images), constants, y.pixels)


def mean(kind: str, x: TensorLayout, y: TensorLayout, how: Change) -> MoveLaunch:
    """The mean of all pixels of an image."""
    constants = {"PIXELS": x.height * x.width, "C": x.channels, "XP": x.pitch, "YP": y.pitch, **launch.mean_constants(how),
                 "INTEGER": kind == "int8"}
    return MoveLaunch("mean", (x, y), constants, x.images, by_image=True)


def add(kind: str, x: TensorLayout, other: TensorLayout, y: TensorLayout, total: Addition) -> MoveLaunch:
    """The sum of two tensors of one shape."""
    sums = {name: value for name, value in launch.sum_constants(total, other).items() if name != "ADD"}
    constants = {"C": y.channels, "XP": x.pitch, "YP": y.pitch, "INTEGER": kind == "int8", **sums}
    return MoveLaunch("add", (x, other, y, y.pixels), constants, y.pixels)


def chosen(kind: str, x: TensorLayout, y: TensorLayout, channels: Array, how: Change | None, activation: int = 0) -> MoveLaunch:
    """Some channels, in any order; `how` None leaves values as they are stored."""
    constants = {"C": y.channels, "XP": x.pitch, "YP": y.pitch, **launch.change_constants(how or Change()), "SAME": how is None,
                 "ACT": activation, "INTEGER": kind == "int8"}
    return MoveLaunch("chosen", (x, y, channels.astype(np.int32), x.pixels), constants, y.pixels)


def looked_up(x: TensorLayout, table: Array, y: TensorLayout, by_channel: bool) -> MoveLaunch:
    """What a table makes of every byte."""
    constants = {"C": y.channels, "XP": x.pitch, "YP": y.pitch, "BY_CHANNEL": by_channel}
    return MoveLaunch("looked_up", (x, table, y, x.pixels), constants, y.pixels)


def multiplied(kind: str, x: TensorLayout, other: TensorLayout, y: TensorLayout, gate: bool, how: Change,
               beside: Change) -> MoveLaunch:
    """The product of two tensors of one shape, or with a gate: one value per image and channel."""
    constants = {"AREA": y.height * y.width, "C": y.channels, "XP": x.pitch, "OP": other.pitch, "YP": y.pitch,
                 "GATE": gate, **launch.change_constants(how), "O_FROM": beside.source, "INTEGER": kind == "int8"}
    return MoveLaunch("multiplied", (x, other, y, y.pixels), constants, y.pixels)
