"""Fixed-point arithmetic on integer-valued float64 arrays: exact division with half-to-even rounding.

Everything here is exact while magnitudes stay below 2**53, which `reference` asserts.
"""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import NDArray

from dovetail.ir import Clamp, Real, Scheme

EXACT = float(1 << 53)
"""Largest magnitude below which float64 holds every integer."""


def divide_half_even(numerator: Real, denominator: Real | int) -> Real:
    """Round numerator / denominator to the nearest integer, ties to even; both integer-valued, denominator > 0."""
    quotient = np.floor_divide(numerator, denominator)
    twice = 2.0 * (numerator - quotient * denominator)
    up = (twice > denominator) | ((twice == denominator) & (np.mod(quotient, 2.0) == 1.0))
    rounded: Real = quotient + up
    return rounded


def rescale(accumulator: Real, divisor: Real | int, shift: NDArray[np.int64]) -> Real:
    """Round accumulator / (divisor * 2**shift); a negative shift multiplies first."""
    up = np.ldexp(1.0, np.maximum(-shift, 0).astype(np.int32))
    down = np.ldexp(1.0, np.maximum(shift, 0).astype(np.int32))
    return divide_half_even(accumulator * up, np.asarray(divisor, dtype=np.float64) * down)


def quantize(x: Real, scheme: Scheme) -> Real:
    """Real values to stored integers: nearest, ties to even, saturated. The result is integer-valued float64."""
    scale = np.ldexp(1.0, scheme.exponents_along(x.ndim).astype(np.int32))
    return np.clip(np.rint(x / scale), scheme.lo, scheme.hi)


def dequantize(q: Real, scheme: Scheme) -> Real:
    """Stored integers to the real values they mean."""
    return np.asarray(q, dtype=np.float64) * np.ldexp(1.0, scheme.exponents_along(np.ndim(q)).astype(np.int32))


def integer_bounds(clamp: Clamp | None, scheme: Scheme) -> tuple[int, int]:
    """Saturation limits of a stored result: the scheme's range cut by the activation's rounded bounds."""
    lo, hi = scheme.lo, scheme.hi
    if clamp is not None:
        scale = 2.0**scheme.exponent
        if clamp.lo > -inf:
            lo = max(lo, min(hi, int(np.rint(clamp.lo / scale))))
        if clamp.hi < inf:
            hi = min(hi, max(lo, int(np.rint(clamp.hi / scale))))
    return lo, hi
