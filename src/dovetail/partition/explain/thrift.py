"""Thrift: give up a sliver of the objective where it buys back much of a device.

The best plan fills an FPGA for the last few percent, which is less than the device models' own error. Some
people would rather keep the area, the synthesis time and the simpler plan. The bound stays that of the full problem, so
what was given up is told apart from the gap.
"""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.ir import Node
from dovetail.partition.effort import spend
from dovetail.partition.evaluate import Evaluation, reevaluate
from dovetail.partition.plan import Assignment, Split
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import options
from dovetail.partition.tables.transfers import wide
from dovetail.partition.tolerances import TOLERANCE

RATE = 5.0
"""Each part of the objective given up must buy back at least this many parts of the budgets.

Chosen: what is given up is small beside what is saved.
"""
MIN_SAVING = 1e-6
"""Share of a budget below which a change saves nothing worth naming. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A cheaper plan with what it gave up and saved, as a sentence (empty if nothing changed)."""

    assignment: Assignment
    evaluation: Evaluation
    note: str


def area(problem: Problem, judged: Evaluation) -> float:
    """Budgets used, each as a fraction of its limit, added up."""
    return sum(judged.resources.get(d, {}).get(r, 0.0) / limit for d, r, limit in problem.budgets if limit > 0)


def spare(problem: Problem, assignment: Assignment, judged: Evaluation, ceiling: float) -> Saved:
    """Move nodes off limited devices, largest saving first, while the objective stays at or below `ceiling`."""
    start, chosen = judged, dict(assignment)
    while True:
        used, value = area(problem, judged), judged.objective
        tried = [(area(problem, e), i, name, split, e)
                 for i, (name, split) in enumerate(_moves(problem, chosen, judged))
                 if (e := reevaluate(problem, chosen, judged, name, split)).feasible and e.objective <= ceiling]
        worth = [t for t in tried
                 if used - t[0] >= max(MIN_SAVING, RATE * (t[4].objective - value) / start.objective)]
        if not worth:
            break
        _, _, name, split, judged = min(worth, key=lambda t: t[:2])
        chosen[name] = split
        judged = _settle(problem, chosen, judged, name)
    if judged is start:
        return Saved(assignment, judged, "")
    return Saved(chosen, judged, _sentence(problem, start, judged))


def _settle(problem: Problem, chosen: dict[str, Split], judged: Evaluation, moved: str) -> Evaluation:
    """Let the neighbours of a move answer it: whole placements that cost less and take no more area, until none is left."""
    used, waiting = area(problem, judged), _neighbours(problem, moved)
    while waiting:
        node = waiting.pop(0)
        for split in _whole_placements(problem, node, chosen):
            found = reevaluate(problem, chosen, judged, node.name, split) if split != chosen[node.name] else judged
            if found.feasible and found.objective < judged.objective * (1 - TOLERANCE) and area(problem, found) <= used:
                judged, used = found, area(problem, found)
                chosen[node.name] = split
                waiting += [n for n in _neighbours(problem, node.name) if n not in waiting]
    return judged


def _neighbours(problem: Problem, name: str) -> list[Node]:
    """The node and those whose transfers its place decides: who makes what it reads, who reads what it makes."""
    graph, node = problem.graph, problem.graph.node(name)
    makers = [p for t in node.inputs if (p := graph.producer(t)) is not None]
    return list(dict.fromkeys((*makers, node, *graph.consumers(node.output))))


def _whole_placements(problem: Problem, node: Node, chosen: Assignment) -> list[Split]:
    """Whole placements, of many devices on those without budgets and on those that the node and its neighbours are on."""
    if node.name in problem.fixed:
        return []
    near = {d for n in _neighbours(problem, node.name) for d in chosen[n.name].devices}
    many = not wide(problem)
    spend("splits", 1, len(options(problem, node)))
    return [s for s in options(problem, node).splits if s.axis is None
            and not (many and s.devices[0] not in near and problem.platform.device(s.devices[0]).resources)]


def _moves(problem: Problem, chosen: Assignment, judged: Evaluation) -> list[tuple[str, Split]]:
    """Whole placements elsewhere for every node that uses a limited resource."""
    users = {c.node for c in judged.nodes if any(amount > 0 for used in c.resources.values() for amount in used.values())}
    return [(node.name, split) for node in problem.graph.nodes if node.name in users
            for split in _whole_placements(problem, node, chosen) if split != chosen[node.name]]


def _sentence(problem: Problem, before: Evaluation, after: Evaluation) -> str:
    saved = [(before.resources[d][r] - after.resources[d][r], r, limit) for d, r, limit in problem.budgets
             if before.resources.get(d, {}).get(r, 0.0) > after.resources.get(d, {}).get(r, 0.0)]
    amount, resource, limit = max(saved, key=lambda s: s[0] / s[2])
    changes = ", ".join(f"{name} {100 * (now / then - 1):+.2f} %" for name, then, now in (
        ("latency", before.latency_s, after.latency_s), ("energy", before.energy_j, after.energy_j),
        ("frames/s", after.interval_s, before.interval_s)) if then > 0)
    changes = changes.replace("-", "−")  # as the verdict writes it
    return (f"thrift: {changes} against the best plan found, to save {amount:,.0f} {resource} ({100 * amount / limit:.0f} % of "
            "the device); --thrift 0 keeps it")
