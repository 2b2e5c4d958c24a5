"""Labels of a search over boards: how they are joined, thinned and compared.

Where labels are too many, those with the highest bounds are not dropped but seen as one where they are alike, which is no plan
but still a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.partition.exact.fronts import EPSILON, SLACK

PIVOTS = 32
"""Labels of a state that others are compared with, in one pass: chosen."""
PASSES = 2
"""How often they are at most: chosen."""
GRAINS = (16.0, 4.0, 1.0, 0.0)
"""Steps in which loads are told apart where labels are too many; none at last. Chosen."""
HASH = 0x9E3779B1
"""Spreads keys over 64 bits. Source: 2^32 over the golden ratio, of multiplicative hashing (Knuth)."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Later parts of plans from the states of one cut, sorted by state (`of`, its number among those reached).

    `parent` counts the labels of the cut `stop`, to which `column` leads from the state with the key `member`. `order` is how
    boards were renamed there, and `back` how those of the later part are called now (see `Names.orders`). What is not `real`
    stands for several, and costs and takes no more of anything than each of them.
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
    real: Flags

    def __len__(self) -> int:
        return len(self.cost)

    def take(self, chosen: Ints | Flags) -> Labels:
        return Labels(*(getattr(self, f.name)[chosen] for f in fields(self)))


def joined(parts: Sequence[Labels], width: int) -> Labels:
    """Labels one after another; without any, none, that would know `width` loads."""
    if not parts:
        none, empty = np.zeros(0, dtype=np.int64), np.zeros(0)
        return Labels(none, empty, empty, np.zeros((0, width)), empty, none, none, none, none, none, np.zeros(0, dtype=np.bool_))
    return parts[0] if len(parts) == 1 else Labels(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Labels)))


def fewer(labels: Labels, most: int) -> Labels:
    """So many real labels of the lowest bounds; the others are seen as no more than that, where they are alike as one."""
    if len(labels) <= most:
        return labels
    order = np.lexsort((labels.bound, ~labels.real))
    kept = min(most, int(labels.real.sum()))
    near, rest = labels.take(np.sort(order[:kept])), labels.take(np.sort(order[kept:]))
    for grain in GRAINS:
        size = np.floor(rest.load * grain + EPSILON).astype(np.int64)
        # States and loads in steps make one number; where two make the same, they are only seen as one once more.
        key = rest.of * HASH + size @ (HASH ** np.arange(1, 1 + size.shape[1], dtype=np.int64) | 1)
        order = np.lexsort((rest.cost, key, rest.of))
        begins = (key[order][1:] != key[order][:-1]) | (rest.of[order][1:] != rest.of[order][:-1])
        if begins.sum() < most:
            break
    rest, first = rest.take(order), np.flatnonzero(np.append(True, begins))
    alike = replace(rest.take(first), cost=np.minimum.reduceat(rest.cost, first), used=np.minimum.reduceat(rest.used, first),
                    bound=np.minimum.reduceat(rest.bound, first), load=np.minimum.reduceat(rest.load, first, axis=0),
                    real=np.zeros(len(first), dtype=np.bool_))
    both = joined([near, alike], labels.load.shape[1])
    return both.take(np.argsort(both.of, kind="stable"))


def without_same(labels: Labels) -> Labels:
    """Of labels that take the same of every board, the cheapest."""
    if not len(labels):
        return labels
    size = np.round(labels.load * 1e9).astype(np.int64)
    order = np.lexsort((labels.cost, *size.T, labels.real, labels.of))
    same = (size[order][1:] == size[order][:-1]).all(axis=1) & (labels.of[order][1:] == labels.of[order][:-1])
    same &= labels.real[order][1:] == labels.real[order][:-1]
    return labels.take(order[np.append(True, ~same)])


def undominated(labels: Labels) -> Labels:
    """Labels sorted by state, without those that another of their state undercuts in cost and in every load."""
    order = np.lexsort((labels.load.sum(axis=1), labels.cost, labels.of))
    labels = labels.take(order)
    for _ in range(PASSES):
        new = np.append(True, labels.of[1:] != labels.of[:-1])[:len(labels)]
        first = np.flatnonzero(new)[np.cumsum(new) - 1] if len(labels) else np.zeros(0, dtype=np.int64)
        alive, asked = np.ones(len(labels), dtype=np.bool_), np.flatnonzero(~new)
        loads = labels.load.T.copy()  # boards are few: each by itself is compared sooner
        for pivot in range(PIVOTS):
            asked = asked[first[asked] + pivot < asked]
            if not len(asked):
                break
            other = first[asked] + pivot
            beaten = labels.real[other] | ~labels.real[asked]
            for load in loads:
                beaten &= load[asked] >= load[other] - SLACK
            alive[asked[beaten]] = False
            asked = asked[~beaten]
        if alive.all():
            break
        labels = labels.take(alive)
    return labels
