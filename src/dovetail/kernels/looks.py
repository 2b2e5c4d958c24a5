"""What a second look at a tile goes by, kernel by kernel: its sizes, how it fits the map's edges, and how programs fill a GPU.

Numbers as they are; whoever looks takes their logarithms (`kernels/second_look.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dovetail.kernels.estimator import Number, Tiles
from dovetail.kernels.shapes import (
    ConvShape,
    DeepShape,
    DepthwiseShape,
    FusedShape,
    KernelShape,
)
from dovetail.kernels.tiles import depthwise_registers
from dovetail.platform.gpu_specification import Gpu

Look = dict[str, Number]


def _padded(size: Number, tile: Number) -> Number:
    """How much larger a size becomes in whole tiles."""
    return np.ceil(size / tile) * tile / size


def _filled(gpu: Gpu, programs: Number, warps: Number, registers: Number, shared_bytes: Number) -> Look:
    """How programs fill the GPU: per multiprocessor, at once, one after another, and how much of that is idle."""
    each = programs / gpu.multiprocessors
    held = np.maximum(1.0, np.minimum(np.minimum(gpu.warps // warps, 32), np.minimum(
        gpu.registers // (32 * warps * np.clip(registers, 32.0, 255.0)), gpu.shared_bytes // np.maximum(shared_bytes, 1024))))
    return {"programs": programs, "each": each, "held": held, "waves": np.ceil(each / held), "idle": np.ceil(each) / each,
            "tail": np.ceil(each / held) * held / each, "warps at once": np.minimum(each, held) * warps}


def conv_look(gpu: Gpu, c: Tiles, s: ConvShape) -> Look:
    sums, threads = c.get("SUMS", np.ones(1)), 32 * c["num_warps"]
    steps = np.ceil(s.depth / c["BK"] / sums) * s.steps_of
    shared = sums * (c["BP"] + c["BN"]) * c["BK"] * s.element * np.minimum(c["num_stages"], np.maximum(steps, 1))
    results = c["BP"] * c["BN"] / threads
    pixels = s.pixels / s.images if s.mean else s.pixels
    return {"BP": c["BP"], "BN": c["BN"], "BK": c["BK"], "SUMS": sums, "stages": c["num_stages"], "warps": c["num_warps"],
            "results": results, "form": c["BP"] / c["BN"], "steps": steps, "padded pixels": _padded(pixels, c["BP"]),
            "padded filters": _padded(s.filters, c["BN"]), "padded depth": steps * c["BK"] * sums / (s.depth * s.steps_of),
            "shared": shared, "pixels": s.pixels, "filters": s.filters, "depth": s.depth, "taps": s.steps_of, "mean": 1 + s.mean,
            "scattered": 1 + s.scattered, "rounds": steps / c["num_stages"], "inputs": c["BP"] * c["BK"],
            "weights": c["BN"] * c["BK"], "read": s.programs(c) * (c["BP"] + c["BN"]) * c["BK"] * sums * steps,
            **_filled(gpu, s.programs(c), c["num_warps"], 1.2 * results * sums + 40, shared)}


def deep_look(gpu: Gpu, c: Tiles, s: DeepShape) -> Look:
    threads, steps = 32 * c["num_warps"], np.ceil(s.depth / (c["PARTS"] * c["BK"]))
    held, results = c["PARTS"] * c["BK"] * steps, c["BP"] * c["BN"] * c["PARTS"] / threads
    shared = held * (c["BP"] + c["BN"]) * s.element
    return {"BP": c["BP"], "BN": c["BN"], "BK": c["BK"], "PARTS": c["PARTS"], "warps": c["num_warps"], "results": results,
            "steps": steps, "padded pixels": _padded(s.pixels, c["BP"]), "padded filters": _padded(s.filters, c["BN"]),
            "padded depth": held / s.depth, "pixels": s.pixels, "filters": s.filters, "depth": s.depth, "mean": 1 + s.mean,
            "inputs": held * c["BP"] / threads, "weights": held * c["BN"] / threads, "shared": shared,
            **_filled(gpu, s.programs(c), c["num_warps"], 40 + 1.2 * results + shared / 4 / threads, 0.0)}


def depthwise_look(gpu: Gpu, c: Tiles, s: DepthwiseShape) -> Look:
    none, threads = np.zeros(1), 32 * c["num_warps"]
    side, early, looped = c.get("SIDE", np.ones(1)), c.get("EARLY", none), c.get("LOOPED", none)
    each, taps = c["TW"] * c["BC"] / threads, s.taps_down * s.taps_across
    registers = depthwise_registers(each, c["R"], side, early > 0, s)
    read = ((c["R"] - 1) * s.stride + s.reach) * ((side - 1) * s.stride + s.taps_across)
    return {"R": c["R"], "TW": c["TW"], "BC": c["BC"], "SIDE": side, "EARLY": 1 + early, "LOOPED": 1 + looped,
            "warps": c["num_warps"], "channels each": each, "together": c["R"] * side,
            "padded width": _padded(s.width, c["TW"] * side), "padded height": _padded(s.height, c["R"]),
            "padded channels": _padded(s.channels, c["BC"]), "read of one": read / (c["R"] * side), "read": read * each,
            "products": c["R"] * side * taps * each, "taps": taps, "stride": s.stride, "width": s.width, "channels": s.channels,
            "pixels": s.images * s.height * s.width, "values": s.images * s.height * s.width * s.channels,
            "registers": registers, "in a row": np.minimum(c["BC"], s.channels),
            **_filled(gpu, s.programs(c), c["num_warps"], registers, 0.0)}


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
            "values": c["BP"] * s.taps * c["BE"] / threads, "registers": 40 + inner + results, "shared": shared,
            **_filled(gpu, s.programs(c), c["num_warps"], 40 + inner + results, shared)}


LOOKS: Mapping[type, Callable[..., Look]] = {ConvShape: conv_look, DeepShape: deep_look, DepthwiseShape: depthwise_look,
                                             FusedShape: fused_look}


def look_at(gpu: Gpu, shape: KernelShape, tiles: Tiles) -> Look:
    """What there is to see of tiles of one kernel."""
    return LOOKS[type(shape)](gpu, tiles, shape)
