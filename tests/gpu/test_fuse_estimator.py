"""FuseEstimator: what it counts equals a count of loads and stores tile by tile; limits and choices hold."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.kernels.fuse_estimator import FusedLayer, alone, best, chosen, estimate, fused
from dovetail.platform.gpu_specification import specification

GPU = specification("gtx-1660")
SIZES = st.integers(1, 9)


def counted(layer: FusedLayer, high: int, wide: int, channels: int) -> int:
    """Values a depthwise layer moves, program by program."""
    moved = 0
    for top in range(0, layer.height, high):
        for left in range(0, layer.width, wide):
            for first in range(0, layer.channels, channels):
                own = min(channels, layer.channels - first)
                tall = min((high - 1) * layer.stride + layer.window, layer.height * layer.stride)
                broad = min((wide - 1) * layer.stride + layer.window, layer.width * layer.stride)
                moved += own * (tall * broad + layer.window ** 2)
                moved += own * (min(high, layer.height - top) * min(wide, layer.width - left))
    return moved


@settings(max_examples=40, deadline=None)
@given(height=SIZES, width=SIZES, channels=SIZES, window=st.sampled_from([3, 5]), stride=st.sampled_from([1, 2]))
def test_a_depthwise_layer_moves_what_its_programs_load_and_store(height: int, width: int, channels: int, window: int,
                                                                  stride: int) -> None:
    layer = FusedLayer(True, height, width, channels, channels, window, stride)
    for t in alone(layer, 1):
        assert t.moved == counted(layer, *t.tiles)


@settings(max_examples=40, deadline=None)
@given(pixels=SIZES, channels=SIZES, filters=SIZES, images=st.integers(1, 3))
def test_a_pointwise_layer_moves_what_its_programs_load_and_store(pixels: int, channels: int, filters: int, images: int) -> None:
    layer = FusedLayer(False, pixels, 1, channels, filters)
    for t in alone(layer, images):
        rows, columns = range(0, pixels * images, t.tiles[0]), range(0, filters, t.tiles[1])
        own = [(min(t.tiles[0], pixels * images - r), min(t.tiles[1], filters - c)) for r in rows for c in columns]
        assert t.moved == sum(p * channels + channels * f + p * f for p, f in own)
        assert t.programs == len(own)


def test_modules_are_named_by_their_layers() -> None:
    wide, deep = FusedLayer(False, 8, 8, 16, 32), FusedLayer(True, 8, 8, 32, 32, 3)
    narrow = FusedLayer(False, 8, 8, 32, 16)
    assert {t.module for t in fused(wide, deep, 1)} == {"PWDW", "PWDW_R"}
    assert {t.module for t in fused(deep, narrow, 1)} == {"DWPW"}
    assert {t.module for t in fused(wide, narrow, 1)} == {"PWPW"}
    assert list(fused(deep, deep, 1)) == []  # the paper fuses no two depthwise layers


def test_a_fused_pair_that_is_held_whole_moves_input_weights_and_output_once() -> None:
    deep, narrow = FusedLayer(True, 4, 4, 8, 8, 3), FusedLayer(False, 4, 4, 8, 4)
    one = replace(GPU, multiprocessors=1)
    found = estimate((deep, narrow), one, 1)
    assert found.fused_bytes == 4 * 4 * 8 + 9 * 8 + 8 * 4 + 4 * 4 * 4
    assert found.apart_bytes == found.fused_bytes + 2 * 4 * 4 * 8  # what lies between is stored and loaded
    assert found.fuses


def test_what_fits_no_shared_memory_is_not_fused() -> None:
    deep, narrow = FusedLayer(True, 7, 7, 4096, 4096, 3), FusedLayer(False, 7, 7, 4096, 64)
    found = estimate((deep, narrow), GPU, 4)
    assert found.fused_bytes == inf
    assert found.module == "none fits"
    assert not found.fuses


def test_every_multiprocessor_gets_a_program_where_that_is_possible() -> None:
    layer = FusedLayer(False, 14, 14, 96, 576)
    found = best(alone(layer, 1), GPU, 4)
    assert found is not None
    assert found.programs >= GPU.multiprocessors
    assert found.held * 4 <= GPU.shared_bytes
    tiny = best(alone(FusedLayer(False, 1, 1, 8, 4), 1), GPU, 4)
    assert tiny is not None
    assert tiny.programs == 4  # as many as there can be


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.sampled_from([7, 14]), st.sampled_from([8, 24])), min_size=1, max_size=5))
def test_a_chain_is_divided_at_least_cost(given: list[tuple[bool, int, int]]) -> None:
    chain = [FusedLayer(d, 14, 14, c, c, 3 if d else 1) for d, _, c in given]
    singles = [chosen([x], GPU, 4)[0] for x in chain]
    pairs = [estimate((a, b), GPU, 4).fused_bytes for a, b in pairwise(chain)]

    def least(i: int) -> float:
        if i >= len(chain):
            return 0.0
        return min(singles[i] + least(i + 1), (pairs[i] + least(i + 2)) if i + 1 < len(chain) else inf)

    apart, together, where = chosen(chain, GPU, 4)
    assert apart == sum(singles)
    assert together == least(0)
    assert all(b - a > 1 for a, b in pairwise(where))
