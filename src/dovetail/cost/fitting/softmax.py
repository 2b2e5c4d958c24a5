"""Softmax-affine regression in log space: a posynomial with real exponents, least mean relative deviation.

log f(x) = log sum_k exp(b_k + a_k log x) is convex in log x and smooth; Levenberg-Marquardt steps on re-weighted
residuals find a local optimum from each of a few seeded starts (Hoburg, Kirschen, Abbeel: Data fitting with
geometric-programming-compatible softmax functions, 2016, names the family).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.platform.quantity import Posynomial

STARTS = 2
STEPS = (60, 100)
"""Steps towards least deviation of logarithms, then of ratios, which is what errors are stated in."""
SMOOTHING = 0.02
"""Deviation below which the absolute value is rounded off."""
STALLED = 6
"""Steps in a row that gain less than 1e-4 before a start is left."""


def fit_softmax(logs: Floats, target: Floats, terms: int, seed: int = 0) -> Posynomial:
    """The posynomial of `terms` monomials that deviates least from `target` at points given as logarithms."""
    centre, scale = logs.mean(axis=0), np.maximum(logs.std(axis=0), 1e-9)
    points, values = (logs - centre) / scale, np.log(target)
    design = np.c_[np.ones(len(points)), points]
    plane = np.linalg.lstsq(design, values, rcond=None)[0]
    random = np.random.default_rng(seed)
    found: list[tuple[float, Floats]] = []
    for _ in range(STARTS):
        start = plane + random.normal(0.0, 0.7, (terms, len(plane)))
        start[:, 0] -= np.log(terms)
        near, _ = _descend(design, values, start, _difference, STEPS[0])
        best, loss = _descend(design, values, near, _ratio, STEPS[1])
        found.append((loss, best))
    plane = min(found, key=lambda f: f[0])[1]
    exponents = plane[:, 1:] / scale
    return Posynomial(plane[:, 0] - exponents @ centre, exponents)


Residual = Callable[[Floats], tuple[Floats, Floats]]


def _difference(gap: Floats) -> tuple[Floats, Floats]:
    """Logarithms compared: residual and its derivative."""
    return gap, np.ones_like(gap)


def _ratio(gap: Floats) -> tuple[Floats, Floats]:
    """predicted / target - 1 and its derivative; far misses are held where they are so that steps stay sane."""
    held = np.clip(gap, -3.0, 1.0)
    return np.expm1(held), np.exp(held)


def _shares(design: Floats, planes: Floats) -> tuple[Floats, Floats]:
    """log sum exp of the planes, and each plane's share of the sum."""
    heights = design @ planes.T
    top = heights.max(axis=1, keepdims=True)
    raised = np.exp(heights - top)
    total = raised.sum(axis=1, keepdims=True)
    return (top + np.log(total))[:, 0], raised / total


def _descend(design: Floats, values: Floats, planes: Floats, residual_of: Residual, steps: int) -> tuple[Floats, float]:
    """Damped Gauss-Newton steps on sqrt(residual^2 + SMOOTHING^2); returns planes and loss."""
    def loss_of(residual: Floats) -> float:
        return float(np.sqrt(residual**2 + SMOOTHING**2).sum())

    height, share = _shares(design, planes)
    residual, slope = residual_of(height - values)
    loss, damping, stalled = loss_of(residual), 1e-2, 0
    for _ in range(steps):
        jacobian = (share[:, :, None] * design[:, None, :]).reshape(len(values), -1) * slope[:, None]
        weighted = jacobian / np.sqrt(residual**2 + SMOOTHING**2)[:, None]
        hessian, gradient = weighted.T @ jacobian, weighted.T @ residual
        diagonal = np.diag(hessian) + 1e-6
        while True:
            step = np.linalg.solve(hessian + np.diag(damping * diagonal), gradient)
            tried = planes - step.reshape(planes.shape)
            height, tried_share = _shares(design, tried)
            tried_residual, tried_slope = residual_of(height - values)
            tried_loss = loss_of(tried_residual)
            if tried_loss < loss:
                break
            damping *= 4
            if damping > 1e8:
                return planes, loss
        damping = max(damping / 4, 1e-7)
        stalled = stalled + 1 if loss - tried_loss < 1e-4 * loss else 0
        planes, share, residual, slope, loss = tried, tried_share, tried_residual, tried_slope, tried_loss
        if stalled >= STALLED:
            break
    return planes, loss
