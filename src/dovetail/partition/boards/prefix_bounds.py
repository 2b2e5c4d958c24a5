"""The least that beginnings of plans cost, if boards that hold a tensor are no emptier than they are.

Labels from the end backwards (`boards`) say what it costs at least to go on from every state. With that known, few beginnings
are left below a cut-off, and labels from the beginning on say what each state costs at least to reach. What is looked for then
with a longer memory (see `memory`) meets far fewer labels than with what fronts say, which know of no board how full it is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.partition.boards.fill_memory import Along
from dovetail.partition.boards.label_search import COMPARED, LOAD_CELLS, Filled, Filling, from_on
from dovetail.partition.boards.labels import Labels, fewer, joined, undominated, without_same
from dovetail.partition.cuts import Step
from dovetail.partition.effort import sorting, spend, worked
from dovetail.partition.exact.fronts import EPSILON, SLACK, spread

LARGE, LARGE_LABELS = 0.2, 2_000
"""Part of a board from which on what a node takes of it counts where boards beside a window are remembered, and labels kept per
cut then: of large nodes alone there are few ways to fill boards."""
BESIDE = 1
"""Boards remembered on each side then."""
SHARE = 0.7
"""Part of the time left in which that must be done."""


@dataclass(frozen=True, slots=True)
class _Moves:
    """Ways from states of a cut to those of a later one: `own` and `back` are how their boards call those of the column."""

    row: Ints
    target: Ints
    own: Ints
    back: Ints
    load: Floats
    cost: Floats

    def take(self, chosen: Ints | Flags) -> _Moves:
        return _Moves(*(getattr(self, f.name)[chosen] for f in fields(self)))


def remembered(filling: Filling, cutoff: float, most: int, deadline: float) -> Filled:
    """A plan and a bound, up to a cut-off, from boards of a window that are remembered as long as some board holds a tensor.

    The filling's last run, in which only boards that hold tensors were, says what it costs to go on. Where there was none, labels
    are more than with one, though fewer than in both.
    """
    cutoff = min(cutoff, filling.cutoff)
    if not filling.last:
        return filling.remembering(0, []).run(cutoff, most, deadline)
    return filling.remembering(0, _Beginnings(filling, 0.0).run(cutoff, most)).run(cutoff, most, deadline)


def remembered_beside(filling: Filling, cutoff: float, most: int, deadline: float) -> Filled:
    """The same with boards beside the window remembered too, and of what boards hold the large nodes alone.

    Where that takes too long, it is as if only the window were.
    """
    cutoff = min(cutoff, filling.cutoff)
    if not filling.last:
        filling.run(cutoff, most, deadline)
    reach, now = _Beginnings(filling, LARGE).run(cutoff, most), worked()
    ending = now + SHARE * max(0.0, deadline - now)
    found = filling.remembering(BESIDE, reach, LARGE).run(cutoff, LARGE_LABELS, ending)
    return found if worked() < ending else filling.remembering(0, reach).run(cutoff, most, deadline)


class _Beginnings:
    def __init__(self, filling: Filling, large: float) -> None:
        """What nodes take of a board counts from a part of it on."""
        self.filling, self.net, self.names, self.given = filling, filling.net, filling.names, from_on(filling.given, large)
        self.reached, count = filling.fronts.reached, len(filling.names.boards)
        resources = self.given[0].shape[1] // count
        self.memory = Along(filling.orders, resources, self.names.kept[filling.memory.undone], 0)
        self.mask = np.tile((np.arange(1 << count)[:, None] >> np.arange(count)) & 1, resources)
        self.to_go = [self._least(k, labels) for k, labels in enumerate(filling.last)]

    def _least(self, cut: int, labels: Labels | None) -> Floats:
        found = np.full(len(self.reached[cut].keys), np.inf)
        if labels is not None:
            np.minimum.at(found, labels.of, labels.cost)
        return found

    def run(self, cutoff: float, most: int) -> list[Floats]:
        count, none, allowed = len(self.net.tables), np.zeros(1, dtype=np.int64), cutoff + SLACK * abs(cutoff)
        coming: list[list[Labels]] = [[] for _ in range(count + 1)]
        coming[0] = [Labels(none, np.zeros(1), np.zeros(1), np.zeros((1, self.memory.width)), np.zeros(1), none, none, none, none,
                            none, np.ones(1, dtype=np.bool_))]
        found: list[Floats] = []
        for k in range(count + 1):
            labels = without_same(joined(coming[k], self.memory.width), None)
            labels = fewer(undominated(fewer(labels, COMPARED * most)), most)
            spend("crowds", 1, sorting(sum(map(len, coming[k]))) * self.memory.width)
            found.append(self._least(k, labels))
            for step in self.net.steps(k) if k < count and len(labels) else ():
                coming[step.stop] += self._parts(step, labels, allowed)
        return found

    def _parts(self, step: Step, labels: Labels, allowed: float) -> list[Labels]:
        moves, memory, beyond = self._moves(step, labels, allowed), self.memory, self.reached[step.stop]
        before, behind = (self.filling.holds(k, self.reached[k]) for k in (step.start, step.stop))
        begin = np.searchsorted(labels.of, np.arange(len(self.reached[step.start].keys) + 1))
        found: list[Labels] = []
        for number, which in spread((begin[1:] - begin[:-1])[moves.row]):
            label = begin[moves.row[number]] + which
            cost = labels.cost[label] + moves.cost[number]
            bound = np.maximum(cost + self.to_go[step.stop][moves.target[number]], labels.bound[label])
            good = np.flatnonzero(bound <= allowed)
            number, label = number[good], label[good]
            turns = memory.turns(moves.own[number], moves.own[number], before[moves.row[number]])
            load = memory.turned(labels.load[label], turns) + moves.load[number]
            fits = (load <= 1 + EPSILON).all(axis=1)
            good, number, label, held = good[fits], number[fits], label[fits], behind[moves.target[number[fits]]]
            load = memory.arranged(load[fits], moves.back[number], held) * self.mask[held]
            none = np.zeros(len(good), dtype=np.int64)
            spend("fillings", 1, len(cost) + LOAD_CELLS * len(good) * self.memory.width)
            found.append(Labels(moves.target[number], cost[good], np.zeros(len(good)), load, bound[good], none, none, none, none,
                                none, labels.real[label]))
        return [self.filling.tidied(step.stop, beyond, x, memory) for x in found if len(x)]

    def _moves(self, step: Step, labels: Labels, allowed: float) -> _Moves:
        """The ways that may be in a plan below the cut-off; a state that looks the same from both sides is seen from either."""
        here, beyond, filling = self.reached[step.start], self.reached[step.stop], self.filling
        _, _, every, called, target, end = filling.known(step, here)
        member, state, order = self._called(step.start)
        begin = np.searchsorted(member, np.arange(len(np.unique(member)) + 1))
        least = self._least(step.start, labels)
        low = least[state[begin[:-1]]][every.row] + every.cost + np.where(target >= 0, self.to_go[step.stop][target], np.inf)
        good = np.flatnonzero(low <= allowed)
        back = (called[:, end[good]] == beyond.keys[target[good]]).argmax(axis=0)
        counts = (begin[1:] - begin[:-1])[every.row[good]]
        which = np.repeat(np.arange(len(good)), counts)
        nth = begin[every.row[good][which]] + np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
        way = good[which]
        spend("moves", 1, len(low) + LOAD_CELLS * len(way) * self.given[step.index].shape[1])
        return self._without_twins(_Moves(state[nth], target[way], order[nth], back[which],
                                          self.given[step.index][every.column[way]], every.cost[way]))

    def _called(self, cut: int) -> tuple[Ints, Ints, Ints]:
        """By which orders states that those reached stand for are called so: member, state and order, sorted by member."""
        keys = self.filling.called(cut, self.reached[cut])
        order, state = np.nonzero(keys >= 0)
        _, member = np.unique(keys[order, state], return_inverse=True)
        sort = np.argsort(member, kind="stable")
        return member[sort], state[sort], self.filling.memory.undone[order[sort]]

    def _without_twins(self, moves: _Moves) -> _Moves:
        """Of moves that differ in cost alone, the cheapest."""
        if not len(moves.cost):
            return moves
        key = np.column_stack([moves.row, moves.target, moves.own, moves.back, np.round(moves.load * 1e12)])
        order = np.lexsort((moves.cost, *key.T[::-1]))
        return moves.take(order[np.append(True, (key[order][1:] != key[order][:-1]).any(axis=1))])
