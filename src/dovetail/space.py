"""The space of a plan: everything the FPGAs of a board may become, each weighed with every division between devices.

FPGAs map layers directly, share multipliers at one of several paces (`folds`), or one becomes an accelerator with engines that
layers share (`accelerators`). Each of these is a *form*, with its best plan and a bound on all of its plans; the least of the
bounds holds over the whole space. `Options.fold` and `Options.architecture` narrow it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import cast

from dovetail.accelerator_prices import FrameProof, best_charged
from dovetail.certificate.accelerators import accelerator_words
from dovetail.certificate.check import space_words
from dovetail.cost.costs import why_not
from dovetail.cost.folded import pace_of
from dovetail.errors import InfeasibleError, UnsupportedError
from dovetail.forms import FpgaForm, PlanQuestion, Space, charged, proven
from dovetail.ir import Graph
from dovetail.partition.accelerator.architecture import (
    ARRAYS_ALONE,
    CHOICES,
    AcceleratedRegion,
    JudgedAccelerator,
    accelerated_device,
    accelerator_of,
    judge,
    pinned,
    reason_outside,
    region_of,
    search_of,
    smaller_regions,
)
from dovetail.partition.accelerator.blocks import Blocks
from dovetail.partition.accelerator.runs import Elsewhere, runs_of
from dovetail.partition.accelerator.search import SearchLimits
from dovetail.partition.effort import worked
from dovetail.partition.options import AUTO, DIRECT
from dovetail.partition.plan import Assignment, Goal, Plan, Split, whole_on
from dovetail.partition.solve import GOOD
from dovetail.partition.tolerances import ROUNDING
from dovetail.platform.accelerator import AcceleratorDesign, Architecture
from dovetail.platform.device import Device, Kind
from dovetail.report.units import joules, objective
from dovetail.schedule.program import lower
from dovetail.words import counted

COARSE = 4
"""Ratio of two paces that are tried first."""
PACES = tuple(1024 * COARSE**k for k in (3, 2, 4, 1, 5, 0, 6))
"""Clocks per frame that are tried first, at 100 MHz from ten microseconds to forty milliseconds; the middle ones before others,
which then need only be proven no better.
"""
NEARER = ((0.5, 2.0), (0.75, 1.25), (0.875, 1.125))
"""Times the best pace so far: what is tried then, nearer each time."""
TRIES = len(PACES) + 2 * len(NEARER)
LONGER = 1.5
"""Times the time of all other forms that accelerators are sought. Chosen: twice as much made gaps hardly smaller."""
FURTHER = 2
"""By how much shorter each further one is sought. Chosen, not measured: most end at once."""
SHORTER = 3
"""Shorter runs of layers that accelerators are sought for, at the most. Chosen, not measured."""


def weigh(asked: PlanQuestion) -> Space:
    """All that the options ask for.

    Raises:
        InfeasibleError: no accelerator of the kind asked for fits.
        UnsupportedError: an accelerator was asked for that the board or the network has nothing for.
    """
    options, fpgas = asked.options, asked.platform.of_kind(Kind.FPGA)
    plain = FpgaForm(asked.platform, asked.pins)
    if options.architecture is not None:
        words, form = accelerator(asked, Architecture(options.architecture))
        return Space((words,), (form,))
    if options.fold not in (None, AUTO, DIRECT):
        return Space(space_words([int(options.fold)]),
                     (replace(plain, platform=asked.platform.with_pace(int(options.fold))),))
    if not fpgas or any(d.accelerator is not None or pace_of(d) is not None for d in fpgas):
        return Space((), (plain,))
    if options.fold == DIRECT or options.solver != "exact":
        return Space(space_words([None]), (plain,))
    if options.fold == AUTO:
        return folds(asked)
    reached = quick(asked)
    found = with_accelerators(asked, folds(asked, reached))
    if found.plans and min((p.objective for p in found.plans if p is not None), default=inf) > reached * (1 + ROUNDING):
        return with_accelerators(asked, folds(asked))  # no search found again what all were held to
    return found


def with_accelerators(asked: PlanQuestion, found: Space) -> Space:
    """With the best accelerators of all kinds."""
    options, fpgas = asked.options, asked.platform.of_kind(Kind.FPGA)
    bounded = proven(options.goal) or charged(options.goal, asked.graph)
    kinds = [Architecture.AUTO] if bounded else list(CHOICES)  # the fastest need not be the thriftiest
    for kind in kinds:
        reached, together = min((p.objective for p in found.plans if p is not None), default=inf), cast("FpgaForm | None", None)
        try:
            words, form, plan = planned(asked, kind, reached)
        except (InfeasibleError, UnsupportedError) as reason:
            which = "accelerators" if kind is Architecture.AUTO else f"{kind} accelerators"
            found = replace(found, notes=(*found.notes, f"{which}: none is weighed; {reason}"))
        else:
            together = form
            found = replace(found, words=(*found.words, words), forms=(*found.forms, form), plans=(*found.plans, plan))
        if kind is Architecture.AUTO and len(fpgas) == 1:
            kinds += apart(asked, together)
    return with_shorter_runs(asked, found) if proven(options.goal) and not asked.pins and len(fpgas) == 1 else found


def with_shorter_runs(asked: PlanQuestion, found: Space) -> Space:
    """With accelerators for fewer layers that are better beside other devices: those that promise most are sought."""
    device = accelerated_device(asked.platform)
    try:
        whole = region_of(asked.graph, device)
    except UnsupportedError:
        return found
    reached = min((p.objective for p in found.plans if p is not None), default=inf)
    inside, blocks = _inside(asked, pinned(asked.graph, whole, device.name), device)
    elsewhere = _elsewhere(asked, device)
    if elsewhere is None or device.clock_hz is None:
        return found
    most = min(reached, sum(elsewhere.nodes_s)) * device.clock_hz
    runs = runs_of(asked.graph, whole, inside, blocks, elsewhere, asked.options.goal is Goal.THROUGHPUT, most)
    for form in found.forms:
        if form.judged is not None and form.kinds == CHOICES:  # guesses are of the best kind
            at = [i for i, node in enumerate(asked.graph.nodes) if node.name in form.held]
            runs.learn(AcceleratedRegion(at[0], at[-1] + 1), form.judged.sought)
    for _ in range(SHORTER):
        if (run := runs.promising(reached)) is None:
            break
        try:
            words, shorter, plan = planned(asked, Architecture.AUTO, reached, run)
        except InfeasibleError:
            runs.learn(run, inf)
            continue
        assert shorter.judged is not None, "an accelerator was sought"
        runs.learn(run, shorter.judged.sought)
        if plan is not None and plan.objective < reached:
            reached = plan.objective
            found = replace(found, words=(*found.words, words), forms=(*found.forms, shorter), plans=(*found.plans, plan))
    return found


def planned(asked: PlanQuestion, kind: Architecture, reached: float,
             run: AcceleratedRegion | None = None) -> tuple[str, FpgaForm, Plan | None]:
    """The best accelerator of a kind, with the best plan around it.

    For throughput one is sought at first that is as fast as other devices may be with the nodes outside; a faster one where the
    plan waits for it.
    """
    for floored in (True, False) if asked.options.goal is Goal.THROUGHPUT else (False,):
        words, form = accelerator(asked, kind, reached, run, floored)
        held = {name: split for name, split in form.pins.items() if name in form.held}
        plan = asked.planned_around(form.platform, held) if form.proof else asked.tried(form, inf if run is None else reached)
        if plan is None or form.judged is None or form.judged.sought < inf or form.bound(plan) >= plan.lower_bound:
            break
    return words, form, plan


def _outside(asked: PlanQuestion, device: Device, pins: Assignment) -> float:
    """Clocks that the nodes outside an accelerator take at the least, shared evenly by all other devices."""
    elsewhere = _elsewhere(asked, device) if len(pins) < len(asked.graph.nodes) else None
    if elsewhere is None or device.clock_hz is None:
        return 0.0
    outside_s = sum(s for node, s in zip(asked.graph.nodes, elsewhere.nodes_s, strict=True) if node.name not in pins)
    return outside_s / (len(asked.platform.devices) - 1) * device.clock_hz


def _elsewhere(asked: PlanQuestion, device: Device) -> Elsewhere | None:
    """What nodes take on the fastest device but the accelerator, alone; None where limits leave no plan on these."""
    if device.name not in asked.elsewhere:
        asked.elsewhere[device.name] = _found_elsewhere(asked, device)
    return asked.elsewhere[device.name]


def _found_elsewhere(asked: PlanQuestion, device: Device) -> Elsewhere | None:
    """The same, found anew."""
    graph, host, others = asked.graph, asked.platform.host, []
    for other in (d for d in asked.platform.devices if d.name != device.name):
        able = {n.name for n in graph.nodes if why_not(graph, n, other) is None}
        alone = {n.name: whole_on(other.name if n.name in able else host) for n in graph.nodes}
        plan = asked.tried(FpgaForm(asked.platform, alone))
        others += [] if plan is None else [[node.compute_s for node in plan.nodes]]
    if not others:
        return None
    route = asked.platform.route(host, device.name)
    return Elsewhere([min(each) for each in zip(*others, strict=True)], sum(link.latency_s for link in route),
                     sum(1 / link.bandwidth_bytes_per_s for link in route))


def apart(asked: PlanQuestion, together: FpgaForm | None) -> list[Architecture]:
    """Kinds of accelerators that by themselves may take other layers than all kinds together: of these, and of the whole run.

    None of the kind fits what all took together, or its arrays can compute another run of layers.
    """
    def run(kind: Architecture) -> frozenset[str]:
        try:
            return frozenset(pinned(asked.graph, region_of(asked.graph, device, kind), device.name))
        except UnsupportedError:
            return frozenset()

    device = accelerated_device(asked.platform)
    taken, none = {frozenset(), run(Architecture.AUTO)}, tuple[Architecture, ...]()
    if together is not None and together.judged is not None:
        taken, none = taken | {together.held}, together.judged.none
    return [kind for kind in CHOICES if (run(kind) not in taken if kind in ARRAYS_ALONE else kind in none)]


def quick(asked: PlanQuestion) -> float:
    """The objective of a plan around the first accelerator that fits, of which there are two; infinite where there is none."""
    goal, fpgas = asked.options.goal, asked.platform.of_kind(Kind.FPGA)
    if asked.pins or len(fpgas) != 1 or not (proven(goal) or charged(goal, asked.graph)):
        return inf
    device, best = fpgas[0], inf
    for kind in (Architecture.SEML, Architecture.SESL):
        asked.progress(f"first {kind} accelerator", 0, 1)
        try:
            pins = pinned(asked.graph, region_of(asked.graph, device, kind), device.name)
            inside, blocks = _inside(asked, pins, device)
            design = accelerator_of(inside, search_of(inside, device, kind, blocks).some(), kind)
        except (InfeasibleError, UnsupportedError):
            continue
        best = min(best, asked.first(asked.platform.with_accelerator(device.name, design), pins))
    return best


def folds(asked: PlanQuestion, least: float = inf) -> Space:
    """Direct mapping, and folded engines at several paces: coarsely spaced ones, then some near the best.

    A frame takes at least the pace wherever an FPGA computes anything, and plans without it are among those of direct mapping: a
    pace that is no shorter than the best plan so far needs no search. Forms whose first plans are best are searched first, so
    that of others only has to be proven that they are no better than these, or than what is the `least` reached elsewhere.
    """
    forms, plans = dict[int, FpgaForm](), dict[int, Plan | None]()  # by pace; 0 stands for direct mapping
    clock_hz = max(d.clock_hz or inf for d in asked.platform.of_kind(Kind.FPGA))

    def late(pace: int) -> bool:
        return proven(asked.options.goal) and pace / clock_hz >= least

    def attempt(some: Sequence[int]) -> int:
        """The best pace so far after trying some more."""
        nonlocal least
        promised = dict[int, float]()
        for pace in [p for p in dict.fromkeys(some) if p not in forms]:
            asked.progress(_so_far(asked, least), len(plans) + len(promised), TRIES)
            forms[pace] = FpgaForm(asked.platform.with_pace(pace) if pace else asked.platform, asked.pins)
            promised[pace] = inf if late(pace) else asked.first(forms[pace].platform, asked.pins)
            least = min(least, promised[pace])
        for pace in sorted(promised, key=promised.__getitem__):
            asked.progress(_so_far(asked, least), len(plans), TRIES)
            plans[pace] = found = None if late(pace) and promised[pace] > least else asked.tried(forms[pace], least)
            least = least if found is None else min(least, found.objective)
        return min(plans, key=lambda pace: inf if (own := plans[pace]) is None else own.objective)

    asked.progress("first plan", 0, 1)
    best = attempt((0, *PACES))
    near = best and (own := plans[best]) is not None and own.objective < COARSE * least  # that much a pace between may gain
    for factors in NEARER if near else ():
        best = attempt([int(best * factor) for factor in factors])
    for pace in sorted((p for p, own in plans.items() if own is not None), key=lambda p: cast(Plan, plans[p]).lower_bound):
        own = cast(Plan, plans[pace])
        if own.lower_bound >= least * (1 - GOOD) or worked() >= asked.options.total_s:
            break
        again = asked.tried(forms[pace], least)  # less is reached by now than when it was searched first
        if again is not None:
            chosen = min(again, own, key=lambda plan: plan.objective)
            plans[pace] = replace(chosen, lower_bound=min(chosen.objective, max(again.lower_bound, own.lower_bound)))
            least = min(least, chosen.objective)
    asked.progress(_so_far(asked, least), TRIES, TRIES)
    return Space(space_words([pace or None for pace in forms]), tuple(forms.values()), tuple(plans[pace] for pace in forms))


def _so_far(asked: PlanQuestion, least: float) -> str:
    """The stage of the search, with what is reached."""
    return f"folds, {objective(least, asked.options.goal)} so far" if least < inf else "folds"


def accelerator(asked: PlanQuestion, kind: Architecture, ceiling: float = inf,
                run: AcceleratedRegion | None = None, floored: bool = False) -> tuple[str, FpgaForm]:
    """The best accelerator of a kind for a run of layers, the longest that the board's FPGA can compute unless told, and what
    was chosen from.

    One that takes longer than `ceiling` is no better than what is known, nor, if `floored`, one that is faster than other
    devices with the nodes outside.

    Raises:
        InfeasibleError: none of this kind fits.
        UnsupportedError: the board has not exactly one FPGA, the network nothing for it, or a node of it is placed elsewhere.
    """
    graph, goal, device = asked.graph, asked.options.goal, accelerated_device(asked.platform)
    asked.progress(f"choose {kind} accelerator", 0, 1)
    inside, pins, judged, proof = _largest_that_fits(asked, device, kind, ceiling, run, floored)
    asked.progress(f"choose {kind} accelerator", 1, 1)
    for name, split in asked.pins.items():
        if pins.get(name, split) != split or (name not in pins and device.name in split.devices):
            raise UnsupportedError(f"node {name}: placed on {', '.join(split.devices)}, which an accelerator "
                                   "for other nodes does not allow; leave out --pin or --architecture")
    thrifty = goal is Goal.ENERGY and proof is not None
    what = "a frame takes" if thrifty else "one frame every" if goal is Goal.THROUGHPUT else "one frame in"
    much = f"{joules(judged.clocks)} with the idle board's" if thrifty else counted(round(judged.clocks), "clock")
    note = (f"{device.name}: {judged.accelerator.architecture} accelerator for {len(inside.nodes)} of "
            f"{counted(len(graph.nodes), 'node')}, {len(judged.accelerator.reusable)} of them on reusable engines; {what} {much}")
    if proof or (proven(goal) and judged.sought < inf):
        least = joules(judged.bound) if thrifty else f"{judged.bound:,.0f}"
        note += f", no accelerator of this kind below {least} ({100 * judged.gap:.1f} % away)"
    reasons = (reason_outside(graph, node, device, kind) for node in graph.nodes)
    outside = [f"{reason}; planned on the other devices" for reason in reasons if reason is not None]
    kinds, first = CHOICES if kind is Architecture.AUTO else (kind,), graph.position(next(iter(pins)))
    words = accelerator_words(graph, kinds, first, first + len(pins), bool(proof) or proven(goal))
    board = asked.platform.with_accelerator(device.name, judged.accelerator)
    return words, FpgaForm(board, {**asked.pins, **pins}, judged, frozenset(pins), kinds, (note, *outside[:1]), proof)


def _limits(asked: PlanQuestion, device: Device, further: bool, ceiling: float) -> SearchLimits:
    """How far accelerators are sought: below the objective reached, for so long; `further` ones share that time."""
    goal, until_s = asked.options.goal, LONGER * asked.options.total_s
    bounded = proven(goal) or charged(goal, asked.graph)
    if not bounded:
        until_s /= len(CHOICES)
    elif further and asked.options.architecture is None:
        until_s /= FURTHER
    if not bounded:
        return SearchLimits(enough=0.0, until_s=worked() + until_s)
    return SearchLimits(ceiling * (1.0 if goal is Goal.ENERGY else device.clock_hz or inf), until_s=worked() + until_s)


def _largest_that_fits(asked: PlanQuestion, device: Device, kind: Architecture, ceiling: float,
                       run: AcceleratedRegion | None,
                       floored: bool) -> tuple[Graph, dict[str, Split], JudgedAccelerator, FrameProof | None]:
    """The part of a network that an accelerator of the kind takes over, cut out, its pins, and the accelerator."""
    graph = asked.graph
    region, smaller = run or region_of(graph, device, kind), smaller_regions(graph, device)
    while True:
        pins = pinned(graph, region, device.name)
        inside, blocks = _inside(asked, pins, device)
        limits = _limits(asked, device, kind is not Architecture.AUTO or run is not None, ceiling)
        if floored:
            limits = replace(limits, floor=_outside(asked, device, pins))
        elif asked.options.goal is Goal.LATENCY and limits.ceiling < inf:  # nodes outside are in front, or behind
            limits = replace(limits, ceiling=max(1.0, limits.ceiling - _outside(asked, device, pins)))
        try:
            if not charged(asked.options.goal, graph) or kind is Architecture.DHM:
                return inside, pins, judge(inside, device, kind, asked.options.goal, asked.progress, limits, blocks), None
            kinds = CHOICES if kind is Architecture.AUTO else (kind,)
            return inside, pins, *best_charged(graph, asked.platform, region, inside, blocks, kinds, asked.options.goal, limits,
                                               partial(_worse, asked, device, pins, ceiling), asked.progress)
        except InfeasibleError:
            found = next((r for r in smaller if 0 < r.stop - r.start < region.stop - region.start), None)
            if kind in ARRAYS_ALONE or found is None or run is not None:
                raise
            region = found


def _worse(asked: PlanQuestion, device: Device, pins: Assignment, reached: float, design: AcceleratorDesign) -> float:
    """By how much no plan with an accelerator comes near an objective that is reached; nothing where limits leave no plan."""
    plan = asked.planned_around(asked.platform.with_accelerator(device.name, design), pins) if reached < inf else None
    return 0.0 if plan is None else plan.lower_bound - reached


def _inside(asked: PlanQuestion, pins: Assignment, device: Device) -> tuple[Graph, Blocks]:
    """The nodes that an accelerator holds as a graph of their own, and arrays for them as far as they are priced."""
    if (held := frozenset(pins)) not in asked.inside:
        alone = cut_out(asked.graph, pins, asked.platform.host, device.name)
        asked.inside[held] = alone, Blocks(alone, device)
    return asked.inside[held]


def cut_out(graph: Graph, pins: Assignment, host: str, device: str) -> Graph:
    """The pinned nodes as a graph of their own."""
    program = lower(graph, {n.name: pins.get(n.name, whole_on(host)) for n in graph.nodes})
    (found,) = [s.graph for s in program.segments if s.device == device]
    return found
