"""Fitting: known posynomials are recovered, the fold errors are honest, files are what the loader reads."""

from __future__ import annotations

import csv
import tomllib
from pathlib import Path

import numpy as np
import pytest

from dovetail.cost.fit import TX2_TERMS, cross_validate, fit_posynomial, fit_transfer, fit_tx2, main, monomials, posynomial_toml
from dovetail.errors import UsageError
from dovetail.platform.fitted import VARIABLES, parse_posynomial
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
    model = fit_tx2(rows(600, 0.0), "toy", "a toy")
    assert [t.latency_s for t in model.terms] == pytest.approx(TRUTH.tolist(), rel=1e-6)
    assert [t.energy_j for t in model.terms] == pytest.approx((3.0 * TRUTH).tolist(), rel=1e-6)
    assert model.latency_error[1] < 1e-9


def test_noise_shows_up_as_error_of_its_own_size() -> None:
    model = fit_tx2(rows(1500, 0.05), "toy", "a toy")
    assert 0.03 < model.latency_error[0] < 0.05
    assert model.term("macs").latency_s == pytest.approx(5e-12, rel=0.05)


def test_a_few_stalled_rows_do_not_bend_the_fit() -> None:
    columns = rows(600, 0.0)
    columns["latency_ms"][::50] *= 5
    assert fit_tx2(columns, "toy", "a toy").term("macs").latency_s == pytest.approx(5e-12, rel=0.02)


def test_coefficients_are_never_negative() -> None:
    rng = np.random.default_rng(0)
    assert (fit_posynomial(rng.uniform(0.1, 1, (50, 4)), rng.uniform(0.1, 1, 50)) >= 0).all()


def test_cross_validation_does_not_look_at_the_rows_it_judges() -> None:
    rng = np.random.default_rng(0)
    features = np.eye(20)  # every coefficient is seen in one row only, so an unseen row is predicted as 0
    assert cross_validate(features, rng.uniform(1, 2, 20)).mean == pytest.approx(1.0, abs=1e-6)


def test_a_line_is_found_in_transfer_times() -> None:
    size = np.array([1e3, 1e4, 1e5, 1e6])
    assert fit_transfer(size, 8e-6 + size / 1.5e9) == pytest.approx((8e-6, 1.5e9))


def test_what_is_written_is_what_is_read() -> None:
    model = fit_tx2(rows(300, 0.02), "toy", "a toy")
    again = parse_posynomial(Table("toy.toml", tomllib.loads(posynomial_toml(model, "none"))))
    assert again.box == model.box
    assert [t.latency_s for t in again.terms] == pytest.approx([t.latency_s for t in model.terms], rel=1e-5)


def write(path: Path, columns: dict[str, np.ndarray]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def test_the_command_fits_a_folder_and_reports_its_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for processor in ("cpu", "gpu"):
        write(tmp_path / f"jetson_tx2_{processor}_conv.csv", rows(200, 0.02))
    rng = np.random.default_rng(0)
    alm, m20k = rng.uniform(200, 70_000, 60), rng.uniform(0, 587, 60)
    ones = np.ones(60)
    write(tmp_path / "cyclone10gx_dhm_conv.csv", {"hw": 8 * ones, "c": ones, "n": ones, "latency_ms": 64 / 76e6 * 1e3 * ones,
                                                  "power_w": 1.07 + 6e-6 * alm + 3e-4 * m20k, "alm": alm, "m20k": m20k})
    kib = np.array([2.0, 64.0, 1024.0])
    times = 0.01 + kib / 1500
    write(tmp_path / "pcie_gen2x4_transfer.csv", {"kib": kib, "latency_a_ms": times, "latency_b_ms": times})
    main(["--data", str(tmp_path), "-o", str(tmp_path / "models")])
    said = capsys.readouterr().out
    assert "tx2-cpu: 200 rows, latency" in said
    assert "cyclone10gx power: 1.0700 W + 6.000e-06 W/ALM + 3.000e-04 W/M20K" in said
    assert "cyclone10gx fmax: median 76.0 MHz" in said
    assert sorted(p.name for p in (tmp_path / "models").iterdir()) == ["tx2-cpu.toml", "tx2-gpu.toml"]


def test_a_folder_without_measurements_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"jetson_tx2_cpu_conv\.csv: no such file; --data must name the folder"):
        main(["--data", str(tmp_path), "-o", str(tmp_path / "models")])
