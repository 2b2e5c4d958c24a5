"""What a kernel with a tile asks of a GPU: the amounts `kernels/estimator.py` puts a price on, tile by tile in arrays.

Names: `launch` once; `waves`, `steps`, `exposed`, `chain`, `depth`, `blocks` count what one wave of programs waits for;
`cache` and `memory` are bytes; all others are instructions of one multiprocessor (`sm_...`) or of one thread.
"""

from __future__ import annotations

import numpy as np

from dovetail.kernels.estimator import Number, Programs, Tiles, Work, shared_out
from dovetail.kernels.shapes import (
    BandedShape,
    BridgedShape,
    BytewiseShape,
    ConvShape,
    DeepShape,
    DepthwiseShape,
    FusedShape,
    MovedShape,
    VectorShape,
    WalkedShape,
)
from dovetail.kernels.tiles import (
    BRIDGED_PIXELS,
    bridged_bytes,
    bridged_registers,
    bytewise_registers,
    depthwise_registers,
    walked_registers,
)
from dovetail.platform.gpu_specification import Gpu

SECTOR = 32
"""Bytes that come from the cache at least."""
VECTOR = 16
"""Bytes a thread loads at once."""


def _work(out: Programs, c: Tiles, amounts: dict[str, Number], flops: Number, moved_bytes: Number,
          products: Number = 0.0, busiest: Number = 0.0) -> Work:
    """`products`: those of a program's matrices that follow each other without a loop; `busiest`: flops of one multiprocessor."""
    return Work({"launch": np.ones(len(out.waves)), **amounts, "memory": moved_bytes}, c, flops, moved_bytes, out.fits,
                products / (32 * c["num_warps"]), busiest)


def conv_work(gpu: Gpu, c: Tiles, s: ConvShape) -> Work:
    """A product of matrices; scattered inputs come value by value."""
    warps, threads, programs = c["num_warps"], 32 * c["num_warps"], s.programs(c)
    sums: Number = c.get("SUMS", np.ones(1))
    steps = np.ceil(s.depth / c["BK"] / sums) * s.steps_of
    tile = sums * (c["BP"] + c["BN"]) * c["BK"] * s.element
    results, products = c["BP"] * c["BN"] / threads, sums * c["BP"] * c["BN"] * c["BK"]
    loaded = np.where(steps == 1, tile / 4 / threads, 0.0)
    out = shared_out(gpu, programs, warps, 1.2 * results + 40 + loaded, tile * np.minimum(c["num_stages"], steps))
    vector = VECTOR / s.element
    loads = sums * (c["BP"] * c["BK"] * np.where(s.scattered, vector, 1.0) + c["BK"] * c["BN"]) / threads / vector
    sectors = sums * (c["BK"] * np.maximum(c["BN"] * s.element, SECTOR) + c["BP"] * np.maximum(c["BK"] * s.element, SECTOR))
    return _work(out, c, {
        "steps": out.waves * steps, "exposed": out.waves * np.maximum(1.0, steps / np.maximum(1, c["num_stages"] - 1)),
        "cache": out.each * sectors * steps, "sm_loads": out.each * loads * steps * warps,
        "sm_results": out.each * results * warps, "depth": out.waves * c["BK"], "programs": programs,
        "wide": out.waves * (warps >= 8),
        "chain": out.waves * np.minimum(c["BK"] * steps, 2 * s.depth * s.steps_of) / warps},
        2.0 * programs * products * steps, s.moved_bytes, products, 2.0 * out.each * products * steps)


def deep_work(gpu: Gpu, c: Tiles, s: DeepShape) -> Work:
    """A product of matrices whose weights are there: inputs from the cache, products of one warp's part, a sum over warps."""
    warps, threads, programs = c["num_warps"], 32 * c["num_warps"], s.programs(c)
    steps = np.ceil(s.depth / (c["PARTS"] * c["BK"]))
    held = c["PARTS"] * c["BK"] * steps
    results, shared = c["BP"] * c["BN"] * c["PARTS"] / threads, held * (c["BP"] + c["BN"]) * s.element
    out = shared_out(gpu, programs, warps, 40 + 1.2 * results + shared / 4 / threads, shared)
    return _work(out, c, {
        "waves": out.waves, "cache": out.each * held * c["BP"] * s.element, "weights": out.each * held * c["BN"] * s.element,
        "chain": out.waves * c["BK"] * steps * np.maximum(1.0, c["PARTS"] * c["BP"] * c["BN"] / 256 / warps),
        "sm_results": out.each * results * warps, "wide": out.waves * warps, "programs": programs},
        2.0 * programs * c["BP"] * c["BN"] * held, s.moved_bytes, c["BP"] * c["BN"] * held)


def depthwise_work(gpu: Gpu, c: Tiles, s: DepthwiseShape) -> Work:
    """One filter per channel: every value read serves all outputs of its thread, in a loop those of one row of taps."""
    warps, r, programs = c["num_warps"], c["R"], s.programs(c)
    side, looped, early = c.get("SIDE", np.ones(1)), c.get("LOOPED", np.zeros(1)) > 0, c.get("EARLY", np.zeros(1)) > 0
    taps, each = s.taps_down * s.taps_across, c["TW"] * c["BC"] / (32 * warps)
    out = shared_out(gpu, programs, warps, depthwise_registers(each, r, side, early, s), np.zeros(len(r)))
    read = np.where(looped, r * s.taps_down, (r - 1) * s.stride + s.reach) * ((side - 1) * s.stride + s.taps_across)
    weights = np.where(looped | early, taps, r * taps)
    products, converted, results = r * side * taps * each, (read + weights) * each, r * side * each
    own = out.each * warps
    return _work(out, c, {
        "waves": out.waves, "late": out.waves * ~early, "sm_loads": own * (read + weights) * np.ceil(each * s.element / VECTOR),
        "sm_bytes": own * 32 * s.element * converted, "products": out.waves * products, "sm_products": own * products,
        "converted": out.waves * converted, "sm_converted": own * converted, "sm_results": own * results,
        "looped": out.waves * looped * s.taps_down, "programs": programs, "sm_warps": own}, 0.0, s.moved_bytes)


def bytewise_work(gpu: Gpu, c: Tiles, s: BytewiseShape) -> Work:
    """Bytes four at a time: words loaded and turned, products of four, and what becomes of every sum."""
    warps, r, programs = c["num_warps"], c["R"], s.programs(c)
    each, rows = c["TW"] * c["BC"] / (32 * warps), (r - 1) * s.stride + s.taps_down
    turned, sums = 12 * rows * s.words * each, 4 * r * s.side * each
    out = shared_out(gpu, programs, warps, 50 + bytewise_registers(each, r, c["EARLY"], s), np.zeros(len(r)))
    products, sector = sums * s.taps_down * s.words, np.maximum(4 * c["BC"], SECTOR)
    return _work(out, c, {
        "waves": out.waves, "cache": out.each * c["TW"] * (4 * rows * s.words + r * s.side) * sector,
        "sm_turned": out.each * turned * warps, "sm_products": out.each * products * warps,
        "sm_sums": out.each * sums * warps, "sm_weights": out.each * products / each * warps, "programs": programs},
        0.0, s.moved_bytes)


def fused_work(gpu: Gpu, c: Tiles, s: FusedShape) -> Work:
    warps, threads, programs = c["num_warps"], 32 * c["num_warps"], s.programs(c)
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
    return _work(out, c, {
        "blocks": out.waves * blocks, "sm_values": out.each * blocks * values * warps,
        "sm_inputs": out.each * rows * depth / threads / vector * warps, "sm_weights": out.each * blocks * weights * warps,
        "weights": out.waves * blocks * weights, "sm_matrix": out.each * blocks * products / 2048,
        "recomputed": out.waves * blocks * values * np.where(s.front, s.middle, 0.0)},
        2.0 * programs * blocks * products, s.moved_bytes, products)


def banded_work(gpu: Gpu, c: Tiles, s: BandedShape) -> Work:
    """A pointwise and a depthwise layer in bands: a tap asks every lane that may hold its value."""
    warps, threads, vector, programs = c["num_warps"], 32 * c["num_warps"], VECTOR / s.element, s.programs(c)
    inputs, weights = c["BR"] * c["BC"], c["BC"] * c["BE"]
    registers = 2.0 * s.taps + 3.0 * c["BR"] * c["BE"] / threads + 48
    out = shared_out(gpu, programs, warps, registers, (inputs + weights) * s.element)
    fetched = s.taps * c["BO"] * c["BE"] / threads
    products = c["BR"] * c["BC"] * c["BE"]
    return _work(out, c, {
        "waves": out.waves, "sm_shuffles": out.each * warps * fetched * np.ceil(c["BR"] / 32),
        "sm_values": out.each * warps * fetched, "sm_inputs": out.each * warps * inputs / threads / vector,
        "sm_weights": out.each * warps * weights / threads / vector, "sm_matrix": out.each * products / 2048},
        2.0 * programs * products, s.moved_bytes, products)


def walked_work(gpu: Gpu, c: Tiles, s: WalkedShape) -> Work:
    """An inverted residual in bands: values of the layer in front, for every column of taps anew, and what each serves."""
    warps, threads, vector, programs = c["num_warps"], 32 * c["num_warps"], VECTOR / s.element, s.programs(c)
    blocks = np.where(s.back, np.ceil(s.inner / c["BE"]), 1.0)
    dots, width = s.taps_across * ((c["R"] - 1) * s.stride + s.taps_down), np.where(s.back, c["BN"], 0.0)
    out = shared_out(gpu, programs, warps, walked_registers(c, s), (dots * c["BP"] + c["BE"]) * c["BC"] * s.element)
    own, each = out.each * warps, c["BP"] * c["BE"] / threads
    products = (dots * c["BC"] + c["R"] * width) * c["BP"] * c["BE"]
    return _work(out, c, {
        "waves": out.waves, "blocks": out.waves * blocks, "dots": out.waves * blocks * dots,
        "sm_values": own * blocks * dots * each, "sm_products": own * blocks * c["R"] * s.taps_down * s.taps_across * each,
        "sm_sums": own * blocks * c["R"] * each, "sm_inputs": own * blocks * dots * c["BP"] * c["BC"] / threads / vector,
        "sm_weights": own * blocks * c["BE"] * (c["BC"] + width) / threads / vector,
        "sm_results": own * c["R"] * c["BP"] * width / threads, "sm_matrix": out.each * blocks * products / 2048},
        2.0 * programs * blocks * products, s.moved_bytes, products)


def bridged_work(gpu: Gpu, c: Tiles, s: BridgedShape) -> Work:
    """From one block into the next: values of a depthwise layer, two products of matrices, all weights for every program."""
    warps, threads, programs = c["num_warps"], 32 * c["num_warps"], s.programs(c)
    steps, blocks = np.ceil(s.channels / c["BC"]), np.ceil(s.middle / c["BM"])
    held = bridged_bytes(c, s)
    out = shared_out(gpu, programs, warps, bridged_registers(c, s), held)
    taps, each = s.taps_down * s.taps_across, steps * c["BC"] / threads
    read = s.taps_down * ((c["SIDE"] - 1) * s.stride + s.taps_across)
    rows = blocks * c["BM"] * steps * c["BC"] + c["BN"] * blocks * c["BM"]
    own = out.each * warps
    return _work(out, c, {
        "waves": out.waves, "steps": out.waves * steps * blocks, "values": out.waves * each * (read + BRIDGED_PIXELS * taps),
        "dots": out.waves * rows / warps / 256,
        "sm_values": own * each * (read + BRIDGED_PIXELS * taps), "cache": programs * held / gpu.multiprocessors},
        2.0 * programs * BRIDGED_PIXELS * rows, s.moved_bytes)


def vector_work(gpu: Gpu, c: Tiles, s: VectorShape) -> Work:
    programs = s.programs(c)
    out = shared_out(gpu, programs, c["num_warps"], 1.5 * c["BN"] * c["BK"] / (32 * c["num_warps"]) + 24, np.zeros(len(c["BN"])))
    return _work(out, c, {"waves": out.waves, "sm_products": out.each * c["BN"] * c["BK"] / 32.0}, 0.0, s.moved_bytes)


def moved_work(gpu: Gpu, c: Tiles, s: MovedShape) -> Work:
    """A kernel that computes next to nothing: its programs and the values each of them reads."""
    programs = s.programs(c)
    out = shared_out(gpu, programs, c["num_warps"], np.full(len(c["BP"]), 64.0), np.zeros(len(c["BP"])))
    return _work(out, c, {"waves": out.waves}, 0.0, s.moved_bytes)
