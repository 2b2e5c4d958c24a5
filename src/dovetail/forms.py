"""What FPGAs may become, as values: forms with bounds, spaces of forms, and the question that asks for one (see `space`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf

from dovetail.accelerator_prices import FrameProof
from dovetail.cost.folded import pace_of
from dovetail.errors import InfeasibleError
from dovetail.hardware.arrays.layers import counts_bits
from dovetail.ir import Graph
from dovetail.partition.accelerator.architecture import JudgedAccelerator, accelerated_device
from dovetail.partition.accelerator.blocks import Blocks
from dovetail.partition.accelerator.runs import Elsewhere
from dovetail.partition.options import Options
from dovetail.partition.plan import Assignment, Goal, Plan, Status
from dovetail.platform.accelerator import AcceleratorDesign, Architecture
from dovetail.platform.device import Kind, Platform
from dovetail.progress import Progress

Solve = Callable[[Platform, Assignment, float], Plan]
"""The best plan of a board whose nodes are partly placed; InfeasibleError where no plan keeps the limits.

The search may end where no plan is below the objective that is given.
"""

First = Callable[[Platform, Assignment], float]
"""The objective of a plan that is found at once, such as all on one device; infinite where there is none."""


@dataclass(frozen=True, slots=True)
class FpgaForm:
    """What the FPGAs become, and the nodes that are placed with it; `judged` is what is known of an accelerator."""

    platform: Platform
    pins: Assignment
    judged: JudgedAccelerator | None = None
    held: frozenset[str] = frozenset()
    """The nodes that an accelerator holds."""
    kinds: tuple[Architecture, ...] = ()
    """Of the accelerators that it is the best of."""
    notes: tuple[str, ...] = ()
    proof: FrameProof | None = None
    """What no frame on an accelerator is below as plans charge it, where that was sought."""

    def bound(self, plan: Plan) -> float:
        """What no plan of this form is below, from its best plan: an accelerator's part cannot be below its kind's bound."""
        if self.judged is None or not (self.proof or proven(plan.goal)):
            return plan.lower_bound
        if self.proof is not None:
            return plan.lower_bound - self.proof.spare
        device = accelerated_device(self.platform)
        assert device.clock_hz is not None, "costs of an FPGA need its clock"
        least_s = self.judged.bound / device.clock_hz
        if plan.goal is Goal.THROUGHPUT:  # where other devices are slower, no accelerator helps
            slowest_s = max((s for name, s in plan.busy_s.items() if name.startswith(f"{device.name} engine ")), default=0.0)
            return plan.lower_bound if slowest_s < plan.lower_bound else min(plan.lower_bound, least_s)
        part_s = sum(node.compute_s for node in plan.nodes if node.node in self.held)
        return plan.lower_bound - max(0.0, part_s - least_s)


@dataclass(frozen=True, slots=True)
class Space:
    """What is weighed, in words, and the forms; with their plans where there are several, None where limits leave none."""

    words: tuple[str, ...]
    forms: tuple[FpgaForm, ...]
    plans: tuple[Plan | None, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def paces(self) -> tuple[int | None, ...]:
        """Of every form that is no accelerator the clocks per frame that layers may take; None where they are mapped directly."""
        boards = [form.platform.of_kind(Kind.FPGA) for form in self.forms if form.judged is None]
        return tuple(pace_of(fpgas[0]) if fpgas else None for fpgas in boards)

    @property
    def best(self) -> int:
        """Which form has the best plan."""
        found = [inf if plan is None else plan.objective for plan in self.plans]
        return found.index(min(found)) if found else 0

    def within(self, plan: Plan) -> Plan:
        """The plan of the best form, with a bound over all forms and what every form is compared with."""
        others = [form.bound(found) for i, (form, found) in enumerate(zip(self.forms, self.plans, strict=True))
                  if found is not None and i != self.best] if self.plans else []
        lower = min([self.forms[self.best].bound(plan), *others])
        free = next(iter(self.plans), None) or plan  # an accelerator's nodes are pinned to it, and so are those of its baselines
        alone = [a for p in self.plans if p is not None and (a := p.baselines.get(Kind.FPGA)) is not None]
        baselines = {**free.baselines, Kind.FPGA.value: min(alone)} if alone else free.baselines
        return replace(plan, space=self.words, lower_bound=lower, baselines=baselines, pinned=free.pinned,
                       status=plan.status if lower >= plan.lower_bound else Status.FEASIBLE,
                       notes=(*plan.notes, *self.forms[self.best].notes, *self.notes))


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """A network on a board as the options ask for it."""

    graph: Graph
    platform: Platform
    options: Options
    pins: Assignment
    solve: Solve
    progress: Progress
    first: First = lambda *_: inf
    inside: dict[frozenset[str], tuple[Graph, Blocks]] = field(default_factory=dict)
    """By nodes that accelerators were sought for: these cut out, and arrays for them as far as they are priced."""
    elsewhere: dict[str, Elsewhere | None] = field(default_factory=dict)
    """By accelerated device, what nodes take on the others, as far as that was asked."""
    around: list[tuple[AcceleratorDesign, Assignment, Plan | None]] = field(default_factory=list)
    """Plans around accelerators with the nodes that these hold, which was asked without a ceiling."""

    def tried(self, form: FpgaForm, reached: float = inf) -> Plan | None:
        """The best plan of a form, or any that is no better than what is reached already; None where limits leave none."""
        try:
            return self.solve(form.platform, form.pins, reached)
        except InfeasibleError:
            return None


    def planned_around(self, board: Platform, pins: Assignment) -> Plan | None:
        """The best plan with the accelerator of a board for the pinned nodes."""
        design = accelerated_device(board).accelerator
        assert design is not None, "a board with an accelerator"
        for known, held, plan in self.around:
            if known == design and held == pins:
                return plan
        self.around.append((design, pins, self.tried(FpgaForm(board, {**self.pins, **pins}))))
        return self.around[-1][-1]


def proven(goal: Goal) -> bool:
    """Whether searches for the fastest accelerators have a bound on a goal."""
    return goal in (Goal.LATENCY, Goal.THROUGHPUT)


def charged(goal: Goal, graph: Graph) -> bool:
    """Whether accelerators are sought by what plans charge for a frame of them: prices know no arrays that count bits."""
    return goal in (Goal.LATENCY, Goal.ENERGY) and not counts_bits(graph)
