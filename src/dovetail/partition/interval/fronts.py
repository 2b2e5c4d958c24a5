"""A closer bound on the interval: weighted busy times with the area counted instead of priced.

Weights on busy times lose little, as many small columns balance them. Prices on an FPGA's area lose more: what fits are a few
large engines, and prices mix plans that have one of them with plans that have none. Fronts (`fronts`) hold for every state of the
cuts what beginnings cost against what they take, so under the best weights they end with the least weighted sum of any plan that
fits.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.partition.exact.cuts import Network
from dovetail.partition.exact.fronts import fronts_of
from dovetail.partition.interval.weights import Ledger, Weighed
from dovetail.partition.tolerances import ROUNDOFF
from dovetail.values import dataclass

REACHED = 60_000
"""Labels of one cut beyond which fronts are given up. Chosen, not measured."""
DEARER = (0.0, 5e-4, 1e-3, 2e-3, 4e-3)
"""How much more than the least plans may cost that are told as well, as they take less area. Chosen, not measured."""
TOO_DEAR = 2.0
"""What a column that no plan below the ceiling has costs instead, as a multiple of the ceiling.

Chosen: anything above one does.
"""


@dataclass(frozen=True, slots=True)
class _Weighted(Network):
    """A network whose costs are given."""

    given: list[Floats] = field(kw_only=True)

    def costs(self, weights: tuple[float, float]) -> list[Floats]:
        return self.given


def fitting_bound(net: Network, ledger: Ledger, found: Weighed, ceiling: float,
                  deadline: float) -> tuple[float, list[tuple[int, ...]]]:
    """A bound on every plan whose interval is below the ceiling, and plans near it, the one that attains it first.

    They need not be legal. The bound that was found, and no plan, where no area has a price, or where time or labels end.
    """
    priced = [(x, p) for x, p in zip(net.limits, found.prices.tolist(), strict=True) if p > 0 and x.budget is not None]
    price = sum(p for _, p in priced)
    if not priced or ceiling <= found.bound or not np.isfinite(ceiling):
        return found.bound, []
    # What fits keeps every mixture of limits; no plan below the ceiling has a slower engine.
    parts = [[a * (p / price) for a in net.amounts(x)] for x, p in priced]
    amounts = [np.asarray(sum(own), dtype=np.float64) for own in zip(*parts, strict=True)]
    weighted = ledger.costs(found.weights, np.zeros(len(net.limits)))
    base = [np.where(own.engines > ceiling, TOO_DEAR * ceiling, cost) for own, cost in zip(ledger.busy, weighted, strict=True)]
    view = _Weighted(net.problem, net.tables, net.stages, net.limits, given=base)
    fronts = fronts_of(view, (1.0, 0.0), amounts, price, ceiling, REACHED, deadline)
    if fronts is None:
        return found.bound, []
    bound = min(fronts.best, ceiling) * (1 - ROUNDOFF * len(net.tables))
    return max(bound, found.bound), [fronts.path_to(i) for i in fronts.thriftier(DEARER)]
