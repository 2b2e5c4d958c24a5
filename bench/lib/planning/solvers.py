"""The partitioner's speed, growth and quality: milliseconds of whole plans (tables included), gaps of every solver.

`python bench/optimizer.py --json FILE [--part NAME ...] [--resume]`, or one of them by `python bench/planning.py --part NAME`.
Times are the best of several runs on a graph already imported, of the clock and (`computing_ms`) of the processor: tables,
baselines, the plan and its proof. What is remembered of weights is forgotten before every run, save for each filter's largest
weight, which the import finds when it checks that all are finite: counting their digits is part of the time. What the sentences
that explain each node take on top stands beside it (`explained_ms`): one comparison with whole placements elsewhere. Gaps of
solvers are written network by network; `--resume` keeps those that FILE holds already and goes on from there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from dovetail import zoo
from dovetail.errors import InfeasibleError
from dovetail.files import replace_text
from dovetail.hardware.adders.digits import digits_of
from dovetail.ir import Graph
from dovetail.partition.options import PROOF
from dovetail.partition.pareto import front
from dovetail.partition.plan import Goal, Plan
from dovetail.partition.solve import SOLVERS, plan
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform
from dovetail.reproduce.gp_2023.peers import chain
from lib.parts import held
from lib.zoo_graph import network

BOARD = "tx2-c10gx"
SPEED = {"resnet18_ms": ("resnet18", 150.0), "vgg16_ms": ("vgg16", 100.0), "mobilenet_v2_ms": ("mobilenet-v2", 2000.0),
         "shufflenet_v2_ms": ("shufflenet-v2", 2000.0), "googlenet_ms": ("googlenet", 2000.0)}
"""Key to network and target."""
GROWTH = (20, 50, 100, 200, 400)
CHAIN_TARGET_MS = 1000.0
FRONT_TARGET_S = 5.0
GP_TARGET = 0.03
REPEATS, SPEED_REPEATS = 3, 7
"""Runs of which the least counts, and of networks whose milliseconds do; the first also reads model files."""


def milliseconds(graph: Graph, repeats: int = REPEATS, explained: bool = False) -> tuple[float, float, Plan]:
    """Least time of a plan by the clock and by the processor, and the plan."""
    board, clock, computing, found = load_platform(BOARD), list[float](), list[float](), None
    for _ in range(repeats):
        digits_of.cache_clear()
        start, busy = time.perf_counter(), time.process_time()
        found = plan(graph, board, replace(PROOF, explained=explained))
        clock.append(1e3 * (time.perf_counter() - start))
        computing.append(1e3 * (time.process_time() - busy))
    assert found is not None
    return min(clock), min(computing), found


def judged(value: float, target: float) -> dict[str, Any]:
    return {"value": value, "target": target, "status": "ok" if value <= target else "missed"}


def speed() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, (name, target) in SPEED.items():
        graph = network(name)
        value, computing, made = milliseconds(graph, SPEED_REPEATS)
        _, sentences, _ = milliseconds(graph, explained=True)
        more = max(0.0, sentences - computing)
        found[key] = {**judged(value, target), "gap": made.gap, "computing_ms": computing, "explained_ms": more}
        print(f"{key:18} {value:9.1f} ms (target {target:g}), {computing:.1f} ms computing, {more:.1f} ms more for explanations, "
              f"gap {made.gap:.5f}", flush=True)
    return found


def growth() -> dict[str, Any]:
    times: dict[str, float] = {}
    for layers in GROWTH:
        graph = chain(layers)
        times[str(layers)], computing, made = milliseconds(graph)
        print(f"chain of {layers:4} {times[str(layers)]:9.1f} ms, {computing:.1f} ms computing, gap {made.gap:.5f}", flush=True)
    return {"growth": {"value": times, "status": "ok"}, "chain200_ms": judged(times["200"], CHAIN_TARGET_MS)}


def fronts() -> dict[str, Any]:
    graph, board = network("resnet18"), load_platform(BOARD)
    digits_of.cache_clear()
    start, busy = time.perf_counter(), time.process_time()
    found = front(graph, board, 20)
    seconds, worst = time.perf_counter() - start, max(p.gap for p in found.points)
    computing = time.process_time() - busy
    print(f"front of resnet18: {len(found.points)} points in {seconds:.2f} s, {computing:.2f} s computing, worst gap {worst:.5f}",
          flush=True)
    return {"front20_s": {**judged(seconds, FRONT_TARGET_S), "computing_s": computing, "worst_gap": worst}}


def found_by(graph: Graph, board: Platform, goal: Goal, solver: str) -> float | None:
    """The objective of a solver's plan; None where it finds none."""
    try:
        return plan(graph, board, replace(PROOF, goal=goal, solver=solver)).objective
    except InfeasibleError:
        return None


Gaps = dict[str, dict[str, dict[str, float | None]]]
"""Network, goal and solver to the distance from the exact plan; `exact` is its own distance from its bound."""
COMPARED = tuple(s for s in SOLVERS if s != "exact" and not s.startswith("gp-paper-"))


def gaps_of(graph: Graph, board: Platform, goal: Goal) -> dict[str, float | None]:
    """Every solver's distance to the exact plan, as a fraction of the exact plan's objective."""
    best = plan(graph, board, replace(PROOF, goal=goal, off_grid=True))
    found: dict[str, float | None] = {"exact": best.gap}
    for solver in COMPARED:
        value = best.baselines[solver] if solver in best.baselines else found_by(graph, board, goal, solver)
        found[solver] = None if value is None else value / best.objective - 1
    return found


def quality(known: Gaps, keep: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Distances on all networks for both goals, those `known` taken as they are; every new one is kept at once."""
    board = load_platform(BOARD)
    gaps: Gaps = {name: dict(known.get(name, {})) for name in zoo.names()}
    for name, goals in gaps.items():
        missing = [goal for goal in (Goal.LATENCY, Goal.ENERGY) if goal.value not in goals]
        graph = network(name) if missing else None
        for goal in missing:
            assert graph is not None
            goals[goal.value] = gaps_of(graph, board, goal)
            keep(summary(gaps, "unfinished"))
            print(f"{name:20} {goal:8} " + "  ".join(f"{s} {'-' if g is None else f'{g:.4f}'}"
                                                    for s, g in goals[goal.value].items()), flush=True)
    return summary(gaps, "ok")


def summary(gaps: Gaps, status: str) -> dict[str, Any]:
    """All gaps, and of every solver the median, the worst and how often it found no plan."""
    spread: dict[str, dict[str, float | int | str | None]] = {}
    for solver in ("exact", *COMPARED):
        every = [(g[solver], name, goal) for name, goals in gaps.items() for goal, g in goals.items() if solver in g]
        values = sorted((value, f"{name}, {goal}") for value, name, goal in every if value is not None)
        spread[solver] = {"plans": len(values), "none": len(every) - len(values), "median": median(v for v, _ in values),
                          "worst": values[-1][0], "worst_at": values[-1][1]} if values else {"plans": 0, "none": len(every)}
    found = spread["gp"].get("median")
    return {"gaps": {"value": gaps, "status": status}, "gap_summary": {"value": spread, "status": status},
            "gp_gap_median": judged(found, GP_TARGET) if isinstance(found, float) else {"value": None, "status": "no solver gp"}}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {"speed": speed, "growth": growth, "front": fronts}
NAMES = (*PARTS, "quality")
"""All parts; the last one is written network by network."""


def main(asked: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", action="append", choices=NAMES, help="only this; repeatable")
    parser.add_argument("--resume", action="store_true", help="keep what FILE holds, and go on with networks it has no gaps of")
    options = parser.parse_args(asked)
    found = held(options.json, options.resume)

    def keep(more: dict[str, Any]) -> None:
        found.update(more)
        if options.json:
            replace_text(options.json, json.dumps(found, indent=1) + "\n")

    for name in options.part or NAMES:
        keep(PARTS[name]() if name in PARTS else quality(found.get("gaps", {}).get("value", {}), keep))

