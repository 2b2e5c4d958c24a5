"""Plans for equal FPGAs, built from the end backwards with labels that know how full every board is.

A label is the later part of a plan: the state it begins in, what it costs, and what it takes of each board. What an earlier part
costs at least, with what is left of all boards together, the fronts say (`fronts`), so few labels survive: they end where
the boards' own limits make a plan dearer than the pool of them. Boards that differ in name alone are one (`renaming`), in
states as in loads. Where boards are many, one that holds no tensor may be any other from then on: it counts as empty.

What is found is a plan of the boards up to their names' ways to the host and each other, which `evaluate` judges; the bound holds
for every plan, as names only make it lower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from math import prod

import numpy as np

from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.partition.boards.board_loads import BoardLoads
from dovetail.partition.boards.labels import Labels, fewer, joined, undominated, without_same
from dovetail.partition.boards.placement import renamed
from dovetail.partition.boards.symmetry import Names, called, states_of
from dovetail.partition.effort import sorting, spend, worked
from dovetail.partition.exact.cuts import Network, Step
from dovetail.partition.exact.fronts import EPSILON, SLACK, Fronts, Reached, Ways, numbered, spread, ways
from dovetail.partition.plan import Assignment, Split

COMPARED = 8
"""Times as many labels as are kept that are compared with each other: chosen."""
HURRIED = 64
"""Labels kept per cut once time is up: chosen."""

LOAD_CELLS = 4
"""Cells that what a label takes of one board is worth where work is counted: chosen."""


@dataclass(frozen=True, slots=True)
class Filled:
    """The best plan met, in names of the pool (None: none below the cut-off), what it costs here, and a bound on every plan."""

    assignment: Assignment | None
    value: float
    bound: float
    complete: bool
    most: int


@dataclass(frozen=True, slots=True)
class _Moves:
    """Ways from the states of a cut to labels of a later one, in the names both are known by.

    `renamed` says which order of the boards' loads leads from there to here; `load` is what the column itself takes of each.
    """

    row: Ints
    target: Ints
    column: Ints
    order: Ints
    back: Ints
    renamed: Ints
    load: Floats
    cost: Floats
    used: Floats

    def take(self, chosen: Ints | Flags) -> _Moves:
        return _Moves(*(getattr(self, f.name)[chosen] for f in fields(self)))


@dataclass(frozen=True, slots=True)
class _Taken:
    """A step of a plan: splits in the column's names, and how labels before and behind call these."""

    splits: Assignment
    order: int
    back: int


class Filling:
    """A search over one network with its fronts.

    `loads` has per table and jump what columns take of every board, of one resource after another.
    """

    def __init__(self, fronts: Fronts, names: Names, loads: Sequence[Floats], many: bool) -> None:
        self.fronts, self.names = fronts, names
        self.net: Network = fronts.net
        self.steps: dict[int, tuple[Ints, Ints, Ways, Ints, Ints, Ints]] = {}
        boards = np.array(names.boards)
        at = {int(d): i for i, d in enumerate(boards)}
        self.orders = np.array([[at[int(x)] for x in names.orders[o][boards]] for o in range(len(names.orders))])
        """For every order, whose load each board has afterwards."""
        resources = loads[0].shape[1] // len(boards)
        self.many, self.memory = many, BoardLoads(self.orders, resources, many)
        self.loads, self.width = loads, self.memory.width
        self.holding, self.keys = dict[int, Ints](), dict[int, Ints]()

    def run(self, cutoff: float, most: int, deadline: float) -> Filled:
        """All plans below the cut-off, as far as the number of labels and the time allow."""
        net, count = self.net, len(self.net.tables)
        none = np.zeros(1, dtype=np.int64)
        found: list[Labels | None] = [None] * (count + 1)
        found[count] = Labels(none, np.zeros(1), np.zeros(1), np.zeros((1, self.width)), np.zeros(1), none, none, none,
                              none, none, np.ones(1, dtype=np.bool_))
        largest = 1
        for k in range(count - 1, -1, -1):
            room = most if worked() < deadline else min(most, HURRIED)
            parts = [p for step in net.steps(k) for p in self._parts(step, self.fronts.reached[k], found[step.stop], cutoff)]
            found[k] = labels = fewer(undominated(fewer(without_same(joined(parts, self.width)), COMPARED * room)), room)
            spend("crowds", 1, sorting(sum(map(len, parts))) * self.width)
            largest = max(largest, len(labels))
        first = found[0]
        assert first is not None, "every cut has labels, if none"
        bound, plans = min(cutoff, float(first.bound.min(initial=np.inf))), np.flatnonzero(first.real)
        if not len(plans):
            return Filled(None, np.inf, bound, not len(first), largest)
        best = int(plans[first.cost[plans].argmin()])
        value = float(first.cost[best])
        return Filled(self._assignment(found, best), value, bound, bound >= value, largest)

    def _parts(self, step: Step, here: Reached, ahead: Labels | None, cutoff: float) -> list[Labels]:
        """Labels that a step makes of those behind it."""
        if ahead is None or not len(ahead) or not len(here):
            return []
        allowed = cutoff + SLACK * abs(cutoff)
        moves = self._moves(step, here, ahead, allowed)
        states = len(self.fronts.reached[step.stop].keys)
        begin, held = np.searchsorted(ahead.of, np.arange(states + 1)), self.holds(step.start, here)
        found: list[Labels] = []
        for number, which in spread((begin[1:] - begin[:-1])[moves.target]):
            label = begin[moves.target[number]] + which
            cost, used = moves.cost[number] + ahead.cost[label], moves.used[number] + ahead.used[label]
            # No plan through a label is below what none through the later one was.
            bound = np.maximum(cost + here.least(moves.row[number], 1 - used), ahead.bound[label])
            good = np.flatnonzero(bound <= allowed)
            number, label = number[good], label[good]
            load = self.memory.turned(ahead.load[label], moves.renamed[number]) + moves.load[number]
            fits = (load <= 1 + EPSILON).all(axis=1)
            good, number, label = good[fits], number[fits], label[fits]
            load = self.memory.remembered(load[fits], held[moves.row[number]])
            found.append(Labels(moves.row[number], cost[good], used[good], load, bound[good], label,
                                np.full(len(good), step.stop), step.first_column + moves.column[number], moves.order[number],
                                moves.back[number], ahead.real[label]))
            spend("fillings", 1, len(cost) + LOAD_CELLS * len(label) * self.width)
        return [self.tidied(step.start, here, labels) for labels in found if len(labels)]

    def _moves(self, step: Step, here: Reached, ahead: Labels, allowed: float) -> _Moves:
        """The ways that lead to labels and can be in a plan below the cut-off."""
        fronts, beyond = self.fronts, self.fronts.reached[step.stop]
        state, order, every, called, target, end = self.known(step, here)
        least, fewest = (np.full(len(beyond.keys), np.inf) for _ in range(2))
        np.minimum.at(least, ahead.of, ahead.cost)
        np.minimum.at(fewest, ahead.of, ahead.used)
        taken, cost = fronts.amounts[step.index], every.cost + least[target]
        good = np.flatnonzero((target >= 0) & (cost <= allowed))
        room = 1 - fewest[target[good]] - taken[every.column[good]]
        good = good[cost[good] + here.least(state[every.row[good]], room) <= allowed]
        # Where several orders lead to the same state, the boards of what follows may be called by any of them.
        back, which = np.nonzero(called[:, end[good]] == beyond.keys[target[good]])
        way = good[which]
        column, own = every.column[way], order[every.row[way]]
        turns = self.memory.then[self.memory.undone[back], own]
        load = self.memory.turned(self.loads[step.index][column], own)
        spend("moves", 1, len(every.column) + LOAD_CELLS * len(way) * self.width)
        return self._without_twins(_Moves(state[every.row[way]], target[way], column, own, back, turns, load, every.cost[way],
                                          taken[column]))

    def _without_twins(self, moves: _Moves) -> _Moves:
        """Of moves that differ in cost alone, the cheapest."""
        if not len(moves.cost):
            return moves
        key = np.column_stack([moves.row, moves.target, moves.renamed, np.round(moves.used * 1e12),
                               np.round(moves.load * 1e12)])
        order = np.lexsort((moves.cost, *key.T[::-1]))
        new = np.append(True, (key[order][1:] != key[order][:-1]).any(axis=1))
        return moves.take(order[new])

    def known(self, step: Step, here: Reached) -> tuple[Ints, Ints, Ways, Ints, Ints, Ints]:
        """What `_members`, `ways` and `_ends` say of a step: it is the same in every run."""
        if step.index not in self.steps:
            state, order, members = self._members(step.start, here)
            every = ways(self.net, step, members, self.fronts.base[step.index], self.fronts.sizes[step.stop])
            self.steps[step.index] = state, order, every, *self._ends(step, every.target)
        return self.steps[step.index]

    def _members(self, cut: int, here: Reached) -> tuple[Ints, Ints, Ints]:
        """All states that those reached stand for: which each is, by which order it is called so, and its places."""
        sizes, keys = self.fronts.sizes[cut], self.called(cut, here)
        state = np.broadcast_to(np.arange(len(here.states)), keys.shape)[keys >= 0]
        order = np.broadcast_to(np.arange(len(keys))[:, None], keys.shape)[keys >= 0]
        members, first = np.unique(keys[keys >= 0], return_index=True)
        return state[first], self.memory.undone[order[first]], states_of(members, sizes)

    def _ends(self, step: Step, keys: Ints) -> tuple[Ints, Ints, Ints]:
        """What orders make of the states a step leads to, which of those reached each is (-1: none), and which end each is."""
        sizes, beyond = self.fronts.sizes[step.stop], self.fronts.reached[step.stop].keys
        distinct, end = numbered(keys, prod(sizes))
        every = self.names.keys(self.net.stages[step.stop - 1].after, states_of(distinct, sizes), sizes)
        name = called(every)
        at = np.minimum(np.searchsorted(beyond, name), max(0, len(beyond) - 1))
        at = np.where(beyond[at] == name, at, -1) if len(beyond) else np.full(len(name), -1)
        return every, at[end], end

    def tidied(self, cut: int, here: Reached, labels: Labels) -> Labels:
        """Labels with boards that are alike in their state in order of load."""
        memory = self.memory
        stays = (self.called(cut, here) == here.keys).T
        # By the orders that leave a state as it is, as one number.
        kind = (stays @ (1 << np.arange(stays.shape[1])))[labels.of]
        load, order, weights = labels.load.copy(), labels.order.copy(), 4.0 ** -np.arange(labels.load.shape[1])
        for number in np.unique(kind).tolist():
            orders = np.array([o for o in range(stays.shape[1]) if number >> o & 1])
            if len(orders) > 1:
                rows = np.flatnonzero(kind == number)
                own = load[rows]
                arranged = np.stack([memory.turned(own, np.full(len(rows), o)) for o in orders.tolist()], axis=1)
                best = (arranged @ weights).argmax(axis=1)
                load[rows] = arranged[np.arange(len(rows)), best]
                order[rows] = memory.then[order[rows], orders[best]]
        return replace(labels, load=load, order=order)

    def _live(self, cut: int) -> tuple[str, ...]:
        return self.net.stages[cut].live if cut < len(self.net.stages) else ()

    def called(self, cut: int, here: Reached) -> Ints:
        """What orders make of the states of a cut (see `Names.keys`)."""
        if cut not in self.keys:
            self.keys[cut] = self.names.keys(self._live(cut), here.states, self.fronts.sizes[cut])
        return self.keys[cut]

    def holds(self, cut: int, here: Reached) -> Ints:
        """Which boards hold a tensor in every state of a cut, as a sum of powers of two."""
        if cut not in self.holding:
            self.holding[cut] = self.names.held_in(self._live(cut), here.states)
        return self.holding[cut]

    def _assignment(self, found: Sequence[Labels | None], at: int) -> Assignment:
        """The plan of a label of the first cut, in names of the pool's boards."""
        boards, devices = self.names.boards, self.net.problem.devices
        called, plan = [devices[b] for b in boards], dict[str, Split]()
        for taken in self._followed(found, at):
            # Board b of the label was board order[b] in the names of its column.
            names = {devices[boards[int(x)]]: called[b] for b, x in enumerate(self.orders[taken.order])}
            plan |= {node: renamed(split, names) for node, split in taken.splits.items()}
            called = [names[devices[boards[int(b)]]] for b in self.orders[taken.back]]
        return plan

    def _followed(self, found: Sequence[Labels | None], at: int) -> Iterator[_Taken]:
        """The steps of the plan that a label of the first cut stands for."""
        net, k = self.net, 0
        while k < len(net.tables):
            labels = found[k]
            assert labels is not None, "the label's own cut has labels"
            column, stop, parent = int(labels.column[at]), int(labels.stop[at]), int(labels.parent[at])
            step = next(s for s in reversed(net.steps(k)) if s.first_column <= column)
            yield _Taken(step.own.assignment(net.problem, column - step.first_column), int(labels.order[at]),
                         int(labels.back[at]))
            k, at = stop, parent
