"""Geometric programs in log space as convex programs: the one place that calls CVXPY and its solver Clarabel.

With y = log x every monomial is exp(affine). Each distinct monomial gets one exponential cone, whatever it is part of;
all else is linear. What changes between solves is a parameter (DPP), so that CVXPY compiles a program once.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from dovetail.errors import ToolError
from dovetail.hardware.shares import Floats
from dovetail.partition.effort import spend
from dovetail.partition.geometric.posynomials import GeometricProgram, Monomial, Posynomial, value_of

EXTRA = "pip install 'dovetail-accel[gp]'"
EXCESS = 30.0
"""What exceeding a cap by all of it costs, in objectives. Chosen, not measured."""
ABSENT = 1e-12
"""What a penalty of zero becomes, as a part of the objective:

logarithms need it positive. Chosen: as far below the objective as rounding.
"""


@dataclass(frozen=True, slots=True)
class Solution:
    """Shares, what the objective is at them (no penalty in it) and what a whole further limit or cap of each would save."""

    shares: Floats
    objective: float
    prices: Floats
    cap_prices: Floats


def cvxpy() -> ModuleType:
    """CVXPY, once it is known to be there with its solver."""
    try:
        import_module("clarabel")
        return import_module("cvxpy")
    except ImportError as error:
        raise ToolError(f"solvers gp and gp-paper: {error.name} is not installed, and geometric programs are solved "
                        f"with it; run {EXTRA}") from None


class _Rows:
    """Posynomials as linear rows over distinct monomials."""

    def __init__(self) -> None:
        self.monomials: dict[tuple[tuple[int, float], ...], int] = {}

    def row(self, posynomial: Posynomial) -> tuple[dict[int, float], float]:
        """Coefficients of a posynomial, and its constant."""
        found: dict[int, float] = {}
        constant = 0.0
        for m in posynomial:
            if not m.powers:
                constant += m.coefficient
                continue
            at = self.monomials.setdefault(m.powers, len(self.monomials))
            found[at] = found.get(at, 0.0) + m.coefficient
        return found, constant

    def exponents(self, variables: int) -> csr_matrix:
        entries = [(i, v, e) for powers, i in self.monomials.items() for v, e in powers]
        return csr_matrix(([e for *_, e in entries], ([i for i, _, _ in entries], [v for _, v, _ in entries])),
                          shape=(len(self.monomials), variables))

    def matrix(self, rows: Sequence[dict[int, float]]) -> csr_matrix:
        entries = [(k, i, c) for k, row in enumerate(rows) for i, c in row.items()]
        return csr_matrix(([c for *_, c in entries], ([k for k, _, _ in entries], [i for _, i, _ in entries])),
                          shape=(len(rows), len(self.monomials)))


class LogProgram:
    """A geometric program whose sums to one are dealt with in one of two ways.

    `penalised`: sums may fall short, and alpha / hbar is added to the objective for each (GP partitioning 2023, Eq. 6 and
    10), hbar being the condensed sum at a fixed centre. Otherwise hbar >= 1 at a centre given with each solve: as hbar is
    never above the sum, what is found covers every node.
    """

    def __init__(self, program: GeometricProgram, centre: Floats, penalised: bool) -> None:
        cp = cvxpy()
        self._cp, self.program, self.penalised = cp, program, penalised
        self.scale = max(self._at(centre), 1e-300)
        rows, count = _Rows(), len(program.lowest)
        cost, constant = rows.row(program.objective)
        sums = tuple(tuple(Monomial(1.0, ((v, 1.0),)) for v in g) for g in program.groups) if penalised else ()
        limits = [rows.row(p) for p in (*program.limits, *sums)]
        peaks = [(g, rows.row(p)) for g, group in enumerate(program.peaks) for p in group]
        caps = [rows.row(p) for p, _ in program.caps]
        self.y = cp.Variable(count)
        e = cp.Variable(len(rows.monomials), nonneg=True)
        self.limits = [rows.matrix([r for r, _ in limits]) @ e <= np.array([1 - c for _, c in limits])] if limits else []
        constraints = [*self.limits, cp.exp(rows.exponents(count) @ self.y) <= e, self.y >= np.log(program.lowest), self.y <= 0]
        objective: Any = constant / self.scale + rows.matrix([cost]) @ e / self.scale
        top = cp.Variable(max(1, len(program.peaks)), nonneg=True)
        worth = program.peak_worth / self.scale if program.peak_worth > 0 else 1.0
        if peaks:
            # Peaks are counted in objectives, so that the solver sees numbers near one; a top worth nothing still bounds caps.
            constraints.append(worth * (rows.matrix([r for _, (r, _) in peaks]) @ e + np.array([c for _, (_, c) in peaks]))
                               <= top[[g for g, _ in peaks]])
            objective = objective + (cp.sum(top) if program.peak_worth > 0 else 0.0)
        self.caps: list[Any] = []
        if caps:
            excess = cp.Variable(len(caps), nonneg=True)
            over_tops = np.array([factor / worth for _, factor in program.caps])
            self.caps = [rows.matrix([r for r, _ in caps]) @ e + np.array([c for _, c in caps])
                         + over_tops * cp.sum(top) <= 1 + excess]
            constraints += self.caps
            objective = objective + EXCESS * cp.sum(excess)
        self.weights = cp.Parameter(count, nonneg=True)
        self.offsets, self.log_alphas = cp.Parameter(len(program.groups)), cp.Parameter(len(program.groups))
        members = csr_matrix(([1.0] * count, ([k for k, g in enumerate(program.groups) for _ in g],
                                              [v for g in program.groups for v in g])), shape=(len(program.groups), count))
        log_hbar = members @ cp.multiply(self.weights, self.y) + self.offsets
        if penalised:
            objective = objective + cp.sum(cp.exp(self.log_alphas - log_hbar))
        else:
            constraints.append(log_hbar >= 0)
        self.compiled = cp.Problem(cp.Minimize(cp.sum(objective)), constraints)
        self._recentre(centre)

    def _at(self, shares: Floats) -> float:
        tops = sum(max(value_of(p, shares) for p in group) for group in self.program.peaks)
        return value_of(self.program.objective, shares) + self.program.peak_worth * tops

    def _recentre(self, centre: Floats) -> None:
        """Eq. 5 with epsilon_t = u_t / h at the centre: hbar = product of (x_t / epsilon_t) ** epsilon_t."""
        weights = np.zeros(len(centre))
        for group in self.program.groups:
            weights[list(group)] = centre[list(group)] / centre[list(group)].sum()
        self.weights.value = weights
        self.offsets.value = np.array([-sum(weights[v] * np.log(weights[v]) for v in g) for g in self.program.groups])

    def solve(self, centre: Floats | None = None, alphas: Floats | None = None) -> Solution | None:
        """The global optimum of this geometric program, None where the solver finds none."""
        if centre is not None:
            self._recentre(centre)
        if alphas is not None:
            self.log_alphas.value = np.log(np.maximum(alphas / self.scale, ABSENT))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CVXPY warns of inexact answers, which every plan's evaluation catches anyway
            try:
                self.compiled.solve(solver=self._cp.CLARABEL)
            except self._cp.error.SolverError:
                return None
        spend("geometric", 1, self.compiled.size_metrics.num_scalar_variables)
        if self.y.value is None:
            return None
        shares = np.clip(np.exp(self.y.value), self.program.lowest, 1.0)
        prices = np.asarray(self.limits[0].dual_value).ravel() * self.scale if self.limits else np.zeros(0)
        caps = np.asarray(self.caps[0].dual_value).ravel() * self.scale if self.caps else np.zeros(0)
        return Solution(shares, self._at(shares), np.maximum(prices[:len(self.program.limits)], 0.0), np.maximum(caps, 0.0))

