"""A simulator that stays: a design in a process of its own, which takes frames whenever some come."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Mapping
from pathlib import Path

from dovetail import processes
from dovetail.errors import MismatchError, ToolError
from dovetail.fpga.design import Design
from dovetail.fpga.packing import Integers, count_frames
from dovetail.fpga.toolchain.simulate import (
    RUN_MEMORY_BYTES,
    STUCK,
    TOO_MANY,
    UNSTABLE,
    Simulation,
    Told,
    collect,
    explain,
    scratch_folder,
    write_job,
)
from dovetail.fpga.toolchain.tools import last_lines
from dovetail.fpga.toolchain.verilate import PROGRAM

POLL_MS = 50
"""How often a simulation that says nothing is looked after. Chosen."""


class Simulator:
    """The harness of `simulate`, whose list of runs is a pipe that stays open; every run begins with a reset.

    It ends a run by writing its clocks, into a pipe too, so that nobody waits longer than the run.
    """

    def __init__(self, design: Design, program: Path, timeout_s: float) -> None:
        """`program` is what `verilate.build` made of the design alone; a run that takes longer than `timeout_s` is ended."""
        self.design, self.timeout_s, self.runs = design, timeout_s, 0
        self._open = contextlib.ExitStack()
        self.folder = self._open.enter_context(scratch_folder())
        os.mkfifo(self.folder / "jobs.txt")
        self.log = self.folder / "simulation.log"
        with self.log.open("wb") as output:
            self.process = processes.start((str(program / PROGRAM), str(self.folder)), program, output, {}, RUN_MEMORY_BYTES)
        self._open.callback(self._end)
        self.jobs = os.open(self.folder / "jobs.txt", os.O_RDWR | os.O_CLOEXEC)
        self._open.callback(os.close, self.jobs)

    def close(self) -> None:
        """End the process, whatever it does."""
        self._open.close()

    def _end(self) -> None:
        if self.process.poll() is None:
            processes.kill(self.process)
        else:
            processes.forget(self.process)

    def run(self, inputs: Mapping[str, Integers]) -> Simulation:
        """As `simulate.simulate`; ToolError where the process died or takes too long."""
        start, index, where = time.monotonic(), self.runs, f"simulation of {self.design.top}"
        count = count_frames(self.design, inputs, where)
        self.runs += 1
        try:
            clocks = self.folder / f"{index}_frames.bin"
            os.mkfifo(clocks)
            job = write_job(self.folder, index, 0, self.design, inputs, count)
            reader = os.open(clocks, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                began = time.monotonic()
                os.write(self.jobs, job.encode())
                counts = self._wait(reader, 8 * (2 + count), began + self.timeout_s, where)
            finally:
                os.close(reader)
        except OSError as error:
            raise ToolError(f"{where}: {error.strerror or error}; make room for temporary files, or was the simulator ended?") \
                from error
        clocks.unlink()
        clocks.write_bytes(counts)
        ended = time.monotonic()
        found = collect(self.folder, index, self.design, count, Told(), ended - start, ended - began)
        for path in self.folder.glob(f"{index}_*"):
            path.unlink()
        return found

    def _wait(self, reader: int, size: int, deadline: float, where: str) -> bytes:
        """The clocks of a run, once it has ended."""
        found, poll = b"", select.poll()
        poll.register(reader, select.POLLIN)
        while len(found) < size:
            if poll.poll(POLL_MS):
                found += os.read(reader, size - len(found))
            code = self.process.poll()
            if len(found) < size and code is not None:
                raise self._ended(code, where)
            if time.monotonic() > deadline:
                self._end()
                raise ToolError(f"{where}: not finished after {self.timeout_s:g} s, stopped; give it a longer limit")
        return found

    def _ended(self, code: int, where: str) -> MismatchError | ToolError:
        """What is to be said of a process that ended before its run did."""
        with contextlib.suppress(OSError):
            for line in self.log.read_text(encoding="utf-8", errors="replace").splitlines():
                word, _, rest = line.partition(" ")
                if word == "failed" and code in (STUCK, TOO_MANY, UNSTABLE):
                    return MismatchError(explain(code, rest, [self.design]))
        said = last_lines(self.log) if self.log.exists() else ""
        how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
        return ToolError(f"{where}: its process died, {how}{'; last lines:' if said else ''}{said and chr(10)}{said}")
