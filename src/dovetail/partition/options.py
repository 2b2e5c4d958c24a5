"""What a user can ask of a plan, said once: from the command line to the solver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dovetail.errors import UsageError
from dovetail.ir import Graph
from dovetail.partition.plan import Goal, Mode, Split
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


@dataclass(frozen=True, slots=True)
class Options:
    """What a user can ask of a plan beyond model and board."""

    goal: Goal = Goal.LATENCY
    mode: Mode = Mode.CONCURRENT
    solver: str = "exact"
    budget: str = "shared"
    """`shared`: all nodes of a device share its resources; `per_layer`: each node may take all, as some papers have it."""
    max_latency_s: float | None = None
    max_energy_j: float | None = None
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
    """Splits of nodes that are decided already, by their names; `*` in a name stands for anything."""
    gap: float = 0.0
    """How far from the best, as a fraction of it, a plan may be proven for the search to end."""
    off_grid: bool = True
    """Whether `exact` may move the cuts of its plan between the positions it proves its bound over."""
    explained: bool = True
    """Whether each node says why it is where it is."""
    rivals: bool = True
    """Whether it says so by comparing with the best plan in which it is elsewhere: about half as long as the plan itself."""

    def __post_init__(self) -> None:
        if not 0 <= self.thrift < 1:
            raise UsageError(f"thrift {self.thrift:g}: a fraction of the objective from 0 to below 1 is possible, such as 0.01")
        if not 0 <= self.gap < 1:
            raise UsageError(f"gap {self.gap:g}: a fraction of the objective from 0 to below 1 is possible, such as 0.005")
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


PROOF = Options(off_grid=False, rivals=False)
"""The plan and its proof over the candidates, with nothing given up or added."""
