"""A solver that leaves every node to the host."""

from __future__ import annotations

from dovetail.partition.exact.solver import Answer
from dovetail.partition.plan import whole_on
from dovetail.partition.problem import Problem


def host_alone(problem: Problem, known: object, deadline: float, gap: float) -> tuple[Answer, tuple[str, ...]]:
    """Everything on the host; no plan takes less than no time, so the bound is 0."""
    return Answer(({node.name: whole_on(problem.platform.host) for node in problem.graph.nodes},), 0.0), ()
