"""Label search: closes what gap the prices leave.

A label is a partial plan: where the live tensors lie, its cost, what it uses of each limit. It is dropped if it cannot
be completed within a limit, if its cost plus a bound on completing it exceeds the cut-off, or if another label in the
same state costs and uses no more. What survives to the end is optimal; if the number of labels is limited, the least
bound among those given up is kept, so the answer's bound stays true. Where exact labels are too many, costs are compared
in steps of a small `blur`: each node then costs at most one step, which is taken off the bound.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.cost.estimate import Floats, Ints
from dovetail.partition.cuts import Network, Priced, completions

CHUNK = 1_000_000
"""Label-column pairs examined at once."""
HURRIED = 256
"""Labels kept per stage once time is up: enough to still arrive at a plan."""
PIVOTS = 48
"""Labels per state that others are compared with when several limits bind."""
SLACK = 1e-12


@dataclass(frozen=True, slots=True)
class Found:
    """`path` is the best plan met, which is optimal if its value is below the cut-off and nothing was given up.

    `bound` holds for every legal plan; `complete` says that nothing was given up.
    """

    path: tuple[int, ...] | None
    value: float
    bound: float
    complete: bool


@dataclass(frozen=True, slots=True)
class _Labels:
    state: Ints
    cost: Floats
    used: Floats
    bound: Floats
    parent: Ints
    column: Ints

    def take(self, index: Ints | NDArray[np.bool_]) -> _Labels:
        return _Labels(self.state[index], self.cost[index], self.used[index], self.bound[index], self.parent[index],
                       self.column[index])


class Search:
    """Labels over one network with given weights and prices; `run` may be repeated with rising cut-offs."""

    def __init__(self, net: Network, weights: tuple[float, float], priced: Priced) -> None:
        self.net, self.priced = net, priced
        self.costs = [net.cost(k, weights) for k in range(len(net.tables))]
        self.amounts = [[net.amounts(k, x) for k in range(len(net.tables))] for x in net.limits]
        self.unpriced = completions(net, self.costs)
        self.least = [completions(net, [self._wide(k, a[k]) for k in range(len(net.tables))]) for a in self.amounts]

    def _wide(self, k: int, amounts: Floats) -> Floats:
        """Budget amounts depend on the column only; completions want them over inputs too."""
        return np.broadcast_to(amounts, self.costs[k].shape)

    def run(self, cutoff: float, max_labels: int, deadline: float, blur: float = 0.0) -> Found:
        """All plans whose bound does not exceed the cut-off, as far as the label limit and the time allow."""
        lost = blur * len(self.net.tables)
        count = len(self.amounts)
        labels = _Labels(np.zeros((1, 0), dtype=np.int64), np.zeros(1), np.zeros((1, count)), np.array([self.priced.bound]),
                         np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
        history: list[_Labels] = []
        given_up = np.inf
        for k in range(len(self.net.tables)):
            room = min(max_labels, HURRIED) if time.thread_time() > deadline else max_labels
            labels = self._undominated(k, self._expand(k, labels, cutoff), blur)
            if len(labels.cost) > room:
                order = np.argsort(labels.bound, kind="stable")
                given_up = min(given_up, float(labels.bound[order[room]]))
                labels = labels.take(np.sort(order[:room]))
            history.append(labels)
            if not len(labels.cost):
                return Found(None, np.inf, min(cutoff - lost, given_up), not np.isfinite(given_up))
        best = int(labels.cost.argmin())
        value, path = float(labels.cost[best]), []
        for stage in reversed(history):
            path.append(int(stage.column[best]))
            best = int(stage.parent[best])
        return Found(tuple(path[::-1]), value, min(min(value, cutoff) - lost, given_up), given_up >= min(value, cutoff) - lost)

    def _expand(self, k: int, labels: _Labels, cutoff: float) -> _Labels:
        width = len(self.net.tables[k].options)
        step = max(1, CHUNK // width)
        parts = [self._expand_some(k, labels, np.arange(i, min(i + step, len(labels.cost))), cutoff)
                 for i in range(0, len(labels.cost), step)]
        if len(parts) == 1:
            return parts[0]
        columns = zip(*((p.state, p.cost, p.used, p.bound, p.parent, p.column) for p in parts), strict=True)
        return _Labels(*(np.concatenate(c) for c in columns))

    def _expand_some(self, k: int, labels: _Labels, rows: Ints, cutoff: float) -> _Labels:
        table, stage = self.net.tables[k], self.net.stages[k]
        at = {t: labels.state[rows, i] for i, t in enumerate(stage.live)}
        entry = tuple(at[t] for t in table.inputs)
        cost = labels.cost[rows, None] + (self.costs[k][entry] if entry else self.costs[k])
        onward = tuple(table.place_of[None, :] if t == table.node.output else at[t][:, None] for t in stage.after)
        shape = cost.shape
        bound = cost + np.broadcast_to(self.priced.to_go[k + 1][onward], shape) - self.priced.prices.sum()
        # A plan with limits to spare is worth more than its priced bound says: its plain cost must stay below too.
        fits, used = cost + self.unpriced[k + 1][onward] <= cutoff + SLACK * abs(cutoff), []
        for j, amounts in enumerate(self.amounts):
            own = amounts[k] if amounts[k].ndim == 1 else amounts[k][entry]
            now = labels.used[rows, j, None] + np.broadcast_to(own, shape)
            fits &= now + self.least[j][k + 1][onward] <= 1 + SLACK
            bound = bound + self.priced.prices[j] * now
            used.append(now)
        row, column = np.nonzero(fits & (bound <= cutoff + SLACK * abs(cutoff)))
        kept = np.stack([u[row, column] for u in used], axis=1) if used else np.zeros((len(row), 0))
        state = [table.place_of[column] if t == table.node.output else at[t][row] for t in stage.after]
        return _Labels(np.stack(state, axis=1) if state else np.zeros((len(row), 0), dtype=np.int64), cost[row, column], kept,
                       bound[row, column], rows[row], column)

    def _undominated(self, k: int, labels: _Labels, blur: float) -> _Labels:
        if len(labels.cost) < 2:
            return labels
        sizes = self.priced.to_go[k + 1].shape
        key = np.ravel_multi_index(tuple(labels.state.T), sizes) if sizes else np.zeros(len(labels.cost), dtype=np.int64)
        cost = np.floor(labels.cost / blur) if blur > 0 else labels.cost
        order = np.lexsort((labels.cost, *labels.used.T[::-1], cost, key) if blur > 0 else (*labels.used.T[::-1], cost, key))
        labels, key = labels.take(order), key[order]
        starts = np.r_[True, key[1:] != key[:-1]]
        if labels.used.shape[1] == 0:
            return labels.take(starts)
        if labels.used.shape[1] == 1:
            # Lowering each state by more than any use lets one running minimum serve all states.
            used = labels.used[:, 0] - (labels.used.max() + 1) * np.cumsum(starts)
            least = np.minimum.accumulate(used)
            return labels.take(np.r_[True, used[1:] < least[:-1]])
        keep, edges = np.ones(len(key), dtype=np.bool_), np.flatnonzero(np.r_[starts, True])
        for i in np.flatnonzero(np.diff(edges) > 1).tolist():
            keep[edges[i]:edges[i + 1]] = _front(labels.used[edges[i]:edges[i + 1]])
        return labels.take(keep)


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
