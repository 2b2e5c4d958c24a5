"""How full boards are, under exchanged names: loads of labels that are known by other names at another cut."""

from __future__ import annotations

import numpy as np

from dovetail.hardware.shares import Floats, Ints


class BoardLoads:
    """Every order of the boards' names is a number, and so is what two make one after another.

    Of few boards all loads are known. Of many, only those of boards that hold a tensor: any other may be an empty one when it is
    next used.
    """

    def __init__(self, orders: Ints, resources: int, many: bool) -> None:
        """`orders` says whose load each board has afterwards."""
        count = orders.shape[1]
        number = {tuple(o): i for i, o in enumerate(orders.tolist())}
        self.undone = np.array([number[tuple(o)] for o in np.argsort(orders, axis=1).tolist()])
        self.then = np.array([[number[tuple(a[b].tolist())] for b in orders] for a in orders])
        self.taken_from = np.concatenate([orders + count * r for r in range(resources)], axis=1)
        self.width = count * resources
        every = np.tile((np.arange(1 << count)[:, None] >> np.arange(count)) & 1, resources)
        self.known = every if many else np.ones_like(every)
        """Whether a load is remembered, for every set of boards that hold tensors, as a sum of powers of two."""

    def turned(self, loads: Floats, orders: Ints) -> Floats:
        """Loads of boards by the names that orders give them."""
        return np.take_along_axis(loads, self.taken_from[orders], axis=1)

    def remembered(self, loads: Floats, held: Ints) -> Floats:
        """What is known of loads before a cut where some boards hold tensors."""
        found: Floats = loads * self.known[held]
        return found
