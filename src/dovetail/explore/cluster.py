"""Workers of many machines, by Dask: the same jobs, handed to a scheduler that knows what memory each worker has.

A worker that dies loses its jobs to others; where the scheduler itself is gone, whatever ran begins again at the next one that
answers at the address.
"""

from __future__ import annotations

import contextlib
import queue
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from dovetail.errors import ToolError, UsageError
from dovetail.explore.crew import Crew, Ended, local_crew
from dovetail.explore.job import CampaignJob, Outcome, perform

LOCAL = "local"
"""The address that starts a cluster of this machine."""
MEMORY = "dovetail-memory"
"""Bytes, as a resource of workers."""
AHEAD = 2
"""Jobs handed over per thread of the workers: one runs, one is there when it ends. Chosen, not measured."""
ANSWER_S, RETURN_S = 10.0, 120.0
"""Seconds in which a scheduler must answer, and in which a lost one must be back."""
LOOK_S = 0.5
"""Seconds between two looks at whether the scheduler is there, and who works for it."""


class DaskCrew:
    """The workers of a Dask scheduler at an address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.done: queue.SimpleQueue[tuple[CampaignJob, Any]] = queue.SimpleQueue()
        self.running: dict[str, tuple[CampaignJob, Any]] = {}
        self.begun = 0
        self._connect()

    def _connect(self) -> None:
        distributed = _distributed()
        self.client = distributed.Client(self.address, timeout=ANSWER_S, set_as_default=False)
        self.client.register_plugin(_memory_plugin(), name=MEMORY)
        self.sent: dict[str, Any] = {}
        self.looked, self.threads, self.largest = 0.0, 0, 0.0

    def _look(self) -> None:
        """Learn who is there; at most once in a while."""
        if time.monotonic() - self.looked < LOOK_S:
            return
        workers = list(self.client.scheduler_info(n_workers=-1)["workers"].values())
        able = [w for w in workers if w["resources"].get(MEMORY)]
        self.threads = sum(w["nthreads"] for w in able)
        self.largest = max((w["resources"][MEMORY] for w in able), default=0.0)
        self.looked = time.monotonic()

    def wait_for(self, workers: int) -> None:
        """Wait until so many workers have joined; UsageError where they do not."""
        end = time.monotonic() + RETURN_S
        while True:
            info = self.client.scheduler_info(n_workers=-1)["workers"].values()
            there = sum(bool(w["resources"].get(MEMORY)) for w in info)
            if there >= workers:
                return
            if time.monotonic() > end:
                raise UsageError(f"--cluster {self.address}: {there} of {workers} workers joined in {RETURN_S:g} s; start more "
                                 "with `dask worker ADDRESS`, where Dovetail is installed, or ask for fewer with --workers")
            time.sleep(LOOK_S / 5)

    def room(self, memory_bytes: int) -> bool:
        with contextlib.suppress(OSError):
            self._look()
        return len(self.running) < max(1, AHEAD * self.threads)

    def begin(self, job: CampaignJob) -> None:
        self.begun += 1
        digests = {role: file.digest for role, file in job.files.items()}
        need = {MEMORY: min(float(job.memory_bytes), self.largest)} if self.largest else {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a model's size: it travels once to each worker that needs it
            files = {role: self._sent(digests[role], file.path.read_bytes) for role, file in job.files.items()}
            future = self.client.submit(perform, job.work, dict(job.arguments), files, digests, pure=False, resources=need,
                                        key=f"dovetail-{job.key}-{self.begun}")
        self.running[job.key] = job, future
        future.add_done_callback(lambda done: self.done.put((job, done)))

    def _sent(self, digest: str, read: Any) -> Any:
        """A file's bytes as a task: where their worker dies, the scheduler can give them to another one."""
        if digest not in self.sent:
            self.sent[digest] = self.client.submit(_same, read(), key=f"dovetail-file-{digest}")
        return self.sent[digest]

    def ended(self) -> list[Ended]:
        found: list[Ended] = []
        while not found:
            with contextlib.suppress(queue.Empty):
                found += self._judged(*self.done.get(timeout=LOOK_S))
                while True:
                    found += self._judged(*self.done.get_nowait())
            if self.client.status != "running" or any(end.outcome is None and end.error is None for end in found):
                found += self._mended()
        return found

    def _judged(self, job: CampaignJob, future: Any) -> list[Ended]:
        if job.key not in self.running or self.running[job.key][1] is not future:
            return []
        del self.running[job.key]
        status = future.status
        try:
            if status == "finished":
                return [Ended(job, Outcome(*future.result(timeout=ANSWER_S)))]
            error = future.exception(timeout=ANSWER_S) if status == "error" else None
        except Exception:  # the connection was lost in between
            return [Ended(job)]
        return [Ended(job)] if error is None or type(error).__name__ == "KilledWorker" else [Ended(job, error=error)]

    def _mended(self) -> list[Ended]:
        """After a loss: nothing where the scheduler is there as before, else a new connection, and all that ran is lost."""
        with contextlib.suppress(Exception):
            if self.client.status == "running" and self.running:
                states = [future.status for _, future in self.running.values()]
                if not any(state in ("cancelled", "lost") for state in states):
                    return []
        lost, self.running = [job for job, _ in self.running.values()], {}
        self.close()
        end = time.monotonic() + RETURN_S
        while True:
            try:
                self._connect()
                break
            except (OSError, TimeoutError, ValueError):
                if time.monotonic() > end:
                    raise ToolError(f"--cluster {self.address}: the scheduler is gone for {RETURN_S:g} s; results so far are "
                                    "kept, start it and the same command goes on") from None
                time.sleep(LOOK_S)
        return [Ended(job) for job in lost]

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self.client.close(timeout=1.0)


@contextmanager
def dask_crew(address: str, workers: int) -> Iterator[DaskCrew]:
    """The workers at an address, at least so many; with `local`, as many processes of this machine.

    Raises:
        ToolError: Dask is not installed, or no scheduler answers.
        UsageError: fewer workers join.
    """
    if workers < 1:
        raise UsageError(f"--workers {workers}: must be at least 1")
    distributed = _distributed()
    with contextlib.ExitStack() as stack:
        if address == LOCAL:
            cluster = stack.enter_context(distributed.LocalCluster(workers, threads_per_worker=1, dashboard_address=None))
            address = cluster.scheduler_address
        try:
            crew = DaskCrew(address)
        except (OSError, TimeoutError, ValueError) as error:
            raise ToolError(f"--cluster {address}: no scheduler answers ({str(error).splitlines()[0]}); start one with "
                            "`dask scheduler`, and name its address, such as tcp://10.0.0.1:8786") from None
        stack.callback(crew.close)
        crew.wait_for(workers)
        yield crew


def crew_of(workers: int, address: str | None) -> AbstractContextManager[Crew]:
    """So many processes of this machine, or the workers at an address."""
    return local_crew(workers) if address is None else dask_crew(address, workers)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise ToolError("--cluster: Dask is not installed; get it with pip install 'dovetail-accel[explore]'") from None
    return distributed


def _same(content: bytes) -> bytes:
    return content


def _memory_plugin() -> Any:
    """What lets every worker, also one that joins later, state its memory as a resource."""
    from distributed import WorkerPlugin

    class StatedMemory(WorkerPlugin):  
        async def setup(self, worker: Any) -> None:
            from distributed.system import MEMORY_LIMIT
            limit = worker.memory_manager.memory_limit or MEMORY_LIMIT
            await worker.set_resources(**{MEMORY: float(limit)})

    return StatedMemory()
