"""Tables for other programs: what commands show, as CSV or Parquet, in SI units."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import dovetail as dt
from dovetail.cli import main
from dovetail.shown import write_table

MODEL = str(Path(__file__).resolve().parents[2] / "examples" / "fashion" / "fashion.onnx")


def read(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_plan_is_written_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", MODEL, "-p", "tx2", "--table", str(tmp_path / "plan.csv")]) == 0
    rows, found = read(tmp_path / "plan.csv"), dt.plan(MODEL, "tx2")
    assert [r["layer"] for r in rows] == [n.name for n in found.graph.nodes]
    assert [float(r["latency_s"]) for r in rows] == [c.latency_s for c in found.plan.nodes]
    capsys.readouterr()


def test_layers_are_written_with_their_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", MODEL, "--table", str(tmp_path / "layers.csv")]) == 0
    rows = read(tmp_path / "layers.csv")
    assert (rows[0]["layer"], rows[0]["output"], rows[0]["macs"]) == ("conv1", "1x6x28x28", "42336")
    capsys.readouterr()


def test_parquet_holds_the_same_where_pyarrow_is(tmp_path: Path) -> None:
    rows = [{"layer": "a", "latency_s": 1e-6, "output": (1, 3)}, {"layer": "b", "latency_s": None, "output": (1, 4)}]
    try:
        from pyarrow import parquet
    except ImportError:
        with pytest.raises(dt.ToolError, match="Parquet is written by pyarrow, which is not installed; get it with pip install"):
            write_table(tmp_path / "t.parquet", rows)
        return
    write_table(tmp_path / "t.parquet", rows)
    assert parquet.read_table(tmp_path / "t.parquet").to_pylist() == [{"layer": "a", "latency_s": 1e-6, "output": "1x3"},
                                                                      {"layer": "b", "latency_s": None, "output": "1x4"}]


def test_a_table_of_no_known_format_is_refused_before_planning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "absent.onnx", "-p", "tx2", "--table", str(tmp_path / "t.xls")]) == 2
    assert capsys.readouterr().err.endswith("t.xls: a name that ends in .csv or .parquet is needed\n")
    assert not list(tmp_path.iterdir())
