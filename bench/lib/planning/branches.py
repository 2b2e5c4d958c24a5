"""What planning branches at once is worth: the best plan with and without them.

`python bench/planning.py --part branches [--board NAME] [--goal latency|energy] [--json FILE] [NETWORK ...]`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dovetail.files import replace_text
from dovetail.ir import Graph
from dovetail.partition.device_costs import DeviceCosts
from dovetail.partition.evaluate import evaluate
from dovetail.partition.parallel.overlap import arm_devices
from dovetail.partition.plan import Goal
from dovetail.partition.problem import Problem
from dovetail.partition.strategy import exact
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform
from lib.planning.cases import graph_of

NETWORKS = ("squeezenet1.1", "resnet18", "googlenet", "shufflenet-v2-0.5")
TIME_LIMIT_S = 4.0


def measure(graph: Graph, board: Platform, goal: Goal, branches: bool) -> dict[str, Any]:
    """The best plan's objective, its gap, the processor time it took, and the joins whose branches run at once."""
    problem = Problem(graph, board, DeviceCosts(), goal, forks=None if branches else ())
    start = time.process_time()
    answer, _ = exact(problem, [], time.thread_time() + TIME_LIMIT_S)
    spent = time.process_time() - start
    value, best = min(((e.objective, a) for a in answer.assignments if (e := evaluate(problem, a)).feasible), key=lambda p: p[0])
    return {"objective": value, "gap": max(0.0, 1 - answer.lower_bound / value), "cpu_s": spent,
            "at_once": {b.join.name: arm_devices(b, best) for b in problem.blocks if arm_devices(b, best)}}


def main(asked: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="*", default=NETWORKS)
    parser.add_argument("--board", default="tx2-c10gx")
    parser.add_argument("--goal", type=Goal, choices=(Goal.LATENCY, Goal.ENERGY), default=Goal.LATENCY)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(asked)
    found = {}
    for name in options.network:
        graph = graph_of(name)
        on, off = (measure(graph, load_platform(options.board), options.goal, branches) for branches in (True, False))
        found[name] = {"at_once": on, "one_after_another": off}
        less = 1 - on["objective"] / off["objective"]
        print(f"{name:20} {off['objective'] * 1e3:9.4f} -> {on['objective'] * 1e3:9.4f} ({less:.2%} less), gaps "
              f"{off['gap']:.1e} {on['gap']:.1e}, {on['cpu_s']:.2f} s; {len(on['at_once'])} forks: {on['at_once']}", flush=True)
    if options.json:
        replace_text(options.json, json.dumps(found, indent=1) + "\n")

