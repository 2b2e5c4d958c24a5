"""What a cost function returns: arrays over candidate shares, each number with interval and provenance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ShareCosts:
    """Costs of several candidate shares of one node on one device; all arrays have one entry per share.

    `alone_s` is the time of a share whose inputs wait in the device's memory; `fused_s` the time it adds when
    it streams behind its producer on the same device (equal to `alone_s` for devices that do not stream).
    `low_s`/`high_s` are the 90 % interval of `alone_s`. `energy_j` is above idle, for `alone_s`.
    `resources` are what the share occupies on the device for the whole life of the build.
    """

    alone_s: Floats
    fused_s: Floats
    low_s: Floats
    high_s: Floats
    energy_j: Floats
    resources: Mapping[str, Floats]
    extrapolated: Flags
    source: str
