"""Several frames of a plan in time: each begins one interval after the one before, and no resource serves two at once.

A frame's tasks keep the order of `list_schedule`, so what one needs is there; a task waits until its resource is free in every
interval. Engines of an FPGA are resources of their own, the arrays that layers share are one. Arrays load a frame while they work
on the one before it: where a plan says that its layers there take longer than the interval, each holds its part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from dovetail.platform.device import Kind, Platform
from dovetail.schedule.list_schedule import Task, Timeline

CLOSE = 1e-9
"""Part of an interval below which two times are the same."""


@dataclass(frozen=True, slots=True)
class PipelinedFrame:
    """One frame among those that follow each other: when it is where, as it repeats every `interval_s`."""

    interval_s: float
    tasks: tuple[Task, ...]

    @property
    def span_s(self) -> float:
        """From a frame's first task to its last."""
        return max((t.stop_s for t in self.tasks), default=0.0)

    @property
    def in_flight(self) -> int:
        """How many frames are under way at the most."""
        return max(1, ceil(self.span_s / self.interval_s - CLOSE)) if self.interval_s > 0 else 1


def pipelined(timeline: Timeline, platform: Platform, interval_s: float) -> PipelinedFrame | None:
    """The schedule in which frames begin so far apart, or as far as the busiest resource needs; None without tasks."""
    if not timeline.tasks or not 0 < interval_s < inf:
        return None
    units = _units(platform)
    names = [_unit(units, task) for task in timeline.tasks]
    busy: dict[str, float] = {}
    for name, task in zip(names, timeline.tasks, strict=True):
        busy[name] = busy.get(name, 0.0) + task.stop_s - task.start_s
    arrays = {name for name, task in zip(names, timeline.tasks, strict=True) if task.node in units.get(task.resource, ())}
    interval_s = max([interval_s, *(spent_s for name, spent_s in busy.items() if name not in arrays)])
    holds = [(t.stop_s - t.start_s) * min(1.0, interval_s / busy[name] if name in arrays and busy[name] > 0 else 1.0)
             for name, t in zip(names, timeline.tasks, strict=True)]
    order = sorted(range(len(names)), key=lambda i: (timeline.tasks[i].start_s, i))
    found = _placed(timeline.tasks, names, holds, order, interval_s, packed=False) \
        or _placed(timeline.tasks, names, holds, order, interval_s, packed=True)
    assert found is not None, "packed slots always fit"
    return PipelinedFrame(interval_s, tuple(found))


def _units(platform: Platform) -> Mapping[str, frozenset[str]]:
    """FPGAs with the layers that share arrays there."""
    return {d.name: frozenset(d.accelerator.reusable if d.accelerator is not None else ())
            for d in platform.of_kind(Kind.FPGA)}


def _unit(units: Mapping[str, frozenset[str]], task: Task) -> str:
    """What a task keeps busy."""
    shared = units.get(task.resource)
    return task.resource if shared is None or task.node in shared else f"{task.resource} {task.name}"


def _placed(tasks: Sequence[Task], names: Sequence[str], holds: Sequence[float], order: Sequence[int], interval_s: float,
            packed: bool) -> list[Task] | None:
    """Tasks with later starts, each of which holds its resource for so long.

    `packed` leaves no gap between slots of a resource, so that all fit, however late.
    """
    taken: dict[str, list[tuple[float, float]]] = {}
    found: dict[int, Task] = {}
    late = 0.0
    for i in order:
        task, slots = tasks[i], taken.setdefault(names[i], [])
        start = _next(slots, task.start_s + late, holds[i], interval_s, packed)
        if start is None:
            return None
        late = start - task.start_s
        slots.append((start % interval_s, holds[i]))
        found[i] = replace(task, start_s=start, stop_s=start + task.stop_s - task.start_s)
    return [found[i] for i in range(len(tasks))]


def _next(slots: Sequence[tuple[float, float]], ready_s: float, long: float, interval_s: float, packed: bool) -> float | None:
    """The first start from `ready_s` on that meets no slot in any interval."""
    if not slots or long <= 0:
        return ready_s
    if packed:
        begin, took = slots[-1]
        return ready_s + (begin + took - ready_s) % interval_s
    slack, start = CLOSE * interval_s, ready_s
    for _ in range(len(slots) + 1):
        phase = start % interval_s
        waits = [(begin + took - phase) % interval_s for begin, took in slots
                 if (phase - begin) % interval_s < took - slack or (begin - phase) % interval_s < long - slack]
        if not waits:
            return start
        start += max(min(waits), slack)
    return None
