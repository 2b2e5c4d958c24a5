"""The best whole plan in which one node is elsewhere, for every node: what its place is worth once all others may answer.

Costs of reaching every state of the cuts and of completing it meet at each node: their sum over one column is the cheapest
plan that uses it, with prices on the limits. The plan is traced and judged like any other; where limits bind, the first few
of a node's columns are tried until one keeps them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.effort import spend
from dovetail.partition.evaluate import Evaluation, reevaluate_all
from dovetail.partition.exact.cuts import (
    COVERED,
    Network,
    Step,
    cheapest_step,
    completions,
    follow,
    network,
    price_limits,
    priced_costs,
)
from dovetail.partition.exact.elimination import Ranking, thin
from dovetail.partition.exact.separate_bound import least_costs
from dovetail.partition.interval.tables import busy_table, shared_names
from dovetail.partition.interval.weights import Ledger
from dovetail.partition.parallel.block_steps import Jump, jumps, whole_columns
from dovetail.partition.plan import Assignment, Goal, Mode, Split
from dovetail.partition.problem import Problem
from dovetail.partition.tables.columns import Options, compacted, inputs_held, options
from dovetail.partition.tables.costs import tabulate_all
from dovetail.partition.tolerances import TOLERANCE

NEAR = 250
"""Columns of all nodes, besides whole placements and the plan's own, that other plans are made of. Chosen, not measured."""
FEW = (4, 2, 0)
"""The same per node in large graphs, and in wide ones. Chosen, not measured."""
WORK = 3000
"""Nodes looked at closely times nodes of the graph: of large graphs the dearest. Chosen, not measured."""
LEAST = 16
"""Nodes that are looked at closely in any graph. Chosen, not measured."""
MANY = 30_000
"""Columns of all nodes from which on only the cheapest of each are looked at. Chosen, not measured."""
CHEAPEST = 16
"""How many these are. Chosen, not measured."""
TRIED = 2
"""Columns of a node that are tried under each price; of nodes that are not looked at closely one, under the best prices.

Chosen, not measured.
"""
PARTS = (0.0, 0.5, 1.0)
"""Parts of the limits' best prices under which plans are looked for:

at full prices plans can be thriftier than they need be. Chosen, not measured.
"""


@dataclass(frozen=True, slots=True)
class RunnerUp:
    """The best plan found with a node elsewhere: where, how good, and how many other nodes it moves."""

    split: Split
    judged: Evaluation
    moved: int


def rivals_of(problem: Problem, assignment: Assignment) -> list[Options]:
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


def runners_up(problem: Problem, assignment: Assignment, judged: Evaluation, choices: list[Options], ranking: Ranking,
               deadline: float = inf) -> dict[str, RunnerUp]:
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
    rivals = _Rivals(problem, net, assignment, judged, deadline)
    found: dict[str, RunnerUp] = {}
    dearest = sorted(judged.nodes, key=lambda c: -c.latency_s)[:max(LEAST, WORK // len(judged.nodes))]
    closely = {c.node for c in dearest}
    for k, own in enumerate(kept):
        name = own.node.name
        best = rivals.best(k, name in closely) if name not in problem.fixed else None
        if best is not None:
            moves, second = best
            found[name] = RunnerUp(moves[name], second, sum(n != name for n in moves))
    return found


class _Rivals:
    """Plans with one node elsewhere: the cheapest under several prices on the limits, and the plan with that node changed."""

    def __init__(self, problem: Problem, net: Network, assignment: Assignment, judged: Evaluation, deadline: float) -> None:
        self.problem, self.assignment, self.judged = problem, assignment, judged
        self.net, amounts = net, [net.amounts(x) for x in net.limits]
        base, prices = _costs(problem, net, judged, deadline)
        self.traces = [_Trace(net, priced_costs(base, amounts, part * prices), [base, *amounts])
                       for part in (PARTS if prices.any() else PARTS[:1])]
        self.mine = [{s: c for c, s in enumerate(t.splits)}.get(assignment[t.node.name]) for t in net.tables]

    def best(self, k: int, closely: bool) -> tuple[Assignment, Evaluation] | None:
        """What moves in the best plan met within the limits, and that plan's judgement."""
        detours: dict[tuple[int, ...], _Detour] = {}
        columns: list[int] = []
        for trace in self.traces if closely else self.traces[-1:]:
            order = [c for c in np.argsort(trace.marginal(k), kind="stable").tolist() if c != self.mine[k]]
            columns += order[:TRIED if closely else 1]
            for c in order[:TRIED if closely else 1]:
                detour = trace.through(k, c)
                detours.setdefault(detour.path, detour)
        spent = [(d.trace.totals(d), d) for d in detours.values()]
        legal = [(t[0], d.path, d) for t, d in spent if all(taken <= 1 + TOLERANCE for taken in t[1:])]
        table = self.net.tables[k]
        columns += [c for c in whole_columns(table.options).values() if c != self.mine[k]]
        tried: list[Assignment] = [table.assignment(self.problem, c) for c in dict.fromkeys(columns)]
        if legal:
            tried.append(self._moves(min(legal, key=lambda way: way[:2])[2]))
        judged = [(reevaluate_all(self.problem, self.assignment, self.judged, moves), moves) for moves in tried]
        found = min(((e.objective, i) for i, (e, _) in enumerate(judged) if e.feasible), default=None)
        return None if found is None else judged[found[1]][::-1]

    def _moves(self, detour: _Detour) -> Assignment:
        """Where a detour's plan differs from the one that is explained."""
        splits = dict(detour.trace.differs(self.problem, self.assignment))
        for step, column in detour.trace.steps_of(detour):
            own = step.own.assignment(self.problem, column)
            splits = {n: s for n, s in splits.items() if n not in own} | {
                n: s for n, s in own.items() if s != self.assignment[n]}
        return splits


def _near(problem: Problem, assignment: Assignment, choices: list[Options], ranking: Ranking) -> list[Options] | None:
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
"""Power of what each thing is busy with, relative to the busiest, that weighs it when an interval is explained.

Chosen, not measured.
"""


@dataclass(frozen=True, slots=True)
class _Detour:
    """A plan that leaves a trace's cheapest one at a cut and is back on it at another."""

    trace: _Trace
    path: tuple[int, ...]
    start: int
    stop: int


class _Trace:
    """Cheapest ways to and from every state of the cuts, and the plans that take them; `counted` is added up along plans."""

    def __init__(self, net: Network, costs: list[Floats], counted: list[list[Floats]]) -> None:
        self.net, self.costs, self.to_go, self.counted = net, costs, completions(net, costs), counted
        self.path = follow(net, costs, self.to_go)
        self.passed: dict[int, dict[str, int]] = {0: {}}
        """Where the live tensors are at the cuts that the cheapest plan passes."""
        self.sums = {0: [0.0] * len(counted)}
        """What it has counted up to each of them."""
        self.others: list[dict[str, Split]] = []
        at: dict[str, int] = {}
        for step, column, before in net.walk(self.path):
            at |= {t: int(places[column]) for t, places in step.own.leaves.items()}
            self.passed[step.stop] = self._live(step.stop, at)
            self.sums[step.stop] = [s + n for s, n in zip(self.sums[step.start], self._count(step, column, before), strict=True)]
        self.steps = [step for k in range(len(net.tables)) for step in net.steps(k)]
        self.over: list[list[tuple[Step, Jump]]] = [[] for _ in net.tables]
        """The jumps that take each node along."""
        self.ending: list[list[Step]] = [[] for _ in range(len(net.tables) + 1)]
        """The steps that end at each cut."""
        for step in self.steps:
            self.ending[step.stop].append(step)
            if isinstance(step.own, Jump):
                for k in range(step.start, step.stop):
                    self.over[k].append((step, step.own))
        self.known: dict[int, Floats] = {}
        self.reached = [np.full(found.shape, inf) for found in self.to_go]
        self.reached[0] = np.zeros(())
        self.onto: dict[int, Floats] = {}
        for step in self.steps:  # in order of the cuts they begin at
            self.onto[step.index] = self._onto(step)
            self._land(step)

    def _onto(self, step: Step) -> Floats:
        """Cost up to and with a step, over the live tensors' places before it and its columns."""
        live, inputs, cost = self.net.stages[step.start].live, step.own.inputs, self.costs[step.index]
        order = [t for t in live if t in inputs]
        cost = np.transpose(cost, (*(inputs.index(t) for t in order), len(inputs)))
        shape = tuple(cost.shape[order.index(t)] if t in order else 1 for t in live)
        return np.asarray(self.reached[step.start][..., None] + cost.reshape(*shape, cost.shape[-1]), dtype=np.float64)

    def _land(self, step: Step) -> None:
        """Count a step among those that lead to the cut it ends at."""
        live, after = self.net.stages[step.start].live, self.net.stages[step.stop - 1].after
        least = self.onto[step.index].min(axis=tuple(i for i, t in enumerate(live) if t not in after))
        made = [t for t in after if t in step.own.leaves]
        target = np.moveaxis(self.reached[step.stop], [after.index(t) for t in made], range(len(made)))
        if made:
            np.minimum.at(target, tuple(step.own.leaves[t] for t in made), np.moveaxis(least, -1, 0))
        else:
            np.minimum(target, least.min(axis=-1), out=target)

    def _through(self, step: Step) -> Floats:
        """Cost of the cheapest plan through every state before a step and every column of it; nodes of a jump share it."""
        if step.index not in self.known:
            self.known[step.index] = self._new_through(step)
        return self.known[step.index]

    def _new_through(self, step: Step) -> Floats:
        live, after = self.net.stages[step.start].live, self.net.stages[step.stop - 1].after
        made, rest = [t for t in after if t in step.own.leaves], self.to_go[step.stop]
        rest = np.moveaxis(rest, [after.index(t) for t in made], range(len(made)))
        ahead = np.moveaxis(rest[tuple(step.own.leaves[t] for t in made)], 0, -1) if made else rest[..., None]
        sizes = dict(zip([t for t in after if t not in made], ahead.shape[:-1], strict=True))
        return self.onto[step.index] + ahead.reshape(*(sizes.get(t, 1) for t in live), ahead.shape[-1])

    def _ways(self, k: int) -> list[tuple[Step, Ints]]:
        """The steps that run node k, and which of its columns each of theirs uses."""
        found = [(step, np.arange(len(step.own))) for step in self.net.steps(k)[:1]]
        wholes = whole_columns(self.net.tables[k].options) if self.over[k] else {}
        for step, jump in self.over[k]:
            group, member = 0, k - jump.start
            while member >= len(jump.groups[group]):
                member, group = member - len(jump.groups[group]), group + 1
            found.append((step, np.array([wholes[d] for d in jump.devices[:, group].tolist()], dtype=np.int64)))
        return found

    def marginal(self, k: int) -> Floats:
        """For every column of node k the cost of the cheapest plan that uses it."""
        least = np.full(len(self.net.tables[k]), inf)
        for step, columns in self._ways(k):
            through = self._through(step)
            np.minimum.at(least, columns, through.reshape(-1, through.shape[-1]).min(axis=0))
        return least

    def _live(self, cut: int, at: Mapping[str, int]) -> dict[str, int]:
        return {t: at[t] for t in self.net.stages[cut].live} if cut < len(self.net.stages) else {}

    def _count(self, step: Step, column: int, at: Mapping[str, int]) -> list[float]:
        """What one step adds to each of `counted`."""
        entry = (*(at[t] for t in step.own.inputs), column)
        return [float(own[entry] if (own := arrays[step.index]).ndim > 1 or len(entry) == 1 else own[column])
                for arrays in self.counted]

    def steps_of(self, detour: _Detour) -> list[tuple[Step, int]]:
        """The steps of a detour away from the cheapest plan, and the column each takes."""
        found, cut = [], detour.start
        while cut < detour.stop:
            step = [s for s in self.net.steps(cut) if s.first_column <= detour.path[cut]][-1]
            found.append((step, detour.path[cut] - step.first_column))
            cut = step.stop
        return found

    def totals(self, detour: _Detour) -> list[float]:
        """What a detour's plan counts in all."""
        at, first, last = dict(self.passed[detour.start]), self.sums[detour.start], self.sums[detour.stop]
        found = [a + (end - b) for a, b, end in zip(first, last, self.sums[len(self.net.tables)], strict=True)]
        for step, column in self.steps_of(detour):
            found = [s + n for s, n in zip(found, self._count(step, column, at), strict=True)]
            at |= {t: int(places[column]) for t, places in step.own.leaves.items()}
        return found

    def differs(self, problem: Problem, assignment: Assignment) -> Mapping[str, Split]:
        """Where the cheapest plan is another than a given one, always the same."""
        if not self.others:
            self.others.append({n: s for n, s in self.net.assignment(self.path).items() if s != assignment[n]})
        return self.others[0]

    def through(self, k: int, column: int) -> _Detour:
        """The cheapest plan that uses a column of node k."""
        ways = [(step, np.where(columns == column, self._through(step), inf)) for step, columns in self._ways(k)]
        step, costs = min(ways, key=lambda way: float(way[1].min()))
        *places, chosen = (int(i) for i in np.unravel_index(int(costs.argmin()), costs.shape))
        before = dict(zip(self.net.stages[step.start].live, places, strict=True))
        state = {**before, **{t: int(at[chosen]) for t, at in step.own.leaves.items()}}
        start, back = self._back(step.start, before)
        stop, ahead = self._ahead(step.stop, state)
        spend("detours", 1, sum(costs.size for _, costs in ways))
        middle = (step.first_column + chosen, *[COVERED] * (step.stop - step.start - 1))
        return _Detour(self, (*self.path[:start], *back, *middle, *ahead, *self.path[stop:]), start, stop)

    def _ahead(self, cut: int, at: dict[str, int]) -> tuple[int, tuple[int, ...]]:
        """Columns of the nodes after a cut that complete a state of it at least cost, to where the cheapest plan goes on."""
        path: tuple[int, ...] = ()
        while self.passed.get(cut) != self._live(cut, at):
            step, column = cheapest_step(self.net, self.costs, self.to_go, cut, at)
            at |= {t: int(places[column]) for t, places in step.own.leaves.items()}
            path = (*path, step.first_column + column, *[COVERED] * (step.stop - step.start - 1))
            cut = step.stop
        return cut, path

    def _back(self, cut: int, at: dict[str, int]) -> tuple[int, tuple[int, ...]]:
        """Columns of the nodes before a cut that lead to a state of it at least cost, from where the cheapest plan left."""
        path: tuple[int, ...] = ()
        while self.passed.get(cut) != self._live(cut, at):
            ways = []
            for step in self.ending[cut]:
                live = self.net.stages[step.start].live
                onto = self.onto[step.index][tuple(at[t] if t in at else slice(None) for t in live)]
                fits = np.logical_and.reduce([np.ones(len(step.own), dtype=np.bool_), *(
                    places == at[t] for t, places in step.own.leaves.items() if t in at)])
                ways.append((step, np.where(fits, onto, inf)))
            step, costs = min(ways, key=lambda way: float(way[1].min()))
            *free, column = (int(i) for i in np.unravel_index(int(costs.argmin()), costs.shape))
            unknown = [t for t in self.net.stages[step.start].live if t not in at]
            at = {t: p for t, p in {**at, **dict(zip(unknown, free, strict=True))}.items() if t not in step.own.leaves}
            path = (step.first_column + column, *[COVERED] * (step.stop - step.start - 1), *path)
            cut = step.start
        return cut, path
