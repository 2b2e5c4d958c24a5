"""Rates of the work that searches count (`partition/effort.py`): seconds per step and per cell of every kind, measured anew.

`python bench/planning.py --part effort [--board NAME ...] [--network NAME ...] [--goal NAME ...] [--solver NAME] [--rates]`
plans each network on each board with its work logged: the time from one count to the next is that of the latter. Printed are, per
plan, the seconds that its work should take and those of computing that it took, per kind the same over all plans, and, with
`--rates`, the rates that fit them best.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from dovetail.files import replace_text
from dovetail.ir import Graph
from dovetail.partition import effort
from dovetail.partition.plan import Goal
from dovetail.planning import Options, make_plan
from dovetail.platform.load import load_platform
from lib.planning.cases import BOARDS, chosen, graph_of

Sums = dict[str, tuple[float, float, float]]
"""Of every kind its steps, cells and seconds."""


class Log:
    """Counts of one plan, with what they took."""

    def __init__(self) -> None:
        self.sums: Sums = defaultdict(lambda: (0.0, 0.0, 0.0))
        self.last_s = time.thread_time()

    def __call__(self, kind: str, steps: float, cells: float = 0) -> None:
        now = time.thread_time()
        before = self.sums[kind]
        self.sums[kind] = (before[0] + steps, before[1] + cells, before[2] + now - self.last_s)
        SPEND(kind, steps, cells)
        self.last_s = time.thread_time()


SPEND = effort.spend


def logged(graph: Graph, board: str, options: Options) -> tuple[Sums, float, float]:
    """What planning a network counted, its seconds of work and of computing."""
    log = Log()
    users = [m for name, m in sys.modules.items() if name.startswith("dovetail.partition") and getattr(m, "spend", None) is SPEND]
    platform, begun = load_platform(board), time.thread_time()
    for module in users:
        module.spend = log  # type: ignore[attr-defined]
    try:
        log.last_s = time.thread_time()
        make_plan(graph, platform, options)
    finally:
        for module in users:
            module.spend = SPEND  # type: ignore[attr-defined]
    took = time.thread_time() - begun
    return dict(log.sums), work(log.sums), took


def work(sums: Sums) -> float:
    return sum(effort.should_take(k, steps, cells) for k, (steps, cells, _) in sums.items())


def rates(every: list[Sums]) -> dict[str, tuple[float, float]]:
    """The rates of every kind that fit its seconds best, none below zero."""
    found = {}
    for kind in sorted({k for sums in every for k in sums}):
        rows = np.array([sums[kind] for sums in every if kind in sums])
        scale = 1 / np.sqrt(np.maximum(rows[:, 2], 1e-3))  # so that sums agree, and small plans count as well
        found[kind] = tuple(float(x) for x in nnls(rows[:, :2] * scale[:, None], rows[:, 2] * scale)[0])
    return found


def main(asked: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--board", action="append")
    parser.add_argument("--network", action="append")
    parser.add_argument("--goal", action="append", choices=[g.value for g in Goal])
    parser.add_argument("--solver", default="exact")
    parser.add_argument("--rates", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(asked)
    every: list[Sums] = []
    rows: list[dict[str, Any]] = []
    for name in chosen(parser, "--network", options.network):
        graph = graph_of(name)
        for board, goal in product(options.board or BOARDS, options.goal or [Goal.LATENCY]):
            sums, worked, took = logged(graph, board, Options(goal=Goal(goal), solver=options.solver))
            every.append(sums)
            rows.append({"network": name, "board": board, "goal": goal, "work_s": worked, "computing_s": took})
            print(f"{name:20} {board:11} {worked:6.2f} s of work  {took:6.2f} s of computing  {worked / took:5.2f}",
                  flush=True)
    for kind in sorted({k for sums in every for k in sums}, key=lambda k: -sum(s.get(k, (0.0,) * 3)[2] for s in every)):
        rows = np.array([sums[kind] for sums in every if kind in sums]).sum(axis=0)
        should = work({kind: tuple(rows)})
        print(f"{kind:12} {rows[0]:12.0f} steps {rows[1]:14.0f} cells {should:8.2f} s of work {rows[2]:8.2f} s of computing  "
              f"{should / rows[2]:5.2f}")
    if options.json:
        replace_text(options.json, json.dumps({"plans": rows, "work_median": float(np.median([
            r["work_s"] / r["computing_s"] for r in rows]))}, indent=1) + "\n")
    if options.rates:
        for kind, (step, cell) in rates(every).items():
            print(f'    "{kind}": ({step:.2g}, {cell:.2g}),')

