"""IEEE-754 single precision in logic, and the layers of codes that are computed with it: the two baselines of the paper.

*LQ multi-FPGA 2020* compares its table with them; they are no choice of plans. `float table` looks every product up as a float
and adds floats; `fp32` looks up what a code means, multiplies by a weight that comes as an operand, and adds. Both compute
`numerics.lq` bit for bit, in the order of a tree.

Adder and multiplier round to nearest, ties to even, and take an operation a clock. Contract: no operand and no result is
infinite, NaN or subnormal; zeros of both signs are kept as the standard has them. Who builds with constants can prove that
beforehand (`numerics.lq`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from dovetail.fpga.engines.layers import MappedLayer, window_engine
from dovetail.fpga.engines.lq import Datapath, Planes, last_that_holds, spread
from dovetail.fpga.engines.stream import Engine, Pipeline, Staged
from dovetail.fpga.engines.window import Taps
from dovetail.fpga.rtl.expressions import ZERO, Expr, Signal, all_of, any_bit, any_of, compare, const, odd_of, pack, select
from dovetail.fpga.rtl.modules import Instance, Module
from dovetail.ir import Coded, Constant, Window
from dovetail.numerics.lq import FloatLayer, Floats, float_layer

WORD = (0, (1 << 32) - 1)
"""All 32 bits of a float, whatever range its value has."""
FRACTION = 23
BIAS = 127
ADDER_STAGES = 6
MULTIPLIER_STAGES = 4
SPARE = 3
"""Bits below the last one that alignment keeps: guard, round, and whether anything lies beyond them."""


def float_adder(name: str) -> Module:
    """Ports a, b, y = a + b, `ADDER_STAGES` clocks later."""
    m = Module(name, ("Sum of two single precision numbers, rounded to nearest even.",), shared=True)
    pipeline = Pipeline(m)
    a, b = m.input("a", 32), m.input("b", 32)
    swapped = m.wire("swapped", compare("<", a.bits(0, 31), b.bits(0, 31)))
    large, small = (pipeline.register(n, select(swapped, *pair), 0) for n, pair in (("greater", (b, a)), ("lesser", (a, b))))
    exponents = [x.signal.bits(FRACTION, 8) for x in (large, small)]
    # Numbers of one exponent are apart by 0, whichever it is: zero has exponent 0 and no leading one.
    apart = pipeline.register("apart", exponents[0] - exponents[1], 1, (0, 255))
    aligned = _aligned(pipeline, Staged(pipeline.at(small, 2), 2), apart)
    mantissa = m.wire("greater_mantissa", m.wire("greater_whole", _whole(pipeline.signal_at(large, 3))) << SPARE)
    differs = m.wire("differs", odd_of(*(pipeline.signal_at(x, 3).bit(31) for x in (large, small))))
    total = pipeline.register("total", select(differs, mantissa - aligned.value, mantissa + aligned.value), 3,
                              (0, (1 << 28) - 1))
    normal, zeros = _normalised(pipeline, total)
    grown = pipeline.signal_at(large, 4).bits(FRACTION, 8) + 1
    exponent = pipeline.register("exponent", grown - zeros, 4, (0, 255))
    value = normal.signal
    nothing = m.wire("nothing", ~value.bit(27))
    signs = [pipeline.signal_at(x, 5).bit(31) for x in (large, small)]
    rounded = _rounded(m, exponent.value, value.bits(4, FRACTION), value.bit(3), any_bit(value.bits(0, 3)))
    # What cancels is +0, unless both were negative zeros.
    packed = pack([(select(nothing, 0, rounded), 31), (select(nothing, all_of(*signs), signs[0]), 1)])
    m.output("y", pipeline.register("sum", packed, 5).value)
    return m


def float_multiplier(name: str) -> Module:
    """Ports a, b, y = a * b, `MULTIPLIER_STAGES` clocks later."""
    m = Module(name, ("Product of two single precision numbers, rounded to nearest even.",), shared=True)
    pipeline = Pipeline(m)
    a, b = m.input("a", 32), m.input("b", 32)
    wholes = [m.wire(f"{x.name}_whole", _whole(x)) for x in (a, b)]
    product = pipeline.register("product", wholes[0] * wholes[1], 0)
    product = pipeline.register("product_held", product.value, 1)  # retimed into the multiplier
    exponent = pipeline.register("exponents", a.bits(FRACTION, 8) + b.bits(FRACTION, 8), 0)
    negative = pipeline.register("negative", odd_of(a.bit(31), b.bit(31)), 0)
    empty = [~any_bit(x.bits(FRACTION, 8)) for x in (a, b)]
    nothing = pipeline.register("nothing", any_of(*empty), 0)
    value = product.signal
    double = m.wire("double", value.bit(47))
    chosen = pipeline.register("normal", select(double, value.bits(23, 25), value.bits(22, 25)), 2)
    beyond = pipeline.register("beyond", any_of(any_bit(value.bits(0, 22)), all_of(double, value.bit(22))), 2)
    biased = pipeline.register("biased", pipeline.at(exponent, 2) + double - BIAS, 2, (0, 255))
    normal = chosen.signal
    rounded = _rounded(m, biased.value, normal.bits(1, FRACTION), normal.bit(0), beyond.value)
    packed = pack([(select(pipeline.at(nothing, 3), 0, rounded), 31), (pipeline.at(negative, 3), 1)])
    m.output("y", pipeline.register("result", packed, 3).value)
    return m


def _whole(value: Signal) -> Expr:
    """The mantissa with its leading one, which zero does not have."""
    return pack([(value.bits(0, FRACTION), FRACTION), (any_bit(value.bits(FRACTION, 8)), 1)])


def _aligned(pipeline: Pipeline, small: Staged, apart: Staged) -> Staged:
    """The smaller mantissa moved down by the distance of the exponents; its lowest bit says whether anything was lost."""
    m, distance = pipeline.module, apart.signal
    value = m.wire("align_0", m.wire("lesser_whole", _whole(small.signal)) << SPARE - 1)
    lost: Expr = ZERO
    for k in range(5):
        moves, span = distance.bit(k), 1 << k
        lost = m.wire(f"lost_{k}", any_of(lost, all_of(moves, any_bit(value.bits(0, span)))))
        value = m.wire(f"align_{k + 1}", select(moves, value >> span, value), (value.lo, value.hi))
    far = m.wire("far", any_bit(distance.bits(5, 3)))
    some = any_bit(small.signal.bits(FRACTION, 8))
    placed = pack([(select(far, some, lost), 1), (select(far, 0, value), value.width)])
    return pipeline.register("aligned", placed, apart.stage)


def _normalised(pipeline: Pipeline, total: Staged) -> tuple[Staged, Expr]:
    """The sum with its leading one at the top, and how far it moved, a clock before it is registered."""
    m, value = pipeline.module, total.signal
    moved: list[tuple[Expr, int]] = []
    for k in (4, 3, 2, 1, 0):
        span = 1 << k
        empty = m.wire(f"empty_{k}", ~any_bit(value.bits(value.width - span, span)))
        value = m.wire(f"normal_{k}", select(empty, value << span, value), (0, (1 << 28) - 1))
        moved.insert(0, (empty, 1))
    zeros = m.wire("zeros", pack(moved))
    return pipeline.register("normal", value, total.stage), zeros


def _rounded(m: Module, exponent: Expr, fraction: Expr, guard: Expr, beyond: Expr) -> Signal:
    """Exponent and fraction rounded to nearest even; a fraction that overflows carries into the exponent."""
    unrounded = m.wire("unrounded", pack([(fraction, FRACTION), (exponent, 8)]))
    up = m.wire("up", all_of(guard, any_of(beyond, unrounded.bit(0))))
    return m.wire("rounded", unrounded + up, (0, (1 << 31) - 1))


def float_engine(layer: MappedLayer, window: Window, op: Coded, params: Sequence[Constant], datapath: Datapath) -> Engine:
    """The engine of a layer of codes that computes in floats, one of `FLOATS`."""
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


def bits_of(values: Floats) -> list[int]:
    """The words of floats."""
    return [int(v) for v in np.atleast_1d(values).view(np.uint32)]


def _registered(planes: Planes, name: str, table: str, tap: int, values: list[int]) -> Staged:
    """What a tap's code stands for, a clock later."""
    staged, pipeline = planes.taps[tap], planes.pipeline
    code = staged.signal
    found = pipeline.register(f"{name}_entry", planes.entry(f"{table}_{code.hi}", code, values[:code.hi + 1]), staged.stage)
    return Staged(pipeline.module.wire(name, found.value, WORD), found.stage)


def _looked_up(planes: Planes, units: Units, numbers: FloatLayer, f: int, place: int, tap: int) -> Staged:
    """The product from a table; weights of one value share it."""
    values = bits_of(numbers.product(f, place))
    return _registered(planes, f"{planes.label}_product_{f}_{tap}", f"{planes.label}_products_{values[-1]:08x}", tap, values)


def _multiplied(planes: Planes, units: Units, numbers: FloatLayer, f: int, place: int, tap: int) -> Staged:
    """The product of a weight and what the tap's code means."""
    pipeline = planes.pipeline
    if tap not in units.levels:
        name = f"{planes.label}_level_{tap}"
        units.levels[tap] = _registered(planes, name, f"{planes.label}_levels", tap, bits_of(numbers.levels))
    (weight,) = bits_of(numbers.weights.reshape(len(numbers.weights), -1)[f, place])
    factor = pipeline.module.wire(f"{planes.label}_weight_{f}_{tap}", const(weight), WORD)
    return unit_result(pipeline, units.multiplier, f"{planes.label}_product_{f}_{tap}", units.levels[tap], factor,
                     MULTIPLIER_STAGES)


def unit_result(pipeline: Pipeline, made: Module, name: str, a: Staged, b: Signal, stages: int) -> Staged:
    """What an instance of an adder or a multiplier makes of two words of one stage."""
    y = pipeline.module.net(name, 32)
    pipeline.module.instances.append(Instance(made.name, f"u_{name}", (("a", a.signal), ("b", b), ("y", y))))
    return Staged(y, a.stage + stages)


def _added(planes: Planes, units: Units, f: int, terms: Sequence[Staged]) -> Staged:
    """The sum, neighbours first: what is left over waits for the next round."""

    def both(a: Staged, b: Staged) -> Staged:
        units.sums += 1
        return unit_result(planes.pipeline, units.adder, f"{planes.label}_sum_{f}_{units.sums - 1}", a, b.signal, ADDER_STAGES)

    return planes.pipeline.paired(terms, both)


def _reached(pipeline: Pipeline, name: str, total: Staged, steps: Floats) -> Staged:
    """How many of the ascending thresholds a float reaches: floats are in order as signs and magnitudes are."""
    module, value = pipeline.module, total.signal
    negative, size = value.bit(31), module.wire(f"{name}_size", value.bits(0, 31))
    thresholds = []
    for step, word in zip(steps, bits_of(steps), strict=True):
        limit = word & (1 << 31) - 1
        thresholds.append(all_of(~negative, compare(">=", size, limit)) if step > 0
                          else any_of(~negative, compare("<=", size, limit)))
    return last_that_holds(pipeline, name, thresholds, total.stage)
