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

from dovetail.kernels.estimator import costs, costs_from, judged, seconds, tiles_of
from dovetail.kernels.table import work_of
from dovetail.platform.gpu_specification import specification
from lib.gpu.cost_fit import TABLES, Descent
from lib.gpu.cost_fit import sampled as samples_of
from lib.gpu.estimate import errors, judge, least_squares
from lib.gpu.held_out import Choice, choices, different, readings
from lib.gpu.tiles import Placed, Timed, by_kernel, once, tiled
from lib.gpu.tuned import replaced
from lib.gpu.tuned import taken as taken_from

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
    conv = Choice("conv", 1.0, 1.0, 5.0, (at, ("other", 8, ("n7",), 1)))
    deep = Choice("deep", 0.9, 0.5, 6.0, (at,))
    fused = Choice("fused", 3.0, 1.0, 1.0, (at,))
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
