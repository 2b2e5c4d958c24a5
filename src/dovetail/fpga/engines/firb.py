"""An inverted residual bottleneck as one engine (FIRB of Compact DNNs 2024): expand, filter, project, add, without FIFOs between.

The expander issues; what it finishes runs on through depthwise window and projection like through one pipeline, word by word of
the expanded channels. Only the depthwise rows are kept, and the block's input where it is added. Behind the last input pixel
the expander goes on without one until the window is empty, so the parts behind it need no control of their own. Where the
expander takes several clocks for a word, the projection may take as many: it then has fewer multipliers and goes over the word in
passes, with a running sum for every filter as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.fpga.engines.folded import Filters, lane_of, lanes_of, named, packed
from dovetail.fpga.engines.layers import Compute, MappedLayer
from dovetail.fpga.engines.sequencer import Slot, sequence, turned_sequence
from dovetail.fpga.engines.stream import Engine, Format, Pipeline, Staged, fifo_module, in_blocks
from dovetail.fpga.engines.words import word_taps
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, any_of, compare, pack, signal
from dovetail.fpga.rtl.modules import Instance, Memory, Module
from dovetail.hardware.folds import Loops
from dovetail.hardware.streaming import FoldedRaster, Raster, output_fifo_depth
from dovetail.ir import Window

CREDIT_CLOCKS = 6
"""Clocks from an output's entry into the FIFO, or its leaving, until the expander knows of it."""
ONE_PIXEL = Window((1, 1))
Modules = tuple[Module, ...]


@dataclass(frozen=True, slots=True)
class BottleneckLayer:
    """One of the three layers: the stream it reads and leaves, its weights, how they are folded, what padding reads."""

    layer: MappedLayer
    filters: Filters
    loops: Loops
    fill: int = 0


@dataclass(frozen=True, slots=True)
class BottleneckParts:
    """Three parts that work on the same words, the depthwise window, and what adds the block's input behind them."""

    expand: BottleneckLayer
    depthwise: BottleneckLayer
    project: BottleneckLayer
    window: Window
    join: Compute | None
    own_first: bool
    """Whether the projection is the addition's first operand."""

    @property
    def raster(self) -> Raster:
        form = self.depthwise.layer.inputs[0]
        return Raster(self.window, form.height, form.width)


def firb_engine(layer: MappedLayer, block: BottleneckParts) -> Engine:
    """The engine; `layer` names it, with the input in words of the expander's slices and the output in whole pixels."""
    raster, clocks = block.raster, block.expand.loops.clocks
    assert raster.masks_suffice
    skipped = block.join is not None
    first, first_end = _expander(layer, block.expand, raster.steps, raster.beats, skipped)
    middle, middle_end = _follower(f"{layer.module}_depthwise", block.depthwise, raster)
    pixels = np.arange(raster.beats, dtype=np.int64)[:, None] * clocks + np.arange(block.expand.loops.slices, dtype=np.int64)
    output_steps = (raster.output_steps() + 1) * clocks - 1
    steps, before = raster.steps * clocks, first_end + middle_end
    last, stages, depth = _last(layer, block, before, (output_steps, steps), raster)
    module = Module(layer.module, (*layer.heading, f"{clocks} clocks per input pixel, {stages} pipeline stages, "
                                                   f"{steps} steps per frame, output FIFO of {depth} beats."))
    _join_parts(module, layer, (first[0], middle[0], last[0]), skipped)
    products = sum(p.loops.lanes * p.loops.fold.inputs * p.filters.weights.shape[2] * p.filters.weights.shape[3]
                   for p in (block.expand, block.depthwise, block.project))
    return Engine((module, *first, *middle, *last), layer.inputs, layer.output, pixels.reshape(-1), output_steps, steps, stages,
                  2 * products, depth)


def _computed(pipeline: Pipeline, part: BottleneckLayer, raster: Raster, slot: Slot, data: Signal,
              turned: bool = False) -> tuple[list[Staged], Modules, int]:
    """What the lanes of a part leave, one value per channel of its words, with the lane's modules and the stage.

    With `turned` all passes go over a word as it comes, and their results are gathered.
    """
    form, loops = part.layer.inputs[0], part.loops
    folded = FoldedRaster(raster, loops)
    taps = word_taps(pipeline, folded, loops, form, slot, data, part.fill, turned)
    x = (min(form.lo, part.fill, 0), max(form.hi, part.fill, 0))
    lane = lane_of(part.layer, part.filters, loops, x, turned)
    results = lanes_of(pipeline, loops, slot, taps, x, lane, part.filters, turned)
    end = folded.stages + lane.stages
    if turned:
        gathered = packed(pipeline, part.layer, loops, slot, results, lane.result.value, end)
        return gathered, (lane.module, *lane.parts), end + 1
    return named(pipeline, part.layer, results, lane.result.value, end), (lane.module, *lane.parts), end


def _later(module: Module, name: str, value: Expr, stages: int) -> Signal:
    """A bit so many clocks later, none of them set by a reset."""
    now: Expr = value
    for stage in range(stages):
        now = module.register(f"{name}_{stage + 1}", now, reset=0)
    return now if isinstance(now, Signal) else module.wire(name, now)


def _hand_on(module: Module, values: Sequence[Staged], field: int, valid: Expr, end: int) -> None:
    module.output("word_valid", _later(module, "word_ends", valid, end))
    module.output("word_data", module.wire("finished_word", pack([(v.value, field) for v in values])))


def _expander(layer: MappedLayer, part: BottleneckLayer, steps: int, beats: int, skipped: bool) -> tuple[Modules, int]:
    """Issues everything: pixels that enter, and as many steps without one as empty the depthwise window."""
    form, loops = part.layer.inputs[0], part.loops
    m = Module(f"{layer.module}_expand", (f"Expands words of {form.fields} channels.",))
    pipeline = Pipeline(m)
    valid, data, may = m.input("in0_valid"), m.input("in0_data", form.data_bits), m.input("may_step")
    flushes: Expr = signal("flushes") if steps > beats else ZERO
    raster = Raster(ONE_PIXEL, 1, steps)
    slot = sequence(m, raster, loops, may, any_of(valid, flushes))
    if steps > beats:
        number, over = m.rounds("pixel_number", steps, signal("advance"))
        entered = compare("==", number, beats - 1)
        m.drive(signal("flushes"), any_of(entered, all_of(signal("flushes"), ~over)), signal("advance"), 0)
    m.output("in0_ready", all_of(slot.ready, ~flushes))
    if skipped:
        _skip(m, form, slot, loops, data, ~flushes)
    values, lane, end = _computed(pipeline, part, raster, slot, data)
    _hand_on(m, values, part.layer.output.bits, slot.ends, end)
    return (m, *lane), end


def _skip(m: Module, form: Format, slot: Slot, loops: Loops, data: Signal, enters: Expr) -> None:
    """Whole pixels of the input, for the addition."""
    takes = m.wire("skip_takes", all_of(slot.takes, enters))
    words, bits_of_word = loops.slices, form.data_bits
    if words == 1:
        m.drive_outputs(skip_valid=takes, skip_data=data)
        return
    held = signal("skip_held", 0, (1 << bits_of_word * (words - 1)) - 1)
    older = [(held.bits(bits_of_word, bits_of_word * (words - 2)), bits_of_word * (words - 2))] if words > 2 else []
    m.drive(held, pack([*older, (data, bits_of_word)]), takes)
    m.output("skip_valid", m.wire("skip_complete", all_of(takes, compare("==", slot.slice, words - 1))))
    m.output("skip_data", m.wire("skip_pixel", pack([(held, held.width), (data, bits_of_word)])))


def _follower(name: str, part: BottleneckLayer, raster: Raster) -> tuple[Modules, int]:
    """A part that works on every word that comes."""
    form = part.layer.inputs[0]
    m = Module(name, (f"Works on words of {form.fields} channels as they come.",))
    pipeline = Pipeline(m)
    valid, data = m.input("in_valid"), m.input("in_data", form.data_bits)
    slot = sequence(m, raster, part.loops, valid, ONE)
    values, lane, end = _computed(pipeline, part, raster, slot, data)
    _hand_on(m, values, part.layer.output.bits, slot.ends, end)
    return (m, *lane), end


def _last(layer: MappedLayer, block: BottleneckParts, before: int, pace: tuple[np.ndarray, int],
          raster: Raster) -> tuple[Modules, int, int]:
    """Projection, addition and output FIFO; `before` are the stages in front of it. Its credits hold back the expander."""
    part, (output_steps, steps) = block.project, pace
    form = part.layer.inputs[0]
    m = Module(f"{layer.module}_project", (f"Projects words of {form.fields} channels.",))
    pipeline = Pipeline(m)
    valid, data = m.input("in_valid"), m.input("in_data", form.data_bits)
    rows, columns = raster.output_size
    pixels, turned = Raster(ONE_PIXEL, rows, columns), part.loops.passes > 1
    slot = turned_sequence(m, part.loops, valid) if turned else sequence(m, pixels, part.loops, valid, ONE)
    values, lane, end = _computed(pipeline, part, pixels, slot, data, turned)
    before += part.loops.passes - 1  # the last pass over the last word ends a pixel
    if block.join is not None:
        waits = raster.first + (before + end) // block.expand.loops.clocks + 3
        other = _skipped(m, slot, end, waits, layer.inputs[0])
        both = [*values, *other] if block.own_first else [*other, *values]
        values, _ = block.join(pipeline, {(index, 0, 0): value for index, value in enumerate(both)})
    stage = max(v.stage for v in values)
    reach = output_fifo_depth(output_steps, steps, before + CREDIT_CLOCKS)
    depth = reach + output_fifo_depth(output_steps, steps, stage + CREDIT_CLOCKS)
    free, ready = signal("free", 0, depth), m.input("out_ready")
    arrived, left_data = m.net("fifo_valid"), m.net("fifo_data", layer.output.data_bits)
    m.drive(free, free + all_of(arrived, ready) - slot.emit, reset=depth)
    m.output("may_step", m.register("may_issue", compare(">", free, reach), reset=1))
    beat = m.wire("beat", pack([(pipeline.at(v, stage), layer.output.bits) for v in values]))
    fifo = fifo_module(f"{layer.module}_fifo", beat.width, depth, reserved=True)
    m.instances.append(Instance(fifo.name, "fifo", (
        ("in_valid", _later(m, "beat_ends", slot.emit, stage)), ("in_data", beat),
        ("out_valid", arrived), ("out_ready", ready), ("out_data", left_data))))
    m.drive_outputs(out_valid=arrived, out_data=left_data)
    return (m, *lane, fifo), before + stage, depth


def _skipped(m: Module, slot: Slot, end: int, waits: int, form: Format) -> list[Staged]:
    """The block's input at the pixel of the projection that leaves the lanes at stage `end`."""
    whole = replace(form, at_once=None)
    push, data = m.input("skip_valid"), m.input("skip_data", whole.data_bits if form.words == 1 else form.words * form.data_bits)
    pop = _later(m, "skip_pops", slot.emit, end - 2)
    read = signal("skip_read", 0, (1 << data.width) - 1)
    m.memories.append(Memory("skip", data.width, waits, push, m.counter("skip_write_at", waits, push), data,
                             m.counter("skip_read_at", waits, pop), read, in_blocks(waits, data.width)))
    pixel = m.register("skip_pixel", read)
    return [Staged(m.wire(f"skip_{c}", whole.channel(pixel, c)), end) for c in range(whole.channels)]


def _join_parts(module: Module, layer: MappedLayer, parts: tuple[Module, Module, Module], skipped: bool) -> None:
    """Instances of the three parts and their wires."""
    first, middle, last = parts
    outside = [module.input("in0_valid"), module.input("in0_data", layer.inputs[0].data_bits), module.input("out_ready")]
    nets = {name: module.net(name, width) for name, width in (
        ("in_ready", 1), ("may_step", 1), ("leaves", 1), ("leaving", layer.output.data_bits))}

    def width(part: Module, port: str) -> int:
        return next(p.width for p in part.outputs if p.name == port)

    words = [module.net(f"{name}_{kind}", width(part, f"word_{kind}"))
             for name, part in (("expanded", first), ("filtered", middle)) for kind in ("valid", "data")]
    skip = [(name, module.net(name, width(first, name))) for name in ("skip_valid", "skip_data")] if skipped else []
    entering = (("in0_valid", outside[0]), ("in0_data", outside[1]), ("in0_ready", nets["in_ready"]))
    leaving = (("out_valid", nets["leaves"]), ("out_ready", outside[2]), ("out_data", nets["leaving"]))
    held_back = ("may_step", nets["may_step"])
    module.instances += [
        Instance(first.name, "expand", (*entering, held_back, ("word_valid", words[0]), ("word_data", words[1]), *skip)),
        Instance(middle.name, "depthwise", (("in_valid", words[0]), ("in_data", words[1]), ("word_valid", words[2]),
                                            ("word_data", words[3]))),
        Instance(last.name, "project", (("in_valid", words[2]), ("in_data", words[3]), held_back, *leaving, *skip))]
    module.drive_outputs(in0_ready=nets["in_ready"], out_valid=nets["leaves"], out_data=nets["leaving"])
