"""A plan in time: tasks on devices and links, and how long each tensor must be kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """Something that occupies one resource (a device, or one direction of a link) from start to stop."""

    name: str
    resource: str
    kind: str
    """`compute`, `transfer` or `reduce`."""
    node: str
    start_s: float
    stop_s: float
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """A tensor (or a piece of one) held in a device's memory from start to stop."""

    tensor: str
    device: str
    size_bytes: int
    start_s: float
    stop_s: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The whole schedule of one frame."""

    tasks: tuple[Task, ...]
    buffers: tuple[Buffer, ...]

    @property
    def makespan_s(self) -> float:
        return max((t.stop_s for t in self.tasks), default=0.0)
