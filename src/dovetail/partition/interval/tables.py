"""What every column of every node keeps busy for every place its inputs can be in, as arrays.

This restates `busy.busy_of` over whole arrays, as `tables` restates the evaluator; tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.interval.busy import arrays, occupied, reusable, worker
from dovetail.partition.problem import PARTIAL_BYTES, Problem
from dovetail.partition.tables.columns import Held, PricedSplits
from dovetail.partition.tables.costs import Table, variable_inputs
from dovetail.partition.tables.timing import Later
from dovetail.partition.tables.transfers import fetched
from dovetail.partition.work import Place, deliveries


@dataclass(frozen=True, slots=True)
class Busy:
    """One node: `shared` holds seconds on what serves all nodes in turn, by name, shaped like the node's table.

    `engines` are the seconds of each column's slowest engine, which serves this node alone; zero where it has none.
    """

    shared: Mapping[str, Floats]
    engines: Floats


def shared_names(problem: Problem) -> tuple[str, ...]:
    """Everything that serves nodes in turn: processors and the arrays of accelerators, then directions of links."""
    processors = [d if worker(problem, d, "") == d else arrays(d) for d in problem.devices
                  if worker(problem, d, "") == d or reusable(problem, d)]
    lanes = [lane for a in problem.devices for b in problem.devices if a != b for lane in problem.lanes(a, b)]
    return tuple(dict.fromkeys((*processors, *lanes)))


def untimed(problem: Problem, own: PricedSplits, known: Mapping[str, Held]) -> Table:
    """A node's table without latencies and energies, for those who ask for neither: all are zero."""
    inputs = variable_inputs(problem, own.node)
    nothing = np.broadcast_to(0.0, (*(len(known[t].places) for t in inputs), len(own)))
    return Table(own, inputs, own.place_of.searchsorted(np.arange(len(own.places))), nothing, Later(lambda: nothing))


def busy_table(problem: Problem, own: PricedSplits, known: Mapping[str, Held], charged: Sequence[str] | None = None) -> Busy:
    """What each column keeps busy; with `charged`, only these inputs have an axis and pay transfers (see `tabulate`)."""
    inputs = tuple(t for t in variable_inputs(problem, own.node) if charged is None or t in charged)
    paying = [t for t in own.node.inputs if charged is None or t in charged or problem.graph.producer(t) is None]
    found = _Shares(problem, own, (*(len(known[t].places) for t in inputs), len(own)))
    produced = all(problem.graph.producer(t) is not None for t in own.node.inputs)
    least = own.fused_s if charged is None else np.minimum(own.alone_s, own.fused_s)
    has = own.pattern.has[own.columns]
    for d in np.flatnonzero(has.any(axis=0)).tolist():
        columns = np.flatnonzero(has[:, d])
        arrives = np.zeros((*found.shape[:-1], len(columns)), dtype=np.bool_)
        sources = fetched(problem, own.node, own.pattern, own.columns[columns], known, inputs, paying, d)
        for s, sizes in sources.items():
            found.move(s, d, columns, sizes)
            arrives |= sizes > 0
        alone = own.alone_s[columns, d]
        found.compute(own.node.name, d, columns, np.where(arrives, alone, least[columns, d] if produced else alone), alone)
    for reducer in np.unique(own.reducer[own.reducer >= 0]).tolist():
        _sums(problem, own, reducer, found)
    if own.node.output in problem.graph.outputs:
        _homes(problem, own, found)
    return Busy(found.shared, found.engines)


class _Shares:
    """The arrays of one node as they fill."""

    def __init__(self, problem: Problem, own: PricedSplits, shape: tuple[int, ...]) -> None:
        self.problem, self.shape = problem, shape
        self.shared: dict[str, Floats] = {}
        self.engines: Floats = np.zeros(len(own))

    def add(self, name: str, columns: Ints, seconds: Floats | float) -> None:
        if name not in self.shared:
            self.shared[name] = np.zeros(self.shape)
        self.shared[name][..., columns] += seconds

    def move(self, source: int, target: int, columns: Ints, sizes: Floats) -> None:
        """Transfers of given sizes, which may be zero for some entries."""
        a, b = self.problem.devices[source], self.problem.devices[target]
        seconds = np.where(sizes > 0, self.problem.transfer(a, b, sizes.ravel())[0].reshape(sizes.shape), 0.0)
        for lane in self.problem.lanes(a, b):
            self.add(lane, columns, seconds)

    def compute(self, node: str, device: int, columns: Ints, spent: Floats, alone: Floats) -> None:
        """Pieces on one device: `spent` on a processor that serves all, `alone` in arrays that serve many or an engine."""
        name = self.problem.devices[device]
        busy = worker(self.problem, name, node)
        if busy in (name, arrays(name)):
            self.add(busy, columns, spent if busy == name else alone * occupied(self.problem, name, node))
        else:
            self.engines[columns] = np.maximum(self.engines[columns], alone)


def _sums(problem: Problem, own: PricedSplits, reducer: int, found: _Shares) -> None:
    size = float(problem.graph.tensors[own.node.output].size * PARTIAL_BYTES)
    chosen, has = np.flatnonzero(own.reducer == reducer), own.pattern.has[own.columns]
    for d in range(len(problem.devices)):
        part = chosen[has[chosen, d]]
        if d != reducer and len(part):
            found.move(d, reducer, part, np.full(len(part), size))
    found.compute(f"{own.node.name} sum", reducer, chosen, own.reduce_s[chosen], own.reduce_s[chosen])


def _homes(problem: Problem, own: PricedSplits, found: _Shares) -> None:
    """The way home of a graph output, by the place it is left in."""
    dimensions = len(problem.graph.shape(own.node.output))
    for at, place in enumerate(own.places.tolist()):
        columns = np.flatnonzero(own.place_of == at)
        for move in deliveries(problem, own.node.output, Place(own.pattern.layout(place, dimensions))):
            for lane in move.lanes:
                found.add(lane, columns, move.seconds)
