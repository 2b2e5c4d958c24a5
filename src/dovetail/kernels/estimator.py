"""FuseEstimator: how long a kernel with a tile lasts on a GPU, from its specification.

Compact DNNs 2024 (paper III) ranks fusions by the bytes they move. On GPUs that start a kernel in a microsecond, bytes are one
of several amounts that matter: waves of programs, dependent steps, instructions per multiprocessor, bytes from the second-level
cache and from memory. Every kernel states its amounts (`kernels/amounts.py`); what one of each costs was fitted to times measured
on an H200 (`costs.toml`, written by bench/gpu_estimator.py). On other GPUs each cost is scaled by the one figure of the
specification it follows, so an estimate there is an extrapolation, good enough to decide what is worth timing.

Tiles are judged by the array: one entry per tile, of one kernel or of many.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.platform.gpu_specification import Gpu, specification

Config = Mapping[str, int]
"""Tile sizes by the kernel's names, `num_warps` and `num_stages`."""
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Tiles = Mapping[str, Floats]
"""Several tiles: of every name an array with one entry each."""
Number = Any
"""A number, or an array with one entry per tile."""
FITTED_ON = "h200"
FITTED_KIND = "float16"
"""GPU and arithmetic whose times the costs were fitted to."""
CANDIDATES = 6
"""Tiles of a kernel that are timed, the most promising first."""
RESERVED_SHARED = 1024
"""Bytes of shared memory every program takes for itself."""
FOLLOWS = {"launch": "launch", "memory": "memory", "cache": "cache"}
"""What a cost scales with; all other costs are clock cycles."""


@dataclass(frozen=True, slots=True)
class Programs:
    """How the programs of a launch share a GPU, per tile."""

    waves: Floats
    """How many fill the chip one after another."""
    each: Floats
    """How many one multiprocessor computes."""
    fits: Flags
    """Whether one program fits a multiprocessor at all."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel asks of a GPU, per tile."""

    amounts: Mapping[str, Floats]
    flops: Number
    """Products and sums on tiles, edges included."""
    moved_bytes: Number
    """What must reach or leave device memory at least once."""
    fits: Flags


@cache
def _table() -> Mapping[str, Any]:
    text = resources.files("dovetail.kernels").joinpath("costs.toml").read_text("utf-8")
    table: dict[str, Any] = tomllib.loads(text)
    return table


@cache
def costs() -> Mapping[str, Mapping[str, float]]:
    """Seconds of one of each amount, by kernel, on the GPU they were fitted on."""
    return {kernel: each for kernel, each in _table().items() if kernel != "judged"}


@dataclass(frozen=True, slots=True)
class Judged:
    """How far estimates are from the times they were fitted to, as fractions.

    `error_median` is that of all tiles; `best_error_median` and `best_error_90` are the median and 90th percentile of the best
    tile of each kernel, which is what plans ask for. Kernels that are not `fitted` cost what their parts cost elsewhere.
    """

    fitted: tuple[str, ...]
    kernels: int
    tiles: int
    error_median: float
    best_error_median: float
    best_error_90: float


@cache
def judged() -> Judged:
    """The error of estimates where they were fitted."""
    found = _table()["judged"]
    return Judged(**{**found, "fitted": tuple(found["fitted"])})


def factor(gpu: Gpu, cost: str) -> float:
    """How much dearer a cost is on a GPU than on the one costs were fitted on."""
    base = specification(FITTED_ON)
    match FOLLOWS.get(cost, "cycles"):
        case "launch":
            return gpu.launch_s / base.launch_s
        case "memory":
            return base.bytes_per_s / gpu.bytes_per_s
        case "cache":
            return base.cache_bytes_per_s / base.multiprocessors / (gpu.cache_bytes_per_s / gpu.multiprocessors)
    return base.clock_hz / gpu.clock_hz


def tiles_of(configs: Sequence[Config]) -> Tiles:
    """Tiles as arrays; what some do not state is one."""
    names = dict.fromkeys(name for c in configs for name in c)
    return {name: np.array([c.get(name, 1) for c in configs], dtype=np.float64) for name in names}


def shared_out(gpu: Gpu, count: Number, warps: Number, registers: Number, shared_bytes: Number) -> Programs:
    """Waves of `count` programs of some warps, registers per thread and shared memory."""
    held = np.minimum(np.minimum(gpu.warps // warps, 32), np.minimum(
        gpu.registers // (warps * 32 * np.clip(registers, 32.0, 255.0)),
        gpu.shared_bytes // np.maximum(shared_bytes, RESERVED_SHARED)))
    return Programs(np.ceil(count / (gpu.multiprocessors * np.maximum(held, 1.0))), np.ceil(count / gpu.multiprocessors),
                    np.asarray(shared_bytes <= gpu.shared_bytes))


def seconds(gpu: Gpu, kernel: str, kind: str, work: Work, each: Mapping[str, float] | None = None) -> Floats:
    """Estimated time of every tile of a kernel; infinite where it does not fit. `each`: other costs than the shipped ones."""
    each = costs()[kernel] if each is None else each
    spent: Number = 0.0
    for name, amount in work.amounts.items():
        if each.get(name, 0.0) > 0:
            spent = spent + each[name] * factor(gpu, name) * amount
    rate = np.where(np.asarray(work.moved_bytes) < gpu.cache_bytes / 2, gpu.cache_bytes_per_s, gpu.bytes_per_s)
    least = gpu.launch_s + np.maximum(work.flops / gpu.flops[kind], work.moved_bytes / rate)
    return np.asarray(np.where(work.fits, np.maximum(spent, least), np.inf), dtype=np.float64)


def power(value: int, least: int = 16) -> int:
    """The next power of two, at least `least`."""
    return max(least, 1 << (value - 1).bit_length())
