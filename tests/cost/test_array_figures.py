"""Clocks and sizes of all small blocks of arrays: what tests/fpga/test_reusable.py simulates; a change of a model shows here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dovetail.cost.array import frame_ends
from dovetail.cost.array_area import block_resources
from dovetail.hardware.arrays.layers import layers_of
from dovetail.hardware.arrays.program import program_of
from tests.fpga.reusable_blocks import cases, outside_cases


def test_ends_of_frames_behind_a_slow_memory_are_those_reviewed(golden: Callable[[str, str], None]) -> None:
    rows = []
    for name, (graph, config, *_) in outside_cases().items():
        for latency, part, more in ((0, 1, 1), (70, 1, 1), (30, 4, 1), (250, 2, 1), (0, 3, 2)):
            slow = replace(config, latency_clocks=latency, bandwidth_bytes=max(1, config.port_bytes // part),
                           map_bytes=more * config.map_bytes)
            program = program_of(layers_of(graph, [n.name for n in graph.nodes]), slow)
            ends = ", ".join(map(str, frame_ends(program)))
            rows.append(f"{name}, {latency} clocks, 1/{part} of the bandwidth, {slow.map_bytes} bytes: {ends}\n")
    golden("array_memories.txt", "".join(rows))


def test_ends_of_three_frames_and_resources_are_those_reviewed(golden: Callable[[str, str], None]) -> None:
    rows = []
    for name, (graph, config, *_) in {**cases(), **outside_cases()}.items():
        program = program_of(layers_of(graph, [n.name for n in graph.nodes]), config)
        used = ", ".join(f"{amount:.1f} {resource}" for resource, amount in block_resources(program, "dhm-xcu"))
        rows.append(f"{name}: frames end in clocks {', '.join(map(str, frame_ends(program)))}; {used}\n")
    golden("array_blocks.txt", "".join(rows))
