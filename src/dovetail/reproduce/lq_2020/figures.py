"""The figures of LQ multi-FPGA 2020 as drawings that need nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from typing import Any

import numpy as np

from dovetail.numerics.lq import boundaries_of, ranked
from dovetail.report.markup import Markup, element
from dovetail.report.sheet import HEIGHT, TOP, WIDTH, Axes, sheet
from dovetail.reproduce.gp_2023.figures import LEGEND, SHADES, lines
from dovetail.reproduce.lq_2020.boards import PARTS as BOARD_PARTS
from dovetail.reproduce.lq_2020.boards import simulated_boards

BASES = {"2 bits": (0.52, 1.05), "3 bits": (0.25, 0.5, 1.0)}
"""Bases whose quantizers are drawn (chosen): that of Figure 4.8's activations here, and one of three bits."""
END = 2.0
"""Where the drawn inputs end."""
PARTS = {"BRAM": "bram_max", "LUT": "lut_max", "DSP": "dsp_max"}


def figures(document: Mapping[str, Any]) -> dict[str, str]:
    """File name to drawing: quantizers (3.7), folds of layer 2 (Table 4.1), the fullest board over the number of boards,
    and every board of what was simulated."""
    boards = {int(n): row for n, row in document["measured"]["fic"].items() if row is not None}
    return {
        "figure_3_7.svg": lines("Figure 3.7: quantizers of activations", {name: _steps(basis) for name, basis in BASES.items()},
                                "the input"),
        "table_4_1.svg": lines("Table 4.1: log10 of layer 2's clocks", {"folds, by the model": [
            (log10(row["products_at_once"]), log10(row["cycles"])) for row in document["conv2_folds"]]},
            "log10 of products at once"),
        "boards.svg": lines("AlexNet: percent of the fullest board", {name: [
            (n, 100 * row[key]) for n, row in boards.items()] for name, key in PARTS.items()}, "boards of FiC (record)"),
        **{f"boards_{'_'.join(layers.split())}.svg": _board_bars(f"{layers} over {len(found)} boards, simulated", found)
           for layers, found in simulated_boards(document["measured"]).items()}}


def _board_bars(title: str, boards: Mapping[str, Mapping[str, float]]) -> str:
    """Percent of every resource of every board, side by side."""
    axes = Axes((0.0, float(len(boards))), (0.0, 100.0), LEGEND)
    drawn, width = list[Markup](), 0.8 / len(BOARD_PARTS)
    for i, (board, parts) in enumerate(boards.items()):
        drawn.append(element("text", board, x=f"{axes.across(i + 0.5):.1f}", y=HEIGHT - 38, text_anchor="middle"))
        for k, key in enumerate(BOARD_PARTS.values()):
            percent = 100 * parts[key]
            left, right = axes.across(i + 0.1 + width * (k + 0.05)), axes.across(i + 0.1 + width * (k + 0.95))
            drawn += [element("rect", x=f"{left:.1f}", y=f"{axes.down(percent):.1f}", width=f"{right - left:.1f}",
                              height=f"{axes.down(0) - axes.down(percent):.1f}", fill=SHADES[k]),
                      element("text", f"{percent:.1f}", x=f"{(left + right) / 2:.1f}", y=f"{axes.down(percent) - 3:.1f}",
                              text_anchor="middle")]
    legend = [[element("rect", x=WIDTH - LEGEND + 16, y=TOP + 22 * k, width=12, height=12, fill=SHADES[k]),
               element("text", name, x=WIDTH - LEGEND + 34, y=TOP + 22 * k + 11)] for k, name in enumerate(BOARD_PARTS)]
    return sheet(title, title, "percent of the board", axes.grid(lambda _: "", "{:.3g}".format), drawn, legend) + "\n"


def _steps(basis: tuple[float, ...]) -> list[tuple[float, float]]:
    """Corners of a quantizer."""
    levels, _ = ranked(np.asarray(basis))
    edges = [0.0, *boundaries_of(levels).tolist(), END]
    return [(x, float(level)) for level, start, stop in zip(levels, edges[:-1], edges[1:], strict=True) for x in (start, stop)]
