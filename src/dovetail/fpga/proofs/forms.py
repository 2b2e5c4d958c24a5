"""Integers that are a sum of weighted variables, with the exact range they take: how sums of any size are compared."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import gcd

Bounds = tuple[int, int]


@dataclass(frozen=True)
class LinearForm:
    """sum of weights[v] * v, and a constant; every variable takes every value of its bounds."""

    weights: Mapping[Hashable, int]
    constant: int = 0

    def plus(self, other: LinearForm, sign: int = 1) -> LinearForm:
        weights = dict(self.weights)
        for variable, weight in other.weights.items():
            total = weights.get(variable, 0) + sign * weight
            if total:
                weights[variable] = total
            else:
                weights.pop(variable, None)
        return LinearForm(weights, self.constant + sign * other.constant)

    def times(self, factor: int) -> LinearForm:
        return LinearForm({v: w * factor for v, w in self.weights.items()} if factor else {}, self.constant * factor)

    def bounds(self, of: Mapping[Hashable, Bounds]) -> Bounds:
        """The least and the largest value, exactly: variables do not depend on each other."""
        lo = hi = self.constant
        for variable, weight in self.weights.items():
            ends = of[variable]
            lo += weight * ends[weight < 0]
            hi += weight * ends[weight > 0]
        return lo, hi

    def primitive(self) -> tuple[LinearForm, int, int]:
        """(form, factor, offset): this one is factor * form + offset, and the form's weights share no factor."""
        factor = gcd(*self.weights.values()) or 1
        return LinearForm({v: w // factor for v, w in self.weights.items()}), factor, self.constant

    def multiple_of(self, primitive: LinearForm) -> tuple[int, int] | None:
        """(factor, offset) such that this is factor * primitive + offset; None where it is not, or a constant."""
        if not self.weights or self.weights.keys() != primitive.weights.keys():
            return None
        first = next(iter(primitive.weights))
        factor, rest = divmod(self.weights[first], primitive.weights[first])
        if rest or any(w != factor * primitive.weights[v] for v, w in self.weights.items()):
            return None
        return factor, self.constant
