"""What a user can ask of a plan, and the plan: what FPGAs may become first, then which device computes what."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf

from dovetail.cost.budget import fill_note
from dovetail.cost.clocks import ClockEstimate, segment_clocks
from dovetail.cost.folded import pace_of
from dovetail.errors import InfeasibleError, UnsupportedError
from dovetail.forms import PlanQuestion, Space
from dovetail.ir import Axis, Graph
from dovetail.partition import effort
from dovetail.partition.cost_model import CostModel
from dovetail.partition.device_costs import RememberedCosts
from dovetail.partition.memo import Memo
from dovetail.partition.options import Options as Options
from dovetail.partition.plan import Assignment, Goal, Plan, Status
from dovetail.partition.solve import best_baseline
from dovetail.partition.solve import plan as solve
from dovetail.platform.device import Kind, Platform
from dovetail.progress import Progress, silent
from dovetail.schedule.list_schedule import Timeline, schedule
from dovetail.schedule.parts import plan_within
from dovetail.schedule.program import lower
from dovetail.space import weigh
from dovetail.words import counted

SEARCHES = 6
"""Searches that may use as much of the time left as one may. Chosen: most forms end at once, as they are no better."""
LEAST = 0.05
"""Of all time, what is left to share at the least, so that no form goes unsearched. Chosen, not measured."""
NEAR = 0.05
"""By which fraction a limit may be missed for plans cut between the candidates' positions to be tried."""


def make_plan(graph: Graph, platform: Platform, options: Options,
              assignment: Assignment | None = None, costs: CostModel | None = None,
              begun: Plan | None = None) -> tuple[Plan, Timeline]:
    """Decide which device computes what, and when; the plan carries its proven bound and the schedule's makespan.

    `assignment` pins nodes to splits of your own, before what `options` pin; the rest is decided around them. Layers get what
    the links of an FPGA leave. `costs` default to the devices' own models. `begun` is an earlier answer (see `solve.plan`).

    Raises:
        InfeasibleError: no plan meets the limits; it names one and by how much it is missed.
        UsageError: a pin names no node, or the solver is unknown.
    """
    platform, linked = without_links(platform.with_fill(options.fill))
    assignment = {**options.pinned(graph), **(assignment or {})}
    plan = _solved(graph, platform, options, assignment, costs=costs, begun=begun)
    timeline = schedule(graph, platform, plan.assignment, costs)
    paced = tuple(f"{d.name}: layers may share multipliers and take up to {counted(pace, 'clock')} per frame"
                  for d in platform.of_kind(Kind.FPGA) if (pace := pace_of(d)) is not None)
    slotted = _time_slots(graph, platform, plan)
    used = {device for split in plan.assignment.values() for device in split.devices}
    filled = tuple(fill_note(d) for d in platform.of_kind(Kind.FPGA) if d.name in used)[:1]
    notes = (*plan.notes, *paced, *linked, *slotted, *filled)
    return replace(plan, makespan_s=timeline.makespan_s, notes=notes), timeline


def _time_slots(graph: Graph, platform: Platform, plan: Plan) -> tuple[str, ...]:
    """Notes on the slots of boards that are circuit switches: how many a plan needs, and whether they keep its pace."""
    if platform.switch is None:
        return ()
    from dovetail.fpga.links.system import slots_over_links, systems_of  # here, because plans for other boards need no hardware
    program, notes = lower(graph, plan.assignment), list[str]()
    clock_hz = max(d.clock_hz or 0.0 for d in platform.of_kind(Kind.FPGA))
    for name, segments in systems_of(program, platform).items():
        try:
            slots = slots_over_links(segments, program, platform, int(plan.interval_s * clock_hz))
        except UnsupportedError as reason:
            notes.append(f"{reason}; the host carries what passes between these boards")
            continue
        assert slots is not None
        kept = (f"and a frame comes every {slots.wanted:,}" if slots.clocks <= slots.wanted else
                f"more than the {slots.wanted:,} of the pipelined rate, which links without slots would have")
        notes.append(f"{name}: frames of {counted(slots.slots, 'time slot')} carry a frame of the network in "
                     f"{counted(slots.clocks, 'clock')} of a link, {kept}")
    return tuple(notes)


def without_links(platform: Platform) -> tuple[Platform, tuple[str, ...]]:
    """The platform with what the ends of links leave of FPGAs, and notes on what they take; neither a second time."""
    found = {d.name: platform.link_logic(d.name) for d in platform.of_kind(Kind.FPGA)}
    return platform.with_link_logic(), tuple(
        f"{name}: the ends of its links take {', '.join(f'{v:,.0f} {r}' for r, v in taken.items())}, which no layer has"
        for name, taken in found.items() if taken)


def _solved(graph: Graph, platform: Platform, options: Options, assignment: Assignment | None, ceiling: float = inf,
            costs: CostModel | None = None, begun: Plan | None = None, memo: Memo | None = None) -> Plan:
    """The plan that options ask for."""
    search = partial(solve, costs=costs) if options.max_parts else partial(
        solve, costs=costs, ceiling=ceiling, begun=begun, memo=memo)
    try:
        return plan_within(graph, platform, options, assignment, search)
    except InfeasibleError as error:
        found = _between(graph, platform, options, assignment) if options.solver == "exact" and error.excess <= NEAR else None
        if found is None:
            raise
        return found


def _between(graph: Graph, platform: Platform, options: Options, assignment: Assignment | None) -> Plan | None:
    """A plan for limits that only plans cut between the candidates' positions meet: the fastest, or the thriftiest."""
    for goal, free in ((Goal.LATENCY, replace(options, max_latency_s=None)), (Goal.ENERGY, replace(options, max_energy_j=None))):
        try:
            found = solve(graph, platform, replace(free, goal=goal, thrift=0.0), assignment)
        except InfeasibleError:
            continue
        if found.latency_s > (options.max_latency_s or inf) or found.energy_j > (options.max_energy_j or inf):
            continue
        note = f"limits: only plans cut between the candidates' positions meet them; this is the one of least {goal}"
        if goal is options.goal:
            return replace(found, notes=(*found.notes, note))
        plain = replace(options, thrift=0.0, explained=False)
        unlimited = replace(plain, max_latency_s=None, max_energy_j=None, max_interval_s=None)
        bound = solve(graph, platform, unlimited, assignment).lower_bound
        kept = solve(graph, platform, replace(plain, explained=True, rivals=False), found.assignment)
        return replace(kept, nodes=found.nodes, pinned=len(assignment or {}), lower_bound=min(bound, kept.objective),
                       status=Status.FEASIBLE, notes=(*found.notes, note),
                       baselines={name: v if name in set(Kind) else None for name, v in kept.baselines.items()})
    return None


def decide(graph: Graph, platform: Platform, options: Options, assignment: Assignment | None = None,
           progress: Progress = silent) -> tuple[Plan, Timeline, Platform]:
    """The best plan of the space that `options` leave; the platform returned knows what its FPGAs became."""
    plan, timeline, space = weighed(graph, platform, options, assignment, progress)
    return plan, timeline, space.forms[space.best].platform


def weighed(graph: Graph, platform: Platform, options: Options, assignment: Assignment | None = None,
            progress: Progress = silent) -> tuple[Plan, Timeline, Space]:
    """The same with all that was weighed."""
    platform, linked = without_links(platform.with_fill(options.fill))
    assignment = {**options.pinned(graph), **(assignment or {})}
    quick, costs = replace(options, thrift=0.0, explained=False), RememberedCosts()
    begun: dict[tuple[int, frozenset[str]], Memo] = {}  # a memo knows its board, whatever stands at that place later

    def search(board: Platform, pins: Assignment, ceiling: float) -> Plan:
        left_s = max(options.total_s - effort.worked(), LEAST * options.total_s)
        limit_s = min(quick.time_limit_s, left_s / SEARCHES)
        memo = begun.pop((id(board), frozenset(pins)), None)
        return _solved(graph, board, replace(quick, time_limit_s=limit_s), pins, ceiling, costs, memo=memo)

    def first(board: Platform, pins: Assignment) -> float:
        memo = begun[id(board), frozenset(pins)] = Memo()
        return best_baseline(graph, board, quick, pins, costs, memo)

    with effort.counted(inf):
        space = weigh(PlanQuestion(graph, platform, options, assignment, search, progress, first))
    best = space.forms[space.best]
    progress("plan", 0, 1)
    plan, timeline = make_plan(graph, best.platform, options, best.pins, costs, space.plans[space.best] if space.plans else None)
    progress("plan", 1, 1)
    plan = space.within(plan)
    return replace(plan, notes=(*plan.notes, *linked), clocks=plan_clocks(graph, best.platform, plan)), timeline, space


def plan_clocks(graph: Graph, platform: Platform, plan: Plan) -> dict[str, ClockEstimate]:
    """Of every segment of a plan on an FPGA, by its name: clocks of one frame and between frames, with their error.

    None of a float graph with sums over several devices: only numbers say what is passed between them.
    """
    boards, splits = {d.name: d for d in platform.of_kind(Kind.FPGA)}, plan.assignment.values()
    if not any(d in boards for split in splits for d in split.devices):
        return {}
    if not graph.quantized and any(split.axis is Axis.INPUT_CHANNELS for split in splits):
        return {}
    return {s.name: segment_clocks(s.graph, boards[s.device]) for s in lower(graph, plan.assignment).segments
            if s.device in boards}
