"""What is compared on MLPerf Tiny: tasks on boards, with the budgets and the clocks of published results."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from dovetail.ir import Graph
from dovetail.partition.accelerator.architecture import accelerated_device, pinned, region_of
from dovetail.partition.plan import Goal
from dovetail.platform.accelerator import Architecture
from dovetail.platform.device import Device
from dovetail.platform.load import load_platform
from dovetail.space import cut_out
from lib.tiny.networks import HERE, TASKS, network

BOARDS: Mapping[str, str] = {"ZC706": "zc706", "ZedBoard": "zedboard", "Zybo": "cora-z7-10", "Cora-Z7": "cora-z7-07s",
                             "ULX3S": "ulx3s"}
"""Shipped boards by the names of results. The Zybo's XC7Z010 is that of a Cora Z7-10; results do not say which Cora-Z7, so it is
the smaller one."""
BUDGETS = ("board", "theirs")
"""All of the board, or no more LUTs, multipliers and memory blocks than the published design has."""
GOALS = (Goal.THROUGHPUT, Goal.LATENCY)


@dataclass(frozen=True, slots=True)
class Published:
    """A result of the benchmark's on an FPGA: frames one by one, with its host."""

    task: str
    who: str
    board: str
    division: str
    frames_per_s: float
    accuracy: float | None = None
    lut: float | None = None
    dsp: float | None = None
    bram36: float | None = None
    bram_part: float | None = None
    clock_mhz: float | None = None

    def resources(self, board: Mapping[str, float]) -> dict[str, float]:
        """What it takes of a board, as far as that is known."""
        blocks = self.bram36 if self.bram_part is None else self.bram_part * board["bram36"]
        return {name: amount for name, amount in (("lut", self.lut), ("dsp", self.dsp), ("bram36", blocks)) if amount is not None}


def published() -> list[Published]:
    """Results of the repositories of mlcommons."""
    return [Published(**row) for row in tomllib.loads((HERE / "published.toml").read_text(encoding="utf-8"))["row"]]


@dataclass(frozen=True)
class Comparison:
    """A task on a board within a budget, for many frames or for one; `theirs` is the published result there."""

    task: str
    board: str
    budget: str
    goal: Goal
    theirs: Published | None

    @property
    def name(self) -> str:
        return f"{self.task} on {self.board}, {self.budget}, {self.goal}"

    @cached_property
    def device(self) -> Device:
        """The FPGA with its budget at its clock: the published one, else that of the board's file."""
        found = accelerated_device(load_platform(BOARDS[self.board]))
        if self.theirs is None or self.theirs.clock_mhz is None:
            return found
        found = replace(found, clock_hz=self.theirs.clock_mhz * 1e6)
        if self.budget == "board":
            return found
        less = self.theirs.resources(found.resources)
        return replace(found, resources={r: min(amount, less.get(r, amount)) for r, amount in found.resources.items()})

    def beyond(self, times: float) -> Device:
        """The FPGA with so many times its logic and registers."""
        logic = {r for r in self.device.resources if r.startswith("lut") or r == "register"}
        more = {r: amount * (times if r in logic else 1) for r, amount in self.device.resources.items()}
        return replace(self.device, resources=more)

    @cached_property
    def region(self) -> Graph:
        """What the FPGA takes over of the network."""
        graph = network(self.task).graph
        pins = pinned(graph, region_of(graph, self.device, Architecture.AUTO), self.device.name)
        return cut_out(graph, pins, load_platform(BOARDS[self.board]).host, self.device.name)


def comparisons() -> Iterator[Comparison]:
    """Every task on every board; published designs' budgets where there is one."""
    known = {(p.task, p.board): p for p in published()}
    for task in TASKS:
        for board in BOARDS:
            theirs = known.get((task, board))
            for budget in BUDGETS[:1] if theirs is None else BUDGETS:
                yield from (Comparison(task, board, budget, goal, theirs) for goal in GOALS)
