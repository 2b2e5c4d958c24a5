"""The costs that come with the package are those that the committed measurements give, and estimates rank as the pages say."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from bench.gpu_estimator import fit, grow, judge, once, tiled
from bench.gpu_held_out import Choice, choices, different, readings
from bench.gpu_surface import fitted_surface, surface_through
from bench.gpu_trees import tabled

from dovetail.kernels.estimator import costs, costs_from, judged
from dovetail.kernels.second_look import forest_from, looks, surface_from
from dovetail.platform.gpu_specification import specification

RECORD = Path(__file__).parents[2] / "bench/records/gpu_tiles.json"
BYTES, BRIDGED = RECORD.with_name("gpu_tiles_int8.json"), RECORD.with_name("gpu_tiles_bridged.json")


def test_costs_are_fitted_to_the_committed_measurements(tmp_path: Path) -> None:
    fit([RECORD, BYTES, BRIDGED], tmp_path / "costs.toml")
    found = tomllib.loads((tmp_path / "costs.toml").read_text())
    errors, shipped = found.pop("judged"), asdict(judged())
    assert tuple(errors.pop("fitted")) == shipped.pop("fitted")
    assert errors == pytest.approx(shipped, rel=0.02)
    assert found.keys() == costs().keys()
    for kernel, each in found.items():
        again, comes = costs_from(each), costs()[kernel]
        assert again.each == pytest.approx(dict(comes.each), rel=1e-3), kernel
        assert again.overlap == pytest.approx(comes.overlap, rel=1e-3), kernel


def test_trees_and_surfaces_are_fitted_to_the_committed_measurements() -> None:
    grown, comes = grow([RECORD], ["deep"]), looks()["deep"]
    forest, surface = forest_from(grown["forests"]["deep"]), surface_from("deep", grown["surfaces"]["deep"])
    assert forest.names == comes.forest.names
    assert forest.values.shape == comes.forest.values.shape
    assert (forest.features == comes.forest.features).mean() > 0.8
    assert np.abs(forest.values - comes.forest.values).mean() < 0.3 * np.abs(comes.forest.values).mean()
    assert surface.scale.names == comes.surface.scale.names
    assert surface.places == pytest.approx(comes.surface.places, abs=0.01)
    assert np.abs(surface.weights - comes.surface.weights).mean() < 0.05 * np.abs(comes.surface.weights).mean()


def test_a_surface_read_back_is_the_one_that_was_fitted() -> None:
    calls = [call for call in tiled("mobilenet-v1", 1).values() if call.kernel == "deep"]
    timed = [(call, [(1e-6 * (1 + tile["BP"] / tile["BN"]), tile) for tile in call.configs]) for call in calls]
    table = tabled(specification("h200"), "deep", timed, costs()["deep"])
    made = surface_through(table)
    again = surface_from("deep", json.loads(json.dumps(fitted_surface(table, timed))))
    assert again.places == pytest.approx(made.places, abs=1e-3)
    known = {name: table.known[:, i] for i, name in enumerate(table.names)}
    scores = made.scores(known, len(table.lost))
    assert again.scores(known, len(table.lost)) == pytest.approx(scores, abs=2e-3)
    assert np.corrcoef(scores, np.minimum(table.lost, 1.0))[0, 1] > 0.7  # it knows what it was fitted to


def test_a_tile_timed_twice_counts_once() -> None:
    tile = {"BP": 16, "num_warps": 4}
    assert once([(1.0, tile), (3.0, {**tile, "BP": 32}), (2.0, {**tile, "SUMS": 1})]) == [(1.5, tile), (3.0, {**tile, "BP": 32})]


def test_a_kernel_of_several_networks_is_judged_once_and_in_all_its_places() -> None:
    call = next(c for c in tiled("mobilenet-v1", 1).values() if c.kernel == "vector")
    first, second = call.configs[:2]
    (one,) = different([(call, [(1.0, first), (2.0, second)], ("a", 1, 1)), (call, [(3.0, first)], ("b", 1, 2))])
    assert one.times == ((2.0, first), (2.0, second))
    assert one.places == (("a", 1, call.nodes, 1), ("b", 1, call.nodes, 2))
    assert choices("vector", [(call, [(1.0, first)], ("a", 1, 1))]) == []  # nothing is left to fit to


def test_places_are_judged_by_the_kernel_that_runs_there() -> None:
    at = ("net", 1, ("n1",), 2)
    conv = Choice("conv", 1.0, 2.0, 1.0, 5.0, (at, ("other", 8, ("n7",), 1)))
    deep = Choice("deep", 0.9, 0.5, 0.5, 6.0, (at,))
    fused = Choice("fused", 3.0, 3.0, 1.0, 1.0, (at,))
    found = readings([conv, deep, fused])
    counts = {name: (own["kernels"], own["first_within_5_percent"]) for name, own in found.items()}
    assert counts == {"all": (3, pytest.approx(1 / 3)), "layers": (2, 0.5), "layers_by_place": (5, 0.6),
                      "layers_run": (3, pytest.approx(1 / 3)), "layers_any_kernel": (3, pytest.approx(1 / 3))}
    assert found["layers_any_kernel"]["lost_mean"] == pytest.approx(2 / 3)  # conv is taken where deep takes half as long


def test_estimates_rank_tiles_nearly_as_time_does() -> None:
    found = judge(RECORD)
    assert found["tiles"] > 2000
    assert found["spearman"] > 0.9
    assert found["timed_within_5_percent"] > 0.9
