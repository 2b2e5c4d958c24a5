"""Equal FPGAs are one as good as another: states of the cuts that differ in their names alone are looked at as one.

Boards of a ring do differ in their way to the host and to each other, if by little. A state stands here for all that its boards'
other names make of it: whoever has reached one of them may go on from any. Plans then pay for nothing that they would not pay
otherwise, so what is found is a bound; and there are up to 24 times fewer states. Of many boards, those that hold tensors stay as
far from each other as they are: what one window of neighbours holds, the next does, moved along or seen from the other side.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np

from dovetail.hardware.shares import Ints
from dovetail.partition.exact.cuts import Network
from dovetail.partition.tables.columns import Held, Pattern, numbered

MOST_BOARDS = 4
"""Boards whose names are exchanged. Chosen: they have 24 orders, five would have 120."""


def states_of(keys: Ints, sizes: tuple[int, ...]) -> Ints:
    """Where every live tensor is in the states with given keys."""
    return np.stack(np.unravel_index(keys, sizes), axis=1).astype(np.int64) if sizes else np.zeros((len(keys), 0), dtype=np.int64)


class Names:
    """All ways to exchange the names of some devices, and what each makes of the places of every tensor of a network."""

    def __init__(self, net: Network, boards: tuple[int, ...], beside: bool) -> None:
        """`boards` are indices of devices; with `beside`, those that hold tensors stay as far from each other."""
        boards = boards[:MOST_BOARDS]
        count, width = len(net.problem.devices), len(boards)
        self.boards = boards
        self.orders: list[Ints] = []
        devices, route = net.problem.devices, net.problem.platform.route
        self.hops = np.array([[len(route(devices[a], devices[b])) for b in boards] for a in boards])
        self.beside = beside
        # In a circle neighbours stay neighbours by turns and by reflections, of which a row allows those that keep what it holds.
        turns = [tuple((start + way * p) % width for p in range(width)) for way in (1, -1) for start in range(width)]
        for order in dict.fromkeys(turns) if beside else permutations(range(width)):
            names = np.arange(count)
            names[list(boards)] = [boards[i] for i in order]
            self.orders.append(names)
        self.kept = np.array([self._keeps(order) for order in self.orders])
        """For every order and set of boards, as a sum of powers of two, whether these stay as far from each other."""
        known: dict[int, Ints] = {}
        self.renamed: dict[str, Ints] = {t.node.output: self._places(t.options.held, known) for t in net.tables}
        """Per tensor, for every order and place, the place it becomes; -1 where the tensor is never there."""
        self.held = {t.node.output: t.options.held for t in net.tables}
        self.holders: dict[str, Ints] = {}

    def _keeps(self, order: Ints) -> list[bool]:
        to = np.argsort([self.boards.index(int(x)) for x in order[list(self.boards)]])
        alike = self.hops == self.hops[np.ix_(to, to)]
        width = range(len(self.boards))
        return [all(alike[a, b] for a, b in permutations([p for p in width if s >> p & 1], 2)) for s in range(1 << len(width))]

    def _places(self, held: Held, known: dict[int, Ints]) -> Ints:
        every = known.get(id(held.pattern))
        if every is None:
            every = known[id(held.pattern)] = self._of_pattern(held.pattern)
        at = np.full(len(held.pattern.held) + 1, -1, dtype=np.int64)
        at[held.places] = np.arange(len(held.places))
        return np.where(every[:, held.places] >= 0, at[every[:, held.places]], -1)

    def _of_pattern(self, pattern: Pattern) -> Ints:
        """For every order and place of a pattern the place it becomes, -1 where there is none."""
        places, devices = pattern.held.shape[:2]
        region, first = numbered(pattern.held.reshape(places * devices, -1))
        # A place is one number: that of the region on each device, digit by digit, and whether a stream fills it.
        digits = len(first) ** np.arange(devices, dtype=np.int64)
        assert len(first) ** devices < 1 << 62, "a pool's few devices hold few different regions"
        own = region.reshape(places, devices)
        code = np.stack([own[:, names] @ digits for names in self.orders]) * 2 + pattern.flowing
        plain = own @ digits * 2 + pattern.flowing
        order = np.argsort(plain)
        at = np.minimum(np.searchsorted(plain, code, sorter=order), places - 1)
        found: Ints = np.where(plain[order][at] == code, order[at], -1)
        return found

    def holding(self, tensor: str) -> Ints:
        """Which boards hold part of a tensor in each of its places, as a sum of powers of two."""
        if tensor not in self.holders:
            held = self.held[tensor]
            there = held.pattern.held[held.places][:, list(self.boards), 0, 1] > 0
            self.holders[tensor] = there @ (1 << np.arange(len(self.boards)))
        return self.holders[tensor]

    def held_in(self, live: tuple[str, ...], states: Ints) -> Ints:
        """Which boards hold a tensor in each of some states, as a sum of powers of two."""
        found = np.zeros(len(states), dtype=np.int64)
        for i, t in enumerate(live):
            found |= self.holding(t)[states[:, i]]
        return found

    def keys(self, live: tuple[str, ...], states: Ints, sizes: tuple[int, ...]) -> Ints:
        """For every order and state the key of the state it becomes; -1 where there is none."""
        found = np.zeros((len(self.orders), len(states)), dtype=np.int64)
        there = np.ones(found.shape, dtype=np.bool_)
        for i, (t, size) in enumerate(zip(live, sizes, strict=True)):
            places = self.renamed[t][:, states[:, i]]
            there &= places >= 0
            found = found * size + places
        if self.beside:
            there &= self.kept[:, self.held_in(live, states)]  # boards that hold tensors stay as far from each other
        return np.where(there, found, -1)

    def all_alike(self, live: tuple[str, ...], states: Ints, sizes: tuple[int, ...]) -> tuple[Ints, Ints]:
        """All states that the given ones stand for, and which of the given each is; each once."""
        keys = self.keys(live, states, sizes)
        of = np.broadcast_to(np.arange(len(states)), keys.shape)[keys >= 0]
        every, first = np.unique(keys[keys >= 0], return_index=True)
        return states_of(every, sizes), of[first]

    def least(self, live: tuple[str, ...], keys: Ints, sizes: tuple[int, ...]) -> Ints:
        """For every state, by its key, the least key of those it can become: what all of them are called."""
        distinct, inverse = np.unique(keys, return_inverse=True)
        return called(self.keys(live, states_of(distinct, sizes), sizes))[inverse]


def called(alike: Ints) -> Ints:
    """What states are called, by the keys of all that each can become (orders x states, -1 where there is none): the least."""
    found: Ints = np.where(alike >= 0, alike, np.iinfo(np.int64).max).min(axis=0)
    return found
