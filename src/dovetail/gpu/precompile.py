"""Kernels compiled side by side: Triton compiles under one lock per process, so several processes fill its cache on disk."""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import inf, prod
from queue import SimpleQueue
from select import select
from typing import BinaryIO

import torch
import triton
from triton.runtime.jit import MockTensor

from dovetail.gpu.triton.table import KERNELS

ALIGNED = 16
"""Bytes that Triton takes operands to begin at a multiple of; source: its specialization of pointers (tt.divisibility)."""
UNALIGNED = " unaligned"
"""What is said of operands that do not."""
LATE_S = 10.0
"""Seconds behind the end of a round after which a compiler that is still at work is stopped (chosen: few kernels take longer)."""
FEWEST = 8
"""Jobs below which starting processes takes longer than compiling (chosen)."""


def unrolled(job: CompileJob) -> int:
    """Products in a row of every element a thread of a depthwise layer has: what Triton takes time for."""
    return prod(int(given[name]) for given, names in ((job.constants, ("KH", "KW")), (job.config, ("R", "SIDE")))
                for name in names if name in given)


class Anywhere(MockTensor):  # type: ignore[misc]  # Triton states no types
    """An operand that is not there, and begins at no round address."""

    @staticmethod
    def data_ptr() -> int:
        return 1


@dataclass(frozen=True, slots=True)
class CompileJob:
    """A kernel to compile: element types (or numbers) of its operands, constants and tile.

    A type that ends in UNALIGNED is that of an operand that begins anywhere, as parts of channels do: Triton compiles kernels
    anew for such.
    """

    kernel: str
    operands: tuple[str | int, ...]
    constants: Mapping[str, int | float | bool | str]
    config: Mapping[str, int]
    pdl: bool

    @property
    def alike(self) -> str:
        """The same of all jobs that Triton compiles once: of numbers it looks at three properties."""
        operands = [(o == 1, o % ALIGNED == 0, abs(o) >> 31 > 0) if isinstance(o, int) else o for o in self.operands]
        return f"{self.kernel} {operands} {sorted(self.constants.items())} {sorted(self.config.items())} {self.pdl}"

    def run(self) -> None:
        """Compile; what does not fit is left for the one who launches it to find out."""
        operands = [o if isinstance(o, int) else Anywhere(getattr(torch, o.removesuffix(UNALIGNED))) if o.endswith(UNALIGNED) else
                    getattr(torch, o) for o in self.operands]
        options = {**self.config, **({"launch_pdl": True} if self.pdl else {})}
        try:
            KERNELS[self.kernel].function.warmup(*operands, grid=(1, 1, 1), **self.constants, **options, PDL=self.pdl)
        except (triton.TritonError, RuntimeError):
            return


def next_of(waiting: deque[CompileJob], until: float) -> CompileJob | None:
    """A job that waits, as long as any may be begun."""
    try:
        return waiting.popleft() if time.perf_counter() <= until else None
    except IndexError:
        return None


class Workers:
    """Processes that compile; they stay for the next jobs, since beginning takes each of them longer than a kernel does."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", "dovetail.gpu.precompile")) -> None:
        self.command, self.running = command, list[subprocess.Popen[bytes]]()

    def compile(self, jobs: Sequence[CompileJob], workers: int, done: Callable[[CompileJob], object] = lambda job: None,
                until: float = inf) -> list[CompileJob]:
        """Compile jobs on so many processes, `done` after each, by whoever asked; those not begun `until` then, or still not done
        a while later.

        The job of a process that dies is left to whoever launches it.
        """
        for process in [p for p in self.running if p.poll() is not None]:
            self.ended(process)
        while len(self.running) < workers:
            self.running.append(self.started())
        waiting, late, finished = deque(jobs), list[CompileJob](), SimpleQueue[CompileJob | None]()
        with ThreadPoolExecutor(workers) as threads:
            try:
                feeding = [threads.submit(self.fed, each, waiting, late, finished, until) for each in self.running[:workers]]
                for _ in feeding:
                    for job in iter(finished.get, None):
                        done(job)
                for one in feeding:
                    one.result()
                return [*late, *waiting] if time.perf_counter() > until else []
            finally:
                waiting.clear()  # who is interrupted waits for what is begun, not for what was to come

    def started(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        return subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def ended(self, process: subprocess.Popen[bytes]) -> None:
        """Let a process go: without jobs to come it ends by itself."""
        self.running.remove(process)
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        process.wait()

    def end(self) -> None:
        for process in list(self.running):
            self.ended(process)

    def fed(self, process: subprocess.Popen[bytes], waiting: deque[CompileJob], late: list[CompileJob],
            finished: SimpleQueue[CompileJob | None], until: float) -> None:
        """Give a process one job after another until none waits; another takes the place of one that dies after its first, and
        one that is late is stopped.

        What is finished is said, and None when no more will be.
        """
        answered = 0
        try:
            while (job := next_of(waiting, until)) is not None:
                if self.answers(process, job, until):
                    answered += 1
                    finished.put(job)
                    continue
                if process.poll() is None and time.perf_counter() > until:
                    process.kill()
                    late.append(job)
                    self.ended(process)
                    return
                if not answered:
                    return
                self.ended(process)
                process, answered = self.started(), 0
                self.running.append(process)
        finally:
            finished.put(None)

    def answers(self, process: subprocess.Popen[bytes], job: CompileJob, until: float) -> bool:
        """Whether a process did a job in time, and lives."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(job, process.stdin)
            process.stdin.flush()
        except BrokenPipeError:
            return False
        left_s = None if until == inf else max(0.0, until + LATE_S - time.perf_counter())
        ready, *_ = select([process.stdout], [], [], left_s)
        return bool(ready) and process.stdout.read(1) == DONE


DONE = b"."
WORKERS = Workers()
atexit.register(WORKERS.end)


def precompile(*rounds: Iterable[CompileJob], done: Callable[[CompileJob], object] = lambda job: None,
               until: float = inf) -> set[str]:
    """Compile jobs into Triton's cache, on all processors, those of one round before those of the next; `done` after each.

    After `until` none is begun; what they are `alike` of those that were not.
    """
    each = dict[str, CompileJob]()
    for jobs in rounds:
        fresh = {alike: job for job in jobs if (alike := job.alike) not in each}
        each |= sorted(fresh.items(), key=lambda one: (-KERNELS[one[1].kernel].slow, -unrolled(one[1])))
    if len(each) < FEWEST:
        return set()
    return {job.alike for job in WORKERS.compile(list(each.values()), min(os.cpu_count() or 1, len(each) // 4), done, until)}


def serve(jobs: BinaryIO, answers: BinaryIO) -> None:
    """Compile one job after another, and say so of each."""
    while True:
        try:
            job: CompileJob = pickle.load(jobs)
        except EOFError:
            return
        job.run()
        answers.write(DONE)
        answers.flush()


if __name__ == "__main__":
    answered = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what compilers print goes where it can be read, and answers stay alone
    serve(sys.stdin.buffer, answered)
