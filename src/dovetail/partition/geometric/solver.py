"""Successive geometric programming: continuous shares by re-centred condensation, then whole units, then the evaluator.

That shares sum to one is condensed to a monomial that is never above the sum, at the last answer, until that moves no more.
A program cannot leave a device out, so subsets of devices are tried in turn, with filters and with rows divided. Its shares
become whole units by largest remainder, without crumbs, within the budgets; then single nodes and runs of neighbours are
changed as long as the evaluator likes it. Nothing of the exact solver is used. No number of a program is believed.

Notes tell what one more unit of a limit, a link or power would be worth: limits by the program's dual prices, which hold for
small changes of the continuous shares; links and idle power by judging the same plan with a little more of them: to first order
a best plan need not change for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf

import numpy as np

from dovetail.partition.effort import worked
from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.geometric.convex import LogProgram, Solution
from dovetail.partition.geometric.model import Model, Weights, model_of
from dovetail.partition.geometric.posynomials import AXES, ROW_AXES, Divisible, divisible
from dovetail.partition.geometric.rounding import Polish, Shares, complete, fit_budgets, shortfall, split_of
from dovetail.partition.plan import Assignment, Goal
from dovetail.partition.problem import Problem
from dovetail.partition.tolerances import CLOSE
from dovetail.words import counted

ROUNDS = 8
"""Re-centred programs per set of devices. Chosen, not measured."""
PROGRAMS = 0.4
"""Part of the time in which programs may be begun; the rest is for changes to their rounded answers. Chosen, not measured."""
POLISHED = 3
"""Rounded plans in which changes are tried. Chosen, not measured."""
TIGHTENED = 3
"""Programs with tighter caps that are tried where a rounded plan misses a limit on latency or energy. Chosen, not measured."""
NOTABLE = 1e-3
"""Part of the objective that a whole further limit must be worth to be named. Chosen: what a percentage of one decimal shows."""
STEP = 0.01
"""Part of a link's bandwidth that is added to see what it saves. Chosen: notes speak of one percent."""


@dataclass(frozen=True, slots=True)
class Try:
    """A judged plan, and the program it came from."""

    assignment: Assignment
    judged: Evaluation
    model: Model
    solution: Solution | None

    def rank(self, problem: Problem) -> tuple[float, float]:
        """What it misses of the limits, then what it costs."""
        return shortfall(problem, self.judged), self.judged.objective


def gp(problem: Problem, deadline: float) -> tuple[tuple[Assignment, ...], tuple[str, ...]]:
    """The best plan found, and notes on what more of each limit, link and power budget would be worth."""
    ways = [tuple(p for n in problem.graph.nodes if (p := divisible(problem, n, axes)) is not None) for axes in (AXES, ROW_AXES)]
    now = worked()
    until = [now + PROGRAMS * (i + 1) / len(ways) * (deadline - now) for i in range(len(ways))]
    tries = [t for parts, limit in zip(ways, until, strict=True) for t in _tries(problem, parts, limit)]
    if not tries:
        found = complete(problem, (), {})
        return (found,) if found is not None else (), ("gp: nothing here can be divided within the budgets",)
    start = min(t.rank(problem) for t in tries)
    different = {t.rank(problem): t for t in reversed(tries)}  # of plans that are alike, the first
    chosen = [different[rank] for rank in sorted(different)[:POLISHED]]
    every = tuple(p for parts in ways for p in parts)
    polished = [_polished(problem, every, t, _halfway(deadline) if t is not chosen[-1] else deadline) for t in chosen]
    best = min(polished, key=lambda t: t.rank(problem))
    gain = 1 - best.judged.objective / start[1] if start[0] == 0 else 0.0
    moves = f"gp: {counted(len(tries), 'rounded answer')} of geometric programs; changes to single nodes and runs of them " \
            f"saved {100 * gain:.1f} %"
    return (best.assignment,), (moves, *sentences(problem, sensitivities(problem, best.assignment, best.judged, best.model,
                                                                         best.solution)))


def _halfway(deadline: float) -> float:
    now = worked()
    return now + 0.5 * (deadline - now) if deadline < inf else deadline


def _polished(problem: Problem, parts: tuple[Divisible, ...], start: Try, deadline: float) -> Try:
    found = Polish(problem, parts, start.assignment, deadline)
    found.run()
    return replace(start, assignment=found.best, judged=found.judged)


def _tries(problem: Problem, parts: tuple[Divisible, ...], deadline: float) -> list[Try]:
    """Every set of devices solved and rounded by itself."""
    tries: list[Try] = []
    for devices in _subsets(problem) if parts else ():
        if tries and worked() > deadline:
            break
        tries += _rounded(problem, parts, devices)
    return tries


def _rounded(problem: Problem, parts: tuple[Divisible, ...], devices: frozenset[str]) -> list[Try]:
    """The program of some devices with its caps tightened until what is rounded keeps the limits, in two roundings."""
    found: list[Try] = []
    tightened = 1.0
    for _ in range(TIGHTENED):
        model, solution, shares = _shares(problem, parts, devices, tightened)
        for whole in (False, True):
            units = {p.node.name: split_of(p, _engines_whole(problem, shares[p.node.name]) if whole else shares[p.node.name])
                     for p in parts}
            assignment = complete(problem, parts, fit_budgets(problem, parts, units))
            if assignment is not None:
                found.append(Try(assignment, evaluate(problem, assignment), model, solution))
        missed = min((shortfall(problem, t.judged) for t in found), default=0.0)
        if not model.caps or missed == 0:
            break
        tightened /= 1 + min(1.0, missed)
    return found


def _engines_whole(problem: Problem, shares: Mapping[str, float]) -> Mapping[str, float]:
    """All of a node for a streaming device that has most of it, nothing for one that has less: streams like whole nodes."""
    first = max(shares, key=shares.__getitem__)
    if problem.streams(first):
        return {first: 1.0}
    kept = {d: s for d, s in shares.items() if not problem.streams(d)}
    return kept or shares


def _subsets(problem: Problem) -> list[frozenset[str]]:
    """All devices, then all but one, then single ones; more than three devices only as a whole and without each one."""
    devices = problem.devices
    sizes = range(len(devices), 0, -1) if len(devices) <= 3 else (len(devices), len(devices) - 1)
    return [frozenset(c) for n in sizes for c in combinations(devices, n)]


def _shares(problem: Problem, parts: Sequence[Divisible], devices: frozenset[str],
            tightened: float) -> tuple[Model, Solution | None, Shares]:
    """Shares over some devices; a node that none of them can run keeps all of its own."""
    taking = {p.node.name: tuple(d for d in p.fits if d in devices) or tuple(p.fits) for p in parts}
    model = model_of(problem, parts, taking, _weights(problem), tightened)
    # Limited devices start small, so that the first programs are not about getting back within the budgets.
    centre = np.array([0.05 if problem.platform.device(d).resources and len(taking[p.node.name]) > 1
                       else 1 / len(taking[p.node.name]) for p in parts for d in taking[p.node.name]])
    best = None if all(len(t) == 1 for t in taking.values()) else _centred(model, centre)
    shares = best.shares if best is not None else centre
    return model, best, {name: {d: float(shares[model.variables[name, d]]) for d in taking[name]} for name in taking}


def _centred(model: Model, centre: np.ndarray) -> Solution | None:
    """The program solved again and again around its last answer."""
    solver, best = LogProgram(model.program, centre, penalised=False), None
    for _ in range(ROUNDS):
        found = solver.solve(centre=centre)
        if found is None:
            break
        settled = best is not None and abs(best.objective - found.objective) <= CLOSE * found.objective
        best, centre = found, found.shares
        if settled:
            break
    return best


def _weights(problem: Problem) -> Weights:
    """Worth of a second and a joule; for energy-delay a relative saving in either counts the same at the power of all at work."""
    together = (1.0, 1 / sum(d.busy_power_w for d in problem.platform.devices))
    return {Goal.LATENCY: (1.0, 0.0), Goal.ENERGY: (0.0, 1.0), Goal.EDP: together, Goal.THROUGHPUT: (1.0, 0.0)}[problem.goal]


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
        platform = replace(problem.platform, links=tuple(wider if x is link else x for x in problem.platform.links))
        fresh = Problem(problem.graph, platform, problem.costs, problem.goal, problem.mode, problem.shared_budget)
        saved = judged.objective - evaluate(fresh, assignment).objective
        found.append(LimitSensitivity(link.name, "more GB/s", max(0.0, saved) / step * 1e9))
    return found


def _power(problem: Problem, judged: Evaluation) -> list[LimitSensitivity]:
    """A watt less of idle power saves its energy over the whole latency."""
    if problem.goal not in (Goal.ENERGY, Goal.EDP):
        return []
    return [LimitSensitivity("idle power", "watt less",
                             judged.latency_s * (judged.latency_s if problem.goal is Goal.EDP else 1.0))]


def sentences(problem: Problem, found: tuple[LimitSensitivity, ...]) -> tuple[str, ...]:
    """A note for each that saves anything."""
    scale, unit = {Goal.LATENCY: (1e6, "us"), Goal.ENERGY: (1e3, "mJ"), Goal.EDP: (1e6, "uJs"),
                   Goal.THROUGHPUT: (1e6, "us between frames")}[problem.goal]
    return tuple(f"gp: one {s.unit} of {s.what} saves {s.saves * scale:.3g} {unit}" for s in found if s.saves > 0)
