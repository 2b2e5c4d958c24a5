"""MobileNetV2 whole on one FPGA, dedicated engines and reusable ones in a row: simulated bit for bit, at the model's pace."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.fpga.accelerator import build_accelerator
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.toolchain.simulate import simulate
from dovetail.numerics.reference import run_integer
from dovetail.partition.accelerator.architecture import judge
from dovetail.partition.plan import Goal
from dovetail.platform.accelerator import Architecture
from dovetail.reproduce.compact_2024.fibha import board_of, fpga_of, region
from tests.fpga.random_graphs import random_inputs

FRAMES = 2


@pytest.mark.deep("compiles a simulator of 65 layers, two minutes")
def test_mobilenet_v2_for_images_of_96_pixels_computes_the_reference_on_a_zc706() -> None:
    device = fpga_of(board_of("zc706"))
    graph = region("mobilenet-v2", 96, device)
    found = judge(graph, device, Architecture.FIBHA, Goal.THROUGHPUT)
    assert found.accelerator.reusable, "the board has no room for engines of all layers"
    assert len(found.accelerator.dedicated) + len(found.accelerator.reusable) == len(graph.nodes) == 65
    assert all(needed <= device.resources[name] for name, needed in found.found.needs.items())
    design = build_accelerator(graph, "accelerator", found.accelerator)
    inputs = random_inputs(graph, FRAMES, 1)
    (source,), (target,) = graph.inputs, graph.outputs
    result = simulate(design, {source: as_pixels(design.inputs[0], inputs[source])})
    expected = run_integer(graph, inputs)[target]
    np.testing.assert_array_equal(result.outputs[target].reshape(expected.shape), expected)
    (interval,) = np.diff(result.frame_cycles)
    assert abs(found.clocks / interval - 1) <= 0.03
