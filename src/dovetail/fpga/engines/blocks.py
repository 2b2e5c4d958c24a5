"""The engine of enlargements and pixel shuffles: every pixel leaves as a block of pixels, a row of the block at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dovetail.cost.dhm import LINE_BLOCK_BITS
from dovetail.fpga.engines.layers import Compute, MappedLayer, close, start
from dovetail.fpga.engines.stream import MAY_STEP, Engine, Format, Pipeline, Staged, read_stream
from dovetail.fpga.engines.window import Taps
from dovetail.fpga.rtl.expressions import ONE, Const, Expr, Signal, all_of, compare, pack, select, signal
from dovetail.fpga.rtl.modules import Memory, Module
from dovetail.hardware.adders.graph import IntMatrix
from dovetail.hardware.engines import REPEAT_STAGES


@dataclass(frozen=True, slots=True)
class _Turns:
    """Which pixel of which block a step leaves: row and column in the block, and the block's column."""

    row: Signal | Const
    column: Signal | Const
    place: Signal | Const
    fresh: Expr
    """Whether the step needs a new pixel."""


def blocks_engine(layer: MappedLayer, places: IntMatrix, cropped: tuple[int, int], compute: Compute) -> Engine:
    """Channel d of the pixel at row r, column c of a block is channel `places[r, c, d]` of the pixel that came in.

    The first row of a block leaves while its pixel comes in; the channels of the others wait in a memory. The last `cropped`
    rows and columns of a frame are left out. Steps are beats out, so the source waits. `compute` gets a pixel's channels.
    """
    (form,), (rows, columns, _) = layer.inputs, places.shape
    module, pipeline = start(layer)
    in_valid, in_data = read_stream(module, "in0", form)
    turns = _turns(module, form, (rows, columns), cropped, signal("step"))
    step = module.wire("step", all_of(MAY_STEP, select(turns.fresh, in_valid, 1)))
    takes = module.wire("takes", all_of(step, turns.fresh))
    module.output("in0_ready", all_of(MAY_STEP, turns.fresh))
    pixel = signal("pixel", 0, (1 << form.data_bits) - 1)
    module.drive(pixel, in_data, takes)
    first = [Staged(module.wire(f"x{c}", form.channel(pixel, c)), 1) for c in range(form.channels)]
    others = dict(enumerate(first))
    if rows > 1 and form.width > 1:  # a row of one pixel is still in its register
        later, bits = list(dict.fromkeys(places[1:].reshape(-1).tolist())), form.bits
        again = signal("rows_read", 0, (1 << bits * len(later)) - 1)
        waiting = pack([(in_data.field(c * bits, 0, (1 << bits) - 1), bits) for c in later])
        module.memories.append(Memory("rows", again.width, form.width, takes, turns.place, waiting, turns.place, again,
                                      again.width * form.width >= LINE_BLOCK_BITS))
        held = pipeline.register("rows_held", again, 1).signal
        others = {c: Staged(module.wire(f"held{c}", held.field(i * bits, form.lo, form.hi)), 2) for i, c in enumerate(later)}
    taps: Taps = {}
    for d in range(layer.output.channels):
        block = [[others[int(c)] if r else first[c] for c in places[r, :, d]] for r in range(rows)]
        taps[d, 0, 0] = _chosen(pipeline, f"{layer.label}_placed_{d}", block, turns)
    beats = np.arange(layer.output.beats).reshape(layer.output.height, layer.output.width)
    return close(layer, module, pipeline, Staged(step, 0), compute(pipeline, taps), beats[::rows, ::columns].reshape(-1),
                 beats.reshape(-1), layer.output.beats)


def _chosen(pipeline: Pipeline, name: str, block: list[list[Staged]], turns: _Turns) -> Staged:
    """The value of a block whose turn it is."""
    stage = max(value.stage for row in block for value in row)
    if all(value is block[0][0] for row in block for value in row):
        return block[0][0]
    row, column = (pipeline.at(Staged(turn, 0), stage) for turn in (turns.row, turns.column))
    found = pipeline.register(name, _by(row, [_by(column, [pipeline.at(v, stage) for v in values]) for values in block]), stage)
    assert found.stage <= REPEAT_STAGES
    return found


def _by(turn: Expr, values: list[Expr]) -> Expr:
    """The value whose number `turn` is."""
    *others, found = values
    for number in reversed(range(len(others))):
        found = found if others[number] is found else select(compare("==", turn, number), others[number], found)
    return found


def _turns(module: Module, form: Format, block: tuple[int, int], cropped: tuple[int, int], step: Expr) -> _Turns:
    """Counters over the pixels that leave, row by row; cropped ones are left out."""
    end_row = signal("place_last") if form.width > 1 else ONE
    end_frame = signal("source_row_last") if form.height > 1 else ONE
    column, last_column = _counted(module, "copy", block[1], cropped[1], end_row, step)
    next_place = all_of(step, last_column)
    place, _ = module.counted("place", form.width, next_place)
    next_turn = all_of(next_place, end_row)
    row, last_turn = _counted(module, "turn", block[0], cropped[0], end_frame, next_turn)
    if cropped[0]:
        module.counted("source_row", form.height, all_of(next_turn, last_turn))
    fresh = module.wire("fresh", all_of(compare("==", column, 0), compare("==", row, 0)))
    return _Turns(row, column, place, fresh)


def _counted(module: Module, name: str, count: int, cropped: int, ends: Expr,
             step: Expr) -> tuple[Signal | Const, Signal | Const]:
    """A counter that leaves out its last values where `ends`, and whether it is at its last."""
    if not cropped:
        return module.counted(name, count, step)
    value = signal(name, 0, count - 1)
    last = module.wire(f"{name}_last", select(ends, compare("==", value, count - 1 - cropped), compare("==", value, count - 1)))
    module.drive(value, select(last, 0, value + 1), step, 0)
    return value, last
