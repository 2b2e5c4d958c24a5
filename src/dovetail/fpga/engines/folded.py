"""The folded engine: window, sequencer, lanes with weights in ROM; results leave word by word.

Every memory and product has a register behind it, and an engine issues a slot only while its output FIFO has room. Layers of
codes have lanes that count bits; their codes and constants lie in ROM, or in memories that a stream fills (`loaded.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import UsageError
from dovetail.fpga.engines.coded_lane import CodedFilters, coded_lane
from dovetail.fpga.engines.lane import Lane, Range, constants_of, lane_module, ranges_of
from dovetail.fpga.engines.layers import MappedLayer, Rescale, begun
from dovetail.fpga.engines.loaded import MAY_WORK, LoadedMemories, beats_of
from dovetail.fpga.engines.lq import Planes
from dovetail.fpga.engines.sequencer import Slot
from dovetail.fpga.engines.stream import MAY_STEP, READ_STAGES, Engine, Pipeline, Staged, finish_stream, in_blocks
from dovetail.fpga.engines.twin import twin_module, twin_rows
from dovetail.fpga.engines.words import WordTaps
from dovetail.fpga.rtl.expressions import ZERO, Const, Expr, Signal, all_of, bit_width, pack, signal
from dovetail.fpga.rtl.modules import Instance, Rom
from dovetail.hardware.adders.graph import IntMatrix
from dovetail.hardware.folds import Loops
from dovetail.hardware.streaming import HELD_STAGES, FoldedRaster
from dovetail.ir import Window

Pin = tuple[str, Signal]
Tables = list[tuple[str, list[Signal]]]
"""Constants of filters by name, for every lane."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Weights (filters, input channels of a group, kernel rows, kernel columns), biases, and how sums are rescaled."""

    weights: IntMatrix
    bias: Sequence[int]
    rescale: Rescale


def folded_engine(layer: MappedLayer, window: Window, fill: int, filters: Filters, loops: Loops) -> Engine:
    """An engine that takes `loops.clocks` clocks per output pixel; `fill` is what taps in the padding read."""
    (form,) = layer.inputs
    pipeline, folded, slot, taps = begun(layer, window, fill, loops)
    x = (min(form.lo, fill, 0), max(form.hi, fill, 0))
    lane = lane_of(layer, filters, loops, x)
    results = lanes_of(pipeline, loops, slot, taps, x, lane, filters)
    products = loops.lanes * loops.fold.inputs * window.kernel[0] * window.kernel[1]
    blocks = f" in {products // loops.lanes * loops.twins} blocks" if loops.twins else " in logic" if loops.soft else ""
    return ended(layer, loops, pipeline, folded, slot, results, lane, f"{products} multipliers{blocks}", 2 * products)


def ended(layer: MappedLayer, loops: Loops, pipeline: Pipeline, folded: FoldedRaster, slot: Slot, results: Sequence[Signal],
          lane: Lane, products: str, adders: int) -> Engine:
    """The engine, with the stream out of what its lanes leave, word by word or packed; `products` are for its heading."""
    end, result = folded.stages + lane.stages, lane.result.value
    if loops.writes_words:
        emit, values = slot.ends, named(pipeline, layer, results, result, end)
    else:
        emit, values = slot.emit, packed(pipeline, layer, loops, slot, results, result, end)
    fifo, stages, depth = finish_stream(pipeline.module, pipeline, Staged(emit, 0), [(v, layer.output.bits) for v in values],
                                        folded.output_steps(), folded.steps)
    pipeline.module.header = (
        *layer.heading, f"{products}, {loops.clocks} clocks per output pixel: {loops.blocks} blocks of groups x "
                        f"{loops.passes} passes over filters x {loops.slices} slices of inputs.",
        f"{stages} pipeline stages, {folded.steps} steps per frame, output FIFO of {depth} beats.")
    return Engine((pipeline.module, lane.module, *lane.parts, fifo), layer.inputs, layer.output, folded.input_steps(),
                  folded.output_steps(), folded.steps, stages, adders, depth)


def _weight_range(weights: IntMatrix) -> Range:
    return min(0, int(weights.min())), max(0, int(weights.max()))


def lane_of(layer: MappedLayer, filters: Filters, loops: Loops, x: Range, turned: bool = False) -> Lane:
    """The lane of an engine; with `turned` it has a sum for every pass, since all of them go over a word as it comes."""
    weights, width = filters.weights, loops.fold.inputs
    slices = [weights[:, at:at + width].reshape(len(weights), -1) for at in range(0, weights.shape[1], width)]
    taps = width * weights.shape[2] * weights.shape[3]
    constants = constants_of(filters.bias, filters.rescale)
    made = twin_module if loops.twins else partial(lane_module, in_logic=loops.soft)
    sums = 0 if loops.slices == 1 else loops.passes if turned else 1
    return made(f"{layer.module}_lane", taps, x, _weight_range(weights), ranges_of(slices, x), sums, constants, filters.rescale)


def weight_words(loops: Loops, weights: IntMatrix) -> list[int]:
    """The ROM of weights; lanes of two filters have (lower, upper) fields tap by tap."""
    lo, hi = _weight_range(weights)

    def word(lanes: IntMatrix) -> int:
        if not loops.twins:
            return repeated(lanes.reshape(-1, 1), bit_width(lo, hi))
        return repeated(twin_rows(lanes).reshape(-1, 2), bit_width(lo, hi), bit_width(lo - 1, hi))

    return stored_words(loops, weights, word)


def stored_words(loops: Loops, weights: IntMatrix, word: Callable[[IntMatrix], int]) -> list[int]:
    """A word for every clock, of the weights (lanes, taps): taps are (input channel, kernel row, kernel column)."""
    _, inputs, high, wide = weights.shape
    padded = np.zeros((len(weights) + 1, loops.slices * loops.fold.inputs, high, wide), dtype=np.int64)
    padded[:len(weights), :inputs] = weights
    words = []
    for result in range(loops.results):
        chosen = padded[[len(weights) if row is None else row for row in filters_of(loops, result)]]
        for at in range(0, padded.shape[1], loops.fold.inputs):
            words.append(word(chosen[:, at:at + loops.fold.inputs].reshape(len(chosen), -1)))
    return words


def places(loops: Loops) -> list[tuple[int, int]]:
    """(group, filter) of all lanes of a fold; lanes of two filters may have one more than the fold."""
    outputs = loops.fold.outputs + (loops.fold.outputs % 2 if loops.twins else 0)
    return [(g, o) for g in range(loops.fold.groups) for o in range(outputs)]


def filters_of(loops: Loops, result: int) -> list[int | None]:
    """The filters that all lanes work on for a result; None where a lane has none."""
    return [loops.filter(result, g, o) if o < loops.fold.outputs else None for g, o in places(loops)]


def joined(values: Sequence[int], widths: Sequence[int]) -> int:
    """Values side by side, the first in the lowest bits."""
    fields = reversed(list(zip(values, widths, strict=True)))
    return int("".join(format(v & ((1 << width) - 1), f"0{width}b") for v, width in fields), 2)


def repeated(rows: IntMatrix, *widths: int) -> int:
    """Rows of values side by side, each value of a row in its width, the first of all in the lowest bits."""
    return _number(np.hstack([rows[:, n, None] >> np.arange(width) & 1 for n, width in enumerate(widths)]))


def _number(bits: IntMatrix) -> int:
    """The number that has these bits, the lowest one first."""
    return int.from_bytes(np.packbits(bits.reshape(-1).astype(np.uint8), bitorder="little").tobytes(), "little")


def read_rom(pipeline: Pipeline, name: str, words: Sequence[int], width: int, at: Signal | Const, stage: int,
             held: bool = False) -> Signal:
    """A word of constants at `stage`, from an address of stage 0; the address waits, being narrower than the word.

    A word that is `held` was there a clock earlier: a register of its own moves into the multiplier behind it.
    """
    address = pipeline.at(Staged(at, 0), stage - READ_STAGES - HELD_STAGES * held)
    read = signal(f"{name}_read", 0, (1 << width) - 1)
    pipeline.module.roms.append(Rom(name, width, tuple(words), address, read, in_blocks(len(words), width)))
    word = pipeline.module.register(f"{name}_word", read)
    return pipeline.module.register(f"{name}_held", word) if held else word


def lanes_of(pipeline: Pipeline, loops: Loops, slot: Slot, taps: WordTaps, x: Range, lane: Lane, filters: Filters,
             turned: bool = False) -> list[Signal]:
    """Instances of the lane, group after group; what each filter leaves at the lane's last stage."""
    stage = max(tap.stage for tap in taps.values())
    stored = weight_words(loops, filters.weights)
    if turned:  # passes after each other over one slice, not slices of one pass
        stored = [stored[turn * loops.slices + part] for part in range(loops.slices) for turn in range(loops.passes)]
    count = len(places(loops)) // (2 if loops.twins else 1)
    words = read_rom(pipeline, "weights", stored, lane.module.inputs[1].width * count, slot.weight, stage,
                     loops.holds_weights)
    fields = constants_of(filters.bias, filters.rescale).fields()
    tables = filter_tables(pipeline, loops, fields, slot, stage + lane.constant_stage)

    def of_group(group: int) -> tuple[Signal, list[Pin]]:
        seen = [(taps[key].value, bit_width(*x)) for key in sorted(taps) if key[0] == group]
        return pipeline.module.wire(f"taps_{group}", pack(seen)), []

    return placed_lanes(pipeline, loops, slot, lane, words, tables, stage, of_group)


def placed_lanes(pipeline: Pipeline, loops: Loops, slot: Slot, lane: Lane, words: Signal, tables: Tables, stage: int,
                 of_group: Callable[[int], tuple[Signal, list[Pin]]]) -> list[Signal]:
    """Instances of a lane; `of_group` has the taps that a group sees at `stage`, and pins of its own."""
    module, every, sides = pipeline.module, places(loops), ("lower_", "upper_") if loops.twins else ("",)
    field, width, own = lane.module.inputs[1].width, lane.result.value.width, len(sides)
    flow = flow_pins(pipeline, loops, slot, stage + lane.sum_stage)
    results, seen = list[Signal](), dict[int, tuple[Signal, list[Pin]]]()
    for index in range(len(every) // own):
        group = every[index * own][0]
        if group not in seen:
            seen[group] = of_group(group)
        x, more = seen[group]
        row = module.wire(f"weights_{index}", words.bits(index * field, field))
        y = module.net(f"result_{index}", width * own)
        constants = [(f"{side}{name}", values[index * own + i]) for i, side in enumerate(sides) for name, values in tables]
        pins = (("x", x), ("w", row), *flow, *more, *constants, ("y", y))
        module.instances.append(Instance(lane.module.name, f"lane_{index}", pins))
        results += [module.wire(f"result_{index}_{i}", y.bits(i * width, width)) for i in range(own)] if own == 2 else [y]
    return [y for y, (_, place) in zip(results, every, strict=True) if place < loops.fold.outputs]


def flow_pins(pipeline: Pipeline, loops: Loops, slot: Slot, stage: int) -> list[Pin]:
    """When sums over slices start and go on, as seen at a stage."""
    if loops.slices == 1:
        return []
    known = {s.name for s, _ in pipeline.module.wires}
    starts = signal("starts") if "starts" in known else pipeline.module.wire("starts", slot.starts)
    return [(port, pipeline.signal_at(Staged(value, 0), stage)) for port, value in (("starts", starts), ("works", slot.works))]


def filter_tables(pipeline: Pipeline, loops: Loops, named: Sequence[tuple[str, tuple[int, ...]]], slot: Slot,
                  stage: int) -> Tables:
    """Constants (name, value per filter) of the filters that are being finished, lane by lane, from a ROM of their own."""
    if not named:
        return []
    widths = [bit_width(min(values), max(values)) for _, values in named]
    words = table_words(loops, [values for _, values in named], widths)
    read = read_rom(pipeline, "constants", words, sum(widths) * len(places(loops)), slot.result, stage)
    return fields_of(pipeline, read, [name for name, _ in named], widths, len(places(loops)))


def table_words(loops: Loops, values: Sequence[Sequence[int]], widths: Sequence[int]) -> list[int]:
    """Constants per filter as words, one per result: field after field, each of all lanes."""
    words = []
    for result in range(loops.results):
        rows = filters_of(loops, result)
        parts = [joined([own[row or 0] for row in rows], [width] * len(rows)) for own, width in zip(values, widths, strict=True)]
        words.append(joined(parts, [width * len(rows) for width in widths]))
    return words


def fields_of(pipeline: Pipeline, read: Signal, names: Sequence[str], widths: Sequence[int], lanes: int) -> Tables:
    """The fields of such a word, lane by lane."""
    found, at = [], 0
    for name, width in zip(names, widths, strict=True):
        found.append((name, [pipeline.module.wire(f"{name}_{i}", read.bits(at + i * width, width)) for i in range(lanes)]))
        at += width * lanes
    return found


def named(pipeline: Pipeline, layer: MappedLayer, results: Sequence[Signal], result: Expr, stage: int) -> list[Staged]:
    """The results of the lanes, which leave at `stage`, with their range."""
    return [Staged(pipeline.module.wire(f"{layer.label}_{index}", y.field(0, result.lo, result.hi)), stage)
            for index, y in enumerate(results)]


def packed(pipeline: Pipeline, layer: MappedLayer, loops: Loops, slot: Slot, results: Sequence[Signal], result: Expr,
           stage: int) -> list[Staged]:
    """Collect the results of an output pixel, which leave the lanes at `stage` word after word, and name its channels."""
    module, width, count = pipeline.module, result.width, len(results)
    ready = pipeline.at(Staged(slot.ends, 0), stage)
    beat = signal("collected", 0, (1 << width * count * loops.results) - 1)
    older = width * count * (loops.results - 1)
    kept = [(beat.bits(width * count, older), older)] if older else []
    module.drive(beat, pack([*kept, *((y, width) for y in results)]), ready)
    values: list[Staged | None] = [None] * layer.output.channels
    for word in range(loops.results):
        for index in range(count):
            channel = loops.filter(word, *divmod(index, loops.fold.outputs))
            if channel is not None:
                field = beat.field((word * count + index) * width, result.lo, result.hi)
                values[channel] = Staged(module.wire(f"{layer.label}_{channel}", field), stage + 1)
    assert None not in values
    return [v for v in values if v is not None]


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
            return repeated(lanes.reshape(-1, 1), filters.weight_width)
        return _number(np.stack([lanes >> i & 1 for i in range(planes)], axis=1))

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
