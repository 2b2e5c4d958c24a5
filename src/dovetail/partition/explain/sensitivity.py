"""What a plan would cost with other speeds of its devices and links: its error intervals, and what limits it.

The errors of one device's model are taken to be the same for all its layers: they add up linearly. Those of different models
are taken to be independent: they add up as the root of the sum of squares. A plan is evaluated again with every price of one
model at an end of its 90 % interval, which tells how far that model alone moves each figure. Energy takes the relative error
of its time, as it is power x time and models of power state no error of their own. Links are taken as the board states them.
Where two devices end together, one of them faster alone gains nothing: low ends are then nearer than both together would reach.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import hypot

import numpy as np

from dovetail.cost.estimate import ShareCosts
from dovetail.hardware.shares import Ints
from dovetail.ir import Axis, Graph, Node
from dovetail.partition.boards.relaxation import nature
from dovetail.partition.cost_model import Rates
from dovetail.partition.evaluate import Evaluation, evaluate, reevaluate
from dovetail.partition.interval.busy import REUSED
from dovetail.partition.plan import Assignment, Goal, LimitedBy, NodeCost, Piece, Split, whole_on
from dovetail.partition.problem import PieceCost, Problem, price, price_reduce
from dovetail.partition.tables.columns import fits, options
from dovetail.platform.device import Device, Platform

STEP = 0.25
"""How much faster, or how much more of a resource, one step up is. Chosen: about a speed grade, or the next part of a family."""
LARGE = 0.25
"""Part of the whole from which on a single layer is said to limit a plan; below it, its device does. Chosen, not measured."""


@dataclass(frozen=True)
class _Scaled:
    """The prices of a question with the times of some devices, or of one link, multiplied; energy follows the time."""

    problem: Problem
    factor: Callable[[str, PieceCost], float]
    link: str = ""

    def costs_of(self, graph: Graph, node: Node, axis: Axis | None, starts: Ints, stops: Ints, device: Device) -> ShareCosts:
        return self._shares(device, [price(self.problem, node, axis, Piece(device.name, start, stop))
                                     for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)])

    def by_shape(self, device: Device) -> bool:
        return self.problem.costs.by_shape(device)

    def why_not(self, graph: Graph, node: Node, device: Device) -> str | None:
        return self.problem.costs.why_not(graph, node, device)

    def reduce_costs(self, graph: Graph, node: Node, parts: int, device: Device) -> ShareCosts | None:
        found = price_reduce(self.problem, node, parts, device.name)
        return None if found is None else self._shares(device, [found])

    def rates(self, platform: Platform, source: str, target: str) -> Rates:
        start_s, per_byte_s, joules = self.problem.costs.rates(platform, source, target)
        faster = 1 + STEP if any(link.name == self.link for link in platform.route(source, target)) else 1.0
        return start_s / faster, per_byte_s / faster, joules

    def _shares(self, device: Device, prices: list[PieceCost]) -> ShareCosts:
        factors = np.array([self.factor(device.name, p) for p in prices])
        alone, fused, low, high, energy = (factors * np.array(column) for column in zip(
            *((p.alone_s, p.fused_s, p.low_s, p.high_s, p.energy_j) for p in prices), strict=True))
        resources = {r: np.array([dict(p.resources)[r] for p in prices]) for r, _ in prices[0].resources}
        return ShareCosts(alone, fused, low, high, energy, resources, np.array([p.extrapolated for p in prices]),
                          prices[0].source)


def _again(problem: Problem, assignment: Assignment, factor: Callable[[str, PieceCost], float], link: str = "") -> Evaluation:
    return evaluate(replace(problem, costs=_Scaled(problem, factor, link)), assignment)


def intervals(problem: Problem, assignment: Assignment, judged: Evaluation) -> dict[str, tuple[float, float]]:
    """The 90 % intervals of a plan's `latency_s`, `energy_j`, `interval_s` and `objective`."""
    models = {d.name: nature(d) for d in problem.platform.devices}
    used = dict.fromkeys(models[d] for split in assignment.values() for d in (*split.devices, split.reducer) if d is not None)

    def at_end(model: object, end: str) -> Evaluation:
        return _again(problem, assignment, lambda device, found: getattr(found, end) / found.alone_s
                      if models[device] == model and found.alone_s > 0 else 1.0)

    ends = [(at_end(model, "low_s"), at_end(model, "high_s")) for model in used]
    found = {}
    for name in ("objective", "latency_s", "energy_j", "interval_s"):
        own = getattr(judged, name)
        less, more = (hypot(*(getattr(e, name) - own for e in side)) for side in zip(*ends, strict=True))
        found[name] = (max(0.0, own - less), own + more)
    return found


def limited_by(problem: Problem, assignment: Assignment, judged: Evaluation) -> LimitedBy:
    """What limits a plan most: its largest part, the busiest of a pipeline, or a full budget if more of that buys more."""
    paced = problem.goal is Goal.THROUGHPUT and judged.overlapping
    found = _busiest(problem, judged) if paced else _largest_part(problem, assignment, judged)
    budget = _fullest_budget(problem, assignment, judged)
    return found if budget is None else min(found, budget, key=lambda limit: limit.objective_then)


def _fullest_budget(problem: Problem, assignment: Assignment, judged: Evaluation) -> LimitedBy | None:
    """The fullest budget and what more of it buys by moving one node onto its device, whole; of the longest one divided there,
    any candidate split. Other plans may gain more.
    """
    filled = [(judged.resources[d][r] / limit, d, r, limit) for d, r, limit in problem.budgets if limit > 0]
    full, device, resource, limit = max(filled, default=(0.0, "", "", 0.0))
    if full * (1 + STEP) < 1 or not problem.shared_budget:
        return None
    free = [n for n in problem.graph.nodes if n.name not in problem.fixed and assignment[n.name].devices != (device,)]
    costs = {c.node: c for c in judged.nodes}
    divided = max((n for n in free if device in assignment[n.name].devices), key=lambda n: costs[n.name].latency_s, default=None)
    moves = [(n, whole_on(device)) for n in free if fits(problem, n, whole_on(device))]
    moves += [(divided, s) for s in options(problem, divided).splits if device in s.devices] if divided is not None else []
    best, moved = judged.objective, ""
    for node, split in moves:
        then = reevaluate(problem, assignment, judged, node.name, split)
        if then.objective < best and len(then.violations) == 1 and limit < then.resources[device][resource] <= limit * (1 + STEP):
            best, moved = then.objective, node.name
    return None if not moved else LimitedBy(
        "resource", f"{device} {resource}", full, best,
        f"{100 * STEP:g} % more {device} {resource} would save at least {_saved(problem, judged, best)}, by moving {moved} alone")


def _saved(problem: Problem, judged: Evaluation, then: float) -> str:
    of = {Goal.THROUGHPUT: "interval between frames", Goal.EDP: "energy-delay product"}.get(problem.goal, problem.goal)
    part = 100 * (1 - then / judged.objective) if judged.objective > 0 else 0.0
    return f"{max(0.0, part):.3g} % of the {of}"


def _busiest(problem: Problem, judged: Evaluation) -> LimitedBy:
    """What sets the pace of pipelined frames; faster, it does so only until the next busiest does."""
    (name, own), *others = sorted(judged.busy_s.items(), key=lambda entry: (-entry[1], entry[0]))
    after, least = others[0] if others else ("", 0.0)
    then = max(own / (1 + STEP), least)
    device, _, layer = name.partition(" engine ")
    kind = "layer" if layer and layer != REUSED else "link" if ":" in device else "device"
    more = f", then {after} sets the pace" if least > own / (1 + STEP) else ""
    return LimitedBy(kind, layer if kind == "layer" else device, 1.0, then,
                     f"{100 * STEP:g} % faster, it would save {_saved(problem, judged, then)}{more}")


def _largest_part(problem: Problem, assignment: Assignment, judged: Evaluation) -> LimitedBy:
    """The largest layer or link, or, where no layer is large, the device that most is spent on."""
    energy = problem.goal is Goal.ENERGY
    layers = {("layer", c.node): c.energy_j if energy else c.compute_s for c in judged.nodes}
    owner = {c.node: _owner(assignment[c.node], c) for c in judged.nodes}
    devices = {("device", d): sum(layers["layer", node] for node, at in owner.items() if at == d)
               for d in dict.fromkeys(owner.values())}
    links = {} if energy else _links(problem, judged)
    whole = judged.energy_j if energy else judged.latency_s
    parts = {**layers, **links}
    if max(parts.values()) < LARGE * whole:
        parts = {**devices, **links}
    (kind, name), amount = max(parts.items(), key=lambda entry: entry[1])
    place = owner[name] if kind == "layer" else name
    then = _again(problem, assignment, lambda device, _: 1 / (1 + STEP) if kind != "link" and device == place else 1.0,
                  name if kind == "link" else "").objective
    return LimitedBy(kind, name, amount / whole if whole > 0 else 0.0, then,
                     f"a {100 * STEP:g} % faster {place} would save {_saved(problem, judged, then)}, this plan kept")


def _owner(split: Split, cost: NodeCost) -> str:
    """The device that is busy with a node for longest."""
    return max(split.devices, key=lambda d: sum(s for name, s in cost.busy_s.items() if name.partition(" engine ")[0] == d))


def _links(problem: Problem, judged: Evaluation) -> dict[tuple[str, str], float]:
    """Seconds that every link adds to the latency; what a node waits for is charged to the link it keeps busy for longest."""
    found: dict[tuple[str, str], float] = {}
    names = {link.name for link in problem.platform.links}
    home = {lane: s for busy in judged.home_busy_s for lane, s in busy.items()}
    for waits_s, busy in (*((c.transfer_s, c.busy_s) for c in judged.nodes), (judged.delivery_s, home)):
        lanes = {lane: s for lane, s in busy.items() if " engine " not in lane and lane.partition(":")[0] in names}
        if lanes:
            key = ("link", max(lanes, key=lambda lane: lanes[lane]).partition(":")[0])
            found[key] = found.get(key, 0.0) + waits_s
    return found
