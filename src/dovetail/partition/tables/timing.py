"""How long nodes take in every cell (a column, from one place of each input): arrivals and prices together.

This restates the evaluator's rules for single nodes over the cells of many; tests hold the two together to the last digits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.effort import spend
from dovetail.partition.plan import Goal, Mode
from dovetail.partition.problem import Problem
from dovetail.partition.tables.arrivals import Arrivals, Fetch, arrivals
from dovetail.partition.tables.columns import PricedSplits
from dovetail.partition.tables.transfers import wide
from dovetail.values import dataclass

Scalar = TypeVar("Scalar", bound=np.generic)


class Later:
    """An array worked out when it is first asked for: energies, which plans for latency alone never look at."""

    __slots__ = ("_found", "_make")

    def __init__(self, make: Callable[[], Floats]) -> None:
        self._make, self._found = make, list[Floats]()

    def array(self) -> Floats:
        if not self._found:
            self._found.append(self._make())
        return self._found[0]

    def take(self, index: Any) -> Later:
        """Some of it, worked out no sooner."""
        return Later(lambda: self.array()[index])


Times = tuple[Floats, Later]
"""Of the cells of a node, one axis per input with places, then columns: latency without the way home, energy of transfers."""


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """The cells of one node. If `relaxed`, a piece that fetches nothing takes its shorter time."""

    own: PricedSplits
    fetch: Fetch
    count: int
    relaxed: bool
    partial_bytes: float
    """Size of a partial sum of the whole output."""


CELLS = 1 << 15
"""Cells worked out together: enough to be worth a call, few enough for a cache. Chosen, not measured."""


def timed(problem: Problem, asks: Sequence[Ask]) -> list[Times]:
    """The times of all cells of many nodes, in their order."""
    found: dict[Ask, Times] = {}
    some: list[Ask] = []
    for ask in asks:
        if some and sum(other.count for other in some) + ask.count > CELLS:
            found |= _timed(problem, some)
            some = []
        some.append(ask)
    found |= _timed(problem, some) if some else {}
    return [found[ask] for ask in asks]


def _timed(problem: Problem, asks: Sequence[Ask]) -> dict[Ask, Times]:
    """The times of some nodes; where energy does not matter, it is worked out only if it is asked for after all."""
    _, matters = criteria(problem)
    times = _worked_out(problem, asks, matters)
    known = [times] if matters else []

    def joules(ask: Ask) -> Floats:
        if not known:
            known.append(_worked_out(problem, asks, True))
        found = known[0][ask][1]
        assert found is not None, "energy was asked for"
        return found

    return {ask: (latency, Later(partial(joules, ask))) for ask, (latency, _) in times.items()}


def criteria(problem: Problem) -> tuple[bool, bool]:
    """Whether latency and energy each matter: as goal or as limit."""
    return (problem.goal is not Goal.ENERGY or problem.max_latency_s is not None,
            problem.goal is not Goal.LATENCY or problem.max_energy_j is not None)


def _worked_out(problem: Problem, asks: Sequence[Ask], energy: bool) -> dict[Ask, tuple[Floats, Floats | None]]:
    """Seconds and, if asked for, joules of all cells."""
    edges = [0, *accumulate([ask.count for ask in asks])]
    column = joined([_repeated(first, len(ask.own), ask.count) for first, ask in zip(
        accumulate([len(ask.own) for ask in asks[:-1]], initial=0), asks, strict=True)])
    latency, joules = _Timing(problem, asks, arrivals(problem, [ask.fetch for ask in asks], energy), column).run()
    spend("tables", len(asks), edges[-1] * len(problem.devices))
    return {ask: (latency[a:b].reshape(ask.fetch.shape), None if joules is None else joules[a:b].reshape(ask.fetch.shape))
            for ask, (a, b) in zip(asks, pairwise(edges), strict=True)}


def _repeated(first: int, width: int, count: int) -> Ints:
    """So many numbers that count from `first` on, again and again a `width` of them."""
    once = np.arange(first, first + width)
    return once if count == width else once[None].repeat(count // width, axis=0).ravel()


def joined(arrays: Sequence[NDArray[Scalar]]) -> NDArray[Scalar]:
    """One array of many; a single one as it is."""
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]


class _Timing:
    """Prices of the columns of several nodes (devices x columns) and arrivals at their cells; `column` says which each has."""

    def __init__(self, problem: Problem, asks: Sequence[Ask], come: Arrivals, column: Ints) -> None:
        self.problem, self.asks, self.come, self.column = problem, asks, come, column
        own, graph = [ask.own for ask in asks], problem.graph
        self.has = np.ascontiguousarray(joined([o.pattern.has[o.columns] for o in own]).T)
        self.alone = np.ascontiguousarray(joined([o.alone_s for o in own]).T)
        self.fused = np.ascontiguousarray(joined([o.fused_s for o in own]).T)
        self.quick = np.minimum(self.alone, self.fused)
        counts = [len(o) for o in own]
        relaxed, fed, self.flows = (np.array(flags).repeat(counts) for flags in (
            [ask.relaxed for ask in asks], [any(graph.producer(t) is None for t in o.node.inputs) for o in own],
            [len(set(o.node.inputs)) == 1 for o in own]))
        self.behind = np.where(fed, self.alone, np.where(relaxed, self.quick, self.fused))
        self.concurrent = problem.mode is Mode.CONCURRENT
        self.latency = np.zeros(len(column))
        self.joules, self.added = come.joules, None if self.concurrent else come.added_s
        self.spans: dict[int, Ints | None] = {}
        self.done: dict[int, Floats] = {}

    def run(self) -> tuple[Floats, Floats | None]:
        """Latency without the way home, and the energy of transfers alone, where it was asked for."""
        for d in np.asarray(self.has.any(axis=1)).nonzero()[0].tolist():
            self._compute(d)
        reducer = joined([ask.own.reducer for ask in self.asks])
        for r in range(len(self.problem.devices)) if np.count_nonzero(reducer >= 0) else ():
            here = reducer == r
            if np.count_nonzero(here):
                self._reduce(r, here[self.column].nonzero()[0])
        return (self.latency if self.added is None else self.added), self.joules

    def _compute(self, d: int) -> None:
        """Pieces on one device."""
        span = self.spans[d] = None if wide(self.problem) else self.has[d][self.column].nonzero()[0]
        column = self.column if span is None else self.column[span]
        come, width = self.come.pieces[d], self.alone.shape[1]
        compute = np.concatenate([self.behind[d], self.alone[d]]).take(column + come.busy * width)
        done = come.arrived + compute
        if self.concurrent and self.problem.streams(self.problem.devices[d]) and np.count_nonzero(self.flows):
            flowing = come.busy & self.flows[column]
            some = (flowing if come.returns is None else flowing & ~come.returns).nonzero()[0]
            own = column[some]
            done[some] = np.maximum(come.first[some] + self.alone[d][own], come.arrived[some] + self.quick[d][own])
        self.done[d] = done
        if span is None:
            np.maximum(self.latency, done, out=self.latency)
        else:
            self.latency[span] = np.maximum(self.latency[span], done)
        if self.added is not None:
            self.added[slice(None) if span is None else span] += compute

    def _done(self, d: int, cells: Ints) -> Floats:
        span = self.spans[d]
        return self.done[d][cells if span is None else np.searchsorted(span, cells)]

    def _reduce(self, reducer: int, chosen: Ints) -> None:
        """Partial sums of the cells that end on one device: sent there, and added."""
        column = self.column[chosen]
        parts = {d: part for d in self.done if len(part := self.has[d][column].nonzero()[0])}
        ended = {d: self._done(d, chosen[part]) for d, part in parts.items()}
        sizes = np.repeat([ask.partial_bytes for ask in self.asks], [len(ask.own) for ask in self.asks])[column]
        end, sent_s, sent_j = self._summed(reducer, chosen, parts, ended, sizes)
        spent = joined([ask.own.reduce_s for ask in self.asks])[column]
        self.latency[chosen] = end + spent
        if self.joules is not None:
            self.joules[chosen] += sent_j
        if self.added is not None:
            self.added[chosen] += sent_s + spent

    def _summed(self, reducer: int, chosen: Ints, parts: Mapping[int, Ints], ended: Mapping[int, Floats],
                sizes: Floats) -> tuple[Floats, Floats, Floats]:
        """When all partial sums are at the reducer, and the seconds and joules it took to send them.

        `parts` are the chosen cells with a piece on each device, `ended` when that is done.
        """
        problem, lanes = self.problem, dict[str, Floats]()
        latest, sent_s, sent_j = np.zeros((3, len(chosen)))
        if reducer in parts:
            latest[parts[reducer]] = ended[reducer]
        for d, part in parts.items():
            if d == reducer:
                continue
            source, target, stop = problem.devices[d], problem.devices[reducer], ended[d]
            seconds, spent = problem.transfer(source, target, sizes[part])
            names = problem.lanes(source, target)
            for lane in names:
                if lane not in lanes:
                    lanes[lane] = self.come.lanes[lane][chosen] if lane in self.come.lanes else np.zeros(len(chosen))
                stop = np.maximum(stop, lanes[lane][part])
            stop = stop + seconds
            for lane in names:
                lanes[lane][part] = stop
            latest[part] = np.maximum(latest[part], stop)
            sent_s[part] += seconds
            sent_j[part] += spent
        return latest, sent_s, sent_j
