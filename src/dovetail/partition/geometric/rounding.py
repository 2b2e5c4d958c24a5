"""From shares to plans: whole units, within the budgets, the other nodes placed around them, judged by the evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise, product

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.ir import Axis, Node
from dovetail.partition.candidates import divide
from dovetail.partition.effort import spend, worked
from dovetail.partition.evaluate import Evaluation, evaluate, reevaluate
from dovetail.partition.explain.baselines import beam
from dovetail.partition.geometric.posynomials import Divisible
from dovetail.partition.plan import Assignment, Goal, Split, whole_on
from dovetail.partition.problem import Problem, price, price_pieces
from dovetail.partition.tolerances import CLOSE, TOLERANCE

CRUMB = 0.02
"""Shares below this are given to the other devices:

they cost a launch and a transfer each and save next to nothing. Chosen, not measured.
"""
WIDTH = 4
"""Beginnings kept while the nodes between divided ones are placed. Chosen, not measured."""
SHIFT = 1 / 16
"""Part of an axis that a repair moves from one device to another at a time. Chosen, not measured."""
PASSES = 4
"""Rounds over all nodes in which changes are tried. Chosen, not measured."""
NUDGE = 1e-2
"""What all busy times together count beside the interval between frames. Chosen, not measured."""
HOPELESS = 0.15
"""How much worse than before a run may make a plan on its way to a better one. Chosen, not measured."""
LONGEST_RUN = 16
"""Neighbours that are moved together at most. Chosen, not measured."""

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
    adder = max(part.adders, key=lambda d: present.get(d, 0)) if part.adders else None
    return divide(part.axis, cuts, part.extent, tuple(present), adder)


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
    last: dict[str, Split] = {}

    def columns(node: Node) -> list[Split]:
        if node.name in own or node.name in problem.fixed:
            last[node.name] = own.get(node.name) or problem.fixed[node.name]
            return [last[node.name]]
        able = [d for d in problem.devices if price_pieces(problem, node, None, d, [(0, 1)])]
        free = [whole_on(d) for d in able if not problem.platform.device(d).resources] or [whole_on(d) for d in able]
        producer = problem.graph.producer(node.inputs[0])
        along = alongside(problem, node, last[producer.name], able) if producer is not None and producer.name in last else None
        if along is not None:
            last[node.name] = along
        return [*free, *([along] if along is not None and along not in free else [])]

    return beam(problem, columns, WIDTH)


def alongside(problem: Problem, node: Node, leader: Split, able: Sequence[str]) -> Split | None:
    """The split that leaves a node's pieces where those of its producer are, as far as whole units allow."""
    shapes = problem.graph.input_shapes(node)
    if not set(leader.devices) <= set(able):
        return None
    if leader.axis is None:
        return leader
    wanted = Axis.ROWS if leader.axis is Axis.ROWS else Axis.GROUPS
    if leader.reducer is not None or wanted not in node.op.axes(shapes):
        return None
    extent, whole = node.op.extent(wanted, shapes), leader.pieces[-1].stop
    cuts = [round(p.stop * extent / whole) for p in leader.pieces[:-1]]
    edges = [0, *cuts, extent]
    return divide(wanted, cuts, extent, leader.devices) if all(a < b for a, b in pairwise(edges)) else None


def shortfall(problem: Problem, judged: Evaluation) -> float:
    """By how much a plan exceeds its limits, as fractions of them added up; zero for a legal one."""
    over = [judged.resources[d][r] / limit - 1 if limit > 0 else judged.resources[d][r] for d, r, limit in problem.budgets]
    over += [value / limit - 1 for value, limit in ((judged.latency_s, problem.max_latency_s),
                                                    (judged.energy_j, problem.max_energy_j),
                                                    (judged.interval_s, problem.max_interval_s)) if limit is not None]
    return 0.0 if judged.feasible else sum(max(0.0, x) for x in over)


class Polish:
    """Changes to a rounded plan, tried one after another with the evaluator: what a program without steps cannot see."""

    def __init__(self, problem: Problem, parts: Sequence[Divisible], assignment: Assignment, deadline: float) -> None:
        self.problem, self.deadline = problem, deadline
        self.parts: dict[str, list[Divisible]] = {}
        for part in parts:
            self.parts.setdefault(part.node.name, []).append(part)
        self.best, self.judged = dict(assignment), evaluate(problem, assignment)
        self.able = {n.name: [d for d in problem.devices if price_pieces(problem, n, None, d, [(0, 1)])]
                     for n in problem.graph.nodes}

    @property
    def rank(self) -> tuple[float, float]:
        return self._ranked(self.judged)

    def _ranked(self, judged: Evaluation) -> tuple[float, float]:
        """What a plan misses, then what it costs; an interval counts what all is busy with too, or few changes would show."""
        busy = NUDGE * sum(judged.busy_s.values()) if self.problem.goal is Goal.THROUGHPUT else 0.0
        return shortfall(self.problem, judged), judged.objective + busy

    def run(self) -> None:
        """Single nodes and runs of neighbours, as long as that helps."""
        for _ in range(PASSES):
            before = self.rank
            self._singles()
            self._arms()
            self._runs()
            short, value = self.rank
            if (short, value) >= (before[0], before[1] * (1 - CLOSE)) or worked() > self.deadline:
                break

    def _better(self, found: Evaluation) -> bool:
        short, value = self.rank
        return self._ranked(found) < (short, value * (1 - TOLERANCE))

    def _singles(self) -> None:
        for node in self.problem.graph.nodes:
            if node.name in self.problem.fixed or worked() > self.deadline:
                continue
            for move in _moves(self.problem, node, self.parts.get(node.name, []), self.best[node.name], self.able[node.name]):
                trial = self._tried(self.best, self.judged, node, move)
                if trial is not None and self._better(trial):
                    self.best[node.name], self.judged = move, trial

    def _arms(self) -> None:
        """One arm of a block on one device and all others on another, so that they run at once."""
        for block in self.problem.blocks:
            able = [d for d in self.problem.devices if all(d in self.able[n.name] for n in block.nodes)]
            for first, a, b in product(block.arms, able, able):
                if a != b and worked() < self.deadline:
                    self._placed({n: whole_on(a if n in first else b) for n in block.nodes})

    def _placed(self, places: Mapping[Node, Split]) -> None:
        """Several nodes moved at once, kept if that is better."""
        chosen, judged = dict(self.best), self.judged
        for node, split in places.items():
            found = None if node.name in self.problem.fixed else self._tried(chosen, judged, node, split)
            if found is None:
                return
            chosen[node.name], judged = split, found
        if self._better(judged):
            self.best, self.judged = chosen, judged

    def _runs(self) -> None:
        """Neighbours in the order of the graph moved together: to one device, or divided as their first one is."""
        nodes = self.problem.graph.nodes
        for i, first in enumerate(nodes):
            leaders = [whole_on(d) for d in self.able[first.name]]
            leaders += [self.best[first.name]] if self.best[first.name].axis is not None else []
            for leader in leaders:
                if first.name not in self.problem.fixed and worked() < self.deadline:
                    self._run(nodes[i:i + LONGEST_RUN], leader)

    def _run(self, nodes: Sequence[Node], leader: Split) -> None:
        chosen, judged, best = dict(self.best), self.judged, None
        split: Split | None = leader
        for node in nodes:
            if node.name in self.problem.fixed:
                break
            split = alongside(self.problem, node, split, self.able[node.name]) if node is not nodes[0] and split else split
            found = None if split is None else judged if split == chosen[node.name] else self._tried(chosen, judged, node, split)
            if split is None or found is None:
                break
            chosen[node.name], judged = split, found
            if found.objective > self.judged.objective * (1 + HOPELESS):
                break
            if self._better(found):
                best, self.judged = dict(chosen), found
        self.best = best if best is not None else self.best

    def _tried(self, chosen: Assignment, judged: Evaluation, node: Node, split: Split) -> Evaluation | None:
        spend("tries", 1)
        try:
            return reevaluate(self.problem, chosen, judged, node.name, split)
        except UnsupportedError:
            return None


def _moves(problem: Problem, node: Node, parts: Sequence[Divisible], split: Split, able: Sequence[str]) -> list[Split]:
    """Other ways to run one node: whole, as its neighbours are divided, or with a little more here and less there."""
    found = [whole_on(d) for d in able]
    if split.axis is not None:
        found += _shifted(split)
    for part in (p for p in parts if split.axis in (None, p.axis)):
        units, step = _units(part, split), max(1, round(part.extent * SHIFT))
        found += [_from_units(part, {**units, a: units[a] - n, b: units.get(b, 0) + n})
                  for a in units for b in part.fits if a != b for n in {min(step, units[a]), min(4 * step, units[a])}]
    shapes = problem.graph.input_shapes(node)
    for axis in (a for a in (Axis.ROWS, Axis.GROUPS) if a in node.op.axes(shapes) and split.axis is None):
        extent = node.op.extent(axis, shapes)
        found += [divide(axis, (cut,), extent, (a, b)) for a, b in combinations([d for d in problem.devices if d in able], 2)
                  for cut in {extent * i // 8 for i in (1, 2, 4, 6, 7)} if 0 < cut < extent]
    return [s for s in dict.fromkeys(found) if s != split]


def _shifted(split: Split) -> list[Split]:
    """Every cut of a split moved by one unit or a sixteenth of its axis either way, where all pieces keep something."""
    assert split.axis is not None, "a whole node has no cuts"
    extent, cuts = split.pieces[-1].stop, [p.stop for p in split.pieces[:-1]]
    step, found = max(1, round(extent * SHIFT)), []
    for i, cut in enumerate(cuts):
        below, above = (0, *cuts)[i], (*cuts, extent)[i + 1]
        found += [divide(split.axis, (*cuts[:i], cut + move, *cuts[i + 1:]), extent, split.devices, split.reducer)
                  for move in {-step, -1, 1, step} if below < cut + move < above]
    return found
