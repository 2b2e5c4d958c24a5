"""Plans of every network on every board, against the goal of 0.5 % in 5 s: time, gap, single devices beside.

`python bench/zoo.py --json FILE [--board NAME ...] [--network NAME ...] [--objective latency] [--gap 0.005] [--resume]`. Networks
are those of the zoo and the light models of the onnx package. A search ends once it is within `--gap` of its bound. Times are
seconds (of the clock, and of computing beside it, which other load does not lengthen much), gaps fractions. What thrift gave up
for area is stated beside the gap. A plan is `ok` if its gap is at most 0.5 % and it took at most 5 s of computing; the last
lines count those that are not. FILE is written after every plan; `--resume` keeps those that it holds.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

from dovetail.files import replace_text
from dovetail.ir import Graph
from dovetail.partition.plan import Goal
from dovetail.planning import Options, make_plan
from dovetail.platform.load import load_platform
from lib.parts import held
from lib.planning.cases import BOARDS, chosen, graph_of

GAP = 0.005
"""Fraction of the objective that a plan may be from its bound."""
SECONDS = 5.0
"""Of computing, that a plan may take."""
UNITS = {Goal.LATENCY: ("ms", 1e3), Goal.THROUGHPUT: ("ms", 1e3), Goal.ENERGY: ("mJ", 1e3), Goal.EDP: ("µJs", 1e6)}
"""What an objective is printed in, and how many of those make the unit it is computed in."""


def measure(graph: Graph, board: str, goal: Goal, gap: float) -> dict[str, Any]:
    """A plan's time, gap and objective (in seconds, joules or joule seconds)."""
    start, busy = time.perf_counter(), time.process_time()
    plan, _ = make_plan(graph, load_platform(board), Options(goal=goal, gap=gap))
    seconds, computing = time.perf_counter() - start, time.process_time() - busy
    return {"nodes": len(graph.nodes), "plan_s": seconds, "computing_s": computing, "objective": plan.objective,
            "lower_bound": plan.lower_bound, "gap": plan.gap, "given_up": plan.given_up,
            "status": "ok" if plan.gap <= GAP and computing <= SECONDS else "missed", "proof": plan.status.value,
            "makespan_s": plan.makespan_s, "baselines": dict(plan.baselines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--board", action="append")
    parser.add_argument("--network", action="append")
    parser.add_argument("--objective", type=Goal, choices=list(Goal), default=Goal.LATENCY)
    parser.add_argument("--gap", type=float, default=GAP, help=f"fraction at which a search ends (default: {GAP})")
    parser.add_argument("--resume", action="store_true", help="keep the plans that FILE holds, and make the others")
    options = parser.parse_args()
    unit, factor = UNITS[options.objective]
    found: dict[str, dict[str, Any]] = held(options.json, options.resume)
    for name in chosen(parser, "--network", options.network):
        plans = found.setdefault(name, {})
        missing = [board for board in options.board or BOARDS if board not in plans]
        graph = graph_of(name) if missing else None
        for board in missing:
            assert graph is not None
            result = plans[board] = measure(graph, board, options.objective, options.gap)
            singles = [v for kind in ("cpu", "gpu", "fpga") if (v := result["baselines"][kind]) is not None]
            print(f"{name:20} {board:11} {result['nodes']:4} nodes  plan {result['plan_s']:6.2f} s "
                  f"({result['computing_s']:6.2f} s computing)  gap {result['gap']:.4f}  "
                  f"given up {result['given_up']:.4f}  {result['objective'] * factor:9.3f} {unit}  "
                  f"{min(singles) / result['objective']:.2f}x the best single device  {result['status']}", flush=True)
            if options.json:
                replace_text(options.json, json.dumps(found, indent=1) + "\n")
    missed = [(n, b) for n, boards in found.items() for b, r in boards.items() if r["status"] != "ok"]
    named = ", ".join(f"{n} on {b}" for n, b in missed) or "none"
    every = [r for boards in found.values() for r in boards.values()]
    near, spent = [r for r in every if r["gap"] <= GAP], [r["computing_s"] for r in every]
    print(f"{len(every)} plans, {len(missed)} missed: {named}")
    print(f"{len(near)} within {GAP:.1%} of their bound, {sum(s <= SECONDS for s in spent)} within {SECONDS:g} s of computing, "
          f"{median(spent):.1f} s in the median")


if __name__ == "__main__":
    main()
