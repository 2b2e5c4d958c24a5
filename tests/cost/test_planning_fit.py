"""Fitting: known posynomials are recovered, the fold errors are honest, files are what the loader reads."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from dovetail.cost.fitting.__main__ import main
from dovetail.cost.fitting.planning import TX2_TERMS, cross_validate, fit_processor, monomials, monotone, planning_text
from dovetail.cost.predict import interpolate
from dovetail.errors import UsageError
from dovetail.platform.fitted import VARIABLES, parse_posynomial, posynomial_model
from dovetail.platform.schema import Table

TRUTH = np.array([1e-3, 1e-8, 1e-6, 2e-9, 5e-12, 8e-10, 2e-10])


def rows(count: int, noise: float, seed: int = 0) -> dict[str, np.ndarray]:
    """Synthetic measurements of a TX2 that is exactly the posynomial of TRUTH, but for noise."""
    rng = np.random.default_rng(seed)
    side, kernel = rng.integers(11, 101, count).astype(float), rng.choice([1.0, 3.0, 5.0, 7.0, 11.0], count)
    channels, filters = rng.integers(3, 513, count).astype(float), rng.integers(1, 513, count).astype(float)
    exponents = np.array([[t.get(v, 0.0) for v in VARIABLES] for _, _, t in TX2_TERMS])
    points = np.stack([side, side - kernel + 1, channels, kernel, filters], axis=1)
    seconds = monomials(points, exponents) @ TRUTH * np.exp(rng.normal(0, noise, count))
    return {"hw": side, "c": channels, "k": kernel, "n": filters, "latency_ms": seconds * 1e3, "energy_j": 3.0 * seconds}


def test_a_posynomial_is_recovered_from_clean_rows() -> None:
    model = fit_processor(rows(600, 0.0), "toy", "a toy", None)
    assert [t.latency_s for t in model.terms] == pytest.approx(TRUTH.tolist(), rel=1e-6)
    assert [t.energy_j for t in model.terms] == pytest.approx((3.0 * TRUTH).tolist(), rel=1e-6)
    assert model.latency_error[1] < 1e-9


def test_noise_shows_up_as_error_of_its_own_size() -> None:
    model = fit_processor(rows(1500, 0.05), "toy", "a toy", None)
    assert 0.03 < model.latency_error[0] < 0.05
    assert model.term("macs").latency_s == pytest.approx(5e-12, rel=0.05)


def test_a_few_stalled_rows_do_not_bend_the_fit() -> None:
    columns = rows(600, 0.0)
    columns["latency_ms"][::50] *= 5
    assert fit_processor(columns, "toy", "a toy", None).term("macs").latency_s == pytest.approx(5e-12, rel=0.02)


def test_cross_validation_does_not_look_at_the_rows_it_judges() -> None:
    rng = np.random.default_rng(0)
    features = np.eye(20)  # every coefficient is seen in one row only, so an unseen row is predicted as 0
    assert cross_validate(np.arange(20.0)[:, None], features, rng.uniform(1, 2, 20)).mean == pytest.approx(1.0, abs=1e-6)


def test_what_is_written_is_what_is_read() -> None:
    model = fit_processor(rows(300, 0.02), "toy", "a toy", None)
    again = parse_posynomial(Table("toy.toml", tomllib.loads(planning_text(model, "none"))))
    assert again.box == model.box
    assert [t.latency_s for t in again.terms] == pytest.approx([t.latency_s for t in model.terms], rel=1e-5)


@pytest.mark.parametrize("name", ["tx2-cpu", "tx2-gpu"])
def test_the_shipped_table_of_the_layer_rises_along_every_axis_and_stays_near_its_terms(name: str) -> None:
    model = posynomial_model(name)
    assert model.table is not None
    for axis in range(4):
        assert (np.diff(model.table.log_seconds, axis=axis) >= 0).all()
    middle = [np.array([v]) for v in (50.0, 229.0, 3.0, 228.0)]
    seconds = float(np.exp(interpolate(model.table.levels, model.table.log_seconds, middle))[0])
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
