"""The folded engine of a layer of codes: the window and the order of `folded.py`, lanes that count bits.

Codes and constants lie in ROM, or in memories that a stream fills (`loaded.py`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import UsageError
from dovetail.fpga.engines.coded_lane import CodedFilters, coded_lane
from dovetail.fpga.engines.folded import (
    Pin,
    Tables,
    begun,
    ended,
    fields_of,
    filter_tables,
    flow_pins,
    joined,
    placed_lanes,
    read_rom,
    stored_words,
    table_words,
)
from dovetail.fpga.engines.lane import Lane
from dovetail.fpga.engines.layers import MappedLayer
from dovetail.fpga.engines.loaded import MAY_WORK, LoadedMemories, beats_of
from dovetail.fpga.engines.lq import Planes
from dovetail.fpga.engines.sequencer import Slot
from dovetail.fpga.engines.stream import MAY_STEP, Engine, Pipeline, Staged
from dovetail.fpga.engines.words import WordTaps
from dovetail.fpga.rtl.expressions import ZERO, Expr, Signal, all_of, bit_width, pack, signal
from dovetail.fpga.rtl.modules import Instance
from dovetail.hardware.adders.graph import IntMatrix
from dovetail.hardware.folds import Loops
from dovetail.ir import Window


def folded_coded_engine(layer: MappedLayer, window: Window, filters: CodedFilters, loops: Loops) -> Engine:
    """An engine that takes `loops.clocks` clocks per output pixel; taps in the padding are zero.

    The fold must divide the input channels of a group: what a word has beyond them would be counted.
    """
    if loops.channels.inputs % loops.fold.inputs or loops.fold.products != 1:
        raise UsageError(f"{layer.label}: a fold of {loops.fold} for {loops.channels.inputs} input channels of codes; it must "
                         "divide them, and no multiplier holds two products")
    may_step = all_of(MAY_STEP, MAY_WORK) if filters.loaded else MAY_STEP
    pipeline, folded, slot, taps = begun(layer, window, 0, loops, may_step)
    count = loops.fold.inputs * window.kernel[0] * window.kernel[1]
    lane, ones_stage = coded_lane(layer.module, count, filters, loops.slices)
    store = LoadedMemories(pipeline.module) if filters.loaded else None
    results = _lanes(pipeline, loops, slot, taps, lane, filters, ones_stage, store)
    products = loops.lanes * count
    made = ended(layer, loops, pipeline, folded, slot, results, lane, f"{products} products of codes at once", products)
    if store is None:
        return made
    store.close(signal("slot"), folded.steps, made.stages)
    return replace(made, loads=store.form)


def weight_set(loops: Loops, filters: CodedFilters, frames: int) -> NDArray[np.uint8]:
    """What fills the memories of an engine whose weights are loaded, for so many frames (0: for all): (beats, bytes)."""
    ranges, fields = filters.field_ranges(), filters.fields()
    for (name, values), (least, most) in zip(fields, ranges, strict=True):
        if min(values) < least or max(values) > most:
            raise UsageError(f"loaded {name}: {min(values)} to {max(values)}; the engine holds {least} to {most}")
    widths = [bit_width(*own) for own in ranges]
    field = loops.fold.inputs * filters.codes[0, 0].size * filters.weight_width
    words = code_words(loops, filters), table_words(loops, [values for _, values in fields], widths)
    return beats_of(words, (field * loops.lanes, sum(widths) * loops.lanes), frames)


def code_words(loops: Loops, filters: CodedFilters) -> list[int]:
    """The ROM: for every clock the codes of all lanes, lane after lane; of a lane its planes one after another."""
    planes = filters.op.weight_bits

    def word(lanes: IntMatrix) -> int:
        if not planes:
            return joined(lanes.reshape(-1).tolist(), [filters.weight_width] * lanes.size)
        bit_of = np.stack([lanes >> i & 1 for i in range(planes)], axis=1).reshape(-1)
        return int.from_bytes(np.packbits(bit_of.astype(np.uint8), bitorder="little").tobytes(), "little")

    return stored_words(loops, filters.codes, word)


def _lanes(pipeline: Pipeline, loops: Loops, slot: Slot, taps: WordTaps, lane: Lane, filters: CodedFilters, ones_stage: int,
           store: LoadedMemories | None) -> list[Signal]:
    """Instances of the lane, group after group; what each filter leaves at the lane's last stage."""
    module, stage = pipeline.module, max(tap.stage for tap in taps.values())
    width = lane.module.inputs[1].width * loops.lanes
    words, tables = _held(pipeline, loops, slot, filters, width, (stage, stage + lane.constant_stage), store)

    def of_group(group: int) -> tuple[Signal, list[Pin]]:
        seen, totals = module.wire(f"taps_{group}", pack(_columns(pipeline, filters, taps, group))), list[Pin]()
        for ones in lane.parts:
            made = [(port.name, module.net(f"{port.name}_of_{group}", port.width)) for port in ones.outputs]
            module.instances.append(Instance(ones.name, f"ones_{group}", (
                ("x", seen), *flow_pins(pipeline, loops, slot, stage + ones_stage), *made)))
            # Counted by themselves, they may be ready before the lanes' sums are.
            waits = lane.sum_stage - ones_stage
            totals = [(name, pipeline.signal_at(Staged(net, 0), waits)) for name, net in made]
        return seen, totals

    return placed_lanes(pipeline, loops, slot, lane, words, tables, stage, of_group)


def _held(pipeline: Pipeline, loops: Loops, slot: Slot, filters: CodedFilters, width: int, stages: tuple[int, int],
          store: LoadedMemories | None) -> tuple[Signal, Tables]:
    """Words of codes and constants of filters, from ROM or from what was loaded."""
    if store is None:
        return (read_rom(pipeline, "weights", code_words(loops, filters), width, slot.weight, stages[0]),
                filter_tables(pipeline, loops, filters.fields(), slot, stages[1]))
    widths = [bit_width(*own) for own in filters.field_ranges()]
    codes = store.read(pipeline, "weights", width, loops.clocks, slot.weight, stages[0])
    constants = store.read(pipeline, "constants", sum(widths) * loops.lanes, loops.results, slot.result, stages[1])
    return codes, fields_of(pipeline, constants, [name for name, _ in filters.fields()], widths, loops.lanes)


def _columns(pipeline: Pipeline, filters: CodedFilters, taps: WordTaps, group: int) -> list[tuple[Expr, int]]:
    """A group's taps as lanes read them: planes of all taps one after another, or plain integers side by side."""
    keys = [key for key in sorted(taps) if key[0] == group]
    if not filters.op.input_bits:
        return [(taps[key].value, filters.input_width) for key in keys]
    planes = Planes(pipeline, f"taps_{group}", op=filters.op, taps=[taps[key] for key in keys])
    found: list[tuple[Expr, int]] = []
    for j in range(filters.op.input_bits):
        for tap in range(len(keys)):
            bit = planes.bit(tap, j)
            found.append((ZERO if bit is None else bit.value, 1))  # a share of rows may see a row of padding alone
    return found
