"""Costs of every column of every node for every place its inputs can be in, as arrays.

This restates `evaluate`'s rules for one node over whole arrays; tests hold the two together to the last digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from dovetail.hardware.shares import Floats, Ints
from dovetail.ir import Node
from dovetail.partition.plan import Assignment, Split
from dovetail.partition.problem import PARTIAL_BYTES, Problem
from dovetail.partition.tables.arrivals import Fetch
from dovetail.partition.tables.columns import Held, PricedSplits
from dovetail.partition.tables.timing import Ask, Later, criteria, timed
from dovetail.partition.work import follows
from dovetail.values import dataclass

AT_ONCE = 1 << 16
"""Comparisons of columns of a table that are made all together."""


@dataclass(frozen=True, slots=True)
class Table:
    """Costs of one node. Arrays: one axis per input tensor that a node produces, then columns (sorted by place).

    `first` holds the first column of each place. Bringing graph outputs home and idle power are included.
    """

    options: PricedSplits
    inputs: tuple[str, ...]
    first: Ints
    latency_s: Floats
    energy: Later

    @property
    def energy_j(self) -> Floats:
        return self.energy.array()

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
        return {self.node.name: self.options.split(column)}


def variable_inputs(problem: Problem, node: Node) -> tuple[str, ...]:
    """Input tensors whose place is chosen; graph inputs are always on the host."""
    return tuple(dict.fromkeys(t for t in node.inputs if problem.graph.producer(t) is not None))


def tabulate(problem: Problem, own: PricedSplits, known: Mapping[str, Held]) -> Table:
    """Costs of one node for every combination of its inputs' places."""
    return tabulate_all(problem, [own], known)[0]


def tabulate_all(problem: Problem, choices: Sequence[PricedSplits], known: Mapping[str, Held],
                 charged: Sequence[Sequence[str]] | None = None) -> list[Table]:
    """`tabulate` for many nodes, together.

    With `charged`, only these inputs have an axis and pay transfers, the others are wherever they are needed, and a
    piece that fetches nothing takes its shorter time: a lower bound for any place of the other inputs.
    """
    asks = [_ask(problem, own, known, None if charged is None else charged[k]) for k, own in enumerate(choices)]
    return [_table(problem, ask, *times) for ask, times in zip(asks, timed(problem, asks), strict=True)]


def _table(problem: Problem, ask: Ask, latency: Floats, joules: Later) -> Table:
    """Times with the way home, and energies with what columns spend wherever inputs lie."""
    own, idle = ask.own, problem.idle_power_w
    energy = Later(lambda: joules.array() + own.energy_j.sum(axis=1) + own.reduce_j + idle * latency + own.home_j)
    home = latency + own.home_s if own.node.output in problem.graph.outputs else latency
    return Table(own, ask.fetch.inputs, own.place_of.searchsorted(np.arange(len(own.places))), home, energy)


def _ask(problem: Problem, own: PricedSplits, known: Mapping[str, Held], charged: Sequence[str] | None) -> Ask:
    every = variable_inputs(problem, own.node)
    inputs = every if charged is None else tuple(t for t in every if t in charged)
    paying = [t for t in dict.fromkeys(own.node.inputs) if t in inputs or t not in every]
    stream = known[inputs[0]].stream_s if len(inputs) == 1 and follows(problem, own.node) else np.zeros(0)
    fetch = Fetch(own.node, own.pattern, own.columns, known, inputs, paying, stream if np.count_nonzero(stream) else None)
    return Ask(own, fetch, prod(fetch.shape), len(inputs) < len(every),
               float(problem.graph.tensors[own.node.output].size * PARTIAL_BYTES))


def narrowed(table: Table, own: PricedSplits, known: Sequence[tuple[Held, Held]]) -> Table:
    """A table over fewer columns and fewer places of its inputs: `known` has, per input, those it was made for and those left.

    Exact only where the table is: it must not be a relaxation.
    """
    columns = table.options.columns.searchsorted(own.columns)
    grid = [before.places.searchsorted(now.places) for before, now in known]
    index = (*(at.reshape(-1, *[1] * (len(grid) - i)) for i, at in enumerate(grid)), columns)
    first = own.place_of.searchsorted(np.arange(len(own.places)))
    return Table(own, table.inputs, first, table.latency_s[index], table.energy.take(index))


def prune(problem: Problem, table: Table) -> Table:
    """Drop columns another one beats or equals everywhere.

    Safe: the other has the same place, so every consumer sees the same; it costs no more in any criterion that
    matters wherever the inputs lie; and it uses no more of any resource. Exchanging them worsens no plan.
    """
    if len(table.first) == len(table) or problem.max_interval_s is not None:  # with a pace, a slower one may be less busy
        return table
    last = np.append(table.first[1:], len(table.options))
    crowded = (last - table.first > 1).nonzero()[0].tolist()
    if not crowded:
        return table
    time_matters, energy_matters = criteria(problem)
    costs = [*([table.latency_s] if time_matters else []), *([table.energy_j] if energy_matters else [])]
    counted = [a.reshape(-1, len(table.options)) for a in costs]
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
                   latency_s=table.latency_s[..., keep], energy=table.energy.take((..., keep)))


def _unbeaten(profile: Floats) -> list[int]:
    """Columns of a profile that no other column is at most equal to in every row."""
    kept: list[int] = []
    order = np.argsort(profile.sum(axis=0), kind="stable").tolist()
    if profile.size * len(order) <= AT_ONCE:
        beats: list[list[bool]] = np.asarray((profile[:, :, None] <= profile[:, None, :]).all(axis=0)).tolist()
        for i in order:
            if not any([beats[j][i] for j in kept]):
                kept.append(i)
        return sorted(kept)
    for i in order:
        if not any((profile[:, j] <= profile[:, i]).all() for j in kept):
            kept.append(i)
    return sorted(kept)
