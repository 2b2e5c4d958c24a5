"""What is remembered of how full boards are when they change their names.

A few boards are all known: names are exchanged, loads with them. Of a long ring, four neighbours have names, a *window*; but a
board that the window has left is no emptier when it comes back. Loads of boards on both sides of the window are remembered as
well, as long as some board holds a tensor and so says where all others are: what one window calls its boards and what the next
one does differ by a shift along the ring or by a view from the other side, which is the same for held boards and for loads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dovetail.hardware.shares import Flags, Floats, Ints

SHIFTS = 32
"""More than any shift, so that a shift and a side make one number."""


class Exchanged:
    """A few boards: every order of their names is a number, and so is what two make one after another."""

    later = False
    """Whether sums are turned to the earlier label's names after they were made, or before."""

    def __init__(self, orders: Ints, resources: int) -> None:
        """`orders` says whose load each board has afterwards."""
        count = orders.shape[1]
        number = {tuple(o): i for i, o in enumerate(orders.tolist())}
        self.undone = np.array([number[tuple(o)] for o in np.argsort(orders, axis=1).tolist()])
        self.then = np.array([[number[tuple(a[b].tolist())] for b in orders] for a in orders])
        self.taken_from = np.concatenate([orders + count * r for r in range(resources)], axis=1)
        self.width = count * resources

    def kept(self, loads: Floats) -> Floats:
        """Loads of columns, in the form in which they are remembered."""
        return loads

    def turns(self, own: Ints, back: Ints, ahead: Ints) -> Ints:
        """From the names of a later label to those in which a column is added; `ahead` says which boards hold tensors there."""
        found: Ints = self.then[self.undone[back], own]
        return found

    def of_columns(self, loads: Floats, own: Ints) -> Floats:
        """Loads of columns in the names in which they are added."""
        return self.turned(loads, own)

    def arranged(self, loads: Floats, order: Ints, held: Ints) -> Floats:
        """Loads by what an order calls boards, of which some hold tensors."""
        return self.turned(loads, order)

    def after(self, loads: Floats, own: Ints, here: Ints) -> Floats:
        """What the sums are to the earlier label."""
        return loads

    def turned(self, loads: Floats, turns: Ints) -> Floats:
        return np.take_along_axis(loads, self.taken_from[turns], axis=1)


class Emptied(Exchanged):
    """A window of which only boards that hold a tensor are remembered: any other may be an empty one when it is next used."""

    def __init__(self, orders: Ints, resources: int) -> None:
        super().__init__(orders, resources)
        count = orders.shape[1]
        self.holding = np.tile((np.arange(1 << count)[:, None] >> np.arange(count)) & 1, resources)

    def after(self, loads: Floats, own: Ints, here: Ints) -> Floats:
        return loads * self.holding[here]


class Along(Exchanged):
    """A window of a long ring, with what is remembered of the boards beside it."""

    later = True

    def __init__(self, orders: Ints, resources: int, keeps: Flags, beside: int) -> None:
        """`keeps` says of orders and sets of boards, as sums of powers of two, whether these stay as far from each other.

        So many boards are remembered on each side.
        """
        super().__init__(orders, resources)
        self.count, self.resources, self.beside = orders.shape[1], resources, beside
        self.around = self.count + 2 * beside
        self.width = self.around * resources
        self.side, self.shift = (np.zeros(keeps.shape, dtype=np.int64) for _ in range(2))
        for order, held in zip(*keeps.nonzero(), strict=True):
            members = [b for b in range(self.count) if held >> b & 1]
            self.side[order, held], self.shift[order, held] = _moved(orders[order], members)
        self.taken_from = np.array([self._sources(side, shift - SHIFTS) for side in (0, 1) for shift in range(2 * SHIFTS)])

    def _sources(self, side: int, shift: int) -> Ints:
        """Whose load every board of all resources has after a turn; the last entry stands for no load."""
        at = np.arange(self.around) - self.beside
        source = (shift - at if side else shift + at) + self.beside
        known = (source >= 0) & (source < self.around)
        found: Ints = np.concatenate([np.where(known, source + self.around * r, self.width) for r in range(self.resources)])
        return found

    def kept(self, loads: Floats) -> Floats:
        found = np.zeros((len(loads), self.resources, self.around))
        found[:, :, self.beside:self.beside + self.count] = loads.reshape(len(loads), self.resources, self.count)
        return found.reshape(len(loads), self.width)

    def turns(self, own: Ints, back: Ints, ahead: Ints) -> Ints:
        # A later label's board y is shift + y, or shift - y, to the column.
        side, shift = self.side[back, ahead], self.shift[back, ahead]
        return _number(side, np.where(side == 1, shift, -shift))

    def of_columns(self, loads: Floats, own: Ints) -> Floats:
        return loads

    def arranged(self, loads: Floats, order: Ints, held: Ints) -> Floats:
        return self.turned(loads, _number(self.side[order, held], self.shift[order, held]))

    def after(self, loads: Floats, own: Ints, here: Ints) -> Floats:
        # Where no board holds anything, the window may be anywhere afterwards.
        return self.arranged(loads, own, here) * (here > 0)[:, None]

    def turned(self, loads: Floats, turns: Ints) -> Floats:
        padded = np.concatenate([loads, np.zeros((len(loads), 1))], axis=1)
        return np.take_along_axis(padded, self.taken_from[turns], axis=1)

    def from_column(self, order: int, held: int, view: View) -> View:
        """Where a column's boards are, if `view` says where those of its label are."""
        side, shift = int(self.side[order, held]), int(self.shift[order, held])
        # Board b of the label is x = shift + b, or shift - b, to the column.
        return _joined(view, (side, shift if side else -shift))

    def still(self, known: Mapping[int, str], view: View) -> dict[int, str]:
        """What is remembered, by place along the ring, of boards known before a window was there."""
        at = range(-self.beside, self.count + self.beside)
        return {c: known[c] for c in (view[1] - x if view[0] else view[1] + x for x in at) if c in known}

    def to_label(self, back: int, held: int, view: View) -> View:
        """Where boards of the label behind a column are, if `view` says where the column's are."""
        return _joined(view, (int(self.side[back, held]), int(self.shift[back, held])))


View = tuple[int, int]
"""Along which way boards are counted (0: the same, 1: the other) and where the first is."""


def _joined(outer: View, inner: View) -> View:
    """Boards seen by one view of what another sees."""
    return outer[0] ^ inner[0], outer[1] - inner[1] if outer[0] else outer[1] + inner[1]


def _number(side: Ints, shift: Ints) -> Ints:
    found: Ints = side * 2 * SHIFTS + shift + SHIFTS
    return found


def _moved(order: Ints, held: Sequence[int]) -> tuple[int, int]:
    """The view (0: the same, 1: from the other side) and shift that lead from held boards to whose load they have afterwards."""
    if not held:
        return 0, 0
    # One board says nothing of the side: the order's own counts, so that orders one after another agree.
    own = int((order[1] - order[0]) % len(order) != 1) if len(order) > 2 else 0
    for side in (own, 1 - own):
        found = {int(order[b]) + (b if side else -b) for b in held}
        if len(found) == 1:
            return side, found.pop()
    raise AssertionError("boards that stay as far from each other are only moved along or seen from the other side")
