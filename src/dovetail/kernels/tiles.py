"""The tiles of every kernel that are worth a look, and the registers a thread of them takes."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import ceil, inf
from typing import TYPE_CHECKING

import numpy as np

from dovetail.kernels.estimator import Config, Number, Tiles, power, tiles_of

if TYPE_CHECKING:
    from dovetail.kernels.shapes import BandedShape, BridgedShape, BytewiseShape, DeepShape, DepthwiseShape, WalkedShape

BYTE = 1
"""Bytes of an element that is an integer: matrix units then take twice as many input channels at once."""
GATHERED, MOST_GATHERED = 2.0, 216
"""Registers of a value that is gathered, with its address, and of a thread for all of them and its sums."""


@lru_cache(maxsize=4096)
def conv_tiles(pixels: int, filters: int, depth: int, steps_of: int, mean: bool, halved: bool, least: int,
                scattered: bool) -> Tiles:
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


MOST_HELD = 8 << 10
"""Bytes of weights, or of inputs, that a warp of the kernel for deep layers holds in registers."""
MOST_DEEP_STEPS, MOST_WASTE = 16, 1.4
"""Steps of such a program, and how many times the channels it may read."""


@lru_cache(maxsize=1024)
def deep_tiles(s: DeepShape) -> Tiles:
    """Tiles whose operands fit registers."""
    least = 32 if s.element == BYTE else 16
    rows = [power(s.pixels // s.images)] if s.mean else [b for b in (16, 32, 64) if b == 16 or b < 2 * s.pixels]
    found: list[Config] = []
    for parts, bp, bn in product((1, 2, 4), rows, (8, 16, 32, 64)):
        for bk, warps in product(_depths(s.depth, parts, least), (parts,) if parts > 1 else (2, 4)):
            steps = ceil(s.depth / (parts * bk))
            if steps <= MOST_DEEP_STEPS and steps * parts * bk * s.element * max(bp, bn) <= MOST_HELD * warps \
                    and bn < 2 * s.filters and bp * bn >= 128 * warps // parts:
                found.append({"PARTS": parts, "BP": bp, "BN": bn, "BK": bk, "num_warps": warps, "num_stages": 1})
    return tiles_of(found)


def _depths(depth: int, parts: int, least: int) -> list[int]:
    """Channels of a step of each part: those that leave the least over, and the most that waste little."""
    padded = {bk: ceil(depth / (parts * bk)) * parts * bk for bk in (16, 32, 64, 128, 256) if bk >= least}
    close = min(padded, key=lambda bk: (padded[bk], -bk))
    return sorted({close, max(bk for bk in padded if padded[bk] <= MOST_WASTE * depth or bk == close)})


MANY_CHANNELS = 65
"""Channels from which on tiles are the same, however many more there are: the widest then have no more than twice as many."""
MOST_UNROLLED = 9
"""Taps of a depthwise layer up to which its weights may be loaded where they are used, input row by input row."""
MOST_PRODUCTS, MOST_REGISTERS, MOST_TOGETHER = 420, 216, 28
"""Products of an element that a kernel without a loop may have (Triton translates more for too long), registers of a thread,
and pixels it may have."""


@lru_cache(maxsize=1024)
def depthwise_tiles(s: DepthwiseShape) -> Tiles:
    """Rows and columns that a thread has, programs, and how weights and taps are gone through."""
    taps = s.taps_down * s.taps_across
    ways = [(0, 0), (1, 0)] if taps <= MOST_UNROLLED else [(0, 1), (1, 0)]
    found: list[Config] = []
    for (early, looped), r, side in product(ways, _together(s.height), _together(s.width)):
        if r * side > MOST_TOGETHER or (not looped and r * side * taps > MOST_PRODUCTS) or side > 1 > early + looped:
            continue
        channels, together = ((16, 32, 64, 128), (4, 8)) if side == 1 else ((16, 32, 64), (2, 4))
        for tw, bc in product((1, 2, 4, 8, 16, 32), channels):
            if (bc > 16 and bc >= 2 * s.channels) or (tw > 4 and tw * side >= 2 * s.width) or not 64 <= tw * bc <= 2048:
                continue
            found += [{"R": r, "SIDE": side, "TW": tw, "BC": bc, "EARLY": early, "LOOPED": looped, "num_warps": warps,
                       "num_stages": 2} for warps in sorted({max(1, min(8, tw * bc // each // 32)) for each in together})
                      if depthwise_registers(tw * bc / 32 / warps, r, side, early, s) <= MOST_REGISTERS]
    return tiles_of(found)


def _together(size: int) -> list[int]:
    """How many rows, or columns, a thread may have: seven where maps are made of sevens."""
    return [n for n in (1, 2, 4) if n <= size] + [7] * (size % 7 == 0)


def depthwise_registers(each: Number, rows: Number, side: Number, early: Number, s: DepthwiseShape) -> Number:
    """Registers of a thread with `each` channels of some rows and columns: sums, a row of values, and weights."""
    held = np.where(early, s.taps_down * s.taps_across, s.taps_across)
    return 24 + 1.1 * each * (rows * side + (side - 1) * s.stride + s.taps_across + held)


MOST_SUMS, LIGHT_TAPS, MOST_TAPS, MOST_WORDS = 112, 160, 208, 320
"""Registers of a thread for sums and a row of pixels that a program of the kernel for bytes has; for them and all taps, up to
where taps are held in any case, and may be; and instructions of four products in a row: more take Triton half a minute, and a
tile with more was never faster by 4 %."""


@lru_cache(maxsize=1024)
def bytewise_tiles(height: int, width: int, quarters: int, s: BytewiseShape) -> Tiles:
    found: list[Config] = []
    for r, tw, bc, each in product(_together(height), (4, 8, 16, 32), (4, 8, 16, 32, 64), (1, 2, 4)):
        fits = (tw == 4 or tw < 2 * width) and (bc == 4 or bc < 2 * quarters) and 32 <= tw * bc // each <= 256
        words = each * r * s.taps_down * s.side * s.words * 4
        if fits and words <= MOST_WORDS and bytewise_registers(each, r, 0, s) <= MOST_SUMS:
            held = bytewise_registers(each, r, 1, s)
            found += [{"R": r, "TW": tw, "BC": bc, "EARLY": early, "num_warps": max(1, tw * bc // each // 32), "num_stages": 2}
                      for early in (1, 0) if held <= (MOST_TAPS if early else inf) and (early or held > LIGHT_TAPS)]
    return tiles_of(found)


def bytewise_registers(each: Number, rows: Number, early: Number, s: BytewiseShape) -> Number:
    """Registers of a thread with `each` words: sums, two rows of pixels, one of them turned, and taps that are held."""
    return each * 4 * (s.side * rows + 2 * s.words + early * s.words * s.side * s.taps_down)


@lru_cache(maxsize=1024)
def fused_tiles(inner: int, padded: int, depth: int, width: int, back: bool, least: int) -> Tiles:
    return tiles_of([{"BP": bp, "BE": be, "BC": depth, "BN": width, "T": padded, "num_warps": warps, "num_stages": 2}
                     for bp in (8, 16, 32, 64, 128) for be in (16, 32, 64) for warps in (4, 8)
                     if be < 2 * inner and 16 <= bp * padded <= 512 and bp * padded * be <= 1 << 15 and bp * width <= 1 << 14
                     and (not back or (bp >= 16 and be >= least))])


MOST_BAND = 256
"""Pixels of the layer in front that a program of a banded module holds."""


@lru_cache(maxsize=1024)
def banded_tiles(s: BandedShape) -> Tiles:
    tiles: list[Config] = []
    depth = power(s.channels, 32 if s.element == BYTE else 16)
    for band, be, warps in product(sorted({1, 2, 4, 7, s.height}), (16, 32), (4, 8)):
        rows = power(((band - 1) * s.stride + s.taps_down) * s.read_width)
        if band <= s.height and rows <= MOST_BAND and be < 2 * s.inner and rows * be >= 32 * warps:
            tiles.append({"BAND": band, "BR": rows, "BO": power(band * s.width), "BE": be, "BC": depth, "num_warps": warps,
                          "num_stages": 1})
    return tiles_of(tiles)


MOST_WALKED, MOST_DOTS = 230, 36
"""Registers of a thread of a walked module, and products of matrices that one may have in a row: Triton unrolls them all."""


@lru_cache(maxsize=1024)
def walked_tiles(s: WalkedShape) -> Tiles:
    """Programs of one or two warps: four would get the matrix instructions of groups of warps, whose results are waited for."""
    least = 32 if s.element == BYTE else 16
    depth, width = power(s.channels, least), power(s.filters) if s.back else 16
    found: list[Config] = []
    for r, (bp, warps), be in product((1, 2, 3, 4, 7), ((16, 1), (32, 1), (32, 2), (64, 2)), (16, 32, 64)):
        tile = {"R": r, "BP": bp, "BE": be, "BC": depth, "BN": width, "num_warps": warps, "num_stages": 1}
        fits = walked_registers(tiles_of([tile]), s) <= MOST_WALKED
        if r <= s.height and be < 2 * s.inner and fits \
                and s.taps_across * ((r - 1) * s.stride + s.taps_down) <= MOST_DOTS:
            found.append(tile)
    return tiles_of(found)


def walked_registers(c: Tiles, s: WalkedShape) -> Number:
    """Registers of a thread: sums of both layers, a row of values, its inputs and weights."""
    threads = 32 * c["num_warps"]
    sums = c["R"] * c["BP"] * (c["BE"] + np.where(s.back, c["BN"], 0)) / threads
    values = c["BP"] * (c["BE"] + c["BC"] * s.element / 4) / threads
    return 48 + 1.1 * (sums + values) + c["BE"] / 4 * (s.taps_down + 2)


BRIDGED_PIXELS = 8
"""Pixels of a program from one block into the next: as many as matrix units take at least."""
MOST_BRIDGED, MOST_BRIDGED_WORDS, MOST_BRIDGED_BYTES = 200, 255, 200 << 10
"""Registers of a thread of such a program, the same where channels come four in a word, and weights it holds in shared memory."""
MOST_BRIDGED_STEPS, MOST_BRIDGED_TAPS, MOST_BRIDGED_BLOCKS, BRIDGED_WASTE = 3, 27, 2, 1.5
"""Its blocks of channels, taps of all of them, and blocks of the layer between: Triton unrolls them (75 taps took it 39 s). How
many times its channels it may compute."""


@lru_cache(maxsize=1024)
def bridged_tiles(s: BridgedShape) -> Tiles:
    """Warps have channels of their own, sixteen of the layer between at a time; of bytes matrix units take 32 at least.

    Of words, eight warps share those of four: what they are for is the depthwise layer in front and the layer behind.

    Of as many warps, tiles with the fewest blocks of channels: with more they are no faster, and Triton takes seconds longer.
    """
    side = BRIDGED_PIXELS if s.width > BRIDGED_PIXELS // 2 else BRIDGED_PIXELS // 2
    found: list[Config] = []
    for warps in (1, 2, 4, 8) if s.words else (1, 2, 4):
        fitting: list[Config] = []
        for each, bn in product((1, 2, 4), (64, 128, 256, 512)):
            tile = {"R": BRIDGED_PIXELS // side, "SIDE": side, "BC": 32 * warps * each, "BN": bn,
                    "BM": max(16 * min(warps, 4), 32 if s.element == BYTE else 16), "num_warps": warps, "num_stages": 1}
            if min(256, s.filters) <= bn < 2 * s.filters and _is_bridged_tile(tile, s):
                fitting.append(tile)
        fewest = min((ceil(s.channels / tile["BC"]) for tile in fitting), default=0)
        found += [tile for tile in fitting if ceil(s.channels / tile["BC"]) == fewest]
    return tiles_of(found)


def _is_bridged_tile(tile: Config, s: BridgedShape) -> bool:
    """Whether a tile fits, and computes little that is not there."""
    steps, blocks, alone = ceil(s.channels / tile["BC"]), ceil(s.middle / tile["BM"]), tiles_of([tile])
    wasted = max(steps * tile["BC"] / s.channels, blocks * tile["BM"] / (2.0 * s.middle))
    unrolled = steps * s.taps_down * s.taps_across <= MOST_BRIDGED_TAPS and blocks <= MOST_BRIDGED_BLOCKS
    busy = not s.words or tile["num_warps"] == 1 or tile["BC"] * tile["SIDE"] // (4 * s.near) >= 32 * tile["num_warps"]
    return bool(steps <= MOST_BRIDGED_STEPS and unrolled and busy and wasted <= BRIDGED_WASTE
                and bridged_registers(alone, s) <= (MOST_BRIDGED_WORDS if s.words else MOST_BRIDGED)
                and bridged_bytes(alone, s) <= MOST_BRIDGED_BYTES)


def bridged_registers(c: Tiles, s: BridgedShape) -> Number:
    """Registers of a thread: taps of its channels, which are held, sums and a row of values of one block.

    Of words: taps and constants of all its channels, and the last sums.
    """
    each, steps = c["BC"] / (32 * c["num_warps"]), np.ceil(s.channels / c["BC"])
    across = (c["SIDE"] - 1) * s.stride + s.taps_across
    values = each * (steps * (s.taps_down * s.taps_across + BRIDGED_PIXELS / 2) + BRIDGED_PIXELS + across)
    words = each / 4 * c["SIDE"] / s.near * steps * (4 * s.taps_down * s.near * s.words + 8) + c["BN"] / (4 * c["num_warps"])
    return 40 + np.where(np.asarray(s.words) > 0, words, values)


def bridged_bytes(c: Tiles, s: BridgedShape) -> Number:
    """Shared memory of a program: the weights of both pointwise layers."""
    return (np.ceil(s.channels / c["BC"]) * c["BC"] + c["BN"]) * np.ceil(s.middle / c["BM"]) * c["BM"] * s.element


MOST_VECTOR = 1 << 15
"""Weights one program of the kernel for single pixels holds in registers."""


@lru_cache(maxsize=256)
def vector_tiles(block: int) -> Tiles:
    return tiles_of([{"BN": bn, "BK": block, "num_warps": warps, "num_stages": 1} for bn in (2, 4, 8, 16) for warps in (4, 8)
                     if bn * block <= MOST_VECTOR and bn * block >= 32 * warps])


@lru_cache(maxsize=64)
def moved_tiles(rows: int, channels: int) -> Tiles:
    return tiles_of([{"BP": rows, "BC": channels, "num_warps": 4, "num_stages": 2}])
