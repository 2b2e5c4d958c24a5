"""The record of simulated clocks and what the package states from it."""

from __future__ import annotations

import json
from pathlib import Path

from dovetail.cost.clocks import ARRAYS_ERROR, DEDICATED_ERROR, FEWEST_CLOCKS
from dovetail.platform.accelerator import Architecture

RECORD = json.loads((Path(__file__).parents[2] / "bench" / "records" / "clocks.json").read_text(encoding="utf-8"))


def test_no_simulated_design_of_any_architecture_beats_its_bound() -> None:
    rows = RECORD["rows"].values()
    assert RECORD["cases"] == len(rows)
    assert len({r["design"] for r in rows}) >= 60
    assert {r["architecture"] for r in rows} >= {a.value for a in Architecture}
    assert {r["network"] for r in rows} >= {"kws", "ic", "ad", "vww"}
    assert all(r["bit_exact"] for r in rows)
    assert RECORD["bound_violations"] == 0
    for r in rows:
        assert r["bound"] is None or r["bound"] <= r["simulated"][r["goal"]]


def test_stated_errors_cover_every_simulated_design() -> None:
    for r in RECORD["rows"].values():
        error = ARRAYS_ERROR if r["reusable"] else DEDICATED_ERROR
        for clocks in ("one_frame", "interval"):
            assert abs(r["modelled"][clocks] - r["simulated"][clocks]) <= max(FEWEST_CLOCKS, error * r["simulated"][clocks]), r
