"""Successive geometric programming: continuous shares by re-centred condensation, then whole units, then the evaluator.

Weighted nodes get a share per device. A node takes as long as the last of its devices (concurrent) or all of them
(sequential); a device fetches what its node's producer left elsewhere, which is a posynomial of the producer's shares.
That shares sum to one is condensed to a monomial that is never above the sum, at the last answer, until that moves no more.
A program cannot leave a device out, so subsets of devices are tried in turn and crumbs dropped. The best rounded plan
by the evaluator is the answer: no number of a program is believed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import inf

import numpy as np

from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.gp_convex import LogProgram, Solution
from dovetail.partition.gp_posynomials import (
    Divisible,
    GeometricProgram,
    Monomial,
    Posynomial,
    divisible,
    of_share,
    smallest_share,
)
from dovetail.partition.gp_rounding import Shares, complete, fit_budgets, polish, split_of
from dovetail.partition.gp_snap import snap
from dovetail.partition.plan import Assignment, Goal, Mode
from dovetail.partition.problem import Problem
from dovetail.platform.device import Platform

ROUNDS = 8
"""Re-centred programs per set of devices."""
SETTLED = 1e-3
"""Relative change of the objective at which re-centring ends."""
POLISHED = 2
"""Rounded plans in which single moves are tried."""
FIXED_POWER = 0.25
"""Power of a producer's share that stands for whether anything has to be fetched from there at all."""

Weights = tuple[float, float]
"""Worth of a second and of a joule in the objective."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What one `unit` (such as "more GB/s") of something saves, in the goal's unit; never negative."""

    what: str
    unit: str
    saves: float


@dataclass(frozen=True, slots=True)
class _Model:
    """A geometric program, which variable is which node's share on which device, and the limits in the program's order."""

    program: GeometricProgram
    variables: Mapping[tuple[str, str], int]
    limits: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class _Try:
    """A judged plan and the program it came from."""

    assignment: Assignment
    judged: Evaluation
    model: _Model
    solution: Solution | None

    @property
    def worth(self) -> float:
        return self.judged.objective if self.judged.feasible else inf


def gp(problem: Problem, deadline: float) -> tuple[tuple[Assignment, ...], tuple[str, ...]]:
    """The best plan found, and notes on what more of each limit, link and power budget would be worth."""
    parts = tuple(p for n in problem.graph.nodes if (p := divisible(problem, n)) is not None)
    if not parts:
        found = complete(problem, parts, {})
        return (found,) if found is not None else (), ("gp: nothing here can be divided",)
    tries = _tries(problem, parts, deadline)
    if not tries:
        return (), ("gp: no rounding fits the budgets",)
    polished = [replace(t, assignment=a, judged=e) for t in sorted(tries, key=lambda t: t.worth)[:POLISHED]
                for a, e in [polish(problem, parts, t.assignment, deadline)]]
    best = min(polished, key=lambda t: t.worth)
    notes = tuple(f"gp: one {s.unit} of {s.what} saves {_printed(problem.goal, s.saves)}"
                  for s in _sensitivities(problem, best) if s.saves > 0)
    return (best.assignment,), notes


def _tries(problem: Problem, parts: Sequence[Divisible], deadline: float) -> list[_Try]:
    """Every set of devices solved and rounded by itself, then all answers together."""
    answers: list[Shares] = []
    tries: list[_Try] = []
    programs: list[tuple[_Model, Solution | None]] = []
    for devices in _subsets(problem):
        if answers and time.thread_time() > deadline:
            break
        model, solution, shares = _shares(problem, parts, devices)
        answers.append(shares)
        programs.append((model, solution))
        splits = fit_budgets(problem, parts, {p.node.name: split_of(p, shares[p.node.name]) for p in parts})
        assignment = complete(problem, parts, splits)
        if assignment is not None:
            tries.append(_Try(assignment, evaluate(problem, assignment), model, solution))
    values = [(t.judged.latency_s, t.judged.energy_j) for t in tries if t.judged.feasible]
    return tries + [_Try(a, evaluate(problem, a), *programs[0]) for a in snap(problem, answers, values, deadline)]


def _subsets(problem: Problem) -> list[frozenset[str]]:
    """All devices, then all but one, then single ones; more than three devices only as a whole and without each one."""
    devices = problem.devices
    sizes = range(len(devices), 0, -1) if len(devices) <= 3 else (len(devices), len(devices) - 1)
    return [frozenset(c) for n in sizes for c in combinations(devices, n)]


def _shares(problem: Problem, parts: Sequence[Divisible],
            devices: frozenset[str]) -> tuple[_Model, Solution | None, Shares]:
    """Shares over some devices; a node that none of them can run keeps all of its own."""
    taking = {p.node.name: tuple(d for d in p.fits if d in devices) or tuple(p.fits) for p in parts}
    weights = {Goal.LATENCY: (1.0, 0.0), Goal.ENERGY: (0.0, 1.0)}.get(problem.goal, (1.0, _seconds_per_joule(problem)))
    model = _model(problem, parts, taking, weights)
    lengths = [len(taking[p.node.name]) for p in parts]
    # Limited devices start small, so that the first programs are not about getting back within the budgets.
    centre = np.array([0.05 if problem.platform.device(d).resources and n > 1 else 1 / n
                       for p, n in zip(parts, lengths, strict=True) for d in taking[p.node.name]])
    solver, best = LogProgram(model.program, centre, penalised=False), None
    for _ in range(ROUNDS):
        found = solver.solve(centre=centre)
        if found is None:
            break
        settled = best is not None and abs(best.objective - found.objective) <= SETTLED * found.objective
        best, centre = found, found.shares
        if settled:
            break
    shares = best.shares if best is not None else centre
    return model, best, {name: {d: float(shares[model.variables[name, d]]) for d in taking[name]} for name in taking}


def _seconds_per_joule(problem: Problem) -> float:
    """For energy-delay: a relative saving in either is worth the same where power is that of all devices at work."""
    return 1 / sum(d.busy_power_w for d in problem.platform.devices)


def _model(problem: Problem, parts: Sequence[Divisible], taking: Mapping[str, tuple[str, ...]], weights: Weights) -> _Model:
    variables = {key: i for i, key in enumerate((p.node.name, d) for p in parts for d in taking[p.node.name])}
    objective: list[Posynomial] = []
    peaks: list[tuple[Posynomial, ...]] = []
    used: dict[tuple[str, ...], list[Posynomial]] = {}
    budgets = {(d, r): limit for d, r, limit in problem.budgets}
    worth_s = weights[0] + weights[1] * problem.idle_power_w
    for part in parts:
        times = []
        for device in taking[part.node.name]:
            variable = variables[part.node.name, device]
            fetch_s, fetch_j = _fetched(problem, part, device, variables)
            seconds = of_share(part.fits[device].seconds, variable, worth_s) + tuple(m.times(worth_s) for m in fetch_s)
            times.append(tuple(m for m in seconds if m.coefficient > 0))
            objective.append(of_share(part.fits[device].joules, variable, weights[1])
                             + tuple(m.times(weights[1]) for m in fetch_j if m.coefficient * weights[1] > 0))
            for resource, terms in part.fits[device].resources.items():
                key = (device, resource) if problem.shared_budget else (device, resource, part.node.name)
                used.setdefault(key, []).append(of_share(terms, variable, 1 / budgets[device, resource]))
        if problem.mode is Mode.CONCURRENT:
            peaks.append(tuple(times))
        else:
            objective += times
    groups = tuple(tuple(variables[p.node.name, d] for d in taking[p.node.name]) for p in parts)
    kept = {key: sum(found, ()) for key, found in used.items() if any(found)}
    floor = smallest_share(tuple(kept.values()), len(variables))
    program = GeometricProgram(np.full(len(variables), floor), groups, sum(objective, ()), tuple(kept.values()), tuple(peaks))
    return _Model(program, variables, tuple(kept))


def _fetched(problem: Problem, part: Divisible, device: str,
             variables: Mapping[tuple[str, str], int]) -> tuple[Posynomial, Posynomial]:
    """Seconds and joules of bringing a node's input to a device, by where its producer's shares are."""
    tensor = part.node.inputs[0]
    size = float(problem.graph.tensors[tensor].size)
    leader = _leader(problem, tensor, {name for name, _ in variables})
    sources = [(d, v) for (name, d), v in variables.items() if name == leader] if leader is not None \
        else [(problem.platform.host, None)]
    seconds, joules = [], []
    for source, variable in sources:
        if source == device and not problem.streams(device):
            continue
        (first_s, whole_s), (_, whole_j) = problem.transfer(source, device, np.array([1.0, size]))
        plain: tuple[tuple[int, float], ...] = () if variable is None else ((variable, 1.0),)
        fixed: tuple[tuple[int, float], ...] = () if variable is None else ((variable, FIXED_POWER),)
        seconds += [Monomial(float(whole_s - first_s), plain), Monomial(float(first_s), fixed)]
        joules.append(Monomial(float(whole_j), plain))
    return tuple(m for m in seconds if m.coefficient > 0), tuple(m for m in joules if m.coefficient > 0)


def _leader(problem: Problem, tensor: str, divided: set[str]) -> str | None:
    """The divided node whose shares say where a tensor lies, through nodes without weights; None for the host."""
    producer = problem.graph.producer(tensor)
    while producer is not None and producer.name not in divided:
        producer = problem.graph.producer(producer.inputs[0])
    return producer.name if producer is not None else None


def _sensitivities(problem: Problem, best: _Try) -> tuple[Sensitivity, ...]:
    """What one more unit of each limit, link and power is worth.

    Of limits by the program's dual prices, which hold for small changes of the continuous shares. Of links and idle power
    by judging the same plan with a little more: to first order a best plan need not change for that.
    """
    budgets = {(d, r): limit for d, r, limit in problem.budgets}
    assignment, judged, model = best.assignment, best.judged, best.model
    prices = best.solution.prices if best.solution is not None else np.zeros(0)
    worth: dict[tuple[str, str], float] = {}
    for key, price in zip(model.limits, prices.tolist(), strict=False):
        worth[key[0], key[1]] = worth.get((key[0], key[1]), 0.0) + price / budgets[key[0], key[1]]
    found = [Sensitivity(d, f"more {r}", saved) for (d, r), saved in worth.items()
             if saved * budgets[d, r] > SETTLED * judged.objective]
    for link in problem.platform.links:
        step = 0.01 * link.bandwidth_bytes_per_s
        wider = replace(link, bandwidth_bytes_per_s=link.bandwidth_bytes_per_s + step)
        links = tuple(wider if x is link else x for x in problem.platform.links)
        saved = judged.objective - _judged_on(problem, assignment, replace(problem.platform, links=links))
        found.append(Sensitivity(link.name, "more GB/s", max(0.0, saved) / step * 1e9))
    if problem.goal is not Goal.LATENCY:
        saved = judged.latency_s * (judged.latency_s if problem.goal is Goal.EDP else 1.0)
        found.append(Sensitivity("idle power", "watt less", saved))
    return tuple(found)


def _judged_on(problem: Problem, assignment: Assignment, platform: Platform) -> float:
    fresh = Problem(problem.graph, platform, problem.costs, problem.goal, problem.mode, problem.shared_budget)
    return evaluate(fresh, assignment).objective


def _printed(goal: Goal, value: float) -> str:
    scale, unit = {Goal.LATENCY: (1e6, "us"), Goal.ENERGY: (1e3, "mJ"), Goal.EDP: (1e6, "uJs")}[goal]
    return f"{value * scale:.3g} {unit}"
