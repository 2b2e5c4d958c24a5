"""A smoothed table of what a formula leaves over: Gaussian-process regression on the grid of measured levels.

Rows were measured on a grid, so what is wanted in the end is one number per grid point. The covariance of two
points is a product over the axes of (1 + strength * exp(-distance / length)) / (1 + strength): points that share
three levels inform one another even where the fourth jumps, as it does when a library changes its algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dovetail.cost.estimate import Floats, Ints

OUTLIER = 1.5
"""Rows further off than this many deviations of the noise count less, in proportion."""


@dataclass(frozen=True, slots=True)
class Smoothing:
    """How far a row's deviation tells of its neighbours.

    `lengths` are in logarithms of each level, `strength` weighs one axis against what all share, `spread` is the
    variance of the deviations, `noise` that of a single row; `noise_per_weight` adds noise to layers of few weights.
    """

    lengths: tuple[float, ...]
    strength: float
    spread: float
    noise: float
    noise_per_weight: float = 0.0
    rounds: int = 3


def fit_table(index: Ints, deviation: Floats, weights: Floats, levels: tuple[Floats, ...], smoothing: Smoothing,
              wanted: Ints) -> Floats:
    """Smoothed deviations at the `wanted` grid points from those measured at `index`; both list level numbers by row.

    `weights` counts each row's weights, for the noise that depends on them.
    """
    middle = float(np.median(deviation))
    rest = deviation - middle
    axes = [_axis(np.log(values), length, smoothing.strength) for values, length in zip(levels, smoothing.lengths, strict=True)]
    covariance = smoothing.spread * _gram(index, index, axes)
    noise = smoothing.noise + smoothing.noise_per_weight / weights
    trust = np.ones(len(rest))
    answer = np.zeros(len(rest))
    for _ in range(smoothing.rounds):
        system = covariance.copy()
        system[np.diag_indices_from(system)] += noise / trust
        answer = cho_solve(cho_factor(system, lower=True, overwrite_a=True, check_finite=False), rest, check_finite=False)
        left = noise / trust * answer  # what the smooth part does not explain of each row
        trust = np.minimum(1.0, OUTLIER * np.sqrt(noise) / np.maximum(np.abs(left), 1e-12))
    return np.asarray(middle + smoothing.spread * _gram(wanted, index, axes) @ answer, dtype=np.float64)


def _axis(logs: Floats, length: float, strength: float) -> Floats:
    """Covariance between the levels of one axis."""
    near = np.exp(-np.abs(logs[:, None] - logs[None, :]) / length)
    return np.asarray((1.0 + strength * near) / (1.0 + strength), dtype=np.float64)


def _gram(first: Ints, second: Ints, axes: list[Floats]) -> Floats:
    """Covariance between two lists of grid points: the product over their axes."""
    product = np.ones((len(first), len(second)))
    for column, covariance in enumerate(axes):
        product *= covariance[np.ix_(first[:, column], second[:, column])]
    return product
