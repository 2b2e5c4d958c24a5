"""The trace that Perfetto opens, and the tracks that keep overlapping tasks apart."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import report_sample as sample
from hypothesis import given
from hypothesis import strategies as st

from dovetail.report.perfetto import resource_order, ticks, trace, tracks, write_trace
from dovetail.schedule.list_schedule import Task, Timeline

SPANS = st.lists(st.tuples(st.floats(0, 1e-2), st.floats(0, 1e-3)).map(lambda s: (s[0], s[0] + s[1])), max_size=30)


def _check(events: list[dict[str, object]]) -> None:
    """Every event is what the trace event format asks for, and nothing overlaps on one track."""
    lanes: dict[tuple[object, object], list[tuple[int, int]]] = {}
    for event in events:
        assert event["ph"] in ("M", "X")
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["args"], dict)
        if event["ph"] == "X":
            start, long = event["ts"], event["dur"]
            assert isinstance(start, float)
            assert isinstance(long, float)
            assert start >= 0
            assert long >= 0
            lanes.setdefault((event["pid"], event["tid"]), []).append((round(start * 1e3), round((start + long) * 1e3)))
    for lane in lanes.values():
        for before, after in pairwise(sorted(lane)):
            assert before[1] <= after[0]


def test_the_trace_holds_every_task_of_the_frame(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.json", sample.timeline())
    held = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    _check(held["traceEvents"])
    names = {e["pid"]: e["args"]["name"] for e in held["traceEvents"] if e["name"] == "process_name"}
    assert sorted(names.values()) == ["cpu", "fpga", "gpu", "pcie cpu→fpga", "pcie fpga→cpu"]
    events = [e for e in held["traceEvents"] if e["ph"] == "X"]
    for task in sample.timeline().tasks:
        (event,) = (e for e in events if e["name"] == task.name and names[e["pid"]] == task.resource and e["cat"] == task.kind)
        assert event["args"] == {"node": task.node, "bytes": task.size_bytes, "frame": 0}
        assert abs(event["ts"] - task.start_s * 1e6) <= 1e-3
        assert abs(event["dur"] - (task.stop_s - task.start_s) * 1e6) <= 2e-3


def test_nothing_to_do_is_a_valid_trace() -> None:
    assert trace(Timeline((), ()))["traceEvents"] == []


@given(st.lists(st.tuples(st.sampled_from(["cpu", "fpga"]), SPANS.filter(bool).map(lambda s: s[0])), max_size=30))
def test_tasks_that_overlap_on_a_resource_get_threads_of_their_own(tasks: list[tuple[str, tuple[float, float]]]) -> None:
    timeline = Timeline(tuple(Task(f"t{i}", r, "compute", "n", *span) for i, (r, span) in enumerate(tasks)), ())
    events = trace(timeline)["traceEvents"]
    assert isinstance(events, list)
    _check(events)
    assert sum(e["ph"] == "X" for e in events) == len(tasks)


@given(SPANS)
def test_tracks_never_overlap_and_are_never_more_than_needed(spans: list[tuple[float, float]]) -> None:
    chosen = tracks(spans)
    grid = [(ticks(a), ticks(b)) for a, b in spans]
    for track in set(chosen):
        for before, after in pairwise(sorted(s for s, t in zip(grid, chosen, strict=True) if t == track)):
            assert before[1] <= after[0]
    together = max((sum(a <= at < b or (a, b) == (at, at) for a, b in grid) for at, _ in grid), default=0)
    assert len(set(chosen)) <= together


def test_tasks_end_to_end_share_a_track_despite_float_dust() -> None:
    third = 0.1 + 0.2  # one unit in the last place above 0.3
    assert tracks([(0.0, third), (0.3, 0.5)]) == (0, 0)


def test_devices_come_before_links() -> None:
    assert resource_order(["pcie a", "fpga", "pcie a", "cpu", "pcie b"], ["cpu", "gpu", "fpga"]) == (
        "cpu",
        "fpga",
        "pcie a",
        "pcie b",
    )
