"""A layer of codes mapped directly: integer datapaths (`lq.py`), or the two baselines of the paper in single precision.

`float table` looks every product up as a float and adds floats; `fp32` looks up what a code means, multiplies by a weight that
comes as an operand, and adds. Both compute `numerics.lq_floats` bit for bit, in the order of a tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dovetail.fpga.engines.floats import ADDER_STAGES, MULTIPLIER_STAGES, WORD, float_adder, float_multiplier
from dovetail.fpga.engines.folded import as_signal
from dovetail.fpga.engines.layers import MappedLayer, Rescale, window_engine
from dovetail.fpga.engines.lq import FLOATS, Datapath, Planes, coded, spread
from dovetail.fpga.engines.stream import Engine, Pipeline, Staged
from dovetail.fpga.engines.window import Taps
from dovetail.fpga.rtl.expressions import ZERO, Expr, Signal, all_of, any_of, bits, compare, const, negate, select
from dovetail.fpga.rtl.modules import Instance, Module
from dovetail.ir import Coded, Constant, Window
from dovetail.numerics.lq_floats import FloatLayer, Floats, float_layer


def direct_coded_engine(layer: MappedLayer, window: Window, op: Coded, params: Sequence[Constant], rescale: Rescale | None,
                        datapath: Datapath) -> Engine:
    """The engine of a layer of codes; thresholds where `rescale` is None."""
    if datapath not in FLOATS:
        return window_engine(layer, window, 0, coded(layer, op, [c.array for c in params], rescale, datapath))
    units = Units(float_adder(f"{layer.module}_adder"), float_multiplier(f"{layer.module}_multiplier"))
    numbers = float_layer(layer.label, op, params)

    def compute(pipeline: Pipeline, taps: Taps) -> tuple[list[Staged], int]:
        planes = Planes(pipeline, layer.label, op=op, taps=[taps[key] for key in sorted(taps)])
        _, reads = spread(op, params[0].array.astype(np.int64), len(taps))
        made = _looked_up if datapath is Datapath.FLOAT_TABLE else _multiplied
        values = []
        for f, row in enumerate(reads):
            terms = [made(planes, units, numbers, f, place, int(tap)) for place, tap in enumerate(np.flatnonzero(row))]
            values.append(_reached(pipeline, f"{layer.label}_{f}", _added(planes, units, f, terms), numbers.steps[f]))
        return values, units.sums

    engine = window_engine(layer, window, 0, compute)
    own = (units.adder,) if datapath is Datapath.FLOAT_TABLE else (units.adder, units.multiplier)
    return replace(engine, modules=(*engine.modules, *own))


@dataclass(slots=True)
class Units:
    """Modules that all sums and products of an engine are instances of, how many sums there are, and floats of taps."""

    adder: Module
    multiplier: Module
    sums: int = 0
    levels: dict[int, Staged] = field(default_factory=dict)


def _bits_of(values: Floats) -> list[int]:
    return [int(v) for v in np.atleast_1d(values).view(np.uint32)]


def _as_word(pipeline: Pipeline, name: str, value: Expr) -> Signal:
    """Bits of a float as all 32 of them, whatever range they have."""
    return pipeline.module.wire(name, value, WORD)


def _registered(planes: Planes, name: str, table: str, tap: int, values: list[int]) -> Staged:
    """What a tap's code stands for, a clock later."""
    staged, pipeline = planes.taps[tap], planes.pipeline
    code = as_signal(staged.value)
    found = pipeline.register(f"{name}_entry", planes.entry(f"{table}_{code.hi}", code, values[:code.hi + 1]), staged.stage)
    return Staged(_as_word(pipeline, name, found.value), found.stage)


def _looked_up(planes: Planes, units: Units, numbers: FloatLayer, f: int, place: int, tap: int) -> Staged:
    """The product from a table; weights of one value share it."""
    values = _bits_of(numbers.product(f, place))
    return _registered(planes, f"{planes.label}_product_{f}_{tap}", f"{planes.label}_products_{values[-1]:08x}", tap, values)


def _multiplied(planes: Planes, units: Units, numbers: FloatLayer, f: int, place: int, tap: int) -> Staged:
    """The product of a weight and what the tap's code means."""
    pipeline = planes.pipeline
    if tap not in units.levels:
        name = f"{planes.label}_level_{tap}"
        units.levels[tap] = _registered(planes, name, f"{planes.label}_levels", tap, _bits_of(numbers.levels))
    (weight,) = _bits_of(numbers.weights.reshape(len(numbers.weights), -1)[f, place])
    factor = _as_word(pipeline, f"{planes.label}_weight_{f}_{tap}", const(weight))
    return _instance(pipeline, units.multiplier, f"{planes.label}_product_{f}_{tap}", units.levels[tap], factor,
                     MULTIPLIER_STAGES)


def _instance(pipeline: Pipeline, made: Module, name: str, a: Staged, b: Signal, stages: int) -> Staged:
    y = pipeline.module.net(name, 32)
    pipeline.module.instances.append(Instance(made.name, f"u_{name}", (("a", as_signal(a.value)), ("b", b), ("y", y))))
    return Staged(y, a.stage + stages)


def _added(planes: Planes, units: Units, f: int, terms: Sequence[Staged]) -> Staged:
    """The sum in the order of `numerics.lq_floats.paired`."""
    pipeline, level = planes.pipeline, list(terms)
    while len(level) > 1:
        merged = []
        for a, b in zip(level[::2], level[1::2], strict=False):
            name = f"{planes.label}_sum_{f}_{units.sums}"
            merged.append(_instance(pipeline, units.adder, name, a, as_signal(b.value), ADDER_STAGES))
            units.sums += 1
        if len(level) % 2:
            merged.append(Staged(pipeline.at(level[-1], merged[0].stage), merged[0].stage))
        level = merged
    return level[0]


def _reached(pipeline: Pipeline, name: str, total: Staged, steps: Floats) -> Staged:
    """How many of the ascending thresholds a float reaches: floats are in order as signs and magnitudes are."""
    module, value = pipeline.module, as_signal(total.value)
    negative, size = bits(value, 31, 1), module.wire(f"{name}_size", bits(value, 0, 31))
    code: Expr = ZERO
    for k, (step, word) in enumerate(zip(steps, _bits_of(steps), strict=True)):
        limit = const(word & (1 << 31) - 1)
        if step > 0:
            holds = all_of(negate(negative), compare(">=", size, limit))
        else:
            holds = any_of(negate(negative), compare("<=", size, limit))
        code = select(module.register(f"{name}_reaches_{k}", holds), const(k + 1), code)
    return pipeline.register(f"{name}_code", code, total.stage + 1)
