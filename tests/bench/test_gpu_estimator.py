"""The costs that come with the package are those that the committed measurements give, and estimates rank as the pages say."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from bench.gpu_estimator import Placed, Timed, by_kernel, errors, judge, least_squares, once, tiled
from bench.gpu_fit import TABLES, Descent
from bench.gpu_fit import sampled as samples_of
from bench.gpu_held_out import Choice, choices, different, readings
from bench.gpu_reaches import Sample, learned, taken, unlikely
from bench.gpu_surface import fitted_surface, of_kernels, scaled, surface_through
from bench.gpu_trees import Table, grown_forest, tabled
from bench.gpu_tuned import replaced
from bench.gpu_tuned import taken as taken_from

from dovetail.kernels.estimator import costs, costs_from, judged, seconds, tiles_of
from dovetail.kernels.second_look import forest_from, looks, surface_from
from dovetail.kernels.table import work_of
from dovetail.platform.gpu_specification import specification

RECORD = Path(__file__).parents[2] / "bench/records/gpu_tiles.json"
BYTES, BRIDGED = RECORD.with_name("gpu_tiles_int8.json"), RECORD.with_name("gpu_tiles_bridged.json")


@cache
def measured() -> dict[str, list[Placed]]:
    """Calls of every kernel with the committed times of their tiles; matching them takes longer than all that follows."""
    return by_kernel([RECORD])


def timed(kernel: str) -> list[Timed]:
    return [(call, times) for call, times, _ in measured()[kernel]]


@pytest.mark.deep("matches the committed times with kernels, two minutes")
def test_the_stated_errors_are_those_of_the_costs_on_the_committed_measurements() -> None:
    stated = asdict(judged())
    kernels = {k["kernel"] for path in (RECORD, BYTES, BRIDGED) for k in json.loads(path.read_text())["kernels"]}
    assert set(stated.pop("fitted")) == kernels
    assert kernels <= costs().keys()
    assert errors(RECORD, costs()) == pytest.approx(stated, rel=0.02)  # costs are written with five digits


@pytest.mark.deep("matches the committed times with kernels, two minutes")
@pytest.mark.parametrize("kernel", ["depthwise", "fused", "vector"])
def test_costs_by_least_squares_estimate_what_a_fit_to_the_committed_measurements_does(kernel: str) -> None:
    """Estimates are compared: between machines, costs that explain the same times may take each other's place."""
    gpu, again, apart = specification("h200"), costs_from(least_squares(timed(kernel))), list[np.ndarray]()
    for call, times in timed(kernel):
        work = work_of(gpu, call.shape, tiles_of([tile for _, tile in times]))
        ours, theirs = (seconds(gpu, kernel, "float16", work, own) for own in (costs()[kernel], again))
        apart.append(np.abs(ours / theirs - 1)[np.isfinite(ours)])
    assert np.concatenate(apart).mean() < 0.01


@pytest.mark.deep("matches the committed times with kernels, two minutes")
@pytest.mark.parametrize("kernel", ["conv", "deep"])
def test_costs_with_factors_lose_less_than_where_their_descent_began_or_than_dearer_and_cheaper_ones(kernel: str) -> None:
    held = tomllib.loads(resources.files("dovetail.kernels").joinpath("costs.toml").read_text("utf-8"))[kernel]
    descent = Descent(samples_of(specification("h200"), timed(kernel)), TABLES[kernel])
    with torch.no_grad():
        start = float(descent.loss())
        descent.take(held)
        found = float(descent.loss())
        assert found < start
        for step in (-0.4, 0.4):  # every estimate two thirds, or one and a half, of what it was
            descent.take({name: value * np.exp(step) if isinstance(value, float) and name != "overlap" else value
                          for name, value in held.items()})
            assert float(descent.loss()) > found


@pytest.mark.deep("matches the committed times with kernels, two minutes")
def test_trees_and_surfaces_hold_the_committed_measurements_and_choose_better_than_costs() -> None:
    """Trees fitted elsewhere divide tiles elsewhere; what was timed, and what is lost by a choice, are the same everywhere."""
    found, comes = [(k.call, k.times) for k in different(measured()["deep"])], looks()["deep"]
    held = json.loads(resources.files("dovetail.kernels").joinpath("forests.json").read_text("utf-8"))["surfaces"]["deep"]
    assert held["shapes"] == [[int(v) for v in call.shape] for call, _ in found]
    assert held["counts"] == [len(times) for _, times in found]
    tiles = [tile for _, times in found for _, tile in times]
    assert [held["tiles"][i] for i in held["timed"]] == [[tile.get(name, 1) for name in held["sizes"]] for tile in tiles]
    table = tabled(specification("h200"), "deep", found, costs()["deep"])
    columns = table.known[:, [table.names.index(n) for n in comes.surface.scale.names]]
    assert comes.surface.places == pytest.approx(comes.surface.scale.places(columns), abs=0.01)
    assert comes.forest is not None
    assert comes.forest.names == table.names
    known, estimates = {name: table.known[:, i] for i, name in enumerate(table.names)}, np.exp(table.estimates)

    def lost(scores: np.ndarray) -> float:
        """By the first tile of every kernel, in the mean."""
        every = [np.flatnonzero(table.owner == i) for i in range(len(found))]
        return float(np.mean([table.lost[own[scores[own].argmin()]] for own in every]))

    by_costs = lost(table.estimates)
    for scores in (comes.forest.scores(known, estimates), comes.surface.scores(known, len(estimates))):
        assert lost(scores) < 0.9 * by_costs


def test_trees_grow_where_times_divide() -> None:
    """Half of the tiles of every kernel take twice as long, and one thing that is known of them says which."""
    rng = np.random.default_rng(2)
    owner = np.repeat(np.arange(30), 10)
    known = np.concatenate([rng.standard_normal((300, 3)), np.zeros((300, 1))], axis=1)
    table = Table(("a", "b", "c", "estimate"), known, owner, np.zeros(300), np.where(known[:, 1] > 0, np.log(2.0), 0.0))
    forest = forest_from(json.loads(json.dumps(grown_forest(table))))
    scores = forest.scores({name: known[:, i] for i, name in enumerate(table.names)}, np.ones(300))
    assert scores[known[:, 1] > 0.2].min() > scores[known[:, 1] < -0.2].max()


@pytest.mark.slow("matches committed times with kernels")
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


@pytest.mark.slow("matches committed times with kernels")
def test_estimates_rank_tiles_nearly_as_time_does() -> None:
    found = judge(RECORD)
    assert found["tiles"] > 2000
    assert found["spearman"] > 0.9
    assert found["timed_within_5_percent"] > 0.9
