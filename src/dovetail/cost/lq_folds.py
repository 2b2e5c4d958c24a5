"""What a folded layer of codes costs, and its best fold: lanes that count pairs of bits, codes and constants in memory.

Counted as the engine is built (fpga/engines/coded_lane.py, folded.py); what one product of codes takes in look-up tables
and registers was read off syntheses (docs/method/lq-hardware.md) and is not fitted per family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, log2, prod

import numpy as np

from dovetail.cost.dhm import LINE_BLOCK_BITS, SKIP_BLOCK_BITS, SKIP_BLOCK_DEPTH, ram_blocks
from dovetail.hardware.folds import Channels, Fold, Loops
from dovetail.hardware.streaming import FIFO_LATENCY_CYCLES, FoldedRaster, Raster
from dovetail.platform.fitted import DhmModel, dhm_model

PAIR_LOGIC = 1.7
"""Look-up tables per pair of bits, from lanes that Yosys counted: two for three pairs at first, then counters of six."""
PAIR_REGISTERS = 1.6
ADDER_LOGIC = 1.0
"""Look-up tables per bit of what is added for plain integers."""
PRODUCT_BITS = 13
STEP_BITS = 20
CONSTANT_BITS = 24
"""Bits of a filter's bias and scale, where it has no thresholds."""
COUNT_BITS = 13
THRESHOLD_LOGIC = 0.6
"""Look-up tables per bit of a comparison with a threshold that comes from memory."""
WINDOW_LOGIC = 1.0
ENGINE_LOGIC = 250.0
"""Counters, handshakes and FIFO of an engine."""
DEEP_BLOCK_WORDS, BLOCKS_PER_CHOICE = 4096, 3
"""How deep Yosys makes the blocks of a deep memory on UltraScale, and how many of them a look-up table per bit chooses among."""
LANE_STAGES = 14
"""Clock edges from taps to a code, beyond one per halving of the products."""


@dataclass(frozen=True, slots=True)
class CodedShape:
    """A layer of codes or a share of it, as far as its fold depends on it."""

    channels: Channels
    kernel: tuple[int, int]
    raster: Raster
    weight_bits: int
    input_bits: int
    weight_width: int
    input_width: int
    steps: int
    """Thresholds; 0 where sums are rounded."""


def coded_cost(shape: CodedShape, fold: Fold, model: DhmModel) -> tuple[int, int, int, tuple[tuple[str, float], ...]]:
    """Clocks per frame, clocks after an equally slow producer, pipeline stages, and resources of one fold."""
    loops = Loops(shape.channels, fold)
    folded = FoldedRaster(shape.raster, loops)
    taps = fold.inputs * prod(shape.kernel)
    stages = folded.stages + ceil(log2(max(2, taps))) + LANE_STAGES + FIFO_LATENCY_CYCLES
    tail = max(shape.raster.flush * loops.clocks, shape.raster.first * folded.words) + loops.clocks
    return folded.steps, tail, stages, _resources(shape, loops, taps, model)


def _resources(shape: CodedShape, loops: Loops, taps: int, model: DhmModel) -> tuple[tuple[str, float], ...]:
    planes, lanes = max(1, shape.weight_bits) * max(1, shape.input_bits), loops.lanes
    products = lanes * taps
    logic, registers, dsp = ENGINE_LOGIC, 300.0, float(lanes * planes)
    if shape.weight_bits and shape.input_bits:
        ones = loops.fold.groups * taps * shape.input_bits
        logic += PAIR_LOGIC * (products * planes + ones)
        registers += PAIR_REGISTERS * products * planes
    else:
        width = shape.input_width + shape.weight_width if not (shape.weight_bits or shape.input_bits) else \
            max(shape.input_width if not shape.input_bits else 1, shape.weight_width if not shape.weight_bits else 1)
        logic += ADDER_LOGIC * products * planes * (width + 1)
        registers += 2.0 * products * planes * width
        dsp += 0.0 if shape.weight_bits or shape.input_bits else products
    logic += lanes * (planes * 2 * COUNT_BITS + THRESHOLD_LOGIC * shape.steps * STEP_BITS + 60)
    registers += lanes * (planes * (2 * COUNT_BITS + 2 * STEP_BITS) + 3 * STEP_BITS)
    registers += 3 * taps * loops.fold.groups * shape.input_width + products * shape.weight_width + lanes * _constants(shape)
    logic += WINDOW_LOGIC * taps * loops.fold.groups * shape.input_width
    blocks, small = _memories(memories_of(shape, loops.fold), model)
    return ((model.logic, logic + small), ("register", registers), (model.block, blocks), ("dsp", dsp))


def _constants(shape: CodedShape) -> int:
    """Bits that a filter has beside its codes: products, and thresholds or bias and scale."""
    planes = max(1, shape.weight_bits) * max(1, shape.input_bits)
    return planes * PRODUCT_BITS + (shape.steps * STEP_BITS if shape.steps else CONSTANT_BITS)


def memories_of(shape: CodedShape, fold: Fold) -> list[tuple[int, int, int]]:
    """A folded layer's memories as (words, bits of a word, bits from which they are blocks): codes, constants, window, lines."""
    loops = Loops(shape.channels, fold)
    folded = FoldedRaster(shape.raster, loops)
    word = fold.groups * fold.inputs * shape.input_width
    high, wide = shape.kernel
    windowed = not folded.raster.pointwise
    kept = high * wide * word if windowed and loops.words > 1 else word if loops.passes > 1 and loops.slices > 1 else 0
    found = [(loops.clocks, loops.lanes * fold.inputs * high * wide * shape.weight_width, SKIP_BLOCK_BITS),
             (loops.results, loops.lanes * _constants(shape), SKIP_BLOCK_BITS),
             (loops.words if windowed else loops.slices, kept, SKIP_BLOCK_BITS)]
    if windowed and high > 1 and not folded.line_in_registers:
        found.append((folded.raster.width * folded.words, (high - 1) * word, LINE_BLOCK_BITS))
    return found


def is_block(words: int, width: int, least: int) -> bool:
    """Whether a memory of `memories_of` is made of blocks."""
    return words > SKIP_BLOCK_DEPTH and words * width >= least


def choice_logic(words: int, width: int) -> int:
    """Look-up tables that choose among the blocks that a deep memory has one behind another."""
    behind = -(-words // DEEP_BLOCK_WORDS)
    return width * -(-behind // BLOCKS_PER_CHOICE) if behind > 1 else 0


def _memories(memories: Sequence[tuple[int, int, int]], model: DhmModel) -> tuple[float, float]:
    """Blocks and look-up tables of memories (words, width, bits from which they are blocks)."""
    blocks, small = 0.0, 0.0
    for depth, width, least in memories:
        if is_block(depth, width, least):
            blocks += float(ram_blocks(depth, np.array([float(width)]), model.shapes)[0]) / model.parts
            small += choice_logic(depth, width) if model.block == "bram36" else 0.0
        elif depth > 1:
            small += model.coefficients["logic_per_buffer_bit"] * ceil(depth / 32) * 32 * width
    return blocks, small


def coded_folds(shape: CodedShape, clocks: int) -> list[Fold]:
    """Folds of at most `clocks` clocks per frame: one group at a time, divisors of its inputs, as few filters as that allows."""
    channels, raster = shape.channels, shape.raster
    found = []
    for inputs in (d for d in range(1, channels.inputs + 1) if channels.inputs % d == 0):
        words = Loops(channels, Fold(1, inputs, channels.outputs)).words
        passes = (clocks - (raster.steps - raster.outputs) * words) // (raster.outputs * words)
        if passes >= 1:
            found.append(Fold(1, inputs, -(-channels.outputs // min(passes, channels.outputs))))
    return found


@lru_cache(maxsize=65536)
def best_coded_fold(shape: CodedShape, model_name: str, resources: tuple[tuple[str, float], ...],
                    clocks: int) -> tuple[Fold, int, int, int, tuple[tuple[str, float], ...]] | None:
    """The fold with its cost that needs the smallest parts of a device, added up; None if no fold keeps the pace."""
    limits, model = dict(resources), dhm_model(model_name)
    found = [(fold, *coded_cost(shape, fold, model)) for fold in coded_folds(shape, clocks)]
    return min(found, key=lambda f: (sum(v / limits[r] for r, v in f[4] if limits.get(r)), f[1]), default=None)
