"""Which colour and pattern stands for which device. Every use also carries the device's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.report.markup import Markup, element, ornament

Report = Mapping[str, Any]

SPARE = ("spare1", "spare2", "spare3")
"""Looks for a second device of a kind."""

STROKES: Mapping[str, str] = {
    "gpu": "M-2 2L2 -2M0 8L8 0M6 10L10 6",
    "fpga": "M2 0V8M0 2H8",
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
    shown = looks(report)
    return element(
        "ul",
        [
            element("li", swatch(shown[d["name"]]), element("strong", d["name"]), " ",
                    element("span", d["description"], class_="muted"))
            for d in report["platform"]["devices"]
        ],
        class_="legend",
        aria_label="Devices",
    )


def bar(fraction: float, look: str) -> Markup:
    """A bar as long as `fraction` of its cell; the number stands beside it in text."""
    filled = f"{100 * min(1.0, max(0.0, fraction)):.3f}%"
    return ornament("bar", "100%", "14", element("rect", width="100%", height="100%", rx="3", class_="groove"),
                    element("rect", width=filled, height="100%", rx="3", class_=f"fill-{look}"))


def meter(fraction: float, look: str, *words: object) -> Markup:
    """A bar with its number."""
    return element("div", bar(fraction, look), element("span", *words), class_="meter")
