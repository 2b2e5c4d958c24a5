"""Parts on equal boards: whether they fit, and on which board each goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.partition.effort import spend

FULL = 1 + 1e-9
"""What a board holds of each of its resources, as a fraction of its limit."""
MOST_STEPS = 4_000
"""Items placed in one search: the work, not the clock, ends it."""

Sizes = tuple[tuple[float, ...], ...]
"""What each of some pieces takes of a board's resources, as fractions of one board; they must lie on different boards."""


def pack(items: Sequence[Sequence[Sizes]], room: Floats, steps: int = MOST_STEPS) -> list[tuple[int, tuple[int, ...]]] | None:
    """For every item one of its alternatives and a board for each of its pieces; None where none was found within the steps.

    `room` is what boards have left (boards x resources). Large items go first, each to the fullest boards that hold it; first
    alternatives are preferred.
    """
    left = [tuple(r) for r in room.tolist()]
    order = sorted(range(len(items)), key=lambda i: (-max((max(s) for s in items[i][0]), default=0.0), i))
    found: dict[int, tuple[int, tuple[int, ...]]] = {}
    ways: list[Iterator[tuple[int, tuple[int, ...]]]] = []
    for _ in range(steps):
        spend("packings", 1, len(left))
        if len(found) == len(items):
            return [found[i] for i in range(len(items))]
        if len(ways) == len(found):
            ways.append(_ways(items[order[len(found)]], list(left)))
        way = next(ways[-1], None)
        i = order[len(ways) - 1]
        if way is not None:
            found[i] = way
            _take(left, items[i], way, -1.0)
            continue
        ways.pop()
        if not ways:
            return None
        last = order[len(ways) - 1]
        _take(left, items[last], found.pop(last), 1.0)
    return None


def _take(left: list[tuple[float, ...]], item: Sequence[Sizes], way: tuple[int, tuple[int, ...]], sign: float) -> None:
    for size, board in zip(item[way[0]], way[1], strict=True):
        left[board] = tuple(a + sign * s for a, s in zip(left[board], size, strict=True))


def _ways(item: Sequence[Sizes], left: list[tuple[float, ...]]) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Every way to lay an item on boards; of boards that are equally full, one is tried."""
    for number, sizes in enumerate(item):
        yield from ((number, boards) for boards in _laid(sizes, left, ()))


def _laid(sizes: Sizes, left: list[tuple[float, ...]], taken: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if len(taken) == len(sizes):
        yield taken
        return
    size, seen = sizes[len(taken)], set[tuple[float, ...]]()
    for board in sorted(range(len(left)), key=lambda b: (min(left[b]), b)):
        room = left[board]
        if board not in taken and room not in seen and all(a - s >= 1 - FULL for a, s in zip(room, size, strict=True)):
            seen.add(room)
            yield from _laid(sizes, left, (*taken, board))


def as_sizes(parts: Floats) -> Sizes:
    """Rows as what the pieces of one alternative take."""
    return tuple(tuple(row) for row in np.atleast_2d(parts).tolist())
