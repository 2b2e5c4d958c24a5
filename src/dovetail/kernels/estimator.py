"""FuseEstimator: how long a kernel with a tile lasts on a GPU, from its specification.

Compact DNNs 2024 (paper III) ranks fusions by the bytes they move. On GPUs that start a kernel in a microsecond, bytes are one
of several amounts that matter: waves of programs, dependent steps, instructions per multiprocessor, bytes from the second-level
cache and from memory. Every kernel states its amounts (`work` in its file); what one of each costs was fitted to times measured
on an H200 (`costs.toml`, written by bench/gpu_estimator.py). On other GPUs each cost is scaled by the one figure of the
specification it follows, so an estimate there is an extrapolation, good enough to decide what is worth timing.

Tiles are judged by the array: one entry per tile, of one kernel or of many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.kernels.products import Shares, reached, shipped
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
"""GPU whose times the costs were fitted to."""
FITTED_KIND = "float16"
"""Their arithmetic."""
CANDIDATES = 6
"""Tiles of a kernel that are timed, the most promising first (chosen; see docs/method/gpu-estimator.md)."""
WITHOUT_UNITS = ("float32",)
"""Arithmetics whose products no matrix unit takes."""
MOST_IN_A_ROW = 6144
"""How many of these a thread may have in a row: chosen, since Triton writes down each, measured at a thousand in a second."""
RESERVED_SHARED = 1024
"""Bytes of shared memory every program takes for itself."""
SECTOR = 32
"""Bytes that come from the cache at least."""
VECTOR = 16
"""Bytes a thread loads at once."""
BUSY = ("cache", "weights", "programs")
"""Amounts that keep a multiprocessor busy, besides those called after it (`sm_...`); others, but bytes, are waited for."""


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
class KernelWork:
    """What a kernel asks of a GPU, per tile."""

    amounts: Mapping[str, Floats]
    tiles: Tiles
    flops: Number
    """Products and sums on tiles, edges included."""
    moved_bytes: Number
    """What must reach or leave device memory at least once."""
    fits: Flags
    unrolled: Number = 0.0
    """Products of a thread that follow each other without a loop where no matrix unit takes them."""
    busiest_flops: Number = 0.0
    """Those of the multiprocessor that has most of them."""


def work_from(out: Programs, c: Tiles, amounts: dict[str, Number], flops: Number, moved_bytes: Number,
              products: Number = 0.0, busiest: Number = 0.0) -> KernelWork:
    """What programs with tiles ask for.

    Names of amounts: `launch` once; `waves`, `steps`, `exposed`, `chain`, `depth`, `blocks` count what one wave of programs waits
    for; `cache` and `memory` are bytes; all others are instructions of one multiprocessor (`sm_...`) or of one thread.
    `products`: those of a program's matrices that follow each other without a loop; `busiest`: flops of one multiprocessor.
    """
    return KernelWork({"launch": np.ones(len(out.waves)), **amounts, "memory": moved_bytes}, c, flops, moved_bytes, out.fits,
                      products / (32 * c["num_warps"]), busiest)


@dataclass(frozen=True, slots=True)
class Factors:
    """How much dearer a tile is than its amounts say: by sizes of tiles, or products of them (`BP*BN`), a table each."""

    tables: Mapping[str, Mapping[str, float]]

    def of(self, tiles: Tiles) -> Number:
        """The factor of every tile; one where a table does not know its sizes."""
        found: Number = 1.0
        for names, table in self.tables.items():
            sizes = np.array([[float(n) for n in key.split()] for key in table]).T
            known = _code(list(sizes))
            order = np.argsort(known)
            asked = _code([np.prod([tiles.get(n, np.ones(1)) for n in name.split("*")], axis=0) for name in names.split()])
            at = order[np.minimum(np.searchsorted(known[order], asked), len(order) - 1)]
            found = found * np.where(known[at] == asked, np.array(list(table.values()))[at], 1.0)
        return found


def _code(sizes: Sequence[Floats]) -> Floats:
    """Several sizes below 2**16 as one number."""
    return np.asarray(sum(size * 2.0 ** (16 * i) for i, size in enumerate(sizes)), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of one of each amount of a kernel, on the GPU they were fitted on.

    What is waited for, what keeps multiprocessors busy and what moves bytes overlap: the time beyond a launch is the norm of the
    three with exponent `overlap` (1: one after another; more: the longest counts).
    """

    each: Mapping[str, float]
    overlap: float = 1.0
    waits: Factors = Factors({})
    busy: Factors = Factors({})


@cache
def costs() -> Mapping[str, Costs]:
    """What the amounts of every kernel cost."""
    return {kernel: costs_from(held) for kernel, held in shipped("costs.toml").items() if kernel != "judged"}


def costs_from(held: Mapping[str, Any]) -> Costs:
    """The costs of a kernel as costs.toml has them."""
    each = {name: float(cost) for name, cost in held.items() if name not in ("overlap", "waits", "busy")}
    return Costs(each, float(held.get("overlap", 1.0)), Factors(held.get("waits", {})), Factors(held.get("busy", {})))


@dataclass(frozen=True, slots=True)
class FitErrors:
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
def judged() -> FitErrors:
    """The error of estimates where they were fitted."""
    found = shipped("costs.toml")["judged"]
    return FitErrors(**{**found, "fitted": tuple(found["fitted"])})


def factor(gpu: Gpu, cost: str) -> float:
    """How much dearer a cost is on a GPU than on the one costs were fitted on; most costs are clock cycles."""
    base = specification(FITTED_ON)
    match cost:
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


def part_of(amount: str) -> str:
    """What an amount is part of: the launch, bytes, what keeps multiprocessors busy, what is waited for."""
    if amount in ("launch", "memory"):
        return amount
    return "busy" if amount.startswith("sm_") or amount in BUSY else "waits"


def seconds(gpu: Gpu, kernel: str, kind: str, work: KernelWork, own: Costs | None = None, shares: Shares | None = None) -> Floats:
    """Estimated time of every tile of a kernel; infinite where it does not fit. `own`, `shares`: others than the shipped ones."""
    own = costs()[kernel] if own is None else own
    parts: dict[str, Number] = {"launch": 0.0, "memory": 0.0, "waits": 0.0, "busy": 0.0}
    for name, amount in work.amounts.items():
        if own.each.get(name, 0.0) > 0:
            parts[part_of(name)] = parts[part_of(name)] + own.each[name] * factor(gpu, name) * amount
    p = own.overlap
    spent = parts["launch"] + (parts["memory"] ** p + (parts["waits"] * own.waits.of(work.tiles)) ** p
                               + (parts["busy"] * own.busy.of(work.tiles)) ** p) ** (1 / p)
    rate = np.where(np.asarray(work.moved_bytes) < gpu.cache_bytes / 2, gpu.cache_bytes_per_s, gpu.bytes_per_s)
    least = gpu.launch_s + np.maximum(products_s(gpu, kernel, kind, work, shares), work.moved_bytes / rate)
    fits = work.fits & (np.asarray(work.unrolled) <= (MOST_IN_A_ROW if kind in WITHOUT_UNITS else np.inf))
    return np.asarray(np.where(fits, np.maximum(spent, least), np.inf), dtype=np.float64)


def products_s(gpu: Gpu, kernel: str, kind: str, work: KernelWork, shares: Shares | None = None) -> Number:
    """Seconds of a kernel's products at least: at the GPU's rate, without matrix units at the share of it that was measured."""
    if kind not in WITHOUT_UNITS:
        return work.flops / gpu.flops[FITTED_KIND if kind == "bfloat16" else kind]
    return np.maximum(work.flops, work.busiest_flops * gpu.multiprocessors) / gpu.flops[kind] / reached(
        kernel, work.tiles, shares)


def power(value: int, least: int = 16) -> int:
    """The next power of two, at least `least`."""
    return max(least, 1 << (value - 1).bit_length())
