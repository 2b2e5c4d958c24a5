"""Validation: every row is judged by a model that had not seen it, one entry per quantity and form, whatever the files hold."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from dovetail.cli import main
from dovetail.cost.fitting.link import NAME
from dovetail.cost.predict import SquareLayers, evaluation_values
from dovetail.cost.validation import validate, validation_table
from dovetail.errors import UsageError
from dovetail.platform.link_model import link_model
from dovetail.platform.quantity import Form, QuantityModel, quantity_model

LATENCY, POWER = (quantity_model("measured", f"tx2-gpu-{q}") for q in ("latency", "power"))


def write(path: Path, columns: dict[str, np.ndarray]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def layers(model: QuantityModel, seen: bool) -> SquareLayers:
    """The layers of the grid that the fit saw, or those it did not."""
    index = np.argwhere(model.seen == seen)
    return SquareLayers(*(values[index[:, i]] for i, values in enumerate(model.levels)))


def gpu_rows(folder: Path, chosen: SquareLayers, factor: float) -> None:
    """Measurements that are the shipped predictions times a factor."""
    write(folder / "jetson_tx2_gpu_conv.csv", {
        "hw": chosen.side, "c": chosen.channels, "k": chosen.kernel, "n": chosen.filters,
        "latency_ms": evaluation_values(LATENCY, chosen) * 1e3 * factor, "power_w": evaluation_values(POWER, chosen) * factor})


def some(chosen: SquareLayers, step: int) -> SquareLayers:
    return SquareLayers(*(getattr(chosen, v)[::step] for v in ("side", "channels", "kernel", "filters")))


KINDS = {(q, k) for q in ("latency", "power") for k in ("posynomial", "evaluation")}


def test_unseen_rows_are_scored_with_the_shipped_model(tmp_path: Path) -> None:
    unseen = layers(LATENCY, seen=False)
    gpu_rows(tmp_path, unseen, 1.25)
    found = validate(tmp_path)
    scores = {(s.quantity, s.kind): s for s in found.scores}
    assert set(scores) == KINDS
    assert (found.fit, found.notes) == ((), ())
    for quantity in ("latency", "power"):
        score = scores[quantity, "evaluation"]
        assert (score.mape, score.p90, score.rows) == (pytest.approx(0.2), pytest.approx(0.2), len(unseen.side))
        assert (score.in_sample, score.known) == (False, 0)


def test_rows_of_the_fit_are_judged_by_fits_without_them_and_the_fit_is_told_apart(tmp_path: Path) -> None:
    gpu_rows(tmp_path, layers(LATENCY, seen=True), 1.0)
    found = validate(tmp_path)
    (score,) = [s for s in found.scores if (s.quantity, s.kind) == ("latency", "evaluation")]
    (own,) = [s for s in found.fit if (s.quantity, s.kind) == ("latency", "evaluation")]
    assert (score.in_sample, own.in_sample) == (False, True)
    assert own.mape < 1e-9 < 0.01 < score.mape  # the rows are the shipped predictions, which left-out fits do not repeat
    assert score.rows == score.known == own.rows == LATENCY.rows


def test_a_part_of_the_rows_and_repeats_of_them_are_judged_the_same_way(tmp_path: Path) -> None:
    every = some(layers(LATENCY, seen=True), 7)
    gpu_rows(tmp_path, every, 1.0)
    once = validate(tmp_path).scores
    twice = SquareLayers(*(np.concatenate([getattr(every, v)] * 2) for v in ("side", "channels", "kernel", "filters")))
    gpu_rows(tmp_path, twice, 1.0)
    again = validate(tmp_path).scores
    assert [s.mape for s in again] == pytest.approx([s.mape for s in once])
    assert [s.rows for s in again] == [2 * s.rows for s in once]
    assert not any(s.in_sample for s in (*once, *again))


def test_the_order_of_rows_and_columns_and_further_columns_do_not_matter(tmp_path: Path) -> None:
    chosen = some(layers(LATENCY, seen=False), 3)
    gpu_rows(tmp_path, chosen, 1.1)
    before = validate(tmp_path).scores
    path = tmp_path / "jetson_tx2_gpu_conv.csv"
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    write(path, {" remark": np.array(["x"] * len(rows)), **{c: np.array([r[c] for r in shuffled]) for c in reversed(rows[0])}})
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())  # as spreadsheets write it
    after = validate(tmp_path).scores
    assert [(s.quantity, s.kind, s.rows) for s in after] == [(s.quantity, s.kind, s.rows) for s in before]
    assert [s.mape for s in after] == pytest.approx([s.mape for s in before])


def test_layers_beyond_the_box_are_counted(tmp_path: Path) -> None:
    far = SquareLayers(*(np.array(v) for v in ([50.0, 224.0], [64.0, 64.0], [3.0, 3.0], [64.0, 64.0])))
    gpu_rows(tmp_path, far, 1.0)
    score = next(s for s in validate(tmp_path).scores if s.kind == "evaluation")
    assert (score.rows, score.outside, score.coverage) == (2, 1, 1.0)
    assert "not in the fit, 1 beyond" in validation_table(validate(tmp_path))


def test_a_quantity_without_its_column_is_left_out_with_a_note(tmp_path: Path) -> None:
    gpu_rows(tmp_path, layers(LATENCY, seen=False), 1.0)
    path = tmp_path / "jetson_tx2_gpu_conv.csv"
    path.write_text(path.read_text().replace("power_w", "watts"))
    found = validate(tmp_path)
    assert {s.quantity for s in found.scores} == {"latency"}
    assert found.notes == ("tx2-gpu-power: left out, jetson_tx2_gpu_conv.csv has no column power_w",)


def test_a_file_without_rows_is_left_out_beside_others_and_refused_alone(tmp_path: Path) -> None:
    (tmp_path / "jetson_tx2_cpu_conv.csv").write_text("hw,c,k,n,latency_ms,power_w\n")
    with pytest.raises(UsageError, match=r"nothing can be scored; tx2-cpu-latency: left out, jetson_tx2_cpu_conv\.csv has no r"):
        validate(tmp_path)
    (tmp_path / "jetson_tx2_cpu_conv.csv").write_text("")
    gpu_rows(tmp_path, layers(LATENCY, seen=False), 1.0)
    found = validate(tmp_path)
    assert {s.device for s in found.scores} == {"tx2-gpu"}
    assert "has no column hw" in found.notes[0]


def test_censored_rows_are_not_scored(tmp_path: Path) -> None:
    columns = {"hw": [5.0, 6.0, 7.0], "c": [2.0, 2.0, 2.0], "k": [3.0, 3.0, 3.0], "n": [4.0, 4.0, 4.0],
               "latency_ms": [1e-5, 0.0, 1e-5], "m20k": [587.0, 0.0, 40.0]}
    write(tmp_path / "cyclone10gx_dhm_conv.csv", {name: np.array(v) for name, v in columns.items()})
    found = validate(tmp_path)
    assert {s.quantity: s.rows for s in found.scores if s.kind == "evaluation"} == {"m20k": 1, "fmax": 2}


@pytest.mark.parametrize(("column", "text", "message"), [
    ("k", "0", "row 2, column k: 0 is not possible; sizes of a layer start at 1"),
    ("latency_ms", "fast", "row 2, column latency_ms: 'fast' is not a number"),
    ("power_w", "nan", "row 2, column power_w: nan is not possible"),
])
def test_a_wrong_cell_is_named(tmp_path: Path, column: str, text: str, message: str) -> None:
    cells = {"hw": "20", "c": "3", "k": "3", "n": "57", "latency_ms": "2", "power_w": "1", column: text}
    (tmp_path / "jetson_tx2_gpu_conv.csv").write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n")
    with pytest.raises(UsageError, match=message):
        validate(tmp_path)


def test_transfers_are_scored_in_both_directions(tmp_path: Path) -> None:
    kib, link = np.array([1.0, 4096.0]), link_model(NAME)
    times = {d: link.directions[d].seconds(kib * 1024, Form.EVALUATION) * 1e3 for d in "ab"}
    write(tmp_path / "pcie_gen2x4_transfer.csv", {"kib": kib, "latency_a_ms": times["a"], "latency_b_ms": times["b"] * 2})
    score = next(s for s in validate(tmp_path).scores if s.kind == "evaluation")
    assert (score.device, score.rows, score.in_sample, score.outside) == ("pcie", 4, False, 4)
    assert score.mape == pytest.approx(0.25)


def test_the_command_prints_the_schema_and_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu_rows(tmp_path, layers(LATENCY, seen=False), 1.0)
    assert main(["validate-models", "--data", str(tmp_path), "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    for key in ("models", "coarse", "fit"):
        assert {frozenset(e) for e in document[key]} <= {frozenset(("device", "quantity", "kind", "mape", "p90", "rows",
                                                                    "in_sample"))}
    names = [(e["device"], e["quantity"], e["kind"]) for e in (*document["models"], *document["coarse"])]
    assert len(set(names)) == len(names) == len(KINDS) == len(document["intervals"])
    assert not any(e["in_sample"] for e in document["models"])
    assert main(["validate-models", "--data", str(tmp_path)]) == 0
    assert "tx2-gpu  latency   evaluation      0.00%   0.00%" in capsys.readouterr().out


def test_a_folder_without_measurements_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate-models", "--data", str(tmp_path)]) == 2
    assert f"{tmp_path}: none of jetson_tx2_gpu_conv.csv" in capsys.readouterr().err


@pytest.mark.slow("fits models several times")
def test_refitting_cross_validates_the_rows_that_are_there(tmp_path: Path) -> None:
    every = layers(LATENCY, seen=True)
    chosen = np.random.default_rng(0).choice(len(every.side), 150, replace=False)
    part = SquareLayers(*(getattr(every, v)[chosen] for v in ("side", "channels", "kernel", "filters")))
    gpu_rows(tmp_path, part, 1.0)
    told: list[str] = []
    again = validate(tmp_path, told.append).scores
    assert {(s.quantity, s.kind) for s in again} == KINDS
    assert all(not s.in_sample and s.rows == len(part.side) for s in again)
    assert 0 < again[-1].mape < 0.5  # few rows tell little, but power is smooth
    assert "tx2-gpu-latency: cross-validation" in told
    gpu_rows(tmp_path, some(part, 4), 1.0)
    with pytest.raises(UsageError, match="38 rows tell it, too few to cross-validate; bring at least 50"):
        validate(tmp_path, told.append)
