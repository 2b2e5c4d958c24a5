"""Layers without their loop: terms are recovered, tables rise, power leaves out the lag, files are what the loader reads."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from dovetail.cost.fitting.__main__ import main
from dovetail.cost.fitting.planning import (
    TX2_TERMS,
    fit_terms,
    monomials,
    monotone,
    planning_text,
    points_of,
    without_lag,
)
from dovetail.cost.fitting.quantity import layers_of
from dovetail.cost.predict import locate
from dovetail.errors import UsageError
from dovetail.platform.fitted import VARIABLES, parse_posynomial, posynomial_model
from dovetail.platform.load import load_platform
from dovetail.platform.schema import TomlTable

TRUTH = np.array([1e-3, 1e-8, 1e-6, 2e-9, 5e-12, 8e-10, 2e-10])


def rows(count: int, noise: float, seed: int = 0) -> dict[str, np.ndarray]:
    """Synthetic measurements of a TX2 that is exactly the posynomial of TRUTH, but for noise."""
    rng = np.random.default_rng(seed)
    side, kernel = rng.integers(11, 101, count).astype(float), rng.choice([1.0, 3.0, 5.0, 7.0, 11.0], count)
    channels, filters = rng.integers(3, 513, count).astype(float), rng.integers(1, 513, count).astype(float)
    exponents = np.array([[t.get(v, 0.0) for v in VARIABLES] for _, _, t in TX2_TERMS])
    points = np.stack([side, side - kernel + 1, channels, kernel, filters], axis=1)
    seconds = monomials(points, exponents) @ TRUTH * np.exp(rng.normal(0, noise, count))
    return {"hw": side, "c": channels, "k": kernel, "n": filters, "latency_ms": seconds * 1e3}


def fitted(columns: dict[str, np.ndarray]) -> dict[str, float]:
    terms = fit_terms(points_of(layers_of(columns)), columns["latency_ms"] * 1e-3)
    return {t.name: t.latency_s for t in terms}


def test_the_terms_are_recovered_from_clean_rows() -> None:
    assert list(fitted(rows(600, 0.0)).values()) == pytest.approx(TRUTH.tolist(), rel=1e-6)


def test_noise_hardly_moves_the_terms() -> None:
    assert fitted(rows(1500, 0.05))["macs"] == pytest.approx(5e-12, rel=0.05)


def test_a_few_stalled_rows_do_not_bend_the_fit() -> None:
    columns = rows(600, 0.0)
    columns["latency_ms"][::50] *= 5
    assert fitted(columns)["macs"] == pytest.approx(5e-12, rel=0.02)


def test_what_is_written_is_what_is_read() -> None:
    model = posynomial_model("tx2-gpu")
    again = parse_posynomial(TomlTable("again.toml", tomllib.loads(planning_text(model, "none"))))
    assert again.box == model.box
    assert again.energy_error == model.energy_error
    assert [t.latency_s for t in again.terms] == pytest.approx([t.latency_s for t in model.terms], rel=1e-5)
    assert again.table.log_joules == pytest.approx(model.table.log_joules, abs=1e-3)


def test_power_that_the_rail_still_shows_of_the_row_before_is_not_charged_to_a_light_layer() -> None:
    watts = np.full((2, 2, 3, 3), 2.0)
    watts[..., 0, 0] = 7.0
    watts[..., 2, 2] = 8.0
    found = without_lag(watts)
    assert found.max(axis=(0, 1)).tolist() == [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0], [2.0, 2.0, 8.0]]


@pytest.mark.parametrize(("name", "most_w"), [("tx2-cpu", 5.2), ("tx2-gpu", 10.5)])
def test_the_power_of_shipped_layers_lies_between_idle_and_what_the_rail_ever_showed(name: str, most_w: float) -> None:
    table = posynomial_model(name).table
    watts = np.exp(table.log_joules - table.log_seconds)
    idle_w = load_platform("tx2").device(name.removeprefix("tx2-")).idle_power_w
    assert idle_w * 0.5 < watts.min()
    assert watts.max() < 1.3 * most_w
    for axis in range(4):
        assert (np.diff(table.log_joules, axis=axis) >= 0).all()


@pytest.mark.parametrize("name", ["tx2-cpu", "tx2-gpu"])
def test_the_shipped_table_of_the_layer_rises_along_every_axis_and_stays_near_its_terms(name: str) -> None:
    model = posynomial_model(name)
    for axis in range(4):
        assert (np.diff(model.table.log_seconds, axis=axis) >= 0).all()
    middle = [np.array([v]) for v in (50.0, 229.0, 3.0, 228.0)]
    seconds = float(np.exp(locate(model.table.levels, middle).interpolate(model.table.log_seconds))[0])
    macs = 48**2 * 9 * 229 * 228 * model.term("macs").latency_s
    assert macs / 3 < seconds < 3 * macs


def test_a_table_is_held_monotone_and_left_alone_where_it_is() -> None:
    table = np.array([[1.0, 4.0, 3.0], [2.0, 5.0, 6.0]])
    held = monotone(table)
    assert (np.diff(held, axis=0) >= 0).all()
    assert (np.diff(held, axis=1) >= 0).all()
    assert held[1].tolist() == pytest.approx([2.0, 5.0, 6.0])
    assert held[0, 0] == 1.0


def test_a_folder_without_measurements_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"jetson_tx2_gpu_conv\.csv: no such file; the measurements are read from it"):
        main(["--data", str(tmp_path), "-o", str(tmp_path / "models")])
