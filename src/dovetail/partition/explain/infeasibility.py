"""Why no plan exists: the limit that cannot be met, and by how much."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from dovetail.errors import InfeasibleError
from dovetail.hardware.shares import Floats
from dovetail.ir import Node
from dovetail.partition.exact.cuts import Limit, Network, completions
from dovetail.partition.interval.limits import PER_FRAME
from dovetail.partition.plan import Split
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import PricedSplits
from dovetail.partition.tables.quotes import share_needs, whole_needs

INTERVAL = "interval between frames"


def quantity(value: float) -> str:
    """A resource count for people: 980, 11,760, 129k."""
    return f"{value:,.0f}" if abs(value) < 100_000 else f"{value / 1000:,.0f}k"


def obstacle(problem: Problem, node: Node, device: str) -> str | None:
    """Why a device cannot run a whole node: the operator, or a resource it lacks; None if it can."""
    needs = whole_needs(problem, node, device)
    if needs is None:
        return problem.costs.why_not(problem.graph, node, problem.platform.device(device)) or "no cost is known for it"
    limits = problem.limits[device]
    over = [f"needs about {quantity(amount)} {resource} of {quantity(limits[resource])}" for resource, amount in needs.items()
            if resource in limits and amount > limits[resource]]
    return ", ".join(over) or None


def no_column(problem: Problem, choices: Sequence[PricedSplits]) -> InfeasibleError | None:
    """The error for a node that no device can run, or not where it is pinned, if there is one."""
    for own in choices:
        if not len(own) and own.node.name in problem.fixed:
            return _pinned(problem, own.node, problem.fixed[own.node.name])
        if not len(own):
            same: dict[str, list[str]] = {}
            for d in problem.devices:
                same.setdefault(obstacle(problem, own.node, d) or "fits only in part", []).append(d)
            reasons = "; ".join(f"{', '.join(devices)}: {reason}" for reason, devices in same.items())
            return InfeasibleError(f"node {own.node.name}: no device can run it ({reasons}); "
                                   "use a platform with a capable or larger device")
    return None


def _pinned(problem: Problem, node: Node, split: Split) -> InfeasibleError:
    """The error for a node that does not fit where it is pinned: what it exceeds there by itself, or why it cannot run there."""
    over, cannot = list[str](), list[str]()
    for piece in split.pieces:
        needs, limits = share_needs(problem, node, split.axis, piece), problem.limits[piece.device]
        if needs is None:
            reason = problem.costs.why_not(problem.graph, node, problem.platform.device(piece.device))
            cannot.append(f"{piece.device} cannot run it, {reason or 'no cost is known for it'}")
        else:
            over += [f"{piece.device} {r} {quantity(amount)} > {quantity(limits[r])}" for r, amount in needs.items()
                     if amount > limits.get(r, inf)]
    if over and not cannot:
        return InfeasibleError(f"{', '.join(over)} already at {node.name}, which is pinned there; "
                               "pin it elsewhere, or use a platform with a larger device")
    why = "; ".join(cannot) or f"{', '.join(dict.fromkeys(split.devices))} cannot hold it"
    return InfeasibleError(f"node {node.name}: it is pinned where it cannot run ({why}); pin it elsewhere")


def missed(name: str, who: str, least: float, limit: float) -> InfeasibleError:
    """The error for one limit; times and energy are told in ms and mJ, as in the options."""
    unit = " mJ" if name == "energy" else " ms" if name in ("latency", INTERVAL) or name.endswith(PER_FRAME) else ""
    scale = 1e3 if unit else 1.0
    error = InfeasibleError(f"{name}: {who} needs at least {least * scale:.6g}{unit}, {limit * scale:.6g}{unit} allowed, "
                            f"{(least - limit) * scale:.6g}{unit} too much; raise the limit")
    error.excess = least / limit - 1
    return error


def no_plan(net: Network, feasible: Callable[[Network], bool]) -> InfeasibleError:
    """The error for limits that cannot be met, alone or together; `feasible` says whether a network has a legal plan."""
    for limit in net.limits:
        amounts = net.amounts(limit)
        wide = [a + 0.0 * own.latency_s for a, own in zip(amounts, net.owners, strict=True)]
        least = float(completions(net, wide)[0]) * limit.limit
        if least > limit.limit:
            found = missed(limit.name, "every plan", least, limit.limit)
            return found if limit.budget is None else _already(net, limit, amounts, found)
    needed = list(net.limits)
    for limit in net.limits:  # what can be dropped without making a plan possible is no part of the reason
        rest = [x for x in needed if x is not limit]
        if len(rest) > 1 and not feasible(replace(net, limits=tuple(rest))):
            needed = rest
    names = ", ".join(x.name for x in needed)
    return InfeasibleError(f"limits {names}: each can be met, but no plan meets all of them together; raise one")


def _already(net: Network, limit: Limit, amounts: Sequence[Floats], error: InfeasibleError) -> InfeasibleError:
    """The same error with the node at which even the smallest legal shares exceed a budget."""
    used = 0.0
    for table, amount in zip(net.tables, amounts, strict=False):
        used += float(amount.min()) * limit.limit
        if used > limit.limit:
            return InfeasibleError(f"{limit.name} {quantity(used)} > {quantity(limit.limit)} already at {table.node.name}, "
                                   f"smallest legal share; {error}")
    return error
