"""What kernels need to know of a GPU: multiprocessors, their memory, bandwidths and rates; a TOML file each in platform/gpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from dovetail.platform.schema import shipped, shipped_names


@dataclass(frozen=True, slots=True)
class Gpu:
    """The specification of a GPU."""

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


@cache
def specification(name: str) -> Gpu:
    """One of `specifications()`."""
    return Gpu(**shipped("gpus", name).values)


@cache
def specifications() -> tuple[str, ...]:
    """Names of the GPUs with a specification."""
    return shipped_names("gpus")


def matching(name: str) -> Gpu | None:
    """The specification of a GPU by the name its driver gives it."""
    known = [specification(s) for s in specifications()]
    return next((g for g in known if g.name.removeprefix("NVIDIA ") in name), None)
