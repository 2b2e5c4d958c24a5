"""How far predictions are off the rows they are held against: errors, their interval, and both in slices."""

from __future__ import annotations

import numpy as np

from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.platform.quantity import Errors, Scatter, ratio_interval

BANDS = 12
GRID = 90
FEWEST_IN_BAND = 40
"""Fewer rows do not tell their own 5th and 95th percentile."""
TAIL = 0.05
"""Part of the rows that lies above the interval, and part that lies below."""


def errors_of(predicted: Floats, value: Floats, fold: Ints | None = None) -> Errors:
    """Relative errors and the interval of measured / predicted that nine of ten rows lie in.

    With the fold of every row, also how many rows of a fold lie in the interval that the other folds give.
    """
    error = np.abs(predicted / value - 1)
    low, _, high = _spread(predicted, value)
    p50, p90, p95 = np.percentile(error, [50, 90, 95])
    return Errors(float(error.mean()), float(p50), float(p90), float(p95), low, high, _bands(predicted, value),
                  None if fold is None else _coverage(predicted, value, fold),
                  None if fold is None else scatter_of(predicted, value))


def scatter_of(predicted: Floats, value: Floats) -> Scatter:
    """Rows counted on a square grid of GRID cells a side, as fine as the larger of the two ranges asks for."""
    logs = np.log10(np.stack([value, predicted]))
    start = round(float(logs.min()), 4)
    step = max(round((float(logs.max()) - start) / GRID, 5), 1e-5) * (1 + 1e-3)
    cells, rows = np.unique(np.floor((logs - start) / step).astype(np.int64), axis=1, return_counts=True)
    return Scatter(start, step, tuple((int(i), int(j), int(n)) for i, j, n in zip(*cells, rows, strict=True)))


def covered(errors: Errors, predicted: Floats, value: Floats) -> Flags:
    """Which rows lie in the 90 % interval around their prediction."""
    low, high = ratio_interval(errors, predicted)
    return np.asarray((value >= predicted * low) & (value <= predicted * high), dtype=np.bool_)


def _spread(predicted: Floats, value: Floats) -> tuple[float, float, float]:
    """Measured / predicted that a further row would fall below with 5, 50 and 95 % probability.

    The most extreme of few rows is no extreme yet: the outer percentiles move outwards by the row to come.
    """
    tail = max(0.0, TAIL - (1 - TAIL) / len(value))
    low, middle, high = np.quantile(value / np.maximum(predicted, 1e-300), [tail, 0.5, 1 - tail])
    return float(low), float(middle), float(high)


def _coverage(predicted: Floats, value: Floats, fold: Ints) -> float:
    inside = np.zeros(len(value), dtype=np.bool_)
    for k in np.unique(fold):
        kept = fold == k
        if kept.all():
            return float("nan")
        inside[kept] = covered(errors_of(predicted[~kept], value[~kept]), predicted[kept], value[kept])
    return float(inside.mean())


def _bands(predicted: Floats, value: Floats) -> tuple[tuple[float, float, float, float], ...]:
    """Percentiles of measured / predicted in slices of equally many rows, from small predictions to large."""
    order = np.argsort(predicted, kind="stable")
    found = []
    for part in np.array_split(order, min(BANDS, max(1, len(value) // FEWEST_IN_BAND))):
        found.append((float(np.median(predicted[part])), *_spread(predicted[part], value[part])))
    return tuple(found)
