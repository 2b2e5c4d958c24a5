"""Shipped models scored on measured rows: how far every prediction is off, and whether its fit had seen the rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dovetail.cost.estimate import Flags, Floats
from dovetail.cost.fitting.link import COLUMNS, DIRECTIONS, NAME, transfers
from dovetail.cost.fitting.link import FILE as LINK_FILE
from dovetail.cost.fitting.quantity import Tick, fit_quantity, layers_of
from dovetail.cost.fitting.recipes import RECIPES, Recipe
from dovetail.cost.fitting.rows import FILES, LEVEL_COLUMNS, read_rows
from dovetail.cost.predict import evaluation_values, posynomial_values, seen_in_fit
from dovetail.errors import UsageError
from dovetail.platform.link_model import link_model
from dovetail.platform.quantity import Errors, Form, quantity_model

CROSS_VALIDATED = "cross-validated"
SCORED = "scored"


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of one form of one quantity over some rows; |predicted - measured| / measured.

    `in_sample`: the shipped model was fitted on these rows. `how` says whether the shipped model was scored here, or
    its recorded 5-fold cross-validation on exactly these rows is repeated.
    """

    device: str
    quantity: str
    kind: str
    mape: float
    p90: float
    rows: int
    in_sample: bool
    how: str


def validate(folder: Path, refit: Tick | None = None) -> list[Score]:
    """Scores of every shipped model whose file of rows lies in the folder.

    Rows the fit had not seen are scored with the shipped model. Where all rows of the fit are there, its
    cross-validated errors are given as well: they are those of rows each fold had not seen. With `refit`, which is told
    what is being fitted, the cross-validation is done again, on whatever rows there are.
    """
    if not any((folder / name).is_file() for name in (*FILES.values(), LINK_FILE)):
        raise UsageError(f"{folder}: none of {', '.join((*FILES.values(), LINK_FILE))} is there; "
                         "--data must name a folder with at least one of them")
    scores: list[Score] = []
    for recipe in RECIPES:
        if (folder / FILES[recipe.device]).is_file():
            scores += _quantity_scores(recipe, folder / FILES[recipe.device], refit)
    if (folder / LINK_FILE).is_file():
        scores += _link_scores(folder / LINK_FILE)
    return scores


def _quantity_scores(recipe: Recipe, path: Path, refit: Tick | None) -> Iterator[Score]:
    columns = read_rows(path, (*LEVEL_COLUMNS, *recipe.columns))
    value = recipe.value(columns)
    usable = recipe.usable(value)
    value, layers = value[usable], layers_of({name: column[usable] for name, column in columns.items()})
    model = quantity_model("measured", recipe.name)
    seen = seen_in_fit(model, layers)
    again = None if refit is None else fit_quantity(recipe, columns, refit)
    predictors = {Form.POSYNOMIAL: posynomial_values, Form.EVALUATION: evaluation_values}
    for form in Form:
        if form in model.errors:
            predicted = predictors[form](model, layers)
            recorded = None if again is not None else model.errors[form]
            yield from _scores(recipe.device, recipe.quantity, form, predicted, value, seen, model.rows, recorded)
            if again is not None:
                errors = again.errors[form]
                yield Score(recipe.device, recipe.quantity, form.value, errors.mean, errors.p90, again.rows, False,
                            CROSS_VALIDATED)


def _link_scores(path: Path) -> Iterator[Score]:
    columns = read_rows(path, COLUMNS)
    model = link_model(NAME)
    sizes, times = transfers(columns)
    # Ten sizes are all there is: the same sizes are the same rows.
    seen = np.concatenate([(sizes >= model.box_bytes[0]) & (sizes <= model.box_bytes[1])] * len(times))
    for form in Form:
        predicted = np.concatenate([model.directions[d].seconds(sizes, form) for d in DIRECTIONS])
        measured = np.concatenate([times[d] for d in DIRECTIONS])
        yield from _scores("pcie", "latency", form, predicted, measured, seen, model.rows, model.errors[form])


def _scores(device: str, quantity: str, form: Form, predicted: Floats, value: Floats, seen: Flags, fitted_rows: int,
            recorded: Errors | None) -> Iterator[Score]:
    """Unseen rows; rows of the fit; and, where those are complete, their cross-validation."""
    error = np.abs(predicted / value - 1)
    for in_sample in (False, True):
        part = error[seen == in_sample]
        if len(part):
            yield Score(device, quantity, form.value, float(part.mean()), float(np.percentile(part, 90)), len(part), in_sample,
                        SCORED)
    if recorded is not None and seen.sum() == fitted_rows:
        yield Score(device, quantity, form.value, recorded.mean, recorded.p90, fitted_rows, False, CROSS_VALIDATED)


def score_json(score: Score) -> dict[str, str | float | int | bool]:
    """A score as `validate-models --json` states it."""
    return {"device": score.device, "quantity": score.quantity, "kind": score.kind, "mape": score.mape, "p90": score.p90,
            "rows": score.rows, "in_sample": score.in_sample}


def score_table(scores: Sequence[Score]) -> str:
    """The scores as a table for people."""
    lines = [f"{'device':<9}{'quantity':<10}{'form':<12}{'mean':>8}{'p90':>8}{'rows':>7}  rows were"]
    for s in scores:
        what = s.how if s.how == CROSS_VALIDATED else "in the fit" if s.in_sample else "not in the fit"
        lines.append(f"{s.device:<9}{s.quantity:<10}{s.kind:<12}{s.mape:>8.2%}{s.p90:>8.2%}{s.rows:>7,}  {what}")
    note = "|predicted - measured| / measured; cross-validated: five folds, each predicted by a fit without it"
    return "\n".join([*lines, "", note])
