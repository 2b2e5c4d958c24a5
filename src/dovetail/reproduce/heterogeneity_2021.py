"""Heterogeneity 2021 (Carballo-Hernández, Pelcat, Berry): Figure 4 and Table I, the authors' hand partitions on our models.

Blocks of three networks run on a Jetson TX2's GPU alone, and on that GPU with a Cyclone 10 GX over PCIe, at input sizes
from 224 down to 4. Who computes what is the authors' choice, given here as fixed assignments. Parallel blocks are judged in
concurrent mode, where branches on different devices run at once; sequential ones add everything up, as the authors do.
The GPU alone runs on a board without the FPGA, which there also draws no idle power.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log2, log10
from statistics import fmean
from typing import Any

from dovetail.ir import Graph
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import Evaluation, evaluate
from dovetail.partition.plan import Assignment, Goal, Mode, whole_on
from dovetail.partition.problem import Problem
from dovetail.partition.solve import plan
from dovetail.platform.device import ModelSet, Platform
from dovetail.platform.load import load_platform
from dovetail.reproduce import gp_figures, modules
from dovetail.terminal import table

SIZES = (224, 112, 56, 28, 14, 7, 4)
"""Sides of the input that Figure 4 averages over."""
BOARD, GPU_BOARD = "tx2-c10gx", "tx2"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Printed:
    """What the paper says of a block, as gains over the GPU alone: Table I, and its text and abstract in words."""

    energy: float
    latency: float
    text: str


@dataclass(frozen=True, slots=True)
class Block:
    """One building block, the part of its nodes (by ending) the authors give to the FPGA, and how it runs."""

    name: str
    graph: Callable[[int], Graph]
    on_fpga: tuple[str, ...]
    parallel: bool
    partition: str
    printed: Printed
    why: str


_SHUFFLE = Printed(1.39, 1.35, "abstract: 25 % less energy, 21 % less latency; text: 25 % faster, 21 % less energy")
BLOCKS = (
    Block("Fire", modules.fire_block, ("_expand3x3",), True, "expand 3x3 on the FPGA beside expand 1x1 on the GPU",
          Printed(1.34, 1.01, "abstract: 21 % to 28 % less energy, same latency; text: up to 28 % less energy, which is 1.39x"),
          "In our GPU model the 3x3 expansion is the longest part of the block, so the block gets shorter without it, where the "
          "paper finds the 1x1 expansion alone to take as long; at the authors' 11 ALM per weight its 9,216 weights do not fit."),
    Block("Bottleneck 0.5x", modules.bottleneck, (".expand.conv", ".project.conv"), False,
          "both 1x1 convolutions on the FPGA, depthwise on the GPU, one after the other",
          Printed(1.55, 1.26, "abstract: 12 % to 30 % less energy, 4 % to 26 % less latency, up to 1.43x and 1.35x; text: 23 % "
                  "and 30 %"),
          "96 channels cross the link twice per block, at the 1.6 GB/s that was measured and not the 2.5 GB/s the paper reckons "
          "with, which is above the line rate of PCIe gen2 x4, so time falls less than energy does."),
    Block("Shuffle reduction 0.5x", modules.shuffle_reduction, (".branch1.depthwise.conv", ".branch1.pointwise.conv"), True,
          "the short branch on the FPGA beside the other on the GPU", _SHUFFLE,
          "The GPU keeps the longer branch and the FPGA's idle power is charged for all of its time, so energy falls less than "
          "time does; the paper prints one figure for both kinds of unit."),
    Block("Shuffle basic 0.5x", modules.shuffle_basic, (".pointwise1.conv", ".pointwise2.conv"), False,
          "both 1x1 convolutions on the FPGA, depthwise on the GPU, one after the other", _SHUFFLE,
          "Two round trips over the link take back most of the time that two convolutions leave the GPU, but not the energy; "
          "the paper prints one figure for both kinds of unit."),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Latency and energy of one frame, the fullest of the FPGA's resources, and which limits are missed."""

    latency_s: float
    energy_j: float
    fullest: tuple[str, float, float] | None = None
    """Resource, amount used, limit."""
    violations: tuple[str, ...] = ()


def hand_partition(block: Block, graph: Graph) -> Assignment:
    """The authors' assignment: some nodes on the FPGA, all others on the GPU."""
    return {n.name: whole_on("fpga" if n.name.endswith(block.on_fpga) else "gpu") for n in graph.nodes}


def judge(graph: Graph, board: Platform, assignment: Assignment, parallel: bool) -> Figures:
    """Latency and energy of an assignment, branches at once or everything in sequence."""
    problem = Problem(graph, board, DeviceCosts(), mode=Mode.CONCURRENT if parallel else Mode.SEQUENTIAL)
    found = evaluate(problem, assignment)
    return Figures(found.latency_s, found.energy_j, _fullest(problem, found), found.violations)


def _fullest(problem: Problem, found: Evaluation) -> tuple[str, float, float] | None:
    used = [(r, found.resources[d][r], limit) for d, r, limit in problem.budgets]
    return max(used, key=lambda u: u[1] / u[2], default=None)


def reproduce(models: ModelSet = ModelSet.PLANNING, progress: Progress = lambda *_: None,
              sizes: tuple[int, ...] | None = None) -> dict[str, Any]:
    """Every block at every size (SIZES unless told): the GPU alone, the authors' partition, the best for either goal."""
    board, gpu_board = (load_platform(name).with_models(models) for name in (BOARD, GPU_BOARD))
    found = []
    for i, block in enumerate(BLOCKS):
        progress(f"heterogeneity-2021: {block.name}", i, len(BLOCKS))
        rows = [_row(block, side, board, gpu_board) for side in sizes or SIZES]
        found.append({
            "block": block.name, "partition": block.partition, "parallel": block.parallel, "sizes": rows,
            "fits": not any(r["violations"] for r in rows),
            "fullest": max((r["fullest"] for r in rows), key=lambda u: u[1] / u[2]),
            "gain": {key: _gain(rows, key) for key in ("energy", "latency")},
            "best_gain": {key: max(r["gpu"][key] / r["hand"][key] for r in rows) for key in ("energy", "latency")},
            "optimum_gain": {key: _gain(rows, key, f"best_{key}") for key in ("energy", "latency")},
            "paper": {"table_1": {"energy": block.printed.energy, "latency": block.printed.latency}, "text": block.printed.text},
            "why": block.why})
    return {"paper": "heterogeneity-2021", "board": BOARD, "models": models.value, "blocks": found}


def _row(block: Block, side: int, board: Platform, gpu_board: Platform) -> dict[str, Any]:
    graph = block.graph(side)
    alone = judge(graph, gpu_board, {n.name: whole_on("gpu") for n in graph.nodes}, False)
    hand = judge(graph, board, hand_partition(block, graph), block.parallel)
    row: dict[str, Any] = {"side": side, "gpu": _si(alone), "hand": _si(hand), "fullest": hand.fullest,
                           "violations": list(hand.violations)}
    for goal in (Goal.LATENCY, Goal.ENERGY):
        best = plan(graph, board, goal)
        figures = judge(graph, board, best.assignment, True)
        row[f"best_{goal.value}"] = {**_si(figures), "gap": best.gap, "devices": _devices(best.assignment)}
    return row


def _si(figures: Figures) -> dict[str, float]:
    return {"latency": figures.latency_s, "energy": figures.energy_j}


def _devices(assignment: Assignment) -> dict[str, str]:
    return {name: "+".join(split.devices) for name, split in assignment.items()}


def _gain(rows: list[dict[str, Any]], key: str, against: str = "hand") -> float:
    """How many times less the average over all sizes is, as in Figure 4."""
    return fmean(r["gpu"][key] for r in rows) / fmean(r[against][key] for r in rows)


def text(document: Mapping[str, Any]) -> str:
    """Figure 4 as numbers, then Table I beside ours, then why they differ."""
    lines = [f"Heterogeneity 2021 on {document['board']}, {document['models']} models", ""]
    for b in document["blocks"]:
        rows = [[str(r["side"]), *(f"{r[k]['latency'] * 1e3:.3f}" for k in ("gpu", "hand", "best_latency")),
                 *(f"{r[k]['energy'] * 1e3:.3f}" for k in ("gpu", "hand", "best_energy"))] for r in b["sizes"]]
        resource, used, limit = b["fullest"]
        fits = f"{'fits' if b['fits'] else 'does not fit'} the FPGA ({resource} {used:,.0f} of {limit:,.0f})"
        lines += [f"{b['block']}: {b['partition']}; {fits}",
                  table(["input", "GPU ms", "hand ms", "best ms", "GPU mJ", "hand mJ", "best mJ"], rows, range(7)), ""]
    head = ["gain over the GPU", "energy: paper", "ours", "highest", "optimum", "latency: paper", "ours", "highest", "optimum"]
    lines.append(table(head, [[b["block"], *(_cell(b, key, column) for key in ("energy", "latency") for column in range(4))]
                              for b in document["blocks"]], range(1, 9)))
    lines += ["", "ours: mean over all sizes, as Figure 4; highest: at the best size; optimum: the best plan, mean"]
    for b in document["blocks"]:
        lines += ["", f"{b['block']}: {b['paper']['text']}.", f"  Why: {b['why']}"]
    return "\n".join(lines)


SERIES = {"GPU alone": "gpu", "by hand": "hand", "best": "best_{key}"}
"""What Figure 4 compares, and where a row has it."""


def figures(document: Mapping[str, Any]) -> dict[str, str]:
    """File name to drawing: latency and energy of every block over the input's size, as in Figure 4."""
    found = {}
    for b in document["blocks"]:
        for key, unit in (("latency", "milliseconds"), ("energy", "millijoules")):
            shown = {name: [(log2(r["side"]), log10(r[where.format(key=key)][key] * 1e3)) for r in b["sizes"]]
                     for name, where in SERIES.items()}
            name = f"figure_4_{b['block'].lower().replace(' ', '_').replace('.', '')}_{key}.svg"
            found[name] = gp_figures.lines(f"Figure 4: {b['block']}, log10 of {unit}", shown, "log2 of the input's side")
    return found


def _cell(block: Mapping[str, Any], key: str, column: int) -> str:
    value = (block["paper"]["table_1"], block["gain"], block["best_gain"], block["optimum_gain"])[column][key]
    return f"{value:.2f}x"
