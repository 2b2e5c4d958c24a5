"""When everything happens in a block of reusable engines: the layer program, played clock by clock as the hardware runs it."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from math import ceil, log2
from typing import Any, NamedTuple

from dovetail.hardware.arrays import jobs
from dovetail.hardware.arrays.jobs import ArrayProgram, ArrayTransfer, Job, TransferKind
from dovetail.hardware.arrays.layers import ArrayLayer, Config, tables_of
from dovetail.hardware.arrays.popcount import count_levels, counted_sums

START_CLOCKS = 3
"""Clocks from the end of what a job waits for (a word written, a frame loaded) to its first work."""
FILLED_CLOCKS = 2
"""Clocks from the last beat of a job's weights to its first work."""
ROOM_CLOCKS = 2
"""Clocks from the end of a job to the first beat of the one that takes its place in the weight memory."""
NEXT_FILL_CLOCKS = 1
"""Clocks between the beats of two jobs."""
FRAME_CLOCKS = 1
"""Clocks that the first jobs of a frame wait longer for the last ones of the frame before."""
ARRAY_STAGES = 7
"""Clock edges from the last work of a job to its last word in memory, beside tree, words and finishing; depthwise two more."""
FINISH_STAGES = 6
"""Clock edges that finish a sum, without an addition behind it."""
ADD_STAGES = 5
TABLE_STAGES = 2
"""Clock edges of looking an output up."""
FACTOR_STAGES, CODE_STAGES = 2, 2
"""Clock edges from counts to their products with factors, and from a sum to its code."""
FIRST_BEAT_CLOCKS = 5
"""Clocks from reset to the first beat of weights in their memory, without the memory's latency."""
LOADED_CLOCKS = 3
"""Clocks from the last beat of a load, as it is taken, until jobs know of it."""
STORE_CLOCKS = 6
"""Clocks from the last word of a stripe in its memory to the first beat that leaves."""
WRITTEN_CLOCKS = 3
"""Clocks from a burst's last beat until jobs and loads know of it, without the memory's latency."""
REQUEST_CLOCKS, ENTRY_CLOCKS = 3, 3
"""Clocks from one request to the next, and beside them from one transfer to the next."""


def stages_of(program: ArrayProgram) -> tuple[int, int]:
    """Clock edges from the last issued work of a job to its word in memory, of either engine."""
    config, shared = program.config, program.config.monolithic and program.phases > 0
    adds = ADD_STAGES * any(x.add is not None for x in program.layers.layers)
    if config.counts:
        return (ARRAY_STAGES + counted_stages(config, program.layers.layers, bool(adds)),
                ARRAY_STAGES + 2 + ceil(log2(config.taps)) + FINISH_STAGES)
    array = ARRAY_STAGES + config.tree_levels + FINISH_STAGES + adds
    products = config.inputs if shared else config.taps
    looks = [TABLE_STAGES * bool(tables) for tables in tables_of(program.layers.layers, config)]
    return array + shared + looks[0], ARRAY_STAGES + 2 + ceil(log2(products)) + FINISH_STAGES + shared + looks[1]


def counted_stages(config: Config, layers: Sequence[ArrayLayer], adds: bool) -> int:
    """Clock edges from bits to an output of an array that counts them, beside those that all arrays have."""
    sums = counted_sums(config, layers)
    if sums is None:
        return 0
    rounding = (FINISH_STAGES + ADD_STAGES * adds) if sums.rounds else CODE_STAGES
    return count_levels(config.inputs) + FACTOR_STAGES + ceil(log2(config.pairs)) + sums.passes + rounding + (
        sums.rounds > 0 and sums.codes)


class Play:
    """The clocks at which everything happens, frame after frame."""

    def __init__(self, program: ArrayProgram) -> None:
        config = program.config
        self.program, stages = program, stages_of(program)
        self.rows = [(job.engine, job.needs, job.weight_beats + job.constant_beats, job.clocks,
                      job.tail + stages[job.engine] + _last_words(job), job.needs_input, job.needs_output, job.releases_input,
                      job.finishes) for job in program.jobs]
        self.beats_per_clock = config.bandwidth_bytes / config.port_bytes
        self.fifo = jobs.fifo_depth(config)
        self.slots = (jobs.ARRAY_SLOTS, jobs.DEPTHWISE_SLOTS)
        self.free = [0, 0]
        self.done: list[list[int]] = [[], []]
        self.filled_at, self.ahead = float(FIRST_BEAT_CLOCKS + config.latency_clocks), 0.0
        entry, last = (program.layers.maps[t] for t in (program.layers.entry, program.layers.exit))
        self.load, self.leave = (m.pixels * config.words(m.channels) for m in (entry, last))
        self.begins = self.loaded = self.left = self.end = 0
        self.released: list[int] = []

    def frame(self, number: int) -> int:
        """Clock at which the last word of the frame's output is written."""
        buffers = self.program.config.input_buffers
        self.loaded = max(self.loaded, self.released[number - buffers] if number >= buffers else 0) + self.load
        self._play()
        self.begins = max(times[-1] for times in self.done if times) + FRAME_CLOCKS
        self.left = self.end + self.leave
        return self.end

    def _play(self) -> None:
        """All jobs of a frame, weights one after the other: beats wait in the FIFO while there is no room for them.

        All in one loop, since optimisers play millions of jobs; `Striped` has the same rules one by one.
        """
        done, free, begins, (of_array, of_depthwise) = self.done, self.free, self.begins, self.done
        array_base, depthwise_base = len(of_array) - 1, len(of_depthwise) - 1
        rate, most, filled_at, stock, slots = self.beats_per_clock, self.fifo, self.filled_at, self.ahead, self.slots
        for engine, (array, depthwise), beats, clocks, after, reads, writes, releases, finishes in self.rows:
            waits, earlier = begins, done[engine]
            if array and of_array[array_base + array] > waits:
                waits = of_array[array_base + array]
            if depthwise and of_depthwise[depthwise_base + depthwise] > waits:
                waits = of_depthwise[depthwise_base + depthwise]
            if reads and self.loaded > waits:
                waits = self.loaded
            if writes and self.left > waits:
                waits = self.left
            start = filled_at + NEXT_FILL_CLOCKS
            if len(earlier) >= slots[engine] and earlier[-slots[engine]] + ROOM_CLOCKS > start:
                start = earlier[-slots[engine]] + ROOM_CLOCKS
            ahead = stock + (start - filled_at) * rate
            ahead = ahead if ahead < most else most
            long = (beats - ahead) / rate
            filled_at = start + (beats if beats > long else long)
            left = ahead + (filled_at - start) * rate - beats
            stock = 0.0 if left < 0.0 else left if left < most else most
            begin, filled = waits + START_CLOCKS, ceil(filled_at) + FILLED_CLOCKS
            begin = filled if filled > begin else begin
            free[engine] = issued = (begin if begin > free[engine] else free[engine]) + clocks
            issued += after
            earlier.append(issued)
            if releases:
                self.released.append(issued)
            if finishes:
                self.end = issued
        self.filled_at, self.ahead = filled_at, stock


def _last_words(job: Job) -> int:
    """Clocks behind a job's last one in which words of its last pixel leave; the array waits for the others."""
    return min(job.words, job.pass_steps) if job.engine == jobs.ARRAY else 0


class _Step(NamedTuple):
    """A transfer with all that playing it asks for: beats, clocks in which they are taken, requests, and what it waits for."""

    kind: TransferKind
    job: int
    beats: int
    takes: int
    bursts: int
    array: int
    depthwise: int
    stored: int
    loads: int


class Striped(Play):
    """The same for maps in external memory: weights and rows pass the port in the order of `Program.transfers`."""

    def __init__(self, program: ArrayProgram) -> None:
        super().__init__(program)
        self.latency = program.config.latency_clocks
        self.bus, self.beats, self.asked = self.filled_at, 0, float(FIRST_BEAT_CLOCKS)
        self.taken: deque[tuple[int, float, float]] = deque([(0, 0.0, 0.0)])
        """Beats taken out of the FIFO so far, with the clocks in which the last of them were."""
        self.loads: list[float] = []
        self.stores: list[float] = []
        self.bursts: list[int] = []
        self.steps = [_step(program, self.rows, t) for t in program.transfers]

    def _play(self) -> None:
        """All transfers of a frame, jobs among them."""
        self.loads, self.stores, self.bursts = [0.0], [0.0], [0]
        begins, (of_array, of_depthwise) = self.begins, self.done
        array_base, depthwise_base = len(of_array) - 1, len(of_depthwise) - 1
        for step in self.steps:
            kind, _, beats, takes, bursts, array, depthwise, stored, _ = step
            ready = begins
            if array and of_array[array_base + array] > ready:
                ready = of_array[array_base + array]
            if depthwise and of_depthwise[depthwise_base + depthwise] > ready:
                ready = of_depthwise[depthwise_base + depthwise]
            if kind is TransferKind.WEIGHTS:
                self._job(step, ready)
            elif kind is TransferKind.LOAD:
                written = max(begins, self._written(stored)) + ENTRY_CLOCKS
                self.loads.append(self._read(beats, takes, ready + ROOM_CLOCKS, written, bursts) + LOADED_CLOCKS - START_CLOCKS)
            else:
                self._store(step, ready)

    def _issue(self, job: int, waits: int, filled: int) -> None:
        """Let a job work as soon as its engine is free, its weights are there, and all that it waits for is over."""
        engine, _, _, clocks, after, reads, writes, releases, finishes = self.rows[job]
        if reads and self.loaded > waits:
            waits = self.loaded
        if writes and self.left > waits:
            waits = self.left
        self.free[engine] = issued = max(self.free[engine], filled + FILLED_CLOCKS, waits + START_CLOCKS) + clocks
        self.done[engine].append(issued + after)
        if releases:
            self.released.append(issued + after)
        if finishes:
            self.end = issued + after

    def _written(self, bursts: int) -> float:
        return self.stores[bisect_left(self.bursts, bursts)] if bursts else 0.0

    def _job(self, step: _Step, waits: int) -> None:
        engine = self.rows[step.job][0]
        waits = max(waits, ceil(self.loads[step.loads]), ceil(self._written(step.stored)))
        earlier, slots = self.done[engine], self.slots[engine]
        room = earlier[-slots] + ROOM_CLOCKS if len(earlier) >= slots else 0
        self._issue(step.job, waits, ceil(self._read(step.beats, step.takes, room, 0.0, step.bursts)))

    def _read(self, beats: int, takes: int, room: float, written: float, bursts: int) -> float:
        """When the last of some beats has been taken, which needs room and, for rows, that they were written before."""
        start = max(self.filled_at + NEXT_FILL_CLOCKS, room)
        asked = max(self.asked, written, self._taken(self.beats - self.fifo)) + REQUEST_CLOCKS
        first = max(self.bus, asked + self.latency)
        bus = first + beats / self.beats_per_clock
        self.asked = asked + REQUEST_CLOCKS * (bursts - 1)
        rest = self.beats + beats - self.fifo
        last = start + (rest - self.beats) * takes / beats if rest > self.beats else self._taken(rest)
        self.bus = bus = max(bus, last)
        self.filled_at = filled = max(max(start, first) + takes, bus)
        self.beats += beats
        self.taken.append((self.beats, start, filled))
        return filled

    def _taken(self, beats: int) -> float:
        """When so many beats had been taken."""
        taken = self.taken
        while len(taken) > 1 and taken[1][0] < beats:
            taken.popleft()
        before, _, over = taken[0]
        if beats <= before or len(taken) == 1:
            return over if beats > 0 else 0.0
        count, start, stop = taken[1]
        return start + (stop - start) * (beats - before) / (count - before)

    def _store(self, step: _Step, ready: int) -> None:
        self.asked = max(self.asked, ready) + ENTRY_CLOCKS + REQUEST_CLOCKS * step.bursts
        start = max(self.bus, ready + STORE_CLOCKS, self.asked - REQUEST_CLOCKS * (step.bursts - 1))
        self.bus = max(start + step.beats / self.beats_per_clock, start + step.takes)
        self.stores.append(self.bus + self.latency + WRITTEN_CLOCKS)
        self.bursts.append(self.bursts[-1] + step.bursts)


def _step(program: ArrayProgram, rows: Sequence[tuple[Any, ...]], transfer: ArrayTransfer) -> _Step:
    if transfer.kind is TransferKind.WEIGHTS:
        job, beats = program.jobs[transfer.job], rows[transfer.job][2]
        return _Step(TransferKind.WEIGHTS, transfer.job, beats, beats, -(-beats // jobs.BURST_BEATS), *job.needs, job.stores,
                     job.loads)
    takes = transfer.words if transfer.kind is TransferKind.STORE else max(transfer.beats, transfer.words)
    return _Step(transfer.kind, 0, transfer.beats, takes, transfer.bursts, *transfer.needs, transfer.stored, 0)
