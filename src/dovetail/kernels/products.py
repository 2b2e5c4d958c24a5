"""Products of matrices without matrix units, as in float32: the share of a GPU's rate that they reach.

Threads multiply what they read from shared memory. The more results a thread has, the more products a value serves; the more of
them Triton writes down one after another, the less an instruction cache holds; eight warps wait for less than four. Shares were
fitted to times of tiles on one GPU by bench/gpu_estimator.py (products.toml says how); of GPUs with other multiprocessors
they are extrapolations, as all costs are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEAST = 0.1
"""The least share: what is below was not measured."""
MOST = 0.9
"""The largest share: what is above was not measured."""
IN_CACHE = 1024
"""Products of a thread in a row from which on each doubling counts (chosen for the fit)."""
SIZES = ("BP", "BN", "BK", "num_warps")
"""What makes the size of a tile."""
Shares = Mapping[str, Mapping[str, float]]
"""Of every kernel, the logarithm of the share that is reached (`level`), and what adds to it by names of `features`."""


@cache
def shipped(file: str) -> Mapping[str, Any]:
    """A table of fitted numbers that comes with the package."""
    found: dict[str, Any] = tomllib.loads(resources.files("dovetail.kernels").joinpath(file).read_text("utf-8"))
    return found


def shares() -> Shares:
    """Those that come with the package."""
    found: Shares = shipped("products.toml")["shares"]
    return found


def features(tiles: Mapping[str, Floats]) -> dict[str, Floats]:
    """What the share of a product's tile depends on, counted in doublings."""
    results = tiles["BP"] * tiles["BN"] / (32 * tiles["num_warps"])
    aspect = np.log2(tiles["BP"] / tiles["BN"])
    return {"results": np.log2(results / 32), "warps": np.log2(tiles["num_warps"] / 4),
            "depth": np.log2(tiles["BK"] / 32), "aspect": aspect, "aspect_squared": aspect ** 2,
            "in_a_row": np.log2(np.maximum(results * tiles["BK"] / IN_CACHE, 1.0))}


def reached(kernel: str, tiles: Mapping[str, Floats], other: Shares | None = None) -> Floats:
    """The share of a GPU's rate that a kernel's products reach, per tile; all of it where nothing is known."""
    found = (shares() if other is None else other).get(kernel)
    if found is None:
        return np.ones(1)
    known = features(tiles) if len(found) > 1 else {}
    added = found["level"] + sum(weight * known[name] for name, weight in found.items() if name != "level")
    return np.asarray(np.clip(np.exp(added), LEAST, MOST), dtype=np.float64)


def measured(kernel: str, tiles: Mapping[str, Floats]) -> NDArray[np.bool_]:
    """Which tiles have sizes that were timed often: of others, shares are extrapolated."""
    return np.isin(sizes_of(tiles), shipped("products.toml")["timed"][kernel])


def sizes_of(tiles: Mapping[str, Floats]) -> list[str]:
    """SIZES of every tile."""
    return [" ".join(str(int(size)) for size in one) for one in zip(*(tiles[name] for name in SIZES), strict=True)]
