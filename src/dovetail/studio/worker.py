"""The process that reads a tab's model and solves its questions: bounded in memory and time, and replaced when it dies."""

from __future__ import annotations

import contextlib
import multiprocessing
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

from dovetail.errors import DovetailError
from dovetail.processes import STOPPING, end_with_parent
from dovetail.studio.solving import Studio

MEMORY_BYTES = 8 << 30
"""Address space of a worker: ResNet152 needs a third of it. Chosen."""
WATCHED = ("search", "pareto", "numbers", "build")
"""Commands that say how far they are."""
Told = Callable[[str, int, int], None]


class WorkerError(DovetailError):
    """A worker gave no answer: the question was wrong, took too long, or ended the process."""


def work(pipe: Connection, memory_bytes: int) -> None:
    """Answer questions from a pipe until it closes: the whole life of a worker process."""
    end_with_parent()
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    studio = Studio()
    with contextlib.suppress(EOFError, ConnectionError):  # nobody is at the other end any more
        while True:
            command, arguments = pipe.recv()
            pipe.send(_answer(studio, command, arguments, lambda *now: pipe.send(("progress", now))))


def _answer(studio: Any, command: str, arguments: Sequence[Any], progress: Told) -> tuple[str, Any]:
    """An answer, or one sentence on why there is none."""
    try:
        if command in WATCHED:
            return "done", getattr(studio, command)(*arguments, progress)
        return "done", getattr(studio, command)(*arguments)
    except DovetailError as error:
        return "refused", str(error)
    except MemoryError:
        return "refused", "this takes more memory than the studio gives a network; use the command line"
    except RecursionError:
        return "refused", "the file nests too deeply"
    except Exception as error:  # a stranger's file must not end the session with a traceback
        traceback.print_exc(file=sys.stderr)
        return "refused", f"this could not be read or planned ({type(error).__name__})"


class TabWorker:
    """A process that is started with the first question and again after it died; `stage` is what it is doing."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self.memory_bytes = memory_bytes
        self.lock = threading.Lock()
        self.process: Any = None
        self.pipe: Connection | None = None
        self.stage: tuple[str, int, int] = ("", 0, 0)
        self.starts = 0
        self.ended = False
        """Whether it was told to end, which it may not have done yet."""

    def start(self) -> None:
        """Have a process, so that the first question needs not wait for it."""
        if self.process is not None and self.process.is_alive() and not self.ended:
            return
        self.kill()
        context = multiprocessing.get_context("forkserver")  # it has imported everything, so that a restart is short
        context.set_forkserver_preload(["dovetail.studio.solving"])
        self.pipe, end = context.Pipe()
        process = context.Process(target=work, args=(end, self.memory_bytes), daemon=True, name="dovetail studio worker")
        process.start()
        self.process = process
        end.close()
        self.starts += 1

    def ask(self, command: str, *arguments: Any, limit_s: float) -> Any:
        """The answer to a question, one at a time.

        Raises:
            WorkerError: there is none.
        """
        with self.lock:
            self.start()
            pipe = self.pipe
            assert pipe is not None, "started"
            end, self.stage = time.monotonic() + limit_s, ("", 0, 0)
            try:
                pipe.send((command, arguments))
                while pipe.poll(max(0.0, end - time.monotonic())):
                    kind, value = pipe.recv()
                    if kind == "progress":
                        self.stage = value
                        continue
                    if kind == "refused":
                        raise WorkerError(value)
                    return value
            except (EOFError, OSError):
                self.kill()
                raise WorkerError("the process that reads this network ended; it may need more memory than the studio gives"
                                  ) from None
            self.kill()
            raise WorkerError(f"no answer within {limit_s:g} s; use the command line for such networks")

    def interrupt(self) -> None:
        """End what the process does; who waits for it is told."""
        process, self.ended = self.process, True
        if process is not None:
            process.kill()

    def kill(self) -> None:
        """End the process, and forget it."""
        if self.process is not None:
            self.process.kill()
            self.process.join()
        if self.pipe is not None:
            with contextlib.suppress(OSError):
                self.pipe.close()
        self.process = self.pipe = None
        self.ended = False
