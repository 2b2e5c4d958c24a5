"""The engine that enlarges a map by repeating pixels: one beat out per step, a new pixel only for its first beat."""

from __future__ import annotations

import numpy as np

from dovetail.cost.dhm import LINE_BLOCK_BITS
from dovetail.fpga.engines.layers import Compute, MappedLayer, close, start
from dovetail.fpga.engines.stream import MAY_STEP, Engine, Staged, read_stream
from dovetail.fpga.engines.window import Taps
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, compare, select, signal
from dovetail.fpga.rtl.modules import Memory, Module
from dovetail.hardware.engines import REPEAT_STAGES


def repeat_engine(layer: MappedLayer, rows: int, columns: int, compute: Compute) -> Engine:
    """Every pixel `columns` times along its row and every row `rows` times; `compute` gets the repeated channels.

    A row is kept in a memory while it comes in, and read from there when it comes again. Steps are beats out, so the source
    waits while pixels are repeated.
    """
    (form,) = layer.inputs
    module, pipeline = start(layer)
    in_valid, in_data = read_stream(module, "in0", form)
    fresh, first_row, column = _turns(module, form.width, rows, columns, signal("step"))
    step = module.wire("step", all_of(MAY_STEP, select(fresh, in_valid, ONE)))
    takes = module.wire("takes", all_of(step, fresh))
    module.output("in0_ready", all_of(MAY_STEP, fresh))
    pixel: Signal = signal("pixel", 0, (1 << form.data_bits) - 1)
    module.drive(pixel, in_data, takes)
    word = Staged(pixel, 1)
    if rows > 1 and form.width > 1:  # a row of one pixel is still in its register
        again = signal("row_read", 0, (1 << form.data_bits) - 1)
        module.memories.append(Memory("row", form.data_bits, form.width, takes, column, in_data, column, again,
                                      form.data_bits * form.width >= LINE_BLOCK_BITS))
        held, is_first = pipeline.register("row_held", again, 1), pipeline.register("first_row", first_row, 0)
        word = pipeline.register("word", select(pipeline.at(is_first, 2), pipeline.at(word, 2), held.value), 2)
        assert word.stage == REPEAT_STAGES
    assert isinstance(word.value, Signal)
    taps: Taps = {(c, 0, 0): Staged(module.wire(f"x{c}", form.channel(word.value, c)), word.stage) for c in range(form.channels)}
    beats = np.arange(layer.output.beats).reshape(layer.output.height, layer.output.width)
    return close(layer, module, pipeline, Staged(step, 0), compute(pipeline, taps), beats[::rows, ::columns].reshape(-1),
                 beats.reshape(-1), layer.output.beats)


def _turns(module: Module, width: int, rows: int, columns: int, step: Expr) -> tuple[Expr, Expr, Expr]:
    """Counters of how often pixel and row have come: whether a step needs a new pixel, whether its row is new, its column."""
    first_beat: Expr = ONE
    first_row: Expr = ONE
    column: Expr = ZERO
    ends: Expr = ONE
    next_pixel = step
    if columns > 1:
        copy, last = module.rounds("copy", columns, step)
        first_beat, next_pixel = compare("==", copy, ZERO), all_of(step, last)
    if width > 1:
        column, ends = module.rounds("column", width, next_pixel)
    if rows > 1:
        turn, _ = module.rounds("turn", rows, all_of(next_pixel, ends))
        first_row = module.wire("row_is_new", compare("==", turn, ZERO))
    return module.wire("fresh", all_of(first_beat, first_row)), first_row, column
