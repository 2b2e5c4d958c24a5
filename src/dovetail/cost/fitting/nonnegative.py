"""Non-negative least squares by active sets (Lawson and Hanson, Solving Least Squares Problems, chapter 23).

Models have a dozen terms and thousands of rows. One QR factorization leaves as many rows as terms, and everything after
works on those. On a dictionary of monomials every term means something, positive by construction (`fit_dictionary`).
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import nnls

from dovetail.hardware.shares import Floats

ITERATIONS = 1_000
"""Of one fit: many times those of a dozen terms. Chosen, not measured."""
ROUNDS = 15
"""Re-weightings that turn least squares into least relative deviation, so that a few stalled rows do not bend the fit."""
FLOOR = 0.02
"""Relative deviation below which rows count alike."""


def least_squares(features: Floats, target: Floats) -> Floats:
    """The x >= 0 that minimises |features @ x - target|; columns that are zero get no weight."""
    norms = np.linalg.norm(features, axis=0)
    scale = np.where(norms > 0, norms, 1.0)
    triangle = np.asarray(np.linalg.qr(np.column_stack([features / scale, target]), mode="r"), dtype=np.float64)
    return np.asarray(nnls(triangle[:, :-1], triangle[:, -1], maxiter=ITERATIONS)[0] / scale, dtype=np.float64)


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
