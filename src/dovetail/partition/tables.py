"""Costs of every column of every node for every place its inputs can be in, as arrays.

This restates `evaluate`'s rules for one node over whole arrays; tests hold the two together to the last digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dovetail.cost.estimate import Flags, Floats, Ints
from dovetail.ir import Node
from dovetail.partition.columns import Held, Options
from dovetail.partition.overlaps import fetched
from dovetail.partition.plan import Goal, Mode, Split
from dovetail.partition.problem import PARTIAL_BYTES, Problem
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


@dataclass
class _Clock:
    """One node being added up: lanes as they fill, and where the first transfer of a streamed input may still go early."""

    latency: Floats
    added: Floats
    joules: Floats
    stream_s: Floats
    early: Flags
    lanes: dict[str, Floats] = field(default_factory=dict)

    def occupy(self, names: Sequence[str], columns: Ints, busy: Flags, seconds: Floats, ready: Floats) -> Floats:
        """Array form of `work.occupy` for some columns, where `busy` marks the entries that transfer at all."""
        start = ready
        for lane in names:
            if lane in self.lanes:
                start = np.maximum(start, self.lanes[lane][..., columns])
        stop: Floats = start + seconds
        for lane in names:
            if lane not in self.lanes:
                self.lanes[lane] = np.zeros(self.latency.shape)
            self.lanes[lane][..., columns] = np.where(busy, stop, self.lanes[lane][..., columns])
        return stop


def variable_inputs(problem: Problem, node: Node) -> tuple[str, ...]:
    """Input tensors whose place is chosen; graph inputs are always on the host."""
    return tuple(dict.fromkeys(t for t in node.inputs if problem.graph.producer(t) is not None))


def tabulate(problem: Problem, own: Options, known: Mapping[str, Held], charged: Sequence[str] | None = None) -> Table:
    """Costs of one node for every combination of its inputs' places.

    With `charged`, only these inputs have an axis and pay transfers, the others are wherever they are needed, and a
    piece that fetches nothing takes its shorter time: a lower bound for any place of the other inputs.
    """
    inputs = tuple(t for t in variable_inputs(problem, own.node) if charged is None or t in charged)
    key = _key(problem, own, known, inputs, charged is None)
    if key not in problem.timed:
        problem.timed[key] = _timed(problem, own, known, charged, inputs)
    latency, moved = problem.timed[key]
    energy = moved + own.energy_j.sum(axis=1) + own.reduce_j + problem.idle_power_w * latency
    first = np.searchsorted(own.place_of, np.arange(len(own.places)))
    return Table(own, inputs, first, latency + own.home_s, energy + own.home_j)


def _key(problem: Problem, own: Options, known: Mapping[str, Held], inputs: Sequence[str], every: bool) -> tuple[object, ...]:
    """What decides a node's times and transfers: alike nodes that take equally long have them in common."""
    at = {t: i for i, t in enumerate(dict.fromkeys(own.node.inputs))}
    arrays = (own.columns, own.alone_s, own.fused_s, own.reduce_s)
    held = tuple((id(known[t].pattern), known[t].places.tobytes(), known[t].stream_s.tobytes()) for t in inputs)
    widths = tuple(problem.graph.tensors[t].element_bytes for t in own.node.inputs)
    slots = tuple(at[t] for t in own.node.inputs), tuple(at[t] for t in inputs)
    size = problem.graph.tensors[own.node.output].size
    return (id(own.pattern), every, follows(problem, own.node), slots, held, widths, size, *(a.tobytes() for a in arrays))


def _timed(problem: Problem, own: Options, known: Mapping[str, Held], charged: Sequence[str] | None,
           inputs: tuple[str, ...]) -> tuple[Floats, Floats]:
    """Latency without the way home, and the energy of transfers alone."""
    paying = [t for t in own.node.inputs if charged is None or t in charged or problem.graph.producer(t) is None]
    full = (*(len(known[t].places) for t in inputs), len(own))
    stream = known[own.node.inputs[0]].stream_s if follows(problem, own.node) else np.zeros(1)
    clock = _Clock(np.zeros(full), np.zeros(full), np.zeros(full), stream[:, None],
                   np.broadcast_to(stream[:, None] > 0, full).copy() if stream.any() else np.zeros(0, dtype=np.bool_))
    fused = own.fused_s if charged is None else np.minimum(own.alone_s, own.fused_s)
    if any(problem.graph.producer(t) is None for t in own.node.inputs):
        fused = own.alone_s
    has, done = own.pattern.has[own.columns], {}
    for d in np.flatnonzero(has.any(axis=0)).tolist():
        columns = np.flatnonzero(has[:, d])
        sizes = fetched(problem, own, known, inputs, paying, d, columns)
        done[d] = _computed(problem, own, sizes, columns, d, clock, fused[columns, d])
        clock.latency[..., columns] = np.maximum(clock.latency[..., columns], done[d])
    for reducer in np.unique(own.reducer[own.reducer >= 0]).tolist():
        _sum_up(problem, own, reducer, done, clock)
    return clock.latency if problem.mode is Mode.CONCURRENT else clock.added, clock.joules


def _computed(problem: Problem, own: Options, sizes: Mapping[int, Floats], columns: Ints, d: int, clock: _Clock,
              fused: Floats) -> Floats:
    """When the pieces on one device are done, for the columns that have one there."""
    target, alone, shape = problem.devices[d], own.alone_s[columns, d], (*clock.latency.shape[:-1], len(columns))
    arrived, first, any_busy = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    returns = np.zeros(shape, dtype=np.bool_)
    for s, size in sizes.items():
        source, busy = problem.devices[s], size > 0
        seconds, joules = (x.reshape(size.shape) for x in problem.transfer(source, target, size.ravel()))
        lead = np.minimum(seconds, problem.transfer(source, target, np.array([float(problem.packet_bytes)]))[0][0])
        if clock.early.size:
            if s != d and problem.duplex(source, target):
                before = np.where(busy & clock.early[..., columns], np.minimum(clock.stream_s, seconds - lead), 0.0)
                seconds, lead = seconds - before, lead - before
            clock.early[..., columns] &= ~busy
        clock.joules[..., columns] += joules
        clock.added[..., columns] += seconds
        any_busy |= busy
        returns |= busy & (s == d)
        stop = clock.occupy(problem.lanes(source, target), columns, busy, seconds, np.zeros(()))
        arrived = np.where(busy, np.maximum(arrived, stop), arrived)
        first = np.where(busy, np.maximum(first, stop - seconds + lead), first)
    compute = np.where(any_busy, alone, fused)
    clock.added[..., columns] += compute
    done: Floats = arrived + compute
    if problem.mode is Mode.CONCURRENT and problem.streams(target) and len(set(own.node.inputs)) == 1 and sizes:
        last = arrived + np.minimum(own.fused_s[columns, d], alone)
        done = np.where(any_busy & ~returns, np.maximum(first + alone, last), done)
    return done


def _sum_up(problem: Problem, own: Options, reducer: int, done: Mapping[int, Floats], clock: _Clock) -> None:
    """Partial sums to the reducer, then the sum, for the columns that end there."""
    size = np.array([float(problem.graph.tensors[own.node.output].size * PARTIAL_BYTES)])
    chosen, has, target = np.flatnonzero(own.reducer == reducer), own.pattern.has[own.columns], problem.devices[reducer]

    def ended(d: int, columns: Ints) -> Floats:
        found: Floats = done[d][..., np.searchsorted(np.flatnonzero(has[:, d]), columns)]
        return found

    latest = np.zeros((*clock.latency.shape[:-1], len(chosen)))
    own_part = np.flatnonzero(has[chosen, reducer])
    latest[..., own_part] = ended(reducer, chosen[own_part]) if len(own_part) else 0.0
    for d in (d for d in done if d != reducer):
        part = np.flatnonzero(has[chosen, d])
        if len(part):
            (seconds,), (spent,) = problem.transfer(problem.devices[d], target, size)
            stop = clock.occupy(problem.lanes(problem.devices[d], target), chosen[part], np.ones(len(part), dtype=np.bool_),
                                np.full(len(part), seconds), ended(d, chosen[part]))
            latest[..., part] = np.maximum(latest[..., part], stop)
            clock.added[..., chosen[part]] += seconds
            clock.joules[..., chosen[part]] += spent
    clock.added[..., chosen] += own.reduce_s[chosen]
    clock.latency[..., chosen] = latest + own.reduce_s[chosen]


def criteria(problem: Problem) -> tuple[bool, bool]:
    """Whether latency and energy each matter: as goal or as limit."""
    return (problem.goal is not Goal.ENERGY or problem.max_latency_s is not None,
            problem.goal is not Goal.LATENCY or problem.max_energy_j is not None)


def prune(problem: Problem, table: Table) -> Table:
    """Drop columns another one beats or equals everywhere.

    Safe: the other has the same place, so every consumer sees the same; it costs no more in any criterion that
    matters wherever the inputs lie; and it uses no more of any resource. Exchanging them worsens no plan.
    """
    costs = zip((table.latency_s, table.energy_j), criteria(problem), strict=True)
    counted = [a.reshape(-1, len(table.options)) for a, matters in costs if matters]
    keep: list[int] = []
    for place in range(len(table.first)):
        group = np.flatnonzero(table.place_of == place)
        if len(group) > 1:
            profile = np.concatenate([*(a[:, group] for a in counted), table.resources[group].T])
            group = group[_unbeaten(profile)]
        keep += group.tolist()
    if len(keep) == len(table.options):
        return table
    own = table.options.keep(np.array(keep, dtype=np.int64))
    return replace(table, options=own, first=np.searchsorted(own.place_of, np.arange(len(table.first))),
                   latency_s=table.latency_s[..., keep], energy_j=table.energy_j[..., keep])


def _unbeaten(profile: Floats) -> list[int]:
    """Columns of a profile that no other column is at most equal to in every row."""
    kept: list[int] = []
    for i in np.argsort(profile.sum(axis=0), kind="stable").tolist():
        if not any((profile[:, j] <= profile[:, i]).all() for j in kept):
            kept.append(i)
    return sorted(kept)
