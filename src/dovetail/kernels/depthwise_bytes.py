"""The kernel of depthwise convolutions of bytes, four at a time: words of four channels become words of four pixels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import ceil, inf
from typing import NamedTuple

import numpy as np

from dovetail.ir import Array, Window
from dovetail.kernels import launch
from dovetail.kernels.estimator import SECTOR, Config, KernelWork, Number, Tiles, shared_out, tiles_of, work_from
from dovetail.kernels.items import Item
from dovetail.kernels.shape import Grid, programs_of
from dovetail.platform.gpu_specification import Gpu

QUARTER = 4
"""Bytes of a word."""
MOST_ACROSS = 8
"""Taps in a row up to which bytes are turned (chosen: two words)."""
MOST_SUMS = 112
"""Registers of a thread for sums and a row of pixels (chosen)."""
LIGHT_TAPS = 160
"""Registers of a thread for sums, pixels and all taps up to which taps are held in any case (chosen)."""
MOST_TAPS = 208
"""The same up to which taps may be held (chosen below the limit of 255)."""
MOST_WORDS = 320
"""Instructions of four products in a row: more take Triton half a minute; none was measured to be faster by 4 %."""


class DepthwiseBytesShape(NamedTuple):
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

    def tiles(self) -> Tiles:
        return _tiles(self.height, min(ceil(self.width / self.side), 32), min(self.quarters, 64), self)


@lru_cache(maxsize=1024)
def _tiles(height: int, width: int, quarters: int, s: DepthwiseBytesShape) -> Tiles:
    found: list[Config] = []
    for r, tw, bc, each in product(per_thread(height), (4, 8, 16, 32), (4, 8, 16, 32, 64), (1, 2, 4)):
        fits = (tw == 4 or tw < 2 * width) and (bc == 4 or bc < 2 * quarters) and 32 <= tw * bc // each <= 256
        words = each * r * s.taps_down * s.side * s.words * 4
        if fits and words <= MOST_WORDS and registers(each, r, 0, s) <= MOST_SUMS:
            held = registers(each, r, 1, s)
            found += [{"R": r, "TW": tw, "BC": bc, "EARLY": early, "num_warps": max(1, tw * bc // each // 32), "num_stages": 2}
                      for early in (1, 0) if held <= (MOST_TAPS if early else inf) and (early or held > LIGHT_TAPS)]
    return tiles_of(found)


def per_thread(size: int) -> list[int]:
    """How many rows, or columns, a thread of a depthwise layer may have: seven where maps are made of sevens."""
    return [n for n in (1, 2, 4) if n <= size] + [7] * (size % 7 == 0)


def registers(each: Number, rows: Number, early: Number, s: DepthwiseBytesShape) -> Number:
    """Registers of a thread with `each` words: sums, two rows of pixels, one of them turned, and taps that are held."""
    return each * 4 * (s.side * rows + 2 * s.words + early * s.words * s.side * s.taps_down)


def work(gpu: Gpu, c: Tiles, s: DepthwiseBytesShape) -> KernelWork:
    """Words loaded and turned, products of four, and what becomes of every sum."""
    warps, r, programs = c["num_warps"], c["R"], programs_of(s, c)
    each, rows = c["TW"] * c["BC"] / (32 * warps), (r - 1) * s.stride + s.taps_down
    turned, sums = 12 * rows * s.words * each, 4 * r * s.side * each
    out = shared_out(gpu, programs, warps, 50 + registers(each, r, c["EARLY"], s), np.zeros(len(r)))
    products, sector = sums * s.taps_down * s.words, np.maximum(4 * c["BC"], SECTOR)
    return work_from(out, c, {
        "waves": out.waves, "cache": out.each * c["TW"] * (4 * rows * s.words + r * s.side) * sector,
        "sm_turned": out.each * turned * warps, "sm_products": out.each * products * warps,
        "sm_sums": out.each * sums * warps, "sm_weights": out.each * products / each * warps, "programs": programs},
        0.0, s.moved_bytes)


def has_words(kind: str, item: Item) -> bool:
    """Whether a depthwise layer is of bytes whose pixels are whole words of four channels."""
    whole = all(number % QUARTER == 0 for layout in (item.x, item.y) for number in (layout.channels, layout.pitch, layout.offset))
    return kind == "int8" and whole and item.window.dilation == (1, 1) and item.window.kernel[1] <= MOST_ACROSS


def side_by_side(window: Window) -> tuple[int, int]:
    """How many output columns share words of four pixels, and how many words: with the fewest instructions for each."""
    def cost(side: int) -> tuple[float, int]:
        words = -(-((side - 1) * window.stride[1] + window.kernel[1]) // QUARTER)
        return words * (2.0 + window.kernel[0] * side) / side, side
    side = min((1, 2, 4), key=cost)
    return side, -(-((side - 1) * window.stride[1] + window.kernel[1]) // QUARTER)


def shapes_of(kind: str, part: Sequence[Item]) -> list[DepthwiseBytesShape]:
    """Of one depthwise layer of whole words."""
    item = part[0]
    if len(part) > 1 or not item.depthwise or not has_words(kind, item):
        return []
    x, y, window = item.x, item.y, item.window
    shape = DepthwiseBytesShape(1, (x.pixels + y.pixels) * x.channels, y.images, y.height, y.width, x.channels // QUARTER,
                                window.kernel[0], window.stride[0], *side_by_side(window))
    return [shape] if shape.tiles() else []


def operands(kind: str, part: Sequence[Item]) -> launch.Given:
    item, = part
    x, y, window, layer = item.x, item.y, item.window, item.layer
    side, words = side_by_side(window)
    constants = {**launch.map_constants(x, y), **launch.window_constants(window), **launch.layer_constants(item),
                 "C": x.channels // QUARTER, "XP": x.pitch // QUARTER, "YP": y.pitch // QUARTER,
                 "PAD": launch.four_times(layer.pad), "ROUND": layer.rounding, "SIDE": side, "WORDS": words}
    return (x, *in_words(item), launch.table_of(item), y), constants


def in_words(item: Item) -> tuple[Array, Array, Array, Array]:
    """Weights, biases, multipliers and shifts of a depthwise layer of bytes as words of four channels need them."""
    layer = item.layer
    taps = packed_taps(layer.weights, item.window, *side_by_side(item.window))
    return taps, _by_fourth(layer.bias), _by_fourth(layer.multipliers), _by_fourth(layer.shifts)


def _by_fourth(values: Array) -> Array:
    """Constants of channels: of the first channel of every word, then of the second, and so on."""
    return np.ascontiguousarray(values.reshape(-1, QUARTER).T).reshape(-1)


def packed_taps(weights: Array, window: Window, side: int, words: int) -> Array:
    """Weights (taps x channels) of a depthwise layer as words of four taps.

    They lie as rows x side x words x words of channels x four channels. Output column `q` of those side by side begins at
    pixel q * stride, so its taps lie that much further on.
    """
    rows, across = window.kernel
    taps = weights.reshape(rows, across, -1)
    laid_out = np.zeros((rows, side, words * QUARTER, taps.shape[2]), dtype=np.int8)
    for q in range(side):
        laid_out[:, q, q * window.stride[1]:q * window.stride[1] + across] = taps
    four = laid_out.reshape(rows, side, words, QUARTER, -1, QUARTER)  # ..., pixel, word of channels, channel
    return np.ascontiguousarray(four.transpose(0, 1, 2, 4, 5, 3)).view(np.int32).reshape(-1)
