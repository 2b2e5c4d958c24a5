"""Who computes jobs: processes of this machine here, a cluster's in `cluster.py`. Any of them may die."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

from dovetail.errors import ToolError, UsageError
from dovetail.explore.job import CampaignJob, Outcome, perform
from dovetail.processes import end_with_parent, worker_pool


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of one run of a job: its outcome, or the error that it raised; neither where its worker was lost."""

    job: CampaignJob
    outcome: Outcome | None = None
    error: Exception | None = None


class Crew(Protocol):
    """Workers that jobs are handed to, one by one."""

    def room(self, memory_bytes: int) -> bool:
        """Whether a job that needs so much memory may begin now."""
        ...

    def begin(self, job: CampaignJob) -> None: ...

    def ended(self) -> list[Ended]:
        """Runs that ended since the last call; waits for one."""
        ...


class LocalCrew:
    """Processes of this machine, one job each; the memory that running jobs ask for fits, or one runs alone.

    Every process is a pool of one: where it dies, the job it ran is known, and no other is lost with it.
    """

    def __init__(self, workers: int, memory_bytes: int, stack: ExitStack) -> None:
        self.memory_bytes, self.stack = memory_bytes, stack
        self.idle = [self._hired() for _ in range(workers)]
        self.held: dict[str, int] = {}
        self.done: queue.SimpleQueue[tuple[CampaignJob, ProcessPoolExecutor, Future[Any]]] = queue.SimpleQueue()

    def _hired(self) -> ProcessPoolExecutor:
        return self.stack.enter_context(worker_pool(ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context("spawn"), initializer=_end_when_told)))

    def room(self, memory_bytes: int) -> bool:
        return bool(self.idle) and (not self.held or sum(self.held.values()) + memory_bytes <= self.memory_bytes)

    def begin(self, job: CampaignJob) -> None:
        worker = self.idle.pop()
        self.held[job.key] = job.memory_bytes
        digests = {role: file.digest for role, file in job.files.items()}
        future = worker.submit(perform, job.work, job.arguments, job.files, digests)
        future.add_done_callback(lambda done: self.done.put((job, worker, done)))

    def ended(self) -> list[Ended]:
        found = [self._judged(*self.done.get())]
        while not self.done.empty():
            found.append(self._judged(*self.done.get()))
        return found

    def _judged(self, job: CampaignJob, worker: ProcessPoolExecutor, future: Future[Any]) -> Ended:
        del self.held[job.key]
        try:
            outcome = Outcome(*future.result())
        except BrokenProcessPool:
            self.idle.append(self._hired())
            return Ended(job)
        except Exception as error:
            self.idle.append(worker)
            return Ended(job, error=error)
        self.idle.append(worker)
        return Ended(job, outcome)


@contextmanager
def local_crew(workers: int, memory_bytes: int | None = None) -> Iterator[LocalCrew]:
    """So many processes, which end, with what they started, when the block does; all of the machine's memory unless told.

    Raises:
        UsageError: there is no worker.
    """
    if workers < 1:
        raise UsageError(f"--workers {workers}: must be at least 1")
    with ExitStack() as stack:
        yield LocalCrew(workers, machine_memory() if memory_bytes is None else memory_bytes, stack)


def machine_memory() -> int:
    """Bytes of memory of this machine, or of the container that it is."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as limit:
            return min(found, int(limit.read()))
    except (OSError, ValueError):
        return found


def _end_when_told() -> None:
    """Leave Ctrl-C to the parent, and turn its order to end into an exception that ends the tools below as well."""

    def end(number: int, frame: FrameType | None) -> None:
        raise ToolError("campaign: ended")

    end_with_parent()
    signal.signal(signal.SIGTERM, end)
