"""What a store knows of a space of designs: a table, the designs that no other one beats, what each choice changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import exp, log
from typing import Any

from dovetail.explore.designs import AXES, DesignPoint, DesignSpace
from dovetail.explore.job import Outcome
from dovetail.report import units
from dovetail.shown import Rows, Shown
from dovetail.terminal import table
from dovetail.words import counted

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "planning": ("latency_s", "interval_s", "energy_j", "area", "gap", "proven", "devices"),
    "accuracy": ("accuracy", "float_accuracy", "agreement"), "simulation": ("frames",), "synthesis": ("synthesized_area",)}
"""What the table has of each kind of job."""
LESS_IS_BETTER = ("latency_s", "energy_j", "interval_s", "area")
MORE_IS_BETTER = ("accuracy",)
CHANGES = ("latency_s", "interval_s", "energy_j", "area")
"""What sensitivities are told of, as ratios; accuracy is told as a difference."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What one value of an axis changes against the axis' first one, over all pairs of designs that are equal otherwise."""

    axis: str
    value: str
    base: str
    pairs: int
    ratios: Mapping[str, tuple[float, float, float]]
    """Geometric mean, least and largest ratio by figure."""
    accuracy: float | None
    """Mean difference of accuracy, where it was measured."""


@dataclass(frozen=True, slots=True, repr=False)
class Exploration(Shown):
    """A space with what is known of it."""

    space: DesignSpace
    outcomes: Mapping[str, Outcome]

    def headline(self) -> str:
        rows = self.rows()
        refused, best = sum(bool(r["refusal"]) for r in rows), sum(r["best"] is True for r in rows)
        return (f"{self.space.name}: {counted(len(rows), 'design')}, {best:,} of them beaten by no other, {refused:,} impossible")

    def rows(self) -> Rows:
        """A row per design; `best` where no other design of the network is as good in everything and better in something."""
        kinds = dict.fromkeys(kind for design in self.space.designs for kind in design.keys)
        rows = [self._row(design, list(kinds)) for design in self.space.designs]
        for _, same in groupby(sorted(rows, key=lambda r: str(r["network"])), key=lambda r: r["network"]):
            mark_best(list(same))
        return rows

    def _row(self, design: DesignPoint, kinds: Sequence[str]) -> dict[str, Any]:
        row: dict[str, Any] = {axis: getattr(design, axis) for axis in AXES} | {"best": None}
        refusals = []
        for kind in kinds:
            found = self.outcomes.get(design.keys[kind])
            result = {} if found is None or found.result is None else found.result
            row |= {name: result.get(name) for name in COLUMNS[kind]}
            if found is not None and found.refusal:
                refusals.append(f"{kind}: {found.refusal}")
        return row | {"refusal": "; ".join(refusals)}

    def sensitivities(self) -> list[Sensitivity]:
        """One per value of every axis that has several, but the first."""
        rows, found = self.rows(), []
        for axis in AXES[1:]:
            base, *others = dict.fromkeys(row[axis] for row in rows)
            beside = {_others(row, axis): row for row in rows if row[axis] == base}
            for value in others:
                pairs = [(beside[_others(row, axis)], row) for row in rows if row[axis] == value]
                found.append(_sensitivity(axis, base, value, pairs))
        return found

    def document(self) -> dict[str, Any]:
        """The contract of `dovetail explore --json`."""
        return {"schema": 1, "space": self.space.name, "designs": list(self.rows()), "sensitivities": [
            {"axis": s.axis, "value": s.value, "base": s.base, "pairs": s.pairs, "accuracy": s.accuracy,
             **{name: {"mean": m, "least": lo, "largest": hi} for name, (m, lo, hi) in s.ratios.items()}}
            for s in self.sensitivities()]}

    def __str__(self) -> str:
        rows = [row for row in self.rows() if row["best"]]
        head, measured = list(AXES), "accuracy" in (rows[0] if rows else {})
        lines = [[*(str(row[a]) for a in AXES), units.seconds(row["latency_s"]), units.rate(row["interval_s"]),
                  units.joules(row["energy_j"]), units.percent(row["area"]),
                  *([units.accuracy(row["accuracy"])] if measured else [])] for row in rows if row.get("latency_s") is not None]
        shown = table([*head, "latency", "pipelined", "energy", "area", *(["accuracy"] if measured else [])], lines,
                      right=range(len(AXES), len(AXES) + 4 + measured)) if lines else ""
        return "\n".join(filter(None, [self.headline(), "", shown])).rstrip()


def mark_best(rows: Sequence[dict[str, Any]]) -> None:
    """Say of each row whether no other one beats it, by all figures that all of them have; None without any."""
    told = [name for name in (*LESS_IS_BETTER, *MORE_IS_BETTER) if any(row.get(name) is not None for row in rows)]
    whole = [row for row in rows if told and all(row.get(name) is not None for name in told)]
    points = [tuple(-row[n] if n in MORE_IS_BETTER else row[n] for n in told) for row in whole]
    for row, own in zip(whole, points, strict=True):
        row["best"] = not any(all(a <= b for a, b in zip(other, own, strict=True)) and other != own for other in points)


def _others(row: Mapping[str, Any], axis: str) -> tuple[Any, ...]:
    return tuple(row[a] for a in AXES if a != axis)


def _sensitivity(axis: str, base: object, value: object,
                 pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Sensitivity:
    ratios = {}
    for name in CHANGES:
        found = [log(two[name] / one[name]) for one, two in pairs if one.get(name) and two.get(name)]
        if found:
            ratios[name] = exp(sum(found) / len(found)), exp(min(found)), exp(max(found))
    lost = [two["accuracy"] - one["accuracy"] for one, two in pairs if None not in (one.get("accuracy"), two.get("accuracy"))]
    return Sensitivity(axis, str(value), str(base), len(pairs), ratios, sum(lost) / len(lost) if lost else None)
