"""What a folded engine is made of and what that costs: cycles, and area in bits and words counted as the engine is built
(fpga/engines/folded.py); the family's coefficients turn it into cells.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, log2, prod

from dovetail.cost.dhm import LINE_BLOCK_BITS, SKIP_BLOCK_BITS, SKIP_BLOCK_DEPTH
from dovetail.hardware.folds import Channels, Fold, Loops, soft_logic
from dovetail.hardware.rounding import HEADROOM_BITS, tree_bits
from dovetail.hardware.streaming import FIFO_LATENCY_CYCLES, FoldedRaster, Raster
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
UNUSED_SUM_BITS = 2
"""Bits by which sums of many weights stay below the largest such sum: their range is that of the real weights."""
TWIN_PARTS = 4
"""Products that are added before two filters in one multiplier are taken apart."""
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


def folded_cost(shape: Shape, fold: Fold, model: DhmModel) -> FoldedCost:
    """Cycles and area of one fold."""
    loops, raster = Loops(shape.channels, fold), shape.raster
    folded = FoldedRaster(raster, loops)
    taps = prod(shape.window.kernel)
    products = fold.inputs * taps
    stages = (folded.stages + 1 + ceil(log2(products)) + (loops.slices > 1) + ROUNDING_STAGES + REGROUP_STAGES
              + FIFO_LATENCY_CYCLES)
    held = raster.first * folded.words if raster.outputs > 1 else 0  # a window over a whole map leaves with its last pixel
    tail = max(raster.flush * loops.clocks, held) + loops.clocks
    return FoldedCost(fold, folded.steps, tail, stages, resources_of(content_of(shape, loops, folded), loops, folded, model))


def _distinct(depth: int, width: int) -> int:
    """Columns of a memory of constants that differ: tools build equal ones once."""
    return min(width, 1 << min(depth, 30))


@dataclass(frozen=True, slots=True)
class EngineContent:
    """What an engine is made of, in bits; memories as (words, width, whether they are constant)."""

    adders: int
    choices: int
    masked: int
    registers: int
    rounded: int
    multipliers: int
    lines: tuple[int, int]
    soft: tuple[int, int, int]
    """Products in logic, and the bits of their activations and weights."""
    memories: tuple[tuple[int, int, bool], ...]
    """Weights, constants, output FIFO, window, and in front of it what cuts pixels anew and what keeps them waiting."""
    regroups: bool = True

    def without(self, leaves: bool, enters: bool, width: int) -> EngineContent:
        """Less the FIFO behind it, or less what is in front of it, whose beats have `width` bits: other engines are there."""
        kept = self.memories[:2] + (() if leaves else self.memories[2:3]) + self.memories[3:4] + (
            () if enters else self.memories[4:])
        less = width if enters else 0
        return replace(self, memories=kept, regroups=self.regroups and not enters, adders=self.adders - less,
                       registers=int(self.registers - 2.5 * less))


def content_of(shape: Shape, loops: Loops, folded: FoldedRaster, turned: bool = False) -> EngineContent:
    """Bits of a folded engine, part by part as it is built; with `turned` all passes go over a word as it comes."""
    fold, window, windowed, lanes = loops.fold, shape.window, not folded.raster.pointwise, loops.lanes
    word, taps = fold.groups * fold.inputs * shape.input_bits, prod(window.kernel)
    products = fold.inputs * taps
    adders, in_lanes, sum_bits = _lane_bits(shape, loops, products)
    width = shape.weight_bits * lanes if not loops.twins else (2 * shape.weight_bits + 1) * loops.twins
    weights, lines = products * width, (window.reach[0] - 1) * word if windowed else 0
    again = loops.passes > 1 and loops.slices > 1 and not turned
    kept = window.kernel[0] * (window.reach[1] - (not again)) * word if windowed and loops.words > 1 else 0
    kept += word if again and not windowed and loops.reads_words else 0
    masked, constants = taps * word if folded.raster.masked else 0, lanes * (BIAS_BITS + 2)
    in_window = (window.kernel[0] * window.reach[1] * word if windowed else 0) + lines + masked + kept
    pixel, beat = loops.channels.groups * loops.channels.inputs * 8, loops.channels.groups * loops.channels.outputs
    whole = (0 if loops.reads_words else pixel) + (0 if loops.writes_words and not turned else beat * shape.output_bits)
    whole += (loops.passes - 1) * lanes * sum_bits if turned and loops.slices > 1 else 0
    shallow = 0.5 * (_distinct(loops.clocks, weights) * (loops.clocks <= SKIP_BLOCK_DEPTH) + constants)
    left = loops.output_width * shape.output_bits
    regrouped = loops.input_width * shape.input_bits  # in front of an engine pixels are mostly cut anew
    return EngineContent(
        lanes * adders + regrouped, (0 if loops.reads_words else (loops.words - 1) * word) + lanes * (SPREAD - 1) * sum_bits
        + (taps * word if windowed and kept and again else kept), masked,
        int(lanes * in_lanes + in_window + whole + 2 * word + left + _distinct(loops.clocks, weights) + constants + shallow
            + 2.5 * regrouped), lanes * 8, 0 if loops.soft else products * (loops.twins or lanes),
        (0, 0) if folded.line_in_registers else (folded.raster.width * folded.words, lines),
        (products * lanes if loops.soft else 0, shape.input_bits, shape.weight_bits),
        ((loops.clocks, weights, True), (loops.results, constants, True), (FIFO_WORDS, left, False),
         (loops.words if windowed else loops.slices, kept, False), (FIFO_WORDS, regrouped, False),
         (WAITING_PIXELS * (loops.words if loops.reads_words else 1), regrouped, False)))


def _lane_bits(shape: Shape, loops: Loops, products: int) -> tuple[int, int, int]:
    """Of one filter: widths of its adders, its registers, and the width of its sum."""
    product = shape.input_bits + shape.weight_bits
    total = product + max(0, ceil(log2(products * loops.slices)) - UNUSED_SUM_BITS)
    tree, odd = tree_bits(products, product, 1)
    adders, registers = tree + total * (1 + (loops.slices > 1)), products * product + tree + odd
    if loops.twins:
        parts = -(-products // TWIN_PARTS)
        adders, registers = adders + parts * product // 2, registers + parts * product
    return adders, registers + total * (2 + (loops.slices > 1)), total


def control_bits(loops: Loops, folded: FoldedRaster) -> int:
    """Widths of counters: those of the raster, of the rounds, and of the output FIFO and its credits."""
    rounds = sum((count - 1).bit_length() for count in (loops.blocks, loops.slices, loops.passes, loops.clocks))
    return folded.raster.counter_bits + rounds + 4 * (FIFO_WORDS - 1).bit_length()


def resources_of(content: EngineContent, loops: Loops, folded: FoldedRaster, model: DhmModel) -> tuple[tuple[str, float], ...]:
    """An engine's content by the family's coefficients."""
    cost = model.coefficients
    blocks, small = 0.0, 0.0
    depth, width = content.lines
    if depth * width >= LINE_BLOCK_BITS:
        blocks = _blocks(depth, width, model)
    else:
        small = cost["logic_per_buffer_bit"] * depth * width
    for depth, width, constant in content.memories:
        always = constant and depth > 1 and not cost["logic_per_rom_bit"]  # the family's tools put any constants into blocks
        if always or (depth > SKIP_BLOCK_DEPTH and depth * width >= SKIP_BLOCK_BITS):
            blocks += _blocks(depth, width, model)
        elif depth > 1:
            least = SMALL_MEMORY_WORDS.get(model.logic, LUT_MEMORY_WORDS)
            words = depth if constant and model.logic == "lut" else ceil(depth / least) * least
            small += (cost["logic_per_rom_bit"] * words * _distinct(depth, width) if constant
                      else cost["logic_per_buffer_bit"] * words * width)
    rounded, control = content.rounded + HEADROOM_BITS * loops.lanes, control_bits(loops, folded)
    logic = (cost["logic_per_adder_bit"] * content.adders + cost["logic_per_rounded_bit"] * rounded
             + (cost["logic_per_output_bit"] + SETTLED) * content.rounded + REGROUP_LOGIC * content.regroups
             + cost["logic_per_mask_bit"] * content.masked + cost["logic_per_choice_bit"] * content.choices
             + cost["logic_per_control_bit"] * control + small)
    count, *widths = content.soft
    if count:
        logic += count * soft_logic(model.logic, *widths)
    registers = (content.registers + cost["register_per_control_bit"] * control
                 + cost["register_per_output_bit"] * (content.rounded + rounded))
    return ((model.logic, logic), ("register", registers), (model.block, blocks),
            ("dsp", cost["dsp_per_product"] * content.multipliers))


def _blocks(depth: int, width: int, model: DhmModel) -> float:
    return min(ceil(depth / words) * ceil(width / bits) for words, bits in model.shapes) / model.parts
