"""A planning problem as a geometric program of shares.

A node takes as long as the last of its devices (concurrent) or all of them (sequential); a device fetches what its node's
producer left elsewhere, which is a posynomial of the producer's shares. A streaming device keeps nothing: where its
producer's share is its own the data flow on, and only what other devices made is fetched and paced by its arrival. Limits on
area, latency and energy are constraints. For throughput one peak holds what every processor, link and engine is busy with.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.ir import Axis
from dovetail.partition.geometric.posynomials import Divisible, GeometricProgram, Monomial, Posynomial, of_share, smallest_share
from dovetail.partition.interval.busy import worker
from dovetail.partition.plan import Goal, Mode
from dovetail.partition.problem import Problem, piece_regions, price_pieces

FIXED_POWER = 0.25
"""Power of a producer's share that stands for whether anything has to be fetched from there at all. Chosen, not measured."""

Weights = tuple[float, float]
"""Worth of a second and of a joule in the objective."""


@dataclass(frozen=True, slots=True)
class Model:
    """A geometric program, which variable is which node's share on which device, limits and caps in the program's order."""

    program: GeometricProgram
    variables: Mapping[tuple[str, str], int]
    limits: tuple[tuple[str, ...], ...]
    caps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Fetch:
    """Bringing a node's input to a device: seconds and joules, the seconds of each lane, and what part comes from elsewhere."""

    seconds: Posynomial
    joules: Posynomial
    lanes: Mapping[str, Posynomial]
    foreign: Posynomial


def model_of(problem: Problem, parts: Sequence[Divisible], taking: Mapping[str, tuple[str, ...]], weights: Weights,
             tightened: float = 1.0) -> Model:
    """The program of some nodes over the devices each may take; caps on latency and energy are multiplied by `tightened`."""
    found = _Sums(problem, parts, taking)
    for part in parts:
        found.add(part, taking[part.node.name])
    seconds_worth = weights[0] + weights[1] * problem.idle_power_w
    kept = {key: sum(p, ()) for key, p in found.used.items() if any(p)}
    floor = smallest_share(tuple(kept.values()), len(found.variables))
    lowest = np.full(len(found.variables), floor)
    groups = tuple(tuple(found.variables[p.node.name, d] for d in taking[p.node.name]) for p in parts)
    names, caps = _caps(problem, found, tightened)
    if problem.goal is Goal.THROUGHPUT and problem.mode is Mode.CONCURRENT:
        busy = tuple(sum(p, ()) for p in found.busy.values())
        return Model(GeometricProgram(lowest, groups, (), tuple(kept.values()), (busy,)), found.variables, tuple(kept), ())
    objective = _times(sum(found.added_s, ()), seconds_worth) + _times(sum(found.joules, ()), weights[1])
    return Model(GeometricProgram(lowest, groups, objective, tuple(kept.values()), tuple(found.peaks), seconds_worth, caps),
                 found.variables, tuple(kept), names)


def _caps(problem: Problem, found: _Sums, tightened: float) -> tuple[tuple[str, ...], tuple[tuple[Posynomial, float], ...]]:
    """Limits on latency and energy; what is not divided counts with the least it can take."""
    rest_s, rest_j = _undivided(problem, {name for name, _ in found.variables})
    caps: dict[str, tuple[Posynomial, float]] = {}
    if problem.max_latency_s is not None:
        limit = problem.max_latency_s * tightened
        caps["latency"] = (_times((*sum(found.added_s, ()), Monomial(rest_s)), 1 / limit), 1 / limit)
    if problem.max_energy_j is not None:
        limit = problem.max_energy_j * tightened
        spent = (*_times(sum(found.added_s, ()), problem.idle_power_w), *sum(found.joules, ()), Monomial(rest_j))
        caps["energy"] = (_times(spent, 1 / limit), problem.idle_power_w / limit)
    return tuple(caps), tuple(caps.values())


def _undivided(problem: Problem, divided: set[str]) -> tuple[float, float]:
    """Seconds and joules of all other nodes, each whole where it is fastest or thriftiest."""
    seconds = joules = 0.0
    for node in problem.graph.nodes:
        found = [known[0, 1] for d in problem.devices if node.name not in divided
                 and (known := price_pieces(problem, node, None, d, [(0, 1)]))]
        if found:
            seconds += min(c.fused_s for c in found)
            joules += min(c.energy_j + problem.idle_power_w * c.fused_s for c in found)
    return seconds, joules


class _Sums:
    """The program's parts as nodes are added."""

    def __init__(self, problem: Problem, parts: Sequence[Divisible], taking: Mapping[str, tuple[str, ...]]) -> None:
        self.problem = problem
        self.variables = {key: i for i, key in enumerate((p.node.name, d) for p in parts for d in taking[p.node.name])}
        self.divided = {p.node.name: p for p in parts}
        self.budgets = {(d, r): limit for d, r, limit in problem.budgets}
        self.added_s: list[Posynomial] = []
        self.joules: list[Posynomial] = []
        self.peaks: list[tuple[Posynomial, ...]] = []
        self.used: dict[tuple[str, ...], list[Posynomial]] = {}
        self.busy: dict[str, list[Posynomial]] = {}

    def add(self, part: Divisible, devices: Sequence[str]) -> None:
        times: list[Posynomial] = []
        for device in devices:
            variable, fitted = self.variables[part.node.name, device], part.fits[device]
            fetch = self._fetched(part, device)
            alone = of_share(fitted.seconds, variable)
            if self.problem.streams(device):
                paced = _product(alone, fetch.foreign)
                times += [fetch.seconds + of_share(fitted.streamed, variable), paced] \
                    if self.problem.mode is Mode.CONCURRENT else [fetch.seconds + paced]
            else:
                times.append(alone + fetch.seconds)
            self.joules += [of_share(fitted.joules, variable), fetch.joules]
            for name, seconds in {**fetch.lanes, worker(self.problem, device, part.node.name): of_share(
                    fitted.seconds, variable)}.items():
                self.busy.setdefault(name, []).append(seconds)
            for resource, terms in fitted.resources.items():
                key = (device, resource) if self.problem.shared_budget else (device, resource, part.node.name)
                self.used.setdefault(key, []).append(of_share(terms, variable, 1 / self.budgets[device, resource]))
        if self.problem.mode is Mode.CONCURRENT:
            self.peaks.append(tuple(t for t in times if t))
        else:
            self.added_s += times

    def _fetched(self, part: Divisible, device: str) -> _Fetch:
        problem, tensor = self.problem, part.node.inputs[0]
        size = float(problem.graph.tensors[tensor].transfer_bytes)
        leader = leader_of(problem, self.divided, tensor)
        sources = [(d, v) for (name, d), v in self.variables.items() if name == leader] if leader is not None \
            else [(problem.platform.host, None)]
        seconds, joules, foreign = list[Monomial](), list[Monomial](), list[Monomial]()
        lanes: dict[str, Posynomial] = {}
        needed, own = self._needed(part, leader), self.variables[part.node.name, device]
        for source, variable in sources:
            if source == device:
                continue
            (first_s, whole_s), (_, whole_j) = problem.transfer(source, device, np.array([1.0, size]))
            there: tuple[tuple[int, float], ...] = () if variable is None else ((variable, 1.0),)
            plain = there if needed is None else (*there, (own, 1.0)) if needed == 1 else ()
            scale = 1.0 if needed is None else needed
            fixed: tuple[tuple[int, float], ...] = () if variable is None else ((variable, FIXED_POWER),)
            moved = tuple(m for m in (Monomial(float(whole_s - first_s) * scale, plain),
                                      Monomial(float(first_s) * (scale > 0), fixed)) if m.coefficient > 0)
            seconds += moved
            joules += [Monomial(float(whole_j) * scale, plain)] if whole_j * scale > 0 else []
            foreign.append(Monomial(1.0, there))
            for lane in problem.lanes(source, device):
                lanes[lane] = lanes.get(lane, ()) + moved
        return _Fetch(tuple(seconds), tuple(joules), {n: p for n, p in lanes.items() if p}, tuple(foreign))

    def _needed(self, part: Divisible, leader: str | None) -> float | None:
        """How much of what its producer left elsewhere a share reads: None for all of it, 1 for its own share of it.

        Where both are divided alike, only what lies across the edges between shares: a part of the tensor, per edge.
        """
        if part.axis not in (Axis.ROWS, Axis.GROUPS):
            return None
        made = None if leader is None else self.divided[leader].axis
        if part.axis is Axis.GROUPS:
            return 0.0 if made in (Axis.GROUPS, Axis.OUTPUT_CHANNELS) else 1.0
        if made is not Axis.ROWS or part.extent < 4:
            return 1.0
        (reads, *_), _ = piece_regions(self.problem, part.node, Axis.ROWS, part.extent // 4, part.extent // 2)
        rows = self.problem.graph.shape(part.node.inputs[0])[2]
        across = (reads[2][1] - reads[2][0]) / rows - (part.extent // 2 - part.extent // 4) / part.extent
        return max(0.0, across) if across > 1e-9 else 0.0


def leader_of(problem: Problem, divided: Container[str], tensor: str) -> str | None:
    """The divided node whose shares say where a tensor lies, through nodes that are not divided; None for the host."""
    producer = problem.graph.producer(tensor)
    while producer is not None and producer.name not in divided:
        producer = problem.graph.producer(producer.inputs[0])
    return producer.name if producer is not None else None


def _times(posynomial: Posynomial, factor: float) -> Posynomial:
    return tuple(m.times(factor) for m in posynomial if m.coefficient * factor > 0)


def _product(a: Posynomial, b: Posynomial) -> Posynomial:
    return tuple(x.times(y.coefficient, *y.powers) for x in a for y in b)
