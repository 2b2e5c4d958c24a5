"""The kernel of layers with one pixel per image, for few images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dovetail.kernels import launch
from dovetail.kernels.estimator import KernelWork, Number, Tiles, power, shared_out, tiles_of, work_from
from dovetail.kernels.items import ELEMENT, Item
from dovetail.kernels.shape import Grid, programs_of
from dovetail.platform.gpu_specification import Gpu

MOST_IMAGES = 4
"""Images up to which every image may read all weights anew (chosen)."""
MOST_WEIGHTS = 1 << 15
"""Weights that one program holds in registers (chosen)."""


class VectorShape(NamedTuple):
    """A layer of one pixel per image."""

    element: Number
    moved_bytes: Number
    images: Number
    filters: Number
    depth: Number

    def grid(self, c: Tiles) -> Grid:
        return np.ceil(self.filters / c["BN"]), self.images, 1

    def tiles(self) -> Tiles:
        return _tiles(power(self.depth))


@lru_cache(maxsize=256)
def _tiles(block: int) -> Tiles:
    return tiles_of([{"BN": bn, "BK": block, "num_warps": warps, "num_stages": 1} for bn in (2, 4, 8, 16) for warps in (4, 8)
                     if bn * block <= MOST_WEIGHTS and bn * block >= 32 * warps])


def work(gpu: Gpu, c: Tiles, s: VectorShape) -> KernelWork:
    programs = programs_of(s, c)
    out = shared_out(gpu, programs, c["num_warps"], 1.5 * c["BN"] * c["BK"] / (32 * c["num_warps"]) + 24, np.zeros(len(c["BN"])))
    return work_from(out, c, {"waves": out.waves, "sm_products": out.each * c["BN"] * c["BK"] / 32.0}, 0.0, s.moved_bytes)


def shapes_of(kind: str, part: Sequence[Item]) -> list[VectorShape]:
    """Of one layer with one pixel per image, and few images."""
    item = part[0]
    if len(part) > 1 or item.depthwise or item.joined or item.groups > 1 or item.taps > 1 or item.x.planar \
            or item.x.height * item.x.width > 1 or item.y.height * item.y.width > 1 \
            or 2 * power(item.x.channels) > MOST_WEIGHTS or item.y.images > MOST_IMAGES:
        return []
    return [VectorShape(ELEMENT[kind], item.x.channels * item.y.channels * ELEMENT[kind], item.y.images, item.y.channels,
                        item.x.channels)]


def operands(kind: str, part: Sequence[Item]) -> launch.Given:
    item, = part
    constants = {"K": item.x.channels, "N": item.y.channels, "XP": item.x.pitch, "YP": item.y.pitch,
                 "INTEGER": kind == "int8", "ROUND": item.layer.rounding, **launch.layer_constants(item)}
    return (item.x, np.ascontiguousarray(item.layer.weights.T), *launch.channel_constants(item), item.y), constants
