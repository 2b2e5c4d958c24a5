"""One kernel launch each: what it reads and writes, its constants, its grid and its possible tiles, best estimate first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, inf

import numpy as np

from dovetail.gpu.amounts import Shape, Stages, banded_work, conv_work, depthwise_work, fused_work, vector_work
from dovetail.gpu.estimator import Config, Gpu, Work, power, seconds
from dovetail.gpu.layers import Layer, Sum
from dovetail.ir import Array, Window

Grid = Callable[[Config], tuple[int, int, int]]
ELEMENT = {"float16": 2, "float32": 4, "tf32": 4, "int8": 1}
"""Bytes of an activation by arithmetic: float16 with float32 sums, float32, its 19-bit products, 8-bit integers."""
NOTHING = np.zeros(1, dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies: channels [offset, offset + channels) of a buffer of images x rows x columns x pitch.

    `planar`: images x channels x rows x columns instead, as inputs arrive.
    """

    buffer: str
    images: int
    height: int
    width: int
    channels: int
    pitch: int
    offset: int = 0
    planar: bool = False

    @property
    def strides(self) -> tuple[int, int, int, int]:
        """Of images, rows, columns, channels."""
        if self.planar:
            return (self.channels * self.height * self.width, self.width, 1, self.height * self.width)
        return (self.height * self.width * self.pitch, self.width * self.pitch, self.pitch, 1)

    @property
    def pixels(self) -> int:
        return self.images * self.height * self.width


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A launch: operands in the kernel's order are places, constant arrays or numbers."""

    kernel: str
    nodes: tuple[str, ...]
    operands: tuple[Place | Array | int, ...]
    constants: Mapping[str, int | float | bool | str]
    grid: Grid
    configs: tuple[Config, ...]
    estimates_s: tuple[float, ...]
    output: Place
    work: Callable[[Config], Work] | None = None
    """What a tile asks of a GPU; None for kernels that have one tile only."""
    key: str = ""


def ranked(gpu: Gpu, kernel: str, kind: str, configs: Iterable[Config],
           work: Callable[[Config], Work]) -> tuple[tuple[Config, ...], tuple[float, ...]]:
    """Configurations by estimated time."""
    judged = sorted(((seconds(gpu, kernel, kind, work(c)), i, c) for i, c in enumerate(configs)), key=lambda x: x[:2])
    kept = [(t, c) for t, _, c in judged if t < inf] or [(t, c) for t, _, c in judged[:1]]
    return tuple(c for _, c in kept), tuple(t for t, _ in kept)


def window_constants(window: Window) -> dict[str, int]:
    return {"KH": window.kernel[0], "KW": window.kernel[1], "SH": window.stride[0], "SW": window.stride[1],
            "PH": window.pads[0], "PW": window.pads[1]}


def sum_constants(total: Sum | None, other: Place | None) -> dict[str, int | float | bool]:
    total = total or Sum()
    return {"ADD": other is not None, "A_FACTOR": total.factors[0], "O_FACTOR": total.factors[1], "A_ZERO": total.zeros[0],
            "O_ZERO": total.zeros[1], "A_SHIFT": total.shift, "ALO": total.lo, "AHI": total.hi, "AZERO": total.zero,
            "OP": other.pitch if other is not None else 1}


def precision(kind: str) -> str:
    """What matrix units may do with float32: its own products where that is asked for; other kinds do not ask."""
    return "ieee" if kind == "float32" else "tf32"


def laid(weights: Array, kind: str, groups: int = 1) -> tuple[Array, int, int]:
    """Weights as a kernel reads them, and how far apart input and output channels lie: matrix units want bytes input by input."""
    depth, filters = len(weights) // groups, weights.shape[1]
    if kind != "int8":
        return weights, filters, 1
    turned = weights.reshape(groups, depth, filters).transpose(0, 2, 1)
    return np.ascontiguousarray(turned).reshape(groups * filters, depth), 1, depth


MOST_HALVED = 4096
"""Pixels up to which chains of products are what a pointwise layer waits for."""


def conv_call(gpu: Gpu, kind: str, nodes: tuple[str, ...], x: Place, y: Place, window: Window, layer: Layer, groups: int = 1,
              other: Place | None = None, total: Sum | None = None, mean: Place | None = None) -> Call:
    """Convolution of any kind but depthwise; `other` is added, or all pixels averaged into `mean`."""
    channels, filters = x.channels // groups, y.channels // groups
    taps = window.kernel[0] * window.kernel[1]
    flat = taps > 1 and channels < 16
    halved = taps == 1 and not any(window.pads) and y.pixels <= MOST_HALVED
    depth = taps * channels if flat else channels
    element, images, area = ELEMENT[kind], y.images, y.height * y.width

    def grid(c: Config) -> tuple[int, int, int]:
        return images if mean is not None else ceil(y.pixels / c["BP"]), ceil(filters / c["BN"]), groups

    values = x.pixels * x.channels + y.pixels * y.channels * (1 if other is None else 2) + layer.weights.size
    shape = Shape(element, values * element)

    def work(c: Config) -> Work:
        return conv_work(gpu, c, grid(c)[0] * grid(c)[1] * groups, depth, 1 if flat else taps, flat or x.planar, shape)

    configs = _conv_tiles(y.pixels if mean is None else area, filters, depth, 1 if flat else taps, mean is not None, halved, kind)
    best, times = ranked(gpu, "conv", kind, configs, work)
    xb, xh, xw, xc = x.strides
    out = mean if mean is not None else y
    weights, wk, wn = laid(layer.weights, kind, groups)
    constants = {"H": x.height, "W": x.width, "OH": y.height, "OW": y.width, "CI": channels, "N": filters,
                 **window_constants(window), "DH": window.dilation[0], "DW": window.dilation[1], "XB": xb, "XH": xh, "XW": xw,
                 "XC": xc, "WK": wk, "WN": wn, "YP": out.pitch, "LO": layer.lo, "HI": layer.hi, "ZERO": layer.zero,
                 "PAD": layer.pad, "INTEGER": kind == "int8", "WIDE": layer.wide, "MEAN": mean is not None, "FLAT": flat,
                 "PRECISION": precision(kind), **sum_constants(total, other)}
    beside = other if other is not None else NOTHING
    operands = (x, weights, layer.bias, layer.multipliers, layer.shifts, beside, out, images)
    return keyed(Call("conv", nodes, operands, constants, grid, best, times, out, work), kind)


def _conv_tiles(pixels: int, filters: int, depth: int, steps_of: int, mean: bool, halved: bool, kind: str) -> list[Config]:
    """Tiles worth a look; `halved`: also with two sums side by side."""
    least = 32 if kind == "int8" else 16
    rows = [power(pixels)] if mean else [b for b in (16, 32, 64, 128) if b == 16 or b < 2 * pixels]
    columns = [b for b in (16, 32, 64, 128, 256) if b == 16 or b < 2 * filters]
    depths = sorted({min(power(depth, least), b) for b in (32, 64, 128, 256)})
    found: list[Config] = []
    for bp, bn, bk in product(rows, columns, depths):
        steps, size = ceil(depth / bk) * steps_of, bp * bn
        if size > 128 * 256 or bp * bk > 128 * 128 or bn * bk > 256 * 128:
            continue
        for warps, stages in product({2 if size <= 1024 else 4, 4 if size <= 128 * 64 else 8},
                                     (2,) if steps <= 2 else sorted({4, min(steps, 8)})):
            tile = {"BP": bp, "BN": bn, "BK": bk, "SUMS": 1, "num_warps": warps, "num_stages": stages}
            found += [tile, {**tile, "SUMS": 2}] if halved and steps >= 4 else [tile]
    return found


MOST_VECTOR_IMAGES = 4
"""Images up to which every image may read all weights anew."""
MOST_VECTOR = 1 << 15
"""Weights one program of the kernel for single pixels holds in registers."""


def vector_call(gpu: Gpu, kind: str, nodes: tuple[str, ...], x: Place, y: Place, layer: Layer) -> Call | None:
    """A layer of one pixel per image with few images; None for others."""
    depth, element = int(layer.weights.shape[0]), ELEMENT[kind]
    block = power(depth)
    if x.height * x.width != 1 or y.height * y.width != 1 or x.planar or 2 * block > MOST_VECTOR or y.images > MOST_VECTOR_IMAGES:
        return None

    def grid(c: Config) -> tuple[int, int, int]:
        return ceil(y.channels / c["BN"]), y.images, 1

    shape = Shape(element, layer.weights.size * element)

    def work(c: Config) -> Work:
        return vector_work(gpu, c, grid(c)[0] * y.images, shape)

    tiles = [{"BN": bn, "BK": block, "num_warps": warps, "num_stages": 1} for bn in (2, 4, 8, 16) for warps in (4, 8)
             if bn * block <= MOST_VECTOR and bn * block >= 32 * warps]
    best, times = ranked(gpu, "vector", kind, tiles, work)
    constants = {"K": depth, "N": y.channels, "XP": x.pitch, "YP": y.pitch, "LO": layer.lo, "HI": layer.hi, "ZERO": layer.zero,
                 "INTEGER": kind == "int8", "WIDE": layer.wide}
    operands = (x, np.ascontiguousarray(layer.weights.T), layer.bias, layer.multipliers, layer.shifts, y)
    return keyed(Call("vector", nodes, operands, constants, grid, best, times, y, work), kind)


def depthwise_call(gpu: Gpu, kind: str, node: str, x: Place, y: Place, window: Window, layer: Layer) -> Call:
    """One filter per channel."""
    element = ELEMENT[kind]

    def grid(c: Config) -> tuple[int, int, int]:
        return x.images * ceil(y.width / c["TW"]) * ceil(y.height / c["R"]), ceil(x.channels / c["BC"]), 1

    shape = Shape(element, (x.pixels + y.pixels) * x.channels * element)

    def work(c: Config) -> Work:
        rows = (c["R"] - 1) * window.stride[0] + window.reach[0]
        return depthwise_work(gpu, c, grid(c)[0] * grid(c)[1], window.kernel, rows, shape)

    tiles = [{"R": r, "TW": tw, "BC": bc, "num_warps": max(1, min(8, tw * bc // each)), "num_stages": 2}
             for r in (1, 2, 4) for tw in (4, 8, 16, 32) for bc in (16, 32, 64, 128) for each in (128, 256)
             if (tw == 4 or tw < 2 * y.width) and (bc == 16 or bc < 2 * x.channels) and (r == 1 or r <= y.height)
             and 128 <= tw * bc <= 4096]
    best, times = ranked(gpu, "depthwise", kind, tiles, work)
    constants = {"H": x.height, "W": x.width, "OH": y.height, "OW": y.width, "C": x.channels, **window_constants(window),
                 "DH": window.dilation[0], "DW": window.dilation[1], "XP": x.pitch, "YP": y.pitch, "LO": layer.lo, "HI": layer.hi,
                 "ZERO": layer.zero, "PAD": layer.pad, "INTEGER": kind == "int8", "WIDE": layer.wide}
    operands = (x, layer.weights, layer.bias, layer.multipliers, layer.shifts, y)
    return keyed(Call("depthwise", (node,), operands, constants, grid, best, times, y, work), kind)


@dataclass(frozen=True, slots=True)
class Module:
    """Layers of a fused module: a pointwise one in front, a depthwise one in the middle, a pointwise one at the back."""

    front: Layer | None = None
    middle: Layer | None = None
    window: Window | None = None
    back: Layer | None = None


MOST_FRONT = 256
"""Input channels a front may have: all of them are held at once."""


def fused_call(gpu: Gpu, kind: str, nodes: tuple[str, ...], x: Place, y: Place, module: Module, other: Place | None = None,
               total: Sum | None = None) -> Call:
    """A fused module from `x` to `y`."""
    front, middle, back = module.front, module.middle, module.back
    window = module.window or Window((1, 1))
    element, inner = ELEMENT[kind], _inner(x, y, module)
    taps = window.kernel[0] * window.kernel[1]
    padded = power(taps, 1) if middle is not None and front is not None else 1
    depth, width = power(x.channels, 32 if kind == "int8" else 16), power(y.channels if back is not None else 16)

    def grid(c: Config) -> tuple[int, int, int]:
        return ceil(y.pixels / c["BP"]), 1 if back is not None else ceil(inner / c["BE"]), 1

    stages = Stages(inner, taps, front is not None, middle is not None, back is not None)
    shape = Shape(element, (x.pixels * x.channels + y.pixels * y.channels) * element)

    def work(c: Config) -> Work:
        return fused_work(gpu, c, grid(c)[0] * grid(c)[1], stages, shape)

    tiles = [{"BP": bp, "BE": be, "BC": depth, "BN": width, "T": padded, "num_warps": warps, "num_stages": 2}
             for bp in (8, 16, 32, 64, 128) for be in (16, 32, 64) for warps in (4, 8)
             if be < 2 * inner and 16 <= bp * padded <= 512 and bp * padded * be <= 1 << 15 and bp * width <= 1 << 14
             and (back is None or (bp >= 16 and be >= (32 if kind == "int8" else 16)))]
    best, times = ranked(gpu, "fused", kind, tiles, work)
    constants: dict[str, int | float | bool | str] = {
        "H": x.height, "W": x.width, "OH": y.height, "OW": y.width, "CI": x.channels, "E": inner, "N": y.channels,
        **window_constants(window), "XP": x.pitch, "YP": y.pitch, "INTEGER": kind == "int8", "FRONT": front is not None,
        "MIDDLE": middle is not None, "BACK": back is not None, "PRECISION": precision(kind),
        "WIDE": any(stage is not None and stage.wide for stage in (front, middle, back)), **sum_constants(total, other)}
    first_stage = front or middle
    assert first_stage is not None
    constants |= {"PAD": first_stage.pad, "PADE": middle.pad if middle is not None else 0.0}
    for suffix, stage in (("1", front), ("D", middle), ("2", back)):
        constants |= {f"LO{suffix}": stage.lo if stage else 0.0, f"HI{suffix}": stage.hi if stage else 0.0,
                      f"ZERO{suffix}": stage.zero if stage else 0}
    arrays: list[Array] = []
    for name, stage in (("1", front), ("D", middle), ("2", back)):
        weights, wk, wn = (NOTHING, 1, 1) if stage is None else laid(stage.weights, kind if name != "D" else "")
        if name != "D":
            constants |= {f"W{name}K": wk, f"W{name}N": wn}
        arrays += [weights, stage.bias, stage.multipliers, stage.shifts] if stage is not None else [NOTHING] * 4
    operands = (x, *arrays, other if other is not None else NOTHING, y, y.images)
    return keyed(Call("fused", nodes, operands, constants, grid, best, times, y, work), kind)


MOST_BAND = 256
"""Pixels of the layer in front that a program of a banded module holds."""


def banded_call(gpu: Gpu, kind: str, nodes: tuple[str, ...], x: Place, y: Place, module: Module) -> Call | None:
    """A pointwise layer with the depthwise layer behind it, in bands of rows; None where a band is too large."""
    front, middle, window = module.front, module.middle, module.window
    assert front is not None
    assert middle is not None
    assert window is not None
    element, inner, depth = ELEMENT[kind], y.channels, power(x.channels, 32 if kind == "int8" else 16)

    def grid(c: Config) -> tuple[int, int, int]:
        return x.images * ceil(y.height / c["BAND"]), ceil(inner / c["BE"]), 1

    taps, shape = window.kernel[0] * window.kernel[1], Shape(element, (x.pixels * x.channels + y.pixels * y.channels) * element)

    def work(c: Config) -> Work:
        return banded_work(gpu, c, grid(c)[0] * grid(c)[1], taps, shape)

    tiles: list[Config] = []
    for band, be, warps in product(sorted({1, 2, 4, 7, y.height}), (16, 32), (4, 8)):
        rows = power(((band - 1) * window.stride[0] + window.kernel[0]) * x.width)
        if band <= y.height and rows <= MOST_BAND and be < 2 * inner and rows * be >= 32 * warps:
            tiles.append({"BAND": band, "BR": rows, "BO": power(band * y.width), "BE": be, "BC": depth, "num_warps": warps,
                          "num_stages": 1})
    if not tiles:
        return None
    best, times = ranked(gpu, "banded", kind, tiles, work)
    weights, wk, wn = laid(front.weights, kind)
    constants: dict[str, int | float | bool | str] = {
        "H": x.height, "W": x.width, "OH": y.height, "OW": y.width, "CI": x.channels, "E": inner, **window_constants(window),
        "W1K": wk, "W1N": wn, "XP": x.pitch, "YP": y.pitch, "LO1": front.lo, "HI1": front.hi, "ZERO1": front.zero,
        "LOD": middle.lo, "HID": middle.hi, "ZEROD": middle.zero, "PADE": middle.pad, "INTEGER": kind == "int8",
        "WIDE": front.wide or middle.wide, "PRECISION": precision(kind)}
    operands = (x, weights, front.bias, front.multipliers, front.shifts, middle.weights, middle.bias, middle.multipliers,
                middle.shifts, y)
    return keyed(Call("banded", nodes, operands, constants, grid, best, times, y, work), kind)


def _inner(x: Place, y: Place, module: Module) -> int:
    """Channels between the stages."""
    if module.front is not None:
        return int(module.front.weights.shape[1])
    return x.channels if module.back is not None else y.channels


def moved_call(kernel: str, nodes: tuple[str, ...], operands: tuple[Place | Array | int, ...],
               constants: Mapping[str, int | float | bool | str], rows: int, channels: int, y: Place, kind: str,
               by_image: bool = False) -> Call:
    """A kernel that computes next to nothing: one size of tiles."""
    block = min(64, power(channels))
    tile: Config = {"BP": 16 if rows * channels < 1 << 20 else 64, "BC": block, "num_warps": 4, "num_stages": 2}

    def grid(c: Config) -> tuple[int, int, int]:
        return rows if by_image else ceil(rows / c["BP"]), ceil(channels / c["BC"]), 1

    return keyed(Call(kernel, nodes, operands, constants, grid, (tile,), (0.0,), y), kind)


def keyed(call: Call, kind: str) -> Call:
    """The call with a name under which its best tile is remembered: everything that decides its time."""
    shapes = [(p.images, p.pitch) if isinstance(p, Place) else p.shape if isinstance(p, np.ndarray) else p for p in call.operands]
    return replace(call, key=f"{call.kernel} {kind} {sorted(call.constants.items())} {shapes}")
