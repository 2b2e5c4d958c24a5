"""What one more unit of a limit, a link or power would be worth around a plan of the geometric solver.

Limits by the program's dual prices, which hold for small changes of the continuous shares. Links and idle power by judging
the same plan with a little more of them: to first order a best plan need not change for that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.geometric.convex import Solution
from dovetail.partition.geometric.model import Model
from dovetail.partition.plan import Assignment, Goal
from dovetail.partition.problem import Problem
from dovetail.platform.device import Platform

NOTABLE = 1e-3
"""Part of the objective that a whole further limit must be worth to be named. Chosen: what a percentage of one decimal shows."""
STEP = 0.01
"""Part of a link's bandwidth that is added to see what it saves. Chosen: notes speak of one percent."""


@dataclass(frozen=True, slots=True)
class LimitSensitivity:
    """What one `unit` (such as "more GB/s") of something saves, in the goal's unit; never negative."""

    what: str
    unit: str
    saves: float


def sensitivities(problem: Problem, assignment: Assignment, judged: Evaluation, model: Model,
                  solution: Solution | None) -> tuple[LimitSensitivity, ...]:
    """Limits on resources, latency and energy, then links, then power."""
    budgets = {(d, r): limit for d, r, limit in problem.budgets}
    prices, caps = (np.zeros(0), np.zeros(0)) if solution is None else (solution.prices, solution.cap_prices)
    worth: dict[tuple[str, str], float] = {}
    for key, price in zip(model.limits, prices.tolist(), strict=False):
        worth[key[0], key[1]] = worth.get((key[0], key[1]), 0.0) + price / budgets[key[0], key[1]]
    found = [LimitSensitivity(d, f"more {r}", saved) for (d, r), saved in worth.items()
             if saved * budgets[d, r] > NOTABLE * judged.objective]
    limits = {"latency": (problem.max_latency_s, "more ms"), "energy": (problem.max_energy_j, "more mJ")}
    for name, price in zip(model.caps, caps.tolist(), strict=False):
        limit, unit = limits[name]
        if limit is not None and price > NOTABLE * judged.objective:
            found.append(LimitSensitivity(f"the limit on {name}", unit, price / limit / 1e3))
    return (*found, *_links(problem, assignment, judged), *_power(problem, judged))


def _links(problem: Problem, assignment: Assignment, judged: Evaluation) -> list[LimitSensitivity]:
    found = []
    for link in problem.platform.links:
        step = STEP * link.bandwidth_bytes_per_s
        wider = replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s + step)
        links = tuple(wider if x is link else x for x in problem.platform.links)
        saved = judged.objective - _judged_on(problem, assignment, replace(problem.platform, links=links))
        found.append(LimitSensitivity(link.name, "more GB/s", max(0.0, saved) / step * 1e9))
    return found


def _power(problem: Problem, judged: Evaluation) -> list[LimitSensitivity]:
    """A watt less of idle power saves its energy over the whole latency."""
    if problem.goal not in (Goal.ENERGY, Goal.EDP):
        return []
    return [LimitSensitivity("idle power", "watt less",
                             judged.latency_s * (judged.latency_s if problem.goal is Goal.EDP else 1.0))]


def _judged_on(problem: Problem, assignment: Assignment, platform: Platform) -> float:
    fresh = Problem(problem.graph, platform, problem.costs, problem.goal, problem.mode, problem.shared_budget)
    return evaluate(fresh, assignment).objective


def sentences(problem: Problem, found: tuple[LimitSensitivity, ...]) -> tuple[str, ...]:
    """A note for each that saves anything."""
    scale, unit = {Goal.LATENCY: (1e6, "us"), Goal.ENERGY: (1e3, "mJ"), Goal.EDP: (1e6, "uJs"),
                   Goal.THROUGHPUT: (1e6, "us between frames")}[problem.goal]
    return tuple(f"gp: one {s.unit} of {s.what} saves {s.saves * scale:.3g} {unit}" for s in found if s.saves > 0)
