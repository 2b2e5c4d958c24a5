"""Drawings of Heterogeneity 2021: points of modules (Figure 4) and bars of single layers (Figure 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dovetail.report.markup import Markup, element
from dovetail.report.sheet import HEIGHT, TOP, WIDTH, Axes, sheet

COLOURS = {"GPU": "#2e8b57", "GPU alone": "#2e8b57", "FPGA": "#2f5bb7", "by hand": "#2f5bb7", "optimum": "#d9822b"}
"""Green and blue as in the paper."""
LEGEND = 170
"""Pixels of its width."""


class Point(NamedTuple):
    """A point and what it stands for."""

    x: float
    y: float
    name: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar: outlined only where its value is outside the measured range, crossed out where its hardware does not fit."""

    device: str
    value: float
    outside: bool
    fits: bool = True


def scatter(title: str, shown: Mapping[str, Sequence[Point]], across: str, up: str) -> str:
    """Points of several series; a point's name shows where the pointer rests on it."""
    xs, ys = zip(*((p.x, p.y) for line in shown.values() for p in line), strict=True)
    axes = Axes((min(xs), max(xs)), (min(ys), max(ys)), LEGEND)
    drawn = [element("circle", element("title", f"{p.name}, {name}"), cx=f"{axes.across(p.x):.1f}", cy=f"{axes.down(p.y):.1f}",
                     r=4, fill=COLOURS[name], fill_opacity="0.75") for name, line in shown.items() for p in line]
    legend = [_key(i, name, element("circle", cx=WIDTH - LEGEND + 22, cy=TOP + 22 * i + 6, r=5, fill=COLOURS[name]))
              for i, name in enumerate(shown)]
    grid = axes.grid("{:.2g}".format, "{:.2g}".format)
    return sheet(title, title, f"{across} to the right, {up} upwards", grid, drawn, legend) + "\n"


def bars(title: str, groups: Mapping[str, Sequence[Bar]], up: str) -> str:
    """Groups of bars from the least value upwards."""
    values = [b.value for group in groups.values() for b in group]
    low = min(values) - (max(values) - min(values)) / 20
    axes, drawn, width = Axes((0.0, float(len(groups))), (low, max(values)), LEGEND), list[Markup](), 0.8
    for i, (name, group) in enumerate(groups.items()):
        drawn.append(element("text", name, x=f"{axes.across(i + 0.5):.1f}", y=HEIGHT - 38, text_anchor="middle"))
        for k, bar in enumerate(group):
            left, right = (axes.across(i + 0.1 + width * (k + j) / len(group)) for j in (0.05, 0.95))
            top = axes.down(bar.value)
            drawn.append(_box(left, top, right - left, axes.down(low) - top, bar.device, bar.outside))
            if not bar.fits:
                drawn.append(element("path", d=f"M{left:.1f} {top - 8:.1f}L{right:.1f} {top - 2:.1f}M{left:.1f} {top - 2:.1f}"
                                     f"L{right:.1f} {top - 8:.1f}", stroke="#b7312f", stroke_width=2, class_="nofit"))
    keys = [*((device, device, False) for device in ("GPU", "FPGA")), ("outside measured range", "GPU", True)]
    legend = [_key(i, name, _box(WIDTH - LEGEND + 12, TOP + 22 * i, 12, 12, device, outside))
              for i, (name, device, outside) in enumerate(keys)]
    cross = element("text", "× does not fit", x=WIDTH - LEGEND + 12, y=TOP + 22 * len(keys) + 11)
    grid = axes.grid(lambda _: "", "{:.2g}".format)
    return sheet(title, title, up, grid, drawn, legend, cross) + "\n"


def _key(place: int, name: str, mark: Markup) -> list[Markup]:
    return [mark, element("text", name, x=WIDTH - LEGEND + 34, y=TOP + 22 * place + 11)]


def _box(x: float, y: float, width: float, height: float, device: str, outside: bool) -> Markup:
    """Filled where the value is within what was measured, dashed outline where it is not."""
    look = {"fill_opacity": "0.2", "stroke": COLOURS[device], "stroke_dasharray": "3 2"} if outside else {}
    return element("rect", x=f"{x:.1f}", y=f"{y:.1f}", width=f"{width:.1f}", height=f"{max(0.0, height):.1f}",
                   fill=COLOURS[device], class_="outside" if outside else "inside", **look)
