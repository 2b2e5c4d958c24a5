"""From shares to plans: whole units, within the budgets, the other nodes placed around them, judged by the evaluator."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.ir import Axis, Node
from dovetail.partition.baselines import beam
from dovetail.partition.candidates import divide
from dovetail.partition.evaluate import Evaluation, evaluate, reevaluate
from dovetail.partition.gp_posynomials import Divisible
from dovetail.partition.plan import Assignment, Piece, Split, whole_on
from dovetail.partition.problem import TOLERANCE, Problem, price, price_pieces

CRUMB = 0.02
"""Shares below this are given to the other devices: they cost a launch and a transfer each and save next to nothing."""
WIDTH = 4
"""Beginnings kept while the nodes between divided ones are placed."""
SHIFT = 1 / 16
"""Part of an axis that a repair moves from one device to another at a time."""
PASSES = 4
"""Rounds over all nodes in which single moves are tried."""

Shares = Mapping[str, Mapping[str, float]]
"""Node to device to share."""


def whole_units(extent: int, shares: Sequence[float]) -> tuple[int, ...]:
    """Shares as whole units that sum to the extent, by largest remainder."""
    parts = np.array(shares) / sum(shares) * extent
    units = np.floor(parts + 1e-9).astype(int)
    for i in np.argsort(units - parts, kind="stable")[:extent - int(units.sum())]:
        units[i] += 1
    return tuple(units.tolist())


def split_of(part: Divisible, shares: Mapping[str, float]) -> Split:
    """A node's shares as a split of whole units, without crumbs."""
    largest = max(shares.values())
    kept = {d: s for d, s in shares.items() if s >= CRUMB or s == largest}
    return _from_units(part, dict(zip(kept, whole_units(part.extent, list(kept.values())), strict=True)))


def _from_units(part: Divisible, units: Mapping[str, int]) -> Split:
    present = {d: units[d] for d in part.fits if units.get(d, 0) > 0}
    if len(present) == 1:
        return whole_on(next(iter(present)))
    cuts = np.cumsum(list(present.values()))[:-1].tolist()
    return divide(part.axis, cuts, part.extent, tuple(present))


def _units(part: Divisible, split: Split) -> dict[str, int]:
    if split.axis is None:
        return {split.devices[0]: part.extent}
    return {p.device: p.stop - p.start for p in split.pieces}


def fit_budgets(problem: Problem, parts: Sequence[Divisible], splits: Mapping[str, Split]) -> dict[str, Split]:
    """Take units from devices whose budgets the divided nodes exceed, where most is taken, until they fit."""
    found = dict(splits)
    groups = [list(parts)] if problem.shared_budget else [[p] for p in parts]
    for group in groups:
        for device, resource, limit in problem.budgets:
            use = {p.node.name: _used(problem, p, found[p.node.name], device, resource) for p in group}
            while sum(use.values()) > limit * (1 + TOLERANCE):
                worst = max(group, key=lambda p: use[p.node.name])
                found[worst.node.name] = _less(worst, found[worst.node.name], device)
                use[worst.node.name] = _used(problem, worst, found[worst.node.name], device, resource)
    return found


def _used(problem: Problem, part: Divisible, split: Split, device: str, resource: str) -> float:
    pieces = [p for p in split.pieces if p.device == device]
    return sum(dict(price(problem, part.node, split.axis, p).resources).get(resource, 0.0) for p in pieces)


def _less(part: Divisible, split: Split, device: str) -> Split:
    """A tenth fewer units on a device, at least one; they go to the device with the most others."""
    units = _units(part, split)
    taken = max(1, units[device] // 10)
    others = {d: n for d, n in units.items() if d != device}
    target = max(others, key=others.__getitem__) if others else next(d for d in part.fits if d != device)
    return _from_units(part, {**units, device: units[device] - taken, target: others.get(target, 0) + taken})


def complete(problem: Problem, parts: Sequence[Divisible], splits: Mapping[str, Split]) -> Assignment | None:
    """All other nodes placed around the divided ones: whole where there is no budget, or as their producer is divided."""
    own = {p.node.name: splits[p.node.name] for p in parts}

    def columns(node: Node) -> list[Split]:
        if node.name in own or node.name in problem.fixed:
            return [own.get(node.name) or problem.fixed[node.name]]
        able = [d for d in problem.devices if price_pieces(problem, node, None, d, [(0, 1)])]
        free = [whole_on(d) for d in able if not problem.platform.device(d).resources] or [whole_on(d) for d in able]
        producer = problem.graph.producer(node.inputs[0])
        leader = own.get(producer.name) if producer is not None else None
        if leader is None:
            return free
        along = _along(problem, node, leader, able)
        return [*free, *([along] if along is not None else [])]

    return beam(problem, columns, WIDTH)


def _along(problem: Problem, node: Node, leader: Split, able: Sequence[str]) -> Split | None:
    """The split that leaves a node's pieces where those of its producer are."""
    shapes = problem.graph.input_shapes(node)
    if not set(leader.devices) <= set(able):
        return None
    if leader.axis is None:
        return leader
    same = Axis.GROUPS in node.op.axes(shapes) and node.op.extent(Axis.GROUPS, shapes) == leader.pieces[-1].stop
    return Split(Axis.GROUPS, tuple(Piece(p.device, p.start, p.stop) for p in leader.pieces)) if same else None


def polish(problem: Problem, parts: Sequence[Divisible], assignment: Assignment,
           deadline: float) -> tuple[Assignment, Evaluation]:
    """Move single nodes, or a sixteenth of one, as long as that helps; what a program without steps cannot see."""
    best, judged = dict(assignment), evaluate(problem, assignment)
    by_name = {p.node.name: p for p in parts}
    for _ in range(PASSES):
        before = judged.objective
        for node in problem.graph.nodes:
            if node.name in problem.fixed or time.thread_time() > deadline:
                continue
            for move in _moves(problem, node, by_name.get(node.name), best[node.name]):
                try:
                    trial = reevaluate(problem, best, judged, node.name, move)
                except UnsupportedError:
                    continue
                if trial.feasible and (not judged.feasible or trial.objective < judged.objective * (1 - TOLERANCE)):
                    best[node.name], judged = move, trial
        if judged.objective >= before * (1 - 1e-4) or time.thread_time() > deadline:
            break
    return best, judged


def _moves(problem: Problem, node: Node, part: Divisible | None, split: Split) -> list[Split]:
    able = [d for d in problem.devices if price_pieces(problem, node, None, d, [(0, 1)])]
    found = [whole_on(d) for d in able]
    producer = problem.graph.producer(node.inputs[0])
    if split.axis is not None and (part is None or split.axis is not part.axis):
        found += _shifted(split)
    elif part is not None:
        units, step = _units(part, split), max(1, round(part.extent * SHIFT))
        found += [_from_units(part, {**units, a: units[a] - n, b: units.get(b, 0) + n})
                  for a in units for b in part.fits if a != b for n in {min(step, units[a]), min(4 * step, units[a])}]
    elif producer is not None and Axis.GROUPS in node.op.axes(problem.graph.input_shapes(node)):
        extent = node.op.extent(Axis.GROUPS, problem.graph.input_shapes(node))
        found += [divide(Axis.GROUPS, (extent * i // 4,), extent, (a, b))
                  for a in able for b in able if problem.devices.index(a) < problem.devices.index(b)
                  for i in (1, 2, 3) if 0 < extent * i // 4 < extent]
    return [s for s in found if s != split]


def _shifted(split: Split) -> list[Split]:
    """Every cut of a split moved by a sixteenth of its axis either way, where all pieces keep something."""
    assert split.axis is not None, "a whole node has no cuts"
    extent, cuts = split.pieces[-1].stop, [p.stop for p in split.pieces[:-1]]
    step, found = max(1, round(extent * SHIFT)), []
    for i, cut in enumerate(cuts):
        below, above = (0, *cuts)[i], (*cuts, extent)[i + 1]
        found += [divide(split.axis, (*cuts[:i], cut + move, *cuts[i + 1:]), extent, split.devices, split.reducer)
                  for move in (-step, step) if below < cut + move < above]
    return found
