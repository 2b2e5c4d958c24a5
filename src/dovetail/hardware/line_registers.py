"""Registers of a sliding window: those between two taps in use form chains, which some families have shift registers for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dovetail.ir import Window

SHORTEST_CHAIN = 3
"""Registers in a row from which a chain becomes a shift register."""


@dataclass(frozen=True, slots=True)
class Shifts:
    """Registers per bit of a pixel that stand alone, those in chains, and the chains."""

    alone: float
    chained: float
    chains: float


def window_shifts(taps: NDArray[np.bool_], window: Window, line: int | None) -> Shifts:
    """Registers of a window whose `taps` (channels, kernel rows, kernel columns) are used.

    A row shifts from its newest column to the oldest in use; where lines of `line` pixels are kept in registers, every row but
    the oldest shifts on until the next one begins.
    """
    (reach_h, reach_w), (_, columns), (_, dilation) = window.reach, window.kernel, window.dilation
    at = np.full(taps.shape[:2], float(reach_w))
    alone = chained = chains = 0.0

    def shift(distance: NDArray[np.float64]) -> None:
        nonlocal alone, chained, chains
        long = distance >= SHORTEST_CHAIN
        alone += float(np.where(long, 0.0, distance).sum())
        chained += float(np.where(long, distance, 0.0).sum())
        chains += float(long.sum())

    for column in range(columns - 1, -1, -1):
        shift(np.where(taps[:, :, column], at - column * dilation, 0.0))
        at = np.where(taps[:, :, column], float(column * dilation), at)
    if line is not None:
        shift(at[:, 1:] + max(0, line - reach_w))
        between = float(reach_h - taps.shape[1])  # rows that dilation skips
        shift(np.full((len(taps), 1), max(line, reach_w) * between))
    count = len(taps)
    return Shifts(alone / count, chained / count, chains / count)
