"""The best whole plan in which one node is elsewhere, for every node: what its place is worth once all others may answer.

The dynamic program over cuts finds it once the node's own column is forbidden, with prices on the limits. The plan is judged
like any other, beside those in which the node alone is moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.partition.evaluate import Evaluation, reevaluate_all
from dovetail.partition.exact.cuts import Network, completions, follow, network, price_limits, priced_costs, totals
from dovetail.partition.exact.elimination import Ranking, thin
from dovetail.partition.exact.separate_bound import least_costs
from dovetail.partition.interval.tables import busy_table, shared_names
from dovetail.partition.interval.weights import Ledger
from dovetail.partition.parallel.block_steps import Jump, jumps, whole_columns
from dovetail.partition.plan import Assignment, Goal, Mode, Split
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import PricedSplits, compacted, inputs_held, options
from dovetail.partition.tables.costs import tabulate_all
from dovetail.partition.tolerances import TOLERANCE

NEAR = 250
"""Columns of all nodes, besides whole placements and the plan's own, that other plans are made of. Chosen, not measured."""
FEW = (4, 2, 0)
"""The same per node in large graphs, and in wide ones. Chosen, not measured."""
WORK = 6000
"""Nodes that others may answer to times nodes of the graph; in large graphs all but the dearest are moved alone.

Chosen, not measured.
"""
LEAST = 16
"""Nodes that others may answer to in any graph. Chosen, not measured."""
MANY = 30_000
"""Columns of all nodes from which on only the cheapest of each are looked at. Chosen, not measured."""
CHEAPEST = 16
"""How many these are. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The best plan found with a node elsewhere: where, how good, and how many other nodes it moves."""

    split: Split
    judged: Evaluation
    moved: int


def rivals_of(problem: Problem, assignment: Assignment) -> list[PricedSplits]:
    """The columns that other plans may be made of: all of them, in large graphs the cheapest by themselves and the whole ones."""
    choices = [options(problem, n) for n in problem.graph.nodes]
    if sum(map(len, choices)) <= MANY:
        return choices
    found = []
    for own in choices:
        seconds, joules = least_costs(problem, own)
        cheap = np.argsort(joules if problem.goal is Goal.ENERGY else seconds, kind="stable")[:CHEAPEST]
        mine = [i for i, s in enumerate(own.splits) if s == assignment[own.node.name]] if len(own) > CHEAPEST else []
        found.append(own.keep(np.unique(np.r_[cheap, list(whole_columns(own).values()), mine]).astype(np.int64)))
    return compacted(found)


def runners_up(problem: Problem, assignment: Assignment, judged: Evaluation, choices: list[PricedSplits],
               ranking: Ranking) -> dict[str, RunnerUp]:
    """Node to runner-up, made of the given columns, which `ranking` bounds.

    Nodes that are fixed, or can run in one way only, have none. None at all for graphs too wide.
    """
    kept = _near(problem, assignment, choices, ranking)
    if kept is None:
        return {}
    known = inputs_held(problem) | {c.node.output: c.held for c in kept}
    # How long frames are apart does not depend on who runs beside whom.
    over = jumps(problem, kept, known) if problem.goal is not Goal.THROUGHPUT else ()
    net = network(problem, tuple(tabulate_all(problem, kept, known)), over)
    amounts = [net.amounts(x) for x in net.limits]
    base, prices = _costs(problem, net, judged)
    costs = priced_costs(base, amounts, prices)
    ordered = sorted(judged.nodes, key=lambda c: -c.latency_s)
    dearest = {c.node for c in ordered[:max(LEAST, WORK // len(ordered))]}
    found: dict[str, RunnerUp] = {}
    for k, table in enumerate(net.tables):
        name, own = table.node.name, assignment[table.node.name]
        if name in problem.fixed:
            continue
        moved: list[Assignment] = [{name: split} for split in table.splits if split != own]
        path = _elsewhere(net, costs, k, own) if name in dearest else ()
        if path and max([0.0, *totals(net, path, amounts)]) <= 1 + TOLERANCE:
            moved.append({n: split for n, split in net.assignment(path).items() if split != assignment[n]})
        legal = [(e, moves) for moves in moved if (e := reevaluate_all(problem, assignment, judged, moves)).feasible]
        if legal:
            second, moves = min(legal, key=lambda pair: pair[0].objective)
            found[name] = RunnerUp(moves[name], second, len(moves) - 1)
    return found


def _elsewhere(net: Network, costs: list[Floats], k: int, own: Split) -> tuple[int, ...]:
    """The cheapest plan in which node k is not split as it is now; nothing where there is none."""
    table, allowed = net.tables[k], list(costs)
    allowed[k] = np.where([split == own for split in table.splits], inf, costs[k])
    for step in (s for cut in range(k + 1) for s in net.steps(cut) if s.start <= k < s.stop):
        if isinstance(step.own, Jump) and own.axis is None:
            group = np.repeat(np.arange(len(step.own.groups)), [len(g) for g in step.own.groups])[k - step.start]
            there = step.own.devices[:, group] == net.problem.devices.index(own.devices[0])
            allowed[step.index] = np.where(there, inf, costs[step.index])
    to_go = completions(net, allowed)
    return follow(net, allowed, to_go) if to_go[0] < inf else ()


def _near(problem: Problem, assignment: Assignment, choices: list[PricedSplits], ranking: Ranking) -> list[PricedSplits] | None:
    """The most promising columns, with all whole placements and the plan's own; as many as leave the plan's own in."""
    mine = [[i for i, s in enumerate(own.splits) if s == assignment[own.node.name]] for own in choices]
    for count in (max(FEW[0], NEAR // len(choices)), *FEW):
        found = []
        for own, core, at in zip(choices, ranking.core(choices, count), mine, strict=True):
            both = np.union1d(np.searchsorted(own.columns, core.columns), np.array(at, dtype=np.int64))
            found.append(own.keep(both.astype(np.int64)))
        kept = thin(problem, found)
        if kept is not None and all(not at or own.columns[at[0]] in left.columns
                                    for own, left, at in zip(choices, kept, mine, strict=True)):
            return kept
    return None


def _costs(problem: Problem, net: Network, judged: Evaluation) -> tuple[list[Floats], Floats]:
    """What entries of the tables cost towards the goal (products and intervals along their slope at the plan), limits' prices."""
    if problem.goal is Goal.THROUGHPUT and problem.mode is Mode.CONCURRENT:
        known = inputs_held(problem) | {t.node.output: t.options.held for t in net.tables}
        names = shared_names(problem)
        ledger = Ledger(names, net.tables, [busy_table(problem, t.options, known) for t in net.tables], [])
        busy = np.array([judged.busy_s.get(n, 0.0) / judged.interval_s for n in names]) ** SHARP
        weights = busy / busy.sum() if busy.sum() > 0 else np.full(len(names), 1 / len(names))
        return ledger.costs(weights, np.zeros(0)), np.zeros(len(net.limits))
    worth = {Goal.ENERGY: (0.0, 1.0), Goal.EDP: (judged.energy_j, judged.latency_s)}.get(problem.goal, (1.0, 0.0))
    prices = price_limits(net, worth, inf, inf).prices
    return net.costs(worth), prices


SHARP = 16
"""Power of what each thing is busy with, relative to the busiest, that weighs it when an interval is explained.

Chosen, not measured.
"""
