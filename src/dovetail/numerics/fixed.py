"""Fixed-point arithmetic on integer-valued float64 arrays: exact division with half-to-even rounding.

Everything here is exact while magnitudes stay below 2**53, which `reference` asserts.
"""

from __future__ import annotations

from math import inf

import numpy as np
from numpy.typing import NDArray

from dovetail.ir import Array, Clamp, Real, Rounding, Scheme

EXACT = float(1 << 53)
"""Largest magnitude below which float64 holds every integer."""


def divide_half_even(numerator: Array, denominator: Array | int) -> Array:
    """Round numerator / denominator to the nearest integer, ties to even; both integer-valued, denominator > 0.

    Integer-valued floats or int64; the result is of the numerator's type.
    """
    quotient = np.floor_divide(numerator, denominator)
    rest = numerator - quotient * denominator
    left = denominator - rest
    rounded: Array = quotient + ((rest > left) | ((rest == left) & (np.mod(quotient, 2) == 1)))
    return rounded


def rescale(accumulator: Real, divisor: Real | int, shift: NDArray[np.int64]) -> Real:
    """Round accumulator / (divisor * 2**shift); a negative shift multiplies first.

    By a power of two alone the quotient is exact in float64, and `rint` takes halves to even.
    """
    if isinstance(divisor, int) and divisor == 1:
        result: Real = np.rint(np.ldexp(accumulator, -shift.astype(np.int32)))
        return result
    up = np.ldexp(1.0, np.maximum(-shift, 0).astype(np.int32))
    down = np.ldexp(1.0, np.maximum(shift, 0).astype(np.int32))
    return divide_half_even(accumulator * up, np.asarray(divisor, dtype=np.float64) * down)


def quantize(x: Real, scheme: Scheme) -> Real:
    """Real values to stored integers: nearest, ties to even unless the scheme says otherwise, saturated.

    The result is integer-valued float64.
    """
    scale = scheme.scales_along(x.ndim)
    # The number the file means by an arbitrary scale is a float32, and so is the division in ONNX.
    steps = (x.astype(np.float32) / scale.astype(np.float32)).astype(np.float64) if scheme.mantissas else x / scale
    nearest = np.rint(steps) if scheme.rounding is Rounding.EVEN else np.trunc(steps + np.copysign(0.5, steps))
    stored: Real = np.clip(nearest + scheme.zero, scheme.lo, scheme.hi)
    return stored


def reach(scheme: Scheme, dimensions: int) -> tuple[Real, Real]:
    """The least and the largest real value that a scheme stores, of values of so many dimensions."""
    scale = scheme.scales_along(dimensions)
    return (scheme.lo - scheme.zero) * scale, (scheme.hi - scheme.zero) * scale


def saturated(x: Array, scheme: Scheme) -> NDArray[np.bool_]:
    """Which values lie more than one step outside of what a scheme stores; 1.0 is one step above 255 / 256 and is not meant."""
    low, high = reach(scheme, x.ndim)
    slack = 1.5 * scheme.scales_along(x.ndim)
    outside: NDArray[np.bool_] = (x < low - slack) | (x > high + slack)
    return outside


def dequantize(q: Real, scheme: Scheme) -> Real:
    """Stored integers to the real values they mean."""
    return (np.asarray(q, dtype=np.float64) - scheme.zero) * scheme.scales_along(np.ndim(q))


def integer_bounds(clamp: Clamp | None, scheme: Scheme) -> tuple[int, int]:
    """Saturation limits of a stored result: the scheme's range cut by the activation's rounded bounds."""
    lo, hi = scheme.lo, scheme.hi
    if clamp is not None:
        if clamp.lo > -inf:
            lo = max(lo, min(hi, int(quantize(np.asarray(clamp.lo), scheme))))
        if clamp.hi < inf:
            hi = min(hi, max(lo, int(quantize(np.asarray(clamp.hi), scheme))))
    return lo, hi
