"""The figures of LQ multi-FPGA 2020 as drawings that need nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from math import log10
from typing import Any

import numpy as np

from dovetail.numerics.lq import boundaries_of, ranked
from dovetail.reproduce.gp_2023.figures import lines

BASES = {"2 bits": (0.52, 1.05), "3 bits": (0.25, 0.5, 1.0)}
"""Bases whose quantizers are drawn (chosen): that of Figure 4.8's activations here, and one of three bits."""
END = 2.0
"""Where the drawn inputs end."""
PARTS = {"BRAM": "bram_max", "LUT": "lut_max", "DSP": "dsp_max"}


def figures(document: Mapping[str, Any]) -> dict[str, str]:
    """File name to drawing: quantizers (3.7), folds of layer 2 (Table 4.1), and the fullest board over the number of boards."""
    boards = {int(n): row for n, row in document["measured"]["fic"].items() if row is not None}
    return {
        "figure_3_7.svg": lines("Figure 3.7: quantizers of activations", {name: _steps(basis) for name, basis in BASES.items()},
                                "the input"),
        "table_4_1.svg": lines("Table 4.1: log10 of layer 2's clocks", {"folds, by the model": [
            (log10(row["products_at_once"]), log10(row["cycles"])) for row in document["conv2_folds"]]},
            "log10 of products at once"),
        "boards.svg": lines("AlexNet: percent of the fullest board", {name: [
            (n, 100 * row[key]) for n, row in boards.items()] for name, key in PARTS.items()}, "boards of FiC (record)")}


def _steps(basis: tuple[float, ...]) -> list[tuple[float, float]]:
    """Corners of a quantizer."""
    levels, _ = ranked(np.asarray(basis))
    edges = [0.0, *boundaries_of(levels).tolist(), END]
    return [(x, float(level)) for level, start, stop in zip(levels, edges[:-1], edges[1:], strict=True) for x in (start, stop)]
