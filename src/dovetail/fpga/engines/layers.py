"""One engine per operator, all from the same parts: taps, arithmetic, rounding, output FIFO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.fpga.engines.arithmetic import Nudges, Ratio, biased, half_of, maximum, nudged_down, print_graph, rescaled
from dovetail.fpga.engines.sequencer import Slot, sequence
from dovetail.fpga.engines.stream import MAY_STEP, Engine, Format, Pipeline, Staged, finish_stream, in_blocks, read_stream
from dovetail.fpga.engines.window import Taps, control, window_taps
from dovetail.fpga.engines.words import WordTaps, word_taps
from dovetail.fpga.rtl.expressions import ONE, ZERO, Expr, Signal, all_of, any_of, bit_width, compare, const, pack, select, signal
from dovetail.fpga.rtl.modules import ConstantTable, Memory, Module
from dovetail.hardware.adders.graph import AdderGraph, IntMatrix
from dovetail.hardware.adders.subexpressions import minimize
from dovetail.hardware.folds import Channels, Fold, Loops
from dovetail.hardware.streaming import Cycles, FoldedRaster, Raster
from dovetail.ir import Window

ADDERS_PER_PRODUCT = 7
"""Of two bytes, where it is built from adders; only the size of a design is judged by it."""


@dataclass(frozen=True, slots=True)
class Rescale:
    """What happens to each output's integer: multiply, divide by divisor * 2**shift, round half to even, add zero, saturate.

    `scales` has one (multiplier, shift) per output; None passes the integer on unrounded. With `nudges`, one pair per output, the
    product is nudged and rounded down.
    """

    divisor: int
    scales: tuple[tuple[int, int], ...] | None
    bounds: tuple[int, int]
    zero: int = 0
    nudges: tuple[Nudges, ...] = ()

    def ratio(self, index: int) -> Ratio:
        """What output `index` is multiplied by."""
        multiplier, shift = (1, 0) if self.scales is None else self.scales[index]
        return multiplier, self.divisor, shift


@dataclass(frozen=True, slots=True)
class MappedLayer:
    """A layer to be mapped: module and signal names, heading for the file, formats of its streams."""

    module: str
    label: str
    heading: tuple[str, ...]
    inputs: tuple[Format, ...]
    output: Format


Computed = tuple[list[Staged], int]
"""One finished value per output channel, and the adders that took."""
Compute = Callable[[Pipeline, Taps], Computed]
"""From taps to what is computed of them: one of the functions below, given all but its last two arguments."""


def weighted(layer: MappedLayer, matrix: IntMatrix, bias: Sequence[int], rescale: Rescale, pipeline: Pipeline,
             taps: Taps) -> Computed:
    """Outputs = matrix @ taps + bias, rescaled; columns are taps in sorted order."""
    columns = [taps[key] for key in sorted(taps)]
    graph = minimize(matrix, [(c.value.lo, c.value.hi) for c in columns])
    nodes = print_graph(pipeline, graph, columns, layer.label)
    return rescaled_sums(pipeline, layer.label, graph, nodes, bias, rescale), graph.count


def rescaled_sums(pipeline: Pipeline, label: str, graph: AdderGraph, nodes: Sequence[Staged], bias: Sequence[int] | IntMatrix,
                  rescale: Rescale) -> list[Staged]:
    """All outputs of an adder graph with bias, rescaled."""
    values = []
    for index, term in enumerate(graph.outputs):
        name = f"{label}_acc_{index}"
        half = 0 if term is None or rescale.nudges else half_of(rescale.ratio(index))  # rounding half up comes with the bias
        value, left = biased(pipeline, name, term, nodes, int(bias[index]), half)
        values.append(rescale_output(pipeline, name, value, left, rescale, index, half > 0))
    return values


def rescale_output(pipeline: Pipeline, name: str, value: Staged, left: int, rescale: Rescale, index: int,
                   raised: bool = False) -> Staged:
    """Output `index`, whose integer is value << left; a `raised` one has half of its ratio in it."""
    multiplier, divisor, shift = rescale.ratio(index)
    if rescale.nudges and rescale.scales is not None:
        return nudged_down(pipeline, name, value, left, (multiplier, divisor, shift), rescale.nudges[index], rescale.zero,
                           rescale.bounds)
    return rescaled(pipeline, name, value, (multiplier, divisor, shift - left), rescale.zero, rescale.bounds, raised)


def largest(layer: MappedLayer, zero: int, rescale: Rescale, pipeline: Pipeline, taps: Taps) -> Computed:
    """Per channel the largest tap, rescaled; `zero` is the input's zero point."""
    values = []
    for channel in range(layer.output.fields):
        name = f"{layer.label}_best_{channel}"
        best = maximum(pipeline, name, [taps[key] for key in sorted(taps) if key[0] == channel])
        values.append(rescale_output(pipeline, name, lowered(pipeline, name, best, zero), 0, rescale, channel))
    return values, 0


def chosen(layer: MappedLayer, indices: Sequence[int], zero: int, rescale: Rescale | None, pipeline: Pipeline,
           taps: Taps) -> Computed:
    """Output i is channel indices[i]: wires, unless it is rescaled; `zero` is the input's zero point."""
    values = [taps[channel, 0, 0] for channel in indices]
    if rescale is None:
        return values, 0
    names = [f"{layer.label}_chosen_{i}" for i in range(len(indices))]
    return [rescale_output(pipeline, name, lowered(pipeline, name, value, zero), 0, rescale, i)
            for i, (name, value) in enumerate(zip(names, values, strict=True))], 0


def looked_up(layer: MappedLayer, tables: IntMatrix, lo: int, pipeline: Pipeline, taps: Taps) -> Computed:
    """Every channel through its row of constants, which starts with the entry of code `lo`; equal rows share a function."""
    values, known = [], dict[tuple[tuple[int, int], ...], ConstantTable]()
    for channel, key in enumerate(sorted(taps)):
        code, stage = taps[key].signal, taps[key].stage
        span = range(code.lo, code.hi + 1)
        entries = tuple((c % (1 << code.width), int(tables[channel, c - lo])) for c in span)
        if len({value for _, value in entries}) == 1:
            values.append(Staged(const(entries[0][1]), 0))
            continue
        if entries not in known:
            known[entries] = ConstantTable(f"{layer.label}_table_{len(known)}", code.width, entries)
            pipeline.module.tables.append(known[entries])
        values.append(pipeline.register(f"{layer.label}_entry_{channel}", known[entries].entry(code), stage))
    return values, 0


def multiplied(layer: MappedLayer, zeros: tuple[int, int], rescale: Rescale, pipeline: Pipeline, taps: Taps) -> Computed:
    """Products of two streams less their zero points, channel by channel; one channel multiplies every one of the other."""
    columns, first = [taps[key] for key in sorted(taps)], layer.inputs[0].fields
    both = (columns[:first], columns[first:])
    left, right = ([lowered(pipeline, f"{layer.label}_in{i}_{c}", x, zeros[i]) for c, x in enumerate(side)]
                   for i, side in enumerate(both))
    values = []
    for channel in range(layer.output.fields):
        name = f"{layer.label}_product_{channel}"
        a, b = (side[min(channel, len(side) - 1)] for side in (left, right))
        stage = max(a.stage, b.stage)
        product = pipeline.register(name, pipeline.at(a, stage) * pipeline.at(b, stage), stage)
        values.append(rescale_output(pipeline, name, product, 0, rescale, channel))
    return values, ADDERS_PER_PRODUCT * len(values)


def window_engine(layer: MappedLayer, window: Window, fill: int, compute: Compute) -> Engine:
    """An engine around a sliding window; `fill` is what taps in the padding read."""
    (form,) = layer.inputs
    raster = Raster(window, form.height, form.width)
    assert raster.masks_suffice
    module, pipeline = start(layer)
    in_valid, in_data = read_stream(module, "in0", form)
    ctl = control(module, raster, MAY_STEP, in_valid)
    taps = window_taps(module, pipeline, raster, form, ctl, in_data, fill)
    module.output("in0_ready", all_of(MAY_STEP, ctl.consumes))
    return close(layer, module, pipeline, ctl.emit, compute(pipeline, taps),
                 np.arange(raster.beats), raster.output_steps(), raster.steps)


def pool_engine(layer: MappedLayer, window: Window, fill: int, compute: Compute) -> Engine:
    """An engine that takes a clock per word; `compute` gets the taps of its channels, `fill` where they lie in the padding."""
    (form,) = layer.inputs
    loops = Loops(Channels(form.channels, 1, 1), Fold(form.fields, 1, 1))
    pipeline, folded, slot, taps = begun(layer, window, fill, loops)
    values = compute(pipeline, {(group, i, j): tap for (group, _, i, j), tap in taps.items()})
    return close(layer, pipeline.module, pipeline, Staged(slot.ends, 0), values, folded.input_steps(), folded.output_steps(),
                 folded.steps)


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


def start(layer: MappedLayer) -> tuple[Module, Pipeline]:
    module = Module(layer.module, layer.heading)
    return module, Pipeline(module)


def close(layer: MappedLayer, module: Module, pipeline: Pipeline, emit: Staged, computed: Computed,
          input_steps: Cycles, output_steps: Cycles, steps: int) -> Engine:
    """End an engine with its output FIFO and say in its heading what it became."""
    values, adders = computed
    assert len(values) == layer.output.fields
    fields = [(v, layer.output.bits) for v in values]
    fifo, stages, depth = finish_stream(module, pipeline, emit, fields, output_steps, steps)
    module.header = (*layer.heading, f"{adders} adders, {stages} pipeline stages, {steps} steps per frame, "
                                     f"output FIFO of {depth} beats.")
    return Engine((module, fifo), layer.inputs, layer.output, input_steps, output_steps, steps, stages, adders, depth)


def join_engine(layer: MappedLayer, compute: Compute) -> Engine:
    """An engine that takes one beat of every input per step; tap (channel, 0, 0) counts fields over all inputs.

    An input of one pixel beside a map is taken with the map's first pixel and kept for the others.
    """
    module, pipeline = start(layer)
    ports = [read_stream(module, f"in{i}", form) for i, form in enumerate(layer.inputs)]
    step, words, beats = signal("step"), layer.output.words, layer.output.beats
    keeps = [form.pixels < layer.output.pixels for form in layer.inputs]
    word, first = _first_pixel(module, words, layer.output.pixels, step) if any(keeps) else (ZERO, ONE)
    there = [any_of(valid, ~first) if kept else valid for (valid, _), kept in zip(ports, keeps, strict=True)]
    module.wires.append((step, all_of(MAY_STEP, *there)))
    taps, order = Taps(), np.arange(beats)
    for index, ((_, data), form, kept) in enumerate(zip(ports, layer.inputs, keeps, strict=True)):
        others = [v for i, v in enumerate(there) if i != index]
        module.output(f"in{index}_ready", all_of(MAY_STEP, first if kept else ONE, *others))
        pixel = Staged(module.register(f"pixel_{index}", data, all_of(step, first) if kept and words == 1 else ONE), 1)
        if kept and words > 1:
            again = signal(f"kept_read_{index}", 0, (1 << form.data_bits) - 1)
            module.memories.append(Memory(f"kept_{index}", form.data_bits, words, all_of(step, first), word, data, word, again,
                                          in_blocks(words, form.data_bits)))
            is_new = pipeline.register(f"is_new_{index}", first, 0)
            pixel = pipeline.register(f"word_{index}", select(is_new.value, pixel.value, again), 1)
        elif any(keeps) and words > 1:
            pixel = Staged(pipeline.at(pixel, 2), 2)
        for channel in range(form.fields):
            taps[len(taps), 0, 0] = Staged(module.wire(f"in{index}_x{channel}", form.channel(pixel.signal, channel)), pixel.stage)
    made = close(layer, module, pipeline, Staged(step, 0), compute(pipeline, taps), order, order, beats)
    return replace(made, own_steps=tuple(order[:words] if kept else order for kept in keeps)) if any(keeps) else made


def _first_pixel(module: Module, words: int, pixels: int, step: Expr) -> tuple[Expr, Signal]:
    """Counters over a map: which word of its pixel a step works on, and whether the pixel is the first."""
    word, ends = module.counted("word", words, step)
    moved, first = all_of(step, ends), signal("first_pixel")
    _, last = module.rounds("pixel_number", pixels, moved)
    module.drive(first, last, moved, 1)
    return word, first


def concat_engine(layer: MappedLayer, computes: Sequence[Compute]) -> Engine:
    """An engine that takes the words of a pixel input after input; every input has a computation of its own for a word."""
    module, pipeline = start(layer)
    ports = [read_stream(module, f"in{i}", form) for i, form in enumerate(layer.inputs)]
    step, words = signal("step"), layer.output.words
    turn, _ = module.rounds("turn", words, step)
    firsts = [sum(form.words for form in layer.inputs[:i]) for i in range(len(layer.inputs))]
    own = [module.wire(f"turn_of_{i}", all_of(compare(">=", turn, first), compare("<", turn, first + form.words)))
           for i, (first, form) in enumerate(zip(firsts, layer.inputs, strict=True))]
    there = any_of(*(all_of(o, valid) for o, (valid, _) in zip(own, ports, strict=True)))
    module.wires.append((step, all_of(MAY_STEP, there)))
    found, adders = list[list[Staged]](), 0
    for index, ((_, data), form, compute) in enumerate(zip(ports, layer.inputs, computes, strict=True)):
        module.output(f"in{index}_ready", all_of(MAY_STEP, own[index]))
        word = module.register(f"pixel_{index}", data)
        taps: Taps = {(c, 0, 0): Staged(module.wire(f"in{index}_x{c}", form.channel(word, c)), 1) for c in range(form.fields)}
        values, more = compute(pipeline, taps)
        found.append(values)
        adders += more
    values = _by_turn(pipeline, layer, own, found)
    pixels = np.arange(layer.output.pixels, dtype=np.int64)[:, None] * words
    steps = tuple((pixels + first + np.arange(form.words)).reshape(-1) for first, form in zip(firsts, layer.inputs, strict=True))
    order = np.arange(layer.output.beats)
    made = close(layer, module, pipeline, Staged(step, 0), (values, adders), order, order, len(order))
    return replace(made, own_steps=steps)


def _by_turn(pipeline: Pipeline, layer: MappedLayer, own: Sequence[Signal], found: Sequence[Sequence[Staged]]) -> list[Staged]:
    """Field by field the value of the input whose turn it is."""
    stage, chosen = max(v.stage for values in found for v in values), []
    for field in range(layer.output.fields):
        value: Expr = pipeline.at(found[-1][field], stage)
        for index in range(len(found) - 1):
            value = select(pipeline.at(Staged(own[index], 0), stage), pipeline.at(found[index][field], stage), value)
        chosen.append(pipeline.register(f"{layer.label}_chosen_{field}", value, stage))
    return chosen


def lowered(pipeline: Pipeline, name: str, value: Staged, zero: int) -> Staged:
    """A value less a zero point."""
    return value if not zero else pipeline.register(f"{name}_centred", value.value - zero, value.stage)


def global_average_engine(layer: MappedLayer, zero: int, rescale: Rescale) -> Engine:
    """Sums every channel over a frame and emits once; `zero` is the input's zero point.

    A word's sums wait in a memory while the other words of the pixel come; sums of whole pixels stay in registers.
    """
    (form,) = layer.inputs
    module, pipeline = start(layer)
    in_valid, in_data = read_stream(module, "in0", form)
    step = module.wire("step", all_of(MAY_STEP, in_valid))
    word, word_ends = module.counted("word", form.words, step)
    moved = all_of(step, word_ends)
    number, last = module.counted("step_number", form.pixels, moved)
    emit = module.wire("emit", all_of(step, last))
    first = module.register("first_1", compare("==", number, 0))
    advance = module.register("step_1", step, reset=0)
    pixel = module.register("pixel", in_data)
    module.output("in0_ready", MAY_STEP)
    lo, hi = min(form.lo, form.lo * form.pixels), max(form.hi, form.hi * form.pixels)
    width = bit_width(lo, hi)
    before = signal("sums_read", 0, (1 << width * form.fields) - 1)
    sums, values = list[Signal](), list[Staged]()
    for channel in range(form.fields):
        name = f"{layer.label}_sum_{channel}"
        x = module.wire(f"x{channel}", form.channel(pixel, channel))
        sums.append(signal(name, lo, hi))
        kept: Expr = sums[-1] if form.words == 1 else before.field(channel * width, lo, hi)
        module.drive(sums[-1], select(first, x, kept + x), advance)
        centred = lowered(pipeline, name, Staged(sums[-1], 2), zero * form.pixels)
        values.append(rescale_output(pipeline, name, centred, 0, rescale, channel))
    if form.words > 1:
        assert form.words >= LEAST_SUMMED_WORDS
        module.memories.append(Memory("sums", before.width, form.words, module.register("step_2", advance, reset=0),
                                      pipeline.at(Staged(word, 0), 2), pack([(s, width) for s in sums]), word, before,
                                      in_blocks(form.words, before.width)))
    steps = form.beats
    return close(layer, module, pipeline, Staged(emit, 0), (values, form.fields), np.arange(steps),
                 np.arange(steps - form.words, steps), steps)


LEAST_SUMMED_WORDS = 3
"""Words of a pixel from which on its sums may lie in a memory: one is written two clocks after it was read."""


def pad_engine(layer: MappedLayer, pads: tuple[int, int, int, int], fill: int) -> Engine:
    """Surrounds each frame with explicit beats of `fill`; for windows whose padding cannot be masked."""
    (form,) = layer.inputs
    top, left, _, _ = pads
    height, width = layer.output.height, layer.output.width
    module, pipeline = start(layer)
    in_valid, in_data = read_stream(module, "in0", form)
    column, row = signal("column", 0, width - 1), signal("row", 0, height - 1)
    inside = module.wire("in_frame", all_of(
        compare(">=", row, top), compare("<", row, top + form.height),
        compare(">=", column, left), compare("<", column, left + form.width)))
    begins = all_of(compare("==", row, 0), compare("==", column, 0))  # no padding before the frame it belongs to
    step = module.wire("step", all_of(MAY_STEP, select(any_of(inside, begins), in_valid, 1)))
    moved = all_of(step, module.counted("word", form.words, step)[1])
    end_row = module.wire("end_row", compare("==", column, width - 1))
    module.drive(column, select(end_row, 0, column + 1), moved, 0)
    module.drive(row, select(compare("==", row, height - 1), 0, row + 1), all_of(moved, end_row), 0)
    module.output("in0_ready", all_of(MAY_STEP, inside))
    values = [pipeline.register(f"{layer.label}_padded_{c}", select(inside, form.channel(in_data, c), fill), 0)
              for c in range(form.fields)]
    index = np.arange(height * width * form.words).reshape(height, width, form.words)
    consumed = index[top:top + form.height, left:left + form.width].reshape(-1)
    return close(layer, module, pipeline, Staged(step, 0), (values, 0), consumed, index.reshape(-1), index.size)
