"""The paper's method as a solver: its problem from a network and its devices' costs, its answer as a plan.

The method divides filters of weighted nodes; nodes without weights, which the paper does not treat, are placed around
them. Input channels, which the paper names, would not give the network's numbers without adding up partial sums.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dovetail.partition.geometric.paper import (
    KAPPA,
    PaperLayer,
    PaperProblem,
    Terms,
    Tightening,
    TighteningSchedule,
    program_of,
    tighten,
)
from dovetail.partition.geometric.posynomials import Divisible, divisible, smallest_share
from dovetail.partition.geometric.rounding import complete, fit_budgets, split_of
from dovetail.partition.plan import Assignment, Goal
from dovetail.partition.problem import Problem
from dovetail.words import counted

SMALLER = 0.1
"""By how much smaller shares may be where the first program has no answer. Chosen, not measured."""


def paper_problem(problem: Problem, parts: tuple[Divisible, ...], constant_power: bool = False,
                  kappa: int | None = KAPPA) -> PaperProblem:
    """Eq. 14 for latency, Eq. 15 for energy; with `constant_power`, energy is busy power times latency.

    The energy-delay product is no objective of the paper; latency stands in for it. The smallest share is not one filter, as
    in the paper: one of every layer can be more than an FPGA that all layers share has.
    """
    found = PaperProblem(tuple(_layer(problem, p, constant_power) for p in parts), kappa, problem.shared_budget)
    program, _ = program_of(found)
    return replace(found, floor=smallest_share(program.limits, len(program.lowest)))


def _layer(problem: Problem, part: Divisible, constant_power: bool) -> PaperLayer:
    limits = {(d, r): limit for d, r, limit in problem.budgets}
    energy = problem.goal is Goal.ENERGY
    compute, transfer = {}, {}
    for device, fitted in part.fits.items():
        busy_w = problem.platform.device(device).busy_power_w
        compute[device] = fitted.seconds if not energy else _times(fitted.seconds, busy_w) if constant_power else fitted.joules
        transfer[device] = _transfer(problem, part, device, energy)
    resources = {(d, r): _times(terms, 1 / limits[d, r])
                 for d, f in part.fits.items() for r, terms in f.resources.items() if terms}
    return PaperLayer(part.node.name, part.extent, compute, transfer, resources)


def _transfer(problem: Problem, part: Divisible, device: str, energy: bool) -> Terms:
    """Moving a share of the input feature map to a device from the host, which shares its memory with the GPU."""
    if device == problem.platform.host:
        return ()
    size = float(sum(problem.graph.tensors[t].size for t in dict.fromkeys(part.node.inputs)))
    seconds, joules = problem.transfer(problem.platform.host, device, np.array([1.0, size]))
    first, whole = (joules if energy else seconds).tolist()
    return tuple((c, e) for c, e in ((first, 0.0), (whole - first, 1.0)) if c > 0)


def _times(terms: Terms, factor: float) -> Terms:
    return tuple((c * factor, e) for c, e in terms)


def solve_paper(problem: Problem, schedule: TighteningSchedule = TighteningSchedule.TOGETHER, constant_power: bool = False,
                kappa: int | None = KAPPA) -> tuple[Tightening | None, Assignment | None]:
    """The tightening (None where nothing can be divided) and its answer in whole filters, repaired to the budgets.

    Where the solver answers none of the programs, an even division is repaired instead, so that there is a plan to judge.
    """
    parts = tuple(p for n in problem.graph.nodes if (p := divisible(problem, n)) is not None)
    if not parts:
        return None, complete(problem, parts, {})
    asked = paper_problem(problem, parts, constant_power, kappa)
    found = tighten(asked, schedule)
    if not found.steps and asked.floor is not None:  # of many layers, all that the smallest shares take is hard on the solver
        found = tighten(replace(asked, floor=asked.floor * SMALLER), schedule)
    answer = found.answer.shares if found.steps else [(1.0,) * len(p.fits) for p in parts]
    splits = {p.node.name: split_of(p, dict(zip(p.fits, shares, strict=True))) for p, shares in zip(parts, answer, strict=True)}
    return found, complete(problem, parts, fit_budgets(problem, parts, splits))


def gp_paper(problem: Problem, deadline: float, schedule: TighteningSchedule = TighteningSchedule.TOGETHER,
             constant_power: bool = False) -> tuple[tuple[Assignment, ...], tuple[str, ...]]:
    """The plan of the paper's method, by default with all weights growing together, and what to know about it."""
    found, assignment = solve_paper(problem, schedule, constant_power)
    if found is None:
        return (assignment,) if assignment is not None else (), ("gp-paper: nothing here can be divided",)
    unmet = sum(not m for m in found.met)
    missed = f"; {unmet} of {counted(len(found.met), 'sum')} were not met" if unmet else ""
    note = f"gp-paper: {counted(len(found.steps), 'geometric program')}{missed}"
    if not found.steps:
        note = "gp-paper: its first geometric program has no answer; this is an even division, repaired to the budgets"
    return (assignment,) if assignment is not None else (), (note,)


def gp_paper_one_by_one(problem: Problem, deadline: float) -> tuple[tuple[Assignment, ...], tuple[str, ...]]:
    """The same with the weights of one layer growing after another's."""
    return gp_paper(problem, deadline, TighteningSchedule.ONE_BY_ONE)


def gp_paper_constant_power(problem: Problem, deadline: float) -> tuple[tuple[Assignment, ...], tuple[str, ...]]:
    """The same with energy as busy power times latency (after Eq. 15)."""
    return gp_paper(problem, deadline, constant_power=True)
