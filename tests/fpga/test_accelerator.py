"""Whole accelerators in Verilator: dedicated engines, reusable ones, and both in a row, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from dovetail.fpga.accelerator import build_accelerator
from dovetail.fpga.packing import as_pixels
from dovetail.fpga.simulate import simulate_many
from dovetail.ir import Graph
from dovetail.numerics.reference import run_integer
from dovetail.partition.hybrid.architecture import accelerator_of, judge
from dovetail.partition.hybrid.blocks import Blocks
from dovetail.partition.hybrid.search import Search
from dovetail.partition.plan import Goal
from dovetail.platform.accelerator import Accelerator, Architecture
from tests.fpga.random_graphs import random_inputs
from tests.partition.test_hybrid import bottlenecks, fpga


def accelerators(graph: Graph) -> list[Accelerator]:
    """One of every kind, and one for every cut."""
    device = fpga(0.1)
    kinds = (Architecture.SESL, Architecture.SEML, Architecture.MONOLITHIC)
    found = [judge(graph, device, kind, Goal.THROUGHPUT).accelerator for kind in kinds]
    blocks = Blocks(graph, fpga(0.15))
    for cut in (1, 5, 6):
        found.append(accelerator_of(graph, Search(graph, fpga(0.15), (cut,), blocks).fastest(), Architecture.FIBHA))
    return found


@pytest.fixture(scope="module")
def graph() -> Graph:
    return bottlenecks(11)


def test_every_kind_of_accelerator_computes_the_reference(graph: Graph) -> None:
    inputs = random_inputs(graph, 3, 7)
    designs = [build_accelerator(graph, f"made_{i}", a) for i, a in enumerate(accelerators(graph))]
    (source,), (target,) = graph.inputs, graph.outputs
    expected = run_integer(graph, inputs)[target]
    jobs = [(d, {source: as_pixels(d.inputs[0], inputs[source])}) for d in designs]
    for seed in (None, 3):
        for design, result in zip(designs, simulate_many(jobs, stall_seed=seed), strict=True):
            np.testing.assert_array_equal(result.outputs[target].reshape(expected.shape), expected, design.top)


def test_frames_follow_each_other_as_the_model_says(graph: Graph) -> None:
    inputs = random_inputs(graph, 6, 8)
    made = accelerators(graph)[-1]
    design = build_accelerator(graph, "paced", made)
    (result,) = simulate_many([(design, {graph.inputs[0]: as_pixels(design.inputs[0], inputs[graph.inputs[0]])})])
    steady = np.diff(result.frame_cycles)[-2:]
    assert abs(steady.mean() - design.interval_cycles) <= max(4, 0.03 * design.interval_cycles)
