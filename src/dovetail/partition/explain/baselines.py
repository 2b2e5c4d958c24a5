"""Plans anyone would try first: one device for all, even shares, node by node. Every plan prints them beside itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.hardware.shares import Flags, Floats
from dovetail.ir import Node
from dovetail.partition.candidates import divide, even_counts, even_cuts
from dovetail.partition.effort import spend
from dovetail.partition.evaluate import Evaluation, cost_node, delivery, evaluate
from dovetail.partition.exact.separate_bound import least_costs
from dovetail.partition.interval.busy import added, moved
from dovetail.partition.interval.tables import busy_table, shared_names
from dovetail.partition.plan import Assignment, Goal, Mode, NodeCost, Split, whole_on
from dovetail.partition.problem import TWINS, Problem, axes_of
from dovetail.partition.tables.columns import Held, PricedSplits, fits, inputs_held, options
from dovetail.partition.tables.costs import tabulate
from dovetail.partition.tables.quotes import capable
from dovetail.partition.tolerances import TOLERANCE
from dovetail.partition.work import Place, deliveries, input_places, output_place, work_of
from dovetail.platform.device import Kind

Columns = Callable[[Node], Sequence[Split]]


def single(problem: Problem, kind: Kind) -> Assignment | None:
    """Everything on the first device of a kind that can run it all; fixed nodes stay where they are.

    None also where a node alone exceeds the device.
    """
    for device in problem.platform.of_kind(kind):
        if all(n.name in problem.fixed or fits(problem, n, whole_on(device.name)) for n in problem.graph.nodes):
            return {n.name: problem.fixed.get(n.name, whole_on(device.name)) for n in problem.graph.nodes}
    return None


def alone(problem: Problem, kind: Kind) -> Evaluation | None:
    """What the first device of a kind that can run the whole network does with it, whatever nodes are fixed elsewhere."""
    for device in problem.platform.of_kind(kind):
        whole = {n.name: whole_on(device.name) for n in problem.graph.nodes}
        there = problem.pinned(whole)
        if all(fits(there, n, whole[n.name]) for n in problem.graph.nodes):
            return evaluate(there, whole)
    return None


def best_single(problem: Problem) -> Assignment | None:
    """The best of these for any kind of device; None where none keeps all limits."""
    judged = [(evaluate(problem, a), a) for kind in Kind if (a := single(problem, kind)) is not None]
    legal = [(e.objective, i, a) for i, (e, a) in enumerate(judged) if e.feasible]
    return min(legal)[2] if legal else None


@dataclass(frozen=True, slots=True)
class _Partial:
    """A plan for the first nodes."""

    splits: Mapping[str, Split]
    places: Mapping[str, Place]
    latency_s: float
    energy_j: float
    used: Mapping[tuple[str, str], float]
    busy_s: Mapping[str, float]

    @property
    def interval_s(self) -> float:
        return max(self.busy_s.values(), default=0.0)


def _extended(problem: Problem, plan: _Partial, node: Node, split: Split) -> _Partial | None:
    """The plan with one more node, None if a budget is exceeded or the device cannot."""
    if not fits(problem, node, split):
        return None
    try:
        cost = cost_node(problem, node, split, work_of(problem, node, split, plan.places))
    except UnsupportedError:
        return None
    used = _with_usage(problem, plan.used, cost)
    if used is None:
        return None
    place = output_place(problem, node, split)
    home, busy = (0.0, 0.0), cost.busy_s if problem.goal is Goal.THROUGHPUT else {}  # nobody else asks for the interval
    if node.output in problem.graph.outputs:
        home, busy = delivery(problem, node.output, place), moved(dict(busy), deliveries(problem, node.output, place))
    return _Partial({**plan.splits, node.name: split}, {**plan.places, node.output: place},
                    plan.latency_s + cost.latency_s + home[0], plan.energy_j + cost.energy_j + home[1], used,
                    added((plan.busy_s, busy)) if busy else plan.busy_s)


def _with_usage(problem: Problem, used: Mapping[tuple[str, str], float],
                cost: NodeCost) -> Mapping[tuple[str, str], float] | None:
    """What is used of budgets with a node's part, or that part alone where every layer has them to itself; None if too much."""
    if not cost.resources:
        return used if problem.shared_budget else {}
    grown = dict(used) if problem.shared_budget else {}
    for device, resource, limit in problem.budgets:
        own = cost.resources.get(device)
        if own is None or resource not in own:
            continue
        key = (device, resource)
        grown[key] = grown.get(key, 0.0) + own[resource]
        if grown[key] > limit * (1 + TOLERANCE):
            return None
    return grown


Kept = Callable[[Problem, list[_Partial]], list[_Partial]]
"""Which of all beginnings are gone on with."""


def extend_beginnings(problem: Problem, choices: Columns, kept: Kept) -> Assignment | None:
    """Plans grown node by node from the beginnings kept of each step; None if all of them run out of budget."""
    plans = [_Partial({}, input_places(problem), 0.0, 0.0, {}, {})]
    for node in problem.graph.nodes:
        splits = choices(node)
        plans = kept(problem, [new for plan in plans for split in splits
                               if (new := _extended(problem, plan, node, split)) is not None])
    return min(plans, key=lambda p: _worth(problem, p)).splits if plans else None


def _worth(problem: Problem, plan: _Partial) -> float:
    return problem.score(plan.latency_s, plan.energy_j, plan.interval_s)


def best_per_last_split(problem: Problem, plans: list[_Partial]) -> list[_Partial]:
    """Of all beginnings that run their last node in the same way, the best one."""
    best: dict[Split, _Partial] = {}
    for plan in sorted(plans, key=lambda p: _worth(problem, p)):
        best.setdefault(list(plan.splits.values())[-1], plan)
    return list(best.values())


def beam(problem: Problem, choices: Columns, width: int) -> Assignment | None:
    """Keep the `width` best beginnings node by node; None if all of them run out of budget."""
    return extend_beginnings(problem, choices, lambda _, plans: sorted(plans, key=lambda p: _worth(problem, p))[:width])


def greedy(problem: Problem) -> Assignment | None:
    """Node by node the column that is best given the past, within the budget left."""
    if problem.goal is Goal.THROUGHPUT:
        return _least_busy(problem) if problem.mode is Mode.CONCURRENT else greedy(replace(problem, goal=Goal.LATENCY))
    choices = [options(problem, n) for n in problem.graph.nodes]
    if not all(len(own) for own in choices):
        return None
    known, places, limits = inputs_held(problem), input_places(problem), _limits(problem)
    used, spent = np.zeros(len(limits)), (0.0, 0.0)
    splits: dict[str, Split] = {}
    for own in choices:
        spend("greedy", 1, own.resources.size)
        room = _room(problem, own, used, limits) & _begun(problem, own, used)
        if not np.count_nonzero(room):
            return None
        best, spent = _best_column(problem, own, room, spent, known, places)
        node, split = own.node, own.split(best)
        splits[node.name], used = split, used + own.resources[best]
        known[node.output], places[node.output] = own.held_by(best), output_place(problem, node, split)
    return splits


def _best_column(problem: Problem, own: PricedSplits, room: Flags, before: tuple[float, float], known: Mapping[str, Held],
                 places: Mapping[str, Place]) -> tuple[int, tuple[float, float]]:
    """The best of the columns with room, and latency and energy with it, given those before.

    What is worse than one of them even without transfers is left out. Few others are judged one by one, many in a table.
    """
    def score(latency: Floats, energy: Floats) -> Floats:
        return {Goal.LATENCY: latency, Goal.ENERGY: energy, Goal.EDP: latency * energy}[problem.goal]

    def judged(column: int) -> tuple[float, float]:
        split = own.split(column)
        cost = cost_node(problem, own.node, split, work_of(problem, own.node, split, places))
        return before[0] + cost.latency_s + own.home_s.item(column), before[1] + cost.energy_j + own.home_j.item(column)

    seconds, joules = least_costs(problem, own)
    least = np.where(room, score(before[0] + seconds + own.home_s,
                                 before[1] + joules + problem.idle_power_w * seconds + own.home_j), np.inf)
    left = (least <= problem.score(*judged(int(least.argmin()))) * (1 + TOLERANCE)).nonzero()[0]
    if len(left) <= FEW:
        latency, energy = np.array([judged(i) for i in left.tolist()]).T
    else:
        table = tabulate(problem, own.keep(left), known)
        latency = before[0] + table.latency_s.ravel()
        energy = before[1] + table.energy_j.ravel() if problem.goal is not Goal.LATENCY else np.zeros(len(left))
    best = int(score(latency, energy).argmin())
    return int(left[best]), (latency.item(best), energy.item(best))


def _limits(problem: Problem) -> Floats:
    """The budgets, with what rounding may exceed them by."""
    return np.array([limit * (1 + TOLERANCE) for _, _, limit in problem.budgets])


def _room(problem: Problem, own: PricedSplits, used: Floats, limits: Floats) -> Flags:
    """Which columns of a node fit beside what is used already, or, where every layer has the budget to itself, alone."""
    return np.asarray((own.resources + (used if problem.shared_budget else 0.0) <= limits).all(axis=1))


def _begun(problem: Problem, own: PricedSplits, used: Floats) -> Flags:
    """Columns without boards that nothing is on yet, of equal ones, but for the first two: another one is no better."""
    taken = {d for (d, _, _), amount in zip(problem.budgets, used.tolist(), strict=True) if amount > 0}
    idle = [problem.devices.index(d) for d in problem.memo.of(TWINS) if d not in taken][IDLE:]
    return np.asarray(~own.pattern.has[own.columns][:, idle].any(axis=1))


IDLE = 2
"""Idle boards among equal ones that a node is offered. Chosen, not measured."""
FEW = 8
"""Columns of a node that are judged one by one: up to so many are quicker than a table. Chosen, not measured."""


def _least_busy(problem: Problem) -> Assignment | None:
    """Node by node the column after which the busiest is least busy, then all together, within the budget left."""
    known, busy = inputs_held(problem), dict.fromkeys(shared_names(problem), 0.0)
    limits, slowest = _limits(problem), 0.0
    used = np.zeros(len(limits))
    splits: dict[str, Split] = {}
    for node in problem.graph.nodes:
        own = options(problem, node)
        room = _room(problem, own, used, limits)
        if not np.count_nonzero(room):
            return None
        found = busy_table(problem, own, known)
        after = np.stack([busy[name] + np.zeros(len(own)) + found.shared.get(name, np.zeros(1)).ravel() for name in busy])
        interval = np.maximum(np.maximum(after.max(axis=0), found.engines), slowest)
        best = int(np.lexsort((after.sum(axis=0), np.where(room, interval, np.inf)))[0])
        busy, used = dict(zip(busy, after[:, best].tolist(), strict=True)), used + own.resources[best]
        slowest = max(slowest, float(found.engines[best]))
        splits[node.name], known[node.output] = own.split(best), own.held_by(best)
    return splits


def balanced(problem: Problem) -> Assignment | None:
    """Every divisible node divided evenly among the devices that can take it, fewer devices where the budget ends."""
    plan: _Partial | None = _Partial({}, input_places(problem), 0.0, 0.0, {}, {})
    for node in problem.graph.nodes:
        assert plan is not None, "the loop ends when a node finds no place"
        options = [problem.fixed[node.name]] if node.name in problem.fixed else _even_splits(problem, node)
        plan = next((new for s in options if (new := _extended(problem, plan, node, s)) is not None), None)
        if plan is None:
            return None
    return plan.splits if plan is not None else None


def _even_splits(problem: Problem, node: Node) -> list[Split]:
    """Even splits over all capable devices, then over fewer, dropping those with budgets first; whole placements last."""
    able = [d for d in problem.devices if capable(problem, node, d)]
    by_need = sorted(able, key=lambda d: (bool(problem.platform.device(d).resources), -problem.devices.index(d)))
    found: list[Split] = []
    axis, counts = even_counts(problem, node, len(able))
    if axis is not None:
        extent = axes_of(problem, node)[axis]
        found = [divide(axis, even_cuts(extent, count), extent, sorted(by_need[:count], key=problem.devices.index))
                 for count in counts]
    hosts_first = sorted(able, key=lambda d: (d != problem.platform.host, bool(problem.platform.device(d).resources)))
    return found + [whole_on(d) for d in hosts_first]


def chance(problem: Problem) -> Assignment | None:
    """Every node drawn from its columns that the budget left has room for, by a seed that never changes."""
    draw, limits = np.random.default_rng(0), _limits(problem)
    used = np.zeros(len(limits))
    splits: dict[str, Split] = {}
    for node in problem.graph.nodes:
        own = options(problem, node)
        room = _room(problem, own, used, limits).nonzero()[0]
        if not len(room):
            return None
        one = int(room[draw.integers(len(room), size=1)[0]])
        used, splits[node.name] = used + own.resources[one], own.split(one)
    return splits


def objectives(problem: Problem, judged: Mapping[str, Evaluation]) -> dict[str, float | None]:
    """The objective of every baseline, None where there is none or it misses a limit.

    Where nodes are fixed, single devices are judged without that: with it they would not be alone.
    """
    found: dict[str, Evaluation | None] = {**dict.fromkeys(BASELINES), **judged}
    if problem.fixed:
        found |= {kind.value: alone(problem, kind) for kind in Kind}
    return {name: e.objective if e is not None and e.feasible else None for name, e in found.items()}


BASELINES: dict[str, Callable[[Problem], Assignment | None]] = {
    "cpu": lambda p: single(p, Kind.CPU),
    "gpu": lambda p: single(p, Kind.GPU),
    "fpga": lambda p: single(p, Kind.FPGA),
    "greedy": greedy,
    "balanced": balanced,
    "random": chance,
}
