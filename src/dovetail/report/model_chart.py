"""Device models against measurements: how measured / predicted scatters from small predictions to large, as one SVG."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Any

from dovetail.report import units
from dovetail.report.markup import Markup, element
from dovetail.report.palette import Report

WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 44, 12, 26, 40
LOWEST, HIGHEST = 0.5, 2.0
"""Ratios the vertical axis spans; what lies beyond is drawn at its edge."""
TICKS = (0.5, 0.7, 1.0, 1.4, 2.0)

Band = Sequence[float]


def model_charts(report: Report) -> list[Markup]:
    """One chart per measured quantity of the report's devices; nothing where no device has published rows."""
    return [element("figure", model_chart(f"{device['name']} {entry['quantity']}", entry), class_="model-chart")
            for device in report["platform"]["devices"] for entry in device.get("accuracy") or []]


def model_chart(title: str, entry: dict[str, Any]) -> Markup:
    """Measured over predicted, rows the fit had not seen: the middle as a line, nine of ten rows as a band."""
    bands: Sequence[Band] = entry["bands"]
    scale = _Scale(bands)
    upper = " ".join(f"{scale.x(b[0]):.1f},{scale.y(b[3]):.1f}" for b in bands)
    lower = " ".join(f"{scale.x(b[0]):.1f},{scale.y(b[1]):.1f}" for b in reversed(bands))
    middle = " ".join(f"{scale.x(b[0]):.1f},{scale.y(b[2]):.1f}" for b in bands)
    summary = (f"{title}: {units.count(entry['rows'])} rows, {entry['mean'] * 100:.2g} % off on average, "
               f"{entry['p90'] * 100:.2g} % for nine of ten")
    return element(
        "svg",
        element("title", summary),
        element("text", summary, x=LEFT, y="15", font_size="11", fill="currentColor"),
        _axes(scale, entry["unit"]),
        element("polygon", points=f"{upper} {lower}", fill="#3b7dd8", fill_opacity="0.25", stroke="none"),
        element("polyline", points=middle, fill="none", stroke="#3b7dd8", stroke_width="2"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        height=HEIGHT,
        role="img",
        aria_label=summary,
        font_family="system-ui, sans-serif",
    )


class _Scale:
    """Logarithmic axes: predictions to the right, ratios upwards."""

    def __init__(self, bands: Sequence[Band]) -> None:
        self.first, self.last = floor(log10(min(b[0] for b in bands))), ceil(log10(max(b[0] for b in bands)))
        if self.first == self.last:
            self.last += 1

    def x(self, value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (log10(value) - self.first) / (self.last - self.first)

    def y(self, ratio: float) -> float:
        held = min(max(ratio, LOWEST), HIGHEST)
        return TOP + (HEIGHT - TOP - BOTTOM) * (log10(HIGHEST) - log10(held)) / (log10(HIGHEST) - log10(LOWEST))


def _axes(scale: _Scale, unit: str) -> list[Markup]:
    """Grid lines with their numbers; the line of perfect prediction is solid."""
    found = []
    for ratio in TICKS:
        y = scale.y(ratio)
        found.append(element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}", stroke="currentColor",
                             stroke_opacity="0.8" if ratio == 1.0 else "0.2"))
        found.append(element("text", f"{ratio:g}", x=LEFT - 6, y=f"{y + 4:.1f}", font_size="10", text_anchor="end",
                             fill="currentColor"))
    for power in range(scale.first, scale.last + 1):
        x = scale.x(10.0**power)
        found.append(element("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=TOP, y2=HEIGHT - BOTTOM, stroke="currentColor",
                             stroke_opacity="0.2"))
        found.append(element("text", f"1e{power}" if abs(power) > 3 else f"{10.0**power:g}", x=f"{x:.1f}", y=HEIGHT - BOTTOM + 14,
                             font_size="10", text_anchor="middle", fill="currentColor"))
    found.append(element("text", f"predicted, {unit}; upwards: measured / predicted", x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 8,
                         font_size="10", text_anchor="middle", fill="currentColor"))
    return found
