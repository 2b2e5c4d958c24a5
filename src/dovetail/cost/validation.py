"""Shipped models scored on measured rows: how far every prediction is off rows its fit had not seen.

A row that the fit has not seen is predicted by the shipped model. A row of the fit is predicted by one of the five
fits that were made without it, whose predictions the model's file holds. So every row is judged by a model that never saw
it, however many rows of whatever origin there are; how the shipped model does on rows of its own fit is told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dovetail.cost.fitting.link import COLUMNS, DIRECTIONS, NAME, transfers
from dovetail.cost.fitting.link import FILE as LINK_FILE
from dovetail.cost.fitting.quantity import Tick, fit_quantity, layers_of
from dovetail.cost.fitting.recipes import CONCAVE, RECIPES, FitRecipe
from dovetail.cost.fitting.rows import FILES, LEVEL_COLUMNS, Columns, headings, read_rows
from dovetail.cost.fitting.scatter import covered
from dovetail.cost.predict import inside_box, left_out_values, predict, seen_in_fit
from dovetail.errors import UsageError
from dovetail.hardware.shares import Flags, Floats
from dovetail.platform.link_model import link_model
from dovetail.platform.quantity import Errors, Form, quantity_model
from dovetail.words import counted, plural

FEWEST_REFIT = 50
"""Rows of a quantity that can be cross-validated among themselves."""


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of one form of one quantity over some rows; |predicted - measured| / measured.

    `in_sample`: the rows were among those of the fit that predicts them. `known` counts the rows of the shipped model's
    fit, `outside` those beyond its box; `coverage` is the part of the rows in their 90 % interval.
    `coarse`: a posynomial of a quantity that levels off, there for optimisers that need the form.
    """

    device: str
    quantity: str
    kind: str
    mape: float
    p90: float
    rows: int
    in_sample: bool
    known: int
    outside: int
    coverage: float
    coarse: bool = False


@dataclass(frozen=True, slots=True)
class Validation:
    """`scores` of rows as unseen, one per device, quantity and form; `fit`: the shipped models on rows of their own fit.

    `notes` say what was left out and why.
    """

    scores: tuple[Score, ...]
    fit: tuple[Score, ...]
    notes: tuple[str, ...]


def validate(folder: Path, refit: Tick | None = None) -> Validation:
    """Scores of every shipped model whose file of rows lies in the folder.

    A file without rows, or a quantity without its column, is left out with a note. With `refit`, which is told what is
    being fitted, the rows that are there are cross-validated among themselves in place of scoring the shipped models.

    Raises:
        UsageError: no file is there, none has rows, or a cell is no number.
    """
    names = (*FILES.values(), LINK_FILE)
    present = [name for name in names if (folder / name).is_file()]
    if not present:
        raise UsageError(f"{folder}: none of {', '.join(names)} is there; --data must name a folder with at least one of them")
    scores, notes = list[Score](), list[str]()
    for recipe in RECIPES:
        name = FILES[recipe.device]
        if name not in present:
            continue
        missing = _missing(folder / name, (*LEVEL_COLUMNS, *recipe.columns))
        if missing:
            notes.append(f"{recipe.name}: left out, {name} {missing}")
            continue
        columns = read_rows(folder / name, (*LEVEL_COLUMNS, *recipe.columns))
        _check_layers(folder / name, columns)
        found = list(_quantity_scores(recipe, columns, refit))
        scores += found
        if not found:
            notes.append(f"{recipe.name}: left out, no row of {name} tells it ({recipe.treatment})")
    if LINK_FILE in present:
        missing = _missing(folder / LINK_FILE, COLUMNS)
        if missing:
            notes.append(f"{NAME}: left out, {LINK_FILE} {missing}")
        else:
            scores += _link_scores(read_rows(folder / LINK_FILE, COLUMNS))
    if not scores:
        raise UsageError(f"{folder}: nothing can be scored; {'; '.join(notes)}")
    return Validation(tuple(s for s in scores if not s.in_sample), tuple(s for s in scores if s.in_sample), tuple(notes))


def _missing(path: Path, columns: Sequence[str]) -> str:
    """What a file lacks for these columns; nothing where it lacks nothing."""
    names, rows = headings(path)
    absent = [c for c in columns if c not in names]
    if absent:
        return f"has no column {', '.join(absent)}"
    return "" if rows else "has no rows"


def _check_layers(path: Path, columns: Columns) -> None:
    for name in LEVEL_COLUMNS:
        low = np.flatnonzero(columns[name] < 1)
        if len(low):
            raise UsageError(f"{path}: row {low[0] + 2}, column {name}: {columns[name][low[0]]:g} is not possible; "
                             "sizes of a layer start at 1")


def _quantity_scores(recipe: FitRecipe, columns: Columns, refit: Tick | None) -> Iterator[Score]:
    value = recipe.value(columns)
    usable = recipe.usable(value) & np.isfinite(value)
    if not usable.any():
        return
    if refit is not None and usable.sum() < FEWEST_REFIT:
        known = int(usable.sum())
        raise UsageError(f"{recipe.name}: {counted(known, 'row')} {plural(known, 'tells', 'tell')} it, too few to "
                         f"cross-validate; bring at least {FEWEST_REFIT}, or leave out --refit")
    model = quantity_model("measured", recipe.name) if refit is None else fit_quantity(recipe, columns, refit)
    value, layers = value[usable], layers_of({name: column[usable] for name, column in columns.items()})
    seen, inside = seen_in_fit(model, layers), inside_box(model, layers)
    for form in (Form.POSYNOMIAL, Form.EVALUATION):
        whose = (recipe.device, recipe.quantity, form.value)
        coarse = form is Form.POSYNOMIAL and recipe.name in CONCAVE
        found = predict(model, layers, form)
        unseen = left_out_values(model, layers, form)
        covers = (value >= found.low / found.value * unseen) & (value <= found.high / found.value * unseen)
        yield _score(whose, unseen, value, seen, inside, covers, False, coarse)
        if seen.any():
            own = covered(model.errors[form], found.value, value)
            yield _score(whose, found.value[seen], value[seen], seen[seen], inside[seen], own[seen], True, coarse)


def _link_scores(columns: Columns) -> Iterator[Score]:
    model = link_model(NAME)
    sizes, times = transfers(columns)
    both = np.concatenate([sizes] * len(times))
    measured = np.concatenate([times[d] for d in DIRECTIONS])
    keep = (measured > 0) & (both > 0)
    seen = np.isin(both, model.sizes_bytes)[keep]
    inside = ((both >= model.box_bytes[0]) & (both <= model.box_bytes[1]))[keep]
    if not keep.any():
        return
    for form in (Form.POSYNOMIAL, Form.EVALUATION):
        whose = ("pcie", "latency", form.value)
        errors: Errors = model.errors[form]
        unseen = np.concatenate([model.left_out_seconds(d, sizes, form) for d in DIRECTIONS])[keep]
        shipped = np.concatenate([model.directions[d].seconds(sizes, form) for d in DIRECTIONS])[keep]
        value = measured[keep]
        yield _score(whose, unseen, value, seen, inside, covered(errors, unseen, value), False)
        if seen.any():
            own = covered(errors, shipped, value)
            yield _score(whose, shipped[seen], value[seen], seen[seen], inside[seen], own[seen], True)


def _score(whose: tuple[str, str, str], predicted: Floats, value: Floats, seen: Flags, inside: Flags, covers: Flags,
           in_sample: bool, coarse: bool = False) -> Score:
    error = np.abs(predicted / value - 1)
    return Score(*whose, float(error.mean()), float(np.percentile(error, 90)), len(error), in_sample, int(seen.sum()),
                 int((~inside).sum()), float(covers.mean()), coarse)


def _entry(score: Score) -> dict[str, str | float | int | bool]:
    return {"device": score.device, "quantity": score.quantity, "kind": score.kind, "mape": score.mape, "p90": score.p90,
            "rows": score.rows, "in_sample": score.in_sample}


def validation_json(found: Validation) -> dict[str, object]:
    """The scores as `validate-models --json` states them.

    `models` has one entry per device, quantity and form, none of rows a fit had seen; `coarse` the posynomials of
    quantities that level off; `fit` the shipped models on rows of their own fit; `intervals` how many rows of the entries
    before lie in their 90 % interval, and how many in and out of the box.
    """
    return {"models": [_entry(s) for s in found.scores if not s.coarse],
            "coarse": [_entry(s) for s in found.scores if s.coarse], "fit": [_entry(s) for s in found.fit],
            "intervals": [{"device": s.device, "quantity": s.quantity, "kind": s.kind, "coverage": s.coverage, "rows": s.rows,
                           "rows_of_the_fit": s.known, "rows_outside_the_box": s.outside} for s in found.scores],
            "notes": list(found.notes)}


def validation_table(found: Validation) -> str:
    """The scores as a table for people."""
    own = {(s.device, s.quantity, s.kind): s for s in found.fit}
    lines = [f"{'device':<9}{'quantity':<10}{'form':<13}{'mean':>8}{'p90':>8}{'rows':>7}{'in 90 %':>9}   "
             f"{'origin':<24}{'own fit':>8}"]
    for s in found.scores:
        mine = own.get((s.device, s.quantity, s.kind))
        kept = "" if mine is None else f"{mine.mape:.2%}"
        mark = "*" if s.coarse else ""
        lines.append(f"{s.device:<9}{s.quantity:<10}{s.kind + mark:<13}{s.mape:>8.2%}{s.p90:>8.2%}{s.rows:>7,}"
                     f"{s.coverage:>9.1%}   {_origin(s):<24}{kept:>8}".rstrip())
    notes = ["|predicted - measured| / measured, each row predicted by a fit that had not seen it: rows of the fit by the one of",
             "five fits without them, others by the shipped model. in 90 %: rows within their interval. own fit: the shipped",
             "model on rows it was fitted to. float32 layers on the TX2, 8-bit ones on the FPGA."]
    if any(s.coarse for s in found.scores):
        notes.append("* levels off as layers grow, which no posynomial does: for optimisers that need the form")
    return "\n".join([*lines, "", *notes, *(f"note: {note}" for note in found.notes)])


def _origin(score: Score) -> str:
    known = score.known
    text = "rows of the fit" if known == score.rows else f"{known:,} in the fit" if known else "not in the fit"
    return f"{text}, {score.outside:,} beyond" if score.outside else text
