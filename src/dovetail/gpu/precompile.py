"""Kernels compiled side by side: Triton compiles under one lock per process, so several processes fill its cache on disk."""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch
import triton
from triton.runtime.jit import MockTensor

from dovetail.gpu import kernels, kernels_bytes, kernels_depthwise, kernels_fused, kernels_held, kernels_moves

KERNELS: Mapping[str, Any] = {
    "conv": kernels.conv, "deep": kernels_held.deep, "vector": kernels_held.vector, "depthwise": kernels_depthwise.depthwise,
    "bytewise": kernels_bytes.bytewise, "fused": kernels_fused.fused,
    "banded": kernels_fused.banded, "pool": kernels_moves.pool, "mean": kernels_moves.mean, "add": kernels_moves.add,
    "chosen": kernels_moves.chosen, "looked_up": kernels_moves.looked_up,
    "multiplied": kernels_moves.multiplied}
ALIGNED, UNALIGNED = 16, " unaligned"
"""Bytes that Triton takes operands to begin at a multiple of, and what is said of those that do not."""
FEWEST = 8
"""Jobs below which starting processes takes longer than compiling."""


class Anywhere(MockTensor):  # type: ignore[misc]  # Triton states no types
    """An operand that is not there, and begins at no round address."""

    @staticmethod
    def data_ptr() -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Job:
    """A kernel to compile: element types (or numbers) of its operands, constants and tile.

    A type that ends in UNALIGNED is that of an operand that begins anywhere, as parts of channels do: Triton compiles kernels
    anew for such.
    """

    kernel: str
    operands: tuple[str | int, ...]
    constants: Mapping[str, int | float | bool | str]
    config: Mapping[str, int]
    pdl: bool

    def run(self) -> None:
        """Compile; what does not fit is left for the one who launches it to find out."""
        operands = [o if isinstance(o, int) else Anywhere(getattr(torch, o.removesuffix(UNALIGNED))) if o.endswith(UNALIGNED) else
                    getattr(torch, o) for o in self.operands]
        options = {**self.config, **({"launch_pdl": True} if self.pdl else {})}
        try:
            KERNELS[self.kernel].warmup(*operands, grid=(1, 1, 1), **self.constants, **options, PDL=self.pdl)
        except (triton.runtime.errors.OutOfResources, triton.compiler.errors.CompilationError, RuntimeError):
            return


class Workers:
    """Processes that compile; they stay for the next jobs, since beginning takes each of them longer than a kernel does."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", "dovetail.gpu.precompile")) -> None:
        self.command, self.running = command, list[subprocess.Popen[bytes]]()

    def compile(self, jobs: Sequence[Job], count: int) -> None:
        """Compile all jobs on `count` processes; the job of one that dies is left to whoever launches it."""
        for process in [p for p in self.running if p.poll() is not None]:
            self.ended(process)
        while len(self.running) < count:
            self.running.append(self.started())
        waiting = deque(jobs)
        with ThreadPoolExecutor(count) as threads:
            try:
                list(threads.map(lambda process: self.fed(process, waiting), self.running[:count]))
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

    def fed(self, process: subprocess.Popen[bytes], waiting: deque[Job]) -> None:
        """Give a process one job after another until none waits."""
        assert process.stdin is not None
        assert process.stdout is not None
        while waiting:
            try:
                pickle.dump(waiting.popleft(), process.stdin)
                process.stdin.flush()
            except (IndexError, BrokenPipeError):  # another process took the last one, or this one is no more
                return
            if process.stdout.read(1) != DONE:
                return


DONE = b"."
WORKERS = Workers()
atexit.register(WORKERS.end)


def precompile(jobs: Sequence[Job]) -> None:
    """Compile all jobs into Triton's cache, on all processors."""
    workers = min(os.cpu_count() or 1, len(jobs) // 4)
    if len(jobs) >= FEWEST and workers >= 2:
        WORKERS.compile(jobs, workers)


def serve(jobs: BinaryIO, answers: BinaryIO) -> None:
    """Compile one job after another, and say so of each."""
    while True:
        try:
            job: Job = pickle.load(jobs)
        except EOFError:
            return
        job.run()
        answers.write(DONE)
        answers.flush()


if __name__ == "__main__":
    answered = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what compilers print goes where it can be read, and answers stay alone
    serve(sys.stdin.buffer, answered)
