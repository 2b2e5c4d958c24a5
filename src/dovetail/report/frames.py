"""Several frames in flight as a drawing: one band per device and link direction, a bar where a frame keeps it busy."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log10
from typing import Any

from dovetail.report import units
from dovetail.report.markup import Markup, centred, element, scroller
from dovetail.report.palette import Report, looks
from dovetail.report.perfetto import resource_order, tracks
from dovetail.schedule.pipelined import PipelinedFrame
from dovetail.words import counted

BAND, AXIS = 26, 26
"""Heights in pixels of one track and of the time axis above them."""
FEWEST, MOST = 3, 6
"""Frames that are drawn. Chosen: the first fills the pipeline, some follow."""
GAP = 0.01
"""Part of the drawing below which a gap between tasks is not seen."""

Span = tuple[float, float]


def frames_of(frame: PipelinedFrame | None) -> dict[str, Any] | None:
    """What a report holds of frames that follow each other: when one of them keeps what busy."""
    if frame is None:
        return None
    whole = _window(frame.span_s, frame.interval_s)
    busy: dict[str, list[Span]] = {}
    for task in sorted(frame.tasks, key=lambda t: t.start_s):
        spans = busy.setdefault(task.resource, [])
        if spans and task.start_s <= spans[-1][1] + GAP * whole:
            spans[-1] = (spans[-1][0], max(spans[-1][1], task.stop_s))
        elif task.stop_s > task.start_s:
            spans.append((task.start_s, task.stop_s))
    return {"interval_s": frame.interval_s, "span_s": frame.span_s, "in_flight": frame.in_flight,
            "busy": {name: spans for name, spans in busy.items() if spans}}


def _drawn(span_s: float, interval_s: float) -> int:
    return min(MOST, max(FEWEST, round(span_s / interval_s) + 1))


def _window(span_s: float, interval_s: float) -> float:
    return span_s + (_drawn(span_s, interval_s) - 1) * interval_s


def frames_in_flight(report: Report) -> list[Markup]:
    """Heading, what it says, and the drawing; nothing for plans that have no pace."""
    known = report.get("pipelined")
    if not known or not known["busy"]:
        return []
    said = (f"A frame begins every {units.seconds(known['interval_s'])} and takes {units.seconds(known['span_s'])} on its way "
            f"among others; up to {counted(known['in_flight'], 'frame')} {'is' if known['in_flight'] == 1 else 'are'} under way. "
            "Each resource serves one frame at a time; an FPGA has an engine per layer, so it may hold several.")
    return [element("h3", "Frames in flight"), element("p", said, class_="lede"), _drawing(report, known)]


def _drawing(report: Report, known: dict[str, Any]) -> Markup:
    interval, count = known["interval_s"], _drawn(known["span_s"], known["interval_s"])
    whole, shown = _window(known["span_s"], interval), looks(report)
    names: list[Markup] = []
    bars: list[Markup] = []
    top = AXIS
    for resource in resource_order(list(known["busy"]), [d["name"] for d in report["platform"]["devices"]]):
        every = [(number, (start + number * interval, stop + number * interval))
                 for number in range(count) for start, stop in known["busy"][resource]]
        lanes = tracks([span for _, span in every])
        height = BAND * (max(lanes) + 1)
        names.append(element("li", element("span", resource), style=f"height:{height}px"))
        bars.append(element("rect", y=top, width="100%", height=height, class_="band"))
        bars += [_bar(number, span, whole, top + BAND * lane, shown.get(resource, "link"), resource)
                 for (number, span), lane in zip(every, lanes, strict=True)]
        top += height
    svg = element("svg", time_axis(whole, top), bars, width="100%", height=top + 2, class_="gantt", role="img",
                  aria_label=_said(count, known))
    return element("div", element("ul", names, class_="bands", style=f"padding-top:{AXIS}px", aria_label="Devices and links"),
                   scroller("Frames in flight", element("div", svg, class_="gantt-drawing")), class_="gantt-frame", id="frames")


def _said(count: int, known: dict[str, Any]) -> str:
    first: Sequence[Span] = next(iter(known["busy"].values()))
    return (f"{counted(count, 'frame')}, each {units.seconds(known['interval_s'])} after the one before; the first begins at "
            f"{units.seconds(first[0][0]) if first[0][0] else '0'} and ends at {units.seconds(known['span_s'])}")


def _bar(number: int, span: Span, whole: float, top: float, look: str, resource: str) -> Markup:
    start, long = 100 * span[0] / whole, 100 * (span[1] - span[0]) / whole
    return element(
        "g", element("title", f"frame {number + 1} on {resource}: from {units.seconds(span[0])}, for "
                              f"{units.seconds(span[1] - span[0])}"),
        element("rect", x=f"{start:.3f}%", y=top + 3, width=f"{long:.3f}%", height=BAND - 6,
                class_=f"frame-bar fill-{look}" + (" other" if number % 2 else "")),
        element("svg", centred(f"frame {number + 1}", "50%", "14", f"on-{look} part-name"), x=f"{start:.3f}%", y=top + 3,
                width=f"{long:.3f}%", height=BAND - 6))


def time_axis(whole: float, bottom: float) -> list[Markup]:
    """Marks at round times from the top to the bottom of a drawing."""
    rough = whole / 6
    power = 10.0 ** floor(log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough)
    marks: list[Markup] = []
    for i in range(int(whole / step) + 1):
        at = 100 * i * step / whole
        anchor = "start" if i == 0 else "end" if at > 96 else "middle"
        marks += [
            element("line", x1=f"{at:.4f}%", x2=f"{at:.4f}%", y1=AXIS - 6, y2=bottom, class_="tick"),
            element(
                "text", units.seconds(i * step) if i else "0", x=f"{at:.4f}%", y=AXIS - 11, text_anchor=anchor, class_="tick-name"
            ),
        ]
    return marks
