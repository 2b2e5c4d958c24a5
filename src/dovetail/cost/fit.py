"""Fits the shipped device models to published measurements: `python -m dovetail.cost.fit --data DIR -o MODELS`.

The measured rows of the Jetson TX2 time a whole loop: new random input (on the CPU), new random weights, the
convolution, a power reading. In a sum of monomials these are different terms, so the fit itself tells them apart:
`loop` terms are kept in the file, to predict the rows, and left out when a layer is planned.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from dovetail.cost.estimate import Floats
from dovetail.errors import UsageError
from dovetail.platform.fitted import VARIABLES, PosynomialModel, Term

FOLDS = 5
ROUNDS = 15
"""Re-weightings that turn least squares into least relative deviation, so that a few stalled rows do not bend the fit."""
FLOOR = 0.02
"""Relative deviation below which rows count alike."""

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

SOURCE = "SysIdentif repository of the authors of GP partitioning 2023, commit 4b4b4e4"


@dataclass(frozen=True, slots=True)
class Errors:
    """Relative deviation |predicted - true| / true in cross-validation."""

    mean: float
    p90: float


def read_columns(path: Path) -> dict[str, Floats]:
    """A CSV of numbers as columns."""
    if not path.is_file():
        raise UsageError(f"{path}: no such file; --data must name the folder with the published measurements")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}


def monomials(points: Floats, exponents: Floats) -> Floats:
    """Every monomial (column) at every point (row); points are positive, one column per variable."""
    return np.exp(np.log(points) @ exponents.T)


def fit_posynomial(features: Floats, target: Floats) -> Floats:
    """Non-negative coefficients that minimise the mean relative deviation |features @ x - target| / target."""
    scaled = features / target[:, None]
    scale = np.maximum(scaled.max(axis=0), np.finfo(np.float64).tiny)
    weight = np.ones(len(target))
    coefficients = np.zeros(features.shape[1])
    for _ in range(ROUNDS):
        coefficients = nnls(scaled / scale * weight[:, None], weight, maxiter=10_000)[0] / scale
        deviation = np.abs(scaled @ coefficients - 1.0)
        weight = 1.0 / np.sqrt(np.maximum(deviation, FLOOR))
    return coefficients


def cross_validate(features: Floats, target: Floats, folds: int = FOLDS) -> Errors:
    """Errors on rows the fit has not seen; the division into folds is seeded."""
    fold = np.random.default_rng(0).permutation(np.arange(len(target)) % folds)
    error = np.empty(len(target))
    for k in range(folds):
        seen, kept = fold != k, fold == k
        error[kept] = np.abs(features[kept] @ fit_posynomial(features[seen], target[seen]) / target[kept] - 1.0)
    return Errors(float(error.mean()), float(np.percentile(error, 90)))


def tx2_points(columns: Mapping[str, Floats]) -> Floats:
    """VARIABLES of the measured rows: square input, no padding, stride 1."""
    side, kernel = columns["hw"], columns["k"]
    return np.stack([side, side - kernel + 1, columns["c"], kernel, columns["n"]], axis=1)


def fit_tx2(columns: Mapping[str, Floats], name: str, description: str) -> PosynomialModel:
    """Time and energy of the TX2's convolutions from its measured rows."""
    exponents = np.array([[term.get(v, 0.0) for v in VARIABLES] for _, _, term in TX2_TERMS])
    points = tx2_points(columns)
    features = monomials(points, exponents)
    latency, energy = columns["latency_ms"] * 1e-3, columns["energy_j"]
    seconds, joules = fit_posynomial(features, latency), fit_posynomial(features, energy)
    time_error, energy_error = cross_validate(features, latency), cross_validate(features, energy)
    terms = tuple(Term(label, part, tuple(float(e) for e in row), float(s), float(j))
                  for (label, part, _), row, s, j in zip(TX2_TERMS, exponents, seconds, joules, strict=True))
    box = {v: (float(points[:, i].min()), float(points[:, i].max())) for i, v in enumerate(VARIABLES)}
    return PosynomialModel(name, description, SOURCE, len(latency), (time_error.mean, time_error.p90),
                           (energy_error.mean, energy_error.p90), box, terms)


def fit_transfer(size_bytes: Floats, seconds: Floats) -> tuple[float, float]:
    """Intercept (s) and rate (bytes per s) of transfer times, least squares: large transfers count most."""
    slope, intercept = np.polyfit(size_bytes, seconds, 1)
    return float(intercept), float(1.0 / slope)


def fit_dhm_power(columns: Mapping[str, Floats]) -> tuple[Floats, Errors]:
    """Watts = x0 + x1 * ALM + x2 * M20K over the DHM rows."""
    features = np.stack([np.ones_like(columns["alm"]), columns["alm"], columns["m20k"]], axis=1)
    return fit_posynomial(features, columns["power_w"]), cross_validate(features, columns["power_w"])


def posynomial_toml(model: PosynomialModel, floor: str) -> str:
    """The model as the text of its file."""
    lines = [
        "# Written by python -m dovetail.cost.fit; do not edit by hand.",
        "# latency_s = sum over terms of latency_s * product of variable ** exponent; energy_j alike, whole rail, idle included.",
        "# Terms of part `loop` belong to the measuring loop and are left out of plans.",
        f'name = "{model.name}"', 'formula = "posynomial"', f'description = "{model.description}"', f'source = "{model.source}"',
        f"rows = {model.rows}", f'floor = "{floor}"', "",
        "# |predicted - measured| / measured of the whole loop, 5-fold cross-validation; fractions", "[error]",
        f"latency_mean = {model.latency_error[0]:.4f}", f"latency_p90 = {model.latency_error[1]:.4f}",
        f"energy_mean = {model.energy_error[0]:.4f}", f"energy_p90 = {model.energy_error[1]:.4f}", "",
        "# smallest and largest value in the rows; sides in pixels", "[box]",
        *(f"{v} = [{model.box[v][0]:g}, {model.box[v][1]:g}]" for v in VARIABLES),
    ]
    for term in model.terms:
        exponents = ", ".join(f"{v} = {e:g}" for v, e in zip(VARIABLES, term.exponents, strict=True) if e)
        lines += ["", "[[term]]", f'name = "{term.name}"', f'part = "{term.part}"', f"exponents = {{ {exponents} }}",
                  f"latency_s = {term.latency_s:.6e}", f"energy_j = {term.energy_j:.6e}"]
    return "\n".join(lines) + "\n"


def fit_all(folder: Path, target: Path) -> list[str]:
    """Fit every model the folder has measurements for, write the files, and report one line each."""
    report: list[str] = []
    floors = {"cpu": "0.87 ms per measured loop plus random input and weights; the launch cost of a plan is assumed",
              "gpu": "1.4 ms per measured loop plus random input; the launch cost of a plan is assumed"}
    for processor, floor in floors.items():
        model = fit_tx2(read_columns(folder / f"jetson_tx2_{processor}_conv.csv"), f"tx2-{processor}",
                        f"Jetson TX2 {processor.upper()}, PyTorch convolution, float32, batch 1")
        (target / f"{model.name}.toml").write_text(posynomial_toml(model, floor), encoding="utf-8")
        report.append(f"{model.name}: {model.rows} rows, latency {model.latency_error[0]:.1%} "
                      f"(p90 {model.latency_error[1]:.1%}), energy {model.energy_error[0]:.1%} (p90 {model.energy_error[1]:.1%})")
    hardware = read_columns(folder / "cyclone10gx_dhm_conv.csv")
    watts, error = fit_dhm_power(hardware)
    fmax_hz = hardware["hw"] ** 2 * hardware["c"] * hardware["n"] / (hardware["latency_ms"] * 1e-3)
    middle = float(np.median(fmax_hz))
    report.append(f"cyclone10gx power: {watts[0]:.4f} W + {watts[1]:.3e} W/ALM + {watts[2]:.3e} W/M20K, "
                  f"error {error.mean:.2%} (p90 {error.p90:.2%})")
    report.append(f"cyclone10gx fmax: median {middle / 1e6:.1f} MHz, mean deviation {np.abs(middle / fmax_hz - 1).mean():.1%}")
    link = read_columns(folder / "pcie_gen2x4_transfer.csv")
    directions = {"a": link["latency_a_ms"], "b": link["latency_b_ms"], "mean": (link["latency_a_ms"] + link["latency_b_ms"]) / 2}
    for direction, milliseconds in directions.items():
        intercept_s, rate = fit_transfer(link["kib"] * 1024, milliseconds * 1e-3)
        report.append(f"pcie {direction}: {intercept_s * 1e6:.1f} us + size / {rate / 1e9:.3f} GB/s")
    return report


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit and write; the figures of power, fmax and PCIe are printed for the hand-written files that cite them."""
    parser = argparse.ArgumentParser(prog="python -m dovetail.cost.fit", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the published CSV files")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the model files")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    print("\n".join(fit_all(options.data, options.output)))


if __name__ == "__main__":
    main()
