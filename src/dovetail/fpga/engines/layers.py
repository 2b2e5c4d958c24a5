"""One engine per operator, all from the same parts: taps, arithmetic, rounding, output FIFO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.fpga.engines.arithmetic import Ratio, biased, half_of, maximum, print_graph, rescaled
from dovetail.fpga.engines.stream import (
    BLOCK_MEMORY_BITS,
    LUT_MEMORY_DEPTH,
    MAY_STEP,
    Engine,
    Format,
    Pipeline,
    Staged,
    finish_stream,
    read_stream,
)
from dovetail.fpga.engines.window import Taps, control, window_taps
from dovetail.fpga.rtl.expressions import (
    ONE,
    ZERO,
    Bits,
    Expr,
    Signal,
    add,
    all_of,
    any_of,
    bit_width,
    compare,
    const,
    pack,
    select,
    signal,
    subtract,
)
from dovetail.fpga.rtl.modules import Memory, Module
from dovetail.hardware.adders.graph import IntMatrix
from dovetail.hardware.adders.subexpressions import minimize
from dovetail.hardware.streaming import Cycles, Raster
from dovetail.ir import Window


@dataclass(frozen=True, slots=True)
class Rescale:
    """What happens to each output's integer: multiply, divide by divisor * 2**shift, round half to even, add zero, saturate.

    `scales` has one (multiplier, shift) per output; None passes the integer on unrounded.
    """

    divisor: int
    scales: tuple[tuple[int, int], ...] | None
    bounds: tuple[int, int]
    zero: int = 0

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


Compute = Callable[[Pipeline, Taps], tuple[list[Staged], int]]
"""From taps to one finished value per output channel, and the adders that took."""


def weighted(layer: MappedLayer, matrix: IntMatrix, bias: Sequence[int], rescale: Rescale) -> Compute:
    """Outputs = matrix @ taps + bias, rescaled; columns are taps in sorted order."""

    def compute(pipeline: Pipeline, taps: Taps) -> tuple[list[Staged], int]:
        columns = [taps[key] for key in sorted(taps)]
        graph = minimize(matrix, [(c.value.lo, c.value.hi) for c in columns])
        nodes = print_graph(pipeline, graph, columns, layer.label)
        values = []
        for index, term in enumerate(graph.outputs):
            name = f"{layer.label}_acc_{index}"
            half = 0 if term is None else half_of(rescale.ratio(index))  # rounding half up comes with the bias
            value, left = biased(pipeline, name, term, nodes, int(bias[index]), half)
            values.append(rescale_output(pipeline, name, value, left, rescale, index, half > 0))
        return values, graph.count

    return compute


def rescale_output(pipeline: Pipeline, name: str, value: Staged, left: int, rescale: Rescale, index: int,
                   raised: bool = False) -> Staged:
    """Output `index`, whose integer is value << left; a `raised` one has half of its ratio in it."""
    multiplier, divisor, shift = rescale.ratio(index)
    return rescaled(pipeline, name, value, (multiplier, divisor, shift - left), rescale.zero, rescale.bounds, raised)


def largest(layer: MappedLayer, zero: int, rescale: Rescale) -> Compute:
    """Per channel the largest tap, rescaled; `zero` is the input's zero point."""

    def compute(pipeline: Pipeline, taps: Taps) -> tuple[list[Staged], int]:
        values = []
        for channel in range(layer.output.fields):
            name = f"{layer.label}_best_{channel}"
            best = maximum(pipeline, name, [taps[key] for key in sorted(taps) if key[0] == channel])
            values.append(rescale_output(pipeline, name, lowered(pipeline, name, best, zero), 0, rescale, channel))
        return values, 0

    return compute


def chosen(layer: MappedLayer, indices: Sequence[int], zero: int, rescale: Rescale | None) -> Compute:
    """Output i is channel indices[i]: wires, unless it is rescaled; `zero` is the input's zero point."""

    def compute(pipeline: Pipeline, taps: Taps) -> tuple[list[Staged], int]:
        values = [taps[channel, 0, 0] for channel in indices]
        if rescale is None:
            return values, 0
        names = [f"{layer.label}_chosen_{i}" for i in range(len(indices))]
        return [rescale_output(pipeline, name, lowered(pipeline, name, value, zero), 0, rescale, i)
                for i, (name, value) in enumerate(zip(names, values, strict=True))], 0

    return compute


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


def start(layer: MappedLayer) -> tuple[Module, Pipeline]:
    module = Module(layer.module, layer.heading)
    return module, Pipeline(module)


def close(layer: MappedLayer, module: Module, pipeline: Pipeline, emit: Staged, computed: tuple[list[Staged], int],
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
    """An engine that takes one beat of every input per step; tap (channel, 0, 0) counts fields over all inputs."""
    module, pipeline = start(layer)
    ports = [read_stream(module, f"in{i}", form) for i, form in enumerate(layer.inputs)]
    valids = [valid for valid, _ in ports]
    step = module.wire("step", all_of(MAY_STEP, *valids))
    taps: Taps = {}
    for index, ((_, data), form) in enumerate(zip(ports, layer.inputs, strict=True)):
        others = [v for i, v in enumerate(valids) if i != index]
        module.output(f"in{index}_ready", all_of(MAY_STEP, *others))
        pixel = module.register(f"pixel_{index}", data)
        for channel in range(form.fields):
            value = module.wire(f"in{index}_x{channel}", form.channel(pixel, channel))
            taps[len(taps), 0, 0] = Staged(value, 1)
    beats = layer.output.beats
    order = np.arange(beats)
    return close(layer, module, pipeline, Staged(step, 0), compute(pipeline, taps), order, order, beats)


def lowered(pipeline: Pipeline, name: str, value: Staged, zero: int) -> Staged:
    """A value less a zero point."""
    return value if not zero else pipeline.register(f"{name}_centred", subtract(value.value, const(zero)), value.stage)


def global_average_engine(layer: MappedLayer, zero: int, rescale: Rescale) -> Engine:
    """Sums every channel over a frame and emits once; `zero` is the input's zero point.

    A word's sums wait in a memory while the other words of the pixel come; sums of whole pixels stay in registers.
    """
    (form,) = layer.inputs
    module, pipeline = start(layer)
    in_valid, in_data = read_stream(module, "in0", form)
    step = module.wire("step", all_of(MAY_STEP, in_valid))
    word, word_ends = module.rounds("word", form.words, step) if form.words > 1 else (ZERO, ONE)
    moved = all_of(step, word_ends)
    number, last = module.rounds("step_number", form.pixels, moved) if form.pixels > 1 else (ZERO, ONE)
    emit = module.wire("emit", all_of(step, last))
    first = module.register("first_1", compare("==", number, ZERO) if form.pixels > 1 else ONE)
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
        kept: Expr = sums[-1] if form.words == 1 else Bits(lo, hi, before, channel * width, width)
        module.drive(sums[-1], select(first, x, add(kept, x)), advance)
        centred = lowered(pipeline, name, Staged(sums[-1], 2), zero * form.pixels)
        values.append(rescale_output(pipeline, name, centred, 0, rescale, channel))
    if form.words > 1:
        assert form.words >= LEAST_SUMMED_WORDS
        assert isinstance(word, Signal)
        module.memories.append(Memory("sums", before.width, form.words, module.register("step_2", advance, reset=0),
                                      pipeline.at(Staged(word, 0), 2), pack([(s, width) for s in sums]), word, before,
                                      form.words > LUT_MEMORY_DEPTH and form.words * before.width >= BLOCK_MEMORY_BITS))
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
        compare(">=", row, const(top)), compare("<", row, const(top + form.height)),
        compare(">=", column, const(left)), compare("<", column, const(left + form.width))))
    begins = all_of(compare("==", row, ZERO), compare("==", column, ZERO))  # no padding before the frame it belongs to
    step = module.wire("step", all_of(MAY_STEP, select(any_of(inside, begins), in_valid, ONE)))
    moved = all_of(step, module.rounds("word", form.words, step)[1]) if form.words > 1 else step
    end_row = module.wire("end_row", compare("==", column, const(width - 1)))
    module.drive(column, select(end_row, ZERO, add(column, ONE)), moved, 0)
    module.drive(row, select(compare("==", row, const(height - 1)), ZERO, add(row, ONE)), all_of(moved, end_row), 0)
    module.output("in0_ready", all_of(MAY_STEP, inside))
    values = [pipeline.register(f"{layer.label}_padded_{c}", select(inside, form.channel(in_data, c), const(fill)), 0)
              for c in range(form.fields)]
    index = np.arange(height * width * form.words).reshape(height, width, form.words)
    consumed = index[top:top + form.height, left:left + form.width].reshape(-1)
    return close(layer, module, pipeline, Staged(step, 0), (values, 0), consumed, index.reshape(-1), index.size)


def padded(form: Format, pads: tuple[int, int, int, int], fill: int) -> Format:
    """The format of a frame with its padding materialised."""
    return replace(form, lo=min(form.lo, fill), hi=max(form.hi, fill),
                   height=form.height + pads[0] + pads[2], width=form.width + pads[1] + pads[3])
