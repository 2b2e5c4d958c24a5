"""Bars that compare: resources against their budget, the plan against other plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.report import units
from dovetail.report.headline import synth_command
from dovetail.report.hierarchy import Group, hierarchy
from dovetail.report.markup import Markup, element, not_run, section, table
from dovetail.report.palette import Report, bar, looks, meter
from dovetail.words import counted, plural

BASELINES = {
    "cpu": "cpu alone",
    "gpu": "gpu alone",
    "fpga": "fpga alone",
    "greedy": "greedy, layer by layer",
    "balanced": "balanced, even shares",
    "random": "random, one seeded draw",
}
"""Readable names of the baselines, in the order shown."""


def resources(report: Report) -> Markup:
    """Section: what the plan expects to occupy and what synthesis counted, against the budget."""
    synthesized = _counted(report)
    root = hierarchy(report["nodes"], report["model"]["outputs"])
    tables = [t for d in report["platform"]["devices"] if (t := _device_table(report, d, synthesized, root))]
    if not tables:
        tables = [element("p", "No device of this plan has a limited resource.")]
    missing = None
    if not report["synthesis"] and any(d["kind"] == "fpga" for d in report["platform"]["devices"]):
        missing = not_run("Synthesized counts are missing; the bars show the plan's estimate only.", synth_command(report))
    lede = element("p", "Seams part what stages take; point at one for its figures.", class_="lede") if any(
        n.get("resources") for n in report["nodes"]) else None
    return section("resources", "Resources against budget", lede, tables, missing, _foreign(report))


def _counted(report: Report) -> dict[tuple[str, str], float]:
    """Synthesized counts by device and resource, segments added up; counts for another family are no comparison."""
    families = {d["name"]: d["family"] for d in report["platform"]["devices"]}
    found: dict[tuple[str, str], float] = {}
    for result in report["synthesis"] or ():
        device = result["device"]
        if result["family"] == families.get(device):
            for name, value in result["resources"].items():
                found[device, name] = found.get((device, name), 0) + value
    return found


def _foreign(report: Report) -> Markup | None:
    families = {d["name"]: d["family"] for d in report["platform"]["devices"]}
    other = {r["family"] for r in report["synthesis"] or () if r["family"] != families.get(r["device"])}
    if not other:
        return None
    return element("p", "Synthesized for another family than the board's (", ", ".join(sorted(other)),
                   "), so those counts stand under FPGA designs and are not drawn against this budget.", class_="muted")


def _device_table(report: Report, device: dict[str, Any], synthesized: dict[tuple[str, str], float],
                  root: Group) -> Markup | None:
    name, look = device["name"], looks(report)[device["name"]]
    planned = report["plan"]["resources"].get(name, {})
    kinds = dict.fromkeys([*planned, *device["resources"], *(r for d, r in synthesized if d == name)])
    if not kinds:
        return None
    rows = []
    for kind in kinds:
        used, limit = planned.get(kind, (None, None))
        limit = limit if limit is not None else device["resources"].get(kind)
        parts = _shares(report, root, name, kind)
        rows.append((kind, units.count(limit), _filled(used, limit, look, parts),
                     _filled(synthesized.get((name, kind)), limit, look)))
    return table(f"Resources of {name}" + (f" ({device['family']})" if device["family"] else ""),
                 ("Resource", "Budget", "Plan's estimate", "Synthesized"), rows, numeric=(1,), class_="bars")


def _shares(report: Report, root: Group, device: str, kind: str) -> list[tuple[str, float]]:
    """What stages take of a device's resource."""
    found = []
    for child in root.children:
        members, name = (child.members, child.name) if isinstance(child, Group) else ((child,), report["nodes"][child]["name"])
        used = sum((report["nodes"][i].get("resources") or {}).get(device, {}).get(kind, 0.0) for i in members)
        found += [(name, used)] if used >= 0.5 else []
    return found


def _filled(used: float | None, limit: float | None, look: str, parts: Sequence[tuple[str, float]] = ()) -> Markup:
    if used is None:
        return element("span", "not counted", class_="muted")
    if not limit:
        return element("span", units.count(used if float(used).is_integer() else round(used)))
    over = element("strong", " over budget", class_="flag bad") if used > limit else None
    words = f"{units.count(round(used))} ({units.percent(used / limit)})"
    seams = [(f"{name}: {units.count(round(own))} ({units.percent(own / limit)})", own / limit) for name, own in parts]
    return meter(used / limit, look, words, over, parts=seams)


def baselines(report: Report) -> Markup:
    """Section: this plan among the alternatives and the proven bound."""
    plan = report["plan"]
    goal, ours, found = plan["goal"], plan["objective"], plan["baselines"]
    names = [*BASELINES, *(k for k in found if k not in BASELINES)]
    lines: list[tuple[str, float | None, str]] = [
        (BASELINES.get(k, k), found.get(k), k if k in ("cpu", "gpu", "fpga") else "link") for k in names if k in found]
    pinned = plan["pinned"]
    lines = [(f"{name}, pinned nodes kept" if pinned and look == "link" else name, v, look) for name, v, look in lines]
    lines += [("This plan", ours, "plan"), ("Proven lower bound", plan["lower_bound"], "bound")]
    longest = max((v for _, v, _ in lines if v), default=None)
    rows = []
    for name, value, look in lines:
        drawn = bar(value / longest, look) if value and longest else None
        ratio = f"{units.significant(value / ours)}×" if value and ours else units.ABSENT
        shown = units.objective(value, goal) if value is not None else "not possible"
        rows.append((element("strong", name) if look == "plan" else name, drawn, shown, ratio))
    title = {"latency": "Latency per frame", "energy": "Energy per frame", "edp": "Energy-delay product per frame",
             "throughput": "Interval between pipelined frames"}[goal]
    return section(
        "baselines",
        "Against the alternatives",
        None if found else not_run("No baseline was computed for this plan."),
        table(f"{title}: shorter is better; no plan{' with these pins' if pinned else ''} can be shorter than the bound",
              ("Plan", "", title, "Relative to this plan"), rows, numeric=(2, 3), class_="bars compare"),
        element("p", f"{units.count(pinned)} of {counted(len(report['nodes']), 'node')} "
                f"{plural(pinned, 'is', 'are')} pinned. Devices alone run all of "
                "them themselves; this plan and its bound keep the pins.", class_="muted") if pinned else None,
    )
