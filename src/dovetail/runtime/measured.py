"""A run beside its plan: what stages took and frames per second, in time and in clocks of simulated boards, also for Perfetto."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dovetail.document import NATURAL, Each, Maybe
from dovetail.ir import Array
from dovetail.progress import Progress, silent
from dovetail.runtime.build import SCHEMA, Build, real_results, stored_inputs
from dovetail.runtime.record import RunRecord, Span
from dovetail.runtime.virtual import SETTLED_FRAMES, frames_per_s, steps_of, virtual_stream
from dovetail.runtime.workers import StreamOptions
from dovetail.schedule.list_schedule import Task, Timeline, schedule

MEASURED_FILE = "measured.json"
"""Where a build remembers its last measured run."""
MEASURED = {"frames": NATURAL, "in_flight": NATURAL, "wall_s": float, "frames_per_s": float,
            "planned": {"latency_s": float, "frames_per_s": float}, "virtual_frames_per_s": Maybe(float),
            "stages": [{"name": str, "device": str, "backend": str, "frame_s": float, "planned_s": float,
                        "clocks": Maybe(Each(NATURAL))}], "failures": [str]}
"""What it holds."""
VIRTUAL_FRAMES = 64
"""Frames of a stream in virtual time. Chosen: enough to fill any pipeline of a few stages."""


def run_stream(build: Build, inputs: Mapping[str, Array], options: StreamOptions, record: RunRecord, whole: bool = False,
               progress: Progress = silent) -> dict[str, Array]:
    """Float frames through a stream one by one, or as a `whole`; the results as `build.run` returns them."""
    stored = stored_inputs(build, inputs)
    total = len(next(iter(stored.values())))
    each = total if whole else max(1, build.graph.shape(build.graph.inputs[0])[0])
    items = ({name: x[at : at + each] for name, x in stored.items()} for at in range(0, total, each))
    found: list[dict[str, Array]] = []
    with build.open_stream(replace(options, frames=total), record) as stream:
        for result in stream.results(items):
            found.append(result)
            progress("stream", min(total, len(found) * each), total)
    return real_results(build.graph, {name: np.concatenate([r[name] for r in found]) for name in build.graph.outputs})


def summary(build: Build, record: RunRecord, in_flight: int) -> dict[str, Any]:
    """A run in figures, beside the plan's."""
    stages = build.stages()
    planned = {s.stage: s.seconds for s in steps_of(build, stages, {}) if s.kind == "compute"}
    spans = {stage.name: [s for s in record.spans if s.stage == stage.name and s.kind == "compute"] for stage in stages}
    settled = {name: c for name, c in record.cycles.items() if len(c) >= SETTLED_FRAMES}
    virtual = virtual_stream(steps_of(build, stages, settled), VIRTUAL_FRAMES, in_flight) if settled else []
    return {
        "schema": SCHEMA, "frames": record.frames, "in_flight": in_flight, "wall_s": record.wall_s,
        "frames_per_s": record.frames / record.wall_s if record.wall_s else 0.0,
        "planned": {"latency_s": build.plan.latency_s,
                    "frames_per_s": 1 / build.plan.interval_s if build.plan.interval_s > 0 else 0.0},
        "virtual_frames_per_s": frames_per_s(virtual) if virtual else None,
        "stages": [{"name": stage.name, "device": stage.device, "backend": own[-1].backend if own else stage.part.backend,
                    "frame_s": sum(s.stop_s - s.start_s for s in own) / max(1, sum(s.frames for s in own)),
                    "planned_s": planned[stage.name], "clocks": _clocks(settled.get(stage.name))}
                   for stage in stages for own in [spans[stage.name]]],
        "failures": [str(failure) for failure in record.failures]}


def _clocks(cycles: tuple[int, ...] | None) -> dict[str, int] | None:
    return None if cycles is None else {"one_frame": cycles[0], "interval": cycles[-1] - cycles[-2]}


def trace_timeline(build: Build, record: RunRecord, in_flight: int) -> Timeline:
    """Plan and measurement as tracks beside each other: `plan: fpga`, `measured: fpga`, and where boards were simulated
    `virtual: fpga`, in the time that their clocks take on the board."""
    plan = schedule(build.graph, build.platform, build.plan.assignment)
    settled = {name: c for name, c in record.cycles.items() if len(c) >= SETTLED_FRAMES}
    virtual = virtual_stream(steps_of(build, build.stages(), settled), min(VIRTUAL_FRAMES, record.frames), in_flight) \
        if settled else []
    tasks = [replace(task, resource=f"plan: {task.resource}") for task in plan.tasks]
    tasks += [_task("measured", span) for span in sorted(record.spans, key=lambda s: s.start_s)]
    tasks += [_task("virtual", span) for span in virtual]
    return Timeline(tuple(tasks), plan.buffers)


def _task(group: str, span: Span) -> Task:
    last = span.frame + span.frames - 1
    which = f"frame {span.frame}" if last == span.frame else f"frames {span.frame} to {last}"
    return Task(f"{span.stage}, {which}", f"{group}: {span.resource}", span.kind, span.stage, span.start_s, span.stop_s,
                span.size_bytes)
