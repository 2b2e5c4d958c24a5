"""What a logic cell and a RAM block draw in the authors' hardware, from the power that Quartus estimates for the rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.cost.fitting.nonnegative import fit_dictionary
from dovetail.cost.fitting.rows import LEVEL_COLUMNS, Columns, divisions, fold_numbers
from dovetail.cost.fitting.scatter import errors_of
from dovetail.hardware.shares import Floats
from dovetail.platform.quantity import Errors

COLUMNS = (*LEVEL_COLUMNS, "power_w", "alm", "m20k")


@dataclass(frozen=True, slots=True)
class HardwarePower:
    """Watts of an empty design, per logic cell and per RAM block; the errors are those of rows left out."""

    fixed_w: float
    w_per_logic: float
    w_per_block: float
    errors: Errors

    def __str__(self) -> str:
        return (f"{self.fixed_w:.3f} W + {self.w_per_logic:.3g} W per ALM + {self.w_per_block:.4g} W per M20K, "
                f"left out {self.errors.mean:.2%} (p90 {self.errors.p90:.2%})")


def fit_power(columns: Columns) -> HardwarePower:
    """Non-negative terms. The estimates do not follow the rows' clock: they were made at one clock for all."""
    power = columns["power_w"]
    features = np.stack([np.ones_like(power), columns["alm"], columns["m20k"]], axis=1)
    points = np.stack([columns[c] for c in LEVEL_COLUMNS], axis=1)
    predicted: Floats = np.empty(len(power))
    for seen, kept in divisions(points):
        predicted[kept] = features[kept] @ fit_dictionary(features[seen], power[seen])
    fixed, logic, block = (float(c) for c in fit_dictionary(features, power))
    return HardwarePower(fixed, logic, block, errors_of(predicted, power, fold_numbers(points)))
