"""The best whole plan in which one node is elsewhere, for every node: what its place is worth once all others may answer.

Costs of reaching every state of the cuts and of completing it meet at each node: their sum over one column is the cheapest
plan that uses it, with prices on the limits. The plan is traced and judged like any other; where limits bind, the first few
of a node's columns are tried until one keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np

from dovetail.cost.estimate import Floats
from dovetail.partition.busy_tables import busy_table, shared_names
from dovetail.partition.busy_weights import Ledger
from dovetail.partition.columns import Options, inputs_held, options
from dovetail.partition.cuts import Network, completions, network, price_limits, priced_costs, total
from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.narrow import Ranking, thin
from dovetail.partition.plan import Assignment, Goal, Mode, Split
from dovetail.partition.problem import TOLERANCE, Problem
from dovetail.partition.tables import tabulate

NEAR = 250
"""Columns of all nodes, besides whole placements and the plan's own, that other plans are made of."""
FEW = (4, 2, 0)
"""The same per node in large graphs, and in wide ones."""
TRIED = 2
"""Columns of a node that are tried under each price."""
PARTS = (0.0, 0.5, 1.0)
"""Parts of the limits' best prices under which plans are looked for: at full prices plans can be thriftier than they need be."""


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The best plan found with a node elsewhere: where, how good, and how many other nodes it moves."""

    split: Split
    judged: Evaluation
    moved: int


def runners_up(problem: Problem, assignment: Assignment, judged: Evaluation, ranking: Ranking,
               deadline: float = inf) -> dict[str, RunnerUp]:
    """Node to runner-up; nodes that are fixed, or can run in one way only, have none. None at all for graphs too wide."""
    kept = _near(problem, assignment, ranking)
    if kept is None:
        return {}
    known = inputs_held(problem) | {c.node.output: c.held for c in kept}
    net = network(problem, tuple(tabulate(problem, c, known) for c in kept))
    rivals = _Rivals(problem, net, assignment, judged, deadline)
    found: dict[str, RunnerUp] = {}
    for k, own in enumerate(kept):
        name = own.node.name
        plan = rivals.best(k) if name not in problem.fixed else None
        if plan is not None and (value := evaluate(problem, plan)).feasible:
            found[name] = RunnerUp(plan[name], value, sum(plan[n] != assignment[n] for n in assignment if n != name))
    return found


class _Rivals:
    """Plans with one node elsewhere: the cheapest under several prices on the limits, and the plan with that node changed."""

    def __init__(self, problem: Problem, net: Network, assignment: Assignment, judged: Evaluation, deadline: float) -> None:
        self.net, self.amounts = net, [net.amounts(x) for x in net.limits]
        self.base, prices = _costs(problem, net, judged, deadline)
        self.traces = [_Trace(net, priced_costs(self.base, self.amounts, part * prices))
                       for part in (PARTS if prices.any() else PARTS[:1])]
        place = [{s: c for c, s in enumerate(t.splits)}.get(assignment[t.node.name]) for t in net.tables]
        self.own = tuple(c for c in place if c is not None) if None not in place else None
        self.mine = place

    def best(self, k: int) -> Assignment | None:
        """The best plan met within the limits."""
        paths: list[tuple[int, ...]] = []
        for trace in self.traces:
            order = [c for c in np.argsort(trace.marginal(k), kind="stable").tolist() if c != self.mine[k]]
            paths += [trace.through(k, c) for c in order[:TRIED]]
        if self.own is not None:
            paths += [(*self.own[:k], c, *self.own[k + 1:]) for c in {p[k] for p in paths}]
        legal = [(total(self.net, p, self.base), p) for p in dict.fromkeys(paths) if self._within(p)]
        return self.net.assignment(min(legal)[1]) if legal else None

    def _within(self, path: tuple[int, ...]) -> bool:
        return all(total(self.net, path, amounts) <= 1 + TOLERANCE for amounts in self.amounts)


def _near(problem: Problem, assignment: Assignment, ranking: Ranking) -> list[Options] | None:
    """The most promising columns, with all whole placements and the plan's own; as many as leave the plan's own in."""
    choices = [options(problem, n) for n in problem.graph.nodes]
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


def _costs(problem: Problem, net: Network, judged: Evaluation, deadline: float) -> tuple[list[Floats], Floats]:
    """What entries of the tables cost towards the goal (products and intervals along their slope at the plan), limits' prices."""
    if problem.goal is Goal.THROUGHPUT and problem.mode is Mode.CONCURRENT:
        known = inputs_held(problem) | {t.node.output: t.options.held for t in net.tables}
        names = shared_names(problem)
        ledger = Ledger(names, net.tables, [busy_table(problem, t.options, known) for t in net.tables], [])
        busy = np.array([judged.busy_s.get(n, 0.0) / judged.interval_s for n in names]) ** SHARP
        weights = busy / busy.sum() if busy.sum() > 0 else np.full(len(names), 1 / len(names))
        return ledger.costs(weights, np.zeros(0)), np.zeros(len(net.limits))
    worth = {Goal.ENERGY: (0.0, 1.0), Goal.EDP: (judged.energy_j, judged.latency_s)}.get(problem.goal, (1.0, 0.0))
    prices = price_limits(net, worth, inf, deadline).prices
    return net.costs(worth), prices


SHARP = 16
"""Power of what each thing is busy with, relative to the busiest, that weighs it when an interval is explained."""


class _Trace:
    """Cheapest ways to and from every state of the cuts, and the plans that take them."""

    def __init__(self, net: Network, costs: list[Floats]) -> None:
        self.net, self.costs, self.to_go = net, costs, completions(net, costs)
        self.reached: list[Floats] = [np.zeros(())]
        self.onto: list[Floats] = []
        for k, (table, stage) in enumerate(zip(net.tables, net.stages, strict=True)):
            self.onto.append(self._onto(k))
            step = np.minimum.reduceat(self.onto[k], table.first, axis=-1)
            gone = tuple(i for i, t in enumerate((*stage.live, table.node.output)) if t not in stage.after)
            self.reached.append(step.min(axis=gone))

    def _onto(self, k: int) -> Floats:
        """Cost up to and with node k, over the live tensors' places and its columns."""
        table, stage = self.net.tables[k], self.net.stages[k]
        cost, order = self.costs[k], [t for t in stage.live if t in table.inputs]
        cost = np.transpose(cost, (*(table.inputs.index(t) for t in order), len(table.inputs)))
        shape = tuple(cost.shape[order.index(t)] if t in order else 1 for t in stage.live)
        return np.asarray(self.reached[k][..., None] + cost.reshape(*shape, cost.shape[-1]), dtype=np.float64)

    def _through(self, k: int) -> Floats:
        """Cost of the cheapest plan through every state before node k and every column of it."""
        table, stage = self.net.tables[k], self.net.stages[k]
        onto = self.onto[k]
        rest = self.to_go[k + 1]
        if table.node.output in stage.after:
            rest = np.moveaxis(rest, stage.after.index(table.node.output), -1)[..., table.place_of]
        else:
            rest = rest[..., None]
        kept = [t for t in stage.after if t != table.node.output]
        sizes = dict(zip(kept, rest.shape[:-1], strict=True))
        return onto + rest.reshape(*(sizes.get(t, 1) for t in stage.live), rest.shape[-1])

    def marginal(self, k: int) -> Floats:
        """For every column of node k the cost of the cheapest plan that uses it."""
        through = self._through(k)
        least: Floats = through.reshape(-1, through.shape[-1]).min(axis=0)
        return least

    def through(self, k: int, column: int) -> tuple[int, ...]:
        """The cheapest plan that uses a column of node k."""
        through = self._through(k)[..., column]
        before = dict(zip(self.net.stages[k].live, np.unravel_index(int(through.argmin()), through.shape), strict=True))
        at = {t: int(i) for t, i in before.items()}
        return (*self._back(k, dict(at)), column, *self._onward(k, column, at))

    def _back(self, k: int, at: dict[str, int]) -> list[int]:
        """Columns of the nodes before k that lead to a state at least cost."""
        path: list[int] = []
        for j in range(k - 1, -1, -1):
            table, stage = self.net.tables[j], self.net.stages[j]
            onto = self.onto[j][tuple(at[t] if t in at else slice(None) for t in stage.live)]
            wanted = at.pop(table.node.output, None)
            fits = np.ones(len(table.options), dtype=np.bool_) if wanted is None else table.place_of == wanted
            onto = np.where(fits, onto, np.inf)
            *free, column = np.unravel_index(int(onto.argmin()), onto.shape)
            at |= {t: int(i) for t, i in zip([t for t in stage.live if t not in at], free, strict=True)}
            path.append(int(column))
        return path[::-1]

    def _onward(self, k: int, column: int, at: dict[str, int]) -> list[int]:
        """Columns of the nodes after k that complete a state at least cost."""
        at[self.net.tables[k].node.output] = int(self.net.tables[k].place_of[column])
        path: list[int] = []
        for j in range(k + 1, len(self.net.tables)):
            table, stage = self.net.tables[j], self.net.stages[j]
            rest = self.to_go[j + 1][tuple(table.place_of if t == table.node.output else at[t] for t in stage.after)]
            chosen = int((self.costs[j][tuple(at[t] for t in table.inputs)] + rest).argmin())
            at[table.node.output] = int(table.place_of[chosen])
            path.append(chosen)
        return path
