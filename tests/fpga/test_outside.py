"""Blocks whose maps lie in external memory: results, stalls, clocks by the model and in Verilator."""

from __future__ import annotations

import pytest

from dovetail.fpga.toolchain.simulate import Simulation
from dovetail.hardware.arrays.jobs import TransferKind
from tests.fpga.reusable_blocks import outside_cases
from tests.fpga.test_reusable import Run, check_outputs, left, run_of, simulated


def built(names: tuple[str, ...]) -> list[Run]:
    return [run_of(name, *outside_cases()[name]) for name in names]


@pytest.fixture(scope="module")
def runs() -> list[tuple[Run, Simulation]]:
    made = built(tuple(outside_cases()))
    return list(zip(made, simulated(made), strict=True))


@pytest.mark.verilator
def test_maps_in_external_memory_change_no_number(runs: list[tuple[Run, Simulation]]) -> None:
    check_outputs([run for run, _ in runs], [simulation for _, simulation in runs])


@pytest.mark.verilator
def test_stripes_take_the_clocks_the_model_says(runs: list[tuple[Run, Simulation]]) -> None:
    for (_, block, _), simulation in runs:
        said, took = left(block), simulation.frame_cycles
        assert abs(said[0] / took[0] - 1) < 0.03, (block.design.top, said, took)
        assert abs((said[2] - said[1]) / (took[2] - took[1]) - 1) < 0.03, (block.design.top, said, took)


@pytest.mark.verilator
def test_memory_that_makes_wait_changes_no_number(runs: list[tuple[Run, Simulation]]) -> None:
    blocks = [run for run, _ in runs]
    check_outputs(blocks, simulated(blocks, 5))


def test_only_blocks_that_store_maps_have_a_port_to_write() -> None:
    (_, ring, _), (_, stored, _) = built(("striped_ring", "outside_narrow"))
    assert ring.program.transfers
    assert not any(t.kind is TransferKind.STORE for t in ring.program.transfers)
    assert ring.design.memory is not None
    assert not ring.design.memory.writes
    assert "memory_write_data" not in ring.design.files["striped_ring.v"]
    assert stored.design.memory is not None
    assert stored.design.memory.writes
    assert stored.design.memory.beats > len(stored.image)
