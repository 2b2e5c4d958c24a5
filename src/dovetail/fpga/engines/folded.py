"""The folded engine: window, sequencer, lanes with weights in ROM; results leave word by word.

Every memory and product has a register behind it, and an engine issues a slot only while its output FIFO has room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.cost.adder_graph import IntMatrix
from dovetail.cost.folds import Loops
from dovetail.cost.streaming import FoldedRaster, Raster
from dovetail.fpga.engines.lane import Constants, Lane, Range, constants_of, lane_module, ranges_of
from dovetail.fpga.engines.layers import Layer, Rescale, start
from dovetail.fpga.engines.sequencer import Slot, sequence
from dovetail.fpga.engines.stream import (
    MAY_STEP,
    Engine,
    Pipeline,
    Staged,
    finish_stream,
    read_stream,
)
from dovetail.fpga.engines.words import WordTaps, in_blocks, word_taps
from dovetail.fpga.expressions import ZERO, Bits, Expr, Signal, bit_width, bits, pack, signal
from dovetail.fpga.hardware import Instance, Rom
from dovetail.ir import Window

ROM_STAGES = 2
"""Clock edges from a weight's address to the weight: the read and a register behind it."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Weights (filters, input channels of a group, kernel rows, kernel columns), biases, and how sums are rescaled."""

    weights: IntMatrix
    bias: Sequence[int]
    rescale: Rescale


def folded_engine(layer: Layer, window: Window, fill: int, filters: Filters, loops: Loops) -> Engine:
    """An engine that takes `loops.clocks` clocks per output pixel; `fill` is what taps in the padding read."""
    (form,) = layer.inputs
    raster = Raster(window, form.height, form.width)
    assert raster.masks_suffice
    folded = FoldedRaster(raster, loops)
    module, pipeline = start(layer)
    in_valid, in_data = read_stream(module, "in0", form)
    slot = sequence(module, raster, loops, MAY_STEP, in_valid)
    module.output("in0_ready", slot.ready)
    taps = word_taps(pipeline, folded, loops, form, slot, in_data, fill)
    x = (min(form.lo, fill, 0), max(form.hi, fill, 0))
    lane = _lane(layer, filters, loops, x)
    results = _lanes(pipeline, loops, slot, taps, x, lane, filters)
    end = folded.stages + lane.stages
    if loops.writes_words:
        emit, values = slot.ends, named(pipeline, layer, results, lane.result.value, end)
    else:
        emit, values = slot.emit, packed(pipeline, layer, loops, slot, results, lane.result.value, end)
    fifo, stages, depth = finish_stream(module, pipeline, Staged(emit, 0), [(v, layer.output.bits) for v in values],
                                        folded.output_steps(), folded.steps)
    products = loops.lanes * loops.fold.inputs * window.kernel[0] * window.kernel[1]
    module.header = (*layer.heading, f"{products} multipliers, {loops.clocks} clocks per output pixel: {loops.blocks} blocks of "
                                     f"groups x {loops.passes} passes over filters x {loops.slices} slices of input channels.",
                     f"{stages} pipeline stages, {folded.steps} steps per frame, output FIFO of {depth} beats.")
    return Engine((module, lane.module, fifo), layer.inputs, layer.output, folded.input_steps(), folded.output_steps(),
                  folded.steps, stages, 2 * products, depth)


def _weight_range(weights: IntMatrix) -> Range:
    return min(0, int(weights.min())), max(0, int(weights.max()))


def _lane(layer: Layer, filters: Filters, loops: Loops, x: Range) -> Lane:
    weights, width = filters.weights, loops.fold.inputs
    slices = [weights[:, at:at + width].reshape(len(weights), -1) for at in range(0, weights.shape[1], width)]
    taps = width * weights.shape[2] * weights.shape[3]
    constants = constants_of(filters.bias, filters.rescale)
    return lane_module(f"{layer.module}_lane", taps, x, _weight_range(weights), ranges_of(slices, x), loops.slices > 1,
                       constants, filters.rescale)


def weight_words(loops: Loops, weights: IntMatrix) -> list[int]:
    """The ROM: for every clock the weights of all lanes, lane after lane, as (input channel, kernel row, kernel column)."""
    lo, hi = _weight_range(weights)
    width, (_, inputs, high, wide) = bit_width(lo, hi), weights.shape
    padded = np.zeros((len(weights) + 1, loops.slices * loops.fold.inputs, high, wide), dtype=np.int64)
    padded[:len(weights), :inputs] = weights
    words = []
    for result in range(loops.results):
        rows = [loops.filter(result, g, o) for g in range(loops.fold.groups) for o in range(loops.fold.outputs)]
        chosen = padded[[len(weights) if row is None else row for row in rows]]
        for part in range(loops.slices):
            of_slice = chosen[:, part * loops.fold.inputs:(part + 1) * loops.fold.inputs].reshape(-1)
            words.append(_joined([int(v) for v in of_slice], width))
    return words


def _joined(values: Sequence[int], width: int) -> int:
    """Values side by side, the first in the lowest bits."""
    digits = "".join(format(v & ((1 << width) - 1), f"0{width}b") for v in reversed(values))
    return int(digits, 2)


def read_rom(pipeline: Pipeline, name: str, words: Sequence[int], width: int, at: Signal | None, stage: int) -> Signal:
    """A word of constants at `stage`, from an address of stage 0; the address waits, being narrower than the word."""
    address: Expr = ZERO if at is None else pipeline.at(Staged(at, 0), stage - ROM_STAGES)
    read = signal(f"{name}_read", 0, (1 << width) - 1)
    pipeline.module.roms.append(Rom(name, width, tuple(words), address, read, in_blocks(len(words), width)))
    return pipeline.module.register(f"{name}_word", read)


def _lanes(pipeline: Pipeline, loops: Loops, slot: Slot, taps: WordTaps, x: Range, lane: Lane, filters: Filters) -> list[Signal]:
    """Instances of the lane, group after group; what each leaves at the lane's last stage."""
    module, weights = pipeline.module, filters.weights
    stage = max(tap.stage for tap in taps.values())
    field = lane.module.inputs[1].width
    words = read_rom(pipeline, "weights", weight_words(loops, weights), field * loops.lanes, slot.weight, stage)
    constants = constants_of(filters.bias, filters.rescale)
    tables = _tables(pipeline, loops, constants, slot, stage + lane.constant_stage)
    shared: list[tuple[str, Signal]] = []
    if loops.slices > 1:
        starts = module.wire("starts", slot.starts)
        shared = [(port, _signal(pipeline.at(Staged(value, 0), stage + lane.sum_stage)))
                  for port, value in (("starts", starts), ("works", slot.works))]
    results = []
    for index in range(loops.lanes):
        group = index // loops.fold.outputs
        if index % loops.fold.outputs == 0:
            own = [(taps[key].value, bit_width(*x)) for key in sorted(taps) if key[0] == group]
            columns = module.wire(f"taps_{group}", pack(own))
        row = module.wire(f"weights_{index}", bits(words, index * field, field))
        y = module.net(f"result_{index}", lane.result.value.width)
        pins = [("x", columns), ("w", row), *shared, *((name, values[index]) for name, values in tables), ("y", y)]
        module.instances.append(Instance(lane.module.name, f"lane_{index}", tuple(pins)))
        results.append(y)
    return results


def _signal(value: Expr) -> Signal:
    assert isinstance(value, Signal)
    return value


def _tables(pipeline: Pipeline, loops: Loops, constants: Constants, slot: Slot, stage: int) -> list[tuple[str, list[Signal]]]:
    """The constants of the filters that are being finished, lane by lane, from a ROM of their own."""
    named = constants.fields()
    if not named:
        return []
    widths = [bit_width(min(values), max(values)) for _, values in named]
    words = []
    for result in range(loops.results):
        rows = [loops.filter(result, g, o) for g in range(loops.fold.groups) for o in range(loops.fold.outputs)]
        parts = [_joined([values[row or 0] for row in rows], width) for (_, values), width in zip(named, widths, strict=True)]
        word, at = 0, 0
        for part, width in zip(parts, widths, strict=True):
            word, at = word | part << at, at + width * len(rows)
        words.append(word)
    read = read_rom(pipeline, "constants", words, sum(widths) * loops.lanes, slot.result, stage)
    found, at = [], 0
    for (name, _), width in zip(named, widths, strict=True):
        found.append((name, [pipeline.module.wire(f"{name}_{i}", bits(read, at + i * width, width)) for i in range(loops.lanes)]))
        at += width * loops.lanes
    return found


def named(pipeline: Pipeline, layer: Layer, results: Sequence[Signal], result: Expr, stage: int) -> list[Staged]:
    """The results of the lanes, which leave at `stage`, with their range."""
    return [Staged(pipeline.module.wire(f"{layer.label}_{index}", Bits(result.lo, result.hi, y, 0, result.width)), stage)
            for index, y in enumerate(results)]


def packed(pipeline: Pipeline, layer: Layer, loops: Loops, slot: Slot, results: Sequence[Signal], result: Expr,
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
