"""Blocks whose maps lie in external memory: every layer's words, stalls, clocks by the model and in Verilator."""

from __future__ import annotations

import pytest

from dovetail.fpga.reusable.block import build_block
from dovetail.fpga.reusable.frames import check_layers
from dovetail.fpga.toolchain.simulate import Simulation
from dovetail.hardware.arrays.jobs import TransferKind
from tests.fpga.random_graphs import random_inputs
from tests.fpga.reusable_blocks import outside_cases
from tests.fpga.test_reusable import Run, check_outputs, left, simulated

STALLED = ("outside_narrow", "outside_wide", "outside_uneven")


def built(names: tuple[str, ...], watched: bool) -> list[Run]:
    found = []
    for name in names:
        graph, config = outside_cases()[name]
        block = build_block(graph, [n.name for n in graph.nodes], config, name, watched)
        found.append((graph, block, random_inputs(graph, 3, 1)))
    return found


@pytest.fixture(scope="module")
def watched() -> list[tuple[Run, Simulation]]:
    made = built(tuple(outside_cases()), True)
    return list(zip(made, simulated(made), strict=True))


@pytest.mark.verilator
def test_every_layer_of_maps_in_external_memory_equals_the_reference(watched: list[tuple[Run, Simulation]]) -> None:
    for (graph, block, inputs), simulation in watched:
        check_layers(graph, block, simulation, inputs)
    check_outputs([run for run, _ in watched], [simulation for _, simulation in watched])


@pytest.mark.verilator
def test_stripes_take_the_clocks_the_model_says(watched: list[tuple[Run, Simulation]]) -> None:
    for (_, block, _), simulation in watched:
        said, took = left(block), simulation.frame_cycles
        assert abs(said[0] / took[0] - 1) < 0.03, (block.design.top, said, took)
        assert abs((said[2] - said[1]) / (took[2] - took[1]) - 1) < 0.03, (block.design.top, said, took)


@pytest.mark.verilator
def test_memory_that_makes_wait_changes_no_number() -> None:
    runs = built(STALLED, False)
    check_outputs(runs, simulated(runs, 5))


def test_only_blocks_that_store_maps_have_a_port_to_write() -> None:
    (_, ring, _), (_, stored, _) = built(("striped_ring", "outside_narrow"), False)
    assert ring.program.transfers
    assert not any(t.kind is TransferKind.STORE for t in ring.program.transfers)
    assert ring.design.memory is not None
    assert not ring.design.memory.writes
    assert "memory_write_data" not in ring.design.files["striped_ring.v"]
    assert stored.design.memory is not None
    assert stored.design.memory.writes
    assert stored.design.memory.beats > len(stored.image)
