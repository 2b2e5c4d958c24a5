"""Costs that are a given time per unit, for examples whose answers are known by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dovetail.cost.estimate import ShareCosts
from dovetail.hardware.shares import Ints
from dovetail.ir import Axis, Graph, Node
from dovetail.partition.cost_model import Rates
from dovetail.partition.plan import Goal, Mode
from dovetail.partition.problem import Problem
from dovetail.platform.device import Device, Kind, Link, Platform
from tests.partition.worlds import Builder

FPGA_US, GPU_US, CHANNELS = 9.18, 64.25, 16
"""Microseconds per channel, transfers included, calibrated to the answer of GP partitioning 2023, Sec. 5.1."""


@dataclass(frozen=True)
class PerUnit:
    """Microseconds per channel's worth of work on each device; free transfers; `area` of the FPGA's resource per channel."""

    unit_us: Mapping[str, float]
    area: float = 0.0
    power_w: float = 2.0

    def costs_of(self, graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints,
                 device: Device) -> ShareCosts | None:
        if device.name not in self.unit_us:
            return None
        extent = 1 if axis is None else node.op.extent(axis, graph.input_shapes(node))
        units = (stops - starts) / extent * CHANNELS
        seconds = np.asarray(units * self.unit_us[device.name] * 1e-6, dtype=np.float64)
        resources = {"alm": units * self.area} if device.kind is Kind.FPGA else {}
        return ShareCosts(seconds, seconds, seconds, seconds, seconds * self.power_w, resources,
                          np.zeros(len(seconds), dtype=np.bool_), "given")

    def by_shape(self, device: Device) -> bool:
        return False

    def why_not(self, graph: Graph, node: Node, device: Device) -> str | None:
        return None if device.name in self.unit_us else "no time is given"

    def reduce_costs(self, graph: Graph, node: Node, parts: int, device: Device) -> ShareCosts | None:
        return None

    def rates(self, platform: Platform, source: str, target: str) -> Rates:
        return 0.0, 0.0, 0.0


def one_layer(costs: PerUnit, mode: Mode, budget: float = 1e9, goal: Goal = Goal.LATENCY) -> Problem:
    """One convolution of 16 filters on a host that cannot run it, a GPU and an FPGA."""
    devices = (Device("cpu", Kind.CPU, "host", "given", 0.0, 1.0), Device("gpu", Kind.GPU, "gpu", "given", 0.0, 1.0),
               Device("fpga", Kind.FPGA, "fpga", "given", 0.0, 1.0, resources={"alm": budget}))
    links = (Link("memory", ("cpu", "gpu"), 1e9, 0.0, 0.0), Link("pcie", ("cpu", "fpga"), 1e9, 0.0, 0.0))
    b = Builder(CHANNELS, 4)
    b.conv("x", CHANNELS, 1)
    return Problem(b.graph(), Platform("example", "the paper's example", "cpu", devices, links), costs, goal, mode)
