"""How far plans are from their bounds on boards of many equal FPGAs, with links as they are and scaled.

`python bench/planning.py --json FILE [--networks A,B] [--boards fic:3,fic:7] [--link-scale 0.8,1.0] [--against OTHER.json]`.
One row per network, board and link scale: objective and bound (seconds of latency), gap (a fraction of the objective), seconds of
computing, and what the solver says of the plan. Rows that FILE holds are not run again. The summary gives the distribution of
gaps; with `--against`, also how the rows that both files hold compare.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.errors import DovetailError
from dovetail.files import replace_text
from dovetail.ir import Graph
from dovetail.planning import Options, make_plan
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform
from lib.parts import held
from lib.planning.cases import chosen, graph_of

BOARDS = "fic:3,fic:6,fic:7,fic:9,fic:10,fic:14,fic:20"
"""Numbers of FPGAs that no search was chosen on."""
LINK_SCALES = "0.8,1.0,1.2"
"""Times the bandwidth of every link."""
FAR = 0.10
"""Gaps above this fraction are counted: a choice."""
SAME = 1e-4
"""Objectives this fraction apart count as equal: a choice, well below what a summary shows."""

Row = dict[str, Any]


def scaled(board: str, scale: float) -> Platform:
    """A board with so many times the bandwidth on every link."""
    found = load_platform(board)
    return replace(found, links=tuple(replace(x, bandwidth_bytes_per_s=scale * x.bandwidth_bytes_per_s) for x in found.links))


def row(network: str, graph: Graph, board: str, scale: float) -> Row:
    """One plan of least latency, without thrift, which gives up some of it for area."""
    found: Row = {"network": network, "board": board, "link_scale": scale, "nodes": len(graph.nodes)}
    busy = time.process_time()
    try:
        plan, _ = make_plan(graph, scaled(board, scale), Options(thrift=0.0))
    except DovetailError as error:
        return {**found, "computing_s": time.process_time() - busy, "status": f"error: {error}"}
    return {**found, "objective_s": plan.objective, "bound_s": plan.lower_bound, "gap": plan.gap,
            "computing_s": time.process_time() - busy, "status": plan.status.value}


def key(row: Mapping[str, Any]) -> tuple[str, str, float]:
    return row["network"], row["board"], row["link_scale"]


def summary(rows: Sequence[Row], against: Sequence[Row]) -> dict[str, Any]:
    """The distribution of gaps, and how often another version's plans of the same rows are better."""
    gaps = np.array([r["gap"] for r in rows if "gap" in r])
    if not len(gaps):
        return {"plans": 0}
    worst = max((r for r in rows if "gap" in r), key=lambda r: float(r["gap"]))
    found: dict[str, Any] = {
        "plans": len(gaps), "none": len(rows) - len(gaps), "median_gap": float(np.median(gaps)),
        "gap_95": float(np.percentile(gaps, 95)), "mean_gap": float(gaps.mean()), "worst_gap": float(gaps.max()),
        "worst_at": list(key(worst)), "above_10_percent": int((gaps > FAR).sum()),
        "median_computing_s": float(np.median([r["computing_s"] for r in rows])),
        "longest_computing_s": max(float(r["computing_s"]) for r in rows)}
    others = {key(r): r for r in against if "gap" in r}
    pairs = [(r, others[key(r)]) for r in rows if "gap" in r and key(r) in others]
    if pairs:
        ratio = np.array([own["objective_s"] / other["objective_s"] for own, other in pairs])
        bounds = np.array([own["bound_s"] / other["bound_s"] for own, other in pairs])
        theirs = np.array([other["gap"] for _, other in pairs])
        found["against"] = {
            "rows": len(pairs), "without_better": float((ratio <= 1 + SAME).mean()), "better": int((ratio < 1 - SAME).sum()),
            "worse": int((ratio > 1 + SAME).sum()), "mean_objective_ratio": float(ratio.mean()),
            "largest_objective_ratio": float(ratio.max()), "mean_bound_ratio": float(bounds.mean()),
            "their_median_gap": float(np.median(theirs)), "their_gap_95": float(np.percentile(theirs, 95)),
            "own_median_gap": float(np.median([own["gap"] for own, _ in pairs])),
            "own_gap_95": float(np.percentile([own["gap"] for own, _ in pairs], 95))}
    return found


def main(asked: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--networks", help="comma-separated; all of the zoo and of the onnx package unless told")
    parser.add_argument("--boards", default=BOARDS)
    parser.add_argument("--link-scale", default=LINK_SCALES)
    parser.add_argument("--against", type=Path, help="rows of another version, to compare with")
    options = parser.parse_args(asked)
    known = held(options.json, resume=True)

    def keep(more: Mapping[str, Any]) -> None:
        known.update(more)
        if options.json:
            replace_text(options.json, json.dumps(known, indent=1) + "\n")

    networks = chosen(parser, "--networks", options.networks.split(",") if options.networks else None)
    rows: list[Row] = known.setdefault("rows", [])
    wanted = [(n, b, float(s)) for n in networks for b in options.boards.split(",") for s in options.link_scale.split(",")]
    graphs: dict[str, Graph] = {}
    for network, board, scale in wanted:
        if (network, board, scale) in map(key, rows):
            continue
        if network not in graphs:
            graphs = {network: graph_of(network)}
        rows.append(found := row(network, graphs[network], board, scale))
        keep({"rows": rows})
        gap, objective_s = found.get("gap", nan), found.get("objective_s", nan)
        print(f"{network:20} {board:8} x{scale:<4g} gap {gap:7.2%}  {1e3 * objective_s:9.4f} ms  {found['computing_s']:5.1f} s  "
              f"{found['status']}", flush=True)
    measured = [r for r in rows if key(r) in set(wanted)]
    other = json.loads(options.against.read_text())["rows"] if options.against else []
    keep({"summary": summary(measured, other)})
    print(json.dumps(known["summary"], indent=1))

