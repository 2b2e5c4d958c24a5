"""When everything happens in a block of reusable engines: the layer program, played clock by clock as the hardware runs it."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from math import ceil, log2

from dovetail.cost.reusable_jobs import (
    ARRAY,
    ARRAY_SLOTS,
    BURST_BEATS,
    DEPTHWISE,
    DEPTHWISE_SLOTS,
    Kind,
    Program,
    Transfer,
    fifo_depth,
)

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


def stages_of(program: Program) -> tuple[int, int]:
    """Clock edges from the last issued work of a job to its word in memory, of either engine."""
    config, shared = program.config, program.config.monolithic and program.phases > 0
    adds = ADD_STAGES * any(x.add is not None for x in program.layers.layers)
    array = ARRAY_STAGES + config.tree_levels + FINISH_STAGES + adds
    products = config.inputs if shared else config.taps
    return array + shared, ARRAY_STAGES + 2 + ceil(log2(products)) + FINISH_STAGES + shared


class Play:
    """The clocks at which everything happens, frame after frame."""

    def __init__(self, program: Program) -> None:
        config = program.config
        self.program, stages = program, stages_of(program)
        self.rows = [(job.engine, job.needs, job.weight_beats + job.constant_beats, job.clocks,
                      job.tail + stages[job.engine] + (job.words if job.engine == ARRAY else 0), job.needs_input,
                      job.needs_output, job.releases_input, job.finishes) for job in program.jobs]
        self.beats_per_clock = config.bandwidth_bytes / config.port_bytes
        self.fifo = fifo_depth(config)
        self.slots = (ARRAY_SLOTS, DEPTHWISE_SLOTS)
        self.free = [0, 0]
        self.done: list[list[int]] = [[], []]
        self.filled_at, self.ahead = float(FIRST_BEAT_CLOCKS + config.latency_clocks), 0.0
        entry, last = (program.layers.maps[t] for t in (program.layers.entry, program.layers.exit))
        self.load, self.leave = (m.pixels * config.words(m.channels) for m in (entry, last))
        self.begins = self.loaded = self.left = 0
        self.released: list[int] = []

    def frame(self, number: int) -> int:
        """Clock at which the last word of the frame's output is written."""
        buffers = self.program.config.input_buffers
        begins = max(self.loaded, self.released[number - buffers] if number >= buffers else 0)
        self.loaded = begins + self.load
        end, free, done = 0, self.free, self.done
        array_base, depthwise_base = len(done[ARRAY]), len(done[DEPTHWISE])
        for engine, (array, depthwise), beats, clocks, after, reads, writes, releases, finishes in self.rows:
            waits = self.begins
            if array:
                waits = max(waits, done[ARRAY][array_base + array - 1])
            if depthwise:
                waits = max(waits, done[DEPTHWISE][depthwise_base + depthwise - 1])
            if reads:
                waits = max(waits, self.loaded)
            if writes:
                waits = max(waits, self.left)
            issued = max(free[engine], self._fill(beats, done[engine], self.slots[engine]) + FILLED_CLOCKS,
                         waits + START_CLOCKS) + clocks
            free[engine] = issued
            done[engine].append(issued + after)
            if releases:
                self.released.append(issued + after)
            if finishes:
                end = issued + after
        self.begins = max(times[-1] for times in done if times) + FRAME_CLOCKS
        self.left = end + self.leave
        return end

    def _fill(self, beats: int, earlier: list[int], slots: int) -> int:
        """Clock at which a job's weights are there: beats wait in the FIFO while there is no room for them."""
        start = self.filled_at + NEXT_FILL_CLOCKS
        if len(earlier) >= slots:
            start = max(start, earlier[-slots] + ROOM_CLOCKS)
        rate, most = self.beats_per_clock, self.fifo
        ahead = min(self.ahead + (start - self.filled_at) * rate, most)
        self.filled_at = start + max(beats, (beats - ahead) / rate)
        self.ahead = max(0.0, min(ahead + (self.filled_at - start) * rate - beats, most))
        return ceil(self.filled_at)


class Striped(Play):
    """The same for maps in external memory: weights and rows pass the port in the order of `Program.transfers`."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.bus, self.beats, self.asked = self.filled_at, 0, float(FIRST_BEAT_CLOCKS)
        self.taken: deque[tuple[int, float, float]] = deque([(0, 0.0, 0.0)])
        """Beats taken out of the FIFO so far, with the clocks in which the last of them were."""
        self.loads: list[float] = []
        self.stores: list[float] = []
        self.bursts: list[int] = []

    def frame(self, number: int) -> int:
        buffers = self.program.config.input_buffers
        begins = max(self.loaded, self.released[number - buffers] if number >= buffers else 0)
        self.loaded = begins + self.load
        self.loads, self.stores, self.bursts = [0.0], [0.0], [0]
        self.bases = len(self.done[ARRAY]), len(self.done[DEPTHWISE])
        self.end = 0
        for transfer in self.program.transfers:
            if transfer.kind is Kind.WEIGHTS:
                self._job(transfer.job)
            elif transfer.kind is Kind.LOAD:
                takes = max(transfer.beats, transfer.words)
                filled = self._read(transfer.beats, takes, self._after(transfer.needs) + ROOM_CLOCKS,
                                    max(self.begins, self._written(transfer.stored)) + ENTRY_CLOCKS, transfer.bursts)
                self.loads.append(filled + LOADED_CLOCKS - START_CLOCKS)
            else:
                self._store(transfer)
        self.begins = max(times[-1] for times in self.done if times) + FRAME_CLOCKS
        self.left = self.end + self.leave
        return self.end

    def _after(self, needs: tuple[int, int]) -> int:
        """When as many jobs of either engine are done, and the frame has begun."""
        return max([self.begins, *(self.done[e][self.bases[e] + n - 1] for e, n in enumerate(needs) if n)])

    def _written(self, bursts: int) -> float:
        return self.stores[bisect_left(self.bursts, bursts)]

    def _job(self, number: int) -> None:
        job = self.program.jobs[number]
        engine, _, beats, clocks, after, reads, writes, releases, finishes = self.rows[number]
        waits = max(self._after(job.needs), ceil(self.loads[job.loads]), ceil(self._written(job.stores)))
        if reads:
            waits = max(waits, self.loaded)
        if writes:
            waits = max(waits, self.left)
        earlier, slots = self.done[engine], self.slots[engine]
        room = earlier[-slots] + ROOM_CLOCKS if len(earlier) >= slots else 0
        filled = ceil(self._read(beats, beats, room, 0.0, -(-beats // BURST_BEATS)))
        issued = max(self.free[engine], filled + FILLED_CLOCKS, waits + START_CLOCKS) + clocks
        self.free[engine] = issued
        self.done[engine].append(issued + after)
        if releases:
            self.released.append(issued + after)
        if finishes:
            self.end = issued + after

    def _read(self, beats: int, takes: int, room: float, written: float, bursts: int) -> float:
        """When the last of some beats has been taken, which needs room and, for rows, that they were written before."""
        latency, rate = self.program.config.latency_clocks, self.beats_per_clock
        start = max(self.filled_at + NEXT_FILL_CLOCKS, room)
        self.asked = max(self.asked, written, self._taken(self.beats - self.fifo)) + REQUEST_CLOCKS
        first = max(self.bus, self.asked + latency)
        self.bus = first + beats / rate
        self.asked += REQUEST_CLOCKS * (bursts - 1)
        rest = self.beats + beats - self.fifo
        if rest > self.beats:
            self.bus = max(self.bus, start + (rest - self.beats) * takes / beats)
        else:
            self.bus = max(self.bus, self._taken(rest))
        self.filled_at = max(max(start, first) + takes, self.bus)
        self.beats += beats
        self.taken.append((self.beats, start, self.filled_at))
        return self.filled_at

    def _taken(self, beats: int) -> float:
        """When so many beats had been taken."""
        while len(self.taken) > 1 and self.taken[1][0] < beats:
            self.taken.popleft()
        if beats <= self.taken[0][0] or len(self.taken) == 1:
            return self.taken[0][2] if beats > 0 else 0.0
        (before, _, _), (count, start, stop) = self.taken[0], self.taken[1]
        return start + (stop - start) * (beats - before) / (count - before)

    def _store(self, transfer: Transfer) -> None:
        ready = self._after(transfer.needs)
        self.asked = max(self.asked, ready) + ENTRY_CLOCKS + REQUEST_CLOCKS * transfer.bursts
        start = max(self.bus, ready + STORE_CLOCKS, self.asked - REQUEST_CLOCKS * (transfer.bursts - 1))
        self.bus = max(start + transfer.beats / self.beats_per_clock, start + transfer.words)
        self.stores.append(self.bus + self.program.config.latency_clocks + WRITTEN_CLOCKS)
        self.bursts.append(self.bursts[-1] + transfer.bursts)
