"""Costs of every column of every node for every place its inputs can be in, as arrays.

This restates `evaluate`'s rules for one node over whole arrays; tests hold the two together to the last digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dovetail.cost.estimate import Floats, Ints
from dovetail.ir import Node
from dovetail.partition.arrivals import ARRIVED, BUSY, FIRST, RETURNS, Arrivals, arrivals, from_everywhere, from_streams
from dovetail.partition.columns import Held, Options, Pattern
from dovetail.partition.overlaps import on, wide
from dovetail.partition.plan import Assignment, Goal, Mode, Split
from dovetail.partition.problem import PARTIAL_BYTES, Problem
from dovetail.partition.quotes import shape_priced
from dovetail.partition.work import follows


@dataclass(frozen=True, slots=True)
class Table:
    """Costs of one node. Arrays: one axis per input tensor that a node produces, then columns (sorted by place).

    `first` holds the first column of each place. Bringing graph outputs home and idle power are included.
    """

    options: Options
    inputs: tuple[str, ...]
    first: Ints
    latency_s: Floats
    energy_j: Floats

    @property
    def node(self) -> Node:
        return self.options.node

    @property
    def splits(self) -> tuple[Split, ...]:
        return self.options.splits

    @property
    def place_of(self) -> Ints:
        return self.options.place_of

    @property
    def resources(self) -> Floats:
        return self.options.resources

    @property
    def leaves(self) -> Mapping[str, Ints]:
        """In which of its places each column leaves the tensor it makes."""
        return {self.node.output: self.place_of}

    def __len__(self) -> int:
        return len(self.options)

    def assignment(self, problem: Problem, column: int) -> Assignment:
        """What a column stands for."""
        return {self.node.name: self.options.pattern.split(int(self.options.columns[column]))}


def variable_inputs(problem: Problem, node: Node) -> tuple[str, ...]:
    """Input tensors whose place is chosen; graph inputs are always on the host."""
    return tuple(dict.fromkeys(t for t in node.inputs if problem.graph.producer(t) is not None))


def tabulate(problem: Problem, own: Options, known: Mapping[str, Held], charged: Sequence[str] | None = None) -> Table:
    """Costs of one node for every combination of its inputs' places.

    With `charged`, only these inputs have an axis and pay transfers, the others are wherever they are needed, and a
    piece that fetches nothing takes its shorter time: a lower bound for any place of the other inputs.
    """
    every = variable_inputs(problem, own.node)
    inputs = tuple(t for t in every if charged is None or t in charged)
    paying = [t for t in dict.fromkeys(own.node.inputs) if t in inputs or t not in every]
    latency, joules = _entries(problem, own, known, inputs, paying, len(inputs) < len(every))
    energy = joules + own.energy_j.sum(axis=1) + own.reduce_j + problem.idle_power_w * latency
    first = np.searchsorted(own.place_of, np.arange(len(own.places)))
    return Table(own, inputs, first, latency + own.home_s, energy + own.home_j)


@dataclass(frozen=True, slots=True)
class _Prices:
    """Times of some columns of a pattern for one node; columns it may not use count as free, and are left out later."""

    node: Node
    pattern: Pattern
    columns: Ints
    alone_s: Floats
    fused_s: Floats
    reduce_s: Floats

    @property
    def reducer(self) -> Ints:
        return self.pattern.reducer[self.columns]


def _entries(problem: Problem, own: Options, known: Mapping[str, Held], inputs: tuple[str, ...], paying: list[str],
             relaxed: bool) -> tuple[Floats, Floats]:
    """Latency without the way home, and the energy of transfers.

    With one input, all places and columns of the patterns are looked at together, which alike nodes have in common. Columns on
    devices that charge by shape alone even take the same time, and are worked out once.
    """
    node, pattern = own.node, own.pattern
    if len(inputs) != 1 or len(known[inputs[0]].places) == 1:
        own_prices = _Prices(node, pattern, own.columns, own.alone_s, own.fused_s, own.reduce_s)
        stream = known[inputs[0]].stream_s if len(inputs) == 1 and follows(problem, node) else np.zeros(1)
        come = arrivals(problem, node, pattern, own.columns, known, inputs, paying, stream if stream[0] > 0 else None)
        return _timed(problem, own_prices, come, relaxed)
    held, weighed = known[inputs[0]], pattern.has[:, ~shape_priced(problem)].any(axis=1)
    is_weighed = np.asarray(weighed)[own.columns]
    early = np.flatnonzero(held.stream_s > 0) if follows(problem, node) else own.columns[:0]
    leaving = Held(held.pattern, held.places[early], held.stream_s[early])
    latency, joules = np.empty((len(held.places), len(own))), np.empty((len(held.places), len(own)))
    for by_shape, columns in ((True, np.flatnonzero(~weighed)), (False, np.flatnonzero(weighed))):
        here = np.flatnonzero(is_weighed != by_shape)
        if not len(here):
            continue
        at = np.searchsorted(columns, own.columns[here])
        prices = _spread(own, columns, here, at)
        found = _still(problem, prices, known, inputs, paying, relaxed, by_shape)
        grid: Any = (held.places[:, None], at) if len(at) < len(columns) else held.places
        latency[:, here], joules[:, here] = (a[grid] for a in found)
        if len(early):
            come = from_streams(problem, node, pattern, columns, known, inputs[0], paying, leaving)
            sooner = _timed(problem, prices, come, relaxed)
            latency[early[:, None], here], joules[early[:, None], here] = (a[:, at] for a in sooner)
    return latency, joules


def _spread(own: Options, columns: Ints, here: Ints, at: Ints) -> _Prices:
    """Prices over all given columns of the pattern, of which the node may use those at some positions."""
    alone, fused, reduce = np.zeros((len(columns), own.alone_s.shape[1])), np.zeros((len(columns), own.alone_s.shape[1])), \
        np.zeros(len(columns))
    alone[at], fused[at], reduce[at] = own.alone_s[here], own.fused_s[here], own.reduce_s[here]
    return _Prices(own.node, own.pattern, columns, alone, fused, reduce)


def _still(problem: Problem, prices: _Prices, known: Mapping[str, Held], inputs: tuple[str, ...], paying: list[str],
           relaxed: bool, by_shape: bool) -> tuple[Floats, Floats]:
    """Entries for inputs that lie still, from all places of the one input; remembered where they go by shape."""
    come = from_everywhere(problem, prices.node, prices.pattern, prices.columns, known, inputs, paying)
    if not by_shape:
        return _timed(problem, prices, come, relaxed)
    key = (id(come), relaxed, prices.alone_s.tobytes(), prices.reduce_s.tobytes(), problem.graph.tensors[prices.node.output].size)
    if key not in problem.timed:
        problem.timed[key] = _timed(problem, prices, come, relaxed)
    return problem.timed[key]


def narrowed(table: Table, own: Options, known: Sequence[tuple[Held, Held]]) -> Table:
    """A table over fewer columns and fewer places of its inputs: `known` has, per input, those it was made for and those left.

    Exact only where the table is: it must not be a relaxation.
    """
    columns = np.searchsorted(table.options.columns, own.columns)
    grid = [np.searchsorted(before.places, now.places) for before, now in known]
    index = (*np.ix_(*grid, columns),) if grid else (columns,)
    first = np.searchsorted(own.place_of, np.arange(len(own.places)))
    return Table(own, table.inputs, first, table.latency_s[index], table.energy_j[index])


def _timed(problem: Problem, own: _Prices, come: Arrivals, relaxed: bool) -> tuple[Floats, Floats]:
    """Latency without the way home, and the energy of transfers alone."""
    fused = np.minimum(own.alone_s, own.fused_s) if relaxed else own.fused_s
    if any(problem.graph.producer(t) is None for t in own.node.inputs):
        fused = own.alone_s
    concurrent, flows = problem.mode is Mode.CONCURRENT, len(set(own.node.inputs)) == 1
    latency, added, done = np.zeros(come.joules.shape), come.added_s if concurrent else come.added_s.copy(), dict[int, Floats]()
    has = own.pattern.has[own.columns]
    for d, piece in come.pieces.items():
        span = on(problem, has, d)
        alone, behind = own.alone_s[span, d], fused[span, d]
        arrived, busy = piece[ARRIVED], piece[BUSY] > 0
        compute = np.where(busy, alone, behind) if (alone != behind).any() else alone
        done[d] = arrived + compute
        if concurrent and flows and problem.streams(problem.devices[d]):
            last = arrived + np.minimum(own.fused_s[span, d], alone)
            done[d] = np.where(busy & (piece[RETURNS] == 0), np.maximum(piece[FIRST] + alone, last), done[d])
        latency[..., span] = np.maximum(latency[..., span], done[d])
        if not concurrent:
            added[..., span] += compute
    reducers = [r for r in np.unique(own.reducer).tolist() if r >= 0]
    joules = come.joules.copy() if reducers else come.joules
    for reducer in reducers:
        chosen = np.flatnonzero(own.reducer == reducer)
        parts = {d: columns for d in done if len(columns := np.flatnonzero(has[chosen, d]))}
        at = {d: chosen[c] if wide(problem) else np.searchsorted(np.flatnonzero(has[:, d]), chosen[c]) for d, c in parts.items()}
        ended = {d: done[d][..., at[d]] for d in parts}
        end, sent_s, sent_j = _summed(problem, own.node, reducer, (chosen, parts, ended), come.lanes)
        latency[..., chosen] = end + own.reduce_s[chosen]
        joules[..., chosen] += sent_j
        if not concurrent:
            added[..., chosen] += sent_s + own.reduce_s[chosen]
    return latency if concurrent else added, joules


def _summed(problem: Problem, node: Node, reducer: int, pieces: tuple[Ints, Mapping[int, Ints], Mapping[int, Floats]],
            busy: Mapping[str, Floats]) -> tuple[Floats, Floats, Floats]:
    """When all partial sums are at the reducer, and the seconds and joules it took to send them, one per column.

    `pieces` are the columns that end there, which of them have a piece on each device, and when that is done; `busy` is how
    long lanes serve what came before.
    """
    chosen, parts, ended = pieces
    target, size = problem.devices[reducer], np.array([float(problem.graph.tensors[node.output].size * PARTIAL_BYTES)])
    latest = np.zeros((*next(iter(ended.values())).shape[:-1], len(chosen)))
    sent_s, sent_j, lanes = np.zeros(len(chosen)), np.zeros(len(chosen)), dict[str, Floats]()
    if reducer in parts:
        latest[..., parts[reducer]] = ended[reducer]
    for d, part in parts.items():
        if d == reducer:
            continue
        (seconds,), (spent,) = problem.transfer(problem.devices[d], target, size)
        stop = ended[d]
        names = problem.lanes(problem.devices[d], target)
        for lane in names:
            if lane not in lanes:
                lanes[lane] = busy[lane][..., chosen] if lane in busy else np.zeros(latest.shape)
            stop = np.maximum(stop, lanes[lane][..., part])
        stop = stop + seconds
        for lane in names:
            lanes[lane][..., part] = stop
        latest[..., part] = np.maximum(latest[..., part], stop)
        sent_s[part] += seconds
        sent_j[part] += spent
    return latest, sent_s, sent_j


def criteria(problem: Problem) -> tuple[bool, bool]:
    """Whether latency and energy each matter: as goal or as limit."""
    return (problem.goal is not Goal.ENERGY or problem.max_latency_s is not None,
            problem.goal is not Goal.LATENCY or problem.max_energy_j is not None)


def prune(problem: Problem, table: Table) -> Table:
    """Drop columns another one beats or equals everywhere.

    Safe: the other has the same place, so every consumer sees the same; it costs no more in any criterion that
    matters wherever the inputs lie; and it uses no more of any resource. Exchanging them worsens no plan.
    """
    last = np.append(table.first[1:], len(table.options))
    crowded = np.flatnonzero(last - table.first > 1).tolist()
    if not crowded:
        return table
    costs = zip((table.latency_s, table.energy_j), criteria(problem), strict=True)
    counted = [a.reshape(-1, len(table.options)) for a, matters in costs if matters]
    beaten: list[int] = []
    for place in crowded:
        group = slice(int(table.first[place]), int(last[place]))
        profile = np.concatenate([*(a[:, group] for a in counted), table.resources[group].T])
        beaten += [group.start + i for i in set(range(profile.shape[1])).difference(_unbeaten(profile))]
    if not beaten:
        return table
    keep = np.delete(np.arange(len(table.options)), beaten)
    own = table.options.keep(keep)
    return replace(table, options=own, first=np.searchsorted(own.place_of, np.arange(len(table.first))),
                   latency_s=table.latency_s[..., keep], energy_j=table.energy_j[..., keep])


def _unbeaten(profile: Floats) -> list[int]:
    """Columns of a profile that no other column is at most equal to in every row."""
    kept: list[int] = []
    for i in np.argsort(profile.sum(axis=0), kind="stable").tolist():
        if not any((profile[:, j] <= profile[:, i]).all() for j in kept):
            kept.append(i)
    return sorted(kept)
