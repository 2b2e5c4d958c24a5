"""The kernel of depthwise convolutions: one filter per channel."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from dovetail.kernels import depthwise_bytes, launch
from dovetail.kernels.depthwise_bytes import per_thread
from dovetail.kernels.estimator import VECTOR, Config, KernelWork, Number, Tiles, shared_out, tiles_of, work_from
from dovetail.kernels.items import ELEMENT, Item
from dovetail.kernels.shape import Grid, programs_of
from dovetail.platform.gpu_specification import Gpu

MANY_CHANNELS = 65
"""Channels from which on tiles are the same: chosen, since the widest tile then has no more than twice as many."""
MOST_UNROLLED = 9
"""Taps up to which weights may be loaded where they are used, input row by input row (chosen)."""
MOST_PRODUCTS = 420
"""Products of an element that a kernel without a loop may have: chosen, since Triton translates more for too long."""
MOST_REGISTERS = 216
"""Registers of a thread (chosen below the limit of 255, by estimate)."""
MOST_TOGETHER = 28
"""Pixels of a thread (chosen: four by seven)."""


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

    def tiles(self) -> Tiles:
        # What tiles do not depend on is left aside, so that shares of alike layers find those of each other.
        channels = min(self.channels, MANY_CHANNELS)
        return _tiles(self._replace(element=0, moved_bytes=0, images=1, channels=channels, reach=0))


@lru_cache(maxsize=1024)
def _tiles(s: DepthwiseShape) -> Tiles:
    """Rows and columns that a thread has, programs, and how weights and taps are gone through."""
    taps = s.taps_down * s.taps_across
    ways = [(0, 0), (1, 0)] if taps <= MOST_UNROLLED else [(0, 1), (1, 0)]
    found: list[Config] = []
    for (early, looped), r, side in product(ways, per_thread(s.height), per_thread(s.width)):
        if r * side > MOST_TOGETHER or (not looped and r * side * taps > MOST_PRODUCTS) or side > 1 > early + looped:
            continue
        channels, together = ((16, 32, 64, 128), (4, 8)) if side == 1 else ((16, 32, 64), (2, 4))
        for tw, bc in product((1, 2, 4, 8, 16, 32), channels):
            if (bc > 16 and bc >= 2 * s.channels) or (tw > 4 and tw * side >= 2 * s.width) or not 64 <= tw * bc <= 2048:
                continue
            found += [{"R": r, "SIDE": side, "TW": tw, "BC": bc, "EARLY": early, "LOOPED": looped, "num_warps": warps,
                       "num_stages": 2} for warps in sorted({max(1, min(8, tw * bc // each // 32)) for each in together})
                      if registers(tw * bc / 32 / warps, r, side, early, s) <= MOST_REGISTERS]
    return tiles_of(found)


def registers(each: Number, rows: Number, side: Number, early: Number, s: DepthwiseShape) -> Number:
    """Registers of a thread with `each` channels of some rows and columns: sums, a row of values, and weights."""
    held = np.where(early, s.taps_down * s.taps_across, s.taps_across)
    return 24 + 1.1 * each * (rows * side + (side - 1) * s.stride + s.taps_across + held)


def work(gpu: Gpu, c: Tiles, s: DepthwiseShape) -> KernelWork:
    """Every value read serves all outputs of its thread, in a loop those of one row of taps."""
    warps, r, programs = c["num_warps"], c["R"], programs_of(s, c)
    side, looped, early = c.get("SIDE", np.ones(1)), c.get("LOOPED", np.zeros(1)) > 0, c.get("EARLY", np.zeros(1)) > 0
    taps, each = s.taps_down * s.taps_across, c["TW"] * c["BC"] / (32 * warps)
    out = shared_out(gpu, programs, warps, registers(each, r, side, early, s), np.zeros(len(r)))
    read = np.where(looped, r * s.taps_down, (r - 1) * s.stride + s.reach) * ((side - 1) * s.stride + s.taps_across)
    weights = np.where(looped | early, taps, r * taps)
    products, converted, results = r * side * taps * each, (read + weights) * each, r * side * each
    own = out.each * warps
    return work_from(out, c, {
        "waves": out.waves, "late": out.waves * ~early, "sm_loads": own * (read + weights) * np.ceil(each * s.element / VECTOR),
        "sm_bytes": own * 32 * s.element * converted, "products": out.waves * products, "sm_products": own * products,
        "converted": out.waves * converted, "sm_converted": own * converted, "sm_results": own * results,
        "looped": out.waves * looped * s.taps_down, "programs": programs, "sm_warps": own}, 0.0, s.moved_bytes)


def shapes_of(kind: str, part: Sequence[Item]) -> list[DepthwiseShape]:
    """Of one depthwise layer, unless the kernel of bytes computes it."""
    item = part[0]
    if len(part) > 1 or not item.depthwise or depthwise_bytes.shapes_of(kind, part):
        return []
    x, y, window = item.x, item.y, item.window
    return [DepthwiseShape(ELEMENT[kind], (x.pixels + y.pixels) * x.channels * ELEMENT[kind], y.images, y.height, y.width,
                           x.channels, *window.kernel, window.stride[0], window.reach[0])]


def operands(kind: str, part: Sequence[Item]) -> launch.Given:
    item, = part
    x, y, window, layer = item.x, item.y, item.window, item.layer
    constants = {**launch.map_constants(x, y), "C": x.channels, **launch.window_constants(window),
                 "DH": window.dilation[0], "DW": window.dilation[1], "XP": x.pitch, "YP": y.pitch, **launch.layer_constants(item),
                 "PAD": layer.pad, "INTEGER": kind == "int8", "ROUND": layer.rounding}
    return (x, layer.weights, *launch.channel_constants(item), y), constants
