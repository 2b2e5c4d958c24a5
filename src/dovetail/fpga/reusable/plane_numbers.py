"""The integers of a block whose array counts bits: every layer as a sum over planes of bits of its weights and of its input.

Weights of codes are ±1 per bit, plain ones 0 or 1 with the powers of two of two's complement; inputs are 0 or 1 per bit, of the
pattern that a code stands for or of the number itself. What a pair of planes counts is multiplied with the filter's factor for
that pair: a product of bases, a power of two, or one times the other. So codes, bytes and residual sums are the same work, some
of it more often.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dovetail.errors import UnsupportedError
from dovetail.fpga.reusable.image import NEVER
from dovetail.fpga.reusable.numbers import (
    BlockNumbers,
    CountNumbers,
    EngineNumbers,
    Ints,
    LayerNumbers,
    PlaneForm,
    additions,
    engine_numbers,
    raw_layer,
    scaled_layers,
    sum_range,
)
from dovetail.hardware.arrays.jobs import ARRAY, FACTOR_BYTES, ArrayProgram
from dovetail.hardware.arrays.layers import ArrayLayer, Config
from dovetail.ir import Coded, Graph
from dovetail.numerics.requantize import stored_scheme


def counted_numbers(graph: Graph, program: ArrayProgram) -> BlockNumbers:
    """The integers of a quantized graph's block on an array that counts bits; UnsupportedError where they do not fit."""
    layers, config = program.layers.layers, program.config
    engine_of = {job.layer: job.engine for job in program.jobs}
    adds, add_shift = additions(graph, layers)
    forms = {n: plane_form(graph, layer, config) for n, layer in enumerate(layers) if engine_of[n] == ARRAY}
    rounded = [n for n, form in forms.items() if form.steps is None]
    filtered = [n for n in range(len(layers)) if n not in forms]
    raws = {n: raw_layer(graph, layers[n]) for n in (*rounded, *filtered)}
    found: dict[int, LayerNumbers] = {}
    engines: list[EngineNumbers | None] = []
    for own in (rounded, filtered):
        if not own:
            engines.append(None)
            continue
        shift, drop, lift, scaled = scaled_layers([raws[n] for n in own], [layers[n].node for n in own])
        for n, (multipliers, bias, drops) in zip(own, scaled, strict=True):
            found[n] = LayerNumbers(raws[n].weights, bias, multipliers, raws[n].bounds, drops, raws[n].signed, adds[n],
                                    forms.get(n))
        sums = [(-forms[n].reach(), forms[n].reach()) if n in forms else sum_range(raws[n].weights, raws[n].ends) for n in own]
        engines.append(engine_numbers([found[n] for n in own], sums, (shift, drop, lift)))
    rounding, depthwise = engines
    for n, form in forms.items():
        if form.steps is not None:
            none = np.zeros(0, dtype=np.int64)
            found[n] = LayerNumbers(form.weights, none, (), (0, form.steps.shape[1]), False, False, None, form)
    return BlockNumbers(tuple(found[n] for n in range(len(layers))), (None, depthwise), add_shift, config.value_bits,
                        _counts(program, list(forms.values()), rounding), (_end(graph, program.layers.entry),
                                                                           _end(graph, program.layers.exit)))


def _end(graph: Graph, tensor: str) -> tuple[int, bool]:
    scheme = stored_scheme(graph, tensor)
    return scheme.bits, scheme.signed


def plane_form(graph: Graph, layer: ArrayLayer, config: Config) -> PlaneForm:
    """A layer as a sum over planes."""
    node = graph.node(layer.node)
    op, params = node.op, [c.array.astype(np.int64) for c in graph.params(node)[:3]]
    filters, source = layer.writes.channels, stored_scheme(graph, node.inputs[0])
    products, steps, patterns = np.ones((filters, 1, 1), dtype=np.int64), None, tuple[int, ...]()
    if isinstance(op, Coded):
        weights, products, patterns = params[0], params[1], op.patterns
        steps = params[2] if op.output_bits else None
    elif op.product:
        weights = params[0]
    else:
        weights = np.ones((filters, 1, *layer.window.kernel), dtype=np.int64)
        if op.code_bits:
            steps = np.broadcast_to(params[0], (filters, params[0].shape[-1]))
    weights = weights.reshape(filters, layer.reads.channels // layer.groups, *layer.window.kernel)
    rows = np.ones(layer.weight_bits, dtype=np.int64) if op.weight_bits else _powers(layer.weight_bits, int(weights.min()) < 0)
    columns = np.ones(layer.input_bits, dtype=np.int64) if op.input_bits else _powers(layer.input_bits, source.signed)
    factors: Ints = products * rows[None, :, None] * columns[None, None, :]
    if layer.owned(config):
        own = -factors.sum(axis=1, keepdims=True)
        weights, factors = weights | 1 << layer.weight_bits, np.concatenate([2 * factors, own], axis=1)
    if np.abs(factors).max() >= 1 << (8 * FACTOR_BYTES - 1):
        raise UnsupportedError(f"node {layer.node}: {int(np.abs(factors).max())} for a pair of planes; {8 * FACTOR_BYTES} bits "
                               "hold what arrays multiply counts with, leave it out of the block")
    clipped = None if steps is None else np.clip(steps, -NEVER - 1, NEVER)
    return PlaneForm(weights, factors, layer.signs and not layer.owned(config), clipped, patterns)


def _powers(bits: int, signed: bool) -> Ints:
    """What the bits of an integer mean."""
    found = np.left_shift(np.int64(1), np.arange(bits, dtype=np.int64))
    if signed:
        found[-1] = -found[-1]
    return found


def _counts(program: ArrayProgram, forms: Sequence[PlaneForm], rounding: EngineNumbers | None) -> CountNumbers:
    most = max(job.pass_steps for job in program.jobs if job.engine == ARRAY) * program.config.inputs
    reach = max(int(form.reach().max()) for form in forms)
    factors = min(int(f.factors.min()) for f in forms), max(int(f.factors.max()) for f in forms)
    steps = [f.steps for f in forms if f.steps is not None]
    return CountNumbers(most, (min(0, factors[0]), max(1, factors[1])), (-reach, reach),
                        (-NEVER - 1, NEVER) if steps else None, rounding)
