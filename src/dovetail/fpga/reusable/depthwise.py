"""The depthwise array: pixels of a word of channels enter in raster order, through line buffers, and outputs follow behind them.

An output leaves with the pixel that completes its window. Taps in the padding are masked, so nothing is read for them: the pixels
of the next word of channels push the last outputs out. A position at which an output leaves takes a clock for every phase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.fpga.engines.stream import Pipeline, Staged, in_blocks
from dovetail.fpga.reusable.array import common_table, delayed, own_jobs
from dovetail.fpga.reusable.image import tap_order
from dovetail.fpga.reusable.numbers import BlockNumbers
from dovetail.fpga.reusable.storage import Entries, Table, count_up, kept_entry, read_entries
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, any_of, choose, compare, pack, select, signal
from dovetail.fpga.rtl.modules import Memory, Module
from dovetail.hardware.arrays.jobs import DEPTHWISE, DEPTHWISE_SLOTS, ArrayProgram, Bank, depthwise_lag
from dovetail.hardware.arrays.layers import Config

PIXEL_STAGE = 2
"""Stage of a pixel's word out of its memory."""
COLUMN_STAGE = 3
"""Stage of a pixel beside those above it, out of the line buffers."""
TAP_STAGE = COLUMN_STAGE + 2
"""Stage of the masked taps."""


@dataclass(frozen=True, slots=True)
class DepthwiseFront:
    """What the depthwise array issues in a clock, all of stage 0."""

    entries: Entries
    reading: Signal
    address: Signal
    bank: Expr
    shifts: Signal
    """Whether a position begins: a pixel enters the window, or nothing behind the last one."""
    line: Signal
    """Where the line buffers are read and written."""
    works: Signal
    starts: Expr
    ends: Signal
    phase: Signal | None
    rows: Signal
    columns: Signal
    """Which ages of rows and columns lie in the map."""
    signed: Expr
    largest: Expr
    slot: Signal
    """Whose weights are used."""


def depthwise_table(program: ArrayProgram, numbers: BlockNumbers, banks: Sequence[int]) -> Table:
    """The depthwise array's entries."""
    jobs, kernel = own_jobs(program, DEPTHWISE), program.config.kernel
    table = common_table(jobs)
    rows = []
    for job in jobs:
        layer = job.part
        (high, wide), (down, right), (top, left, _, _) = layer.window.kernel, layer.window.stride, layer.window.pads
        out = layer.writes
        if layer.whole:
            high = wide = down = right = 1
            out = layer.reads
        height, width = layer.reads.height, layer.reads.width
        ahead, aside = high - 1 - top, wide - 1 - left
        rows.append({
            "bank": banks.index(job.read.bank), "from_input": int(job.read.bank == Bank.INPUT), "base": job.read.base,
            "stride": job.read.stride, "pixel_most": layer.reads.pixels - 1, "line_most": width - 1, "lag": depthwise_lag(layer),
            "width_most": width - 1, "right_most": right - 1, "down_most": down - 1,
            "outputs_most": out.width - 1, "rows_most": out.height - 1, "phase_most": job.steps - 1, "whole": int(layer.whole),
            "row_mask": _ages(ahead, height, kernel), "column_mask": _ages(aside, width, kernel),
            "row_more": max(0, height - ahead - 1), "column_more": max(0, width - aside - 1),
            "signed": int(numbers.layers[job.layer].signed), "largest": int(layer.largest),
            "rows_kept": (1 << high) - 1, "columns_kept": (1 << wide) - 1})
    table.update({key: [row[key] for row in rows] for key in rows[0]})
    return table


def _ages(ahead: int, size: int, kernel: int) -> int:
    """Bits of the ages of rows (or columns) of the first window that lie in a map: age a is `ahead` - a."""
    return sum(1 << age for age in range(kernel) if 0 <= ahead - age < size)


def depthwise_front(module: Module, config: Config, table: Table, load: Signal, ready: Expr, parity: Expr, frame_words: int,
                    address_bits: int) -> DepthwiseFront:
    """Counters of the depthwise array: where it reads, and behind that, where the output lies that leaves."""
    busy = module.net("depthwise_busy")
    entries = read_entries(module, "depthwise", table, load)
    head, now = entries.fields, kept_entry(module, "depthwise", entries, load)
    reading, waiting = signal("depthwise_reading"), signal("depthwise_waiting")
    steps, begun = module.net("depthwise_steps"), module.net("depthwise_begun")
    fields = {key: select(load, head[key], now[key]) for key in ("row_mask", "column_mask", "row_more", "column_more")}
    outputs = follow_outputs(module, config.kernel, now, fields, begun, steps)
    phase_last, phase = _phases(module, now["phase_most"], outputs.hit)
    module.assigns.append((busy, any_of(reading, waiting, outputs.emitting)))
    module.assigns.append((steps, all_of(busy, phase_last)))
    pixels = all_of(steps, reading)
    _, pixel_last = count_up(module, "depthwise_pixel", now["pixel_most"], pixels)
    read_last = module.wire("depthwise_read_last", all_of(pixels, pixel_last))
    armed = signal("depthwise_armed")
    # A job begins between two positions: at rest, or with the position behind the last pixel of the one before.
    module.assigns.append((load, all_of(armed, any_of(~busy, all_of(steps, any_of(~reading, read_last))))))
    module.drive(armed, all_of(entries.valid, ready, ~load), reset=0)
    module.drive(reading, any_of(load, all_of(reading, ~read_last)), reset=0)
    module.assigns.append((begun, _behind(module, head["lag"], load, steps, waiting)))
    address = signal("depthwise_address", 0, (1 << address_bits) - 1)
    offset = select(all_of(head["from_input"], parity), frame_words, 0)
    module.drive(address, select(load, head["base"] + offset, address + now["stride"]), any_of(load, steps))
    line = signal("depthwise_line", 0, max(table["line_most"]))
    rests = module.wire("depthwise_from_rest", all_of(load, ~busy))
    turns = any_of(rests, compare("==", line, now["line_most"]))
    module.drive(line, select(turns, 0, line + 1), any_of(rests, steps), 0)
    slot = signal("depthwise_slot", 0, DEPTHWISE_SLOTS - 1)
    module.drive(slot, slot + 1, begun, DEPTHWISE_SLOTS - 1)
    first = ONE if phase is None else compare("==", phase, 0)
    shifts = module.wire("depthwise_shifts", all_of(busy, first))
    works = module.wire("depthwise_works", outputs.hit)
    starts = module.wire("depthwise_starts", select(now["whole"], outputs.opens, first))
    ends = module.wire("depthwise_ends", all_of(works, phase_last, select(now["whole"], outputs.final, 1)))
    rows, columns = outputs.rows, outputs.columns
    if now["largest"].hi:  # taps beyond the kernel have no weight, but they might be the largest
        rows, columns = (_both(module, f"depthwise_{n}_seen", ages, now[f"{n}_kept"])
                         for n, ages in (("rows", rows), ("columns", columns)))
    return DepthwiseFront(entries, reading, address, now["bank"], shifts, line, works, starts, ends, phase, rows, columns,
                          now["signed"], now["largest"], slot)


def _both(module: Module, name: str, mask: Signal, kept: Expr) -> Signal:
    """Bits that are set in both."""
    named = module.wire(f"{name}_kept", kept, (0, (1 << mask.width) - 1))
    return module.wire(name, pack([(all_of(mask.bit(k), named.bit(k)), 1) for k in range(mask.width)]))


def _phases(module: Module, most: Expr, hit: Signal) -> tuple[Expr, Signal | None]:
    """Clocks of a position at which an output leaves: whether this is the last one, and its number."""
    if most.hi == 0:
        return ONE, None
    phase = signal("depthwise_phase", 0, most.hi)
    last = module.wire("depthwise_phase_last", any_of(~hit, compare("==", phase, most)))
    module.drive(phase, select(last, 0, phase + 1), reset=0)
    return last, phase


def _behind(module: Module, lag: Expr, load: Signal, steps: Signal, waiting: Signal) -> Expr:
    """When outputs begin: `lag` positions behind the load."""
    if lag.hi == 0:
        module.drive(waiting, ZERO, reset=0)
        return load
    left = signal("depthwise_wait", 0, lag.hi)
    none = ZERO if lag.lo > 0 else compare("==", lag, 0)
    over = module.wire("depthwise_wait_over", all_of(waiting, steps, compare("==", left, 1)))
    module.drive(left, select(load, lag, left - 1), any_of(load, all_of(waiting, steps)))
    module.drive(waiting, any_of(all_of(load, ~none), all_of(waiting, ~over, ~load)), reset=0)
    return any_of(over, all_of(load, none))


@dataclass(frozen=True, slots=True)
class OutputPosition:
    """Where the output lies that may leave: whether it does (`hit`), whether it is the first or the last of its map."""

    emitting: Signal
    hit: Signal
    opens: Signal
    final: Signal
    rows: Signal
    columns: Signal


def follow_outputs(module: Module, kernel: int, now: Mapping[str, Expr], first: Mapping[str, Expr], begun: Signal,
                   steps: Signal) -> OutputPosition:
    """Counters of output rows and columns, which move with the positions, and the ages of rows and columns in the map."""
    emitting, opens, live = (signal(f"depthwise_{n}") for n in ("emitting", "opens", "live"))
    moves = module.wire("depthwise_moves", all_of(emitting, steps))
    across, column, out = (signal(f"depthwise_{n}", 0, now[f].hi) for n, f in (
        ("across", "width_most"), ("column_turn", "right_most"), ("column_out", "outputs_most")))
    turn, row_out = signal("depthwise_row_turn", 0, now["down_most"].hi), signal("depthwise_row_out", 0, now["rows_most"].hi)
    in_column, in_row = compare("==", column, 0), compare("==", turn, 0)
    hit = module.wire("depthwise_hit", all_of(emitting, live, in_column, in_row))
    edge = module.wire("depthwise_edge", compare("==", across, now["width_most"]))
    out_last = module.wire("depthwise_out_last", compare("==", out, now["outputs_most"]))
    final = module.wire("depthwise_final", all_of(hit, out_last, compare("==", row_out, now["rows_most"])))
    anew = module.wire("depthwise_anew", any_of(begun, edge))
    changes, rows_change = any_of(begun, moves), any_of(begun, all_of(moves, edge))
    module.drive(across, select(anew, 0, across + 1), changes)
    wraps = compare("==", column, now["right_most"])
    module.drive(column, select(any_of(anew, wraps), 0, column + 1), changes)
    module.drive(out, select(anew, 0, out + in_column), changes)
    module.drive(live, any_of(anew, all_of(live, ~all_of(in_column, out_last))), changes)
    row_wraps = compare("==", turn, now["down_most"])
    module.drive(turn, select(any_of(begun, row_wraps), 0, turn + 1), rows_change)
    module.drive(row_out, select(begun, 0, row_out + in_row), rows_change)
    module.drive(emitting, any_of(begun, all_of(emitting, ~all_of(final, steps))), reset=0)
    module.drive(opens, begun, any_of(begun, all_of(hit, steps)), 0)
    columns = _ages_follow(module, "column", kernel, first, anew, changes)
    rows = _ages_follow(module, "row", kernel, first, begun, rows_change)
    return OutputPosition(emitting, hit, opens, final, rows, columns)


def _ages_follow(module: Module, axis: str, kernel: int, first: Mapping[str, Expr], anew: Signal, moves: Expr) -> Signal:
    """Which ages lie in the map: they grow by one with every move, and a new one is inside while `more` are."""
    mask = signal(f"depthwise_{axis}_ages", 0, (1 << kernel) - 1)
    more = signal(f"depthwise_{axis}_more", 0, max(1, first[f"{axis}_more"].hi))
    some = module.wire(f"depthwise_{axis}_some", compare("!=", more, 0))
    older = [(mask.bits(0, kernel - 1), kernel - 1)] if kernel > 1 else []
    begin = module.wire(f"depthwise_{axis}_first", first[f"{axis}_mask"], (0, (1 << kernel) - 1))
    module.drive(mask, select(anew, begin, pack([(some, 1), *older])), moves)
    module.drive(more, select(anew, first[f"{axis}_more"], more - some), moves)
    return mask


def masked_taps(module: Module, pipeline: Pipeline, config: Config, front: DepthwiseFront, pixel: Signal,
                line_width: int) -> list[list[Signal]]:
    """Per channel the taps of the current phase at `TAP_STAGE`, nine bits each, zero where they lie in the padding.

    With a `line_width` of 0 no layer's window has a row above another.
    """
    kernel, size = config.kernel, config.word_bits
    shifts = delayed(pipeline, front.shifts, COLUMN_STAGE, "")
    newest = pipeline.at(Staged(pixel, PIXEL_STAGE), COLUMN_STAGE)
    column: list[Expr] = [newest]
    if kernel > 1:
        column += (_lines(module, pipeline, front, newest, shifts, kernel - 1, size, line_width) if line_width
                   else [ZERO] * (kernel - 1))
    window: dict[tuple[int, int], Signal] = {}
    for row in range(kernel):
        for age in range(kernel):
            before = column[row] if age == 0 else window[row, age - 1]
            window[row, age] = module.register(f"depthwise_pixel_{row}_{age}", before, shifts, bounds=(0, (1 << size) - 1))
    return _chosen_taps(module, pipeline, config, front, window)


def _lines(module: Module, pipeline: Pipeline, front: DepthwiseFront, newest: Expr, shifts: Expr, count: int, size: int,
           width: int) -> list[Expr]:
    """The pixels above the newest one: rows side by side in one memory, each moved down a row as it is read."""
    read = signal("depthwise_lines_read", 0, (1 << count * size) - 1)
    held = module.register("depthwise_lines_held", read)
    rows = [held.bits(k * size, size) for k in range(count)]
    module.memories.append(Memory("depthwise_lines", count * size, width, shifts, delayed(pipeline, front.line, COLUMN_STAGE, ""),
                                  pack([(newest, size), *((row, size) for row in rows[:-1])]),
                                  delayed(pipeline, front.line, COLUMN_STAGE - 2, ""), read, in_blocks(width, count * size)))
    return list(rows)


def _extended(module: Module, word: Signal, channel: int, size: int, signed: Expr, tap: tuple[int, int]) -> Expr:
    """A channel of a pixel in nine bits; of wider values the lowest eight say all."""
    kept = min(size, 8)
    byte = module.wire(f"depthwise_byte_{channel}_{tap[0]}_{tap[1]}", word.bits(channel * size, kept))
    return pack([(byte, kept), *[(all_of(signed, byte.bit(kept - 1)), 1)] * (9 - kept)])


def _chosen_taps(module: Module, pipeline: Pipeline, config: Config, front: DepthwiseFront,
                 window: Mapping[tuple[int, int], Signal]) -> list[list[Signal]]:
    order, stage = tap_order(config.kernel), TAP_STAGE - 1
    phase = None if front.phase is None else delayed(pipeline, front.phase, stage, "")
    rows, columns = (pipeline.signal_at(Staged(ages, 0), stage) for ages in (front.rows, front.columns))
    signed, largest = delayed(pipeline, front.signed, stage, ""), delayed(pipeline, front.largest, stage, "")
    inside = {(a, b): module.wire(f"depthwise_inside_{a}_{b}", all_of(rows.bit(a), columns.bit(b))) for a, b in order}
    phases = 1 if front.phase is None else front.phase.hi + 1
    found: list[list[Signal]] = []
    for channel in range(config.inputs):
        taps = []
        for place in range(config.taps):
            options = [order[k] for k in range(place, min(len(order), phases * config.taps), config.taps)]
            outside = pack([(ZERO, 8), (largest, 1)])  # nothing, or less than any value
            values = [select(inside[t], _extended(module, window[t], channel, config.value_bits, signed, t), outside)
                      for t in options] or [outside]
            value = values[0] if len(values) == 1 or phase is None else choose(phase, values)
            taps.append(module.register(f"depthwise_tap_{channel}_{place}", value, bounds=(0, 511)))
        found.append(taps)
    return found
