"""What a run did and when: spans of stages and transfers, clocks of simulated boards, devices that failed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from dovetail.fpga.links.bench import SystemRun
from dovetail.fpga.toolchain.simulate import Simulation
from dovetail.ir import Array
from dovetail.runtime.stages import OnSimulated


@dataclass(frozen=True, slots=True)
class Span:
    """A stage that computed, or tensors that moved to or from its device; seconds since the run began."""

    stage: str
    resource: str
    """The device, or `cpu>fpga` of a transfer."""
    kind: str
    """`compute` or `transfer`."""
    frame: int
    """The first frame of it."""
    frames: int
    start_s: float
    stop_s: float
    size_bytes: int = 0
    backend: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A worker that died, hung or answered wrongly; from `frame` on its stages were computed on the CPU."""

    stage: str
    device: str
    frame: int
    reason: str
    recovered_s: float | None = None
    """Seconds from the fault's report to the frame's result; None where the run was stopped."""

    def __str__(self) -> str:
        how = "the run was stopped" if self.recovered_s is None else "computed on the CPU from there on, by the integer reference"
        return f"{self.stage} on {self.device} failed at frame {self.frame}: {self.reason}; {how}"


@dataclass(slots=True)
class RunRecord:
    """What a run did so far; workers append to it at the same time."""

    spans: list[Span] = field(default_factory=list)
    cycles: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Of every simulated stage: the cycles in which frames ended that followed each other, of the longest such run."""
    failures: list[Failure] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def now(self) -> float:
        return time.monotonic() - self.began

    def listener(self, stage: str) -> OnSimulated:
        """What a stage's simulations are told to."""
        return partial(self._simulated, stage)

    def _simulated(self, stage: str, run: Simulation | SystemRun) -> None:
        self.cycles[stage] = max(self.cycles.get(stage, ()), run.frame_cycles, key=len)

    @property
    def wall_s(self) -> float:
        """From the beginning of the first span to the end of the last."""
        return max((s.stop_s for s in self.spans), default=0.0) - min((s.start_s for s in self.spans), default=0.0)

    @property
    def frames(self) -> int:
        return max((s.frame + s.frames for s in self.spans), default=0)


def bytes_of(arrays: Mapping[str, Array]) -> int:
    return sum(x.nbytes for x in arrays.values())
