"""Weights as values: what is remembered of them is what they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dovetail import zoo
from dovetail.ir import Constant
from dovetail.ir.onnx.read import read_onnx


def largest(array: np.ndarray) -> np.ndarray:
    return np.abs(array).reshape(len(array), -1).max(axis=1)


def test_an_imported_network_knows_the_largest_weight_of_every_filter_also_where_batch_norms_were_folded(tmp_path: Path) -> None:
    path = tmp_path / "network.onnx"
    path.write_bytes(zoo.build("mobilenet-v2-0.5", size=32))
    weights = [c for c in read_onnx(path).graph.constants.values() if c.array.ndim > 1]
    assert len(weights) > 50
    for constant in weights:
        assert constant.known_peaks is not None, constant.name
        assert np.array_equal(constant.known_peaks, largest(constant.array)), constant.name


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 3, 3), (7,), (), (0, 4), (4, 0), (300, 600)])
def test_largest_weights_are_found_once_and_not_handed_on_to_other_weights(shape: tuple[int, ...]) -> None:
    array = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    constant = Constant("w", array)
    assert constant.known_peaks is None
    rows = np.abs(array).reshape(len(array) if shape else 1, int(np.prod(shape[1:])))
    assert np.array_equal(constant.peaks(), rows.max(axis=1, initial=0.0))
    assert constant.known_peaks is constant.peaks()
    assert replace(constant, array=2 * array).known_peaks is None
