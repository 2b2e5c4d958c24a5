"""Dynamic programming over cuts of the topological order, and the Lagrangian bound it gives.

The state before a node is where each live tensor lies. For a chain that is one tensor; a residual block adds the
skip. Steps lead from cut to cut: by a column of the next node's table, or over a whole block whose arms run at once (see
`jumps`). With prices on budgets and limits, the cheapest completion of every state is computed backwards, exactly; the
value at the start is a lower bound on every legal plan for any prices >= 0, and at the best prices it equals the
bound of the linear relaxation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import lru_cache

import numpy as np

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.boards.relaxation import Share
from dovetail.partition.effort import spend
from dovetail.partition.exact.price_search import Reply, maximise_bound
from dovetail.partition.parallel.block_steps import Jump
from dovetail.partition.plan import Assignment, Split
from dovetail.partition.problem import Problem
from dovetail.partition.tables.costs import Table
from dovetail.partition.tolerances import ROUNDOFF, SETTLED
from dovetail.values import dataclass

COVERED = -1
"""In a path, the mark of nodes that a jump before them has covered. Chosen: no column has this number."""


@dataclass(frozen=True, slots=True)
class LiveTensors:
    """Before one node: the tensors alive (produced, still to be read), and those its run leaves alive."""

    live: tuple[str, ...]
    after: tuple[str, ...]


def stages(problem: Problem) -> tuple[LiveTensors, ...]:
    """Live tensors along the topological order; graph inputs never move and do not count."""
    nodes = problem.graph.nodes
    last = {t: k for k, node in enumerate(nodes) for t in node.inputs}
    found: list[LiveTensors] = []
    live: tuple[str, ...] = ()
    for k, node in enumerate(nodes):
        after = tuple(t for t in (*live, node.output) if last.get(t, -1) > k)
        found.append(LiveTensors(live, after))
        live = after
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Limit:
    """One additive limit of a plan, all amounts relative to it: a budget, latency / energy, or a mixture.

    A mixture of limits (`parts` with weights that add up to one) holds wherever each of them does. Amounts may also be `given`,
    one array per table and jump of a network.
    """

    name: str
    budget: Share | None
    limit: float
    parts: tuple[tuple[Limit, float], ...] = ()
    given: tuple[Floats, ...] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Step:
    """A way from one cut to a later one: table or jump `index` of a network (tables first)."""

    index: int
    own: Table | Jump
    start: int
    stop: int
    first_column: int
    """What the step's first column is called in a path."""


@dataclass(frozen=True, slots=True)
class Network:
    """A problem with its tables, jumps, cuts and the limits that can bind.

    A *path* names a column for every node: of its table, or, counting on from there, of the jump that begins at the node;
    the other nodes a jump covers are marked `COVERED`.
    """

    problem: Problem
    tables: tuple[Table, ...]
    stages: tuple[LiveTensors, ...]
    limits: tuple[Limit, ...]
    jumps: tuple[Jump, ...] = ()
    leaving: tuple[tuple[Step, ...], ...] = field(default=(), init=False, repr=False)
    """The steps that begin at every cut."""

    def __post_init__(self) -> None:
        found = [[Step(k, table, k, k + 1, 0)] for k, table in enumerate(self.tables)]
        for i, jump in enumerate(self.jumps):
            last = found[jump.start][-1]
            first = last.first_column + len(last.own)
            found[jump.start].append(Step(len(self.tables) + i, jump, jump.start, jump.stop, first))
        object.__setattr__(self, "leaving", tuple(map(tuple, found)))

    @property
    def owners(self) -> tuple[Table | Jump, ...]:
        """All tables, then all jumps: arrays of costs come in this order."""
        return (*self.tables, *self.jumps)

    def steps(self, k: int) -> tuple[Step, ...]:
        """The steps that begin at a cut: the node after it, and those over the block of branches if one begins there."""
        return self.leaving[k]

    def amounts(self, limit: Limit) -> list[Floats]:
        """How much of a limit each entry of each table and jump takes, as a fraction of it."""
        if limit.parts:
            found = [[weight * own for own in self.amounts(part)] for part, weight in limit.parts]
            return [np.asarray(sum(own), dtype=np.float64) for own in zip(*found, strict=True)]
        if limit.given is not None:
            return list(limit.given)
        if limit.budget is not None:
            return [limit.budget.taken(own.resources) for own in self.owners]
        return [(own.latency_s if limit.name == "latency" else own.energy_j) / limit.limit for own in self.owners]

    def costs(self, weights: tuple[float, float]) -> list[Floats]:
        """Weighted latency and energy of every table and jump."""
        if weights == (1.0, 0.0):
            return [own.latency_s for own in self.owners]
        return [weights[0] * own.latency_s + weights[1] * own.energy_j for own in self.owners]

    def walk(self, path: tuple[int, ...]) -> list[tuple[Step, int, dict[str, int]]]:
        """The steps of a path, the column each takes, and where the tensors it reads are."""
        at: dict[str, int] = {}
        found = []
        for k, column in enumerate(path):
            if column != COVERED:
                step, *others = self.leaving[k]
                for other in others:  # in order of their first columns
                    step = other if other.first_column <= column else step
                own = column - step.first_column
                before = {t: at[t] for t in step.own.inputs}
                found.append((step, own, before))
                for t, places in step.own.leaves.items():
                    at[t] = int(places[own])
        return found

    def assignment(self, path: tuple[int, ...]) -> Assignment:
        found: dict[str, Split] = {}
        for step, column, _ in self.walk(path):
            found |= step.own.assignment(self.problem, column)
        return found


def network(problem: Problem, tables: tuple[Table, ...], over: tuple[tuple[Jump, ...], ...] = ()) -> Network:
    """Join tables, the jumps of every block and limits; a limit no choice of columns can reach is left out."""
    limits = [Limit(share.name, share, share.limit * share.count) for share in problem.shares]
    limits += [Limit("latency", None, problem.max_latency_s)] if problem.max_latency_s is not None else []
    limits += [Limit("energy", None, problem.max_energy_j)] if problem.max_energy_j is not None else []
    # A budget of zero binds column by column: the tables have already dropped what needs any of it.
    every = Network(problem, tables, stages(problem), tuple(x for x in limits if x.limit > 0),
                    tuple(jump for block in over for jump in block))
    largest = np.array([own.resources.max(axis=0) for own in every.owners])
    found = replace(every, limits=tuple(x for x in every.limits if _most(every, x, largest) > 1))
    spend("networks", len(every.owners), sum(own.latency_s.size for own in every.owners))
    return found


def _most(net: Network, limit: Limit, largest: Floats) -> float:
    """At least what any plan takes of a limit; `largest` is what a column of each table and jump takes of each budget."""
    plain = limit.budget is not None and len(limit.budget.budgets) == 1
    most = limit.budget.taken(largest).tolist() if plain and limit.budget is not None else [
        float(a.max()) for a in net.amounts(limit)]
    beyond = [max(0.0, most[len(net.tables) + i] - sum(most[j.start:j.stop])) for i, j in enumerate(net.jumps)]
    return sum(most[:len(net.tables)]) + sum(beyond)


def completions(net: Network, costs: list[Floats]) -> list[Floats]:
    """For every cut and state, the least sum of `costs` (one array per table and jump) that completes it; index n is the end."""
    found: list[Floats] = [np.zeros(())] * (len(net.tables) + 1)
    for k in range(len(net.tables) - 1, -1, -1):
        found[k] = _by_table(net.tables[k], net.stages[k], costs[k], found[k + 1])
        for step in net.steps(k)[1:]:
            assert isinstance(step.own, Jump), "only the first step of a cut is a table"
            after = net.stages[step.stop - 1].after
            found[k] = np.minimum(found[k], _by_jump(step.own, net.stages[k].live, after, costs[step.index], found[step.stop]))
    spend("completions", len(costs), sum([cost.size for cost in costs]))
    return found


def _by_table(table: Table, stage: LiveTensors, cost: Floats, rest: Floats) -> Floats:
    """The least cost of each state before a node whose columns lead on to states that cost `rest`."""
    least = np.minimum.reduceat(cost, table.first, axis=-1) if len(table.first) < cost.shape[-1] else cost
    form = _form(stage.live, stage.after, table.inputs, table.node.output)
    if form is not None:
        sizes, after = (*cost.shape, 1), (*rest.shape, 1)
        if form.order:
            least = least.transpose(form.order)
        if table.inputs:
            least = least.reshape([sizes[i] for i in form.read] + [-1])
        rest = rest.reshape([after[i] for i in form.left])
    found: Floats = np.minimum.reduce(least + rest, axis=-1)
    return found


@dataclass(frozen=True, slots=True)
class _Form:
    """How axes of a table and of what follows it meet: of every live tensor its axis in each, the last one where it has none.

    `order` of the table's axes is empty where they are in order; what follows has one more axis, the table's own output.
    """

    order: tuple[int, ...]
    read: tuple[int, ...]
    left: tuple[int, ...]


@lru_cache(maxsize=4096)
def _form(live: tuple[str, ...], after: tuple[str, ...], inputs: tuple[str, ...], output: str) -> _Form | None:
    """The form of a node's table between two cuts; None where both are as they should be."""
    if live == inputs and after == (output,):
        return None
    positions = [live.index(t) for t in inputs]
    order = (*sorted(range(len(positions)), key=positions.__getitem__), len(positions)) if positions != sorted(positions) else ()
    return _Form(order, tuple(inputs.index(t) if t in inputs else -1 for t in live),
                 tuple(after.index(t) if t in after else -1 for t in (*live, output)))


def _by_jump(jump: Jump, live: tuple[str, ...], after: tuple[str, ...], cost: Floats, rest: Floats) -> Floats:
    """The same before a block whose columns each leave all its tensors in one place."""
    positions = [live.index(t) for t in jump.inputs]
    if positions != sorted(positions):
        cost = np.moveaxis(cost, range(len(positions)), np.argsort(np.argsort(positions)).tolist())
    sizes = {t: n for t, n in zip(sorted(jump.inputs, key=live.index), cost.shape, strict=False)}
    kept = dict(zip(after, rest.shape, strict=True))
    left = [t for t in after if t in jump.leaves]
    if after[len(after) - len(left):] != tuple(left):
        rest = np.moveaxis(rest, [after.index(t) for t in left], range(-len(left), 0))
    passed = rest.shape[:rest.ndim - len(left)]
    each = np.arange(int(np.prod(passed)))[:, None]
    ahead = rest.reshape(-1, *rest.shape[len(passed):])[(each, *(jump.leaves[t] for t in left))]
    found: Floats = (cost.reshape(*(sizes.get(t, 1) for t in live), -1)
                     + ahead.reshape(*(kept.get(t, 1) for t in live), -1)).min(axis=-1)
    return found


def onward(step: Step, after: tuple[str, ...], at: Mapping[str, Ints | int]) -> tuple[Ints | int, ...]:
    """Where every tensor alive after a step is, for all its columns; `at` says it of those alive before."""
    leaves = step.own.leaves
    return tuple(leaves[t] if t in leaves else at[t] for t in after)


def follow(net: Network, costs: list[Floats], to_go: list[Floats]) -> tuple[int, ...]:
    """The columns of a plan that attains `to_go`; ties go to the first column."""
    at, path = dict[str, int](), list[int]()
    while len(path) < len(net.tables):
        chosen, column = cheapest_step(net, costs, to_go, len(path), at)
        for t, places in chosen.own.leaves.items():
            at[t] = int(places[column])
        path += [chosen.first_column + column, *[COVERED] * (chosen.stop - chosen.start - 1)]
    spend("paths", len(path))
    return tuple(path)


def cheapest_step(net: Network, costs: list[Floats], to_go: list[Floats], cut: int, at: Mapping[str, int]) -> tuple[Step, int]:
    """The step, and its column, with which the cheapest completion of a state begins."""
    chosen, least, column = None, np.inf, 0
    for step in net.steps(cut):
        values = costs[step.index][tuple([at[t] for t in step.own.inputs])] + to_go[step.stop][
            onward(step, net.stages[step.stop - 1].after, at)]
        best = int(values.argmin())
        if chosen is None or values[best] < least:
            chosen, least, column = step, float(values[best]), best
    assert chosen is not None, "every cut has a step"
    return chosen, column


def total(net: Network, path: tuple[int, ...], arrays: list[Floats]) -> float:
    """Sum of the entries of tables and jumps along a plan."""
    return totals(net, path, [arrays])[0]


def totals(net: Network, path: tuple[int, ...], several: Sequence[list[Floats]]) -> list[float]:
    """The same for several arrays of each table and jump."""
    values = [0.0] * len(several)
    for step, column, at in net.walk(path):
        inputs = step.own.inputs
        entry = (*[at[t] for t in inputs], column)
        for i, arrays in enumerate(several):
            array = arrays[step.index]
            values[i] += float(array[entry] if array.ndim > 1 or not inputs else array[column])
    return values


@dataclass(frozen=True, slots=True)
class Priced:
    """The best prices found: the bound they prove, the completions under them, the cheapest legal plan met on the way."""

    prices: Floats
    bound: float
    to_go: list[Floats]
    path: tuple[int, ...] | None
    value: float
    met: tuple[tuple[int, ...], ...] = ()  # all plans met on the way, legal or not


def price_limits(net: Network, weights: tuple[float, float], ceiling: float, deadline: float,
                 start: Mapping[str, float] | None = None, settled: float = SETTLED) -> Priced:
    """Prices on the limits that make the bound from cuts largest, up to `settled`; `start` are prices by name to begin with."""
    base, amounts = net.costs(weights), [net.amounts(x) for x in net.limits]
    taken = taking(amounts)
    best: Priced | None = None
    path, value = None, np.inf
    every: list[tuple[int, ...]] = []

    def answer(prices: Floats) -> Reply:
        nonlocal best, path, value
        costs = priced_costs(base, taken, prices)
        to_go = completions(net, costs)
        met = follow(net, costs, to_go)
        every.append(met)
        spent, *uses = totals(net, met, [base, *amounts])
        used = np.array(uses)
        if max(uses, default=0.0) <= 1 and spent < value:
            path, value = met, spent
        bound = float(to_go[0]) - float(prices.sum()) * (1 + ROUNDOFF * len(net.tables))
        if best is None or bound > best.bound:
            best = Priced(prices, bound, to_go, path, value)
        return Reply(bound, spent, used)

    maximise_bound(answer, len(net.limits), ceiling, deadline, np.array([(start or {}).get(x.name, 0.0) for x in net.limits]),
                   settled=settled)
    assert best is not None, "at least one round runs"
    return Priced(best.prices, best.bound, best.to_go, path, value, tuple(every))


def priced_costs(base: list[Floats], amounts: Sequence[Sequence[Floats | None]], prices: Floats) -> list[Floats]:
    """Costs with prices on what each column takes of each limit."""
    more: list[Floats | None] = [None] * len(base)  # tables are large, and what columns take of most limits is not
    for price, taken in zip(prices.tolist(), amounts, strict=True):
        if price > 0:
            more = [a if own is None else price * own if a is None else a + price * own
                    for a, own in zip(more, taken, strict=True)]
    return [cost if a is None else cost + a for cost, a in zip(base, more, strict=True)]


def taking(amounts: Sequence[Sequence[Floats]]) -> list[list[Floats | None]]:
    """Amounts with None for tables and jumps that take nothing of a limit, which prices then pass over."""
    return [[own if np.count_nonzero(own) else None for own in taken] for taken in amounts]
