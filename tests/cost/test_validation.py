"""Validation: unseen rows are scored with the shipped model, rows of the fit say so, and folders without any are refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from dovetail.cli import main
from dovetail.cost.fitting.link import NAME
from dovetail.cost.predict import Layers, evaluation_values
from dovetail.cost.validation import validate
from dovetail.platform.link_model import link_model
from dovetail.platform.quantity import Form, QuantityModel, quantity_model

LATENCY, POWER = (quantity_model("measured", f"tx2-gpu-{q}") for q in ("latency", "power"))


def write(path: Path, columns: dict[str, np.ndarray]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def layers(model: QuantityModel, seen: bool) -> Layers:
    """The layers of the grid that the fit saw, or those it did not."""
    index = np.argwhere(model.seen == seen)
    return Layers(*(values[index[:, i]] for i, values in enumerate(model.levels)))


def gpu_rows(folder: Path, chosen: Layers, factor: float) -> None:
    """Measurements that are the shipped predictions times a factor."""
    write(folder / "jetson_tx2_gpu_conv.csv", {
        "hw": chosen.side, "c": chosen.channels, "k": chosen.kernel, "n": chosen.filters,
        "latency_ms": evaluation_values(LATENCY, chosen) * 1e3 * factor, "power_w": evaluation_values(POWER, chosen) * factor})


def test_unseen_rows_are_scored_with_the_shipped_model(tmp_path: Path) -> None:
    unseen = layers(LATENCY, seen=False)
    gpu_rows(tmp_path, unseen, 1.25)
    found = {(s.quantity, s.kind): s for s in validate(tmp_path)}
    assert set(found) == {("latency", "posynomial"), ("latency", "evaluation"), ("power", "evaluation")}
    for quantity in ("latency", "power"):
        score = found[quantity, "evaluation"]
        assert (score.mape, score.p90, score.rows) == (pytest.approx(0.2), pytest.approx(0.2), len(unseen.side))
        assert not score.in_sample


def test_rows_of_the_fit_are_said_to_be_and_bring_their_cross_validation(tmp_path: Path) -> None:
    gpu_rows(tmp_path, layers(LATENCY, seen=True), 1.0)
    scores = [s for s in validate(tmp_path) if (s.quantity, s.kind) == ("latency", "evaluation")]
    assert [(s.in_sample, s.how) for s in scores] == [(True, "scored"), (False, "cross-validated")]
    assert scores[0].mape < 1e-9
    assert scores[1].mape == LATENCY.errors[Form.EVALUATION].mean


def test_a_part_of_the_rows_of_the_fit_has_no_cross_validation_of_its_own(tmp_path: Path) -> None:
    every = layers(LATENCY, seen=True)
    gpu_rows(tmp_path, Layers(*(getattr(every, v)[::2] for v in ("side", "channels", "kernel", "filters"))), 1.0)
    assert all(s.in_sample for s in validate(tmp_path))


def test_transfers_are_scored_in_both_directions(tmp_path: Path) -> None:
    kib, link = np.array([1.0, 4096.0]), link_model(NAME)
    times = {d: link.directions[d].seconds(kib * 1024, Form.EVALUATION) * 1e3 for d in "ab"}
    write(tmp_path / "pcie_gen2x4_transfer.csv", {"kib": kib, "latency_a_ms": times["a"], "latency_b_ms": times["b"] * 2})
    score = next(s for s in validate(tmp_path) if s.kind == "evaluation")
    assert (score.device, score.rows, score.in_sample) == ("pcie", 4, False)
    assert score.mape == pytest.approx(0.25)


def test_the_command_prints_the_schema_and_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu_rows(tmp_path, layers(LATENCY, seen=False), 1.0)
    assert main(["validate-models", "--data", str(tmp_path), "--json", "-"]) == 0
    entries = json.loads(capsys.readouterr().out)["models"]
    assert {frozenset(e) for e in entries} == {frozenset(("device", "quantity", "kind", "mape", "p90", "rows", "in_sample"))}
    assert main(["validate-models", "--data", str(tmp_path)]) == 0
    assert "tx2-gpu  latency   evaluation     0.00%   0.00%" in capsys.readouterr().out


def test_a_folder_without_measurements_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate-models", "--data", str(tmp_path)]) == 2
    assert f"{tmp_path}: none of jetson_tx2_gpu_conv.csv" in capsys.readouterr().err


def test_refitting_cross_validates_the_rows_that_are_there(tmp_path: Path) -> None:
    every = layers(LATENCY, seen=True)
    some = np.random.default_rng(0).choice(len(every.side), 150, replace=False)
    part = Layers(*(getattr(every, v)[some] for v in ("side", "channels", "kernel", "filters")))
    gpu_rows(tmp_path, part, 1.0)
    told: list[str] = []
    scores = validate(tmp_path, told.append)
    again = [s for s in scores if s.how == "cross-validated"]
    kinds = [(s.quantity, s.kind) for s in again]
    assert kinds == [("latency", "posynomial"), ("latency", "evaluation"), ("power", "evaluation")]
    assert all(not s.in_sample and s.rows == len(part.side) for s in again)
    assert 0 < again[-1].mape < 0.5  # few rows tell little, but power is smooth
    assert "tx2-gpu-latency: cross-validation" in told
