"""Every network of the zoo and every light model of the onnx wheel on every board: planning time, gap, single devices beside.

`python bench/zoo.py --json FILE [--board NAME ...] [--network NAME ...] [--objective latency]`; times are seconds (of the clock,
and of computing beside it, which other load does not lengthen much), gaps fractions. What thrift gave up for area is stated
beside the gap. A plan is `ok` if its gap is at most 0.5 % and it took at most 5 s of computing; the last lines count those that
are not, and say why.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import onnx

from dovetail import zoo
from dovetail.files import replace_text
from dovetail.ir import Graph
from dovetail.partition.plan import Goal
from dovetail.pipeline import graph_to_plan
from dovetail.planning import Options, make_plan
from dovetail.platform.load import load_platform

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
"""Models with constant weights that the onnx package tests its backends with."""


BOARDS = ("tx2-c10gx", "ecp5-85", "tx2", "zcu102", "zc706", "kcu105", "h200", "fic:2", "fic:4", "fic:24", "fic-ku115:4")
"""Every board; of those with any number of FPGAs, a few sizes."""
GAP, SECONDS = 0.005, 5.0
UNITS = {Goal.LATENCY: ("ms", 1e3), Goal.THROUGHPUT: ("ms", 1e3), Goal.ENERGY: ("mJ", 1e3), Goal.EDP: ("µJs", 1e6)}
"""What an objective is printed in, and how many of those make the unit it is computed in."""


def measure(graph: Graph, board: str, goal: Goal = Goal.LATENCY) -> dict[str, Any]:
    """A plan's time, gap and objective (in seconds, joules or joule seconds)."""
    start, busy = time.perf_counter(), time.process_time()
    plan, _ = make_plan(graph, load_platform(board), Options(goal=goal))
    seconds, computing = time.perf_counter() - start, time.process_time() - busy
    return {"nodes": len(graph.nodes), "plan_s": seconds, "computing_s": computing, "objective": plan.objective,
            "lower_bound": plan.lower_bound, "gap": plan.gap, "given_up": plan.given_up,
            "status": "ok" if plan.gap <= GAP and computing <= SECONDS else "missed", "proof": plan.status.value,
            "makespan_s": plan.makespan_s, "baselines": dict(plan.baselines)}


def graphs(parser: argparse.ArgumentParser, wanted: Sequence[str] | None) -> Iterator[tuple[str, Graph]]:
    """The networks asked for by name, or all; a name that is none ends the command."""
    light = {path.stem: path for path in sorted(LIGHT.glob("light_*.onnx"))}
    if unknown := sorted(set(wanted or ()) - {*zoo.names(), *light}):
        parser.error(f"--network {unknown[0]}: unknown; {', '.join((*zoo.names(), *light))} exist")
    with tempfile.TemporaryDirectory() as folder:
        for name in wanted or (*zoo.names(), *light):
            path = light.get(name, Path(folder) / "m.onnx")
            if name not in light:
                path.write_bytes(zoo.build(name))
            yield name, graph_to_plan(path)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--board", action="append")
    parser.add_argument("--network", action="append")
    parser.add_argument("--objective", type=Goal, choices=list(Goal), default=Goal.LATENCY)
    options = parser.parse_args()
    unit, factor = UNITS[options.objective]
    found: dict[str, dict[str, Any]] = {}
    for name, graph in graphs(parser, options.network):
        found[name] = {}
        for board in options.board or BOARDS:
            result = found[name][board] = measure(graph, board, options.objective)
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
