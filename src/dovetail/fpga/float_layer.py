"""A convolution in single precision as a design of its own: windows cut from the stream, then folded lanes.

Two baselines of *LQ multi-FPGA 2020*, FP32 multiply-add and look-ups of float products, with any number of taps and filters at
once. Streams carry the 32 bits of floats as integers (`numerics.floats.words_of`), or codes.
"""

from __future__ import annotations

import numpy as np

from dovetail.errors import UsageError
from dovetail.fpga.assemble import Construction, stream_port, stream_ports
from dovetail.fpga.design import Design
from dovetail.fpga.engines.float_lane import folded_float_engine
from dovetail.fpga.engines.floats import WORD
from dovetail.fpga.engines.layers import MappedLayer
from dovetail.fpga.engines.stream import Engine, Format
from dovetail.fpga.engines.unroll import unroll_engine
from dovetail.hardware.folds import Channels, Fold, Loops
from dovetail.hardware.streaming import FIFO_LATENCY_CYCLES, leaving_times
from dovetail.numerics.floats import WORD_BITS, FloatFilters

INPUT, OUTPUT = "x", "y"
"""Names of the tensors."""


def float_design(name: str, filters: FloatFilters, size: tuple[int, int], fold: Fold) -> Design:
    """The layer over maps of `size`, `fold.inputs` taps of a channel run and `fold.outputs` filters a clock.

    Its clocks are a closed form and the least there can be; they are exact where lanes take all filters at once, or go over a
    window again for as long as the next rows take to come in.
    """
    channels = filters.weights.shape[1]
    if (fold.groups, fold.products) != (1, 1):
        raise UsageError(f"design {name}: fold {fold}; float layers have one group and a multiplier for each product")
    beats = filters.beats(fold.inputs)
    source = _stream(channels, filters.input_bits, size).in_words(fold.inputs)
    target = _stream(filters.count, filters.output_bits, filters.window.output_size(*size)).in_words(fold.outputs)
    loops = Loops(Channels(1, beats * fold.inputs, filters.count), fold)
    taps = _stream(beats * fold.inputs, filters.input_bits, (target.height, target.width)).in_words(fold.inputs)
    windows = unroll_engine(MappedLayer(f"{name}_windows", "tap", (f"Windows {filters.window}", f"{source} -> {taps}"),
                                        (source,), taps), filters.window)
    lanes = folded_float_engine(MappedLayer(f"{name}_lanes", "y", (f"Float convolution, fold {fold}", f"{taps} -> {target}"),
                                            (taps,), target), filters, loops)
    latency, interval = _clocks(source, windows, lanes)
    top = Construction(name, (f"{name}: windows and {loops.lanes} lanes of {fold.inputs} products.",
                              f"Latency at least {latency} clocks, one frame every {interval} clocks at best."))
    into, between = stream_ports(top.module, "in0", source.data_bits, True), top.wires("windows", taps.data_bits)
    out = stream_ports(top.module, "out0", target.data_bits, False)
    for made, label, start, end in ((windows, "u_windows", into, between), (lanes, "u_lanes", between, out)):
        top.instantiate(made.modules[0], label, *start.pins("in0"), *end.pins("out"))
        top.parts += made.modules[1:]
    return Design(name, top.files(), (stream_port("in0", INPUT, source),), (stream_port("out0", OUTPUT, target),),
                  adders=lanes.adders, latency_cycles=latency, interval_cycles=interval, folds={name: fold.sizes})


def _stream(channels: int, bits: int, size: tuple[int, int]) -> Format:
    """Words of floats, or codes."""
    return Format(channels, bits, False, *(WORD if bits == WORD_BITS else (0, (1 << bits) - 1)), *size)


def _clocks(source: Format, windows: Engine, lanes: Engine) -> tuple[int, int]:
    """Clocks until a frame has left, its first and last beat included, and between frames."""
    times = 1 + np.arange(source.beats, dtype=np.int64)
    for engine in (windows, lanes):
        times = leaving_times([times], engine.input_steps, engine.output_steps) + engine.stages + FIFO_LATENCY_CYCLES
    return int(times[-1]), max(windows.steps, lanes.steps, source.beats)
