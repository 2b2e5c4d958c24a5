"""The partitioner's answer: which device computes which slice of which node, what it costs, how good it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from dovetail import values
from dovetail.cost.clocks import ClockEstimate
from dovetail.ir import Axis
from dovetail.partition.tolerances import TOLERANCE

CANDIDATES = "whole placements and candidate cuts (see notes)"
"""Over which plans every bound holds."""
CONFIDENCE = 0.9
"""Of the intervals of a plan's figures, as of those of the cost models that they come from."""
FEWER = "holds over fewer candidates:"
"""What notes say of a bound that covers not all of them."""
SOLVER_NAMES = ("exact", "greedy", "balanced", "random", "single", "ilp", "lp", "dp", "min-cut", "work-stealing", "gp",
                "gp-paper", "gp-paper-one-by-one", "gp-paper-constant-power", "gp-paper-input-channels", "gp-paper-tiles")
"""What `solve.SOLVERS` holds; here, so that the command line can name them without loading them."""
WIDTHS = {"bus_bits": (32, 64, 128, 256, 512), "host_pins": (1, 2, 4, 8, 16, 32)}
"""What ports of generated hardware may be wide; here for the same reason."""


class Goal(StrEnum):
    """What a plan minimises."""

    LATENCY = "latency"
    ENERGY = "energy"
    EDP = "edp"
    THROUGHPUT = "throughput"
    """The interval between frames when they are pipelined (partition/interval/busy.py)."""


class Mode(StrEnum):
    """Whether shares of one node run one after another (as in GP partitioning 2023, Eq. 7) or at once."""

    SEQUENTIAL = "sequential"
    CONCURRENT = "concurrent"


class Status(StrEnum):
    """`optimal`: proven to the last digit printed; `feasible`: legal, within `gap` of the bound."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"


class Piece(NamedTuple):
    """Units [start, stop) of a split axis on one device."""

    device: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Split:
    """How one node is divided: whole on one device (`axis is None`, one piece (device, 0, 1)) or in contiguous pieces.

    Pieces cover the axis in order, without gaps or overlaps. For INPUT_CHANNELS, `reducer` names the device
    that adds the partial sums and rounds.
    """

    axis: Axis | None
    pieces: tuple[Piece, ...]
    reducer: str | None = None

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple([p.device for p in self.pieces])


@lru_cache(maxsize=256)
def whole_on(device: str) -> Split:
    """A node undivided on one device."""
    return Split(None, (Piece(device, 0, 1),))


Assignment = Mapping[str, Split]
"""Node name to split, for every node of the graph."""


@values.dataclass(frozen=True, slots=True)
class NodeCost:
    """What one node costs inside a plan, and why it is where it is.

    `latency_s` is what the node adds to the plan's latency (transfers in it included in `transfer_s`);
    `resources` are per device; `interval_s` is the 90 % interval of `compute_s`. `energy_j` includes the idle power of
    all devices over `latency_s`, so that nodes and the delivery of outputs add up to the plan's energy. Where branches run
    at once, a node adds only what it lasts beyond the nodes before it: `hidden_s` of its time is theirs too, and `beside`
    names the nodes at work on other devices meanwhile.
    """

    node: str
    latency_s: float
    compute_s: float
    transfer_s: float
    energy_j: float
    transfer_bytes: int
    resources: Mapping[str, Mapping[str, float]]
    interval_s: tuple[float, float]
    extrapolated: bool
    source: str
    busy_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds per frame that the node keeps each processor, engine and direction of a link busy."""
    why: str = ""
    hidden_s: float = 0.0
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LimitedBy:
    """What limits a plan most, and what one step up of it would buy; see partition/explain/sensitivity.py.

    `kind` is `layer`, `device`, `link` or `resource`. `share` is its part of the latency (of the energy, of the interval between
    frames, as the goal has it), or how much of a resource is used. `objective_then` is the objective after one step up, this plan
    kept; of a resource that of the best plan in which one node moves.
    """

    kind: str
    name: str
    share: float
    objective_then: float
    one_step_up: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A judged assignment. `objective` and `lower_bound` are in SI units of the goal (s, J or J*s).

    `interval_s` is the time between frames when they are pipelined, `latency_s` that of one frame by itself.
    """

    model: str
    platform: str
    goal: Goal
    mode: Mode
    solver: str
    status: Status
    assignment: Assignment
    nodes: tuple[NodeCost, ...]
    objective: float
    lower_bound: float
    latency_s: float
    energy_j: float
    resources: Mapping[str, Mapping[str, tuple[float, float]]]
    """Device to resource to (used, limit)."""
    interval_s: float = 0.0
    busy_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds per frame of processors, links and the slowest engines, busiest first: the first sets the interval."""
    baselines: Mapping[str, float | None] = field(default_factory=dict)
    """`cpu`, `gpu`, `fpga` (None where absent or it does not fit), `greedy`, `balanced`, `random`: their objectives.

    Where nodes are `pinned`, the single devices are without that, the others with it.
    """
    pinned: int = 0
    """How many nodes were not the solver's to place."""
    makespan_s: float | None = None
    notes: tuple[str, ...] = ()
    best_objective: float | None = None
    """The objective of the best plan found, where thrift gave some of it up; None where nothing was given up."""
    beyond: float = 0.0
    """By what fraction cuts between the candidates made the best plan found better than all over which the bound holds."""
    clocks: Mapping[str, ClockEstimate] = field(default_factory=dict)
    """Of every segment on an FPGA, by its name: clocks of one frame and between frames, with their stated error."""
    space: tuple[str, ...] = ()
    """What FPGAs might have become, in words; the bound holds over all of it (see `space`). Empty where that was given."""
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Intervals of `objective`, `latency_s`, `energy_j` and `interval_s` at `CONFIDENCE`; none of plans without explanations."""
    limited_by: LimitedBy | None = None

    @property
    def gap(self) -> float:
        """How far the best plan found can be from the best possible, as a fraction; what thrift gave up is not in it."""
        best = self.objective if self.best_objective is None else self.best_objective
        return max(0.0, (best - self.lower_bound) / best) if best > 0 else 0.0

    @property
    def candidate_bound(self) -> float:
        """What no plan over the candidates is below: `lower_bound`, or, where cuts between them are better, as much above it."""
        best = self.objective if self.best_objective is None else self.best_objective
        return best * (1 + self.beyond) if self.beyond > 0 else self.lower_bound

    @property
    def bound_covers(self) -> str:
        """Of which plans the bound speaks, in words."""
        *others, last = self.space or ("",)
        covered = f"{CANDIDATES} of {', '.join(others)}{' and ' * bool(others)}{last}" if self.space else CANDIDATES
        if any(FEWER in note for note in self.notes):
            return f"{covered}; fewer of them where many tensors are alive at once"
        if self.beyond > 0:
            return f"{covered}; cuts of this plan lie between them, of which no bound is known but that they are better"
        return covered

    @property
    def proven(self) -> bool:
        """Whether the best plan found is proven best; what thrift gave up is not in it."""
        return self.status is Status.OPTIMAL or self.gap <= TOLERANCE

    @property
    def given_up(self) -> float:
        """What thrift gave up, as a fraction of the best objective found."""
        return 0.0 if not self.best_objective else max(0.0, self.objective / self.best_objective - 1)
