"""The order of promising tiles is looked at again by trees and surfaces; estimates stay, other GPUs are left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dovetail.kernels import second_look
from dovetail.kernels.conv import ConvShape
from dovetail.kernels.deep import DeepShape
from dovetail.kernels.depthwise import DepthwiseShape
from dovetail.kernels.depthwise_bytes import DepthwiseBytesShape
from dovetail.kernels.estimator import costs, seconds
from dovetail.kernels.fused import FusedShape
from dovetail.kernels.ranking import ranked, work_of
from dovetail.kernels.second_look import (
    LOOKED_AT,
    SHARE,
    FeatureScale,
    SecondLook,
    Surface,
    forest_from,
    known_of,
    look_for,
    looks,
)
from dovetail.kernels.shape import KernelShape, configs_of
from dovetail.platform.gpu_specification import specification

H200 = specification("h200")
SHAPES: dict[str, KernelShape] = {
    "conv": ConvShape(2, 1 << 20, 1, 784, 192, 32, 1), "deep": DeepShape(2, 1 << 18, 1, 49, 160, 960),
    "depthwise": DepthwiseShape(2, 1 << 20, 1, 28, 28, 192, 3, 3, 1, 3),
    "bytewise": DepthwiseBytesShape(1, 1 << 20, 1, 28, 28, 48, 3, 1, 2, 1),
    "fused": FusedShape(2, 1 << 20, 784, 192, 9, 32, 32, True, True, True)}
SMALL: dict[str, Any] = {"names": ["BP", "estimate"], "lean": 0.0, "features": [[0, 0, 0]], "edges": [4.5, 5.5],
                         "thresholds": [[0, 0, 1]], "values": [[300000, 300000, 200000, 100000]]}
"""One tree that prefers many pixels."""
FLAT = Surface(FeatureScale(("BP",), np.zeros(1), np.ones(1), np.ones(1), np.zeros(1, dtype=np.bool_)), np.zeros((1, 1)),
               np.zeros(1))
"""A surface that prefers nothing."""


def test_a_tree_is_walked_to_its_leaf() -> None:
    known = {"BP": np.array([4.0, 5.0, 6.0])}
    assert forest_from(SMALL).scores(known, np.ones(3)).tolist() == pytest.approx([3.0, 2.0, 1.0])
    leaning = forest_from({**SMALL, "lean": 2.0}).scores(known, np.exp([0.0, 1.0, 2.0]))
    assert leaning.tolist() == pytest.approx([3.0, 4.0, 5.0])


def test_a_surface_goes_by_tiles_that_look_alike_of_layers_that_look_alike() -> None:
    scale = FeatureScale(("BP", "pixels"), np.array([5.0, 9.0]), np.array([2.0, 1.0]), np.array([1.0, 0.5]),
                         np.array([False, True]))
    surface = Surface(scale, scale.places(np.array([[5.0, 9.0]])), np.array([-1.0]))
    known = {"BP": np.array([5.0, 7.0, 5.0, 99.0]), "pixels": np.array([9.0, 9.0, 12.0, 99.0])}
    at, beside, elsewhere, nowhere = surface.scores(known, 4)
    assert at == pytest.approx(-1.0 - SHARE)
    assert at < min(beside, elsewhere)
    assert elsewhere < -SHARE  # what tiles have in common, whatever the layer, and a little more
    far = np.sqrt(3) * np.array([4.0, 4.0 * 0.5])  # no farther than that
    assert nowhere == pytest.approx(-np.prod((1 + far) * np.exp(-far)) - SHARE * (1 + far[0] / 2) * np.exp(-far[0] / 2))


def test_scores_are_the_mean_of_both() -> None:
    known = {"BP": np.array([4.0, 6.0])}
    raised = replace(FLAT, weights=np.ones(1), places=FLAT.scale.places(np.array([[6.0]])))
    forest = forest_from(SMALL)
    alone = SecondLook(None, raised).scores(known, np.exp([1.0, 2.0]))
    assert alone.tolist() == pytest.approx(((np.array([1.0, 2.0]) + raised.scores(known, 2)) / 2).tolist())  # estimates instead
    both = SecondLook(forest, raised).scores(known, np.ones(2))
    assert both.tolist() == pytest.approx(((forest.scores(known, np.ones(2)) + raised.scores(known, 2)) / 2).tolist())


def test_a_second_look_changes_the_order_of_the_first_tiles_and_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = SHAPES["conv"]
    tiles = shape.tiles()
    times = np.sort(seconds(H200, "conv", "float16", work_of(H200, shape, tiles)))
    monkeypatch.setattr(second_look, "looks", dict)
    plain, estimates = ranked(H200, "float16", shape)
    assert estimates == tuple(times[np.isfinite(times)].tolist())
    values = SMALL["values"][0] if plain[0]["BP"] <= 32 else SMALL["values"][0][::-1]  # what costs do not prefer
    monkeypatch.setattr(second_look, "looks", lambda: {"conv": SecondLook(forest_from({**SMALL, "values": [values]}), FLAT)})
    configs, same = ranked(H200, "float16", shape)
    assert same == estimates
    assert {str(c) for c in plain[:LOOKED_AT]} == {str(c) for c in configs[:LOOKED_AT]}
    assert plain[LOOKED_AT:] == configs[LOOKED_AT:]
    assert configs[1] == plain[0]
    assert (configs[0]["BP"] <= 32) != (plain[0]["BP"] <= 32)


def test_nothing_has_a_say_where_it_was_not_fitted() -> None:
    assert look_for(H200, "conv", "float16") is looks()["conv"]
    assert look_for(H200, "conv", "int8") is None
    assert look_for(specification("orin"), "conv", "float16") is None
    assert look_for(replace(H200, name="another"), "conv", "float16") is None
    assert look_for(H200, "vector", "float16") is None
    assert look_for(H200, "bytewise", "int8") is looks()["bytewise"]
    assert look_for(H200, "bytewise", "float16") is None


@pytest.mark.parametrize("kernel", list(SHAPES))
def test_everything_a_second_look_asks_for_is_known(kernel: str) -> None:
    shape = SHAPES[kernel]
    tiles = shape.tiles()
    estimates = np.full(len(configs_of(tiles)), 1e-6)
    known = known_of(H200, shape, tiles, estimates, 1e-6)
    look = looks()[kernel]
    assert {*(look.forest.names if look.forest else ()), *look.surface.scale.names} <= known.keys()
    assert all(np.isfinite(column).all() and len(column) == len(estimates) for column in known.values())
    assert np.isfinite(look.scores(known, estimates)).all()
    assert np.ptp(look.surface.scores(known, len(estimates))) > 0
    assert kernel in costs()
