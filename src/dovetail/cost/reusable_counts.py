"""Resources of an array that counts bits, in bits as it is built (fpga/reusable/counting.py), and the clock edges it takes.

Cells per counted pair of bits are those of folded layers of codes (`coded_folds.py`); what finishes a sum was fitted to blocks
synthesized with Yosys 0.70 (docs/lq.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, log2, prod

from dovetail.cost.coded_folds import PAIR_LOGIC, PAIR_REGISTERS
from dovetail.cost.reusable_jobs import FACTOR_BYTES, final_words
from dovetail.cost.reusable_layers import Config, Layer

COUNTED_AT_FIRST, COUNTER, FULL_ADDER = 3, 6, 3
"""Pairs of bits of a first look-up table, and bits of the counters behind."""
SIGNED_LOGIC = 1.0
"""Per bit of a count, for twice the count less the input's set bits."""
STEP_LOGIC = 0.75
"""Per bit of a sum, for a comparison with a threshold that comes from memory."""
ROUND_LOGIC, ROUND_REGISTERS = 120.0, 90.0
"""Of a filter whose sums are rounded, beside its sum's width."""
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
    rounds: bool


def counted_sums(config: Config, layers: Iterable[Layer]) -> CountedSums | None:
    """Of the layers that an array does; None where there are none."""
    own = [x for x in layers if not x.filtered(config)]
    if not own:
        return None
    counts = max(ceil(log2(_taps(x) * config.words(x.reads.channels // x.groups) * config.inputs + 1)) for x in own)
    totals = max(x.factor_bits + ceil(log2(_taps(x) * x.reads.channels // x.groups * (1 + x.owned(config)) + 1)) + 2 for x in own)
    factor = max(x.factor_bits + x.owned(config) for x in own)
    return CountedSums(counts, factor, totals, any(x.turns(config) * x.rounds(config) > 1 for x in own),
                       any(x.thresholds for x in own), any(not x.thresholds for x in own))


def _taps(layer: Layer) -> int:
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


@dataclass(frozen=True, slots=True)
class CountedContent:
    """Logic, registers, bits of choices and multiplier blocks of an array and its finishing modules."""

    logic: float
    registers: float
    choices: float
    multipliers: int


def counted_content(config: Config, sums: CountedSums, adds: bool) -> CountedContent:
    """What an array that counts bits is made of, memories aside."""
    channels, filters, pairs, words = config.inputs, config.outputs, config.pairs, config.block_words
    beat = config.port_bytes * 8
    counted = filters * channels * pairs + channels * config.input_planes
    running = filters * pairs * sums.count
    logic = PAIR_LOGIC * counted + 1.6 * running + running * (1 - 1 / words)
    registers = PAIR_REGISTERS * counted + 2.0 * running
    registers += -(-filters * channels * config.weight_planes // beat) * beat + channels * config.input_planes * 2
    each = pairs * SIGNED_LOGIC * 2 * sums.count + (pairs - 1) * sums.total
    kept = pairs * 3.0 * (sums.count + sums.factor) + pairs * sums.total
    if sums.passes:
        each, kept = each + (1 + 0.5 * (words - 1)) * sums.total, kept + (1 + words) * sums.total
    if sums.codes:
        each, kept = each + STEP_LOGIC * config.thresholds * sums.total, kept + 2 * config.thresholds
    if sums.rounds:
        each, kept = each + ROUND_LOGIC + sums.total + 75.0 * adds, kept + ROUND_REGISTERS + 2 * sums.total + 60.0 * adds
    logic, registers = logic + channels * each, registers + channels * kept
    registers += _constants(config) + 12 * config.word_bits + 2 * beat
    blocks = channels * pairs * multiplier_blocks(sums.factor, sums.count)
    if sums.rounds:
        blocks += channels * multiplier_blocks(sums.total, COUNT_SIDE)
    return CountedContent(logic, registers, 6 * config.word_bits + channels * config.input_planes * config.value_bits, blocks)


def _constants(config: Config) -> int:
    """Bits of constants that are held at a time."""
    return config.inputs * (config.pairs * FACTOR_BYTES + final_words(config) * 4) * 8
