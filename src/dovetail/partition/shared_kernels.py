"""Which nodes of a plan one GPU kernel computes: it follows from the assignment, so plan files need not say it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from dovetail.ir import Graph
from dovetail.partition.plan import Assignment, whole_on
from dovetail.partition.problem import Problem
from dovetail.platform.device import Device

SHOWN = 4
"""Kernels that a note names. Chosen: what fits a line."""


@runtime_checkable
class KernelCosts(Protocol):
    """A cost model that knows kernels of several nodes."""

    def together(self, graph: Graph, nodes: frozenset[str], device: Device) -> tuple[tuple[str, ...], ...]:
        """Nodes that share a kernel, where all the given ones are whole on a device."""
        ...


def shared_kernels(problem: Problem, assignment: Assignment) -> Mapping[str, tuple[str, ...]]:
    """Of every node that shares its kernel, all the nodes of that kernel."""
    costs, found = problem.costs, dict[str, tuple[str, ...]]()
    if isinstance(costs, KernelCosts):
        for device in problem.platform.devices:
            whole = whole_on(device.name)
            here = frozenset(name for name, split in assignment.items() if split == whole)
            found |= {name: nodes for nodes in costs.together(problem.graph, here, device) for name in nodes} if here else {}
    return found


def kernels_note(problem: Problem, assignment: Assignment) -> tuple[str, ...]:
    """Which nodes share a kernel; nothing where none do."""
    kernels = list(dict.fromkeys(shared_kernels(problem, assignment).values()))
    if not kernels:
        return ()
    named = ", ".join(" + ".join(nodes) for nodes in sorted(kernels, key=len, reverse=True)[:SHOWN])
    more = f" and {len(kernels) - SHOWN} more" if len(kernels) > SHOWN else ""
    return (f"kernels: {len(kernels)} compute several nodes each: {named}{more}",)
