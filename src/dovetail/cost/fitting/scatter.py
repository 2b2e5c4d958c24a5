"""How far predictions are off the rows they are held against: errors, their interval, and both in slices."""

from __future__ import annotations

import numpy as np

from dovetail.cost.estimate import Floats
from dovetail.platform.quantity import Errors

BANDS = 12
FEWEST_IN_BAND = 5


def errors_of(predicted: Floats, value: Floats) -> Errors:
    """Relative errors and the interval of measured / predicted that nine of ten rows lie in."""
    error = np.abs(predicted / value - 1)
    low, high = np.percentile(value / np.maximum(predicted, 1e-300), [5, 95])
    p50, p90, p95 = np.percentile(error, [50, 90, 95])
    return Errors(float(error.mean()), float(p50), float(p90), float(p95), float(low), float(high), _bands(predicted, value))


def _bands(predicted: Floats, value: Floats) -> tuple[tuple[float, float, float, float], ...]:
    """Percentiles of measured / predicted in slices of equally many rows, from small predictions to large."""
    order = np.argsort(predicted, kind="stable")
    found = []
    for part in np.array_split(order, min(BANDS, max(1, len(value) // FEWEST_IN_BAND))):
        low, middle, high = np.percentile(value[part] / np.maximum(predicted[part], 1e-300), [5, 50, 95])
        found.append((float(np.median(predicted[part])), float(low), float(middle), float(high)))
    return tuple(found)
