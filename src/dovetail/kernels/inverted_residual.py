"""The kernel of whole inverted residuals in bands of output rows: a pointwise, a depthwise and a pointwise layer in registers.

The last layer may be missing. Records call this kernel `walked`, and the one of bytes `walked_bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from math import inf
from typing import NamedTuple

import numpy as np

from dovetail.kernels import launch, layers
from dovetail.kernels.estimator import VECTOR, Config, KernelWork, Number, Tiles, power, shared_out, tiles_of, work_from
from dovetail.kernels.items import ELEMENT, Item, form_of
from dovetail.kernels.shape import Grid, least_depth, programs_of
from dovetail.platform.gpu_specification import Gpu

MOST_CHANNELS = 128
"""Input and output channels: all of them are held at once (chosen)."""
MOST_VALUES = 1 << 31
"""Values that the input may have: where they lie is an integer of 32 bits."""
MOST_REGISTERS = 230
"""Registers of a thread (chosen below the limit of 255, by estimate)."""
MOST_DOTS = 36
"""Products of matrices that a program may have in a row: chosen, since Triton unrolls them all."""


class InvertedResidualShape(NamedTuple):
    """A pointwise, a depthwise and, unless `back` is false, a pointwise layer; height and width are those of the output."""

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

    def tiles(self) -> Tiles:
        return _tiles(self._replace(moved_bytes=0, images=1))


@lru_cache(maxsize=1024)
def _tiles(s: InvertedResidualShape) -> Tiles:
    """Programs of one or two warps: four would get the matrix instructions of groups of warps, whose results are waited for."""
    depth, width = power(s.channels, least_depth(s.element)), power(s.filters) if s.back else 16
    found: list[Config] = []
    for r, (bp, warps), be in product((1, 2, 3, 4, 7), ((16, 1), (32, 1), (32, 2), (64, 2)), (16, 32, 64)):
        tile = {"R": r, "BP": bp, "BE": be, "BC": depth, "BN": width, "num_warps": warps, "num_stages": 1}
        fits = registers(tiles_of([tile]), s) <= MOST_REGISTERS
        if r <= s.height and be < 2 * s.inner and fits \
                and s.taps_across * ((r - 1) * s.stride + s.taps_down) <= MOST_DOTS:
            found.append(tile)
    return tiles_of(found)


def registers(c: Tiles, s: InvertedResidualShape) -> Number:
    """Registers of a thread: sums of both layers, a row of values, its inputs and weights."""
    threads = 32 * c["num_warps"]
    sums = c["R"] * c["BP"] * (c["BE"] + np.where(s.back, c["BN"], 0)) / threads
    values = c["BP"] * (c["BE"] + c["BC"] * s.element / 4) / threads
    return 48 + 1.1 * (sums + values) + c["BE"] / 4 * (s.taps_down + 2)


def work(gpu: Gpu, c: Tiles, s: InvertedResidualShape) -> KernelWork:
    """Values of the layer in front, for every column of taps anew, and what each serves."""
    warps, threads, vector, programs = c["num_warps"], 32 * c["num_warps"], VECTOR / s.element, programs_of(s, c)
    blocks = np.where(s.back, np.ceil(s.inner / c["BE"]), 1.0)
    dots, width = s.taps_across * ((c["R"] - 1) * s.stride + s.taps_down), np.where(s.back, c["BN"], 0.0)
    out = shared_out(gpu, programs, warps, registers(c, s), (dots * c["BP"] + c["BE"]) * c["BC"] * s.element)
    own, each = out.each * warps, c["BP"] * c["BE"] / threads
    products = (dots * c["BC"] + c["R"] * width) * c["BP"] * c["BE"]
    return work_from(out, c, {
        "waves": out.waves, "blocks": out.waves * blocks, "dots": out.waves * blocks * dots,
        "sm_values": own * blocks * dots * each, "sm_products": own * blocks * c["R"] * s.taps_down * s.taps_across * each,
        "sm_sums": own * blocks * c["R"] * each, "sm_inputs": own * blocks * dots * c["BP"] * c["BC"] / threads / vector,
        "sm_weights": own * blocks * c["BE"] * (c["BC"] + width) / threads / vector,
        "sm_results": own * c["R"] * c["BP"] * width / threads, "sm_matrix": out.each * blocks * products / 2048},
        2.0 * programs * blocks * products, s.moved_bytes, products)


def shapes_of(kind: str, part: Sequence[Item]) -> list[InvertedResidualShape]:
    """Of PWDW and PWDWPW of floats."""
    return [InvertedResidualShape(*sizes_of(kind, part))] if kind != "int8" and is_one(part) else []


def is_one(part: Sequence[Item]) -> bool:
    """Whether layers are an inverted residual, or its first two, that registers hold."""
    form = form_of(part)
    if form not in ("pd", "pdp") or any(i.ends for i in part[:-1]) or part[-1].mean is not None or part[-1].along is not None \
            or part[0].x.planar or max(i.window.dilation for i in part) > (1, 1):
        return False
    x, y = part[0].x, part[-1].y
    return x.pixels * x.pitch < MOST_VALUES and x.channels <= MOST_CHANNELS and (form == "pd" or y.channels <= MOST_CHANNELS)


def sizes_of(kind: str, part: Sequence[Item]) -> tuple[int, ...]:
    """The fields of a shape."""
    x, middle, y = part[0].x, part[1], part[-1].y
    moved = (x.pixels * x.channels + y.pixels * y.channels * (1 if part[-1].other is None else 2)) * ELEMENT[kind]
    return (ELEMENT[kind], moved, y.images, y.height, y.width, middle.y.channels, x.channels, y.channels,
            *middle.window.kernel, middle.window.stride[0], len(part) == 3)


def is_scaled(item: Item) -> bool:
    """Whether a layer of floats has bounds that become 0 and 1 when it is scaled, and nothing behind them."""
    return item.layer.lo == 0 < item.layer.hi < inf and item.activation == 0


def operands(kind: str, part: Sequence[Item]) -> launch.Given:
    """Constants are scaled for bounds of 0 and 1."""
    x, y, last, back = part[0].x, part[-1].y, part[-1], part[2] if len(part) > 2 else None
    front, total = part[0].layer, part[-1].total or layers.Addition()
    scales = [item.layer.hi if is_scaled(item) else 1.0 for item in part[:2]]
    constants: dict[str, launch.Constant] = {
        **size_constants(part), "SAT1": is_scaled(part[0]), "SATD": is_scaled(part[1]), "BACK": back is not None,
        "PRECISION": launch.precision(kind), "OP": last.other.pitch if last.other is not None else 1,
        "ADD": last.other is not None, "ALO": total.lo, "AHI": total.hi}
    for name, item in zip("1D2", (*part[:2], back), strict=True):
        constants |= {n: v for n, v in launch.layer_constants(item, name).items() if not n.startswith("ZERO")}
    behind = (launch.NOTHING, launch.NOTHING) if back is None else (back.layer.weights, back.layer.bias)
    return (x, front.weights, front.bias, *layers.scaled_taps(part[1].layer, *scales), *behind, launch.or_nothing(last.other), y,
            y.images), constants


def size_constants(part: Sequence[Item]) -> dict[str, int]:
    x, y = part[0].x, part[-1].y
    return {**launch.map_constants(x, y), "CI": x.channels, "E": part[1].y.channels,
            "N": y.channels, **launch.window_constants(part[1].window), "XP": x.pitch, "YP": y.pitch}


class InvertedResidualBytesShape(InvertedResidualShape):
    """The sizes of an inverted residual of bytes."""

    __slots__ = ()


def byte_shapes_of(kind: str, part: Sequence[Item]) -> list[InvertedResidualBytesShape]:
    """Of PWDWPW of bytes whose sums float32 finishes."""
    if kind != "int8" or not is_one(part) or len(part) != 3 or not layers.packs_to_bytes(part[0].layer) \
            or not layers.finished_in_floats(part[1].layer) or part[2].layer.rounding != layers.FLOATING:
        return []
    return [InvertedResidualBytesShape(*sizes_of(kind, part))]


def byte_operands(kind: str, part: Sequence[Item]) -> launch.Given:
    """Four rows of values are in a word."""
    front, middle, last = (item.layer for item in part)
    weights, wk, wn = launch.laid(front.weights, kind)
    taps, words = layers.taps_by_rows(middle.weights, part[1].window.kernel, part[1].window.stride[0])
    pad = int(middle.pad) + layers.STORED_OFFSET
    constants = {**size_constants(part), "W1K": wk, "W1N": wn, "LOD": middle.lo, "HID": middle.hi,
                 "ZEROD": middle.zero, "LO2": last.lo, "HI2": last.hi, "ZERO2": last.zero, "PADE": pad,
                 "PAD4": launch.four_times(pad), "WORDS": words, **launch.sum_constants(part[2].total, part[2].other)}
    return (part[0].x, weights, *layers.as_least_floats(front), taps, *layers.as_floats(layers.without_signs(middle)),
            last.weights.astype(np.float16), last.bias.astype(np.float32),
            np.ldexp(np.float32(1.0), -last.shifts).astype(np.float32),
            launch.or_nothing(part[2].other), part[2].y, part[2].y.images), constants
