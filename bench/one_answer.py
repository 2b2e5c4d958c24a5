"""Whether the plan that nobody helped is the best: the default beside every switch that narrows its space, with its proven gap.

`python bench/one_answer.py --json FILE [--networks A,B] [--boards zcu102,ecp5-85] [--goals latency] [--shard I/N] [--draw N
--seed S] [--jobs N --minutes M]`. One row per network, board and goal: objective, bound, gap and seconds of computing of the
default plan; whether the checker accepts its certificate; objectives of the plans with each switch; regret, by which fraction
the best of these is better; date and commit. Rows that FILE holds are not run again; `--shard 2/4` runs every fourth row from
the second on, `--draw 30` some rows, drawn by a seed. `--jobs` makes rows side by side; what crashed or was not ended with the
time stands in `unfinished`. Planning alone: plans are estimates, without thrift, one frame at a time, clocks as boards assume.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from dovetail.certificate.check import check
from dovetail.certificate.file import read
from dovetail.certify import certify
from dovetail.errors import DovetailError
from dovetail.files import replace_text
from dovetail.forms import Space
from dovetail.ir import Graph
from dovetail.partition.plan import Goal, Plan
from dovetail.partition.plan_json import plan_to_json
from dovetail.planning import Options, weighed
from dovetail.platform.load import load_platform
from lib.parts import held
from lib.planning.cases import chosen, graph_of
from lib.workers import side_by_side

BOARDS = "tx2-c10gx,ecp5-85,zcu102,zc706,kcu105"
GOALS = "latency,energy,throughput"
SWITCHES: dict[str, dict[str, Any]] = {
    "fold none": {"fold": "none"}, "fold auto": {"fold": "auto"},
    **{f"architecture {kind}": {"architecture": kind} for kind in ("dhm", "fibha", "seml", "sesl", "auto")},
    "solver gp": {"solver": "gp"}}
JOINT = 0.02
"""By which fraction the default is better than every switch where weighing all at once is said to pay: a choice."""

Row = dict[str, Any]


def commit() -> str:
    """The commit whose code runs, with a plus where files differ from it."""
    told = subprocess.run(["git", "describe", "--always", "--dirty=+"], cwd=Path(__file__).parent, capture_output=True, text=True,
                          check=False)
    return told.stdout.strip()


def planned(graph: Graph, board: str, options: Options) -> tuple[Plan | None, Space | None, float, str]:
    """A plan with all that was weighed, the seconds of computing it took, and why there is none."""
    busy = time.process_time()
    try:
        plan, _, space = weighed(graph, load_platform(board), options)
    except DovetailError as error:
        return None, None, time.process_time() - busy, str(error)
    return plan, space, time.process_time() - busy, ""


def certificate(graph: Graph, board: str, options: Options, plan: Plan, space: Space) -> Row:
    """Whether the checker accepts a certificate of a plan, the gap that it then has, and what is not covered."""
    busy = time.process_time()
    proven, text = certify(graph, load_platform(board), options, plan, space, "plan")
    found: Row = {"certify_s": time.process_time() - busy, "certified": False}
    busy, document = time.process_time(), plan_to_json(proven, space.forms[space.best].platform)
    try:
        verdict = check(json.loads(json.dumps(document)), read(text), graph, load_platform(board).with_link_logic(), {})
    except DovetailError as error:
        return {**found, "refused": str(error)}
    return {**found, "certified": True, "certified_gap": verdict.gap, "uncovered": list(verdict.uncovered),
            "check_s": time.process_time() - busy}


def row(network: str, graph: Graph, board: str, goal: str, certified: bool, alone: bool) -> Row:
    """The default plan, unless `alone` beside those with each switch, with a certificate if asked for."""
    found: Row = {"network": network, "board": board, "goal": goal, "nodes": len(graph.nodes)}
    options = Options(goal=Goal(goal), thrift=0.0)
    plan, space, seconds, reason = planned(graph, board, options)
    found["computing_s"] = seconds
    found |= {"error": reason} if plan is None else {
        "objective": plan.objective, "bound": plan.lower_bound, "gap": plan.gap, "status": plan.status.value,
        "space": list(plan.space), "cpu": plan.baselines.get("cpu")}
    if certified and plan is not None and space is not None:
        found |= certificate(graph, board, options, plan, space)
    others: dict[str, float | None] = {}
    for name, switch in () if alone else SWITCHES.items():
        other, *_ = planned(graph, board, Options(goal=Goal(goal), thrift=0.0, explained=False, **switch))
        others[name] = None if other is None else other.objective
    best = min((value for value in others.values() if value is not None), default=inf)
    return {**found, "switches": others, "regret": found["objective"] / best - 1 if plan is not None and best < inf else None}


def key(row: Mapping[str, Any]) -> tuple[str, str, str]:
    return row["network"], row["board"], row["goal"]


def share(held: Sequence[bool]) -> float | None:
    """Of how many it holds; None where there are none."""
    return sum(held) / len(held) if held else None


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Distributions over all rows that have a plan, and where weighing all at once pays."""
    done = [r for r in rows if "gap" in r]
    if not done:
        return {"plans": 0}
    regrets = [r for r in done if r["regret"] is not None]
    worst = max(regrets, key=lambda r: float(r["regret"]), default=None)
    gaps, seconds = np.array([r["gap"] for r in done]), np.array([r["computing_s"] for r in done])
    return {"plans": len(done), "none": len(rows) - len(done),
            "worst_regret": None if worst is None else max(0.0, float(worst["regret"])),
            "worst_regret_at": None if worst is None else list(key(worst)),
            "joint": [list(key(r)) for r in regrets if r["regret"] < -JOINT],
            "median_gap": float(np.median(gaps)), "gap_95": float(np.percentile(gaps, 95)), "worst_gap": float(gaps.max()),
            "optimal": sum(r["status"] == "optimal" for r in done),
            "certified": share([bool(r["certified"]) for r in done if "certified" in r]),
            "certified_whole": share([r.get("uncovered") == [] for r in done if "certified" in r]),
            "median_computing_s": float(np.median(seconds)), "longest_computing_s": float(seconds.max())}


def made(wanted: Sequence[str], certified: bool, alone: bool, code: str) -> Row:
    """One row, with when and by which code it was made."""
    network, board, goal = wanted
    date = datetime.now(UTC).date().isoformat()
    return {**row(network, graph_of(network), board, goal, certified, alone), "date": date, "commit": code}


def told(row: Row) -> str:
    """A row in a line."""
    return f"{row['network']:20} {row['board']:10} {row['goal']:10} " + (row["error"] if "error" in row else (
        f"{row['objective']:.6g}  gap {row['gap']:7.2%}  regret {row['regret'] or 0:7.2%}  "
        f"{row['computing_s']:5.1f} s  {row['status']}  {row.get('refused', '')}"))


def asked() -> tuple[argparse.Namespace, list[tuple[str, str, str]]]:
    """Options, and the rows they ask for in their order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--networks", help="comma-separated; all of the zoo and of the onnx package unless told")
    parser.add_argument("--boards", default=BOARDS)
    parser.add_argument("--goals", default=GOALS)
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="every Nth row from the Ith on (default: %(default)s)")
    parser.add_argument("--draw", type=int, metavar="N", help="so many of these rows, in an order drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="rows at a time, each by its own process")
    parser.add_argument("--minutes", type=float, default=inf, help="the rows not ended by then are listed as unfinished")
    parser.add_argument("--commit", help="the code's, where git cannot say it")
    parser.add_argument("--uncertified", action="store_true", help="make no certificates, a fifth of the time of a row")
    parser.add_argument("--alone", action="store_true", help="make no plan with a switch, and know no regret")
    options = parser.parse_args()
    first, every = (int(part) for part in options.shard.split("/"))
    networks = chosen(parser, "--networks", options.networks.split(",") if options.networks else None)
    wanted = [(n, b, g) for n in networks for b in options.boards.split(",") for g in options.goals.split(",")][first - 1::every]
    if options.draw:
        wanted = [wanted[k] for k in np.random.default_rng(options.seed).permutation(len(wanted))[:options.draw]]
    return options, wanted


def main() -> None:
    options, wanted = asked()
    known = held(options.json, resume=True)
    rows: list[Row] = known.setdefault("rows", [])
    missing = [k for k in wanted if k not in set(map(key, rows))]
    make = partial(made, certified=not options.uncertified, alone=options.alone, code=options.commit or commit())
    for ended in side_by_side(make, missing, options.jobs, 60 * options.minutes):
        others = [u for u in known.get("unfinished", []) if key(u) != ended.key]
        if ended.row is None:
            network, board, goal = ended.key
            others.append({"network": network, "board": board, "goal": goal, "why": ended.why, "wall_s": ended.wall_s})
        else:
            rows.append({**ended.row, "wall_s": ended.wall_s})
        known |= {"unfinished": others, "summary": summary(rows), "command": "python bench/one_answer.py --json FILE",
                  "versions": f"Python {platform.python_version()}, {platform.machine()}"}
        if options.json:
            replace_text(options.json, json.dumps(known, indent=1) + "\n")
        print(" ".join((*ended.key, ended.why)) if ended.row is None else told(ended.row), flush=True)
    print(json.dumps({**summary(rows), "unfinished": len(known.get("unfinished", []))}, indent=1))


if __name__ == "__main__":
    main()
