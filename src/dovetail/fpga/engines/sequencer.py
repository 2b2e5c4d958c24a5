"""The order in which a folded engine works: nested counters over slices, passes and blocks inside the window's own."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.fpga.engines.window import OutputPlace, consuming, follow_input, follow_outputs
from dovetail.fpga.rtl.expressions import ONE, Const, Expr, Signal, all_of, any_of, compare, select, signal, successor
from dovetail.fpga.rtl.modules import Module
from dovetail.hardware.folds import Loops
from dovetail.hardware.streaming import Raster


@dataclass(frozen=True, slots=True)
class Slot:
    """The clock being issued: whether it happens, what it works on, and where its output lies.

    `takes` loads a beat, `shifts` moves a word into the window, `ends` is the last slice of a sum and `emit` the last slot of an
    output pixel; all only while the slot happens. Counters that never move are 0.
    """

    takes: Signal
    ready: Expr
    shifts: Signal
    works: Signal
    ends: Signal
    emit: Signal
    slice: Signal | Const
    word: Signal | Const
    weight: Signal | Const
    result: Signal | Const
    place: OutputPlace

    @property
    def starts(self) -> Expr:
        """Whether it is the first slice of a sum."""
        return compare("==", self.slice, 0)


def sequence(module: Module, raster: Raster, loops: Loops, may_step: Expr, in_valid: Expr) -> Slot:
    """Counters of a folded engine: an output pixel takes `loops.clocks` slots, any other one those in which it enters.

    A beat is taken by every slot of a first pass, or, where a beat is a whole pixel, by a pixel's first slot.
    """
    consumes, first_pass = consuming(raster), signal("first_pass") if loops.passes > 1 else ONE
    fresh = first_pass if loops.reads_words or loops.clocks == 1 else signal("begins")
    slot = module.wire("slot", all_of(may_step, select(all_of(fresh, consumes), in_valid, 1)))
    takes = module.wire("takes", all_of(slot, fresh))
    advance = signal("advance")
    emit, arrived, place = follow_outputs(module, raster, advance, 0)
    has_output = module.wire("has_output", arrived)
    works = module.wire("works", all_of(slot, has_output))
    slice_at, last_slice = module.counted("slice", loops.slices, slot)
    _, last_pass = module.counted("pass", loops.passes, all_of(works, last_slice))
    leaves = any_of(last_pass, ~has_output)
    _, last_block = module.counted("block", loops.blocks, all_of(slot, last_slice, leaves))
    ends_pixel = all_of(last_slice, leaves, last_block)
    module.wires.append((advance, all_of(slot, ends_pixel)))
    if isinstance(first_pass, Signal):
        module.drive(first_pass, last_pass, all_of(works, last_slice), 1)
    if isinstance(fresh, Signal) and fresh.name == "begins":
        module.drive(fresh, ends_pixel, slot, 1)
    follow_input(module, raster, advance)
    ends = module.wire("ends", all_of(works, last_slice))
    weight, _ = module.counted("weight_at", loops.clocks, works)
    result, _ = module.counted("result_at", loops.results, ends)
    shifts = module.wire("shifts", all_of(slot, first_pass))
    return Slot(takes, all_of(may_step, fresh, consumes), shifts, works, ends, emit, slice_at,
                _word(module, loops, slice_at, last_slice, last_pass, slot, has_output), weight, result, place)


def turned_sequence(module: Module, loops: Loops, word_comes: Signal) -> Slot:
    """Counters of an engine that does all passes over a word as soon as it comes, and keeps as many sums.

    Words come at least `loops.passes` clocks apart, so none has to wait; slots of one pass are that far apart in turn.
    """
    assert loops.passes > 1
    assert loops.blocks == 1
    assert loops.reads_words
    turning = signal("turning")
    slot = module.wire("slot", any_of(word_comes, turning))
    _, last_pass = module.rounds("pass", loops.passes, slot)
    module.drive(turning, all_of(slot, ~last_pass), reset=0)
    slice_at, last_slice = module.counted("slice", loops.slices, all_of(slot, last_pass))
    ends = module.wire("ends", all_of(slot, last_slice))
    emit = module.wire("emit", all_of(ends, last_pass))
    weight, _ = module.counted("weight_at", loops.clocks, slot)
    result, _ = module.counted("result_at", loops.results, ends)
    return Slot(word_comes, ONE, word_comes, slot, ends, emit, slice_at, slice_at, weight, result, OutputPlace())


def _word(module: Module, loops: Loops, slice_at: Signal | Const, last_slice: Expr, last_pass: Expr, slot: Expr,
          has_output: Expr) -> Signal | Const:
    """Which word of the pixel the slot works on; passes go over the words of a block again."""
    if loops.words == 1 or loops.blocks == 1:
        return slice_at
    word = signal("word", 0, loops.words - 1)
    again = all_of(last_slice, has_output, ~last_pass)
    back = word - (loops.slices - 1) if loops.slices > 1 else word
    module.drive(word, select(again, back, successor(word)), slot, 0)
    return word
