"""Lanes of the arrays (products, a registered tree, a running sum) and what finishes a sum: bias, scale, rounding, addition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dovetail.fpga.engines.arithmetic import maximum
from dovetail.fpga.engines.lane import tree
from dovetail.fpga.engines.soft import soft_product
from dovetail.fpga.engines.stream import Pipeline, Staged
from dovetail.fpga.engines.twin import pair_of, taken_apart
from dovetail.fpga.reusable.image import bound_bits, index_bits, layer_fields
from dovetail.fpga.reusable.numbers import BIAS_BITS, MULTIPLIER_BITS, BlockNumbers, EngineNumbers
from dovetail.fpga.reusable.storage import WideMemory
from dovetail.fpga.rtl.expressions import (
    Bits,
    Const,
    Expr,
    Signal,
    add,
    all_of,
    any_bit,
    bit_width,
    bits,
    choose,
    compare,
    const,
    multiply,
    negate,
    pack,
    select,
    shift_left,
    shift_right,
    signal,
    subtract,
)
from dovetail.fpga.rtl.modules import Module
from dovetail.hardware.folds import twin_sums

ACTIVATION = (-128, 255)
"""Range of a stored value, signed or not, in the nine bits that both need."""
ACTIVATION_BITS = 9
WEIGHT = (-128, 127)
SHARED_PRODUCTS = 96
"""Products of a module that is compiled once for a simulation, about."""


@dataclass(frozen=True, slots=True)
class Lanes:
    """A module of several lanes; `sum_stage` is the stage, behind its inputs, of what is added to the running sums."""

    module: Module
    count: int
    sum_stage: int
    sum_bits: int


def lanes_in_module(lanes: int, products: int, at_least: int = 1) -> int:
    """How many lanes share a module: a divisor of all, so that one module serves all of them, and a multiple of `at_least`."""
    most = max(at_least, SHARED_PRODUCTS // products)
    return max(n for n in range(at_least, min(lanes, most) + 1, at_least) if lanes % n == 0)


def paired_lanes_module(name: str, lanes: int, products: int, sums: tuple[int, int]) -> Lanes:
    """Lanes of one x, two products in a multiplier (`engines/twin.py`); ports as those of `lanes_module`."""
    m = Module(name, (f"{lanes} lanes of {products} products, two in a multiplier.",), shared=True)
    x, w = m.input("x", products * ACTIVATION_BITS), m.input("w", lanes * products * 8)
    starts, works = m.input("starts"), m.input("works")
    pipeline = Pipeline(m)
    columns = [m.wire(f"x_{i}", Bits(*ACTIVATION, x, i * ACTIVATION_BITS, ACTIVATION_BITS)) for i in range(products)]
    stage = 0
    for lane in range(0, lanes, 2):
        level = []
        for i, column in enumerate(columns):
            lower, upper = (m.wire(f"w_{k}_{i}", Bits(*WEIGHT, w, (k * products + i) * 8, 8)) for k in (lane, lane + 1))
            less = m.wire(f"w_{lane}_{i}_upper", subtract(upper, bits(lower, 7, 1)))
            pair = pair_of(m, f"pair_{lane}_{i}", lower, less, WEIGHT)
            level.append(pipeline.register(f"product_{lane}_{i}", multiply(pair, column), 0))
        parts = taken_apart(pipeline, level, twin_sums(ACTIVATION, WEIGHT), ACTIVATION, WEIGHT, f"lane_{lane}_")
        for k, side in enumerate(parts):
            total = tree(pipeline, side, None, f"lane_{lane + k}_")
            stage = total.stage
            running = signal(f"running_{lane + k}", min(sums[0], -1), max(sums[1], 1))
            m.drive(running, select(starts, total.value, add(running, total.value)), works)
            m.output(f"y{lane + k}", running)
    return Lanes(m, lanes, stage, bit_width(min(sums[0], -1), max(sums[1], 1)))


def largest_module(name: str, lanes: int, taps: int) -> Lanes:
    """Lanes of own inputs that take the largest of their taps; ports as those of `lanes_module`, weights and mode unused."""
    m = Module(name, (f"{lanes} lanes that take the largest of {taps} taps.",), shared=True)
    x, _ = m.input("x", taps * ACTIVATION_BITS * lanes), m.input("w", lanes * taps * 8)
    starts, works = m.input("starts"), m.input("works")
    m.input("largest")
    pipeline, stage = Pipeline(m), max(1, (taps - 1).bit_length() + 1)
    for lane in range(lanes):
        seen = [Staged(m.wire(f"x_{lane}_{i}", Bits(*ACTIVATION, x, (lane * taps + i) * ACTIVATION_BITS, ACTIVATION_BITS)), 0)
                for i in range(taps)]
        best = pipeline.at(maximum(pipeline, f"largest_{lane}", seen), stage)
        running = signal(f"running_{lane}", -256, 255)
        m.drive(running, select(starts, best, select(compare("<", running, best), best, running)), works)
        m.output(f"y{lane}", running)
    return Lanes(m, lanes, stage, bit_width(-256, 255))


def lanes_module(name: str, lanes: int, products: int, sums: tuple[int, int], own_inputs: bool, largest: bool = False,
                 soft: Module | None = None) -> Lanes:
    """Ports: x (of each lane with `own_inputs`, else of all), w (lane after lane), starts, works, y0, y1...

    With `largest` a port of that name says when the largest x is taken instead of the sum of products; with a `soft` module
    products are made in logic.
    """
    m = Module(name, (f"{lanes} lanes of {products} products.",), shared=True)
    x = m.input("x", products * ACTIVATION_BITS * (lanes if own_inputs else 1))
    w = m.input("w", lanes * products * 8)
    starts, works = m.input("starts"), m.input("works")
    takes_largest = m.input("largest") if largest else None
    pipeline = Pipeline(m)
    stage = 0
    for lane in range(lanes):
        level, seen = [], []
        for i in range(products):
            at = (lane * products if own_inputs else 0) + i
            left = m.wire(f"x_{lane}_{i}", Bits(*ACTIVATION, x, at * ACTIVATION_BITS, ACTIVATION_BITS))
            right = m.wire(f"w_{lane}_{i}", Bits(*WEIGHT, w, (lane * products + i) * 8, 8))
            product = multiply(left, right) if soft is None else soft_product(m, soft, f"soft_{lane}_{i}", left, right)
            level.append(pipeline.register(f"product_{lane}_{i}", product, 0))
            seen.append(Staged(left, 0))
        total = tree(pipeline, level, None, f"lane_{lane}_")
        stage = total.stage
        running = signal(f"running_{lane}", min(sums[0], -1), max(sums[1], 1))
        value: Expr = total.value
        more = add(running, total.value)
        if takes_largest is not None:
            best = pipeline.at(maximum(pipeline, f"largest_{lane}", seen), stage)
            value = select(takes_largest, best, value)
            more = select(takes_largest, select(compare("<", running, best), best, running), more)
        m.drive(running, select(starts, value, more), works)
        m.output(f"y{lane}", running)
    return Lanes(m, lanes, stage, bit_width(min(sums[0], -1), max(sums[1], 1)))


@dataclass(frozen=True, slots=True)
class Finisher:
    """A module that finishes the sum of one filter: clock edges it takes, and when its inputs must be there, by port."""

    module: Module
    stages: int
    enters: Mapping[str, int]


def finisher_module(name: str, numbers: EngineNumbers, sum_bits: int, lifts: tuple[Sequence[int], Sequence[int]],
                    add_shift: int, value_bits: int = 8) -> Finisher:
    """Ports: total, bias, multiplier, the layer's fields, the other operand of an addition, y.

    With `add_shift` it can add; its layer's fields then say by which of the `lifts` either operand is shifted. What all filters
    share enters when it is needed, so that it waits once and not in every filter's module.
    """
    m = Module(name, ("From a sum to an output.",), shared=True)
    pipeline = Pipeline(m)
    total = m.wire("total_value", Bits(*_signed_range(sum_bits), m.input("total", sum_bits), 0, sum_bits))
    y, enters = settled(pipeline, Staged(total, 0), numbers, lifts, add_shift, value_bits)
    m.output("y", low_bits(m, "y_bits", y.value, value_bits))
    return Finisher(m, y.stage, {"total": 0, **enters})


def layer_pins(pipeline: Pipeline, numbers: BlockNumbers, name: str, finisher: Finisher, constants: WideMemory, start: int,
               known: int) -> list[tuple[str, Signal]]:
    """The layer's fields that a finisher asks for, each when it is needed; constants are there `known` stages behind sums."""
    at, pins = start, list[tuple[str, Signal]]()
    for key, _, count in layer_fields(numbers, numbers.layers[0]):
        if key in finisher.enters:
            now = Staged(constants.slice(pipeline.module, f"{name}_{key}_now", at, count), known)
            late = pipeline.at(now, finisher.enters[key])
            assert isinstance(late, Signal)
            pins.append((key, late))
        at += count
    return pins


def settled(pipeline: Pipeline, total: Staged, numbers: EngineNumbers, lifts: tuple[Sequence[int], Sequence[int]], add_shift: int,
            value_bits: int) -> tuple[Staged, dict[str, int]]:
    """A sum with bias, multiplied, rounded and added to; and when what that needs must be there, by port."""
    m, start = pipeline.module, total.stage
    bias_in, multiplier_in = m.input("bias", BIAS_BITS), m.input("multiplier", MULTIPLIER_BITS)
    bias = m.wire("bias_value", Bits(*_at_least(numbers.biases), bias_in, 0, bit_width(*_at_least(numbers.biases))))
    multiplier = m.wire("factor", bits(multiplier_in, 0, bit_width(0, numbers.multiplier)), (0, numbers.multiplier))
    biased = pipeline.register("biased", add(total.value, bias), start, _at_least(numbers.biased))
    product = multiply(biased.value, pipeline.at(Staged(multiplier, start), start + 1))
    scaled = pipeline.register("scaled", product, biased.stage, _at_least(numbers.scaled))
    held = pipeline.register("scaled_held", scaled.value, scaled.stage)  # retimed into the multiplier
    value: Expr = held.value
    assert isinstance(held.value, Signal)
    enters = {"bias": start, "multiplier": start}
    if numbers.drop:
        cut, enters["drops"] = m.wire("cut", shift_right(held.value, numbers.drop)), held.stage
        value = select(m.input("drops"), shift_left(cut, numbers.lift), held.value)
    y = _rounded(pipeline, "result", value, numbers.shift, ("low", "high"), held.stage, enters, value_bits)
    if add_shift:
        y = _added(pipeline, y, lifts, add_shift, enters, value_bits)
    return y, enters


def _added(pipeline: Pipeline, y: Staged, lifts: tuple[Sequence[int], Sequence[int]], shift: int,
           enters: dict[str, int], value_bits: int) -> Staged:
    """The output with the other operand added where the layer adds; both shifted left to one step, rounded once."""
    m = pipeline.module
    other, other_signed = m.input("other", value_bits), m.input("other_signed")
    enters.update(dict.fromkeys(("other", "other_signed", "own_lift", "other_lift"), y.stage))
    sign = all_of(other_signed, bits(other, value_bits - 1, 1))
    extended = m.wire("other_bits", pack([(other, value_bits), (sign, 1)]))
    other_value = m.wire("other_value", Bits(*value_range(value_bits), extended, 0, bound_bits(value_bits)))
    indices = [m.input(port, index_bits(len(options))) for port, options in zip(("own_lift", "other_lift"), lifts, strict=True)]
    shifted = []
    for value, index, options in zip((y.value, other_value), indices, lifts, strict=True):
        shifted.append(choose(index, [shift_left(value, o) for o in options]))
    total = pipeline.register("both", add(shifted[0], shifted[1]), y.stage)
    result = _rounded(pipeline, "sum", total.value, shift, ("sum_low", "sum_high"), total.stage, enters, value_bits)
    enters["adds"] = result.stage
    return pipeline.register("finished", select(m.input("adds"), result.value, pipeline.at(y, result.stage)), result.stage)


def _rounded(pipeline: Pipeline, name: str, value: Expr, shift: int, bounds: tuple[str, str], stage: int,
             enters: dict[str, int], value_bits: int) -> Staged:
    """clamp(value / 2**shift), half to even, between bounds that enter. Half is added first; a tie clears the lowest bit."""
    m = pipeline.module
    raised = pipeline.register(f"{name}_raised", add(value, const(1 << (shift - 1))), stage)
    assert isinstance(raised.value, Signal)
    wide = raised.value
    if wide.width <= shift + 1:
        lo, hi = min(wide.lo, -1), max(wide.hi, (1 << (shift + 1)))
        wide = m.wire(f"{name}_wide", wide, (lo, hi))
    upper = m.wire(f"{name}_quotient", shift_right(wide, shift))
    tie = negate(any_bit(bits(wide, 0, shift)))
    lowest = all_of(bits(upper, 0, 1), negate(tie))
    above = upper.width - 1
    even = m.wire(f"{name}_even", pack([(lowest, 1), *([(bits(upper, 1, above), above)] if above else [])]))
    settled = m.register(f"{name}_rounded", Bits(min(upper.lo - 1, -1) if upper.signed else 0, upper.hi, even, 0, upper.width),
                         bounds=_signed_range(upper.width) if upper.signed else (0, (1 << upper.width) - 1))
    after = raised.stage + 1
    least, most = (_bound(m, port, value_bits) for port in bounds)
    enters.update(dict.fromkeys(bounds, after))
    result = select(compare("<", settled, least), least, select(compare(">", settled, most), most, settled))
    return pipeline.register(f"{name}_clamped", result, after, value_range(value_bits))


def _bound(m: Module, port: str, value_bits: int) -> Signal:
    wide = bound_bits(value_bits)
    return m.wire(f"{port}_value", Bits(*value_range(value_bits), m.input(port, wide), 0, wide))


def value_range(value_bits: int) -> tuple[int, int]:
    """Range of a stored value, signed or not, in the bit more that both need."""
    return -(1 << (value_bits - 1)), (1 << value_bits) - 1


def low_bits(m: Module, name: str, value: Signal | Const, value_bits: int) -> Expr:
    """A value as it is stored."""
    assert isinstance(value, Signal)
    return m.wire(name, bits(value, 0, value_bits))


def _signed_range(width: int) -> tuple[int, int]:
    return -(1 << (width - 1)), (1 << (width - 1)) - 1


def _at_least(bounds: tuple[int, int]) -> tuple[int, int]:
    """A range that is signed, whatever its values."""
    return min(bounds[0], -1), max(bounds[1], 1)
