"""Surfaces that look again at promising tiles (`kernels/second_look.py`), fitted: Gaussian processes through timed tiles.

What a tile loses against the fastest of its kernel, in logarithms, is taken for a value of that kernel which nobody asks for, a
smooth function of what is known of tiles and layers, and noise, the more of it the slower a tile is: nobody chooses those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dovetail.kernels.calls import Call
from dovetail.kernels.estimator import Config, Floats
from dovetail.kernels.second_look import FINE, UNIT, FeatureScale, Surface, nearness
from gpu_reaches import Sample, learned, taken
from gpu_trees import Table

REACH, LAYERS_REACH = 0.7, 2.0
"""How many standard deviations apart, in the mean of what is known of them, tiles and layers still have something to say: where
learning begins (bench/gpu_reaches.py)."""
HEIGHT, NOISE, FAST, WORST, APART = 0.2, 0.05, 1.5, 1.0, 0.5
"""Standard deviations of losses and of noise at the fastest tile, where learning begins; how noise grows with what a tile loses,
the worst loss that counts, and the standard deviation of a kernel's own value."""
ONE_LENGTH = ("conv",)
"""Kernels whose reaches are not learned: with so many tiles, lengths of their own made no choice better."""
Timed = tuple[Call, Sequence[tuple[float, Config]]]


def scaled(table: Table) -> FeatureScale:
    """What tells tiles apart, or layers, each with the same weight: nothing is learned yet."""
    kernels = int(table.owner.max()) + 1
    least, most = np.full((kernels, table.known.shape[1]), np.inf), np.full((kernels, table.known.shape[1]), -np.inf)
    np.minimum.at(least, table.owner, table.known)
    np.maximum.at(most, table.owner, table.known)
    of_layer, used = (most - least).max(0) < 1e-9, np.ptp(table.known, axis=0) > 1e-9
    reach = np.where(of_layer, LAYERS_REACH * np.sqrt((of_layer & used).sum()), REACH * np.sqrt((~of_layer & used).sum()))
    return FeatureScale(tuple(n for n, own in zip(table.names, used, strict=True) if own), table.known.mean(0)[used].round(4),
                 table.known.std(0)[used].round(4), (1 / reach[used]).round(4), of_layer[used])


def surface_through(table: Table, kernel: str) -> Surface:
    """The surface that timed tiles make likeliest, with the reaches that make them likeliest where these are learned."""
    from scipy.linalg import cho_factor, cho_solve
    scale = scaled(table)
    columns, lost = table.known[:, [table.names.index(n) for n in scale.names]], np.minimum(table.lost, WORST)
    apart = lost - (np.bincount(table.owner, lost) / np.bincount(table.owner))[table.owner]
    noise, height = (NOISE * np.exp(FAST * lost)) ** 2, HEIGHT**2
    if kernel not in ONE_LENGTH:
        some = taken(table.owner)
        factor, higher, noisier = learned(Sample(scale, scale.places(columns[some]), apart[some], of_kernels(table.owner[some]),
                                                 height, noise[some]))
        scale, height, noise = replace(scale, factor=(scale.factor * factor).round(5)), height * higher**2, noise * noisier**2
    places = scale.places(columns)
    together = height * nearness(scale.of_layer, places, places) + of_kernels(table.owner)
    together[np.diag_indices(len(lost))] += noise
    weights = cho_solve(cho_factor(together, lower=True, overwrite_a=True, check_finite=False), apart)
    return Surface(scale, places, height * weights)


def of_kernels(owner: Any) -> Floats:
    """What tiles of one kernel have in common: its own value."""
    return np.asarray(APART**2 * (owner[:, None] == owner[None]), dtype=np.float64)


def stored(surface: Surface, found: Sequence[Timed], estimates: Floats) -> dict[str, Any]:
    """A surface as forests.json has it; `estimates`: logarithms (base 2) of estimates over the least."""
    scale, sizes = surface.scale, list(dict.fromkeys(name for _, times in found for _, tile in times for name in tile))
    rows = [tuple(tile.get(name, 1) for name in sizes) for _, times in found for _, tile in times]
    tiles = sorted(set(rows))
    number = {tile: i for i, tile in enumerate(tiles)}
    return {"names": scale.names, "centre": scale.centre.tolist(), "deviation": scale.deviation.tolist(),
            "factor": scale.factor.tolist(), "of_layer": scale.of_layer.astype(int).tolist(),
            "shapes": [[int(v) for v in call.shape] for call, _ in found], "counts": [len(times) for _, times in found],
            "sizes": sizes, "tiles": tiles, "timed": [number[row] for row in rows],
            "estimates": np.rint(estimates / FINE).astype(int).tolist(),
            "weights": np.rint(surface.weights / UNIT).astype(int).tolist()}


def fitted_surface(table: Table, kernel: str, found: Sequence[Timed]) -> dict[str, Any]:
    """The same at once."""
    return stored(surface_through(table, kernel), found, table.known[:, table.names.index("estimate")])
