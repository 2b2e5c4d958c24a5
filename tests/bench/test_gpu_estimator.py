"""The costs that come with the package are those that the committed measurements give, and estimates rank as the pages say."""

from __future__ import annotations

import tomllib
from dataclasses import asdict
from pathlib import Path

import pytest
from bench.gpu_estimator import fit, judge

from dovetail.kernels.estimator import costs, costs_from, judged

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


def test_estimates_rank_tiles_nearly_as_time_does() -> None:
    found = judge(RECORD)
    assert found["tiles"] > 2000
    assert found["spearman"] > 0.9
    assert found["timed_within_5_percent"] > 0.9
