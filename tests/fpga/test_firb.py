"""Inverted residuals as one engine: bit for bit, with stalls, in the clocks that closed forms say, with fewer buffers."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.cost.firb import bottlenecks
from dovetail.errors import UnsupportedError
from dovetail.fpga.assemble import build_design, design_modules
from dovetail.fpga.design import Design
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.toolchain.simulate import simulate_many
from dovetail.hardware.folds import Fold
from dovetail.ir import Graph, Window
from dovetail.numerics.reference import run_integer
from tests.fpga.random_graphs import Sketch, random_inputs

SIZES = (
    # channels, expanded, filters, kernel, stride, (height, width), slices of inputs at once, expanded channels at once, products
    (6, 20, 6, 3, 1, (7, 6), 3, 4, 1),
    (5, 13, 7, 3, 2, (9, 8), 5, 5, 1),
    (4, 24, 4, 5, 1, (6, 9), 1, 6, 1),
    (8, 16, 8, 3, 1, (8, 8), 8, 16, 2),
    (3, 18, 10, 5, 2, (8, 7), 2, 3, 1),
    # and filters at once
    (6, 20, 6, 3, 1, (7, 6), 2, 4, 1, 2),
    (7, 13, 9, 3, 2, (9, 8), 2, 5, 1, 3),
    (8, 16, 8, 3, 1, (8, 8), 1, 8, 2, 3),
    (6, 9, 6, 5, 1, (6, 9), 3, 9, 1, 4),
    (5, 12, 5, 3, 1, (5, 6), 1, 4, 0, 1),
)


def block(seed: int, channels: int, expanded: int, filters: int, kernel: int, stride: int, size: tuple[int, int],
          swapped: bool = False) -> Graph:
    s = Sketch(np.random.default_rng(seed))
    x = s.input((1, channels, *size), signed=bool(seed % 2), exponent=-6)
    y = s.conv(x, expanded, Window((1, 1)))
    y = s.conv(y, expanded, Window((kernel, kernel), (stride, stride), (kernel // 2,) * 4), expanded)
    y = s.conv(y, filters, Window((1, 1)))
    if stride == 1 and channels == filters:
        y = s.add(x, y) if swapped else s.add(y, x)
    return s.graph((y,))


def folds_for(graph: Graph, inputs: int, words: int, products: int, filters: int = 0) -> dict[str, Fold]:
    (found,) = bottlenecks(graph)
    filters = filters or graph.shape(found.project.output)[1]
    return {found.expand.name: Fold(1, inputs, words, products), found.depthwise.name: Fold(words, 1, 1),
            found.project.name: Fold(1, words, filters, products)}


def made(number: int, fused: bool) -> tuple[Graph, Design]:
    graph = block(number, *SIZES[number][:6], swapped=number in (3, 7))  # type: ignore[arg-type]
    folds = folds_for(graph, *SIZES[number][6:])  # type: ignore[arg-type]
    names = [b.depthwise.name for b in bottlenecks(graph)] if fused else []
    return graph, build_design(graph, f"block_{number}{'_fused' * fused}", folds=folds, fused=names)


@pytest.mark.verilator
@pytest.mark.parametrize("seed", [None, 4])
def test_inverted_residuals_as_one_engine_compute_the_reference(seed: int | None) -> None:
    blocks = [made(number, True) for number in range(len(SIZES))]
    inputs = [random_inputs(graph, 3, 1) for graph, _ in blocks]
    jobs = [(design, {t: as_pixels(design.inputs[0], values) for t, values in own.items()})
            for (_, design), own in zip(blocks, inputs, strict=True)]
    for (graph, design), own, result in zip(blocks, inputs, simulate_many(jobs, stall_seed=seed), strict=True):
        (expected,) = run_integer(graph, own).values()
        np.testing.assert_array_equal(result.outputs[graph.outputs[0]].reshape(expected.shape), expected, design.top)
        if seed is None:
            assert result.frame_cycles[0] == design.latency_cycles, design.top
            assert result.frame_cycles[-1] - result.frame_cycles[-2] == design.interval_cycles, design.top


def bits_of(number: int, fused: bool) -> int:
    graph = block(number, *SIZES[number][:6])  # type: ignore[arg-type]
    names = [b.depthwise.name for b in bottlenecks(graph)] if fused else []
    return sum(m.width * m.depth for module in design_modules(graph, "top", folds_for(graph, *SIZES[number][6:]), names)  # type: ignore[arg-type]
               for m in module.memories)


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_one_engine_buffers_less_than_three(number: int) -> None:
    assert bits_of(number, True) < bits_of(number, False)


def test_folds_that_share_no_words_are_refused() -> None:
    graph = block(0, 6, 20, 6, 3, 1, (7, 6))
    folds = folds_for(graph, 3, 4, 1)
    (found,) = bottlenecks(graph)
    wrong = {**folds, found.depthwise.name: Fold(5, 1, 1)}
    with pytest.raises(UnsupportedError) as caught:
        build_design(graph, "top", folds=wrong, fused=[found.depthwise.name])
    assert str(caught.value) == (f"{found.depthwise.name}: folds 1x3x4, 5x1x1 and 1x4x6 do not share words of 4 channels; "
                                 "take those of `firb_options`")


def test_a_projection_that_takes_longer_than_a_word_is_refused() -> None:
    graph = block(0, 6, 20, 6, 3, 1, (7, 6))
    (found,) = bottlenecks(graph)
    with pytest.raises(UnsupportedError) as caught:
        build_design(graph, "top", folds=folds_for(graph, 3, 4, 1, 2), fused=[found.depthwise.name])
    assert str(caught.value) == (f"{found.depthwise.name}: 3 passes over a word of fold 1x4x2; the fold 1x3x4 has a word ready "
                                 "every 2 clocks, so take no more")
