"""The figures of GP partitioning 2023 as drawings that need nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.report.markup import Markup, element
from dovetail.report.sheet import TOP, WIDTH, Axes, sheet

COLOURS = {"fpga": "#2f5bb7", "gpu": "#2e8b57", "cpu": "#d9822b", "sum": "#b7312f", "other": "#6a4fb0"}
SHADES = ("#b7312f", "#d9822b", "#2e8b57", "#2f5bb7", "#6a4fb0", "#5a6070")
LEGEND = 150
"""Pixels of its width."""
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
        found[name] = lines(f"Figure 9: shares of filters, {n['network']}, {n['fpga']} FPGA {area}", shares, "layer")
    return found


def _bars(title: str, example: Mapping[str, Any]) -> str:
    """Stacked channels per iteration, and the sum that is to be met."""
    steps, devices = example["steps"], example["devices"]
    top = max(sum(s["channels"]) for s in steps)
    axes = Axes((0.0, len(steps)), (0.0, top), LEGEND)
    drawn = []
    for i, step in enumerate(steps):
        at = 0.0
        for device, count in zip(devices, step["channels"], strict=True):
            drawn.append(element("rect", x=f"{axes.across(i + 0.1):.1f}", y=f"{axes.down(at + count):.1f}",
                                 width=f"{axes.across(0.8) - axes.across(0):.1f}",
                                 height=f"{axes.down(at) - axes.down(at + count):.1f}",
                                 fill=COLOURS[device]))
            at += count
    sums = [(i + 0.5, s["sum"] * sum(example["channels"])) for i, s in enumerate(steps)]
    drawn.append(_path(axes, sums, COLOURS["sum"]))
    return _sheet(title, "iteration", axes, drawn, [*((d.upper(), COLOURS[d]) for d in devices), ("sum", COLOURS["sum"])])


def lines(title: str, shown: Lines, below: str) -> str:
    """Points of several series, each joined by lines, on a linear grid that begins at zero or below."""
    points = [p for line in shown.values() for p in line]
    xs = min(p[0] for p in points), max(p[0] for p in points)
    ys = min(0.0, *(p[1] for p in points)), max(p[1] for p in points)
    axes = Axes(xs, ys, LEGEND)
    keys = [(name, COLOURS.get(name, SHADES[i % len(SHADES)])) for i, name in enumerate(shown)]
    drawn = []
    for (_, colour), line in zip(keys, shown.values(), strict=True):
        drawn.append(_path(axes, line, colour))
        drawn += [element("circle", cx=f"{axes.across(x):.1f}", cy=f"{axes.down(y):.1f}", r=3, fill=colour) for x, y in line]
    return _sheet(title, below, axes, drawn, keys)


def _path(axes: Axes, points: Sequence[tuple[float, float]], colour: str) -> Markup:
    path = "M" + "L".join(f"{axes.across(x):.1f} {axes.down(y):.1f}" for x, y in points)
    return element("path", d=path, fill="none", stroke=colour, stroke_width=2)


def _sheet(title: str, below: str, axes: Axes, drawn: Sequence[Markup], keys: Sequence[tuple[str, str]]) -> str:
    """The drawing with its grid and legend; `below` says what the axis to the right is."""
    legend = [[element("rect", x=WIDTH - LEGEND + 16, y=TOP + 22 * i, width=12, height=12, fill=colour),
               element("text", name, x=WIDTH - LEGEND + 34, y=TOP + 22 * i + 11)] for i, (name, colour) in enumerate(keys)]
    return sheet(title, title, f"over {below}", axes.grid("{:.3g}".format, "{:.3g}".format), list(drawn), legend) + "\n"
