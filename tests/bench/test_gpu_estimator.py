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
from bench.gpu_reaches import Sample, learned, taken, unlikely
from bench.gpu_surface import fitted_surface, of_kernels, scaled, surface_through
from bench.gpu_trees import Table, tabled
from bench.gpu_tuned import replaced
from bench.gpu_tuned import taken as taken_from

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
    made = surface_through(table, "deep")
    again = surface_from("deep", json.loads(json.dumps(fitted_surface(table, "deep", timed))))
    assert again.places == pytest.approx(made.places, abs=1e-3)
    known = {name: table.known[:, i] for i, name in enumerate(table.names)}
    scores = made.scores(known, len(table.lost))
    assert again.scores(known, len(table.lost)) == pytest.approx(scores, abs=2e-3)
    assert np.corrcoef(scores, np.minimum(table.lost, 1.0))[0, 1] > 0.7  # it knows what it was fitted to


def sampled(kernels: int = 12, tiles: int = 8) -> Sample:
    """Kernels of which two numbers tell layers apart and two tell tiles apart, one of each decides."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(kernels), tiles)
    known = np.concatenate([rng.standard_normal((kernels, 2))[owner], rng.standard_normal((kernels * tiles, 2))], axis=1)
    lost = 0.2 * np.abs(known[:, 2] - known[:, 0])
    lost = lost - np.array([lost[owner == i].min() for i in range(kernels)])[owner]
    table = Table(("layer", "layer too", "tile", "tile too"), known, owner, np.zeros(len(lost)), lost)
    scale = scaled(table)
    return Sample(scale, scale.places(known), lost - lost.mean(), of_kernels(owner), 0.04, (0.05 * np.exp(lost)) ** 2)


def test_what_decides_reaches_less_far_than_what_does_not() -> None:
    factors = dict(zip(sampled().scale.names, learned(sampled())[0], strict=True))
    assert factors["tile"] > 2 * factors["tile too"]
    assert factors["layer"] > 2 * factors["layer too"]


def test_reaches_are_learned_along_the_slope_of_the_likelihood() -> None:
    sample, tried = sampled(4, 5), np.random.default_rng(1).standard_normal(6) / 3
    (_, slopes), each = unlikely(sample, tried), 1e-5 * np.eye(6)
    apart = [(unlikely(sample, tried + step)[0] - unlikely(sample, tried - step)[0]) / 2e-5 for step in each]
    assert slopes == pytest.approx(apart, abs=1e-7)


def test_reaches_are_learned_from_whole_kernels() -> None:
    owner = np.repeat(np.arange(300), 7)
    some = taken(owner)
    assert 990 < some.sum() <= 1000
    assert {int(n) for n in np.bincount(owner[some])} == {0, 7}
    assert taken(owner[:70]).all()


def test_what_tuning_timed_takes_the_place_of_what_was_timed_before() -> None:
    calls = tiled("mobilenet-v1", 1)
    (key, call), other = next((k, c) for k, c in calls.items() if c.kernel == "vector"), next(
        (k, c) for k, c in calls.items() if c.kernel == "conv")
    tiles = {key: ((1e-6, call.configs[0]), (float("inf"), call.configs[1])), other[0]: ((2e-6, other[1].configs[0]),)}
    found = taken_from(tiles, {("a", 1): calls, ("b", 1): calls}, ["vector"])
    assert found == [{"network": "a", "images": 1, "kernel": "vector", "nodes": call.nodes, "times": [(1e-6, call.configs[0])]}]
    held = {"kind": "int8", "command": "before", "kernels": [{"kernel": "vector"}, {"kernel": "conv"}]}
    assert replaced(held, found, ["vector"], "tuned so", "2026-11-17") == {
        "kind": "int8", "command": "before", "kernels": [{"kernel": "conv"}, *found],
        "tuned": {"vector": {"date": "2026-11-17", "command": "tuned so"}}}
    assert replaced(held, found, ["vector"], "tuned so", "2026-11-17", keep=True)["kernels"] == [*held["kernels"], *found]


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
