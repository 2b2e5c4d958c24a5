"""Products without matrix units: what they are estimated to reach, and which of their tiles are timed."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.ir import Conv, Window
from dovetail.kernels.calls import Call
from dovetail.kernels.conv import ConvShape
from dovetail.kernels.estimator import CANDIDATES, seconds, tiles_of
from dovetail.kernels.lower import lower
from dovetail.kernels.products import LEAST, MOST, measured, reached, shares, sizes_of
from dovetail.kernels.ranking import ranked, sizes_apart, work_of
from dovetail.platform.gpu_specification import specification
from tests.strategies import Net

GPU = specification("h200")


def shape(images: int = 64, channels: int = 256, outputs: int = 256, size: int = 28) -> ConvShape:
    """That of a pointwise layer behind another."""
    net = Net(0)
    x = net.add(Conv(channels, Window((1, 1))), net.input((1, 16, size, size)))
    lowered = lower(net.graph(net.add(Conv(outputs, Window((1, 1))), x)), "float32", GPU, images)
    *_, found = (call.shape for run in lowered.runs if not isinstance(run, Call) for *_, call in lowered.options(run)
                 if isinstance(call.shape, ConvShape) and call.shape.depth == channels)
    return found


def tile(pixels: int, channels: int, depth: int, warps: int) -> dict[str, int]:
    return {"BP": pixels, "BN": channels, "BK": depth, "SUMS": 1, "num_warps": warps, "num_stages": 4}


def test_shares_lie_between_bounds_and_follow_results_warps_and_products_in_a_row() -> None:
    tiles = tiles_of([tile(64, 64, 32, 4), tile(128, 128, 32, 8), tile(16, 16, 32, 4), tile(64, 64, 128, 4),
                      tile(256, 256, 256, 1)])
    usual, wide, small, long, hopeless = reached("conv", tiles)
    assert LEAST <= hopeless < small < usual < wide <= MOST
    assert long < usual
    assert reached("moved", tiles) == 1.0
    assert reached("fused", {}) == pytest.approx(np.exp(shares()["fused"]["level"]))


def test_only_float32_is_without_matrix_units() -> None:
    own, tiles = shape(), tiles_of([tile(64, 64, 32, 4), tile(128, 128, 32, 8)])
    work = work_of(GPU, own, tiles)
    for kind in ("float16", "tf32"):
        assert (seconds(GPU, "conv", kind, work) == seconds(GPU, "conv", kind, work, shares={})).all()
    assert (seconds(GPU, "conv", "float32", work) > 1.3 * seconds(GPU, "conv", "float32", work, shares={})).all()


def test_one_program_more_than_there_are_multiprocessors_takes_as_long_as_twice_as_many() -> None:
    pixels = GPU.multiprocessors * 64
    tiles = tiles_of([tile(64, 64, 32, 4)])
    found = [float(seconds(GPU, "conv", "float32", work_of(GPU, shape(images, 2048, 64, 1), tiles))[0])
             for images in (pixels, pixels + 1, 2 * pixels)]
    assert found[1] > 1.8 * found[0]
    assert found[1] == pytest.approx(found[2])


def test_tiles_that_are_timed_have_different_sizes_and_some_of_them_measured_ones() -> None:
    own = shape()
    configs, times = ranked(GPU, "float32", own)
    tiles = tiles_of(configs)
    assert len(set(sizes_of(tiles)[:CANDIDATES])) == CANDIDATES
    assert measured("conv", tiles)[:CANDIDATES].tolist().count(True) == CANDIDATES // 2
    assert list(times) == sorted(times)
    every = own.tiles()
    fits = np.isfinite(seconds(GPU, "conv", "float32", work_of(GPU, own, every)))
    assert sorted(sizes_of(tiles)) == sorted(size for size, there in zip(sizes_of(every), fits, strict=True) if there)


def test_a_size_comes_again_behind_the_others_unless_it_takes_longer_or_sums_apart_help() -> None:
    tiles = tiles_of([tile(64, 64, 32, 4), {**tile(64, 64, 32, 4), "num_stages": 8}, {**tile(64, 64, 32, 4), "SUMS": 2},
                      tile(16, 16, 64, 4), {**tile(16, 16, 64, 4), "SUMS": 2}, {**tile(64, 64, 32, 4), "num_stages": 2}])
    times = np.array([1.0, 1.0, 1.0, 1.2, 1.2, 1.3])
    assert sizes_apart(np.arange(6), times, tiles).tolist() == [0, 3, 4, 5, 1, 2]
