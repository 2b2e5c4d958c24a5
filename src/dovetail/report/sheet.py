"""A drawing that needs nothing else: a sheet with a title, and linear axes with a grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dovetail.report.markup import Markup, element

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 84, 24, 64, 60
TICKS = 5
STYLE = """
:root { --paper: #fbfbf9; --ink: #1c1f26; --muted: #5a6070; --line: #dcdee4; --accent: #2f5bb7; --bound: #9aa0ae; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14161b; --ink: #e8eaf0; --muted: #a6adbd; --line: #343946; --accent: #8fb4ff; --bound: #6f7789; }
}
text { font: 13px system-ui, sans-serif; fill: var(--muted); font-variant-numeric: tabular-nums; }
.title { font-size: 17px; fill: var(--ink); } .paper { fill: var(--paper); } .grid { stroke: var(--line); }
.front { fill: none; stroke: var(--accent); stroke-width: 2; } .point { fill: var(--accent); } .bound { stroke: var(--bound); }
"""
Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axes:
    """Pixels of values between a least and a largest one, to the right and upwards; a single value lies in the middle."""

    xs: Range
    ys: Range
    right: int = RIGHT
    """Pixels beside them, where a legend may stand."""

    def across(self, value: float) -> float:
        return LEFT + (WIDTH - self.right - LEFT) * _part(value, self.xs)

    def down(self, value: float) -> float:
        return HEIGHT - BOTTOM + (TOP - (HEIGHT - BOTTOM)) * _part(value, self.ys)

    def grid(self, x_label: Callable[[float], str], y_label: Callable[[float], str]) -> list[Markup]:
        """Lines at round parts of both axes, and the values there."""
        found = []
        for i in range(TICKS):
            x, y = (low + (high - low) * i / (TICKS - 1) for low, high in (self.xs, self.ys))
            found += [element("line", x1=self.across(x), x2=self.across(x), y1=TOP, y2=HEIGHT - BOTTOM, class_="grid"),
                      element("text", x_label(x), x=self.across(x), y=HEIGHT - BOTTOM + 22, text_anchor="middle"),
                      element("line", x1=LEFT, x2=WIDTH - self.right, y1=self.down(y), y2=self.down(y), class_="grid"),
                      element("text", y_label(y), x=LEFT - 10, y=self.down(y) + 4, text_anchor="end")]
        return found


def _part(value: float, between: Range) -> float:
    low, high = between
    return (value - low) / (high - low) if high > low else 0.5


def sheet(title: str, heading: str, line: str, *children: object) -> Markup:
    """The whole drawing; `heading` and `line` stand above it."""
    return element(
        "svg", element("title", title), element("style", Markup(STYLE)),
        element("rect", width=WIDTH, height=HEIGHT, class_="paper"), element("text", heading, x=LEFT, y=30, class_="title"),
        element("text", line, x=LEFT, y=50), *children,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {HEIGHT}", width=WIDTH, height=HEIGHT, role="img")
