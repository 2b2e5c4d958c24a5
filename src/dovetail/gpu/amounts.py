"""What a kernel with a tile asks of a GPU: the amounts `gpu/estimator.py` puts a price on.

Names: `launch` once; `waves`, `steps`, `exposed`, `chain`, `depth`, `blocks` count what one wave of programs waits for;
`cache` and `memory` are bytes; all others are instructions of one multiprocessor (`sm_...`) or of one thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from dovetail.gpu.estimator import Config, Gpu, Work, shared_out

SECTOR = 32
"""Bytes that come from the cache at least."""
VECTOR = 16
"""Bytes a thread loads at once."""
NO_ROOM = Work(None, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a layer or module: pixels, channels, and bytes per value."""

    element: int
    moved_bytes: float
    """Inputs, weights and outputs, once."""


def conv_work(gpu: Gpu, c: Config, programs: int, depth: int, taps: int, scattered: bool, shape: Shape) -> Work:
    """A product of matrices; `scattered` inputs come value by value."""
    warps, threads, element = c["num_warps"], 32 * c["num_warps"], shape.element
    sums = c.get("SUMS", 1)
    steps = ceil(depth / c["BK"] / sums) * taps
    tile = sums * (c["BP"] + c["BN"]) * c["BK"] * element
    results = c["BP"] * c["BN"] / threads
    loaded = tile / 4 / threads if steps == 1 else 0.0
    out = shared_out(gpu, programs, warps, 1.2 * results + 40 + loaded, tile * min(c["num_stages"], steps))
    if out is None:
        return NO_ROOM
    vector = VECTOR / element
    loads = sums * (c["BP"] * c["BK"] * (vector if scattered else 1.0) + c["BK"] * c["BN"]) / threads / vector
    sectors = sums * c["BK"] * max(c["BN"] * element, SECTOR) + sums * c["BP"] * max(c["BK"] * element, SECTOR)
    amounts = {
        "launch": 1.0, "steps": out.waves * steps, "exposed": out.waves * max(1.0, steps / max(1, c["num_stages"] - 1)),
        "cache": out.each * sectors * steps, "sm_loads": out.each * loads * steps * warps,
        "sm_results": out.each * results * warps, "memory": shape.moved_bytes,
        "depth": out.waves * c["BK"], "programs": programs, "wide": out.waves * (warps >= 8),
        "chain": out.waves * min(c["BK"] * steps, 2 * depth * taps) / warps}
    return Work(amounts, 2.0 * programs * sums * c["BP"] * c["BN"] * c["BK"] * steps, shape.moved_bytes)


def depthwise_work(gpu: Gpu, c: Config, programs: int, kernel: tuple[int, int], rows: int, shape: Shape) -> Work:
    """One filter per channel; `rows` of input serve all output rows of a program."""
    warps, r, taps = c["num_warps"], c["R"], kernel[0] * kernel[1]
    each = c["TW"] * c["BC"] / (32 * warps)
    out = shared_out(gpu, programs, warps, 1.2 * r * each + 4 * each + 24, 0)
    assert out is not None
    loads = rows * kernel[1] * ceil(each * shape.element / VECTOR)
    converted, products = rows * kernel[1] * each, r * taps * each
    amounts = {
        "launch": 1.0, "waves": out.waves, "sm_loads": out.each * loads * warps, "products": out.waves * products,
        "sm_products": out.each * products * warps, "converted": out.waves * converted,
        "sm_converted": out.each * converted * warps, "sm_weights": out.each * r * taps * warps, "memory": shape.moved_bytes,
        "programs": programs, "sm_warps": out.each * warps}
    return Work(amounts, 0.0, shape.moved_bytes)


@dataclass(frozen=True, slots=True)
class Stages:
    """A fused module: channels between its stages, taps, and which stages there are."""

    inner: int
    taps: int
    front: bool
    middle: bool
    back: bool


def fused_work(gpu: Gpu, c: Config, programs: int, stages: Stages, shape: Shape) -> Work:
    warps, threads, element = c["num_warps"], 32 * c["num_warps"], shape.element
    blocks = ceil(stages.inner / c["BE"]) if stages.back else 1
    rows = c["BP"] * c["T"] if stages.front else 0
    depth, width = c["BC"] if stages.front else 0, c["BN"] if stages.back else 0
    shared = (rows * depth + 2 * (depth + width) * c["BE"]) * element + (rows * c["BE"] * 4 if c["T"] > 1 else 0)
    out = shared_out(gpu, programs, warps, 255.0 if c["T"] > 1 else 128.0, shared)
    if out is None:
        return NO_ROOM
    values = (rows if stages.front else c["BP"] * stages.taps) * c["BE"] / threads
    vector = VECTOR / element
    products = (rows * depth + c["BP"] * width) * c["BE"]
    amounts = {
        "launch": 1.0, "blocks": out.waves * blocks, "sm_values": out.each * blocks * values * warps,
        "sm_inputs": out.each * rows * depth / threads / vector * warps,
        "sm_weights": out.each * blocks * (depth + width) * c["BE"] / threads / vector * warps,
        "weights": out.waves * blocks * (depth + width) * c["BE"] / threads / vector,
        "sm_matrix": out.each * blocks * products / 2048, "memory": shape.moved_bytes,
        "recomputed": out.waves * blocks * values * (stages.front and stages.middle)}
    return Work(amounts, 2.0 * programs * blocks * products, shape.moved_bytes)


def banded_work(gpu: Gpu, c: Config, programs: int, taps: int, shape: Shape) -> Work:
    """A pointwise and a depthwise layer in bands: a tap asks every lane that may hold its value."""
    warps, threads, vector = c["num_warps"], 32 * c["num_warps"], VECTOR / shape.element
    inputs, weights = c["BR"] * c["BC"], c["BC"] * c["BE"]
    registers = 2.0 * taps + 3.0 * c["BR"] * c["BE"] / threads + 48
    out = shared_out(gpu, programs, warps, registers, (inputs + weights) * shape.element)
    if out is None:
        return NO_ROOM
    fetched = taps * c["BO"] * c["BE"] / threads
    products = c["BR"] * c["BC"] * c["BE"]
    amounts = {
        "launch": 1.0, "waves": out.waves, "sm_shuffles": out.each * warps * fetched * ceil(c["BR"] / 32),
        "sm_values": out.each * warps * fetched, "sm_inputs": out.each * warps * inputs / threads / vector,
        "sm_weights": out.each * warps * weights / threads / vector, "sm_matrix": out.each * products / 2048,
        "memory": shape.moved_bytes}
    return Work(amounts, 2.0 * programs * products, shape.moved_bytes)


def vector_work(gpu: Gpu, c: Config, programs: int, shape: Shape) -> Work:
    out = shared_out(gpu, programs, c["num_warps"], 1.5 * c["BN"] * c["BK"] / (32 * c["num_warps"]) + 24, 0)
    assert out is not None
    amounts: Mapping[str, float] = {
        "launch": 1.0, "waves": out.waves, "sm_products": out.each * c["BN"] * c["BK"] / 32.0, "memory": shape.moved_bytes}
    return Work(amounts, 0.0, shape.moved_bytes)
