"""Transfer times of a link from measured sizes, per direction: a line, and a line that never falls below a floor."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from dovetail.cost.fitting.nonnegative import fit_dictionary
from dovetail.cost.fitting.rows import SOURCE, Columns, divisions, fold_numbers
from dovetail.cost.fitting.scatter import errors_of
from dovetail.cost.fitting.text import HEAD_LINK, error_table
from dovetail.hardware.shares import Floats
from dovetail.platform.link_model import LinkModel, Transfer
from dovetail.platform.quantity import Form
from dovetail.platform.schema import VERSION

FILE = "pcie_gen2x4_transfer.csv"
NAME = "pcie-gen2x4"
DIRECTIONS = {"a": "latency_a_ms", "b": "latency_b_ms"}
COLUMNS = ("kib", *DIRECTIONS.values())


def transfers(columns: Columns) -> tuple[Floats, dict[str, Floats]]:
    """Sizes in bytes and seconds per direction."""
    return columns["kib"] * 1024, {name: columns[column] * 1e-3 for name, column in DIRECTIONS.items()}


def fit_link(columns: Columns) -> LinkModel:
    """Both directions, with the errors of rows left out, a fifth at a time."""
    sizes, times = transfers(columns)
    order = np.argsort(sizes, kind="stable")
    sizes, times = sizes[order], {name: seconds[order] for name, seconds in times.items()}
    left_out = {form: {name: np.empty(len(sizes)) for name in times} for form in Form}
    for name, seconds in times.items():
        for seen, kept in divisions(sizes[:, None]):
            model = fit_transfer(sizes[seen], seconds[seen])
            for form in Form:
                left_out[form][name][kept] = model.seconds(sizes[kept], form)
    measured = np.concatenate([times[name] for name in times])
    folds = np.concatenate([fold_numbers(sizes[:, None])] * len(times))
    errors = {form: errors_of(np.concatenate([left_out[form][name] for name in times]), measured, folds) for form in Form}
    return LinkModel(NAME, "pcie", SOURCE, len(measured), (float(sizes[0]), float(sizes[-1])),
                     {name: fit_transfer(sizes, seconds) for name, seconds in times.items()}, errors, sizes, left_out)


def fit_transfer(sizes: Floats, seconds: Floats) -> Transfer:
    """Both forms; the division into transfers at the floor and on the line is the one that deviates least."""
    line = fit_line(sizes, seconds)
    order = np.argsort(sizes)
    size, time = sizes[order], seconds[order]
    options: list[tuple[float, Transfer]] = []
    for split in range(1, len(size) - 2):
        model = Transfer(*line, float(np.median(time[:split])), *fit_line(size[split:], time[split:]))
        options.append((float(np.abs(model.seconds(size, Form.EVALUATION) / time - 1).mean()), model))
    return min(options, key=lambda o: o[0])[1] if options else Transfer(*line, 0.0, *line)


def fit_line(sizes: Floats, seconds: Floats) -> tuple[float, float]:
    """Start (s) and seconds per byte of least relative deviation."""
    start, per_byte = fit_dictionary(np.stack([np.ones_like(sizes), sizes], axis=1), seconds)
    return float(start), float(per_byte)


def link_text(model: LinkModel) -> str:
    """The text of a link model's file; `parse_link_model` reads it back."""
    lines = [HEAD_LINK, f"version = {VERSION}", f'name = "{model.name}"', f'device = "{model.device}"',
             f'source = "{model.source}"', f"rows = {model.rows}",
             f"sizes_bytes = [{', '.join(f'{size:.0f}' for size in model.sizes_bytes)}]"]
    for form, errors in model.errors.items():
        lines += ["", f"[{form.value}]", f"errors = {error_table(errors)}"]
    for name, transfer in model.directions.items():
        lines += ["", "[[direction]]", f'name = "{name}"', *(f"{k} = {v:.6g}" for k, v in asdict(transfer).items()),
                  *(f"left_out_{form}_s = [{', '.join(f'{v:.5g}' for v in model.left_out[form][name])}]" for form in Form)]
    return "\n".join(lines) + "\n"
