"""Builds whose boards are simulated at the same time: a shipped board with its FPGA several times, each linked to the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dovetail import pipeline
from dovetail.numbers import graph_to_plan
from dovetail.partition.plan import Split, whole_on
from dovetail.planning import Options
from dovetail.platform.device import Kind, Platform
from dovetail.platform.load import load_platform
from dovetail.runtime.build import Build

LAST = 3
"""Nodes left to the CPU: average, reshape, classifier."""


def several(name: str, count: int) -> Platform:
    """A board with `count` of its FPGA; the host carries what passes between them."""
    board = load_platform(name)
    (fpga,) = board.of_kind(Kind.FPGA)
    devices = [d for d in board.devices if d is not fpga] + [replace(fpga, name=f"fpga{i}") for i in range(count)]
    links = [replace(link, name=f"{link.name}{i}", ends=tuple(f"fpga{i}" if e == fpga.name else e for e in link.ends))
             for link in board.links if fpga.name in link.ends for i in range(count)]
    links += [link for link in board.links if fpga.name not in link.ends]
    return replace(board, name=f"{count}x {board.name}", devices=tuple(devices), links=tuple(links))


def divided_build(model: Path, platform: Platform, clocks: int, folder: Path) -> Build:
    """A network cut into as many consecutive parts as there are FPGAs, its last nodes on the host; not verified."""
    nodes = [node.name for node in graph_to_plan(model)[0].nodes]
    boards = [d.name for d in platform.of_kind(Kind.FPGA)]
    hardware = nodes[:-LAST]
    places: dict[str, Split] = {n: whole_on(boards[i * len(boards) // len(hardware)]) for i, n in enumerate(hardware)}
    places |= {n: whole_on(platform.host) for n in nodes[-LAST:]}
    return pipeline.compile(model, platform, folder, options=Options(fold=clocks, explained=False, rivals=False),
                            assignment=places, verify=False)
