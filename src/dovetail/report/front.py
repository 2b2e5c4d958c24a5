"""A front of latency against energy as one drawing that needs nothing else."""

from __future__ import annotations

from dovetail.partition.pareto import Front, FrontPoint
from dovetail.report import units
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


def front_svg(front: Front) -> str:
    """Points joined by steps (no plan lies below them), each with a bar down to its proven bound and its numbers as title."""
    energies = [p.energy_j for p in front.points]
    values = [v for p in front.points for v in (p.latency_s, p.lower_bound_s)]
    across = PixelScale(min(energies), max(energies), LEFT, WIDTH - RIGHT)
    down = PixelScale(min(values), max(values), HEIGHT - BOTTOM, TOP)
    places = [(f"{across(p.energy_j):.1f}", f"{down(p.latency_s):.1f}") for p in front.points]
    parts = [p.area_limit for p in front.points]
    steps = [f"M{x} {y}" if i == 0 or parts[i - 1] != parts[i] else f"H{x}V{y}" for i, (x, y) in enumerate(places)]
    drawing = element(
        "svg",
        element("title", f"Latency against energy of {front.model} on {front.platform}"),
        element("style", Markup(STYLE)),
        element("rect", width=WIDTH, height=HEIGHT, class_="paper"),
        element("text", f"{front.model} on {front.platform}", x=LEFT, y=30, class_="title"),
        element("text", "latency per frame over energy per frame; grey: proven bounds"
                + ("; one line for each limit on area" if len(set(parts)) > 1 else ""), x=LEFT, y=50),
        _ticks(min(energies), max(energies), across, True),
        _ticks(min(values), max(values), down, False),
        element("path", d="".join(steps), class_="front"),
        [_point(p, across(p.energy_j), down(p.latency_s), down(p.lower_bound_s)) for p in front.points],
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {HEIGHT}", width=WIDTH, height=HEIGHT, role="img",
    )
    return str(drawing) + "\n"


class PixelScale:
    """Values to pixels, linear; a single value lies in the middle."""

    def __init__(self, low: float, high: float, start: float, stop: float) -> None:
        self.low, self.span, self.start, self.stop = low, high - low, start, stop

    def __call__(self, value: float) -> float:
        return self.start + (self.stop - self.start) * ((value - self.low) / self.span if self.span > 0 else 0.5)


def _ticks(low: float, high: float, at: PixelScale, energy: bool) -> list[Markup]:
    found = []
    for i in range(TICKS):
        value = low + (high - low) * i / (TICKS - 1)
        place, label = at(value), (units.joules if energy else units.seconds)(value)
        if energy:
            found += [element("line", x1=place, x2=place, y1=TOP, y2=HEIGHT - BOTTOM, class_="grid"),
                      element("text", label, x=place, y=HEIGHT - BOTTOM + 22, text_anchor="middle")]
        else:
            found += [element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=place, y2=place, class_="grid"),
                      element("text", label, x=LEFT - 10, y=place + 4, text_anchor="end")]
    return found


def _point(point: FrontPoint, x: float, y: float, bound: float) -> Markup:
    within = f"{units.joules(point.limit_j)} and {units.percent(point.area_limit)} of the area"
    label = (f"{units.seconds(point.latency_s)}, {units.joules(point.energy_j)}, {units.percent(point.area)} of the area; no "
             f"plan within {within} is faster than {units.seconds(point.lower_bound_s)}")
    return element("g", element("title", label), element("line", x1=x, x2=x, y1=y, y2=bound, class_="bound"),
                   element("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=4, class_="point"))
