"""Dynamic programming over cuts of the topological order, and the Lagrangian bound it gives.

The state before a node is where each live tensor lies. For a chain that is one tensor; a residual block adds the
skip. With prices on budgets and limits, the cheapest completion of every state is computed backwards, exactly; the
value at the start is a lower bound on every legal plan for any prices >= 0, and at the best prices it equals the
bound of the linear relaxation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from dovetail.cost.estimate import Floats
from dovetail.partition.plan import Assignment
from dovetail.partition.problem import Problem
from dovetail.partition.programs import largest_minimum
from dovetail.partition.tables import Table

SETTLED = 1e-10
"""Relative progress below which the price search stops."""
DEAREST = 1e5
"""Prices stop growing at this multiple of a plan's cost: only limits that cannot be met at all ask for more."""
LEAST_ROUNDS = 24
"""Rounds of the price search that are made whatever the time: they are cheap, and without prices a bound says little."""
NEAR, WIDER = 0.05, 8.0
"""Fraction of a good price within which a better one is sought first, and by how much more where it lies outside."""
ROUNDOFF = 4e-16
"""Relative rounding of one addition, taken off bounds that are differences of large priced sums."""


@dataclass(frozen=True, slots=True)
class Stage:
    """Before one node: the tensors alive (produced, still to be read), and those its run leaves alive."""

    live: tuple[str, ...]
    after: tuple[str, ...]


def stages(problem: Problem) -> tuple[Stage, ...]:
    """Live tensors along the topological order; graph inputs never move and do not count."""
    nodes = problem.graph.nodes
    last = {t: k for k, node in enumerate(nodes) for t in node.inputs}
    found: list[Stage] = []
    live: tuple[str, ...] = ()
    for k, node in enumerate(nodes):
        after = tuple(t for t in (*live, node.output) if last.get(t, -1) > k)
        found.append(Stage(live, after))
        live = after
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Limit:
    """One additive limit of a plan, all amounts relative to it: a budget (its index) or latency / energy."""

    name: str
    budget: int | None
    limit: float


@dataclass(frozen=True, slots=True)
class Network:
    """A problem with its tables, cuts and the limits that can bind."""

    problem: Problem
    tables: tuple[Table, ...]
    stages: tuple[Stage, ...]
    limits: tuple[Limit, ...]

    def amounts(self, k: int, limit: Limit) -> Floats:
        """How much of a limit each entry of node k's table takes, as a fraction of it."""
        table = self.tables[k]
        found = table.resources[:, limit.budget] if limit.budget is not None else (
            table.latency_s if limit.name == "latency" else table.energy_j)
        return found / limit.limit

    def cost(self, k: int, weights: tuple[float, float]) -> Floats:
        """Weighted latency and energy of node k's table."""
        table = self.tables[k]
        return weights[0] * table.latency_s + weights[1] * table.energy_j

    def assignment(self, path: tuple[int, ...]) -> Assignment:
        return {t.node.name: t.options.pattern.split(int(t.options.columns[c])) for t, c in zip(self.tables, path, strict=True)}


def network(problem: Problem, tables: tuple[Table, ...]) -> Network:
    """Join tables and limits; a limit no choice of columns can reach is left out."""
    limits = [Limit(f"{d} {r}", i, value) for i, (d, r, value) in enumerate(problem.budgets) if problem.shared_budget]
    limits += [Limit("latency", None, problem.max_latency_s)] if problem.max_latency_s is not None else []
    limits += [Limit("energy", None, problem.max_energy_j)] if problem.max_energy_j is not None else []
    # A budget of zero binds column by column: the tables have already dropped what needs any of it.
    every = Network(problem, tables, stages(problem), tuple(x for x in limits if x.limit > 0))
    binding = tuple(x for x in every.limits if sum(float(every.amounts(k, x).max()) for k in range(len(tables))) > 1)
    return Network(problem, tables, every.stages, binding)


def completions(net: Network, costs: list[Floats]) -> list[Floats]:
    """For every cut and state, the least sum of `costs` (one array per table) that completes it; index n is the end."""
    found: list[Floats] = [np.zeros(())]
    for table, stage, cost in zip(reversed(net.tables), reversed(net.stages), reversed(costs), strict=True):
        least = np.minimum.reduceat(cost, table.first, axis=-1) if len(table.first) < cost.shape[-1] else cost
        rest = found[-1]
        if stage.live == table.inputs and stage.after == (table.node.output,):
            found.append((least + rest).min(axis=-1))
            continue
        positions = [stage.live.index(t) for t in table.inputs]
        if positions != sorted(positions):
            least = np.moveaxis(least, range(len(positions)), np.argsort(np.argsort(positions)).tolist())
        sizes = dict(zip(table.inputs, cost.shape, strict=False))
        least = least.reshape(*(sizes.get(t, 1) for t in stage.live), -1)
        after = dict(zip(stage.after, rest.shape, strict=True))
        rest = rest.reshape(*(after.get(t, 1) for t in stage.live), after.get(table.node.output, 1))
        found.append((least + rest).min(axis=-1))
    return found[::-1]


def follow(net: Network, costs: list[Floats], to_go: list[Floats]) -> tuple[int, ...]:
    """The columns of a plan that attains `to_go` from the start; ties go to the first column."""
    at: dict[str, int] = {}
    path: list[int] = []
    for k, (table, stage) in enumerate(zip(net.tables, net.stages, strict=True)):
        onward = to_go[k + 1][tuple(table.place_of if t == table.node.output else at[t] for t in stage.after)]
        column = int((costs[k][tuple(at[t] for t in table.inputs)] + onward).argmin())
        at[table.node.output] = int(table.place_of[column])
        path.append(column)
    return tuple(path)


def total(net: Network, path: tuple[int, ...], arrays: list[Floats]) -> float:
    """Sum of table entries along a plan."""
    at: dict[str, int] = {}
    value = 0.0
    for table, column, array in zip(net.tables, path, arrays, strict=True):
        value += float(array[(*(at[t] for t in table.inputs), column)] if array.ndim > 1 or not table.inputs else array[column])
        at[table.node.output] = int(table.place_of[column])
    return value


@dataclass(frozen=True, slots=True)
class Priced:
    """The best prices found: the bound they prove, the completions under them, the cheapest legal plan met on the way."""

    prices: Floats
    bound: float
    to_go: list[Floats]
    path: tuple[int, ...] | None
    value: float


def price_limits(net: Network, weights: tuple[float, float], ceiling: float, deadline: float,
                 start: Mapping[str, float] | None = None) -> Priced:
    """Prices on the limits that make the bound from cuts largest; `start` are prices by name to begin with."""
    base = [net.cost(k, weights) for k in range(len(net.tables))]
    amounts = [[net.amounts(k, x) for k in range(len(net.tables))] for x in net.limits]
    best: Priced | None = None
    path, value = None, np.inf

    def answer(prices: Floats) -> Reply:
        nonlocal best, path, value
        costs = priced_costs(base, amounts, prices)
        to_go = completions(net, costs)
        met = follow(net, costs, to_go)
        spent, used = total(net, met, base), np.array([total(net, met, a) for a in amounts])
        if (used <= 1).all() and spent < value:
            path, value = met, spent
        bound = float(to_go[0]) - float(prices.sum()) * (1 + ROUNDOFF * len(net.tables))
        if best is None or bound > best.bound:
            best = Priced(prices, bound, to_go, path, value)
        return Reply(bound, spent, used)

    maximise_bound(answer, len(net.limits), ceiling, deadline, np.array([(start or {}).get(x.name, 0.0) for x in net.limits]))
    assert best is not None, "at least one round runs"
    return Priced(best.prices, best.bound, best.to_go, path, value)


def priced_costs(base: list[Floats], amounts: list[list[Floats]], prices: Floats) -> list[Floats]:
    """Costs with prices on what each column takes of each limit."""
    found = list(base)
    for price, taken in zip(prices, amounts, strict=True):
        if price > 0:
            found = [cost + price * own for cost, own in zip(found, taken, strict=True)]
    return found


@dataclass(frozen=True, slots=True)
class Reply:
    """What the cheapest plan under some prices proves, costs and uses (as fractions of the limits)."""

    bound: float
    spent: float
    used: Floats


def maximise_bound(answer: Callable[[Floats], Reply], count: int, ceiling: float, deadline: float,
                   start: Floats | None = None, rounds: int = 60, settled: float = SETTLED) -> tuple[Floats, float]:
    """Prices with the largest bound, by cutting planes (Kelley 1960): each plan met bounds the dual from above.

    With a `start`, a single price is first sought near it. The search ends where `settled` is all there is left to gain.
    """
    prices = np.zeros(count) if start is None else start
    best_prices, best, value, cap = prices, -np.inf, ceiling, 4 * float(prices.max(initial=0.0))
    reach = NEAR if cap > 0 else np.inf
    cuts: list[tuple[float, Floats]] = []
    for number in range(rounds):
        reply = answer(prices)
        if reply.bound > best:
            best, best_prices = reply.bound, prices
        if (reply.used <= 1).all():
            value = min(value, reply.spent)
        cuts.append((reply.spent, reply.used - 1))
        cap = cap or 4 * abs(reply.spent) + 1e-300
        if not count or value - best <= settled * abs(best) or (number >= LEAST_ROUNDS and time.thread_time() > deadline):
            break
        upper, prices, inner = _next_prices(cuts, cap, best_prices, reach)
        if not inner:
            reach *= WIDER
            continue
        bounded = bool(prices.max() < cap * (1 - 1e-9)) or cap > DEAREST * abs(cuts[0][0])
        cap = cap if bounded else 8 * cap
        if bounded and upper - best <= settled * abs(upper):
            break
    return best_prices, best


def _next_prices(cuts: list[tuple[float, Floats]], cap: float, around: Floats, reach: float) -> tuple[float, Floats, bool]:
    """Prices up to `cap` at which the plans met so far allow the largest bound, that bound, and whether it is the largest.

    A single price is sought within the fraction `reach` of the best one known: larger bounds may be farther away.
    """
    values, slopes = np.array([c for c, _ in cuts]), np.array([slack for _, slack in cuts])
    # A limit that no plan met has exceeded is worth nothing yet.
    active = np.flatnonzero((slopes > 0).any(axis=0) | (around > 0))
    prices = np.zeros(slopes.shape[1])
    if len(active) > 1:
        upper, prices[active] = largest_minimum(values, slopes[:, active], cap)
        return upper, prices, True
    if not len(active):
        return float(values.min()), prices, True
    middle = float(around[active[0]])
    low, high = (middle / (1 + reach), min(cap, middle * (1 + reach))) if middle > 0 and reach < np.inf else (0.0, cap)
    prices[active], upper = _highest(values, slopes[:, active[0]], low, high)
    return upper, prices, bool(low < prices[active[0]] < high) or (low == 0 and high == cap)


def _highest(values: Floats, slopes: Floats, low: float, high: float) -> tuple[float, float]:
    """Where in [low, high] the lowest of several lines is highest, and how high."""
    rising, falling = slopes > 0, slopes <= 0
    found = [low, high]
    if rising.any() and falling.any():
        crossing = (values[falling] - values[rising][:, None]) / (slopes[rising][:, None] - slopes[falling])
        found += crossing[(crossing > low) & (crossing < high)].tolist()
    at = np.array(found)
    lowest = (values[:, None] + slopes[:, None] * at).min(axis=0)
    best = int(lowest.argmax())
    return float(at[best]), float(lowest[best])
