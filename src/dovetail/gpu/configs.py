"""Tiles of every kernel, the most promising first, by a model of time on a GPU.

The model (FuseEstimator of Compact DNNs 2024, done right): a kernel lasts a launch, then as many waves of programs as fit on the
chip, each the longest of moving its bytes, computing its products, and waiting along its chain of dependent steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

Config = Mapping[str, int]
"""Tile sizes by the kernel's names, `num_warps` and `num_stages`."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the model needs to know of a GPU."""

    name: str
    multiprocessors: int
    shared_bytes: int
    """Shared memory one program may use."""
    bytes_per_s: float
    """From and to device memory."""
    cache_bytes_per_s: float
    """From the second-level cache, over the whole chip."""
    cache_bytes: int
    flops: Mapping[str, float]
    """Products and sums per second on matrix units by type, and `plain` on the others."""
    launch_s: float
    step_s: float
    """One dependent step of a loop: load, wait, multiply."""


H200 = Gpu("NVIDIA H200", 132, 232_448, 4.3e12, 5.5e12, 60 << 20,
           {"float16": 8e14, "tf32": 4e14, "float32": 6e13, "int8": 1.6e15, "plain": 3e13}, 0.9e-6, 0.11e-6)


@dataclass(frozen=True, slots=True)
class Work:
    """What one configuration asks of a GPU."""

    programs: int
    bytes_each: float
    flops_each: float
    plain_each: float
    """Instructions of single values."""
    steps: float
    shared_bytes: float
    warps: int
    total_bytes: float
    """What must reach device memory at least once."""


def seconds(gpu: Gpu, kind: str, work: Work) -> float:
    """Estimated time of a kernel; infinite where it does not fit."""
    if work.shared_bytes > gpu.shared_bytes:
        return float("inf")
    resident = max(1, min(int(gpu.shared_bytes // max(work.shared_bytes, 1.0)), 48 // work.warps, 8))
    beside = gpu.multiprocessors * min(resident, ceil(work.programs / gpu.multiprocessors))
    waves = ceil(work.programs / beside)
    each = max(work.bytes_each * beside / gpu.cache_bytes_per_s, work.flops_each * beside / gpu.flops[kind],
               work.plain_each * beside / gpu.flops["plain"], work.steps * gpu.step_s)
    floor = work.total_bytes / (gpu.cache_bytes_per_s if work.total_bytes < gpu.cache_bytes / 2 else gpu.bytes_per_s)
    return gpu.launch_s + max(waves * each + gpu.step_s, floor)


def power(value: int, least: int = 16) -> int:
    """The next power of two, at least `least`."""
    return max(least, 1 << (value - 1).bit_length())
