"""A front of latency against energy as one drawing that needs nothing else."""

from __future__ import annotations

from dovetail.partition.pareto import Front, FrontPoint
from dovetail.report import units
from dovetail.report.markup import Markup, element
from dovetail.report.sheet import Axes, sheet


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
