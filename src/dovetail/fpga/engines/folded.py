"""The folded engine: window, sequencer, lanes with weights in ROM; results leave word by word.

Every memory and product has a register behind it, and an engine issues a slot only while its output FIFO has room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.fpga.engines.lane import Lane, Range, constants_of, lane_module, ranges_of, soft_lane_module
from dovetail.fpga.engines.layers import MappedLayer, Rescale, start
from dovetail.fpga.engines.sequencer import Slot, sequence
from dovetail.fpga.engines.stream import (
    MAY_STEP,
    Engine,
    Pipeline,
    Staged,
    finish_stream,
    read_stream,
)
from dovetail.fpga.engines.twin import twin_module, twin_rows
from dovetail.fpga.engines.words import WordTaps, in_blocks, word_taps
from dovetail.fpga.rtl.expressions import ZERO, Bits, Expr, Signal, bit_width, bits, pack, signal
from dovetail.fpga.rtl.modules import Instance, Module, Rom
from dovetail.hardware.adders.graph import IntMatrix
from dovetail.hardware.folds import Loops
from dovetail.hardware.streaming import FoldedRaster, Raster
from dovetail.ir import Window

ROM_STAGES = 2
"""Clock edges from a weight's address to the weight: the read and a register behind it."""


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
    fifo, stages, depth = ended(layer, loops, pipeline, folded, slot, results, lane.result.value, lane.stages)
    products = loops.lanes * loops.fold.inputs * window.kernel[0] * window.kernel[1]
    blocks = f" in {products // loops.lanes * loops.twins} blocks" if loops.twins else " in logic" if loops.soft else ""
    pipeline.module.header = heading(layer, loops, folded, f"{products} multipliers{blocks}", stages, depth)
    modules = (pipeline.module, lane.module, *lane.parts, fifo)
    return Engine(modules, layer.inputs, layer.output, folded.input_steps(), folded.output_steps(), folded.steps, stages,
                  2 * products, depth)


def begun(layer: MappedLayer, window: Window, fill: int, loops: Loops,
          may_step: Expr = MAY_STEP) -> tuple[Pipeline, FoldedRaster, Slot, WordTaps]:
    """A folded engine up to its taps: stream in, sequence of clocks, window."""
    (form,) = layer.inputs
    raster = Raster(window, form.height, form.width)
    assert raster.masks_suffice
    folded = FoldedRaster(raster, loops)
    module, pipeline = start(layer)
    in_valid, in_data = read_stream(module, "in0", form)
    slot = sequence(module, raster, loops, may_step, in_valid)
    module.output("in0_ready", slot.ready)
    return pipeline, folded, slot, word_taps(pipeline, folded, loops, form, slot, in_data, fill)


def ended(layer: MappedLayer, loops: Loops, pipeline: Pipeline, folded: FoldedRaster, slot: Slot, results: Sequence[Signal],
          result: Expr, lane_stages: int) -> tuple[Module, int, int]:
    """The stream out of what lanes leave, word by word or packed: its FIFO, all stages, and the FIFO's depth."""
    end = folded.stages + lane_stages
    if loops.writes_words:
        emit, values = slot.ends, named(pipeline, layer, results, result, end)
    else:
        emit, values = slot.emit, packed(pipeline, layer, loops, slot, results, result, end)
    return finish_stream(pipeline.module, pipeline, Staged(emit, 0), [(v, layer.output.bits) for v in values],
                         folded.output_steps(), folded.steps)


def heading(layer: MappedLayer, loops: Loops, folded: FoldedRaster, products: str, stages: int, depth: int) -> tuple[str, ...]:
    """What a folded engine says of itself."""
    return (*layer.heading, f"{products}, {loops.clocks} clocks per output pixel: {loops.blocks} blocks of groups x "
                            f"{loops.passes} passes over filters x {loops.slices} slices of inputs.",
            f"{stages} pipeline stages, {folded.steps} steps per frame, output FIFO of {depth} beats.")


def _weight_range(weights: IntMatrix) -> Range:
    return min(0, int(weights.min())), max(0, int(weights.max()))


def lane_of(layer: MappedLayer, filters: Filters, loops: Loops, x: Range, turned: bool = False) -> Lane:
    """The lane of an engine; with `turned` it has a sum for every pass, since all of them go over a word as it comes."""
    weights, width = filters.weights, loops.fold.inputs
    slices = [weights[:, at:at + width].reshape(len(weights), -1) for at in range(0, weights.shape[1], width)]
    taps = width * weights.shape[2] * weights.shape[3]
    constants = constants_of(filters.bias, filters.rescale)
    made = twin_module if loops.twins else soft_lane_module if loops.soft else lane_module
    sums = 0 if loops.slices == 1 else loops.passes if turned else 1
    return made(f"{layer.module}_lane", taps, x, _weight_range(weights), ranges_of(slices, x), sums, constants, filters.rescale)


def weight_words(loops: Loops, weights: IntMatrix) -> list[int]:
    """The ROM: for every clock the weights of all lanes, lane after lane, as (input channel, kernel row, kernel column).

    Lanes of two filters have (lower, upper) fields tap by tap.
    """
    lo, hi = _weight_range(weights)
    _, inputs, high, wide = weights.shape
    padded = np.zeros((len(weights) + 1, loops.slices * loops.fold.inputs, high, wide), dtype=np.int64)
    padded[:len(weights), :inputs] = weights
    words = []
    for result in range(loops.results):
        rows = [loops.filter(result, g, o) if o < loops.fold.outputs else None for g, o in places(loops)]
        chosen = padded[[len(weights) if row is None else row for row in rows]]
        for part in range(loops.slices):
            of_slice = chosen[:, part * loops.fold.inputs:(part + 1) * loops.fold.inputs].reshape(len(rows), -1)
            if not loops.twins:
                words.append(joined(of_slice.reshape(-1).tolist(), [bit_width(lo, hi)] * of_slice.size))
                continue
            pairs = twin_rows(of_slice).reshape(-1).tolist()
            words.append(joined(pairs, [bit_width(lo, hi), bit_width(lo - 1, hi)] * (len(pairs) // 2)))
    return words


def places(loops: Loops) -> list[tuple[int, int]]:
    """(group, filter) of all lanes of a fold; lanes of two filters may have one more than the fold."""
    outputs = loops.fold.outputs + (loops.fold.outputs % 2 if loops.twins else 0)
    return [(g, o) for g in range(loops.fold.groups) for o in range(outputs)]


def joined(values: Sequence[int], widths: Sequence[int]) -> int:
    """Values side by side, the first in the lowest bits."""
    fields = reversed(list(zip(values, widths, strict=True)))
    return int("".join(format(v & ((1 << width) - 1), f"0{width}b") for v, width in fields), 2)


def read_rom(pipeline: Pipeline, name: str, words: Sequence[int], width: int, at: Signal | None, stage: int) -> Signal:
    """A word of constants at `stage`, from an address of stage 0; the address waits, being narrower than the word."""
    address: Expr = ZERO if at is None else pipeline.at(Staged(at, 0), stage - ROM_STAGES)
    read = signal(f"{name}_read", 0, (1 << width) - 1)
    pipeline.module.roms.append(Rom(name, width, tuple(words), address, read, in_blocks(len(words), width)))
    return pipeline.module.register(f"{name}_word", read)


def lanes_of(pipeline: Pipeline, loops: Loops, slot: Slot, taps: WordTaps, x: Range, lane: Lane, filters: Filters,
             turned: bool = False) -> list[Signal]:
    """Instances of the lane, group after group; what each filter leaves at the lane's last stage."""
    module, every = pipeline.module, places(loops)
    stage = max(tap.stage for tap in taps.values())
    field, own = lane.module.inputs[1].width, 2 if loops.twins else 1
    count = len(every) // own
    stored = weight_words(loops, filters.weights)
    if turned:  # passes after each other over one slice, not slices of one pass
        stored = [stored[turn * loops.slices + part] for part in range(loops.slices) for turn in range(loops.passes)]
    words = read_rom(pipeline, "weights", stored, field * count, slot.weight, stage)
    fields = constants_of(filters.bias, filters.rescale).fields()
    tables = filter_tables(pipeline, loops, fields, slot, stage + lane.constant_stage)
    shared: list[tuple[str, Signal]] = []
    if loops.slices > 1:
        starts = module.wire("starts", slot.starts)
        shared = [(port, as_signal(pipeline.at(Staged(value, 0), stage + lane.sum_stage)))
                  for port, value in (("starts", starts), ("works", slot.works))]
    results, columns = list[Signal](), dict[int, Signal]()
    for index in range(count):
        group, width = every[index * own][0], lane.result.value.width
        if group not in columns:
            seen = [(taps[key].value, bit_width(*x)) for key in sorted(taps) if key[0] == group]
            columns[group] = module.wire(f"taps_{group}", pack(seen))
        row = module.wire(f"weights_{index}", bits(words, index * field, field))
        y = module.net(f"result_{index}", width * own)
        named = [(f"{side}{name}", values[index * own + i]) for i, side in enumerate(("lower_", "upper_") if own == 2 else ("",))
                 for name, values in tables]
        pins = [("x", columns[group]), ("w", row), *shared, *named, ("y", y)]
        module.instances.append(Instance(lane.module.name, f"lane_{index}", tuple(pins)))
        results += [module.wire(f"result_{index}_{i}", bits(y, i * width, width)) for i in range(own)] if own == 2 else [y]
    return [y for y, (_, place) in zip(results, every, strict=True) if place < loops.fold.outputs]


def as_signal(value: Expr) -> Signal:
    """An expression that is a signal."""
    assert isinstance(value, Signal)
    return value


def filter_tables(pipeline: Pipeline, loops: Loops, named: Sequence[tuple[str, tuple[int, ...]]], slot: Slot,
                  stage: int) -> list[tuple[str, list[Signal]]]:
    """Constants (name, value per filter) of the filters that are being finished, lane by lane, from a ROM of their own."""
    if not named:
        return []
    widths = [bit_width(min(values), max(values)) for _, values in named]
    words = table_words(loops, [values for _, values in named], widths)
    read = read_rom(pipeline, "constants", words, sum(widths) * len(places(loops)), slot.result, stage)
    return fields_of(pipeline, read, [name for name, _ in named], widths, len(places(loops)))


def table_words(loops: Loops, values: Sequence[Sequence[int]], widths: Sequence[int]) -> list[int]:
    """Constants per filter as words, one per result: field after field, each of all lanes."""
    words, every = [], places(loops)
    for result in range(loops.results):
        rows = [loops.filter(result, g, o) if o < loops.fold.outputs else None for g, o in every]
        parts = [joined([own[row or 0] for row in rows], [width] * len(rows)) for own, width in zip(values, widths, strict=True)]
        words.append(joined(parts, [width * len(rows) for width in widths]))
    return words


def fields_of(pipeline: Pipeline, read: Signal, names: Sequence[str], widths: Sequence[int],
              lanes: int) -> list[tuple[str, list[Signal]]]:
    """The fields of such a word, lane by lane."""
    found, at = [], 0
    for name, width in zip(names, widths, strict=True):
        found.append((name, [pipeline.module.wire(f"{name}_{i}", bits(read, at + i * width, width)) for i in range(lanes)]))
        at += width * lanes
    return found


def named(pipeline: Pipeline, layer: MappedLayer, results: Sequence[Signal], result: Expr, stage: int) -> list[Staged]:
    """The results of the lanes, which leave at `stage`, with their range."""
    return [Staged(pipeline.module.wire(f"{layer.label}_{index}", Bits(result.lo, result.hi, y, 0, result.width)), stage)
            for index, y in enumerate(results)]


def packed(pipeline: Pipeline, layer: MappedLayer, loops: Loops, slot: Slot, results: Sequence[Signal], result: Expr,
           stage: int) -> list[Staged]:
    """Collect the results of an output pixel, which leave the lanes at `stage` word after word, and name its channels."""
    module, width, count = pipeline.module, result.width, len(results)
    ready = pipeline.at(Staged(slot.ends, 0), stage)
    beat = signal("collected", 0, (1 << width * count * loops.results) - 1)
    older = width * count * (loops.results - 1)
    kept = [(bits(beat, width * count, older), older)] if older else []
    module.drive(beat, pack([*kept, *((y, width) for y in results)]), ready)
    values: list[Staged | None] = [None] * layer.output.channels
    for word in range(loops.results):
        for index in range(count):
            channel = loops.filter(word, *divmod(index, loops.fold.outputs))
            if channel is not None:
                field = Bits(result.lo, result.hi, beat, (word * count + index) * width, width)
                values[channel] = Staged(module.wire(f"{layer.label}_{channel}", field), stage + 1)
    assert None not in values
    return [v for v in values if v is not None]
