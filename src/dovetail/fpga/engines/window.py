"""The sliding-window front end: raster stream in, all taps of one window out, one step per clock."""

from __future__ import annotations

from dataclasses import dataclass

from dovetail.cost.streaming import Raster
from dovetail.fpga.engines.stream import Format, Pipeline, Staged
from dovetail.fpga.expressions import ONE, ZERO, Bits, Expr, Signal, add, all_of, compare, const, pack, select, signal, subtract
from dovetail.fpga.hardware import Memory, Module

Taps = dict[tuple[int, int, int], Staged]
"""(channel, kernel row, kernel column) to value."""
Words = dict[tuple[int, int], Signal]
"""(row, column) of the window, dilation included, to the register that holds the pixel there."""


@dataclass(frozen=True, slots=True)
class Control:
    """Signals of the step being issued: whether it happens, whether an output ends there, where that output lies."""

    step: Signal
    emit: Signal
    consumes: Expr
    row: Signal | None
    column: Signal | None


def control(module: Module, raster: Raster, may_step: Expr, in_valid: Expr) -> Control:
    """Counters of a window engine: one step counter for flushing, one down-counter to the next output."""
    consumes = consuming(raster)
    step = module.wire("step", all_of(may_step, select(consumes, in_valid, ONE)))
    follow_input(module, raster, step)
    emit, _, row, column = follow_outputs(module, raster, step)
    return Control(step, emit, consumes, row, column)


def consuming(raster: Raster) -> Expr:
    """Whether the step takes a pixel; `follow_input` drives it."""
    return signal("consumes") if raster.flush else ONE


def follow_input(module: Module, raster: Raster, step: Expr) -> None:
    """Count the steps of a frame where some of them flush."""
    if not raster.flush:
        return
    number, consumes = signal("step_number", 0, raster.steps - 1), signal("consumes")
    last = compare("==", number, const(raster.steps - 1))
    module.drive(number, select(last, ZERO, add(number, ONE)), step, 0)
    # A register instead of a comparison, because everything the engine does waits for it.
    ends_input = compare("==", number, const(raster.beats - 1))
    module.drive(consumes, select(ends_input, ZERO, select(last, ONE, consumes)), step, 1)


def follow_outputs(module: Module, raster: Raster, step: Signal) -> tuple[Signal, Expr, Signal | None, Signal | None]:
    """Count down to the next output: whether it leaves with this step, whether the step has one, its row and column."""
    rows, columns = raster.output_size
    if raster.outputs == raster.steps and not raster.masked:
        return step, ONE, None, None
    wait_max = max(raster.first, raster.steps - 1 - raster.last + raster.first, raster.row_jump - 1, raster.window.stride[1] - 1)
    wait = signal("until_output", 0, wait_max)
    arrived = compare("==", wait, ZERO) if wait_max else ONE
    emit = module.wire("emit", all_of(step, arrived))
    column: Signal | None = None
    row: Signal | None = None
    after: Expr = const(raster.steps - 1 - raster.last + raster.first)
    end_row: Expr = ONE
    if columns > 1:
        column, end_row = module.counter("out_column", columns, emit)
    if rows > 1:
        row, end_frame = module.counter("out_row", rows, all_of(emit, end_row))
        after = select(end_frame, after, const(raster.row_jump - 1))
    after = select(end_row, after, const(raster.window.stride[1] - 1))
    if wait_max:
        module.drive(wait, select(arrived, after, subtract(wait, ONE)), step, raster.first)
    return emit, arrived, row, column


def window_taps(module: Module, pipeline: Pipeline, raster: Raster, form: Format, ctl: Control, data: Signal, fill: int) -> Taps:
    """The taps of every step at stage `raster.stages`; those in the padding read `fill`."""
    pixel = module.register("pixel", data)
    if raster.pointwise:
        words = {(0, 0): pixel}
    else:
        advance = module.register("step_1", ctl.step, reset=0)
        words = (chain_rows(module, raster, pixel, advance) if raster.line_in_registers
                 else memory_rows(module, raster, ctl, pixel, advance))
    dilation = raster.window.dilation
    seen = raster.stages - (1 if raster.masked else 0)
    masks = tap_masks(pipeline, raster, ctl.row, ctl.column, seen)
    taps: Taps = {}
    for i in range(raster.window.kernel[0]):
        for j in range(raster.window.kernel[1]):
            word = words[i * dilation[0], j * dilation[1]]
            for channel in range(form.channels):
                name = f"x{channel}_{i}_{j}"
                value = form.channel(word, channel)
                if not raster.masked:
                    taps[channel, i, j] = Staged(module.wire(name, value), seen)
                    continue
                inside = masks.get((i, j), ONE)
                taps[channel, i, j] = pipeline.register(name, select(inside, value, const(fill)), seen)
    return taps


def chain_rows(module: Module, raster: Raster, pixel: Signal, advance: Signal) -> Words:
    """Window registers in which short lines are delayed by registers too; (row, column) to pixel word."""
    reach_h, reach_w = raster.window.reach
    words: Words = {}
    newest: Signal = pixel
    for row in range(reach_h - 1, -1, -1):
        line = [newest]
        for delay in range(reach_w if row == 0 else max(reach_w, raster.width)):
            name = f"row{row}_column{reach_w - 1 - delay}" if delay < reach_w else f"row{row}_line{delay}"
            line.append(module.register(name, line[-1], advance))
        words.update({(row, reach_w - 1 - delay): line[delay + 1] for delay in range(reach_w)})
        newest = line[raster.width] if row else newest
    return words


def memory_rows(module: Module, raster: Raster, ctl: Control, pixel: Signal, advance: Signal) -> Words:
    """Window registers fed by a memory that holds the previous lines side by side, one word per column."""
    reach_h, reach_w = raster.window.reach
    lines, width = reach_h - 1, pixel.width
    column, _ = line_column(module, raster, ctl)
    column_1 = module.register("column_1", column)
    column_2 = module.register("column_2", column_1)
    advance_2 = module.register("step_2", advance, reset=0)
    pixel_2 = module.register("pixel_2", pixel)
    read = signal("lines_read", 0, (1 << lines * width) - 1)
    held = module.register("lines_held", read)
    older = [(Bits(0, (1 << width) - 1, held, row * width, width), width) for row in range(1, lines)]
    module.memories.append(Memory("lines", lines * width, raster.width, advance_2, column_2, pack([*older, (pixel_2, width)]),
                                  column, read, lines * width * raster.width >= 1024))
    words: Words = {}
    for row in range(reach_h):
        value: Expr = pixel_2 if row == lines else Bits(0, (1 << width) - 1, held, row * width, width)
        for place in range(reach_w - 1, -1, -1):
            words[row, place] = module.register(f"row{row}_column{place}", value, advance_2)
            value = words[row, place]
    return words


def line_column(module: Module, raster: Raster, ctl: Control) -> tuple[Signal, Expr]:
    """The column of the step, which restarts with every frame."""
    if raster.steps % raster.width == 0:
        return module.counter("column", raster.width, ctl.step)
    column, number = signal("column", 0, raster.width - 1), signal("step_number", 0, raster.steps - 1)
    ends = compare("==", column, const(raster.width - 1))
    frame = compare("==", number, const(raster.steps - 1))
    module.drive(column, select(frame, ZERO, select(ends, ZERO, add(column, ONE))), ctl.step, 0)
    return column, ends


def tap_masks(pipeline: Pipeline, raster: Raster, row: Signal | None, column: Signal | None,
              stage: int) -> dict[tuple[int, int], Expr]:
    """For kernel positions that can lie in the padding: the bit "inside", at `stage`."""
    rows, columns = raster.output_size
    row_bits = [inside_bit(pipeline, f"row_inside_{i}", row, raster.row_inside(i), rows, stage)
                for i in range(raster.window.kernel[0])]
    column_bits = [inside_bit(pipeline, f"column_inside_{j}", column, raster.column_inside(j), columns, stage)
                   for j in range(raster.window.kernel[1])]
    return {(i, j): all_of(above, beside) for i, above in enumerate(row_bits) for j, beside in enumerate(column_bits)}


def inside_bit(pipeline: Pipeline, name: str, index: Signal | None, inside: tuple[int, int], count: int, stage: int) -> Expr:
    """Whether an output's index of 0..count-1 lies in the interval, as seen at `stage`."""
    start, stop = inside
    if inside == (0, count):
        return ONE
    if start == stop:
        return ZERO
    assert index is not None
    terms = [compare(">=", index, const(start))] if start else []
    terms += [compare("<", index, const(stop))] if stop < count else []
    now = pipeline.module.wire(name, all_of(*terms))
    return pipeline.at(Staged(now, 0), stage)
