"""What a user can ask of a plan, said once: from the command line to the solver."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from dovetail.errors import UsageError
from dovetail.ir import Graph
from dovetail.numerics.equalize import Equalise
from dovetail.numerics.scales import Scales
from dovetail.partition.plan import WIDTHS, Goal, Mode, Split, whole_on
from dovetail.partition.plan_json import plan_from_json
from dovetail.platform.device import Platform
from dovetail.platform.load import load_platform, platform_from_dict
from dovetail.platform.schema import suggestion

BUDGETS = ("shared", "per_layer")
AUTO = "auto"
"""The value of `Options.fold` that weighs several paces."""
DIRECT = "none"
"""The value of `Options.fold` that maps every layer directly."""
FOLDS = (AUTO, DIRECT)
EXAMPLES = {"thrift": "0.01", "gap": "0.005"}
"""Usual values of fractions, for who gave another."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user can ask beyond model, board and data: of the plan, of its numbers, and of the generated hardware.

    Names may be given for values: `goal="energy"`, `pins={"conv1": "fpga"}`.
    """

    goal: Goal = Goal.LATENCY
    """What to minimise: `latency`, `energy`, `edp` (their product), or `throughput` (the interval between pipelined frames)."""
    mode: Mode = Mode.CONCURRENT
    """Whether shares of one layer run at once: `concurrent` or `sequential`."""
    solver: str = "exact"
    """How to search; `exact` has the tightest bound."""
    budget: str = "shared"
    """`shared`: all nodes of a device share its resources; `per_layer`: each node may take all, as some papers have it."""
    max_latency_s: float | None = None
    """Refuse plans slower than this."""
    max_energy_j: float | None = None
    """Refuse plans that use more energy per frame than this."""
    time_limit_s: float = 4.0
    """Work of one search, in seconds that it takes on one machine (see `effort`)."""
    total_s: float = 10.0
    """The same of all searches of a plan's space together; what is left of it is shared by those to come."""
    thrift: float = 0.0
    """Fraction of the objective that may be given up to save FPGA area, none unless asked; see partition/explain/thrift.py."""
    fold: int | str | None = None
    """What narrows a plan's space: clocks per frame that an FPGA layer with shared multipliers may take, `auto` for several of
    them, `none` for layers mapped directly; None where all that FPGAs can become is weighed (see `space`)."""
    architecture: str | None = None
    """The kind of accelerator (platform/accelerator.py) that the board's FPGA becomes for the whole network, if nothing else is
    to be weighed."""
    max_interval_s: float | None = None
    """How far apart pipelined frames may be; see partition/interval/busy.py."""
    fill: float | None = None
    """Part of every resource of an FPGA that a plan may take; None: what fits with 95 % confidence (see `cost.budget.usable`)."""
    max_parts: int | None = None
    """Most parts that the program may have; see `parts`."""
    pins: Mapping[str, Split] = field(default_factory=dict)
    """Splits of nodes that are decided already, or a device's name, by the nodes' names; `*` in one stands for anything."""
    gap: float = 0.0
    """How far from the best, as a fraction of it, a plan may be proven for the search to end."""
    off_grid: bool = True
    """Whether `exact` may move the cuts of its plan between the positions it proves its bound over."""
    explained: bool = True
    """Whether each node says why it is where it is."""
    rivals: bool = True
    """Whether it says so by comparing with the best plan in which it is elsewhere: about half as long as the plan itself."""
    bits: int | None = None
    """Bits of a float model's integers, 2 to 8; None: 8."""
    equalise: Equalise = Equalise.AUTO
    """Whether channels are scaled towards each other before: `auto` (where it helps), `on`, `off`."""
    scales: Scales = Scales.POW2
    """Scales of a float model's integers: `pow2`, `any`, `auto` (any where powers of two answer less like the float model)."""
    bus_bits: int | None = None
    """Width of the hardware's AXI4-Stream ports: 32, 64, 128, 256 or 512; None: 64."""
    memory_bits: int | None = None
    """Width of the AXI4 port through which reusable engines read memory; None: that of their beats."""
    host_pins: int | None = None
    """Write the hardware a second time, behind a port of so many pins each way: 1, 2, 4, 8, 16 or 32."""
    loaded: Sequence[str] = ()
    """Layers of LQ codes that get memories for their weights, which the host fills; `("all",)`: all that can."""

    def __post_init__(self) -> None:
        for name, kind in (("goal", Goal), ("mode", Mode), ("equalise", Equalise), ("scales", Scales)):
            object.__setattr__(self, name, _named(name, kind, getattr(self, name)))
        object.__setattr__(self, "pins", {n: whole_on(s) if isinstance(s, str) else s for n, s in self.pins.items()})
        for what in ("thrift", "gap"):
            if not 0 <= (part := getattr(self, what)) < 1:
                raise UsageError(f"{what} {part:g}: a fraction of the objective from 0 to below 1 is possible, such as "
                                 f"{EXAMPLES[what]}")
        for what, widths in WIDTHS.items():
            if (width := getattr(self, what)) not in (None, *widths):
                raise UsageError(f"{what.replace('_', ' ')} {width}: {', '.join(map(str, widths))} are possible")
        if self.fill is not None and not 0.01 <= self.fill <= 1:
            raise UsageError(f"fill {self.fill:g}: a part of an FPGA from 0.01 to 1 is possible, such as 0.8")
        if self.max_parts is not None and self.max_parts < 1:
            raise UsageError(f"max parts {self.max_parts}: a program has at least 1")
        if self.budget not in BUDGETS:
            raise UsageError(f"budget {self.budget}: unknown; possible: {', '.join(BUDGETS)}")

    def like(self, document: Mapping[str, Any]) -> tuple[Platform, Options]:
        """The board of a plan as JSON, and these options with its placement of every node, its objective and its mode."""
        saved, board = plan_from_json(document), document["platform"]
        return (load_platform(board) if isinstance(board, str) else platform_from_dict(board),
                replace(self, goal=saved.goal, mode=saved.mode, thrift=0.0, pins=saved.assignment))

    def pinned(self, graph: Graph) -> dict[str, Split]:
        """The split of every node of a network that `pins` name.

        Raises:
            UsageError: a name that no node has.
        """
        names, found = [n.name for n in graph.nodes], {}
        for pattern, split in self.pins.items():
            named = [n for n in names if n == pattern]
            if not named and "*" in pattern:
                form = re.compile(".*".join(map(re.escape, pattern.split("*"))))
                named = [n for n in names if form.fullmatch(n)]
            if not named:
                raise UsageError(f"pin {pattern}: {graph.name} has no such node{suggestion(pattern, names)}; "
                                 "`dovetail inspect MODEL` lists them")
            found.update(dict.fromkeys(named, split))
        return found


def _named(what: str, kind: type[StrEnum], value: str) -> StrEnum:
    """The value of an enumeration that a name stands for."""
    try:
        return kind(value)
    except ValueError:
        raise UsageError(f"{what} {value}: unknown{suggestion(str(value), list(kind))}; possible: {', '.join(kind)}") from None


PROOF = Options(off_grid=False, rivals=False)
"""The plan and its proof over the candidates, with nothing given up or added."""
