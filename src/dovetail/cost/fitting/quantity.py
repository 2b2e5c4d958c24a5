"""One quantity from rows to a model: physics, posynomials with a cross-validated number of terms, correction table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.cost.fitting.kriging import fit_table
from dovetail.cost.fitting.nonnegative import fit_dictionary
from dovetail.cost.fitting.recipes import FitRecipe
from dovetail.cost.fitting.rows import LEVEL_COLUMNS, SOURCE, Columns, divisions, fold_numbers
from dovetail.cost.fitting.scatter import errors_of
from dovetail.cost.fitting.softmax import fit_softmax
from dovetail.cost.predict import SquareLayers, nearest_values
from dovetail.hardware.shares import Floats, Ints
from dovetail.platform.quantity import BASE_VARIABLES, Form, Posynomial, QuantityModel

ABSENT = -700.0
"""Logarithm of the coefficient of a term that the fit left out: e to this power is nothing."""
TOLERANCE = 1.01
"""A smaller number of terms is taken when its error is within this factor of the best."""

Tick = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Rows:
    """Usable rows of one quantity: the layers, their level numbers, their values."""

    layers: SquareLayers
    index: Ints
    value: Floats

    def where(self, keep: np.ndarray) -> Rows:
        return Rows(SquareLayers(*(values[keep] for values in self.layers.levels)), self.index[keep], self.value[keep])

    @property
    def weights(self) -> Floats:
        return self.layers.channels * self.layers.kernel**2 * self.layers.filters

    @property
    def points(self) -> Floats:
        return np.stack(self.layers.levels, axis=1)


def layers_of(columns: Columns) -> SquareLayers:
    """The layers of measured rows."""
    return SquareLayers(*(columns[c] for c in LEVEL_COLUMNS))


def usable_rows(recipe: FitRecipe, columns: Columns) -> tuple[Rows, tuple[Floats, ...]]:
    """Rows that tell the quantity, and the levels of the grid they lie on (of all rows, usable or not)."""
    layers, value = layers_of(columns), recipe.value(columns)
    levels = tuple(np.unique(columns[c]) for c in LEVEL_COLUMNS)
    index = np.stack([np.searchsorted(v, columns[c]) for v, c in zip(levels, LEVEL_COLUMNS, strict=True)], axis=1)
    return Rows(layers, index.astype(np.int64), value).where(recipe.usable(value)), levels


def fit_quantity(recipe: FitRecipe, columns: Columns, tick: Tick = lambda stage: None) -> QuantityModel:
    """The model of a quantity with the errors of 5-fold cross-validation."""
    return fit_and_predict(recipe, columns, tick)[0]


def fit_and_predict(recipe: FitRecipe, columns: Columns,
                    tick: Tick = lambda stage: None) -> tuple[QuantityModel, dict[Form, Floats]]:
    """The model of a quantity, and every usable row as each form predicts it without the row's fold."""
    rows, levels = usable_rows(recipe, columns)
    tick(f"{recipe.name}: terms")
    folds = [HeldOutRows(rows.where(seen), rows.where(kept), kept) for seen, kept in divisions(rows.points)]
    choice = _choose_terms(recipe, rows, folds)
    tick(f"{recipe.name}: cross-validation")
    held_out = {Form.EVALUATION: held_out_evaluation(recipe, rows, levels, folds, choice.by_fold),
                Form.POSYNOMIAL: choice.held_out}
    fold_of = fold_numbers(rows.points)
    errors = {form: errors_of(predicted, rows.value, fold_of) for form, predicted in held_out.items()}
    tick(f"{recipe.name}: all rows")
    physics, kernels = fit_physics(recipe, rows), fit_posynomials(recipe, rows, choice.terms)
    grid = np.indices([len(v) for v in levels]).reshape(len(levels), -1).T
    everywhere = SquareLayers(*(values[grid[:, i]] for i, values in enumerate(levels)))
    evaluated = _evaluated(recipe, rows, levels, kernels, grid, everywhere)
    table = np.log(evaluated / physics.at(everywhere.logs(BASE_VARIABLES)))
    shape = tuple(len(v) for v in levels)
    cells = tuple(rows.index.T)
    seen = np.zeros(shape, dtype=np.bool_)
    seen[cells] = True
    final = {Form.EVALUATION: evaluated.reshape(shape)[cells], Form.POSYNOMIAL: posynomials_at(recipe, kernels, rows.layers)}
    left_out = {form: np.zeros(shape) for form in final}
    for form, values in final.items():
        left_out[form][cells] = np.log(held_out[form] / values)
    model = QuantityModel(recipe.name, recipe.device, recipe.quantity, recipe.unit, recipe.description, SOURCE, recipe.treatment,
                          len(rows.value), physics, recipe.variables, kernels, levels, table.reshape(shape), seen, recipe.bound,
                          errors, left_out)
    return model, held_out


def fit_physics(recipe: FitRecipe, rows: Rows) -> Posynomial:
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


def fit_posynomials(recipe: FitRecipe, rows: Rows, terms: int) -> dict[int, Posynomial]:
    """One posynomial per measured kernel size."""
    logs = rows.layers.logs(recipe.variables)
    return {int(k): fit_softmax(logs[rows.layers.kernel == k], rows.value[rows.layers.kernel == k], terms)
            for k in np.unique(rows.layers.kernel)}


def posynomials_at(recipe: FitRecipe, kernels: dict[int, Posynomial], layers: SquareLayers) -> Floats:
    """Values of the posynomials of the layers' own kernel sizes, or of the nearest where few rows left one without any."""
    return nearest_values(kernels, recipe.variables, layers)[0]


@dataclass(frozen=True, slots=True)
class HeldOutRows:
    """Rows that are fitted, rows that are kept back, and which of all rows those are."""

    seen: Rows
    unseen: Rows
    kept: np.ndarray


@dataclass(frozen=True, slots=True)
class Choice:
    """The number of terms taken, every row as predicted without its fold, and the posynomials of each fold."""

    terms: int
    held_out: Floats
    by_fold: tuple[dict[int, Posynomial], ...]


def _choose_terms(recipe: FitRecipe, rows: Rows, folds: Sequence[HeldOutRows]) -> Choice:
    """The number of terms that predicts unseen rows best, the smallest of equals."""
    tried: list[tuple[float, Choice]] = []
    for terms in recipe.terms:
        predicted = np.empty(len(rows.value))
        by_fold = tuple(fit_posynomials(recipe, fold.seen, terms) for fold in folds)
        for fold, kernels in zip(folds, by_fold, strict=True):
            predicted[fold.kept] = posynomials_at(recipe, kernels, fold.unseen.layers)
        tried.append((float(np.abs(predicted / rows.value - 1).mean()), Choice(terms, predicted, by_fold)))
    best = min(error for error, _ in tried)
    return next(choice for error, choice in tried if error <= TOLERANCE * best)


def held_out_evaluation(recipe: FitRecipe, rows: Rows, levels: tuple[Floats, ...], folds: Sequence[HeldOutRows],
                        by_fold: Sequence[dict[int, Posynomial]]) -> Floats:
    """Every row predicted by a table fitted without its fold."""
    predicted = np.empty(len(rows.value))
    for fold, kernels in zip(folds, by_fold, strict=True):
        predicted[fold.kept] = _evaluated(recipe, fold.seen, levels, kernels, fold.unseen.index, fold.unseen.layers)
    return predicted


def _evaluated(recipe: FitRecipe, rows: Rows, levels: tuple[Floats, ...], kernels: dict[int, Posynomial], wanted: Ints,
               layers: SquareLayers) -> Floats:
    """The quantity at grid points: the better formula of the two, times the smoothed table of what it leaves over."""
    physics = fit_physics(recipe, rows)
    here, there = (physics.at(points.logs(BASE_VARIABLES)) for points in (rows.layers, layers))
    base = (here, there)
    if recipe.table_over is Form.POSYNOMIAL:
        base = (posynomials_at(recipe, kernels, rows.layers), posynomials_at(recipe, kernels, layers))
    left = fit_table(rows.index, np.log(rows.value / base[0]), rows.weights, levels, recipe.smoothing, wanted)
    return np.asarray(there * np.exp(np.clip(left + np.log(base[1] / there), -recipe.bound, recipe.bound)), dtype=np.float64)
