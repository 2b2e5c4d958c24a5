"""Lanes in place: those of the array and of the depthwise array apart, or one set of lanes that serves both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from dovetail.fpga.engines.soft import soft_multiplier
from dovetail.fpga.engines.stream import Pipeline
from dovetail.fpga.reusable.array import delayed
from dovetail.fpga.reusable.lanes import (
    ACTIVATION,
    ACTIVATION_BITS,
    WEIGHT,
    Lanes,
    lanes_in_module,
    lanes_module,
    largest_module,
    paired_lanes_module,
)
from dovetail.fpga.reusable.storage import WideMemory
from dovetail.fpga.rtl.expressions import ZERO, Expr, Signal, all_of, any_of, bits, pack, select
from dovetail.fpga.rtl.modules import Instance, Module

Range = tuple[int, int]


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
    multiplier = soft_multiplier(f"{name}_product", ACTIVATION, WEIGHT)
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
    return pack([(x, x.width), *[(bits(x, 0, ACTIVATION_BITS), ACTIVATION_BITS)] * missing])


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
