"""Resources of an array that counts bits, in bits as it is built (fpga/reusable/counting.py), and the clock edges it takes.

What is no count of bits of an adder, a choice or a memory was fitted to blocks synthesized with Yosys 0.70
(docs/method/arrays.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, log2, prod

from dovetail.hardware.arrays.layers import ArrayLayer, Config

COUNTED_AT_FIRST, COUNTER, FULL_ADDER = 3, 6, 3
"""Pairs of bits of a first look-up table, and bits of the counters behind."""
PAIR_LOGIC, RUNNING_LOGIC = 1.1, 1.65
"""Per pair of bits that a lane counts in a clock, and per bit of a count that runs on."""
PAIR_REGISTERS, RUNNING_REGISTERS = 1.35, 2.65
STEP_LOGIC = 0.5
"""Per bit of a sum, for a comparison with a threshold that comes from memory."""
ROUND_LOGIC, ROUND_REGISTERS = 90.0, 60.0
"""Of a filter whose sums are rounded, beside its sum's width."""
ADD_LOGIC, ADD_REGISTERS = 75.0, 60.0
SMALL_PAIRS, STORED_BITS, KEPT = 4, 32, 0.7
"""Up to so many pairs of planes tools see through a finishing module, and leave this share of its registers beside shift
registers and multipliers; in larger ones they leave all, and all bits that are stored for it have registers, too."""
SPREAD_BITS = 24
"""Bits of what rounded sums of several layers are multiplied with, whose scales lie apart."""
FACTOR_SIDE, COUNT_SIDE = 26, 17
"""Bits of either operand of a multiplier block, without signs."""


@dataclass(frozen=True, slots=True)
class CountedSums:
    """Bits of the widest count, factor and sum of an array's layers, and what happens to sums."""

    count: int
    factor: int
    total: int
    passes: bool
    """Whether some pixels are worked on more than once."""
    codes: bool
    rounds: int
    """Layers whose sums are rounded."""


def counted_sums(config: Config, layers: Iterable[ArrayLayer]) -> CountedSums | None:
    """Of the layers that an array does; None where there are none."""
    own = [x for x in layers if not x.filtered(config)]
    if not own:
        return None
    counts = max(ceil(log2(_taps(x) * config.words(x.reads.channels // x.groups) * config.inputs + 1)) for x in own)
    totals = max(x.factor_bits + ceil(log2(_taps(x) * x.reads.channels // x.groups * (1 + x.owned(config)) + 1)) + 2 for x in own)
    factor = max(x.factor_bits + x.owned(config) for x in own)
    return CountedSums(counts, factor, totals, any(x.turns(config) * x.rounds(config) > 1 for x in own),
                       any(x.thresholds for x in own), sum(not x.thresholds for x in own))


def _taps(layer: ArrayLayer) -> int:
    return prod(layer.window.kernel)


def count_levels(inputs: int) -> int:
    """Clock edges from bits to their count: a table of three pairs, counters of six, full adders, one addition (`Counters`)."""
    whole, rest = divmod(inputs, COUNTED_AT_FIRST)
    columns = {0: [1] * (whole + rest), 1: [1] * whole}  # of every bit of a column, when it is there
    while any(len(column) > 2 for column in columns.values()):
        size = COUNTER if any(len(column) >= COUNTER for column in columns.values()) else FULL_ADDER
        following: dict[int, list[int]] = {}
        for weight, column in sorted(columns.items()):
            made, stage = len(column) // size, max(column, default=0)
            for k in range(size.bit_length() if made else 0):
                following.setdefault(weight + k, []).extend([stage + 1] * made)
            following.setdefault(weight, []).extend(column[made * size:])
        columns = following
    return max(stage for column in columns.values() for stage in column) + any(len(column) > 1 for column in columns.values())


def multiplier_blocks(wide: int, narrow: int) -> int:
    """Multiplier blocks of a product of so many bits, signs aside."""
    return ceil(max(wide, 1) / FACTOR_SIDE) * ceil(max(narrow, 1) / COUNT_SIDE)


def counted_content(config: Config, sums: CountedSums, adds: bool) -> tuple[float, float, float, int]:
    """Logic, registers, bits of choices and multiplier blocks of an array that counts bits and of its finishing modules."""
    channels, filters, pairs, words = config.inputs, config.outputs, config.pairs, config.block_words
    beat, product = config.port_bytes * 8, sums.count + sums.factor + 1
    counted = filters * channels * pairs + channels * config.input_planes
    running = filters * pairs * sums.count
    each = 1.0 * pairs * (2 * sums.count + product) + (pairs - 1) * sums.total
    kept = 1.0 * pairs * (sums.count + sums.factor + 2 * product) + (pairs - 1) * sums.total
    blocks = pairs * multiplier_blocks(sums.factor, sums.count)
    if sums.passes:
        each, kept = each + (1 + words) / 2 * sums.total, kept + (1 + words) * sums.total
    if sums.codes:
        each += STEP_LOGIC * config.thresholds * sums.total
    if sums.rounds:
        each, kept = each + ROUND_LOGIC + 3 * sums.total + ADD_LOGIC * adds, kept + ROUND_REGISTERS + 3 * sums.total
        kept += ADD_REGISTERS * adds
        scale = SPREAD_BITS if sums.rounds > 1 else COUNT_SIDE
        blocks += multiplier_blocks(max(sums.total, scale), min(sums.total, scale))
    logic = PAIR_LOGIC * counted + RUNNING_LOGIC * running + running * (1 - 1 / words) + channels * each
    if pairs > SMALL_PAIRS:
        kept += pairs * max(0, STORED_BITS - sums.factor - 1) + config.thresholds * max(0, STORED_BITS - sums.total)
    else:
        kept *= KEPT
    registers = PAIR_REGISTERS * counted + RUNNING_REGISTERS * running + channels * kept
    registers += -(-filters * channels * config.weight_planes // beat) * beat + 12 * config.word_bits + 2 * beat
    choices = 6 * config.word_bits + channels * config.input_planes * config.value_bits
    return logic, registers, choices, channels * blocks
