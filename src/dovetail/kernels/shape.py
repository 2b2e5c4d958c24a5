"""What the shapes of all kernels have in common: sizes that decide how long a kernel lasts, without its weights.

Every kernel has a shape of its own, a named tuple (`kernels/conv.py`, ...). Its fields are numbers of one kernel, or, `stacked`,
arrays with one entry per tile of many kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from dovetail.kernels.estimator import Number, Tiles

Grid = tuple[Number, Number, Number]


class KernelShape(Protocol):
    """The sizes of one kernel."""

    def grid(self, c: Tiles, /) -> Grid:
        """Programs along three axes, tile by tile."""

    def tiles(self) -> Tiles:
        """The tiles worth a look."""


def programs_of(shape: KernelShape, c: Tiles) -> Number:
    """Programs of a launch, tile by tile."""
    x, y, z = shape.grid(c)
    return x * y * z


def stacked(shapes: Sequence[KernelShape], counts: Sequence[int]) -> KernelShape:
    """Shapes of one kernel, each repeated as often as it has tiles."""
    columns = np.repeat(np.array(shapes, dtype=np.float64), counts, axis=0).T
    form: Any = type(shapes[0])
    found: KernelShape = form(*columns)
    return found


def least_depth(element: int) -> int:
    """Input channels that matrix units take at once at least: twice as many of bytes."""
    return 32 if element == 1 else 16
