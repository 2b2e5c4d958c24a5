"""Estimates follow the specification: every GPU has one, and a slower one takes longer."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.kernels.calls import Call
from dovetail.kernels.depthwise import DepthwiseShape
from dovetail.kernels.estimator import (
    CANDIDATES,
    MOST_IN_A_ROW,
    Costs,
    Factors,
    KernelWork,
    costs,
    seconds,
    shared_out,
    tiles_of,
)
from dovetail.kernels.inverted_residual import InvertedResidualShape
from dovetail.kernels.lower import lower
from dovetail.kernels.moves import MovedShape
from dovetail.kernels.ranking import best_seconds, ranked, work_of
from dovetail.platform.gpu_specification import matching, specification, specifications
from tests.kernels.networks import GRAPHS


def calls(gpu: str, kind: str = "float16") -> list[Call]:
    lowered = lower(GRAPHS["inverted"](), kind, specification(gpu))
    return [call for run in lowered.runs if not isinstance(run, Call) for *_, call in lowered.options(run)]


@pytest.mark.parametrize("name", specifications())
def test_every_specification_estimates_every_kernel(name: str) -> None:
    found = calls(name)
    assert {c.kernel for c in found} >= {"conv", "depthwise", "fused"}
    for call in found:
        assert call.estimates_s == tuple(sorted(call.estimates_s))
        assert 0.3e-6 < call.estimates_s[0] < 1e-3


def test_a_smaller_gpu_takes_longer() -> None:
    large = {c.nodes: c.estimates_s[0] for c in calls("h200")}
    small = {c.nodes: c.estimates_s[0] for c in calls("gtx-1660")}
    assert all(small[nodes] > large[nodes] for nodes in large.keys() & small.keys())


def test_gpus_are_found_by_the_names_drivers_give_them() -> None:
    found = matching("NVIDIA RTX A4000 Laptop GPU")
    assert found is specification("rtx-a4000")
    assert matching("NVIDIA H200") is specification("h200")
    assert matching("Some other card") is None


def test_programs_that_do_not_fit_are_said_not_to() -> None:
    gpu = specification("gtx-1660")
    found = shared_out(gpu, np.full(2, 45.0), 4, 255, np.array([gpu.shared_bytes + 1, gpu.shared_bytes]))
    assert found.fits.tolist() == [False, True]
    assert (found.waves[1], found.each[1]) == (3, 3)


def test_no_cost_is_negative() -> None:
    assert {"conv", "depthwise", "fused", "vector"} <= set(costs())
    assert all(cost >= 0 for own in costs().values() for cost in own.each.values())
    assert all(own.overlap >= 1 for own in costs().values())


def test_factors_are_those_of_a_tiles_sizes_and_one_where_none_is_known() -> None:
    factors = Factors({"BP BN": {"16 32": 1.5, "32 16": 0.5}, "num_warps BP*BN": {"4 512": 2.0}})
    tiles = tiles_of([{"BP": bp, "BN": bn, "num_warps": warps} for bp, bn, warps in ((16, 32, 4), (32, 16, 2), (64, 64, 4))])
    assert factors.of(tiles).tolist() == [3.0, 0.5, 1.0]


def test_parts_of_a_kernel_overlap_as_its_costs_say() -> None:
    gpu = specification("h200")
    one, flags = np.ones(1), np.ones(1, dtype=np.bool_)
    work = KernelWork({"launch": one, "waves": 3 * one, "sm_loads": 4 * one, "memory": 0 * one}, {}, 0.0, 0.0, flags)
    each = {"launch": 1e-3, "waves": 1e-3, "sm_loads": 1e-3}
    assert seconds(gpu, "conv", "float16", work, Costs(each)) == pytest.approx([8e-3])
    assert seconds(gpu, "conv", "float16", work, Costs(each, 2.0)) == pytest.approx([6e-3])
    doubled = Costs(each, 2.0, waits=Factors({"R": {"1": 2.0}}))
    assert seconds(gpu, "conv", "float16", work, doubled) == pytest.approx([1e-3 + 1e-3 * 52 ** 0.5])


def test_of_bytes_depthwise_tiles_with_one_column_are_among_those_timed() -> None:
    shape = DepthwiseShape(1, 2 * 56 * 56 * 96, 1, 56, 56, 96, 3, 3, 1, 3)
    configs, times = ranked(specification("h200"), "int8", shape)
    assert {c["SIDE"] == 1 for c in configs[:CANDIDATES]} == {False, True}
    assert len({tuple(sorted(c.items())) for c in configs}) == len(configs) == len(times)


def test_a_thread_has_no_more_products_in_a_row_than_are_soon_compiled() -> None:
    """128 channels in front of four rows were 27,648 of them, which took Triton two minutes."""
    shape = InvertedResidualShape(element=4, moved_bytes=1e6, images=1, height=28, width=28, inner=128, channels=128, filters=128,
                        taps_down=3, taps_across=3, stride=2, back=False)
    gpu = specification("h200")
    assert np.isinf(ranked(gpu, "float32", shape)[1]).all()
    assert np.isinf(best_seconds(gpu, "float32", [shape])).all()
    assert np.isfinite(ranked(gpu, "tf32", shape)[1]).all()  # matrix units take them
    for own in calls("h200", "float32"):
        if own.kernel in ("conv", "deep", "fused", "banded", "walked"):
            assert (work_of(gpu, own.shape, tiles_of(own.configs)).unrolled <= MOST_IN_A_ROW).all(), own.nodes
            assert (work_of(gpu, own.shape, tiles_of(own.configs)).unrolled > 0).all()


def test_a_mean_waits_for_the_pixels_of_its_image_and_reads_more_of_them_at_once_where_there_are_many() -> None:
    gpu = specification("h200")
    small, large = (MovedShape(1, (side**2 + 1) * 32, 1, 32, True) for side in (7, 112))
    assert (small.pixels, large.pixels) == (49, 12544)
    for shape, first in ((small, 64), (large, 256)):
        tiles, times = ranked(gpu, "int8", shape)
        assert len(tiles) == 4
        assert tiles[0]["BP"] == first
        assert list(times) == sorted(times)
    assert best_seconds(gpu, "int8", [large])[0] > 3 * best_seconds(gpu, "int8", [small])[0]
    moved = MovedShape(1, 12545 * 32, 12544, 32)
    assert best_seconds(gpu, "int8", [moved])[0] < best_seconds(gpu, "int8", [large])[0]
