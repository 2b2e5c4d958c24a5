"""The costs that come with the package are those that the committed measurements give, and estimates rank as the pages say."""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from bench.gpu_estimator import fit, grow, judge, once

from dovetail.kernels.estimator import costs, costs_from, judged
from dovetail.kernels.second_look import forest_from, forests

RECORD = Path(__file__).parents[2] / "bench/records/gpu_tiles.json"
BYTES = RECORD.with_name("gpu_tiles_int8.json")


def test_costs_are_fitted_to_the_committed_measurements(tmp_path: Path) -> None:
    fit([RECORD, BYTES], tmp_path / "costs.toml")
    found = tomllib.loads((tmp_path / "costs.toml").read_text())
    errors, shipped = found.pop("judged"), asdict(judged())
    assert tuple(errors.pop("fitted")) == shipped.pop("fitted")
    assert errors == pytest.approx(shipped, rel=0.02)
    assert found.keys() == costs().keys()
    for kernel, each in found.items():
        again, comes = costs_from(each), costs()[kernel]
        assert again.each == pytest.approx(dict(comes.each), rel=1e-3), kernel
        assert again.overlap == pytest.approx(comes.overlap, rel=1e-3), kernel


def test_trees_are_grown_from_the_committed_measurements() -> None:
    again, comes = forest_from(grow([RECORD], ["deep"])["deep"]), forests()["deep"]
    assert again.names == comes.names
    assert again.values.shape == comes.values.shape
    assert (again.features == comes.features).mean() > 0.8
    assert np.abs(again.values - comes.values).mean() < 0.3 * np.abs(comes.values).mean()


def test_a_tile_timed_twice_counts_once() -> None:
    tile = {"BP": 16, "num_warps": 4}
    assert once([(1.0, tile), (3.0, {**tile, "BP": 32}), (2.0, {**tile, "SUMS": 1})]) == [(1.5, tile), (3.0, {**tile, "BP": 32})]


def test_estimates_rank_tiles_nearly_as_time_does() -> None:
    found = judge(RECORD)
    assert found["tiles"] > 2000
    assert found["spearman"] > 0.9
    assert found["timed_within_5_percent"] > 0.9
