"""Lanes of the arrays (products, a registered tree, a running sum) and what finishes a sum: bias, scale, rounding, addition.

Lanes of the array and of the depthwise array are placed apart, or one set of lanes serves both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd

from dovetail.fpga.engines.arithmetic import maximum
from dovetail.fpga.engines.lane import tree
from dovetail.fpga.engines.soft import soft_multiplier, soft_product
from dovetail.fpga.engines.stream import Pipeline, Staged, in_blocks
from dovetail.fpga.engines.twin import pair_of, taken_apart
from dovetail.fpga.reusable.array import delayed
from dovetail.fpga.reusable.image import bound_bits, index_bits, layer_fields
from dovetail.fpga.reusable.numbers import BIAS_BITS, MULTIPLIER_BITS, BlockNumbers, EngineNumbers
from dovetail.fpga.reusable.storage import WideMemory
from dovetail.fpga.rtl.expressions import ZERO, Expr, Signal, all_of, any_bit, any_of, choose, compare, pack, select, signal
from dovetail.fpga.rtl.modules import Instance, Module, Rom
from dovetail.hardware.folds import twin_sums

Range = tuple[int, int]

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
    columns = [m.wire(f"x_{i}", x.field(i * ACTIVATION_BITS, *ACTIVATION)) for i in range(products)]
    for lane in range(0, lanes, 2):
        level = []
        for i, column in enumerate(columns):
            lower, upper = (m.wire(f"w_{k}_{i}", w.field((k * products + i) * 8, *WEIGHT)) for k in (lane, lane + 1))
            less = m.wire(f"w_{lane}_{i}_upper", upper - lower.bit(7))
            pair = pair_of(m, f"pair_{lane}_{i}", lower, less, WEIGHT)
            level.append(pipeline.register(f"product_{lane}_{i}", pair * column, 0))
        parts = taken_apart(pipeline, level, twin_sums(ACTIVATION, WEIGHT), ACTIVATION, WEIGHT, f"lane_{lane}_")
        for k, side in enumerate(parts):
            total = tree(pipeline, side, None, f"lane_{lane + k}_")
            running = signal(f"running_{lane + k}", min(sums[0], -1), max(sums[1], 1))
            m.drive(running, select(starts, total.value, running + total.value), works)
            m.output(f"y{lane + k}", running)
    return Lanes(m, lanes, total.stage, running.width)


def largest_module(name: str, lanes: int, taps: int) -> Lanes:
    """Lanes of own inputs that take the largest of their taps; ports as those of `lanes_module`, weights and mode unused."""
    m = Module(name, (f"{lanes} lanes that take the largest of {taps} taps.",), shared=True)
    x, _ = m.input("x", taps * ACTIVATION_BITS * lanes), m.input("w", lanes * taps * 8)
    starts, works = m.input("starts"), m.input("works")
    m.input("largest")
    pipeline, stage = Pipeline(m), max(1, (taps - 1).bit_length() + 1)
    for lane in range(lanes):
        seen = [Staged(m.wire(f"x_{lane}_{i}", x.field((lane * taps + i) * ACTIVATION_BITS, *ACTIVATION)), 0)
                for i in range(taps)]
        best = pipeline.at(maximum(pipeline, f"largest_{lane}", seen), stage)
        running = signal(f"running_{lane}", -256, 255)
        m.drive(running, select(starts, best, select(compare("<", running, best), best, running)), works)
        m.output(f"y{lane}", running)
    return Lanes(m, lanes, stage, running.width)


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
    for lane in range(lanes):
        level, seen = [], []
        for i in range(products):
            at = (lane * products if own_inputs else 0) + i
            left = m.wire(f"x_{lane}_{i}", x.field(at * ACTIVATION_BITS, *ACTIVATION))
            right = m.wire(f"w_{lane}_{i}", w.field((lane * products + i) * 8, *WEIGHT))
            product = left * right if soft is None else soft_product(m, soft, f"soft_{lane}_{i}", left, right)
            level.append(pipeline.register(f"product_{lane}_{i}", product, 0))
            seen.append(Staged(left, 0))
        total = tree(pipeline, level, None, f"lane_{lane}_")
        running = signal(f"running_{lane}", min(sums[0], -1), max(sums[1], 1))
        value: Expr = total.value
        more = running + total.value
        if takes_largest is not None:
            best = pipeline.at(maximum(pipeline, f"largest_{lane}", seen), total.stage)
            value = select(takes_largest, best, value)
            more = select(takes_largest, select(compare("<", running, best), best, running), more)
        m.drive(running, select(starts, value, more), works)
        m.output(f"y{lane}", running)
    return Lanes(m, lanes, total.stage, running.width)


@dataclass(frozen=True, slots=True)
class Operands:
    """What an engine multiplies: its activations (of all lanes, or of each), weights, and when a sum starts and goes on.

    Activations and weights are of `stage`, `starts` and `works` of stage 0.
    """

    name: str
    lanes: int
    products: int
    x: tuple[Signal, ...]
    weights: WideMemory
    starts: Expr
    works: Expr
    stage: int
    largest: Expr = ZERO
    """Whether the largest activation is taken instead of a sum; of stage 0."""
    packed: bool = False
    """Whether two lanes share their multipliers."""
    soft: int = 0
    """How many of the lanes, the last ones, have their products in logic."""
    compares: bool = False
    """Whether lanes take the largest alone and have no products."""

    @property
    def own_inputs(self) -> bool:
        return len(self.x) > 1 or self.lanes == 1


@dataclass(frozen=True, slots=True)
class PlacedSums:
    """Sums of an engine's lanes, and their stage."""

    sums: tuple[Signal, ...]
    stage: int
    sum_bits: int


def place_apart(module: Module, pipeline: Pipeline, operands: Operands, sums: Range) -> tuple[PlacedSums, list[Module]]:
    """Lanes of an engine's own."""
    name = f"{module.name}_{operands.name}_lanes"
    if operands.compares:
        lanes = largest_module(name, lanes_in_module(operands.lanes, operands.products), operands.products)
    elif operands.packed:
        lanes = paired_lanes_module(name, lanes_in_module(operands.lanes, operands.products, 2), operands.products, sums)
    else:
        lanes = lanes_module(name, lanes_in_module(operands.lanes, operands.products), operands.products, sums,
                             operands.own_inputs, operands.largest.hi > 0)
    modules, kinds = [lanes.module], [lanes]
    if operands.soft:
        lanes, modules, kinds = _kinds_of(name, operands, sums)
    stage = operands.stage + lanes.sum_stage
    starts, works = (_at(pipeline, v, stage, f"{operands.name}_{n}_now")
                     for v, n in ((operands.starts, "starts"), (operands.works, "works")))
    largest = _at(pipeline, operands.largest, stage, f"{operands.name}_largest_now") if operands.largest.hi else None
    size = lanes.count * operands.products * 8
    placed = []
    for number in range(operands.lanes // lanes.count):
        first = number * lanes.count
        lanes = kinds[first >= operands.lanes - operands.soft] if operands.soft else lanes
        x = _side_by_side(module, f"{operands.name}_x_{number}", operands.x[first:first + lanes.count]) if operands.own_inputs \
            else operands.x[0]
        w = operands.weights.slice(module, f"{operands.name}_w_{number}", number * size, size)
        placed += _instance(module, lanes, f"{operands.name}_lanes_{number}", f"{operands.name}_sum", first, x, w, starts, works,
                            largest)
    return PlacedSums(tuple(placed), stage + 1, lanes.sum_bits), modules


def _kinds_of(name: str, operands: Operands, sums: Range) -> tuple[Lanes, list[Module], list[Lanes]]:
    """Lanes with multipliers and lanes in logic, as many to a module of either kind."""
    soft, hard = operands.soft, operands.lanes - operands.soft
    count = lanes_in_module(gcd(soft, hard) if hard else soft, operands.products)
    multiplier = soft_multiplier(f"{name}_product", ACTIVATION, WEIGHT, registered=False)
    made = [lanes_module(f"{name}_{label}", count, operands.products, sums, operands.own_inputs, operands.largest.hi > 0, module)
            for label, module in (("hard", None), ("soft", multiplier))]
    used = made if hard else made[1:]
    return made[0], [*(x.module for x in used), multiplier], made


def place_together(module: Module, pipeline: Pipeline, array: Operands, depthwise: Operands,
                   sums: Range) -> tuple[PlacedSums, PlacedSums, list[Module]]:
    """One set of lanes: the first ones, as many as a word has channels, take the depthwise array's operands while it works."""
    count, products = depthwise.lanes, array.products
    some = depthwise.largest.hi > 0
    mixed = lanes_module(f"{module.name}_mixed_lanes", lanes_in_module(count, products), products, sums, True, some)
    mode = _at(pipeline, depthwise.works, depthwise.stage, "depthwise_mode")
    stages = {o.name: o.stage + 1 + mixed.sum_stage for o in (array, depthwise)}
    works = [_at(pipeline, o.works, stages[o.name], f"{o.name}_works_now") for o in (array, depthwise)]
    starts = [_at(pipeline, o.starts, stages[o.name], f"{o.name}_starts_now") for o in (array, depthwise)]
    both = module.wire("mixed_works", any_of(*works))
    begins = module.wire("mixed_starts", any_of(*(all_of(s, w) for s, w in zip(starts, works, strict=True))))
    late = _at(pipeline, depthwise.largest, stages["depthwise"], "depthwise_largest_now") if some else None
    largest = None if late is None else module.wire("mixed_largest", all_of(late, works[1]))
    size, found = products * 8, list[Signal]()
    for number in range(count // mixed.count):
        chosen = range(number * mixed.count, (number + 1) * mixed.count)
        x = [module.register(f"mixed_x_{k}", select(mode, _widened(depthwise.x[k], products), array.x[0]),
                             bounds=_unsigned(array.x[0].width)) for k in chosen]
        w = [module.register(f"mixed_w_{k}", select(
            mode, depthwise.weights.slice(module, f"depthwise_w_{k}", k * depthwise.products * 8, depthwise.products * 8),
            array.weights.slice(module, f"array_w_{k}", k * size, size)), bounds=_unsigned(size)) for k in chosen]
        sides = [_side_by_side(module, f"mixed_{n}_{number}", v) for n, v in (("xs", x), ("ws", w))]
        found += _instance(module, mixed, f"mixed_lanes_{number}", "mixed_sum", chosen[0], sides[0], sides[1], begins, both,
                           largest)
    modules = [mixed.module]
    rest, parts = array.lanes - count, list(found)
    if rest:
        lanes = lanes_module(f"{module.name}_array_lanes", lanes_in_module(rest, products), products, sums, False)
        modules.append(lanes.module)
        x_late = module.register("array_operands_held", array.x[0])
        for number in range(rest // lanes.count):
            first = count + number * lanes.count
            w_late = module.register(f"array_w_{first}_held", array.weights.slice(module, f"array_w_{first}", first * size,
                                                                                   lanes.count * size))
            parts += _instance(module, lanes, f"array_lanes_{number}", "array_sum", first, x_late, w_late, starts[0], works[0])
    return (PlacedSums(tuple(parts), stages["array"] + 1, mixed.sum_bits),
            PlacedSums(tuple(found), stages["depthwise"] + 1, mixed.sum_bits), modules)


def _widened(x: Signal, products: int) -> Expr:
    """Taps of a channel and, up to the products of a lane, the first one again: without a weight, and no larger than itself."""
    missing = products - x.width // ACTIVATION_BITS
    return pack([(x, x.width), *[(x.bits(0, ACTIVATION_BITS), ACTIVATION_BITS)] * missing])


def _unsigned(width: int) -> Range:
    return 0, (1 << width) - 1


def _at(pipeline: Pipeline, value: Expr, stage: int, name: str) -> Signal:
    """A bit of stage 0 at a later stage, under a name of its own."""
    return pipeline.module.wire(name, delayed(pipeline, value, stage, f"{name}_first"))


def _side_by_side(module: Module, name: str, values: Sequence[Signal]) -> Signal:
    return module.wire(name, pack([(v, v.width) for v in values]))


def _instance(module: Module, lanes: Lanes, name: str, sums: str, first: int, x: Signal, w: Signal, starts: Signal,
              works: Signal, largest: Signal | None = None) -> list[Signal]:
    made = [module.net(f"{sums}_{first + k}", lanes.sum_bits) for k in range(lanes.count)]
    module.instances.append(Instance(lanes.module.name, name, (
        ("x", x), ("w", w), ("starts", starts), ("works", works), *([("largest", largest)] if largest is not None else []),
        *((f"y{k}", y) for k, y in enumerate(made)))))
    return made


@dataclass(frozen=True, slots=True)
class Finisher:
    """A module that finishes the sum of one filter: clock edges it takes, and when its inputs must be there, by port."""

    module: Module
    stages: int
    enters: Mapping[str, int]


def finisher_module(name: str, numbers: EngineNumbers, sum_bits: int, lifts: tuple[Sequence[int], Sequence[int]],
                    add_shift: int, value_bits: int = 8, gates: Sequence[int] = (), tables: Sequence[bytes] = ()) -> Finisher:
    """Ports: total, bias, multiplier, the layer's fields, the other operand of an addition or a product, y.

    With `add_shift` it can add; its layer's fields then say by which of the `lifts` either operand is shifted. With `gates` it
    can multiply with the other operand, shifted by one of them; with `tables` it can look up what it made. What all filters
    share enters when it is needed, so that it waits once and not in every filter's module.
    """
    m = Module(name, ("From a sum to an output.",), shared=True)
    pipeline = Pipeline(m)
    total = m.wire("total_value", m.input("total", sum_bits).field(0, *_signed_range(sum_bits)))
    y, enters = settled(pipeline, Staged(total, 0), numbers, lifts, add_shift, value_bits, gates)
    y = Staged(m.wire("y_bits", y.signal.bits(0, value_bits)), y.stage)
    if tables:
        y = _looked_up(pipeline, y, tables, enters)
    m.output("y", y.signal)
    return Finisher(m, y.stage, {"total": 0, **enters})


def layer_pins(pipeline: Pipeline, numbers: BlockNumbers, name: str, finisher: Finisher, constants: WideMemory, start: int,
               known: int) -> list[tuple[str, Signal]]:
    """The layer's fields that a finisher asks for, each when it is needed; constants are there `known` stages behind sums."""
    at, pins, widths = start, list[tuple[str, Signal]](), {port.name: port.width for port in finisher.module.inputs}
    for key, _, count in layer_fields(numbers, numbers.layers[0]):
        if key in finisher.enters:
            now = Staged(constants.slice(pipeline.module, f"{name}_{key}_now", at, widths[key]), known)
            pins.append((key, pipeline.signal_at(now, finisher.enters[key])))
        at += count
    return pins


def settled(pipeline: Pipeline, total: Staged, numbers: EngineNumbers, lifts: tuple[Sequence[int], Sequence[int]], add_shift: int,
            value_bits: int, gates: Sequence[int] = ()) -> tuple[Staged, dict[str, int]]:
    """A sum with bias, multiplied, rounded and added to; and when what that needs must be there, by port."""
    m, start = pipeline.module, total.stage
    bias_in, multiplier_in = m.input("bias", BIAS_BITS), m.input("multiplier", MULTIPLIER_BITS)
    bias = m.wire("bias_value", bias_in.field(0, *_at_least(numbers.biases)))
    multiplier = m.wire("factor", multiplier_in.field(0, 0, numbers.multiplier))
    biased = pipeline.register("biased", total.value + bias, start, _at_least(numbers.biased))
    enters = {"bias": start, "multiplier": start}
    other = None
    if gates:
        other = _other(m, start, enters, value_bits)
        enters |= {"gates": start, "gate_lift": start}
        lifted = choose(m.input("gate_lift", index_bits(len(gates))), [other.value << lift for lift in gates])
        multiplier = m.wire("chosen_factor", select(m.input("gates"), lifted, multiplier))
    product = biased.value * pipeline.at(Staged(multiplier, start), start + 1)
    scaled = pipeline.register("scaled", product, biased.stage, _at_least(numbers.scaled))
    held = pipeline.register("scaled_held", scaled.value, scaled.stage)  # retimed into the multiplier
    value: Expr = held.value
    if numbers.cuts:
        enters["cut"] = held.stage
        cuts = [m.wire(f"cut_{k}", held.signal >> cut.drop) << cut.lift for k, cut in enumerate(numbers.cuts)]
        value = choose(m.input("cut", index_bits(1 + len(cuts))), [held.value, *cuts])
    y = _rounded(pipeline, "result", value, numbers.shift, ("low", "high"), held.stage, enters, value_bits)
    if add_shift:
        y = _added(pipeline, y, other or _other(m, y.stage, enters, value_bits), lifts, add_shift, enters, value_bits)
    return y, enters


def _other(m: Module, stage: int, enters: dict[str, int], value_bits: int) -> Staged:
    """The other operand of an addition or a product."""
    other, signed = m.input("other", value_bits), m.input("other_signed")
    enters.update(dict.fromkeys(("other", "other_signed"), stage))
    extended = m.wire("other_bits", pack([(other, value_bits), (all_of(signed, other.bit(value_bits - 1)), 1)]))
    return Staged(m.wire("other_value", extended.field(0, *value_range(value_bits))), stage)


def _looked_up(pipeline: Pipeline, y: Staged, tables: Sequence[bytes], enters: dict[str, int]) -> Staged:
    """An output by its entry in one of the tables, where the layer looks up."""
    m, words = pipeline.module, b"".join(tables)
    index = [(m.input("table_index", index_bits(len(tables))), index_bits(len(tables)))] if len(tables) > 1 else []
    read = signal("table_read", 0, 255)
    m.roms.append(Rom("tables", 8, tuple(words), m.wire("table_address", pack([(y.signal, 8), *index])), read,
                      in_blocks(len(words), 8)))
    enters.update({**({"table_index": y.stage} if index else {}), "looks_up": y.stage + 1})
    return pipeline.register("looked_up", select(m.input("looks_up"), read, pipeline.at(y, y.stage + 1)), y.stage + 1)


def _added(pipeline: Pipeline, y: Staged, other: Staged, lifts: tuple[Sequence[int], Sequence[int]], shift: int,
           enters: dict[str, int], value_bits: int) -> Staged:
    """The output with the other operand added where the layer adds; both shifted left to one step, rounded once."""
    m = pipeline.module
    enters.update(dict.fromkeys(("own_lift", "other_lift"), y.stage))
    indices = [m.input(port, index_bits(len(options))) for port, options in zip(("own_lift", "other_lift"), lifts, strict=True)]
    shifted = []
    for value, index, options in zip((y.value, pipeline.at(other, y.stage)), indices, lifts, strict=True):
        shifted.append(choose(index, [value << o for o in options]))
    total = pipeline.register("both", shifted[0] + shifted[1], y.stage)
    result = _rounded(pipeline, "sum", total.value, shift, ("sum_low", "sum_high"), total.stage, enters, value_bits)
    enters["adds"] = result.stage
    return pipeline.register("finished", select(m.input("adds"), result.value, pipeline.at(y, result.stage)), result.stage)


def _rounded(pipeline: Pipeline, name: str, value: Expr, shift: int, bounds: tuple[str, str], stage: int,
             enters: dict[str, int], value_bits: int) -> Staged:
    """clamp(value / 2**shift), half to even, between bounds that enter. Half is added first; a tie clears the lowest bit."""
    m = pipeline.module
    raised = pipeline.register(f"{name}_raised", value + (1 << (shift - 1)), stage)
    wide = raised.signal
    if wide.width <= shift + 1:
        lo, hi = min(wide.lo, -1), max(wide.hi, (1 << (shift + 1)))
        wide = m.wire(f"{name}_wide", wide, (lo, hi))
    upper = m.wire(f"{name}_quotient", wide >> shift)
    tie = ~any_bit(wide.bits(0, shift))
    lowest = all_of(upper.bit(0), ~tie)
    above = upper.width - 1
    even = m.wire(f"{name}_even", pack([(lowest, 1), *([(upper.bits(1, above), above)] if above else [])]))
    settled = m.register(f"{name}_rounded", even, bounds=(_signed_range if upper.signed else _unsigned)(upper.width))
    after = raised.stage + 1
    least, most = (_bound(m, port, value_bits) for port in bounds)
    enters.update(dict.fromkeys(bounds, after))
    result = select(compare("<", settled, least), least, select(compare(">", settled, most), most, settled))
    return pipeline.register(f"{name}_clamped", result, after, value_range(value_bits))


def _bound(m: Module, port: str, value_bits: int) -> Signal:
    return m.wire(f"{port}_value", m.input(port, bound_bits(value_bits)).field(0, *value_range(value_bits)))


def value_range(value_bits: int) -> tuple[int, int]:
    """Range of a stored value, signed or not, in the bit more that both need."""
    return -(1 << (value_bits - 1)), (1 << value_bits) - 1


def _signed_range(width: int) -> tuple[int, int]:
    return -(1 << (width - 1)), (1 << (width - 1)) - 1


def _at_least(bounds: tuple[int, int]) -> tuple[int, int]:
    """A range that is signed, whatever its values."""
    return min(bounds[0], -1), max(bounds[1], 1)
