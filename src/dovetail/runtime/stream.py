"""A stream of frames through all stages of a program at once: devices overlap, frames overlap, results come in order.

A stage runs as soon as what it reads is there. At most `in_flight` frames are between source and reader, so nothing grows
where a device or the reader is slow.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from math import ceil
from types import TracebackType

from dovetail.fpga.links.bench import build_bench
from dovetail.fpga.part import FpgaPart
from dovetail.ir import Array
from dovetail.runtime.record import RunRecord
from dovetail.runtime.stages import RunnablePart, Stage, SystemPart, needs
from dovetail.runtime.transports.board import BoardPart
from dovetail.runtime.workers import Arrays, Frame, Queue, StreamOptions
from dovetail.schedule.program import Program


class FrameStream:
    """Stages with a worker for every device, which run until the stream is closed."""

    def __init__(self, stages: Sequence[Stage], program: Program, record: RunRecord, options: StreamOptions) -> None:
        self.program, self.record, self.options = program, record, options
        self.stages: Sequence[Stage] = ()
        try:
            for stage in stages:
                self.stages = (*self.stages, _opened(stage, options))
        except BaseException:
            self._close_parts()
            raise
        self.lock, self.closed = threading.Lock(), False
        self.error: BaseException | None = None
        self.frames: dict[int, Frame] = {}
        """Those under way, by number."""
        self.submitted = 0
        self.needs = needs(stages)
        self.queues = {stage.worker: Queue(stage.worker, self, _inside(stage.part, options), options) for stage in self.stages}
        for queue in self.queues.values():
            for worker in queue.workers:
                worker.start()

    def __enter__(self) -> FrameStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def submit(self, inputs: Mapping[str, Array]) -> Future[Arrays]:
        """Send stored integers of one or several frames on their way; the future holds the outputs."""
        count = len(next(iter(inputs.values())))
        with self.lock:
            frame = Frame(self.submitted, count, dict(inputs), [set(n) for n in self.needs], set(range(len(self.stages))))
            if self.error is not None:
                frame.result.set_exception(self.error)
                return frame.result
            assert not self.closed, "a closed stream takes nothing"
            self.submitted += count
            self.frames[frame.number] = frame
            for index, waits in enumerate(frame.waits):
                if not waits:
                    self.queues[self.stages[index].worker].push(index, frame)
        return frame.result

    def finish(self, index: int, frames: Sequence[Frame]) -> list[Frame]:
        """Queue what waited for a stage, which wrote its results; returns frames of which all stages are finished."""
        done: list[Frame] = []
        with self.lock:
            for frame in frames:
                frame.left.remove(index)
                for other, waits in enumerate(frame.waits):
                    if index in waits:
                        waits.remove(index)
                        if not waits:
                            self.queues[self.stages[other].worker].push(other, frame)
                if not frame.left and self.frames.pop(frame.number, None) is not None:
                    done.append(frame)
        return done

    def fail(self, error: BaseException) -> None:
        """Stop: every frame under way ends with the error, and so does what comes after."""
        with self.lock:
            self.error = self.error or error
            frames = list(self.frames.values())
            self.frames.clear()
            self._stop()
        for frame in frames:
            frame.result.set_exception(error)

    def close(self) -> None:
        """Let workers and simulators end; frames under way are forgotten, and what a processor computes is not waited for."""
        with self.lock:
            self._stop()
            frames = list(self.frames.values())
            self.frames.clear()
        for frame in frames:
            frame.result.cancel()
        self._close_parts()

    def _close_parts(self) -> None:
        for part in (stage.part for stage in self.stages):
            if isinstance(part, FpgaPart | BoardPart):
                part.close()

    def _stop(self) -> None:
        self.closed = True
        for queue in self.queues.values():
            queue.waiting.notify_all()

    def results(self, source: Iterable[Mapping[str, Array]]) -> Iterator[Arrays]:
        """Outputs in the order of their inputs; the source is asked in the reader's thread, when there is room for a frame."""
        frames, pending, more = iter(source), deque[Future[Arrays]](), True
        while more or pending:
            while more and len(pending) < self.options.in_flight:
                inputs = next(frames, None)
                if inputs is None:
                    more = False
                    break
                pending.append(self.submit(inputs))
                if pending[0].done():
                    break
            if pending:
                yield pending.popleft().result()

    async def results_async(self, source: AsyncIterable[Mapping[str, Array]]) -> AsyncIterator[Arrays]:
        """As `results`; a result does not wait for the source's next frame."""
        frames, pending = aiter(source), deque[asyncio.Future[Arrays]]()
        coming: asyncio.Task[Mapping[str, Array] | None] | None = None
        more = True
        try:
            while more or pending:
                if more and coming is None and len(pending) < self.options.in_flight:
                    coming = asyncio.ensure_future(anext(frames, None))
                await asyncio.wait([f for f in (coming, *list(pending)[:1]) if f is not None],
                                   return_when=asyncio.FIRST_COMPLETED)
                if coming is not None and coming.done():
                    inputs, coming = coming.result(), None
                    if inputs is None:
                        more = False
                    else:
                        pending.append(asyncio.wrap_future(self.submit(inputs)))
                if pending and pending[0].done():
                    yield pending.popleft().result()
        finally:
            if coming is not None:
                coming.cancel()
                with suppress(asyncio.CancelledError):
                    await coming


def _inside(part: RunnablePart, options: StreamOptions) -> int:
    """How many frames are sent to a part one by one before the first has come back."""
    if not isinstance(part, FpgaPart) or part.simulator is None:
        return 1
    return min(options.in_flight, 2 + ceil(part.design.latency_cycles / max(1, part.design.interval_cycles)))


def _opened(stage: Stage, options: StreamOptions) -> Stage:
    """A stage whose simulator runs, for all frames; that of joined boards is compiled, for as many as go in together."""
    if isinstance(stage.part, SystemPart):
        for frames in {1, options.in_flight}:
            build_bench(stage.part.boards.system, frames)
        return replace(stage, part=replace(stage.part, timeout_s=options.timeout_s))
    if not isinstance(stage.part, FpgaPart):
        return stage
    return replace(stage, part=stage.part.opened(options.frames, options.timeout_s))
