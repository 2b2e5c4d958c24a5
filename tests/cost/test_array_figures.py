"""Clocks and sizes of all small blocks of arrays: what tests/fpga/test_reusable.py simulates; a change of a model shows here."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.cost.array import frame_ends
from dovetail.cost.array_area import block_resources
from dovetail.hardware.arrays.layers import layers_of
from dovetail.hardware.arrays.program import program_of
from tests.fpga.reusable_blocks import cases, outside_cases


def test_ends_of_three_frames_and_resources_are_those_reviewed(golden: Callable[[str, str], None]) -> None:
    rows = []
    for name, (graph, config, *_) in {**cases(), **outside_cases()}.items():
        program = program_of(layers_of(graph, [n.name for n in graph.nodes]), config)
        used = ", ".join(f"{amount:.1f} {resource}" for resource, amount in block_resources(program, "dhm-xcu"))
        rows.append(f"{name}: frames end in clocks {', '.join(map(str, frame_ends(program)))}; {used}\n")
    golden("array_blocks.txt", "".join(rows))
