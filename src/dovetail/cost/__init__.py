"""What a share of an operator costs on a device: time, energy, area, with interval and origin."""

from dovetail.cost.costs import costs_of, costs_of_many, reduce_costs, transfer_costs, transfer_rates, transferred, why_not
from dovetail.cost.estimate import Flags, Floats, Ints, ShareCosts

__all__ = ["Flags", "Floats", "Ints", "ShareCosts", "costs_of", "costs_of_many", "reduce_costs", "transfer_costs",
           "transfer_rates", "transferred", "why_not"]
