"""The figures of GP partitioning 2023 as drawings that need nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

from dovetail.report.markup import Markup, element
from dovetail.report.sheet import TOP, WIDTH, Axes, sheet

COLOURS = {"fpga": "#2f5bb7", "gpu": "#2e8b57", "cpu": "#d9822b", "sum": "#b7312f", "other": "#6a4fb0",
           "together": "#6a4fb0", "CPU alone": "#8a8f98", "speed-up": "#b7312f"}
DASHED = ("CPU alone",)
"""Series that stand for no plan of ours, as in the paper."""
SHADES = ("#b7312f", "#d9822b", "#2e8b57", "#2f5bb7", "#6a4fb0", "#5a6070", "#1b9aaa", "#c2185b", "#8bc34a", "#a1772b")
LEGEND = 150
"""Pixels of its width."""
Lines = Mapping[str, Sequence[tuple[float, float]]]
"""Name to points."""


def figures(document: Mapping[str, Any]) -> dict[str, str]:
    """File name to drawing: Figures 3, 4, 5, 7, 8, three of Figure 9 per network and reading, solve time and convergence."""
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
        area = {"free": "without limits", "limited": "for each layer", "shared": "for all layers"}[n["area"]]
        shares: dict[str, list[tuple[float, float]]] = {d: [] for d in ("cpu", "gpu", "fpga")}
        for i, row in enumerate(n["layers"], 1):
            total = sum(row["filters"].values())
            for device, points in shares.items():
                points.append((i, row["filters"].get(device, 0) / total))
        name, of = f"figure_9_{n['network'].lower()}_{n['fpga']}_{n['area']}", f"{n['network']}, {n['fpga']} FPGA {area}"
        found[f"{name}.svg"] = lines(f"Figure 9: shares of filters, {of}", shares, "layer")
        found[f"{name}_latency.svg"] = lines(f"Figure 9: milliseconds, {of}", _latencies(n["layers"]), "layer")
        found[f"{name}_speed_up.svg"] = lines(f"Figure 9: speed-up over the CPU, {of}", {"speed-up": [
            (i, row["speed_up"]) for i, row in enumerate(n["layers"], 1)]}, "layer")
    return {**found, **_solving(document)}


def _latencies(layers: Sequence[Mapping[str, Any]]) -> Lines:
    """Milliseconds of every device's share, of all of them one after another, and of the CPU alone."""
    found: dict[str, list[tuple[float, float]]] = {d: [] for d in ("cpu", "gpu", "fpga", "together", "CPU alone")}
    for i, row in enumerate(layers, 1):
        for name, seconds in (*row["device_seconds"].items(), ("together", row["seconds"]["paid"]),
                              ("CPU alone", row["seconds"]["cpu"])):
            found[name].append((i, seconds * 1e3))
    return {name: points for name, points in found.items() if points}


def _solving(document: Mapping[str, Any]) -> dict[str, str]:
    """Convergence of the sums, and how long methods take for chains of growing depth."""
    sums = {f"{n['network']} {n['area']}": list(enumerate(n["smallest_sum"], 1))
            for n in document["figure_9"] if n["fpga"] == "streaming"}
    times: dict[str, list[tuple[float, float]]] = {}
    for row in document["peers"]["growth"]:
        times.setdefault(row["solver"], []).append((row["layers"], log10(max(row["solve_s"] * 1e3, 1e-3))))
    printed = log10(document["peers"]["printed_solve_s"] * 1e3)
    return {"convergence.svg": lines("Smallest sum of a layer's shares, streaming FPGA", sums, "program"),
            "solve_time.svg": lines("log10 of milliseconds of computing per method", {
                **times, "printed, 1 layer": [(min(x for x, _ in next(iter(times.values()))), printed)]}, "layers of a chain")}


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
    for (name, colour), line in zip(keys, shown.values(), strict=True):
        drawn.append(_path(axes, line, colour, name in DASHED))
        drawn += [element("circle", cx=f"{axes.across(x):.1f}", cy=f"{axes.down(y):.1f}", r=3, fill=colour) for x, y in line]
    return _sheet(title, below, axes, drawn, keys)


def _path(axes: Axes, points: Sequence[tuple[float, float]], colour: str, dashed: bool = False) -> Markup:
    path = "M" + "L".join(f"{axes.across(x):.1f} {axes.down(y):.1f}" for x, y in points)
    return element("path", d=path, fill="none", stroke=colour, stroke_width=2, **({"stroke_dasharray": "6 5"} if dashed else {}))


def _sheet(title: str, below: str, axes: Axes, drawn: Sequence[Markup], keys: Sequence[tuple[str, str]]) -> str:
    """The drawing with its grid and legend; `below` says what the axis to the right is."""
    legend = [[element("rect", x=WIDTH - LEGEND + 16, y=TOP + 22 * i, width=12, height=12, fill=colour),
               element("text", name, x=WIDTH - LEGEND + 34, y=TOP + 22 * i + 11)] for i, (name, colour) in enumerate(keys)]
    return sheet(title, title, f"over {below}", axes.grid("{:.3g}".format, "{:.3g}".format), list(drawn), legend) + "\n"
