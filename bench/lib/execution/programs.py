"""A plan's program in execution: one frame through its segments, or many, every device at work on another one."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from queue import PriorityQueue

import numpy as np

from dovetail.ir import Array, slices
from dovetail.schedule.program import Program, Segment
from lib.execution.parts import Runner

IN_FLIGHT = 6
"""Frames under way at most (chosen: twice the places of a frame, on the CPU, on the GPU and between them)."""


@dataclass(slots=True, eq=False)
class Execution:
    """A program with a runner for every segment."""

    program: Program
    runners: Mapping[str, Runner]
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """Of every segment, the seconds of its runs; moving its tensors included."""

    def frame(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One frame, segment after segment."""
        memory = dict(inputs)
        for segment in self.program.segments:
            self.run_segment(segment, memory)
        return {name: memory[name] for name in self.program.graph.outputs}

    def run_segment(self, segment: Segment, memory: dict[str, Array]) -> None:
        begun = time.perf_counter()
        given = {b.name: np.ascontiguousarray(memory[b.tensor][(slice(None), *slices(b.region)[1:])]) for b in segment.reads}
        found = self.runners[segment.name].run(given)
        for binding in segment.writes:
            tensor, values = self.program.tensors[binding.tensor], found[binding.name]
            region = (slice(None), *slices(binding.region)[1:])
            if values[0].size == np.prod(tensor.shape[1:]):
                memory[binding.tensor] = values.reshape(len(values), *tensor.shape[1:])
                continue
            whole = memory.setdefault(binding.tensor, np.zeros((len(values), *tensor.shape[1:]), dtype=tensor.dtype))
            whole[region] = values.reshape(whole[region].shape)
        self.seconds.setdefault(segment.name, []).append(time.perf_counter() - begun)

    def stream(self, inputs: Mapping[str, Array], count: int) -> list[dict[str, Array]]:
        """So many frames, in order: a thread for every device takes the earliest frame that is ready for it."""
        return _Stream(self, inputs, count).run()


class _Stream:
    """Frames on their way through a program."""

    def __init__(self, execution: Execution, inputs: Mapping[str, Array], count: int) -> None:
        self.execution, self.inputs, self.count = execution, inputs, count
        self.segments = execution.program.segments
        made = {b.tensor: set[str]() for s in self.segments for b in s.writes}
        for s in self.segments:
            for b in s.writes:
                made[b.tensor].add(s.name)
        self.needs = {s.name: set().union(*(made.get(b.tensor, set()) for b in s.reads)) for s in self.segments}
        self.queues = {s.device: PriorityQueue[tuple[int, int]]() for s in self.segments}
        self.memory, self.done = dict[int, dict[str, Array]](), dict[int, set[str]]()
        self.results: list[dict[str, Array]] = [{}] * count
        self.lock, self.room, self.failed = threading.Lock(), threading.Semaphore(IN_FLIGHT), list[BaseException]()

    def run(self) -> list[dict[str, Array]]:
        workers = [threading.Thread(target=self.serve, args=(q,), daemon=True) for q in self.queues.values()]
        for worker in workers:
            worker.start()
        for frame in range(self.count):
            self.room.acquire()
            if self.failed:
                break
            self.memory[frame], self.done[frame] = dict(self.inputs), set()
            self.offer(frame, {s.name for s in self.segments if not self.needs[s.name]})
        for _ in range(IN_FLIGHT):
            self.room.acquire()
        for queue in self.queues.values():
            queue.put((self.count, -1))
        for worker in workers:
            worker.join()
        if self.failed:
            raise self.failed[0]
        return self.results

    def offer(self, frame: int, names: set[str]) -> None:
        for index, segment in enumerate(self.segments):
            if segment.name in names:
                self.queues[segment.device].put((frame, index))

    def serve(self, queue: PriorityQueue[tuple[int, int]]) -> None:
        while (job := queue.get())[1] >= 0:
            frame, index = job
            segment = self.segments[index]
            try:
                self.execution.run_segment(segment, self.memory[frame])
            except BaseException as reason:  # the one who waits raises it
                self.failed.append(reason)
                for _ in range(IN_FLIGHT + self.count):
                    self.room.release()
                return
            with self.lock:
                before = self.done[frame] | {segment.name}
                ready = {s.name for s in self.segments if segment.name in self.needs[s.name] and self.needs[s.name] <= before}
                self.done[frame] = before
            if len(before) == len(self.segments):
                memory = self.memory.pop(frame)
                self.results[frame] = {name: memory[name] for name in self.execution.program.graph.outputs}
                self.room.release()
            self.offer(frame, ready)
