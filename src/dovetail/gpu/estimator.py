"""FuseEstimator: how long a kernel with a tile lasts on a GPU, from its specification.

Compact DNNs 2024 (paper III) ranks fusions by the bytes they move. On GPUs that start a kernel in a microsecond, bytes are one
of several amounts that matter: waves of programs, dependent steps, instructions per multiprocessor, bytes from the second-level
cache and from memory. Every kernel states its amounts (`gpu/amounts.py`); what one of each costs was fitted to times measured
on an H200 (`specs/costs.toml`, written by bench/gpu_estimator.py). On other GPUs each cost is scaled by the one figure of the
specification it follows, so an estimate there is an extrapolation, good enough to decide what is worth timing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from math import ceil, inf
from typing import Any

Config = Mapping[str, int]
"""Tile sizes by the kernel's names, `num_warps` and `num_stages`."""
Amounts = Mapping[str, float]
FITTED_ON = "h200"
CANDIDATES = 6
"""Tiles of a kernel that are timed, the most promising first."""
RESERVED_SHARED = 1024
"""Bytes of shared memory every program takes for itself."""
FOLLOWS = {"launch": "launch", "memory": "memory", "cache": "cache"}
"""What a cost scales with; all other costs are clock cycles."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the estimate needs to know of a GPU."""

    name: str
    source: str
    multiprocessors: int
    clock_hz: float
    shared_bytes: int
    """Shared memory of a multiprocessor that one program may use."""
    registers: int
    warps: int
    """Registers and warps of a multiprocessor."""
    bytes_per_s: float
    """From and to device memory."""
    cache_bytes_per_s: float
    """From the second-level cache, over the whole chip."""
    cache_bytes: int
    launch_s: float
    flops: Mapping[str, float]
    """Products and sums per second by type."""

    def factor(self, cost: str) -> float:
        """How much dearer than on the GPU the costs were fitted on."""
        base = specification(FITTED_ON)
        match FOLLOWS.get(cost, "cycles"):
            case "launch":
                return self.launch_s / base.launch_s
            case "memory":
                return base.bytes_per_s / self.bytes_per_s
            case "cache":
                return base.cache_bytes_per_s / base.multiprocessors / (self.cache_bytes_per_s / self.multiprocessors)
        return base.clock_hz / self.clock_hz


@dataclass(frozen=True, slots=True)
class Programs:
    """How the programs of a launch share a GPU."""

    count: int
    waves: int
    """How many fill the chip one after another."""
    each: int
    """How many one multiprocessor computes."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel with a tile asks of a GPU; `amounts` is None where it does not fit."""

    amounts: Amounts | None
    flops: float
    """Products and sums on tiles, edges included."""
    moved_bytes: float
    """What must reach or leave device memory at least once."""


def _specs() -> Traversable:
    return resources.files("dovetail.gpu").joinpath("specs")


@cache
def specification(name: str) -> Gpu:
    """One of `specifications()`."""
    table: dict[str, Any] = tomllib.loads(_specs().joinpath(f"{name}.toml").read_text("utf-8"))
    return Gpu(**table)


def specifications() -> tuple[str, ...]:
    """Names of the GPUs with a specification."""
    files = (path.name for path in _specs().iterdir())
    return tuple(sorted(f.removesuffix(".toml") for f in files if f.endswith(".toml") and f != "costs.toml"))


@cache
def costs() -> Mapping[str, Mapping[str, float]]:
    """Seconds of one of each amount, by kernel, on the GPU they were fitted on."""
    table: dict[str, dict[str, float]] = tomllib.loads(_specs().joinpath("costs.toml").read_text("utf-8"))
    return table


def matching(name: str) -> Gpu | None:
    """The specification of a GPU by the name its driver gives it."""
    known = [specification(s) for s in specifications()]
    return next((g for g in known if g.name.removeprefix("NVIDIA ") in name), None)


def shared_out(gpu: Gpu, count: int, warps: int, registers: float, shared_bytes: float) -> Programs | None:
    """Waves of programs of some warps, registers per thread and shared memory; None where one does not fit."""
    if shared_bytes > gpu.shared_bytes:
        return None
    held = max(1, min(gpu.warps // warps, 32, int(gpu.registers // (warps * 32 * min(255.0, max(32.0, registers)))),
                      int(gpu.shared_bytes // max(shared_bytes, RESERVED_SHARED))))
    return Programs(count, ceil(count / (gpu.multiprocessors * held)), ceil(count / gpu.multiprocessors))


def seconds(gpu: Gpu, kernel: str, kind: str, work: Work) -> float:
    """Estimated time of a kernel; infinite where it does not fit."""
    if work.amounts is None:
        return inf
    each = costs()[kernel]
    spent = sum(each.get(name, 0.0) * gpu.factor(name) * amount for name, amount in work.amounts.items())
    rate = gpu.cache_bytes_per_s if work.moved_bytes < gpu.cache_bytes / 2 else gpu.bytes_per_s
    return max(spent, gpu.launch_s + max(work.flops / gpu.flops[kind], work.moved_bytes / rate))


def power(value: int, least: int = 16) -> int:
    """The next power of two, at least `least`."""
    return max(least, 1 << (value - 1).bit_length())
