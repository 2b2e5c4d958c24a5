"""Which colour and pattern stands for which device. Every use also carries the device's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.report.markup import Markup, element, ornament

Report = Mapping[str, Any]

SPARE = ("spare1", "spare2", "spare3")
"""Looks for a second device of a kind."""

STROKES: Mapping[str, str] = {
    "gpu": "M-2 2L2 -2M0 8L8 0M6 10L10 6",
    "fpga": "M2 0V8M0 2H8",
    "array": "M-2 2L2 6L6 2L10 6",
    "spare1": "M0 2H8M0 6H8",
    "spare2": "M2 0V8M6 0V8",
    "spare3": "M0 0L8 8M0 8L8 0",
    "link": "M-2 6L2 10M0 0L8 8M6 -2L10 2",
}
"""Pattern of each look on an 8 by 8 tile; the CPU is plain."""


def looks(report: Report) -> dict[str, str]:
    """Device name to look: the first of a kind takes the kind's, further ones the spares in turn."""
    found: dict[str, str] = {}
    spare = 0
    for device in report["platform"]["devices"]:
        kind = device["kind"]
        if kind in ("cpu", "gpu", "fpga") and kind not in found.values():
            found[device["name"]] = kind
        else:
            found[device["name"]] = SPARE[spare % len(SPARE)]
            spare += 1
    return found


def look_of(piece: Mapping[str, Any], shown: Mapping[str, str]) -> str:
    """The look of a layer's piece: an array that layers share looks other than engines of their own."""
    return "array" if piece.get("engine") == "array" else shown.get(piece["device"], "spare1")


ENGINES: Mapping[str, str] = {"engine": "an engine of its own", "fused": "an engine with its neighbours",
                              "array": "a shared array"}
"""What a layer runs on inside an FPGA."""


def engine_words(piece: Mapping[str, Any]) -> str:
    """The same behind a device's name; nothing for processors."""
    return f", {ENGINES[piece['engine']]}" if piece.get("engine") else ""


def definitions() -> Markup:
    """The patterns and the arrow head, once per page."""
    patterns = [
        element("pattern", element("rect", width="8", height="8", class_=f"ink-{look}"),
                element("path", d=stroke, class_="grain"), id=f"fill-{look}", width="8", height="8",
                patternUnits="userSpaceOnUse")
        for look, stroke in {"cpu": "", **STROKES}.items()
    ]
    arrow = element("marker", element("path", d="M0 0L8 4L0 8Z", class_="arrow"), id="arrow", viewBox="0 0 8 8",
                    refX="7.5", refY="4", markerWidth="9", markerHeight="9", markerUnits="userSpaceOnUse", orient="auto")
    return element(
        "svg", element("defs", patterns, arrow), width="0", height="0", class_="defs", aria_hidden="true", focusable="false")


def swatch(look: str) -> Markup:
    return ornament("swatch", "22", "14", element("rect", width="100%", height="100%", rx="3", class_=f"fill-{look}"))


def legend(report: Report) -> Markup:
    """Device names with their looks."""
    shown, lines = looks(report), list[Markup]()
    used = {(p["device"], look_of(p, shown)): p for n in report["nodes"] for p in n["pieces"]}
    for device in report["platform"]["devices"]:
        name, words = element("strong", device["name"]), element("span", device["description"], class_="muted")
        shared = used.get((device["name"], "array"))
        if shared is None or (device["name"], shown[device["name"]]) in used:
            own = ", dedicated engines" if shared is not None else None
            lines.append(element("li", swatch(shown[device["name"]]), name, " ", words, own))
        if shared is not None:
            lines.append(element("li", swatch("array"), name, " ", words, ", arrays that layers share"))
    return element(
        "ul",
        lines,
        class_="legend",
        aria_label="Devices",
    )


def bar(fraction: float, look: str, parts: Sequence[tuple[str, float]] = ()) -> Markup:
    """A bar as long as `fraction` of its cell, parted where so long parts end; the number stands beside it in text."""
    seams, left = list[Markup](), 0.0
    for words, part in parts:
        seams.append(element("rect", element("title", words), x=f"{100 * left:.3f}%", width=f"{100 * part:.3f}%", height="100%",
                             class_="sector"))
        left += part
        seams.append(element("line", x1=f"{100 * left:.3f}%", x2=f"{100 * left:.3f}%", y1="0", y2="100%", class_="seam"))
    filled = f"{100 * min(1.0, max(0.0, fraction)):.3f}%"
    return ornament("bar", "100%", "14", element("rect", width="100%", height="100%", rx="3", class_="groove"),
                    element("rect", width=filled, height="100%", rx="3", class_=f"fill-{look}"), seams)


def meter(fraction: float, look: str, *words: object, parts: Sequence[tuple[str, float]] = ()) -> Markup:
    """A bar with its number."""
    return element("div", bar(fraction, look, parts), element("span", *words), class_="meter")
