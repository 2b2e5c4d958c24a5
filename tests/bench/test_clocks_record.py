"""The record of simulated clocks and what the package states from it."""

from __future__ import annotations

import json
from pathlib import Path

from dovetail.cost.clocks import ARRAYS_ERROR, DEDICATED_ERROR, FEWEST_CLOCKS, OUTSIDE_ERROR
from dovetail.platform.accelerator import Architecture
from lib.clocks.plans import KINDS, PLANS, ZOO

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


def test_plans_of_every_kind_and_networks_of_the_zoo_keep_what_they_state() -> None:
    for part, names, kinds in (("plans", {f"plan {n}" for n in range(PLANS)}, set(KINDS)), ("zoo", set(ZOO), {"default"})):
        rows = RECORD[part]["rows"].values()
        assert {r["network"] for r in rows} == names
        assert {r["architecture"] for r in rows} >= kinds
        for r in rows:
            assert r["bit_exact"], r
            assert r["stated_error"] <= OUTSIDE_ERROR, r
            assert all(bound <= r["simulated"][clocks] for clocks, bound in r["bound"].items()), r
            for clocks in ("one_frame", "interval"):
                off = abs(r["modelled"][clocks] - r["simulated"][clocks])
                assert off <= max(FEWEST_CLOCKS, r["stated_error"] * r["simulated"][clocks]), r
