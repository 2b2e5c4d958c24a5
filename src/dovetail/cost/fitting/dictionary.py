"""Non-negative least squares on a dictionary of monomials: every term means something, positive by construction."""

from __future__ import annotations

import numpy as np

from dovetail.cost.fitting.nonnegative import least_squares
from dovetail.hardware.shares import Floats

ROUNDS = 15
"""Re-weightings that turn least squares into least relative deviation, so that a few stalled rows do not bend the fit."""
FLOOR = 0.02
"""Relative deviation below which rows count alike."""


def fit_dictionary(features: Floats, target: Floats) -> Floats:
    """Non-negative coefficients that minimise the mean relative deviation |features @ x - target| / target."""
    scaled = features / target[:, None]
    scale = np.maximum(scaled.max(axis=0), np.finfo(np.float64).tiny)
    weight = np.ones(len(target))
    coefficients = np.zeros(features.shape[1])
    for _ in range(ROUNDS):
        coefficients = least_squares(scaled / scale * weight[:, None], weight) / scale
        deviation = np.abs(scaled @ coefficients - 1.0)
        weight = 1.0 / np.sqrt(np.maximum(deviation, FLOOR))
    return np.asarray(coefficients, dtype=np.float64)
