"""Workers of a stream: a thread for every device, which takes the oldest frame that waits for it.

ONNX Runtime, CUDA and the processes of simulated boards compute without Python's lock, so workers run at the same time. What a
device computes is called in a thread of its own, since nobody can end a thread: one that hangs is left behind.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from queue import SimpleQueue
from random import Random
from typing import Protocol

import numpy as np

from dovetail.errors import DovetailError, TransportError, UsageError
from dovetail.fpga.toolchain.simulate import RUN_TIMEOUT_S
from dovetail.ir import Array
from dovetail.runtime.record import Failure, RunRecord, Span, bytes_of
from dovetail.runtime.stages import Stage, emulate, gather, targets
from dovetail.schedule.program import Program
from dovetail.words import counted

IN_FLIGHT = 8
"""Frames between source and reader unless told otherwise, as many as the driver sends to a board. Chosen, not measured."""
Arrays = dict[str, Array]
Delay = Callable[[str, int], None]
"""Called with stage and frame before a worker begins: tests force orders by it."""


class OnFailure(Enum):
    """What becomes of a stream one of whose workers died, hung or answered wrongly."""

    STOP = "stop"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """How a stream runs."""

    in_flight: int = IN_FLIGHT
    on_failure: OnFailure = OnFailure.STOP
    timeout_s: float = RUN_TIMEOUT_S
    """After which a worker that does not answer has failed."""
    frames: int | None = None
    """How many frames will come, where that is known: short simulations are compiled quickly, long ones well."""
    delay: Delay | None = None
    keep: bool = False
    """Whether results hold every tensor that crossed between stages, not the outputs alone."""

    def __post_init__(self) -> None:
        if self.in_flight < 1:
            raise UsageError(f"stream: {counted(self.in_flight, 'frame')} in flight; at least 1 is needed")
        if not self.timeout_s > 0:
            raise UsageError(f"stream: a timeout of {self.timeout_s:g} s; more than 0 is needed")


@dataclass(slots=True, eq=False)
class Frame:
    """One frame, or several that travel together, on its way through the stages."""

    number: int
    count: int
    memory: Arrays
    waits: list[set[int]]
    """Of every stage, the stages it still waits for."""
    left: set[int]
    """Stages that are not finished."""
    result: Future[Arrays] = field(default_factory=Future)


class Overseer(Protocol):
    """What workers need of their stream; its lock guards their queues and all frames."""

    program: Program
    record: RunRecord
    stages: Sequence[Stage]
    lock: threading.Lock
    closed: bool

    def finish(self, index: int, frames: Sequence[Frame]) -> list[Frame]: ...
    def fail(self, error: BaseException) -> None: ...


class Caller:
    """A thread that calls functions for somebody who does not wait for ever."""

    def __init__(self, name: str) -> None:
        self.calls: SimpleQueue[tuple[Future[Arrays], Callable[[], Arrays]] | None] = SimpleQueue()
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        while (call := self.calls.get()) is not None:
            result, function = call
            try:
                result.set_result(function())
            except BaseException as error:  # handed to whoever waits
                result.set_exception(error)

    def call(self, function: Callable[[], Arrays], timeout_s: float) -> Arrays:
        """What the function returns; TimeoutError where it takes longer, and the thread must not be used again."""
        result: Future[Arrays] = Future()
        self.calls.put((result, function))
        return result.result(timeout_s)

    def close(self) -> None:
        self.calls.put(None)


class Queue:
    """Frames that wait for a device, the oldest first; as many workers as frames can be inside it take them."""

    def __init__(self, name: str, stream: Overseer, inside: int, options: StreamOptions) -> None:
        self.ready: list[tuple[int, int, Frame]] = []
        """Frame number, position of the stage, frame: a heap."""
        self.waiting = threading.Condition(stream.lock)
        self.failed = False
        self.together = max(1, options.in_flight // (2 if inside == 1 else 4))
        """Frames that go into pipelined hardware together at the most; the others are left to work on meanwhile."""
        self.workers = [Worker(f"dovetail {name} {i}", stream, self, options) for i in range(inside)]

    def push(self, index: int, frame: Frame) -> None:
        """Queue a frame for a stage; the stream's lock is held."""
        heapq.heappush(self.ready, (frame.number, index, frame))
        self.waiting.notify()


class Worker(threading.Thread):
    """Runs the stages of a device."""

    def __init__(self, name: str, stream: Overseer, queue: Queue, options: StreamOptions) -> None:
        super().__init__(name=name, daemon=True)
        self.stream, self.queue, self.on_failure, self.timeout_s = stream, queue, options.on_failure, options.timeout_s
        self.delay, self.keep = options.delay, options.keep
        self.caller = Caller(f"{name} calls")

    def run(self) -> None:
        try:
            while (taken := self._take()) is not None:
                self._work(*taken)
        except BaseException as error:  # nobody else would hear of it
            self.stream.fail(error)
        self.caller.close()

    def _take(self) -> tuple[int, list[Frame]] | None:
        with self.stream.lock:
            ready = self.queue.ready
            while not ready and not self.stream.closed:
                self.queue.waiting.wait()
            if self.stream.closed:
                return None
            _, index, frame = heapq.heappop(ready)
            frames = [frame]
            if self.stream.stages[index].pipelined:  # it has no other stage
                frames += [heapq.heappop(ready)[2] for _ in range(min(len(ready), self.queue.together - 1))]
            return index, frames

    def _work(self, index: int, frames: list[Frame]) -> None:
        """Run a stage on some frames, and note when its transfers and its computing began and ended."""
        stage, record, host = self.stream.stages[index], self.stream.record, "host"
        if self.delay is not None:
            self.delay(stage.name, frames[0].number)
        began = record.now()
        with self.stream.lock:  # others may be adding tensors
            cut = [gather(stage, frame.memory) for frame in frames]
        inputs = cut[0] if len(cut) == 1 else {b.name: np.concatenate([c[b.name] for c in cut]) for b in stage.reads}
        taken = record.now()
        results = self._compute(stage, inputs, frames[0].number)
        computed = record.now()
        ends = np.cumsum([frame.count for frame in frames])[:-1]
        parted = {b.name: np.split(results[b.name], ends) for b in stage.writes}
        for i, frame in enumerate(frames):
            with self.stream.lock:  # tensors are made once, and filled while others work
                regions = targets(stage, frame.memory, frame.count, self.stream.program)
            for binding, region in zip(stage.writes, regions, strict=True):
                region[...] = parted[binding.name][i].reshape(region.shape)
        done = self.stream.finish(index, frames)
        first, count = frames[0].number, sum(frame.count for frame in frames)
        backend = "integer reference" if self.queue.failed else stage.part.backend
        record.spans += [
            Span(stage.name, f"{host}>{stage.device}", "transfer", first, count, began, taken, bytes_of(inputs)),
            Span(stage.name, stage.device, "compute", first, count, taken, computed, 0, backend),
            Span(stage.name, f"{stage.device}>{host}", "transfer", first, count, computed, record.now(), bytes_of(results))]
        for frame in done:
            names = frame.memory if self.keep else self.stream.program.graph.outputs
            frame.result.set_result({name: frame.memory[name] for name in names})

    def _compute(self, stage: Stage, inputs: Mapping[str, Array], frame: int) -> Arrays:
        """What the stage's part gives, or from its first failure on the integer reference."""
        if self.queue.failed:
            return emulate(stage, inputs, self.stream.program)
        try:
            found = self.caller.call(lambda: stage.part.run(inputs), self.timeout_s)
            check_answer(stage, inputs, found)
            return found
        except Exception as error:  # devices fail in many ways; all are reported
            if self.stream.closed:
                raise  # simulators were ended
            with self.stream.lock:
                known, self.queue.failed = self.queue.failed, True
            reason = f"no answer within {self.timeout_s:g} s" if isinstance(error, TimeoutError) else str(error) or repr(error)
            failed = time.monotonic()
            if self.on_failure is OnFailure.STOP and not known:
                self.stream.record.failures.append(Failure(stage.name, stage.device, frame, reason))
                kind = type(error) if isinstance(error, DovetailError) else TransportError
                raise kind(f"{stage.name} on {stage.device}, frame {frame}: {reason}; --on-failure fallback computes it on the "
                           "CPU and goes on") from error
            found = emulate(stage, inputs, self.stream.program)
            if not known:
                self.stream.record.failures.append(
                    Failure(stage.name, stage.device, frame, reason, time.monotonic() - failed))
            return found


def check_answer(stage: Stage, inputs: Mapping[str, Array], found: Mapping[str, Array]) -> None:
    """Refuse an answer that lacks a tensor, or that has not as many frames as went into hardware."""
    for binding in stage.writes:
        if binding.name not in found:
            raise TransportError(f"tensor {binding.tensor}: nothing came as an answer")
        sent, came = len(next(iter(inputs.values()))), len(found[binding.name])
        if stage.pipelined and came != sent:
            raise TransportError(f"tensor {binding.tensor}: {counted(came, 'frame')} came as an answer to {sent}")


def random_delays(seed: int, most_s: float) -> Delay:
    """Delays that are drawn anew for every stage and frame, the same for the same seed."""
    return lambda stage, frame: time.sleep(Random(f"{seed} {stage} {frame}").random() * most_s)
