"""The network as a map: stages hold blocks, blocks hold layers; what is too small to read shows as one box of its devices.

Everything is drawn once; `page/map.js` opens and closes groups as the reader zooms. Layers are divided among devices in
proportion to their shares, groups in proportion to time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dovetail.report import units
from dovetail.report.hierarchy import Group, hierarchy, resolution, short_names, within
from dovetail.report.layout import BOX_HEIGHT, BOX_WIDTH, Drawing, Edge, Size, fitted
from dovetail.report.markup import Markup, centred, element, section
from dovetail.report.palette import Report, engine_words, legend, look_of, looks
from dovetail.words import counted

HEAD = 40
"""Height of a layer's text part; the coloured part is below."""
STRIPS = {1: 60.0, 2: 30.0}
"""Height of a group's title by how deep it lies: stages, blocks."""
WIDE, TALL, INNER = 2.6, 0.7, 2.0
"""Width over height of a drawing for screens, for phones, and of a group. Chosen."""
CHARACTER = 7.6
"""Width of a label's character in pixels, on the wide side."""
BUTTONS = (("in", "+", "Zoom in"), ("out", "−", "Zoom out"), ("fit", "⤢", "Show the whole network"))
"""What the map's buttons do, show and say."""


def network(report: Report) -> Markup:
    """Section: the graph, stage by stage."""
    nodes: Sequence[Mapping[str, Any]] = report["nodes"]
    split = sum(len(n["pieces"]) > 1 for n in nodes)
    coloured = "divided among devices, in proportion to the coloured parts"
    divided = "each on one device" if not split else f"1 is {coloured}" if split == 1 else f"{split} are {coloured}"
    note = element("p", f"{counted(len(nodes), 'layer')}; {divided}. Dashed arrows carry data from one device to another. "
                   "Zoom in, or select a stage, to see its blocks and layers; select a layer for its figures.", class_="lede")
    return section("network", "The network on its devices", note, legend(report), network_map(report))


def network_map(report: Report) -> Markup:
    """The map with its buttons and search, and the place where a layer's figures appear."""
    tools = element(
        "div",
        element("label", "Find a layer ", element("input", type="search", class_="find", autocomplete="off", spellcheck="false")),
        element("output", class_="found", aria_live="polite"),
        element("span", [element("button", sign, type="button", data_zoom=act, aria_label=words, title=words)
                         for act, sign, words in BUTTONS], class_="buttons"),
        class_="map-tools", hidden=True)
    card = element("aside", class_="layer-card", aria_label="The selected layer", aria_live="polite", hidden=True)
    return element("div", tools, element("div", _drawing(report), card, class_="map-frame"), class_="map")


def node_details(node: Mapping[str, Any], report: Report | None = None) -> list[tuple[str, str]]:
    """What selecting a layer tells, as label and value."""
    details = [("Operator", f"{node['op']} {node['attributes']}".strip()), ("Output", units.shape(node["shape"])),
               ("Runs on", placement(node))]
    if node.get("latency_s") is not None:
        low, high = node.get("interval_s") or (None, None)
        known = "" if low is None or high is None else f" ({units.seconds(low)} to {units.seconds(high)} at 90 % confidence)"
        whole = report["plan"]["latency_s"] if report else None
        details += [
            ("Adds to latency", units.seconds(node["latency_s"])
             + (f", {units.percent(node['latency_s'] / whole, 2)} of the frame" if whole else "")),
            ("Computing", units.seconds(node["compute_s"]) + known + (", extrapolated" if node.get("extrapolated") else "")),
            ("Transfers", f"{units.seconds(node['transfer_s'])}, {units.size(node['transfer_bytes'])}"),
            ("Energy", units.joules(node["energy_j"])),
        ]
    area = [f"{units.count(round(used))} {name}" for found in (node.get("resources") or {}).values()
            for name, used in found.items() if used >= 0.5]
    details += [("Area", ", ".join(area))] if area else []
    if node.get("beside"):
        details.append(("At the same time as", ", ".join(node["beside"])))
    if node.get("hidden_s"):
        details.append(("Hidden behind branches", units.seconds(node["hidden_s"])))
    if node["macs"]:
        details.append(("Multiply-accumulates", units.quantity(node["macs"])))
    if node.get("why"):
        details.append(("Why", node["why"]))
    return [*details, *([("Source of the cost", node["source"])] if node.get("source") else [])]


def placement(node: Mapping[str, Any]) -> str:
    """Devices and shares in words."""
    pieces = node["pieces"]
    if len(pieces) < 2:
        return "".join(f"{p['device']}{engine_words(p)}" for p in pieces) or "no device"
    total = sum(p["stop"] - p["start"] for p in pieces)
    axis = str(node["axis"] or "parts").replace("_", " ")
    shares = ", ".join(f"{p['device']} {p['stop'] - p['start']} of {total} ({units.percent(p['share'])})" for p in pieces)
    reducer = f"; summed on {node['reducer']}" if node.get("reducer") else ""
    return f"{shares} by {axis}{reducer}"


@dataclass(frozen=True, slots=True)
class _Place:
    """A group laid out: its size, its drawing, and the edges that were drawn between its children."""

    size: Size
    drawing: Drawing
    least: float
    """Width of its narrowest group, or of a layer where it has layers alone."""


@dataclass(frozen=True, slots=True)
class _Map:
    """What is drawn: layers, groups with their places by name, edges by the group they lie in."""

    report: Report
    nodes: Sequence[Mapping[str, Any]]
    short: Sequence[str]
    shown: Mapping[str, str]
    edges: Mapping[Group, Mapping[Edge, bool]]
    places: Mapping[Group, _Place]


def _drawing(report: Report) -> Markup:
    nodes, model = report["nodes"], report["model"]
    root = hierarchy(nodes, model["outputs"])
    edges = _edges(report, root)
    places: dict[Group, _Place] = {}
    ends = {f"i{i}": (BOX_WIDTH, BOX_HEIGHT) for i in range(len(model["inputs"]))}, \
        {f"o{i}": (BOX_WIDTH, BOX_HEIGHT) for i in range(len(model["outputs"]))}
    sizes = {**ends[0], **_sizes(root, edges, places, 1), **ends[1]}
    wide, tall = (fitted(sizes, tuple(edges[root]), aspect) for aspect in (WIDE, TALL))
    drawn = _Map(report, nodes, short_names(nodes), looks(report), edges, places)
    boxes = [_child(drawn, child, root, 1, wide.boxes[_key(child)], tall.boxes[_key(child)]) for child in root.children]
    shapes = {t["name"]: t["shape"] for t in model["tensors"]}
    boxes += [_terminal(kind, tensor, shapes[tensor], wide.boxes[f"{kind[0]}{i}"], tall.boxes[f"{kind[0]}{i}"])
              for kind in ("input", "output") for i, tensor in enumerate(model[f"{kind}s"])]
    arrows = [element("g", _arrows(d, edges[root]), class_=f"edges {name}", aria_hidden="true")
              for name, d in (("wide", wide), ("tall", tall))]
    return element("svg", element("g", arrows, boxes, class_="view"), width="100%", viewBox=f"0 0 {wide.width:g} {wide.height:g}",
                   data_wide=f"{wide.width:g} {wide.height:g}", data_tall=f"{tall.width:g} {tall.height:g}",
                   class_="network", role="group", tabindex="0",
                   aria_label=f"Network of {counted(len(nodes), 'layer')}, coloured by device; arrow keys move, Enter goes in, "
                              "Escape goes out, plus and minus zoom")


def _key(child: Group | int) -> str:
    return f"n{child}" if isinstance(child, int) else f"g{child.members[0]}-{child.members[-1]}"


def _sizes(group: Group, edges: Mapping[Group, Mapping[Edge, bool]], places: dict[Group, _Place], depth: int) -> dict[str, Size]:
    """Sizes of a group's children by their keys; those of groups are laid out into `places` first."""
    found: dict[str, Size] = {}
    for child in group.children:
        if isinstance(child, int):
            found[_key(child)] = (BOX_WIDTH, BOX_HEIGHT)
            continue
        inner = _sizes(child, edges, places, depth + 1)
        drawing = fitted(inner, tuple(edges[child]), INNER)
        found[_key(child)] = size = (drawing.width, drawing.height + STRIPS[depth])
        places[child] = _Place(size, drawing, min([w for key, (w, _) in inner.items() if key[0] == "g"] or [BOX_WIDTH]))
    return found


def _edges(report: Report, root: Group) -> dict[Group, dict[Edge, bool]]:
    """Edges by the least group that holds both ends, between its children; whether they leave a device."""
    nodes, model = report["nodes"], report["model"]
    chains: dict[str, tuple[tuple[Group, str], ...]] = {}

    def descend(group: Group, above: tuple[tuple[Group, str], ...]) -> Iterator[Group]:
        yield group
        for child in group.children:
            here = (*above, (group, _key(child)))
            if isinstance(child, int):
                chains[f"n{child}"] = here
            else:
                yield from descend(child, here)

    found: dict[Group, dict[Edge, bool]] = {group: {} for group in descend(root, ())}
    ends = {f"o{i}": t for i, t in enumerate(model["outputs"])}
    chains |= {end: ((root, end),) for end in (*(f"i{i}" for i in range(len(model["inputs"]))), *ends)}
    producer = {n["output"]: f"n{i}" for i, n in enumerate(nodes)} | {t: f"i{i}" for i, t in enumerate(model["inputs"])}
    lines = [(producer[t], f"n{i}") for i, n in enumerate(nodes) for t in n["inputs"]]
    lines += [(producer[tensor], end) for end, tensor in ends.items()]
    where = {f"n{i}": {p["device"] for p in n["pieces"]} for i, n in enumerate(nodes)}
    host = {report["platform"]["host"]}
    for source, target in lines:
        common = [(a, b) for a, b in zip(chains[source], chains[target], strict=False) if a[0] is b[0]][-1]
        edge = (common[0][1], common[1][1])
        crossing = where.get(source, host) != where.get(target, host)
        found[common[0][0]][edge] = found[common[0][0]].get(edge, False) or crossing
    return found


def _arrows(drawing: Drawing, edges: Mapping[Edge, bool]) -> list[Markup]:
    return [element("path", d=path, class_="edge crossing" if edges[edge] else "edge", marker_end="url(#arrow)")
            for edge, path in drawing.paths.items()]


def _child(drawn: _Map, child: Group | int, parent: Group, depth: int, at: tuple[float, float],
           tall: tuple[float, float] | None = None) -> Markup:
    where = {"transform": f"translate({at[0]:g} {at[1]:g})", "data_wide": f"{at[0]:g} {at[1]:g}" if tall else None,
             "data_tall": f"{tall[0]:g} {tall[1]:g}" if tall else None}
    return _layer(drawn, child, parent, where) if isinstance(child, int) else _group(drawn, child, depth, where)


def _group(drawn: _Map, group: Group, depth: int, where: Mapping[str, str | None]) -> Markup:
    place, strip = drawn.places[group], STRIPS[depth]
    width, height = place.size
    mine = [drawn.nodes[i] for i in group.members]
    spent, whole = sum(n.get("latency_s") or 0.0 for n in mine), drawn.report["plan"]["latency_s"]
    size, layers = resolution(mine[-1]["shape"]), counted(len(mine), "layer")
    time = f"{units.seconds(spent)}, {units.percent(spent / whole, 2)}" if whole else ""
    inner = [element("g", _arrows(place.drawing, drawn.edges[group]), aria_hidden="true"),
             [_child(drawn, c, group, depth + 1, place.drawing.boxes[_key(c)]) for c in group.children]]
    return element(
        "g",
        element("rect", width=f"{width:g}", height=f"{height:g}", rx="10", class_=f"frame depth{depth}"),
        element("g", inner, class_="inner", transform=f"translate(0 {strip:g})"),
        element("g", _shares(drawn, mine, width, height), class_="cover", aria_hidden="true"),
        element("text", group.name, class_="label", data_closed=group.name,
                data_open=" · ".join(filter(None, (group.name, size, layers, time)))),
        element("text", f"{size} · {layers}", class_="sub one", data_closed=f"{size} · {layers}"),
        element("text", time, class_="sub two", data_closed=time),
        **where, class_="group", role="button", tabindex="-1", data_least=f"{place.least:g}", data_w=f"{width:g}",
        data_h=f"{height:g}", data_strip=f"{strip:g}",
        aria_label=f"{group.name}, {size}, {layers}" + (f", {time} of the frame" if time else ""))


def _shares(drawn: _Map, mine: Sequence[Mapping[str, Any]], width: float, height: float) -> list[Markup]:
    """The devices of a group, as wide as the time of its layers there."""
    weights: dict[str, float] = {}
    for node in mine:
        for piece in node["pieces"]:
            look = look_of(piece, drawn.shown)
            weights[look] = weights.get(look, 0.0) + (node.get("latency_s") or 0.0) * piece["share"]
    total = sum(weights.values())
    if not total:
        weights, total = dict.fromkeys(weights, 1.0), float(len(weights) or 1)
    top, inset, left = height * 0.62, 8.0, 8.0
    parts = []
    for look, weight in weights.items():
        own = (width - 2 * inset) * weight / total
        parts.append(element("rect", x=f"{left:.2f}", y=f"{top:.2f}", width=f"{own:.2f}", height=f"{height - top - inset:.2f}",
                             class_=f"fill-{look}"))
        left += own
    return parts


def _layer(drawn: _Map, index: int, parent: Group, where: Mapping[str, str | None]) -> Markup:
    node = drawn.nodes[index]
    spent = node.get("latency_s")
    label = f"{node['name']}: {node['op']}, output {units.shape(node['shape'])}, on {placement(node)}" \
        + (f", adds {units.seconds(spent)}" if spent is not None else "")
    name = within(drawn.short[index], parent.name)
    below = "  ".join(filter(None, (node["op"], units.seconds(spent) if spent is not None else "")))
    return element(
        "a",
        element("rect", width=BOX_WIDTH, height=BOX_HEIGHT, rx="7", class_="card"),
        element("text", name, class_="box-name", data_full=name),
        element("text", below, class_="box-op", data_full=below),
        _parts(node, drawn.shown),
        element("title", node["name"]),
        **where,
        href=f"#layer-{index}",
        class_="box",
        tabindex="-1",
        data_w=BOX_WIDTH,
        data_h=BOX_HEIGHT,
        data_detail=f"n{index}",
        data_node=index,
        aria_label=label,
    )


def _parts(node: Mapping[str, Any], shown: Mapping[str, str]) -> list[Markup]:
    """The coloured part of a box, cut where the shares meet."""
    inset, left = 4.0, 4.0
    full = BOX_WIDTH - 2 * inset
    parts: list[Markup] = []
    for piece in node["pieces"]:
        width = full * piece["share"]
        look = look_of(piece, shown)
        name = f"{piece['device']} array" if piece.get("engine") == "array" else piece["device"]
        words = name if len(node["pieces"]) == 1 else f"{piece['device']} {100 * piece['share']:.3g} %"
        fitting = next((w for w in (words, piece["device"]) if len(w) * CHARACTER + 4 <= width), None)
        parts.append(
            element("rect", x=f"{left:.2f}", y=HEAD, width=f"{width:.2f}", height=BOX_HEIGHT - HEAD - inset, rx="4",
                    class_=f"part fill-{look}", data_device=piece["device"], data_share=f"{piece['share']:.6f}")
        )
        if fitting:
            parts.append(centred(fitting, f"{left + width / 2:.2f}", HEAD + 15.5, f"on-{look} part-name"))
        left += width
    return parts


def _terminal(kind: str, tensor: str, shape: Sequence[int], wide: tuple[float, float], tall: tuple[float, float]) -> Markup:
    words = f"{kind} {tensor}" if tensor != kind else kind
    size = units.shape(shape)
    return element(
        "g",
        element("rect", y="11", width=BOX_WIDTH, height="44", rx="22", class_="terminal"),
        element("text", words, class_="box-name", data_full=words),
        element("text", size, class_="box-op", data_full=size),
        transform=f"translate({wide[0]:g} {wide[1]:g})", data_wide=f"{wide[0]:g} {wide[1]:g}",
        data_tall=f"{tall[0]:g} {tall[1]:g}", class_="end", data_w=BOX_WIDTH, data_h=BOX_HEIGHT,
        role="img",
        aria_label=f"{kind} {tensor}, {size}",
    )
