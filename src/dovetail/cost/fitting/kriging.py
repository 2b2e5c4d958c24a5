"""A smoothed table of what a formula leaves over: Gaussian-process regression on the grid of measured levels.

Rows were measured on a grid, so what is wanted in the end is one number per grid point. The covariance of two
points is a product over the axes of (1 + strength * exp(-distance / length)) / (1 + strength): points that share
three levels inform one another even where the fourth jumps, as it does when a library changes its algorithm.

On a grid such a covariance is a Kronecker product: multiplying by it is a few small matrix products, and its
eigenvectors are those of the axes. Conjugate gradients, started from the inverse for equal noise on a whole grid,
need a few dozen of those where factorizing the covariance of 4,000 rows takes most of a second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.hardware.shares import Floats, Ints

OUTLIER = 1.5
"""Rows further off than this many deviations of the noise count less, in proportion."""
EXACT = 1e-7
ROUGH = 1e-4
"""Relative residuals at which a solution counts as found, and as found well enough to see which rows are far off."""
MOST_STEPS = 2000


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

    `weights` counts each row's weights, for the noise that depends on them. Repeats of a point count as one row,
    their median, of so much less noise.
    """
    shape = tuple(len(values) for values in levels)
    cells, rest, weight, repeats = _without_repeats(np.ravel_multi_index(tuple(index.T), shape), deviation, weights)
    middle = float(np.median(rest))
    rest = rest - middle
    axes = [_axis(np.log(values), length, smoothing.strength) for values, length in zip(levels, smoothing.lengths, strict=True)]
    axes[0] = smoothing.spread * axes[0]
    grid = _Grid(tuple(axes), cells)
    noise = (smoothing.noise + smoothing.noise_per_weight / weight) / repeats
    trust = np.ones(len(rest))
    answer = np.zeros(len(rest))
    for turn in range(1, smoothing.rounds + 1):
        answer = grid.solve(noise / trust, rest, answer, EXACT if turn == smoothing.rounds else ROUGH)
        left = noise / trust * answer  # what the smooth part does not explain of each row
        trust = np.minimum(1.0, OUTLIER * np.sqrt(noise) / np.maximum(np.abs(left), 1e-12))
    smooth = grid.spread(answer)
    return np.asarray(middle + smooth[np.ravel_multi_index(tuple(wanted.T), shape)], dtype=np.float64)


def _without_repeats(cells: Ints, deviation: Floats, weights: Floats) -> tuple[Ints, Floats, Floats, Floats]:
    """Every measured cell once: its number, the median deviation, its weights, and how often it was measured."""
    unique, first, counts = np.unique(cells, return_index=True, return_counts=True)
    if len(unique) == len(cells):
        return cells, deviation, weights, np.ones(len(cells))
    middle = np.array([np.median(deviation[cells == cell]) for cell in unique])
    return unique, middle, weights[first], counts.astype(np.float64)


class _Grid:
    """A covariance that is a product over the axes of a grid, seen from the cells that were measured.

    The grid is held as a matrix, the first half of the axes down and the rest across: two products do what four would.
    """

    def __init__(self, axes: tuple[Floats, ...], cells: Ints) -> None:
        half = len(axes) // 2
        self._down, self._across = (_kronecker(part) for part in (axes[:half], axes[half:]))
        self._cells = cells
        down, self._vectors_down = np.linalg.eigh(self._down)
        across, self._vectors_across = np.linalg.eigh(self._across)
        self._values = np.multiply.outer(np.maximum(down, 0.0), np.maximum(across, 0.0))

    def spread(self, amounts: Floats) -> Floats:
        """The covariance of all cells with the measured ones, times an amount for each of those."""
        return np.asarray((self._down @ self._placed(amounts) @ self._across).ravel(), dtype=np.float64)

    def solve(self, noise: Floats, right: Floats, start: Floats, exact: float) -> Floats:
        """x with (covariance + noise) x = right, to a relative residual, by preconditioned conjugate gradients."""
        close_values = self._values + float(np.exp(np.log(noise).mean()))
        enough = exact * float(np.linalg.norm(right))
        x, left = start, right - self._system(noise, start)
        direction = close = self._roughly(close_values, left)
        product = float(left @ close)
        for _ in range(MOST_STEPS):
            if float(np.linalg.norm(left)) <= enough:
                break
            image = self._system(noise, direction)
            step = product / float(direction @ image)
            x, left = x + step * direction, left - step * image
            close = self._roughly(close_values, left)
            product, before = float(left @ close), product
            direction = close + product / before * direction
        return x

    def _system(self, noise: Floats, x: Floats) -> Floats:
        return np.asarray(self.spread(x)[self._cells] + noise * x, dtype=np.float64)

    def _roughly(self, values: Floats, right: Floats) -> Floats:
        """The solution if every cell had been measured, with equal noise, which `values` include."""
        turned = self._vectors_down.T @ self._placed(right) @ self._vectors_across / values
        return np.asarray((self._vectors_down @ turned @ self._vectors_across.T).ravel()[self._cells], dtype=np.float64)

    def _placed(self, amounts: Floats) -> Floats:
        placed = np.zeros(self._values.size)
        placed[self._cells] = amounts
        return placed.reshape(self._values.shape)


def _kronecker(axes: tuple[Floats, ...]) -> Floats:
    product: Floats = np.ones((1, 1))
    for axis in axes:
        product = np.asarray(np.kron(product, axis), dtype=np.float64)
    return product


def _axis(logs: Floats, length: float, strength: float) -> Floats:
    """Covariance between the levels of one axis."""
    near = np.exp(-np.abs(logs[:, None] - logs[None, :]) / length)
    return np.asarray((1.0 + strength * near) / (1.0 + strength), dtype=np.float64)
