"""The page of a space: fronts of every network as drawings, what each choice changes, and all designs as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dovetail.explore.designs import AXES
from dovetail.explore.findings import CHANGES, Exploration, Sensitivity
from dovetail.report import units
from dovetail.report.fronts import plain_page
from dovetail.report.markup import Markup, element, section, table
from dovetail.report.palette import meter
from dovetail.report.sheet import Axes, sheet
from dovetail.words import counted

Unit = Callable[[float | None], str]
FIGURES: Mapping[str, tuple[str, Unit]] = {
    "latency_s": ("latency per frame", units.seconds), "energy_j": ("energy per frame", units.joules),
    "area": ("fullest resource of the FPGAs", units.percent), "accuracy": ("accuracy", units.accuracy)}
DRAWN = (("energy_j", "latency_s"), ("latency_s", "accuracy"), ("area", "latency_s"))
"""What is drawn: to the right, upwards."""
MOST_DRAWN = 2000
"""Points of one drawing; of more, those on the front and the first ones. Chosen: a browser stays quick."""
TITLES = {"latency_s": "Latency", "interval_s": "Time between frames", "energy_j": "Energy", "area": "Area"}


def exploration_page(found: Exploration) -> str:
    """One HTML file that needs nothing else."""
    rows = found.rows()
    networks = list(dict.fromkeys(row["network"] for row in rows))
    body: list[object] = [element("h1", f"Designs: {found.space.name}"), element("p", f"{found.headline()}.")]
    for network in networks:
        own = [row for row in rows if row["network"] == network]
        drawings = [drawing for right, up in DRAWN if (drawing := front(own, network, right, up)) is not None]
        body.append(section(f"front-{networks.index(network)}", network, drawings or element("p", "No design has figures yet.")))
    body += [_sensitivities(found.sensitivities()), _designs(rows)]
    return plain_page(f"Designs: {found.space.name}", body)


def front(rows: Sequence[Mapping[str, Any]], network: str, right: str, up: str) -> Markup | None:
    """One figure over another; filled: no other design is as good in everything. None without two different points."""
    known = [row for row in rows if row.get(right) is not None and row.get(up) is not None]
    if len({(row[right], row[up]) for row in known}) < 2:
        return None
    known = sorted(known, key=lambda row: not row["best"])[:MOST_DRAWN]
    across, above = FIGURES[right], FIGURES[up]
    xs, ys = ([row[name] for row in known] for name in (right, up))
    axes = Axes((min(xs), max(xs)), (min(ys), max(ys)))
    marks = [element("g", element("title", f"{_named(row)}: {above[1](row[up])}, {across[1](row[right])}"),
                     element("circle", cx=f"{axes.across(row[right]):.1f}", cy=f"{axes.down(row[up]):.1f}", r=4,
                             class_="point" if row["best"] else "bound", fill=None if row["best"] else "none"))
             for row in reversed(known)]
    return sheet(f"{above[0]} over {across[0]} of {network}", network,
                 f"{above[0]} over {across[0]}; hollow: another design is better in all figures",
                 axes.grid(across[1], above[1]), marks)


def _named(row: Mapping[str, Any]) -> str:
    return f"{row['board']}, {counted(row['bits'], 'bit')}, {row['architecture']}, {row['objective']}"


def _sensitivities(found: Sequence[Sensitivity]) -> Markup:
    if not found:
        return section("choices", "What choices change", element("p", "No axis has several values."))
    longest = max((s.ratios[name][0] for s in found for name in CHANGES if name in s.ratios), default=1.0)
    rows = [(f"{s.axis}: {s.value}", s.base, units.count(s.pairs),
             *(_ratio(s.ratios.get(name), longest) for name in CHANGES),
             units.ABSENT if s.accuracy is None else f"{units.significant(100 * s.accuracy)} points") for s in found]
    return section("choices", "What choices change", table(
        "Geometric mean over pairs of designs that are equal otherwise, least and largest in brackets; below 1 is less",
        ("Choice", "Instead of", "Pairs", *(TITLES[name] for name in CHANGES), "Accuracy"), rows, numeric=(2, 7), class_="bars"))


def _ratio(found: tuple[float, float, float] | None, longest: float) -> object:
    if found is None:
        return units.ABSENT
    mean, least, largest = (units.significant(value) for value in found)
    return meter(found[0] / longest, "plan", f"{mean}× ({least} to {largest})")


def _designs(rows: Sequence[Mapping[str, Any]]) -> Markup:
    shown = [row for row in rows if row["best"]] or list(rows)
    accurate = any(row.get("accuracy") is not None for row in rows)
    lines = [(row["network"], *(row[axis] for axis in AXES[1:]), units.seconds(row.get("latency_s")),
              units.rate(row.get("interval_s")), units.joules(row.get("energy_j")), units.percent(row.get("area")),
              *([units.accuracy(row.get("accuracy"))] if accurate else []), row.get("devices") or row["refusal"])
             for row in shown]
    refused = [(row["network"], _named(row), row["refusal"]) for row in rows if row["refusal"]][:MOST_DRAWN]
    end = len(AXES) + 4 + accurate
    return section("designs", "Designs that no other one beats", table(
        f"{counted(len(shown), 'design')} of {len(rows):,}; all of them: --table FILE.csv",
        ("Network", *(axis.capitalize() for axis in AXES[1:]), "Latency", "Pipelined", "Energy", "Area",
         *(["Accuracy"] if accurate else []), "Devices"), lines, numeric=range(len(AXES), end)),
        table("Impossible", ("Network", "Design", "Why"), refused) if refused else None)
