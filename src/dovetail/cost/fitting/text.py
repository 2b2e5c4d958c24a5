"""Fitted models as the text of their files."""

from __future__ import annotations

import numpy as np

from dovetail.cost.fitting.rows import FILES
from dovetail.hardware.shares import Floats
from dovetail.platform.quantity import BASE_VARIABLES, LEFT_OUT_UNIT, LEVELS, Errors, Form, Posynomial, QuantityModel, pack_seen
from dovetail.platform.schema import VERSION
from dovetail.words import counted

HEAD = """\
# Written by python -m dovetail.cost.fitting; do not edit by hand.
# physics    = sum over terms of exp(log_coefficient) * product of variable ** exponent
# posynomial = the same form, one per kernel size, with real exponents
# evaluation = physics * exp(correction), interpolated between levels in their logarithms, |correction| <= bound
# bands: for slices of the rows, a middle prediction and the 5th, 50th, 95th percentile of measured / predicted
# errors are |predicted - measured| / measured of 5-fold cross-validation; low, high: 5th, 95th percentile of measured / predicted
# left_out: log(what a fit without the row's fold predicts / what this one does) / 0.0005
# scatter: rows by [measured, predicted] cell of a grid; cell i starts at 10 ** (start + i * step)
# coverage: part of the rows within the 90 % interval, as the other folds give it
"""


HEAD_LINK = """\
# Written by python -m dovetail.cost.fitting; do not edit by hand.
# posynomial: line_start_s + size_bytes * line_s_per_byte
# evaluation: max(floor_s, start_s + size_bytes * s_per_byte)
# errors as in the quantity models: rows left out, a fifth at a time; left_out: what fits without them predict
"""


def quantity_text(model: QuantityModel) -> str:
    """The text of a quantity model's file; `parse_quantity` reads it back."""
    lines = [
        HEAD, f"version = {VERSION}", *(f'{key} = "{getattr(model, key)}"' for key in
                                        ("name", "device", "quantity", "unit", "description", "source", "treatment")),
        f"rows = {model.rows}", "", "# measured values; the box is from the first to the last; sides in pixels", "[levels]",
        *(f"{name} = {_row(values, 'g')}" for name, values in zip(LEVELS, model.levels, strict=True)),
        "", f"# exponents of {', '.join(BASE_VARIABLES)}", "[physics]", *posynomial_lines(model.physics)]
    lines += ["", "[posynomial]", f"variables = {list(model.variables)}".replace("'", '"'),
              f"errors = {error_table(model.errors[Form.POSYNOMIAL])}", *_left_out_lines(model.left_out[Form.POSYNOMIAL])]
    for kernel, posynomial in model.posynomials.items():
        lines += ["", "[[posynomial.kernel]]", f"kernel = {kernel}", *posynomial_lines(posynomial)]
    lines += ["", "[evaluation]", f"errors = {error_table(model.errors[Form.EVALUATION])}", f"bound = {model.bound:.6g}",
              "# bit mask of the combinations that were measured, in the order of the table", f'seen = "{pack_seen(model.seen)}"',
              "# [side][channels][kernel][filters]", "correction = ["]
    for side in model.correction:
        lines.append("  [")
        for channels in side:
            lines += ["    [", *(f"      {_row(kernel, '.3f')}," for kernel in channels), "    ],"]
        lines.append("  ],")
    return "\n".join([*lines, "]", *_left_out_lines(model.left_out[Form.EVALUATION])]) + "\n"


def _left_out_lines(table: Floats) -> list[str]:
    """Whole numbers of LEFT_OUT_UNIT, one line per side and number of channels."""
    whole = np.rint(table / LEFT_OUT_UNIT).astype(int)
    rows = [f"  [{', '.join(str(channels.tolist()).replace(' ', '') for channels in side)}]," for side in whole]
    return ["left_out = [", *(row.replace("]],", "]],\n  ") for row in rows), "]"]


def _row(values: Floats, form: str) -> str:
    return f"[{', '.join(format(float(v) + 0.0, form) for v in values)}]"


def error_table(errors: Errors) -> str:
    """Errors as an inline table."""
    keys = ("mean", "p50", "p90", "p95", "low", "high")
    numbers = [f"{key} = {getattr(errors, key):.5f}" for key in keys]
    bands = ", ".join(f"[{', '.join(f'{v:.4g}' for v in band)}]" for band in errors.bands)
    inside = [] if errors.coverage is None else [f"coverage = {errors.coverage:.4f}"]
    parts = [*numbers, *inside, f"bands = [{bands}]"]
    if (scatter := errors.scatter) is not None:
        cells = str([list(cell) for cell in scatter.cells]).replace(" ", "")
        parts.append(f"scatter = {{ start = {scatter.start:.4f}, step = {scatter.step:.6g}, cells = {cells} }}")
    return "{ " + ", ".join(parts) + " }"


def posynomial_lines(posynomial: Posynomial) -> list[str]:
    """Coefficients and exponents."""
    return [f"log_coefficients = {_row(posynomial.log_coefficients, '.7g')}", "exponents = [",
            *(f"  {_row(row, '.6g')}," for row in posynomial.exponents), "]"]


def summary(model: QuantityModel) -> str:
    """One line of errors for the terminal."""
    parts = [f"{form} {errors.mean:.2%} (p90 {errors.p90:.2%})" for form, errors in model.errors.items()]
    return f"{model.name}: {counted(model.rows, 'row')} of {FILES[model.device]}, {', '.join(parts)}"

