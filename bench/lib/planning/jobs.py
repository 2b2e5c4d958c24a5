"""What workers of `bench/zoo.py` compute: the plan of a network on a board, with its time and gap."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from dovetail.ir import Graph
from dovetail.partition.plan import Goal
from dovetail.planning import Options, make_plan
from dovetail.platform.load import load_platform
from lib.planning.cases import graph_of

GAP = 0.005
"""Fraction of the objective that a plan may be from its bound."""
SECONDS = 5.0
"""Of computing, that a plan may take."""


@lru_cache(maxsize=1)
def _last(network: str) -> Graph:
    """The network that a worker planned last: boards follow one another."""
    return graph_of(network)


def measured(arguments: Mapping[str, Any], files: Mapping[str, Path]) -> dict[str, Any]:
    """A plan's time, gap and objective (in seconds, joules or joule seconds)."""
    graph, platform = _last(arguments["network"]), load_platform(arguments["board"])
    start, busy = time.perf_counter(), time.process_time()
    plan, _ = make_plan(graph, platform, Options(goal=Goal(arguments["goal"]), gap=arguments["gap"]))
    seconds, computing = time.perf_counter() - start, time.process_time() - busy
    return {"nodes": len(graph.nodes), "plan_s": seconds, "computing_s": computing, "objective": plan.objective,
            "lower_bound": plan.lower_bound, "gap": plan.gap, "given_up": plan.given_up,
            "status": "ok" if plan.gap <= GAP and computing <= SECONDS else "missed", "proof": plan.status.value,
            "makespan_s": plan.makespan_s, "baselines": dict(plan.baselines)}
