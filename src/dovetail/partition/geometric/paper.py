"""The penalty and tightening method of GP partitioning 2023 (Carballo-Hernández et al.), literally.

Channels of every layer are shared by devices whose costs add up (Eq. 7, 10). That the shares of a layer sum to all of its
channels is no legal constraint of a geometric program, so it is relaxed to "at most", and alpha / hbar is added to the
objective, where hbar is the sum condensed to a monomial at a fixed balanced centre (Eq. 5, 6). The weights alpha grow step
by step until the sums are met. Transfers are weighted by S(x) = x ** (2 kappa) (Eq. 11, 13), which is meant to make them
free where a part of a layer stays, and makes nearly all of them so.

Where the text contradicts itself the reading that works is taken: the penalty is alpha / hbar, not alpha x hbar; there is
one hbar per layer; the sum over devices holds for every layer.

The method divides filters, input channels (C_F + C_G = C, Sec. 4.1) or tiles of weighted nodes. Shares of input channels make
partial sums, which one device adds. Nodes without weights, which the paper does not treat, are placed around them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from itertools import pairwise

import numpy as np

from dovetail.hardware.shares import Floats
from dovetail.ir import Axis
from dovetail.partition.geometric.convex import LogProgram
from dovetail.partition.geometric.model import leader_of
from dovetail.partition.geometric.posynomials import (
    AXES,
    ROW_AXES,
    Divisible,
    GeometricProgram,
    Monomial,
    Posynomial,
    divisible,
    of_share,
    smallest_share,
)
from dovetail.partition.geometric.rounding import complete, fit_budgets, split_of
from dovetail.partition.plan import Assignment, Goal
from dovetail.partition.problem import PARTIAL_BYTES, Problem
from dovetail.words import counted

KAPPA = 100
"""The paper's exponent in S(x) = x ** (2 kappa); it calls it k, as it does the kernel's side."""
TIGHT = 1e-3
"""How far below one the sum of a layer's shares may stay when its weight stops growing. Chosen, not measured."""
STEPS = 60
"""Steps in which a weight grows to a layer's cost when evenly divided, which is more than it ever needs. Chosen, not measured."""
MOST_STEPS = 400
"""Steps after which tightening gives up on a layer. Chosen, not measured."""
SMALLER = 0.1
"""By how much smaller shares may be where the first program has no answer. Chosen, not measured."""
ROUNDS = 5
"""Times every layer gets its turn: a weight that grows later can take resources from sums that were met before."""

Terms = tuple[tuple[float, float], ...]
"""Cost of a share x as (coefficient, exponent) of x."""


class TighteningSchedule(StrEnum):
    """How the weights grow (Sec. 5.2): all together, each stopping on its own, or one layer after another."""

    TOGETHER = "together"
    ONE_BY_ONE = "one-by-one"


class Division(StrEnum):
    """What of a layer is shared among devices; layers without that axis share their filters."""

    FILTERS = "filters"
    INPUT_CHANNELS = "input-channels"
    TILES = "tiles"


DIVIDED = {Division.FILTERS: AXES, Division.INPUT_CHANNELS: (Axis.INPUT_CHANNELS, *AXES), Division.TILES: ROW_AXES}
"""The axes of each division, first legal one first."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A link's term of Eq. 9: what `target` fetches of the share that `source` made of the layer before.

    It costs `first` and, times the source's share, `whole`; with `own` only the target's share of that.
    """

    source: str
    target: str
    first: float
    whole: float
    own: bool = False


@dataclass(frozen=True, slots=True)
class PaperLayer:
    """One layer: its channels, and per device the cost of a share of them, of moving it there, and what it occupies.

    Input that a divided layer made (`after` is its number) moves by `exchanges`, all other input by `transfer`.
    """

    name: str
    channels: int
    compute: Mapping[str, Terms]
    transfer: Mapping[str, Terms]
    resources: Mapping[tuple[str, str], Terms]
    """(device, resource) to the part of that resource's limit that a share takes."""
    exchanges: tuple[Exchange, ...] = ()
    after: int | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(self.compute)


@dataclass(frozen=True, slots=True)
class PaperProblem:
    """Eq. 7 (one layer, `kappa` None) or Eq. 14 and 15 (several); costs are in any one unit, which alpha shares.

    `floor` is the smallest share: None for one channel, as in the paper. One channel of every layer may already be too
    much for an FPGA that all layers share.
    """

    layers: tuple[PaperLayer, ...]
    kappa: int | None = KAPPA
    shared_budget: bool = True
    floor: float | None = None


@dataclass(frozen=True, slots=True)
class TighteningStep:
    """One solved program: the weights, every layer's shares in the order of its devices, and the cost without penalty."""

    alphas: tuple[float, ...]
    shares: tuple[tuple[float, ...], ...]
    cost: float

    def tightness(self, layer: int) -> float:
        """The relaxed constraint h, which is to become one."""
        return sum(self.shares[layer])


@dataclass(frozen=True, slots=True)
class Tightening:
    """All steps; the last is the answer. `met` says of every layer whether its sum was reached."""

    steps: tuple[TighteningStep, ...]
    met: tuple[bool, ...]

    @property
    def answer(self) -> TighteningStep:
        return self.steps[-1]


def communication_weight(share: float, kappa: int = KAPPA) -> float:
    """S(x) of Eq. 13 for a share in (0, 1]."""
    return share ** (2 * kappa)


def step_norm(kappa: int) -> float:
    """L2 distance of S(x) from the step it stands for, over [0, 1]: the square root of 1 / (4 kappa + 1)."""
    return float((4 * kappa + 1) ** -0.5)


def tighten(problem: PaperProblem, schedule: TighteningSchedule = TighteningSchedule.TOGETHER,
            step: float | None = None) -> Tightening:
    """Raise the weights until the shares of every layer sum to one.

    `step` is added to a weight at a time; by default it follows the layer's own cost. Layers that no weight brings to one
    within MOST_STEPS are reported as not met.
    """
    program, offsets = program_of(problem)
    centre = np.concatenate([np.full(len(x.devices), 1 / len(x.devices)) for x in problem.layers])
    centre = np.maximum(centre, program.lowest)
    solver = LogProgram(program, centre, penalised=True)
    rises = np.array([step if step is not None else _balanced_cost(x) / STEPS for x in problem.layers])
    alphas = np.zeros(len(problem.layers))
    steps: list[TighteningStep] = []
    met = np.zeros(len(problem.layers), dtype=np.bool_)

    def solve_once() -> bool:
        found = solver.solve(alphas=alphas)
        if found is None:
            return False
        shares = tuple(tuple(found.shares[a:b].tolist()) for a, b in pairwise(offsets))
        steps.append(TighteningStep(tuple(alphas.tolist()), shares, found.objective))
        met[:] = [sum(s) >= 1 - TIGHT for s in shares]
        return True

    turns = [np.ones(len(alphas), dtype=np.bool_)] if schedule is TighteningSchedule.TOGETHER else list(np.eye(len(alphas),
                                                                                                               dtype=np.bool_))
    for turn in turns * ROUNDS:
        for _ in range(MOST_STEPS):
            growing = turn & ~met
            if not growing.any():
                break
            alphas = alphas + np.where(growing, rises, 0.0)
            if not solve_once():
                break
    return Tightening(tuple(steps), tuple(bool(m) for m in met))


def _balanced_cost(layer: PaperLayer) -> float:
    """What an even division costs, transfers included."""
    share = 1 / len(layer.devices)
    moved = sum(x.first + x.whole * share ** (2 if x.own else 1) for x in layer.exchanges)
    return float(moved + sum(c * share**e for d in layer.devices for c, e in (*layer.compute[d], *layer.transfer[d])))


def program_of(problem: PaperProblem) -> tuple[GeometricProgram, list[int]]:
    """The geometric program, and where each layer's variables start."""
    objective: list[Posynomial] = []
    used: dict[tuple[str, ...], list[Posynomial]] = {}
    offsets, lowest = [0], []
    more = 0.0 if problem.kappa is None else 2.0 * problem.kappa
    for layer in problem.layers:
        if layer.after is not None:
            made = {d: offsets[layer.after] + i for i, d in enumerate(problem.layers[layer.after].devices)}
            objective += [_exchanged(x, made[x.source], offsets[-1] + layer.devices.index(x.target), more)
                          for x in layer.exchanges]
        for variable, device in enumerate(layer.devices, start=offsets[-1]):
            objective += [of_share(layer.compute[device], variable), of_share(layer.transfer[device], variable, more=more)]
            for (owner, resource), terms in layer.resources.items():
                if owner == device:
                    key = (owner, resource) if problem.shared_budget else (owner, resource, layer.name)
                    used.setdefault(key, []).append(of_share(terms, variable))
            lowest.append(problem.floor if problem.floor is not None else 1 / layer.channels)
        offsets.append(len(lowest))
    groups = tuple(tuple(range(a, b)) for a, b in pairwise(offsets))
    limits = tuple(sum(parts, ()) for parts in used.values() if any(parts))
    floors: Floats = np.array(lowest)
    return GeometricProgram(floors, groups, sum(objective, ()), limits), offsets


def _exchanged(link: Exchange, source: int, target: int, more: float) -> Posynomial:
    """A link's posynomial of both shares, weighted by S(x) of the target's."""
    plain = Monomial(1.0).times(1.0, (target, more))
    found = plain.times(link.first), plain.times(link.whole, (source, 1.0), *([(target, 1.0)] if link.own else []))
    return tuple(m for m in found if m.coefficient > 0)


def paper_problem(problem: Problem, parts: tuple[Divisible, ...], constant_power: bool) -> PaperProblem:
    """Eq. 14 for latency, Eq. 15 for energy; with `constant_power`, energy is busy power times latency.

    The energy-delay product is no objective of the paper; latency stands in for it. The smallest share is not one filter, as
    in the paper: one of every layer can be more than an FPGA that all layers share has.
    """
    at = {p.node.name: i for i, p in enumerate(parts)}
    found = PaperProblem(tuple(_layer(problem, p, constant_power, at, parts) for p in parts), KAPPA, problem.shared_budget)
    program, _ = program_of(found)
    return replace(found, floor=smallest_share(program.limits, len(program.lowest)))


def _layer(problem: Problem, part: Divisible, constant_power: bool, at: Mapping[str, int],
           parts: tuple[Divisible, ...]) -> PaperLayer:
    limits = {(d, r): limit for d, r, limit in problem.budgets}
    energy = problem.goal is Goal.ENERGY
    leader = leader_of(problem, at, part.node.inputs[0])
    summed = leader is not None and parts[at[leader]].adders  # partial sums end where they are added
    after, source = (None, summed[0]) if summed else (at[leader], "") if leader is not None else (None, problem.platform.host)
    size = float(sum(problem.graph.tensors[t].transfer_bytes for t in dict.fromkeys(part.node.inputs)))
    compute, transfer = {}, {}
    for device, fitted in part.fits.items():
        busy_w = problem.platform.device(device).busy_power_w
        compute[device] = fitted.seconds if not energy else _times(fitted.seconds, busy_w) if constant_power else fitted.joules
        transfer[device] = () if after is not None else _terms(*_moved(problem, source, device, size, energy))
        if part.axis is Axis.INPUT_CHANNELS:  # the whole output in partial sums, whatever the share
            sums = float(problem.graph.tensors[part.node.output].size * PARTIAL_BYTES)
            transfer[device] += ((sum(_moved(problem, device, part.adders[0], sums, energy)), 0.0),)
    resources = {(d, r): _times(terms, 1 / limits[d, r])
                 for d, f in part.fits.items() for r, terms in f.resources.items() if terms}
    links = [(s, t) for s in parts[after].fits for t in part.fits if s != t] if after is not None else []
    own = part.axis in (Axis.INPUT_CHANNELS, Axis.ROWS, Axis.GROUPS)
    exchanges = tuple(Exchange(s, t, *_moved(problem, s, t, size, energy), own) for s, t in links)
    return PaperLayer(part.node.name, part.extent, compute, transfer, resources, exchanges, after)


def _moved(problem: Problem, source: str, target: str, size: float, energy: bool) -> tuple[float, float]:
    """What any transfer between two devices takes, and what so many bytes take beyond that."""
    if source == target:
        return 0.0, 0.0
    seconds, joules = problem.transfer(source, target, np.array([1.0, size]))
    first, whole = (joules if energy else seconds).tolist()
    return first, whole - first


def _terms(first: float, whole: float) -> Terms:
    return tuple((c, e) for c, e in ((first, 0.0), (whole, 1.0)) if c > 0)


def _times(terms: Terms, factor: float) -> Terms:
    return tuple((c * factor, e) for c, e in terms)


def solve_paper(problem: Problem, schedule: TighteningSchedule = TighteningSchedule.TOGETHER,
                constant_power: bool = False,
                division: Division = Division.FILTERS) -> tuple[Tightening | None, Assignment | None]:
    """The tightening (None where nothing can be divided) and its answer in whole units, repaired to the budgets.

    Where the solver answers none of the programs, an even division is repaired instead, so that there is a plan to judge.
    """
    parts = tuple(p for n in problem.graph.nodes if (p := divisible(problem, n, DIVIDED[division])) is not None)
    if not parts:
        return None, complete(problem, parts, {})
    asked = paper_problem(problem, parts, constant_power)
    found = tighten(asked, schedule)
    if not found.steps and asked.floor is not None:  # of many layers, all that the smallest shares take is hard on the solver
        found = tighten(replace(asked, floor=asked.floor * SMALLER), schedule)
    answer = found.answer.shares if found.steps else [(1.0,) * len(p.fits) for p in parts]
    splits = {p.node.name: split_of(p, dict(zip(p.fits, shares, strict=True))) for p, shares in zip(parts, answer, strict=True)}
    return found, complete(problem, parts, fit_budgets(problem, parts, splits))


def gp_paper(problem: Problem, deadline: float, schedule: TighteningSchedule = TighteningSchedule.TOGETHER,
             constant_power: bool = False,
             division: Division = Division.FILTERS) -> tuple[tuple[Assignment, ...], tuple[str, ...]]:
    """The plan of the paper's method, by default with all weights growing together, and what to know about it."""
    found, assignment = solve_paper(problem, schedule, constant_power, division)
    if found is None:
        return (assignment,) if assignment is not None else (), ("gp-paper: nothing here can be divided",)
    unmet = sum(not m for m in found.met)
    missed = f"; {unmet} of {counted(len(found.met), 'sum')} were not met" if unmet else ""
    note = f"gp-paper: {counted(len(found.steps), 'geometric program')}{missed}"
    if not found.steps:
        note = "gp-paper: its first geometric program has no answer; this is an even division, repaired to the budgets"
    return (assignment,) if assignment is not None else (), (note,)


gp_paper_one_by_one = partial(gp_paper, schedule=TighteningSchedule.ONE_BY_ONE)
"""The same with the weights of one layer growing after another's."""
gp_paper_constant_power = partial(gp_paper, constant_power=True)
"""The same with energy as busy power times latency (after Eq. 15)."""
gp_paper_input_channels = partial(gp_paper, division=Division.INPUT_CHANNELS)
"""The same with input channels divided (Eq. 7, C_F + C_G = C)."""
gp_paper_tiles = partial(gp_paper, division=Division.TILES)
"""The same with images divided in rows."""
