"""How far plans may be from the best of their space: gaps, stated and certified, of a seeded draw of networks and boards.

`python bench/gaps.py --json FILE [--seed 31] [--pairs 8] [--goals latency,energy]`. For every goal so many pairs of a network
(`NETWORKS`) and a board are drawn; the networks of fewest nodes come first. A row holds the default plan's objective, its stated
gap, what the checker proves and what it does not cover. Rows that FILE holds are not run again. Planning alone: plans are
estimates, without thrift, clocks as boards assume.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.files import replace_text
from dovetail.ir import Graph
from dovetail.partition.plan import Goal
from dovetail.planning import Options
from lib.parts import held
from lib.planning.cases import graph_of
from one_answer import BOARDS, GOALS, certificate, planned

NETWORKS = ("alexnet", "squeezenet1.1", "unet-small", "resnet18", "mobilenet-v2-0.5", "mobilenet-v2", "shufflenet-v2-0.5",
            "mobilenet-v3-small")
"""The networks of the zoo with the fewest nodes, and of every family one."""
AIM_MEDIAN, AIM_95 = 0.01, 0.05
"""Gaps that half of all rows, and 95 of 100, are to keep."""

Row = dict[str, Any]


def drawn(seed: int, pairs: int, goals: Sequence[str]) -> list[tuple[str, str, str]]:
    """Network, board and goal of every row; of each goal the same, whatever other goals are asked for."""
    found = []
    for goal in goals:
        some = random.Random(f"{seed} {goal}").sample(list(product(NETWORKS, BOARDS.split(","))), pairs)
        found += [(network, board, goal) for network, board in some]
    return sorted(found, key=lambda row: NETWORKS.index(row[0]))


def row(network: str, graph: Graph, board: str, goal: str, certified: bool = True) -> Row:
    """The default plan, and its certificate where that is asked for."""
    options, found = Options(goal=Goal(goal), thrift=0.0), Row(network=network, board=board, goal=goal)
    plan, space, seconds, reason = planned(graph, board, options)
    if plan is None or space is None:
        return {**found, "error": reason}
    found |= {"objective": plan.objective, "gap": plan.gap, "computing_s": seconds}
    return {**found, **certificate(graph, board, options, plan, space)} if certified else found


def spread(gaps: Sequence[float]) -> Row:
    """Median, 95th percentile and worst of some gaps."""
    if not gaps:
        return {"rows": 0}
    return {"rows": len(gaps), "median": float(np.median(gaps)), "percentile_95": float(np.percentile(gaps, 95)),
            "worst": max(gaps)}


def summary(rows: Sequence[Row]) -> Row:
    """Of every goal and of all the spread of stated gaps, and of certified ones of plans whose whole space is covered."""
    found = Row()
    for goal in (*GOALS.split(","), "all"):
        some = [r for r in rows if goal in (r["goal"], "all") and "gap" in r]
        found[goal] = {"stated": spread([r["gap"] for r in some]),
                       "certified": spread([r["certified_gap"] for r in some if r.get("uncovered") == []]),
                       "accepted": sum(bool(r.get("certified")) for r in some)}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seed", type=int, default=31)
    parser.add_argument("--pairs", type=int, default=8, help="of a network and a board, for each goal (default: %(default)s)")
    parser.add_argument("--goals", default=GOALS)
    parser.add_argument("--uncertified", action="store_true", help="leave certificates out, which take as long again")
    options = parser.parse_args()
    known = held(options.json, resume=True)
    rows: list[Row] = known.setdefault("rows", [])
    for network, board, goal in drawn(options.seed, options.pairs, options.goals.split(",")):
        if any((network, board, goal) == (r["network"], r["board"], r["goal"]) for r in rows):
            continue
        rows.append(found := row(network, graph_of(network), board, goal, not options.uncertified))
        known |= {"summary": summary(rows), "date": datetime.now(UTC).date().isoformat(),
                  "versions": f"Python {platform.python_version()}, {platform.machine()}",
                  "command": f"python bench/gaps.py --seed {options.seed} --pairs {options.pairs} --json FILE"}
        if options.json:
            replace_text(options.json, json.dumps(known, indent=1) + "\n")
        print(f"{network:20} {board:10} {goal:10} " + (found["error"] if "error" in found else (
            f"{found['objective']:.6g}  gap {found['gap']:7.2%}  certified {found.get('certified_gap', -1):7.2%}  "
            f"{len(found.get('uncovered', [])):2} not covered  {found['computing_s']:5.1f} s")),
            flush=True)
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    main()
