"""Heterogeneity 2021 (Carballo-Hernández, Pelcat, Berry): Figure 4 and Table I, the authors' hand partitions on our models.

Blocks of three networks run on a Jetson TX2's GPU alone, and on that GPU with a Cyclone 10 GX over PCIe, at input sizes
from 224 down to 4. Who computes what is the authors' choice, given here as fixed assignments. Parallel blocks are judged in
concurrent mode, where branches on different devices run at once; sequential ones add everything up, as the authors do.
The GPU alone runs on a board without the FPGA, which there also draws no idle power.

The FPGA holds our hardware or, told so, has area and clock of the authors' rows. Processors are priced without the measuring
loop in both cases: the rows have no depthwise layers, so with the loop some layers of a block would carry it and others not. What
does not fit has no gain.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2, log10
from pathlib import Path
from typing import Any

from dovetail.ir import Graph
from dovetail.ir.onnx.builder import OnnxBuilder
from dovetail.ir.onnx.read import read_onnx
from dovetail.numerics.tables import tabulate
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import evaluate
from dovetail.partition.options import PROOF
from dovetail.partition.plan import Assignment, Goal, Mode, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.platform.device import Kind, ModelSet, Platform
from dovetail.platform.load import load_platform
from dovetail.progress import Progress
from dovetail.reproduce import gains, gp_figures
from dovetail.terminal import table
from dovetail.zoo.mobilenet import inverted_residual
from dovetail.zoo.network import Moments, Net
from dovetail.zoo.shufflenet import v2_unit
from dovetail.zoo.squeezenet import fire

SIZES = (224, 112, 56, 28, 14, 7, 4)
"""Sides of the input that Figure 4 averages over."""
BOARD, GPU_BOARD = "tx2-c10gx", "tx2"
KEYS = ("energy", "latency")
HARDWARE = {ModelSet.PLANNING: "hardware we generate",
            ModelSet.MEASURED: "area and clock of the authors' hardware by their Quartus rows, whose M20K counts end at 587"}
"""What the FPGA holds, by the set of models believed of it."""


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


def judge(graph: Graph, board: Platform, assignment: Assignment, parallel: bool) -> Figures:
    """Latency and energy of an assignment, branches at once or everything in sequence."""
    problem = Problem(graph, board, DeviceCosts(), mode=Mode.CONCURRENT if parallel else Mode.SEQUENTIAL)
    found = evaluate(problem, assignment)
    used = tuple((r, found.resources[d][r], limit) for d, r, limit in problem.budgets)
    return Figures(found.latency_s, found.energy_j, gains.times_of(board), used, found.violations)


def believed(board: Platform, models: ModelSet) -> Platform:
    """A board whose FPGA holds what a set of models says; its processors stay without the measuring loop.

    As in the paper, all of the FPGA may be used, and starting a part takes no time of its own.
    """
    return replace(board, devices=tuple(replace(d, models=models if d.kind is Kind.FPGA else d.models, dispatch_s=None)
                                        for d in board.devices)).with_fill(1.0)


def reproduce(models: ModelSet = ModelSet.PLANNING, progress: Progress = lambda *_: None,
              sizes: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Every block at every size (SIZES unless told): the GPU alone, the authors' partition, the best for either goal.

    `models` are of the FPGA.
    """
    board, gpu_board = (believed(load_platform(name), models) for name in (BOARD, GPU_BOARD))
    found = []
    for i, block in enumerate(BLOCKS):
        progress(f"heterogeneity-2021: {block.name}", i, len(BLOCKS))
        rows = [_row(block, side, board, gpu_board) for side in sizes or SIZES]
        found.append({
            "block": block.name, "partition": block.partition, "parallel": block.parallel, "sizes": rows,
            "fits": all(r["hand"]["fits"] for r in rows), "times": gains.times_of(board).value,
            "fullest": _fullest([u for r in rows for u in r["resources"]]),
            "gain": {key: gains.gain(*_sides(rows, "hand"), key) for key in KEYS},
            "best_gain": {key: gains.highest(*_sides(rows, "hand"), key) for key in KEYS},
            "optimum_gain": {key: gains.gain(*_sides(rows, f"best_{key}"), key) for key in KEYS},
            "paper": {"table_1": {"energy": block.printed.energy, "latency": block.printed.latency}, "text": block.printed.text},
            "why": block.why})
    return {"paper": "heterogeneity-2021", "board": BOARD, "models": models.value, "blocks": found}


def _row(block: PaperBlock, side: int, board: Platform, gpu_board: Platform) -> dict[str, Any]:
    graph = block.graph(side)
    alone = judge(graph, gpu_board, {n.name: whole_on("gpu") for n in graph.nodes}, False)
    hand = judge(graph, board, hand_partition(block, graph), block.parallel)
    row: dict[str, Any] = {"side": side, "gpu": alone.side(), "hand": hand.side(), "resources": hand.resources,
                           "violations": list(hand.violations)}
    for goal in (Goal.LATENCY, Goal.ENERGY):
        best = plan(graph, board, replace(PROOF, goal=goal))
        figures = judge(graph, board, best.assignment, True)
        row[f"best_{goal.value}"] = {**figures.side(), "gap": best.gap, "devices": _devices(best.assignment)}
    return row


def _fullest(resources: Sequence[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Where anything is beyond its limit, the most of each such resource; else the one resource that is fullest."""
    most = {name: max((u for u in resources if u[0] == name), key=lambda u: u[1]) for name, *_ in resources}
    beyond = [u for u in most.values() if u[1] > u[2]]
    return beyond or [max(most.values(), key=lambda u: u[1] / u[2])]


def _devices(assignment: Assignment) -> dict[str, str]:
    return {name: "+".join(split.devices) for name, split in assignment.items()}


def _sides(rows: list[dict[str, Any]], against: str) -> tuple[list[gains.Side], list[gains.Side]]:
    """The GPU alone and what is compared with it, size by size."""
    return [r["gpu"] for r in rows], [r[against] for r in rows]


def text(document: Mapping[str, Any]) -> str:
    """Figure 4 as numbers, then Table I beside ours, then why they differ."""
    (times,) = {b["times"] for b in document["blocks"]}
    lines = [f"Heterogeneity 2021 on {document['board']}: {HARDWARE[document['models']]}; all times {times}", ""]
    for b in document["blocks"]:
        rows = [[str(r["side"]), *(_number(r[k], "latency") for k in ("gpu", "hand", "best_latency")),
                 *(_number(r[k], "energy") for k in ("gpu", "hand", "best_energy"))] for r in b["sizes"]]
        filled = ", ".join(f"{resource} {used:,.0f} of {limit:,.0f}" for resource, used, limit in b["fullest"])
        fits = f"{'fits' if b['fits'] else 'does not fit'} the FPGA ({filled})"
        lines += [f"{b['block']}: {b['partition']}; {fits}",
                  table(["input", "GPU ms", "hand ms", "best ms", "GPU mJ", "hand mJ", "best mJ"], rows, range(7)), ""]
    head = ["gain over the GPU", "energy: paper", "ours", "highest", "optimum", "latency: paper", "ours", "highest", "optimum"]
    lines.append(table(head, [[b["block"], *(gains.told(found[key]) for key in KEYS for found in (
        b["paper"]["table_1"], b["gain"], b["best_gain"], b["optimum_gain"]))] for b in document["blocks"]], range(1, 9)))
    lines += ["", "ours: mean over all sizes, as Figure 4; highest: at the best size; optimum: the best plan that fits, mean",
              *(["! does not fit the FPGA, and has no gain: its times would be those of no hardware"]
                if not all(b["fits"] for b in document["blocks"]) else [])]
    for b in document["blocks"]:
        lines += ["", f"{b['block']}: {b['paper']['text']}.", f"  Why: {b['why']}"]
    return "\n".join(lines)


def _number(side: gains.Side, key: str) -> str:
    return f"{side[key] * 1e3:.3f}{'' if side['fits'] else '!'}"


SERIES = {"GPU alone": "gpu", "by hand": "hand", "best": "best_{key}"}
"""What Figure 4 compares, and where a row has it."""


def figures(document: Mapping[str, Any]) -> dict[str, str]:
    """File name to drawing: latency and energy of every block over the input's size, as in Figure 4."""
    found = {}
    for b in document["blocks"]:
        for key, unit in (("latency", "milliseconds"), ("energy", "millijoules")):
            shown = {}
            for name, where in SERIES.items():
                sides = [(r["side"], r[where.format(key=key)]) for r in b["sizes"]]
                fits = "" if all(one["fits"] for _, one in sides) else ", does not fit"
                shown[f"{name}{fits}"] = [(log2(side), log10(one[key] * 1e3)) for side, one in sides]
            name = f"figure_4_{b['block'].lower().replace(' ', '_').replace('.', '')}_{key}.svg"
            found[name] = gp_figures.lines(f"Figure 4: {b['block']}, log10 of {unit}", shown, "log2 of the input's side")
    return found
