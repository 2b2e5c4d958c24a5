"""The engine that joins channels word by word: the words of a pixel of its first input, then those of the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dovetail.fpga.engines.layers import Compute, MappedLayer, close, start
from dovetail.fpga.engines.stream import MAY_STEP, Engine, Pipeline, Staged, read_stream
from dovetail.fpga.engines.window import Taps
from dovetail.fpga.rtl.expressions import Expr, Signal, all_of, any_of, compare, const, select, signal


def concat_engine(layer: MappedLayer, computes: Sequence[Compute]) -> Engine:
    """An engine that takes the words of a pixel input after input; every input has a computation of its own for a word."""
    module, pipeline = start(layer)
    ports = [read_stream(module, f"in{i}", form) for i, form in enumerate(layer.inputs)]
    step, words = signal("step"), layer.output.words
    turn, _ = module.rounds("turn", words, step)
    firsts = [sum(form.words for form in layer.inputs[:i]) for i in range(len(layer.inputs))]
    own = [module.wire(f"turn_of_{i}", all_of(compare(">=", turn, const(first)), compare("<", turn, const(first + form.words))))
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
