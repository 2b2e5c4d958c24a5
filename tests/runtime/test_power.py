"""Energy of a build's hardware by counted toggles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dovetail.cost import costs_of
from dovetail.fpga.part import load_part
from dovetail.runtime.build import Build
from dovetail.runtime.power import measure_power


def test_a_plan_with_the_counted_activity_has_the_counted_energy(divided: Build) -> None:
    for found in measure_power(divided, 2):
        part = load_part(next(s for s in divided.program.segments if s.name == found.segment).graph, divided.folder / "fpga")
        board = divided.platform.device(found.device)
        counted = replace(board, parameters={**board.parameters, "activity": found.activity})
        energy = 0.0
        for engine in found.engines:
            costs = costs_of(part.graph, part.graph.node(engine.node), None, np.array([0]), np.array([1]), counted)
            assert costs is not None
            energy += float(costs.energy_j[0])
            assert engine.energy_low_j <= engine.energy_j <= engine.energy_high_j
        assert energy == pytest.approx(sum(e.energy_j for e in found.engines))
        assert found.energy_low_j * (1 - 1e-9) <= energy <= found.energy_high_j * (1 + 1e-9)
        assert f"value = {found.activity:.4g}" in found.board_line


def test_every_node_of_every_part_is_an_engine_with_registers_that_toggle(divided: Build) -> None:
    for found in measure_power(divided, 2):
        segment = next(s for s in divided.program.segments if s.name == found.segment)
        assert {e.node for e in found.engines} == {n.name for n in segment.graph.nodes}
        assert all(e.register_bits > 0 and e.toggles_per_frame > 0 for e in found.engines)
        assert 0 < found.toggles_per_clock < 1
        assert found.frames == 2
