"""The timeline as a drawing: one band per device and link direction, positions in percent so that it zooms undistorted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dovetail.report import units
from dovetail.report.frames import AXIS, frames_in_flight, time_axis
from dovetail.report.headline import RUNS_IN
from dovetail.report.markup import Markup, centred, element, scroller, section, table
from dovetail.report.palette import Report, looks
from dovetail.report.perfetto import resource_order, tracks
from dovetail.report.verdict import measured_sentence

BAND = 30
"""Height of one track in pixels."""


def timeline(report: Report) -> Markup:
    """Section: who works when."""
    tasks = report["timeline"]["tasks"]
    trace = element(
        "p",
        "The same schedule is in ",
        element("a", element("code", "trace.json"), href="trace.json"),
        " beside this file: open it at ",
        element("a", "ui.perfetto.dev", href="https://ui.perfetto.dev", rel="noreferrer"),
        " to zoom and measure (the file stays on your machine).",
        class_="muted",
    )
    lede = element("p", f"One frame takes {units.seconds(report['timeline']['makespan_s'])} from first to last task. ",
                   *_busy(report), class_="lede")
    zoom = element("label", "Zoom ", element("input", type="range", min="1", max="16", step="1", value="1", id="zoom"),
                   class_="zoom", hidden=True)
    return section(
        "timeline", "Timeline", lede, zoom, _chart(report, tasks), _memory(report["timeline"]["buffers"]),
        trace if report["segments"] else None,
        *frames_in_flight(report), *_measured(report))


def _measured(report: Report) -> list[Markup]:
    """What stages took when the build was run, beside the plan."""
    measured = report["measured"]
    if measured is None:
        return []
    rows = [(s["name"], s["device"], RUNS_IN.get(s["backend"], s["backend"]), units.seconds(s["planned_s"]),
             units.seconds(s["frame_s"]), "" if (clocks := s["clocks"]) is None
             else f"{clocks['one_frame']:,} a frame, {clocks['interval']:,} between frames") for s in measured["stages"]]
    said = measured_sentence(measured)
    columns = ("Stage", "Device", "Ran in", "Planned", "Ran, per frame", "Clocks")
    return [element("p", f"{said[0].upper()}{said[1:]}."), table("Stages as planned and as run here", columns, rows)]


def task_details(task: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What pointing at a task tells."""
    moved = [("Moves", units.size(task["size_bytes"]))] if task["size_bytes"] else []
    return [("Layer", task["node"]), ("Kind", task["kind"]), ("On", task["resource"]),
            ("Starts", units.seconds(task["start_s"])), ("Takes", units.seconds(task["stop_s"] - task["start_s"])),
            *moved]


def _busy(report: Report) -> list[object]:
    """How much of the frame each device works."""
    makespan = report["timeline"]["makespan_s"]
    words = []
    for device in report["platform"]["devices"]:
        spans = sorted((t["start_s"], t["stop_s"]) for t in report["timeline"]["tasks"] if t["resource"] == device["name"])
        busy, reached = 0.0, 0.0
        for start, stop in spans:
            busy += max(0.0, stop - max(start, reached))
            reached = max(reached, stop)
        if spans and makespan:
            words.append(f"{device['name']} {units.percent(busy / makespan)}")
    return [f"Busy: {', '.join(words)}."] if words else []


def _chart(report: Report, tasks: Sequence[Mapping[str, Any]]) -> Markup:
    whole = report["timeline"]["makespan_s"] or 1.0
    shown = looks(report)
    index_of = {n["name"]: i for i, n in enumerate(report["nodes"])}
    names: list[Markup] = []
    drawn: list[Markup] = []
    top = AXIS
    for resource in resource_order([t["resource"] for t in tasks], [d["name"] for d in report["platform"]["devices"]]):
        mine = [(i, t) for i, t in enumerate(tasks) if t["resource"] == resource]
        lanes = tracks([(t["start_s"], t["stop_s"]) for _, t in mine])
        height = BAND * (max(lanes) + 1)
        names.append(element("li", element("span", resource), style=f"height:{height}px"))
        drawn.append(element("rect", y=top, width="100%", height=height, class_="band"))
        drawn += [_task(i, task, whole, top + BAND * lane, shown.get(resource, "link"), index_of.get(task["node"]))
                  for (i, task), lane in zip(mine, lanes, strict=True)]
        top += height
    svg = element("svg", time_axis(whole, top), drawn, width="100%", height=top + 2, class_="gantt", role="group",
                  aria_label="Tasks over time, one band per device and link direction")
    return element("div",
                   element("ul", names, class_="bands", style=f"padding-top:{AXIS}px", aria_label="Devices and links"),
                   scroller("Timeline drawing", element("div", svg, class_="gantt-drawing", id="gantt")), class_="gantt-frame")


def _task(index: int, task: Mapping[str, Any], whole: float, top: float, look: str, node: int | None) -> Markup:
    """A nested svg clips the label to the task; the rectangle's outline keeps the shortest task visible."""
    start, long = 100 * task["start_s"] / whole, 100 * (task["stop_s"] - task["start_s"]) / whole
    takes = units.seconds(task["stop_s"] - task["start_s"])
    return element(
        "a",
        element("rect", x=f"{start:.4f}%", y=top + 4, width=f"{long:.4f}%", height=BAND - 8, class_=f"task fill-{look}"),
        element("line", x1=f"{start:.4f}%", x2=f"{start:.4f}%", y1=top + 3, y2=top + BAND - 3, class_="seam")
        if long > 0.4
        else None,
        element("svg", centred(task["node"], "50%", "15", f"on-{look} part-name"), x=f"{start:.4f}%", y=top + 4,
                width=f"{long:.4f}%", height=BAND - 8),
        href=f"#layer-{node}" if node is not None else None,
        tabindex=None if node is not None else "0",
        data_detail=f"t{index}",
        data_node=node,
        aria_label=f"{task['name']}: {task['kind']} on {task['resource']}, from {units.seconds(task['start_s'])}, takes {takes}",
    )


def _memory(buffers: Sequence[Mapping[str, Any]]) -> Markup | None:
    """The most bytes held at once, per device."""
    peaks: dict[str, float] = {}
    for device in dict.fromkeys(b["device"] for b in buffers):
        mine = [b for b in buffers if b["device"] == device]
        peaks[device] = max(sum(b["size_bytes"] for b in mine if b["start_s"] <= at["start_s"] < b["stop_s"]) for at in mine)
    if not peaks:
        return None
    return element(
        "p", "Most memory held at once for tensors: ", ", ".join(f"{d} {units.size(p)}" for d, p in peaks.items()), ".")
