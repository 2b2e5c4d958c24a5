"""The sliding-window front end: raster stream in, all taps of one window out, one step per clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dovetail.fpga.engines.stream import Format, Pipeline, Staged
from dovetail.fpga.rtl.expressions import ONE, ZERO, Const, Expr, Signal, all_of, any_of, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import Memory, Module
from dovetail.hardware.streaming import COUNT_STAGES, ISSUE_STAGES, LINE_MEMORY_STAGES, OUTPUT_COUNT_STAGES, Raster

Taps = dict[tuple[int, int, int], Staged]
"""(channel, kernel row, kernel column) to value."""
Words = dict[tuple[int, int], Signal]
"""(row, column) of the window, dilation included, to the register that holds the pixel there."""

ALONE = Staged(ZERO, 0)
"""The row or column of an output where there is only one."""


@dataclass(frozen=True, slots=True)
class OutputPlace:
    """Row and column of an output."""

    row: Staged = ALONE
    column: Staged = ALONE


@dataclass(frozen=True, slots=True)
class Control:
    """Whether a step happens, seen at every stage from 0 on; whether an output ends there, and where that output lies.

    `consumes` belongs to the step being issued.
    """

    steps: tuple[Signal, ...]
    emit: Staged
    consumes: Expr
    place: OutputPlace


def control(module: Module, raster: Raster, may_step: Expr, in_valid: Expr) -> Control:
    """Counters of a window engine: one step counter for flushing, one down-counter to the next output.

    A step moves so much in so many places that only the flushing knows it at once; lines and outputs are counted later.
    """
    consumes = consuming(raster)
    step = module.wire("step", all_of(may_step, select(consumes, in_valid, 1)))
    if not raster.counted:
        return Control((step,), Staged(step, 0), consumes, OutputPlace())
    follow_input(module, raster, step)
    steps = [step]
    for age in range(1, 1 + max(OUTPUT_COUNT_STAGES, window_stage(raster))):
        steps.append(module.register(f"step_{age}", steps[-1], reset=0))
    emit, _, place = follow_outputs(module, raster, steps[OUTPUT_COUNT_STAGES], OUTPUT_COUNT_STAGES)
    return Control(tuple(steps), Staged(emit, OUTPUT_COUNT_STAGES), consumes, place)


def window_stage(raster: Raster) -> int:
    """The stage at which pixels of all rows enter the window."""
    return ISSUE_STAGES + raster.counted * COUNT_STAGES + (not raster.line_in_registers) * LINE_MEMORY_STAGES


def consuming(raster: Raster) -> Expr:
    """Whether the step takes a pixel; `follow_input` drives it."""
    return signal("consumes") if raster.flush else ONE


def follow_input(module: Module, raster: Raster, step: Expr) -> None:
    """Count the steps of a frame where some of them flush; `frame_ends` is the last of them."""
    if not raster.flush:
        return
    number, consumes = signal("step_number", 0, raster.steps - 1), signal("consumes")
    last, input_ends = signal("frame_ends"), signal("input_ends")
    module.drive(number, select(last, 0, number + 1), step, 0)
    # Registers instead of comparisons, because everything the engine does waits for them.
    module.drive(last, compare("==", number, raster.steps - 2), step, 0)
    module.drive(input_ends, compare("==", number, raster.beats - 2) if raster.beats > 1 else last, step,
                 int(raster.beats == 1))
    module.drive(consumes, all_of(~input_ends, any_of(last, consumes)), step, 1)


def follow_outputs(module: Module, raster: Raster, step: Signal, stage: int) -> tuple[Signal, Expr, OutputPlace]:
    """Count down to the next output: whether it leaves with this step of `stage`, whether the step has one, and its place."""
    if not raster.counted:
        return step, ONE, OutputPlace()
    first, pause = raster.first, raster.steps - 1 - raster.last + raster.first
    wait_max = max(first, pause, raster.row_jump - 1, raster.window.stride[1] - 1)
    wait, arrived = signal("until_output", 0, wait_max), signal("arrived")
    emit = module.wire("emit", all_of(step, arrived) if wait_max else step)
    place, end_row, end_frame = count_place(module, raster, emit, stage)
    if not wait_max:
        return emit, ONE, place

    def after(waits: Callable[[int], int]) -> Expr:
        along, down = const(waits(raster.window.stride[1] - 1)), const(waits(raster.row_jump - 1))
        return select(end_row, select(end_frame, waits(pause), down), along)

    module.drive(wait, select(arrived, after(int), wait - 1), step, first)
    # Whether the wait is over is not asked of the counter, but known with it.
    module.drive(arrived, select(arrived, after(lambda steps: int(steps == 0)), compare("==", wait, 1)), step, int(first == 0))
    return emit, arrived, place


def count_place(module: Module, raster: Raster, emit: Signal, stage: int) -> tuple[OutputPlace, Expr, Expr]:
    """Counters of output rows and columns, and whether an output is the last of its row, and its row the last of the frame."""
    rows, columns = raster.output_size
    column, end_row = module.counted("out_column", columns, emit)
    row_ends = all_of(emit, end_row)
    # A row may be counted one clock late: it is asked whether it is the last at its last output, long after its first.
    late = rows > 1 and columns > 1 and not raster.pointwise
    row, end_frame = module.counted("out_row", rows, module.register("row_ends", row_ends, reset=0) if late else row_ends)
    return OutputPlace(Staged(row, stage + late), Staged(column, stage)), end_row, end_frame


def window_taps(module: Module, pipeline: Pipeline, raster: Raster, form: Format, ctl: Control, data: Signal, fill: int) -> Taps:
    """The taps of every step at stage `raster.stages`; those in the padding read `fill`."""
    newest = pipeline.signal_at(Staged(module.register("pixel", data), ISSUE_STAGES), window_stage(raster))
    if raster.pointwise:
        words = {(0, 0): newest}
    else:
        words = (chain_rows(pipeline, raster, ctl, newest) if raster.line_in_registers
                 else memory_rows(pipeline, raster, ctl, newest))
    return masked_taps(pipeline, raster, ctl.place, words, raster.stages, fill, form.channels, form.channel)


def masked_taps(pipeline: Pipeline, raster: Raster, place: OutputPlace, words: Words, stage: int, fill: int, count: int,
                field: Callable[[Signal, int], Expr]) -> Taps:
    """Taps of all `count` fields of a window's words, at `stage`; those in the padding read `fill`."""
    seen, (down, along) = stage - raster.masked, raster.window.dilation
    masks, taps = tap_masks(pipeline, raster, place, seen), Taps()
    for i in range(raster.window.kernel[0]):
        for j in range(raster.window.kernel[1]):
            for n in range(count):
                name, value = f"x{n}_{i}_{j}", field(words[i * down, j * along], n)
                taps[n, i, j] = (pipeline.register(name, select(masks[i, j], value, fill), seen) if raster.masked
                                 else Staged(pipeline.module.wire(name, value), seen))
    return taps


def shifted_rows(module: Module, rows: Mapping[int, Expr], reach: int, advance: Expr) -> Words:
    """Registers of the columns of a window, which its rows enter at the last."""
    words: Words = {}
    for row, value in rows.items():
        for place in range(reach - 1, -1, -1):
            words[row, place] = module.register(f"row{row}_column{place}", value, advance)
            value = words[row, place]
    return words


def chain_rows(pipeline: Pipeline, raster: Raster, ctl: Control, newest: Signal) -> Words:
    """Window registers in which short lines are delayed by registers too; (row, column) to pixel word."""
    reach_h, reach_w = raster.window.reach
    advance = ctl.steps[window_stage(raster)]
    words: Words = {}
    for row in range(reach_h - 1, -1, -1):
        line = [newest]
        for delay in range(reach_w if row == 0 else max(reach_w, raster.width)):
            name = f"row{row}_column{reach_w - 1 - delay}" if delay < reach_w else f"row{row}_line{delay}"
            line.append(pipeline.module.register(name, line[-1], advance))
        words.update({(row, reach_w - 1 - delay): line[delay + 1] for delay in range(reach_w)})
        newest = line[raster.width] if row else newest
    return words


def memory_rows(pipeline: Pipeline, raster: Raster, ctl: Control, newest: Signal) -> Words:
    """Window registers fed by a memory that holds the previous lines side by side, one word per column."""
    module, (reach_h, reach_w) = pipeline.module, raster.window.reach
    advance, lines, width = ctl.steps[window_stage(raster)], reach_h - 1, newest.width
    column = line_column(module, raster, ctl.steps[COUNT_STAGES])
    write_at = pipeline.at(Staged(column, COUNT_STAGES), window_stage(raster))
    read = signal("lines_read", 0, (1 << lines * width) - 1)
    held = module.register("lines_held", read)
    older = [(held.bits(row * width, width), width) for row in range(1, lines)]
    module.memories.append(Memory("lines", lines * width, raster.width, advance, write_at, pack([*older, (newest, width)]),
                                  column, read, lines * width * raster.width >= 1024))
    return shifted_rows(module, {**{row: held.bits(row * width, width) for row in range(lines)}, lines: newest}, reach_w, advance)


def line_column(module: Module, raster: Raster, step: Signal) -> Signal:
    """The column of the step, which is one clock old; it restarts with every frame."""
    if raster.steps % raster.width == 0:
        return module.counter("column", raster.width, step)
    column, ends = signal("column", 0, raster.width - 1), signal("column_last")
    frame = module.register("frame_ends_1", signal("frame_ends"))
    module.drive(column, select(any_of(frame, ends), 0, column + 1), step, 0)
    module.drive(ends, all_of(compare("==", column, raster.width - 2), ~frame), step, 0)
    return column


def tap_masks(pipeline: Pipeline, raster: Raster, place: OutputPlace, stage: int) -> dict[tuple[int, int], Expr]:
    """For kernel positions that can lie in the padding: the bit "inside", at `stage`."""
    above, beside = ([inside_bit(pipeline, f"{name}_inside_{tap}", at, raster.inside(axis, tap), raster.output_size[axis])
                      for tap in range(raster.window.kernel[axis])]
                     for axis, (name, at) in enumerate((("row", place.row), ("column", place.column))))
    return {(i, j): both_inside(pipeline, f"inside_{i}_{j}", row, column, stage)
            for i, row in enumerate(above) for j, column in enumerate(beside)}


def inside_bit(pipeline: Pipeline, name: str, index: Staged, inside: tuple[int, int], count: int) -> Staged:
    """Whether an output's index of 0..count-1 lies in the interval."""
    start, stop = inside
    if inside == (0, count):
        return Staged(ONE, 0)
    if start == stop:
        return Staged(ZERO, 0)
    # A single index outside is recognised by its bits: that is faster than the carries of a comparison.
    terms = [compare("!=" if start == 1 else ">=", index.value, start - (start == 1))] if start else []
    terms += [compare("!=" if stop == count - 1 else "<", index.value, stop)] if stop < count else []
    return Staged(pipeline.module.wire(name, all_of(*terms)), index.stage)


def both_inside(pipeline: Pipeline, name: str, row: Staged, column: Staged, stage: int) -> Expr:
    """Whether row and column are inside, at `stage`: in a register of its own where there is time, since it masks many taps."""
    if isinstance(row.value, Const) or isinstance(column.value, Const) or max(row.stage, column.stage) >= stage:
        return all_of(pipeline.at(row, stage), pipeline.at(column, stage))
    return pipeline.register(name, all_of(pipeline.at(row, stage - 1), pipeline.at(column, stage - 1)), stage - 1).value
