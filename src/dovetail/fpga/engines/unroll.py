"""The engine that cuts windows out of a stream: every output pixel leaves as all taps of its window, beat after beat.

Rows come in until the first window of a row of outputs is whole. Then all windows of that row leave, by kernel row, kernel
column and channel, from a memory of as many lines as the kernel has rows. What stands behind it sees a pointwise layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.fpga.engines.layers import MappedLayer, close, start
from dovetail.fpga.engines.stream import MAY_STEP, Engine, Format, Staged, in_blocks, read_stream
from dovetail.fpga.rtl.expressions import ONE, Const, Expr, Signal, all_of, any_of, choose, compare, const, select, signal
from dovetail.fpga.rtl.modules import Memory, Module
from dovetail.hardware.streaming import Cycles
from dovetail.ir import Window


@dataclass(frozen=True, slots=True)
class Unrolling:
    """A window over a stream in words: what is taken and left when."""

    window: Window
    form: Format

    def __post_init__(self) -> None:
        rows, columns = self.window.kernel
        if self.window.dilation != (1, 1) or self.form.channels % self.form.fields:
            raise UnsupportedError(f"unrolled window {self.window} over {self.form}: no dilation, and words that divide a pixel")
        if self.window.pads[0] >= rows or self.window.pads[1] >= columns:
            raise UnsupportedError(f"unrolled window {self.window}: padding beyond the kernel; the first window must see a pixel")

    @property
    def output_size(self) -> tuple[int, int]:
        return self.window.output_size(self.form.height, self.form.width)

    @property
    def line(self) -> int:
        """Words of a line."""
        return self.form.width * self.form.words

    @property
    def words(self) -> int:
        """Words of the memory of lines."""
        return self.window.kernel[0] * self.line

    @property
    def beats(self) -> int:
        """Beats of a window."""
        return self.window.kernel[0] * self.window.kernel[1] * self.form.words

    def output(self) -> Format:
        """Windows as pixels."""
        form, (rows, columns) = self.form, self.output_size
        taps = self.window.kernel[0] * self.window.kernel[1] * form.channels
        whole = Format(taps, form.bits, form.signed, min(form.lo, 0), max(form.hi, 0), rows, columns)
        return whole.in_words(form.fields)

    def rows_taken(self) -> list[int]:
        """Rows that are taken before each row of outputs; the last number is of those that no window asks for."""
        down, top, kernel = self.window.stride[0], self.window.pads[0], self.window.kernel[0]
        whole = [min(self.form.height, r * down - top + kernel) for r in range(self.output_size[0])] + [self.form.height]
        return [b - a for a, b in zip([0, *whole[:-1]], whole, strict=True)]

    def steps(self) -> tuple[Cycles, Cycles, int]:
        """The step of every beat in, of every beat out, and how many there are."""
        taken, left, at = list[Cycles](), list[Cycles](), 0
        leaves = [self.output_size[1] * self.beats] * self.output_size[0] + [0]
        for rows, beats in zip(self.rows_taken(), leaves, strict=True):
            taken.append(np.arange(at, at + rows * self.line, dtype=np.int64))
            at += rows * self.line
            left.append(np.arange(at, at + beats, dtype=np.int64))
            at += beats
        return np.concatenate(taken), np.concatenate(left), at

    def base(self, row: int, column: int) -> int:
        """Where the window of an output begins in the memory, its padding included; lines go round."""
        (down, along), (top, left) = self.window.stride, self.window.pads[:2]
        return ((row * down - top) * self.line + (column * along - left) * self.form.words) % self.words


@dataclass(frozen=True, slots=True)
class _BeatEnds:
    """Of a beat that leaves: whether it ends a pixel, a kernel row, a window, a row of outputs, a frame."""

    emits: Signal
    pixel: Expr
    run: Expr
    window: Expr
    line: Expr
    frame: Expr
    row: Signal | Const


def unroll_engine(layer: MappedLayer, window: Window) -> Engine:
    """An engine whose output is `Unrolling.output`; taps in the padding are zero."""
    (form,) = layer.inputs
    plan = Unrolling(window, form)
    module, pipeline = start(layer)
    in_valid, in_data = read_stream(module, "in0", form)
    taking = signal("taking")
    slot = module.wire("slot", all_of(MAY_STEP, select(taking, in_valid, 1)))
    takes, emits = module.wire("takes", all_of(slot, taking)), module.wire("emits", all_of(slot, ~taking))
    module.output("in0_ready", all_of(MAY_STEP, taking))
    turns = _turns(module, plan, emits)
    _follow_rows(module, plan, taking, takes, turns)
    read = signal("lines_read", 0, (1 << form.data_bits) - 1)
    write_at, read_at = module.counter("write_at", plan.words, takes), _address(module, plan, turns)
    module.memories.append(Memory("lines", form.data_bits, plan.words, takes, write_at, in_data, read_at, read,
                                  in_blocks(plan.words, form.data_bits)))
    seen = pipeline.register("lines_held", read, 1)
    inside = module.wire("in_frame", _inside(module, plan, turns))
    if any(window.pads):
        seen = pipeline.register("masked", select(pipeline.at(Staged(inside, 0), seen.stage), seen.value, 0), seen.stage)
    lo, hi = layer.output.lo, layer.output.hi
    values = [Staged(module.wire(f"{layer.label}_{c}", seen.signal.field(c * form.bits, lo, hi)), seen.stage)
              for c in range(form.fields)]
    taken, left, steps = plan.steps()
    return close(layer, module, pipeline, Staged(emits, 0), (values, 0), taken, left, steps)


def _turns(module: Module, plan: Unrolling, emits: Signal) -> _BeatEnds:
    """Counters over what leaves, the channel's word innermost."""
    (high, wide), (rows, columns) = plan.window.kernel, plan.output_size
    _, pixel = module.counted("word", plan.form.words, emits)
    _, column = module.counted("tap_column", wide, all_of(emits, pixel))
    run = all_of(pixel, column)
    _, last = module.counted("tap_row", high, all_of(emits, run))
    whole = module.wire("window_ends", all_of(run, last))
    _, along = module.counted("out_column", columns, all_of(emits, whole))
    line = module.wire("line_ends", all_of(whole, along))
    row, down = module.counted("out_row", rows, all_of(emits, line))
    return _BeatEnds(emits, pixel, run, whole, line, all_of(line, down), row)


def _follow_rows(module: Module, plan: Unrolling, taking: Signal, takes: Signal, turns: _BeatEnds) -> None:
    """Whether rows are being taken, and how many are still to come; what a frame leaves over comes with the next one's first."""
    first, *others = plan.rows_taken()
    after = [*others[:-1], others[-1] + first]
    left = signal("rows_left", 0, max(first, *after))
    _, ends = module.counted("taken", plan.line, takes)
    done = module.wire("row_taken", all_of(takes, ends))
    following = module.wire("rows_next", choose(turns.row, after))
    leaves = module.wire("line_leaves", all_of(turns.emits, turns.line))
    module.drive(left, module.wire("rows_then", select(leaves, following, left - 1), (0, left.hi)), any_of(done, leaves), first)
    more = select(leaves, compare("!=", following, 0), compare("!=", left, 1))
    module.drive(taking, more, any_of(done, leaves), 1)


def _address(module: Module, plan: Unrolling, turns: _BeatEnds) -> Signal:
    """Where the next beat lies: one word further, or a jump to the next kernel row, window, row of outputs or frame."""
    (high, wide), (rows, columns) = plan.window.kernel, plan.output_size
    words, span = plan.words, wide * plan.form.words - 1
    ends = (high - 1) * plan.line + span
    frame = plan.base(0, 0) + plan.form.height * plan.line
    jumps = [(turns.frame, frame - plan.base(rows - 1, columns - 1) - ends),
             (turns.line, plan.base(1, 0) - plan.base(0, columns - 1) - ends),
             (turns.window, plan.base(0, 1) - plan.base(0, 0) - ends), (turns.run, plan.line - span)]
    jump: Expr = const(1 % words)
    for ends_there, distance in reversed(jumps):
        jump = select(ends_there, distance % words, jump)
    at = signal("read_at", 0, words - 1)
    beyond = module.wire("read_next", at + module.wire("jump", jump))
    there = module.wire("read_there", select(compare(">=", beyond, words), beyond - words, beyond), (0, words - 1))
    module.drive(at, there, turns.emits, plan.base(0, 0))
    return at


def _inside(module: Module, plan: Unrolling, turns: _BeatEnds) -> Expr:
    """Whether the beat that leaves is of a pixel, and not of the padding."""
    (high, wide), (down, along), (top, left) = plan.window.kernel, plan.window.stride, plan.window.pads[:2]
    rows, columns = plan.output_size
    found: Expr = ONE
    for name, size, padded, last, changes in (
            ("row", plan.form.height, top, (rows - 1) * down + high - 1,
             ((turns.run, 1), (turns.window, 1 - high), (turns.line, down + 1 - high))),
            ("column", plan.form.width, left, (columns - 1) * along + wide - 1,
             ((turns.pixel, 1), (turns.run, 1 - wide), (turns.window, along + 1 - wide)))):
        if not padded and last < size:
            continue
        place = signal(f"seen_{name}", -padded, last - padded)
        moved: Expr = place
        for ends, distance in changes:
            moved = select(ends, place + distance, moved)
        home = turns.frame if name == "row" else turns.line
        bounded = module.wire(f"seen_{name}_next", select(home, -padded, moved), (place.lo, place.hi))
        module.drive(place, bounded, turns.emits, -padded)
        found = all_of(found, compare(">=", place, 0), compare("<", place, size))
    return found
