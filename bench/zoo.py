"""Plans of every network on every board, against the goal of 0.5 % in 5 s: time, gap, single devices beside.

`python bench/zoo.py --json FILE [--board NAME ...] [--network NAME ...] [--objective latency] [--gap 0.005] [--resume]
[--workers 1] [--cluster ADDRESS]`. Networks are those of the zoo and the light models of the onnx package. A search ends once it
is within `--gap` of its bound. Times are seconds (of the clock, and of computing beside it, which other load does not lengthen
much), gaps fractions. What thrift gave up for area is stated beside the gap. A plan is `ok` if its gap is at most 0.5 % and it
took at most 5 s of computing; the last lines count those that are not. FILE is written after every plan; `--resume` keeps those
that it holds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from dovetail.files import replace_text
from dovetail.fpga.toolchain.tools import GIBIBYTE
from dovetail.partition.plan import Goal
from lib.campaigns import add_arguments, job, run
from lib.parts import held
from lib.planning.cases import BOARDS, chosen
from lib.planning.jobs import GAP, SECONDS, measured

UNITS = {Goal.LATENCY: ("ms", 1e3), Goal.THROUGHPUT: ("ms", 1e3), Goal.ENERGY: ("mJ", 1e3), Goal.EDP: ("µJs", 1e6)}
"""What an objective is printed in, and how many of those make the unit it is computed in."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--board", action="append")
    parser.add_argument("--network", action="append")
    parser.add_argument("--objective", type=Goal, choices=list(Goal), default=Goal.LATENCY)
    parser.add_argument("--gap", type=float, default=GAP, help=f"fraction at which a search ends (default: {GAP})")
    parser.add_argument("--resume", action="store_true", help="keep the plans that FILE holds, and make the others")
    add_arguments(parser, 1)
    options = parser.parse_args()
    unit, factor = UNITS[options.objective]
    found: dict[str, dict[str, Any]] = held(options.json, options.resume)
    names = chosen(parser, "--network", options.network)

    def keep(label: str, result: Mapping[str, Any]) -> None:
        name, board = label.split(" on ")
        if "refused" in result:
            print(f"{label}: no plan, {result['refused']}", flush=True)
            return
        found.setdefault(name, {})[board] = result
        singles = [v for kind in ("cpu", "gpu", "fpga") if (v := result["baselines"][kind]) is not None]
        print(f"{name:20} {board:11} {result['nodes']:4} nodes  plan {result['plan_s']:6.2f} s "
              f"({result['computing_s']:6.2f} s computing)  gap {result['gap']:.4f}  "
              f"given up {result['given_up']:.4f}  {result['objective'] * factor:9.3f} {unit}  "
              f"{min(singles) / result['objective']:.2f}x the best single device  {result['status']}", flush=True)
        if options.json:
            replace_text(options.json, json.dumps(found, indent=1) + "\n")

    wanted = [(name, board) for name in names for board in options.board or BOARDS if board not in found.get(name, {})]
    failed = run([job(measured, f"{name} on {board}", GIBIBYTE, network=name, board=board, goal=options.objective.value,
                      gap=options.gap) for name, board in wanted], options, keep)
    for label, problem in failed.items():
        print(f"{label}: no plan, {problem}")
    missed = [(n, b) for n, boards in found.items() for b, r in boards.items() if r["status"] != "ok"]
    named = ", ".join(f"{n} on {b}" for n, b in missed) or "none"
    every = [r for boards in found.values() for r in boards.values()]
    near, spent = [r for r in every if r["gap"] <= GAP], [r["computing_s"] for r in every]
    print(f"{len(every)} plans, {len(missed)} missed: {named}")
    print(f"{len(near)} within {GAP:.1%} of their bound, {sum(s <= SECONDS for s in spent)} within {SECONDS:g} s of computing, "
          f"{median(spent):.1f} s in the median")


if __name__ == "__main__":
    main()
