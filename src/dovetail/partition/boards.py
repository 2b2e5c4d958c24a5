"""Plans for equal FPGAs, built from the end backwards with labels that know how full every board is.

A label is the later part of a plan: the state it begins in, what it costs, and what it takes of each board. What an earlier part
costs at least, with what is left of all boards together, the fronts say (`fronts`), so few labels survive: they end where
the boards' own limits make a plan dearer than the pool of them. Boards that differ in name alone are one (`renaming`), in
states as in loads. Where boards are many, one that holds no tensor may be any other from then on: it counts as empty.

What is found is a plan of the boards up to their names' ways to the host and each other, which `evaluate` judges; the bound holds
for every plan, as names only make it lower.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from dovetail.cost.estimate import Flags, Floats, Ints
from dovetail.partition.cuts import Network, Step
from dovetail.partition.fronts import EPSILON, SLACK, Fronts, Reached, Ways, spread, ways
from dovetail.partition.lifting import renamed
from dovetail.partition.plan import Assignment, Split
from dovetail.partition.renaming import Names, states_of

PIVOTS = 32
"""Labels of a state that others are compared with, in one pass."""
PASSES = 2


@dataclass(frozen=True, slots=True)
class Labels:
    """Later parts of plans from the states of one cut, sorted by state (`of`, its number among those reached).

    `parent` counts the labels of the cut `stop`, to which `column` leads from the state with the key `member`. `order` is how
    boards were renamed there, and `back` how those of the later part are called now (see `Names.orders`).
    """

    of: Ints
    cost: Floats
    used: Floats
    load: Floats
    bound: Floats
    parent: Ints
    stop: Ints
    column: Ints
    order: Ints
    back: Ints

    def __len__(self) -> int:
        return len(self.cost)

    def take(self, chosen: Ints | Flags) -> Labels:
        return Labels(*(getattr(self, f.name)[chosen] for f in fields(self)))


@dataclass(frozen=True, slots=True)
class Filled:
    """The best plan met (None: none below the cut-off), what it costs here, and a bound on every plan.

    `assignment` names every board it needs, `pooled` has it in names of the pool.
    """

    assignment: Assignment | None
    pooled: Assignment | None
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


class Filling:
    """A search over one network with its fronts.

    `loads` has per table and jump what columns take of every board, of one resource after another.
    """

    def __init__(self, fronts: Fronts, names: Names, loads: Sequence[Floats], many: bool) -> None:
        """With `many`, boards that hold no tensor count as empty."""
        self.fronts, self.names, self.many = fronts, names, many
        self.net: Network = fronts.net
        self.loads, self.width = loads, loads[0].shape[1]
        self.steps: dict[int, tuple[Ints, Ints, Ways, Ints, Ints, Ints]] = {}
        boards = np.array(names.boards)
        at = {int(d): i for i, d in enumerate(boards)}
        self.orders = np.array([[at[int(x)] for x in names.orders[o][boards]] for o in range(len(names.orders))])
        """For every order, whose load each board has afterwards."""
        self.inverse = np.argsort(self.orders, axis=1)
        number = {tuple(o): i for i, o in enumerate(self.orders.tolist())}
        self.undone = np.array([number[tuple(o)] for o in self.inverse.tolist()])
        """The order that undoes each."""
        self.then = np.array([[number[tuple(a[b].tolist())] for b in self.orders] for a in self.orders])
        """The order that two make, one after the other."""
        resources = self.width // len(boards)
        self.wide = np.concatenate([self.orders + len(boards) * r for r in range(resources)], axis=1)
        """The orders, for the loads of all resources."""

    def run(self, cutoff: float, most: int, deadline: float) -> Filled:
        """All plans below the cut-off, as far as the number of labels and the time allow."""
        net, count = self.net, len(self.net.tables)
        none = np.zeros(1, dtype=np.int64)
        found: list[Labels | None] = [None] * (count + 1)
        found[count] = Labels(none, np.zeros(1), np.zeros(1), np.zeros((1, self.width)), np.zeros(1), none, none, none,
                              none, none)
        given_up, largest = np.inf, 1
        for k in range(count - 1, -1, -1):
            room = most if time.thread_time() < deadline else min(most, HURRIED)
            parts = [p for step in net.steps(k) for p in self._parts(step, self.fronts.reached[k], found[step.stop], cutoff)]
            labels, dropped = _best(_without_same(_joined(parts, self.width)), COMPARED * room)
            labels, more = _best(_undominated(labels), room)
            given_up = min(given_up, dropped, more)
            found[k], largest = labels, max(largest, len(labels))
        first = found[0]
        assert first is not None, "every cut has labels, if none"
        if not len(first):
            return Filled(None, None, np.inf, min(cutoff, given_up), not np.isfinite(given_up), largest)
        best = int(first.cost.argmin())
        value = float(first.cost[best])
        plans = [self._assignment(found, best, anew) for anew in (self.many, False)]
        return Filled(plans[0], plans[1], value, min(value, cutoff, given_up), given_up >= value, largest)

    def _parts(self, step: Step, here: Reached, ahead: Labels | None, cutoff: float) -> list[Labels]:
        """Labels that a step makes of those behind it."""
        if ahead is None or not len(ahead) or not len(here):
            return []
        allowed = cutoff + SLACK * abs(cutoff)
        moves = self._moves(step, here, ahead, allowed)
        states = len(self.fronts.reached[step.stop].keys)
        begin = np.searchsorted(ahead.of, np.arange(states + 1))
        found: list[Labels] = []
        for number, which in spread((begin[1:] - begin[:-1])[moves.target]):
            label = begin[moves.target[number]] + which
            cost, used = moves.cost[number] + ahead.cost[label], moves.used[number] + ahead.used[label]
            bound = cost + here.least(moves.row[number], 1 - used)
            good = np.flatnonzero(bound <= allowed)
            number, label = number[good], label[good]
            load = np.take_along_axis(ahead.load[label], self.wide[moves.renamed[number]], axis=1) + moves.load[number]
            fits = (load <= 1 + EPSILON).all(axis=1)
            good, number, label, load = good[fits], number[fits], label[fits], load[fits]
            found.append(Labels(moves.row[number], cost[good], used[good], load, bound[good], label,
                                np.full(len(good), step.stop), step.first_column + moves.column[number], moves.order[number],
                                moves.back[number]))
        return [self._tidied(step.start, here, labels) for labels in found if len(labels)]

    def _moves(self, step: Step, here: Reached, ahead: Labels, allowed: float) -> _Moves:
        """The ways that lead to labels and can be in a plan below the cut-off."""
        fronts, beyond = self.fronts, self.fronts.reached[step.stop]
        state, order, every, called, target, end = self._known(step, here)
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
        load = np.take_along_axis(self.loads[step.index][column], self.wide[own], axis=1)
        return _without_twins(_Moves(state[every.row[way]], target[way], column, own, back, self.then[self.undone[back], own],
                                     load, every.cost[way], taken[column]))

    def _known(self, step: Step, here: Reached) -> tuple[Ints, Ints, Ways, Ints, Ints, Ints]:
        """What `_members`, `ways` and `_ends` say of a step: it is the same in every run."""
        if step.index not in self.steps:
            state, order, members = self._members(step.start, here)
            every = ways(self.net, step, members, self.fronts.base[step.index], self.fronts.sizes[step.stop])
            self.steps[step.index] = state, order, every, *self._ends(step, every.target)
        return self.steps[step.index]

    def _members(self, cut: int, here: Reached) -> tuple[Ints, Ints, Ints]:
        """All states that those reached stand for: which each is, by which order it is called so, and its places."""
        sizes = self.fronts.sizes[cut]
        keys = self.names.keys(self.net.stages[cut].live, here.states, sizes)
        state = np.broadcast_to(np.arange(len(here.states)), keys.shape)[keys >= 0]
        order = np.broadcast_to(np.arange(len(keys))[:, None], keys.shape)[keys >= 0]
        members, first = np.unique(keys[keys >= 0], return_index=True)
        return state[first], self.undone[order[first]], states_of(members, sizes)

    def _ends(self, step: Step, keys: Ints) -> tuple[Ints, Ints, Ints]:
        """What orders make of the states a step leads to, which of those reached each is (-1: none), and which end each is."""
        sizes, beyond = self.fronts.sizes[step.stop], self.fronts.reached[step.stop].keys
        distinct, end = np.unique(keys, return_inverse=True)
        called = self.names.keys(self.net.stages[step.stop - 1].after, states_of(distinct, sizes), sizes)
        name = np.where(called >= 0, called, np.iinfo(np.int64).max).min(axis=0)
        at = np.minimum(np.searchsorted(beyond, name), max(0, len(beyond) - 1))
        at = np.where(beyond[at] == name, at, -1) if len(beyond) else np.full(len(name), -1)
        return called, at[end], end

    def _tidied(self, cut: int, here: Reached, labels: Labels) -> Labels:
        """Labels with boards that are alike in their state in order of load; those that hold nothing are empty where many."""
        if self.many:
            labels = self._emptied(cut, here, labels)
        live, sizes = self.net.stages[cut].live, self.fronts.sizes[cut]
        stays = (self.names.keys(live, here.states, sizes) == here.keys).T
        kinds, kind = np.unique(stays, axis=0, return_inverse=True)
        load, order, weights = labels.load.copy(), labels.order.copy(), 4.0 ** -np.arange(labels.load.shape[1])
        for i, allowed in enumerate(kinds):
            orders = np.flatnonzero(allowed)
            rows = np.flatnonzero(kind.ravel()[labels.of] == i) if len(orders) > 1 else np.zeros(0, dtype=np.int64)
            if len(rows):
                arranged = load[rows][:, self.wide[orders]]
                best = (arranged @ weights).argmax(axis=1)
                load[rows] = arranged[np.arange(len(rows)), best]
                order[rows] = self.then[order[rows], orders[best]]
        return replace(labels, load=load, order=order)

    def _emptied(self, cut: int, here: Reached, labels: Labels) -> Labels:
        holds = self._holds(cut, here)
        return replace(labels, load=labels.load * np.tile(holds, self.width // holds.shape[1])[labels.of])

    def _holds(self, cut: int, here: Reached) -> Flags:
        """Which boards hold a tensor in every state of a cut."""
        holds = np.zeros((len(here.states), len(self.names.boards)), dtype=np.bool_)
        for i, t in enumerate(self.net.stages[cut].live):
            holds |= self.names.holding(t)[here.states[:, i]]
        return holds

    def _assignment(self, found: Sequence[Labels | None], at: int, anew: bool) -> Assignment:
        """The plan of a label of the first cut, in names of the pool's boards.

        With `anew`, a board that held nothing is another one when it is next used: its name then has a number behind it.
        """
        net, k, boards, devices = self.net, 0, self.names.boards, self.net.problem.devices
        called, count = [devices[b] for b in boards], len(boards)
        plan: dict[str, Split] = {}
        while k < len(net.tables):
            labels, here = found[k], self.fronts.reached[k]
            assert labels is not None, "the label's own cut has labels"
            if anew:
                kept = self._holds(k, here)[labels.of[at]]
                called = [name if held else f"{devices[boards[b]]}:{count + b}" for b, (name, held) in
                          enumerate(zip(called, kept, strict=True))]
                count += len(boards)
            order, back, column = self.orders[labels.order[at]], self.orders[labels.back[at]], int(labels.column[at])
            # Board b of the label was board order[b] in the names of its column.
            names = {devices[boards[int(order[b])]]: called[b] for b in range(len(boards))}
            step = next(s for s in reversed(net.steps(k)) if s.first_column <= column)
            for name, split in step.own.assignment(net.problem, column - step.first_column).items():
                plan[name] = renamed(split, names)
            called = [names[devices[boards[int(b)]]] for b in back]
            k, at = int(labels.stop[at]), int(labels.parent[at])
        return plan


COMPARED = 8
"""Times as many labels as are kept that are compared with each other."""
HURRIED = 64
"""Labels kept per cut once time is up."""


def _without_twins(moves: _Moves) -> _Moves:
    """Of moves that differ in cost alone, the cheapest."""
    if not len(moves.cost):
        return moves
    key = np.column_stack([moves.row, moves.target, moves.renamed, np.round(moves.used * 1e12), np.round(moves.load * 1e12)])
    order = np.lexsort((moves.cost, *key.T[::-1]))
    new = np.append(True, (key[order][1:] != key[order][:-1]).any(axis=1))
    return moves.take(order[new])


def _joined(parts: Sequence[Labels], width: int) -> Labels:
    if not parts:
        none, empty = np.zeros(0, dtype=np.int64), np.zeros(0)
        return Labels(none, empty, empty, np.zeros((0, width)), empty, none, none, none, none, none)
    return parts[0] if len(parts) == 1 else Labels(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Labels)))


def _best(labels: Labels, most: int) -> tuple[Labels, float]:
    """So many labels of the lowest bounds, and the least bound of the others."""
    if len(labels) <= most:
        return labels, np.inf
    order = np.argsort(labels.bound, kind="stable")
    return labels.take(np.sort(order[:most])), float(labels.bound[order[most]])


def _without_same(labels: Labels) -> Labels:
    """Of labels that take the same of every board, the cheapest."""
    if not len(labels):
        return labels
    size = np.round(labels.load * 1e9).astype(np.int64)
    order = np.lexsort((labels.cost, *size.T, labels.of))
    same = (size[order][1:] == size[order][:-1]).all(axis=1) & (labels.of[order][1:] == labels.of[order][:-1])
    return labels.take(order[np.append(True, ~same)])


def _undominated(labels: Labels) -> Labels:
    """Labels sorted by state, without those that another of their state undercuts in cost and in every load."""
    order = np.lexsort((labels.load.sum(axis=1), labels.cost, labels.of))
    labels = labels.take(order)
    for _ in range(PASSES):
        new = np.append(True, labels.of[1:] != labels.of[:-1])[:len(labels)]
        first = np.flatnonzero(new)[np.cumsum(new) - 1] if len(labels) else np.zeros(0, dtype=np.int64)
        alive, asked = np.ones(len(labels), dtype=np.bool_), np.flatnonzero(~new)
        for pivot in range(PIVOTS):
            asked = asked[first[asked] + pivot < asked]
            if not len(asked):
                break
            beaten = (labels.load[asked] >= labels.load[first[asked] + pivot] - SLACK).all(axis=1)
            alive[asked[beaten]] = False
            asked = asked[~beaten]
        if alive.all():
            break
        labels = labels.take(alive)
    return labels
