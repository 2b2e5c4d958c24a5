"""Fits to the rows of *GP partitioning 2023*: in the authors' form, and the power of their hardware.

Their form is one polynomial per variable, multiplied, least squares of the values.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.cost.fitting.nonnegative import fit_dictionary, least_squares
from dovetail.cost.fitting.rows import LEVEL_COLUMNS, SOURCE, Columns, divisions, fold_numbers
from dovetail.cost.fitting.scatter import errors_of
from dovetail.hardware.shares import Floats
from dovetail.platform.quantity import LEVELS, Errors, FactorModel
from dovetail.platform.schema import VERSION

POWER_COLUMNS = (*LEVEL_COLUMNS, "power_w", "alm", "m20k")
ROUNDS = 60
DEGREES: Mapping[str, tuple[int, int, int, int]] = {
    "tx2-cpu-latency": (2, 1, 2, 1), "tx2-gpu-latency": (2, 3, 2, 2), "c10gx-latency": (2, 2, 1, 2), "c10gx-alm": (1, 3, 3, 2),
    "c10gx-alut": (1, 3, 3, 3), "c10gx-lab": (1, 2, 3, 3), "c10gx-m20k": (1, 2, 3, 2),
}
"""Degrees in side, channels, kernel and filters that the authors' scripts choose."""


def fit_factors(name: str, unit: str, columns: Columns, value: Floats) -> FactorModel:
    """Alternating non-negative least squares: one variable's polynomial after another, the rest held."""
    points = tuple(columns[c] for c in LEVEL_COLUMNS)
    coefficients = [np.eye(1, degree + 1, degree)[0] for degree in DEGREES[name]]
    powers = [x[:, None] ** np.arange(degree + 1) for x, degree in zip(points, DEGREES[name], strict=True)]
    for _ in range(ROUNDS):
        for i, basis in enumerate(powers):
            others = np.prod([powers[j] @ coefficients[j] for j in range(len(powers)) if j != i], axis=0)
            design = basis * others[:, None]
            coefficients[i] = least_squares(design, value)
            if i:  # the size of the value lives in the first factor
                size = coefficients[i].max()
                coefficients[i], coefficients[0] = coefficients[i] / size, coefficients[0] * size
    model = FactorModel(name, unit, SOURCE, len(value), 0.0, tuple(tuple(float(v) for v in c) for c in coefficients))
    told = value > 0
    mape = float(np.abs(model.values(points)[told] / value[told] - 1).mean())
    return FactorModel(name, unit, SOURCE, len(value), mape, model.coefficients)


def factor_text(model: FactorModel) -> str:
    """The text of the model's file; `parse_factors` reads it back."""
    rows = [f"{name} = [{', '.join(f'{c:.7g}' for c in coefficients)}]"
            for name, coefficients in zip(LEVELS, model.coefficients, strict=True)]
    return "\n".join([
        "# Written by python -m dovetail.cost.fitting; do not edit by hand.",
        "# The form of GP partitioning 2023, to reproduce it: value = product of polynomials, coefficients from power 0 upwards.",
        "# Refitted by us to the authors' rows; their own coefficients (parameters*.pkl of SysIdentif) are binary and not read.",
        "# mape: mean |predicted - measured| / measured on the rows of the fit.",
        f"version = {VERSION}", f'name = "{model.name}"', f'unit = "{model.unit}"', f'source = "{model.source}"',
        f"rows = {model.rows}", f"mape = {model.mape:.4f}", "", "[factors]", *rows]) + "\n"


def fit_power(columns: Columns) -> tuple[Floats, Errors]:
    """Watts that Quartus estimates for an empty design, per logic cell and per RAM block, and the errors of rows left out.

    The estimates do not follow the rows' clock: they were made at one clock for all.
    """
    power = columns["power_w"]
    features = np.stack([np.ones_like(power), columns["alm"], columns["m20k"]], axis=1)
    points = np.stack([columns[c] for c in LEVEL_COLUMNS], axis=1)
    predicted: Floats = np.empty(len(power))
    for seen, kept in divisions(points):
        predicted[kept] = features[kept] @ fit_dictionary(features[seen], power[seen])
    return fit_dictionary(features, power), errors_of(predicted, power, fold_numbers(points))
