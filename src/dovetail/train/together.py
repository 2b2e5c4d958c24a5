"""Runs side by side in one process, each on a CUDA stream of its own: a step of a small network leaves most of a GPU idle.

Nothing about a run depends on what runs beside it. Elsewhere than on a GPU they take turns, step by step.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from math import inf
from typing import Any

import torch

Steps = Generator[None]
QUEUED = 4
"""Steps of a run that a GPU has before it: large networks, whose steps last, hold no other run up."""
IDLE_S = 2e-5


@dataclass(slots=True)
class TrainingLane:
    """Where one run at a time takes its steps."""

    stream: Any
    steps: Steps | None = None
    queued: deque[Any] = field(default_factory=deque)

    @property
    def current(self) -> AbstractContextManager[Any]:
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    def ready(self) -> bool:
        """Whether few enough steps are queued for another one."""
        while self.queued and self.queued[0].query():
            self.queued.popleft()
        return len(self.queued) < QUEUED

    def advance(self) -> bool:
        """One step; False where the run has ended."""
        assert self.steps is not None
        if next(self.steps, self) is self:
            self.steps = None
            return False
        if self.stream is not None:
            self.queued.append(self.stream.record_event())
        return True


def side_by_side(following: Callable[[], Steps | None], lanes: int, device: Any, seconds: float = inf) -> int:
    """Let so many runs take turns, one step each; a lane whose run has ended asks for the `following` one, if any can begin.

    After so many seconds those that still run are closed, which leaves their checkpoints. Returns the steps that were taken.
    """
    every = [TrainingLane(torch.cuda.Stream(device) if device.type == "cuda" else None) for _ in range(lanes)]
    ends, taken, may_begin = time.monotonic() + seconds, 0, True
    try:
        while time.monotonic() < ends and (may_begin or any(lane.steps for lane in every)):
            before = taken
            for lane in every:
                with lane.current:
                    if lane.steps is None and may_begin:
                        lane.steps = following()
                        may_begin = lane.steps is not None
                    if lane.steps is not None and lane.ready():
                        ended = not lane.advance()
                        taken, may_begin = taken + (not ended), may_begin or ended
            if taken == before:
                time.sleep(IDLE_S)
    finally:
        for lane in every:
            if lane.steps is not None:
                with lane.current:
                    lane.steps.close()
    return taken
