"""Plans need the layer without the loop it was measured in: terms told apart, and a table of the layer alone.

The rows of the Jetson TX2 time a whole loop: new random input (made on the CPU), new random weights, the
convolution, a power reading. In a sum of monomials these are different terms, so the fit itself tells them apart: `loop`
terms (a floor of 1 to 1.5 ms, and what grows with the input alone) predict the rows and are left out of plans. The table
is the measured evaluation model less the loop terms, held monotone, because more work never takes less time.

Energy of the layer is the rail's power times the layer's time. The rows give one power for a whole turn of the loop, and it
does not fall with the part of the turn that the layer takes, as it would if the rail rested meanwhile: the mean power is
taken to hold for the layer too.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dovetail.cost.fitting.nonnegative import fit_dictionary
from dovetail.cost.fitting.quantity import layers_of
from dovetail.cost.fitting.rows import SOURCE, Columns
from dovetail.cost.predict import SquareLayers, evaluation_values
from dovetail.hardware.shares import Floats
from dovetail.platform.fitted import VARIABLES, LayerTable, PosynomialModel, Term
from dovetail.platform.quantity import Errors, Form, QuantityModel

Dictionary = tuple[tuple[str, str, Mapping[str, float]], ...]
TX2_TERMS: Dictionary = (
    ("loop", "loop", {}),
    ("random_input", "loop", {"input_side": 2, "channels": 1}),
    ("random_input_root", "loop", {"input_side": 1, "channels": 0.5}),
    ("random_weights", "loop", {"kernel": 2, "channels": 1, "filters": 1}),
    ("macs", "layer", {"output_side": 2, "kernel": 2, "channels": 1, "filters": 1}),
    ("outputs", "layer", {"output_side": 2, "filters": 1}),
    ("windows", "layer", {"output_side": 2, "kernel": 2, "channels": 1}),
)
"""Multiply-adds, results written, window values gathered; and what the loop did besides."""

ASSUMPTION = "the rail draws while the layer runs what it draws on average over a turn of the measuring loop"

TABLE_BOUND = float(np.log(3.0))
"""A layer is never taken to be more than three times slower or faster than its terms say."""


def points_of(layers: SquareLayers) -> Floats:
    """VARIABLES of layers measured with stride 1 and no padding."""
    output = np.maximum(layers.side - layers.kernel + 1, 1.0)
    return np.stack([layers.side, output, layers.channels, layers.kernel, layers.filters], axis=1)


def monomials(points: Floats, exponents: Floats) -> Floats:
    """Every monomial (column) at every point (row); points are positive, one column per variable."""
    return np.exp(np.log(points) @ exponents.T)


def fit_processor(columns: Columns, name: str, description: str, latency: QuantityModel, power: QuantityModel,
                  energy_error: Errors) -> PosynomialModel:
    """A TX2 processor's layers without their loop, from its rows and the models fitted to them."""
    points = points_of(layers_of(columns))
    terms = fit_terms(points, columns["latency_ms"] * 1e-3)
    time_error = latency.errors[Form.EVALUATION]
    box = {v: (float(points[:, i].min()), float(points[:, i].max())) for i, v in enumerate(VARIABLES)}
    return PosynomialModel(name, description, SOURCE, len(points), (time_error.mean, time_error.p90),
                           (energy_error.mean, energy_error.p90), box, terms, layer_table(terms, latency, power))


def fit_terms(points: Floats, seconds: Floats) -> tuple[Term, ...]:
    """TX2_TERMS with the times that deviate least from the rows."""
    exponents = np.array([[term.get(v, 0.0) for v in VARIABLES] for _, _, term in TX2_TERMS])
    found = fit_dictionary(monomials(points, exponents), seconds)
    return tuple(Term(label, part, tuple(float(e) for e in row), float(s))
                 for (label, part, _), row, s in zip(TX2_TERMS, exponents, found, strict=True))


def layer_table(terms: tuple[Term, ...], measured: QuantityModel, power: QuantityModel) -> LayerTable:
    """The layer alone over the measured grid: its time, and the energy that the rail's power makes of it.

    What is left of a row after its loop is the less certain the smaller a part it is: the table follows it by the
    weight that minimises the expected square error, and the terms for the rest.
    """
    grid = np.indices([len(v) for v in measured.levels]).reshape(len(measured.levels), -1).T
    layers = SquareLayers(*(values[grid[:, i]] for i, values in enumerate(measured.levels)))
    points, shape = points_of(layers), tuple(len(v) for v in measured.levels)
    part_s = {part: sum((t.latency_s * monomials(points, np.array([t.exponents]))[:, 0] for t in terms if t.part == part),
                        np.zeros(len(points))) for part in ("loop", "layer")}
    total = evaluation_values(measured, layers)
    rest = np.maximum(total - part_s["loop"], part_s["layer"] * np.exp(-TABLE_BOUND))
    noise = measured.errors[Form.EVALUATION].mean * total
    trust = rest**2 / (rest**2 + noise**2)
    correction = np.clip(trust * np.log(rest / part_s["layer"]), -TABLE_BOUND, TABLE_BOUND)
    seconds = monotone((part_s["layer"] * np.exp(correction)).reshape(shape))
    watts = without_lag(evaluation_values(power, layers).reshape(shape))
    return LayerTable(measured.levels, np.log(seconds), np.log(monotone(seconds * watts)))


def without_lag(watts: Floats) -> Floats:
    """Power without what the rail still shows of the row before.

    Kernels, then filters were swept from small to large: the smallest of each came right after the largest and reads
    up to three times what its neighbour does. It is taken to draw no more than that neighbour.
    """
    found = watts.copy()
    found[:, :, 0] = np.minimum(found[:, :, 0], found[:, :, 1])
    found[..., 0] = np.minimum(found[..., 0], found[..., 1])
    return found


def monotone(seconds: Floats) -> Floats:
    """The nearest table that does not fall along any axis: the middle of its highest so far and its lowest from here."""
    rising, falling = seconds, seconds
    for axis in range(seconds.ndim):
        rising = np.maximum.accumulate(rising, axis=axis)
        falling = np.flip(np.minimum.accumulate(np.flip(falling, axis), axis=axis), axis)
    return np.sqrt(rising * falling)


def planning_text(model: PosynomialModel, floor: str) -> str:
    """The model as the text of its file."""
    lines = [
        "# Written by python -m dovetail.cost.fitting; do not edit by hand.",
        "# latency_s = sum over terms of latency_s * product of variable ** exponent; the table tells time and energy.",
        "# Terms of part `loop` belong to the measuring loop and are left out of plans.",
        f'name = "{model.name}"', 'formula = "posynomial"', f'description = "{model.description}"', f'source = "{model.source}"',
        f"rows = {model.rows}", f'floor = "{floor}"', f'assumption = "{ASSUMPTION}"', "",
        "# |predicted - measured| / measured of the whole loop, 5-fold cross-validation; energy: time x power", "[error]",
        f"latency_mean = {model.latency_error[0]:.4f}", f"latency_p90 = {model.latency_error[1]:.4f}",
        f"energy_mean = {model.energy_error[0]:.4f}", f"energy_p90 = {model.energy_error[1]:.4f}", "",
        "# smallest and largest value in the rows; sides in pixels", "[box]",
        *(f"{v} = [{model.box[v][0]:g}, {model.box[v][1]:g}]" for v in VARIABLES),
    ]
    for term in model.terms:
        exponents = ", ".join(f"{v} = {e:g}" for v, e in zip(VARIABLES, term.exponents, strict=True) if e)
        lines += ["", "[[term]]", f'name = "{term.name}"', f'part = "{term.part}"', f"exponents = {{ {exponents} }}",
                  f"latency_s = {term.latency_s:.6e}"]
    return "\n".join([*lines, *_table_lines(model.table)]) + "\n"


def _table_lines(table: LayerTable) -> list[str]:
    lines = ["", "# the layer without its loop at the measured levels; natural logarithms of seconds and joules (rail, idle "
             "included), [input_side][channels][kernel][filters]", "[layer_table]"]
    for name, values in zip(("input_side", "channels", "kernel", "filters"), table.levels, strict=True):
        lines.append(f"{name} = [{', '.join(f'{v:g}' for v in values)}]")
    for name, values in (("log_seconds", table.log_seconds), ("log_joules", table.log_joules)):
        lines.append(f"{name} = [")
        for side in values:
            lines.append("  [")
            for channels in side:
                lines += ["    [", *(f"      [{', '.join(f'{v:.3f}' for v in kernel)}]," for kernel in channels), "    ],"]
            lines.append("  ],")
        lines.append("]")
    return lines
