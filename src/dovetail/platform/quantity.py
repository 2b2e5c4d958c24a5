"""Models of one measured quantity of one device, as readable files: platform/models/SET/DEVICE-QUANTITY.toml.

A file holds three forms of the same quantity. `physics` is a sum of monomials whose terms mean something and that
may be followed outside of the measured box. `posynomials` are tighter, one per measured kernel size, for
optimisers that need that form. `correction` is a table of log(measured / physics) over the measured levels, for
evaluation. Each of the last two carries the errors of its own cross-validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dovetail.platform.schema import Limits, TomlTable, shipped, shipped_names

Floats = NDArray[np.float64]

LEVELS = ("side", "channels", "kernel", "filters")
"""What was varied: side of the square input in pixels, its channels, side of the square kernel, filters."""

BASE_VARIABLES = (*LEVELS, "output_side", "filter_tiles")
"""What terms may depend on: also the output's side (stride 1, no padding) and filters in tiles of 128, rounded up."""

FILTER_TILE = 128

LEFT_OUT_UNIT = 5e-4
"""Of the logarithms that `left_out` states as whole numbers."""

TINY = 1e-300

_LOG = Limits(-1e3, 1e3, "(natural logarithm)")
_FRACTION = Limits(0.0, 1e3, "(fraction)")


class Form(StrEnum):
    """Which of a file's models predicts."""

    POSYNOMIAL = "posynomial"
    EVALUATION = "evaluation"


@dataclass(frozen=True, slots=True)
class Scatter:
    """How rows lie around their predictions: (measured cell, predicted cell, rows) on a logarithmic grid.

    Cell i spans 10 ** (start + i * step) to 10 ** (start + (i + 1) * step).
    """

    start: float
    step: float
    cells: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Errors:
    """|predicted - measured| / measured on rows the fit had not seen, and the interval that covers nine of ten.

    `low` and `high` are the 5th and 95th percentile of measured / predicted. `bands` tell the same for slices of equal
    many rows: the slice's middle prediction, then the 5th, 50th and 95th percentile of measured / predicted in it.
    `coverage`: the part of the rows that lies in the interval of `ratio_interval` as rows of other folds give it.
    """

    mean: float
    p50: float
    p90: float
    p95: float
    low: float
    high: float
    bands: tuple[tuple[float, float, float, float], ...] = ()
    coverage: float | None = None
    scatter: Scatter | None = None


def ratio_interval(errors: Errors, predicted: Floats) -> tuple[Floats, Floats]:
    """The 5th and 95th percentile of measured / predicted at predictions of this size: between slices, and theirs at the ends.

    With one slice, or none, all predictions share one interval.
    """
    if len(errors.bands) < 2:
        return np.full(predicted.shape, errors.low), np.full(predicted.shape, errors.high)
    middle, low, _, high = np.log(np.maximum(np.array(errors.bands), TINY)).T
    at = np.log(np.maximum(predicted, TINY))
    return np.exp(np.interp(at, middle, low)), np.exp(np.interp(at, middle, high))


@dataclass(frozen=True, slots=True)
class Posynomial:
    """exp(log_coefficients + exponents @ log(variables)), summed over terms; one row of exponents per term."""

    log_coefficients: Floats
    exponents: Floats

    def at(self, logs: Floats) -> Floats:
        """Values at points given as natural logarithms of the variables, one point per row."""
        return np.asarray(np.exp(logs @ self.exponents.T + self.log_coefficients).sum(axis=1), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class QuantityModel:
    """A fitted quantity. `variables` name the columns of the posynomials' exponents; physics has all BASE_VARIABLES.

    `levels` are the measured values per LEVELS, `correction` has one axis for each; `seen` marks measured combinations.
    `bound` limits the correction's absolute value. `errors` are those of the two forms. `left_out` holds, for every
    measured combination, the logarithm of what a fit without its fold predicts over what this model does: with it, rows of
    the fit can be judged as honestly as others.
    """

    name: str
    device: str
    quantity: str
    unit: str
    description: str
    source: str
    treatment: str
    rows: int
    physics: Posynomial
    variables: tuple[str, ...]
    posynomials: Mapping[int, Posynomial]
    levels: tuple[Floats, ...]
    correction: Floats = field(repr=False)
    seen: NDArray[np.bool_] = field(repr=False)
    bound: float
    errors: Mapping[Form, Errors]
    left_out: Mapping[Form, Floats] = field(repr=False)

    @property
    def box(self) -> dict[str, tuple[float, float]]:
        """Smallest and largest measured value of every level."""
        return {name: (float(values[0]), float(values[-1])) for name, values in zip(LEVELS, self.levels, strict=True)}


def quantity_names(set_name: str) -> tuple[str, ...]:
    """Names of the shipped quantity models of a set."""
    return shipped_names(f"models/{set_name}")


@lru_cache(maxsize=64)
def quantity_model(set_name: str, name: str) -> QuantityModel:
    """A shipped quantity model by set and name."""
    return parse_quantity(shipped(f"models/{set_name}", name))


def parse_quantity(table: TomlTable) -> QuantityModel:
    """A checked model from the entries of its file."""
    table.check_keys(("version", "name", "device", "quantity", "unit", "description", "source", "treatment", "rows", "levels",
                      "physics", "evaluation", "posynomial"))
    table.check_version()
    axes = table.table("levels")
    axes.check_keys(LEVELS)
    levels = tuple(_numbers(axes, key) for key in LEVELS)
    shape = tuple(len(v) for v in levels)
    evaluation, posynomial = table.table("evaluation"), table.table("posynomial")
    evaluation.check_keys(("bound", "correction", "seen", "errors", "left_out"))
    posynomial.check_keys(("variables", "errors", "kernel", "left_out"))
    forms = {Form.EVALUATION: evaluation, Form.POSYNOMIAL: posynomial}
    variables = tuple(posynomial.values["variables"])
    kernels: dict[int, Posynomial] = {}
    for entry in posynomial.tables("kernel"):
        entry.check_keys(("kernel", "log_coefficients", "exponents"))
        kernels[int(entry.plain_number("kernel", Limits(1, 1e3, "pixels")))] = read_posynomial(entry, len(variables))
    return QuantityModel(
        table.text("name"), table.text("device"), table.text("quantity"), table.text("unit"), table.text("description"),
        table.text("source"), table.text("treatment"), int(table.plain_number("rows", Limits(1, 1e9, "rows"))),
        read_posynomial(table.table("physics"), len(BASE_VARIABLES)), variables, kernels, levels,
        _array(evaluation, "correction", shape), unpack_seen(evaluation.text("seen"), shape),
        evaluation.plain_number("bound", _LOG), {form: read_errors(entry) for form, entry in forms.items()},
        {form: _array(entry, "left_out", shape) * LEFT_OUT_UNIT for form, entry in forms.items()})


def pack_seen(seen: NDArray[np.bool_]) -> str:
    """Which combinations were measured, as hexadecimal digits of a bit mask in the order of the table."""
    return np.packbits(seen.ravel()).tobytes().hex()


def unpack_seen(text: str, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), dtype=np.uint8), count=int(np.prod(shape)))
    return bits.astype(np.bool_).reshape(shape)


def _numbers(table: TomlTable, key: str) -> Floats:
    values = table.values[key]
    if not isinstance(values, list) or not values or not all(isinstance(v, int | float) for v in values):
        table.fail(f"key {key} is {values!r}; a list of numbers is needed")
    return np.array(values, dtype=np.float64)


def _array(table: TomlTable, key: str, shape: tuple[int, ...]) -> Floats:
    found = np.array(table.values[key], dtype=np.float64)
    if found.shape != shape:
        table.fail(f"key {key} has shape {found.shape}; levels ask for {shape}")
    return found


def read_posynomial(table: TomlTable, variables: int) -> Posynomial:
    """A sum of monomials in so many variables from `log_coefficients` and `exponents`."""
    logs = _numbers(table, "log_coefficients")
    return Posynomial(logs, _array(table, "exponents", (len(logs), variables)))


def read_errors(table: TomlTable) -> Errors:
    """The cross-validated errors under the key `errors`."""
    entry = table.table("errors")
    keys = ("mean", "p50", "p90", "p95", "low", "high")
    entry.check_keys(keys, ("bands", "coverage", "scatter"))
    bands = entry.values.get("bands", [])
    if not all(isinstance(band, list) and len(band) == 4 for band in bands):
        entry.fail(f"key bands is {bands!r}; rows of four numbers are needed")
    mean, p50, p90, p95, low, high = (entry.plain_number(key, _FRACTION) for key in keys)
    return Errors(mean, p50, p90, p95, low, high, tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in bands),
                  entry.plain_number("coverage", _FRACTION) if "coverage" in entry.values else None, _scatter(entry))


def _scatter(errors: TomlTable) -> Scatter | None:
    if "scatter" not in errors.values:
        return None
    entry = errors.table("scatter")
    entry.check_keys(("start", "step", "cells"))
    cells = tuple((int(i), int(j), int(rows)) for i, j, rows in entry.values["cells"])
    return Scatter(entry.plain_number("start", _LOG), entry.plain_number("step", _LOG), cells)


@dataclass(frozen=True, slots=True)
class FactorModel:
    """The authors' own form: a product of one polynomial per variable of LEVELS, with non-negative coefficients.

    *GP partitioning 2023* models every quantity so (a posynomial once multiplied out). Its coefficients are published only as
    binary files; ours are fitted to the published rows by its own criterion, least squares of the values. Kept to reproduce
    that paper; `docs/method/models.md` compares the errors. `mape` is that on its own rows.
    """

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
