"""Label search: closes what gap the prices leave.

A label is a partial plan: where the live tensors lie, its cost, what it uses of each limit. It is dropped if it cannot
be completed within a limit, if its cost plus a bound on completing it exceeds the cut-off, or if another label in the
same state costs and uses no more. What survives to the end is optimal; if the number of labels is limited, the least
bound among those given up is kept, so the answer's bound stays true. Where exact labels are too many, costs are compared
in steps of a small `blur`: each node then costs at most one step, which is taken off the bound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.effort import sorting, spend, worked
from dovetail.partition.exact.cuts import COVERED, Network, Priced, Step, completions, onward, priced_costs
from dovetail.partition.tolerances import ROUNDING, SETTLED
from dovetail.values import dataclass

CHUNK = 1_000_000
"""Label-column pairs examined at once. Chosen: some megabytes at once."""
MOST_LABELS = 100_000
"""Labels kept per node by a search that is to prove its plan.

Chosen: any value from 50,000 to 200,000 gives the same plans (bench/constants.py).
"""
FEW_LABELS = 2_000
"""Labels kept per node by a search that only looks for a good plan; so few are always compared exactly.

Chosen: any value from 1,000 to 4,000 gives the same plans (bench/constants.py).
"""
HURRIED = 256
"""Labels kept per stage once time is up: enough to still arrive at a plan. Chosen, not measured."""
PIVOTS = 48
"""Labels per state that others are compared with when several limits bind. Chosen, not measured."""
MANY = 512
"""Labels of a cut from which on, where two limits bind, all are compared with all. Chosen, not measured."""
FAN = (0.5, 2.0, 4.0)
"""Multiples of the best prices under which labels are bounded too. Chosen: powers of two around one."""
FANNED = 64
"""Labels that a step leads to from which on they are bounded under several prices: fewer are no work. Chosen, not measured."""
LARGEST_FAN = 400_000
"""States of a network beyond which one set of prices must do. Chosen, not measured."""


@dataclass(frozen=True, slots=True)
class FoundPath:
    """`path` is the best plan met, which is optimal if its value is below the cut-off and nothing was given up.

    `bound` holds for every legal plan; `complete` says that nothing was given up; `most` labels were kept at any node.
    """

    path: tuple[int, ...] | None
    value: float
    bound: float
    complete: bool
    most: int = 0


@dataclass(frozen=True, slots=True)
class _Labels:
    """Labels of one cut; `parent` counts the labels of the cut `origin`, from which `column` leads here."""

    state: Ints
    cost: Floats
    used: Floats
    bound: Floats
    parent: Ints
    origin: Ints
    column: Ints

    def take(self, index: Ints | NDArray[np.bool_]) -> _Labels:
        return _Labels(self.state[index], self.cost[index], self.used[index], self.bound[index], self.parent[index],
                       self.origin[index], self.column[index])


def _joined(parts: list[_Labels]) -> _Labels:
    if len(parts) == 1:
        return parts[0]
    columns = zip(*((p.state, p.cost, p.used, p.bound, p.parent, p.origin, p.column) for p in parts), strict=True)
    return _Labels(*(np.concatenate(c) for c in columns))


LABEL_CELLS = 16
"""Cells that a label is worth where work is counted. Chosen, not measured."""


class Search:
    """Labels over one network with given costs and prices; `run` may be repeated with rising cut-offs."""

    def __init__(self, net: Network, costs: list[Floats], priced: Priced, by_first: bool = False) -> None:
        """With `by_first`, labels are compared by the first limit alone: what is found is a plan, but proves nothing."""
        self.net, self.priced, self.by_first, self.costs = net, priced, by_first, costs
        self.amounts = [net.amounts(x) for x in net.limits]
        self.unpriced = completions(net, self.costs)
        self.reduced = priced_costs(self.costs, self.amounts, priced.prices)
        self.fanning = False
        self.spent = priced.prices.sum()
        self.least = [_least(net, a, self.costs) for a in self.amounts]

    def fan_out(self) -> None:
        """Bound labels under several prices from here on: worth its time where one set of prices leaves many."""
        self.fanning = True

    @cached_property
    def fans(self) -> list[tuple[Floats, list[Floats]]]:
        """Other prices, and completions under them."""
        return [(prices, completions(self.net, priced_costs(self.costs, self.amounts, prices))) for prices in _fan(self.priced)]

    def run(self, cutoff: float, max_labels: int, deadline: float, blur: float = 0.0) -> FoundPath:
        """All plans whose bound does not exceed the cut-off, as far as the label limit and the time allow."""
        lost = blur * len(self.net.tables)
        none = np.zeros(1, dtype=np.int64)
        history = [_Labels(np.zeros((1, 0), dtype=np.int64), np.zeros(1), np.zeros((1, len(self.amounts))),
                           np.array([self.priced.bound]), none, none, none)]
        if any(float(least[0]) > 1 + ROUNDING for least in self.least):
            history = [history[0].take(none[:0])]  # no plan at all: nodes with one way to run would pass the label on unasked
        coming: list[list[_Labels]] = [[] for _ in range(len(self.net.tables) + 1)]
        given_up = np.inf
        for k in range(len(self.net.tables)):
            room = min(max_labels, HURRIED) if worked() > deadline else max_labels
            for step in self.net.steps(k):
                coming[step.stop].append(self._expand(step, history[k], cutoff, FANNED if blur == 0 else 0))
            every = _joined(coming[k + 1])
            labels = self._undominated(k + 1, every, blur)
            spend("several" if len(self.amounts) > 1 and not self.by_first else "comparisons", 1,
                  sorting(len(every.cost)) * every.used.shape[1])
            if len(labels.cost) > room:
                order = np.argsort(labels.bound, kind="stable")
                given_up = min(given_up, float(labels.bound[order[room]]))
                labels = labels.take(np.sort(order[:room]))
            history.append(labels)
        most = max(len(x.cost) for x in history)
        if not len(labels.cost):
            return FoundPath(None, np.inf, min(cutoff - lost, given_up), not np.isfinite(given_up), most)
        best = int(labels.cost.argmin())
        value = float(labels.cost[best])
        return FoundPath(self._path(history, best), value, min(min(value, cutoff) - lost, given_up),
                     given_up >= min(value, cutoff) - lost, most)

    def _path(self, history: list[_Labels], last: int) -> tuple[int, ...]:
        """The columns that lead to a label of the last cut."""
        path = [COVERED] * len(self.net.tables)
        cut = len(path)
        while cut:
            labels = history[cut]
            cut, column, last = int(labels.origin[last]), int(labels.column[last]), int(labels.parent[last])
            path[cut] = column
        return tuple(path)

    def _expand(self, step: Step, labels: _Labels, cutoff: float, many: int) -> _Labels:
        """Labels after a step; in runs that blur nothing, `many` are bounded under several prices, fewer need not be."""
        if len(step.own) == 1 and len(self.net.steps(step.start)) == 1:
            return self._carried(step, labels)
        size = max(1, CHUNK // len(step.own))
        return _joined([self._expand_some(step, labels, np.arange(i, min(i + size, len(labels.cost))), cutoff, many)
                        for i in range(0, max(1, len(labels.cost)), size)])

    def _carried(self, step: Step, labels: _Labels) -> _Labels:
        """Labels after a node that can run in one way: what completes each was counted with it, so none is dropped."""
        every = np.arange(len(labels.cost))
        spend("labels", 1, LABEL_CELLS * len(every))
        return self._grown(step, labels, every, np.zeros(len(every), dtype=np.int64))[0]

    def _expand_some(self, step: Step, labels: _Labels, rows: Ints, cutoff: float, many: int) -> _Labels:
        at = {t: labels.state[rows, i] for i, t in enumerate(self.net.stages[step.start].live)}
        row, column = self._promising(step, labels, rows, at, cutoff)
        found, ahead = self._grown(step, labels, rows[row], column)
        # A plan with limits to spare is worth more than its priced bound says: its plain cost must stay below too.
        most = cutoff + ROUNDING * abs(cutoff)
        fits = found.cost + self.unpriced[step.stop][ahead] <= most
        for j, least in enumerate(self.least):
            more = least[step.stop]
            fits &= found.used[:, j] + (more if isinstance(more, float) else more[ahead]) <= 1 + ROUNDING
        fits &= found.bound <= most
        kept = int(np.count_nonzero(fits))
        fans = self.fans if self.fanning and kept > many else []
        spend("labels", 1, len(rows) * len(step.own) + LABEL_CELLS * (len(fits) + kept * len(fans)))
        return self._fanned(step.stop, found if kept == len(fits) else found.take(fits), cutoff, fans)

    def _grown(self, step: Step, labels: _Labels, parent: Ints, column: Ints) -> tuple[_Labels, tuple[Ints, ...]]:
        """Some labels, each with one column of a step added, and the states they are then in."""
        live, after, leaves = self.net.stages[step.start].live, self.net.stages[step.stop - 1].after, step.own.leaves
        places = labels.state[parent]
        at = {t: places[:, i] for i, t in enumerate(live)}
        state = np.empty((len(parent), len(after)), dtype=np.int64)
        for i, t in enumerate(after):
            state[:, i] = leaves[t][column] if t in leaves else at[t]
        entry, ahead = (*(at[t] for t in step.own.inputs), column), tuple(state.T)
        cost = labels.cost[parent] + self.costs[step.index][entry]
        bound = cost + self.priced.to_go[step.stop][ahead] - self.spent
        used = labels.used[parent]
        for j, amounts in enumerate(self.amounts):
            own = amounts[step.index]
            used[:, j] += own[column if own.ndim == 1 else entry]
            bound = bound + self.priced.prices[j] * used[:, j]
        origin = np.full(len(parent), step.start, dtype=np.int64)
        return _Labels(state, cost, used, bound, parent, origin, step.first_column + column), ahead

    def _promising(self, step: Step, labels: _Labels, rows: Ints, at: Mapping[str, Ints], cutoff: float) -> tuple[Ints, Ints]:
        """Labels and columns whose bound may be below the cut-off, found with one sum."""
        shape = (len(rows), len(step.own))
        begun = labels.cost[rows] + labels.used[rows] @ self.priced.prices - self.spent
        inputs, after = step.own.inputs, self.net.stages[step.stop - 1].after
        own = self.reduced[step.index][tuple(at[t] for t in inputs)] if inputs else self.reduced[step.index]
        ahead = self.priced.to_go[step.stop][onward(step, after, {t: places[:, None] for t, places in at.items()})]
        room = cutoff + SETTLED * (abs(cutoff) + self.spent)
        below = begun[:, None] + own + ahead <= room
        row, column = (below if below.shape == shape else np.broadcast_to(below, shape)).nonzero()
        return row, column

    def _fanned(self, cut: int, labels: _Labels, cutoff: float, fans: list[tuple[Floats, list[Floats]]]) -> _Labels:
        """Bounds under other prices too: dear ones are sharp where much of a limit is spent, low ones where much is left."""
        for prices, to_go in fans:
            if not len(labels.cost):
                break
            other = labels.cost + to_go[cut][tuple(labels.state.T)] + labels.used @ prices - prices.sum() * (1 + ROUNDING)
            bound = np.maximum(labels.bound, other)
            labels = _Labels(labels.state, labels.cost, labels.used, bound, labels.parent, labels.origin, labels.column)
            over = bound > cutoff + ROUNDING * abs(cutoff)
            labels = labels.take(~over) if np.count_nonzero(over) else labels
        return labels

    def _undominated(self, cut: int, labels: _Labels, blur: float) -> _Labels:
        if len(labels.cost) < 2:
            return labels
        sizes = self.priced.to_go[cut].shape
        key = np.ravel_multi_index(tuple(labels.state.T), sizes) if sizes else np.zeros(len(labels.cost), dtype=np.int64)
        cost = np.floor(labels.cost / blur) if blur > 0 else labels.cost
        order = np.lexsort((labels.cost, *labels.used.T[::-1], cost, key) if blur > 0 else (*labels.used.T[::-1], cost, key))
        key, every = key[order], labels.used[order]
        starts = _leads(key[1:] != key[:-1])
        if every.shape[1] == 0:
            return labels.take(order[starts])
        if every.shape[1] == 1 or self.by_first:
            # Lowering each state by more than uses differ lets one running minimum serve all states.
            used = every[:, 0] - (np.ptp(every[:, 0]) + 1) * np.cumsum(starts)
            least = np.minimum.accumulate(used)
            return labels.take(order[_leads(used[1:] < least[:-1])])
        if every.shape[1] == 2 and len(key) > MANY:
            return labels.take(order[front_of_two(np.cumsum(starts), every)])
        keep, edges = np.ones(len(key), dtype=np.bool_), np.r_[starts, True].nonzero()[0]
        for i in (np.diff(edges) > 1).nonzero()[0].tolist():
            keep[edges[i]:edges[i + 1]] = _front(every[edges[i]:edges[i + 1]])
        return labels.take(order[keep])


def _least(net: Network, amounts: list[Floats], costs: list[Floats]) -> Sequence[Floats | float]:
    """What completing each cut takes of a limit at least, by its states; one number where only columns decide, as of a budget."""
    if any(own.ndim > 1 for own in amounts):
        return completions(net, [np.broadcast_to(own, cost.shape) for own, cost in zip(amounts, costs, strict=True)])
    each, found = [float(own.min()) for own in amounts], [0.0] * (len(net.tables) + 1)
    for k in range(len(net.tables) - 1, -1, -1):
        found[k] = min([each[step.index] + found[step.stop] for step in net.steps(k)])
    return found


def _leads(flags: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Flags of all but the first, which leads in any case."""
    found = np.ones(len(flags) + 1, dtype=np.bool_)
    found[1:] = flags
    return found


def _fan(priced: Priced) -> list[Floats]:
    """Prices around the best ones, limit by limit and all together."""
    active = (priced.prices > 0).nonzero()[0]
    size = sum(a.size for a in priced.to_go)
    if not len(active) or size > LARGEST_FAN:
        return []
    found = [priced.prices * factor for factor in FAN]
    if len(active) > 1:
        for i in active.tolist():
            for factor in FAN[:2]:
                one = priced.prices.copy()
                one[i] *= factor
                found.append(one)
    return found


def _front(used: Floats) -> NDArray[np.bool_]:
    """Which rows, given in order of cost, no earlier row undercuts in every column."""
    alive = np.ones(len(used), dtype=np.bool_)
    pivots = 0
    for i in range(len(used)):
        if alive[i]:
            alive[i + 1:] &= ~(used[i + 1:] >= used[i]).all(axis=1)
            pivots += 1
            if pivots == PIVOTS:
                break
    return alive


def front_of_two(group: Ints, used: Floats) -> NDArray[np.bool_]:
    """Which rows, given group by group in order of cost, no earlier row of their group undercuts or equals in both columns.

    Runs of rows are joined two by two, ever longer ones: of each pair, rows of the second are compared with the least, in the
    second column, of those in the first that take no more in the first column. Ranks stand for the second column, so that one
    running minimum serves all pairs and groups exactly.
    """
    count = len(used)
    rank = np.unique(used[:, 1], return_inverse=True)[1].ravel()
    by_first = np.argsort(used[:, 0], kind="stable")  # of equal rows the earlier one comes first
    alive, size = np.ones(count, dtype=np.bool_), 1
    while size < count:
        block = by_first // (2 * size)
        part = block * (int(group[-1]) + 1) + group[by_first]
        order = by_first[np.argsort(part, kind="stable")]
        part, second = np.sort(part), order // size % 2 == 1
        segment = np.cumsum(np.append(0, part[1:] != part[:-1]))
        least = np.minimum.accumulate(np.where(second, count, rank[order]) - (count + 1) * segment)
        alive[order[second & (rank[order] - (count + 1) * segment >= least)]] = False
        size *= 2
    return alive
