"""A judged assignment as a plan: its proof, costs node by node, what it takes of every budget, baselines and notes."""

from __future__ import annotations

from dataclasses import replace

from dovetail.ir import Graph
from dovetail.partition.evaluate import Evaluation
from dovetail.partition.interval.busy import busiest
from dovetail.partition.plan import Assignment, Plan, Status
from dovetail.partition.problem import Problem
from dovetail.partition.tolerances import ROUNDING, TOLERANCE


def finished(problem: Problem, graph: Graph, solver: str, assignment: Assignment, best: Evaluation, bound: float,
              baselines: dict[str, float | None], notes: tuple[str, ...], sentences: dict[str, str]) -> Plan:
    """The plan. Its bound was held against plans over the candidates before (`proof`), and covers no others.

    What is left to cut off a bound is rounding, and of plans with cuts between the candidates what they are better by.
    """
    lower, costs = min(bound * (1 - ROUNDING), best.objective), {c.node: c for c in best.nodes}
    proven = best.objective - lower <= TOLERANCE * abs(best.objective)
    resources = {d: {r: (best.resources[d][r], limit) for owner, r, limit in problem.budgets if owner == d}
                 for d in dict.fromkeys(owner for owner, _, _ in problem.budgets)}
    return Plan(
        model=problem.graph.name, platform=problem.platform.name, goal=problem.goal, mode=problem.mode, solver=solver,
        status=Status.OPTIMAL if proven else Status.FEASIBLE, assignment=dict(assignment),
        nodes=tuple(replace(costs[n.name], why=sentences[n.name]) if n.name in sentences else costs[n.name] for n in graph.nodes),
        objective=best.objective,
        lower_bound=lower, latency_s=best.latency_s, energy_j=best.energy_j, interval_s=best.interval_s,
        busy_s=busiest(problem, best.busy_s), resources=resources, baselines=baselines,
        pinned=len(problem.fixed), notes=notes)
