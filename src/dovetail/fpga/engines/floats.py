"""IEEE-754 single precision in logic: an adder and a multiplier that round to nearest, ties to even.

They are what *LQ multi-FPGA 2020* compares its table with, a baseline and no choice of plans. Both take an operation a clock.
Contract: no operand and no result is infinite, NaN or subnormal; zeros of both signs are kept as the standard has them. Who
builds with constants can prove that beforehand (`numerics.lq_floats`).
"""

from __future__ import annotations

from dovetail.fpga.engines.folded import as_signal
from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.rtl.expressions import (
    ZERO,
    Expr,
    Signal,
    add,
    all_of,
    any_bit,
    any_of,
    bits,
    compare,
    const,
    multiply,
    negate,
    odd_of,
    pack,
    select,
    shift_left,
    shift_right,
    subtract,
)
from dovetail.fpga.rtl.modules import Module

WORD = (0, (1 << 32) - 1)
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
    swapped = m.wire("swapped", compare("<", bits(a, 0, 31), bits(b, 0, 31)))
    large, small = (pipeline.register(n, select(swapped, *pair), 0) for n, pair in (("greater", (b, a)), ("lesser", (a, b))))
    exponents = [bits(as_signal(x.value), FRACTION, 8) for x in (large, small)]
    # Numbers of one exponent are apart by 0, whichever it is: zero has exponent 0 and no leading one.
    apart = pipeline.register("apart", subtract(*exponents), 1, (0, 255))
    aligned = _aligned(pipeline, Staged(pipeline.at(small, 2), 2), apart)
    mantissa = m.wire("greater_mantissa", shift_left(m.wire("greater_whole", _whole(as_signal(pipeline.at(large, 3)))), SPARE))
    differs = m.wire("differs", odd_of(*(bits(as_signal(pipeline.at(x, 3)), 31, 1) for x in (large, small))))
    total = pipeline.register("total", select(differs, subtract(mantissa, aligned.value), add(mantissa, aligned.value)), 3,
                              (0, (1 << 28) - 1))
    normal, zeros = _normalised(pipeline, total)
    grown = add(bits(as_signal(pipeline.at(large, 4)), FRACTION, 8), const(1))
    exponent = pipeline.register("exponent", subtract(grown, zeros), 4, (0, 255))
    value = as_signal(normal.value)
    nothing = m.wire("nothing", negate(bits(value, 27, 1)))
    signs = [bits(as_signal(pipeline.at(x, 5)), 31, 1) for x in (large, small)]
    rounded = _rounded(m, exponent.value, bits(value, 4, FRACTION), bits(value, 3, 1), any_bit(bits(value, 0, 3)))
    # What cancels is +0, unless both were negative zeros.
    packed = pack([(select(nothing, ZERO, rounded), 31), (select(nothing, all_of(*signs), signs[0]), 1)])
    m.output("y", pipeline.register("sum", packed, 5).value)
    return m


def float_multiplier(name: str) -> Module:
    """Ports a, b, y = a * b, `MULTIPLIER_STAGES` clocks later."""
    m = Module(name, ("Product of two single precision numbers, rounded to nearest even.",), shared=True)
    pipeline = Pipeline(m)
    a, b = m.input("a", 32), m.input("b", 32)
    wholes = [m.wire(f"{x.name}_whole", _whole(x)) for x in (a, b)]
    product = pipeline.register("product", multiply(wholes[0], wholes[1]), 0)
    product = pipeline.register("product_held", product.value, 1)  # retimed into the multiplier
    exponent = pipeline.register("exponents", add(bits(a, FRACTION, 8), bits(b, FRACTION, 8)), 0)
    negative = pipeline.register("negative", odd_of(bits(a, 31, 1), bits(b, 31, 1)), 0)
    empty = [negate(any_bit(bits(x, FRACTION, 8))) for x in (a, b)]
    nothing = pipeline.register("nothing", any_of(*empty), 0)
    value = as_signal(product.value)
    double = m.wire("double", bits(value, 47, 1))
    chosen = pipeline.register("normal", select(double, bits(value, 23, 25), bits(value, 22, 25)), 2)
    beyond = pipeline.register("beyond", any_of(any_bit(bits(value, 0, 22)), all_of(double, bits(value, 22, 1))), 2)
    biased = pipeline.register("biased", subtract(add(pipeline.at(exponent, 2), double), const(BIAS)), 2, (0, 255))
    normal = as_signal(chosen.value)
    rounded = _rounded(m, biased.value, bits(normal, 1, FRACTION), bits(normal, 0, 1), beyond.value)
    packed = pack([(select(pipeline.at(nothing, 3), ZERO, rounded), 31), (pipeline.at(negative, 3), 1)])
    m.output("y", pipeline.register("result", packed, 3).value)
    return m


def _whole(value: Signal) -> Expr:
    """The mantissa with its leading one, which zero does not have."""
    return pack([(bits(value, 0, FRACTION), FRACTION), (any_bit(bits(value, FRACTION, 8)), 1)])


def _aligned(pipeline: Pipeline, small: Staged, apart: Staged) -> Staged:
    """The smaller mantissa moved down by the distance of the exponents; its lowest bit says whether anything was lost."""
    m, distance = pipeline.module, as_signal(apart.value)
    value = m.wire("align_0", shift_left(m.wire("lesser_whole", _whole(as_signal(small.value))), SPARE - 1))
    lost: Expr = ZERO
    for k in range(5):
        moves, span = bits(distance, k, 1), 1 << k
        lost = m.wire(f"lost_{k}", any_of(lost, all_of(moves, any_bit(bits(value, 0, span)))))
        value = m.wire(f"align_{k + 1}", select(moves, shift_right(value, span), value), (value.lo, value.hi))
    far = m.wire("far", any_bit(bits(distance, 5, 3)))
    some = any_bit(bits(as_signal(small.value), FRACTION, 8))
    placed = pack([(select(far, some, lost), 1), (select(far, ZERO, value), value.width)])
    return pipeline.register("aligned", placed, apart.stage)


def _normalised(pipeline: Pipeline, total: Staged) -> tuple[Staged, Expr]:
    """The sum with its leading one at the top, and how far it moved, a clock before it is registered."""
    m, value = pipeline.module, as_signal(total.value)
    moved: list[tuple[Expr, int]] = []
    for k in (4, 3, 2, 1, 0):
        span = 1 << k
        empty = m.wire(f"empty_{k}", negate(any_bit(bits(value, value.width - span, span))))
        value = m.wire(f"normal_{k}", select(empty, shift_left(value, span), value), (0, (1 << 28) - 1))
        moved.insert(0, (empty, 1))
    zeros = m.wire("zeros", pack(moved))
    return pipeline.register("normal", value, total.stage), zeros


def _rounded(m: Module, exponent: Expr, fraction: Expr, guard: Expr, beyond: Expr) -> Signal:
    """Exponent and fraction rounded to nearest even; a fraction that overflows carries into the exponent."""
    unrounded = m.wire("unrounded", pack([(fraction, FRACTION), (exponent, 8)]))
    up = m.wire("up", all_of(guard, any_of(beyond, bits(unrounded, 0, 1))))
    return m.wire("rounded", add(unrounded, up), (0, (1 << 31) - 1))
