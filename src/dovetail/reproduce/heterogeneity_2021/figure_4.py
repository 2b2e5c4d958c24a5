"""Heterogeneity 2021 (Carballo-Hernández, Pelcat, Berry): Figure 4 and Table I, the authors' hand partitions on our models.

Blocks of three networks run on a Jetson TX2's GPU alone, and on that GPU with a Cyclone 10 GX over PCIe, at input sizes
from 224 down to 4 (blocks.py). The GPU alone runs on a board without the FPGA, which there draws no idle power.

The FPGA holds our hardware or, told so, has area and clock of the authors' rows. Processors are priced without the measuring
loop in both cases: the rows have no depthwise layers, so with the loop some layers of a block would carry it and others not. What
does not fit has no gain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log2, log10
from typing import Any

from dovetail.partition.options import PROOF
from dovetail.partition.plan import Assignment, Goal, whole_on
from dovetail.partition.solve import plan
from dovetail.platform.device import ModelSet, Platform
from dovetail.platform.load import load_platform
from dovetail.progress import Progress
from dovetail.reproduce import gains
from dovetail.reproduce.gp_2023 import figures as gp_figures
from dovetail.reproduce.heterogeneity_2021 import modules as whole_modules
from dovetail.reproduce.heterogeneity_2021.blocks import (
    BLOCKS,
    BOARD,
    GPU_BOARD,
    KEYS,
    SIZES,
    PaperBlock,
    believed,
    hand_partition,
    judge,
)
from dovetail.reproduce.heterogeneity_2021.table_1 import OTHERS, table_1
from dovetail.terminal import table

HARDWARE = {ModelSet.PLANNING: "hardware we generate",
            ModelSet.MEASURED: "area and clock of the authors' hardware by their Quartus rows, whose M20K counts end at 587"}
"""What the FPGA holds, by the set of models believed of it."""


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
    modules = whole_modules.recorded() if models is ModelSet.PLANNING else {"networks": {}}
    return {"paper": "heterogeneity-2021", "board": BOARD, "models": models.value, "blocks": found,
            "other_works": [one._asdict() for one in OTHERS], **modules}


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
    lines += ["", "Table I, other works as the paper prints them:", table_1(document["blocks"])]
    if document["networks"]:
        lines += ["", whole_modules.text(document)]
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
    return found | whole_modules.figures(document)
