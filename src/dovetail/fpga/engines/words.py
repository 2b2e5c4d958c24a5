"""The window of a folded engine: pixels cut into words of a few channels, lines and window kept word by word in memories."""

from __future__ import annotations

from dovetail.fpga.engines.sequencer import Slot
from dovetail.fpga.engines.stream import Format, Pipeline, Staged, in_blocks
from dovetail.fpga.engines.window import Words, masked_taps, shifted_rows
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, bit_width, choose, pack, select, signal
from dovetail.fpga.rtl.modules import Memory
from dovetail.hardware.folds import Loops
from dovetail.hardware.streaming import ISSUE_STAGES, WORD_STAGES, FoldedRaster

WordTaps = dict[tuple[int, int, int, int], Staged]
"""(group of the fold, channel of the fold, kernel row, kernel column) to value."""


def word_taps(pipeline: Pipeline, folded: FoldedRaster, loops: Loops, form: Format, slot: Slot, data: Signal,
              fill: int, turned: bool = False) -> WordTaps:
    """The taps of the channels each slot works on, at stage `folded.stages`; those in the padding read `fill`.

    With `turned` all passes go over a word before the next one comes.
    """
    raster = folded.raster
    word = pixel_word(pipeline, loops, form, slot, data, turned or not raster.pointwise)
    if raster.pointwise:
        rows = {(0, 0): pipeline.signal_at(Staged(word, ISSUE_STAGES + WORD_STAGES), folded.stages - raster.masked)}
    else:
        rows = window_words(pipeline, folded, loops, slot, word)
    width, inputs = bit_width(form.lo, form.hi), loops.fold.inputs
    taps = masked_taps(pipeline, raster, slot.place, rows, folded.stages, fill, loops.fold.groups * inputs,
                       lambda held, place: held.field(place * width, form.lo, form.hi))
    return {(*divmod(place, inputs), i, j): tap for (place, i, j), tap in taps.items()}


def pixel_word(pipeline: Pipeline, loops: Loops, form: Format, slot: Slot, data: Signal, stays: bool) -> Signal:
    """The word that a slot works on, at stage 2: only as many bits per channel as its values need.

    It comes with the stream in the first pass; later ones find it where it `stays`, in the window's memory or because no other
    word came since, or in a memory of its own.
    """
    if not loops.reads_words:
        return chosen_word(pipeline, loops, form, slot, data)
    module, width = pipeline.module, bit_width(form.lo, form.hi)
    pixel = module.register("pixel", pack([(form.channel(data, place), width) for place in range(form.fields)]), slot.takes)
    if stays or loops.passes == 1 or loops.slices == 1:
        return module.register("pixel_word", pixel)
    again = signal("word_read", 0, (1 << pixel.width) - 1)
    new, write_at = (pipeline.at(Staged(value, 0), 1) for value in (slot.takes, slot.slice))
    module.memories.append(Memory("words", pixel.width, loops.slices, new, write_at, pixel, slot.slice, again,
                                  in_blocks(loops.slices, pixel.width)))
    return module.register("pixel_word", select(new, pixel, again))


def chosen_word(pipeline: Pipeline, loops: Loops, form: Format, slot: Slot, data: Signal) -> Signal:
    """The word of a whole pixel that a slot works on, at stage 2."""
    module, width = pipeline.module, bit_width(form.lo, form.hi)
    pixel = module.register("pixel", data, slot.takes)
    options = []
    for word in range(loops.words):
        channels = [loops.input_channel(word, *divmod(place, loops.fold.inputs))
                    for place in range(loops.fold.groups * loops.fold.inputs)]
        options.append(pack([(ZERO if c is None else form.channel(pixel, c), width) for c in channels]))
    return module.register("pixel_word", choose(pipeline.at(Staged(slot.word, 0), 1), options))


def window_words(pipeline: Pipeline, folded: FoldedRaster, loops: Loops, slot: Slot, word: Signal) -> Words:
    """Every word of the window at stage 3: the newest column from the lines, the others from the window's memory."""
    module, window = pipeline.module, folded.raster.window
    shifts = pipeline.at(Staged(slot.shifts, 0), 2)
    lines = line_words(pipeline, folded, slot, word, shifts)
    rows, reach = [i * window.dilation[0] for i in range(window.kernel[0])], window.reach[1]
    wanted = {(row, j * window.dilation[1]) for row in rows for j in range(window.kernel[1])}
    if loops.words == 1:
        return shifted_rows(module, {row: lines[row] for row in rows}, reach, shifts)
    again = loops.passes > 1 and loops.slices > 1
    kept = [(row, column) for row in rows for column in range(0 if again else 1, reach)]
    read = signal("window_read", 0, (1 << max(1, word.width * len(kept))) - 1)
    stored = {key: read.bits(index * word.width, word.width) for index, key in enumerate(kept)}
    newest = {(row, column): lines[row] if column == reach - 1 else stored[row, column + 1]
              for row in rows for column in range(reach)}
    if kept:
        read_at, write_at = (pipeline.at(Staged(slot.word, 0), stage) for stage in (1, 2))
        value = pack([(newest[key], word.width) for key in kept])
        module.memories.append(Memory("window", value.width, loops.words, shifts, write_at, value, read_at, read,
                                      in_blocks(loops.words, value.width)))
    # A second pass over a single slice works on the word it has.
    enable = ONE if again or loops.passes == 1 else shifts
    return {key: module.register(f"row{key[0]}_column{key[1]}",
                                 select(shifts, newest[key], stored[key]) if again else newest[key], enable)
            for key in sorted(wanted)}


def line_words(pipeline: Pipeline, folded: FoldedRaster, slot: Slot, word: Signal, shifts: Expr) -> list[Expr]:
    """The newest word of every row of the window at stage 2, oldest row first."""
    module, width = pipeline.module, word.width
    lines, length = folded.raster.window.reach[0] - 1, folded.raster.width * folded.words
    if not lines:
        return [word]
    if folded.line_in_registers:
        chain: list[Signal] = [word]
        for delay in range(1, lines * length + 1):
            chain.append(module.register(f"line{delay}", chain[-1], shifts))
        return [chain[(lines - row) * length] for row in range(lines + 1)]
    at = module.counter("line_at", length, slot.shifts)
    read = signal("lines_read", 0, (1 << lines * width) - 1)
    held = module.register("lines_held", read)
    rows: list[Expr] = [held.bits(row * width, width) for row in range(lines)]
    module.memories.append(Memory("lines", lines * width, length, shifts, pipeline.at(Staged(at, 0), 2),
                                  pack([(row, width) for row in (*rows[1:], word)]), at, read,
                                  lines * width * length >= 1024))
    return [*rows, word]
