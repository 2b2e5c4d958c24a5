"""A network in which one thing's busy time is the cost and others' are limits."""

from __future__ import annotations

from dataclasses import field
from math import inf

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.partition.exact.cuts import Limit, Network
from dovetail.partition.interval.weights import Ledger
from dovetail.values import dataclass

OTHER_LIMITS = ("latency", "energy")
"""Limits that are neither areas nor busy times."""


@dataclass(frozen=True, slots=True)
class Within(Network):
    """A network whose cost is the time one thing is kept busy, and in which other such times are limits."""

    ledger: Ledger = field(kw_only=True)
    chief: str = field(kw_only=True)
    cutoff: float = field(kw_only=True)

    def amounts(self, limit: Limit) -> list[Floats]:
        if limit.budget is not None or limit.name in OTHER_LIMITS:
            return Network.amounts(self, limit)
        return [seconds / limit.limit for seconds in self._seconds(limit.name)]

    def costs(self, weights: tuple[float, float]) -> list[Floats]:
        return [np.where(own.engines > self.cutoff, inf, seconds)
                for own, seconds in zip(self.ledger.busy, self._seconds(self.chief), strict=True)]

    def _seconds(self, name: str) -> list[Floats]:
        return [own.shared[name] if name in own.shared else np.zeros(table.latency_s.shape)
                for own, table in zip(self.ledger.busy, self.tables, strict=True)]
