"""Laws of frames in flight: one interval apart no resource serves two, a frame's order holds, and its time is not less."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.partition.evaluate import evaluate
from dovetail.partition.problem import Problem
from dovetail.platform.accelerator import AcceleratorDesign, Architecture
from dovetail.schedule.list_schedule import Task, Timeline, schedule
from dovetail.schedule.pipelined import pipelined
from tests.partition.worlds import Synthetic, chain, fork, platform, residual
from tests.schedule.test_list_schedule import random_assignment

SHAPES = {"chain": lambda seed: chain(3, 4, 4), "residual": residual, "fork": fork}


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**16))
def test_frames_follow_each_other_without_meeting(shape: str, seed: int) -> None:
    problem = Problem(SHAPES[shape](seed), platform(seed), Synthetic(seed))
    assignment = random_assignment(problem, seed)
    timeline = schedule(problem.graph, problem.platform, assignment, problem.costs)
    judged = evaluate(problem, assignment)
    found = pipelined(timeline, problem.platform, judged.interval_s)
    assert found is not None
    assert found.interval_s >= judged.interval_s
    assert found.span_s >= timeline.makespan_s * (1 - 1e-9)
    streaming = problem.streaming
    for name in {t.resource if t.resource not in streaming else f"{t.resource} {t.name}" for t in found.tasks}:
        phases = sorted((t.start_s % found.interval_s, t.stop_s - t.start_s) for t in found.tasks
                        if name in (t.resource, f"{t.resource} {t.name}") and t.stop_s > t.start_s)
        closed = [*phases, (phases[0][0] + found.interval_s, 0.0)] if phases else []
        assert all(a + long <= b + 1e-6 * found.interval_s for (a, long), (b, _) in pairwise(closed)), name
    for old, new in zip(timeline.tasks, found.tasks, strict=True):
        assert (old.name, new.start_s >= old.start_s) == (new.name, True)
        assert new.stop_s - new.start_s == pytest.approx(old.stop_s - old.start_s)


def test_layers_on_arrays_hold_them_for_their_part_of_an_interval() -> None:
    board = platform(0).with_accelerator("fpga", AcceleratorDesign(Architecture.SEML, {}, ("a", "b")))
    layers = [Task("a", "fpga", "compute", "a", 0.0, 3.0), Task("b", "fpga", "compute", "b", 3.0, 4.0)]
    found = pipelined(Timeline(tuple(layers), ()), board, 2.0)
    assert found is not None
    assert found.interval_s == 2.0
    assert [(t.start_s, t.stop_s) for t in found.tasks] == [(0.0, 3.0), (3.5, 4.5)]  # the first one holds 1.5 of 2, the other 0.5


def test_slots_that_leave_gaps_too_small_are_packed() -> None:
    cpu = [Task("a", "cpu", "compute", "a", 0.0, 1.0), Task("b", "cpu", "compute", "b", 1.5, 2.5),
           Task("c", "cpu", "compute", "c", 3.25, 4.25)]
    link = [Task("x", "pcie", "transfer", "b", 1.0, 1.5)]
    found = pipelined(Timeline((cpu[0], link[0], *cpu[1:]), ()), platform(0), 3.0)
    assert found is not None
    assert found.interval_s == 3.0
    phases = sorted(t.start_s % 3 for t in found.tasks if t.resource == "cpu")
    assert [b - a for a, b in pairwise(phases)] == [1.0, 1.0]
    assert found.in_flight == 3


def test_what_has_no_pace_has_no_frames() -> None:
    assert pipelined(Timeline((), ()), platform(0), 1.0) is None
    assert pipelined(Timeline((Task("a", "cpu", "compute", "a", 0.0, 1.0),), ()), platform(0), 0.0) is None
