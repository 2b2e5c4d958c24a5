"""Posynomials of shares, as geometric programs need them: monomials, and fits of a device's costs by them.

A share is the part of a node's axis that one device computes, in (0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import lsq_linear, nnls

from dovetail.hardware.shares import Floats
from dovetail.ir import Axis, Node
from dovetail.partition.problem import PieceCost, Problem, price_pieces, price_reduce

AXES = (Axis.OUTPUT_CHANNELS, Axis.GROUPS)
"""Axes along which geometric programs divide the filters of a node, first legal one first."""
ROW_AXES = (Axis.ROWS, *AXES)
"""The same where an image is divided first: neighbours then keep their rows where they are, but for those at the edges."""
EXPONENTS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0)
"""Powers of the share that a fit may use."""
VANISHING = EXPONENTS[1:]
"""The same for resources, which a device that gets next to nothing must not use: no program can leave a device out."""
FLOORS = (1e-4, 1e-5, 1e-6, 1e-8)
"""Smallest shares; what stays near them is dropped when shares become units. Chosen, not measured."""
SAMPLES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1.0)
"""Shares at which a device's costs are asked for a fit."""


@dataclass(frozen=True, slots=True)
class Monomial:
    """coefficient x product of variables to powers; `powers` are (variable, exponent), none for a constant."""

    coefficient: float
    powers: tuple[tuple[int, float], ...] = ()

    def times(self, factor: float, *powers: tuple[int, float]) -> Monomial:
        """The product with a number and further powers."""
        merged = dict(self.powers)
        for variable, exponent in powers:
            merged[variable] = merged.get(variable, 0.0) + exponent
        return Monomial(self.coefficient * factor, tuple(sorted((v, e) for v, e in merged.items() if e != 0)))


Posynomial = tuple[Monomial, ...]
"""A sum of monomials with positive coefficients."""


def value_of(posynomial: Posynomial, shares: Floats) -> float:
    """What a posynomial is at given values of all variables."""
    return float(sum(m.coefficient * np.prod([shares[v] ** e for v, e in m.powers]) for m in posynomial))


@dataclass(frozen=True, slots=True)
class GeometricProgram:
    """Minimise `objective` plus `peak_worth` times the sum over `peaks` of the largest of each.

    Variables are shares in [lowest, 1]; those of one group must sum to one and so cover their node; every posynomial of
    `limits` is at most one. Of `caps`, each a posynomial and a worth of the peaks, the sum is to be at most one as well: where
    that cannot be, what is above it costs much.
    """

    lowest: Floats
    groups: tuple[tuple[int, ...], ...]
    objective: Posynomial
    limits: tuple[Posynomial, ...] = ()
    peaks: tuple[tuple[Posynomial, ...], ...] = ()
    peak_worth: float = 1.0
    caps: tuple[tuple[Posynomial, float], ...] = ()


def smallest_share(limits: Sequence[Posynomial], count: int) -> float:
    """A floor for all of `count` shares at which the limits are at most half used, where there is one among FLOORS."""
    return next((f for f in FLOORS if all(value_of(x, np.full(count, f)) <= 0.5 for x in limits)), FLOORS[-1])


@dataclass(frozen=True, slots=True)
class Fitted:
    """Costs of a share x of one node on one device, each as (coefficient, exponent) of x."""

    seconds: tuple[tuple[float, float], ...]
    streamed: tuple[tuple[float, float], ...]
    """What is left of them where the share streams behind its producers on the same device."""
    joules: tuple[tuple[float, float], ...]
    resources: Mapping[str, tuple[tuple[float, float], ...]]


@dataclass(frozen=True, slots=True)
class Divisible:
    """A node that a geometric program may divide: its axis, how many units that has, and who can take a part.

    `adders` can add partial sums, none of them with budgets, the host first; none where there are no such sums.
    """

    node: Node
    axis: Axis
    extent: int
    fits: Mapping[str, Fitted]
    adders: tuple[str, ...] = ()


def divisible(problem: Problem, node: Node, axes: tuple[Axis, ...] = AXES) -> Divisible | None:
    """The node with its fitted costs; None for nodes without weights, pinned ones, and those only one device can run."""
    shapes = problem.graph.input_shapes(node)
    axis = next((a for a in axes if a in node.op.axes(shapes)), None)
    if axis is None or not node.params or node.name in problem.fixed:
        return None
    extent = node.op.extent(axis, shapes)
    fits = {d: found for d in problem.devices if (found := _fitted(problem, node, axis, extent, d)) is not None}
    adders = _adders(problem, node, fits) if axis is Axis.INPUT_CHANNELS else ()
    if axis is Axis.INPUT_CHANNELS and not adders:
        return divisible(problem, node, tuple(a for a in axes if a is not axis))
    return Divisible(node, axis, extent, fits, adders) if extent > 1 and len(fits) > 1 else None


def _adders(problem: Problem, node: Node, fits: Mapping[str, Fitted]) -> tuple[str, ...]:
    able = [d for d in fits if price_reduce(problem, node, len(fits), d) is not None and not problem.limits[d]]
    return tuple(sorted(able, key=lambda d: d != problem.platform.host))


def _fitted(problem: Problem, node: Node, axis: Axis, extent: int, device: str) -> Fitted | None:
    units = sorted({1, *(max(1, round(extent * f)) for f in SAMPLES)})
    known = price_pieces(problem, node, axis, device, [(0, u) for u in units])
    if known is None:
        return None
    found: list[tuple[float, PieceCost]] = [(u / extent, known[0, u]) for u in units if (0, u) in known]
    limits = {r: limit for d, r, limit in problem.budgets if d == device}
    if not found or any(amount > limits.get(r, amount) for r, amount in found[0][1].resources):
        return None  # not even one unit fits
    shares = np.array([s for s, _ in found])
    names = [r for r, _ in found[0][1].resources if r in limits]
    alone, fused, joules = (fit(shares, np.array(v)) for v in zip(*((c.alone_s, c.fused_s, c.energy_j) for _, c in found),
                                                                  strict=True))
    return Fitted(
        alone, fused, joules,
        {r: fit(shares, np.array([dict(c.resources)[r] for _, c in found]), VANISHING) for r in names})


def fit(shares: Floats, values: Floats, exponents: tuple[float, ...] = EXPONENTS) -> tuple[tuple[float, float], ...]:
    """Non-negative least squares of relative errors over powers of the share; nothing where all values are zero."""
    if not (values > 0).any():
        return ()
    weight = 1 / np.maximum(values, 1e-3 * values.max())
    powers = np.stack([shares**e * weight for e in exponents], axis=1)
    try:
        found, _ = nnls(powers, values * weight)
    except RuntimeError:  # it cycles on some sums that fit exactly; the slower method does not
        found = np.maximum(lsq_linear(powers, values * weight, bounds=(0, np.inf)).x, 0.0)
    return tuple((float(c), e) for c, e in zip(found, exponents, strict=True) if c > 1e-9 * found.max())


def of_share(terms: tuple[tuple[float, float], ...], variable: int, factor: float = 1.0, more: float = 0.0) -> Posynomial:
    """Terms of a share as a posynomial of a variable, times a factor and, with `more`, a further power of the share."""
    return tuple(Monomial(c * factor).times(1.0, (variable, e + more)) for c, e in terms if c * factor > 0)
