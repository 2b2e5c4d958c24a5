"""From a network and a board to the accelerator its FPGA becomes: the part it takes over, the kind asked for, proof included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from dovetail.cost import Floats, why_not
from dovetail.cost.accelerator import arrays_of
from dovetail.cost.array import reason_refused
from dovetail.cost.budget import usable
from dovetail.errors import InfeasibleError, UnsupportedError
from dovetail.hardware.arrays.layers import counts_bits
from dovetail.ir import Graph, MaxPool, Node
from dovetail.partition.accelerator.blocks import Blocks, cut_points
from dovetail.partition.accelerator.choice import shares_of
from dovetail.partition.accelerator.dedicated import engines_within, multiplications_of
from dovetail.partition.accelerator.search import UNLIMITED, AcceleratorSearch, FoundAccelerator, SearchLimits
from dovetail.partition.effort import halfway, part_of
from dovetail.partition.plan import Goal, Split, whole_on
from dovetail.partition.proof import check_bound
from dovetail.platform.accelerator import AcceleratorDesign, Architecture
from dovetail.platform.device import Device, Kind, Platform
from dovetail.progress import Progress, silent

ARRAYS_ALONE = (Architecture.SEML, Architecture.MONOLITHIC)
"""Kinds without engines of layers' own."""
LONG_PACE = 1 << 20
"""Clocks of the interval at which layers are judged by the engine that fills least. Chosen, not measured."""
PARTS_FILLED = (1.0, 0.8, 0.6, 0.4, 0.2)
"""How much of the FPGA the smallest engines of runs may fill, one after the other. Chosen, not measured."""
SOUGHT = 0.75
"""Part of the time for single frames in which accelerators are sought; the rest is for their bound. Chosen, not measured."""
CHOICES = (Architecture.SESL, Architecture.SEML, Architecture.MONOLITHIC, Architecture.FIBHA)
"""What `auto` chooses from; direct mapping is the corner of SESL in which nothing is folded."""


@dataclass(frozen=True, slots=True)
class AcceleratedRegion:
    """Nodes [start, stop) of a graph that one FPGA takes over: one tensor enters, one leaves."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class JudgedAccelerator:
    """An accelerator with what it promises; `clocks` and `bound` are of the objective, interval or latency."""

    accelerator: AcceleratorDesign
    found: FoundAccelerator
    clocks: float
    bound: float
    none: tuple[Architecture, ...] = ()
    """Kinds that were weighed and of which none fits."""

    @property
    def sought(self) -> float:
        """Its clocks if the fastest was sought; infinite where one as fast as other devices was taken."""
        return self.clocks if self.bound > 0 else inf

    @property
    def gap(self) -> float:
        """How far from the best of its kind it may be."""
        return (self.clocks - self.bound) / self.bound


def accelerated_device(platform: Platform) -> Device:
    """The one FPGA of a board.

    Raises:
        UnsupportedError: there is none, or more than one.
    """
    found = platform.of_kind(Kind.FPGA)
    if len(found) != 1:
        raise UnsupportedError(f"platform {platform.name}: {len(found)} FPGAs; an accelerator for a network is built on one, "
                               "take a board with one FPGA or leave --architecture out")
    return found[0]


def reason_outside(graph: Graph, node: Node, device: Device, architecture: Architecture | None) -> str | None:
    """Why a node is no part of an accelerator of a kind: the FPGA cannot compute it, or its arrays cannot; None if it may be."""
    if (reason := why_not(graph, node, device)) is not None or architecture not in ARRAYS_ALONE:
        return reason
    refused = reason_refused(graph, node, counts_bits(graph))
    if refused is None and architecture is Architecture.MONOLITHIC and counts_bits(graph) and isinstance(node.op, MaxPool):
        refused = "one array that counts bits takes no maxima"
    return None if refused is None else f"{device.name}: {node.name} cannot run on reusable engines, {refused}"


def region_of(graph: Graph, device: Device, architecture: Architecture | None = None) -> AcceleratedRegion:
    """The run of nodes between cut points that the FPGA can compute, by engines of the kind, and that multiplies most.

    Raises:
        UnsupportedError: there is no node for the FPGA.
    """
    reasons = [reason_outside(graph, node, device, architecture) for node in graph.nodes]
    able = [reason is None for reason in reasons]
    best = _longest_run(graph, able, np.zeros((len(able), 1)))
    if best.stop <= best.start:
        first = next((f" ({reason})" for reason in reasons if reason is not None), "")
        raise UnsupportedError(f"graph {graph.name}: no run of layers with one tensor in and one out fits the FPGA{first}; "
                               "plan without --architecture")
    return best


def smaller_regions(graph: Graph, device: Device) -> Iterator[AcceleratedRegion]:
    """Runs of nodes for engines of their own that fill less and less of the FPGA, where `region_of` finds one that does not fit.

    Layers count with the engine that fills least at a long pace; faster ones fill more, so each run leaves more than that free.
    """
    names = tuple(sorted(device.resources))
    budget = np.array([usable(device, accelerator=True)[r] for r in names])
    needs, able = np.zeros((len(graph.nodes), len(names))), [reason_outside(graph, n, device, None) is None for n in graph.nodes]
    for index in (i for i, can in enumerate(able) if can):
        shares = shares_of(engines_within(graph, graph.nodes[index], device, names, LONG_PACE).needs, budget)
        able[index] = bool(len(shares))
        needs[index] = shares[shares.sum(axis=1).argmin()] if len(shares) else 0.0
    for part in PARTS_FILLED:
        yield _longest_run(graph, able, needs / part)


def _longest_run(graph: Graph, able: Sequence[bool], shares: Floats) -> AcceleratedRegion:
    """The run of able nodes between cut points whose shares of each resource stay below one, and that multiplies most."""
    cuts, best, most = cut_points(graph), AcceleratedRegion(0, 0), 0
    for start in cuts:
        stop, used = start, np.zeros(shares.shape[1])
        while stop < len(able) and able[stop] and np.all(used + shares[stop] <= 1):
            used, stop = used + shares[stop], stop + 1
        stop = max((c for c in cuts if c <= stop), default=start)
        work = multiplications_of(graph, graph.nodes[start:stop])
        if work > most:
            best, most = AcceleratedRegion(start, stop), work
    return best


def judge(graph: Graph, device: Device, architecture: Architecture, goal: Goal,
          progress: Progress = silent, limits: SearchLimits = UNLIMITED, blocks: Blocks | None = None) -> JudgedAccelerator:
    """The best accelerator of a kind for a whole graph (`region_of` cut out of a network), with its bound.

    `blocks` are arrays of this graph, as far as they were priced before.

    Raises:
        InfeasibleError: none of this kind fits the device.
    """
    if architecture is Architecture.AUTO:
        return best_of(graph, device, CHOICES, goal, progress, limits, blocks)
    return judged(search_of(graph, device, architecture, blocks), architecture, goal, None, limits)


def search_of(graph: Graph, device: Device, architecture: Architecture, blocks: Blocks | None = None,
              like: AcceleratorSearch | None = None) -> AcceleratorSearch:
    """The search over all accelerators of a kind; `blocks` are arrays of this graph that were priced before, if any were.

    `like` is a search for another kind with folds, whose engines are known.
    """
    count = len(graph.nodes)
    cuts = {Architecture.SESL: (count,), Architecture.DHM: (count,), Architecture.SEML: (0,),
            Architecture.MONOLITHIC: (0,)}.get(architecture, cut_points(graph))
    alone = architecture is Architecture.MONOLITHIC
    offered = Blocks(graph, device, True) if alone else blocks or Blocks(graph, device)
    return AcceleratorSearch(graph, device, cuts, offered, folds=architecture is not Architecture.DHM, like=like)


def judged(search: AcceleratorSearch, architecture: Architecture, goal: Goal,
           known: FoundAccelerator | None = None, limits: SearchLimits = UNLIMITED) -> JudgedAccelerator:
    """The best that a search finds, or `known` if that is as good, with its bound; what it priced for one goal it knows for the
    other."""
    found = search.fastest(known, limits) if goal is Goal.THROUGHPUT else search.quickest(known, limits)
    clocks = found.interval if goal is Goal.THROUGHPUT else found.latency
    check_bound(f"the search for {architecture} accelerators", found.bound, clocks)
    return JudgedAccelerator(accelerator_of(search.graph, found, architecture), found, clocks, found.bound)


def best_of(graph: Graph, device: Device, choices: tuple[Architecture, ...], goal: Goal,
            progress: Progress = silent, limits: SearchLimits = UNLIMITED, blocks: Blocks | None = None) -> JudgedAccelerator:
    """The best of several kinds with folds; its bound holds for all of them.

    Every kind is searched below the best of those before it, and at the cuts that none before it had. Of single frames the bounds
    come last: none is raised above what no search can raise. A kind takes half of the time left for them, the last all of it.
    """
    found, searches = dict[Architecture, JudgedAccelerator](), list[AcceleratorSearch]()
    reasons, blocks = dict[Architecture, str](), blocks or Blocks(graph, device)
    sought = replace(limits, enough=0.0, until_s=part_of(limits.until_s, SOUGHT)) if goal is Goal.LATENCY else limits
    done = set[int]()
    for number, kind in enumerate(choices):
        progress(f"choose an accelerator: {kind}", number, len(choices))
        known = min(found.values(), key=lambda j: j.clocks).found if found else None
        searches.append(search_of(graph, device, kind, blocks, searches[-1] if searches else None))
        if kind is not Architecture.MONOLITHIC:
            searches[-1].cuts, new = tuple(c for c in searches[-1].cuts if c not in done), searches[-1].cuts
            done |= set(new)
        try:
            if searches[-1].cuts:
                enough = min((j.bound for j in found.values()), default=inf)
                until_s = halfway(sought.until_s) if goal is Goal.LATENCY and number + 1 < len(choices) else sought.until_s
                limited = replace(sought, enough=min(sought.enough, enough), until_s=until_s)
                found[kind] = judged(searches[-1], kind, goal, known, limited)
        except InfeasibleError as reason:
            reasons[kind] = f"{kind}: {reason}"
    if not found:
        raise InfeasibleError("; ".join(reasons.values()))
    best = min(found.values(), key=lambda j: j.clocks)
    bound = min(j.bound for j in found.values())
    if goal is Goal.LATENCY:
        progress("bound accelerators", 0, 1)
        bound = _frame_bound([s for s in searches if s.floors or s.settled < inf], best.clocks, limits)
    return JudgedAccelerator(best.accelerator, best.found, best.clocks, bound, tuple(reasons))


def _frame_bound(searches: Sequence[AcceleratorSearch], clocks: float, limits: SearchLimits) -> float:
    """What no frame of several searches goes below, the lowest ones raised first."""
    most = min(clocks, limits.ceiling)
    bound = min(most, *(s.settled for s in searches))
    for search in sorted(searches, key=lambda s: min(s.floors.values(), default=inf)):
        bound = min(bound, search.frame_bound(most, replace(limits, enough=min(bound, limits.enough))))
    check_bound("the searches for accelerators", bound, clocks)
    return bound


def accelerator_of(graph: Graph, found: FoundAccelerator, architecture: Architecture) -> AcceleratorDesign:
    """What a search found, as the platform stores it."""
    folds: dict[str, tuple[int, ...] | None] = {}
    for node in graph.nodes[:found.cut]:
        fold = found.folds.get(node.name)
        folds[node.name] = None if fold is None else fold.sizes
    reusable = tuple(n.name for n in graph.nodes[found.cut:])
    arrays = arrays_of(found.block.configuration) if found.block else {}
    return AcceleratorDesign(architecture, folds, reusable, arrays, max(1, int(found.pace)), found.fused)


def pinned(graph: Graph, region: AcceleratedRegion, device: str) -> dict[str, Split]:
    """The region's nodes, each whole on the FPGA."""
    return {node.name: whole_on(device) for node in graph.nodes[region.start:region.stop]}
