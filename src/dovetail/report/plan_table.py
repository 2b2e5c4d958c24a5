"""The plan layer by layer, sortable by every column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from dovetail.report import units
from dovetail.report.hierarchy import Group, hierarchy, short_names, within
from dovetail.report.markup import Markup, breakable, element, scroller, section
from dovetail.report.palette import Report, look_of, looks, swatch
from dovetail.words import counted

COLUMNS = (
    ("Layer", False),
    ("Operator", False),
    ("Output", True),
    ("Device and share", False),
    ("Time", True),
    ("Energy", True),
    ("Area", True),
    ("Computing, 90 % interval", True),
    ("Source", True),
    ("Why here", False),
)
"""Heading, and whether the column sorts by number."""
UNSHOWN = ("register", "ff")
"""Resources that no plan runs out of, as in the terminal."""


def plan_table(report: Report) -> Markup:
    """Section: every layer with its cost and reason."""
    plan, shown = report["plan"], looks(report)
    head = [
        element("th", element("button", name, type="button"), scope="col", class_="num" if number else None, aria_sort="none")
        for name, number in COLUMNS]
    sources = list(dict.fromkeys(n["source"] for n in report["nodes"] if n.get("source")))
    root = hierarchy(report["nodes"], report["model"]["outputs"])
    rows = list(_rows(_Listing(report, shown, sources, short_names(report["nodes"])), root, ()))
    caption = (
        "Cost of each layer inside the plan; time includes the transfers the layer waits for and leaves out what branches beside "
        "it hide, the interval is of computing alone")
    listing = element("table", element("caption", caption), element("thead", element("tr", head)), element("tbody", rows),
                      element("tfoot", _totals(report)), class_="sortable", id="plan-table")
    footnotes = element("ol", [element("li", words, id=f"source-{i}") for i, words in enumerate(sources, 1)], class_="sources")
    lede = element("p", f"Minimises {plan['goal']} with shares of a layer, and branches on different devices, running "
                   f"{'one after another' if plan['mode'] == 'sequential' else 'at once'}; solver {plan['solver']}. "
                   "Select a group to open it, a heading to sort.", class_="lede")
    opener = element("button", "Open all groups", type="button", class_="open-all", hidden=True)
    return section("plan", "The plan, layer by layer", lede, opener, scroller("Plan table", listing), _notes(plan["notes"]),
                   element("details", element("summary", f"{counted(len(sources), 'source')} of these costs"), footnotes))


def _area(node: Mapping[str, Any]) -> list[Markup] | str:
    """What a layer occupies, one line per resource."""
    return _lines({name: used for resources in (node.get("resources") or {}).values() for name, used in resources.items()})


def _lines(area: Mapping[str, float]) -> list[Markup] | str:
    return [element("span", f"{units.count(round(used))} {name}", class_="line") for name, used in area.items()
            if used >= 0.5 and name not in UNSHOWN] or units.ABSENT


def _totals(report: Report) -> list[Markup]:
    """The layers' sum, what the plan adds to it, and the whole."""
    sums = [sum(n[key] for n in report["nodes"] if n.get(key) is not None) for key in ("latency_s", "energy_j")]
    whole = [report["plan"][key] for key in ("latency_s", "energy_j")]
    rest = [w - s for w, s in zip(whole, sums, strict=True)]
    lines = [("All layers", sums), *([("Results to the host", rest)] if rest[0] > 1e-3 * whole[0] else []), ("Whole plan", whole)]
    return [
        element("tr", element("th", name, scope="row", colspan="4"),
                element("td", units.seconds(values[0]), class_="num"), element("td", units.joules(values[1]), class_="num"),
                element("td", colspan="4"))
        for name, values in lines
    ]


def _notes(notes: Sequence[str]) -> Markup | None:
    """What the planner has to say of bounds, cuts and budgets."""
    return element("details", element("summary", counted(len(notes), "note of the planner", "notes of the planner")),
                   element("ul", [element("li", note) for note in notes])) if notes else None


@dataclass(frozen=True, slots=True)
class _Listing:
    """What rows are made of."""

    report: Report
    shown: Mapping[str, str]
    sources: Sequence[str]
    short: Sequence[str]


def _rows(listing: _Listing, group: Group, above: tuple[str, ...]) -> Iterator[Markup]:
    """Rows of a group's children, each group before what is in it."""
    for child in group.children:
        if isinstance(child, int):
            yield _row(listing, child, group, above)
        else:
            name = f"g{child.members[0]}-{child.members[-1]}"
            yield _group_row(listing, child, name, above)
            yield from _rows(listing, child, (*above, name))


def _group_row(listing: _Listing, group: Group, name: str, above: tuple[str, ...]) -> Markup:
    """A stage or block: what its layers take together."""
    mine = [listing.report["nodes"][i] for i in group.members]
    spent, energy = (sum(n.get(key) or 0.0 for n in mine) for key in ("latency_s", "energy_j"))
    whole, area, times = listing.report["plan"]["latency_s"], dict[str, float](), dict[tuple[str, str], float]()
    for node in mine:
        for resources in (node.get("resources") or {}).values():
            area |= {kind: area.get(kind, 0.0) + used for kind, used in resources.items() if used}
        for piece in node["pieces"]:
            key = (piece["device"], look_of(piece, listing.shown))
            times[key] = times.get(key, 0.0) + piece["share"]
    devices = [element("span", swatch(look), element("strong", device, " array" if look == "array" else None), " ",
                       element("span", counted(round(share), "layer") if share >= 1 else "part of a layer", class_="muted"),
                       class_="device") for (device, look), share in times.items()]
    button = element("button", group.name, type="button", aria_expanded="true")
    part = element("span", units.percent(spent / whole, 2), class_="muted line") if whole and spent else None
    return element(
        "tr",
        element("th", button, scope="row", class_=f"level{len(above)}"),
        element("td", counted(len(mine), "layer"), class_="op"),
        _number(units.shape(mine[-1]["shape"]), prod(mine[-1]["shape"])),
        element("td", devices),
        element("td", units.seconds(spent), part, class_="num"),
        _number(units.joules(energy), energy),
        _number(_lines(area), None), element("td"), element("td"), element("td"),
        class_="group-row", data_group=name, data_in=" ".join(above) or None)

def _row(listing: _Listing, index: int, group: Group, above: tuple[str, ...]) -> Markup:
    node, sources = listing.report["nodes"][index], listing.sources
    interval = node.get("interval_s") or [None, None]
    occupied = sum(used for r in (node.get("resources") or {}).values() for used in r.values())
    number = sources.index(node["source"]) + 1 if node.get("source") else None
    span = units.ABSENT if None in interval else f"{units.seconds(interval[0])} – {units.seconds(interval[1])}"
    flag = (element("span", "extrapolated", class_="flag", title="outside the range the cost model was fitted on")
            if node.get("extrapolated") else None)
    return element(
        "tr",
        element("th", breakable(within(listing.short[index], group.name) if above else node["name"]), scope="row",
                class_=f"level{len(above)}", title=node["name"]),
        element("td", node["op"],
                element("span", f" {node['attributes']}", class_="muted") if node["attributes"] else None, class_="op"),
        _number(units.shape(node["shape"]), prod(node["shape"])),
        element("td", _devices(node, listing.shown)),
        _number(units.seconds(node.get("latency_s")), node.get("latency_s")),
        _number(units.joules(node.get("energy_j")), node.get("energy_j")),
        _number(_area(node), occupied),
        element("td", span, element("br") if flag else None, flag, class_="num", data_value=interval[0]),
        _number(_footnote(number) if number else units.ABSENT, number),
        element("td", node.get("why") or units.ABSENT, class_="small why"),
        id=f"layer-{index}",
        data_node=index,
        data_in=" ".join(above) or None,
    )


def _footnote(number: int) -> Markup:
    return element("a", number, href=f"#source-{number}", aria_label=f"source {number}")


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
        array = " array" if piece.get("engine") == "array" else ""
        extent = (
            element("span", f"{axis} {piece['start']} to {piece['stop'] - 1}", class_="muted line") if len(pieces) > 1 else None
        )
        lines.append(
            element("span", swatch(look_of(piece, shown)), element("strong", f"{piece['device']}{array}{share}"),
                    extent, class_="device")
        )
    if node.get("reducer"):
        lines.append(element("span", f"partial sums added on {node['reducer']}", class_="muted device"))
    return lines
