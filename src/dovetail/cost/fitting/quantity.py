"""One quantity from rows to a model: physics, posynomials with a cross-validated number of terms, correction table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dovetail.cost.estimate import Floats, Ints
from dovetail.cost.fitting.dictionary import fit_dictionary
from dovetail.cost.fitting.kriging import fit_table
from dovetail.cost.fitting.recipes import Recipe
from dovetail.cost.fitting.rows import LEVEL_COLUMNS, SOURCE, Columns, divisions
from dovetail.cost.fitting.scatter import errors_of
from dovetail.cost.fitting.softmax import fit_softmax
from dovetail.cost.predict import Layers
from dovetail.platform.quantity import BASE_VARIABLES, Form, Posynomial, QuantityModel

ABSENT = -700.0
"""Logarithm of the coefficient of a term that the fit left out: e to this power is nothing."""
TOLERANCE = 1.01
"""A smaller number of terms is taken when its error is within this factor of the best."""

Tick = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rows:
    """Usable rows of one quantity: the layers, their level numbers, their values."""

    layers: Layers
    index: Ints
    value: Floats

    def where(self, keep: np.ndarray) -> Rows:
        chosen = Layers(*(getattr(self.layers, v)[keep] for v in ("side", "channels", "kernel", "filters")))
        return Rows(chosen, self.index[keep], self.value[keep])

    @property
    def weights(self) -> Floats:
        return self.layers.channels * self.layers.kernel**2 * self.layers.filters

    @property
    def points(self) -> Floats:
        return np.stack([self.layers.side, self.layers.channels, self.layers.kernel, self.layers.filters], axis=1)


def layers_of(columns: Columns) -> Layers:
    """The layers of measured rows."""
    return Layers(*(columns[c] for c in LEVEL_COLUMNS))


def usable_rows(recipe: Recipe, columns: Columns) -> tuple[Rows, tuple[Floats, ...]]:
    """Rows that tell the quantity, and the levels of the grid they lie on (of all rows, usable or not)."""
    layers, value = layers_of(columns), recipe.value(columns)
    levels = tuple(np.unique(columns[c]) for c in LEVEL_COLUMNS)
    index = np.stack([np.searchsorted(v, columns[c]) for v, c in zip(levels, LEVEL_COLUMNS, strict=True)], axis=1)
    return Rows(layers, index.astype(np.int64), value).where(recipe.usable(value)), levels


def fit_quantity(recipe: Recipe, columns: Columns, tick: Tick = lambda stage: None) -> QuantityModel:
    """The model of a quantity with the errors of 5-fold cross-validation."""
    rows, levels = usable_rows(recipe, columns)
    tick(f"{recipe.name}: terms")
    terms, posynomial_out = _choose_terms(recipe, rows)
    tick(f"{recipe.name}: cross-validation")
    errors = {Form.EVALUATION: errors_of(held_out_evaluation(recipe, rows, levels, terms), rows.value)}
    if posynomial_out is not None:
        errors[Form.POSYNOMIAL] = errors_of(posynomial_out, rows.value)
    tick(f"{recipe.name}: all rows")
    physics = fit_physics(recipe, rows)
    kernels = {} if posynomial_out is None else fit_posynomials(recipe, rows, terms or 1)
    grid = np.indices([len(v) for v in levels]).reshape(len(levels), -1).T
    everywhere = Layers(*(values[grid[:, i]] for i, values in enumerate(levels)))
    table = np.log(_evaluated(recipe, rows, levels, terms, grid, everywhere) / physics.at(everywhere.logs(BASE_VARIABLES)))
    shape = tuple(len(v) for v in levels)
    seen = np.zeros(shape, dtype=np.bool_)
    seen[tuple(rows.index.T)] = True
    return QuantityModel(recipe.name, recipe.device, recipe.quantity, recipe.unit, recipe.description, SOURCE, recipe.treatment,
                         len(rows.value), physics, recipe.variables if kernels else (), kernels, levels,
                         table.reshape(shape), seen, recipe.bound, errors)


def fit_physics(recipe: Recipe, rows: Rows) -> Posynomial:
    """Non-negative coefficients of the recipe's physical terms."""
    exponents = np.array([[term.get(v, 0.0) for v in BASE_VARIABLES] for term in recipe.physics])
    features = np.exp(rows.layers.logs(BASE_VARIABLES) @ exponents.T)
    if len(recipe.physics) == 1:  # a level alone: its middle
        coefficients = np.array([np.median(rows.value / features[:, 0])])
    else:
        coefficients = fit_dictionary(features, rows.value)
    return Posynomial(logarithms(coefficients), exponents)


def logarithms(coefficients: Floats) -> Floats:
    """Natural logarithms of coefficients, ABSENT for those that are zero."""
    return np.where(coefficients > 0, np.log(np.maximum(coefficients, 1e-300)), ABSENT)


def fit_posynomials(recipe: Recipe, rows: Rows, terms: int) -> dict[int, Posynomial]:
    """One posynomial per measured kernel size."""
    logs = rows.layers.logs(recipe.variables)
    return {int(k): fit_softmax(logs[rows.layers.kernel == k], rows.value[rows.layers.kernel == k], terms)
            for k in np.unique(rows.layers.kernel)}


def posynomials_at(recipe: Recipe, kernels: dict[int, Posynomial], layers: Layers) -> Floats:
    """Values of the posynomials of the layers' own kernel sizes."""
    logs, values = layers.logs(recipe.variables), np.empty(len(layers.side))
    for kernel, posynomial in kernels.items():
        values[layers.kernel == kernel] = posynomial.at(logs[layers.kernel == kernel])
    return values


def _choose_terms(recipe: Recipe, rows: Rows) -> tuple[int | None, Floats | None]:
    """The number of terms that predicts unseen rows best, the smallest of equals, and those predictions."""
    tried: list[tuple[float, int, Floats]] = []
    for terms in recipe.terms:
        predicted = np.empty(len(rows.value))
        for seen, kept in divisions(rows.points):
            kernels = fit_posynomials(recipe, rows.where(seen), terms)
            predicted[kept] = posynomials_at(recipe, kernels, rows.where(kept).layers)
        tried.append((float(np.abs(predicted / rows.value - 1).mean()), terms, predicted))
    if not tried:
        return recipe.base_terms, None
    best = min(tried)[0]
    _, terms, predicted = next(t for t in tried if t[0] <= TOLERANCE * best)
    return terms, predicted


def held_out_evaluation(recipe: Recipe, rows: Rows, levels: tuple[Floats, ...], terms: int | None) -> Floats:
    """Every row predicted by a table fitted without its fold."""
    predicted = np.empty(len(rows.value))
    for seen, kept in divisions(rows.points):
        unseen = rows.where(kept)
        predicted[kept] = _evaluated(recipe, rows.where(seen), levels, terms, unseen.index, unseen.layers)
    return predicted


def _evaluated(recipe: Recipe, rows: Rows, levels: tuple[Floats, ...], terms: int | None, wanted: Ints, layers: Layers) -> Floats:
    """The quantity at grid points: the best formula there is, times the smoothed table of what it leaves over."""
    physics = fit_physics(recipe, rows)
    here, there = (physics.at(points.logs(BASE_VARIABLES)) for points in (rows.layers, layers))
    base = (here, there)
    if terms is not None:
        kernels = fit_posynomials(recipe, rows, terms)
        base = (posynomials_at(recipe, kernels, rows.layers), posynomials_at(recipe, kernels, layers))
    left = fit_table(rows.index, np.log(rows.value / base[0]), rows.weights, levels, recipe.smoothing, wanted)
    return np.asarray(there * np.exp(np.clip(left + np.log(base[1] / there), -recipe.bound, recipe.bound)), dtype=np.float64)
