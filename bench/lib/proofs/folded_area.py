"""Whole designs with shared multipliers: what Yosys counts beside what the plan estimates, engine by engine and together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dovetail.cost import costs_of
from dovetail.cost.folded import folds_of
from dovetail.fpga.assemble import build_design
from dovetail.fpga.toolchain.synthesize import synthesize
from dovetail.ir import Graph, Reshape
from dovetail.pipeline import decide_numbers
from dovetail.platform.device import Device
from dovetail.platform.load import load_platform
from lib.proofs.images import FASHION, WHOLE_PACE

BOARDS = {"ecp5": ("ecp5-85", "fpga"), "xcup": ("zcu102", "fpga")}
JUDGED = {"ecp5": ("lut4", "register", "bram", "dsp"), "xcup": ("lut", "register", "bram36", "dsp")}


def example_graph() -> Graph:
    return decide_numbers(FASHION / "fashion.onnx", Path(FASHION / "calibration.npz")).graph


def estimate(graph: Graph, device: Device) -> dict[str, float]:
    """The plan's estimate: the sum over all nodes."""
    found: dict[str, float] = {}
    for node in graph.nodes:
        if isinstance(node.op, Reshape):
            continue
        costs = costs_of(graph, node, None, np.array([0]), np.array([1]), device)
        assert costs is not None
        for resource, amount in costs.resources.items():
            found[resource] = found.get(resource, 0.0) + float(amount[0])
    return found


def folded_area(families: tuple[str, ...] = tuple(BOARDS)) -> dict[str, Any]:
    """The example, fully connected layers included, as one folded design on two families."""
    graph, entries = example_graph(), dict[str, Any]()
    for family in families:
        board, name = BOARDS[family]
        device = load_platform(board).with_pace(WHOLE_PACE).device(name)
        folds = folds_of(graph, device)
        counted = synthesize(build_design(graph, "fashion", folds=folds), family).resources
        planned = estimate(graph, device)
        pairs = {r: {"counted": float(counted[r]), "estimated": round(planned[r], 1),
                     "error": planned[r] / counted[r] - 1 if counted[r] else None} for r in JUDGED[family]}
        entries[family] = {**pairs, "folded": len(folds), "nodes": len(graph.nodes)}
        print(f"folded design      {family}: " + ", ".join(
            f"{r} {v['counted']:.0f} counted, {v['estimated']:.0f} estimated" for r, v in pairs.items()), flush=True)
    return {"folded_design": {**entries, "pace_clocks": WHOLE_PACE, "count": "Yosys", "status": "ok"}}
