"""MLPerf Tiny's bench on its smallest parts, and what its record says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import mlperf_tiny
from dovetail.ir.tensor import Array
from dovetail.partition.plan import Goal
from lib.tiny.networks import KINDS, TASKS, inputs_of, network
from lib.tiny.rows import Comparison, Published, comparisons, published
from lib.tiny.table import table

RECORD = Path(__file__).parents[2] / "bench" / "records" / "mlperf_tiny.json"
SMALL = Comparison("ad", "ZedBoard", "board", Goal.THROUGHPUT, None)


def test_the_autoencoder_gives_litert_s_integers_and_a_wrong_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = mlperf_tiny.equal("ad", 8)
    assert (found["inputs"], found["equal_to_litert"], found["largest_difference"]) == (8, 1.0, 0)
    assert found["distinct_scores"] > 50
    right = mlperf_tiny.litert

    def one_off(*asked: object) -> tuple[Array, Array]:
        scores, outputs = right(*asked)  # type: ignore[arg-type]
        wrong = np.where(np.arange(outputs.size).reshape(outputs.shape) == 0, outputs ^ 1, outputs)
        return scores, wrong

    monkeypatch.setattr(mlperf_tiny, "litert", one_off)
    found = mlperf_tiny.equal("ad", 8)
    assert (found["scores"], found["equal_to_litert"], found["largest_difference"]) == (8, 0.5, 1)


def test_inputs_are_seeded_and_of_every_kind() -> None:
    lite = network("kws").lite
    first, again = inputs_of(lite, 10), inputs_of(lite, 10)
    assert list(first) == list(KINDS)
    assert [len(v) for v in first.values()] == [3, 3, 2, 2]
    for kind, values in first.items():
        assert values.shape[1:] == (49, 10, 1)
        assert np.array_equal(values, again[kind])
    assert np.unique(first["smooth"]).size > 100


def test_a_row_keeps_its_budget_and_a_run_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    record = mlperf_tiny.Record(path)
    for _ in mlperf_tiny.run(record, ["plan"], [SMALL], ["ad"]):
        record.write()
    (row,) = mlperf_tiny.Record(path).rows.values()
    assert all(row["area_model"][r] <= amount for r, amount in row["limits"].items())
    assert row["bound"] <= row["modelled"]["interval"]
    assert row["frames_per_s"] == pytest.approx(row["clock_hz"] / row["modelled"]["interval"])
    assert [*mlperf_tiny.run(mlperf_tiny.Record(path), ["plan"], [SMALL], ["ad"])] == []


def test_budgets_are_those_of_published_designs() -> None:
    theirs = Published("ad", "someone", "ZC706", "closed", 10.0, lut=1000.0, dsp=10_000.0, bram_part=0.5, clock_mhz=150.0)
    device = Comparison("ad", "ZC706", "theirs", Goal.LATENCY, theirs).device
    assert device.clock_hz == 150e6
    assert {r: device.resources[r] for r in ("lut", "dsp", "bram36")} == {"lut": 1000.0, "dsp": 900.0, "bram36": 272.5}


def test_every_published_design_of_these_networks_is_compared() -> None:
    compared = {(c.task, c.board) for c in comparisons() if c.theirs is not None}
    assert compared == {(p.task, p.board) for p in published() if p.division == "closed"}


@pytest.mark.verilator
def test_hardware_gives_litert_s_integers() -> None:
    found = mlperf_tiny.simulated(SMALL, mlperf_tiny.planned(SMALL))
    assert found["simulated"]["equal_to_litert"] == 1.0
    assert found["simulated"]["frames"] == mlperf_tiny.FRAMES


def test_the_record_has_every_row_and_equals_litert() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert set(record["equal"]) == set(TASKS)
    for found in record["equal"].values():
        assert found["inputs"] >= 1000
        assert found["equal_to_litert"] == 1.0
    assert set(record["rows"]) == {c.name for c in comparisons()}
    for row in record["rows"].values():
        if "simulated" in row:
            assert row["simulated"]["frames"] >= 3
            assert row["simulated"]["equal_to_litert"] == 1.0
            assert row["bound"] <= row["simulated"]["interval" if row["goal"] == "throughput" else "one_frame"]


def test_the_page_has_the_record_s_table() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    page = (RECORD.parents[2] / "docs" / "method" / "mlperf-tiny.md").read_text(encoding="utf-8")
    assert "\n".join(table(record["rows"])) in page
