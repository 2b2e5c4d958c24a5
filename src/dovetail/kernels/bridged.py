"""The kernel from one block into the next: a depthwise and a pointwise layer, and the pointwise one that begins the next."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import ceil
from typing import NamedTuple

import numpy as np

from dovetail.ir import Array
from dovetail.kernels import launch
from dovetail.kernels.depthwise_bytes import has_words, in_words, side_by_side
from dovetail.kernels.estimator import Config, KernelWork, Number, Tiles, shared_out, tiles_of, work_from
from dovetail.kernels.items import ELEMENT, Item
from dovetail.kernels.layers import common_rounding
from dovetail.kernels.shape import Grid, least_depth, programs_of
from dovetail.platform.gpu_specification import Gpu

PIXELS = 8
"""Pixels of a program: as many as matrix units take at least."""
MOST_MAP = 1 << 14
"""Pixels of all images up to which beginning kernels is what a block waits for (chosen)."""
MOST_REGISTERS = 200
"""Registers of a thread (chosen: an estimate close to the limit of 255 spills)."""
MOST_WORD_REGISTERS = 255
"""The same where channels come four in a word (chosen: the most that a thread can have)."""
MOST_BYTES = 200 << 10
"""Bytes of weights that a program holds in shared memory (chosen)."""
MOST_STEPS = 3
"""Blocks of channels of a program (chosen: Triton unrolls them)."""
MOST_TAPS = 27
"""Taps of all of these: Triton unrolls them (measured: 75 taps took it 39 s)."""
MOST_BLOCKS = 2
"""Blocks of the layer between, which Triton unrolls too (chosen)."""
MOST_WASTE = 1.5
"""How many times its channels a program may compute (chosen)."""


class BridgedShape(NamedTuple):
    """A depthwise and two pointwise layers; height and width are those of the output."""

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

    def tiles(self) -> Tiles:
        return _tiles(self._replace(moved_bytes=0, images=1))


@lru_cache(maxsize=1024)
def _tiles(s: BridgedShape) -> Tiles:
    """Warps have channels of their own, sixteen of the layer between at a time; of bytes matrix units take 32 at least.

    Of words, eight warps share those of four: what they are for is the depthwise layer in front and the layer behind.

    Of as many warps, tiles with the fewest blocks of channels: with more they are no faster, and Triton takes seconds longer.
    """
    side = PIXELS if s.width > PIXELS // 2 else PIXELS // 2
    found: list[Config] = []
    for warps in (1, 2, 4, 8) if s.words else (1, 2, 4):
        fitting: list[Config] = []
        for each, bn in product((1, 2, 4), (64, 128, 256, 512)):
            tile = {"R": PIXELS // side, "SIDE": side, "BC": 32 * warps * each, "BN": bn,
                    "BM": max(16 * min(warps, 4), least_depth(s.element)), "num_warps": warps, "num_stages": 1}
            if min(256, s.filters) <= bn < 2 * s.filters and _fits(tile, s):
                fitting.append(tile)
        fewest = min((ceil(s.channels / tile["BC"]) for tile in fitting), default=0)
        found += [tile for tile in fitting if ceil(s.channels / tile["BC"]) == fewest]
    return tiles_of(found)


def _fits(tile: Config, s: BridgedShape) -> bool:
    """Whether a tile fits, and computes little that is not there."""
    steps, blocks, alone = ceil(s.channels / tile["BC"]), ceil(s.middle / tile["BM"]), tiles_of([tile])
    wasted = max(steps * tile["BC"] / s.channels, blocks * tile["BM"] / (2.0 * s.middle))
    unrolled = steps * s.taps_down * s.taps_across <= MOST_TAPS and blocks <= MOST_BLOCKS
    busy = not s.words or tile["num_warps"] == 1 or tile["BC"] * tile["SIDE"] // (4 * s.near) >= 32 * tile["num_warps"]
    return bool(steps <= MOST_STEPS and unrolled and busy and wasted <= MOST_WASTE
                and registers(alone, s) <= (MOST_WORD_REGISTERS if s.words else MOST_REGISTERS)
                and shared_bytes(alone, s) <= MOST_BYTES)


def registers(c: Tiles, s: BridgedShape) -> Number:
    """Registers of a thread: taps of its channels, which are held, sums and a row of values of one block.

    Of words: taps and constants of all its channels, and the last sums.
    """
    each, steps = c["BC"] / (32 * c["num_warps"]), np.ceil(s.channels / c["BC"])
    across = (c["SIDE"] - 1) * s.stride + s.taps_across
    values = each * (steps * (s.taps_down * s.taps_across + PIXELS / 2) + PIXELS + across)
    words = each / 4 * c["SIDE"] / s.near * steps * (4 * s.taps_down * s.near * s.words + 8) + c["BN"] / (4 * c["num_warps"])
    return 40 + np.where(np.asarray(s.words) > 0, words, values)


def shared_bytes(c: Tiles, s: BridgedShape) -> Number:
    """Shared memory of a program: the weights of both pointwise layers."""
    return (np.ceil(s.channels / c["BC"]) * c["BC"] + c["BN"]) * np.ceil(s.middle / c["BM"]) * c["BM"] * s.element


def work(gpu: Gpu, c: Tiles, s: BridgedShape) -> KernelWork:
    """Values of a depthwise layer, two products of matrices, all weights for every program."""
    warps, threads, programs = c["num_warps"], 32 * c["num_warps"], programs_of(s, c)
    steps, blocks = np.ceil(s.channels / c["BC"]), np.ceil(s.middle / c["BM"])
    held = shared_bytes(c, s)
    out = shared_out(gpu, programs, warps, registers(c, s), held)
    taps, each = s.taps_down * s.taps_across, steps * c["BC"] / threads
    read = s.taps_down * ((c["SIDE"] - 1) * s.stride + s.taps_across)
    rows = blocks * c["BM"] * steps * c["BC"] + c["BN"] * blocks * c["BM"]
    own = out.each * warps
    return work_from(out, c, {
        "waves": out.waves, "steps": out.waves * steps * blocks, "values": out.waves * each * (read + PIXELS * taps),
        "dots": out.waves * rows / warps / 256,
        "sm_values": own * each * (read + PIXELS * taps), "cache": programs * held / gpu.multiprocessors},
        2.0 * programs * PIXELS * rows, s.moved_bytes)


def shapes_of(kind: str, part: Sequence[Item]) -> list[BridgedShape]:
    """Of DWPW and the pointwise layer behind, in all arithmetics but float32, which takes no matrix units."""
    if kind == "float32" or [i.depthwise for i in part] != [True, False, False]:
        return []
    first, between, last = part
    x, y = first.x, last.y
    if not between.pointwise or not last.pointwise or first.ends or between.mean is not None or between.along is not None \
            or last.joined or x.planar or first.window.dilation != (1, 1) or y.pixels > MOST_MAP:
        return []
    moved = x.pixels * x.channels + y.pixels * (y.channels + between.y.channels * (between.kept + (between.other is not None)))
    return [BridgedShape(ELEMENT[kind], moved * ELEMENT[kind], y.images, y.height, y.width, x.channels, between.y.channels,
                         y.channels, *first.window.kernel, first.window.stride[1], *_words(kind, first))]


def _words(kind: str, item: Item) -> tuple[int, int]:
    """Output columns side by side, and words of four pixels they come from; none where channels come one by one."""
    return side_by_side(item.window) if has_words(kind, item) else (1, 0)


def operands(kind: str, part: Sequence[Item]) -> launch.Given:
    """Weights of pointwise layers are filters x channels."""
    (first, between, _), x, y = part, part[0].x, part[2].y
    near, words = _words(kind, first)
    constants: dict[str, launch.Constant] = {
        **launch.map_constants(x, y), "C": x.channels, "M": between.y.channels, "N": y.channels, "NEAR": near, "WORDS": words,
        **launch.window_constants(first.window), "XP": x.pitch, "ZP": between.y.pitch, "YP": y.pitch,
        "PAD": launch.four_times(first.layer.pad) if words else first.layer.pad,
        "INTEGER": kind == "int8", "ROUND": common_rounding([item.layer for item in part]), "KEPT": between.kept,
        "PRECISION": launch.precision(kind), **launch.sum_constants(between.total, between.other)}
    arrays: list[Array] = []
    for name, item in zip("D12", part, strict=True):
        constants |= launch.layer_constants(item, name)
        weights = item.layer.weights if item.depthwise else np.ascontiguousarray(item.layer.weights.T)
        plain = [weights, item.layer.bias, item.layer.multipliers, item.layer.shifts]
        arrays += in_words(item) if item.depthwise and words else plain
    kept = between.y if between.kept else launch.NOTHING
    return (x, *arrays[:8], launch.or_nothing(between.other), kept, *arrays[8:], y), constants
