"""SI numbers as people read them: three significant digits and a fitting prefix. The only place that does this."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, isfinite, log10

ABSENT = "–"
"""Printed where there is no number."""


def significant(value: float, digits: int = 3) -> str:
    """`value` rounded to so many significant digits, without an exponent from 1e-6 on upwards."""
    if not isfinite(value):
        return "∞" if value == float("inf") else ABSENT
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits - 1}e}")
    if abs(rounded) < 1e-6:
        return f"{rounded:.{digits - 1}e}"
    places = max(0, digits - 1 - floor(log10(abs(rounded))))
    return f"{rounded:,.{places}f}"


def _prefixed(value: float | None, steps: tuple[tuple[float, str], ...]) -> str:
    """The value in the largest unit of `steps` (descending) that leaves at least 1, else in the smallest."""
    if value is None:
        return ABSENT
    rounded = float(f"{abs(value):.2e}") if isfinite(value) else abs(value)
    factor, unit = next((s for s in steps if rounded >= s[0]), steps[-1])
    return f"{significant(value / factor)} {unit}" if value else f"0 {unit}"


def seconds(value: float | None) -> str:
    return _prefixed(value, ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")))


def joules(value: float | None) -> str:
    return _prefixed(value, ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ")))


def joule_seconds(value: float | None) -> str:
    """Energy-delay products, the unit of the `edp` goal."""
    return _prefixed(value, ((1.0, "J·s"), (1e-3, "mJ·s"), (1e-6, "µJ·s"), (1e-9, "nJ·s"), (1e-12, "pJ·s")))


def size(value: float | None) -> str:
    """Bytes in decimal units."""
    return _prefixed(value, ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")))


def hertz(value: float | None) -> str:
    return _prefixed(value, ((1e9, "GHz"), (1e6, "MHz"), (1e3, "kHz"), (1.0, "Hz")))


def quantity(value: float | None) -> str:
    """Work and weights, where the order of magnitude is what matters: 1.23 M."""
    return _prefixed(value, ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))).strip()


def millis(value: float | None) -> str:
    """Seconds or joules in thousandths without the unit, for columns that state it once."""
    return ABSENT if value is None else significant(value * 1e3)


def count(value: float | None) -> str:
    """Things one can count: exact where whole, digits in groups of three."""
    if value is None:
        return ABSENT
    if float(value).is_integer():
        return f"{int(value):,}"
    return significant(value)


def percent(fraction: float | None, digits: int = 3) -> str:
    return ABSENT if fraction is None else f"{significant(fraction * 100, digits)} %"


def accuracy(fraction: float | None) -> str:
    """A fourth digit, because one image in ten thousand must show when two accuracies claim to be equal."""
    return percent(fraction, 4)


def rate(interval_s: float | None) -> str:
    """Frames per second, from the time between two of them."""
    return ABSENT if not interval_s else f"{significant(1 / interval_s)} frames/s"


def objective(value: float | None, goal: str) -> str:
    """A plan's objective in the unit of its goal; of throughput the interval between frames."""
    if goal == "energy":
        return joules(value)
    return joule_seconds(value) if goal == "edp" else seconds(value)


def shape(dims: Sequence[int]) -> str:
    return "×".join(str(d) for d in dims) or "scalar"
