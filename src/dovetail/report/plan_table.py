"""The plan layer by layer, sortable by every column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from dovetail.report import units
from dovetail.report.markup import Markup, breakable, element, scroller, section
from dovetail.report.palette import Report, looks, swatch

COLUMNS = (
    ("Layer", False),
    ("Operator", False),
    ("Output", True),
    ("Device and share", False),
    ("ms", True),
    ("mJ", True),
    ("Area", True),
    ("Compute ms, 90 % interval", True),
    ("Source", True),
    ("Why here", False),
)
"""Heading, and whether the column sorts by number."""


def plan_table(report: Report) -> Markup:
    """Section: every layer with its cost and reason."""
    plan, shown = report["plan"], looks(report)
    head = [
        element("th", element("button", name, type="button"), scope="col", class_="num" if number else None, aria_sort="none")
        for name, number in COLUMNS]
    sources = list(dict.fromkeys(n["source"] for n in report["nodes"] if n.get("source")))
    rows = [_row(i, node, shown, sources) for i, node in enumerate(report["nodes"])]
    caption = (
        "Cost of each layer inside the plan; ms includes the transfers the layer waits for and leaves out what branches beside "
        "it hide, the interval is of computing alone")
    listing = element("table", element("caption", caption), element("thead", element("tr", head)), element("tbody", rows),
                      element("tfoot", _totals(report)), class_="sortable", id="plan-table")
    notes = [element("p", note, class_="muted") for note in plan["notes"]]
    footnotes = element("ol", [element("li", words, id=f"source-{i}") for i, words in enumerate(sources, 1)], class_="sources")
    lede = element("p", f"Minimises {plan['goal']} with shares of a layer, and branches on different devices, running "
                   f"{'one after another' if plan['mode'] == 'sequential' else 'at once'}; solver {plan['solver']}. "
                   "Select a heading to sort.", class_="lede")
    return section("plan", "The plan, layer by layer", lede, notes, scroller("Plan table", listing),
                   element("h3", "Sources of these costs"), footnotes)


def _area(node: Mapping[str, Any]) -> list[Markup] | str:
    """What a layer occupies, one line per resource."""
    return [element("span", f"{units.count(round(used))} {name}", class_="line")
            for resources in (node.get("resources") or {}).values() for name, used in resources.items()
            if used] or units.ABSENT


def _totals(report: Report) -> list[Markup]:
    """The layers' sum, what the plan adds to it, and the whole."""
    sums = [sum(n[key] for n in report["nodes"] if n.get(key) is not None) for key in ("latency_s", "energy_j")]
    whole = [report["plan"][key] for key in ("latency_s", "energy_j")]
    rest = [w - s for w, s in zip(whole, sums, strict=True)]
    lines = [("All layers", sums), *([("Results to the host", rest)] if rest[0] > 1e-3 * whole[0] else []), ("Whole plan", whole)]
    return [
        element("tr", element("th", name, scope="row", colspan="4"),
                [element("td", units.millis(value), class_="num") for value in values], element("td", colspan="4"))
        for name, values in lines
    ]


def _row(index: int, node: Mapping[str, Any], shown: Mapping[str, str], sources: Sequence[str]) -> Markup:
    interval = node.get("interval_s") or [None, None]
    occupied = sum(used for r in (node.get("resources") or {}).values() for used in r.values())
    number = sources.index(node["source"]) + 1 if node.get("source") else None
    span = units.ABSENT if None in interval else f"{units.millis(interval[0])} – {units.millis(interval[1])}"
    flag = (element("span", "extrapolated", class_="flag", title="outside the range the cost model was fitted on")
            if node.get("extrapolated") else None)
    return element(
        "tr",
        element("th", breakable(node["name"]), scope="row"),
        element("td", node["op"],
                element("span", f" {node['attributes']}", class_="muted") if node["attributes"] else None, class_="op"),
        _number(units.shape(node["shape"]), prod(node["shape"])),
        element("td", _devices(node, shown)),
        _number(units.millis(node.get("latency_s")), node.get("latency_s")),
        _number(units.millis(node.get("energy_j")), node.get("energy_j")),
        _number(_area(node), occupied),
        element("td", span, element("br") if flag else None, flag, class_="num", data_value=interval[0]),
        _number(_footnote(number, node["source"]) if number else units.ABSENT, number),
        element("td", node.get("why") or units.ABSENT, class_="small why"),
        id=f"layer-{index}",
        data_node=index,
    )


def _footnote(number: int, words: str) -> Markup:
    return element("a", number, href=f"#source-{number}", title=words, aria_label=f"source {number}")


def _number(words: object, value: float | None) -> Markup:
    return element("td", words, class_="num", data_value=value)


def _devices(node: Mapping[str, Any], shown: Mapping[str, str]) -> list[Markup]:
    """One line per device with its share."""
    pieces = node["pieces"]
    if not pieces:
        return [element("span", "no device")]
    axis = str(node["axis"] or "").replace("_", " ")
    lines = []
    for piece in pieces:
        share = f" {units.percent(piece['share'])}" if len(pieces) > 1 else ""
        extent = (
            element("span", f"{axis} {piece['start']} to {piece['stop'] - 1}", class_="muted line") if len(pieces) > 1 else None
        )
        lines.append(
            element("span", swatch(shown.get(piece["device"], "spare1")), element("strong", f"{piece['device']}{share}"),
                    extent, class_="device")
        )
    if node.get("reducer"):
        lines.append(element("span", f"partial sums added on {node['reducer']}", class_="muted device"))
    return lines
