"""What kernels need to know of a GPU: multiprocessors, their memory, bandwidths and rates; a TOML file each in platform/gpus."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any


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


def _files() -> Traversable:
    return resources.files("dovetail.platform").joinpath("gpus")


@cache
def specification(name: str) -> Gpu:
    """One of `specifications()`."""
    table: dict[str, Any] = tomllib.loads(_files().joinpath(f"{name}.toml").read_text("utf-8"))
    return Gpu(**table)


@cache
def specifications() -> tuple[str, ...]:
    """Names of the GPUs with a specification."""
    return tuple(sorted(path.name.removesuffix(".toml") for path in _files().iterdir() if path.name.endswith(".toml")))


def matching(name: str) -> Gpu | None:
    """The specification of a GPU by the name its driver gives it."""
    known = [specification(s) for s in specifications()]
    return next((g for g in known if g.name.removeprefix("NVIDIA ") in name), None)
