"""All that is worth knowing of how states of the cuts are reached under one limit: for each state, cost against what is taken.

Where entering an FPGA is dear, prices are far below the best plan: they mix plans that enter often with plans that never do.
A *front* does not. It holds the beginnings that reach a state, of which none costs and takes no more than another. Whoever
plans from the end backwards (`boards`) then knows, for every state and for what is left of the limit, the least that a
beginning costs.

States are looked at before labels: a column is tried only from states, and with labels, from which it can still be in a plan
below the cut-off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from dovetail.hardware.shares import Floats, Ints
from dovetail.partition.boards.symmetry import Names, called, states_of
from dovetail.partition.effort import sorting, spend, worked
from dovetail.partition.exact.cuts import COVERED, Network, Step, completions, onward, priced_costs
from dovetail.partition.exact.labels import FAN
from dovetail.partition.tolerances import ROUNDING, TOLERANCE

EPSILON, SLACK = TOLERANCE, ROUNDING
CHUNK = 400_000
"""Labels made at once. Chosen: some megabytes; half or double gives the same plans (bench/constants.py)."""
APART = 8.0
"""More than anything takes of a limit: keeps states apart in one sorted array. Chosen: any value from 2 on does."""


@dataclass(frozen=True, slots=True)
class Reached:
    """The fronts of one cut: labels sorted by state, then by what they take; costs fall along a state's front.

    `keys` number the states, ascending; `first` is each state's first label and `of` each label's state. `parent` counts the
    labels of the cut `origin`, from which `column` leads here.
    """

    keys: Ints
    states: Ints
    first: Ints
    of: Ints
    cost: Floats
    used: Floats
    parent: Ints
    origin: Ints
    column: Ints

    def __len__(self) -> int:
        return len(self.cost)

    @property
    def last(self) -> Ints:
        return np.append(self.first[1:], len(self.cost)) - 1

    def least(self, state: Ints, room: Floats) -> Floats:
        """The least cost of reaching states (by their number here) with what is left of the limit; inf if it is too little."""
        at = np.searchsorted(self.of * APART + self.used, state * APART + room + EPSILON, side="right") - 1
        known = (at >= self.first[state]) & (room >= -EPSILON)
        found: Floats = np.where(known, self.cost[np.maximum(at, 0)], np.inf)
        return found


@dataclass(frozen=True, slots=True)
class Ways:
    """The columns of a step from given states: `row` counts the states, `target` is the key of the state each leads to."""

    row: Ints
    column: Ints
    target: Ints
    cost: Floats


def ways(net: Network, step: Step, states: Ints, cost: Floats, sizes: Sequence[int]) -> Ways:
    """All columns of a step from all given states; `sizes` are the places of the tensors alive behind it."""
    live, after = net.stages[step.start].live, net.stages[step.stop - 1].after
    at = {t: states[:, i] for i, t in enumerate(live)}
    entry, shape = tuple(at[t] for t in step.own.inputs), (len(states), len(step.own))
    ahead = onward(step, after, {t: places[:, None] for t, places in at.items()})
    target = np.zeros(shape, dtype=np.int64)
    for places, size in zip(ahead, sizes, strict=True):
        target = target * size + places
    row, column = np.divmod(np.arange(shape[0] * shape[1]), shape[1])
    own = np.broadcast_to(cost[entry] if entry else cost, shape)
    return Ways(row, column, target.ravel(), own.ravel())


def spread(counts: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Repeats of 0, 1, ... as often as `counts` says, and which repeat each is, in chunks."""
    ends = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        done = int(ends[begin - 1]) if begin else 0
        stop = max(begin + 1, int(np.searchsorted(ends, done + CHUNK, side="right")))
        number = np.repeat(np.arange(begin, stop), counts[begin:stop])
        yield number, np.arange(len(number)) - (ends[number] - counts[number] - done)
        begin = stop


@dataclass(frozen=True, slots=True)
class Fronts:
    """The fronts of all cuts below a cut-off, over the given costs (`base`) and amounts of the one limit."""

    net: Network
    base: list[Floats]
    amounts: list[Floats]
    sizes: tuple[tuple[int, ...], ...]
    reached: tuple[Reached, ...]
    merged: bool = False
    """Whether labels stand for others."""

    @property
    def best(self) -> float:
        """The least cost of a plan within the limit, infinite if none is below the cut-off."""
        return float(self.reached[-1].cost.min(initial=np.inf))

    def path(self) -> tuple[int, ...] | None:
        """The columns of the cheapest plan within the limit; None if there is none below the cut-off."""
        return self.path_to(int(self.reached[-1].cost.argmin())) if len(self.reached[-1]) else None

    def thriftier(self, dearer: Sequence[float]) -> list[int]:
        """Of plans that cost no more than by a fraction above the least, those that take least of the limit; each once."""
        last = self.reached[-1]
        return list(dict.fromkeys(int(np.where(last.cost <= self.best * (1 + part), last.used, np.inf).argmin())
                                  for part in (dearer if len(last) else ())))

    def path_to(self, at: int) -> tuple[int, ...]:
        """The columns of a plan, by its label in the last front."""
        path, cut = [COVERED] * len(self.net.tables), len(self.net.tables)
        while cut:
            here = self.reached[cut]
            cut, path[int(here.origin[at])], at = int(here.origin[at]), int(here.column[at]), int(here.parent[at])
        return tuple(path)


Part = tuple[Ints, Floats, Floats, Ints, Ints, Ints]
"""Labels on their way to a cut: keys of their states, costs, what they take, parents, origins, columns."""


@dataclass(frozen=True, slots=True)
class Grain:
    """Labels of a state that take alike, to one of so many parts of the limit, are one.

    That is the cheapest of them, and of each cut only `most` are kept, those with the least bounds: what such fronts hold are
    plans, but not all. Or, if `below`, it is one that costs and takes no more than any: such fronts bound every plan, if less
    closely, and what they hold may take more than there is.
    """

    parts: int
    below: bool
    most: int | None = None

    def merged(self, front: Reached) -> Reached:
        part = np.floor(front.used * self.parts).astype(np.int64)
        new = (part[1:] != part[:-1]) | (front.of[1:] != front.of[:-1])
        # Along a front costs fall: the last takes most and costs least.
        last = np.append(new, True)[:len(front)]
        of, used = front.of[last], front.used[np.append(True, new)[:len(front)] if self.below else last]
        return Reached(front.keys, front.states, np.searchsorted(of, np.arange(len(front.keys))), of, front.cost[last], used,
                       front.parent[last], front.origin[last], front.column[last])


def fronts_of(net: Network, base: list[Floats], amounts: list[Floats], price: float, cutoff: float, most: int,
              deadline: float, names: Names | None = None, grain: Grain | None = None) -> Fronts | None:
    """The fronts of a network under one limit at whose best price completions are bounded; None where time or `most` labels end.

    With `names`, a state stands for all that these make of it; with `grain`, a label for others.
    """
    bounds = [(p, completions(net, priced_costs(base, [amounts], np.array([p])))) for p in dict.fromkeys(
        [price, *(price * f for f in FAN), 0.0])]
    least = completions(net, [np.broadcast_to(a, c.shape) for a, c in zip(amounts, base, strict=True)])
    growth = _Growth(net, base, amounts, bounds, least, cutoff + SLACK * abs(cutoff), tuple(x.shape for x in least), names)
    none = np.zeros(1, dtype=np.int64)
    found = [Reached(none, np.zeros((1, 0), dtype=np.int64), none, none, np.zeros(1), np.zeros(1), none, none, none)]
    coming: list[list[Part]] = [[] for _ in range(len(net.tables) + 1)]
    for k in range(len(net.tables)):
        for step in net.steps(k) if len(found[k]) else ():
            coming[step.stop] += growth.labels(step, found[k])
        front = _front(coming[k + 1], growth.sizes[k + 1])
        if grain is not None:
            front = grain.merged(front)
            front = growth.best(k + 1, front, grain.most) if grain.most is not None and len(front) > grain.most else front
        found.append(front)
        coming[k + 1] = []
        if len(found[-1]) > most or worked() > deadline:
            return None
    return Fronts(net, base, amounts, growth.sizes, tuple(found), grain is not None)


@dataclass(frozen=True, slots=True)
class _Growth:
    """How labels grow: costs and amounts, bounds of completions under several prices, their least amounts, what is allowed."""

    net: Network
    base: list[Floats]
    amounts: list[Floats]
    bounds: list[tuple[float, list[Floats]]]
    least: list[Floats]
    allowed: float
    sizes: tuple[tuple[int, ...], ...]
    """Places of the tensors alive at every cut."""
    names: Names | None

    def labels(self, step: Step, here: Reached) -> list[Part]:
        """What becomes of all labels of a cut by a step."""
        every, end, flat, rest = self._ways(step, here)
        taken = self.amounts[step.index][every.column]
        found: list[Part] = []
        for number, which in spread(np.diff(np.append(here.first, len(here)))[every.row]):
            label = here.first[every.row[number]] + which
            cost, used, at = here.cost[label] + every.cost[number], here.used[label] + taken[number], end[number]
            fits = used + rest[at] <= 1 + EPSILON
            for p, to_go in flat:
                fits &= cost + p * (used - 1) + to_go[at] <= self.allowed
            column = step.first_column + every.column[number]
            found.append((every.target[number][fits], cost[fits], used[fits], label[fits],
                          np.full(int(fits.sum()), step.start), column[fits]))
            spend("fronts", 1, len(number))
        return found

    def _ways(self, step: Step, here: Reached) -> tuple[Ways, Ints, list[tuple[float, Floats]], Floats]:
        """The ways on from states, or from all they stand for, that may be in a plan below the cut-off; which end each has, and
        for every end the least cost under each price, and the least amount, to go.

        None of them leads to the same for no more and takes no more.
        """
        net, names, sizes = self.net, self.names, self.sizes[step.stop]
        states, of = here.states, np.arange(len(here.states))
        if names is not None:
            states, of = names.all_alike(net.stages[step.start].live, here.states, self.sizes[step.start])
        every = ways(net, step, states, self.base[step.index], sizes)
        ends, end = numbered(every.target, prod(sizes))
        # What a state stands for may be completed from any of them.
        alike = ends[None] if names is None else names.keys(net.stages[step.stop - 1].after, states_of(ends, sizes), sizes)
        flat = [(p, _lowest(to_go[step.stop], alike)) for p, to_go in self.bounds]
        rest, row, taken = _lowest(self.least[step.stop], alike), of[every.row], self.amounts[step.index][every.column]
        good = np.minimum.reduceat(here.used, here.first)[row] + taken + rest[end] <= 1 + EPSILON
        for p, to_go in flat:
            lowest = np.minimum.reduceat(here.cost + p * here.used, here.first)
            good &= lowest[row] + every.cost + p * (taken - 1) + to_go[end] <= self.allowed
        chosen = np.flatnonzero(good)
        spend("prospects", 1, alike.size * len(flat) + len(good) * len(flat))
        spend("ways", 1, 4 * len(good) + sorting(len(chosen)))
        target = called(alike)[end[chosen]]
        order = _undercut(row[chosen] * prod(sizes) + target, every.cost[chosen], taken[chosen])
        chosen, target = chosen[order], target[order]
        return Ways(row[chosen], every.column[chosen], target, every.cost[chosen]), end[chosen], flat, rest

    def best(self, cut: int, front: Reached, count: int) -> Reached:
        """The labels of a cut with the least bounds, and their states alone."""
        after, sizes = self.net.stages[cut - 1].after, self.sizes[cut]
        alike = front.keys[None] if self.names is None else self.names.keys(after, front.states, sizes)
        bounds = [front.cost + p * (front.used - 1) + _lowest(to_go[cut], alike)[front.of] for p, to_go in self.bounds]
        chosen = np.sort(np.argpartition(np.max(bounds, axis=0), count)[:count])
        kept, of = np.unique(front.of[chosen], return_inverse=True)
        return Reached(front.keys[kept], front.states[kept], np.searchsorted(of, np.arange(len(kept))), of, front.cost[chosen],
                       front.used[chosen], front.parent[chosen], front.origin[chosen], front.column[chosen])


def _lowest(array: Floats, keys: Ints) -> Floats:
    """The least entry of an array over states among those that each stands for (-1: none)."""
    found: Floats = np.where(keys >= 0, array.ravel()[keys], np.inf).min(axis=0)
    return found


def _undercut(group: Ints, cost: Floats, taken: Floats) -> Ints:
    """Which entries are left, sorted by group, where none of the same group costs no more and takes no more."""
    order: Ints = np.lexsort((cost, taken, group))
    if not len(order):
        return order
    same = np.append(False, group[order][1:] == group[order][:-1])
    costs = cost[order]
    # Lowering each group by more than costs differ lets one running minimum serve all.
    lowered = costs - (np.ptp(costs) + 1) * np.cumsum(~same)
    found: Ints = order[np.append(True, lowered[1:] < np.minimum.accumulate(lowered)[:-1])]
    return found


def numbered(keys: Ints, count: int) -> tuple[Ints, Ints]:
    """The distinct of some keys below `count`, ascending, and which of them each is."""
    there = np.zeros(count, dtype=np.bool_)
    there[keys] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[keys]




def _front(parts: Sequence[Part], sizes: tuple[int, ...]) -> Reached:
    """Labels of one cut without those that another undercuts."""
    if not parts:
        parts = [(*(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)), *(np.zeros(0, dtype=np.int64),) * 3)]
    key, cost, used, parent, origin, column = (np.concatenate(c) for c in zip(*parts, strict=True))
    keys, of = numbered(key, prod(sizes))
    order = np.lexsort((cost, of * APART + used))
    of, cost = of[order], cost[order]
    if len(of):
        new = np.append(True, of[1:] != of[:-1])
        # Lowering each state by more than costs differ lets one running minimum serve all states.
        lowered = cost - (np.ptp(cost) + 1) * np.cumsum(new)
        keep = np.append(True, lowered[1:] < np.minimum.accumulate(lowered)[:-1])
        order, of, cost = order[keep], of[keep], cost[keep]
    first = np.searchsorted(of, np.arange(len(keys)))
    spend("undercut", 1, sorting(len(key)))
    return Reached(keys, states_of(keys, sizes), first, of, cost, used[order], parent[order], origin[order], column[order])
