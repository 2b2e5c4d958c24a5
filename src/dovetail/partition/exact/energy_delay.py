"""The least product of latency and energy above lines that no plan is below.

A line is a weighted sum of both and a bound on it. The product is quasi-concave where both are positive, so above several lines
it is least at one of their corners. A line along the product's slope at a plan loses little: a corner that is a hundredth
to the side of it costs a ten-thousandth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt

Point = tuple[float, float]
"""Latency and energy, or what they count."""
AXES: tuple[Point, Point] = ((1.0, 0.0), (0.0, 1.0))
"""Weights of latency and of energy alone."""


def product(point: Point) -> float:
    return point[0] * point[1]


@dataclass(slots=True)
class Region:
    """Where the latency and energy of every plan lie that is better than a known one.

    `least` bounds each alone, `best` is the known plan's product.
    """

    least: Point
    best: float
    chain: list[Point] = field(init=False)
    """The corners, the fastest first."""

    def __post_init__(self) -> None:
        # Plans beyond these ends are worse than the known one: their product exceeds it twice over.
        low, high = self.least
        self.chain = [(low, 2 * self.best / low), self.least, (2 * self.best / high, high)]

    @property
    def corner(self) -> Point:
        """Where the product is least."""
        return min(self.chain, key=product)

    @property
    def bound(self) -> float:
        """The least product."""
        return product(self.corner)

    def clip(self, weights: Point, bound: float) -> None:
        """Leave out what a further line is above; what latency counts may be less than nothing, what energy does may not."""
        over = [weights[0] * s + weights[1] * j - bound for s, j in self.chain]
        kept: list[Point] = []
        for i, point in enumerate(self.chain):
            if i and (over[i - 1] < 0) != (over[i] < 0):
                f, (s, j) = over[i - 1] / (over[i - 1] - over[i]), self.chain[i - 1]
                kept.append((s + f * (point[0] - s), j + f * (point[1] - j)))
            if over[i] >= 0:
                kept.append(point)
        # An end that is left out moves to the line: it stays as fast, or as slow, as it takes for the product to be large.
        (first_s, first_j), (last_s, _) = self.chain[0], self.chain[-1]
        if over[0] < 0:
            kept.insert(0, ((bound - weights[1] * first_j) / weights[0], first_j) if weights[0] > 0 else
                        (first_s, (bound - weights[0] * first_s) / weights[1]))
        if over[-1] < 0 and weights[1] > 0:
            kept.append((last_s, (bound - weights[0] * last_s) / weights[1]))
        self.chain = kept


def ends(weights: Point, bound: float, worth: float) -> tuple[Point, Point]:
    """Where the product along a line is as given, the faster first; the middle of a line on which it is nowhere so large."""
    aside = sqrt(max(0.0, (bound / 2) ** 2 - product(weights) * worth))
    low, high = bound / 2 - aside, bound / 2 + aside
    return (low / weights[0], high / weights[1]), (high / weights[0], low / weights[1])
