"""The order of promising tiles is looked at again by trees; estimates stay, and other GPUs and arithmetics are left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dovetail.kernels import second_look
from dovetail.kernels.estimator import costs, seconds
from dovetail.kernels.ranking import ranked, work_of
from dovetail.kernels.second_look import LOOKED_AT, forest_for, forest_from, forests, known_of
from dovetail.kernels.shapes import ConvShape, DeepShape, DepthwiseShape, FusedShape, KernelShape, configs_of
from dovetail.platform.gpu_specification import specification

H200 = specification("h200")
SHAPES: dict[str, KernelShape] = {
    "conv": ConvShape(2, 1 << 20, 1, 784, 192, 32, 1), "deep": DeepShape(2, 1 << 18, 1, 49, 160, 960),
    "depthwise": DepthwiseShape(2, 1 << 20, 1, 28, 28, 192, 3, 3, 1, 3),
    "fused": FusedShape(2, 1 << 20, 784, 192, 9, 32, 32, True, True, True)}
SMALL: dict[str, Any] = {"names": ["BP", "estimate"], "lean": 0.0, "features": [[0, 0, 0]], "edges": [4.5, 5.5],
                         "thresholds": [[0, 0, 1]], "values": [[300000, 300000, 200000, 100000]]}
"""One tree that prefers many pixels."""


def test_a_tree_is_walked_to_its_leaf() -> None:
    known = {"BP": np.array([4.0, 5.0, 6.0])}
    assert forest_from(SMALL).scores(known, np.ones(3)).tolist() == pytest.approx([3.0, 2.0, 1.0])
    leaning = forest_from({**SMALL, "lean": 2.0}).scores(known, np.exp([0.0, 1.0, 2.0]))
    assert leaning.tolist() == pytest.approx([3.0, 4.0, 5.0])


def test_trees_change_the_order_of_the_first_tiles_and_no_estimate(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = SHAPES["conv"]
    tiles = shape.tiles()
    times = np.sort(seconds(H200, "conv", "float16", work_of(H200, shape, tiles)))
    monkeypatch.setattr(second_look, "forests", dict)
    plain, estimates = ranked(H200, "float16", shape)
    assert estimates == tuple(times[np.isfinite(times)].tolist())
    values = SMALL["values"][0] if plain[0]["BP"] <= 32 else SMALL["values"][0][::-1]  # what costs do not prefer
    monkeypatch.setattr(second_look, "forests", lambda: {"conv": forest_from({**SMALL, "values": [values]})})
    configs, same = ranked(H200, "float16", shape)
    assert same == estimates
    assert {str(c) for c in plain[:LOOKED_AT]} == {str(c) for c in configs[:LOOKED_AT]}
    assert plain[LOOKED_AT:] == configs[LOOKED_AT:]
    assert configs[1] == plain[0]
    assert (configs[0]["BP"] <= 32) != (plain[0]["BP"] <= 32)


def test_trees_have_no_say_where_they_were_not_fitted() -> None:
    assert forest_for(H200, "conv", "float16") is forests()["conv"]
    assert forest_for(H200, "conv", "int8") is None
    assert forest_for(specification("orin"), "conv", "float16") is None
    assert forest_for(replace(H200, name="another"), "conv", "float16") is None
    assert forest_for(H200, "vector", "float16") is None


@pytest.mark.parametrize("kernel", list(SHAPES))
def test_everything_the_trees_ask_for_is_known(kernel: str) -> None:
    shape = SHAPES[kernel]
    tiles = shape.tiles()
    estimates = np.full(len(configs_of(tiles)), 1e-6)
    known = known_of(H200, shape, tiles, estimates, 1e-6)
    assert set(forests()[kernel].names) <= known.keys()
    assert all(np.isfinite(column).all() and len(column) == len(estimates) for column in known.values())
    assert np.isfinite(forests()[kernel].scores(known, estimates)).all()
    assert kernel in costs()
