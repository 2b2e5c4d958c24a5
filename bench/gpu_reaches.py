"""How far everything known of tiles reaches on a surface (bench/gpu_surface.py), learned from the timed tiles themselves.

Two tiles that differ in what hardly matters have much to say about each other, those that differ in what matters have not. So
every number known of tiles has a length of its own, and with them the height of the surface and its noise: those that make the
times likeliest (marginal likelihood), held close to one length for all. Nothing is learned by how well tiles are chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.kernels.estimator import Floats
from dovetail.kernels.second_look import SHARE, WIDER, FeatureScale, falling, squared

STEPS, HELD, HELD_HEIGHT, TILES = 30, 0.02, 0.004, 1000
"""Steps of the search; what weighs against lengths, and against height and noise, other than those it begins with; tiles it goes
by, of kernels taken at random: a step takes the cube of them."""
FARTHEST, LEAST, MOST = 3.0, -1.6, 1.6
"""Bounds of logarithms of lengths, and of height and noise: timing itself has a noise of one per cent."""


@dataclass(frozen=True)
class Sample:
    """Tiles as places on a surface to begin with: what each loses, apart from the mean of its kernel.

    `together` is what tiles of one kernel have in common; `height` and `noise` are variances to begin with.
    """

    scale: FeatureScale
    places: Floats
    apart: Floats
    together: Floats
    height: float
    noise: Floats


def taken(owner: Any, seed: int = 0) -> Any:
    """Which tiles: all of kernels taken at random, as many as are gone by."""
    counts = np.bincount(owner)
    order = np.random.default_rng(seed).permutation(len(counts))
    return np.isin(owner, order[np.cumsum(counts[order]) <= max(TILES, counts[order[0]])])


def learned(sample: Sample) -> tuple[Floats, float, float]:
    """What factors, height and noise (standard deviations) are to be multiplied by."""
    from scipy.optimize import minimize
    bounds = [*[(-FARTHEST, FARTHEST)] * len(sample.scale.names), (LEAST, MOST), (LEAST, MOST)]
    found = minimize(lambda tried: unlikely(sample, tried), np.zeros(len(bounds)), jac=True, method="L-BFGS-B", bounds=bounds,
                     options={"maxiter": STEPS}).x
    return np.exp(found[:-2]), float(np.exp(found[-2])), float(np.exp(found[-1]))


def unlikely(sample: Sample, tried: Floats) -> tuple[float, Floats]:
    """How unlikely the times of a tile are with tried logarithms of factors, height and noise, and the gradient of that."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.linalg.lapack import dpotri
    own, count, of_layer = sample.places * np.exp(tried[:-2]), len(sample.apart), sample.scale.of_layer
    height, noise = sample.height * np.exp(2 * tried[-2]), sample.noise * np.exp(2 * tried[-1])
    tiles, layers = (squared(own[:, some], own[:, some]) for some in (~of_layer, of_layer))
    wide, near, alike = falling(tiles / WIDER**2), falling(tiles), falling(layers)
    smooth = height * (SHARE * wide + near * alike)
    lower = cho_factor(smooth + sample.together + np.diag(noise), lower=True, overwrite_a=True, check_finite=False)
    weights = cho_solve(lower, sample.apart)
    below = np.tril(dpotri(lower[0], lower=1)[0])
    moves = (below + np.tril(below, -1).T - np.outer(weights, weights)) / (2 * count)  # by every covariance
    slopes = np.empty(len(tried))
    by_tiles = moves * height * (SHARE / WIDER**2 * _slope(tiles / WIDER**2) + _slope(tiles) * alike)
    for some, moved in ((~of_layer, by_tiles), (of_layer, moves * height * near * _slope(layers))):
        each = own[:, some]
        slopes[:-2][some] = 4 * ((each**2 * moved.sum(1)[:, None]).sum(0) - (each * (moved @ each)).sum(0))
    slopes[-2:] = 2 * (moves * smooth).sum(), 2 * (np.diag(moves) * noise).sum()
    held = np.array([*[HELD / len(tried[:-2])] * len(tried[:-2]), HELD_HEIGHT, HELD_HEIGHT])
    value = (sample.apart @ weights / 2 + np.log(np.diag(lower[0])).sum()) / count
    return float(value + held @ tried**2), slopes + 2 * held * tried


def _slope(squares: Floats) -> Floats:
    """Of `falling`, by the square of the distance."""
    return np.asarray(-1.5 * np.exp(-np.sqrt(3 * squares)), dtype=np.float64)
