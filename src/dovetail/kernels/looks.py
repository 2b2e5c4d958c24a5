"""What a second look at a tile goes by, kernel by kernel: its sizes, how it fits the map's edges, and how programs fill a GPU.

Numbers as they are; whoever looks takes their logarithms (`kernels/second_look.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dovetail.kernels import depthwise, depthwise_bytes
from dovetail.kernels.conv import ConvShape
from dovetail.kernels.deep import DeepShape
from dovetail.kernels.depthwise import DepthwiseShape
from dovetail.kernels.depthwise_bytes import DepthwiseBytesShape
from dovetail.kernels.estimator import Number, Tiles
from dovetail.kernels.fused import FusedShape
from dovetail.kernels.shape import KernelShape, programs_of
from dovetail.platform.gpu_specification import Gpu

Look = dict[str, Number]


def _padded(size: Number, tile: Number) -> Number:
    """How much larger a size becomes in whole tiles."""
    return np.ceil(size / tile) * tile / size


def _left_over(size: Number, tile: Number) -> Number:
    """How much of the last tile is there."""
    return ((size - 1) % tile + 1) / tile


def _aligned(size: Number) -> Number:
    """The largest power of two that divides a size, at most 64: how many values can be loaded at once, whether lines match."""
    whole = np.asarray(size).astype(np.int64)
    return np.minimum(whole & -whole, 64)


def _filled(gpu: Gpu, programs: Number, warps: Number, registers: Number, shared_bytes: Number) -> Look:
    """How programs fill the GPU: per multiprocessor, at once, one after another, and how much of that is idle."""
    each = programs / gpu.multiprocessors
    held = np.maximum(1.0, np.minimum(np.minimum(gpu.warps // warps, 32), np.minimum(
        gpu.registers // (32 * warps * np.clip(registers, 32.0, 255.0)), gpu.shared_bytes // np.maximum(shared_bytes, 1024))))
    return {"programs": programs, "each": each, "held": held, "waves": np.ceil(each / held), "idle": np.ceil(each) / each,
            "tail": np.ceil(each / held) * held / each, "warps at once": np.minimum(each, held) * warps}


def _product(c: Tiles, s: ConvShape | DeepShape, taps: Number, groups: Number) -> Look:
    """Of a product of matrices: what it moves, how much of that is neither operand nor result, edges, alignment, the grid."""
    products = s.pixels * s.filters * s.depth * taps * groups
    own = s.element * groups * (s.pixels * s.filters + s.pixels * s.depth + s.depth * s.filters * taps)
    rows, columns, _ = s.grid(c)
    return {"moved": s.moved_bytes, "beside": s.moved_bytes / own, "images": s.images, "products": products,
            "products of a byte": products / s.moved_bytes, "aligned depth": _aligned(s.depth),
            "aligned filters": _aligned(s.filters), "grid rows": rows, "grid columns": columns,
            "computed": rows * columns * c["BP"] * c["BN"] / (s.pixels * s.filters),
            "written": c["BP"] * np.minimum(c["BN"], s.filters), "share of filters": c["BN"] / s.filters,
            "share of depth": c["BK"] / s.depth, "loaded": (c["BP"] + c["BN"]) * c["BK"] / (32 * c["num_warps"]),
            "by groups of warps": 1.0 + ((c["BP"] >= 64) & (c["num_warps"] >= 4)), "row": np.minimum(c["BK"], s.depth),
            "last depth": _left_over(s.depth, c["BK"])}


def conv_look(gpu: Gpu, c: Tiles, s: ConvShape) -> Look:
    sums, threads = c.get("SUMS", np.ones(1)), 32 * c["num_warps"]
    steps = np.ceil(s.depth / c["BK"] / sums) * s.steps_of
    shared = sums * (c["BP"] + c["BN"]) * c["BK"] * s.element * np.minimum(c["num_stages"], np.maximum(steps, 1))
    results = c["BP"] * c["BN"] / threads
    pixels = np.where(s.mean, s.pixels / s.images, s.pixels)
    return {"BP": c["BP"], "BN": c["BN"], "BK": c["BK"], "SUMS": sums, "stages": c["num_stages"], "warps": c["num_warps"],
            "results": results, "form": c["BP"] / c["BN"], "steps": steps, "padded pixels": _padded(pixels, c["BP"]),
            "padded filters": _padded(s.filters, c["BN"]), "padded depth": steps * c["BK"] * sums / (s.depth * s.steps_of),
            "shared": shared, "pixels": s.pixels, "filters": s.filters, "depth": s.depth, "taps": s.steps_of, "mean": 1 + s.mean,
            "scattered": 1 + s.scattered, "rounds": steps / c["num_stages"], "inputs": c["BP"] * c["BK"],
            "weights": c["BN"] * c["BK"], "read": programs_of(s, c) * (c["BP"] + c["BN"]) * c["BK"] * sums * steps,
            **_product(c, s, s.steps_of, s.groups),
            **_filled(gpu, programs_of(s, c), c["num_warps"], 1.2 * results * sums + 40, shared)}


def deep_look(gpu: Gpu, c: Tiles, s: DeepShape) -> Look:
    threads, steps = 32 * c["num_warps"], np.ceil(s.depth / (c["PARTS"] * c["BK"]))
    held, results = c["PARTS"] * c["BK"] * steps, c["BP"] * c["BN"] * c["PARTS"] / threads
    shared = held * (c["BP"] + c["BN"]) * s.element
    return {"BP": c["BP"], "BN": c["BN"], "BK": c["BK"], "PARTS": c["PARTS"], "warps": c["num_warps"], "results": results,
            "steps": steps, "padded pixels": _padded(s.pixels, c["BP"]), "padded filters": _padded(s.filters, c["BN"]),
            "padded depth": held / s.depth, "pixels": s.pixels, "filters": s.filters, "depth": s.depth, "mean": 1 + s.mean,
            "inputs": held * c["BP"] / threads, "weights": held * c["BN"] / threads, "shared": shared,
            **_product(c, s, 1, 1),
            **_filled(gpu, programs_of(s, c), c["num_warps"], 40 + 1.2 * results + shared / 4 / threads, 0.0)}


def depthwise_look(gpu: Gpu, c: Tiles, s: DepthwiseShape) -> Look:
    none, threads = np.zeros(1), 32 * c["num_warps"]
    side, early, looped = c.get("SIDE", np.ones(1)), c.get("EARLY", none), c.get("LOOPED", none)
    each, taps = c["TW"] * c["BC"] / threads, s.taps_down * s.taps_across
    registers = depthwise.registers(each, c["R"], side, early > 0, s)
    read = ((c["R"] - 1) * s.stride + s.reach) * ((side - 1) * s.stride + s.taps_across)
    return {"R": c["R"], "TW": c["TW"], "BC": c["BC"], "SIDE": side, "EARLY": 1 + early, "LOOPED": 1 + looped,
            "warps": c["num_warps"], "channels each": each, "together": c["R"] * side,
            "padded width": _padded(s.width, c["TW"] * side), "padded height": _padded(s.height, c["R"]),
            "padded channels": _padded(s.channels, c["BC"]), "read of one": read / (c["R"] * side), "read": read * each,
            "products": c["R"] * side * taps * each, "taps": taps, "stride": s.stride, "width": s.width, "channels": s.channels,
            "pixels": s.images * s.height * s.width, "values": s.images * s.height * s.width * s.channels,
            "registers": registers, "in a row": np.minimum(c["BC"], s.channels), "moved": s.moved_bytes, "height": s.height,
            "images": s.images, "aligned channels": _aligned(s.channels), "grid rows": s.grid(c)[0], "grid columns": s.grid(c)[1],
            "computed": programs_of(s, c) * c["R"] * side * c["TW"] * c["BC"] / (s.images * s.height * s.width * s.channels),
            "form": c["R"] / side, "span": c["TW"] * side, "last channels": _left_over(s.channels, c["BC"]),
            "one after another": np.ceil(programs_of(s, c) / gpu.multiprocessors) * c["num_warps"] * c["R"] * side * taps * each,
            **_filled(gpu, programs_of(s, c), c["num_warps"], registers, 0.0)}


def bytewise_look(gpu: Gpu, c: Tiles, s: DepthwiseBytesShape) -> Look:
    warps, each, rows = c["num_warps"], c["TW"] * c["BC"] / (32 * c["num_warps"]), (c["R"] - 1) * s.stride + s.taps_down
    registers, sums = 50 + depthwise_bytes.registers(each, c["R"], c["EARLY"], s), 4 * c["R"] * s.side * each
    products = sums * s.taps_down * s.words
    return {"R": c["R"], "TW": c["TW"], "BC": c["BC"], "EARLY": 1 + c["EARLY"], "warps": warps, "words each": each,
            "padded width": _padded(s.width, c["TW"] * s.side), "padded height": _padded(s.height, c["R"]),
            "padded channels": _padded(s.quarters, c["BC"]), "read of one": rows / c["R"], "turned": rows * s.words * each,
            "sums": sums, "products": products, "registers": registers, "in a row": np.minimum(c["BC"], s.quarters),
            "taps": s.taps_down, "stride": s.stride, "width": s.width, "height": s.height, "quarters": s.quarters,
            "images": s.images, "values": s.images * s.height * s.width * s.quarters, "moved": s.moved_bytes,
            "aligned channels": _aligned(s.quarters), "grid rows": s.grid(c)[0], "grid columns": s.grid(c)[1],
            "one after another": np.ceil(programs_of(s, c) / gpu.multiprocessors) * warps * products,
            **_filled(gpu, programs_of(s, c), warps, registers, 0.0)}


def fused_look(gpu: Gpu, c: Tiles, s: FusedShape) -> Look:
    threads, rows = 32 * c["num_warps"], c["BP"] * c["T"]
    inner = np.where(s.front, rows, c["BP"]) * c["BE"] / threads
    results = np.where(s.back, c["BP"] * c["BN"], 0.0) / threads
    shared = (rows * c["BC"] * s.front + 2 * (c["BC"] + c["BN"]) * c["BE"]) * s.element + np.where(
        c["T"] > 1, rows * c["BE"] * 4, 0.0)
    return {"BP": c["BP"], "BE": c["BE"], "BC": c["BC"], "BN": c["BN"], "T": c["T"], "warps": c["num_warps"],
            "blocks": np.where(s.back, np.ceil(s.inner / c["BE"]), 1.0), "padded pixels": _padded(s.pixels, c["BP"]),
            "padded inner": _padded(s.inner, c["BE"]), "padded channels": c["BC"] / s.channels,
            "padded filters": c["BN"] / np.maximum(s.filters, 1), "pixels": s.pixels, "inner": s.inner, "front": 1 + s.front,
            "middle": 1 + s.middle, "back": 1 + s.back, "taps": s.taps, "rows": rows * c["BE"] / threads,
            "results": c["BP"] * c["BN"] / threads, "products in front": rows * c["BC"] * c["BE"],
            "products behind": c["BP"] * c["BN"] * c["BE"], "channels": s.channels, "filters": s.filters,
            "values": c["BP"] * s.taps * c["BE"] / threads, "moved": s.moved_bytes, "registers": 40 + inner + results,
            "shared": shared,
            **_filled(gpu, programs_of(s, c), c["num_warps"], 40 + inner + results, shared)}


LOOKED: Mapping[str, type] = {"conv": ConvShape, "deep": DeepShape, "depthwise": DepthwiseShape, "bytewise": DepthwiseBytesShape,
                              "fused": FusedShape}
"""Kernels whose tiles are looked at again, by their shapes."""
LOOKS: Mapping[type, Callable[..., Look]] = {ConvShape: conv_look, DeepShape: deep_look, DepthwiseShape: depthwise_look,
                                             DepthwiseBytesShape: bytewise_look, FusedShape: fused_look}


def look_at(gpu: Gpu, shape: KernelShape, tiles: Tiles) -> Look:
    """What there is to see of tiles of one kernel, or, stacked, of many."""
    return LOOKS[type(shape)](gpu, tiles, shape)
