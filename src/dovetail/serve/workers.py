"""Waiting requests, and the worker processes that answer them: batches, restarts, hangs.

A batch whose worker dies or hangs is sent again to a new one: results are deterministic, so repeating is safe.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, ToolError
from dovetail.ir import Array
from dovetail.serve.protocol import InferRequest, RequestError, Signature
from dovetail.serve.runner import Opener, work

ATTEMPTS = 3
"""How often a request is computed before it is answered by an error: more often than a stray kill meets one. Chosen."""
IDLE_S = 0.5
"""Seconds after which an idle worker is looked at. Chosen."""
RETRY_S = 2.0
"""Seconds between two starts of a worker that did not come up. Chosen."""
END_S = 5.0
"""Seconds that a worker has to end by itself. Chosen."""


class WorkerDiedError(DovetailError):
    """A worker process ended, or was ended since it hung."""


@dataclass(slots=True, eq=False)
class Waiting:
    """An accepted request; `answer` is a future of the event loop."""

    request: InferRequest
    answer: asyncio.Future[dict[str, Array]]
    attempts: int = 0


@dataclass(slots=True)
class RequestQueue:
    """Accepted requests in order, a bounded number of them; one thread puts, workers' threads take."""

    most: int
    waiting: deque[Waiting] = field(default_factory=deque)
    changed: threading.Condition = field(default_factory=threading.Condition)
    closed: bool = False

    @property
    def full(self) -> bool:
        return len(self.waiting) >= self.most

    def put(self, one: Waiting) -> None:
        """Accept a request.

        Raises:
            RequestError: too many wait.
        """
        with self.changed:
            if self.full:
                raise RequestError(503, f"{self.most} requests wait already; try again later")
            self.waiting.append(one)
            self.changed.notify()

    def take(self, frames: int) -> list[Waiting] | None:
        """Requests of at most so many frames together; none after a while without any, None when all are done and it is closed.

        One that failed before is alone, so that it fails no other.
        """
        with self.changed:
            if not self.waiting and not self.closed:
                self.changed.wait(IDLE_S)
            taken: list[Waiting] = []
            while self.waiting:
                first = self.waiting[0]
                frames -= first.request.frames
                if taken and (frames < 0 or first.attempts or taken[0].attempts):
                    break
                self.waiting.popleft()
                if first.answer.done():  # its deadline has passed
                    frames += first.request.frames
                else:
                    taken.append(first)
            return taken if taken or self.waiting or not self.closed else None

    def give_back(self, batch: Sequence[Waiting]) -> None:
        """Put requests back to the front, beyond the limit too: they are accepted."""
        with self.changed:
            self.waiting.extendleft(reversed(batch))
            self.changed.notify()

    def forget(self, one: Waiting) -> None:
        """Let go of a request that nobody waits for."""
        with self.changed:
            if one in self.waiting:
                self.waiting.remove(one)

    def close(self) -> None:
        """Let workers end when all that was accepted is answered."""
        with self.changed:
            self.closed = True
            self.changed.notify_all()


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """How a model is run; every number is an option of `dovetail serve`."""

    most_frames: int
    most_waiting: int
    workers: int
    hang_s: float


@dataclass(frozen=True, slots=True)
class WorkerCounts:
    """Who hears of batches (their frames) and of workers that had to be started again."""

    batch: Callable[[int], None]
    restart: Callable[[], None]


class WorkerProcess:
    """A thread that keeps one worker process alive and feeds it."""

    def __init__(self, name: str, opener: Opener, queue: RequestQueue, limits: WorkerLimits, counts: WorkerCounts,
                 loop: asyncio.AbstractEventLoop) -> None:
        self.name, self.opener, self.queue, self.limits, self.counts, self.loop = name, opener, queue, limits, counts, loop
        self.opened: asyncio.Future[tuple[Signature, tuple[str, ...]]] = loop.create_future()
        self.fault: str | None = None
        """Why no process is there to compute, after it could not be started again."""
        self.process: ForkServerProcess | None = None
        self.pipe: Connection | None = None
        self.identity, self.abandoned = "", False
        self.thread = threading.Thread(target=self._live, name=f"worker of {name}", daemon=True)
        self.thread.start()

    @property
    def pid(self) -> int | None:
        """The process that computes now."""
        return None if self.process is None else self.process.pid

    def abandon(self) -> None:
        """End without answering anything."""
        self.abandoned = True
        self.queue.close()
        with suppress(AttributeError, ValueError):  # not there yet, or closed by its thread
            self.process.kill()  # type: ignore[union-attr]

    def _live(self) -> None:
        """Start a process, feed it until the queue is closed and empty, and end it."""
        try:
            signature, self.identity, notes = self._start()
        except DovetailError as error:
            self._tell(partial(fail, [self.opened], error))
            self._end()
            return
        self._tell(partial(settle, self.opened, (signature, notes)))
        while (batch := self.queue.take(self.limits.most_frames)) is not None and not self.abandoned:
            if not self._alive() and not self._restarted():
                self.queue.give_back(batch)
                time.sleep(RETRY_S)
            elif batch:
                self._answer(batch)
        self._end()

    def _start(self) -> tuple[Signature, str, tuple[str, ...]]:
        """Begin a process and wait until its runner is open, however long it takes to check a build.

        Raises:
            DovetailError: it did not come up.
        """
        context = multiprocessing.get_context("forkserver")  # it has imported everything, so that a restart is short
        context.set_forkserver_preload([work.__module__, "onnxruntime"])
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(self.opener, theirs), name=f"dovetail {self.name}", daemon=False)
        try:
            self.process.start()
            theirs.close()
            if self.abandoned:
                self.process.kill()
            opened, wrong = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise ToolError(f"{self.name}: its worker process ended before the build was open ({error!r}); "
                            "is there enough memory?") from None
        if wrong is not None:
            raise ToolError(wrong)
        return opened  # type: ignore[no-any-return]

    def _alive(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def _restarted(self) -> bool:
        """Start the process again; a folder that holds another build now is not used before it is loaded by name."""
        self._end()
        self.counts.restart()
        try:
            if self._start()[1] != self.identity:
                raise ToolError(f"{self.name}: its folder holds another build than the one that was loaded; load it again")
        except DovetailError as error:
            self._end()
            self._fail(str(error))
            return False
        self.fault = None
        return True

    def _fail(self, text: str) -> None:
        if text != self.fault:
            print(f"dovetail serve: {text}", file=sys.stderr, flush=True)
        self.fault = text

    def _answer(self, batch: list[Waiting]) -> None:
        """Compute a batch, and answer it; where that fails, its requests are tried again one by one."""
        inputs = {name: np.concatenate([w.request.inputs[name] for w in batch]) for name in batch[0].request.inputs}
        frames = sum(w.request.frames for w in batch)
        self.counts.batch(frames)
        try:
            results = self._compute(inputs, frames)
        except DovetailError as error:
            print(f"dovetail serve: {self.name}: {error}", file=sys.stderr, flush=True)
            for one in batch:
                one.attempts += 1
            self.queue.give_back([one for one in batch if one.attempts < ATTEMPTS])
            self._tell(partial(fail, [one.answer for one in batch if one.attempts >= ATTEMPTS],
                               RequestError(500, f"the model failed {ATTEMPTS} times on this request")))
            return
        self._tell(partial(deliver, batch, results))

    def _compute(self, inputs: Mapping[str, Array], frames: int) -> dict[str, Array]:
        """The results of a batch, checked to have its frames.

        Raises:
            DovetailError: the process died, hung or failed.
        """
        assert self.pipe is not None, "started"
        hangs = threading.Event()
        limit = threading.Timer(self.limits.hang_s, self._give_up, [hangs])  # a process that stands still takes no batch either
        limit.start()
        try:
            self.pipe.send(inputs)
            results, wrong = self.pipe.recv()
        except (EOFError, OSError):
            how = f"killed, since it gave no answer within {self.limits.hang_s:g} s; --hang-s allows longer" \
                if hangs.is_set() else "ended by itself"
            self._kill()
            raise WorkerDiedError(f"worker process {how}; its requests are sent again") from None
        finally:
            limit.cancel()
            limit.join()
        if wrong is not None:
            raise WorkerDiedError(wrong)
        if short := [name for name, x in results.items() if len(x) != frames]:
            raise WorkerDiedError(f"output {short[0]} has {len(results[short[0]])} entries for {frames} frames")
        return results  # type: ignore[no-any-return]

    def _give_up(self, hangs: threading.Event) -> None:
        assert self.process is not None, "started"
        hangs.set()
        self.process.kill()

    def _kill(self) -> None:
        assert self.process is not None, "started"
        self.process.kill()
        self.process.join()

    def _end(self) -> None:
        """End the process, which has nothing to do any more."""
        if self.pipe is not None:
            self.pipe.close()
        if self.process is not None and self.process.pid is not None:
            self.process.join(END_S)
            self._kill()
            self.process.close()
        self.pipe = self.process = None

    def _tell(self, what: Callable[[], object]) -> None:
        """Do something in the event loop, unless that has ended."""
        try:
            self.loop.call_soon_threadsafe(what)
        except RuntimeError:
            self.queue.close()


def settle(waiting: asyncio.Future[Any], value: object) -> None:
    """Tell who still waits."""
    if not waiting.done():
        waiting.set_result(value)


def fail(waiting: Sequence[asyncio.Future[Any]], error: DovetailError) -> None:
    """Tell all who still wait what went wrong."""
    for one in waiting:
        if not one.done():
            one.set_exception(error)


def deliver(batch: Sequence[Waiting], results: Mapping[str, Array]) -> None:
    """Give every request of a batch its own frames of the results."""
    begin = 0
    for one in batch:
        end = begin + one.request.frames
        settle(one.answer, {name: x[begin:end] for name, x in results.items()})
        begin = end
