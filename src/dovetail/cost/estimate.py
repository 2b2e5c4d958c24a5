"""What a cost function returns: arrays over candidate shares, each number with interval and provenance."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.values import dataclass


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

    def part(self, start: int, stop: int) -> ShareCosts:
        """Some of the shares, as views."""
        return self.take(slice(start, stop))

    def take(self, shares: Ints | slice) -> ShareCosts:
        """Some of the shares, in any order."""
        return ShareCosts(self.alone_s[shares], self.fused_s[shares], self.low_s[shares], self.high_s[shares],
                          self.energy_j[shares], {r: v[shares] for r, v in self.resources.items()}, self.extrapolated[shares],
                          self.source)
