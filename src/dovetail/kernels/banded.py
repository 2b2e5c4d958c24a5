"""The kernel of a pointwise layer and the depthwise one behind it, in bands of output rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from dovetail.kernels import launch
from dovetail.kernels.estimator import VECTOR, Config, KernelWork, Number, Tiles, power, shared_out, tiles_of, work_from
from dovetail.kernels.fused import MOST_FRONT
from dovetail.kernels.items import ELEMENT, Item
from dovetail.kernels.layers import common_rounding
from dovetail.kernels.shape import Grid, least_depth, programs_of
from dovetail.platform.gpu_specification import Gpu

MOST_BAND = 256
"""Pixels of the layer in front that a program holds (chosen: more do not fit registers)."""


class BandedShape(NamedTuple):
    """A pointwise layer and the depthwise one behind it; height and width are those of the output."""

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

    def tiles(self) -> Tiles:
        return _tiles(self)


@lru_cache(maxsize=1024)
def _tiles(s: BandedShape) -> Tiles:
    tiles: list[Config] = []
    depth = power(s.channels, least_depth(s.element))
    for band, be, warps in product(sorted({1, 2, 4, 7, s.height}), (16, 32), (4, 8)):
        rows = power(((band - 1) * s.stride + s.taps_down) * s.read_width)
        if band <= s.height and rows <= MOST_BAND and be < 2 * s.inner and rows * be >= 32 * warps:
            tiles.append({"BAND": band, "BR": rows, "BO": power(band * s.width), "BE": be, "BC": depth, "num_warps": warps,
                          "num_stages": 1})
    return tiles_of(tiles)


def work(gpu: Gpu, c: Tiles, s: BandedShape) -> KernelWork:
    """A tap asks every lane that may hold its value."""
    warps, threads, vector, programs = c["num_warps"], 32 * c["num_warps"], VECTOR / s.element, programs_of(s, c)
    inputs, weights = c["BR"] * c["BC"], c["BC"] * c["BE"]
    registers = 2.0 * s.taps + 3.0 * c["BR"] * c["BE"] / threads + 48
    out = shared_out(gpu, programs, warps, registers, (inputs + weights) * s.element)
    fetched = s.taps * c["BO"] * c["BE"] / threads
    products = c["BR"] * c["BC"] * c["BE"]
    return work_from(out, c, {
        "waves": out.waves, "sm_shuffles": out.each * warps * fetched * np.ceil(c["BR"] / 32),
        "sm_values": out.each * warps * fetched, "sm_inputs": out.each * warps * inputs / threads / vector,
        "sm_weights": out.each * warps * weights / threads / vector, "sm_matrix": out.each * products / 2048},
        2.0 * programs * products, s.moved_bytes, products)


def shapes_of(kind: str, part: Sequence[Item]) -> list[BandedShape]:
    """Of PWDW."""
    front, middle = part[0], part[-1]
    if len(part) != 2 or not front.pointwise or front.ends or not middle.depthwise or front.x.planar \
            or front.x.channels > MOST_FRONT or middle.window.dilation != (1, 1):
        return []
    x, y = front.x, middle.y
    moved = (x.pixels * x.channels + y.pixels * y.channels) * ELEMENT[kind]
    return [BandedShape(ELEMENT[kind], moved, y.images, y.height, y.width, x.width, y.channels, x.channels, middle.taps,
                        middle.window.kernel[0], middle.window.stride[0])]


def operands(kind: str, part: Sequence[Item]) -> launch.Given:
    (first, last), x, y = part, part[0].x, part[1].y
    front, middle = first.layer, last.layer
    weights, wk, wn = launch.laid(front.weights, kind)
    constants = {
        **launch.map_constants(x, y), "CI": x.channels, "E": y.channels, **launch.window_constants(last.window), "W1K": wk,
        "W1N": wn, "XP": x.pitch, "YP": y.pitch, **launch.layer_constants(first, "1"), **launch.layer_constants(last, "D"),
        "PADE": middle.pad, "INTEGER": kind == "int8", "ROUND": common_rounding([front, middle]),
        "PRECISION": launch.precision(kind)}
    return (x, weights, front.bias, front.multipliers, front.shifts, middle.weights, middle.bias, middle.multipliers,
            middle.shifts, y), constants
