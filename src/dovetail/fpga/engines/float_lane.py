"""Folded layers in single precision: windows beat by beat, lanes of float multiply-adds or look-ups, weights in ROM.

*LQ multi-FPGA 2020* compares its look-ups of float products with FP32 multiply-adds; these are both, as baselines, and no choice
of plans. `numerics.floats` states the order in which a lane adds; it is the only one that this hardware has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.fpga.engines import folded as parts
from dovetail.fpga.engines.floats import ADDER_STAGES, MULTIPLIER_STAGES, WORD, float_adder, float_multiplier, unit_result
from dovetail.fpga.engines.lane import Lane
from dovetail.fpga.engines.layers import MappedLayer, begun
from dovetail.fpga.engines.lq import last_that_holds
from dovetail.fpga.engines.stream import READ_STAGES, Engine, Pipeline, Staged, in_blocks
from dovetail.fpga.rtl import expressions as rtl
from dovetail.fpga.rtl.expressions import Expr, Signal, all_of, any_of, bit_width, pack, select, signal
from dovetail.fpga.rtl.modules import Instance, Memory, Module, Rom
from dovetail.hardware.adders.graph import IntMatrix
from dovetail.hardware.folds import Loops
from dovetail.ir import Window
from dovetail.numerics.floats import PARTIAL_SUMS, WORD_BITS, FloatFilters, words_of

NEGATIVE_ZERO = 1 << 31
"""What any float may be added to without changing a bit."""
LEVELS = (PARTIAL_SUMS - 1).bit_length()
"""Of the tree over partial sums, an adder each: they end one after another."""
assert PARTIAL_SUMS >= ADDER_STAGES + 2, "a sum is written and read again before it goes on"


@dataclass(frozen=True, slots=True)
class FloatConstants:
    """Words of 32 bits by name and filter: those the products read, and those that end a sum."""

    products: tuple[tuple[str, tuple[int, ...]], ...]
    ends: tuple[tuple[str, tuple[int, ...]], ...]


def constants_of(filters: FloatFilters) -> FloatConstants:
    """Entries of the tables but for input code 0; bias, or thresholds, of which zero is stored as -0."""
    products = []
    if filters.tables is not None:
        words = words_of(filters.tables)
        products = [(f"entry_{w}_{x}", tuple(words[:, w, x].tolist())) for w in range(words.shape[1])
                    for x in range(1, words.shape[2])]
    if filters.bias is not None:
        return FloatConstants(tuple(products), (("bias", tuple(words_of(filters.bias).tolist())),))
    assert filters.steps is not None
    limits = np.where(filters.steps == 0, NEGATIVE_ZERO, words_of(filters.steps))
    return FloatConstants(tuple(products), tuple((f"step_{k}", tuple(column.tolist())) for k, column in enumerate(limits.T)))


@dataclass(slots=True)
class _FloatUnits:
    """A lane under construction, and the modules it instantiates."""

    pipeline: Pipeline
    adder: Module
    multiplier: Module
    adders: int = 0

    def both(self, a: Staged, b: Staged) -> Staged:
        """The sum of two values of one stage."""
        self.adders += 1
        return unit_result(self.pipeline, self.adder, f"sum_{self.adders}", a, b.signal, ADDER_STAGES)

    def given(self, name: str, values: Sequence[int], stage: int) -> Staged:
        """A port of a filter's constant, as wide as its values need, as a word."""
        port = self.pipeline.module.input(name, bit_width(min(values), max(values)))
        return Staged(self.pipeline.module.wire(f"{name}_word", port, WORD), stage)


def float_lane(name: str, taps: int, filters: FloatFilters, beats: int) -> tuple[Lane, int]:
    """x, w: `taps` values side by side, a beat; `starts` and `works` say of a beat whether it is a window's first, and comes.

    Returns the lane and how many adders it has.
    """
    m = Module(name, (f"A lane of {taps} products in single precision, {PARTIAL_SUMS} partial sums.",), shared=True)
    units = _FloatUnits(Pipeline(m), float_adder(f"{name}_adder"), float_multiplier(f"{name}_multiplier"))
    x, w = m.input("x", taps * filters.input_bits), m.input("w", taps * filters.weight_bits)
    flow, constants = (m.input("starts"), m.input("works")), constants_of(filters)
    made = _multiplied if filters.tables is None else _looked_up
    part = units.pipeline.paired(made(units, filters, constants, taps, x, w), units.both)
    total = _partial_sums(units, part, -beats % PARTIAL_SUMS, *flow)
    result = _settled(units, filters, constants, total)
    m.output("y", result.value)
    own = (units.adder,) if filters.tables is not None else (units.adder, units.multiplier)
    return Lane(m, part.stage - 1, total.stage, result.stage, result, own), units.adders


def _multiplied(units: _FloatUnits, filters: FloatFilters, constants: FloatConstants, taps: int, x: Signal,
                w: Signal) -> list[Staged]:
    """Products of floats."""
    pairs = [[Staged(units.pipeline.module.wire(f"{port.name}_{i}", port.field(i * WORD_BITS, *WORD)), 0) for port in (x, w)]
             for i in range(taps)]
    return [unit_result(units.pipeline, units.multiplier, f"product_{i}", a, b.signal, MULTIPLIER_STAGES)
            for i, (a, b) in enumerate(pairs)]


def _looked_up(units: _FloatUnits, filters: FloatFilters, constants: FloatConstants, taps: int, x: Signal,
               w: Signal) -> list[Staged]:
    """Products from the filter's table, by both codes; input code 0 has no entry."""
    m, wide, narrow = units.pipeline.module, filters.input_bits, filters.weight_bits
    given = {name: units.given(name, values, 0).signal for name, values in constants.products}
    assert filters.tables is not None
    _, codes, levels = filters.tables.shape
    options = [given[f"entry_{a}_{b}"] if b else rtl.const(0) for b in range(levels) for a in range(codes)]
    found = []
    for i in range(taps):
        index = m.wire(f"index_{i}", pack([(w.bits(i * narrow, narrow), narrow), (x.bits(i * wide, wide), wide)]))
        found.append(units.pipeline.register(f"product_{i}", rtl.choose(index, options), 0, WORD))
    return found


def _partial_sums(units: _FloatUnits, part: Staged, first: int, starts: Signal, works: Signal) -> Staged:
    """The sum of a window's beats, `ADDER_STAGES` times four after its last: `first` is the place of the first beat's sum."""
    pipeline, m = units.pipeline, units.pipeline.module
    flow, back = part.stage - 1, part.stage + ADDER_STAGES  # a beat is known a clock before its products are added
    later, opening = signal("place_later", 0, PARTIAL_SUMS - 1), signal("opening")
    place = m.wire("place", select(starts, first, later), (0, PARTIAL_SUMS - 1))
    fresh = m.wire("fresh", any_of(starts, opening))
    m.drive(later, rtl.successor(place), works)
    m.drive(opening, all_of(fresh, rtl.compare("!=", place, (first - 1) % PARTIAL_SUMS)), works)
    read = signal("partial_read", *WORD)
    before = m.wire("partial_before", select(pipeline.at(Staged(fresh, flow), part.stage), NEGATIVE_ZERO, read), WORD)
    total = units.both(part, Staged(before, part.stage))
    turn, comes = Staged(place, flow), Staged(works, flow)
    m.memories.append(Memory("partials", WORD_BITS, PARTIAL_SUMS, pipeline.at(comes, back), pipeline.at(turn, back), total.signal,
                             place, read, False))
    for level in range(LEVELS):
        number = pipeline.signal_at(turn, total.stage)
        due = all_of(pipeline.at(comes, total.stage), *(number.bit(k) for k in range(level)))
        held = m.register(f"held_{level}", total.value, due)
        total = units.both(Staged(held, total.stage), total)
    return total


def _settled(units: _FloatUnits, filters: FloatFilters, constants: FloatConstants, total: Staged) -> Staged:
    """The sum with its bias, rectified; or how many thresholds it reaches."""
    pipeline = units.pipeline
    given = [units.given(name, values, total.stage) for name, values in constants.ends]
    if filters.bias is not None:
        biased = units.both(total, given[0])
        return pipeline.register("rectified", select(biased.signal.bit(31), 0, biased.signal), biased.stage, WORD)
    value, holds = total.signal, list[Expr]()
    size = pipeline.module.wire("size", value.bits(0, 31))
    for step in given:
        limit = step.signal
        above, below = (rtl.compare(operator, size, limit.bits(0, 31)) for operator in (">=", "<="))
        holds.append(select(value.bit(31), all_of(limit.bit(31), below), any_of(limit.bit(31), above)))
    named = [pipeline.module.wire(f"reaches_{k}", h) for k, h in enumerate(holds)]
    return last_that_holds(pipeline, "result", named, total.stage)


def folded_float_engine(layer: MappedLayer, filters: FloatFilters, loops: Loops) -> Engine:
    """An engine behind `unroll_engine`: windows come as pixels of a pointwise layer, `loops.fold.inputs` taps a clock."""
    pipeline, folded, slot, taps = begun(layer, Window((1, 1)), 0, loops)
    lane, adders = float_lane(f"{layer.module}_lane", loops.fold.inputs, filters, loops.slices)
    stage, bits = max(tap.stage for tap in taps.values()), filters.weight_bits
    stored = parts.stored_words(loops, _weights(filters), lambda lanes: parts.repeated(lanes.reshape(-1, 1), bits))
    store = _store(weight_store(layer.module), stored, bits * loops.fold.inputs * loops.lanes)
    address = pipeline.signal_at(Staged(slot.weight, 0), stage - READ_STAGES)
    words = pipeline.module.net("weights_word", store.outputs[0].width)
    pipeline.module.instances.append(Instance(store.name, "weights", (("address", address), ("y", words))))
    constants = constants_of(filters)
    tables = parts.filter_tables(pipeline, loops, constants.ends, slot, stage + lane.constant_stage)
    if constants.products:
        widths = [bit_width(min(values), max(values)) for _, values in constants.products]
        entries = parts.table_words(loops, [values for _, values in constants.products], widths)
        read = parts.read_rom(pipeline, "entries", entries, sum(widths) * loops.lanes, slot.result, stage)
        tables += parts.fields_of(pipeline, read, [name for name, _ in constants.products], widths, loops.lanes)
    seen = pipeline.module.wire("taps", pack([(taps[key].value, filters.input_bits) for key in sorted(taps)]))
    results = parts.placed_lanes(pipeline, loops, slot, lane, words, tables, stage, lambda _: (seen, []))
    products = loops.lanes * loops.fold.inputs
    how = "look-ups of float products" if filters.tables is not None else "float multipliers"
    made = parts.ended(layer, loops, pipeline, folded, slot, results, lane, f"{products} {how}", adders * loops.lanes)
    return replace(made, modules=(*made.modules, store))


def weight_store(engine: str) -> str:
    """The module that holds the weights of an engine's module, so that it can be synthesized apart."""
    return f"{engine}_weights"


def _store(name: str, words: Sequence[int], width: int) -> Module:
    """A ROM with a register behind it."""
    m = Module(name, (f"Weights: {len(words)} words of {width} bits.",))
    read = signal("word_read", 0, (1 << width) - 1)
    m.roms.append(Rom("store", width, tuple(words), m.input("address", (len(words) - 1).bit_length()), read,
                      in_blocks(len(words), width)))
    m.output("y", m.register("word", read))
    return m


def _weights(filters: FloatFilters) -> IntMatrix:
    """Words or codes of all weights as a pointwise layer's, in the order in which taps come."""
    words = words_of(filters.weights.astype(np.float32)) if filters.tables is None else filters.weights.astype(np.int64)
    return words.transpose(0, 2, 3, 1).reshape(filters.count, -1, 1, 1)
