"""The kernel of fused modules: a pointwise, a depthwise and a pointwise layer, two of them or all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dovetail.ir import Array, Window
from dovetail.kernels import launch
from dovetail.kernels.estimator import VECTOR, KernelWork, Number, Tiles, power, shared_out, tiles_of, work_from
from dovetail.kernels.items import ELEMENT, Item, form_of
from dovetail.kernels.layers import common_rounding
from dovetail.kernels.shape import Grid, least_depth, programs_of
from dovetail.platform.gpu_specification import Gpu

MOST_FRONT = 256
"""Input channels a front may have, and output channels a back: all of them are held at once (chosen)."""


class FusedShape(NamedTuple):
    """A module: sizes of its input, output and what lies between, and which stages it has."""

    element: Number
    moved_bytes: Number
    pixels: Number
    inner: Number
    """Channels between the stages."""
    taps: Number
    channels: Number
    filters: Number
    front: Number
    middle: Number
    back: Number

    def grid(self, c: Tiles) -> Grid:
        return np.ceil(self.pixels / c["BP"]), np.where(self.back, 1, np.ceil(self.inner / c["BE"])), 1

    def tiles(self) -> Tiles:
        padded = power(self.taps, 1) if self.middle and self.front else 1
        least = least_depth(self.element)
        return _tiles(min(self.inner, 64), padded, power(self.channels, least), power(self.filters if self.back else 16),
                      bool(self.back), least)


@lru_cache(maxsize=1024)
def _tiles(inner: int, padded: int, depth: int, width: int, back: bool, least: int) -> Tiles:
    return tiles_of([{"BP": bp, "BE": be, "BC": depth, "BN": width, "T": padded, "num_warps": warps, "num_stages": 2}
                     for bp in (8, 16, 32, 64, 128) for be in (16, 32, 64) for warps in (4, 8)
                     if be < 2 * inner and 16 <= bp * padded <= 512 and bp * padded * be <= 1 << 15 and bp * width <= 1 << 14
                     and (not back or (bp >= 16 and be >= least))])


def work(gpu: Gpu, c: Tiles, s: FusedShape) -> KernelWork:
    warps, threads, programs = c["num_warps"], 32 * c["num_warps"], programs_of(s, c)
    blocks = np.where(s.back, np.ceil(s.inner / c["BE"]), 1.0)
    rows = np.where(s.front, c["BP"] * c["T"], 0.0)
    depth, width = np.where(s.front, c["BC"], 0.0), np.where(s.back, c["BN"], 0.0)
    kept = np.where(c["T"] > 1, rows * c["BE"] * 4, 0.0)
    shared = (rows * depth + 2 * (depth + width) * c["BE"]) * s.element + kept
    out = shared_out(gpu, programs, warps, np.where(c["T"] > 1, 255.0, 128.0), shared)
    values = np.where(s.front, rows, c["BP"] * s.taps) * c["BE"] / threads
    vector = VECTOR / s.element
    products = (rows * depth + c["BP"] * width) * c["BE"]
    weights = (depth + width) * c["BE"] / threads / vector
    return work_from(out, c, {
        "blocks": out.waves * blocks, "sm_values": out.each * blocks * values * warps,
        "sm_inputs": out.each * rows * depth / threads / vector * warps, "sm_weights": out.each * blocks * weights * warps,
        "weights": out.waves * blocks * weights, "sm_matrix": out.each * blocks * products / 2048,
        "recomputed": out.waves * blocks * values * np.where(s.front, s.middle, 0.0)},
        2.0 * programs * blocks * products, s.moved_bytes, products)


def shapes_of(kind: str, part: Sequence[Item]) -> list[FusedShape]:
    """Of DWPW, PWDW, PWPW and PWDWPW."""
    form, first, last = form_of(part), part[0], part[-1]
    if form not in ("dp", "pd", "pp", "pdp") or any(i.ends for i in part[:-1]) \
            or last.mean is not None or first.x.planar or max(i.window.dilation for i in part) > (1, 1) \
            or (form[0] == "p" and first.x.channels > MOST_FRONT) or (form[-1] == "p" and last.y.channels > MOST_FRONT):
        return []
    front, middle, back = stages(part)
    moved = (first.x.pixels * first.x.channels + last.y.pixels * last.y.channels + last.copied_values) * ELEMENT[kind]
    return [FusedShape(ELEMENT[kind], moved, last.y.pixels, inner_channels(part), middle.taps if middle is not None else 1,
                       first.x.channels, last.y.channels, front is not None, middle is not None, back is not None)]


def stages(part: Sequence[Item]) -> tuple[Item | None, Item | None, Item | None]:
    """Front, middle and back of a module."""
    at = next((i for i, item in enumerate(part) if item.depthwise), None)
    if at is None:
        return part[0], None, part[1]
    return part[0] if at else None, part[at], part[at + 1] if at + 1 < len(part) else None


def inner_channels(part: Sequence[Item]) -> int:
    """Channels between the stages of a module."""
    front, _, back = stages(part)
    return front.y.channels if front is not None else part[0].x.channels if back is not None else part[-1].y.channels


def operands(kind: str, part: Sequence[Item]) -> launch.Given:
    x, y, last = part[0].x, part[-1].y, part[-1]
    own = stages(part)
    front, middle, back = (item.layer if item is not None else None for item in own)
    window = next((item.window for item in part if item.depthwise), Window((1, 1)))
    constants: dict[str, launch.Constant] = {
        **launch.map_constants(x, y), "CI": x.channels, "E": inner_channels(part),
        "N": y.channels, **launch.window_constants(window), "XP": x.pitch, "YP": y.pitch, "INTEGER": kind == "int8",
        "FRONT": front is not None, "MIDDLE": middle is not None, "BACK": back is not None, "PRECISION": launch.precision(kind),
        "ROUND": common_rounding([stage for stage in (front, middle, back) if stage is not None]),
        **launch.sum_constants(last.total, last.other), **launch.copied_constants(last), "PAD": part[0].layer.pad,
        "PADE": middle.pad if middle is not None else 0.0}
    arrays: list[Array] = []
    for name, item, stage in zip("1D2", own, (front, middle, back), strict=True):
        constants |= launch.layer_constants(item, name)
        weights, wk, wn = (launch.NOTHING, 1, 1) if stage is None else launch.laid(stage.weights, kind if name != "D" else "")
        if name != "D":
            constants |= {f"W{name}K": wk, f"W{name}N": wn}
        arrays += [weights, stage.bias, stage.multipliers, stage.shifts] if stage is not None else [launch.NOTHING] * 4
    return (x, *arrays, launch.or_nothing(last.other), y, *launch.copied_operands(last), y.images), constants
