"""When a streaming engine does what: closed forms in clock cycles, shared by the engines and the cost model.

An engine makes one *step* per clock. A step consumes the next input pixel in raster order while there is one;
after the last pixel of a frame, *flush* steps advance the window without input. The output pixel (r, c) leaves
at the step whose linear index is that of its bottom-right tap,

    n(r, c) = (r*stride_h + reach_h - 1 - pad_top) * width + c*stride_w + reach_w - 1 - pad_left,

and taps that lie in the padding are masked, so padding costs no beats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np
from numpy.typing import NDArray

from dovetail.hardware.folds import Loops
from dovetail.ir import Window

Cycles = NDArray[np.int64]

FIFO_LATENCY_CYCLES = 2
"""From the clock in which a beat is written into a FIFO to the clock in which it can be taken."""
CREDIT_RESERVE = 5
"""Beats an engine may issue before its registered credit count shows them."""
CREDIT_RETURN_CYCLES = 3
"""From the clock in which a beat leaves an engine's output FIFO to the clock in which a step may use its place."""
JOIN_SLACK_CYCLES = CREDIT_RETURN_CYCLES - 1
"""Clocks a beat may wait in its engine's output FIFO, for the other input of a join, without slowing the engine."""
CREDIT_CYCLES = FIFO_LATENCY_CYCLES + JOIN_SLACK_CYCLES + CREDIT_RESERVE + 1
"""FIFO entries an engine with an output every clock needs beyond its pipeline, so that it never waits for a credit."""
CHAIN_SLACK = 4
"""A line of at most this many pixels more than the window's reach is kept in registers instead of a memory."""
ISSUE_STAGES = 1
"""Clock edges from a step to the registered pixel."""
COUNT_STAGES = 1
"""Further edges where counters follow the step: they, and all that waits for them, see it in a register."""
OUTPUT_COUNT_STAGES = 2
"""Clock edges from a step to the counters of outputs, which lie elsewhere than those of lines."""
LINE_MEMORY_STAGES = 1
"""Further edges for the line memory's output register."""
WORD_STAGES = 1
"""Further edges for the word of a pixel that a folded engine works on; its lines are read meanwhile."""
WINDOW_STAGES = 1
"""Further edges for the window registers."""
MASK_STAGES = 1
"""Further edges for masked taps."""
HELD_STAGES = 1
"""Further edges for weights that wait before multipliers; taps that are there sooner wait too."""


@dataclass(frozen=True)
class Raster:
    """A window moving over a raster stream of `height` x `width` pixels; padding masks taps.

    What many folds of a layer ask for is remembered, so it has no slots.
    """

    window: Window
    height: int
    width: int

    @cached_property
    def output_size(self) -> tuple[int, int]:
        return self.window.output_size(self.height, self.width)

    @property
    def beats(self) -> int:
        """Input pixels per frame."""
        return self.height * self.width

    @cached_property
    def outputs(self) -> int:
        rows, columns = self.output_size
        return rows * columns

    @cached_property
    def first(self) -> int:
        """Step of output (0, 0)."""
        (reach_h, reach_w), (top, left, _, _) = self.window.reach, self.window.pads
        return (reach_h - 1 - top) * self.width + reach_w - 1 - left

    @property
    def row_jump(self) -> int:
        """Steps from the last output of a row to the first of the next."""
        return self.window.stride[0] * self.width - (self.output_size[1] - 1) * self.window.stride[1]

    @cached_property
    def last(self) -> int:
        """Step of the last output."""
        rows, columns = self.output_size
        return self.first + (rows - 1) * self.window.stride[0] * self.width + (columns - 1) * self.window.stride[1]

    @property
    def steps(self) -> int:
        """Steps per frame: also the engine's initiation interval in clocks."""
        return max(self.beats, self.last + 1)

    @property
    def flush(self) -> int:
        """Steps after the last input pixel."""
        return self.steps - self.beats

    @property
    def masks_suffice(self) -> bool:
        """Whether outputs leave in order at distinct steps; if not, padding must become explicit beats."""
        return self.first >= 0 and (self.output_size[0] == 1 or self.row_jump >= 1)

    @property
    def padded(self) -> Raster:
        """The same, behind padding that enters as beats where masks cannot express it."""
        if self.masks_suffice:
            return self
        top, left, bottom, right = self.window.pads
        return Raster(replace(self.window, pads=(0, 0, 0, 0)), self.height + top + bottom, self.width + left + right)

    @property
    def pointwise(self) -> bool:
        return self.window.kernel == (1, 1)

    @property
    def line_in_registers(self) -> bool:
        """Whether lines are so short that a chain of registers is used instead of a memory."""
        return self.window.reach[0] == 1 or self.width <= self.window.reach[1] + CHAIN_SLACK

    def inside(self, axis: int, tap: int) -> tuple[int, int]:
        """Output rows (axis 0) or columns (1), [start, stop), whose kernel row or column `tap` lies inside the input."""
        offset, stride = tap * self.window.dilation[axis] - self.window.pads[axis], self.window.stride[axis]
        size, count = (self.height, self.width)[axis], self.output_size[axis]
        start = min(count, max(0, -(offset // stride)))
        return start, max(start, min(count, -((offset - size) // stride)))

    @cached_property
    def every_window_sees(self) -> bool:
        """Whether every window covers at least one real pixel."""
        for axis, count in enumerate(self.output_size):
            seen = np.zeros(count, dtype=np.bool_)
            for tap in range(self.window.kernel[axis]):
                seen[slice(*self.inside(axis, tap))] = True
            if not seen.all():
                return False
        return True

    @cached_property
    def masked(self) -> bool:
        """Whether any tap of any output lies in the padding."""
        return any(self.inside(axis, tap) != (0, count) for axis, count in enumerate(self.output_size)
                   for tap in range(self.window.kernel[axis]))

    @property
    def counted(self) -> bool:
        """Whether the engine counts its steps to know which of them end an output, and where that lies."""
        return self.outputs < self.steps or self.masked

    @cached_property
    def counter_bits(self) -> int:
        """Widths of the counters that follow it: its steps, the next output and where that lies, the column of a line."""
        rows, columns = self.output_size
        bits = (self.steps - 1).bit_length() if self.flush else 0
        if self.counted:
            waits = (self.first, self.steps - 1 - self.last + self.first, self.row_jump - 1, self.window.stride[1] - 1)
            bits += max(waits).bit_length() + (rows - 1).bit_length() + (columns - 1).bit_length()
        return bits if self.line_in_registers else bits + (self.width - 1).bit_length()

    @property
    def stages(self) -> int:
        """Clock edges from a step to its taps."""
        return (ISSUE_STAGES + (COUNT_STAGES if self.counted else 0) + (0 if self.line_in_registers else LINE_MEMORY_STAGES)
                + (0 if self.pointwise else WINDOW_STAGES) + (MASK_STAGES if self.masked else 0))

    def output_steps(self) -> Cycles:
        """The step of every output, in raster order."""
        rows, columns = self.output_size
        row = np.arange(rows, dtype=np.int64)[:, None] * (self.window.stride[0] * self.width)
        return (self.first + row + np.arange(columns, dtype=np.int64) * self.window.stride[1]).reshape(-1)


@dataclass(frozen=True, slots=True)
class FoldedRaster:
    """A raster whose engine takes several clocks per output pixel; its steps are single clocks.

    A pixel of the raster enters in `loops.words` words, one per clock. Where an output ends, the engine stays for
    `loops.clocks` clocks; where none does, only until the pixel has entered.
    """

    raster: Raster
    loops: Loops

    @property
    def words(self) -> int:
        return self.loops.words

    @property
    def clocks(self) -> int:
        return self.loops.clocks

    @property
    def steps(self) -> int:
        """Clocks per frame."""
        return self.raster.outputs * self.clocks + (self.raster.steps - self.raster.outputs) * self.words

    @property
    def line_in_registers(self) -> bool:
        """Whether a line has so few words that registers delay it: a memory is read before its last word is written."""
        return self.raster.window.reach[0] == 1 or self.raster.width * self.words <= CHAIN_SLACK

    @property
    def stages(self) -> int:
        """Clock edges from a step to its taps."""
        taps = (0 if self.raster.pointwise else WINDOW_STAGES) + (MASK_STAGES if self.raster.masked else 0)
        return ISSUE_STAGES + WORD_STAGES + max(taps, HELD_STAGES if self.loops.holds_weights else 0)

    def _starts(self) -> Cycles:
        """The step at which each pixel of the raster begins, flush included, and the end."""
        lengths = np.full(self.raster.steps, self.words, dtype=np.int64)
        lengths[self.raster.output_steps()] = self.clocks
        return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])

    def input_steps(self) -> Cycles:
        """The step that takes each input beat: a word of a pixel in its first pass, or a whole pixel at once."""
        starts = self._starts()[:self.raster.beats]
        if not self.loops.reads_words:
            return starts
        stays = np.zeros(self.raster.steps, dtype=np.bool_)
        stays[self.raster.output_steps()] = True
        block, part = np.divmod(np.arange(self.words, dtype=np.int64), self.loops.slices)
        first_pass = block * (self.loops.passes * self.loops.slices) + part
        within = np.where(stays[:self.raster.beats, None], first_pass, np.arange(self.words, dtype=np.int64))
        return (starts[:, None] + within).reshape(-1)

    def output_steps(self) -> Cycles:
        """The last step of every output beat: of a result word, or of a whole pixel."""
        starts = self._starts()[self.raster.output_steps()]
        if not self.loops.writes_words:
            return starts + self.clocks - 1
        ends = np.arange(1, self.loops.results + 1, dtype=np.int64) * self.loops.slices - 1
        return (starts[:, None] + ends).reshape(-1)


def issue_times(arrivals: Sequence[Cycles], input_steps: Sequence[Cycles], steps: int) -> Cycles:
    """Clock of every step of a frame sequence, from the clocks at which each input's beats can be taken.

    `arrivals` have shape (frames, beats); beat n of an input is needed by step n of its `input_steps` in its frame; other
    steps only follow their predecessor. Result shape (frames, steps). No stalls from behind.
    """
    frames = arrivals[0].shape[0]
    ready = np.full((frames, steps), np.iinfo(np.int64).min // 2)
    first = min(int(needed[0]) for needed in input_steps)
    for times, needed in zip(arrivals, input_steps, strict=True):
        ready[:, needed] = np.maximum(ready[:, needed], times)
        if needed[0] == first:  # no frame starts before its first beat is there
            ready[:, 0] = np.maximum(ready[:, 0], times[:, 0])
    index = np.arange(frames * steps, dtype=np.int64)
    return (np.maximum.accumulate(ready.reshape(-1) - index) + index).reshape(frames, steps)


def leaving_times(arrivals: Sequence[Cycles], input_steps: Cycles, output_steps: Cycles) -> Cycles:
    """Clocks of some steps of one frame, as `issue_times` has them, where every input's beat n is needed by the same step.

    Only steps that need beats are looked at: an engine may take many more.
    """
    ready = reduce(np.maximum, arrivals)
    late = ready - input_steps
    late[0] = ready[0]  # no frame starts before its first beat is there
    late = np.maximum.accumulate(late)
    if output_steps is input_steps:
        return np.asarray(late + output_steps)
    latest = np.maximum(0, np.searchsorted(input_steps, output_steps, side="right") - 1)
    return np.asarray(late[latest] + output_steps)


def output_fifo_depth(output_steps: Cycles, steps: int, stages: int) -> int:
    """Entries of an engine's output FIFO: what it can have in flight at full speed, the reserve, and one.

    The last one because every step asks for a credit, also one without output.
    """
    reach = stages + FIFO_LATENCY_CYCLES + JOIN_SLACK_CYCLES
    repeats = reach // steps + 2
    times = (output_steps[None, :] + steps * np.arange(repeats, dtype=np.int64)[:, None]).reshape(-1)
    starts = times[: len(output_steps)]
    return CREDIT_RESERVE + 1 + int((np.searchsorted(times, starts + reach) - np.arange(len(starts))).max())


def high_water(pushes: Cycles, pops: Cycles) -> int:
    """Most beats a FIFO holds when beat k enters at clock pushes[k] and leaves at pops[k]; both ascending."""
    taken = np.searchsorted(pops, pushes, side="left")
    return int((np.arange(1, len(pushes) + 1) - taken).max(initial=0))
