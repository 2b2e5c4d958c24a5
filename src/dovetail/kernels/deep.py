"""The kernel of pointwise layers with few pixels: all weights of a program are held before it begins."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import ceil
from typing import NamedTuple

import numpy as np

from dovetail.kernels import conv, launch
from dovetail.kernels.estimator import Config, KernelWork, Number, Tiles, power, shared_out, tiles_of, work_from
from dovetail.kernels.items import Item
from dovetail.kernels.shape import Grid, least_depth, programs_of
from dovetail.platform.gpu_specification import Gpu

LEAST_DEEP = 32
"""Input channels from which a pointwise layer's weights may be held (chosen: matrix units take 16 or 32 at once)."""
MOST_HELD = 8 << 10
"""Bytes of weights, or of inputs, that a warp holds in registers (chosen: 64 registers of each thread)."""
MOST_STEPS = 16
"""Steps of a program (chosen: Triton unrolls them)."""
MOST_WASTE = 1.4
"""How many times the channels a program may read (chosen)."""


class DeepShape(NamedTuple):
    """A pointwise layer of few pixels."""

    element: Number
    moved_bytes: Number
    images: Number
    pixels: Number
    filters: Number
    depth: Number
    mean: Number = False

    def grid(self, c: Tiles) -> Grid:
        return np.where(self.mean, self.images, np.ceil(self.pixels / c["BP"])), np.ceil(self.filters / c["BN"]), 1

    def tiles(self) -> Tiles:
        return _tiles(self)


@lru_cache(maxsize=1024)
def _tiles(s: DeepShape) -> Tiles:
    """Tiles whose operands fit registers."""
    rows = [power(s.pixels // s.images)] if s.mean else [b for b in (16, 32, 64) if b == 16 or b < 2 * s.pixels]
    found: list[Config] = []
    for parts, bp, bn in product((1, 2, 4), rows, (8, 16, 32, 64)):
        for bk, warps in product(_depths(s.depth, parts, least_depth(s.element)), (parts,) if parts > 1 else (2, 4)):
            steps = ceil(s.depth / (parts * bk))
            if steps <= MOST_STEPS and steps * parts * bk * s.element * max(bp, bn) <= MOST_HELD * warps \
                    and bn < 2 * s.filters and bp * bn >= 128 * warps // parts:
                found.append({"PARTS": parts, "BP": bp, "BN": bn, "BK": bk, "num_warps": warps, "num_stages": 1})
    return tiles_of(found)


def _depths(depth: int, parts: int, least: int) -> list[int]:
    """Channels of a step of each part: those that leave the least over, and the most that waste little."""
    padded = {bk: ceil(depth / (parts * bk)) * parts * bk for bk in (16, 32, 64, 128, 256) if bk >= least}
    close = min(padded, key=lambda bk: (padded[bk], -bk))
    return sorted({close, max(bk for bk in padded if padded[bk] <= MOST_WASTE * depth or bk == close)})


def work(gpu: Gpu, c: Tiles, s: DeepShape) -> KernelWork:
    """A product of matrices whose weights are there: inputs from the cache, products of one warp's part, a sum over warps."""
    warps, threads, programs = c["num_warps"], 32 * c["num_warps"], programs_of(s, c)
    steps = np.ceil(s.depth / (c["PARTS"] * c["BK"]))
    held = c["PARTS"] * c["BK"] * steps
    results, shared = c["BP"] * c["BN"] * c["PARTS"] / threads, held * (c["BP"] + c["BN"]) * s.element
    out = shared_out(gpu, programs, warps, 40 + 1.2 * results + shared / 4 / threads, shared)
    return work_from(out, c, {
        "waves": out.waves, "cache": out.each * held * c["BP"] * s.element, "weights": out.each * held * c["BN"] * s.element,
        "chain": out.waves * c["BK"] * steps * np.maximum(1.0, c["PARTS"] * c["BP"] * c["BN"] / 256 / warps),
        "sm_results": out.each * results * warps, "wide": out.waves * warps, "programs": programs},
        2.0 * programs * c["BP"] * c["BN"] * held, s.moved_bytes, c["BP"] * c["BN"] * held)


def shapes_of(kind: str, part: Sequence[Item]) -> list[DeepShape]:
    """Of one pointwise layer with few pixels, and enough channels that waiting for them is what it does."""
    item = part[0]
    if len(part) > 1 or item.depthwise or not item.pointwise or item.x.planar or item.along is not None \
            or item.y.pixels > conv.MOST_HALVED or item.x.channels < LEAST_DEEP:
        return []
    same = conv.shape_of(kind, item)
    return [DeepShape(same.element, same.moved_bytes, same.images, same.pixels, same.filters, same.depth, same.mean)]


def operands(kind: str, part: Sequence[Item]) -> launch.Given:
    item, = part
    x, y = item.x, item.y
    weights, wk, wn = launch.laid(item.layer.weights, kind)
    constants = {"SPACE": y.height * y.width, "K": x.channels, "N": y.channels, "XP": x.pitch, "WK": wk, "WN": wn,
                 **launch.dense_constants(kind, item)}
    return (x, weights, *launch.channel_constants(item), launch.or_nothing(item.other), item.output, y.images), constants
