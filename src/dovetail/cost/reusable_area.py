"""Resources of a block of reusable engines, in bits as it is built (fpga/reusable), turned into cells by the family."""

from __future__ import annotations

from math import ceil

import numpy as np

from dovetail.cost.dhm import SKIP_BLOCK_BITS, SKIP_BLOCK_DEPTH, distributed, ram_blocks
from dovetail.cost.reusable_jobs import CONSTANT_BYTES, DEPTHWISE_SLOTS, LAYER_BYTES, Program
from dovetail.platform.fitted import DhmModel, dhm_model

PRODUCT_BITS = 17
"""A product of a 9-bit activation and an 8-bit weight."""
SUM_BITS = 26
SCALED_BITS = 44


def block_resources(program: Program, model_name: str) -> tuple[tuple[str, float], ...]:
    """Resources of a layer program by the names boards use."""
    model, config = dhm_model(model_name), program.config
    cost = model.coefficients
    channels, filters = config.inputs, config.outputs
    lanes = [(filters, channels)] + ([] if config.monolithic or not program.phases else [(channels, config.taps)])
    products = sum(count * width for count, width in lanes)
    adders = sum(count * (_tree_bits(width) + SUM_BITS) for count, width in lanes)
    finishers = channels * (1 + bool(program.phases))
    blocks, small = _memories(program, model)
    rounding = finishers * (3 * SUM_BITS + SCALED_BITS + 2 * (SCALED_BITS - 16))
    shifted = filters * SUM_BITS
    logic = cost["logic_per_adder_bit"] * (adders + rounding) + shifted + small
    registers = adders + rounding + 3 * shifted
    return ((model.logic, logic), ("register", registers), (model.block, blocks), ("dsp", float(products + finishers)))


def _tree_bits(products: int) -> int:
    """Widths of all adders of a balanced tree of products."""
    total, count, width = 0, products, PRODUCT_BITS
    while count > 1:
        width += 1
        total += count // 2 * width
        count -= count // 2
    return total


def memories_of(program: Program) -> list[tuple[int, int]]:
    """Words and width of every memory."""
    config = program.config
    word, beat = config.inputs * 8, config.port_bytes * 8
    weights = ceil(config.inputs * config.outputs / config.port_bytes) * beat
    constants = (config.inputs * CONSTANT_BYTES + LAYER_BYTES) * 8
    found = [(depth, word) for depth in program.depths if depth]
    found += [(2 * program.weight_depth, weights), (2 * config.block_words, constants)]
    if program.phases:
        found += [(DEPTHWISE_SLOTS * program.phases, config.inputs * config.taps * 8), (DEPTHWISE_SLOTS, constants),
                  (program.line_width, (config.kernel - 1) * word)]
    return found


def _memories(program: Program, model: DhmModel) -> tuple[float, float]:
    """RAM blocks, and logic of memories in look-up tables."""
    blocks = small = 0.0
    for depth, width in memories_of(program):
        bits = np.array([float(width)])
        if depth > SKIP_BLOCK_DEPTH and depth * width >= SKIP_BLOCK_BITS:
            blocks += float(ram_blocks(depth, bits, model.shapes)[0]) / model.parts
        elif depth > 1:
            capacity, banks = distributed(depth, bits, model.distributed)
            small += model.coefficients["logic_per_buffer_bit"] * float(capacity[0])
            small += model.coefficients["logic_per_choice_bit"] * (float(banks[0]) - 1) * width
    return blocks, small
