"""What folded engines are made of and what that costs: cycles, and area in bits and words counted as the engine is built
(fpga/engines/folded.py); the family's coefficients turn it into cells. Many folds of many layers are priced at once, row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from dovetail.cost.dhm import LINE_BLOCK_BITS, SKIP_BLOCK_BITS, SKIP_BLOCK_DEPTH
from dovetail.hardware.folds import LUT_MEMORY_DEPTH, Channels, Fold, soft_digits, soft_logic, soft_registers
from dovetail.hardware.rounding import HEADROOM_BITS
from dovetail.hardware.shares import Flags, Floats, Ints
from dovetail.hardware.streaming import (
    CHAIN_SLACK,
    FIFO_LATENCY_CYCLES,
    HELD_STAGES,
    ISSUE_STAGES,
    MASK_STAGES,
    WINDOW_STAGES,
    WORD_STAGES,
    Raster,
)
from dovetail.ir import Window
from dovetail.platform.fitted import DhmModel

ROUNDING_STAGES = 3
"""Clock edges from a sum to its place in the output beat: bias, lift, saturation."""
REGROUP_STAGES = 1 + FIFO_LATENCY_CYCLES
"""Clock edges of what cuts pixels anew in front of an engine."""
SPREAD = 4
"""Scales among the filters of a layer, of which each lane chooses."""
BIAS_BITS = 20
FIFO_WORDS = 4
"""Beats of an output FIFO that rarely has more than one in flight."""
SMALL_MEMORY_WORDS = {"lut4": 16}
LUT_MEMORY_WORDS = 32
"""Words that a distributed memory has at least, however few are used; fewer where look-up tables have four inputs."""
WEIGHT_BITS = 8
NARROW_FACTOR_BITS, WIDE_FACTOR_BITS = 26, 31
"""Of factors that are cut as far as all sums allow (fpga/engines/narrow.py; 10 to 26 bits on MLPerf Tiny), and as they are."""
NARROW_SUM_BITS = 18
"""Of sums that are saturated where all results are, before a narrow factor; MLPerf Tiny's have 12 to 19 bits."""
MULTIPLIER_BLOCKS = {"lut": (18, 27), "lut4": (18, 18)}
"""Bits of the two factors of a multiplier block, signed; those of others are `MULTIPLIER_BLOCK`."""
MULTIPLIER_BLOCK = (27, 27)
UNUSED_SUM_BITS = 2
"""Bits by which sums of many weights stay below the largest such sum: their range is that of the real weights."""
TWIN_PARTS = 4
"""Products that are added before two filters in one multiplier are taken apart."""
RESCALING_REGISTERS = 3
"""Registers per bit of a product that rescales: the product, held for its multiplier, and nudged."""
SETTLED = 2.0
"""Logic per output bit of ties, lower and upper bound."""
REGROUP_LOGIC = 200.0
"""Logic of counters and handshakes of what cuts pixels anew and keeps them waiting in front of an engine; a mean of
MobileNetV2's whole top (docs/method/accelerator-results.md), where words, FIFOs and forks count 17,562 LUT around 48 engines."""
WAITING_PIXELS = 6
"""Pixels in the FIFO in front of an engine, which bridges its neighbour's pauses; a mean of MobileNetV2's."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A layer or a share of one, as far as its fold depends on it."""

    channels: Channels
    window: Window
    height: int
    width: int
    input_bits: int
    output_bits: int
    """Per channel of the output beat: 8, or 32 for partial sums."""
    weight_bits: int = WEIGHT_BITS
    factor_bits: int = 0
    """Of the factor that a sum is rescaled by; 0 where scales are powers of two."""

    @property
    def raster(self) -> Raster:
        """The window over the stream."""
        return padded_raster(self.window, self.height, self.width)


@lru_cache(maxsize=4096)
def padded_raster(window: Window, height: int, width: int) -> Raster:
    """A window over a stream, behind explicit padding where masks cannot express it; remembered, as every fold asks."""
    return Raster(window, height, width).padded


@dataclass(frozen=True, slots=True)
class FoldedCost:
    """A fold of a layer: clocks per frame, clocks it adds behind an equally slow producer, and what it occupies."""

    fold: Fold
    steps: int
    tail: int
    stages: int
    resources: tuple[tuple[str, float], ...]


@lru_cache(maxsize=1 << 16)
def _features(shape: Shape) -> tuple[int, ...]:
    """What clocks and area of a layer's folds follow from, in the order in which `FoldTable` names it."""
    channels, raster, window = shape.channels, shape.raster, shape.window
    return (channels.groups, channels.inputs, channels.outputs, prod(window.kernel), window.kernel[0], *window.reach,
            not raster.pointwise, raster.masked, raster.width, raster.outputs, raster.steps, raster.first, raster.flush,
            raster.counter_bits, shape.input_bits, shape.output_bits, shape.weight_bits, shape.factor_bits)


class FoldTable:
    """Folds of layers, row by row, under the names of `hardware.folds.Loops` and `hardware.streaming.FoldedRaster`.

    Row k is `folds[k]` (groups, inputs, filters, products of a multiplier block) of `shapes[which[k]]`.
    """

    def __init__(self, shapes: Sequence[Shape], which: Ints, folds: Ints) -> None:
        self.shapes, self.which, self.folds = shapes, which, folds
        known = np.array([_features(shape) for shape in shapes], dtype=np.int64).reshape(len(shapes), -1).T[:, which]
        (self.all_groups, self.all_inputs, self.all_outputs, self.taps, self.kernel_rows, self.reach_rows, self.reach_columns,
         windowed, masked, self.width, self.pixels, self.raster_steps, self.first, self.flush, self.counter_bits,
         self.input_bits, self.output_bits, self.weight_bits, self.factor_bits) = known
        self.windowed, self.masked = windowed > 0, masked > 0
        self.groups, self.inputs, self.outputs, products = folds.T
        self.blocks, self.slices = -(-self.all_groups // self.groups), -(-self.all_inputs // self.inputs)
        self.passes, self.lanes = -(-self.all_outputs // self.outputs), self.groups * self.outputs
        self.words, self.results = self.blocks * self.slices, self.blocks * self.passes
        self.clocks, self.soft = self.results * self.slices, products == 0
        self.holds_weights = (self.clocks > LUT_MEMORY_DEPTH) & ~self.soft
        self.twins = np.where(products == 2, self.groups * -(-self.outputs // 2), 0)
        runs = (self.groups == 1) & (self.blocks == 1)
        self.reads_words = (self.slices == 1) | runs | ((self.groups == 1) & (self.all_inputs % self.inputs == 0))
        self.writes_words = (self.passes == 1) | runs | ((self.groups == 1) & (self.all_outputs % self.outputs == 0))
        self.input_width = np.where(self.reads_words, self.groups * self.inputs, self.all_groups * self.all_inputs)
        self.output_width = np.where(self.writes_words, self.lanes, self.all_groups * self.all_outputs)
        self.products = self.inputs * self.taps
        self.steps = self.pixels * self.clocks + (self.raster_steps - self.pixels) * self.words

    def __getitem__(self, row: int) -> Fold:
        return Fold(*self.folds[row].tolist())

    def __iter__(self) -> Iterator[Fold]:
        return map(self.__getitem__, range(len(self.folds)))

    def resources(self, model: DhmModel) -> Floats:
        """What every row occupies, in the order of `resource_names`."""
        return resources_of(content_of(self), self, model)

    @property
    def stages(self) -> Ints:
        """Clock edges from a step to the beat that it leaves."""
        taps = WINDOW_STAGES * self.windowed + MASK_STAGES * self.masked
        taken = ISSUE_STAGES + WORD_STAGES + np.maximum(taps, HELD_STAGES * self.holds_weights)
        digits = np.array([soft_digits(shape.weight_bits) for shape in self.shapes])
        products = np.where(self.soft, digits[self.which], 1)
        last = products + ROUNDING_STAGES + REGROUP_STAGES + FIFO_LATENCY_CYCLES
        return np.asarray(taken + _bits_of(self.products) + (self.slices > 1) + last, dtype=np.int64)

    @property
    def tails(self) -> Ints:
        """Clocks that an engine adds behind an equally slow producer; a window over a whole map leaves with its last pixel."""
        held = np.where(self.pixels > 1, self.first * self.words, 0)
        return np.asarray(np.maximum(self.flush * self.clocks, held) + self.clocks, dtype=np.int64)

    def costs(self, rows: Ints, resources: Floats, model: DhmModel) -> list[FoldedCost]:
        """Some rows; `resources` are those of all."""
        names, own = resource_names(model), (self.steps, self.tails, self.stages)
        return [FoldedCost(Fold(*fold), steps, tail, stages, tuple(zip(names, used, strict=True)))
                for fold, steps, tail, stages, used in zip(self.folds[rows].tolist(), *(v[rows].tolist() for v in own),
                                                           resources[rows].tolist(), strict=True)]


def resource_names(model: DhmModel) -> tuple[str, ...]:
    """What folded engines occupy, by the names boards use."""
    return model.logic, "register", model.block, "dsp"


def fold_rows(folds: Iterable[Fold]) -> Ints:
    """Folds as `FoldTable` takes them."""
    return np.array([(f.groups, f.inputs, f.outputs, f.products) for f in folds], dtype=np.int64).reshape(-1, 4)


def folds_of_one(shape: Shape, folds: Ints) -> FoldTable:
    """Folds of one layer."""
    return FoldTable([shape], np.zeros(len(folds), dtype=np.int64), folds)


def folded_cost(shape: Shape, fold: Fold, model: DhmModel) -> FoldedCost:
    """Cycles and area of one fold."""
    table = folds_of_one(shape, fold_rows([fold]))
    (found,) = table.costs(np.zeros(1, dtype=np.int64), table.resources(model), model)
    return found


def _distinct(depth: Ints, width: Ints) -> Ints:
    """Columns of a memory of constants that differ: tools build equal ones once."""
    return np.minimum(width, np.left_shift(1, np.minimum(depth, 30)))


def _bits_of(count: Ints) -> Ints:
    """Bits of counters that go so far, and levels of trees of so many leaves."""
    return np.ceil(np.log2(count)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class EngineContent:
    """What engines are made of, in bits, row by row; memories as (words, width, whether they are constant)."""

    adders: Ints
    choices: Ints
    masked: Ints
    registers: Ints
    rounded: Ints
    multipliers: Ints
    lines: tuple[Ints, Ints]
    soft: Ints
    """Products in logic."""
    memories: tuple[tuple[Ints, Ints, bool], ...]
    """Weights, constants, output FIFO, window, and in front of it what cuts pixels anew and what keeps them waiting."""
    scaled: tuple[Ints, Ints] | None = None
    """Bits of the sum and of the factor of what rescales each lane's results; zeros where that is a shift."""
    regroups: bool = True

    def without(self, leaves: bool, enters: bool, width: Ints) -> EngineContent:
        """Less the FIFO behind it, or less what is in front of it, whose beats have `width` bits: other engines are there."""
        kept = self.memories[:2] + (() if leaves else self.memories[2:3]) + self.memories[3:4] + (
            () if enters else self.memories[4:])
        less = width * enters
        return replace(self, memories=kept, regroups=self.regroups and not enters, adders=self.adders - less,
                       registers=(self.registers - 2.5 * less).astype(np.int64))


def content_of(table: FoldTable, turned: Flags | None = None) -> EngineContent:
    """Bits of folded engines, part by part as they are built; where `turned` all passes go over a word as it comes."""
    t, lanes, windowed = table, table.lanes, table.windowed
    turns = np.zeros(len(lanes), dtype=np.bool_) if turned is None else turned
    word = t.groups * t.inputs * t.input_bits
    adders, in_lanes, sum_bits = _lane_bits(t)
    width = np.where(t.twins > 0, (2 * t.weight_bits + 1) * t.twins, t.weight_bits * lanes)
    weights, lines = t.products * width, windowed * (t.reach_rows - 1) * word
    again = (t.passes > 1) & (t.slices > 1) & ~turns
    kept = (windowed & (t.words > 1)) * t.kernel_rows * (t.reach_columns - ~again) * word
    kept = kept + (again & ~windowed & t.reads_words) * word
    masked, constants = t.masked * t.taps * word, lanes * (BIAS_BITS + 2 + t.factor_bits)
    in_window = windowed * t.kernel_rows * t.reach_columns * word + lines + masked + kept
    pixel, beat = t.all_groups * t.all_inputs * 8, t.all_groups * t.all_outputs
    whole = ~t.reads_words * pixel + ~(t.writes_words & ~turns) * beat * t.output_bits
    whole = whole + (turns & (t.slices > 1)) * (t.passes - 1) * lanes * sum_bits
    distinct = _distinct(t.clocks, weights) * (1 + t.holds_weights)
    waits = t.holds_weights & ~windowed & ~t.masked
    shallow = 0.5 * (distinct * (t.clocks <= SKIP_BLOCK_DEPTH) + constants)
    left, regrouped = t.output_width * t.output_bits, t.input_width * t.input_bits  # in front of it pixels are mostly cut anew
    few, in_memory = np.full(len(lanes), FIFO_WORDS), (t.reach_rows > 1) & (t.width * t.words > CHAIN_SLACK)
    return EngineContent(
        lanes * adders + regrouped, ~t.reads_words * (t.words - 1) * word + lanes * (SPREAD - 1) * sum_bits
        + np.where(windowed & (kept > 0) & again, t.taps * word, kept), masked,
        (lanes * in_lanes + in_window + whole + (2 + waits) * word + left + distinct + constants + shallow
         + 2.5 * regrouped).astype(np.int64), lanes * 8, ~t.soft * t.products * np.where(t.twins > 0, t.twins, lanes),
        (in_memory * t.width * t.words, in_memory * lines), t.soft * t.products * lanes,
        ((t.clocks, weights, True), (t.results, constants, True), (few, left, False),
         (np.where(windowed, t.words, t.slices), kept, False), (few, regrouped, False),
         (WAITING_PIXELS * np.where(t.reads_words, t.words, 1), regrouped, False)),
        (np.where(t.factor_bits == NARROW_FACTOR_BITS, np.minimum(sum_bits, NARROW_SUM_BITS), sum_bits) * (t.factor_bits > 0),
         t.factor_bits))


def _lane_bits(t: FoldTable) -> tuple[Ints, Ints, Ints]:
    """Of one filter of every row: widths of its adders, its registers, and the width of its sum."""
    product = t.input_bits + t.weight_bits
    total = product + np.maximum(0, _bits_of(t.products * t.slices) - UNUSED_SUM_BITS)
    tree, odd = _tree_bits(t.products, product)
    several = (t.slices > 1).astype(np.int64)
    parts = np.where(t.twins > 0, -(-t.products // TWIN_PARTS), 0)
    return (tree + total * (1 + several) + parts * product // 2,
            t.products * product + tree + odd + total * (2 + several) + parts * product, total)


def _tree_bits(terms: Ints, bits: Ints) -> tuple[Ints, Ints]:
    """`hardware.rounding.tree_bits` of every row, for levels one bit wider each."""
    merged, waiting = np.zeros_like(terms), np.zeros_like(terms)
    while np.any(terms > 1):
        merged += terms // 2 * (bits + 1)
        waiting += (terms > 1) * (terms % 2) * bits
        terms, bits = terms - terms // 2, bits + 1
    return merged, waiting


def _control_bits(t: FoldTable) -> Ints:
    """Widths of counters: those of the raster, of the rounds, and of the output FIFO and its credits."""
    rounds = sum((_bits_of(count) for count in (t.blocks, t.slices, t.passes, t.clocks)), np.zeros_like(t.blocks))
    return np.asarray(t.counter_bits + rounds + 4 * (FIFO_WORDS - 1).bit_length(), dtype=np.int64)


def resources_of(content: EngineContent, table: FoldTable, model: DhmModel) -> Floats:
    """Engines' content by the family's coefficients, row by row in the order of `resource_names`."""
    cost = model.coefficients
    depth, width = content.lines
    wide = depth * width >= LINE_BLOCK_BITS
    blocks = np.where(wide, _blocks(depth, width, model), 0.0)
    small = np.where(wide, 0.0, cost["logic_per_buffer_bit"] * depth * width)
    for depth, width, constant in content.memories:
        in_blocks = (depth > SKIP_BLOCK_DEPTH) & (depth * width >= SKIP_BLOCK_BITS)
        if constant and not cost["logic_per_rom_bit"]:  # the family's tools put any constants into blocks
            in_blocks = depth > 1
        blocks = blocks + np.where(in_blocks, _blocks(depth, width, model), 0.0)
        least = SMALL_MEMORY_WORDS.get(model.logic, LUT_MEMORY_WORDS)
        words = depth if constant and model.logic == "lut" else -(-depth // least) * least
        cells = (cost["logic_per_rom_bit"] * words * _distinct(depth, width) if constant
                 else cost["logic_per_buffer_bit"] * words * width)
        small = small + np.where(in_blocks | (depth <= 1), 0.0, cells)
    rounded, control = content.rounded + HEADROOM_BITS * table.lanes, _control_bits(table)
    logic = (cost["logic_per_adder_bit"] * content.adders + cost["logic_per_rounded_bit"] * rounded
             + (cost["logic_per_output_bit"] + SETTLED) * content.rounded + REGROUP_LOGIC * content.regroups
             + cost["logic_per_mask_bit"] * content.masked + cost["logic_per_choice_bit"] * content.choices
             + cost["logic_per_control_bit"] * control + small)
    if table.soft.any():
        each = np.array([soft_logic(model.logic, shape.input_bits, shape.weight_bits) for shape in table.shapes])
        logic = logic + content.soft * each[table.which]
    own = np.array([soft_registers(shape.input_bits, shape.weight_bits) for shape in table.shapes], dtype=np.int64)
    registers = (content.registers + content.soft * own[table.which] + cost["register_per_control_bit"] * control
                 + cost["register_per_output_bit"] * (content.rounded + rounded))
    factors, product = _rescaling(content, model)
    logic = logic + cost["logic_per_adder_bit"] * table.lanes * product * np.minimum(factors, 2)
    registers = registers + table.lanes * product * RESCALING_REGISTERS
    return np.column_stack([logic, registers, blocks, cost["dsp_per_product"] * content.multipliers + table.lanes * factors])


def _rescaling(content: EngineContent, model: DhmModel) -> tuple[Ints, Ints]:
    """Of what rescales a lane's results: multiplier blocks, and bits of the product; an adder nudges it, another joins parts."""
    if content.scaled is None:
        return np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    (of_sum, of_factor), (first, second) = content.scaled, MULTIPLIER_BLOCKS.get(model.logic, MULTIPLIER_BLOCK)
    there = of_factor > 0
    return there * -(-of_sum // first) * -(-(of_factor + 1) // second), of_sum + of_factor


def _blocks(depth: Ints, width: Ints, model: DhmModel) -> Floats:
    each = [-(-depth // words) * -(-width // bits) for words, bits in model.shapes]
    return np.asarray(np.min(each, axis=0) / model.parts, dtype=np.float64)
