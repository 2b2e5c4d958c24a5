"""Heterogeneity 2021: building blocks of its three networks, the authors' hand partitions, and how both are judged on our models.

Who computes what is the authors' choice, given here as fixed assignments. Parallel blocks are judged in concurrent mode, where
branches on different devices run at once; sequential ones add everything up, as the authors do.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dovetail.ir import Graph
from dovetail.ir.onnx.builder import OnnxBuilder
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.tables import tabulate
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import evaluate
from dovetail.partition.plan import Assignment, Mode, whole_on
from dovetail.partition.problem import Problem
from dovetail.platform.device import Kind, ModelSet, Platform
from dovetail.reproduce import gains
from dovetail.zoo.mobilenet import inverted_residual
from dovetail.zoo.network import Moments, Net
from dovetail.zoo.shufflenet import v2_unit
from dovetail.zoo.squeezenet import fire

SIZES = (224, 112, 56, 28, 14, 7, 4)
"""Sides of the input that Figure 4 averages over."""
BOARD, GPU_BOARD = "tx2-c10gx", "tx2"
KEYS = ("energy", "latency")


@dataclass(frozen=True, slots=True)
class Printed:
    """What the paper says of a block, as gains over the GPU alone: Table I, and its text and abstract in words."""

    energy: float
    latency: float
    text: str


Write = Callable[[Net, str], str]
"""Writes a block behind an input; returns its output."""


@dataclass(frozen=True, slots=True)
class PaperBlock:
    """One building block, channels of its input, the nodes (by ending) the authors give to the FPGA, and how it runs."""

    name: str
    channels: int
    write: Write
    on_fpga: tuple[str, ...]
    parallel: bool
    partition: str
    printed: Printed
    why: str

    def graph(self, side: int) -> Graph:
        """The block on a square input, weights seeded by their names."""
        net = Net(OnnxBuilder(self.name), side)
        x = net.builder.input("input", (1, self.channels, side, side))
        net.moments[x] = Moments(0.0, 1.0)
        content = net.builder.serialize([self.write(net, x)], 0)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "block.onnx"
            path.write_bytes(content)
            return tabulate(read_onnx(path).graph)


_SHUFFLE = Printed(1.39, 1.35, "abstract: 25 % less energy, 21 % less latency; text: 25 % faster, 21 % less energy")
BLOCKS = (
    PaperBlock("Fire", 64, lambda net, x: fire(net, x, "fire", 16, 64), ("_expand3x3",), True,
          "expand 3x3 on the FPGA beside expand 1x1 on the GPU",
          Printed(1.34, 1.01, "abstract: 21 % to 28 % less energy, same latency; text: up to 28 % less energy, which is 1.39x"),
          "In our GPU model the 3x3 expansion is the longest part of the block, so the block gets shorter without it, where the "
          "paper finds the 1x1 expansion alone to take as long; at the authors' 11 ALM per weight its 9,216 weights do not fit."),
    PaperBlock("Bottleneck 0.5x", 16, lambda net, x: inverted_residual(net, x, "bottleneck", 16, 3, 1, 6),
          (".expand.conv", ".project.conv"), False,
          "both 1x1 convolutions on the FPGA, depthwise on the GPU, one after the other",
          Printed(1.55, 1.26, "abstract: 12 % to 30 % less energy, 4 % to 26 % less latency, up to 1.43x and 1.35x; text: 23 % "
                  "and 30 %"),
          "96 channels cross the link twice per block, at the 1.6 GB/s that was measured and not the 2.5 GB/s the paper reckons "
          "with, which is above the line rate of PCIe gen2 x4, so time falls less than energy does."),
    PaperBlock("Shuffle reduction 0.5x", 24, lambda net, x: v2_unit(net, x, "unit", 48, True),
          (".branch1.depthwise.conv", ".branch1.pointwise.conv"), True,
          "the short branch on the FPGA beside the other on the GPU", _SHUFFLE,
          "The GPU keeps the longer branch and the FPGA's idle power is charged for all of its time, so energy falls less than "
          "time does; the paper prints one figure for both kinds of unit."),
    PaperBlock("Shuffle basic 0.5x", 48, lambda net, x: v2_unit(net, x, "unit", 48, False),
          (".pointwise1.conv", ".pointwise2.conv"), False,
          "both 1x1 convolutions on the FPGA, depthwise on the GPU, one after the other", _SHUFFLE,
          "Two round trips over the link take back most of the time that two convolutions leave the GPU, but not the energy; "
          "the paper prints one figure for both kinds of unit."),
)
"""Fire2 of SqueezeNet 1.1, a block of MobileNetV2 0.5x with its shortcut, the first and the other units of stage 2 of
ShuffleNetV2 0.5x."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Latency and energy of one frame, of which kind times are, the FPGA's resources, and which limits are missed."""

    latency_s: float
    energy_j: float
    times: gains.Times
    resources: tuple[tuple[str, float, float], ...] = ()
    """Resource, amount used, limit."""
    violations: tuple[str, ...] = ()

    def side(self) -> dict[str, Any]:
        """One side of a comparison."""
        return {"latency": self.latency_s, "energy": self.energy_j, "fits": not self.violations, "times": self.times.value}


def hand_partition(block: PaperBlock, graph: Graph) -> Assignment:
    """The authors' assignment: some nodes on the FPGA, all others on the GPU."""
    return {n.name: whole_on("fpga" if n.name.endswith(block.on_fpga) else "gpu") for n in graph.nodes}


def judge(graph: Graph, board: Platform, assignment: Assignment, parallel: bool, share_fpga: bool = True) -> Figures:
    """Latency and energy of an assignment, branches at once or everything in sequence; all layers share the FPGA, or none do."""
    mode = Mode.CONCURRENT if parallel else Mode.SEQUENTIAL
    problem = Problem(graph, board, DeviceCosts(), mode=mode, shared_budget=share_fpga)
    found = evaluate(problem, assignment)
    used = tuple((r, found.resources[d][r], limit) for d, r, limit in problem.budgets)
    return Figures(found.latency_s, found.energy_j, gains.times_of(board), used, found.violations)


def believed(board: Platform, models: ModelSet) -> Platform:
    """A board whose FPGA holds what a set of models says; its processors stay without the measuring loop.

    As in the paper, all of the FPGA may be used, and starting a part takes no time of its own.
    """
    return replace(board, devices=tuple(replace(d, models=models if d.kind is Kind.FPGA else d.models, dispatch_s=None)
                                        for d in board.devices)).with_fill(1.0)
