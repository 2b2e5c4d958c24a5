"""The timeline as a trace that ui.perfetto.dev opens: Chrome's trace event format, one process per device or link direction.

Format: "Trace Event Format", Google; complete events ("ph": "X") with `ts` and `dur` in microseconds. One frame is traced.
Tasks of one resource lie side by side: what overlaps in time gets a track of its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from dovetail.files import replace_text
from dovetail.schedule.list_schedule import Task, Timeline

NANOSECONDS = 1e9
"""Times are compared on a grid of whole nanoseconds, so that float dust is no overlap."""


def trace(timeline: Timeline) -> dict[str, object]:
    """The trace as a JSON-able value; overlapping tasks of one resource lie on threads of their own."""
    events: list[dict[str, object]] = []
    for process, resource in enumerate(resource_order([t.resource for t in timeline.tasks], ()), start=1):
        tasks = [t for t in timeline.tasks if t.resource == resource]
        threads = tracks([(t.start_s, t.stop_s) for t in tasks])
        events.append(_name("process_name", process, 0, resource))
        events.append({"ph": "M", "name": "process_sort_index", "pid": process, "tid": 0, "args": {"sort_index": process}})
        events += [_name("thread_name", process, thread, resource if thread == 0 else f"{resource}, stream {thread + 1}")
                   for thread in sorted(set(threads))]
        events += [_complete(task, process, thread) for task, thread in zip(tasks, threads, strict=True)]
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"producer": "dovetail", "frame": 0}}


def write_trace(path: Path | str, timeline: Timeline) -> None:
    """Write the trace as JSON."""
    replace_text(path, json.dumps(trace(timeline), allow_nan=False, indent=1) + "\n")


def _name(what: str, process: int, thread: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


def _complete(task: Task, process: int, thread: int) -> dict[str, object]:
    start, stop = ticks(task.start_s), ticks(task.stop_s)
    return {"ph": "X", "name": task.name, "cat": task.kind, "pid": process, "tid": thread, "ts": start / 1e3,
            "dur": max(0, stop - start) / 1e3, "args": {"node": task.node, "bytes": task.size_bytes, "frame": 0}}


def ticks(time_s: float) -> int:
    """A time on the nanosecond grid."""
    return round(time_s * NANOSECONDS)


def tracks(spans_s: Sequence[tuple[float, float]]) -> tuple[int, ...]:
    """A track number per (start, stop), the lowest that is free; streaming devices run several nodes at once."""
    chosen = [0] * len(spans_s)
    free_at: list[int] = []
    for index in sorted(range(len(spans_s)), key=lambda i: (ticks(spans_s[i][0]), -ticks(spans_s[i][1]), i)):
        start, stop = (ticks(t) for t in spans_s[index])
        track = next((n for n, free in enumerate(free_at) if free <= start), len(free_at))
        free_at[track : track + 1] = [stop]
        chosen[index] = track
    return tuple(chosen)


def resource_order(used: Sequence[str], devices: Sequence[str]) -> tuple[str, ...]:
    """Devices in the platform's order, then links in the order of their first use."""
    seen = dict.fromkeys(used)
    return (*(d for d in devices if d in seen), *(u for u in seen if u not in set(devices)))
