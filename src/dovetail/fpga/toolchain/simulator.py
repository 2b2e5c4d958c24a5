"""A simulator that stays: a design in a process of its own, which takes frames while others are under way in it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

import numpy as np

from dovetail import processes
from dovetail.errors import MismatchError, ToolError
from dovetail.fpga.design import Design
from dovetail.fpga.packing import Integers, count_frames, pack, unpack
from dovetail.fpga.toolchain.simulate import (
    DRAIN_CYCLES,
    RUN_MEMORY_BYTES,
    STUCK,
    TOO_MANY,
    UNSTABLE,
    Simulation,
    explain,
    quiet_cycles,
    scratch_folder,
)
from dovetail.fpga.toolchain.verilate import PROGRAM

MOST_FOLLOWING = 64
"""Frames that followed each other whose cycles are kept; later ones follow as these did."""
SAID_LINES = 12
"""Last lines of a process that are kept, to say why it ended."""


class Simulator:
    """The harness of `simulate` on a pipe of frames: the design keeps its state, the clock stands while there is no frame.

    Any number of threads may `run` frames at the same time.
    """

    def __init__(self, design: Design, program: Path, timeout_s: float) -> None:
        """`program` is what `verilate.build` made of the design alone; frames that take longer than `timeout_s` end it."""
        self.design, self.timeout_s, self.where = design, timeout_s, f"simulation of {design.top}"
        self._open = contextlib.ExitStack()
        self.folder = self._open.enter_context(scratch_folder())
        os.mkfifo(self.folder / "jobs.txt")
        lead = next((i for i, port in enumerate(design.inputs) if not port.loads), 0)
        command = (str(program / PROGRAM), str(self.folder), str(lead), str(quiet_cycles(design)), str(DRAIN_CYCLES))
        self.process = processes.start(command, program, subprocess.PIPE, {}, RUN_MEMORY_BYTES)
        self._open.callback(self._end)
        self._jobs = os.open(self.folder / "jobs.txt", os.O_RDWR | os.O_CLOEXEC)
        self._open.callback(os.close, self._jobs)
        self._lock, self._sent = threading.Lock(), 0
        self._waiting: dict[int, Future[tuple[int, ...]]] = {}
        self._ended: MismatchError | ToolError | None = None
        threading.Thread(target=self._listen, name=self.where, daemon=True).start()

    def close(self) -> None:
        """End the process, whatever it does."""
        self._open.close()

    def _end(self) -> None:
        if self.process.poll() is None:
            processes.kill(self.process)
        else:
            processes.forget(self.process)

    def run(self, inputs: Mapping[str, Integers]) -> Simulation:
        """As `simulate.simulate`; `frame_cycles` are of the frames that followed each other up to these without a gap.

        ToolError where the process died or takes too long.
        """
        start = time.monotonic()
        count = count_frames(self.design, inputs, self.where)
        try:
            sent = [self._send({p.tensor: inputs[p.tensor][i : i + 1] for p in self.design.inputs if not p.loads}, inputs)
                    for i in range(count)]
            cycles = [future.result(start + self.timeout_s - time.monotonic()) for _, future in sent]
            found = {port.tensor: np.concatenate([
                unpack(port, np.fromfile(self.folder / f"{number}_out{n}.bin", dtype=np.uint8), 1) for number, _ in sent])
                for n, port in enumerate(self.design.outputs)}
        except TimeoutError:
            self._end()
            raise ToolError(f"{self.where}: not finished after {self.timeout_s:g} s, stopped; give it a longer limit") from None
        except OSError as error:
            raise ToolError(f"{self.where}: temporary files: {error.strerror or error}; make room for them") from error
        ways = (("in", self.design.inputs), ("out", self.design.outputs))
        for name in (f"{number}_{way}{n}.bin" for number, _ in sent for way, ports in ways for n in range(len(ports))):
            (self.folder / name).unlink(missing_ok=True)
        took_s = time.monotonic() - start
        return Simulation(found, cycles[-1][-1], 0, cycles[-1], wall_s=took_s, run_s=took_s)

    def _send(self, frame: Mapping[str, Integers], sets: Mapping[str, Integers]) -> tuple[int, Future[tuple[int, ...]]]:
        """Write a frame's beats, with the weights before the first one, and say that they are there."""
        with self._lock:
            if self._ended is not None:
                raise self._ended
            number, future = self._sent, Future[tuple[int, ...]]()
            self._sent += 1
            self._waiting[number] = future
            for n, port in enumerate(self.design.inputs):
                path, values = self.folder / f"{number}_in{n}.bin", sets[port.tensor] if port.loads else frame[port.tensor]
                if port.loads and number:
                    path.touch()
                else:
                    pack(port, values, len(values)).tofile(path)
            os.write(self._jobs, b"%d\n" % number)
        return number, future

    def _listen(self) -> None:
        """Hear of frames that have left, until the process ends."""
        said, following, base = deque[str](maxlen=SAID_LINES), list[int](), 0
        assert self.process.stdout is not None, "asked for"
        with self.process.stdout as lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip()
                word, *numbers = text.split(" ")
                if word != "frame":
                    said.append(text)
                    continue
                number, first, last, followed = map(int, numbers)
                if not followed or not following:
                    following, base = [], first - 1
                if len(following) < MOST_FOLLOWING:
                    following.append(last - base)
                self._waiting.pop(number).set_result(tuple(following))
        ended = self._reason(self.process.wait(), said)
        with self._lock:
            self._ended, waiting = ended, list(self._waiting.values())
            self._waiting.clear()
        for future in waiting:
            future.set_exception(ended)

    def _reason(self, code: int, said: deque[str]) -> MismatchError | ToolError:
        """What is to be said of a process that has ended."""
        failed = next((line.partition(" ")[2] for line in said if line.startswith("failed ")), None)
        if failed is not None and code in (STUCK, TOO_MANY, UNSTABLE):
            return MismatchError(explain(code, failed, [self.design]))
        how = f"ended by signal {-code}" if code < 0 else f"exit code {code}"
        return ToolError("\n".join([f"{self.where}: its process died, {how}", *said]))
