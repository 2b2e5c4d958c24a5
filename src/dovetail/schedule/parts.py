"""Plans whose programs have few parts: transfers cost more and more until there are no more parts than asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from dovetail.errors import InfeasibleError
from dovetail.ir import Graph
from dovetail.partition.options import Options
from dovetail.partition.plan import Assignment, Plan, Status
from dovetail.platform.device import Platform
from dovetail.schedule.program import count_parts
from dovetail.words import counted

Solve = Callable[[Graph, Platform, Options, Assignment | None], Plan]

DEAREST = 1024.0
"""Times a plan's latency: the price of a transfer at which plans have as few as they can. Chosen: far above any gain."""
NEARER = 4
"""How often the price is halved between one that is too low and one that is not. Chosen: 1/16 of the last doubling is left."""


def plan_within(graph: Graph, platform: Platform, options: Options, assignment: Assignment | None, solve: Solve) -> Plan:
    """The plan of `solve`, of no more than `options.max_parts` parts.

    Where it has more, a price on every transfer is raised until the plan found with it has few enough. Of all such plans, judged
    without the price, the best is taken. The bound is the one without the limit, which holds all the more with it.

    Raises:
        InfeasibleError: not even at a price far above any gain there are so few; it names the fewest that were found.
    """
    free = solve(graph, platform, options, assignment)
    if options.max_parts is None or (before := count_parts(graph, free.assignment)) <= options.max_parts:
        return free
    quick = replace(options, thrift=0.0, explained=False)
    unlimited = replace(quick, max_latency_s=None, max_energy_j=None, max_interval_s=None)
    tried: dict[float, int] = {}
    legal: list[tuple[float, Plan]] = []

    def few_enough(price_s: float) -> bool:
        """Whether the plan at a price has few enough parts; if so and it keeps the limits, it is kept."""
        links = tuple(replace(link, latency_s=link.latency_s + price_s) for link in platform.links)
        found = solve(graph, replace(platform, links=links), unlimited, assignment).assignment
        tried[price_s] = count_parts(graph, found)
        if tried[price_s] > (options.max_parts or 0):
            return False
        with suppress(InfeasibleError):  # a limit on latency, energy or interval, which plans of fewer parts may miss
            legal.append((price_s, solve(graph, platform, quick, found)))
        return True

    low, high = 0.0, free.latency_s / before
    while not few_enough(high) and high < DEAREST * free.latency_s:
        low, high = high, 2 * high
    for _ in range(NEARER if tried[high] <= options.max_parts else 0):
        middle = (low + high) / 2
        low, high = (low, middle) if few_enough(middle) else (middle, high)
    if not legal:
        raise InfeasibleError(f"max parts {options.max_parts}: the fewest found are {min(tried.values())}, or miss a limit; "
                              "allow more parts, or fewer limits and pins")
    price_s, best = min(legal, key=lambda pair: pair[1].objective)
    note = (f"parts: {count_parts(graph, best.assignment)} of {options.max_parts} allowed, found by pricing every transfer "
            f"{price_s * 1e6:.3g} µs more; without the limit {counted(before, 'part')}, {free.latency_s * 1e3:.4g} ms; the bound "
            "is for any number of parts")
    why = f"placed for at most {counted(options.max_parts, 'part')}"
    lower_bound = min(free.lower_bound, best.objective)
    return replace(best, nodes=tuple(replace(cost, why=why) for cost in best.nodes), lower_bound=lower_bound, pinned=free.pinned,
                   baselines=free.baselines, notes=(*free.notes, note),
                   status=Status.OPTIMAL if lower_bound == best.objective else Status.FEASIBLE)
