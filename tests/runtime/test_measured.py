"""Runs beside their plans: virtual time by simulated clocks, traces with plan and measurement, `dovetail run --pipeline`."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dovetail.cli.program import main
from dovetail.runtime.build import Build, run_stored, synthetic_integers
from dovetail.runtime.measured import MEASURED_FILE, trace_timeline
from dovetail.runtime.record import Failure, RunRecord, Span
from dovetail.runtime.virtual import VirtualStep, frames_per_s, steps_of, virtual_stream


@pytest.mark.quick
@pytest.mark.parametrize(("in_flight", "interval_s"), [(1, 9.0), (2, 6.0), (16, 4.0)])
def test_a_stream_in_virtual_time_has_the_interval_of_its_busiest_resource_or_of_too_few_frames(in_flight: int,
                                                                                                interval_s: float) -> None:
    """The CPU begins and ends every frame, 1 s and 3 s; hardware takes 5 s and a frame every 2 s: the CPU's 4 s set the pace."""
    steps = [VirtualStep("cpu0", ("cpu",), "compute", 1.0, 1.0, ()), VirtualStep("fpga0", ("fpga0",), "compute", 5.0, 2.0, (0,)),
             VirtualStep("cpu1", ("cpu",), "compute", 3.0, 3.0, (1,))]
    spans = virtual_stream(steps, 32, in_flight)
    assert len(spans) == 3 * 32
    assert frames_per_s(spans) == pytest.approx(1 / interval_s, rel=0.03)
    own = sorted((s.start_s, s.stop_s) for s in spans if s.resource == "cpu")
    assert all(stop <= start for (_, stop), (start, _) in pairwise(own)), "a processor does one thing at a time"


@pytest.mark.quick
@pytest.mark.parametrize("in_flight", [1, 2, 3, 7])
def test_no_more_frames_are_under_way_than_are_allowed(in_flight: int) -> None:
    steps = [VirtualStep("in", ("link",), "transfer", 1.0, 1.0, ()), VirtualStep("cpu0", ("cpu",), "compute", 2.0, 2.0, (0,)),
             VirtualStep("fpga0", ("fpga",), "compute", 6.0, 1.5, (1,))]
    spans = virtual_stream(steps, 12, in_flight)
    begins, ends = ([at(s.start_s if at is min else s.stop_s for s in spans if s.frame == n) for n in range(12)]
                    for at in (min, max))
    assert all(begins[n] >= ends[n - in_flight] for n in range(in_flight, 12))
    assert in_flight == 1 or any(begins[n] < ends[n - in_flight + 1] for n in range(in_flight, 12)), "as many as are allowed"
    assert sorted((s.frame, s.stage) for s in spans) == sorted((n, s.stage) for n in range(12) for s in steps), "each step once"


@pytest.mark.quick
def test_frames_that_all_end_at_once_have_no_rate() -> None:
    spans = [Span("cpu0", "cpu", "compute", n, 1, 0.0, 1.0) for n in range(8)]
    assert frames_per_s(spans) == 0.0
    later = [Span("cpu0", "cpu", "compute", n, 1, 0.0, n / 10) for n in range(8)]
    assert frames_per_s(later) == pytest.approx(10.0)
    assert frames_per_s(later[:5]) == 0.0, "one frame behind the first few is no interval"


@pytest.mark.quick
def test_a_record_counts_frames_and_seconds_from_its_first_span() -> None:
    assert (RunRecord().frames, RunRecord().wall_s) == (0, 0.0)
    record = RunRecord([Span("cpu0", "cpu", "compute", 0, 3, 2.0, 4.5), Span("cpu0", "cpu", "compute", 3, 2, 4.5, 5.0)])
    assert (record.frames, record.wall_s) == (5, 3.0)


@pytest.mark.quick
@pytest.mark.parametrize(("recovered_s", "how"), [
    (None, "the run was stopped"), (0.5, "computed on the CPU from there on, by the integer reference")])
def test_a_failure_says_which_stage_and_what_became_of_the_run(recovered_s: float | None, how: str) -> None:
    assert str(Failure("fpga0", "fpga", 7, "died", recovered_s)) == f"fpga0 on fpga failed at frame 7: died; {how}"


def test_spans_of_a_trace_name_their_frames(streamed: Build) -> None:
    record = RunRecord([Span("cpu0", "cpu", "compute", 0, 1, 0.0, 1.0), Span("cpu0", "cpu", "compute", 1, 3, 1.0, 2.0)])
    tasks = [t for t in trace_timeline(streamed, record, 1).tasks if t.resource.startswith("measured")]
    assert [(t.name, t.resource, t.start_s, t.stop_s) for t in tasks] == [
        ("cpu0, frame 0", "measured: cpu", 0.0, 1.0), ("cpu0, frames 1 to 3", "measured: cpu", 1.0, 2.0)]


def test_simulated_clocks_give_the_frames_per_second_of_the_plan(divided: Build) -> None:
    record = RunRecord()
    run_stored(divided, synthetic_integers(divided.graph, 8, seed=1), record=record)
    stages = divided.stages()
    assert set(record.cycles) == {s.name for s in stages if s.pipelined}
    steps = steps_of(divided, stages, record.cycles)
    found = frames_per_s(virtual_stream(steps, 64, 64))
    assert found == pytest.approx(1 / divided.plan.interval_s, rel=0.03)
    busy: dict[str, float] = {}
    for step in steps:
        for resource in step.resources:
            busy[resource] = busy.get(resource, 0.0) + step.busy_s
    for resource in ("cpu", "gpu", "pcie:cpu>fpga", "pcie:fpga>cpu"):
        assert busy[resource] == pytest.approx(divided.plan.busy_s[resource]), "every task of the plan is in the stream"


def test_a_pipelined_run_writes_the_results_of_a_plain_one_with_a_trace_and_a_record(streamed: Build, tmp_path: Path,
                                                                                     capsys: pytest.CaptureFixture[str]) -> None:
    frames, plain, piped, trace = (tmp_path / name for name in ("x.npy", "plain.npy", "piped.npy", "measured.json"))
    np.save(frames, np.random.default_rng(3).random((9, 2, 8, 8), dtype=np.float32))
    build = str(streamed.folder)
    assert main(["run", build, "-i", str(frames), "-o", str(plain)]) == 0
    assert not (streamed.folder / MEASURED_FILE).exists()
    assert main(["run", build, "-i", str(frames), "-o", str(piped), "--pipeline", "--trace", str(trace), "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out.partition("{")[2].join("{ "))
    np.testing.assert_array_equal(np.load(plain), np.load(piped))
    assert told["measured"]["frames"] == 9
    assert told["measured"]["failures"] == []
    events = json.loads(trace.read_text())["traceEvents"]
    tracks = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert {"plan: fpga", "measured: fpga", "plan: cpu", "measured: cpu", "measured: host>fpga"} <= tracks
    # Whether enough frames followed each other through the board for its clocks to be told depends on the machine's load.
    assert ("virtual: fpga" in tracks) == any(stage["clocks"] is not None for stage in told["measured"]["stages"])
    assert json.loads((streamed.folder / MEASURED_FILE).read_text()) == told["measured"]
    assert "Measured over 9 frames" in (streamed.folder / "report.html").read_text(encoding="utf-8")
    assert main(["report", build]) == 0
    assert main(["run", build, "-i", str(frames), "-o", str(piped), "--on-failure", "fallback"]) == 0
    np.testing.assert_array_equal(np.load(plain), np.load(piped))


@pytest.mark.parametrize(("given", "message"), [
    (["--in-flight", "4"], "give --pipeline with it"), (["--timeout", "4"], "give --pipeline or --on-failure fallback with it"),
    (["--pipeline", "--in-flight", "0"], "stream: 0 frames in flight; at least 1 is needed")])
def test_options_that_do_nothing_are_refused(streamed: Build, tmp_path: Path, given: list[str], message: str,
                                             capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 2, 8, 8), dtype=np.float32))
    assert main(["run", str(streamed.folder), "-i", str(tmp_path / "x.npy"), "-o", str(tmp_path / "y.npy"), *given]) == 2
    assert message in capsys.readouterr().err
