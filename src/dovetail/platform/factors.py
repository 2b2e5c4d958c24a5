"""The authors' own form of a device model: a product of one polynomial per variable, with non-negative coefficients.

*GP partitioning 2023* models every quantity so (a posynomial once multiplied out). Its coefficients are published only
as binary files; ours are fitted to the published rows by its own criterion, least squares of the values. Kept to
reproduce that paper; `docs/method/models.md` compares the errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dovetail.platform.quantity import LEVELS, Floats
from dovetail.platform.schema import Limits, TomlTable, shipped


@dataclass(frozen=True, slots=True)
class FactorModel:
    """value = product over LEVELS of sum over powers of coefficient * variable ** power; `mape` is that on its own rows."""

    name: str
    unit: str
    source: str
    rows: int
    mape: float
    coefficients: tuple[tuple[float, ...], ...]

    def values(self, points: tuple[Floats, ...]) -> Floats:
        """The quantity at points given variable by variable."""
        product = np.ones(1)
        for variable, coefficients in zip(points, self.coefficients, strict=True):
            product = product * np.polynomial.polynomial.polyval(variable, coefficients)
        return np.asarray(product, dtype=np.float64)


@lru_cache(maxsize=16)
def factor_model(name: str) -> FactorModel:
    """A shipped model in the authors' form by name."""
    return parse_factors(shipped("models/published", name))


def parse_factors(table: TomlTable) -> FactorModel:
    """A checked model from the entries of its file."""
    table.check_keys(("version", "name", "unit", "source", "rows", "mape", "factors"))
    table.check_version()
    factors = table.table("factors")
    factors.check_keys(LEVELS)
    return FactorModel(table.text("name"), table.text("unit"), table.text("source"),
                       int(table.plain_number("rows", Limits(1, 1e9, "rows"))), table.plain_number("mape", Limits(0, 100, "")),
                       tuple(tuple(float(c) for c in factors.values[name]) for name in LEVELS))
