"""The figures of GP partitioning 2023 as drawings that need nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.report.markup import Markup, element

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 60, 56
COLOURS = {"fpga": "#2f5bb7", "gpu": "#2e8b57", "cpu": "#d9822b", "sum": "#b7312f", "other": "#6a4fb0"}
SHADES = ("#b7312f", "#d9822b", "#2e8b57", "#2f5bb7", "#6a4fb0", "#5a6070")
STYLE = """
:root { --paper: #fbfbf9; --ink: #1c1f26; --muted: #5a6070; --line: #dcdee4; }
@media (prefers-color-scheme: dark) { :root { --paper: #14161b; --ink: #e8eaf0; --muted: #a6adbd; --line: #343946; } }
text { font: 13px system-ui, sans-serif; fill: var(--muted); font-variant-numeric: tabular-nums; }
.title { font-size: 16px; fill: var(--ink); } .paper { fill: var(--paper); } .grid { stroke: var(--line); }
"""
Lines = Mapping[str, Sequence[tuple[float, float]]]
"""Name to points."""


def figures(document: Mapping[str, Any]) -> dict[str, str]:
    """File name to drawing: Figures 3, 4, 5, 7, 8 and one of Figure 9 per network and reading."""
    found = {
        "figure_3.svg": _bars("Figure 3: channels of each device over the iterations", document["figure_3_and_4"]),
        "figure_4.svg": lines("Figure 4: latency without penalty, microseconds", {"latency": [
            (i, s["us"]) for i, s in enumerate(document["figure_3_and_4"]["steps"], 1)]}, "iteration"),
        "figure_5.svg": _bars("Figure 5: the same with a CPU", document["figure_5"]),
        "figure_7.svg": lines("Figure 7: S(x) for several kappa", {
            f"kappa {k}": [(i / (len(v) - 1), y) for i, y in enumerate(v)] for k, v in document["figure_7"].items()}, "x"),
        "figure_8.svg": lines("Figure 8: distance of S(x) from a step", {"ours": [
            (float(k), v) for k, v in document["figure_8"].items()], "printed": [
            (float(k), v) for k, v in document["figure_8_printed"].items()]}, "kappa")}
    for n in document["figure_9"]:
        area = "within its area" if n["area_limited"] else "without limits"
        shares: dict[str, list[tuple[float, float]]] = {d: [] for d in ("cpu", "gpu", "fpga")}
        for i, row in enumerate(n["layers"], 1):
            total = sum(row["filters"].values())
            for device, points in shares.items():
                points.append((i, row["filters"].get(device, 0) / total))
        name = f"figure_9_{n['network'].lower()}_{n['fpga']}_{'limited' if n['area_limited'] else 'free'}.svg"
        found[name] = lines(f"Figure 9: {n['network']}, {n['fpga']} FPGA {area}", shares, "layer, share of its filters")
    return found


def _bars(title: str, example: Mapping[str, Any]) -> str:
    """Stacked channels per iteration, and the sum that is to be met."""
    steps, devices = example["steps"], example["devices"]
    top = max(sum(s["channels"]) for s in steps)
    across, down = _Scale(0, len(steps), LEFT, WIDTH - RIGHT), _Scale(0, top, HEIGHT - BOTTOM, TOP)
    drawn = []
    for i, step in enumerate(steps):
        at = 0.0
        for device, count in zip(devices, step["channels"], strict=True):
            drawn.append(element("rect", x=f"{across(i + 0.1):.1f}", y=f"{down(at + count):.1f}",
                                 width=f"{across(0.8) - across(0):.1f}", height=f"{down(at) - down(at + count):.1f}",
                                 fill=COLOURS[device]))
            at += count
    path = "M" + "L".join(f"{across(i + 0.5):.1f} {down(s['sum'] * sum(example['channels'])):.1f}" for i, s in enumerate(steps))
    drawn.append(element("path", d=path, fill="none", stroke=COLOURS["sum"], stroke_width=2))
    keys = [(d.upper(), COLOURS[d]) for d in devices] + [("sum", COLOURS["sum"])]
    return _sheet(title, [*_grid((0.0, float(len(steps))), (0.0, top), across, down, "iteration"), *drawn], keys)


def lines(title: str, shown: Lines, below: str) -> str:
    """Points of several series, each joined by lines, on a linear grid that begins at zero or below."""
    points = [p for line in shown.values() for p in line]
    xs = min(p[0] for p in points), max(p[0] for p in points)
    ys = min(0.0, *(p[1] for p in points)), max(p[1] for p in points)
    across, down = _Scale(*xs, LEFT, WIDTH - RIGHT), _Scale(*ys, HEIGHT - BOTTOM, TOP)
    keys = [(name, COLOURS.get(name, SHADES[i % len(SHADES)])) for i, name in enumerate(shown)]
    drawn = []
    for (_, colour), line in zip(keys, shown.values(), strict=True):
        path = "M" + "L".join(f"{across(x):.1f} {down(y):.1f}" for x, y in line)
        drawn.append(element("path", d=path, fill="none", stroke=colour, stroke_width=2))
        drawn += [element("circle", cx=f"{across(x):.1f}", cy=f"{down(y):.1f}", r=3, fill=colour) for x, y in line]
    return _sheet(title, [*_grid(xs, ys, across, down, below), *drawn], keys)


class _Scale:
    """Values to pixels."""

    def __init__(self, low: float, high: float, start: float, stop: float) -> None:
        self.low, self.factor, self.start = low, (stop - start) / (high - low) if high > low else 0.0, start

    def __call__(self, value: float) -> float:
        return self.start + self.factor * (value - self.low)


def _grid(xs: tuple[float, float], ys: tuple[float, float], across: _Scale, down: _Scale, below: str) -> list[Markup]:
    found = []
    for i in range(5):
        x, y = xs[0] + (xs[1] - xs[0]) * i / 4, ys[0] + (ys[1] - ys[0]) * i / 4
        found += [element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=down(y), y2=down(y), class_="grid"),
                  element("text", f"{y:.3g}", x=LEFT - 8, y=down(y) + 4, text_anchor="end"),
                  element("text", f"{x:.3g}", x=across(x), y=HEIGHT - BOTTOM + 20, text_anchor="middle")]
    return [*found, element("text", below, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 14, text_anchor="middle")]


def _sheet(title: str, drawn: Sequence[Markup], keys: Sequence[tuple[str, str]]) -> str:
    legend = [[element("rect", x=WIDTH - RIGHT + 16, y=TOP + 22 * i, width=12, height=12, fill=colour),
               element("text", name, x=WIDTH - RIGHT + 34, y=TOP + 22 * i + 11)] for i, (name, colour) in enumerate(keys)]
    return str(element(
        "svg", element("title", title), element("style", Markup(STYLE)),
        element("rect", width=WIDTH, height=HEIGHT, class_="paper"),
        element("text", title, x=LEFT, y=30, class_="title"), list(drawn), legend,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH} {HEIGHT}", width=WIDTH, height=HEIGHT, role="img")) + "\n"
