"""The folded engine of a layer of codes: the window and the order of `folded.py`, lanes that count bits.

Codes and constants lie in ROM, or in memories that a stream fills (`loaded.py`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import UsageError
from dovetail.fpga.engines.coded_lane import CodedFilters, CodedLane, coded_lane, ones_module
from dovetail.fpga.engines.folded import (
    as_signal,
    begun,
    ended,
    fields_of,
    filter_tables,
    heading,
    joined,
    read_rom,
    table_words,
)
from dovetail.fpga.engines.layers import MappedLayer
from dovetail.fpga.engines.loaded import MAY_WORK, LoadedMemories, beats_of
from dovetail.fpga.engines.lq import Planes
from dovetail.fpga.engines.sequencer import Slot
from dovetail.fpga.engines.stream import MAY_STEP, Engine, Pipeline, Staged
from dovetail.fpga.engines.words import WordTaps
from dovetail.fpga.rtl.expressions import ZERO, Expr, Signal, all_of, bit_width, bits, pack, signal
from dovetail.fpga.rtl.modules import Instance, Module
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
    store = LoadedMemories(pipeline.module) if filters.loaded else None
    count, both = loops.fold.inputs * window.kernel[0] * window.kernel[1], bool(filters.op.weight_bits and filters.op.input_bits)
    ones, ones_stage = ones_module(f"{layer.module}_ones", count, filters.op, loops.slices) if both else (None, 0)
    lane = coded_lane(f"{layer.module}_lane", count, filters, loops.slices, ones_stage)
    results = _lanes(pipeline, loops, slot, taps, lane, filters, ones, ones_stage, store)
    fifo, stages, depth = ended(layer, loops, pipeline, folded, slot, results, lane.result.value, lane.stages)
    if store is not None:
        store.close(signal("slot"), folded.steps, stages)
    products = loops.lanes * count
    pipeline.module.header = heading(layer, loops, folded, f"{products} products of codes at once", stages, depth)
    parts = (pipeline.module, lane.module, *([ones] if ones is not None else []), fifo)
    return Engine(parts, layer.inputs, layer.output, folded.input_steps(), folded.output_steps(), folded.steps, stages, products,
                  depth, loads=None if store is None else store.form)


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
    codes, op = filters.codes, filters.op
    padded = np.concatenate([codes, np.zeros((1, *codes.shape[1:]), dtype=np.int64)])
    width = filters.weight_width
    words = []
    for result in range(loops.results):
        rows = [loops.filter(result, g, o) for g in range(loops.fold.groups) for o in range(loops.fold.outputs)]
        chosen = padded[[len(codes) if row is None else row for row in rows]]
        for part in range(loops.slices):
            flat = chosen[:, part * loops.fold.inputs:(part + 1) * loops.fold.inputs].reshape(len(rows), -1)
            if not op.weight_bits:
                words.append(joined(flat.reshape(-1).tolist(), [width] * flat.size))
                continue
            planes = np.stack([flat >> i & 1 for i in range(op.weight_bits)], axis=1).reshape(-1)
            words.append(int.from_bytes(np.packbits(planes.astype(np.uint8), bitorder="little").tobytes(), "little"))
    return words


def _lanes(pipeline: Pipeline, loops: Loops, slot: Slot, taps: WordTaps, lane: CodedLane, filters: CodedFilters,
           ones: Module | None, ones_stage: int, store: LoadedMemories | None) -> list[Signal]:
    """Instances of the lane, group after group; what each filter leaves at the lane's last stage."""
    module, stage = pipeline.module, max(tap.stage for tap in taps.values())
    field = lane.module.inputs[1].width
    words, tables = _held(pipeline, loops, slot, filters, field * loops.lanes, (stage, stage + lane.constant_stage), store)
    flow = _flow(pipeline, loops, slot, stage + lane.sum_stage)
    results = list[Signal]()
    for group in range(loops.fold.groups):
        seen = module.wire(f"taps_{group}", pack(_columns(pipeline, filters, taps, group)))
        totals: list[tuple[str, Signal]] = []
        if ones is not None:
            made = [(port.name, module.net(f"{port.name}_of_{group}", port.width)) for port in ones.outputs]
            module.instances.append(Instance(ones.name, f"ones_{group}", (
                ("x", seen), *_flow(pipeline, loops, slot, stage + ones_stage), *made)))
            # Counted by themselves, they may be ready before the lanes' sums are.
            waits = lane.sum_stage - ones_stage
            totals = [(name, as_signal(pipeline.at(Staged(net, 0), waits))) for name, net in made]
        for index in range(group * loops.fold.outputs, (group + 1) * loops.fold.outputs):
            y = module.net(f"result_{index}", lane.result.value.width)
            row = module.wire(f"weights_{index}", bits(words, index * field, field))
            own = [(name, values[index]) for name, values in tables]
            module.instances.append(Instance(lane.module.name, f"lane_{index}",
                                             (("x", seen), ("w", row), *flow, *totals, *own, ("y", y))))
            results.append(y)
    return results


def _held(pipeline: Pipeline, loops: Loops, slot: Slot, filters: CodedFilters, width: int, stages: tuple[int, int],
          store: LoadedMemories | None) -> tuple[Signal, list[tuple[str, list[Signal]]]]:
    """Words of codes and constants of filters, from ROM or from what was loaded."""
    if store is None:
        return (read_rom(pipeline, "weights", code_words(loops, filters), width, slot.weight, stages[0]),
                filter_tables(pipeline, loops, filters.fields(), slot, stages[1]))
    widths = [bit_width(*own) for own in filters.field_ranges()]
    codes = store.read(pipeline, "weights", width, loops.clocks, slot.weight, stages[0])
    constants = store.read(pipeline, "constants", sum(widths) * loops.lanes, loops.results, slot.result, stages[1])
    return codes, fields_of(pipeline, constants, [name for name, _ in filters.fields()], widths, loops.lanes)


def _flow(pipeline: Pipeline, loops: Loops, slot: Slot, stage: int) -> list[tuple[str, Signal]]:
    """When sums over slices start and go on, as seen at a stage."""
    if loops.slices == 1:
        return []
    known = {s.name for s, _ in pipeline.module.wires}
    starts = Signal(0, 1, "starts") if "starts" in known else pipeline.module.wire("starts", slot.starts)
    return [(port, as_signal(pipeline.at(Staged(value, 0), stage)))
            for port, value in (("starts", starts), ("works", slot.works))]


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
