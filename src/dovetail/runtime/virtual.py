"""A stream in virtual time: simulated boards take the clocks they took, everything else the seconds that the plan states.

A simulation's own speed says nothing of a board. Its clocks do: at the board's frequency they are the board's time. So frames
are sent through the stages once more, without computing: a stage or transfer begins when what it reads is there and what it
occupies is free, the oldest frame first. The plan's interval is what its busiest resource needs for a frame; this is what a
stream of frames reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from dovetail.ir import Reduce
from dovetail.platform.device import Platform
from dovetail.runtime.build import Build
from dovetail.runtime.record import Span
from dovetail.runtime.stages import Stage, needs
from dovetail.schedule.list_schedule import Task, schedule

SETTLED_FRAMES = 4
"""Frames after which two follow each other as all later ones do; fewer say nothing of the interval."""


@dataclass(frozen=True, slots=True)
class VirtualStep:
    """What every frame does once: takes `seconds`, and occupies its resources for `busy_s` of them."""

    stage: str
    resources: tuple[str, ...]
    kind: str
    seconds: float
    busy_s: float
    needs: tuple[int, ...]
    size_bytes: int = 0
    device: str = ""
    """That of a stage."""


def steps_of(build: Build, stages: Sequence[Stage], cycles: Mapping[str, tuple[int, ...]]) -> list[VirtualStep]:
    """Transfers and stages of a frame; stages without `cycles` take the plan's time."""
    left = list(schedule(build.graph, build.platform, build.plan.assignment).tasks)
    found, computes = list[VirtualStep](), dict[int, int]()
    for index, (stage, before) in enumerate(zip(stages, needs(stages), strict=True)):
        ready = tuple(computes[i] for i in sorted(before))
        nodes = {node for segment in stage.segments for node in segment.nodes}
        arrivals = len(found)
        for lanes in _transfers(left, partial(_arrives, nodes, stage.devices)):
            if not stage.joined or _ends(lanes[0])[0] not in stage.devices:  # else the clocks of joined boards tell it
                found.append(_step(stage.name, lanes, ready))
        computes[index] = len(found)
        seconds, busy_s = _clocked(stage, cycles.get(stage.name, ()), build.platform) or _planned(stage, left)
        found.append(VirtualStep(stage.name, (stage.worker,), "compute", seconds, busy_s, (*ready, *range(arrivals, len(found))),
                          device=stage.device))
    for lanes in _transfers(left, lambda task: task.node in build.graph.outputs):
        writers = tuple(computes[i] for i, s in enumerate(stages) if any(w.tensor == lanes[0].node for w in s.writes))
        found.append(_step("deliver", lanes, writers))
    return found


def _arrives(nodes: set[str], devices: tuple[str, ...], task: Task) -> bool:
    return task.node in nodes and _ends(task)[1] in devices


def _ends(task: Task) -> tuple[str, str]:
    """Source and target of a transfer, from its name (`conv1: cpu to fpga`)."""
    source, _, target = task.name.rsplit(" ", 2)
    return source.rsplit(" ", 1)[-1], target


def _transfers(left: list[Task], wanted: Callable[[Task], bool]) -> list[list[Task]]:
    """Take transfers out of what is left; one over several links is one, with a task per link."""
    found: list[list[Task]] = []
    for task in [t for t in left if t.kind == "transfer" and wanted(t)]:
        left.remove(task)
        if found and (found[-1][0].name, found[-1][0].start_s) == (task.name, task.start_s):
            found[-1].append(task)
        else:
            found.append([task])
    return found


def _step(stage: str, lanes: Sequence[Task], ready: tuple[int, ...]) -> VirtualStep:
    seconds = lanes[0].stop_s - lanes[0].start_s
    return VirtualStep(stage, tuple(task.resource for task in lanes), "transfer", seconds, seconds, ready, lanes[0].size_bytes)


def _planned(stage: Stage, left: list[Task]) -> tuple[float, float]:
    """What the plan states for a stage's nodes on its device; hardware is occupied as long."""
    spent = []
    for segment in stage.segments:
        for node, origin in zip(segment.graph.nodes, segment.origins, strict=True):
            kind = "reduce" if isinstance(node.op, Reduce) and node.name != origin else "compute"
            task = next((t for t in left if (t.node, t.resource, t.kind) == (origin, segment.device, kind)), None)
            if task is not None:
                left.remove(task)
                spent.append(task)
    if stage.pipelined:  # engines overlap
        seconds = max((t.stop_s for t in spent), default=0.0) - min((t.start_s for t in spent), default=0.0)
        return seconds, max((t.stop_s - t.start_s for t in spent), default=0.0)
    seconds = sum(t.stop_s - t.start_s for t in spent)
    return seconds, seconds


def _clocked(stage: Stage, cycles: tuple[int, ...], platform: Platform) -> tuple[float, float] | None:
    """Seconds of one frame and between frames by simulated clocks; None where too few frames followed each other."""
    clock_hz = max(platform.device(d).clock_hz or 0.0 for d in stage.devices)
    if len(cycles) < SETTLED_FRAMES or not clock_hz:
        return None
    return cycles[0] / clock_hz, (cycles[-1] - cycles[-2]) / clock_hz


def virtual_stream(steps: Sequence[VirtualStep], frames: int, in_flight: int) -> list[Span]:
    """When every step of every frame begins and ends, with at most so many frames under way."""
    spans, free = list[Span](), dict[str, float]()
    waiting, finished = list[tuple[int, int]](), set[tuple[int, int]]()
    events: list[tuple[float, tuple[int, int] | None]] = []
    """When a step ends, or a resource is free again (None)."""
    entered = left = 0
    now = 0.0
    while left < frames:
        while entered < min(frames, left + in_flight):
            waiting += [(entered, i) for i in range(len(steps))]
            entered += 1
        for frame, i in list(waiting):
            step = steps[i]
            if all((frame, n) in finished for n in step.needs) and all(free.get(r, 0.0) <= now for r in step.resources):
                waiting.remove((frame, i))
                free |= dict.fromkeys(step.resources, now + step.busy_s)
                events += [(now + step.seconds, (frame, i)), (now + step.busy_s, None)]
                spans += [Span(step.stage, step.device or r, step.kind, frame, 1, now, now + step.seconds, step.size_bytes)
                          for r in step.resources]
        now = min(at for at, _ in events)
        finished |= {which for at, which in events if at <= now and which is not None}
        events = [event for event in events if event[0] > now]
        while left < entered and all((left, i) in finished for i in range(len(steps))):
            left += 1
    return spans


def frames_per_s(spans: Sequence[Span], skipped: int = SETTLED_FRAMES) -> float:
    """Frames that end in a second, from the end of the first few frames to that of the last."""
    last: dict[int, float] = {}
    for span in spans:
        last[span.frame] = max(last.get(span.frame, 0.0), span.stop_s)
    done = sorted(last.values())[skipped:]
    return (len(done) - 1) / (done[-1] - done[0]) if len(done) > 1 and done[-1] > done[0] else 0.0
