"""Non-negative least squares by active sets (Lawson and Hanson, Solving Least Squares Problems, chapter 23).

Models have a dozen terms and thousands of rows. One QR factorization leaves as many rows as terms, and everything after
works on those. NumPy alone, so that a measured machine can fit what it measured. On a dictionary of monomials every term means
something, positive by construction (`fit_dictionary`).
"""

from __future__ import annotations

import numpy as np

from dovetail.hardware.shares import Floats

TOLERANCE = 1e-11
"""Of the gradient, relative to columns and target, below which a coefficient stays zero."""
ROUNDS = 15
"""Re-weightings that turn least squares into least relative deviation, so that a few stalled rows do not bend the fit."""
FLOOR = 0.02
"""Relative deviation below which rows count alike."""


def least_squares(features: Floats, target: Floats) -> Floats:
    """The x >= 0 that minimises |features @ x - target|; columns that are zero get no weight."""
    norms = np.linalg.norm(features, axis=0)
    scale = np.where(norms > 0, norms, 1.0)
    triangle = np.asarray(np.linalg.qr(np.column_stack([features / scale, target]), mode="r"), dtype=np.float64)
    return _active_set(triangle[:, :-1], triangle[:, -1], norms > 0) / scale


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


def _active_set(features: Floats, target: Floats, usable: np.ndarray) -> Floats:
    count = features.shape[1]
    chosen = np.zeros(count, dtype=np.bool_)
    found = np.zeros(count)
    enough = TOLERANCE * max(float(np.linalg.norm(target)), np.finfo(np.float64).tiny)
    for _ in range(10 * count + 10):
        gradient = np.where(chosen | ~usable, -np.inf, features.T @ (target - features @ found))
        if gradient.max() <= enough:
            break
        entered = int(gradient.argmax())
        chosen[entered] = True
        kept = _feasible(features, target, found, chosen)
        if not chosen[entered]:  # rounding alone called for it: it can give nothing
            usable = usable & (np.arange(count) != entered)
        found = kept
    return found


def _feasible(features: Floats, target: Floats, found: Floats, chosen: np.ndarray) -> Floats:
    """The best solution on the chosen columns, which lose those that would have to become negative."""
    while chosen.any():
        best = np.zeros_like(found)
        best[chosen] = np.linalg.lstsq(features[:, chosen], target, rcond=None)[0]
        negative = chosen & (best <= 0)
        if not negative.any():
            return best
        ratios = found[negative] / np.maximum(found[negative] - best[negative], np.finfo(np.float64).tiny)
        found = found + min(1.0, float(ratios.min())) * (best - found)
        leaving = negative & (found <= 1e-15 * max(float(np.abs(found).max()), np.finfo(np.float64).tiny))
        chosen[leaving if leaving.any() else negative] = False
        found[~chosen] = 0.0
    return np.zeros_like(found)
