"""The kernel of convolutions of any kind but depthwise, and of fully connected layers: a product of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import ceil
from typing import NamedTuple

import numpy as np

from dovetail.kernels import launch
from dovetail.kernels.estimator import SECTOR, VECTOR, Config, KernelWork, Number, Tiles, power, shared_out, tiles_of, work_from
from dovetail.kernels.items import ELEMENT, Item
from dovetail.kernels.shape import Grid, least_depth, programs_of
from dovetail.platform.gpu_specification import Gpu

MOST_HALVED = 4096
"""Pixels up to which chains of products are what a pointwise layer waits for (chosen)."""
GATHERED = 2.0
"""Registers of a value that is gathered, with its address (chosen for limiting tiles)."""
MOST_GATHERED = 216
"""Registers of a thread for all values it gathers and its sums (chosen below the limit of 255)."""


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

    def tiles(self) -> Tiles:
        pixels = self.pixels // self.images if self.mean else self.pixels
        return _tiles(pixels if self.mean else min(pixels, 128), min(self.filters, 256), self.depth, self.steps_of,
                      bool(self.mean), bool(self.halved), least_depth(self.element), bool(self.scattered))


@lru_cache(maxsize=4096)
def _tiles(pixels: int, filters: int, depth: int, steps_of: int, mean: bool, halved: bool, least: int, scattered: bool) -> Tiles:
    """Tiles worth a look; `halved`: also with two sums side by side.

    Loops over `scattered` inputs are not pipelined: such inputs come through registers anyhow, and beside weights that are
    copied ahead matrix units would read them too early (`gpu/distrusted.py`). All values of a step, and where each lies, must fit
    registers: 128 pixels x 128 values by four warps would keep kilobytes of every thread in memory.
    """
    rows = [power(pixels)] if mean else [b for b in (16, 32, 64, 128) if b == 16 or b < 2 * pixels]
    columns = [b for b in (16, 32, 64, 128, 256) if b == 16 or b < 2 * filters]
    depths = sorted({min(power(depth, least), b) for b in (32, 64, 128, 256)})
    found: list[Config] = []
    for bp, bn, bk in product(rows, columns, depths):
        steps, size = ceil(depth / bk) * steps_of, bp * bn
        if size > 128 * 256 or bp * bk > 128 * 128 or bn * bk > 256 * 128:
            continue
        for warps, stages in product({2 if size <= 1024 else 4, 4 if size <= 128 * 64 else 8},
                                     (2,) if steps == 1 else (1,) if scattered else (2,) if steps == 2
                                     else sorted({4, min(steps, 8)})):
            if scattered and (1.2 * size + GATHERED * bp * bk) / (32 * warps) > MOST_GATHERED:
                continue
            tile = {"BP": bp, "BN": bn, "BK": bk, "SUMS": 1, "num_warps": warps, "num_stages": stages}
            found += [tile, {**tile, "SUMS": 2}] if halved and steps >= 4 else [tile]
    return tiles_of(found)


def work(gpu: Gpu, c: Tiles, s: ConvShape) -> KernelWork:
    """A product of matrices; scattered inputs come value by value."""
    warps, threads, programs = c["num_warps"], 32 * c["num_warps"], programs_of(s, c)
    sums: Number = c.get("SUMS", np.ones(1))
    steps = np.ceil(s.depth / c["BK"] / sums) * s.steps_of
    tile = sums * (c["BP"] + c["BN"]) * c["BK"] * s.element
    results, products = c["BP"] * c["BN"] / threads, sums * c["BP"] * c["BN"] * c["BK"]
    loaded = np.where(steps == 1, tile / 4 / threads, 0.0)
    out = shared_out(gpu, programs, warps, 1.2 * results + 40 + loaded, tile * np.minimum(c["num_stages"], steps))
    vector = VECTOR / s.element
    loads = sums * (c["BP"] * c["BK"] * np.where(s.scattered, vector, 1.0) + c["BK"] * c["BN"]) / threads / vector
    sectors = sums * (c["BK"] * np.maximum(c["BN"] * s.element, SECTOR) + c["BP"] * np.maximum(c["BK"] * s.element, SECTOR))
    return work_from(out, c, {
        "steps": out.waves * steps, "exposed": out.waves * np.maximum(1.0, steps / np.maximum(1, c["num_stages"] - 1)),
        "cache": out.each * sectors * steps, "sm_loads": out.each * loads * steps * warps,
        "sm_results": out.each * results * warps, "depth": out.waves * c["BK"], "programs": programs,
        "wide": out.waves * (warps >= 8),
        "chain": out.waves * np.minimum(c["BK"] * steps, 2 * s.depth * s.steps_of) / warps},
        2.0 * programs * products * steps, s.moved_bytes, products, 2.0 * out.each * products * steps)


def shapes_of(kind: str, part: Sequence[Item]) -> list[ConvShape]:
    """Of one layer that is not depthwise."""
    return [] if len(part) > 1 or part[0].depthwise else [shape_of(kind, part[0])]


def shape_of(kind: str, item: Item) -> ConvShape:
    """Pixels x channels as a product of matrices."""
    x, y, groups, taps, element = item.x, item.y, item.groups, item.taps, ELEMENT[kind]
    channels, flat = x.channels // groups, is_flat(item)
    values = x.pixels * x.channels + y.pixels * y.channels * (1 if item.other is None else 2) + taps * channels * y.channels
    return ConvShape(element, (values + item.copied_values) * element, y.images, y.pixels, y.channels // groups,
                     taps * channels if flat else channels, 1 if flat else taps, groups, flat or x.planar,
                     taps == 1 and not any(item.window.pads) and y.pixels <= MOST_HALVED, item.mean is not None)


def is_flat(item: Item) -> bool:
    """Whether taps and channels are one axis of the product: each has too few channels."""
    return item.taps > 1 and item.x.channels // item.groups < 16


def operands(kind: str, part: Sequence[Item]) -> launch.Given:
    """`other` is added, or all pixels averaged into `mean`."""
    item, = part
    x, y, window = item.x, item.y, item.window
    xb, xh, xw, xc = x.strides
    weights, wk, wn = launch.laid(item.layer.weights, kind, item.groups)
    constants = {**launch.map_constants(x, y), "CI": x.channels // item.groups, "N": y.channels // item.groups,
                 **launch.window_constants(window), "DH": window.dilation[0], "DW": window.dilation[1], "XB": xb, "XH": xh,
                 "XW": xw, "XC": xc, "WK": wk, "WN": wn, "PAD": item.layer.pad, "FLAT": is_flat(item),
                 **launch.dense_constants(kind, item), **launch.copied_constants(item)}
    return (x, weights, *launch.channel_constants(item), launch.or_nothing(item.other), item.output,
            *launch.copied_operands(item), y.images), constants
