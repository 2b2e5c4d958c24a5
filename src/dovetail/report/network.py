"""The network as a drawing: boxes divided among devices in proportion to their shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.report import units
from dovetail.report.layout import BOX_HEIGHT, BOX_WIDTH, Point, arrange
from dovetail.report.markup import Markup, centred, element, scroller, section
from dovetail.report.palette import Report, legend, looks
from dovetail.words import counted, shortened

HEAD = 42
"""Height of a box's text part; the coloured part is below."""
CHARACTER = 7.6
"""Width of a label's character in pixels, on the wide side."""


def network(report: Report) -> Markup:
    """Section: the graph, layer by layer."""
    nodes: Sequence[Mapping[str, Any]] = report["nodes"]
    split = sum(len(n["pieces"]) > 1 for n in nodes)
    coloured = "divided among devices, in proportion to the coloured parts"
    divided = "each on one device" if not split else f"1 is {coloured}" if split == 1 else f"{split} are {coloured}"
    note = element("p", f"{counted(len(nodes), 'layer')}; {divided}. "
                   "Dashed arrows carry data from one device to another. Point at a layer, or reach it with the Tab key, "
                   "for its figures; follow it to its row in the table.", class_="lede")
    return section(
        "network", "The network on its devices", note, legend(report), scroller("Network drawing", _drawing(report, nodes)))


def node_details(node: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What pointing at a layer tells, as label and value."""
    details = [("Operator", f"{node['op']} {node['attributes']}".strip()), ("Output", units.shape(node["shape"])),
               ("Runs on", placement(node))]
    if node.get("latency_s") is not None:
        details += [
            ("Adds to latency", units.seconds(node["latency_s"])),
            ("Computing", units.seconds(node["compute_s"])),
            ("Transfers", f"{units.seconds(node['transfer_s'])}, {units.size(node['transfer_bytes'])}"),
            ("Energy", units.joules(node["energy_j"])),
        ]
    if node.get("beside"):
        details.append(("At the same time as", ", ".join(node["beside"])))
    if node.get("hidden_s"):
        details.append(("Hidden behind branches", units.seconds(node["hidden_s"])))
    if node["macs"]:
        details.append(("Multiply-accumulates", units.quantity(node["macs"])))
    if node.get("why"):
        details.append(("Why", node["why"]))
    return details


def placement(node: Mapping[str, Any]) -> str:
    """Devices and shares in words."""
    pieces = node["pieces"]
    if len(pieces) < 2:
        return pieces[0]["device"] if pieces else "no device"
    total = sum(p["stop"] - p["start"] for p in pieces)
    axis = str(node["axis"] or "parts").replace("_", " ")
    shares = ", ".join(f"{p['device']} {p['stop'] - p['start']} of {total} ({units.percent(p['share'])})" for p in pieces)
    reducer = f"; summed on {node['reducer']}" if node.get("reducer") else ""
    return f"{shares} by {axis}{reducer}"


def _drawing(report: Report, nodes: Sequence[Mapping[str, Any]]) -> Markup:
    model, shapes = report["model"], {t["name"]: t["shape"] for t in report["model"]["tensors"]}
    producer = {n["output"]: f"n{i}" for i, n in enumerate(nodes)} | {t: f"i{i}" for i, t in enumerate(model["inputs"])}
    ends = {f"o{i}": t for i, t in enumerate(model["outputs"])}
    edges = [(producer[t], f"n{i}") for i, n in enumerate(nodes) for t in n["inputs"]]
    edges += [(producer[tensor], end) for end, tensor in ends.items()]
    names = [*(f"i{i}" for i in range(len(model["inputs"]))), *(f"n{i}" for i in range(len(nodes))), *ends]
    drawing = arrange(names, edges)
    where = {f"n{i}": {p["device"] for p in n["pieces"]} for i, n in enumerate(nodes)}
    host = {report["platform"]["host"]}
    lines = [
        element("path", d=path, class_="edge" if where.get(a, host) == where.get(b, host) else "edge crossing",
                marker_end="url(#arrow)")
        for (a, b), path in drawing.paths.items()
    ]
    shown = looks(report)
    boxes = [_box(i, node, drawing.boxes[f"n{i}"], shown) for i, node in enumerate(nodes)]
    boxes += [_terminal("input", t, shapes[t], drawing.boxes[f"i{i}"]) for i, t in enumerate(model["inputs"])]
    boxes += [_terminal("output", t, shapes[t], drawing.boxes[end]) for end, t in ends.items()]
    return element("svg", element("g", lines, aria_hidden="true"), boxes, width=f"{drawing.width:g}",
                   height=f"{drawing.height:g}", viewBox=f"0 0 {drawing.width:g} {drawing.height:g}", class_="network",
                   role="group", aria_label=f"Network of {counted(len(nodes), 'layer')}, coloured by device")


def _box(index: int, node: Mapping[str, Any], at: Point, shown: Mapping[str, str]) -> Markup:
    x, y = at
    label = f"{node['name']}: {node['op']}, output {units.shape(node['shape'])}, on {placement(node)}"
    caption = None
    if len(node["pieces"]) > 1:
        parts = " + ".join(str(p["stop"] - p["start"]) for p in node["pieces"])
        words = f"{parts} {str(node['axis']).replace('_', ' ')}"
        caption = centred(words, f"{BOX_WIDTH / 2:g}", BOX_HEIGHT + 13, "split-note")
    return element(
        "a",
        element(
            "g",
            element("rect", width=BOX_WIDTH, height=BOX_HEIGHT, rx="8", class_="card"),
            element("text", shortened(node["name"], 22), x="10", y="17", class_="box-name"),
            element("text", shortened(f"{node['op']}  {units.shape(node['shape'][1:])}", 25), x="10", y="33", class_="box-op"),
            _parts(node, shown),
            caption,
            transform=f"translate({x:g} {y:g})",
        ),
        href=f"#layer-{index}",
        class_="box",
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
        look = shown.get(piece["device"], "spare1")
        words = piece["device"] if len(node["pieces"]) == 1 else f"{piece['device']} {100 * piece['share']:.3g} %"
        fitting = next((w for w in (words, piece["device"]) if len(w) * CHARACTER + 4 <= width), None)
        parts.append(
            element("rect", x=f"{left:.2f}", y=HEAD, width=f"{width:.2f}", height=BOX_HEIGHT - HEAD - inset, rx="4",
                    class_=f"part fill-{look}", data_device=piece["device"], data_share=f"{piece['share']:.6f}")
        )
        if fitting:
            parts.append(centred(fitting, f"{left + width / 2:.2f}", HEAD + 18.5, f"on-{look} part-name"))
        left += width
    return parts


def _terminal(kind: str, tensor: str, shape: Sequence[int], at: Point) -> Markup:
    middle, words = f"{BOX_WIDTH / 2:g}", f"{kind} {tensor}" if tensor != kind else kind
    return element(
        "g",
        element("rect", y="15", width=BOX_WIDTH, height="44", rx="22", class_="terminal"),
        centred(shortened(words, 22), middle, "34", "box-name"),
        centred(units.shape(shape), middle, "49", "box-op"),
        transform=f"translate({at[0]:g} {at[1]:g})",
        role="img",
        aria_label=f"{kind} {tensor}, {units.shape(shape)}",
    )
