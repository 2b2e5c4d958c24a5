"""Resources of a block of reusable engines, in bits as it is built (fpga/reusable), turned into cells by the family.

Sums and products are counted as wide as trained weights make them, since nothing here looks at weights. What is no count of bits
of an adder, a choice or a memory (control, and cells per bit of finishing a sum) was fitted to five blocks
synthesized with Yosys 0.70 (MobileNetV2 from 14x14 on).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log2, prod

import numpy as np

from dovetail.cost.dhm import SKIP_BLOCK_BITS, SKIP_BLOCK_DEPTH, distributed, ram_blocks
from dovetail.hardware.arrays.jobs import ARRAY, ARRAY_SLOTS, DEPTHWISE, DEPTHWISE_SLOTS, ArrayProgram, TransferKind, fifo_depth
from dovetail.hardware.arrays.layers import ArrayLayer, Config, tables_of
from dovetail.hardware.arrays.popcount import CountedSums, counted_content, counted_sums
from dovetail.hardware.rounding import tree_bits
from dovetail.ir.operators.pointwise import TABLE_ENTRIES
from dovetail.platform.fitted import DhmModel, dhm_model

PRODUCT_BITS = 16
"""A product of a 9-bit activation and an 8-bit weight."""
PACKED_BITS, UPPER_BITS = 36, 9
"""Of a sum of packed products, and of the upper weight of a pair."""
MULTIPLIER_SIDES = 27, 18
"""Bits of the factors of one multiplier (DSP48E2, UG579)."""
TERM_BITS = 14
"""Bits of a sum of trained weights' products beyond those of the number of products."""
MEAN_BITS = 15
"""Bits of a sum of 64 times a pixel beyond those of the number of pixels."""
FINISH_LOGIC, ADD_LOGIC, DROP_LOGIC = 100.0, 75.0, 30.0
"""Logic per channel that finishes a sum, that also adds, and that also averages, beside its sum's width."""
FINISH_REGISTERS, ADD_REGISTERS = 70.0, 60.0
GATE_CHOICES, GATE_REGISTERS = 24.0, 75.0
"""Bits per channel of choosing the other operand, shifted, for a multiplier, and of keeping it from there to an addition."""
RESTART_LOGIC = 0.6
"""Per bit of a running sum, beside its adder, for starting a new one."""
PRODUCT_REGISTERS = 12.8
"""Per product: its 16 bits, less what tools move into multipliers and memories."""
CONSTANT_BITS, LAYER_BITS = 30, 45
"""Bits of a filter's bias and multiplier, and of what a layer's filters share, that something is made of; the rest is removed."""
SOFT_LOGIC = 45.0
"""Logic of a product of 9 and 8 bits (Yosys 0.70, xcu and xcup: 360 look-up tables for eight)."""
TAP_BITS, LARGEST_LOGIC, LARGEST_FINISH = 9, 1.7, 60.0
"""Bits of a tap of the depthwise array, logic per bit for taking the larger of two, and per channel that is finished."""
OUTSIDE_BEATS = 64
"""Beats of maps that wait for the memory to take them."""
OUTSIDE_LOGIC, OUTSIDE_REGISTERS = 450.0, 500.0
"""Of what moves maps to and from external memory, beside its tables and beats."""
CONTROL_LOGIC, CONTROL_REGISTERS = 1000.0, 250.0
"""Of counters, tables and what they decide, for a block with both engines."""


@dataclass(frozen=True, slots=True)
class ArrayContent:
    """What a block is made of, in bits and products."""

    products: int
    finishers: int
    adders: float
    choices: float
    finishing: float
    registers: float
    memories: tuple[tuple[int, int, int], ...]
    """Copies, words and width of every memory."""


@dataclass(frozen=True, slots=True)
class Outline:
    """What the area of a block depends on: its arrays, words of weights of either, bits of their sums, what else it does."""

    config: Config
    weight_depth: int
    """Words of weights of the longest filter block; 0 without an array for convolutions."""
    phases: int
    """Words of weights of the longest depthwise job; 0 without any."""
    sums: tuple[int, int]
    adds: bool
    drops: bool
    """Whether it averages over a count that is no power of two."""
    memories: tuple[tuple[int, int, int], ...]
    """Copies, words and width of every memory."""
    counted: CountedSums | None = None
    """Of an array that counts bits."""
    gates: bool = False
    """Whether it multiplies maps with each other."""


def outline_of(program: ArrayProgram) -> Outline:
    """The outline of a layer program."""
    config, layers = program.config, program.layers.layers
    done = {(job.layer, job.engine) for job in program.jobs}
    averages = [prod(x.window.kernel) for x in layers if x.plain and not x.largest]
    return Outline(config, program.weight_depth, program.phases, widest_sums(config, [(layers[n], engine) for n, engine in done]),
                   any(x.add is not None for x in layers), any(count & (count - 1) for count in averages),
                   tuple(memories_of(program)), counted_sums(config, layers) if config.counts else None,
                   any(x.gated for x in layers))


def multipliers_of(outline: Outline) -> int:
    """Multipliers of a block, whatever makes them: one for every product of a clock, and one for every sum that is rescaled.

    A multiplier block that makes two products counts as two. An array that counts bits has one for every pair of an input and a
    filter, which takes one clock or several for a product.
    """
    config = outline.config
    array = config.inputs * config.outputs if outline.weight_depth else 0
    shared = config.monolithic and array
    depthwise = config.inputs * config.taps if outline.phases and not shared else 0
    return array + depthwise + config.inputs * (bool(array) + bool(outline.phases))


def block_resources(program: ArrayProgram, model_name: str) -> tuple[tuple[str, float], ...]:
    """Resources of a layer program by the names boards use."""
    logic, registers = CONTROL_LOGIC, CONTROL_REGISTERS
    if program.transfers:
        logic, registers = logic + OUTSIDE_LOGIC, registers + OUTSIDE_REGISTERS
    return outline_resources(outline_of(program), model_name, logic, registers)


@lru_cache(maxsize=1 << 15)
def outline_resources(outline: Outline, model_name: str, control_logic: float = 0.0,
                      control_registers: float = 0.0) -> tuple[tuple[str, float], ...]:
    """Resources of an outline by the names boards use, with so much for control."""
    model, content = dhm_model(model_name), content_of(outline)
    cost = model.coefficients
    blocks, small, kept = _memories(content, model)
    logic = content.adders + content.finishing + cost["logic_per_choice_bit"] * content.choices + small + control_logic
    return ((model.logic, logic), ("register", content.registers + kept + control_registers), (model.block, blocks),
            ("dsp", cost["dsp_per_product"] * (content.products + content.finishers)))


def _counting(outline: Outline) -> ArrayContent:
    """Bits of a block whose array counts bits, and whose depthwise array takes the largest of taps."""
    config = outline.config
    logic = registers = choices = 0.0
    multipliers = 0
    if outline.counted is not None:
        logic, registers, choices, multipliers = counted_content(config, outline.counted, outline.adds)
    if outline.phases:
        taps, window = config.inputs * config.taps * TAP_BITS, config.kernel ** 2 * config.word_bits
        logic += LARGEST_LOGIC * taps + config.inputs * LARGEST_FINISH
        registers += 2 * taps + window + config.inputs * FINISH_REGISTERS
        choices += max(0, outline.phases - 1) * taps
        multipliers += config.inputs
    return ArrayContent(multipliers, 0, logic, choices, 0.0, registers, outline.memories)


def content_of(outline: Outline) -> ArrayContent:
    """Bits of a block, part by part as it is built."""
    if outline.config.counts:
        return _counting(outline)
    config, both = outline.config, bool(outline.phases) and outline.weight_depth > 0
    channels, filters, shared = config.inputs, config.outputs, config.monolithic and both
    sums, adds, drops = outline.sums, outline.adds, outline.drops
    word, beat = channels * 8, config.port_bytes * 8
    lanes = [(filters, channels, sums[ARRAY])] if outline.weight_depth else []
    if outline.phases and not shared:
        lanes.append((channels, config.taps, sums[DEPTHWISE]))
    trees = [tree_bits(products, PRODUCT_BITS, 1) for _, products, _ in lanes]
    if config.packed and outline.weight_depth:
        trees[0] = _packed_tree(config)
    adders = sum(lane[0] * (tree[0] + lane[2]) for lane, tree in zip(lanes, trees, strict=True))
    restarts = RESTART_LOGIC * sum(count * width for count, _, width in lanes)
    waiting = sum(lane[0] * tree[1] for lane, tree in zip(lanes, trees, strict=True))
    widths = [width for engine, width in enumerate(sums) if (outline.weight_depth, outline.phases)[engine]]
    finishing = channels * (sum(FINISH_LOGIC + w for w in widths) + ADD_LOGIC * adds + DROP_LOGIC * drops)
    held = filters * sums[ARRAY] if outline.weight_depth else 0
    taps = channels * config.taps * 9 if outline.phases else 0
    window = config.kernel ** 2 * word if outline.phases else 0
    operands = sum(-(-count * products * 8 // beat) * beat for count, products, _ in lanes)
    mixed = channels * channels * 17 + filters * channels * 8 if shared else 0
    options = max(0, outline.phases - 1) * taps
    registers = (adders + waiting + held + operands + taps + window + mixed
                 + channels * sum(2 * w + FINISH_REGISTERS for w in widths) + channels * ADD_REGISTERS * adds
                 + channels * GATE_REGISTERS * outline.gates
                 + len(widths) * (channels * CONSTANT_BITS + LAYER_BITS) + 12 * word + 2 * beat
                 + PRODUCT_REGISTERS * sum(count * products for count, products, _ in lanes))
    handed_on = held * (1 - 1 / config.block_words)
    choices = 6 * word + options + (channels * channels * 17 if shared else 0) + channels * GATE_CHOICES * outline.gates
    multipliers = sum(count * products for count, products, _ in lanes)
    multipliers -= filters * channels // 2 if config.packed and outline.weight_depth else 0
    soft = config.soft * channels if outline.weight_depth else 0
    finishers = channels * (bool(outline.weight_depth) + (_averaging_products(sums[DEPTHWISE], drops) if outline.phases else 0))
    return ArrayContent(multipliers - soft, finishers, adders + restarts + handed_on + SOFT_LOGIC * soft,
                        choices, finishing, registers, outline.memories)


def _averaging_products(sum_bits: int, drops: bool) -> int:
    """Multipliers that scale a sum of the depthwise array: an average's reciprocal is as wide as its sum less three bits."""
    if not drops or sum_bits <= MULTIPLIER_SIDES[1] + 3:
        return 1
    return 2 if sum_bits <= MULTIPLIER_SIDES[0] else 4


def _packed_tree(config: Config) -> tuple[int, int]:
    """Of one of two filters that share multipliers: bits of adders and of values that wait, packed sums and its own."""
    parts = config.packed_sums
    own, odd = tree_bits(parts, PRODUCT_BITS + 2, 1)
    packed = (config.inputs - parts) * PACKED_BITS + parts * PRODUCT_BITS + config.inputs * UPPER_BITS
    return packed // 2 + own, odd + parts * PRODUCT_BITS


def widest_sums(config: Config, layers: Iterable[tuple[ArrayLayer, int]]) -> tuple[int, int]:
    """Bits of the widest sum of either engine, for layers with the engine of each."""
    widest = [0, 0]
    for layer, engine in layers if not config.counts else ():
        terms = prod(layer.window.kernel) * (layer.reads.channels // layer.groups)
        widest[engine] = max(widest[engine], (MEAN_BITS if layer.plain else TERM_BITS) + ceil(log2(terms)))
    if config.monolithic:
        widest = [max(widest)] * 2
    return widest[0], widest[1]


def memories_of(program: ArrayProgram) -> list[tuple[int, int, int]]:
    """Copies, words and width of every memory."""
    config = program.config
    word, beat = config.word_bits, config.port_bytes * 8
    jobs = [sum(job.engine == engine for job in program.jobs) for engine in (ARRAY, DEPTHWISE)]
    address = max(2, (max(program.depths) - 1).bit_length())
    found = [(1, depth, width) for depth, width in zip(program.depths, program.widths, strict=True) if depth]
    found += [(1, fifo_depth(config), beat), (1, 8, word), *transfer_memories(program, address),
              *table_memories(config, program.layers.layers)]
    constants = config.inputs * CONSTANT_BITS + LAYER_BITS
    if jobs[ARRAY]:
        found += [(array_pieces(config), ARRAY_SLOTS * program.weight_depth, beat), (1, jobs[ARRAY], 3 * address + 31),
                  (1, jobs[ARRAY], address + 17)]
        sums = counted_sums(config, program.layers.layers) if config.counts else None
        if sums is not None:
            own = config.inputs * (config.pairs * (sums.factor + 1) + config.thresholds * sums.total)
            found.append((1, ARRAY_SLOTS * program.constant_depth, max(own, constants)))
        else:
            found.append((1, ARRAY_SLOTS * config.block_words, constants))
        if any(x.residual is not None for x in program.layers.layers):
            found.append((1, jobs[ARRAY], address + 14))
    if jobs[DEPTHWISE]:
        phases = 1 << (program.phases - 1).bit_length()
        found += [(-(-config.inputs * config.taps * 8 // beat), DEPTHWISE_SLOTS * phases, beat),
                  (1, DEPTHWISE_SLOTS, constants), (1, program.line_width, (config.kernel - 1) * word),
                  (1, jobs[DEPTHWISE], 2 * address + 45), (1, jobs[DEPTHWISE], address + 9)]
    return found


def table_memories(config: Config, layers: Sequence[ArrayLayer]) -> list[tuple[int, int, int]]:
    """Memories of tables: one for every channel that is finished at once, with all tables of its array."""
    return [(config.inputs, TABLE_ENTRIES * len(tables), 8) for tables in tables_of(layers, config) if tables]


def array_pieces(config: Config) -> int:
    """Memories of a beat's width that a word of the array's weights lies in."""
    return -(-config.inputs * config.outputs * (config.weight_planes or 8) // (config.port_bytes * 8))


def transfer_memories(program: ArrayProgram, address: int) -> list[tuple[int, int, int]]:
    """Tables of what passes the memory port, and beats on their way out."""
    if not program.transfers:
        return [(1, len(program.jobs), 14)]
    kinds = [t.kind for t in program.transfers]
    counts = sum(max(1, n.bit_length()) for n in (len(program.jobs), sum(t.bursts for t in program.transfers)))
    found = [(1, len(kinds) - kinds.count(TransferKind.STORE), 36 + address + counts), (1, len(kinds), 30 + counts)]
    if program.outside:
        found += [(1, kinds.count(TransferKind.STORE), 16 + address + counts), (1, OUTSIDE_BEATS, program.config.port_bytes * 8)]
    return found


def _memories(content: ArrayContent, model: DhmModel) -> tuple[float, float, float]:
    """RAM blocks, logic of memories in look-up tables, and the registers behind those."""
    blocks = small = kept = 0.0
    for copies, depth, width in content.memories:
        bits = np.array([float(width)])
        if depth > SKIP_BLOCK_DEPTH and depth * width >= SKIP_BLOCK_BITS:
            blocks += copies * float(ram_blocks(depth, bits, model.shapes)[0]) / model.parts
        elif depth > 1:
            capacity, banks = distributed(depth, bits, model.distributed)
            small += copies * model.coefficients["logic_per_buffer_bit"] * float(capacity[0])
            small += copies * model.coefficients["logic_per_choice_bit"] * (float(banks[0]) - 1) * width
            kept += copies * width
    return blocks, small, kept
