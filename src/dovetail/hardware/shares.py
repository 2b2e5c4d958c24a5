"""Shares of nodes as arrays: what a question about many candidate splits is asked with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dovetail.ir import Axis, Node

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

Segments = Sequence[tuple[Axis | None, Ints, Ints]]
"""Shares of one node, axis by axis: the axis (None: the whole node), starts and stops."""
Question = tuple[Node, Segments]
"""A node and all the shares of it whose costs are wanted."""


def shares_in(segments: Segments) -> int:
    """How many shares there are."""
    return sum([len(starts) for _, starts, _ in segments])
