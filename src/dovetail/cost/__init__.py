"""What a share of an operator costs on a device: time, energy, area, with interval and origin."""

from dovetail.cost.costs import costs_of, costs_of_many, reductions, transfer_rates, transfer_seconds, transferred, why_not
from dovetail.cost.estimate import ShareCosts
from dovetail.cost.gpu_kernels import kernels_of, runs_kernels
from dovetail.hardware.shares import Flags, Floats, Ints

__all__ = ["Flags", "Floats", "Ints", "ShareCosts", "costs_of", "costs_of_many", "kernels_of", "reductions",
           "runs_kernels", "transfer_rates", "transfer_seconds", "transferred", "why_not"]
