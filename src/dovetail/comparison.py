"""Two plans beside each other: headline figures, layers that moved, and resources, in words and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dovetail.errors import UsageError
from dovetail.partition.plan import Plan
from dovetail.partition.plan_json import plan_from_json
from dovetail.report.units import ABSENT, joules, percent, rate, seconds, significant
from dovetail.runtime.build import SYNTHESIS, read_json
from dovetail.shown import Rows, Shown
from dovetail.terminal import shares, table
from dovetail.words import counted, shortened

EXACT = 1e-6
"""Fraction below which a gap is none: what rounding leaves."""


def near(gap: float) -> str:
    """How far a plan can be from the best, in percent."""
    return percent(gap if gap >= EXACT else 0.0)


FIGURES = {"latency_s": ("latency", seconds), "interval_s": ("pipelined", rate), "energy_j": ("energy per frame", joules),
           "gap": ("from the best possible", near)}
"""What is compared first, and how people read it."""
AGAIN = "give a file of `dovetail plan -o`, or a build folder"
ROUNDED = 1e-9
"""Relative difference up to which two figures are the same. Chosen: far above rounding, far below any digit shown."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two plans, with what it is called, and the resources that a synthesizer counted, by device."""

    name: str
    plan: Plan
    counted: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def read_side(path: str | Path) -> Side:
    """The plan of a file of `dovetail plan -o`, or of a build folder.

    Raises:
        BuildError: the file is no plan.
        UsageError: there is no such file, or the folder is no build.
    """
    path = Path(path)
    file = path / "plan.json" if path.is_dir() else path
    if not file.is_file():
        found = "holds no plan.json" if path.is_dir() else "no such file"
        raise UsageError(f"{path}: {found}; {AGAIN}")
    plan = plan_from_json(read_json(file, AGAIN), str(file))
    synthesis, used = path / "synthesis.json", dict[str, dict[str, float]]()
    if path.is_dir() and synthesis.is_file():
        for result in read_json(synthesis, f"run `dovetail synth {path}` again", SYNTHESIS)["results"]:
            own = used.setdefault(result["device"], {})
            for name, amount in result["resources"].items():
                own[name] = own.get(name, 0.0) + amount
    return Side(str(path), plan, used)


@dataclass(frozen=True, slots=True, repr=False)
class PlanComparison(Shown):
    """What differs between two plans: a row per layer that is elsewhere, or in one of them alone."""

    first: Side
    second: Side

    def figures(self) -> dict[str, dict[str, float | None]]:
        """Headline figures of both, and the second over the first."""
        found = {}
        for name in FIGURES:
            one, two = (float(getattr(side.plan, name)) for side in (self.first, self.second))
            found[name] = {"first": one, "second": two, "ratio": two / one if one else None}
        return found

    def resources(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """What plans use of every FPGA: planned, available, and counted by a synthesizer where that was done; by resource."""
        found: dict[str, dict[str, dict[str, float | None]]] = {}
        for key, side in (("first", self.first), ("second", self.second)):
            for device, held in side.plan.resources.items():
                for name, (used, limit) in held.items():
                    own = found.setdefault(device, {}).setdefault(name, {})
                    own |= {key: used, f"{key}_of": limit, f"{key}_counted": side.counted.get(device, {}).get(name)}
        return found

    def headline(self) -> str:
        moved = self.rows()
        return (f"{self.first.name} beside {self.second.name}: latency {seconds(self.first.plan.latency_s)} and "
                f"{seconds(self.second.plan.latency_s)}, {counted(len(moved), 'layer')} elsewhere")

    def rows(self) -> Rows:
        one, two = self.first.plan, self.second.plan
        before, after = ({cost.node: cost for cost in plan.nodes} for plan in (one, two))
        return [{"layer": node, "first": _place(one, node), "second": _place(two, node),
                 "first_latency_s": before[node].latency_s if node in before else None,
                 "second_latency_s": after[node].latency_s if node in after else None, "why": after[node].why if node in after
                 else ""} for node in dict.fromkeys([*one.assignment, *two.assignment])
                if one.assignment.get(node) != two.assignment.get(node)]

    def document(self) -> dict[str, Any]:
        """The contract of `dovetail compare --json`."""
        sides = {key: {"name": s.name, "model": s.plan.model, "platform": s.plan.platform, "goal": str(s.plan.goal),
                       "solver": s.plan.solver, "status": str(s.plan.status)}
                 for key, s in (("first", self.first), ("second", self.second))}
        return {"schema": 1, **sides, "figures": self.figures(), "moved": list(self.rows()), "resources": self.resources()}

    def __str__(self) -> str:
        return "\n".join([*_figures(self), "", *_moved(self), *_resources(self)])


def _place(plan: Plan, node: str) -> str | None:
    return shares(plan.assignment[node]) if node in plan.assignment else None


def _figures(both: PlanComparison) -> list[str]:
    sides = (both.first, both.second)
    rows = [[label, *(form(getattr(s.plan, name)) for s in sides), _change(name, found["ratio"])]
            for (name, (label, form)), found in zip(FIGURES.items(), both.figures().values(), strict=True)]
    about = [[what, *(str(getattr(s.plan, what if what != "board" else "platform")) for s in sides), ""]
             for what in ("model", "board", "goal")]
    return table(["", *(shortened(s.name, 32) for s in sides), "change"], [*(r for r in about if r[1] != r[2] or r[0] == "model"),
                                                                         *rows], right=(1, 2, 3)).split("\n")


def _change(name: str, ratio: float | None) -> str:
    """How the second differs from the first, in percent; of an interval between frames in frames per second."""
    if name == "gap" or not ratio:
        return ""
    grown = (1 / ratio if name == "interval_s" else ratio) - 1
    if abs(grown) < ROUNDED:
        return "same"
    return f"{'+' if grown > 0 else '−'}{significant(abs(grown) * 100)} %"


def _moved(both: PlanComparison) -> list[str]:
    rows = [[r["layer"], r["first"] or ABSENT, r["second"] or ABSENT,
             *("" if t is None else seconds(t) for t in (r["first_latency_s"], r["second_latency_s"])), r["why"]]
            for r in both.rows()]
    if not rows:
        return [f"all {counted(len(both.first.plan.assignment), 'layer')} are where they were"]
    total = len({**both.first.plan.assignment, **both.second.plan.assignment})
    return [f"{len(rows)} of {counted(total, 'layer')} elsewhere:", "",
            *table(["layer", "first", "second", "time", "then", "why"], rows, right=(3, 4)).split("\n")]


def _resources(both: PlanComparison) -> list[str]:
    rows = []
    for device, held in both.resources().items():
        for name, own in held.items():
            if own.get("first") or own.get("second"):
                rows.append([f"{device} {name}", *(_used(own, key) for key in ("first", "second"))])
    return ["", *table(["resource", "first", "second"], rows, right=(1, 2)).split("\n")] if rows else []


def _used(own: Mapping[str, float | None], key: str) -> str:
    used, limit, measured = own.get(key), own.get(f"{key}_of"), own.get(f"{key}_counted")
    if used is None:
        return ABSENT
    share = f" ({percent(used / limit)})" if limit else ""
    return f"{used:,.0f}{share}" + ("" if measured is None else f", counted {measured:,.0f}")
