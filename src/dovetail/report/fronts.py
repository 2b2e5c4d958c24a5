"""Fronts as drawings and pages that need nothing else.

Latency against energy is one drawing. What bits of layers are worth is a page: two drawings, the measured choices, single layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

from dovetail.partition.pareto import Front, FrontPoint
from dovetail.report import units
from dovetail.report.markup import Markup, element, section, table
from dovetail.report.sheet import Axes, sheet
from dovetail.words import counted

Row = Mapping[str, Any]
AXES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("latency_s", "latency per frame", units.seconds), ("area", "fullest resource of the FPGA", units.percent))
"""What accuracy is drawn over: field, words, unit."""


def front_svg(front: Front) -> str:
    """Points joined by steps (no plan lies below them), each with a bar down to its proven bound and its numbers as title."""
    energies = [p.energy_j for p in front.points]
    values = [v for p in front.points for v in (p.latency_s, p.lower_bound_s)]
    axes = Axes((min(energies), max(energies)), (min(values), max(values)))
    places = [(f"{axes.across(p.energy_j):.1f}", f"{axes.down(p.latency_s):.1f}") for p in front.points]
    parts = [p.area_limit for p in front.points]
    steps = [f"M{x} {y}" if i == 0 or parts[i - 1] != parts[i] else f"H{x}V{y}" for i, (x, y) in enumerate(places)]
    several = "; one line for each limit on area" if len(set(parts)) > 1 else ""
    return sheet(
        f"Latency against energy of {front.model} on {front.platform}", f"{front.model} on {front.platform}",
        f"latency per frame over energy per frame; grey: proven bounds{several}", axes.grid(units.joules, units.seconds),
        element("path", d="".join(steps), class_="front"), [_point(p, axes) for p in front.points]) + "\n"


def _point(point: FrontPoint, axes: Axes) -> Markup:
    within = f"{units.joules(point.limit_j)} and {units.percent(point.area_limit)} of the area"
    label = (f"{units.seconds(point.latency_s)}, {units.joules(point.energy_j)}, {units.percent(point.area)} of the area; no "
             f"plan within {within} is faster than {units.seconds(point.lower_bound_s)}")
    x, y, bound = axes.across(point.energy_j), axes.down(point.latency_s), axes.down(point.lower_bound_s)
    return element("g", element("title", label), element("line", x1=x, x2=x, y1=y, y2=bound, class_="bound"),
                   element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, class_="point"))


def shown_kinds(kinds: Mapping[str, str]) -> str:
    """Layers that are not int8, by kind."""
    rest = [k for k in dict.fromkeys(kinds.values()) if k != "int8"]
    lists = [f"{k}: {', '.join(layer for layer, own in kinds.items() if own == k)}" for k in rest]
    return "; ".join(lists) if lists else "all int8" if kinds else "as it came"


def accuracy_svg(document: Row, field: str, words: str, unit: Callable[[float], str]) -> Markup:
    """Accuracy over one cost; filled: no other point is better in all of accuracy, latency and area."""
    points: Sequence[Row] = document["points"]
    costs, rates = [p[field] for p in points], [p["accuracy"] for p in points]
    axes = Axes((min(costs), max(costs)), (min(rates), max(rates)))
    marks = [element("g", element("title", f"{p['name']}: {units.accuracy(p['accuracy'])}, {unit(p[field])}; "
                                           f"{shown_kinds(p['kinds'])}"),
                     element("circle", cx=f"{axes.across(p[field]):.1f}", cy=f"{axes.down(p['accuracy']):.1f}",
                             r=6 if p["name"] == document["chosen"] else 4, class_="point" if p["best"] else "bound",
                             fill=None if p["best"] else "none")) for p in points]
    return sheet(f"Accuracy over {words}", f"{document['model']} on {document['platform']}",
                 f"accuracy over {words}; hollow: another choice is better; large: chosen",
                 axes.grid(unit, units.accuracy), marks)


def bits_page(document: Row) -> str:
    """The page of a front as `widths.BitFront.document` has it."""
    chose, measured = document["images"]
    points = [(p["name"] + (" (chosen)" if p["name"] == document["chosen"] else ""), units.accuracy(p["accuracy"]),
               units.percent(p["loss"]), units.seconds(p["latency_s"]), units.rate(p["interval_s"]), units.percent(p["area"]),
               "yes" if p["best"] else "no", shown_kinds(p["kinds"])) for p in document["points"]]
    layers = [(s["layer"], s["kind"], units.percent(s["loss"]), units.significant(s["noise"]),
               "does not fit" if s["area"] is None else units.count(round(s["area"]))) for s in document["sensitivities"]]
    title = f"Bits of {document['model']} on {document['platform']}"
    body = [
        element("h1", title),
        element("p", f"Float: {units.accuracy(document['float_accuracy'])}. {counted(chose, 'image')} chose, "
                     f"{counted(measured, 'other')} measured; loss is against int8. "
                     "Latency, frame rate and area are those of each choice's own plan."),
        [accuracy_svg(document, *axis) for axis in AXES],
        section("points", "Choices, measured", table(
            "Every choice was built as integers", ("Choice", "Accuracy", "Loss", "Latency", "Pipelined", "Area", "On the front",
                                                   "Layers"), points, numeric=range(1, 6))),
        section("layers", "Layers by themselves", table(
            "One layer changed, all others int8", ("Layer", "Kind", "Loss", "Noise", "Logic by the model"), layers,
            numeric=range(2, 5)))]
    return plain_page(title, body)


def plain_page(title: str, body: Sequence[object]) -> str:
    """A page without a script, in the report's style."""
    style = (resources.files("dovetail.report") / "page" / "page.css").read_text(encoding="utf-8")
    head = element("head", element("meta", charset="utf-8"), element("title", title), element("style", Markup(style)))
    return "<!doctype html>\n" + element("html", head, element("body", element("main", list(body))), lang="en") + "\n"
