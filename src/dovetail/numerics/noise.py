"""Signal-to-noise ratios in decibels: the power of the float values over that of what integers add to them."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log10

import numpy as np

from dovetail.ir import Array


def snr_db(signal: float, noise: float) -> float:
    """Of two powers (or sums of squares); infinite where there is no noise."""
    return inf if noise <= 0.0 else -inf if signal <= 0.0 else 10 * log10(signal / noise)


def powers(expected: Array, found: Array) -> tuple[float, float]:
    """Sums of squares of the expected values and of the difference."""
    reals = np.asarray(expected, dtype=np.float64)
    return float(np.square(reals).sum()), float(np.square(np.asarray(found, dtype=np.float64) - reals).sum())


def outputs_snr_db(expected: Mapping[str, Array], found: Mapping[str, Array]) -> float | None:
    """Mean over the outputs that hold floats; None where none does."""
    ratios = [snr_db(*powers(x, found[name])) for name, x in expected.items() if x.dtype.kind == "f"]
    return sum(ratios) / len(ratios) if ratios else None


def decibels(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{ratio:.1f} dB"
